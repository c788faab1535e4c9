//! Every configuration key with default, values or type or unit, and meaning: the one source of `forebay config reference`.
//!
//! A test holds the table against the `Config` struct: no key is missing, none is too many, defaults are the true ones.

use serde_json::{Value, json};

struct Key {
    name: &'static str,
    default: &'static str,
    /// Of a number. Of other keys the type ([`TYPES`]), or the values with `|` between them.
    unit: &'static str,
    meaning: &'static str,
}

/// All other words say in which unit a number is.
const TYPES: &[&str] = &[
    "address",
    "bool",
    "domain",
    "host:port list",
    "list",
    "networks",
    "path",
    "paths",
    "port",
    "tables",
    "text",
];

const fn key(name: &'static str, default: &'static str, unit: &'static str, meaning: &'static str) -> Key {
    Key { name, default, unit, meaning }
}

const KEYS: &[Key] = &[
    key("data", "\"./forebay-data\"", "path", "Where everything is kept: namespace, pools, secret."),
    key("listen", "\"127.0.0.1\"", "address", "Address of head and pools. Beyond loopback root is squashed."),
    key("nfs.port", "(2049 as root, else 20490)", "port", "Port of the head."),
    key(
        "nfs.root_squash",
        "(false on loopback, else true)",
        "bool",
        "Clients' root becomes nobody (65534), in exports that do not say squash.",
    ),
    key(
        "nfs.lease_s",
        "90",
        "seconds",
        "Others may have the opens and locks of a client that is silent for longer.",
    ),
    key(
        "nfs.courtesy_s",
        "86400",
        "seconds",
        "After its lease a client keeps for so long what nobody else needs; 0: nothing.",
    ),
    key(
        "nfs.courtesy_clients_max",
        "1024",
        "clients",
        "Bound of such clients; beyond it, those go that are silent longest.",
    ),
    key(
        "nfs.grace_s",
        "90",
        "seconds",
        "After a start, known clients may reclaim for so long, twice as long while they do; new opens wait.",
    ),
    key(
        "nfs.clients_max",
        "10000",
        "clients",
        "Bound of client records; at it, new clients are told to wait.",
    ),
    key(
        "nfs.connections_max",
        "4096",
        "connections",
        "Bound per listening port, of which one address has no more than are free; at it, new connections are closed.",
    ),
    key(
        "nfs.flight_mib",
        "64",
        "MiB",
        "Calls on their way in, calls under way, and replies in memory: so much of each, at all ports together; one address has no more than is free.",
    ),
    key(
        "nfs.slots_max",
        "256",
        "slots",
        "Requests in flight per session: a client has up to 64, and is offered more when it uses all it has.",
    ),
    key(
        "nfs.layout_min_kib",
        "64",
        "KiB",
        "Smaller files are read and written through the head, without a layout (mdsthreshold); 0: all have layouts.",
    ),
    key(
        "nfs.copy_answer_ms",
        "100",
        "milliseconds",
        "A COPY within the server that takes longer goes on in the background, and the client is called when it is done.",
    ),
    key(
        "nfs.export",
        "[]",
        "tables",
        "Exports, each [[nfs.export]] with path (a directory), clients (addresses, networks, host names, \"*\"), and as \
         wanted access (ro|rw; ro), squash (root|all|none; as nfs.root_squash), anonymous_uid, anonymous_gid (65534), \
         security (as nfs.security). Without any, / is exported to everybody, rw.",
    ),
    key(
        "nfs.security",
        "[\"sys\"]",
        "list",
        "Security flavors that clients may use, the preferred first: sys, krb5, krb5i, krb5p. Those of Kerberos need nfs.keytab. \
         For exports that do not say security.",
    ),
    key(
        "nfs.keytab",
        "(none)",
        "path",
        "Keytab with the keys of nfs/HOST@REALM, for every name that clients mount head and pools by. Read again when it changes.",
    ),
    key(
        "nfs.domain",
        "(none)",
        "domain",
        "Clients with Kerberos are told owners and whom ACLs name as user@DOMAIN, and may give them so; users and groups \
         are those of this host. Must be the Domain of the clients' idmapd.conf. Without it everybody is told numbers.",
    ),
    key(
        "nfs.delegations.mode",
        "\"adaptive\"",
        "off|adaptive|always",
        "Read delegations: a client that has one opens and reads the file without asking. adaptive: for files that it opens \
         again and again; always: with every open.",
    ),
    key(
        "nfs.delegations.write",
        "\"wanted\"",
        "off|wanted|on",
        "Delegations to write: a client that has one is alone with the file and need not say when it opens, locks or closes it. \
         wanted: for clients that ask for one; on: as nfs.delegations.mode says for those to read.",
    ),
    key(
        "nfs.delegations.window_s",
        "60",
        "seconds",
        "A file that a client opens a second time this soon is active: it is delegated with that open and later ones.",
    ),
    key(
        "nfs.delegations.idle_s",
        "600",
        "seconds",
        "An active file that the client did not open for longer is active no more.",
    ),
    key(
        "nfs.delegations.eviction_files",
        "4096",
        "files",
        "Files opened once that are remembered for each client; beyond it the least recently used is forgotten.",
    ),
    key(
        "nfs.delegations.active_files",
        "4096",
        "files",
        "Active files of each client; beyond it the least recently used counts as opened once.",
    ),
    key(
        "nfs.delegations.quiet_s",
        "30",
        "seconds",
        "Time after a recall of its delegations in which a file is delegated to nobody.",
    ),
    key(
        "nfs.delegations.recall_s",
        "(nfs.lease_s)",
        "seconds",
        "Time after a recall until a layout or delegation that its NFS client does not give back is revoked, whether NFS or HTTP \
         asked for it.",
    ),
    key("pools.count", "(as the data directory has, 1 if new)", "pools", "Number of pools in this process."),
    key("pools.port", "20491", "port", "Port of pool 0; pool N listens N ports above it."),
    key(
        "pools.reserve_mib",
        "64",
        "MiB",
        "Free space that writes never use up; below it clients get ENOSPC.",
    ),
    key(
        "pools.reserve_files",
        "1024",
        "inodes",
        "Free inodes of the pool's file system that new files never use up.",
    ),
    key(
        "pools.open_files_max",
        "(half of the process's limit of open files over all pools, at most 32768)",
        "files",
        "Replicas each pool has open: in use, or kept for the next use.",
    ),
    key("pools.threads", "0", "threads", "Disk threads per pool; 0 means twice the cores, at most 8."),
    key(
        "pools.queue_len_max",
        "4096",
        "requests",
        "Disk requests waiting per pool; at it, clients are told to wait.",
    ),
    key(
        "keys.renew_after_s",
        "0",
        "seconds",
        "Age at which the keys that tickets to pools are sealed with are renewed; 0: only by `forebay keys renew`.",
    ),
    key(
        "keys.overlap_s",
        "86400",
        "seconds",
        "Pools accept tickets of the former keys for so long after a renewal; then clients ask the head for others.",
    ),
    key(
        "namespace.database",
        "\"sqlite\"",
        "sqlite|URL",
        "Where names are kept: a file in the data directory, or PostgreSQL 15 and newer (postgres://user:password@host/database; \
         several hosts, separated by commas, for a standby).",
    ),
    key(
        "namespace.sync",
        "\"always\"",
        "always|interval",
        "always: answered means on disk. interval: a power cut may \
         take the last namespace.sync_interval_ms, a crash of the process nothing.",
    ),
    key(
        "namespace.sync_interval_ms",
        "1000",
        "milliseconds",
        "The interval of namespace.sync = \"interval\" in SQLite; PostgreSQL has its own (a second).",
    ),
    key(
        "namespace.consistency",
        "\"auto\"",
        "strong|weak|soft|auto",
        "How soon a directory's link count, times and change attribute follow its entries, where `forebay dir \
         set-consistency` says nothing else.",
    ),
    key(
        "namespace.cache_mib",
        "256",
        "MiB",
        "Memory for files, names and locations that were asked for, about 500 bytes for a file with all of them.",
    ),
    key(
        "namespace.queue_len_max",
        "32768",
        "changes",
        "Changes waiting for the committer; at it, clients wait.",
    ),
    key("namespace.group_len_max", "512", "changes", "Changes committed together at most."),
    key(
        "namespace.quota_grace_days",
        "7",
        "days",
        "Time that an account may be above a soft limit of its quota; after that the soft limit binds.",
    ),
    key(
        "namespace.describe_s",
        "600",
        "seconds",
        "Between passes that tell the pools what their files are called, for `forebay namespace rebuild`; every 24th looks \
         at all files, the others at new ones. 0: never.",
    ),
    key("http.enabled", "true", "bool", "Whether HTTP and WebDAV are served."),
    key("http.port", "8080", "port", "Port of HTTP and WebDAV."),
    key(
        "http.certificate",
        "(none)",
        "path",
        "PEM chain of the server. Without one only this host is served, and the networks in http.plain_networks.",
    ),
    key("http.key", "(none)", "path", "PEM key of http.certificate. Both are read again when they change."),
    key(
        "http.plain_networks",
        "[]",
        "networks",
        "Closed networks, as in [\"10.1.0.0/16\"], whose clients are served HTTP without TLS, with http.certificate and \
         without it. Everybody on the way can read and change passwords, tokens and data. Clients use an address, the name \
         of this host or one of http.names.",
    ),
    key("http.site", "\"forebay\"", "text", "Name of the site in the storage record and in macaroons."),
    key(
        "http.names",
        "[]",
        "host:port list",
        "Names that clients may use for this instance, besides the one in Host.",
    ),
    key(
        "http.anonymous",
        "(read on loopback, else refuse)",
        "refuse|read",
        "Rights of a request without a credential; read is as nobody (65534).",
    ),
    key(
        "http.metrics_networks",
        "[]",
        "networks",
        "Clients that may read /metrics without a login, besides this host.",
    ),
    key("http.page", "true", "bool", "Whether browsers get the web page."),
    key(
        "http.access_log",
        "(none)",
        "path",
        "File that gets a line for each request: combined format, seconds taken, bytes received. SIGHUP reopens it.",
    ),
    key(
        "http.redirect",
        "\"auto\"",
        "never|auto|always",
        "Whether clients are sent to the pool with the bytes. auto: if it is in another process.",
    ),
    key(
        "http.pool_port",
        "8081",
        "port",
        "Port of pool 0's data face with redirect = always; pool N is N above it.",
    ),
    key(
        "http.checksums",
        "[\"adler32\", \"crc32c\"]",
        "list",
        "Kept of every upload. Others (md5, sha-256) are computed when somebody asks.",
    ),
    key(
        "http.connections_max",
        "4096",
        "connections",
        "Bound per port, of which one address has no more than are free; at it, clients get 503.",
    ),
    key(
        "http.locks_max",
        "100000",
        "locks",
        "Bound of WebDAV locks, of which one caller has at most an eighth (but 16 in any case); at it, LOCK gets 503.",
    ),
    key("http.lock_timeout_s", "3600", "seconds", "A WebDAV lock lives at most so long without a refresh."),
    key(
        "http.uploads_max",
        "1000",
        "uploads",
        "Redirected uploads under way, and as many in parts; at it, PUT gets 503.",
    ),
    key("http.uploads_per_caller_max", "250", "uploads", "How many of each kind one caller may have."),
    key(
        "http.recall_patience_ms",
        "10000",
        "milliseconds",
        "How long DELETE and MOVE wait for NFS clients to give back what they hold; then they get 503. An \
         upload waits until it is taken from them, after nfs.delegations.recall_s.",
    ),
    key("http.copies_max", "100", "copies", "Third-party copies under way; at it, COPY gets 429."),
    key("http.copy_streams_max", "8", "streams", "Connections of one third-party copy."),
    key(
        "http.copy_requires_checksum",
        "false",
        "bool",
        "Whether a third-party copy fails if the other side knows no checksum and the client does not say.",
    ),
    key(
        "http.copy_ca",
        "[]",
        "paths",
        "Authorities trusted for third-party copies and token issuers, beside the system's.",
    ),
    key(
        "http.copy_allows_plain",
        "(true on loopback, else false)",
        "bool",
        "Whether copies may use http without TLS.",
    ),
    key(
        "auth.passwords",
        "(users in the data directory)",
        "path",
        "File of the users that may log in; `forebay user` edits it.",
    ),
    key("auth.mapping", "(none)", "path", "Identities of tokens, groups and certificates."),
    key("auth.macaroon_validity_max_s", "604800", "seconds", "No macaroon lives longer."),
    key("auth.clock_skew_s", "60", "seconds", "How far the clocks of token issuers may be off."),
    key(
        "auth.certificates",
        "(none)",
        "path",
        "Directory of authorities and CRLs; without one client certificates are refused.",
    ),
    key("auth.vomsdir", "\"/etc/grid-security/vomsdir\"", "path", "Directory of VO/HOST.lsc files."),
    key("auth.crl_required", "false", "bool", "Whether an authority without a current CRL is refused."),
    key(
        "auth.issuers",
        "[]",
        "tables",
        "Token issuers, each [[auth.issuers]] with url, audiences, and as wanted profile (auto|wlcg|scitokens), \
         base_path, uid, gid, groups, members_may_read.",
    ),
    key("log.level", "\"warn\"", "error|warn|info|debug|trace", "What is logged to standard error."),
    key(
        "log.format",
        "\"text\"",
        "text|json",
        "Form of the log. json: one object for each line. In the journal of systemd each line has its priority.",
    ),
];

