//! The documents: links that lead somewhere, promises that name a test which exists.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{File, Tree};

const SEMANTICS: &str = "docs/semantics.md";

/// Ends each promise of `docs/semantics.md`; the names follow in backquotes.
const TESTED_BY: &str = "Tested by";

pub fn links_lead_somewhere(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in markdown(tree) {
        for (line, target) in links(&file.text) {
            let outside = target.contains("://") || target.starts_with("mailto:");
            let path = target.split('#').next().unwrap_or_default();
            if !outside
                && !path.is_empty()
                && !resolve(&file.path, path).is_some_and(|path| tree.exists(&path))
            {
                findings.push(Finding::failure(
                    &file.path,
                    line,
                    format!("link to `{target}`, which is not there"),
                ));
            }
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

/// Each paragraph below the first `##` of the semantics names tests, and each named test exists.
pub fn promises_name_a_test(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.file(SEMANTICS) else {
        return vec![Finding::failure(SEMANTICS, 0, "missing")];
    };
    let known = test_names(tree);
    let mut findings = Vec::new();
    for (line, paragraph) in promises(&file.text) {
        let Some((_, named)) = paragraph.rsplit_once(TESTED_BY) else {
            findings.push(Finding::failure(SEMANTICS, line, format!("a promise without \"{TESTED_BY}\"")));
            continue;
        };
        let names: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            findings.push(Finding::failure(SEMANTICS, line, "names no test"));
        }
        for name in names {
            let is_file = name.contains('/') && tree.exists(name);
            if !is_file && !known.contains(name) {
                findings.push(Finding::failure(SEMANTICS, line, format!("no test is called `{name}`")));
            }
        }
    }
    findings
}

/// Names of test functions in Rust, and `group/case` of the scenarios in `tests/`.
fn test_names(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, scan) in tree.rust() {
        let tests = scan.items("fn").into_iter().filter(|item| scan.is_test(item.line));
        names.extend(tests.map(|item| item.name.to_owned()));
    }
    let text = |path: &str| tree.file(path).map_or("", |file| file.text.as_str());
    // A group names its job, and the job's file holds the cases: `Group("posix", "…", "posix"` and `case_x() {`.
    for group in text("tests/driver/groups.py").split("Group(\"").skip(1) {
        let mut strings = group.split('"').step_by(2);
        let (Some(name), Some(_), Some(job)) = (strings.next(), strings.next(), strings.next()) else {
            continue;
        };
        let cases =
            text(&format!("tests/guest/{job}.sh")).lines().filter_map(|line| line.strip_prefix("case_"));
        names
            .extend(cases.filter_map(|line| line.split_once("()")).map(|(case, _)| format!("{name}/{case}")));
    }
    // A group without guests names its module, which lists its scenarios: `("http_clients", http_clients, True)`.
    let groups = text("tests/driver/main.py").split_once("\nLOOPBACK = [").map_or("", |(_, groups)| groups);
    for group in groups.split_once(']').map_or("", |(groups, _)| groups).split("(\"").skip(1) {
        let mut words =
            group.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let (Some(name), Some(module)) = (words.next(), words.next()) else { continue };
        names.extend(scenarios(tree, module).into_iter().map(|scenario| format!("{name}/{scenario}")));
    }
    names
}

/// `SCENARIOS = [a, b]` of a module, or `SCENARIOS = (one.SCENARIOS + other.SCENARIOS)`.
fn scenarios(tree: &Tree, module: &str) -> Vec<String> {
    let text = tree.file(&format!("tests/driver/{module}.py")).map_or("", |file| file.text.as_str());
    let list = text.split_once("\nSCENARIOS = ").and_then(|(_, list)| list.split_once([']', ')']));
    let items =
        list.map_or("", |(list, _)| list).trim_start_matches(['[', '(']).split([',', '+']).map(str::trim);
    items
        .flat_map(|item| match item.strip_suffix(".SCENARIOS") {
            Some(part) => scenarios(tree, part),
            None => vec![item.to_owned()],
        })
        .collect()
}

/// (line, text) of every paragraph below the first second-level heading; lists count item by item.
fn promises(text: &str) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let (mut begun, mut open) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let heading = line.starts_with('#');
        begun |= line.starts_with("## ");
        let item = line.starts_with("* ") || line.starts_with("- ");
        if !begun || heading || line.trim().is_empty() {
            open = false;
        } else if open && !item {
            if let Some((_, paragraph)) = paragraphs.last_mut() {
                paragraph.push(' ');
                paragraph.push_str(line);
            }
        } else {
            paragraphs.push((index + 1, line.to_owned()));
            open = true;
        }
    }
    paragraphs
}

fn markdown(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files.iter().filter(|file| file.path.ends_with(".md"))
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
        assert_eq!(with("manual.md#top"), 0);
        assert_eq!(with("https://example.org/nothing"), 0);
        assert_eq!(with(".."), 0);
        assert_eq!(with("missing.md"), 1);
        assert_eq!(with("../../README.md"), 1);
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

    #[test]
    fn a_promise_without_a_test_that_exists_is_caught() {
        let rust = ("crates/types/src/a.rs", "#[test]\nfn a_name_is_kept() {}\nfn live() {}\n");
        let with =
            |text| found(promises_name_a_test, &[(SEMANTICS, text), rust, ("tests/guest/links.sh", "")]);
        assert_eq!(with("# S\n\nFree text.\n\n## Names\n\nKept.\nTested by `a_name_is_kept`.\n"), 0);
        assert_eq!(with("# S\n\n## Names\n\nKept. Tested by `tests/guest/links.sh`.\n"), 0);
        assert_eq!(with("# S\n\n## Names\n\nKept.\n"), 1);
        assert_eq!(with("# S\n\n## Names\n\nKept. Tested by nobody.\n"), 1);
        assert_eq!(with("# S\n\n## Names\n\nKept. Tested by `a_name_is_lost`.\n"), 1);
        assert_eq!(with("# S\n\n## Names\n\nKept. Tested by `live`.\n"), 1);
    }

    #[test]
    fn a_promise_may_name_a_scenario_of_a_group_and_no_other() {
        let files = [
            (
                "tests/driver/main.py",
                "\"\"\"Main.\"\"\"\nLOOPBACK = [(\"command_line\", commands, False),\n    (\"http_grid\", grid, True)]\n",
            ),
            ("tests/driver/commands.py", "def a(place):\ndef b(place):\n\nSCENARIOS = [a]\n"),
            ("tests/driver/grid.py", "\"\"\"Grid.\"\"\"\nSCENARIOS = (one.SCENARIOS\n    + two.SCENARIOS)\n"),
            ("tests/driver/one.py", "\nSCENARIOS = [c, d,\n    e]\n"),
            ("tests/driver/two.py", "\nSCENARIOS = [f]\n"),
        ];
        let with = |named: &str| {
            let text = format!("# S\n\n## Names\n\nKept. Tested by `{named}`.\n");
            found(promises_name_a_test, &[&files[..], &[(SEMANTICS, &text)]].concat())
        };
        for scenario in ["command_line/a", "http_grid/c", "http_grid/e", "http_grid/f"] {
            assert_eq!(with(scenario), 0, "{scenario}");
        }
        for nothing in ["command_line/b", "http_grid/a", "grid/c", "tests/driver/one.py#c"] {
            assert_eq!(with(nothing), 1, "{nothing}");
        }
    }
}
