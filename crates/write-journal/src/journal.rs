//! The journal as the pool uses it: append, settle, wait for notes, make void.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use types::{FileId, Random};

use crate::batch::{self, Batch, Waiter};
use crate::chain::{Chain, InUse};
use crate::config::Config;
use crate::error::JournalError;
use crate::ledger::{Ledger, Unsettled};
use crate::record::Record;
use crate::segment::Header;
use crate::state::{Phase, State, Step};
use crate::storage::{Storage, attempt};

/// A journal that is open. A record is on disk when its waiter is told `Ok`.
///
/// The first caller that comes while no thread leads gets a [`Turn`]. The turn may be led on the thread that appended, if
/// that thread may block and holds no lock that a waiter takes. All waiters, its own included, are told on that thread
/// within `lead`, and `lead` goes on as long as other callers append. So a caller that must answer in time hands the turn
/// to another thread. A waiter may append, but it must not block.
///
/// Rules for the pool. A file is *live* while [`Journal::is_live`] says so: a replay may bring records of it.
///
/// 1. **Order.** First apply a change to the file's page cache, then append its record; both under one lock, so that
///    changes that overlap have the same order in both. Do not wait for the record under that lock.
/// 2. **Truncation.** This is the other way round: append `Truncate`, wait for it, then cut the file. No other change and
///    no settling of the file runs meanwhile. Else a crash may leave a file that is cut, and the replay of an older write
///    makes it long again with zeros.
/// 3. **Answer.** Answer a change as stable when its waiter was told `Ok`. After a refusal or an error, sync the file
///    instead, and follow rule 5.
/// 4. **Settle.** To settle a file, read [`Journal::newest`], then sync the file (with its name, its label and its
///    removal), then call [`Journal::settled`] with what was read. After a failed sync, settle nothing of that file.
/// 5. **Bypass.** Before a change of a live file that the journal does not hold is answered as stable (COMMIT, direct I/O,
///    a hole, a clone, a removal, a sync after a refusal), settle the file and wait for [`Journal::barrier`]. Else a replay
///    undoes the change. Do the same before a live file is cut without a record. Changes that are not answered as stable
///    need nothing.
/// 6. **Creation.** Before the first record of a file whose name is not on disk, append `Create`. A replay ignores a record
///    of a file that is neither there nor created by the journal.
/// 7. **Removal.** To remove a live file, append `Remove` and wait for it, or follow rule 5. File ids are not used again.
/// 8. **Fences.** Raise the fence in memory before `Fence` is appended; after that append no write of an older epoch: a
///    replay drops it. The writes that a replay brings are applied whatever the fence in the label says.
/// 9. **Write-back.** From half full on, settle the files of [`Journal::oldest_unsettled`]; end each round with
///    [`Journal::barrier`]. Room comes from notes on disk, and from nothing else.
/// 10. **Failure.** After `Failed` the journal takes nothing more. Rule 5 cannot be kept for live files, so sync and
///     settle all of them, then call [`Journal::void`]. Until it succeeds answer no change of a live file as stable. If it
///     fails, the pool goes read-only: the next start replays.
/// 11. **Start.** Apply the entries of a `Replay` in order, sync every file that they touch, then call `Replay::finish`.
///     Each change is made again as it was: a write extends, a truncation cuts, a removal of nothing succeeds.
pub struct Journal {
    storage: Arc<dyn Storage>,
    /// Locked to place and encode records and to take a batch; never during I/O or while a waiter is told.
    state: Mutex<State>,
    /// Notified when the phase becomes [`Phase::Rest`].
    came_to_rest: Condvar,
}

/// A record that was placed. It is not yet on disk.
#[must_use]
pub struct Appended {
    pub sequence: u64,
    /// If there is one, the caller leads it or has it led, on a thread that may block. `None`: another turn writes the record.
    pub turn: Option<Turn>,
}

/// The waiter is given back untold.
pub struct Refused {
    pub reason: JournalError,
    pub waiter: Waiter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of records, settled ones included, that hold room until a note on disk frees their segment.
    pub used_bytes: u64,
    pub room_bytes: u64,
    pub live_files: usize,
}

