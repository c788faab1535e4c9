//! How long a file, a function and a trait may be.
//!
//! The files that tire the readers of this field are the ones that hold *the* state machine in thousands of lines. The
//! soft limit asks for a split, the hard one refuses.

use super::Finding;
use super::tree::Tree;

const FILE_LINES_SOFT: usize = 800;
const FILE_LINES_HARD: usize = 1200;
const FUNCTION_LINES_SOFT: usize = 70;
const FUNCTION_LINES_HARD: usize = 120;
const TRAIT_METHODS_MAX: usize = 12;

/// Traits that may be larger, each with its reason beside it.
const LARGE_TRAITS: &[&str] = &[];

pub fn files(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter_map(|(file, _)| {
            let lines = file.text.lines().count();
            if lines > FILE_LINES_HARD {
                Some(Finding::failure(
                    &file.path,
                    0,
                    format!("{lines} lines, at most {FILE_LINES_HARD}; split by concern"),
                ))
            } else if lines > FILE_LINES_SOFT {
                Some(Finding::warning(
                    &file.path,
                    0,
                    format!("{lines} lines, better at most {FILE_LINES_SOFT}"),
                ))
            } else {
                None
            }
        })
        .collect()
}

/// Tests that tell a long story are only warned of.
pub fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, scan) in tree.rust() {
        for item in scan.items("fn") {
            let message = format!("`{}` has {} lines", item.name, item.lines);
            let test = scan.is_test(item.line);
            if item.lines > FUNCTION_LINES_HARD && !test {
                findings.push(Finding::failure(
                    &file.path,
                    item.line,
                    format!("{message}, at most {FUNCTION_LINES_HARD}"),
                ));
            } else if item.lines > FUNCTION_LINES_HARD || (item.lines > FUNCTION_LINES_SOFT && !test) {
                findings.push(Finding::warning(
                    &file.path,
                    item.line,
                    format!("{message}, better {FUNCTION_LINES_SOFT}"),
                ));
            }
        }
    }
    findings
}

pub fn traits(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, scan) in tree.rust() {
        for item in scan.items("trait") {
            let methods = methods(item.body);
            if methods > TRAIT_METHODS_MAX && !LARGE_TRAITS.contains(&item.name) {
                let message =
                    format!("trait `{}` has {methods} methods, at most {TRAIT_METHODS_MAX}", item.name);
                findings.push(Finding::failure(&file.path, item.line, message));
            }
        }
    }
    findings
}

/// Functions that stand directly in the body, not within a default method.
fn methods(body: &str) -> usize {
    let mut depth = 0_i32;
    let mut outer = String::with_capacity(body.len());
    for character in body.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ if depth == 0 => outer.push(character),
            _ => {}
        }
    }
    outer.split_whitespace().filter(|word| *word == "fn").count()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn levels(rule: fn(&Tree) -> Vec<Finding>, text: &str) -> Vec<Level> {
        rule(&Tree::of(&[("crates/types/src/lib.rs", text)])).iter().map(|finding| finding.level).collect()
    }

    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    step();\n".repeat(lines - 2))
    }

    #[test]
    fn a_long_file_is_warned_of_and_a_longer_one_refused() {
        assert_eq!(levels(files, &"\n".repeat(800)), []);
        assert_eq!(levels(files, &"\n".repeat(801)), [Level::Warning]);
        assert_eq!(levels(files, &"\n".repeat(1201)), [Level::Failure]);
    }

    #[test]
    fn a_long_function_is_warned_of_and_a_longer_one_refused() {
        assert_eq!(levels(functions, &function(70)), []);
        assert_eq!(levels(functions, &function(71)), [Level::Warning]);
        assert_eq!(levels(functions, &function(121)), [Level::Failure]);
    }

    #[test]
    fn a_long_test_is_only_warned_of() {
        assert_eq!(levels(functions, &format!("#[test]\n{}", function(121))), [Level::Warning]);
    }

    #[test]
    fn a_long_function_of_a_fuzz_target_is_refused() {
        let tree = Tree::of(&[("fuzz/src/world.rs", &function(121))]);
        let levels: Vec<_> = functions(&tree).iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Failure]);
    }

    #[test]
    fn a_wide_trait_is_refused() {
        let wide = |methods: usize| {
            let declared = "    fn a(&self) -> Vec<u8>;\n".repeat(methods - 1);
            format!("pub trait Wide: Send {{\n{declared}    async fn b(&self) {{ fn inner() {{}} }}\n}}\n")
        };
        assert_eq!(levels(traits, &wide(12)), []);
        assert_eq!(levels(traits, &wide(13)), [Level::Failure]);
    }
}
