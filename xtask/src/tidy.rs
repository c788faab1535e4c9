//! `cargo xtask tidy`: every rule over the tree, read once into memory.
//!
//! A rule is a function from the tree to findings, so each is tested with a bad sample that it must catch. Failures stop
//! the test command; warnings are printed and counted.

mod banned;
pub mod documents;
mod fakes;
mod guarantees;
mod heads;
mod manifests;
mod scan;
mod seams;
mod sizes;
mod tree;
mod words;

use std::fmt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Result;

use tree::Tree;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Warning,
    Failure,
}

#[derive(Debug)]
pub struct Finding {
    level: Level,
    path: String,
    /// From 1; 0 speaks of the whole file.
    line: usize,
    message: String,
}

impl Finding {
    fn failure(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { level: Level::Failure, path: path.to_owned(), line, message: message.into() }
    }

    fn warning(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { level: Level::Warning, path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Warning => "warning",
            Level::Failure => "FAILED",
        };
        match self.line {
            0 => write!(f, "{level}: {}: {}", self.path, self.message),
            line => write!(f, "{level}: {}:{line}: {}", self.path, self.message),
        }
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[Rule] = &[
    manifests::edges_point_down,
    manifests::lower_floors_have_no_runtime,
    manifests::crates_say_what_they_are,
    manifests::outside_dependencies_are_explained,
    sizes::files,
    sizes::functions,
    sizes::traits,
    banned::calls,
    banned::machine_paths,
    fakes::seams_are_faked_in_the_test_kit,
    seams::doors_know_files_and_no_seam_below,
    heads::modules_open_with_a_purpose,
    documents::links_lead_somewhere,
    documents::changelog_has_an_unreleased_section,
    documents::lock_file_is_kept,
    guarantees::guarantees_have_tests,
    guarantees::guarantees_are_plain_sentences,
    words::sentences_name_their_subject,
    words::tests_name_their_subject,
    words::types_say_of_what,
];

pub fn run(root: &Path) -> Result<ExitCode> {
    let tree = Tree::read(root)?;
    let mut findings = check(&tree);
    findings.extend(lock_file_is_committed(root));
    for finding in &findings {
        println!("{finding}");
    }
    let failures = findings.iter().filter(|finding| finding.level == Level::Failure).count();
    let warnings = findings.len() - failures;
    println!("tidy: {} files, {failures} failed, {warnings} warnings", tree.files.len());
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks git, where there is one; a source archive has none and passes.
fn lock_file_is_committed(root: &Path) -> Option<Finding> {
    let listed = Command::new("git").arg("-C").arg(root).args(["ls-files", "Cargo.lock"]).output().ok()?;
    let missing = listed.status.success() && listed.stdout.is_empty();
    missing.then(|| Finding::failure("Cargo.lock", 0, "not committed; a binary keeps its lock file"))
}

fn check(tree: &Tree) -> Vec<Finding> {
    RULES.iter().flat_map(|rule| rule(tree)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_tree_is_told_what_it_lacks() {
        let findings = check(&Tree::of(&[]));
        assert!(findings.iter().any(|finding| finding.path == "CHANGELOG.md"));
        assert!(findings.iter().any(|finding| finding.path == "Cargo.lock"));
    }

    #[test]
    fn a_finding_names_file_and_line() {
        let finding = Finding::failure("crates/types/src/lib.rs", 7, "too long");
        assert_eq!(finding.to_string(), "FAILED: crates/types/src/lib.rs:7: too long");
    }
}
