//! Every configuration key with default, type, unit or values, and meaning: the one source of `forebay config reference` and of
//! docs/reference/configuration.md.
//!
//! Tests hold the tables against the `Config` struct: no key is missing, none is too many, defaults and ranges are the
//! true ones.

mod http;
mod instance;
mod nfs;

#[cfg(test)]
mod tests;

use serde_json::{Value, json};

/// A table of the file.
pub struct Section {
    /// Empty: the keys above all tables.
    pub name: &'static str,
    /// Of a table that may stand several times, as `[[nfs.export]]`: its meaning. Such a table is one key of its parent.
    pub repeated: Option<&'static str>,
    pub keys: &'static [Key],
}

pub struct Key {
    /// With the name of the table before it, but for the keys of a repeated table.
    pub name: &'static str,
    /// A value of TOML. In parentheses: a description, for there is no value that is the default everywhere.
    pub default: &'static str,
    kind: Kind,
    /// SIGHUP takes a change.
    is_reloaded: bool,
    pub meaning: &'static str,
}

enum Kind {
    /// The type.
    Plain(&'static str),
    /// The unit, and the least and the largest value. A largest value from 2³² − 1 on is that of the representation.
    Number(&'static str, (u64, u64)),
    /// The values.
    Choice(&'static [&'static str]),
    /// The values of the elements.
    List(&'static [&'static str]),
}

pub const SECTIONS: &[Section] = &[
    Section { name: "", repeated: None, keys: instance::TOP },
    Section { name: "nfs", repeated: None, keys: nfs::NFS },
    Section { name: "nfs.delegations", repeated: None, keys: nfs::DELEGATIONS },
    Section {
        name: "nfs.export",
        repeated: Some(
            "Directories that clients may mount: a table for each entry. Without any table, / is exported read-write to \
             every client. A reload takes tables that are added at the end to existing ones. Their directories must differ \
             from those of existing tables, and lie neither in nor above them. Other changes take effect at a restart.",
        ),
        keys: nfs::EXPORT,
    },
    Section { name: "pools", repeated: None, keys: instance::POOLS },
    Section { name: "cluster", repeated: None, keys: instance::CLUSTER },
    Section { name: "keys", repeated: None, keys: instance::TICKET_KEYS },
    Section { name: "namespace", repeated: None, keys: instance::NAMESPACE },
    Section { name: "http", repeated: None, keys: http::HTTP },
    Section { name: "auth", repeated: None, keys: http::AUTH },
    Section {
        name: "auth.issuers",
        repeated: Some(
            "Trusted issuers of tokens: a table for each issuer. Changes take effect at a restart.",
        ),
        keys: http::ISSUERS,
    },
    Section { name: "log", repeated: None, keys: instance::LOG },
];

/// Columns of a comment in the file.
const WIDTH: usize = 100;

const fn key(name: &'static str, default: &'static str, kind: &'static str, meaning: &'static str) -> Key {
    Key { name, default, kind: Kind::Plain(kind), is_reloaded: false, meaning }
}

const fn number(
    name: &'static str,
    default: &'static str,
    unit: &'static str,
    range: (u64, u64),
    meaning: &'static str,
) -> Key {
    Key { name, default, kind: Kind::Number(unit, range), is_reloaded: false, meaning }
}

const fn choice(
    name: &'static str,
    default: &'static str,
    values: &'static [&'static str],
    meaning: &'static str,
) -> Key {
    Key { name, default, kind: Kind::Choice(values), is_reloaded: false, meaning }
}

const fn list(
    name: &'static str,
    default: &'static str,
    values: &'static [&'static str],
    meaning: &'static str,
) -> Key {
    Key { name, default, kind: Kind::List(values), is_reloaded: false, meaning }
}

/// Names with their tables, as in `section.key`. A repeated table is one key.
pub fn key_names() -> impl Iterator<Item = &'static str> {
    SECTIONS.iter().flat_map(|section| {
        let (repeated, keys) = match section.repeated {
            Some(_) => (Some(section.name), &[][..]),
            None => (None, section.keys),
        };
        repeated.into_iter().chain(keys.iter().map(|key| key.name))
    })
}

