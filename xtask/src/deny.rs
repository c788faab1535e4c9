//! `cargo xtask dependencies`: licences, sources and duplicates of the packages that the lock file names, held against
//! `deny.toml`.
//!
//! That file is cargo-deny's, and `cargo deny check` reads more of it. Building cargo-deny takes minutes, so this checks
//! what must hold in every test run, and `./test` runs cargo-deny only where it is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use toml::Value;

use crate::licences::is_allowed;
use crate::packages::{Graph, Package};

const RULES: &str = "deny.toml";
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

struct Rules {
    licences: BTreeSet<String>,
    /// `name@version`: versions that may stand beside another one of the same package.
    skipped: BTreeSet<String>,
}

pub fn run(root: &Path) -> Result<ExitCode> {
    let text = fs::read_to_string(root.join(RULES)).with_context(|| format!("read {RULES}"))?;
    let rules = Rules::parse(&text).with_context(|| format!("read {RULES}"))?;
    let graph = Graph::read(root)?;
    let findings = check(&graph, &rules);
    for finding in &findings {
        println!("FAILED: {finding}");
    }
    println!("dependencies: {} packages, {} failed", graph.foreign().count(), findings.len());
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Rules {
    fn parse(text: &str) -> Result<Rules> {
        let table: toml::Table = text.parse()?;
        let list = |section: &str, key: &str| {
            let value = table.get(section).and_then(|section| section.get(key));
            value.and_then(Value::as_array).with_context(|| format!("no list {section}.{key}"))
        };
        let mut licences = BTreeSet::new();
        for licence in list("licenses", "allow")? {
            licences.insert(licence.as_str().context("licenses.allow holds texts")?.to_owned());
        }
        let mut skipped = BTreeSet::new();
        for entry in list("bans", "skip")? {
            let label = entry.get("crate").and_then(Value::as_str);
            skipped.insert(label.context("an entry of bans.skip has a `crate`")?.to_owned());
        }
        Ok(Rules { licences, skipped })
    }
}

fn check(graph: &Graph, rules: &Rules) -> Vec<String> {
    let built = graph.built();
    let mut findings = Vec::new();
    for package in graph.foreign().filter(|package| package.source.as_deref() != Some(CRATES_IO)) {
        let source = package.source.as_deref().unwrap_or_default();
        findings.push(format!("{} comes from {source}; packages come from crates.io only", package.label()));
    }
    findings.extend(built.iter().filter_map(|package| unlicensed(package, &rules.licences)));
    findings.extend(duplicates(&built, &rules.skipped));
    findings.extend(unused_exceptions(&built, &rules.skipped).into_iter().map(|label| {
        format!("bans.skip of {RULES} names {label}, which stands beside no other version; remove it")
    }));
    findings
}

fn unlicensed(package: &Package, allowed: &BTreeSet<String>) -> Option<String> {
    let Some(expression) = &package.licence else {
        return Some(format!("{} declares no licence", package.label()));
    };
    match is_allowed(expression, allowed) {
        Ok(true) => None,
        Ok(false) => {
            Some(format!("{} is under `{expression}`, which {RULES} does not allow", package.label()))
        }
        Err(error) => Some(format!("{} is under `{expression}`: {error}", package.label())),
    }
}

fn duplicates(packages: &[&Package], skipped: &BTreeSet<String>) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, mut several) in by_name(packages) {
        several.retain(|package| !skipped.contains(&package.label()));
        if several.len() > 1 {
            let several: Vec<&str> = several.iter().map(|package| package.version.as_str()).collect();
            findings.push(format!(
                "{name} is there in several versions ({}); unify them, or except all but one in bans.skip of {RULES}",
                several.join(", ")
            ));
        }
    }
    findings
}

/// Entries of the list that except nothing any more.
fn unused_exceptions<'a>(packages: &[&Package], skipped: &'a BTreeSet<String>) -> Vec<&'a str> {
    let mut unused: BTreeSet<&str> = skipped.iter().map(String::as_str).collect();
    for several in by_name(packages).into_values().filter(|several| several.len() > 1) {
        for package in several {
            unused.remove(package.label().as_str());
        }
    }
    unused.into_iter().collect()
}

fn by_name<'a>(packages: &[&'a Package]) -> BTreeMap<&'a str, Vec<&'a Package>> {
    let mut versions: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(package);
    }
    versions
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::packages::sample;

    const SKIP_OLD: &str = r#"[{ crate = "b@1.0.0", reason = "a is not there yet" }]"#;

    fn rules(allow: &str, skip: &str) -> Rules {
        Rules::parse(&format!("[licenses]\nallow = {allow}\n[bans]\nskip = {skip}\n")).unwrap()
    }

    fn found(graph: &Graph, allow: &str, skip: &str) -> String {
        check(graph, &rules(allow, skip)).join("\n")
    }

    #[test]
    fn allowed_packages_of_the_registry_pass() {
        assert_eq!(found(&sample::graph(), r#"["MIT"]"#, SKIP_OLD), "");
    }

    #[test]
    fn a_licence_that_is_not_allowed_or_missing_is_found() {
        assert!(
            found(&sample::graph(), r#"["ISC"]"#, SKIP_OLD).contains("a@1.0.0 is under `MIT OR Apache-2.0`")
        );
        let graph = sample::graph_with(|metadata| metadata["packages"][1]["license"] = json!(null));
        assert_eq!(found(&graph, r#"["MIT"]"#, SKIP_OLD), "a@1.0.0 declares no licence");
    }

    #[test]
    fn a_second_version_is_found_unless_it_is_excepted() {
        assert!(
            found(&sample::graph(), r#"["MIT"]"#, "[]")
                .contains("b is there in several versions (1.0.0, 2.0.0)")
        );
    }

    #[test]
    fn an_exception_that_excepts_nothing_is_found() {
        let skip = r#"[{ crate = "b@1.0.0" }, { crate = "a@1.0.0" }, { crate = "away@1.0.0" }]"#;
        assert_eq!(
            found(&sample::graph(), r#"["MIT"]"#, skip),
            "bans.skip of deny.toml names a@1.0.0, which stands beside no other version; remove it\n\
             bans.skip of deny.toml names away@1.0.0, which stands beside no other version; remove it"
        );
    }

    #[test]
    fn a_source_beside_the_registry_is_found_also_for_tests() {
        let git = "git+https://git.invalid/t?rev=1#1";
        let graph = sample::graph_with(|metadata| metadata["packages"][6]["source"] = json!(git));
        assert!(found(&graph, r#"["MIT"]"#, SKIP_OLD).contains("t@1.0.0 comes from git+https"));
    }
}
