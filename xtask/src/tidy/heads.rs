//! Every Rust file opens with `//!`: its purpose, before anything else.

use super::Finding;
use super::tree::Tree;

const HEAD_LINES_MAX: usize = 15;

pub fn modules_open_with_a_purpose(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _) in tree.rust() {
        let mut lines =
            file.text.lines().skip_while(|line| line.starts_with("#!") || line.trim().is_empty()).peekable();
        if !lines.peek().is_some_and(|line| line.starts_with("//!")) {
            findings.push(Finding::failure(&file.path, 1, "does not open with `//!`"));
            continue;
        }
        let head = lines.take_while(|line| line.starts_with("//!")).count();
        if head > 2 * HEAD_LINES_MAX {
            findings.push(Finding::warning(
                &file.path,
                1,
                format!("a head of {head} lines, better {HEAD_LINES_MAX}"),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        modules_open_with_a_purpose(&Tree::of(&[("crates/types/src/range.rs", text)])).len()
    }

    #[test]
    fn a_module_without_a_head_is_caught() {
        assert_eq!(found("use std::ops::Range;\n"), 1);
        assert_eq!(found(""), 1);
        assert_eq!(found("// Ranges.\n"), 1);
    }

    #[test]
    fn a_module_with_a_head_passes_also_below_inner_attributes() {
        assert_eq!(found("//! Ranges.\n"), 0);
        assert_eq!(found("#![no_main]\n//! Ranges.\n"), 0);
    }

    #[test]
    fn a_head_that_is_a_book_is_caught() {
        assert_eq!(found(&"//! a\n".repeat(31)), 1);
    }
}
