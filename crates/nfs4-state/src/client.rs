//! One client record: the 5-tuple of RFC 8881 §18.35.4 and what hangs on it.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use nfs4::{ClientId4, CreateSession4ResOk, NfsStat4, SessionId4};

use crate::Principal;

/// A client owner between two of its restarts: whatever client ids it has had, its memory is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Incarnation {
    /// `co_ownerid`.
    pub owner: Bytes,
    /// `co_verifier`.
    pub verifier: [u8; 8],
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId4,
    /// Copied out of its request.
    pub(crate) incarnation: Incarnation,
    pub(crate) principal: Principal,
    pub(crate) confirmed: bool,
    pub(crate) create_slot: CreateSlot,
    pub(crate) sessions: Vec<SessionId4>,
    /// Sessions made so far, for their numbers.
    pub(crate) sessions_made: u32,
    pub(crate) reclaim: Reclaim,
    /// SEQ4_STATUS_* that stay until they are cleared.
    pub(crate) status_flags: u32,
    pub(crate) lease: Lease,
    pub(crate) address: SocketAddr,
    pub(crate) implementation: Option<Bytes>,
}

/// The right of a client to reclaim its state from the next instance.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    /// The client has said RECLAIM_COMPLETE to this instance.
    pub(crate) is_complete: bool,
    /// State was revoked that the client may not know of: after a restart it would reclaim that too.
    pub(crate) is_robbed: bool,
}

#[derive(Debug)]
pub(crate) struct Lease {
    /// Last sign of life.
    pub(crate) renewed: Duration,
    /// It was found to be over, and the client stays.
    pub(crate) is_courtesy: bool,
}

/// The one slot that CREATE_SESSION has for itself, since there is no session yet (RFC 8881 §18.36.4).
#[derive(Debug, Default)]
pub(crate) struct CreateSlot {
    /// `csa_sequence` of the last request that was done.
    pub(crate) sequence: u32,
    /// The request after it is under way: its record is being written.
    pub(crate) running: bool,
    pub(crate) reply: Option<Result<CreateSession4ResOk, NfsStat4>>,
}

/// The verdict of its slot on a CREATE_SESSION.
#[derive(Debug)]
pub(crate) enum CreateTurn {
    New,
    Replay(Result<CreateSession4ResOk, NfsStat4>),
}

impl CreateSlot {
    pub(crate) fn turn(&self, sequence: u32) -> Result<CreateTurn, NfsStat4> {
        if sequence == self.sequence.wrapping_add(1) {
            return if self.running { Err(NfsStat4::Delay) } else { Ok(CreateTurn::New) };
        }
        match &self.reply {
            Some(reply) if sequence == self.sequence => Ok(CreateTurn::Replay(reply.clone())),
            _ => Err(NfsStat4::SeqMisordered),
        }
    }

    /// DELAY is not kept and does not use the number: Linux sends the same one again after it (`_nfs4_proc_create_session`),
    /// and would get the kept DELAY for ever.
    pub(crate) fn done(&mut self, reply: Result<CreateSession4ResOk, NfsStat4>) {
        self.running = false;
        if reply != Err(NfsStat4::Delay) {
            self.sequence = self.sequence.wrapping_add(1);
            self.reply = Some(reply);
        }
    }
}

impl Client {
    pub(crate) fn new(
        id: ClientId4,
        incarnation: Incarnation,
        principal: Principal,
        address: SocketAddr,
        implementation: Option<Bytes>,
        now: Duration,
    ) -> Client {
        Client {
            id,
            incarnation,
            principal,
            confirmed: false,
            create_slot: CreateSlot::default(),
            sessions: Vec::new(),
            sessions_made: 0,
            reclaim: Reclaim::default(),
            status_flags: 0,
            lease: Lease { renewed: now, is_courtesy: false },
            address,
            implementation,
        }
    }

    pub(crate) fn owner(&self) -> &Bytes {
        &self.incarnation.owner
    }

    pub(crate) fn renew(&mut self, now: Duration) {
        self.lease = Lease { renewed: now, is_courtesy: false };
    }

    pub(crate) fn is_silent_since(&self, now: Duration, lease: Duration) -> bool {
        now.saturating_sub(self.lease.renewed) > lease
    }
}

impl Reclaim {
    /// Whether its record entitles the client to reclaims.
    pub(crate) fn is_entitled(&self) -> bool {
        self.is_complete && !self.is_robbed
    }
}
