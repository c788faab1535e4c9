//! Tickets: signed capabilities that a front gives to a client and a pool verifies without asking anybody.
//!
//! The sealed form is deterministic for (file, pool, mode, epoch, demand): the Linux client matches mirrors of a file by
//! their data-server file handle, so a new layout for the same replica must carry the same bytes.
//!
//! ```text
//! 0  version (2)   1  mode (1 read, 2 read-write)   2  demand   3  reserved (0)   4  pool (u32)
//! 8  file (u64)    16 epoch (u32)                   20 HMAC-SHA-256 over bytes 0..20, first 16 bytes
//! ```

use hmac::{Hmac, Mac};
use sha2::Sha256;
use thiserror::Error;
use types::{Epoch, FileId, PoolId};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub file: FileId,
    pub pool: PoolId,
    pub mode: TicketMode,
    pub epoch: Epoch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicketMode {
    Read,
    ReadWrite,
}

/// How whoever brings a ticket must be protected on the wire: a set whose members the door gives and knows. Which it is
/// follows from where the file was found, so that a client has the same bytes for a replica each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand(pub u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TicketError {
    #[error("ticket has a wrong length or version")]
    Malformed,
    #[error("ticket is forged, or of another instance")]
    Forged,
}

const BODY_BYTES: usize = 20;
const MAC_BYTES: usize = 16;
const VERSION: u8 = 2;

/// The secret that head and pools of an instance share.
#[derive(Clone)]
pub struct TicketKey(Hmac<Sha256>);

impl TicketKey {
    pub const SEALED_BYTES: usize = BODY_BYTES + MAC_BYTES;

    pub fn new(secret: &[u8; 32]) -> TicketKey {
        TicketKey(Hmac::new_from_slice(secret).expect("HMAC takes keys of any length"))
    }

    pub fn seal(&self, ticket: &Ticket, demand: Demand) -> [u8; Self::SEALED_BYTES] {
        let mut sealed = [0; Self::SEALED_BYTES];
        sealed[0] = VERSION;
        sealed[1] = match ticket.mode {
            TicketMode::Read => 1,
            TicketMode::ReadWrite => 2,
        };
        sealed[2] = demand.0;
        sealed[4..8].copy_from_slice(&ticket.pool.0.to_be_bytes());
        sealed[8..16].copy_from_slice(&ticket.file.0.to_be_bytes());
        sealed[16..20].copy_from_slice(&ticket.epoch.0.to_be_bytes());
        let mac = self.authenticate::<MAC_BYTES>(&sealed[..BODY_BYTES]);
        sealed[BODY_BYTES..].copy_from_slice(&mac);
        sealed
    }

    pub fn open(&self, sealed: &[u8]) -> Result<(Ticket, Demand), TicketError> {
        let sealed: &[u8; Self::SEALED_BYTES] = sealed.try_into().map_err(|_| TicketError::Malformed)?;
        let mode = match (sealed[0], sealed[1], sealed[3]) {
            (VERSION, 1, 0) => TicketMode::Read,
            (VERSION, 2, 0) => TicketMode::ReadWrite,
            _ => return Err(TicketError::Malformed),
        };
        let (body, mac) = sealed.split_at(BODY_BYTES);
        self.0.clone().chain_update(body).verify_truncated_left(mac).map_err(|_| TicketError::Forged)?;
        let number = |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let ticket = Ticket {
            file: FileId(u64::from(number(8)) << 32 | u64::from(number(12))),
            pool: PoolId(number(4)),
            mode,
            epoch: Epoch(number(16)),
        };
        Ok((ticket, Demand(body[2])))
    }

    /// The first `N` bytes of the HMAC over anything else the instance must recognise as its own (file handles).
    pub fn authenticate<const N: usize>(&self, body: &[u8]) -> [u8; N] {
        const { assert!(N <= 32) };
        let mac = self.0.clone().chain_update(body).finalize().into_bytes();
        let mut out = [0; N];
        out.copy_from_slice(&mac[..N]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        Ticket {
            file: FileId(0x0102_0304_0506_0708),
            pool: PoolId(3),
            mode: TicketMode::ReadWrite,
            epoch: Epoch(9),
        }
    }

    #[test]
    fn a_ticket_is_the_same_bytes_each_time_and_opens_again() {
        let key = TicketKey::new(&[7; 32]);
        let demand = Demand(5);
        assert_eq!(key.seal(&ticket(), demand), key.seal(&ticket(), demand));
        assert_eq!(key.open(&key.seal(&ticket(), demand)), Ok((ticket(), demand)));
    }

    #[test]
    fn a_ticket_with_any_bit_flipped_is_refused() {
        let key = TicketKey::new(&[7; 32]);
        let sealed = key.seal(&ticket(), Demand(1));
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(key.open(&forged).is_err(), "bit {bit}");
        }
        assert_eq!(key.open(&sealed[1..]), Err(TicketError::Malformed));
        assert_eq!(TicketKey::new(&[8; 32]).open(&sealed), Err(TicketError::Forged));
    }
}
