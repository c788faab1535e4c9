//! Comments and names of tests name their subject: the client, the thread or the row that acts, not a pronoun. The
//! name of a type says of what it is.

use super::Finding;
use super::tree::Tree;

/// Words that no sentence begins with, unless it is a question.
pub const PRONOUNS: &[&str] = &["Who", "Whoever", "What", "Whatever", "Whom", "Whose"];
/// A sentence may begin behind these, in the middle of a line.
const SENTENCE_BREAKS: &[&str] = &[". ", ": ", "; "];
/// A scenario is a function in the shell or in Python.
const SCENARIO_HEADS: &[&str] = &["case_", "def "];
/// Alone they do not name a type: a place, but of what?
const BARE_WORDS: &[&str] = &["Place", "Known", "Shared", "Kept", "Changing"];
/// A name of a type follows. `as`: in a `use`; a cast to such a type needs the type first.
const TYPE_KEYWORDS: &[&str] = &["struct", "enum", "trait", "type", "union", "as"];

pub fn sentences_name_their_subject(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, scan) in tree.rust() {
        for comment in &scan.line_comments {
            for word in openings(&file.text[comment.clone()]) {
                findings.push(Finding::failure(
                    &file.path,
                    scan.line_at(comment.start),
                    format!("a sentence begins with `{word}`; name its subject"),
                ));
            }
        }
    }
    findings
}

pub fn tests_name_their_subject(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut check = |path: &str, line, name: &str| {
        if opens_with_pronoun(name) {
            findings.push(Finding::failure(path, line, format!("`{name}` does not name its subject")));
        }
    };
    for (file, scan) in tree.rust() {
        for item in scan.items("fn").iter().filter(|item| scan.is_test(item.line)) {
            check(&file.path, item.line, item.name);
        }
    }
    for file in tree.files.iter().filter(|file| file.scan.is_none() && file.path.starts_with("tests/")) {
        for (index, line) in file.text.lines().enumerate() {
            let name = SCENARIO_HEADS.iter().find_map(|head| line.trim_start().strip_prefix(head));
            check(&file.path, index + 1, name.and_then(|name| name.split('(').next()).unwrap_or_default());
        }
    }
    findings
}

pub fn types_say_of_what(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, scan) in tree.rust() {
        for item in TYPE_KEYWORDS.iter().flat_map(|keyword| scan.items(keyword)) {
            findings.extend(bare_word(&file.path, item.line, item.name));
        }
    }
    for file in tree.files.iter().filter(|file| file.path.ends_with(".py")) {
        for (index, line) in file.text.lines().enumerate() {
            let rest = line.trim_start().strip_prefix("class ").unwrap_or_default();
            let len = rest.bytes().take_while(|byte| super::scan::is_word(*byte)).count();
            findings.extend(bare_word(&file.path, index + 1, &rest[..len]));
        }
    }
    findings
}

fn bare_word(path: &str, line: usize, name: &str) -> Option<Finding> {
    let told = || format!("the type `{name}` does not say of what; name that, too");
    BARE_WORDS.contains(&name).then(|| Finding::failure(path, line, told()))
}

fn opens_with_pronoun(name: &str) -> bool {
    name.split_once('_')
        .is_some_and(|(first, _)| PRONOUNS.iter().any(|word| word.to_ascii_lowercase() == first))
}

/// The pronoun of each sentence in a line comment that begins with one.
fn openings(comment: &str) -> Vec<&'static str> {
    let text = comment.trim_start_matches('/').trim_start_matches('!');
    let breaks = SENTENCE_BREAKS.iter().flat_map(|mark| text.match_indices(mark));
    let mut starts: Vec<usize> = breaks.map(|(at, mark)| at + mark.len()).collect();
    starts.push(0);
    starts.sort_unstable();
    starts
        .into_iter()
        .filter(|start| !is_in_code(text, *start))
        .filter_map(|at| pronoun(&text[at..]))
        .collect()
}

fn is_in_code(text: &str, at: usize) -> bool {
    text[..at].matches('`').count() % 2 == 1
}

fn pronoun(sentence: &str) -> Option<&'static str> {
    let sentence = sentence.trim_start_matches([' ', '\t', '*', '-', '_', '(', '"']);
    let len = sentence.bytes().take_while(|byte| super::scan::is_word(*byte)).count();
    let word = PRONOUNS.iter().find(|word| **word == &sentence[..len])?;
    (!is_question(sentence)).then_some(word)
}

