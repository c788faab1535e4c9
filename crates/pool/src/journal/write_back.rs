//! Files follow their records: those with old records, and from half of the journal's room on those with the oldest.
//!
//! Files are brought to the disk by several threads at once, for they then share commits of the file system.

use std::collections::{HashSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ::write_journal::Unsettled;
use io_engine::Work;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use types::FileId;

use super::PoolJournal;
use crate::parts::PoolParts;
use crate::replica::Replica;
use crate::replicas::Replicas;

/// By then the kernel has written the pages by itself (`vm.dirty_expire_centisecs` is 30 s), and there is little to do.
const AGE: Duration = Duration::from_secs(35);
const TICK: Duration = Duration::from_secs(1);
/// Files of one round, after which one note of all goes to the journal.
const ROUND_FILES: usize = 256;
const AT_ONCE: usize = 8;
/// Records between two looks at the room that is left.
const LOOK_EVERY: u64 = 64;

#[derive(Default)]
pub struct WriteBack {
    /// Set to end the thread.
    stopping: Mutex<bool>,
    wake: Condvar,
    /// The newest record.
    newest: AtomicU64,
    /// There may be little room.
    has_to_look: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A file whose records are settled once a note of it is on disk.
struct Settled {
    /// With the writes past the journal that are on disk as well.
    replica: Option<(Arc<Replica>, u64)>,
}

impl WriteBack {
    pub fn note_record(&self, sequence: u64) {
        self.newest.fetch_max(sequence, Ordering::AcqRel);
        if sequence.is_multiple_of(LOOK_EVERY) {
            self.hurry();
        }
    }

    /// Looks at the room at once.
    pub fn hurry(&self) {
        if !self.has_to_look.swap(true, Ordering::AcqRel) {
            // Between the thread's look and its wait, it would miss this.
            let _stopping = self.stopping.lock();
            self.wake.notify_all();
        }
    }

    pub fn start(&self, shared: &Arc<PoolParts>, replicas: &Arc<Replicas>) -> std::io::Result<()> {
        if shared.journal.journal.get().is_none() && !shared.journal.is_late() {
            return Ok(());
        }
        let (parts, replicas) = (Arc::clone(shared), Arc::clone(replicas));
        let run = move || parts.journal.write_back.run(&parts, &replicas);
        let thread = std::thread::Builder::new().name(format!("{}-write-back", shared.id())).spawn(run)?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Ends the thread. Files may be left to follow.
    pub fn stop(&self) {
        *self.stopping.lock() = true;
        self.wake.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("write-back thread panicked");
        }
    }

    fn is_stopping(&self) -> bool {
        *self.stopping.lock()
    }

    fn run(&self, shared: &Arc<PoolParts>, replicas: &Arc<Replicas>) {
        let mut ages = Ages::default();
        // Files that could not be brought to the disk, since the last tick.
        let mut failing = HashSet::new();
        let mut ticked = Instant::now();
        loop {
            {
                let mut stopping = self.stopping.lock();
                if !*stopping && !self.has_to_look.load(Ordering::Acquire) {
                    self.wake.wait_for(&mut stopping, TICK);
                }
                if *stopping {
                    return;
                }
            }
            self.has_to_look.store(false, Ordering::Release);
            let now = Instant::now();
            if now.duration_since(ticked) >= TICK {
                failing.clear();
                ticked = now;
            }
            let due = ages.due(now, self.newest.load(Ordering::Acquire));
            while !self.is_stopping() && shared.journal.write_back_round(shared, replicas, due, &mut failing)
            {
            }
        }
    }
}

/// The newest record at past moments.
#[derive(Default)]
struct Ages {
    samples: VecDeque<(Instant, u64)>,
    due: u64,
}

impl Ages {
    /// Records up to this one are old.
    fn due(&mut self, now: Instant, newest: u64) -> u64 {
        while let Some((taken, sequence)) = self.samples.front().copied() {
            if now.duration_since(taken) < AGE {
                break;
            }
            self.due = sequence;
            self.samples.pop_front();
        }
        if self.samples.back().is_none_or(|(taken, _)| now.duration_since(*taken) >= TICK) {
            self.samples.push_back((now, newest));
        }
        self.due
    }
}

impl PoolJournal {
    /// Whether another round is due at once.
    fn write_back_round(
        &self,
        shared: &Arc<PoolParts>,
        replicas: &Arc<Replicas>,
        due: u64,
        failing: &mut HashSet<FileId>,
    ) -> bool {
        let Some(journal) = self.journal.get() else { return false };
        let usage = journal.usage();
        let is_short = usage.is_half_full() || usage.live_files * 2 >= self.files_max;
        // Files that fail are the oldest, and keep no other from following.
        let unsettled = journal.oldest_unsettled(ROUND_FILES + failing.len());
        let is_due = |file: &Unsettled| (is_short || file.oldest <= due) && !failing.contains(&file.file);
        let files: Vec<_> = unsettled.iter().filter(|file| is_due(file)).map(|file| file.file).collect();
        if files.is_empty() {
            if is_short {
                // Room comes from notes.
                let _ = self.barrier(shared);
            }
            return false;
        }
        let outcomes = settle_together(shared, replicas, &files, is_short);
        let is_noted = self.barrier(shared).is_ok();
        for (file, outcome) in outcomes {
            match outcome {
                None => drop(failing.insert(file)),
                Some(Settled { replica: Some((replica, past)) }) if is_noted => {
                    replica.unsynced().note_stable(past)
                }
                Some(_) => {}
            }
        }
        files.len() >= ROUND_FILES
    }

    /// One after the other. Files that cannot be brought to the disk keep their records.
    pub(super) fn settle_all(&self, shared: &PoolParts) {
        let (Some(journal), Some(replicas)) = (self.journal.get(), self.replicas.get()) else { return };
        for unsettled in journal.oldest_unsettled(usize::MAX) {
            self.settle_file(shared, replicas.upgrade().as_deref(), unsettled.file, false);
        }
    }

    /// Brings the file to the disk as its records have it. `None`: that failed. `is_short`: the journal needs the room of a
    /// file that is broken, whose records a start would write again.
    fn settle_file(
        &self,
        shared: &PoolParts,
        replicas: Option<&Replicas>,
        file: FileId,
        is_short: bool,
    ) -> Option<Settled> {
        let Some(newest) = self.newest(file) else { return Some(Settled { replica: None }) };
        let known = replicas.and_then(|replicas| replicas.find(file));
        // One that is not open has nothing to sync, and would say so.
        if let Some(replica) = known.filter(|replica| !replica.is_gone() && replica.file().open().is_some()) {
            return match replica.write_back(shared) {
                Ok(past) => {
                    self.counts.written_back.add(1);
                    Some(Settled { replica: Some((replica, past)) })
                }
                // Its label says that data was lost; or somebody else has removed it, and a start must not make it again.
                Err(_) if (is_short && replica.is_broken_on_disk()) || replica.is_gone() => {
                    self.settled(file, newest);
                    Some(Settled { replica: None })
                }
                Err(error) => {
                    tracing::debug!(pool = %shared.id(), %file, %error, "replica keeps its records");
                    None
                }
            };
        }
        match sync_unknown(shared, file) {
            Ok(()) => {
                self.settled(file, newest);
                Some(Settled { replica: None })
            }
            Err(errno) => {
                tracing::debug!(pool = %shared.id(), %file, %errno, "removed replica keeps its records");
                None
            }
        }
    }
}

/// Of a replica that was removed, or that nobody has in use.
fn sync_unknown(shared: &PoolParts, file: FileId) -> Result<(), Errno> {
    if shared.store.look(file)?.is_some()
        && let Some(found) = shared.store.open(file)?
    {
        shared.store.sync_all(found.as_fd())?;
    }
    shared.store.sync_names(&[file])
}

/// Told also by a job that panics.
struct Outcome {
    file: FileId,
    settled: Option<Settled>,
    told: mpsc::Sender<(FileId, Option<Settled>)>,
}

impl Drop for Outcome {
    fn drop(&mut self) {
        let _ = self.told.send((self.file, self.settled.take()));
    }
}

fn settle_together(
    shared: &Arc<PoolParts>,
    replicas: &Arc<Replicas>,
    files: &[FileId],
    is_short: bool,
) -> Vec<(FileId, Option<Settled>)> {
    let (told, outcomes) = mpsc::channel();
    let mut waiting = 0;
    let mut settled = Vec::with_capacity(files.len());
    for file in files.iter().copied() {
        if waiting == AT_ONCE {
            settled.extend(outcomes.recv().ok());
            waiting -= 1;
        }
        let (parts, known) = (Arc::clone(shared), Arc::clone(replicas));
        let mut outcome = Outcome { file, settled: None, told: told.clone() };
        let job = move || {
            outcome.settled = parts.journal.settle_file(&parts, Some(&known), file, is_short);
            // Before the answer: the pool may be waiting to close.
            drop((parts, known));
            drop(outcome);
        };
        match shared.engine.begin(Work::WriteBack, job) {
            Ok(()) => waiting += 1,
            // So many wait there that files are brought to the disk anyway. The job has told that it failed.
            Err(_) => settled.extend(outcomes.recv().ok()),
        }
    }
    drop(told);
    settled.extend(outcomes.iter());
    settled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_due_once_they_are_old() {
        let (mut ages, start) = (Ages::default(), Instant::now());
        assert_eq!(ages.due(start, 5), 0);
        assert_eq!(ages.due(start + TICK, 9), 0);
        assert_eq!(ages.due(start + AGE, 20), 5);
        assert_eq!(ages.due(start + AGE + TICK, 20), 9);
        assert_eq!(ages.due(start + AGE * 3, 20), 20);
    }

    #[test]
    fn samples_are_bounded_by_the_age() {
        let (mut ages, start) = (Ages::default(), Instant::now());
        for at in 0..10_000 {
            ages.due(start + Duration::from_millis(100 * at), at);
        }
        assert!(ages.samples.len() <= 1 + AGE.as_secs() as usize);
    }
}
