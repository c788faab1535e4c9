//! Configuration: a TOML file, overlaid by the environment and the command line, and what follows from these.

pub mod delegations;
pub mod environment;
pub mod exports;
pub mod http;
pub mod keys;
pub mod reference;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use cluster::LeaseRules;
use door_nfs::{Courtesy, Flavor, Flavors};
use serde::{Deserialize, Serialize};

use crate::cli::{ConfigCommand, InstanceArguments, PoolUpArguments, UpArguments};
use crate::data_dir::SQLITE;
use crate::output;
use crate::pool_host::refuse_pool_host;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub data: PathBuf,
    pub listen: IpAddr,
    pub nfs: Nfs,
    pub pools: Pools,
    pub cluster: Cluster,
    pub keys: keys::KeyRules,
    pub namespace: Namespace,
    pub http: http::Http,
    pub auth: http::Auth,
    pub log: Log,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    pub port: u16,
    pub address: String,
    pub lease_s: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Nfs {
    pub port: Option<u16>,
    pub root_squash: Option<bool>,
    pub lease_s: u32,
    pub courtesy_s: u32,
    pub courtesy_clients_max: u32,
    pub grace_s: u32,
    pub clients_max: u32,
    pub connections_max: u32,
    pub flight_mib: u32,
    pub slots_max: u32,
    pub layout_min_kib: u32,
    pub copy_answer_ms: u32,
    pub delegations: delegations::Delegations,
    pub export: Vec<exports::Export>,
    pub security: Vec<String>,
    pub keytab: Option<PathBuf>,
    pub domain: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pools {
    pub count: Option<u32>,
    pub port: u16,
    pub reserve_mib: u64,
    pub reserve_files: u64,
    pub open_files_max: Option<u32>,
    pub threads: u32,
    pub queue_len_max: u32,
    pub io: pool::IoPolicy,
    pub contended_waits: u32,
    pub contended_window_s: u32,
    pub journal: pool::JournalPlace,
    pub gather: pool::GatherPolicy,
    pub digests: Vec<String>,
    pub scrub_every_days: u32,
    pub copy_percent: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Namespace {
    pub database: String,
    pub sync: Sync,
    pub sync_interval_ms: u64,
    pub consistency: Consistency,
    pub cache_mib: u64,
    pub queue_len_max: u32,
    pub group_len_max: u32,
    pub describe_s: u64,
    pub quota_grace_days: u32,
}

/// As in the DNS.
const DOMAIN_BYTES_MAX: usize = 253;

/// Which changes a power cut may lose; the names are the manual's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    Always,
    Names,
    Interval,
}

/// The consistency of directories that have no setting of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Consistency {
    Strong,
    Weak,
    Soft,
    Auto,
}

impl From<Consistency> for api::Consistency {
    fn from(mode: Consistency) -> api::Consistency {
        match mode {
            Consistency::Strong => api::Consistency::Strong,
            Consistency::Weak => api::Consistency::Weak,
            Consistency::Soft => api::Consistency::Soft,
            Consistency::Auto => api::Consistency::Auto,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub level: Level,
    pub format: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            data: PathBuf::from("./forebay-data"),
            listen: IpAddr::V4(Ipv4Addr::LOCALHOST),
            nfs: Nfs::default(),
            pools: Pools::default(),
            cluster: Cluster::default(),
            keys: keys::KeyRules::default(),
            namespace: Namespace::default(),
            http: http::Http::default(),
            auth: http::Auth::default(),
            log: Log::default(),
        }
    }
}

impl Default for Nfs {
    fn default() -> Nfs {
        Nfs {
            port: None,
            root_squash: None,
            lease_s: 90,
            courtesy_s: 86_400,
            courtesy_clients_max: 1_024,
            grace_s: 90,
            clients_max: 10_000,
            connections_max: 4_096,
            flight_mib: 64,
            slots_max: 256,
            layout_min_kib: 64,
            copy_answer_ms: 100,
            delegations: delegations::Delegations::default(),
            export: Vec::new(),
            security: vec!["sys".to_owned()],
            keytab: None,
            domain: None,
        }
    }
}

