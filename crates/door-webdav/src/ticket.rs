//! The ticket of a redirect: a capability for one file at one pool, in the query of the Location.
//!
//! Clients use it again (gfal2 keeps redirects for the life of its process), so it lives for minutes, and one for reading
//! names the version that its bearer was allowed to read.
//!
//! ```text
//! 0  version (3)   1  purpose (1 read, 2 upload)   2  mode of I/O (0 to 3)   3  reserved (0)   4  pool (u32)   8  file (u64)
//! 16 change of the version to read, or epoch to write by (u64)   24 expires, seconds since 1970 (u64)
//! 32 birth (u32)   36 key generation (u32)   40 term (u64)
//! 48 HMAC-SHA-256 over bytes 0..48 with the pool's key, first 16 bytes
//! ```

use api::{Birth, KeyGeneration, PoolKey, TicketError, TicketKeys};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;
use types::{Epoch, FileId, IoMode, PoolId};

/// The parameter in the query.
pub(crate) const PARAMETER: &str = "forebay-ticket";

const VERSION: u8 = 3;
const BODY_BYTES: usize = 48;
const MAC_BYTES: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The file as it was when its change attribute was this.
    Read {
        change: u64,
    },
    Upload {
        epoch: Epoch,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UrlTicket {
    pub purpose: Purpose,
    pub file: FileId,
    pub birth: Birth,
    pub pool: PoolId,
    pub io: IoMode,
    pub expires_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum UrlTicketError {
    #[error(transparent)]
    Seal(#[from] TicketError),
    #[error("ticket has expired")]
    Expired,
}

impl UrlTicket {
    pub fn seal(&self, keys: &TicketKeys) -> String {
        let (sealer, mut sealed) = (keys.sealer(), [0; BODY_BYTES + MAC_BYTES]);
        sealed[0] = VERSION;
        let (purpose, state) = match self.purpose {
            Purpose::Read { change } => (1, change),
            Purpose::Upload { epoch } => (2, epoch.0.into()),
        };
        sealed[1] = purpose;
        sealed[2] = self.io.number();
        sealed[4..8].copy_from_slice(&self.pool.0.to_be_bytes());
        sealed[8..16].copy_from_slice(&self.file.0.to_be_bytes());
        sealed[16..24].copy_from_slice(&state.to_be_bytes());
        sealed[24..32].copy_from_slice(&self.expires_s.to_be_bytes());
        sealed[32..36].copy_from_slice(&self.birth.0.to_be_bytes());
        sealed[36..40].copy_from_slice(&sealer.generation().0.to_be_bytes());
        sealed[40..48].copy_from_slice(&sealer.term().0.to_be_bytes());
        let mac = sealer.authenticate_url(self.pool, &sealed[..BODY_BYTES]);
        sealed[BODY_BYTES..].copy_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(sealed)
    }

    pub fn open(key: &PoolKey, text: &str, now_s: u64) -> Result<UrlTicket, UrlTicketError> {
        let mut sealed = [0; BODY_BYTES + MAC_BYTES];
        let length = URL_SAFE_NO_PAD.decode_slice(text, &mut sealed).map_err(|_| TicketError::Malformed)?;
        let (body, mac) = sealed.split_first_chunk::<BODY_BYTES>().ok_or(TicketError::Malformed)?;
        let mac: &[u8; MAC_BYTES] = mac.try_into().map_err(|_| TicketError::Malformed)?;
        if length != BODY_BYTES + MAC_BYTES || body[0] != VERSION {
            return Err(TicketError::Malformed.into());
        }
        let short = |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let long = |at: usize| u64::from(short(at)) << 32 | u64::from(short(at + 4));
        let (pool, file, birth) = (PoolId(short(4)), FileId(long(8)), Birth(short(32)));
        if pool != key.pool() {
            return Err(TicketError::OtherPool.into());
        }
        key.verify_url(KeyGeneration(short(36)), body, mac)?;
        let purpose = match (body[1], body[2], body[3]) {
            (1, 0..=3, 0) => Purpose::Read { change: long(16) },
            (2, 0..=3, 0) => {
                let epoch = u32::try_from(long(16)).map_err(|_| TicketError::Malformed)?;
                Purpose::Upload { epoch: Epoch(epoch) }
            }
            _ => return Err(TicketError::Malformed.into()),
        };
        let io = IoMode::from_number(body[2]);
        let ticket = UrlTicket { purpose, file, birth, pool, io, expires_s: long(24) };
        if ticket.expires_s < now_s { Err(UrlTicketError::Expired) } else { Ok(ticket) }
    }
}

#[cfg(test)]
mod tests {
    use api::Term;

    use super::*;

    fn keys(secret: u8, generation: u32) -> TicketKeys {
        TicketKeys::new(&[secret; 32], Term::UNCOUNTED, KeyGeneration(generation))
    }

    fn ticket() -> UrlTicket {
        UrlTicket {
            purpose: Purpose::Read { change: u64::MAX },
            file: FileId(0x0102_0304_0506_0708),
            birth: Birth(5),
            pool: PoolId(3),
            io: IoMode::Auto,
            expires_s: 1_000,
        }
    }

    #[test]
    fn a_ticket_opens_until_it_expires() {
        let (keys, pool) = (keys(7, 0), keys(7, 0).pool_key(PoolId(3)));
        let upload =
            UrlTicket { purpose: Purpose::Upload { epoch: Epoch(9) }, io: IoMode::Direct, ..ticket() };
        for ticket in [ticket(), upload] {
            let sealed = ticket.seal(&keys);
            assert_eq!(UrlTicket::open(&pool, &sealed, 1_000), Ok(ticket));
            assert_eq!(UrlTicket::open(&pool, &sealed, 1_001), Err(UrlTicketError::Expired));
        }
    }

    #[test]
    fn a_ticket_with_any_character_changed_is_refused() {
        let pool = keys(7, 0).pool_key(PoolId(3));
        let sealed = ticket().seal(&keys(7, 0));
        for at in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(UrlTicket::open(&pool, &forged, 0).is_err(), "{at}");
        }
        let malformed = Err(TicketError::Malformed.into());
        assert_eq!(UrlTicket::open(&pool, &sealed[1..], 0), malformed);
        assert_eq!(UrlTicket::open(&pool, "", 0), malformed);
        let foreign = keys(8, 0).pool_key(PoolId(3));
        assert_eq!(UrlTicket::open(&foreign, &sealed, 0), Err(TicketError::Forged.into()));
    }

    #[test]
    fn a_ticket_in_a_url_opens_at_its_own_pool_only() {
        let other = keys(7, 0).pool_key(PoolId(4));
        assert_eq!(
            UrlTicket::open(&other, &ticket().seal(&keys(7, 0)), 0),
            Err(TicketError::OtherPool.into())
        );
        // As the holder of pool 3's key would make one to pool 4.
        let mut forged = URL_SAFE_NO_PAD.decode(ticket().seal(&keys(7, 0))).unwrap();
        forged[4..8].copy_from_slice(&4_u32.to_be_bytes());
        let mac = keys(7, 0).sealer().authenticate_url(PoolId(3), &forged[..BODY_BYTES]);
        forged[BODY_BYTES..].copy_from_slice(&mac);
        let forged = URL_SAFE_NO_PAD.encode(forged);
        assert_eq!(UrlTicket::open(&other, &forged, 0), Err(TicketError::Forged.into()));
    }

    #[test]
    fn tickets_in_urls_of_two_generations_open_and_those_of_others_do_not() {
        let pool = keys(7, 2).pool_key(PoolId(3));
        for generation in [1, 2] {
            assert_eq!(UrlTicket::open(&pool, &ticket().seal(&keys(7, generation)), 0), Ok(ticket()));
        }
        for generation in [0, 3] {
            let opened = UrlTicket::open(&pool, &ticket().seal(&keys(7, generation)), 0);
            assert_eq!(opened, Err(TicketError::UnknownGeneration.into()));
        }
    }
}
