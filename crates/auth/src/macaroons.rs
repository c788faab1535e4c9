//! Macaroons: bearer tokens that anybody can make narrower and nobody wider.
//!
//! Compatible with libmacaroons, whose packets (format 1) gfal2, FTS and dCache pass around. The identifier, which only
//! we can sign, holds the caller that the bearer acts for. Caveats, ours and those that others append, only take away.
//! A macaroon is never an administrator: a shared link must not be able to change the instance. Nothing lists
//! macaroons: each is valid until its end, until its password or the secret is changed, or until its session is ended
//! ([`crate::ended`]).

pub mod caveat;
pub mod identifier;
pub mod instant;
pub mod wire;

use std::net::IpAddr;
use std::time::Duration;

use api::{AuthError, Caller, Macaroon, MacaroonRequest, PathGrant, Role};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use types::Network;

use crate::ended::Ending;
use crate::paths;
use caveat::Caveat;
use identifier::Identifier;
use wire::Parts;

/// The key with which libmacaroons derives keys, padded with zeros to 32 bytes.
const KEY_GENERATOR: &[u8; 32] = b"macaroons-key-generator\0\0\0\0\0\0\0\0\0";
const ADDRESSES_MAX: usize = 32;

pub struct Macaroons {
    key: [u8; 32],
    location: String,
    validity_max: Duration,
}

impl Macaroons {
    pub fn new(secret: &[u8; 32], location: &str, validity_max: Duration) -> Macaroons {
        Macaroons { key: derive_key(secret), location: location.to_owned(), validity_max }
    }

    /// `now_s` is what `before:` is counted from. A caller whose own credential ends sooner gives that end on.
    pub fn mint(
        &self,
        caller: &Caller,
        request: &MacaroonRequest,
        now_s: u64,
    ) -> Result<Macaroon, AuthError> {
        if caller.role == Role::Anonymous {
            return Err(AuthError::Forbidden("a macaroon needs somebody who gives it".to_owned()));
        }
        if caller.is_bound_to_addresses() {
            let why =
                "a macaroon that is bound to addresses cannot be exchanged for another; append caveats to it";
            return Err(AuthError::Forbidden(why.to_owned()));
        }
        let validity = request.validity.unwrap_or(self.validity_max).min(self.validity_max);
        let mut expires_s =
            now_s.saturating_add(validity.as_secs()).min(caller.expires_s.unwrap_or(u64::MAX));
        for end in &request.ends {
            expires_s = expires_s.min(caveat::parse_before(end).map_err(AuthError::Invalid)?);
        }
        if expires_s <= now_s {
            return Err(AuthError::Invalid("the macaroon would have ended before it began".to_owned()));
        }
        let mut caveats = vec![Caveat::Before(expires_s)];
        caveats.extend(request.activities.map(Caveat::Activities));
        caveats.extend(request.path.clone().map(Caveat::Path));
        if !request.addresses.is_empty() {
            caveats.push(Caveat::Addresses(parse_addresses(&request.addresses)?));
        }
        let mut grants =
            caller.grants.as_deref().map_or_else(|| vec![paths::everything()], <[PathGrant]>::to_vec);
        caveats.iter().for_each(|caveat| grants = caveat.narrow(std::mem::take(&mut grants)));
        if grants.is_empty() {
            return Err(AuthError::Forbidden("you may do none of what the macaroon would allow".to_owned()));
        }
        let identifier =
            Identifier::of(caller, request.is_session).and_then(|identifier| identifier.encode());
        let identifier = identifier.map_err(AuthError::Invalid)?;
        let parts = Parts {
            location: self.location.clone().into_bytes(),
            identifier,
            caveats: caveats.iter().map(Caveat::encode).collect(),
            signature: [0; 32],
        };
        let signature = sign(&self.key, &parts);
        let token = Parts { signature, ..parts }.encode_packets().map_err(AuthError::Invalid)?;
        Ok(Macaroon { token, expires_s })
    }

    /// Stands for a password in macaroons, which their bearers can read. It is made from the hash and the secret.
    pub fn stamp_of(&self, hash: &str) -> [u8; 16] {
        self.stamp_of_bytes(hash.as_bytes())
    }

