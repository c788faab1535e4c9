//! A Rust source seen as code: comments and literals blanked, test lines marked, bodies found by their braces.
//!
//! This is a scanner, not a parser: it knows enough of the lexer (nested comments, raw strings, lifetimes) that a brace
//! or a word in the blanked text is one of the program's own. Line numbers are those of the file, since blanking keeps
//! every newline.

use std::ops::Range;

pub struct Scan {
    /// The source with every comment and literal turned into spaces.
    pub code: String,
    /// Places of `//`, `///` and `//!` comments, each without its newline.
    pub line_comments: Vec<Range<usize>>,
    /// Names of `#[cfg(test)] mod name;` whose body is another file.
    pub test_modules: Vec<String>,
    /// By line, from 0.
    test: Vec<bool>,
    line_starts: Vec<usize>,
}

/// A braced item.
#[derive(Debug, PartialEq, Eq)]
pub struct Item<'a> {
    pub name: &'a str,
    pub line: usize,
    pub lines: usize,
    /// Between the braces; empty when the item ends with `;`.
    pub body: &'a str,
}

/// Attributes that make the next item test code.
const TEST_ATTRIBUTES: &[&str] = &["#[cfg(test)]", "#[cfg(all(test", "#[test]", "#[tokio::test"];

impl Scan {
    pub fn new(text: &str) -> Scan {
        let (code, line_comments) = blank(text);
        let line_starts: Vec<usize> =
            std::iter::once(0).chain(code.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut scan = Scan {
            test: vec![false; line_starts.len()],
            code,
            line_comments,
            test_modules: Vec::new(),
            line_starts,
        };
        scan.mark_test_items();
        scan
    }

    pub fn line_at(&self, offset: usize) -> usize {
        self.line_starts.partition_point(|start| *start <= offset)
    }

    pub fn is_test(&self, line: usize) -> bool {
        self.test.get(line - 1).copied().unwrap_or(false)
    }

    pub fn mark_all_test(&mut self) {
        self.test.fill(true);
    }

    /// Every place where `needle` stands as a whole: an end of it that is a letter does not continue a longer word.
    pub fn find(&self, needle: &str) -> Vec<usize> {
        let bytes = self.code.as_bytes();
        let word = |at: Option<&u8>| at.is_some_and(|byte| is_word(*byte));
        let (first, last) = (needle.as_bytes().first(), needle.as_bytes().last());
        self.code
            .match_indices(needle)
            .map(|(at, _)| at)
            .filter(|at| {
                let before = at.checked_sub(1).and_then(|at| bytes.get(at));
                let after = bytes.get(at + needle.len());
                let continues = (word(first) && word(before)) || (word(last) && word(after));
                !continues
            })
            .collect()
    }

    /// Items of a keyword (`fn`, `trait`) with a name, in the order of the file.
    pub fn items(&self, keyword: &str) -> Vec<Item<'_>> {
        self.find(keyword).into_iter().filter_map(|at| self.item_at(at, keyword)).collect()
    }

    fn item_at(&self, at: usize, keyword: &str) -> Option<Item<'_>> {
        let rest = &self.code[at + keyword.len()..];
        let trimmed = rest.trim_start();
        let name_len = trimmed.bytes().take_while(|byte| is_word(*byte)).count();
        // `fn(` is a type, `trait` in a macro pattern has no name.
        if name_len == 0 || trimmed.len() == rest.len() {
            return None;
        }
        let name_at = self.code.len() - trimmed.len();
        let (open, end) = self.extent(name_at + name_len);
        let line = self.line_at(at);
        Some(Item {
            name: &self.code[name_at..name_at + name_len],
            line,
            lines: self.line_at(end.min(self.code.len().saturating_sub(1))) - line + 1,
            body: open.map_or("", |open| &self.code[open + 1..end.max(open + 1)]),
        })
    }

    /// From an item's head: where its body opens, if it has one, and where the item ends (the closing brace or the `;`).
    fn extent(&self, from: usize) -> (Option<usize>, usize) {
        let bytes = self.code.as_bytes();
        let mut depth = 0_i32;
        for (at, byte) in bytes.iter().enumerate().skip(from) {
            match byte {
                b'(' | b'[' => depth += 1,
                b')' | b']' => depth -= 1,
                b';' if depth == 0 => return (None, at),
                b'{' if depth == 0 => return (Some(at), closing_brace(bytes, at)),
                _ => {}
            }
        }
        (None, bytes.len())
    }

    fn mark_test_items(&mut self) {
        let places: Vec<usize> = TEST_ATTRIBUTES
            .iter()
            .flat_map(|attribute| self.code.match_indices(attribute).map(|(at, _)| at).collect::<Vec<_>>())
            .collect();
        for at in places {
            let attribute_end = closing_bracket(self.code.as_bytes(), at + 1);
            let (open, end) = self.extent(attribute_end + 1);
            let (first, last) = (self.line_at(at), self.line_at(end));
            let bound = self.test.len();
            self.test[first - 1..last.min(bound)].fill(true);
            if open.is_none() {
                let head = &self.code[attribute_end + 1..end];
                let name = head.rsplit_once("mod ").map(|(_, name)| name.trim().to_owned());
                self.test_modules.extend(name);
            }
        }
    }
}

pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn closing_brace(bytes: &[u8], open: usize) -> usize {
    closing(bytes, open, b'{', b'}')
}

fn closing_bracket(bytes: &[u8], open: usize) -> usize {
    closing(bytes, open, b'[', b']')
}

