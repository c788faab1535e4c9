//! `[[nfs.export]]`: which directories which hosts may mount, and as whom.

use anyhow::{Context, Result, anyhow, bail};
use door_nfs::{ExportRules, Flavors, Hosts};
use serde::{Deserialize, Serialize};
use types::{Identity, Name, Network};

use super::{Config, Nfs};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Export {
    pub path: String,
    pub clients: Vec<String>,
    #[serde(default)]
    pub access: Access,
    /// As `nfs.root_squash` says, where it is not given.
    pub squash: Option<Squash>,
    #[serde(default = "nobody")]
    pub anonymous_uid: u32,
    #[serde(default = "nobody")]
    pub anonymous_gid: u32,
    /// As `nfs.security` says, where it is not given.
    pub security: Option<Vec<String>>,
}

/// As in exports(5), an export is read-only unless it is declared writable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    #[default]
    Ro,
    Rw,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Squash {
    Root,
    All,
    None,
}

fn nobody() -> u32 {
    Identity::NOBODY_ID
}

/// One of `clients`, as far as it is known without asking anybody.
#[derive(Debug)]
enum Client {
    Hosts(Hosts),
    /// To be looked up at the start.
    Name(String),
}

impl Export {
    fn path(&self) -> Result<Vec<Name>> {
        if !self.path.starts_with('/') {
            bail!("nfs.export: path {:?} does not begin with /", self.path);
        }
        let components = self.path.split('/').filter(|component| !component.is_empty());
        let names = components.map(|component| Name::new(component.as_bytes()));
        names.collect::<Result<_, _>>().map_err(|error| anyhow!("nfs.export: path {:?}: {error}", self.path))
    }

    fn clients(&self) -> Result<Vec<Client>> {
        if self.clients.is_empty() {
            bail!("nfs.export: {} has no clients: give addresses, networks, host names or \"*\"", self.path);
        }
        let clients = self.clients.iter().map(|text| parse(text));
        clients.collect::<Result<_>>().with_context(|| format!("nfs.export: clients of {}", self.path))
    }

    fn flavors(&self, nfs: &Nfs) -> Result<Flavors> {
        match &self.security {
            Some(names) => nfs.flavors_of(&format!("nfs.export: security of {}", self.path), names),
            None => nfs.flavors(),
        }
    }

    fn rules(&self, squashes_root: bool, flavors: Flavors) -> ExportRules {
        ExportRules {
            flavors,
            is_read_only: self.access == Access::Ro,
            squash: self.squash.map_or(default_squash(squashes_root), |squash| match squash {
                Squash::Root => door_nfs::Squash::Root,
                Squash::All => door_nfs::Squash::All,
                Squash::None => door_nfs::Squash::None,
            }),
            anonymous: (self.anonymous_uid, self.anonymous_gid),
        }
    }
}

/// Whether all exports stay as they are, and new ones have directories of their own. Any other change takes something from
/// clients that have files open there, and waits for a restart.
pub fn only_adds(running: &[Export], fresh: &[Export]) -> bool {
    let Some(new) = fresh.strip_prefix(running).filter(|new| !new.is_empty()) else { return false };
    let is_apart = |one: &Export, other: &Export| match (one.path(), other.path()) {
        (Ok(one), Ok(other)) => !one.starts_with(&other) && !other.starts_with(&one),
        _ => false,
    };
    // Without an export everything is exported, to everybody.
    !running.is_empty() && new.iter().all(|new| running.iter().all(|export| is_apart(new, export)))
}

fn default_squash(squashes_root: bool) -> door_nfs::Squash {
    if squashes_root { door_nfs::Squash::Root } else { door_nfs::Squash::None }
}

fn parse(text: &str) -> Result<Client> {
    if text == "*" {
        return Ok(Client::Hosts(Hosts::Any));
    }
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    // Text without a letter, or with a colon, is an address and no host name: a mistyped one is reported as an address.
    if text.bytes().all(is_of_name) && text.bytes().any(|byte| byte.is_ascii_alphabetic()) {
        return Ok(Client::Name(text.to_owned()));
    }
    if text.contains(['*', '?', '[']) {
        bail!("{text:?} is a pattern: list addresses, networks or whole host names, or \"*\" for everybody");
    }
    let network: Network = text.parse().map_err(|error: String| anyhow!(error))?;
    Ok(Client::Hosts(Hosts::Network(network)))
}

/// Checks that need neither the namespace nor name resolution.
pub fn validate(nfs: &Nfs) -> Result<()> {
    let mut seen: Vec<(Vec<Name>, Client)> = Vec::new();
    for export in &nfs.export {
        let path = export.path()?;
        export.flavors(nfs)?;
        for (client, text) in export.clients()?.into_iter().zip(&export.clients) {
            let is_known = |(known_path, known): &(Vec<Name>, Client)| {
                *known_path == path
                    && match (known, &client) {
                        (Client::Hosts(one), Client::Hosts(other)) => one.are_same(other),
                        (Client::Name(one), Client::Name(other)) => one.eq_ignore_ascii_case(other),
                        _ => false,
                    }
            };
            if seen.iter().any(is_known) {
                bail!("nfs.export: {} is given twice for {text:?}", export.path);
            }
            seen.push((path.clone(), client));
        }
    }
    Ok(())
}

