//! An established security context: MIC and Wrap tokens (RFC 4121 §4.2).
//!
//! A token's own sequence number is set and not judged: RPCSEC_GSS has a window of its own and asks that the mechanism's
//! be off (RFC 2203 §5.3.3.1).

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use thiserror::Error;

use crate::crypto::{CONFOUNDER_LEN, Key, Sealing, Signing, Usage};
use crate::{Principal, UnixSeconds};

const HEADER_LEN: usize = 16;
const MIC_ID: [u8; 2] = [4, 4];
const WRAP_ID: [u8; 2] = [5, 4];
const FILLER: u8 = 0xff;
/// Of a Wrap token: filler, extra count, right rotation count.
const NOTHING_EXTRA: [u8; 5] = [FILLER, 0, 0, 0, 0];

/// Flags of a token (RFC 4121 §4.2.2).
const SENT_BY_ACCEPTOR: u8 = 1;
const SEALED: u8 = 2;
const ACCEPTOR_SUBKEY: u8 = 4;

/// On which side of the context this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    #[cfg(any(test, feature = "peer"))]
    Initiator,
    Acceptor,
}

/// Why a per-message token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TokenError {
    /// Too short, of another kind, from the wrong side, or under another key than was agreed.
    #[error("token is malformed")]
    Defective,
    #[error("token does not verify")]
    BadSignature,
}

/// Contents of a Wrap token.
#[derive(Debug, PartialEq, Eq)]
pub struct Unwrapped {
    pub data: BytesMut,
    /// Whether it was encrypted, or only protected against change.
    pub is_sealed: bool,
}

/// Keys and names that two sides agree on; made by [`Acceptor::accept`](crate::Acceptor::accept).
pub struct Context {
    client: Principal,
    service: Principal,
    expires: UnixSeconds,
    flags: u8,
    peer_flags: u8,
    next_sequence: AtomicU64,
    mic: Directions<Signing>,
    wrap_plain: Directions<Signing>,
    wrap_sealed: Directions<Sealing>,
}

struct Directions<T> {
    ours: T,
    theirs: T,
}

/// Names and keys that a context is made of.
pub(crate) struct Agreed {
    pub client: Principal,
    pub service: Principal,
    pub expires: UnixSeconds,
    /// The key that everything is derived from.
    pub key: Key,
    pub is_acceptor_subkey: bool,
    /// Of the first token that this side sends.
    pub sequence: u32,
}

impl Context {
    pub(crate) fn new(role: Role, agreed: Agreed) -> Self {
        let initiator = (Usage::INITIATOR_SIGN, Usage::INITIATOR_SEAL, 0);
        let acceptor = (Usage::ACCEPTOR_SIGN, Usage::ACCEPTOR_SEAL, SENT_BY_ACCEPTOR);
        let (ours, theirs) = match role {
            #[cfg(any(test, feature = "peer"))]
            Role::Initiator => (initiator, acceptor),
            Role::Acceptor => (acceptor, initiator),
        };
        let key = &agreed.key;
        let subkey = if agreed.is_acceptor_subkey { ACCEPTOR_SUBKEY } else { 0 };
        Context {
            flags: ours.2 | subkey,
            peer_flags: theirs.2 | subkey,
            next_sequence: AtomicU64::new(u64::from(agreed.sequence)),
            mic: Directions { ours: Signing::new(key, ours.0), theirs: Signing::new(key, theirs.0) },
            wrap_plain: Directions { ours: Signing::new(key, ours.1), theirs: Signing::new(key, theirs.1) },
            wrap_sealed: Directions { ours: Sealing::new(key, ours.1), theirs: Sealing::new(key, theirs.1) },
            client: agreed.client,
            service: agreed.service,
            expires: agreed.expires,
        }
    }

    /// The principal that initiated the context.
    pub fn client(&self) -> &Principal {
        &self.client
    }

    /// The name of this service that the client asked for.
    pub fn service(&self) -> &Principal {
        &self.service
    }

    /// When the client's ticket ends, with the clock skew. The user of the context checks it.
    pub fn expires(&self) -> UnixSeconds {
        self.expires
    }

    /// A MIC token over `parts`, one after the other (RFC 4121 §4.2.6.1).
    pub fn mic(&self, parts: &[&[u8]]) -> Vec<u8> {
        let header = self.header(MIC_ID, self.flags, [FILLER; 5]);
        let mut token = Vec::with_capacity(HEADER_LEN + self.mic.ours.tag_len());
        token.extend_from_slice(&header);
        self.mic.ours.sign_onto(&mut token, &followed_by(parts, &header));
        token
    }