/// As in `section.key`.
pub fn key_names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name)
}

/// As a TOML file with every key commented out.
pub fn text() -> String {
    let mut out = String::from(
        "# Forebay configuration. Every key with its default; lines are TOML when uncommented.\n",
    );
    out.push_str(super::environment::RULE);
    let mut section = "";
    for key in KEYS {
        let (in_section, name) = key.name.rsplit_once('.').unwrap_or(("", key.name));
        if in_section != section {
            section = in_section;
            out.push_str(&format!("\n[{section}]\n"));
        }
        let (label, words) = key.kind();
        out.push_str(&format!("\n# {} {label}: {words}.\n#{name} = {}\n", key.meaning, key.default));
    }
    out
}

/// For programs.
pub fn listed() -> Value {
    let keys = KEYS.iter().map(|key| {
        let mut listed = json!({ "name": key.name, "default": key.default, "meaning": key.meaning });
        listed[key.kind().0.to_lowercase()] = match key.values() {
            Some(values) => json!(values),
            None => json!(key.unit),
        };
        listed
    });
    json!({ "keys": keys.collect::<Vec<_>>() })
}

impl Key {
    fn values(&self) -> Option<Vec<&'static str>> {
        self.unit.contains('|').then(|| self.unit.split('|').collect())
    }

    /// A label, and the words behind it.
    fn kind(&self) -> (&'static str, String) {
        match self.values() {
            Some(values) => ("Values", values.join(", ")),
            None if TYPES.contains(&self.unit) => ("Type", self.unit.to_owned()),
            None => ("Unit", self.unit.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// Every key with its full name; a list of tables is one key.
    fn leaves(prefix: &str, table: toml::Table) -> Vec<(String, toml::Value)> {
        let named = table.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value));
        named
            .flat_map(|(name, value)| match value {
                toml::Value::Table(section) => leaves(&format!("{name}."), section),
                value => vec![(name, value)],
            })
            .collect()
    }

    #[test]
    fn numbers_have_a_unit_and_other_keys_a_type_or_values() {
        for Key { name, default, unit, .. } in KEYS.iter().filter(|key| !key.default.starts_with('(')) {
            let key = Key { name, default, unit, meaning: "" };
            let is_number = default.parse::<u64>().is_ok();
            match key.kind() {
                ("Values", _) => {
                    let values = key.values().unwrap();
                    assert!(
                        values.contains(&default.trim_matches('"')),
                        "{name}: {default} is not in {unit}"
                    );
                }
                ("Unit", _) => assert!(is_number, "{name}: {unit:?} belongs into TYPES"),
                _ => assert!(!is_number || *unit == "port", "{name} is a number, and {unit:?} is no unit"),
            }
        }
        let keys = listed();
        let of =
            |name: &str| keys["keys"].as_array().unwrap().iter().find(|key| key["name"] == name).unwrap();
        assert_eq!(of("nfs.lease_s")["unit"], "seconds");
        assert_eq!(of("http.port")["type"], "port");
        assert_eq!(of("http.redirect")["values"], json!(["never", "auto", "always"]));
        assert!(text().contains("Values: never, auto, always.\n#redirect ="), "{}", text());
    }

    #[test]
    fn the_reference_names_every_key_once_and_its_true_default() {
        let mut config = Config::default();
        // Keys without a fixed default do not appear in a serialised default: give them a value to see their names.
        config.nfs.port = Some(1);
        config.nfs.root_squash = Some(true);
        config.nfs.delegations.recall_s = Some(1);
        config.nfs.domain = Some("x".to_owned());
        (config.pools.count, config.pools.open_files_max) = (Some(1), Some(1));
        let path = Some(std::path::PathBuf::from("x"));
        config.nfs.keytab = path.clone();
        (config.http.certificate, config.http.key) = (path.clone(), path.clone());
        config.http.access_log = path.clone();
        config.http.anonymous = Some(crate::config::http::Anonymous::Read);
        config.http.copy_allows_plain = Some(true);
        (config.auth.passwords, config.auth.mapping, config.auth.certificates) =
            (path.clone(), path.clone(), path);
        let toml::Value::Table(table) = toml::Value::try_from(&config).unwrap() else { panic!("a table") };
        let keys = leaves("", table);
        let mut listed: Vec<_> = KEYS.iter().map(|key| key.name.to_owned()).collect();
        let mut existing: Vec<_> = keys.iter().map(|(name, _)| name.clone()).collect();
        listed.sort();
        existing.sort();
        assert_eq!(listed, existing);
        for (name, value) in keys {
            let default = KEYS.iter().find(|key| key.name == name).unwrap().default;
            assert!(
                default.starts_with('(') || default == value.to_string(),
                "{name}: {default} is not {value}"
            );
        }
    }
}
