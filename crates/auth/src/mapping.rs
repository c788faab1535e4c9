//! The identity mapping file: who somebody from outside is here.
//!
//! ```text
//! # who                                        -> uid gid[,gid…] [user|admin]
//! user:anna                                    -> 1001 1000,27 admin
//! sub:https://issuer.example 6ba7b810-9dad     -> 1002 1000
//! group:https://issuer.example /wlcg/pilots    -> 3000 3000
//! dn:/DC=org/DC=example/CN=Anna Doe            -> 1001 1000
//! fqan:/atlas/Role=production                  -> 2000 2000
//! fqan:/atlas/*                                -> 2001 2000
//! ```
//!
//! The first line that fits anything that is known of somebody counts, so exceptions stand before rules. A `*` at the end
//! stands for any rest. Subjects and groups name their issuer, since any issuer can claim any of them.

use std::fmt;

use api::Role;
use types::Identity;

/// Something a credential has shown of its bearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<'a> {
    /// A name of the password file.
    User(&'a str),
    Subject {
        issuer: &'a str,
        subject: &'a str,
    },
    Group {
        issuer: &'a str,
        group: &'a str,
    },
    Dn(&'a str),
    Fqan(&'a str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    kind: Kind,
    /// With one slash at the end cut off; empty for kinds without.
    issuer: String,
    pattern: Pattern,
    mapped: Mapped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    User,
    Subject,
    Group,
    Dn,
    Fqan,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Exactly(String),
    Prefix(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapped {
    pub identity: Identity,
    pub role: Role,
}

impl Mapping {
    /// The error begins with the number of the line.
    pub fn parse(text: &str) -> Result<Mapping, String> {
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            lines.push(Line::parse(line).map_err(|error| format!("{}: {error}", index + 1))?);
        }
        Ok(Mapping { lines })
    }

    pub fn find(&self, facts: &[Fact<'_>]) -> Option<&Mapped> {
        self.lines.iter().find(|line| facts.iter().any(|fact| line.fits(fact))).map(|line| &line.mapped)
    }
}

impl Line {
    fn parse(line: &str) -> Result<Line, String> {
        // The last arrow, since a DN may hold one.
        let (who, identity) =
            line.rsplit_once("->").ok_or("expected `kind:pattern -> uid gid,gid…`, there is no arrow")?;
        let (kind, pattern) = who
            .trim()
            .split_once(':')
            .ok_or("expected `kind:pattern` before the arrow, there is no colon")?;
        let (kind, issuer, pattern) = match kind {
            "user" => (Kind::User, "", pattern),
            "dn" => (Kind::Dn, "", pattern),
            "fqan" => (Kind::Fqan, "", pattern),
            "sub" | "group" => {
                let (issuer, pattern) = pattern
                    .split_once(char::is_whitespace)
                    .ok_or_else(|| format!("`{kind}:` needs an issuer, a space, and a {kind}"))?;
                (if kind == "sub" { Kind::Subject } else { Kind::Group }, issuer, pattern)
            }
            other => {
                return Err(format!("`{other}` is no kind; there are user, sub, group, dn and fqan"));
            }
        };
        let pattern = pattern.trim();
        if pattern.is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        let pattern = match pattern.strip_suffix('*') {
            Some(prefix) => Pattern::Prefix(prefix.to_owned()),
            None => Pattern::Exactly(pattern.to_owned()),
        };
        let issuer = issuer.strip_suffix('/').unwrap_or(issuer).to_owned();
        Ok(Line { kind, issuer, pattern, mapped: parse_mapped(identity)? })
    }

    fn fits(&self, fact: &Fact<'_>) -> bool {
        let (kind, issuer, text) = match *fact {
            Fact::User(name) => (Kind::User, "", name),
            Fact::Subject { issuer, subject } => (Kind::Subject, issuer, subject),
            Fact::Group { issuer, group } => (Kind::Group, issuer, group),
            Fact::Dn(dn) => (Kind::Dn, "", dn),
            Fact::Fqan(fqan) => (Kind::Fqan, "", fqan),
        };
        self.kind == kind
            && self.issuer == issuer.strip_suffix('/').unwrap_or(issuer)
            && self.pattern.fits(text)
    }
}

impl Pattern {
    fn fits(&self, text: &str) -> bool {
        match self {
            Pattern::Exactly(wanted) => wanted == text,
            Pattern::Prefix(prefix) => text.starts_with(prefix.as_str()),
        }
    }
}

fn parse_mapped(text: &str) -> Result<Mapped, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (uid, gids, role) = match words.as_slice() {
        [uid, gids] => (uid, gids, "user"),
        [uid, gids, role] => (uid, gids, *role),
        _ => return Err("expected `uid gid[,gid…] [user|admin]` after the arrow".to_owned()),
    };
    Ok(Mapped { identity: parse_identity(uid, gids)?, role: parse_role(role)? })
}

/// `uid` and `gid[,gid…]`: the first group is the primary one.
pub fn parse_identity(uid: &str, gids: &str) -> Result<Identity, String> {
    let uid = parse_id(uid, "uid")?;
    let gids: Vec<u32> = gids.split(',').map(|gid| parse_id(gid, "gid")).collect::<Result<_, _>>()?;
    let (gid, groups) = gids.split_first().ok_or("there is no gid")?;
    Ok(Identity::new(uid, *gid, groups))
}

fn parse_id(text: &str, what: &str) -> Result<u32, String> {
    // u32::MAX is "no change" to chown and nobody's number.
    match text.parse::<u32>() {
        Ok(id) if id != u32::MAX && text.bytes().all(|byte| byte.is_ascii_digit()) => Ok(id),
        _ => Err(format!("`{text}` is no {what}")),
    }
}

pub fn parse_role(text: &str) -> Result<Role, String> {
    match text {
        "user" => Ok(Role::User),
        "admin" => Ok(Role::Admin),
        other => Err(format!("`{other}` is no role; there are user and admin")),
    }
}

/// As [`parse_identity`] reads it: `uid` and `gid[,gid…]` with `separator` between them.
pub fn show_identity(identity: &Identity, separator: char) -> impl fmt::Display {
    let mut text = format!("{}{separator}{}", identity.uid, identity.gid);
    for gid in identity.groups.iter() {
        text.push(',');
        text.push_str(&gid.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ISSUER: &str = "https://issuer.example";

    fn uid(text: &str, facts: &[Fact<'_>]) -> Option<u32> {
        Mapping::parse(text).unwrap().find(facts).map(|mapped| mapped.identity.uid)
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let text =
            "# exceptions first\n\nfqan:/atlas/Role=production -> 1 1\nfqan:/atlas* -> 2 1\nfqan:* -> 3 1\n";
        assert_eq!(uid(text, &[Fact::Fqan("/atlas/Role=production")]), Some(1));
        assert_eq!(uid(text, &[Fact::Fqan("/atlas/de")]), Some(2));
        assert_eq!(uid(text, &[Fact::Fqan("/cms")]), Some(3));
        assert_eq!(uid(text, &[Fact::Fqan("/cms"), Fact::Fqan("/atlas/Role=production")]), Some(1));
        assert_eq!(uid(text, &[Fact::Dn("/atlas")]), None, "kinds are not mixed");
    }

    #[test]
    fn a_subject_is_one_of_its_issuer_only() {
        let text = "sub:https://issuer.example/ anna -> 7 7\ngroup:https://issuer.example /g -> 8 8\n";
        let subject = |issuer| Fact::Subject { issuer, subject: "anna" };
        assert_eq!(uid(text, &[subject(ISSUER)]), Some(7));
        assert_eq!(uid(text, &[subject("https://issuer.example/")]), Some(7));
        assert_eq!(uid(text, &[subject("https://evil.example")]), None);
        assert_eq!(uid(text, &[Fact::Group { issuer: ISSUER, group: "/g" }]), Some(8));
        assert_eq!(uid(text, &[Fact::Group { issuer: ISSUER, group: "/g/h" }]), None);
    }

    #[test]
    fn a_dn_may_hold_spaces_colons_and_arrows() {
        let text = "dn:/DC=org/CN=Anna -> Doe: x -> 5 6,7,8 admin";
        let mapping = Mapping::parse(text).unwrap();
        let mapped = mapping.find(&[Fact::Dn("/DC=org/CN=Anna -> Doe: x")]).unwrap();
        assert_eq!(mapped, &Mapped { identity: Identity::new(5, 6, &[7, 8]), role: Role::Admin });
    }

    #[test]
    fn a_mistake_is_told_with_its_line() {
        for bad in [
            "user:anna",
            "anna -> 1 1",
            "who:anna -> 1 1",
            "user: -> 1 1",
            "user:anna -> 1",
            "user:anna -> -1 1",
            "user:anna -> +1 1",
            "user:anna -> 4294967295 1",
            "user:anna -> 1 1, 2",
            "user:anna -> 1 1,",
            "user:anna -> 1 1 root",
            "sub:anna -> 1 1",
        ] {
            let error = Mapping::parse(&format!("# head\n{bad}\n")).unwrap_err();
            assert!(error.starts_with("2: "), "{bad}: {error}");
        }
    }
}