/// Maximum states of all clients with expired leases together: about a GiB.
const COURTESY_STATES_MAX: u64 = 1 << 20;

impl Nfs {
    pub fn courtesy(&self) -> Courtesy {
        Courtesy {
            time: Duration::from_secs(self.courtesy_s.into()),
            clients_max: self.courtesy_clients_max as usize,
            states_max: COURTESY_STATES_MAX,
        }
    }

    /// Security flavors of exports that name none, in the order in which SECINFO lists them.
    pub fn flavors(&self) -> Result<Flavors> {
        self.flavors_of("nfs.security", &self.security)
    }

    fn flavors_of(&self, key: &str, names: &[String]) -> Result<Flavors> {
        let flavors = names.iter().map(|name| name.parse::<Flavor>());
        let flavors: Vec<Flavor> =
            flavors.collect::<Result<_, _>>().map_err(|error| anyhow!("{key}: {error}"))?;
        if flavors.is_empty() {
            bail!("{key} = [] lets nobody in");
        }
        if self.keytab.is_none() && flavors.iter().any(|flavor| flavor.is_kerberos()) {
            bail!("{key} with Kerberos needs nfs.keytab");
        }
        Ok(Flavors::new(&flavors))
    }

    fn validate_domain(&self) -> Result<()> {
        let Some(domain) = &self.domain else { return Ok(()) };
        let is_of_domain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        if domain.is_empty() || domain.len() > DOMAIN_BYTES_MAX || !domain.bytes().all(is_of_domain) {
            bail!(
                "nfs.domain = {domain:?} is no domain; give the part after the @ in names, for example example.org"
            );
        }
        Ok(())
    }
}

impl Pools {
    fn validate(&self, within: impl Fn(&str, u64, u64, u64) -> Result<()>) -> Result<()> {
        within("pools.count", self.count.unwrap_or(1).into(), 1, 256)?;
        within("pools.open_files_max", self.open_files_max.unwrap_or(16).into(), 16, 1_000_000)?;
        within("pools.threads", self.threads.into(), 0, 256)?;
        within("pools.queue_len_max", self.queue_len_max.into(), 16, 1_000_000)?;
        within("pools.contended_waits", self.contended_waits.into(), 1, 1_000_000)?;
        within("pools.contended_window_s", self.contended_window_s.into(), 1, 3_600)?;
        within("pools.scrub_every_days", self.scrub_every_days.into(), 0, 3_650)?;
        within("pools.copy_percent", self.copy_percent.into(), 1, 100)?;
        check_checksums("pools.digests", &self.digests)?;
        Ok(())
    }

    pub fn contention(&self) -> pool::ContentionThresholds {
        pool::ContentionThresholds {
            conflicts_min: self.contended_waits,
            window: Duration::from_secs(self.contended_window_s.into()),
        }
    }

    /// Of a configuration that was validated.
    pub fn digest_kinds(&self) -> impl Iterator<Item = types::ChecksumKind> {
        self.digests.iter().filter_map(|name| types::ChecksumKind::by_name(name))
    }
}

impl Default for Pools {
    fn default() -> Pools {
        Pools {
            count: None,
            port: 20491,
            reserve_mib: 64,
            reserve_files: 1_024,
            open_files_max: None,
            threads: 0,
            queue_len_max: 4_096,
            io: pool::IoPolicy::Auto,
            contended_waits: 16,
            contended_window_s: 4,
            journal: pool::JournalPlace::Pool,
            gather: pool::GatherPolicy::Auto,
            digests: vec!["adler32".to_owned()],
            scrub_every_days: 30,
            copy_percent: 20,
        }
    }
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster { port: 7413, address: String::new(), lease_s: 10 }
    }
}

impl Cluster {
    pub fn rules(&self) -> LeaseRules {
        let lease = Duration::from_secs(self.lease_s.into());
        LeaseRules { lease, suspect: lease * 3 / 10 }
    }
}

impl Default for Namespace {
    fn default() -> Namespace {
        Namespace {
            database: SQLITE.to_owned(),
            sync: Sync::Always,
            sync_interval_ms: 1_000,
            consistency: Consistency::Auto,
            cache_mib: 256,
            queue_len_max: 32_768,
            group_len_max: namespace::GROUP_LEN_MAX,
            describe_s: 600,
            quota_grace_days: 7,
        }
    }
}