impl Usage {
    pub fn is_half_full(&self) -> bool {
        self.used_bytes * 2 >= self.room_bytes
    }
}

impl Journal {
    pub(crate) fn start(
        storage: Arc<dyn Storage>,
        (instance, config): ([u8; 16], Config),
        random: Arc<dyn Random>,
        first: InUse,
        free: Vec<u32>,
    ) -> Arc<Journal> {
        let chain = Chain::new(config.segment_bytes, first, free);
        let state = State {
            config,
            instance,
            random,
            chain,
            ledger: Ledger::default(),
            batch: Batch::default(),
            next_sequence: first.first_sequence,
            durable: first.first_sequence - 1,
            phase: Phase::Rest,
            failure: None,
            buffer: Vec::new(),
        };
        Arc::new(Journal { storage, state: Mutex::new(state), came_to_rest: Condvar::new() })
    }

    /// Copies the record and does not block on the disk.
    pub fn append(self: &Arc<Journal>, record: &Record<'_>, waiter: Waiter) -> Result<Appended, Refused> {
        let mut state = self.state.lock();
        match state.append(record) {
            Ok(sequence) => {
                state.batch.waiters.push(waiter);
                Ok(Appended { sequence, turn: self.turn(&mut state) })
            }
            Err(reason) => Err(Refused { reason, waiter }),
        }
    }

    /// All changes of the file whose records go up to `through` are on disk in the file itself.
    pub fn settled(&self, file: FileId, through: u64) {
        self.state.lock().ledger.settle(file, through);
    }

    /// Tells `waiter` when notes of everything that was settled before are on disk. From then on no replay brings it.
    pub fn barrier(self: &Arc<Journal>, waiter: Waiter) -> Option<Turn> {
        let outcome = {
            let mut state = self.state.lock();
            match state.check_open() {
                Ok(()) if state.has_unwritten_notes() => {
                    if state.batch.waiting() < state.config.waiting_max {
                        state.batch.barriers.push(waiter);
                        return self.turn(&mut state);
                    }
                    Err(JournalError::Busy)
                }
                outcome => outcome,
            }
        };
        waiter(outcome);
        None
    }

    fn turn(self: &Arc<Journal>, state: &mut State) -> Option<Turn> {
        if !state.is_at_rest() {
            return None;
        }
        state.phase = Phase::Led;
        Some(Turn { journal: Arc::clone(self), is_over: false })
    }

    /// The newest record of a live file.
    pub fn newest(&self, file: FileId) -> Option<u64> {
        self.state.lock().ledger.newest(file)
    }

    /// Whether the record of that number is on disk, and all before it.
    pub fn is_durable(&self, sequence: u64) -> bool {
        self.state.lock().durable >= sequence
    }

    /// Whether a replay may bring records of the file.
    pub fn is_live(&self, file: FileId) -> bool {
        self.state.lock().ledger.is_live(file)
    }

    /// Files that hold room, those with the oldest records first.
    pub fn oldest_unsettled(&self, limit: usize) -> Vec<Unsettled> {
        self.state.lock().ledger.oldest_unsettled(limit)
    }

    pub fn usage(&self) -> Usage {
        let state = self.state.lock();
        let (used_bytes, room_bytes) = state.chain.usage_bytes();
        Usage { used_bytes, room_bytes, live_files: state.ledger.len() }
    }

    /// `Some`: the journal takes nothing more.
    pub fn failure(&self) -> Option<JournalError> {
        self.state.lock().failure.clone()
    }

    /// Waits until no thread has the turn, for `timeout` at most, and returns whether that is so. Then nothing is on its way
    /// to the disk, and every waiter of a turn that was led is told. The next append begins another turn. A timeout of zero
    /// asks and does not wait. Not for waiters, whose own turn it would wait for. Blocks.
    pub fn wait_for_rest(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        self.came_to_rest.wait_while_for(&mut state, |state| !state.is_at_rest(), timeout);
        state.is_at_rest()
    }

