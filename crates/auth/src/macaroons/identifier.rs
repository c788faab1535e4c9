//! The caller that a macaroon's bearer acts for, as JSON with a version inside the signed identifier.
//!
//! Everybody who holds the macaroon can read it. It says what the caller may, since that may be less than what the mode
//! bits let the same identity do (a macaroon from a token has the token's scopes, whatever is cut off its end).

use api::{Activities, Activity, Caller, PathGrant};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use types::Identity;

use crate::paths;

const VERSION: u32 = 1;
const IDENTIFIER_BYTES_MAX: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identifier {
    pub name: String,
    pub identity: Identity,
    pub grants: Option<Vec<PathGrant>>,
    /// As of the caller: what it stands for is not told.
    pub password: Option<[u8; 16]>,
    /// Signed, so that nobody makes sessions of other macaroons.
    pub is_session: bool,
}

#[derive(Serialize, Deserialize)]
struct Written {
    v: u32,
    /// Two macaroons with the same caveats differ.
    nonce: String,
    name: String,
    uid: u32,
    gid: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    groups: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grants: Option<Vec<WrittenGrant>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    password: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    session: bool,
}

#[derive(Serialize, Deserialize)]
struct WrittenGrant {
    /// Bits, in the order of `Activity::ALL`.
    may: u8,
    path: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    below: bool,
}

impl Identifier {
    pub fn of(caller: &Caller, is_session: bool) -> Result<Identifier, String> {
        if caller.name.chars().any(char::is_control) {
            return Err("the caller's name has control characters".to_owned());
        }
        Ok(Identifier {
            name: caller.name.as_ref().to_owned(),
            identity: caller.identity.clone(),
            grants: caller.grants.as_deref().map(<[PathGrant]>::to_vec),
            password: caller.password,
            is_session,
        })
    }

    pub fn encode(&self) -> Result<Vec<u8>, String> {
        let mut nonce = [0; 12];
        aws_lc_rs::rand::fill(&mut nonce).map_err(|_| "the system gives no random numbers".to_owned())?;
        let written = Written {
            v: VERSION,
            nonce: URL_SAFE_NO_PAD.encode(nonce),
            name: self.name.clone(),
            uid: self.identity.uid,
            gid: self.identity.gid,
            groups: self.identity.groups.to_vec(),
            grants: self.grants.as_ref().map(|grants| grants.iter().map(write_grant).collect()),
            password: self.password.map(|password| URL_SAFE_NO_PAD.encode(password)),
            session: self.is_session,
        };
        let json = serde_json::to_vec(&written).map_err(|error| error.to_string())?;
        if json.len() > IDENTIFIER_BYTES_MAX {
            return Err("what the caller may is too long for a macaroon".to_owned());
        }
        Ok(json)
    }

    /// To be called with what was verified: it says what we wrote, this version or an older one.
    pub fn decode(json: &[u8]) -> Result<Identifier, String> {
        let written: Written = serde_json::from_slice(json)
            .map_err(|_| "the macaroon's identifier makes no sense".to_owned())?;
        if written.v != VERSION {
            return Err(format!("the macaroon is of version {}, known is {VERSION}", written.v));
        }
        let grants = written.grants.map(|grants| grants.iter().map(read_grant).collect::<Result<_, _>>());
        let password = written.password.map(|text| read_password(&text));
        Ok(Identifier {
            name: written.name,
            identity: Identity::new(written.uid, written.gid, &written.groups),
            grants: grants.transpose()?,
            password: password.transpose()?,
            is_session: written.session,
        })
    }
}

fn read_password(text: &str) -> Result<[u8; 16], String> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| "the macaroon's identifier makes no sense".to_owned())
}

fn write_grant(grant: &PathGrant) -> WrittenGrant {
    let bits = Activity::ALL.iter().enumerate().filter(|(_, activity)| grant.activities.contains(**activity));
    WrittenGrant {
        may: bits.fold(0, |bits, (index, _)| bits | 1 << index),
        path: paths::encode(&grant.path),
        below: grant.is_below_only,
    }
}

fn read_grant(grant: &WrittenGrant) -> Result<PathGrant, String> {
    let activities = Activity::ALL.iter().enumerate().filter(|(index, _)| grant.may & 1 << index != 0);
    let activities: Vec<Activity> = activities.map(|(_, activity)| *activity).collect();
    Ok(PathGrant {
        activities: Activities::of(&activities),
        path: paths::parse_encoded(&grant.path)?,
        is_below_only: grant.below,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_survives_and_is_never_the_same_twice() {
        let identifier = Identifier {
            name: "anna \"the\" first".to_owned(),
            identity: Identity::new(7, 8, &[9, 10]),
            grants: Some(vec![PathGrant {
                activities: Activities::of(&[Activity::Stage, Activity::ReadMetadata]),
                path: paths::parse(b"/a b/\xff").unwrap(),
                is_below_only: true,
            }]),
            password: Some([3; 16]),
            is_session: true,
        };
        let json = identifier.encode().unwrap();
        assert_eq!(Identifier::decode(&json), Ok(identifier.clone()));
        assert_ne!(json, identifier.encode().unwrap());
    }

    #[test]
    fn a_newer_version_is_refused() {
        let json = br#"{"v":2,"nonce":"","name":"a","uid":1,"gid":1}"#;
        assert!(Identifier::decode(json).unwrap_err().contains("version 2"));
    }
}
