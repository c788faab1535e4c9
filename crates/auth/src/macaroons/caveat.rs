//! First-party caveats, in dCache's words: `activity:`, `path:`, `before:`, `ip:`, `name:`, `id:`.

use api::{Activities, Activity, PathGrant};
use types::{Name, Network};

use super::instant;
use crate::paths;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caveat {
    /// `activity:LIST,DOWNLOAD`: these and no others.
    Activities(Activities),
    /// `path:/a`: at and below. Several leave what is within all of them.
    Path(Vec<Name>),
    /// `before:2026-11-21T12:00:00Z`, in seconds since 1970.
    Before(u64),
    /// `ip:192.0.2.0/24,2001:db8::1`: from one of these.
    Addresses(Vec<Network>),
    /// `name:anna`, or `id:1001;1000,27;anna`: only if it is this one anyhow. Groups are not compared: they are what the
    /// identifier says.
    Identity { uid: Option<u32>, name: Option<String> },
}

const NAMES: [(&str, Activity); 8] = [
    ("READ_METADATA", Activity::ReadMetadata),
    ("UPDATE_METADATA", Activity::UpdateMetadata),
    ("LIST", Activity::List),
    ("DOWNLOAD", Activity::Download),
    ("UPLOAD", Activity::Upload),
    ("MANAGE", Activity::Manage),
    ("DELETE", Activity::Delete),
    ("STAGE", Activity::Stage),
];

/// `LIST,DOWNLOAD`, as in the caveat and in requests for macaroons.
pub fn parse_activities(text: &str) -> Result<Activities, String> {
    let mut activities = Vec::new();
    for word in text.split(',').map(str::trim) {
        let known = NAMES.iter().find(|(name, _)| *name == word);
        let (_, activity) = known.ok_or_else(|| format!("`{}` is no activity", word.escape_debug()))?;
        activities.push(*activity);
    }
    Ok(Activities::of(&activities))
}

/// `2026-11-21T12:00:00Z`, as in the caveat and in requests for macaroons.
pub fn parse_before(text: &str) -> Result<u64, String> {
    instant::parse(text).ok_or_else(|| format!("`{}` is no ISO 8601 time with a zone", text.escape_debug()))
}

impl Caveat {
    /// A caveat that is not understood is an error, since nobody could say whether it holds.
    pub fn parse(caveat: &[u8]) -> Result<Caveat, String> {
        let unknown =
            || format!("the macaroon has a caveat that is not known here: {}", caveat.escape_ascii());
        let colon = caveat.iter().position(|byte| *byte == b':').ok_or_else(unknown)?;
        let (kind, value) = (&caveat[..colon], &caveat[colon + 1..]);
        if kind == b"path" {
            return Ok(Caveat::Path(paths::parse(value)?));
        }
        let value = std::str::from_utf8(value).map_err(|_| unknown())?;
        match kind {
            b"activity" => parse_activities(value).map(Caveat::Activities),
            b"before" => parse_before(value).map(Caveat::Before),
            b"ip" => {
                let networks: Result<_, _> = value.split(',').map(|text| text.trim().parse()).collect();
                networks.map(Caveat::Addresses)
            }
            b"name" => Ok(Caveat::Identity { uid: None, name: Some(value.to_owned()) }),
            b"id" => parse_id(value).ok_or_else(unknown),
            _ => Err(unknown()),
        }
    }

    /// As [`Caveat::parse`] reads it. Bytes, since names of files are.
    pub fn encode(&self) -> Vec<u8> {
        let text = match self {
            Caveat::Path(path) => {
                let names: Vec<&[u8]> = path.iter().map(Name::as_bytes).collect();
                return [b"path:/", names.join(&b'/').as_slice()].concat();
            }
            Caveat::Activities(activities) => {
                let names = NAMES.iter().filter(|(_, activity)| activities.contains(*activity));
                format!("activity:{}", names.map(|(name, _)| *name).collect::<Vec<_>>().join(","))
            }
            Caveat::Before(s) => format!("before:{}", instant::show(*s)),
            Caveat::Addresses(networks) => {
                format!("ip:{}", networks.iter().map(Network::to_string).collect::<Vec<_>>().join(","))
            }
            Caveat::Identity { uid: Some(uid), name } => {
                format!("id:{uid};;{}", name.as_deref().unwrap_or_default())
            }
            Caveat::Identity { uid: None, name } => format!("name:{}", name.as_deref().unwrap_or_default()),
        };
        text.into_bytes()
    }

    /// Narrows the grants.
    pub fn narrow(&self, grants: Vec<PathGrant>) -> Vec<PathGrant> {
        match self {
            Caveat::Activities(activities) => paths::only(grants, *activities),
            Caveat::Path(path) => paths::within(grants, path),
            Caveat::Before(_) | Caveat::Addresses(_) | Caveat::Identity { .. } => grants,
        }
    }
}

fn parse_id(value: &str) -> Option<Caveat> {
    let mut fields = value.splitn(3, ';');
    let uid = fields.next()?.parse().ok()?;
    let name = fields.nth(1).filter(|name| !name.is_empty()).map(str::to_owned);
    Some(Caveat::Identity { uid: Some(uid), name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caveat_is_written_as_it_is_read() {
        for text in [
            "activity:READ_METADATA,UPDATE_METADATA,LIST,DOWNLOAD,UPLOAD,MANAGE,DELETE,STAGE",
            "path:/",
            "path:/a b/ä",
            "before:2026-11-21T12:00:00Z",
            "ip:192.0.2.0/24,2001:db8::1/128",
            "name:anna",
            "id:7;;anna",
        ] {
            assert_eq!(Caveat::parse(text.as_bytes()).unwrap().encode(), text.as_bytes());
        }
        assert_eq!(Caveat::parse(b"path:/\xff//x/").unwrap().encode(), b"path:/\xff/x");
    }

    #[test]
    fn a_caveat_that_is_not_understood_is_an_error() {
        for bad in [
            "",
            "before",
            "time < 2030-01-01T00:00",
            "root:/a",
            "activity:",
            "activity:READ",
            "activity:LIST,,DOWNLOAD",
            "path:a",
            "path:/a/../b",
            "before:tomorrow",
            "before:2026-11-21T12:00:00",
            "ip:",
            "ip:192.0.2.0/24,x",
            "id:x",
            "Path:/a",
        ] {
            assert!(Caveat::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(Caveat::parse(b"name:\xff").is_err());
    }
}
