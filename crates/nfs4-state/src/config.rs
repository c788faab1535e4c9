//! The identity of a server, the bounds it keeps, and the small facts its shell hands in.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use nfs4::{EXCHGID4_FLAG_USE_PNFS_DS, EXCHGID4_FLAG_USE_PNFS_MDS};

/// Which half of pNFS a server is (RFC 8881 §13.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    MetadataServer,
    DataServer,
}

impl Role {
    /// Linux refuses pNFS without USE_PNFS_MDS at the head, and a data server without USE_PNFS_DS.
    pub(crate) fn exchange_flags(self) -> u32 {
        match self {
            Role::MetadataServer => EXCHGID4_FLAG_USE_PNFS_MDS,
            Role::DataServer => EXCHGID4_FLAG_USE_PNFS_DS,
        }
    }
}

/// The identity of the server to its clients (RFC 8881 §2.10.4).
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    /// `so_major_id`. Must differ between the head and every pool: clients merge connections of equal owners.
    pub major_id: Bytes,
    pub minor_id: u64,
    /// `eir_server_scope`; may be shared by all daemons of an instance.
    pub scope: Bytes,
    pub role: Role,
    /// Name of the implementation, for people.
    pub implementation: Bytes,
}

/// Bounds of the state that clients can make grow.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Clients, confirmed or not. At the bound the oldest unconfirmed client goes, or the one that is silent for
    /// longest after the end of its lease; without one EXCHANGE_ID gets DELAY.
    pub clients_max: usize,
    /// Sessions of one client; above it CREATE_SESSION gets NOSPC.
    pub sessions_per_client_max: usize,
    /// Slots of one session as it is made, and those that an idle one is asked to keep to.
    pub slots_first: u32,
    /// Slots that a busy session may grow to.
    pub slots_max: u32,
    pub operations_max: u32,
    pub request_bytes_max: u32,
    pub response_bytes_max: u32,
    /// Per slot; a longer reply that is to be cached gets REP_TOO_BIG_TO_CACHE.
    pub cached_response_bytes_max: u32,
    /// All slots of all sessions together, reserved when a session is created or grows. Sessions grow up to the half of
    /// it. Near the bound new ones get fewer slots and all are asked to give back what they do not use; at the bound
    /// CREATE_SESSION gets DELAY.
    pub reply_cache_bytes_max: u64,
    /// Callbacks under way on one session.
    pub callback_slots_max: u32,
    /// Connections remembered per session and channel; the oldest is forgotten.
    pub connections_per_session_max: usize,
}

/// Payload of the largest READ or WRITE that is offered.
const IO_BYTES_MAX: u32 = 1 << 20;
/// Room around it for headers and the other operations of the COMPOUND.
const COMPOUND_OVERHEAD_BYTES: u32 = 64 << 10;

impl Default for SessionLimits {
    fn default() -> Self {
        SessionLimits {
            clients_max: 4096,
            sessions_per_client_max: 16,
            slots_first: 64,
            slots_max: 256,
            operations_max: 64,
            request_bytes_max: IO_BYTES_MAX + COMPOUND_OVERHEAD_BYTES,
            response_bytes_max: IO_BYTES_MAX + COMPOUND_OVERHEAD_BYTES,
            cached_response_bytes_max: 2 << 10,
            reply_cache_bytes_max: 256 << 20,
            callback_slots_max: 16,
            connections_per_session_max: 32,
        }
    }
}

/// How a [`SessionTable`](crate::SessionTable) is set up.
#[derive(Clone, Debug)]
pub struct SessionConfig {
    pub identity: ServerIdentity,
    pub limits: SessionLimits,
    /// How long a client may be silent before others may have what it has.
    pub lease: Duration,
    /// How far a client may keep its state beyond that.
    pub courtesy: Courtesy,
    /// How long after a start clients may reclaim; at least a lease.
    pub grace: Duration,
    /// Random per start of the process: it makes client and session ids of another instance unknown here.
    pub instance: u64,
}