    /// Makes all records void: when this succeeds no replay brings any. For a failed journal and for a clean shutdown.
    /// Everything must be settled. `Busy`: a thread has the turn; call [`Journal::wait_for_rest`] first. Blocks.
    pub fn void(self: &Arc<Journal>) -> Result<(), JournalError> {
        let (turn, free) = {
            let mut state = self.state.lock();
            if state.ledger.tail().is_some() {
                return Err(JournalError::Unsettled);
            }
            let Some(turn) = self.turn(&mut state) else { return Err(JournalError::Busy) };
            state.phase = Phase::Voiding;
            (turn, state.chain.free().collect::<Vec<_>>())
        };
        let mut outcome = Err(JournalError::Full);
        for number in free {
            outcome = self.begin_anew(number);
            if outcome.is_ok() {
                break;
            }
        }
        let mut state = self.state.lock();
        state.phase = Phase::Led;
        let unwritten = match &outcome {
            Ok(()) => Vec::new(),
            Err(failure) => state.fail(failure.clone()),
        };
        drop(state);
        assert!(unwritten.is_empty(), "nobody waits while records are made void");
        turn.lead();
        outcome
    }

    /// Takes a free segment into use whose header says that everything before it is dead.
    fn begin_anew(&self, number: u32) -> Result<(), JournalError> {
        let (segment, header) = {
            let mut state = self.state.lock();
            // A header of an attempt that failed may yet reach the disk: none has the same sequence.
            state.next_sequence += 1;
            let first_sequence = state.next_sequence;
            let segment = InUse { number, first_sequence, salt: state.random.u64() };
            (segment, Header::of_empty_journal(state.instance, &segment))
        };
        let begin =
            || self.storage.write_at(number, 0, &header.encode()).and_then(|()| self.storage.sync(number));
        attempt("make its records void", begin)?;
        let mut state = self.state.lock();
        state.durable = segment.first_sequence - 1;
        state.batch = Batch::default();
        state.ledger.clear();
        state.chain.begin(segment);
        state.chain.free_before(segment.first_sequence);
        Ok(())
    }
}

/// The duty to write the records that wait. Dropping it gives up: all waiters are told `Abandoned`.
#[must_use]
pub struct Turn {
    journal: Arc<Journal>,
    is_over: bool,
}

impl Turn {
    /// Writes and syncs until nobody waits, also for callers that come meanwhile. Blocks.
    pub fn lead(mut self) {
        loop {
            let step = self.journal.state.lock().next_step();
            match step {
                Step::Write(pieces) => {
                    let outcome = batch::write(&pieces, &*self.journal.storage);
                    let answers = self.journal.state.lock().finish(pieces, outcome);
                    answers.tell();
                }
                Step::Tell(answers) => answers.tell(),
                Step::End => break,
            }
        }
        self.is_over = true;
        self.journal.came_to_rest.notify_all();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            let answers = self.journal.state.lock().abandon();
            self.journal.came_to_rest.notify_all();
            answers.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::directory::Directory;
    use crate::replay::Replay;

    struct Salts;

    impl Random for Salts {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    #[test]
    fn a_turn_that_ends_at_the_disk_fails_the_journal_and_tells_all_who_wait() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Arc::new(Directory::open(dir.path()).unwrap());
        let config = Config { segments: 4, segment_bytes: 2 << 20, ..Config::default() };
        let journal = Replay::open(storage, [1; 16]).unwrap().finish(config, Arc::new(Salts)).unwrap();
        let outcomes = Arc::new(Mutex::new(Vec::new()));
        let append = || {
            let outcomes = Arc::clone(&outcomes);
            let waiter = Box::new(move |outcome| outcomes.lock().push(outcome));
            journal.append(&Record::Remove { file: FileId(1) }, waiter).ok().expect("there is room").turn
        };
        let turn = append().expect("nobody leads");
        assert!(matches!(journal.state.lock().next_step(), Step::Write(_)));
        assert!(append().is_none(), "it waits behind the batch at the disk");
        drop(turn);
        let outcomes = outcomes.lock();
        assert_eq!(outcomes.len(), 2);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(JournalError::Failed { .. }))));
        assert!(journal.failure().is_some());
    }
}
