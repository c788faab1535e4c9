//! Replicas that a pool's service has open, by the ticket that opened them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{OpenReplica, PoolError, Ticket};
use tokio::sync::oneshot;
use tokio::time::Instant;
use types::FileId;

use super::io::{Begun, Operation};

/// A replica that is not used for so long is closed.
const IDLE: Duration = Duration::from_secs(10);
/// One that was removed keeps its space until it is closed.
const IDLE_REMOVED: Duration = Duration::from_secs(1);
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// An operation that waits for its replica, and how it learns that it has begun.
pub(super) type Waiting = (Operation, oneshot::Sender<Begun>);

pub(super) struct OpenReplicas {
    open_max: usize,
    slots: HashMap<Ticket, Slot>,
    swept: Instant,
}

enum Slot {
    Opening(Vec<Waiting>),
    Open { replica: Arc<dyn OpenReplica>, used: Instant, is_removed: bool },
}

pub(super) enum ReplicaPlace {
    Open(Arc<dyn OpenReplica>),
    /// Another call opens it.
    Opening,
    /// The caller opens it, and then settles it or gives it up.
    Absent,
}

/// Replicas that are closed when this is dropped, which may wait: without the lock.
pub(super) type Closed = Vec<Arc<dyn OpenReplica>>;

impl OpenReplicas {
    pub fn new(open_max: usize) -> OpenReplicas {
        OpenReplicas { open_max, slots: HashMap::new(), swept: Instant::now() }
    }

    pub fn find(&mut self, ticket: &Ticket) -> ReplicaPlace {
        match self.slots.get_mut(ticket) {
            Some(Slot::Open { replica, used, .. }) => {
                *used = Instant::now();
                ReplicaPlace::Open(Arc::clone(replica))
            }
            Some(Slot::Opening(_)) => ReplicaPlace::Opening,
            None => {
                self.slots.insert(*ticket, Slot::Opening(Vec::new()));
                ReplicaPlace::Absent
            }
        }
    }

    /// Waits for a replica that is being opened. An error: it is open now.
    pub fn wait(
        &mut self,
        ticket: &Ticket,
        operation: Operation,
        sender: oneshot::Sender<Begun>,
    ) -> Result<(), (Arc<dyn OpenReplica>, Operation)> {
        match self.slots.get_mut(ticket) {
            Some(Slot::Open { replica, .. }) => Err((Arc::clone(replica), operation)),
            Some(Slot::Opening(waiting)) => {
                waiting.push((operation, sender));
                Ok(())
            }
            // It could not be opened. The sender is dropped, and the caller asks again.
            None => Ok(()),
        }
    }

    /// Takes those that wait for a replica that has been opened, or could not be. None: from now on it is open, or absent.
    pub fn settle(
        &mut self,
        ticket: &Ticket,
        opened: &Result<Arc<dyn OpenReplica>, PoolError>,
    ) -> Vec<Waiting> {
        if let Some(Slot::Opening(waiting)) = self.slots.get_mut(ticket)
            && !waiting.is_empty()
        {
            return std::mem::take(waiting);
        }
        match opened {
            Ok(replica) => {
                let (replica, used) = (Arc::clone(replica), Instant::now());
                self.slots.insert(*ticket, Slot::Open { replica, used, is_removed: false });
            }
            Err(_) => _ = self.slots.remove(ticket),
        }
        Vec::new()
    }

    /// The call that was opening it is gone.
    pub fn give_up(&mut self, ticket: &Ticket) -> Option<Vec<Waiting>> {
        match self.slots.remove(ticket)? {
            Slot::Opening(waiting) => Some(waiting),
            open @ Slot::Open { .. } => {
                self.slots.insert(*ticket, open);
                None
            }
        }
    }

    /// A replica that was opened for its own sake.
    #[must_use]
    pub fn keep(&mut self, ticket: Ticket, replica: Arc<dyn OpenReplica>) -> Closed {
        let mut closed = Closed::new();
        if !matches!(self.slots.get(&ticket), Some(Slot::Opening(_))) {
            let open = Slot::Open { replica, used: Instant::now(), is_removed: false };
            closed.extend(self.slots.insert(ticket, open).and_then(Slot::into_replica));
        }
        closed.extend(self.evict());
        closed
    }

    pub fn note_removed(&mut self, files: &[FileId]) {
        for (ticket, slot) in &mut self.slots {
            if let Slot::Open { is_removed, .. } = slot {
                *is_removed |= files.contains(&ticket.file);
            }
        }
    }

    /// Closes all.
    #[must_use]
    pub fn let_go(&mut self) -> Closed {
        self.close(|_, _| true)
    }

    /// Closes those that were not used lately, at most once a second.
    #[must_use]
    pub fn sweep(&mut self) -> Closed {
        let now = Instant::now();
        let is_due = now.duration_since(self.swept) >= SWEEP_PERIOD;
        let mut closed = self.evict();
        if is_due {
            self.swept = now;
            closed.extend(self.close(|used, is_removed| {
                now.duration_since(used) >= if is_removed { IDLE_REMOVED } else { IDLE }
            }));
        }
        closed
    }

    /// Closes those that were not used for longest, where there are too many.
    fn evict(&mut self) -> Closed {
        if self.slots.len() <= self.open_max {
            return Closed::new();
        }
        let used_of = |slot: &Slot| match slot {
            Slot::Open { used, .. } => Some(*used),
            Slot::Opening(_) => None,
        };
        let mut times: Vec<Instant> = self.slots.values().filter_map(used_of).collect();
        times.sort_unstable();
        let surplus = self.slots.len() - self.open_max;
        let Some(last) = times.get(surplus.saturating_sub(1)).or(times.last()).copied() else {
            return Closed::new();
        };
        self.close(|used, _| used <= last)
    }

    fn close(&mut self, is_to_close: impl Fn(Instant, bool) -> bool) -> Closed {
        let is_taken = |_: &Ticket, slot: &mut Slot| match slot {
            Slot::Open { used, is_removed, .. } => is_to_close(*used, *is_removed),
            Slot::Opening(_) => false,
        };
        self.slots.extract_if(is_taken).filter_map(|(_, slot)| slot.into_replica()).collect()
    }
}

impl Slot {
    fn into_replica(self) -> Option<Arc<dyn OpenReplica>> {
        match self {
            Slot::Open { replica, .. } => Some(replica),
            Slot::Opening(_) => None,
        }
    }
}
