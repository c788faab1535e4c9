//! Small stable writes and COMMITs of small writes: into the page cache and the journal, whose next sync answers them.

use std::sync::Arc;

use api::{IoHandle, PoolError, Stability, Synced, Verifier, WriteThrough};
use bytes::Bytes;
use io_engine::Work;
use parking_lot::Mutex;
use write_journal::JournalError;

use super::Handle;
use crate::journal::{Waiter, lead_aside};
use crate::replica::Recorded;

type Tell = Box<dyn FnOnce(Result<Synced, PoolError>) + Send>;

/// A write that is done and not yet on disk.
struct Waiting {
    handle: Handle,
    tell: Tell,
}

impl Waiting {
    fn told(self, outcome: Result<(), JournalError>) {
        let Waiting { handle, tell } = self;
        let verifier = handle.shared.verifier;
        match outcome {
            Ok(()) => {
                // Before the answer: the caller may want the file closed.
                drop(handle);
                // Its record has the length, or else the label, which is on disk before the record goes.
                tell(Ok(Synced { verifier, keeps_length: true }));
            }
            Err(reason) => {
                handle.shared.journal.note_refusal(&reason);
                handle.replica.note_unrecorded();
                // This thread leads the journal, and the sync may wait for that.
                let engine = &Arc::clone(&handle.shared).engine;
                engine
                    .sync_and_tell(&handle, Box::new(move |synced| tell(synced.map(|()| in_file(verifier)))));
            }
        }
    }

    fn fail(self, error: PoolError) {
        drop(self.handle);
        (self.tell)(Err(error));
    }

    fn sync(self) {
        let Waiting { handle, tell } = self;
        let (shared, verifier) = (Arc::clone(&handle.shared), handle.shared.verifier);
        shared.engine.sync_here(handle, Box::new(move |synced| tell(synced.map(|()| in_file(verifier)))));
    }
}

/// Synced with its file, whose label is not.
fn in_file(verifier: Verifier) -> Synced {
    Synced { verifier, keeps_length: false }
}

impl Handle {
    pub(super) fn write_recorded(&self, offset: u64, data: Bytes) -> IoHandle<Stability> {
        let (answer, handle) = self.shared.engine.answer();
        let this = self.clone();
        let tell = move |synced: Result<Synced, PoolError>| answer.give(synced.map(|_| Stability::FileSync));
        let job = move || this.record(offset, data, |_| {}, Box::new(tell));
        match self.shared.engine.begin(Work::Record, job) {
            Ok(()) => handle,
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    pub(super) fn write_through_recorded(&self, offset: u64, data: Bytes) -> WriteThrough {
        let (of_written, written) = self.shared.engine.answer();
        let (of_synced, synced) = self.shared.engine.answer();
        let this = self.clone();
        let tell_written =
            |result: Result<(), PoolError>| of_written.give(result.map(|()| Stability::Unstable));
        let job = move || this.record(offset, data, tell_written, Box::new(|result| of_synced.give(result)));
        match self.shared.engine.begin(Work::Record, job) {
            Ok(()) => WriteThrough { written, synced, may_keep_length: true },
            Err(error) => WriteThrough::refused(error),
        }
    }

    /// Of a few small writes that are not stable.
    pub(super) fn commit_recorded(&self) -> IoHandle<Verifier> {
        let (answer, handle) = self.shared.engine.answer();
        let this = self.clone();
        let tell = move |synced: Result<Synced, PoolError>| answer.give(synced.map(|synced| synced.verifier));
        let append = |handle: &Handle, waiter: Waiter| {
            let replica = Arc::clone(&handle.replica);
            handle.replica.commit_recorded(&handle.shared, |past| {
                Box::new(move |outcome| {
                    if outcome.is_ok() {
                        replica.unsynced().note_stable(past);
                    }
                    drop(replica);
                    waiter(outcome);
                })
            })
        };
        let job = move || this.through_journal(append, |_| {}, Box::new(tell));
        match self.shared.engine.begin(Work::Record, job) {
            Ok(()) => handle,
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    fn record(
        self,
        offset: u64,
        data: Bytes,
        tell_written: impl FnOnce(Result<(), PoolError>),
        tell_synced: Tell,
    ) {
        let append = move |handle: &Handle, waiter: Waiter| {
            let Handle { shared, replica, claim, .. } = handle;
            replica.write_recorded(shared, *claim, offset, &data, waiter)
        };
        self.through_journal(append, tell_written, tell_synced);
    }

    /// Bytes that `append` does not record are synced with the file.
    fn through_journal(
        self,
        append: impl FnOnce(&Handle, Waiter) -> Result<Recorded, PoolError>,
        tell_written: impl FnOnce(Result<(), PoolError>),
        tell_synced: Tell,
    ) {
        let waiting = Arc::new(Mutex::new(Some(Waiting { handle: self.clone(), tell: tell_synced })));
        let waiter = {
            let waiting = Arc::clone(&waiting);
            move |outcome| {
                let waiting = waiting.lock().take();
                if let Some(waiting) = waiting {
                    waiting.told(outcome);
                }
            }
        };
        let written = append(&self, Box::new(waiter));
        // Before the answers: the bytes may be a slice of much more, and the caller may want the file closed.
        drop(self);
        tell_written(written.as_ref().map(drop).map_err(Clone::clone));
        let (unrecorded, turn) = match written {
            Ok(Recorded { is_recorded, turn }) => (!is_recorded, turn),
            Err(error) => {
                let waiting = waiting.lock().take();
                return waiting.into_iter().for_each(|waiting| waiting.fail(error.clone()));
            }
        };
        match turn {
            // Its own answer may be long in coming, and is no reason to keep this one waiting.
            Some(turn) if unrecorded => lead_aside(turn),
            Some(turn) => turn.lead(),
            None => {}
        }
        if unrecorded {
            let waiting = waiting.lock().take();
            waiting.into_iter().for_each(Waiting::sync);
        }
    }
}
