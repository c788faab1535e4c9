//! As databases keep an ACL: a version, then for each entry its kind and whom it is about in a byte, its flags in
//! another, its mask, and an id where it names one; numbers of four bytes, the least significant first.

use thiserror::Error;

use super::{Ace, AceFlags, AceKind, AceWho, Acl};
use crate::Access;

const VERSION: u8 = 1;
const DENY: u8 = 0x80;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AclEncodingError {
    #[error("version {0} of an access control list is not known")]
    Version(u8),
    #[error("access control list is damaged")]
    Damaged,
}

impl Acl {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + 10 * self.aces().len());
        out.push(VERSION);
        for ace in self.aces() {
            let (who, id) = match ace.who {
                AceWho::Owner => (0, None),
                AceWho::Group => (1, None),
                AceWho::Everyone => (2, None),
                AceWho::User(uid) => (3, Some(uid)),
                AceWho::NamedGroup(gid) => (4, Some(gid)),
            };
            out.push(if ace.kind == AceKind::Deny { who | DENY } else { who });
            // There are four.
            out.push(ace.flags.bits() as u8);
            out.extend(ace.mask.bits().to_le_bytes());
            out.extend(id.into_iter().flat_map(u32::to_le_bytes));
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Acl, AclEncodingError> {
        let (version, mut rest) = bytes.split_first().ok_or(AclEncodingError::Damaged)?;
        if *version != VERSION {
            return Err(AclEncodingError::Version(*version));
        }
        let mut aces = Vec::new();
        while !rest.is_empty() {
            aces.push(decode_ace(&mut rest).ok_or(AclEncodingError::Damaged)?);
        }
        Acl::derived(aces).map_err(|_| AclEncodingError::Damaged)
    }
}

fn decode_ace(rest: &mut &[u8]) -> Option<Ace> {
    let [head, flags] = take(rest)?;
    let mask = Access::from_bits(u32::from_le_bytes(take(rest)?))?;
    let who = match head & !DENY {
        0 => AceWho::Owner,
        1 => AceWho::Group,
        2 => AceWho::Everyone,
        3 => AceWho::User(u32::from_le_bytes(take(rest)?)),
        4 => AceWho::NamedGroup(u32::from_le_bytes(take(rest)?)),
        _ => return None,
    };
    let kind = if head & DENY == 0 { AceKind::Allow } else { AceKind::Deny };
    Some(Ace { kind, flags: AceFlags::from_bits(flags.into())?, mask, who })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}