fn closing(bytes: &[u8], open: usize, up: u8, down: u8) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in bytes.iter().enumerate().skip(open) {
        if *byte == up {
            depth += 1;
        } else if *byte == down {
            depth = depth.saturating_sub(1);
            if depth == 0 {
                return at;
            }
        }
    }
    bytes.len()
}

/// Comments and literals become spaces; everything else, and every newline, stays where it is. Also the places of line
/// comments.
fn blank(text: &str) -> (String, Vec<Range<usize>>) {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut line_comments = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        match end {
            Some(end) => {
                if bytes[at..].starts_with(b"//") {
                    line_comments.push(at..end);
                }
                for byte in &mut out[at..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                at = end;
            }
            None => at += 1,
        }
    }
    // Whole literals were replaced, so no character was cut in two.
    (String::from_utf8(out).unwrap_or_default(), line_comments)
}

/// The end of the comment or literal that begins at `at`, if one does.
fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    match rest {
        [b'/', b'/', ..] => Some(at + rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len())),
        [b'/', b'*', ..] => Some(block_comment_end(bytes, at)),
        [b'"', ..] => Some(string_end(bytes, at)),
        [b'r', ..] => raw_string_end(bytes, at),
        [b'\'', ..] => char_end(bytes, at),
        _ => None,
    }
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// `r"…"`, `r#"…"#`; the `b` or `c` before it may stay. `r#name` is a name.
fn raw_string_end(bytes: &[u8], start: usize) -> Option<usize> {
    let before = start.checked_sub(1).map(|at| bytes[at]);
    let prefixed =
        matches!(before, Some(b'b' | b'c')) && !start.checked_sub(2).is_some_and(|at| is_word(bytes[at]));
    if before.is_some_and(is_word) && !prefixed {
        return None;
    }
    let hashes = bytes[start + 1..].iter().take_while(|byte| **byte == b'#').count();
    let open = start + 1 + hashes;
    if bytes.get(open) != Some(&b'"') {
        return None;
    }
    let mut close = vec![b'"'];
    close.resize(1 + hashes, b'#');
    let body = &bytes[open + 1..];
    let end = body.windows(close.len()).position(|window| window == close.as_slice());
    Some(end.map_or(bytes.len(), |end| open + 1 + end + close.len()))
}

/// A character literal; `None` for a lifetime.
fn char_end(bytes: &[u8], start: usize) -> Option<usize> {
    match bytes.get(start + 1)? {
        b'\\' => {
            let tail = bytes.get(start + 3..)?;
            Some(start + 3 + tail.iter().position(|byte| *byte == b'\'')? + 1)
        }
        first => {
            let width = match *first {
                0..=0x7f => 1,
                0x80..=0xdf => 2,
                0xe0..=0xef => 3,
                _ => 4,
            };
            (bytes.get(start + 1 + width) == Some(&b'\'')).then_some(start + width + 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_comments_and_literals_are_no_code() {
        let scan = Scan::new(
            "// todo!()\n/* a /* b */ todo!() */\nlet a = \"todo!() \\\" todo!()\";\nlet b = r#\"todo!() \" \"#; let c = '\"'; let d = b'\\''; todo!()\n",
        );
        assert_eq!(scan.find("todo!").len(), 1);
        assert_eq!(scan.line_at(scan.find("todo!")[0]), 4);
    }

    #[test]
    fn a_lifetime_is_not_the_begin_of_a_character() {
        let scan = Scan::new("fn f<'a>(x: &'a str) -> &'a str { x }\nfn g() {}\n");
        assert_eq!(scan.items("fn").iter().map(|item| item.name).collect::<Vec<_>>(), ["f", "g"]);
    }

    #[test]
    fn a_needle_must_stand_as_a_word() {
        let scan = Scan::new("operand::x(); rand::random(); let my_tokio = tokio_like;");
        assert_eq!(scan.find("rand::").len(), 1);
        assert_eq!(scan.find("tokio").len(), 0);
    }

    #[test]
    fn the_length_of_a_function_is_counted_from_its_name_to_its_brace() {
        let scan = Scan::new(
            "struct S;\nfn long(\n    a: [u8; 2],\n) {\n    if a == [1, 2] {\n    }\n}\nfn declared();\n",
        );
        let items = scan.items("fn");
        assert_eq!((items[0].line, items[0].lines), (2, 6));
        assert_eq!((items[1].line, items[1].lines, items[1].body), (8, 1, ""));
    }

    #[test]
    fn test_items_are_marked_and_others_are_not() {
        let scan = Scan::new(
            "fn live() {}\n#[cfg(test)]\nmod tests {\n    fn a() {}\n}\nfn alive() {}\n#[cfg(test)]\nmod model;\n",
        );
        let marked: Vec<usize> = (1..=8).filter(|line| scan.is_test(*line)).collect();
        assert_eq!(marked, [2, 3, 4, 5, 7, 8]);
        assert_eq!(scan.test_modules, ["model"]);
    }

    #[test]
    fn an_unfinished_source_does_not_stop_the_scanner() {
        for text in [
            "fn f() {",
            "/* never",
            "\"never",
            "r#\"never",
            "'",
            "'\\",
            "#[cfg(test)]",
            "#[cfg(test)",
            "trait",
        ] {
            let scan = Scan::new(text);
            assert!(scan.items("fn").len() <= 1);
            assert!(scan.items("trait").is_empty());
        }
    }
}