/// As the door wants them, names looked up. Without any section the whole namespace is exported to whoever can connect.
pub async fn resolve(config: &Config) -> Result<Vec<door_nfs::Export>> {
    let squashes_root = config.squashes_root();
    if config.nfs.export.is_empty() {
        let mut whole = door_nfs::Export::of_everything(default_squash(squashes_root));
        whole.rules.flavors = config.nfs.flavors()?;
        return Ok(vec![whole]);
    }
    let mut exports = Vec::new();
    for export in &config.nfs.export {
        let mut hosts = Vec::new();
        for client in export.clients()? {
            match client {
                Client::Hosts(some) => hosts.push(some),
                Client::Name(name) => {
                    let addresses = look_up(&name).await;
                    hosts.extend(addresses.with_context(|| {
                        format!("nfs.export: cannot look up {name:?}, a client of {}", export.path)
                    })?);
                }
            }
        }
        let rules = export.rules(squashes_root, export.flavors(&config.nfs)?);
        exports.push(door_nfs::Export { path: export.path()?, hosts, rules });
    }
    Ok(exports)
}

/// Paths of the exports that clients may write. `None`: in one of them root of the clients is root here, and needs no
/// directory of its own.
pub fn written_by_users(config: &Config) -> Result<Option<Vec<Vec<Name>>>> {
    let squashes_root = config.squashes_root();
    if config.nfs.export.is_empty() {
        return Ok(squashes_root.then(|| vec![Vec::new()]));
    }
    let mut paths = Vec::new();
    for export in config.nfs.export.iter().filter(|export| export.access == Access::Rw) {
        if export.squash.map_or(!squashes_root, |squash| squash == Squash::None) {
            return Ok(None);
        }
        paths.push(export.path()?);
    }
    Ok(Some(paths))
}

