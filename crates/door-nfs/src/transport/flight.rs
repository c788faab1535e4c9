//! Bytes of calls and replies that a server has in memory, of all its connections together.
//!
//! A call counts by its own length until it is answered, then by its reply's until that has gone to the socket. Beyond the
//! bound a connection has one call under way at a time: who takes replies slowly fills the memory no further, and keeps
//! nobody else out. The bound is overrun by the replies of calls that were let in before, and by one call a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Connection;

pub(crate) struct Flight {
    bytes: AtomicU64,
    bytes_max: u64,
    /// Something has gone: who waits looks again.
    gone: Notify,
}

/// The place of a call among those under way on its connection, and its bytes; given back when it is dropped.
pub(crate) struct Place {
    /// Dropped first: who is told that bytes have gone finds the place free.
    _permit: OwnedSemaphorePermit,
    charge: Charge,
}

struct Charge {
    flight: Arc<Flight>,
    bytes: u64,
}

impl Flight {
    pub fn new(bytes_max: u64) -> Arc<Flight> {
        Arc::new(Flight { bytes: AtomicU64::new(0), bytes_max, gone: Notify::new() })
    }

    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Waits for a place for a call of so many bytes. `None`: the connection has closed meanwhile.
    pub async fn place(
        self: &Arc<Self>,
        bytes: usize,
        calls: &Arc<Semaphore>,
        calls_max: usize,
        connection: &Connection,
    ) -> Option<Place> {
        let permit = tokio::select! {
            place = Arc::clone(calls).acquire_owned() => place.expect("the semaphore is never closed"),
            () = connection.closed() => return None,
        };
        loop {
            let gone = self.gone.notified();
            tokio::pin!(gone);
            // Registered before looking, or what goes in between would be missed.
            gone.as_mut().enable();
            let is_alone = calls.available_permits() + 1 >= calls_max;
            if is_alone || self.bytes() < self.bytes_max {
                break;
            }
            tokio::select! {
                () = gone => {}
                () = connection.closed() => return None,
            }
        }
        let bytes = bytes as u64;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Some(Place { _permit: permit, charge: Charge { flight: Arc::clone(self), bytes } })
    }
}

impl Place {
    /// The call is answered: from here on its reply counts.
    pub fn answered(&mut self, bytes: usize) {
        let Charge { flight, bytes: charged } = &mut self.charge;
        let bytes = bytes as u64;
        flight.bytes.fetch_add(bytes, Ordering::Relaxed);
        flight.bytes.fetch_sub(std::mem::replace(charged, bytes), Ordering::Relaxed);
        flight.gone.notify_waiters();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.flight.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.flight.gone.notify_waiters();
    }
}
