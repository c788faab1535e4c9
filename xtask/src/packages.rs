//! The packages that cargo resolves for this workspace, and how they depend on each other: `cargo metadata`, read once.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

pub struct Package {
    pub name: String,
    pub version: String,
    /// An SPDX expression, as the package declares it.
    pub licence: Option<String>,
    /// Absent for members of the workspace.
    pub source: Option<String>,
    pub repository: Option<String>,
    /// The folder of its manifest: for packages of a registry the unpacked sources.
    pub folder: PathBuf,
    /// It runs inside the compiler and is not linked.
    is_macro: bool,
    edges: Vec<Edge>,
}

/// A dependency: on which package, and whether programs or only build scripts need it. Those of tests are left out.
struct Edge {
    to: usize,
    is_linked: bool,
}

pub struct Graph {
    packages: Vec<Package>,
    members: Vec<usize>,
}

impl Package {
    /// As a person names it, and as `deny.toml` does.
    pub fn label(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

impl Graph {
    /// Asks cargo about the platform that this runs on. The lock file is taken as it is; cargo fetches packages that a
    /// new machine does not have yet.
    pub fn read(root: &Path) -> Result<Graph> {
        let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform])
            .current_dir(root)
            .output()
            .context("run cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Graph::parse(&serde_json::from_slice(&output.stdout).context("read cargo metadata")?)
    }

    pub fn parse(metadata: &Value) -> Result<Graph> {
        let mut packages = Vec::new();
        let mut places = BTreeMap::new();
        for value in list(&metadata["packages"]) {
            places.insert(text(&value["id"])?, packages.len());
            packages.push(package(value)?);
        }
        let place = |id: &Value| -> Result<usize> {
            let id = text(id)?;
            places.get(&id).copied().with_context(|| format!("cargo metadata names no package {id}"))
        };
        for node in list(&metadata["resolve"]["nodes"]) {
            let mut edges = Vec::new();
            for dependency in list(&node["deps"]) {
                let kinds = list(&dependency["dep_kinds"]);
                let is_linked = kinds.iter().any(|kind| kind["kind"].is_null());
                if is_linked || kinds.iter().any(|kind| kind["kind"] == "build") {
                    edges.push(Edge { to: place(&dependency["pkg"])?, is_linked });
                }
            }
            packages[place(&node["id"])?].edges = edges;
        }
        let members = list(&metadata["workspace_members"]).iter().map(place).collect::<Result<_>>()?;
        Ok(Graph { packages, members })
    }

    /// The packages of others that are linked into the program, by name and version.
    pub fn linked_into(&self, program: &str) -> Result<Vec<&Package>> {
        let root = self.members.iter().copied().find(|at| self.packages[*at].name == program);
        let root = root.with_context(|| format!("there is no package {program} in the workspace"))?;
        let goes = |edge: &Edge| edge.is_linked && !self.packages[edge.to].is_macro;
        Ok(self.outside(&[root], goes))
    }

    /// The packages of others that building the workspace takes, build scripts and macros included, tests not.
    pub fn built(&self) -> Vec<&Package> {
        self.outside(&self.members, |_| true)
    }

    /// Every package that the lock file names and that is not of the workspace.
    pub fn foreign(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_some())
    }

    fn outside(&self, from: &[usize], goes: impl Fn(&Edge) -> bool) -> Vec<&Package> {
        let mut waiting = from.to_vec();
        let mut seen = BTreeSet::new();
        while let Some(at) = waiting.pop() {
            if seen.insert(at) {
                waiting.extend(self.packages[at].edges.iter().filter(|edge| goes(edge)).map(|edge| edge.to));
            }
        }
        let mut found: Vec<&Package> = seen.into_iter().map(|at| &self.packages[at]).collect();
        found.retain(|package| package.source.is_some());
        found.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
        found
    }
}

fn package(value: &Value) -> Result<Package> {
    let manifest = PathBuf::from(text(&value["manifest_path"])?);
    let kinds = list(&value["targets"]).iter().flat_map(|target| list(&target["kind"]));
    Ok(Package {
        name: text(&value["name"])?,
        version: text(&value["version"])?,
        licence: value["license"].as_str().map(str::to_owned),
        source: value["source"].as_str().map(str::to_owned),
        repository: value["repository"].as_str().map(str::to_owned),
        folder: manifest.parent().context("a manifest lies in a folder")?.to_path_buf(),
        is_macro: kinds.into_iter().any(|kind| kind == "proc-macro"),
        edges: Vec::new(),
    })
}

fn text(value: &Value) -> Result<String> {
    Ok(value.as_str().context("cargo metadata has another form than expected")?.to_owned())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A workspace `forebay` of its own, with what the tests of several modules look for.
#[cfg(test)]
pub mod sample {
    use serde_json::{Value, json};

    use super::Graph;

    pub const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

    /// `forebay` links `a` 1.0.0, which links `b` 1.0.0; a macro `m` needs `b` 2.0.0; a build script needs `c`; tests `t`.
    pub fn graph() -> Graph {
        graph_with(|_| {})
    }

    pub fn graph_with(change: impl Fn(&mut Value)) -> Graph {
        let mut metadata = json!({
            "packages": [
                package("forebay", "0.1.0", None, "bin"),
                package("a", "1.0.0", Some(CRATES_IO), "lib"),
                package("b", "1.0.0", Some(CRATES_IO), "lib"),
                package("b", "2.0.0", Some(CRATES_IO), "lib"),
                package("c", "1.0.0", Some(CRATES_IO), "lib"),
                package("m", "1.0.0", Some(CRATES_IO), "proc-macro"),
                package("t", "1.0.0", Some(CRATES_IO), "lib"),
            ],
            "workspace_members": ["forebay 0.1.0"],
            "resolve": { "nodes": [
                node("forebay 0.1.0", &[("a 1.0.0", None), ("m 1.0.0", None), ("c 1.0.0", Some("build")), ("t 1.0.0", Some("dev"))]),
                node("a 1.0.0", &[("b 1.0.0", None)]),
                node("m 1.0.0", &[("b 2.0.0", None)]),
            ] },
        });
        change(&mut metadata);
        Graph::parse(&metadata).unwrap()
    }

    fn package(name: &str, version: &str, source: Option<&str>, kind: &str) -> Value {
        json!({
            "id": format!("{name} {version}"), "name": name, "version": version, "license": "MIT OR Apache-2.0",
            "source": source, "repository": null, "manifest_path": format!("/registry/{name}-{version}/Cargo.toml"),
            "targets": [{ "kind": [kind] }],
        })
    }

    fn node(id: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let deps: Vec<Value> = dependencies
            .iter()
            .map(|(to, kind)| json!({ "pkg": to, "dep_kinds": [{ "kind": kind }] }))
            .collect();
        json!({ "id": id, "deps": deps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(packages: &[&Package]) -> Vec<String> {
        packages.iter().map(|package| package.label()).collect()
    }

    #[test]
    fn linked_packages_are_those_without_macros_build_scripts_and_tests() {
        let graph = sample::graph();
        assert_eq!(labels(&graph.linked_into("forebay").unwrap()), ["a@1.0.0", "b@1.0.0"]);
        assert!(graph.linked_into("other").is_err());
    }

    #[test]
    fn built_packages_are_all_but_those_of_tests() {
        let graph = sample::graph();
        assert_eq!(labels(&graph.built()), ["a@1.0.0", "b@1.0.0", "b@2.0.0", "c@1.0.0", "m@1.0.0"]);
        assert_eq!(graph.foreign().count(), 6);
    }
}