impl Default for Log {
    fn default() -> Log {
        Log { level: Level::Warn, format: Form::Text }
    }
}

impl Config {
    pub fn read(file: &Path) -> Result<Config> {
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read configuration {}", file.display()))?;
        let wrong = |at: usize, what: &str| {
            let line = bytes[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            anyhow::anyhow!("{}:{line}: {what}", file.display())
        };
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            wrong(error.valid_up_to(), "is not text in UTF-8; correct or remove the line")
        })?;
        let config: Config = toml::from_str(text).map_err(|error| {
            let start = error.span().map_or(0, |span| span.start.min(text.len()));
            wrong(start, &error.message().replace('\n', " "))
        })?;
        config.validate().with_context(|| file.display().to_string())?;
        Ok(config)
    }

    /// The file, if one is named, and the environment.
    fn read_or_default(file: Option<&Path>) -> Result<Config> {
        let config = file.map(Config::read).transpose()?.unwrap_or_default();
        config.with_environment()
    }

    /// File, then environment, then command line, then what depends on who runs it.
    pub fn assemble(arguments: &UpArguments) -> Result<Config> {
        let mut config = Config::read_or_default(arguments.config.as_deref())?;
        if let Some(data) = &arguments.data {
            config.data.clone_from(data);
        }
        if let Some(listen) = arguments.listen {
            config.listen = listen;
        }
        config.nfs.port = arguments.nfs_port.or(config.nfs.port);
        if let Some(port) = arguments.http_port {
            (config.http.port, config.http.enabled) = (port, true);
        }
        config.pools.port = arguments.pool_port.unwrap_or(config.pools.port);
        config.pools.count = arguments.pools.or(config.pools.count);
        if let Some(database) = &arguments.namespace {
            config.namespace.database.clone_from(database);
        }
        if arguments.no_http {
            config.http.enabled = false;
        }
        if arguments.no_root_squash {
            config.nfs.root_squash = Some(false);
        }
        config.validate()?;
        Ok(config)
    }

    /// Of a pool on a host of its own.
    pub fn assemble_pool(arguments: &PoolUpArguments) -> Result<Config> {
        let PoolUpArguments { data, listen, pool_port, http_port, no_http, config, .. } = arguments;
        let mut assembled = Config::assemble(&UpArguments {
            data: data.clone(),
            listen: *listen,
            pool_port: *pool_port,
            no_http: *no_http,
            config: config.clone(),
            ..UpArguments::default()
        })?;
        assembled.http.pool_port = http_port.unwrap_or(assembled.http.pool_port);
        // A pool that only its own host reaches is of no use.
        if listen.is_none() && assembled.listen.is_loopback() {
            assembled.listen = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        }
        Ok(assembled)
    }

    pub fn nfs_port(&self) -> u16 {
        self.nfs.port.unwrap_or(if rustix::process::geteuid().is_root() { 2049 } else { 20490 })
    }

    /// Root is squashed wherever strangers can connect, unless somebody said otherwise.
    pub fn squashes_root(&self) -> bool {
        self.nfs.root_squash.unwrap_or(!self.listen.is_loopback())
    }

    fn validate(&self) -> Result<()> {
        let within = |key: &str, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            bail!("{key} = {value} is outside {low} to {high}")
        };
        within("nfs.lease_s", self.nfs.lease_s.into(), 1, 3_600)?;
        within("nfs.courtesy_s", self.nfs.courtesy_s.into(), 0, 604_800)?;
        within("nfs.courtesy_clients_max", self.nfs.courtesy_clients_max.into(), 0, 1_000_000)?;
        within("nfs.grace_s", self.nfs.grace_s.into(), 0, 3_600)?;
        within("nfs.clients_max", self.nfs.clients_max.into(), 1, 1_000_000)?;
        within("nfs.connections_max", self.nfs.connections_max.into(), 1, 1_000_000)?;
        within("nfs.flight_mib", self.nfs.flight_mib.into(), 1, 1_048_576)?;
        within("nfs.slots_max", self.nfs.slots_max.into(), 1, 1_024)?;
        within("nfs.layout_min_kib", self.nfs.layout_min_kib.into(), 0, 1_048_576)?;
        within("nfs.copy_answer_ms", self.nfs.copy_answer_ms.into(), 0, 10_000)?;
        self.nfs.delegations.validate(within)?;
        self.nfs.flavors()?;
        self.nfs.validate_domain()?;
        self.pools.validate(within)?;
        within("cluster.lease_s", self.cluster.lease_s.into(), 2, 30)?;
        self.keys.validate(within)?;
        within("namespace.sync_interval_ms", self.namespace.sync_interval_ms, 10, 60_000)?;
        within("namespace.cache_mib", self.namespace.cache_mib, 1, 1_048_576)?;
        within("namespace.queue_len_max", self.namespace.queue_len_max.into(), 16, 1_000_000)?;
        within("namespace.group_len_max", self.namespace.group_len_max.into(), 1, 65_536)?;
        if self.namespace.database != SQLITE {
            namespace::database_name(&self.namespace.database)?;
        }
        exports::validate(&self.nfs)?;
        self.http.validate()?;
        self.auth.validate()?;
        let last = u64::from(self.pools.port) + u64::from(self.pools.count.unwrap_or(1)) - 1;
        if last > u64::from(u16::MAX) {
            bail!(
                "pools.port = {} leaves no ports for {} pools",
                self.pools.port,
                self.pools.count.unwrap_or(1)
            );
        }
        Ok(())
    }
}