/// As a TOML file with every key commented out.
pub fn text() -> String {
    let mut out = String::from(
        "# Forebay configuration: every key with its default. Remove the # before a key to set it. A default in\n\
         # parentheses is a description, and a value takes its place.\n",
    );
    out.push_str(super::environment::RULE);
    for section in SECTIONS {
        match section.repeated {
            _ if section.name.is_empty() => {}
            None => out.push_str(&format!("\n[{}]\n", section.name)),
            Some(meaning) => {
                let how = "Remove the # before the header as well. Repeat header and keys for each table.";
                let comment = wrapped(&format!("{meaning} {how}"));
                out.push_str(&format!("\n{comment}#[[{}]]\n", section.name));
            }
        }
        for key in section.keys {
            let name = key.name.rsplit('.').next().unwrap_or(key.name);
            let (meaning, facts) = (wrapped(key.meaning), wrapped(&key.facts()));
            out.push_str(&format!("\n{meaning}{facts}#{name} = {}\n", key.default));
        }
    }
    out
}

/// For programs.
pub fn listed() -> Value {
    let keys = SECTIONS.iter().flat_map(|section| match section.repeated {
        None => section.keys.iter().map(Key::listed).collect(),
        Some(meaning) => {
            let keys: Vec<Value> = section.keys.iter().map(Key::listed).collect();
            let (name, kind) = (section.name, "list of tables");
            vec![json!({ "name": name, "default": "[]", "type": kind, "meaning": meaning, "keys": keys })]
        }
    });
    json!({ "keys": keys.collect::<Vec<_>>() })
}

impl Key {
    /// SIGHUP takes a change of it.
    const fn reloaded(self) -> Key {
        Key { is_reloaded: true, ..self }
    }

    pub fn type_name(&self) -> &'static str {
        match self.kind {
            Kind::Plain(kind) => kind,
            Kind::Number(..) => "integer",
            Kind::Choice(_) => "choice",
            Kind::List(_) => "list",
        }
    }

    /// Of a number.
    pub fn unit(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Number(unit, _) => Some(unit),
            _ => None,
        }
    }

    /// Of a choice, or of the elements of a list.
    pub fn values(&self) -> Option<&'static [&'static str]> {
        match self.kind {
            Kind::Choice(values) | Kind::List(values) => Some(values),
            _ => None,
        }
    }

    /// The event after which a change of the file takes effect.
    pub fn takes_effect(&self) -> &'static str {
        if self.is_reloaded { "reload" } else { "restart" }
    }

    /// Of a number that may not have every value.
    pub fn range(&self) -> Option<String> {
        const REPRESENTATION: u64 = u32::MAX as u64;
        match self.kind {
            Kind::Number(_, (0, REPRESENTATION..)) => None,
            Kind::Number(_, (least, REPRESENTATION..)) => Some(format!("at least {least}")),
            Kind::Number(_, (least, largest)) => Some(format!("{least} to {largest}")),
            _ => None,
        }
    }

    /// The line below the meaning.
    fn facts(&self) -> String {
        let mut facts = format!("Type: {}.", self.type_name());
        let values = self.values().map(|values| values.join(", "));
        for (label, fact) in
            [("Unit", self.unit().map(str::to_owned)), ("Range", self.range()), ("Values", values)]
        {
            facts += &fact.map_or(String::new(), |fact| format!(" {label}: {fact}."));
        }
        if self.is_reloaded {
            facts += " A reload takes changes.";
        }
        facts
    }

    fn listed(&self) -> Value {
        let mut listed = json!({
            "name": self.name,
            "default": self.default,
            "type": self.type_name(),
            "takes_effect": self.takes_effect(),
            "meaning": self.meaning,
        });
        if let Some(unit) = self.unit() {
            listed["unit"] = json!(unit);
        }
        if let Some(values) = self.values() {
            listed["values"] = json!(values);
        }
        if let Some(range) = self.range() {
            listed["range"] = json!(range);
        }
        listed
    }
}

/// A comment of TOML.
fn wrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("# {word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