/// The sentence ends on this line, with a question mark.
fn is_question(sentence: &str) -> bool {
    let ends = |at: usize| sentence[at + 1..].chars().next().is_none_or(|next| " )\"*".contains(next));
    let end = sentence.char_indices().find(|(at, mark)| ".?!".contains(*mark) && ends(*at));
    end.is_some_and(|(_, mark)| mark == '?')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentences(text: &str) -> usize {
        sentences_name_their_subject(&Tree::of(&[("crates/types/src/range.rs", text)])).len()
    }

    fn names(path: &str, text: &str) -> usize {
        tests_name_their_subject(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_sentence_that_begins_with_a_pronoun_is_caught_in_every_line_comment() {
        for word in PRONOUNS {
            for mark in ["//", "///", "//!", "    // ", "//\t", "///   ", "let a = 1; //", "// *", "// - ("] {
                assert_eq!(sentences(&format!("{mark} {word} waits looks again.\n")), 1, "{mark} {word}");
            }
        }
    }

    #[test]
    fn a_sentence_that_begins_in_the_middle_of_a_line_is_caught() {
        for before in ["A lock. ", "A lock: ", "A lock; ", "`a` and `b`. ", "https://host/a. "] {
            for word in PRONOUNS {
                assert_eq!(
                    sentences(&format!("/// {before}{word} waits\n/// looks again.\n")),
                    1,
                    "{before}"
                );
            }
        }
        assert_eq!(sentences(&format!("// {0} waits. {0} goes.\n", PRONOUNS[0])), 2);
    }

    #[test]
    fn a_finding_names_the_line_of_the_sentence() {
        let text = format!("//! x\nfn f() {{\n    let a = \"\n// \"; // {} waits\n}}\n", PRONOUNS[0]);
        let findings = sentences_name_their_subject(&Tree::of(&[("crates/types/src/a.rs", &text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn a_pronoun_in_the_middle_of_a_sentence_passes() {
        for word in PRONOUNS {
            let lower = word.to_ascii_lowercase();
            for text in ["// A lock {}.", "// {}s", "// `a: {} b`", "// See https://host/{}", "// a.{}"] {
                assert_eq!(sentences(&text.replace("{}", word)), 0, "{text} {word}");
            }
            assert_eq!(sentences(&format!("// A lock; {lower} waits\n// {lower} goes\n")), 0);
        }
    }

    #[test]
    fn a_question_passes_if_it_ends_on_its_line() {
        let word = PRONOUNS[2];
        for text in ["{} if a.b fails?", "A lock. {} if it fails? It is lost.", "({} if it fails?)"] {
            assert_eq!(sentences(&format!("// {}\n", text.replace("{}", word))), 0, "{text}");
        }
        for text in ["{} fails. Does it?", "{} if it\n// fails?"] {
            assert_eq!(sentences(&format!("// {}\n", text.replace("{}", word))), 1, "{text}");
        }
    }

    #[test]
    fn strings_and_code_are_no_comments() {
        let word = PRONOUNS[2];
        let strings =
            format!("const A: &str = \"// {word} waits\";\nconst B: &str = r#\"\n/// {word} waits\n\"#;\n");
        assert_eq!(
            sentences(&format!("{strings}struct {word};\nlet a: {word} = b('\"', \"a // {word}\");\n")),
            0
        );
    }

    #[test]
    fn a_test_that_begins_with_a_pronoun_is_caught() {
        for word in PRONOUNS {
            let name = format!("{}_waits()", word.to_ascii_lowercase());
            for head in
                ["#[test]\nfn", "#[tokio::test(start_paused = true)]\nasync fn", "#[cfg(test)]\nmod a { fn"]
            {
                assert_eq!(names("crates/types/src/range.rs", &format!("{head} {name} {{}}\n")), 1, "{head}");
            }
            assert_eq!(names("crates/types/tests/a.rs", &format!("proptest! {{ fn {name} {{}} }}")), 1);
            assert_eq!(names("testkit/src/a.rs", &format!("pub async fn {name} {{}}\n")), 1);
            assert_eq!(names("tests/guest/a.sh", &format!("case_{name} {{\n")), 1);
            assert_eq!(names("tests/driver/a.py", &format!("def {name}:\n")), 1);
        }
    }

    #[test]
    fn a_function_that_is_no_test_may_begin_with_a_pronoun() {
        for word in PRONOUNS {
            let name = format!("{}_of_entry()", word.to_ascii_lowercase());
            assert_eq!(
                names("crates/types/src/range.rs", &format!("fn {name} {{}}\n#[test]\nfn a() {{}}\n")),
                0
            );
        }
        assert_eq!(names("crates/types/src/range.rs", "#[test]\nfn whole_files_are_read() {}\n"), 0);
        assert_eq!(names("tests/driver/a.py", "def whole_files():\n    what_is = 1\n"), 0);
    }

    fn types(text: &str) -> Vec<usize> {
        types_in("crates/types/src/range.rs", text)
    }

    fn types_in(path: &str, text: &str) -> Vec<usize> {
        let findings = types_say_of_what(&Tree::of(&[(path, text)]));
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_type_of_a_bare_word_is_caught() {
        for word in BARE_WORDS {
            for head in ["struct {};", "pub(crate) struct {}<'a>(&'a u8);", "enum {} {}", "pub trait {} {}"] {
                assert_eq!(types(&head.replacen("{}", word, 1)), [1], "{head} {word}");
            }
            for head in ["type {} = u8;", "union {} { a: u8 }", "use a::PathTarget as {};"] {
                assert_eq!(types(&format!("\n{}\n", head.replacen("{}", word, 1))), [2], "{head} {word}");
            }
            for head in ["class {}:", "class {}(Named):"] {
                assert_eq!(
                    types_in("tests/driver/a.py", &head.replacen("{}", word, 1)),
                    [1],
                    "{head} {word}"
                );
            }
            assert_eq!(types(&format!("#[cfg(test)]\nmod tests {{\n    struct {word};\n}}\n")), [3]);
        }
    }

    #[test]
    fn a_type_that_says_of_what_passes() {
        for word in BARE_WORDS {
            for text in ["struct Call{};", "enum {}Length {}", "enum Scope { {} }", "let a = Scope::{};"] {
                assert_eq!(types(&text.replace("{}", word)), [0; 0], "{text} {word}");
            }
            assert_eq!(
                types_in("tests/driver/a.py", &format!("class {word}File:\nclass File({word}s):\n")),
                [0; 0]
            );
            assert_eq!(types(&format!("// struct {word};\nconst A: &str = \"struct {word};\";\n")), [0; 0]);
        }
    }
}
