//! `cargo xtask notices FILE`: the licences of the packages that are linked into the program, as packages must bring them.
//!
//! The texts come from the unpacked sources of each package, C libraries inside them included. A text that several
//! packages share is printed once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::packages::{Graph, Package};

const PROGRAM: &str = "forebay";

const HEAD: &str = "\
Forebay is under the Apache License, version 2.0. The program contains the libraries below, under the licences that are
named with them. The texts follow the list.

SQLite, in libsqlite3-sys, is in the public domain.
";

/// How names of files with licences begin, in lower case.
const NAMES: &[&str] = &["licence", "license", "copying", "copyright", "notice", "unlicense"];
/// Sources that are named like a licence are none.
const SOURCES: &[&str] = &["rs", "c", "h", "py", "sh", "go", "pl"];

/// (name of the file, text), by the place in the package.
type Texts = BTreeMap<String, String>;

pub fn run(root: &Path, to: &Path) -> Result<ExitCode> {
    let graph = Graph::read(root)?;
    let mut texts = Vec::new();
    for package in graph.linked_into(PROGRAM)? {
        texts.push((package, texts_of(package)?));
    }
    let mut notices = assemble(&texts)?;
    notices.push_str(&standard_library()?);
    fs::write(to, notices).with_context(|| format!("write {}", to.display()))?;
    println!("notices: {} packages in {}", texts.len(), to.display());
    Ok(ExitCode::SUCCESS)
}

fn texts_of(package: &Package) -> Result<Texts> {
    let mut texts = Texts::new();
    collect(&package.folder, "", &mut texts)
        .with_context(|| format!("read the licences of {}", package.label()))?;
    Ok(texts)
}

fn collect(folder: &Path, prefix: &str, texts: &mut Texts) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), &format!("{path}/"), texts)?;
        } else if is_licence(&name) {
            let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
            texts.insert(path, text);
        }
    }
    Ok(())
}

fn is_licence(name: &str) -> bool {
    let name = name.to_lowercase();
    let is_source = name.rsplit_once('.').is_some_and(|(_, end)| SOURCES.contains(&end));
    NAMES.iter().any(|start| name.starts_with(start)) && !is_source
}

/// An error if a package brings no text: then somebody has to look for it.
fn assemble(packages: &[(&Package, Texts)]) -> Result<String> {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut once: Vec<&str> = Vec::new();
    let mut list = String::new();
    for (package, texts) in packages {
        ensure!(!texts.is_empty(), "{} brings no text of its licence", package.label());
        let mut of_package = BTreeSet::new();
        for text in texts.values().map(|text| text.trim()) {
            of_package.insert(*numbers.entry(text).or_insert_with(|| {
                once.push(text);
                once.len()
            }));
        }
        let of_package: Vec<String> = of_package.iter().map(usize::to_string).collect();
        let licence = package.licence.as_deref().unwrap_or("see its texts");
        let repository = package.repository.as_deref().unwrap_or("");
        let _ = writeln!(list, "\n{} {}\n  licence  {licence}", package.name, package.version);
        if !repository.is_empty() {
            let _ = writeln!(list, "  source   {repository}");
        }
        let _ = writeln!(list, "  texts    {}", of_package.join(", "));
    }
    let mut notices = format!("{HEAD}{list}");
    for (index, text) in once.iter().enumerate() {
        let _ = write!(notices, "\n{}\nText {}\n\n{text}\n", "-".repeat(72), index + 1);
    }
    Ok(notices)
}

/// The notices that come with the compiler, where they are installed; they are a page of HTML.
fn standard_library() -> Result<String> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().context("run rustc")?;
    ensure!(output.status.success(), "rustc --print sysroot: {}", output.status);
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let page = Path::new(&sysroot).join("share/doc/rust/COPYRIGHT-library.html");
    let title = "The standard library of Rust, https://www.rust-lang.org/policies/licenses\n  licence  MIT OR Apache-2.0";
    let line = "-".repeat(72);
    Ok(match fs::read_to_string(&page) {
        Ok(page) => format!("\n{line}\n{title}\n\n{}\n", page.trim()),
        Err(_) => format!("\n{line}\n{title}\n"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packages::sample;

    fn texts(of: &[(&str, &str)]) -> Texts {
        of.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_shared_text_is_printed_once_and_named_by_each_package() {
        let graph = sample::graph();
        let linked = graph.linked_into("forebay").unwrap();
        let notices = assemble(&[
            (linked[0], texts(&[("LICENSE-MIT", "text of A\n"), ("LICENSE-APACHE", "shared text\n")])),
            (linked[1], texts(&[("LICENSE", "shared text")])),
        ])
        .unwrap();
        assert_eq!(notices.matches("shared text").count(), 1);
        assert!(notices.contains("a 1.0.0\n  licence  MIT OR Apache-2.0\n  texts    1, 2\n"), "{notices}");
        assert!(notices.contains("b 1.0.0\n  licence  MIT OR Apache-2.0\n  texts    1\n"), "{notices}");
    }

    #[test]
    fn a_package_without_a_text_is_an_error() {
        let graph = sample::graph();
        let linked = graph.linked_into("forebay").unwrap();
        let error = assemble(&[(linked[0], Texts::new())]).unwrap_err();
        assert_eq!(error.to_string(), "a@1.0.0 brings no text of its licence");
    }

    #[test]
    fn licences_are_found_by_their_names_and_sources_are_not() {
        for name in
            ["LICENSE", "License-MIT", "LICENCE.md", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT.txt"]
        {
            assert!(is_licence(name), "{name}");
        }
        for name in ["license.rs", "README.md", "relicense", "notice_test.go"] {
            assert!(!is_licence(name), "{name}");
        }
    }
}