/// How far courtesy goes.
#[derive(Clone, Copy, Debug)]
pub struct Courtesy {
    /// After the lease; zero: none.
    pub time: Duration,
    /// Those that were silent longest go beyond these: clients, and what all of them hold together.
    pub clients_max: usize,
    pub states_max: u64,
}

impl Courtesy {
    pub const NONE: Courtesy = Courtesy { time: Duration::ZERO, clients_max: 0, states_max: 0 };
}

/// A transport connection, numbered by the transport and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// Where a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub connection: ConnectionId,
    pub address: SocketAddr,
}

/// The sender of a request (RFC 8881 §2.4.3), as the RPC layer knows it and before squashing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    pub flavor: u32,
    /// Of AUTH_SYS, as the client's host sent it.
    pub uid: u32,
    /// Of RPCSEC_GSS: stands for the name, and no other name has it. The service (krb5, krb5i, krb5p) is no part of the
    /// identity.
    pub gss_name: Option<[u8; 16]>,
}

impl Principal {
    pub const NONE: Principal = Principal { flavor: nfs4::AUTH_NONE, uid: u32::MAX, gss_name: None };

    pub fn sys(uid: u32) -> Principal {
        Principal { flavor: nfs4::AUTH_SYS, uid, gss_name: None }
    }

    pub fn gss(name: [u8; 16]) -> Principal {
        Principal { flavor: nfs4::RPCSEC_GSS, uid: u32::MAX, gss_name: Some(name) }
    }

    /// Equal for equal principals, and hardly ever for different ones.
    fn digest(&self) -> u64 {
        let seed = u64::from(self.flavor) << 32 | u64::from(self.uid);
        self.gss_name.map_or(seed, |name| {
            let (first, second) = name.split_at(8);
            let word = |half: &[u8]| half.iter().fold(0, |word, byte| word << 8 | u64::from(*byte));
            mix(mix(seed, word(first)), word(second))
        })
    }
}

/// Bytes of a request that its digest covers: enough to tell requests apart, few enough to cost nothing.
const DIGEST_BYTES: usize = 256;

/// The facts that SEQUENCE must know of the COMPOUND around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    pub bytes: usize,
    pub operations: u32,
    pub(crate) digest: u64,
}

impl RequestFacts {
    /// `after_sequence` is what follows SEQUENCE: a retransmission repeats it byte for byte, while SEQUENCE's own
    /// `sa_highest_slotid` may differ.
    pub fn new(bytes: usize, operations: u32, principal: &Principal, after_sequence: &[u8]) -> RequestFacts {
        let head = &after_sequence[..after_sequence.len().min(DIGEST_BYTES)];
        let seed = mix(principal.digest(), u64::from(operations));
        let words = head.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_be_bytes(word)
        });
        RequestFacts { bytes, operations, digest: words.fold(mix(seed, after_sequence.len() as u64), mix) }
    }
}

/// One round of a multiply-rotate hash. It guards against mistakes of clients, not against forgers: who can forge a
/// retry can send the request.
fn mix(state: u64, word: u64) -> u64 {
    (state.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_differ_by_sender_operations_length_and_first_bytes() {
        let facts = RequestFacts::new(100, 2, &Principal::sys(0), b"putrootfh");
        assert_eq!(facts, RequestFacts::new(100, 2, &Principal::sys(0), b"putrootfh"));
        for other in [
            RequestFacts::new(100, 2, &Principal::sys(1), b"putrootfh"),
            RequestFacts::new(100, 2, &Principal::NONE, b"putrootfh"),
            RequestFacts::new(100, 2, &Principal::gss([0; 16]), b"putrootfh"),
            RequestFacts::new(100, 2, &Principal::gss([1; 16]), b"putrootfh"),
            RequestFacts::new(100, 3, &Principal::sys(0), b"putrootfh"),
            RequestFacts::new(100, 2, &Principal::sys(0), b"putrootfh\0"),
            RequestFacts::new(100, 2, &Principal::sys(0), b"putrootfg"),
        ] {
            assert_ne!(facts.digest, other.digest);
        }
    }
}
