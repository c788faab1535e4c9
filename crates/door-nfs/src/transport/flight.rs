//! Memory of calls and replies, of all connections of this process together: records on their way in, calls under way and
//! replies each have a room of their own, so that nobody waits in one for what only he could free.
//!
//! A call counts from when it is complete until it is answered, with a short reply; that counts by its length until it has
//! gone to the socket. A call whose reply may be longer waits for room for all of it before it reads anything for it.

use std::net::IpAddr;
use std::sync::Arc;

use aligned::AlignedBuffers;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::long_record::ALIGNMENT_BYTES;
use super::room::{Held, Room};

/// A call counts with a reply of this length; one that may be longer is waited for.
const SHORT_BYTES: usize = 16 << 10;
/// A reply takes so much beside its own bytes.
const OVERHEAD_BYTES: usize = 1 << 10;
/// Memory of records that is kept to be used again, within a quarter of the bound.
const KEPT_BYTES_MAX: u64 = 64 << 20;

pub struct Flight {
    incoming: Arc<Room>,
    calls: Arc<Room>,
    replies: Arc<Room>,
    /// Of long records.
    memory: Arc<AlignedBuffers>,
}

/// The place of a call among those under way on its connection, and its bytes; given back when it is dropped.
pub(crate) struct CallPlace {
    /// Dropped first: a wait that is granted by what is given back finds the place free.
    _permit: OwnedSemaphorePermit,
    flight: Arc<Flight>,
    address: IpAddr,
    /// The call, then its reply. `None`: the reply counts in `reply`.
    call: Option<Held>,
    /// A reply that may be long, or room for it.
    reply: Option<Held>,
}

impl Flight {
    /// So much of each: of records on their way in, of calls under way, and of replies.
    pub fn new(bytes_max: u64) -> Arc<Flight> {
        let [incoming, calls, replies] = std::array::from_fn(|_| Room::new(bytes_max));
        let kept = usize::try_from(KEPT_BYTES_MAX.min(bytes_max / 4)).expect("64 MiB fit");
        let memory = AlignedBuffers::new(ALIGNMENT_BYTES, kept);
        Arc::new(Flight { incoming, calls, replies, memory })
    }

    pub(super) fn memory(&self) -> &Arc<AlignedBuffers> {
        &self.memory
    }

    /// Of calls under way and replies.
    pub fn bytes(&self) -> u64 {
        self.calls.bytes() + self.replies.bytes()
    }

    #[cfg(test)]
    pub fn incoming_bytes(&self) -> u64 {
        self.incoming.bytes()
    }

    /// Waits for room for a long record that has begun.
    pub(super) async fn receive(
        &self,
        address: IpAddr,
        bytes: usize,
        given_up: impl Future<Output = ()>,
    ) -> Option<Held> {
        self.incoming.take(address, bytes as u64, given_up).await
    }

    /// Waits for a place for a call of so many bytes.
    pub(super) async fn place(
        self: &Arc<Self>,
        address: IpAddr,
        bytes: usize,
        calls: &Arc<Semaphore>,
        given_up: impl Future<Output = ()>,
    ) -> Option<CallPlace> {
        tokio::pin!(given_up);
        let permit = tokio::select! {
            // Nearly always there is one.
            biased;
            permit = Arc::clone(calls).acquire_owned() => permit.expect("the semaphore is never closed"),
            () = &mut given_up => return None,
        };
        let call = Some(self.calls.take(address, (bytes + SHORT_BYTES) as u64, given_up).await?);
        Some(CallPlace { _permit: permit, flight: Arc::clone(self), address, call, reply: None })
    }
}

impl CallPlace {
    /// Whether a reply of up to so many bytes is to be waited for. A call waits once, for all of its reply: one that has
    /// some and waits for more could wait for itself.
    pub fn must_wait(&self, bytes: usize) -> bool {
        bytes > SHORT_BYTES && self.reply.is_none()
    }

    /// Waits for room for a reply of up to so many bytes, before what it is made of is read. `false`: `given_up` was ready
    /// before, or there was no room for long.
    pub async fn wait(&mut self, bytes: usize, given_up: impl Future<Output = ()>) -> bool {
        let room = &self.flight.replies;
        self.reply = room.take(self.address, (bytes + OVERHEAD_BYTES) as u64, given_up).await;
        self.reply.is_some()
    }

    /// The call is answered: from here on its reply counts, by its length.
    pub fn answered(&mut self, bytes: usize) {
        let bytes = (bytes + OVERHEAD_BYTES) as u64;
        match &mut self.reply {
            Some(reply) => {
                reply.resize(bytes);
                self.call = None;
            }
            None => self.call.as_mut().expect("it is answered once").resize(bytes),
        }
    }

    /// Whether a host that has nothing waits for what the reply takes.
    pub fn is_in_the_way(&self) -> bool {
        self.call.iter().chain(&self.reply).any(Held::is_in_the_way)
    }
}
