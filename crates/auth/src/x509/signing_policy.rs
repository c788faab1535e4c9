//! Globus' signing policies: which names an authority may certify, as the trust federations publish them beside the
//! authority's certificate (`<name>.signing_policy`).
//!
//! A policy that cannot be read is a reason not to trust the authority; no policy is none.

use std::collections::HashMap;

use super::name::respelled;

const PATTERNS_MAX: usize = 1024;

/// Patterns by the authority's name in oneline form.
pub type Policies = HashMap<String, Vec<String>>;

/// Adds what one file says; the error names the line.
pub fn read(text: &str, into: &mut Policies) -> Result<(), String> {
    let mut authority: Option<String> = None;
    let mut may_sign = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let bad = |why: &str| format!("line {}: {why}", index + 1);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (keyword, kind, value) = fields(line).ok_or_else(|| bad("three fields are expected"))?;
        match (keyword, kind) {
            ("access_id_CA", "X509") => {
                let name = respelled(value.trim_matches(['\'', '"']));
                into.entry(name.clone()).or_default();
                authority = Some(name);
                may_sign = false;
            }
            ("pos_rights", _) => may_sign = value.trim_matches(['\'', '"']) == "CA:sign",
            ("cond_subjects", _) => {
                let name = authority.as_ref().ok_or_else(|| bad("no access_id_CA stands before"))?;
                let patterns = into.entry(name.clone()).or_default();
                if may_sign {
                    patterns.extend(quoted(value));
                }
                if patterns.len() > PATTERNS_MAX {
                    return Err(bad("too many patterns"));
                }
            }
            // Negative rights cannot be told apart from what they take away of others; better none than too many.
            _ => return Err(bad("only access_id_CA, pos_rights and cond_subjects are understood")),
        }
    }
    Ok(())
}

pub fn is_covered(patterns: &[String], subject: &str) -> bool {
    let subject = respelled(subject);
    patterns.iter().any(|pattern| matches(pattern.as_bytes(), subject.as_bytes()))
}

fn fields(line: &str) -> Option<(&str, &str, &str)> {
    let (keyword, rest) = line.split_once(char::is_whitespace)?;
    let (kind, value) = rest.trim_start().split_once(char::is_whitespace)?;
    Some((keyword, kind, value.trim()))
}

/// `'"/C=a/*" "/C=b/*"'`, `"/C=a/*"` or `'/C=a/*'`.
fn quoted(value: &str) -> Vec<String> {
    let inner = value.trim_matches('\'').trim();
    if !inner.contains('"') {
        return vec![respelled(inner)];
    }
    inner.split('"').skip(1).step_by(2).map(respelled).collect()
}

/// `*` stands for anything and `?` for one byte. Takes time in the product of the lengths at most.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[from] => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((after, taken)) = star else { return false };
                star = Some((after, taken + 1));
                (at, from) = (after, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: &str = r#"
# An authority of two countries
 access_id_CA   X509    '/DC=org/CN=Example CA/Email=ca@example.org'
 pos_rights     globus  CA:sign
 cond_subjects  globus  '"/DC=org/DC=example/*" "/C=CH/O=Lab/CN=?*"'
"#;

    #[test]
    fn a_policy_covers_what_its_patterns_say() {
        let mut policies = Policies::new();
        read(POLICY, &mut policies).expect("a policy");
        let patterns = &policies["/DC=org/CN=Example CA/emailAddress=ca@example.org"];
        assert!(is_covered(patterns, "/DC=org/DC=example/CN=Alice"));
        assert!(is_covered(patterns, "/C=CH/O=Lab/CN=Bob"));
        assert!(!is_covered(patterns, "/C=CH/O=Lab/CN="));
        assert!(!is_covered(patterns, "/DC=org/DC=examples/CN=Alice"));
        assert!(!is_covered(patterns, "/DC=com/DC=org/DC=example/CN=Alice"));
    }

    #[test]
    fn rights_that_are_not_given_cover_nothing() {
        let mut policies = Policies::new();
        let text = "access_id_CA X509 '/CN=CA'\ncond_subjects globus '\"/*\"'\n";
        read(text, &mut policies).expect("a policy");
        assert!(!is_covered(&policies["/CN=CA"], "/CN=x"));
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error_with_its_number() {
        let mut policies = Policies::new();
        let error = read("access_id_CA X509 '/CN=CA'\nneg_rights globus CA:sign\n", &mut policies);
        assert_eq!(error.err().as_deref().map(|text| &text[..7]), Some("line 2:"));
        assert!(read("cond_subjects globus '\"/*\"'\n", &mut policies).is_err());
        assert!(read("nonsense\n", &mut policies).is_err());
    }

    #[test]
    fn stars_match_across_slashes_and_do_not_take_forever() {
        assert!(matches(b"/a*/z", b"/a/b/c/z"));
        assert!(matches(b"**", b""));
        assert!(!matches(b"", b"x"));
        let pattern = "*a".repeat(50) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(5_000).as_bytes()));
    }
}
