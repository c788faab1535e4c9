//! The guarantees: each has an id in `docs/semantics.md`, and `docs/dev/guarantees.md` maps it to tests that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use super::tree::Tree;
use super::words::PRONOUNS;

const SEMANTICS: &str = "docs/semantics.md";
const MAP: &str = "docs/dev/guarantees.md";

/// Words of a backquoted name that make it a test's, where the name has no `/`.
const WORDS_OF_A_TEST_NAME_MIN: usize = 3;
/// A longer sentence has to be read twice.
const WORDS_OF_A_SENTENCE_MAX: usize = 29;

/// Both pages have the same ids, each id once; each has a test, and each test exists.
pub fn guarantees_have_tests(tree: &Tree) -> Vec<Finding> {
    let (Some(semantics), Some(map)) = (tree.file(SEMANTICS), tree.file(MAP)) else {
        return vec![Finding::failure(SEMANTICS, 0, format!("this page or {MAP} is missing"))];
    };
    let known = test_names(tree);
    let mut findings = Vec::new();
    let promised = ids_once(SEMANTICS, paragraphs(&semantics.text, &known, &mut findings), &mut findings);
    let rows = rows(&map.text);
    let mapped = ids_once(MAP, rows.iter().map(|row| (row.line, row.id)).collect(), &mut findings);
    for (id, line) in promised.iter().filter(|(id, _)| !mapped.contains_key(*id)) {
        findings.push(Finding::failure(SEMANTICS, *line, format!("{id} is not in {MAP}")));
    }
    for (id, line) in mapped.iter().filter(|(id, _)| !promised.contains_key(*id)) {
        findings.push(Finding::failure(MAP, *line, format!("{id} is not in {SEMANTICS}")));
    }
    for row in &rows {
        if row.tests.is_empty() {
            findings.push(Finding::failure(MAP, row.line, format!("{} names no test", row.id)));
        }
        let unknown = row.tests.iter().filter(|name| !known.contains(**name));
        findings.extend(
            unknown.map(|name| Finding::failure(MAP, row.line, format!("no test is called `{name}`"))),
        );
    }
    findings
}

/// The sentences of each guarantee are short, and begin with their subject.
pub fn guarantees_are_plain_sentences(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let text = tree.file(SEMANTICS).map_or("", |file| file.text.as_str());
    let mut line = 1;
    for paragraph in text.split("\n\n") {
        let told = guarantee_id(paragraph).and_then(|_| paragraph.split_once("** "));
        for sentence in told.iter().flat_map(|(_, told)| told.split_inclusive(['.', ':', ';'])) {
            let first = sentence.split_whitespace().next().unwrap_or_default();
            if PRONOUNS.contains(&first) {
                let message = format!("a sentence begins with `{first}`; name its subject");
                findings.push(Finding::failure(SEMANTICS, line, message));
            }
        }
        for sentence in told.iter().flat_map(|(_, told)| sentences(told)) {
            let words = sentence.split_whitespace().count();
            if words > WORDS_OF_A_SENTENCE_MAX {
                let message = format!(
                    "a sentence of {words} words; at most {WORDS_OF_A_SENTENCE_MAX} are read at once"
                );
                findings.push(Finding::failure(SEMANTICS, line, message));
            }
        }
        line += paragraph.matches('\n').count() + 2;
    }
    findings
}

/// Full stops within words (`a.b`, 1.5) end no sentence.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split(". ").flat_map(|part| part.split(".\n"))
}

/// Ids with their first lines; a repeated one is a finding.
fn ids_once<'a>(
    path: &str,
    ids: Vec<(usize, &'a str)>,
    findings: &mut Vec<Finding>,
) -> BTreeMap<&'a str, usize> {
    let mut first = BTreeMap::new();
    for (line, id) in ids {
        match first.get(id) {
            Some(earlier) => findings.push(Finding::failure(
                path,
                line,
                format!("{id} is also on line {earlier}; give this one an id of its own"),
            )),
            None => drop(first.insert(id, line)),
        }
    }
    first
}

