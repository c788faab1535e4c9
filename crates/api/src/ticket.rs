//! Tickets: signed capabilities that a front gives to a client and a pool verifies without asking anybody.
//!
//! The sealed form is deterministic for a ticket, its conditions, a term and a generation of keys: the Linux client matches
//! mirrors of a file by their data-server file handle, so a new layout for the same replica must carry the same bytes.
//! After a change of the mode of I/O it carries others, and a client with both layouts sees two mirrors.
//!
//! ```text
//! 0  version (5)   1  mode (1 read, 2 read-write)   2  demand
//! 3  flags: 1 present, 2 mirrored, 4 write-only; 8 and 16: mode of I/O (0 auto, 1 buffered, 2 uncached, 3 direct);
//!    32 unmade
//! 4  pool (u32)    8  file (u64)   16 epoch (u32)   20 birth (u32)   24 term (u64)   32 key generation (u32)
//! 36 HMAC-SHA-256 over bytes 0..36 with the pool's key, first 16 bytes
//! ```
//!
//! A client may keep a sealed ticket for as long as it likes, also when the file is gone. So a ticket that makes the replica is
//! sealed only for a pool that knows which files are gone (`PoolStatus::made_through`).

use thiserror::Error;
use types::{Epoch, FileId, IoMode, PoolId};

use crate::{Birth, KeyGeneration, PoolKey, Term, TicketKeys};

/// Of a sealed ticket: fewer than the 128 of a file handle (RFC 8881 §3.1, `NFS4_FHSIZE`).
pub const SEALED_BYTES: usize = BODY_BYTES + MAC_BYTES;

const BODY_BYTES: usize = 36;
pub(crate) const MAC_BYTES: usize = 16;
const VERSION: u8 = 5;

const PRESENT: u8 = 1;
const MIRRORED: u8 = 2;
const WRITE_ONLY: u8 = 4;
const IO_SHIFT: u8 = 3;
const UNMADE: u8 = 32;
const FLAGS_MAX: u8 = 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    pub file: FileId,
    /// The replica of another file that has the same id is an error.
    pub birth: Birth,
    pub pool: PoolId,
    pub mode: TicketMode,
    pub epoch: Epoch,
    pub presence: Presence,
    /// How the pool reads and writes the replica, from this open on.
    pub io: IoMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicketMode {
    Read,
    ReadWrite,
}

/// The meaning of a missing replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Presence {
    /// The file is empty, and the first write makes it. For the head itself, and for clients of a pool that knows which
    /// files are gone.
    Unmade,
    /// As `Unmade`, and also where the file had a replica before that was removed: one is made of that at another pool. For the
    /// head itself.
    Filling,
    /// It was made before the ticket was sealed, so the file is gone.
    Made,
    /// The file has data, which are lost.
    Written,
}

impl Presence {
    /// Of a file of that size, to the head itself.
    pub fn of_size(size: u64) -> Presence {
        if size > 0 { Presence::Written } else { Presence::Unmade }
    }
}

/// The protection on the wire that a ticket's bearer needs: a set whose members the door gives and knows. Which it is
/// follows from where the file was found, so that a client has the same bytes for a replica each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand(pub u8);

/// The conditions of a sealed ticket's use. The face at the pool checks them before it opens the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    pub demand: Demand,
    /// The file has other replicas, which may have been written without this one.
    pub is_mirrored: bool,
    /// The replica is being filled: it is written, and not read.
    pub is_write_only: bool,
    /// The replica of a file that is `Unmade` need not have been made: the pool makes it.
    pub is_made_by_pool: bool,
}

impl Conditions {
    /// The file has one replica, and it is whole.
    pub fn of_sole_replica(demand: Demand) -> Conditions {
        Conditions { demand, is_mirrored: false, is_write_only: false, is_made_by_pool: false }
    }
}

/// A sealed ticket's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedTicket {
    pub ticket: Ticket,
    pub conditions: Conditions,
    /// The term that it was sealed in.
    pub term: Term,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TicketError {
    #[error("ticket has a wrong length or version")]
    Malformed,
    /// It may be forged too: only its own pool can tell.
    #[error("ticket is one of another pool")]
    OtherPool,
    #[error("ticket is sealed with a key that is not in use")]
    UnknownGeneration,
    #[error("ticket is forged, or of another instance")]
    Forged,
    #[error("ticket to write is of a former start of the head")]
    FormerTerm,
}

