//! The tables against the `Config` struct, and the forms in which they are printed.

use super::*;
use crate::config::Config;
use crate::config::exports::Export;
use crate::config::http::{Anonymous, Issuer};

/// The keys that stand by themselves.
fn plain_keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().filter(|section| section.repeated.is_none()).flat_map(|section| section.keys)
}

fn all_keys() -> impl Iterator<Item = &'static Key> {
    SECTIONS.iter().flat_map(|section| section.keys)
}

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
fn a_default_is_of_the_type_of_its_key() {
    for Key { name, default, kind, .. } in all_keys().filter(|key| !key.default.starts_with('(')) {
        let value: toml::Value = default.parse().unwrap_or_else(|_| panic!("{name}: {default} is no TOML"));
        match kind {
            Kind::Number(..) => assert!(value.is_integer(), "{name}"),
            Kind::Choice(values) => {
                assert!(values.contains(&value.as_str().unwrap()), "{name}: {default} is not in {values:?}");
            }
            Kind::List(values) => {
                let elements = value.as_array().unwrap().iter();
                assert!(
                    elements.map(|element| element.as_str().unwrap()).all(|one| values.contains(&one)),
                    "{name}"
                );
            }
            Kind::Plain("boolean") => assert!(value.is_bool(), "{name}"),
            Kind::Plain("port") => assert!(value.is_integer(), "{name}"),
            Kind::Plain(kind) if kind.starts_with("list of ") => assert!(value.is_array(), "{name}"),
            Kind::Plain(_) => assert!(value.is_str(), "{name}"),
        }
    }
}