async fn look_up(name: &str) -> Result<Vec<Hosts>> {
    let mut hosts: Vec<Hosts> = Vec::new();
    for address in tokio::net::lookup_host((name, 0)).await? {
        let found = Hosts::Network(Network::from(address.ip()));
        if !hosts.iter().any(|known| known.are_same(&found)) {
            hosts.push(found);
        }
    }
    if hosts.is_empty() {
        bail!("it has no address");
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use door_nfs::Flavor;

    fn exports(text: &str) -> Result<Vec<Export>> {
        let nfs: Nfs = toml::from_str(text)?;
        validate(&nfs)?;
        Ok(nfs.export)
    }

    fn refusal(text: &str) -> String {
        let error = format!("{:#}", exports(text).unwrap_err());
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn an_export_is_read_only_and_squashes_as_the_door_does_unless_it_says_otherwise() {
        let some =
            exports("[[export]]\npath = \"/a/b/\"\nclients = [\"10.0.0.0/8\", \"*\", \"node1\"]\n").unwrap();
        assert_eq!(some[0].path().unwrap().len(), 2);
        let rules = some[0].rules(true, Flavors::SYS);
        assert!(rules.is_read_only);
        assert_eq!((rules.squash, rules.anonymous), (door_nfs::Squash::Root, (65534, 65534)));
        assert_eq!(some[0].rules(false, Flavors::SYS).squash, door_nfs::Squash::None);
        let text = "[[export]]\npath = \"/\"\nclients = [\"::1\"]\naccess = \"rw\"\nsquash = \"all\"\nanonymous_uid = 7\n";
        let rules = exports(text).unwrap()[0].rules(true, Flavors::SYS);
        assert_eq!((rules.squash, rules.anonymous), (door_nfs::Squash::All, (7, 65534)));
        assert!(!rules.is_read_only);
    }

    #[test]
    fn invalid_export_is_reported_in_one_line() {
        let one =
            |path: &str, clients: &str| format!("[[export]]\npath = \"{path}\"\nclients = [{clients}]\n");
        for (path, clients, says) in [
            ("a", "\"*\"", "\"a\" does not begin with /"),
            ("/a/../b", "\"*\"", "path \"/a/../b\""),
            ("/a", "", "/a has no clients"),
            ("/a", "\"10.0.0.0/33\"", "\"10.0.0.0/33\" has no prefix length of 0 to 32"),
            ("/a", "\"10.0.0.300\"", "\"10.0.0.300\" is no address or network"),
            ("/a", "\"*.example.org\"", "is a pattern"),
            ("/a", "\"10.1.0.0/8\", \"10.0.0.0/8\"", "/a is given twice for \"10.0.0.0/8\""),
            ("/a", "\"node\", \"NODE\"", "/a is given twice for \"NODE\""),
        ] {
            let error = refusal(&one(path, clients));
            assert!(error.contains(says), "{error}");
        }
        let twice = one("/a", "\"*\"") + &one("/a/", "\"*\"");
        assert!(refusal(&twice).contains("/a/ is given twice for \"*\""));
        let unknown = exports("[[export]]\npath = \"/\"\nclients = [\"*\"]\nacces = \"rw\"\n").unwrap_err();
        assert!(unknown.to_string().contains("unknown field"), "{unknown}");
    }

    #[test]
    fn users_write_the_exports_that_are_writable_unless_root_of_a_client_is_root_here() {
        let paths = |listen: &str, text: &str| {
            let nfs = Nfs { export: exports(text).unwrap(), ..Nfs::default() };
            let config = Config { listen: listen.parse().unwrap(), nfs, ..Config::default() };
            written_by_users(&config).unwrap().map(|paths| paths.len())
        };
        let one = |more: &str| format!("[[export]]\npath = \"/a\"\nclients = [\"*\"]\n{more}\n");
        assert_eq!((paths("127.0.0.1", ""), paths("10.0.0.1", "")), (None, Some(1)));
        assert_eq!(paths("10.0.0.1", &one("")), Some(0), "read-only");
        assert_eq!(paths("10.0.0.1", &one("access = \"rw\"")), Some(1));
        assert_eq!(paths("127.0.0.1", &one("access = \"rw\"")), None);
        assert_eq!(paths("127.0.0.1", &one("access = \"rw\"\nsquash = \"all\"")), Some(1));
        assert_eq!(paths("10.0.0.1", &one("access = \"rw\"\nsquash = \"none\"")), None);
    }

    #[tokio::test]
    async fn an_export_has_the_security_of_its_own_or_that_of_all() {
        let text = "security = [\"krb5\", \"sys\"]\nkeytab = \"/k\"\n\
                    [[export]]\npath = \"/\"\nclients = [\"*\"]\n\
                    [[export]]\npath = \"/a\"\nclients = [\"*\"]\nsecurity = [\"krb5p\"]\n";
        let config = Config { nfs: toml::from_str(text).unwrap(), ..Config::default() };
        validate(&config.nfs).unwrap();
        let found = resolve(&config).await.unwrap();
        let flavors: Vec<Flavors> = found.iter().map(|export| export.rules.flavors).collect();
        assert_eq!(flavors, [Flavors::new(&[Flavor::Krb5, Flavor::Sys]), Flavors::new(&[Flavor::Krb5p])]);

        let one = |security: &str| {
            refusal(&format!("[[export]]\npath = \"/a\"\nclients = [\"*\"]\nsecurity = [{security}]\n"))
        };
        assert_eq!(one("\"krb5p\""), "nfs.export: security of /a with Kerberos needs nfs.keytab");
        assert_eq!(one(""), "nfs.export: security of /a = [] lets nobody in");
        assert!(one("\"none\"").contains("security of /a: \"none\" is not sys"));
    }

    #[tokio::test]
    async fn a_host_is_looked_up_at_the_start_and_a_name_that_nobody_knows_is_told() {
        let config = |client: &str| Config {
            nfs: Nfs {
                export: exports(&format!("[[export]]\npath = \"/\"\nclients = [\"{client}\"]\n")).unwrap(),
                ..Nfs::default()
            },
            ..Config::default()
        };
        let found = resolve(&config("localhost")).await.unwrap();
        let loopback =
            |hosts: &Hosts| matches!(hosts, Hosts::Network(one) if one.contains([127, 0, 0, 1].into()));
        assert!(found[0].hosts.iter().any(loopback), "{found:?}");
        let error = format!("{:#}", resolve(&config("no-such-host.invalid")).await.unwrap_err());
        assert!(error.starts_with("nfs.export: cannot look up \"no-such-host.invalid\""), "{error}");
        assert_eq!(resolve(&Config::default()).await.unwrap().len(), 1, "the whole namespace");
    }

    #[test]
    fn only_new_exports_apart_from_all_others_are_an_addition() {
        let of = |paths: &[&str]| -> Vec<Export> {
            let export = |path: &&str| format!("[[export]]\npath = {path:?}\nclients = [\"*\"]\n");
            exports(&paths.iter().map(export).collect::<String>()).unwrap()
        };
        assert!(only_adds(&of(&["/a"]), &of(&["/a", "/b", "/c/d"])));
        for (running, fresh) in [
            (&["/a"][..], &["/a"][..]),
            (&["/a", "/b"], &["/a"]),
            (&["/a"], &["/b", "/a"]),
            (&["/a"], &["/a", "/a/b"]),
            (&["/a/b"], &["/a/b", "/a"]),
            (&["/a"], &["/a", "/"]),
            (&[], &["/a"]),
        ] {
            assert!(!only_adds(&of(running), &of(fresh)), "{running:?} {fresh:?}");
        }
        let (old, mut new) = (of(&["/a"]), of(&["/a", "/b"]));
        new[0].access = Access::Rw;
        assert!(!only_adds(&old, &new), "the first is not what it was");
    }
}
