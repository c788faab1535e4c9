//! What a redirect carries: a capability for one file at one pool, in the query of the Location.
//!
//! Clients use it again (gfal2 keeps redirects for the life of its process), so it lives for minutes, and it holds what
//! the pool needs to answer HEAD and conditional requests without asking anybody.
//!
//! ```text
//! 0  version (1)   1  purpose (1 read, 2 upload)   2  reserved (0, 0)   4  pool (u32)   8  file (u64)
//! 16 epoch (u32)   20 mtime, nanoseconds (u32)     24 mtime, seconds (i64)
//! 32 size (u64)    40 change (u64)                 48 expires, seconds since 1970 (u64)
//! 56 HMAC-SHA-256 over "forebay-http" and bytes 0..56, first 16 bytes
//! ```

use api::{Ticket, TicketKey, TicketMode};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use thiserror::Error;
use types::{Epoch, FileId, PoolId, Timestamp};

/// The parameter in the query.
pub(crate) const PARAMETER: &str = "forebay-ticket";

const VERSION: u8 = 1;
const BODY_BYTES: usize = 56;
const MAC_BYTES: usize = 16;
/// Keeps tickets of this door apart from what else is authenticated with the same key.
const DOMAIN: &[u8] = b"forebay-http";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Read,
    Upload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UrlTicket {
    pub purpose: Purpose,
    pub file: FileId,
    pub pool: PoolId,
    pub epoch: Epoch,
    pub size: u64,
    pub change: u64,
    pub mtime: Timestamp,
    pub expires_s: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum UrlTicketError {
    #[error("ticket is malformed")]
    Malformed,
    #[error("ticket is forged, or of another instance")]
    Forged,
    #[error("ticket has expired")]
    Expired,
}

impl UrlTicket {
    pub fn seal(&self, key: &TicketKey) -> String {
        let mut sealed = [0; BODY_BYTES + MAC_BYTES];
        sealed[0] = VERSION;
        sealed[1] = match self.purpose {
            Purpose::Read => 1,
            Purpose::Upload => 2,
        };
        sealed[4..8].copy_from_slice(&self.pool.0.to_be_bytes());
        sealed[8..16].copy_from_slice(&self.file.0.to_be_bytes());
        sealed[16..20].copy_from_slice(&self.epoch.0.to_be_bytes());
        sealed[20..24].copy_from_slice(&self.mtime.nanoseconds().to_be_bytes());
        sealed[24..32].copy_from_slice(&self.mtime.seconds.to_be_bytes());
        sealed[32..40].copy_from_slice(&self.size.to_be_bytes());
        sealed[40..48].copy_from_slice(&self.change.to_be_bytes());
        sealed[48..56].copy_from_slice(&self.expires_s.to_be_bytes());
        let mac = authenticate(key, &sealed[..BODY_BYTES]);
        sealed[BODY_BYTES..].copy_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(sealed)
    }

    pub fn open(key: &TicketKey, text: &str, now_s: u64) -> Result<UrlTicket, UrlTicketError> {
        let mut sealed = [0; BODY_BYTES + MAC_BYTES];
        let length =
            URL_SAFE_NO_PAD.decode_slice(text, &mut sealed).map_err(|_| UrlTicketError::Malformed)?;
        if length != sealed.len() {
            return Err(UrlTicketError::Malformed);
        }
        let (body, mac) = sealed.split_at(BODY_BYTES);
        // Every byte is looked at, whatever differs first.
        let difference = authenticate(key, body).iter().zip(mac).fold(0, |all, (a, b)| all | (a ^ b));
        if difference != 0 {
            return Err(UrlTicketError::Forged);
        }
        let purpose = match (body[0], body[1], body[2], body[3]) {
            (VERSION, 1, 0, 0) => Purpose::Read,
            (VERSION, 2, 0, 0) => Purpose::Upload,
            _ => return Err(UrlTicketError::Malformed),
        };
        let short = |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let long = |at: usize| u64::from(short(at)) << 32 | u64::from(short(at + 4));
        let ticket = UrlTicket {
            purpose,
            pool: PoolId(short(4)),
            file: FileId(long(8)),
            epoch: Epoch(short(16)),
            mtime: Timestamp::new(long(24) as i64, short(20)).ok_or(UrlTicketError::Malformed)?,
            size: long(32),
            change: long(40),
            expires_s: long(48),
        };
        if ticket.expires_s < now_s { Err(UrlTicketError::Expired) } else { Ok(ticket) }
    }

    /// As the pool understands it.
    pub fn ticket(&self) -> Ticket {
        let mode = match self.purpose {
            Purpose::Read => TicketMode::Read,
            Purpose::Upload => TicketMode::ReadWrite,
        };
        Ticket { file: self.file, pool: self.pool, mode, epoch: self.epoch }
    }
}

fn authenticate(key: &TicketKey, body: &[u8]) -> [u8; MAC_BYTES] {
    key.authenticate(&[DOMAIN, body].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> UrlTicket {
        UrlTicket {
            purpose: Purpose::Upload,
            file: FileId(0x0102_0304_0506_0708),
            pool: PoolId(3),
            epoch: Epoch(9),
            size: 1 << 40,
            change: u64::MAX,
            mtime: Timestamp::new(-1, 5).unwrap(),
            expires_s: 1_000,
        }
    }

    #[test]
    fn a_ticket_opens_until_it_expires() {
        let key = TicketKey::new(&[7; 32]);
        let sealed = ticket().seal(&key);
        assert_eq!(UrlTicket::open(&key, &sealed, 1_000), Ok(ticket()));
        assert_eq!(UrlTicket::open(&key, &sealed, 1_001), Err(UrlTicketError::Expired));
    }

    #[test]
    fn a_ticket_with_any_character_changed_is_refused() {
        let key = TicketKey::new(&[7; 32]);
        let sealed = ticket().seal(&key);
        for at in 0..sealed.len() {
            let mut forged = sealed.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            let forged = String::from_utf8(forged).unwrap();
            assert!(UrlTicket::open(&key, &forged, 0).is_err(), "{at}");
        }
        assert_eq!(UrlTicket::open(&key, &sealed[1..], 0), Err(UrlTicketError::Malformed));
        assert_eq!(UrlTicket::open(&key, "", 0), Err(UrlTicketError::Malformed));
        assert_eq!(UrlTicket::open(&TicketKey::new(&[8; 32]), &sealed, 0), Err(UrlTicketError::Forged));
    }
}