/// The refusal of a file with this one key. Empty: the file is taken.
fn complaint(name: &str, value: u64) -> String {
    let config: Result<Config, _> = toml::from_str(&format!("{name} = {value}\n"));
    match config.unwrap_or_else(|error| panic!("{name} = {value}: {error}")).validate() {
        Ok(()) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn values_are_taken_within_the_range_of_a_key_and_refused_outside_it() {
    let mut ranges = 0;
    for key in plain_keys() {
        let Kind::Number(_, (least, largest)) = key.kind else { continue };
        let is_refused = |value: u64| complaint(key.name, value).contains(" is outside ");
        assert!(!is_refused(least), "{} = {least}", key.name);
        assert!(least == 0 || is_refused(least - 1), "{} = {}", key.name, least - 1);
        if largest < u32::MAX.into() {
            assert!(!is_refused(largest), "{} = {largest}", key.name);
            assert!(is_refused(largest + 1), "{} = {}", key.name, largest + 1);
            ranges += 1;
        } else {
            assert!(!is_refused(u32::MAX.into()), "{}", key.name);
        }
    }
    assert!(ranges > 25, "{ranges}");
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
    config.http.anonymous = Some(Anonymous::Read);
    config.http.copy_allows_plain = Some(true);
    (config.auth.passwords, config.auth.mapping, config.auth.certificates) =
        (path.clone(), path.clone(), path);
    let toml::Value::Table(table) = toml::Value::try_from(&config).unwrap() else { panic!("a table") };
    let keys = leaves("", table);
    let mut listed: Vec<_> = key_names().map(str::to_owned).collect();
    let mut existing: Vec<_> = keys.iter().map(|(name, _)| name.clone()).collect();
    listed.sort();
    existing.sort();
    assert_eq!(listed, existing);
    for (name, value) in keys {
        let default = plain_keys().find(|key| key.name == name).map_or("[]", |key| key.default);
        assert!(default.starts_with('(') || default == value.to_string(), "{name}: {default} is not {value}");
    }
}

#[test]
fn the_reference_names_every_key_of_a_repeated_table_and_its_true_default() {
    let mut export: Export = toml::from_str("path = \"/\"\nclients = [\"*\"]\n").unwrap();
    (export.squash, export.security) = (Some(crate::config::exports::Squash::All), Some(Vec::new()));
    let mut issuer: Issuer = toml::from_str("url = \"https://a\"\naudiences = []\n").unwrap();
    (issuer.uid, issuer.gid) = (Some(1), Some(1));
    for (name, existing) in [
        ("nfs.export", toml::Table::try_from(&export).unwrap()),
        ("auth.issuers", toml::Table::try_from(&issuer).unwrap()),
    ] {
        let section = SECTIONS.iter().find(|section| section.name == name).unwrap();
        assert!(section.repeated.is_some(), "{name}");
        let mut listed: Vec<_> = section.keys.iter().map(|key| key.name).collect();
        listed.sort_unstable();
        let mut keys: Vec<_> = existing.keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(listed, keys, "{name}");
        for Key { name: key, default, .. } in section.keys.iter().filter(|key| !key.default.starts_with('('))
        {
            assert_eq!(*default, existing[*key].to_string(), "{name}: {key}");
        }
    }
}

/// As a person does who sets every key that has a default.
#[test]
fn the_printed_file_is_valid_with_every_default_uncommented() {
    let text = text();
    assert_eq!(toml::from_str::<Config>(&text).unwrap(), Config::default());
    let (mut file, mut is_repeated) = (String::new(), false);
    for line in text.lines() {
        if line.starts_with('[') || line.starts_with("#[[") {
            is_repeated = line.starts_with('#');
        }
        let key = line.strip_prefix('#').filter(|key| !key.starts_with([' ', '[']) && !key.contains(" = ("));
        file += key.filter(|_| !is_repeated).unwrap_or(line);
        file.push('\n');
    }
    assert!(file.contains("\nlease_s = 90\n") && file.contains("\n#anonymous_uid = 65534\n"), "{file}");
    let config: Config = toml::from_str(&file).unwrap_or_else(|error| panic!("{error}\n{file}"));
    assert_eq!(config, Config::default());
}

#[test]
fn the_printed_file_has_type_unit_range_and_values_of_each_key() {
    let text = text();
    for part in [
        "# Type: integer. Unit: seconds. Range: 1 to 3600.\n#lease_s = 90\n",
        "# Type: choice. Values: never, auto, always.\n#redirect = \"auto\"\n",
        "# Type: integer. Unit: locks. Range: at least 1.\n#locks_max = 100000\n",
        "# Type: port.\n#port = (2049 as root, else 20490)\n",
        " A reload takes changes.\n#level = \"warn\"\n",
        "#[[nfs.export]]\n",
        "# Type: list of hosts.\n#clients = (required)\n",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let longest = text.lines().filter(|line| line.starts_with("# ")).map(str::len).max().unwrap();
    assert!(longest <= 120, "{longest}");
    assert!(!text.contains("#export ="), "{text}");
}

#[test]
fn programs_get_type_unit_range_and_values() {
    let keys = listed();
    let of = |name: &str| keys["keys"].as_array().unwrap().iter().find(|key| key["name"] == name).unwrap();
    assert_eq!(of("nfs.lease_s")["unit"], "seconds");
    assert_eq!(of("nfs.lease_s")["range"], "1 to 3600");
    assert_eq!(of("http.port")["type"], "port");
    assert_eq!(of("http.redirect")["values"], json!(["never", "auto", "always"]));
    assert_eq!(
        (&of("log.level")["takes_effect"], &of("listen")["takes_effect"]),
        (&json!("reload"), &json!("restart"))
    );
    assert_eq!(of("nfs.export")["keys"][0]["name"], "path");
}

/// The meaning of a key is one or more sentences, or noun phrases.
#[test]
fn meanings_are_complete_and_short() {
    let repeated = SECTIONS.iter().filter_map(|section| Some((section.name, section.repeated?)));
    for (name, meaning) in all_keys().map(|key| (key.name, key.meaning)).chain(repeated) {
        assert!(meaning.ends_with('.'), "{name}: {meaning}");
        let first = meaning.split(' ').next().unwrap();
        assert!(!["Who", "What", "Whoever", "Whatever"].contains(&first), "{name}: {meaning}");
        for sentence in meaning.split(". ") {
            assert!(sentence.split(' ').count() <= 30, "{name}: {sentence}");
        }
    }
}
