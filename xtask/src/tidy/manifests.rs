//! Rules for manifests: which crate may import which, and that each crate has a description.

use super::Finding;
use super::tree::{File, Tree, crate_of};
use crate::floors::{self, Floor};

const DECISION: &str = "docs/decisions/0002-dependencies.md";

/// The declarations of a crate's manifest.
struct Manifest<'a> {
    file: &'a File,
    name: &'a str,
    /// (line, name) of `[dependencies]` and `[build-dependencies]`, for every target.
    dependencies: Vec<(usize, String)>,
}

impl Manifest<'_> {
    fn is_of_a_feature(&self, line: usize, to: &str) -> bool {
        let is_optional = self
            .file
            .text
            .lines()
            .nth(line.saturating_sub(1))
            .is_some_and(|text| text.replace(' ', "").contains("optional=true"));
        is_optional && floors::OF_FEATURES.contains(&(self.name, short(to)))
    }
}

pub fn edges_point_down(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        if floors::floor_of(manifest.name).is_none() {
            findings.push(Finding::failure(
                &manifest.file.path,
                0,
                "no floor; add the crate to xtask/src/floors.rs",
            ));
            continue;
        }
        for (line, to) in manifest.dependencies.iter().filter(|(_, to)| is_ours(to)) {
            if manifest.is_of_a_feature(*line, to) {
                continue;
            }
            if let Err(why) = floors::edge(manifest.name, short(to)) {
                findings.push(Finding::failure(&manifest.file.path, *line, why));
            }
        }
    }
    findings
}

pub fn lower_floors_have_no_runtime(tree: &Tree) -> Vec<Finding> {
    let runtimes = ["tokio", "tokio-util", "futures", "async-std", "smol", "mio", "rand", "getrandom"];
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        if floors::floor_of(manifest.name).is_none_or(|floor| floor > Floor::Rules) {
            continue;
        }
        for (line, to) in &manifest.dependencies {
            let async_trait = to == "async-trait" && !floors::ASYNC_BELOW_SERVICES.contains(&manifest.name);
            if runtimes.contains(&to.as_str()) || async_trait {
                findings.push(Finding::failure(&manifest.file.path, *line, format!("`{to}` on floors 0-2")));
            }
        }
    }
    findings
}

pub fn crates_say_what_they_are(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        let path = &manifest.file.path;
        let described = manifest.file.text.lines().any(|line| {
            line.strip_prefix("description")
                .is_some_and(|rest| rest.trim_matches([' ', '=', '"', '.']).len() > 8)
        });
        if !described {
            findings.push(Finding::failure(path, 0, "no description"));
        }
        let lints = sections(&manifest.file.text)
            .any(|(_, section, line)| section == "lints" && line.replace(' ', "") == "workspace=true");
        if !lints {
            findings.push(Finding::failure(path, 0, "does not take the workspace's lints"));
        }
        let folder = path.trim_end_matches("Cargo.toml");
        let head =
            ["src/lib.rs", "src/main.rs"].iter().find_map(|name| tree.file(&format!("{folder}{name}")));
        if !head.is_some_and(|head| head.text.starts_with("//!")) {
            findings.push(Finding::failure(path, 0, "the crate's root does not open with `//!`"));
        }
    }
    findings
}

/// Every outside library is declared once, in the workspace, and has its line of reason.
pub fn outside_dependencies_are_explained(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in manifests(tree) {
        for (number, section, line) in sections(&manifest.file.text) {
            let dependency = section.ends_with("dependencies") && line.contains('=');
            if dependency && !line.replace(' ', "").contains("workspace=true") {
                findings.push(Finding::failure(
                    &manifest.file.path,
                    number,
                    "declare it in [workspace.dependencies]",
                ));
            }
        }
    }
    let (Some(root), reasons) = (tree.file("Cargo.toml"), tree.file(DECISION)) else { return findings };
    let reasons = reasons.map_or("", |file| file.text.as_str());
    for (line, name) in declared(&root.text, "workspace.dependencies") {
        let ours = is_ours(&name);
        if !ours && !reasons.contains(&format!("`{name}`")) {
            findings.push(Finding::failure(
                "Cargo.toml",
                line,
                format!("`{name}` has no reason in {DECISION}"),
            ));
        }
    }
    findings
}

fn manifests(tree: &Tree) -> impl Iterator<Item = Manifest<'_>> {
    tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml")).filter_map(|file| {
        let name = crate_of(&file.path)?;
        let dependencies = ["dependencies", "build-dependencies"]
            .iter()
            .flat_map(|section| declared(&file.text, section))
            .collect();
        Some(Manifest { file, name, dependencies })
    })
}

fn short(name: &str) -> &str {
    name.strip_prefix("forebay-").unwrap_or(name)
}

fn is_ours(name: &str) -> bool {
    name.starts_with("forebay") || floors::floor_of(name).is_some()
}

/// (line, name) of what a section declares, also as `[section.name]` and under `[target.….section]`.
fn declared(text: &str, wanted: &str) -> Vec<(usize, String)> {
    let mut names: Vec<(usize, String)> = Vec::new();
    for (number, section, line) in sections(text) {
        let in_section =
            section == wanted || (section.starts_with("target.") && section.ends_with(&format!(".{wanted}")));
        if let Some((_, name)) = section
            .rsplit_once(&format!("{wanted}."))
            .filter(|(before, _)| before.is_empty() || before.starts_with("target."))
        {
            let name = name.trim_matches('"').to_owned();
            if names.last().is_none_or(|(_, last)| *last != name) {
                names.push((number, name));
            }
        } else if in_section && let Some((key, value)) = line.split_once('=') {
            let key = key.trim().split('.').next().unwrap_or_default().trim_matches('"');
            // A rename hides which crate is meant.
            let package = value.split_once("package").and_then(|(_, rest)| rest.split('"').nth(1));
            names.push((number, package.unwrap_or(key).to_owned()));
        }
    }
    names
}

