//! `cargo xtask handbook DIR`: the documents as packages bring them, in the folders that they have here.
//!
//! Links between them stay. A link to something that no package brings, such as a source file, becomes plain text.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::tidy::documents::resolve;

const FILES: &[&str] = &["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "GLOSSARY.md", "CHANGELOG.md"];
const FOLDERS: &[&str] = &["docs", "deploy", "bench"];
/// Of these only the pages: the rest is code and data.
const PAGES_OF: &str = "bench/";
/// Folders of `deploy` whose files a package installs in their own places, or that make packages and images.
const NO_EXAMPLES: &[&str] = &["deploy/container/", "deploy/packages/", "deploy/systemd/"];
/// Scripts that test an example.
const CHECK: &str = "/check";

pub fn run(root: &Path, to: &Path) -> Result<ExitCode> {
    let mut present: BTreeSet<String> = FILES.iter().map(|path| (*path).to_owned()).collect();
    for folder in FOLDERS {
        list(root, folder, &mut present).with_context(|| format!("list {folder}"))?;
    }
    present.retain(|path| is_brought(path));
    for path in &present {
        let target = to.join(path);
        fs::create_dir_all(target.parent().context("a file lies in a folder")?)?;
        let bytes = fs::read(root.join(path)).with_context(|| format!("read {path}"))?;
        let bytes = match String::from_utf8(bytes) {
            Ok(text) if path.ends_with(".md") => Rewriter::rewrite(path, &text, &present).into_bytes(),
            Ok(text) => text.into_bytes(),
            Err(error) => error.into_bytes(),
        };
        fs::write(&target, bytes).with_context(|| format!("write {}", target.display()))?;
    }
    println!("handbook: {} files in {}", present.len(), to.display());
    Ok(ExitCode::SUCCESS)
}

fn list(root: &Path, folder: &str, present: &mut BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            list(root, &path, present)?;
        } else {
            present.insert(path);
        }
    }
    Ok(())
}

fn is_brought(path: &str) -> bool {
    let is_page = path.ends_with(".md");
    (is_page || !path.starts_with(PAGES_OF))
        && !path.ends_with(CHECK)
        && !NO_EXAMPLES.iter().any(|folder| path.starts_with(folder))
}

/// Copies one document and leaves out the targets of links that lead nowhere.
struct Rewriter<'a> {
    path: &'a str,
    present: &'a BTreeSet<String>,
    copy: String,
    /// Places in `copy` of the brackets that are open.
    brackets: Vec<usize>,
}

impl<'a> Rewriter<'a> {
    fn rewrite(path: &'a str, text: &str, present: &'a BTreeSet<String>) -> String {
        let mut rewriter = Rewriter { path, present, copy: String::new(), brackets: Vec::new() };
        let mut is_fenced = false;
        for line in text.split_inclusive('\n') {
            if line.trim_start().starts_with("```") {
                is_fenced = !is_fenced;
                rewriter.copy.push_str(line);
            } else if is_fenced {
                rewriter.copy.push_str(line);
            } else {
                rewriter.line(line);
            }
        }
        rewriter.copy
    }

    fn line(&mut self, line: &str) {
        let mut is_code = false;
        let mut rest = line;
        while let Some(next) = rest.chars().next() {
            let after = &rest[next.len_utf8()..];
            rest = match next {
                ']' if !is_code => self.close(after),
                _ => {
                    if next == '[' && !is_code {
                        self.brackets.push(self.copy.len());
                    }
                    is_code ^= next == '`';
                    self.copy.push(next);
                    after
                }
            };
        }
    }

    /// Behind a closing bracket; what is left of the line then.
    fn close<'t>(&mut self, after: &'t str) -> &'t str {
        let opened = self.brackets.pop();
        let target = after.strip_prefix('(').and_then(|target| target.split_once(')'));
        if let (Some(opened), Some((target, rest))) = (opened, target)
            && !self.leads_somewhere(target)
        {
            self.copy.remove(opened);
            return rest;
        }
        self.copy.push(']');
        after
    }

    fn leads_somewhere(&self, target: &str) -> bool {
        let path = target.split(['#', ' ']).next().unwrap_or_default();
        if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
            return true;
        }
        resolve(self.path, path).is_some_and(|path| {
            let folder = format!("{path}/");
            self.present.contains(&path) || self.present.iter().any(|other| other.starts_with(&folder))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(text: &str) -> String {
        let present = ["README.md", "docs/guide/quotas.md", "deploy/grafana/forebay.json"].map(str::to_owned);
        Rewriter::rewrite("docs/manual.md", text, &BTreeSet::from(present))
    }

    #[test]
    fn packages_bring_pages_and_examples_and_no_tools() {
        for path in ["README.md", "docs/a/b.png", "bench/results/2026.md", "deploy/grafana/forebay.json"] {
            assert!(is_brought(path), "{path}");
        }
        for path in ["bench/http/run", "deploy/kubernetes/check", "deploy/packages/build", "deploy/systemd/a"]
        {
            assert!(!is_brought(path), "{path}");
        }
    }

    #[test]
    fn links_between_documents_stay() {
        for text in [
            "See [quotas](guide/quotas.md#set) and [the start](../README.md).\n",
            "[a folder](guide/) [another](../deploy/grafana)",
            "[outside](https://www.rfc-editor.org/rfc/rfc8881) [here](#below) [a] (b) a[0]\n",
        ] {
            assert_eq!(rewritten(text), text);
        }
    }

    #[test]
    fn links_to_absent_files_become_text() {
        assert_eq!(
            rewritten("See [`xtask/a.rs`](../xtask/a.rs#L3), not [b[0]](b.md).\n"),
            "See `xtask/a.rs`, not b[0].\n"
        );
        assert_eq!(rewritten("a [text that\nis wrapped](../../away.md) b"), "a text that\nis wrapped b");
    }

    #[test]
    fn code_is_left_alone() {
        for text in ["`[a](b.md)` is a link\n", "```\n[a](b.md)\n```\n", "[`a[`](https://a.invalid)"] {
            assert_eq!(rewritten(text), text);
        }
    }
}