    /// The session that a macaroon of ours is of, whatever was appended to it. `None`: it is of none, or not ours.
    pub fn session(&self, token: &str) -> Option<Ending> {
        let parts = Parts::decode(token).ok()?;
        chain(&self.key, &parts).verify_slice(&parts.signature).ok()?;
        let Identifier { name, identity, grants, is_session, .. } =
            Identifier::decode(&parts.identifier).ok()?;
        // Ours is the first. A sooner one that was appended ends that macaroon, and not the session.
        let Ok(Caveat::Before(end_s)) = Caveat::parse(parts.caveats.first()?) else { return None };
        let mark = self.stamp_of_bytes(&[b"session\0", parts.identifier.as_slice()].concat());
        // Sessions that are begun with a share link take the place of none that its owner begins with a password.
        let is_limited = grants.is_some();
        let owner = self.stamp_of_bytes(format!("{name}\0{}\0{is_limited}", identity.uid).as_bytes());
        is_session.then_some(Ending { mark, owner, end_s })
    }

    fn stamp_of_bytes(&self, bytes: &[u8]) -> [u8; 16] {
        let mut stamp = [0; 16];
        stamp.copy_from_slice(&hmac(&self.key, bytes)[..16]);
        stamp
    }

    /// Everything is checked: the chain of signatures, that each caveat is known, and that each holds. But whether
    /// the password of the answer is still in force.
    pub fn verify(&self, token: &str, from: IpAddr, now_s: u64) -> Result<Caller, AuthError> {
        let parts = Parts::decode(token).map_err(AuthError::Refused)?;
        let mac = chain(&self.key, &parts);
        // Constant time, as `verify` of hmac is; `chain` stops before the last step.
        mac.verify_slice(&parts.signature)
            .map_err(|_| AuthError::Refused("the macaroon's signature is wrong".to_owned()))?;
        let identifier = Identifier::decode(&parts.identifier).map_err(AuthError::Refused)?;
        let mut grants = identifier.grants.clone().unwrap_or_else(|| vec![paths::everything()]);
        let mut expires_s = None::<u64>;
        let mut is_bound = false;
        for caveat in &parts.caveats {
            let caveat = Caveat::parse(caveat).map_err(AuthError::Refused)?;
            match &caveat {
                Caveat::Before(end_s) if *end_s <= now_s => {
                    return Err(AuthError::Refused("the macaroon has expired".to_owned()));
                }
                Caveat::Before(end_s) => expires_s = Some(expires_s.unwrap_or(u64::MAX).min(*end_s)),
                Caveat::Addresses(networks) => {
                    is_bound = true;
                    if !networks.iter().any(|network| network.contains(from)) {
                        return Err(AuthError::Forbidden(
                            "the macaroon is bound to other addresses".to_owned(),
                        ));
                    }
                }
                Caveat::Identity { uid, name } => {
                    if uid.is_some_and(|uid| uid != identifier.identity.uid)
                        || name.as_ref().is_some_and(|name| *name != identifier.name)
                    {
                        return Err(AuthError::Forbidden(
                            "the macaroon is bound to somebody else".to_owned(),
                        ));
                    }
                }
                Caveat::Activities(_) | Caveat::Path(_) => {}
            }
            grants = caveat.narrow(grants);
        }
        if grants.is_empty() {
            return Err(AuthError::Forbidden("the macaroon's caveats leave nothing".to_owned()));
        }
        if is_bound {
            grants.push(PathGrant::BOND);
        }
        Ok(Caller {
            name: identifier.name.as_str().into(),
            identity: identifier.identity,
            role: Role::User,
            grants: Some(grants.into()),
            expires_s,
            password: identifier.password,
        })
    }
}

fn parse_addresses(addresses: &[String]) -> Result<Vec<Network>, AuthError> {
    if addresses.len() > ADDRESSES_MAX {
        return Err(AuthError::Invalid(format!("a macaroon is bound to at most {ADDRESSES_MAX} networks")));
    }
    let parse = |text: &String| text.trim().parse().map_err(AuthError::Invalid);
    addresses.iter().map(parse).collect()
}

fn derive_key(secret: &[u8]) -> [u8; 32] {
    hmac(KEY_GENERATOR, secret)
}

fn sign(key: &[u8; 32], parts: &Parts) -> [u8; 32] {
    chain(key, parts).finalize().into_bytes().into()
}

/// The last link of the chain, not yet finished.
fn chain(key: &[u8; 32], parts: &Parts) -> Hmac<Sha256> {
    let mut link = keyed(key).chain_update(&parts.identifier);
    for caveat in &parts.caveats {
        let signature: [u8; 32] = link.finalize().into_bytes().into();
        link = keyed(&signature).chain_update(caveat);
    }
    link
}

fn hmac(key: &[u8; 32], message: &[u8]) -> [u8; 32] {
    keyed(key).chain_update(message).finalize().into_bytes().into()
}

fn keyed(key: &[u8; 32]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
pub(crate) mod tests;