/// The ids of the guarantees. A paragraph below the first section has an id, unless it introduces its section or is a
/// table or a list of the guarantee above. No paragraph names a test.
fn paragraphs<'a>(
    text: &'a str,
    known: &BTreeSet<String>,
    findings: &mut Vec<Finding>,
) -> Vec<(usize, &'a str)> {
    let mut ids = Vec::new();
    let (mut is_begun, mut is_introduction, mut is_first_line) = (false, false, true);
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        is_begun |= line.starts_with("## ");
        if line.starts_with('#') {
            is_introduction = true;
        } else if is_begun && is_first_line && !line.is_empty() {
            let found = guarantee_id(line);
            ids.extend(found.map(|id| (line_number, id)));
            if found.is_none() && !is_introduction && !is_table_or_list(line) {
                findings.push(Finding::failure(SEMANTICS, line_number, "a guarantee without an id"));
            }
            is_introduction = false;
        }
        is_first_line = line.is_empty() || line.starts_with('#');
        for name in quoted(line).filter(|name| is_test_name(name) && known.contains(*name)) {
            findings.push(Finding::failure(
                SEMANTICS,
                line_number,
                format!("names the test `{name}`; name it in {MAP}"),
            ));
        }
    }
    ids
}

fn is_table_or_list(line: &str) -> bool {
    ["|", "* ", "- "].iter().any(|mark| line.starts_with(mark))
}

/// `LOCK-3` of a line that begins with `**LOCK-3** `.
fn guarantee_id(line: &str) -> Option<&str> {
    let (id, _) = line.strip_prefix("**")?.split_once("** ")?;
    let (group, number) = id.split_once('-')?;
    let is_id = !group.is_empty()
        && group.bytes().all(|byte| byte.is_ascii_uppercase())
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && !number.is_empty()
        && !number.starts_with('0');
    is_id.then_some(id)
}

fn is_test_name(name: &str) -> bool {
    name.contains('/') || name.split('_').count() >= WORDS_OF_A_TEST_NAME_MIN
}

struct Row<'a> {
    line: usize,
    id: &'a str,
    tests: Vec<&'a str>,
}

