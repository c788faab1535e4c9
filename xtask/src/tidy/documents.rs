//! The documents: links that lead somewhere, the changelog, the lock file.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{File, Tree};

/// Links lead to files that exist, and to headings that are on the page.
pub fn links_lead_somewhere(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in markdown(tree) {
        let links = links(&file.text).into_iter().filter(|(_, target)| !is_outside(target));
        for (line, target) in links {
            let (path, heading) = target.split_once('#').unwrap_or((target.as_str(), ""));
            let found = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
            let problem = match found.filter(|path| tree.exists(path)) {
                None => format!("link to `{target}`, which is not there"),
                Some(path) if !heading.is_empty() && !has_heading(tree, &path, heading) => {
                    format!("link to `{target}`, a heading that is not on {path}")
                }
                Some(_) => continue,
            };
            findings.push(Finding::failure(&file.path, line, problem));
        }
    }
    findings
}

pub fn changelog_has_an_unreleased_section(tree: &Tree) -> Vec<Finding> {
    let present = tree.file("CHANGELOG.md").is_some_and(|file| {
        file.text.lines().any(|line| line.starts_with("## ") && line.contains("Unreleased"))
    });
    if present { vec![] } else { vec![Finding::failure("CHANGELOG.md", 0, "no `## Unreleased` section")] }
}

pub fn lock_file_is_kept(tree: &Tree) -> Vec<Finding> {
    let ignored = tree.file(".gitignore").is_some_and(|file| {
        file.text.lines().any(|line| line.trim().trim_start_matches('/') == "Cargo.lock")
    });
    match tree.file("Cargo.lock") {
        Some(_) if !ignored => vec![],
        Some(_) => vec![Finding::failure("Cargo.lock", 0, "ignored; a binary keeps its lock file")],
        None => vec![Finding::failure("Cargo.lock", 0, "missing; a binary keeps its lock file")],
    }
}

fn markdown(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| file.path.ends_with(".md"))
}

fn is_outside(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// Only pages have headings: a place in another file is not checked.
fn has_heading(tree: &Tree, path: &str, heading: &str) -> bool {
    !path.ends_with(".md") || tree.file(path).is_none_or(|file| anchors(&file.text).contains(heading))
}

/// How links name the headings of a page: in lower case, with hyphens for spaces and without other marks. A heading
/// that was there before gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if fenced || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let anchor: String =
            kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect();
        let repeated = (1..).map(|number| format!("{anchor}-{number}"));
        let free = std::iter::once(anchor.clone()).chain(repeated).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// (line, target) of every inline link outside code.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let prose: Vec<&str> = line.split('`').step_by(2).collect();
        // Code between the brackets of a link is joined away, so that the link stays whole.
        let prose = prose.join("");
        let mut rest = prose.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let Some((target, tail)) = after.split_once(')') else { break };
            found.push((index + 1, target.split_whitespace().next().unwrap_or_default().to_owned()));
            rest = tail;
        }
    }
    found
}

/// A link's target as a path from the workspace; `None` when it leaves it.
pub fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = match target.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => from.split('/').collect(),
    };
    parts.pop();
    for part in target.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rule: fn(&Tree) -> Vec<Finding>, files: &[(&str, &str)]) -> usize {
        rule(&Tree::of(files)).len()
    }

    #[test]
    fn a_link_to_nothing_is_caught() {
        let page = |link: &str| format!("See [the `page`]({link}).\n");
        let with =
            |link: &str| found(links_lead_somewhere, &[("docs/manual.md", &page(link)), ("README.md", "")]);
        assert_eq!(with("../README.md"), 0);
        assert_eq!(with("manual.md"), 0);
        assert_eq!(with("https://example.org/nothing"), 0);
        assert_eq!(with(".."), 0);
        assert_eq!(with("missing.md"), 1);
        assert_eq!(with("../../README.md"), 1);
    }

    #[test]
    fn a_link_to_a_heading_that_is_not_there_is_caught() {
        let page = "# Top\n\n## `fsck` of a *running* server (1)\n\n## Again\n\n## Again\n\n```sh\n# no heading\n```\n";
        let with = |link: &str| {
            let other = format!("# Here\n\n[a]({link})\n");
            found(links_lead_somewhere, &[("docs/a.md", page), ("docs/b.md", &other), ("docs/c.toml", "")])
        };
        for link in ["a.md#top", "a.md#fsck-of-a-running-server-1", "a.md#again-1", "#here", "c.toml#any"] {
            assert_eq!(with(link), 0, "{link}");
        }
        for link in ["a.md#bottom", "a.md#again-2", "a.md#no-heading", "#top", "a.md#Top"] {
            assert_eq!(with(link), 1, "{link}");
        }
    }

    #[test]
    fn a_link_in_code_is_no_link() {
        let text = "`[a](missing.md)`\n```\n[a](missing.md)\n```\n";
        assert_eq!(found(links_lead_somewhere, &[("README.md", text)]), 0);
    }

    #[test]
    fn a_changelog_without_unreleased_is_caught() {
        let with = |text| found(changelog_has_an_unreleased_section, &[("CHANGELOG.md", text)]);
        assert_eq!(with("# Changes\n\n## Unreleased\n"), 0);
        assert_eq!(with("# Changes\n\n## 0.1\n\nUnreleased things.\n"), 1);
    }

    #[test]
    fn a_lock_file_that_is_missing_or_ignored_is_caught() {
        assert_eq!(found(lock_file_is_kept, &[("Cargo.lock", "")]), 0);
        assert_eq!(found(lock_file_is_kept, &[]), 1);
        assert_eq!(found(lock_file_is_kept, &[("Cargo.lock", ""), (".gitignore", "/Cargo.lock\n")]), 1);
    }
}