impl InstanceArguments {
    /// The configuration of the instance meant; its `data` is where it lies. A pool host is none.
    pub fn config(&self) -> Result<Config> {
        let config = self.config_of_any()?;
        refuse_pool_host(&config.data)?;
        Ok(config)
    }

    /// For commands that a pool host answers, too.
    pub fn config_of_any(&self) -> Result<Config> {
        let mut config = Config::read_or_default(self.config.as_deref())?;
        if let Some(data) = &self.data {
            config.data.clone_from(data);
        }
        Ok(config)
    }
}

pub fn run(command: &ConfigCommand) -> Result<ExitCode> {
    match command {
        ConfigCommand::Reference { output } => {
            output::print(*output, &reference::listed(), |_| reference::text())?;
        }
        ConfigCommand::Check { file, output } => {
            Config::read(file)?;
            output::print(*output, &CheckReport { file, valid: true }, |_| {
                format!("{}: valid\n", file.display())
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Of a valid file; the error tells of another one.
#[derive(Serialize)]
struct CheckReport<'a> {
    file: &'a Path,
    valid: bool,
}

/// `key`: whose value has these names of checksums.
fn check_checksums(key: &str, names: &[String]) -> Result<()> {
    match names.iter().find(|name| types::ChecksumKind::by_name(name).is_none()) {
        None => Ok(()),
        Some(name) => bail!("{key} has {name:?}; known are adler32, crc32c, md5 and sha-256"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: impl AsRef<[u8]>) -> Result<Config> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("forebay.toml");
        std::fs::write(&file, text).unwrap();
        Config::read(&file)
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = parse("[nfs]\nlease_s = 10\nleese_s = 10\n").unwrap_err();
        assert!(error.to_string().contains(":3: unknown field `leese_s`"), "{error}");
    }

    #[test]
    fn a_configuration_that_is_no_text_is_refused_with_its_line_and_advice() {
        let error = parse(b"[nfs]\n# \xff\n").unwrap_err().to_string();
        assert!(
            error.ends_with("forebay.toml:2: is not text in UTF-8; correct or remove the line"),
            "{error}"
        );
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_the_range() {
        let error = format!("{:#}", parse("[nfs]\nlease_s = 0\n").unwrap_err());
        assert!(error.contains("nfs.lease_s = 0 is outside 1 to 3600"), "{error}");
    }

    #[test]
    fn a_file_is_contended_by_the_numbers_of_the_configuration() {
        let contention = |text: &str| parse(text).map(|config| config.pools.contention());
        assert_eq!(contention("").unwrap(), pool::ContentionThresholds::default());
        let set = contention("[pools]\ncontended_waits = 3\ncontended_window_s = 60\n").unwrap();
        assert_eq!((set.conflicts_min, set.window), (3, Duration::from_secs(60)));
        for (key, range) in [("contended_waits", "1 to 1000000"), ("contended_window_s", "1 to 3600")] {
            let error = format!("{:#}", parse(format!("[pools]\n{key} = 0\n")).unwrap_err());
            assert!(error.contains(&format!("pools.{key} = 0 is outside {range}")), "{error}");
        }
    }

    #[test]
    fn keys_are_not_renewed_before_the_overlap_is_over() {
        let error = format!("{:#}", parse("[keys]\nrenew_after_s = 3600\n").unwrap_err());
        assert!(error.contains("keys.renew_after_s = 3600 is less than keys.overlap_s = 86400"), "{error}");
        let config = parse("[keys]\nrenew_after_s = 3600\noverlap_s = 3600\n").unwrap();
        assert_eq!(config.keys.renew_after(), Some(Duration::from_secs(3_600)));
        assert_eq!(Config::default().keys.renew_after(), None);
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("forebay.toml");
        std::fs::write(&file, "[nfs]\nport = 1\n[pools]\ncount = 2\n").unwrap();
        let arguments = UpArguments { config: Some(file), nfs_port: Some(7), ..UpArguments::default() };
        let config = Config::assemble(&arguments).unwrap();
        assert_eq!((config.nfs_port(), config.pools.count), (7, Some(2)));
    }

    #[test]
    fn plain_networks_are_networks_and_never_all_addresses() {
        let plain = |networks: &str| parse(format!("[http]\nplain_networks = [{networks}]\n"));
        let two = plain("\"10.1.0.0/16\", \"2001:db8::1\"").unwrap().http.parsed_plain_networks().unwrap();
        assert!(two[0].contains([10, 1, 2, 3].into()) && !two[0].contains([10, 2, 0, 1].into()));
        assert_eq!(two[1].to_string(), "2001:db8::1/128");
        for (networks, says) in [
            ("\"10.1.0.0/33\"", "http.plain_networks: \"10.1.0.0/33\" has no prefix length of 0 to 32"),
            ("\"node1\"", "http.plain_networks: \"node1\" is no address or network"),
            (
                "\"10.0.0.0/0\"",
                "http.plain_networks: \"10.0.0.0/0\" has every address: name the closed networks only",
            ),
            ("\"::/0\"", "has every address"),
        ] {
            let error = format!("{:#}", plain(networks).unwrap_err());
            assert!(error.contains(says) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn flavors_of_kerberos_need_a_keytab() {
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(error("[nfs]\nsecurity = [\"krb5\"]\n").contains("needs nfs.keytab"));
        assert!(error("[nfs]\nsecurity = [\"krb4\"]\n").contains("\"krb4\" is not sys"));
        assert!(error("[nfs]\nsecurity = []\n").contains("lets nobody in"));
        let both = parse("[nfs]\nsecurity = [\"krb5p\", \"sys\"]\nkeytab = \"/etc/nfs.keytab\"\n").unwrap();
        assert_eq!(both.nfs.flavors().unwrap(), Flavors::new(&[Flavor::Krb5p, Flavor::Sys]));
    }

    #[test]
    fn a_domain_is_what_stands_behind_the_at_sign() {
        assert_eq!(parse("[nfs]\ndomain = \"example.org\"\n").unwrap().nfs.domain.unwrap(), "example.org");
        for domain in ["", "@example.org", "a b"] {
            let error = format!("{:#}", parse(format!("[nfs]\ndomain = {domain:?}\n")).unwrap_err());
            assert!(error.contains("is no domain"), "{error}");
        }
    }

    #[test]
    fn root_is_squashed_beyond_loopback_unless_told_otherwise() {
        let mut arguments = UpArguments::default();
        assert!(!Config::assemble(&arguments).unwrap().squashes_root());
        arguments.listen = Some("0.0.0.0".parse().unwrap());
        assert!(Config::assemble(&arguments).unwrap().squashes_root());
        arguments.no_root_squash = true;
        assert!(!Config::assemble(&arguments).unwrap().squashes_root());
    }
}
