//! Every configuration key with default, unit and meaning: the one source of `forebay config reference`.
//!
//! A test holds the table against the `Config` struct: no key is missing, none is too many, defaults are the true ones.

struct Key {
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    meaning: &'static str,
}

const fn key(name: &'static str, default: &'static str, unit: &'static str, meaning: &'static str) -> Key {
    Key { name, default, unit, meaning }
}

const KEYS: &[Key] = &[
    key("data", "\"./forebay-data\"", "path", "Where everything is kept: namespace, pools, secret."),
    key("listen", "\"127.0.0.1\"", "address", "Address of head and pools. Beyond loopback root is squashed."),
    key("nfs.port", "(2049 as root, else 20490)", "port", "Port of the head."),
    key("nfs.root_squash", "(false on loopback, else true)", "bool", "Clients' root becomes nobody (65534)."),
    key("nfs.lease_s", "90", "seconds", "A client silent for longer loses its opens and locks."),
    key(
        "nfs.grace_s",
        "90",
        "seconds",
        "After a start, known clients may reclaim for so long; new opens wait.",
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
        "Bound per listening port; at it, new connections are closed.",
    ),
    key("nfs.slots_max", "64", "slots", "Requests in flight per session."),
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
    key("pools.open_files_max", "4096", "files", "Replicas each pool keeps open."),
    key("pools.threads", "0", "threads", "Disk threads per pool; 0 means twice the cores, at most 8."),
    key(
        "pools.queue_len_max",
        "4096",
        "requests",
        "Disk requests waiting per pool; at it, clients are told to wait.",
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
        "The interval of namespace.sync = \"interval\".",
    ),
    key(
        "namespace.cache_entries",
        "200000",
        "entries",
        "Files and names kept in memory, about 300 bytes each.",
    ),
    key(
        "namespace.queue_len_max",
        "8192",
        "changes",
        "Changes waiting for the committer; at it, clients wait.",
    ),
    key("namespace.group_len_max", "512", "changes", "Changes committed together at most."),
    key("log.level", "\"warn\"", "error|warn|info|debug|trace", "What is logged to standard error."),
];

/// As a TOML file with every key commented out.
pub fn text() -> String {
    let mut out = String::from(
        "# Forebay configuration. Every key with its default; lines are TOML when uncommented.\n",
    );
    let mut section = "";
    for key in KEYS {
        let (in_section, name) = key.name.split_once('.').unwrap_or(("", key.name));
        if in_section != section {
            section = in_section;
            out.push_str(&format!("\n[{section}]\n"));
        }
        out.push_str(&format!("\n# {} Unit: {}.\n#{name} = {}\n", key.meaning, key.unit, key.default));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_reference_names_every_key_once_and_its_true_default() {
        let mut config = Config::default();
        // Keys without a fixed default do not appear in a serialised default: give them a value to see their names.
        config.nfs.port = Some(1);
        config.nfs.root_squash = Some(true);
        config.pools.count = Some(1);
        let toml::Value::Table(table) = toml::Value::try_from(&config).unwrap() else { panic!("a table") };
        let mut keys = Vec::new();
        for (name, value) in table {
            match value {
                toml::Value::Table(section) => {
                    keys.extend(section.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
                }
                value => keys.push((name, value)),
            }
        }
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