/// Every line that says something, with its number from 1 and its section.
fn sections(text: &str) -> impl Iterator<Item = (usize, &str, &str)> {
    let mut section = "";
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.trim_matches(['[', ']']);
            // The header of `[dependencies.name]` declares by itself.
            return section.contains("dependencies.").then_some((index + 1, section, ""));
        }
        (!line.is_empty() && !line.starts_with('#')).then_some((index + 1, section, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> Vec<String> {
        rule(&Tree::of(files)).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn an_import_upward_is_caught_however_it_is_written() {
        for text in [
            "[dependencies]\napi.workspace = true\n",
            "[dependencies]\nforebay-api = { path = \"../api\" }\n",
            "[dependencies]\nseams = { path = \"../api\", package = \"forebay-api\" }\n",
            "[dependencies.api]\nworkspace = true\n",
            "[target.'cfg(unix)'.dependencies]\napi.workspace = true\n",
            "[build-dependencies]\napi.workspace = true\n",
        ] {
            assert_eq!(messages(edges_point_down, &[("crates/types/Cargo.toml", text)]).len(), 1, "{text}");
        }
    }

    #[test]
    fn the_test_kit_is_imported_by_the_binary_only_as_an_option() {
        for (text, found) in [
            ("[dependencies]\ntestkit = { workspace = true, optional = true }\n", 0),
            ("[dependencies]\ntestkit.workspace = true\n", 1),
        ] {
            assert_eq!(
                messages(edges_point_down, &[("crates/forebay/Cargo.toml", text)]).len(),
                found,
                "{text}"
            );
            let elsewhere = messages(edges_point_down, &[("crates/door-nfs/Cargo.toml", text)]);
            assert_eq!(elsewhere.len(), 1, "{text}");
        }
    }

    #[test]
    fn a_service_that_imports_a_service_is_caught() {
        let found = messages(
            edges_point_down,
            &[("crates/namespace/Cargo.toml", "[dependencies]\npool.workspace = true\n")],
        );
        assert!(found[0].contains("crates/namespace/Cargo.toml:2"), "{found:?}");
    }

    #[test]
    fn the_test_kit_is_allowed_for_tests_only() {
        let dev = "[dev-dependencies]\ntestkit.workspace = true\n";
        assert!(messages(edges_point_down, &[("crates/pool/Cargo.toml", dev)]).is_empty());
        let plain = "[dependencies]\ntestkit.workspace = true\n";
        assert_eq!(messages(edges_point_down, &[("crates/pool/Cargo.toml", plain)]).len(), 1);
    }

    #[test]
    fn a_crate_without_a_floor_is_caught() {
        assert_eq!(messages(edges_point_down, &[("crates/newcomer/Cargo.toml", "[package]\n")]).len(), 1);
    }

    #[test]
    fn a_runtime_on_a_lower_floor_is_caught() {
        let with = |name| format!("[dependencies]\n{name}.workspace = true\n");
        let found = |krate: &str, name| {
            messages(lower_floors_have_no_runtime, &[(&format!("crates/{krate}/Cargo.toml"), &with(name))])
                .len()
        };
        assert_eq!(found("nfs4-state", "tokio"), 1);
        assert_eq!(found("file-state", "async-trait"), 1);
        assert_eq!(found("api", "async-trait"), 0);
        assert_eq!(found("api", "tokio"), 1);
        assert_eq!(found("pool", "tokio"), 0);
    }

    #[test]
    fn a_crate_that_does_not_say_what_it_is_is_caught() {
        let good = "[package]\ndescription = \"What it is for.\"\n[lints]\nworkspace = true\n";
        let files =
            |manifest, root| [("crates/types/Cargo.toml", manifest), ("crates/types/src/lib.rs", root)];
        assert!(messages(crates_say_what_they_are, &files(good, "//! Head.\n")).is_empty());
        assert_eq!(messages(crates_say_what_they_are, &files(good, "mod a;\n")).len(), 1);
        assert_eq!(messages(crates_say_what_they_are, &files("[package]\n", "//! Head.\n")).len(), 2);
    }

    #[test]
    fn a_library_without_a_reason_is_caught() {
        let root = "[workspace.dependencies]\ntypes = { path = \"crates/types\", package = \"forebay-types\" }\nbytes = \"1\"\n";
        let with = |reasons| {
            messages(outside_dependencies_are_explained, &[("Cargo.toml", root), (DECISION, reasons)])
        };
        assert!(with("| `bytes` | shared buffers |").is_empty());
        assert_eq!(with("nothing").len(), 1);
    }

    #[test]
    fn a_library_declared_past_the_workspace_is_caught() {
        let text = "[dependencies]\nbytes = \"1\"\n";
        for path in ["crates/xdr/Cargo.toml", "fuzz/Cargo.toml"] {
            assert_eq!(messages(outside_dependencies_are_explained, &[(path, text)]).len(), 1, "{path}");
        }
    }
}