impl TicketKeys {
    /// The replica has been made ([`Pool::make`](crate::Pool::make)), unless the conditions say that the pool makes it.
    pub fn seal(&self, ticket: &Ticket, conditions: Conditions) -> [u8; SEALED_BYTES] {
        let sealer = self.sealer();
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let mut sealed = [0; SEALED_BYTES];
        sealed[0] = VERSION;
        sealed[1] = match ticket.mode {
            TicketMode::Read => 1,
            TicketMode::ReadWrite => 2,
        };
        sealed[2] = conditions.demand.0;
        sealed[3] = flag(ticket.presence == Presence::Written, PRESENT)
            | flag(conditions.is_mirrored, MIRRORED)
            | flag(conditions.is_write_only, WRITE_ONLY)
            | flag(conditions.is_made_by_pool && ticket.presence == Presence::Unmade, UNMADE)
            | ticket.io.number() << IO_SHIFT;
        sealed[4..8].copy_from_slice(&ticket.pool.0.to_be_bytes());
        sealed[8..16].copy_from_slice(&ticket.file.0.to_be_bytes());
        sealed[16..20].copy_from_slice(&ticket.epoch.0.to_be_bytes());
        sealed[20..24].copy_from_slice(&ticket.birth.0.to_be_bytes());
        sealed[24..32].copy_from_slice(&sealer.term().0.to_be_bytes());
        sealed[32..36].copy_from_slice(&sealer.generation().0.to_be_bytes());
        let mac = sealer.authenticate_handle(ticket.pool, &sealed[..BODY_BYTES]);
        sealed[BODY_BYTES..].copy_from_slice(&mac);
        sealed
    }
}

