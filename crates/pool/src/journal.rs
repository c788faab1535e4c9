//! The write journal of a pool: a small stable write, or one that COMMIT makes stable, is on disk once its record is, and its
//! file follows.
//!
//! The rules of [`Journal`] hold here and in `replica`, which writes and appends under one lock. A change that goes past the
//! journal settles its file before it is answered as stable; so does a cut, which has no record. Removals and fences have
//! none either: a removal is settled when the directories are synced.
//!
//! Parts: `place` (the directory), `replay` (a start), `write_back` (files follow their records).

mod compare;
mod place;
mod replay;
mod write_back;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

use ::write_journal::{Journal, JournalError, Record, Turn};
use api::PoolError;
use parking_lot::Mutex;
use types::FileId;

pub use self::place::JournalPlace;
use self::replay::Late;
pub use self::replay::{FILES_MAX, Opened, Setting, open};
pub use self::write_back::WriteBack;
use crate::counters::Counter;
use crate::error::OpenError;
use crate::parts::PoolParts;
use crate::replicas::Replicas;

/// Told once whether the record is on disk, on a thread that may block.
pub type Waiter = Box<dyn FnOnce(Result<(), JournalError>) + Send>;

/// The payload of one record. Longer writes are synced with their file: their bytes would be written twice.
pub const PAYLOAD_BYTES_MAX: usize = 128 << 10;
/// For a thread that leads the journal, before its records are made void.
const REST_WAIT: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct PoolJournal {
    /// Empty: the pool has none, or its records are not applied yet.
    journal: OnceLock<Arc<Journal>>,
    /// Records that a start could not apply.
    late: Mutex<Option<Late>>,
    /// There are such records.
    is_late: AtomicBool,
    /// It failed, and takes nothing until the next start.
    has_failed: AtomicBool,
    /// After it failed: no replay brings any of its records. Held while that is brought about.
    is_void: Mutex<bool>,
    /// Of the same pool, which outlives all that use this.
    replicas: OnceLock<Weak<Replicas>>,
    /// Files that may have records.
    files_max: usize,
    pub write_back: WriteBack,
    pub counts: Counts,
}

#[derive(Default)]
pub struct Counts {
    pub records: Counter,
    pub record_bytes: Counter,
    /// Writes that were synced with their file because the journal did not take them.
    pub refused: Counter,
    /// Syncs of the journal: one answers all records that waited for it.
    pub syncs: Arc<Counter>,
    /// Files that were brought to the disk after their records.
    pub written_back: Counter,
}

/// The journal as the statistics show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalReport {
    pub records: u64,
    pub record_bytes: u64,
    pub refused: u64,
    pub syncs: u64,
    pub written_back: u64,
    /// Files with records that a restart would apply.
    pub live_files: u64,
    pub used_bytes: u64,
    pub room_bytes: u64,
    pub has_failed: bool,
}

impl PoolJournal {
    /// Before the first use.
    pub fn attach(&self, replicas: &Arc<Replicas>) {
        self.replicas.get_or_init(|| Arc::downgrade(replicas));
    }