    pub fn verify_mic(&self, parts: &[&[u8]], token: &[u8]) -> Result<(), TokenError> {
        let (header, checksum) = token.split_first_chunk::<HEADER_LEN>().ok_or(TokenError::Defective)?;
        let [id0, id1, flags, filler @ .., _, _, _, _, _, _, _, _] = header;
        if [*id0, *id1] != MIC_ID || *flags != self.peer_flags || *filler != [FILLER; 5] {
            return Err(TokenError::Defective);
        }
        self.mic.theirs.verify(&followed_by(parts, header), checksum).map_err(|_| TokenError::BadSignature)
    }

    /// A Wrap token with confidentiality over `parts`, one after the other (RFC 4121 §4.2.4). `confounder` is chance.
    pub fn seal(&self, parts: &[&[u8]], confounder: &[u8; CONFOUNDER_LEN]) -> Vec<u8> {
        let header = self.header(WRAP_ID, self.flags | SEALED, NOTHING_EXTRA);
        // No filler and no rotation, so that the header inside is the one outside.
        let mut token = header.to_vec();
        self.wrap_sealed.ours.seal_onto(&mut token, confounder, &followed_by(parts, &header));
        token
    }

    /// A Wrap token that can be read by all and changed by nobody.
    pub fn wrap_plain(&self, parts: &[&[u8]]) -> Vec<u8> {
        // Extra count and rotation are signed as if they were zero.
        let mut header = self.header(WRAP_ID, self.flags, NOTHING_EXTRA);
        let mut checksum = Vec::new();
        self.wrap_plain.ours.sign_onto(&mut checksum, &followed_by(parts, &header));
        header[4..6].copy_from_slice(&(checksum.len() as u16).to_be_bytes());
        let mut token = header.to_vec();
        for part in parts {
            token.extend_from_slice(part);
        }
        token.extend_from_slice(&checksum);
        token
    }

    pub fn unwrap(&self, token: &[u8]) -> Result<Unwrapped, TokenError> {
        let (header, body) = token.split_first_chunk::<HEADER_LEN>().ok_or(TokenError::Defective)?;
        let [id0, id1, flags, filler, extra0, extra1, rotation0, rotation1, ..] = *header;
        let is_sealed = flags & SEALED != 0;
        if [id0, id1] != WRAP_ID || flags & !SEALED != self.peer_flags || filler != FILLER {
            return Err(TokenError::Defective);
        }
        let extra = usize::from(u16::from_be_bytes([extra0, extra1]));
        let rotation = usize::from(u16::from_be_bytes([rotation0, rotation1]));
        let mut body = BytesMut::from(body);
        if !body.is_empty() {
            let by = rotation % body.len();
            body.rotate_left(by);
        }
        let data =
            if is_sealed { self.opened(header, extra, body)? } else { self.verified(header, extra, body)? };
        Ok(Unwrapped { data, is_sealed })
    }

    fn opened(
        &self,
        header: &[u8; HEADER_LEN],
        extra: usize,
        body: BytesMut,
    ) -> Result<BytesMut, TokenError> {
        let mut plain = self.wrap_sealed.theirs.open(body).map_err(|_| TokenError::BadSignature)?;
        let data_len = plain.len().checked_sub(HEADER_LEN + extra).ok_or(TokenError::Defective)?;
        let mut unrotated = *header;
        unrotated[6..8].fill(0);
        if plain[data_len + extra..] != unrotated {
            return Err(TokenError::BadSignature);
        }
        plain.truncate(data_len);
        Ok(plain)
    }

    fn verified(
        &self,
        header: &[u8; HEADER_LEN],
        extra: usize,
        mut body: BytesMut,
    ) -> Result<BytesMut, TokenError> {
        let signing = &self.wrap_plain.theirs;
        let data_len = body.len().checked_sub(extra).ok_or(TokenError::Defective)?;
        let checksum = body.split_off(data_len);
        let mut unrotated = *header;
        unrotated[4..8].fill(0);
        signing.verify(&[&body, &unrotated], &checksum).map_err(|_| TokenError::BadSignature)?;
        Ok(body)
    }

    fn header(&self, id: [u8; 2], flags: u8, middle: [u8; 5]) -> [u8; HEADER_LEN] {
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        let mut header = [0; HEADER_LEN];
        header[..2].copy_from_slice(&id);
        header[2] = flags;
        header[3..8].copy_from_slice(&middle);
        header[8..].copy_from_slice(&sequence.to_be_bytes());
        header
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("client", &self.client)
            .field("service", &self.service)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The input of signing and encryption: the message, then the token's header (RFC 4121 §4.2.4).
fn followed_by<'a>(parts: &[&'a [u8]], header: &'a [u8; HEADER_LEN]) -> Vec<&'a [u8]> {
    parts.iter().copied().chain([&header[..]]).collect()
}