impl PoolKey {
    /// A ticket to write below the [`floor`](PoolKey::floor) is refused. A write takes a pass of it besides.
    pub fn open(&self, sealed: &[u8]) -> Result<OpenedTicket, TicketError> {
        let (body, mac) = sealed.split_first_chunk::<BODY_BYTES>().ok_or(TicketError::Malformed)?;
        let mac: &[u8; MAC_BYTES] = mac.try_into().map_err(|_| TicketError::Malformed)?;
        if body[0] != VERSION {
            return Err(TicketError::Malformed);
        }
        let number = |at: usize| u32::from_be_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
        let long = |at: usize| u64::from(number(at)) << 32 | u64::from(number(at + 4));
        let pool = PoolId(number(4));
        if pool != self.pool() {
            return Err(TicketError::OtherPool);
        }
        self.verify_handle(KeyGeneration(number(32)), body, mac)?;
        let (mode, flags) = match (body[1], body[3]) {
            (1, flags @ 0..=FLAGS_MAX) => (TicketMode::Read, flags),
            (2, flags @ 0..=FLAGS_MAX) => (TicketMode::ReadWrite, flags),
            _ => return Err(TicketError::Malformed),
        };
        let ticket = Ticket {
            file: FileId(long(8)),
            birth: Birth(number(20)),
            pool,
            mode,
            epoch: Epoch(number(16)),
            presence: match (flags & PRESENT != 0, flags & UNMADE != 0) {
                (true, _) => Presence::Written,
                (false, true) => Presence::Unmade,
                (false, false) => Presence::Made,
            },
            io: IoMode::from_number(flags >> IO_SHIFT),
        };
        let conditions = Conditions {
            demand: Demand(body[2]),
            is_mirrored: flags & MIRRORED != 0,
            is_write_only: flags & WRITE_ONLY != 0,
            is_made_by_pool: flags & UNMADE != 0,
        };
        let term = Term(long(24));
        if mode == TicketMode::ReadWrite && !self.floor().admits(term) {
            return Err(TicketError::FormerTerm);
        }
        Ok(OpenedTicket { ticket, conditions, term })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HandleKey;

    const SECRET: [u8; 32] = [7; 32];

    fn keys() -> TicketKeys {
        TicketKeys::new(&SECRET, Term(0x1122_3344_5566), KeyGeneration(2))
    }

    fn ticket() -> Ticket {
        Ticket {
            file: FileId(0x0102_0304_0506_0708),
            birth: Birth(1_700_000_000),
            pool: PoolId(3),
            mode: TicketMode::ReadWrite,
            epoch: Epoch(9),
            presence: Presence::Written,
            io: IoMode::Auto,
        }
    }

    fn demanding(demand: u8) -> Conditions {
        Conditions::of_sole_replica(Demand(demand))
    }

    #[test]
    fn a_ticket_is_the_same_bytes_each_time_and_opens_again() {
        let (keys, pool) = (keys(), keys().pool_key(PoolId(3)));
        let unmade = Ticket { presence: Presence::Unmade, ..ticket() };
        let sole = demanding(5);
        for (ticket, conditions) in [
            (ticket(), sole),
            (ticket(), Conditions { is_mirrored: true, ..sole }),
            (ticket(), Conditions { is_write_only: true, ..sole }),
            (ticket(), Conditions { is_mirrored: true, is_write_only: true, ..sole }),
            (unmade, Conditions { is_made_by_pool: true, ..sole }),
        ] {
            let sealed = keys.seal(&ticket, conditions);
            assert_eq!(keys.clone().seal(&ticket, conditions), sealed);
            let opened = OpenedTicket { ticket, conditions, term: keys.sealer().term() };
            assert_eq!(pool.open(&sealed), Ok(opened));
        }
    }

    #[test]
    fn a_ticket_to_write_below_the_floor_is_refused_and_one_to_read_is_not() {
        let (keys, pool) = (keys(), keys().pool_key(PoolId(3)));
        let to_write = keys.seal(&ticket(), demanding(0));
        let to_read = keys.seal(&Ticket { mode: TicketMode::Read, ..ticket() }, demanding(0));
        let term = keys.sealer().term();
        pool.floor().raise(term);
        assert!(pool.open(&to_write).is_ok());
        pool.clone().floor().raise(term.next());
        assert_eq!(pool.open(&to_write), Err(TicketError::FormerTerm));
        assert!(pool.open(&to_read).is_ok());
    }

    #[test]
    fn a_ticket_carries_the_mode_of_io_in_two_bits_of_its_flags() {
        let (keys, pool) = (keys(), keys().pool_key(PoolId(3)));
        for io in IoMode::ALL {
            let sealed = keys.seal(&Ticket { io, ..ticket() }, demanding(1));
            assert_eq!(sealed[3], 1 | io.number() << 3);
            assert_eq!(pool.open(&sealed).unwrap().ticket, Ticket { io, ..ticket() });
        }
    }

    // The layout is that of the table above.
    #[test]
    fn a_sealed_ticket_has_its_fields_where_the_table_says() {
        let conditions = Conditions { is_mirrored: true, ..demanding(5) };
        let sealed = keys().seal(&ticket(), conditions);
        let body = [
            &[5, 2, 5, 3][..],
            &[0, 0, 0, 3, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0, 0, 0, 9, 0x65, 0x53, 0xf1, 0],
            &[0, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0, 0, 0, 2],
        ];
        assert_eq!(sealed[..BODY_BYTES], body.concat());
        let unmade = Ticket { presence: Presence::Unmade, ..ticket() };
        let made = keys().seal(&unmade, Conditions { is_made_by_pool: true, ..demanding(5) });
        assert_eq!(made[3], 32);
    }

    #[test]
    fn a_sealed_ticket_makes_a_replica_only_where_the_pool_does() {
        let (keys, pool) = (keys(), keys().pool_key(PoolId(3)));
        for (is_made_by_pool, of_head, of_client) in [
            (false, Presence::Unmade, Presence::Made),
            (false, Presence::Filling, Presence::Made),
            (false, Presence::Made, Presence::Made),
            (false, Presence::Written, Presence::Written),
            (true, Presence::Unmade, Presence::Unmade),
            (true, Presence::Made, Presence::Made),
            (true, Presence::Written, Presence::Written),
        ] {
            let conditions = Conditions { is_made_by_pool, ..demanding(0) };
            let sealed = keys.seal(&Ticket { presence: of_head, ..ticket() }, conditions);
            assert_eq!(pool.open(&sealed).unwrap().ticket.presence, of_client);
        }
    }

    #[test]
    fn a_ticket_with_any_bit_flipped_is_refused() {
        let (keys, pool) = (keys(), keys().pool_key(PoolId(3)));
        let sealed = keys.seal(&ticket(), demanding(1));
        for bit in 0..sealed.len() * 8 {
            let mut forged = sealed;
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(pool.open(&forged).is_err(), "bit {bit}");
        }
        assert_eq!(pool.open(&sealed[1..]), Err(TicketError::Malformed));
        assert_eq!(pool.open(&[&sealed[..], &[0]].concat()), Err(TicketError::Malformed));
        let foreign = TicketKeys::new(&[8; 32], keys.sealer().term(), keys.sealer().generation());
        assert_eq!(foreign.pool_key(PoolId(3)).open(&sealed), Err(TicketError::Forged));
    }

    #[test]
    fn a_pool_opens_only_its_own_tickets() {
        let own = keys().seal(&ticket(), demanding(1));
        let other = keys().pool_key(PoolId(4));
        assert_eq!(other.open(&own), Err(TicketError::OtherPool));
        let mut renamed = own;
        renamed[4..8].copy_from_slice(&4_u32.to_be_bytes());
        assert_eq!(other.open(&renamed), Err(TicketError::Forged));
    }

    #[test]
    fn a_ticket_under_the_key_of_file_handles_is_refused() {
        let mut sealed = keys().seal(&ticket(), demanding(1));
        let mac: [u8; MAC_BYTES] = HandleKey::new(&SECRET).authenticate(&sealed[..BODY_BYTES]);
        sealed[BODY_BYTES..].copy_from_slice(&mac);
        assert_eq!(keys().pool_key(PoolId(3)).open(&sealed), Err(TicketError::Forged));
    }

    #[test]
    fn tickets_of_two_generations_open_and_those_of_others_do_not() {
        let sealed = |generation| {
            TicketKeys::new(&SECRET, Term::FIRST, KeyGeneration(generation)).seal(&ticket(), demanding(1))
        };
        let pool = keys().pool_key(PoolId(3));
        assert!(pool.open(&sealed(1)).is_ok() && pool.open(&sealed(2)).is_ok());
        for generation in [0, 3] {
            assert_eq!(pool.open(&sealed(generation)), Err(TicketError::UnknownGeneration));
        }
    }
}