    /// Changes are refused: an older record would go over them.
    pub fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Acquire)
    }

    /// Whether a stable write of so many bytes is worth the try.
    pub fn takes(&self, bytes: usize) -> bool {
        self.journal.get().is_some() && bytes <= PAYLOAD_BYTES_MAX && !self.has_failed.load(Ordering::Relaxed)
    }

    /// The waiter is told of the record, if it was taken. Does not block; the turn does.
    pub fn append(&self, record: &Record<'_>, waiter: Waiter) -> Option<Option<Turn>> {
        let journal = self.journal.get()?;
        match journal.append(record, waiter) {
            Ok(appended) => {
                self.counts.records.add(1);
                if let Record::Write { bytes, .. } = record {
                    self.counts.record_bytes.add(bytes.len() as u64);
                }
                self.write_back.note_record(appended.sequence);
                Some(appended.turn)
            }
            Err(refused) => {
                self.note_refusal(&refused.reason);
                None
            }
        }
    }

    pub fn note_refusal(&self, reason: &JournalError) {
        self.counts.refused.add(1);
        match reason {
            JournalError::Failed { .. } => self.has_failed.store(true, Ordering::Relaxed),
            JournalError::Full => self.write_back.hurry(),
            _ => {}
        }
    }

    /// The newest record that a replay may bring of the file.
    pub fn newest(&self, file: FileId) -> Option<u64> {
        self.journal.get()?.newest(file)
    }

    pub fn is_durable(&self, sequence: u64) -> bool {
        self.journal.get().is_some_and(|journal| journal.is_durable(sequence))
    }

    /// All changes of the file whose records go up to `through` are on disk in the file itself.
    pub fn settled(&self, file: FileId, through: u64) {
        if let Some(journal) = self.journal.get() {
            journal.settled(file, through);
        }
    }

    /// Waits until no replay brings what was settled before. Blocks.
    pub fn barrier(&self, shared: &PoolParts) -> Result<(), PoolError> {
        let Some(journal) = self.journal.get() else { return Ok(()) };
        let (told, outcome) = mpsc::channel();
        let waiter = Box::new(move |result| drop(told.send(result)));
        if let Some(turn) = journal.barrier(waiter) {
            lead_aside(turn);
        }
        match outcome.recv() {
            Ok(Ok(())) => Ok(()),
            // The thread that led the journal panicked.
            Err(_) | Ok(Err(JournalError::Failed { .. })) => self.make_void(shared, journal),
            Ok(Err(error)) => {
                self.write_back.hurry();
                tracing::debug!(pool = %shared.id(), %error, "write journal did not take a note");
                Err(PoolError::Busy(shared.id()))
            }
        }
    }

    /// Brings all files with records to the disk, and makes the records of a journal that failed void. Until that has
    /// succeeded no change of a file with records is stable.
    fn make_void(&self, shared: &PoolParts, journal: &Arc<Journal>) -> Result<(), PoolError> {
        self.has_failed.store(true, Ordering::Relaxed);
        let mut is_void = self.is_void.lock();
        if !*is_void {
            self.settle_all(shared);
            void(journal).map_err(|error| PoolError::Io {
                pool: shared.id(),
                operation: "make the write journal void",
                reason: error.to_string(),
            })?;
            *is_void = true;
        }
        Ok(())
    }

    /// At the pool's end, when nothing is written any more: the next start finds no records. Blocks.
    pub fn close(&self, shared: &PoolParts) -> Result<(), String> {
        let Some(journal) = self.journal.get() else { return Ok(()) };
        if *self.is_void.lock() {
            return Ok(());
        }
        self.settle_all(shared);
        void(journal).map_err(|error| error.to_string())
    }

    pub fn report(&self) -> Option<JournalReport> {
        let usage = self.journal.get()?.usage();
        let counts = &self.counts;
        Some(JournalReport {
            records: counts.records.value(),
            record_bytes: counts.record_bytes.value(),
            refused: counts.refused.value(),
            syncs: counts.syncs.value(),
            written_back: counts.written_back.value(),
            live_files: usage.live_files as u64,
            used_bytes: usage.used_bytes,
            room_bytes: usage.room_bytes,
            has_failed: self.has_failed.load(Ordering::Relaxed),
        })
    }
}

/// Whether there is one that may have records.
pub fn is_there(pool_dir: &Path) -> Result<bool, OpenError> {
    Ok(!place::found(pool_dir)?.is_empty())
}

/// In a thread of its own, for a turn lasts as long as others append. A turn for which there is no thread is given up, and
/// the callers that wait come again.
pub fn lead_aside(turn: Turn) {
    let spawned = std::thread::Builder::new().name("write-journal".to_owned()).spawn(move || turn.lead());
    if let Err(error) = spawned {
        tracing::debug!(%error, "cannot start a thread to write the journal");
    }
}

fn void(journal: &Arc<Journal>) -> Result<(), JournalError> {
    let deadline = Instant::now() + REST_WAIT;
    loop {
        // Another thread may begin to lead between the two.
        let is_at_rest = journal.wait_for_rest(deadline.saturating_duration_since(Instant::now()));
        match journal.void() {
            Err(JournalError::Busy) if is_at_rest => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests;