/// The rows `| LOCK-3 | …tests… |` of all tables, without their heads and rules.
fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let (Some(id), Some(tests)) = (cells.next(), cells.next()) else { continue };
        if id != "id" && !id.starts_with("--") {
            rows.push(Row { line: index + 1, id, tests: quoted(tests).collect() });
        }
    }
    rows
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
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

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: (&str, &str) = ("crates/types/src/a.rs", "#[test]\nfn a_name_is_kept() {}\nfn live() {}\n");

    fn messages(semantics: &str, map: &str, files: &[(&str, &str)]) -> Vec<String> {
        let files = [&[(SEMANTICS, semantics), (MAP, map), RUST][..], files].concat();
        guarantees_have_tests(&Tree::of(&files)).iter().map(ToString::to_string).collect()
    }

    fn page(guarantees: &str) -> String {
        format!("# S\n\nFree text.\n\n## Names\n\nAn introduction.\n\n{guarantees}")
    }

    fn map(rows: &str) -> String {
        format!("# M\n\n## Names\n\n| id | tests |\n|---|---|\n{rows}")
    }

    const KEPT: &str = "| NAME-1 | `a_name_is_kept` |\n";

    fn only(found: &[String], expected: &str) {
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }

    #[test]
    fn a_guarantee_with_its_test_in_the_map_passes() {
        let text =
            "**NAME-1** Names are kept,\nall of `rename` and `a/b`:\n\n| a | b |\n|---|---|\n\n* a\n* b\n";
        assert_eq!(messages(&page(text), &map(KEPT), &[]), Vec::<String>::new());
    }

    #[test]
    fn a_guarantee_that_the_map_lacks_is_caught_and_the_other_way_round() {
        only(
            &messages(&page("**NAME-1** Kept.\n"), &map(""), &[]),
            "NAME-1 is not in docs/dev/guarantees.md",
        );
        only(&messages(&page(""), &map(KEPT), &[]), "guarantees.md:7: NAME-1 is not in docs/semantics.md");
    }

    #[test]
    fn a_guarantee_without_a_test_that_exists_is_caught() {
        let with = |row: &str| messages(&page("**NAME-1** Kept.\n"), &map(row), &[]);
        only(&with("| NAME-1 | none |\n"), "NAME-1 names no test");
        only(
            &with("| NAME-1 | `a_name_is_kept`, `a_name_is_lost` |\n"),
            "no test is called `a_name_is_lost`",
        );
        only(&with("| NAME-1 | `live` |\n"), "no test is called `live`");
    }

    #[test]
    fn an_id_that_is_there_twice_is_caught_on_either_page() {
        let twice = "**NAME-1** Kept.\n\n**NAME-1** Lost.\n";
        only(&messages(&page(twice), &map(KEPT), &[]), "semantics.md:11: NAME-1 is also on line 9");
        let rows = format!("{KEPT}{KEPT}");
        only(
            &messages(&page("**NAME-1** Kept.\n"), &map(&rows), &[]),
            "guarantees.md:8: NAME-1 is also on line 7",
        );
    }

    #[test]
    fn a_paragraph_without_an_id_and_a_malformed_id_are_caught() {
        for text in ["Names are kept.\n", "**Names** are kept.\n", "**NAME-01** Kept.\n", "**NAME-** Kept.\n"]
        {
            let text = format!("**NAME-1** Kept.\n\n{text}");
            only(&messages(&page(&text), &map(KEPT), &[]), "semantics.md:11: a guarantee without an id");
        }
    }

    #[test]
    fn a_long_sentence_of_a_guarantee_and_one_without_a_subject_are_caught() {
        let found = |guarantee: &str| {
            let text = page(&format!("**NAME-1** {guarantee}\n\n**NAME-2** Kept.\n"));
            let findings = guarantees_are_plain_sentences(&Tree::of(&[(SEMANTICS, &text)]));
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let long = |words: usize| format!("A name{} in v1.5.", " is kept".repeat((words - 4) / 2));
        assert_eq!(found(&format!("{}\n{} {}", long(28), long(28), long(28))), Vec::<String>::new());
        only(&found(&format!("Kept. {}", long(30))), "semantics.md:9: a sentence of 30 words");
        for before in ["", "Kept. ", "Kept:\n", "Kept; "] {
            let word = PRONOUNS[0];
            only(
                &found(&format!("{before}{word} keeps a name.")),
                &format!("a sentence begins with `{word}`"),
            );
        }
    }

    #[test]
    fn a_guarantee_that_names_a_test_is_caught() {
        let text = "**NAME-1** Kept, as\n`a_name_is_kept` shows.\n";
        only(&messages(&page(text), &map(KEPT), &[]), "semantics.md:10: names the test `a_name_is_kept`");
    }

    #[test]
    fn a_map_may_name_a_scenario_of_a_group_and_no_other() {
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
        let with = |name: &str| {
            messages(&page("**NAME-1** Kept.\n"), &map(&format!("| NAME-1 | `{name}` |\n")), &files)
        };
        for scenario in ["command_line/a", "http_grid/c", "http_grid/e", "http_grid/f"] {
            assert_eq!(with(scenario), Vec::<String>::new(), "{scenario}");
        }
        for nothing in ["command_line/b", "http_grid/a", "grid/c", "tests/driver/one.py#c"] {
            only(&with(nothing), "no test is called");
        }
    }

    #[test]
    fn a_missing_page_is_caught() {
        assert_eq!(guarantees_have_tests(&Tree::of(&[(SEMANTICS, "")])).len(), 1);
        assert_eq!(guarantees_have_tests(&Tree::of(&[(MAP, "")])).len(), 1);
    }
}
