//! Uploads whose bytes lie at the pool, while their name has to be waited for: a PUT that is tried again is compared with
//! them and not written once more.

use std::collections::HashMap;

use files::{Received, Writer};
use parking_lot::Mutex;
use types::{Clock, FileId};

use crate::completions::Completions;
use crate::refusal::Refusal;
use crate::ticket::UrlTicket;

/// The head bounds uploads too; this also counts those that ended there meanwhile, until their ticket does.
const ARRIVALS_MAX: usize = 4_096;

#[derive(Default)]
pub(super) struct Arrivals {
    /// With the time when their tickets end, in seconds since 1970. Leaf lock.
    arrived: Mutex<HashMap<FileId, (Arrived, u64)>>,
}

/// The bytes of an upload, all of them.
pub(super) enum Arrived {
    /// They may not be on the disk.
    Writer(Box<Writer>),
    OnDisk(Received),
}

impl Arrivals {
    pub fn take(&self, file: FileId) -> Option<Arrived> {
        self.arrived.lock().remove(&file).map(|(arrived, _)| arrived)
    }

    pub fn has(&self, file: FileId) -> bool {
        self.arrived.lock().contains_key(&file)
    }

    /// The head has refused the upload: its bytes are of no use, unless the same request may succeed later.
    pub fn note_refused(&self, file: FileId, refusal: &Refusal) {
        if !refusal.may_pass() {
            drop(self.take(file));
        }
    }

    /// `false`: there are too many.
    fn keep(&self, file: FileId, arrived: Arrived, expires_s: u64, now_s: u64) -> bool {
        let mut all = self.arrived.lock();
        if all.len() >= ARRIVALS_MAX {
            all.retain(|_, (_, expires_s)| *expires_s >= now_s);
        }
        let has_room = all.len() < ARRIVALS_MAX;
        if has_room {
            all.insert(file, (arrived, expires_s));
        }
        has_room
    }
}

/// An upload that a request has begun. A request that ends before it has handed it over gives it up, or puts it off if all
/// its bytes are there.
pub(super) struct Arrival<'a> {
    arrivals: &'a Arrivals,
    completions: &'a dyn Completions,
    clock: &'a dyn Clock,
    file: FileId,
    expires_s: u64,
    arrived: Option<Arrived>,
    is_handed_over: bool,
}

impl<'a> Arrival<'a> {
    pub fn new(
        arrivals: &'a Arrivals,
        completions: &'a dyn Completions,
        clock: &'a dyn Clock,
        ticket: &UrlTicket,
    ) -> Arrival<'a> {
        let (file, expires_s) = (ticket.file, ticket.expires_s);
        Arrival { arrivals, completions, clock, file, expires_s, arrived: None, is_handed_over: false }
    }

    /// Brings the bytes onto the disk.
    pub async fn finish(&mut self, arrived: Arrived) -> Result<Received, Refusal> {
        // In its place, so that a request that ends meanwhile loses nothing.
        let arrived = self.arrived.insert(arrived);
        if let Arrived::Writer(writer) = arrived {
            *arrived = Arrived::OnDisk(writer.finish().await?);
        }
        match arrived {
            Arrived::OnDisk(received) => Ok(received.clone()),
            Arrived::Writer(_) => unreachable!("it is on the disk now"),
        }
    }

    /// The head has it, and the bytes stay to be compared with.
    pub fn hand_over(mut self) {
        self.is_handed_over = true;
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        let arrived = self.arrived.take().filter(|arrived| match arrived {
            Arrived::Writer(writer) => !writer.is_broken(),
            Arrived::OnDisk(_) => true,
        });
        let now_s = u64::try_from(self.clock.now().seconds).unwrap_or(0);
        let is_kept =
            arrived.is_some_and(|arrived| self.arrivals.keep(self.file, arrived, self.expires_s, now_s));
        match (self.is_handed_over, is_kept) {
            (true, _) => {}
            (false, true) => self.completions.put_off(self.file),
            (false, false) => self.completions.give_up(self.file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received() -> Arrived {
        Arrived::OnDisk(Received { size: 0, checksums: Vec::new() })
    }

    #[test]
    fn arrivals_are_bounded_and_make_room_when_their_tickets_end() {
        let arrivals = Arrivals::default();
        for file in 0..ARRIVALS_MAX as u64 {
            assert!(arrivals.keep(FileId(file), received(), 10, 5));
        }
        let one_more = FileId(ARRIVALS_MAX as u64);
        assert!(!arrivals.keep(one_more, received(), 10, 10));
        assert!(arrivals.keep(one_more, received(), 20, 11));
        assert!(arrivals.take(FileId(0)).is_none() && arrivals.take(one_more).is_some());
    }
}
