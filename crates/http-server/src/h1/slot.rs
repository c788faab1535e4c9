//! Where a connection lies while its request is answered: the handler's body takes it for each read, the connection's
//! task takes it to see whether the client is still there, and takes it back at the end.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::Notify;

use super::incoming::Incoming;
use crate::body_error::BodyError;
use crate::budget::Account;
use crate::intake::Intake;

pub(crate) struct Slot {
    /// Held for a move.
    state: Mutex<State>,
    /// The body has ended, so that what comes next on the connection is the client's end, or its next request.
    ended: Notify,
    has_ended: AtomicBool,
    pub intake: Arc<Intake>,
    /// For what is collected of the body.
    pub account: Arc<Account>,
}

enum State {
    Here(Box<Incoming>),
    Lent,
    /// The call is answered. A lease that still has the connection closes it.
    Closed,
}

/// The connection for a while; it goes back when this is dropped.
pub(crate) struct Lease<'a> {
    slot: &'a Slot,
    incoming: Option<Box<Incoming>>,
}

impl Slot {
    pub fn new(incoming: Incoming, intake: Arc<Intake>, account: Arc<Account>) -> Arc<Slot> {
        let has_ended = incoming.has_ended();
        let slot = Slot {
            state: Mutex::new(State::Here(Box::new(incoming))),
            ended: Notify::new(),
            has_ended: AtomicBool::new(false),
            intake,
            account,
        };
        if has_ended {
            slot.end();
        }
        Arc::new(slot)
    }

    fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
        self.ended.notify_one();
    }

    pub async fn next(&self) -> Result<Option<Bytes>, BodyError> {
        let Some(mut lease) = self.lease() else { return self.next_without_connection() };
        if lease.has_ended() {
            return Ok(None);
        }
        let part = lease.next(&self.intake).await;
        if lease.has_ended() {
            drop(lease);
            self.end();
        }
        part
    }

    /// The connection's task has it, to see whether the client goes away: what has ended has ended all the same.
    fn next_without_connection(&self) -> Result<Option<Bytes>, BodyError> {
        let is_over = matches!(*self.state.lock(), State::Lent) && self.has_ended.load(Ordering::Acquire);
        if is_over { Ok(None) } else { Err(BodyError::Gone) }
    }

    pub fn lease(&self) -> Option<Lease<'_>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Lent) {
            State::Here(incoming) => Some(Lease { slot: self, incoming: Some(incoming) }),
            other => {
                *state = other;
                None
            }
        }
    }

    pub async fn body_ended(&self) {
        self.ended.notified().await;
    }

    /// Takes the connection back for good. `None`: somebody reads on in another task.
    pub fn close(&self) -> Option<Box<Incoming>> {
        match std::mem::replace(&mut *self.state.lock(), State::Closed) {
            State::Here(incoming) => Some(incoming),
            State::Lent | State::Closed => None,
        }
    }
}

impl Deref for Lease<'_> {
    type Target = Incoming;

    fn deref(&self) -> &Incoming {
        self.incoming.as_ref().expect("taken only when the lease is dropped")
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut Incoming {
        self.incoming.as_mut().expect("taken only when the lease is dropped")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut state = self.slot.state.lock();
        if let (State::Lent, Some(incoming)) = (&*state, self.incoming.take()) {
            *state = State::Here(incoming);
        }
    }
}
