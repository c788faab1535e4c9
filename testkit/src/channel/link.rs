//! The caller's side of the channel: numbers requests, and hands each answer to the caller that waits for it.

use std::collections::HashMap;
use std::sync::Arc;

use api::{IoHandle, PoolError, PoolStatus};
use bytes::Bytes;
use futures_channel::oneshot;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use types::PoolId;
use xdr::Xdr;

use super::wire::{self, Answer, Call, Request};

/// Requests without an answer at most; a request beyond is refused (`Busy`).
pub(super) const IN_FLIGHT_MAX: usize = 1024;

pub(super) struct Link {
    pool: PoolId,
    requests: mpsc::Sender<Bytes>,
    /// Leaf lock.
    state: Mutex<State>,
}

struct State {
    /// Of the request that was numbered last; 0 stands for none.
    number: u64,
    waiting: HashMap<u64, Waiter>,
    /// Replicas that nobody here has open any longer, and the pool's side is not told of yet.
    closed: Vec<u64>,
    /// As it came with the last answer.
    status: PoolStatus,
    is_cut: bool,
}

/// Takes the answer's body. Dropped without one when the channel is cut.
type Waiter = Box<dyn FnOnce(Bytes) + Send>;

impl Link {
    pub fn new(pool: PoolId, status: PoolStatus, requests: mpsc::Sender<Bytes>) -> Link {
        let (waiting, closed) = (HashMap::new(), Vec::new());
        let state = Mutex::new(State { number: 0, waiting, closed, status, is_cut: false });
        Link { pool, requests, state }
    }

    pub fn pool(&self) -> PoolId {
        self.pool
    }

    pub fn status(&self) -> PoolStatus {
        let state = self.state.lock();
        let offline = state.is_cut.then(|| "the connection to it is lost".to_owned());
        let status = state.status.clone();
        PoolStatus { offline: offline.or(status.offline), ..status }
    }

    pub async fn ask<T: Xdr + Send + Unpin + 'static>(&self, call: Call) -> Result<T, PoolError> {
        self.start(call, Ok).await
    }

    /// Sends the request now, in the order of calls.
    pub fn start<W: Xdr, T: Send + 'static>(
        &self,
        call: Call,
        understand: impl FnOnce(W) -> Result<T, PoolError> + Send + 'static,
    ) -> IoHandle<T> {
        let (done, answer) = oneshot::channel();
        let waiter = Box::new(move |body| drop(done.send(understand(wire::read(body)))));
        match self.send(call, waiter) {
            Ok(()) => IoHandle::waiting(answer, PoolError::Unknown(self.pool)),
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    fn send(&self, call: Call, waiter: Waiter) -> Result<(), PoolError> {
        let mut state = self.state.lock();
        if state.is_cut {
            return Err(PoolError::Offline(self.pool));
        }
        if state.waiting.len() >= IN_FLIGHT_MAX {
            return Err(PoolError::Busy(self.pool));
        }
        state.number += 1;
        let (number, closed) = (state.number, std::mem::take(&mut state.closed));
        // Under the lock, so that requests are sent in the order of their numbers.
        let sent = self.requests.try_send(wire::written(&Request { number, closed, call }));
        sent.map_err(|_| PoolError::Offline(self.pool))?;
        state.waiting.insert(number, waiter);
        Ok(())
    }

    /// The next request tells it.
    pub fn close(&self, replica: u64) {
        self.state.lock().closed.push(replica);
    }

    /// Hands out answers until there are no more.
    pub async fn take(self: Arc<Link>, mut answers: mpsc::Receiver<Bytes>) {
        while let Some(bytes) = answers.recv().await {
            let answer: Answer = wire::read(bytes);
            let waiter = {
                let mut state = self.state.lock();
                state.status = answer.status.into_status();
                state.waiting.remove(&answer.number)
            };
            if let Some(waiter) = waiter {
                waiter(answer.body.into_bytes());
            }
        }
        self.cut();
    }

    pub fn cut(&self) {
        let mut state = self.state.lock();
        state.is_cut = true;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        drop(waiting);
    }
}
