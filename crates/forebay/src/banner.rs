//! Text that `forebay up` prints when it is ready.

use std::net::{IpAddr, SocketAddr};

use api::PoolStatus;

use namespace::Sync;

use crate::up::http::Shown;
use crate::users::FirstLogin;
use types::display::Size;

pub struct Banner<'a> {
    pub data: &'a std::path::Path,
    pub head: SocketAddr,
    pub pools: Vec<(SocketAddr, PoolStatus)>,
    pub squashes_root: bool,
    pub sync: Sync,
    /// A directory that users need before they can write anything.
    pub missing_directory: Option<String>,
    /// How pools of other hosts come in; `None`: this is no cluster.
    pub cluster: Option<String>,
    /// `None`: the HTTP door is switched off.
    pub web: Option<Shown>,
}

impl Banner<'_> {
    pub fn text(&self) -> String {
        let mut out = format!("Forebay {}\n", env!("CARGO_PKG_VERSION"));
        out += &format!("  data     {}\n", self.data.display());
        out += &format!("  head     {} (NFSv4.1, NFSv4.2, pNFS)\n", self.head);
        for (address, pool) in &self.pools {
            out += &format!("  {:<8} {address}, {} free\n", pool.id.to_string(), Size(pool.free_bytes));
        }
        if let Some(cluster) = &self.cluster {
            out += &format!("  cluster  {cluster}\n");
        }
        out += &self.sync_line();
        out += &self.web_lines();
        out += &format!("  mount    {}\n", self.mount_command());
        if let Some(path) = &self.missing_directory {
            let data = self.data.display();
            out += &format!(
                "  write    users cannot write yet; create a directory: forebay dir create {path} --owner USER --group \
                 GROUP --mode 2775 --data {data}\n"
            );
        }
        out += &format!("  stop     Ctrl-C, or: kill {}\n", std::process::id());
        if !self.head.ip().is_loopback() {
            let root = if self.squashes_root { "root is squashed to nobody" } else { "root is NOT squashed" };
            out +=
                &format!("  warning  AUTH_SYS trusts the client hosts to say who their users are; {root}\n");
        }
        out
    }

    /// If a power failure may lose changes that were answered.
    fn sync_line(&self) -> String {
        let lost = match self.sync {
            Sync::Always => return String::new(),
            Sync::Names(_) => "the latest changes of mode, owner and times",
            Sync::Interval(_) => "the latest changes of names and attributes",
        };
        format!("  note     namespace.sync is {}: a power failure may lose {lost}\n", self.sync)
    }

    fn web_lines(&self) -> String {
        let Some(web) = &self.web else { return String::new() };
        let scheme = if web.is_tls { "https" } else { "http" };
        let mut out = format!("  web      {scheme}://{}/ (WebDAV, and a page for browsers)\n", web.address);
        match &web.first_login {
            None => {}
            Some(FirstLogin::Shown { user, password }) => {
                out += &format!(
                    "  login    {user} {password} (shown this once; forebay user set-password {user})\n"
                );
            }
            Some(FirstLogin::Kept { user, file }) => {
                out += &format!("  login    {user}, the password is in {}\n", file.display());
            }
        }
        if web.is_loopback_only {
            out += &format!(
                "  note     HTTP is served to this host only; others need http.certificate and http.key\n\
                 \x20 note     certificate for a trial: forebay cert self-signed --host {}\n\
                 \x20 note     closed network, without TLS: http.plain_networks = [\"10.1.0.0/16\"]\n",
                self.host()
            );
        }
        if !web.plain_networks.is_empty() {
            let networks: Vec<String> = web.plain_networks.iter().map(ToString::to_string).collect();
            out += &format!(
                "  warning  HTTP without TLS for {}: others on the way can read and change passwords, tokens and data\n",
                networks.join(", ")
            );
        }
        out
    }

    fn mount_command(&self) -> String {
        let host = match self.head.ip() {
            IpAddr::V6(ip) if !ip.is_unspecified() => format!("[{ip}]"),
            _ => self.host(),
        };
        format!("sudo mount -t nfs4 -o vers=4.2,port={} {host}:/ /mnt", self.head.port())
    }

    /// As clients call this host, where that is known.
    fn host(&self) -> String {
        let ip = self.head.ip();
        if ip.is_unspecified() { "THIS-HOST".to_owned() } else { ip.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner(ip: &str) -> Banner<'static> {
        Banner {
            data: std::path::Path::new("/data"),
            head: SocketAddr::new(ip.parse().unwrap(), 2049),
            pools: Vec::new(),
            squashes_root: true,
            sync: Sync::Always,
            missing_directory: None,
            cluster: None,
            web: None,
        }
    }

    fn web(plain_networks: &[&str], is_loopback_only: bool) -> Shown {
        Shown {
            address: "10.1.0.1:8080".parse().unwrap(),
            is_tls: false,
            plain_networks: plain_networks.iter().map(|text| text.parse().unwrap()).collect(),
            first_login: None,
            is_loopback_only,
        }
    }

    #[test]
    fn where_users_cannot_write_one_line_names_the_command() {
        let text = Banner { missing_directory: Some("/NAME".to_owned()), ..banner("0.0.0.0") }.text();
        let command = "forebay dir create /NAME --owner USER --group GROUP --mode 2775 --data /data\n";
        assert!(text.lines().any(|line| format!("{line}\n").ends_with(command)), "{text}");
        assert!(!banner("0.0.0.0").text().contains("dir create"));
    }

    #[test]
    fn changes_that_a_power_failure_may_lose_are_named_if_there_are_any() {
        let text = |sync| Banner { sync, ..banner("127.0.0.1") }.text();
        let interval = std::time::Duration::from_secs(1);
        assert!(!text(Sync::Always).contains("power failure"));
        let names = text(Sync::Names(interval));
        assert!(
            names.contains("namespace.sync is names: a power failure may lose the latest changes of mode")
        );
        assert!(text(Sync::Interval(interval)).contains("namespace.sync is interval"));
    }

    #[test]
    fn where_http_is_for_this_host_only_the_banner_says_how_to_open_it() {
        let text = Banner { web: Some(web(&[], true)), ..banner("10.1.0.1") }.text();
        assert!(text.contains("forebay cert self-signed --host 10.1.0.1\n"), "{text}");
        assert!(text.contains("\n  note     closed network, without TLS: http.plain_networks"), "{text}");
        let text =
            Banner { web: Some(web(&["10.1.0.0/16", "10.3.0.0/16"], false)), ..banner("10.1.0.1") }.text();
        assert!(
            text.contains("\n  warning  HTTP without TLS for 10.1.0.0/16, 10.3.0.0/16: others"),
            "{text}"
        );
        assert!(!text.contains("cert self-signed"), "{text}");
    }

    #[test]
    fn beyond_loopback_one_line_says_whom_auth_sys_trusts() {
        assert!(!banner("127.0.0.1").text().contains("AUTH_SYS"));
        assert!(banner("127.0.0.1").text().contains("mount -t nfs4 -o vers=4.2,port=2049 127.0.0.1:/ /mnt"));
        assert!(banner("0.0.0.0").text().contains("AUTH_SYS trusts the client hosts"));
    }
}
