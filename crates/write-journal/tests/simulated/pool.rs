//! A pool that keeps the rules of the journal, on the simulated disk; and pools that break one rule each.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use forebay_write_journal::{Config, Journal, JournalError, Record, Replay, Turn, Waiter};
use parking_lot::Mutex;
use types::{FileId, Random};

use crate::disk::{Dice, Disk, Name, Segments};
use crate::oracle::{FileChange, Oracle};

pub const INSTANCE: [u8; 16] = [7; 16];

pub fn small_config() -> Config {
    Config {
        segments: 4,
        segment_bytes: 8192,
        payload_bytes_max: 600,
        batch_bytes_max: 4096,
        waiting_max: 12,
        files_max: 6,
    }
}

/// A rule of the pool, or a promise of its parts, that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    /// A bypass is answered without waiting for the note.
    NoBarrier,
    /// A file is settled through a record that came behind its sync.
    SettleTooFar,
    /// A file is settled without a sync.
    SettleUnsynced,
    NoRemoveRecord,
    NoCreateRecord,
    /// The journal begins anew before the replayed files are synced.
    FinishUnsynced,
    /// A sync of a segment does nothing.
    LyingSync,
    /// A change is answered once its record is appended.
    AnswerAtOnce,
    /// After a failure, live files are answered without making the records void.
    NoVoid,
    /// The record is appended before the page cache has the bytes, and a write-back comes between.
    AppendFirst,
    /// A file is cut before the record of that is on disk.
    CutFirst,
    /// A write of an older epoch is appended after a fence.
    OlderEpoch,
    /// A replay refuses the writes that are older than the fence in the label.
    ReplayObeysLabel,
}

impl Fault {
    pub const ALL: [Fault; 13] = [
        Fault::NoBarrier,
        Fault::SettleTooFar,
        Fault::SettleUnsynced,
        Fault::NoRemoveRecord,
        Fault::NoCreateRecord,
        Fault::FinishUnsynced,
        Fault::LyingSync,
        Fault::AnswerAtOnce,
        Fault::NoVoid,
        Fault::AppendFirst,
        Fault::CutFirst,
        Fault::OlderEpoch,
        Fault::ReplayObeysLabel,
    ];
}

/// Salts by chance that a seed repeats, or the same one each time.
pub enum Salts {
    Seeded(Mutex<Dice>),
    Same,
}

impl Random for Salts {
    fn fill(&self, bytes: &mut [u8]) {
        let word = match self {
            Salts::Seeded(dice) => dice.lock().word(),
            Salts::Same => 1,
        };
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

pub struct ModelPool {
    pub disk: Arc<Disk>,
    pub oracle: Arc<Mutex<Oracle>>,
    journal: Arc<Journal>,
    turn: Option<Turn>,
    fault: Fault,
    random: Arc<dyn Random>,
    /// The journal failed and its records may not be void: no change of a live file is answered.
    is_read_only: bool,
    /// A truncation whose record was appended and that the page cache does not have.
    uncut: Option<(u64, usize)>,
}

impl ModelPool {
    pub fn new(fault: Fault, seed: u64) -> ModelPool {
        let disk = Arc::new(Disk::default());
        if fault == Fault::LyingSync {
            disk.let_segment_syncs_lie();
        }
        let random: Arc<dyn Random> = Arc::new(Salts::Seeded(Mutex::new(Dice::seeded(seed))));
        let oracle = Arc::default();
        let journal = replay(&disk, fault, &random, &mut BTreeSet::new()).expect("an empty disk works");
        ModelPool { disk, oracle, journal, turn: None, fault, random, is_read_only: false, uncut: None }
    }

    pub fn exists(&self, file: u64) -> bool {
        self.disk.content(Name::Replica(file)).is_some()
    }

    fn append(&mut self, record: &Record<'_>, waiter: Waiter) -> Result<(), JournalError> {
        let appended = self.journal.append(record, waiter).map_err(|refused| refused.reason)?;
        if let Some(turn) = appended.turn {
            assert!(self.turn.replace(turn).is_none(), "there is one turn at a time");
        }
        Ok(())
    }

    /// Has the change answered when its record is on disk.
    fn journal(&mut self, file: u64, change: usize, record: &Record<'_>) -> io::Result<()> {
        let oracle = Arc::clone(&self.oracle);
        let answer = move || oracle.lock().stable(file, change);
        if self.fault == Fault::AnswerAtOnce {
            answer();
            let _ = self.append(record, Box::new(|_| {}));
            return Ok(());
        }
        let waiter: Waiter = Box::new(move |outcome| {
            if outcome.is_ok() {
                answer();
            }
        });
        match self.append(record, waiter) {
            Ok(()) => Ok(()),
            Err(_) => self.sync_in_place(file),
        }
    }

    /// Rule 6, before the first write to a new file.
    pub fn create(&mut self, file: u64) -> io::Result<()> {
        self.oracle.lock().changed(file, FileChange::Write { offset: 0, bytes: Vec::new() });
        self.disk.create(Name::Label(file))?;
        self.disk.create(Name::Replica(file))?;
        let record = Record::Create { file: FileId(file), birth: file, epoch: 0 };
        if self.fault != Fault::NoCreateRecord && self.append(&record, Box::new(|_| {})).is_err() {
            self.sync_files(file)?;
        }
        Ok(())
    }

    pub fn write(&mut self, file: u64, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let id = FileId(file);
        let epoch = if self.fault == Fault::OlderEpoch { 0 } else { fence_of(&self.disk, file) };
        let record = Record::Write { file: id, birth: file, epoch, offset: offset as u64, bytes };
        let change = FileChange::Write { offset, bytes: bytes.to_vec() };
        let change = self.oracle.lock().changed(file, change);
        if self.fault == Fault::AppendFirst {
            self.journal(file, change, &record)?;
            self.write_back(false)?;
            return self.disk.write(Name::Replica(file), offset, bytes);
        }
        self.disk.write(Name::Replica(file), offset, bytes)?;
        self.journal(file, change, &record)
    }

    pub fn write_unstable(&mut self, file: u64, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let change = FileChange::Write { offset, bytes: bytes.to_vec() };
        self.oracle.lock().changed(file, change);
        self.disk.write(Name::Replica(file), offset, bytes)
    }

    /// Rule 2: the record is on disk before the file is cut.
    pub fn truncate(&mut self, file: u64, size: usize) -> io::Result<()> {
        let record = Record::Truncate { file: FileId(file), size: size as u64 };
        if self.fault == Fault::CutFirst {
            let change = self.oracle.lock().changed(file, FileChange::Truncate(size));
            self.disk.resize(Name::Replica(file), size)?;
            return self.journal(file, change, &record);
        }
        let (told, waiter) = told();
        let change = self.oracle.lock().changed(file, FileChange::Truncate(size));
        self.uncut = Some((file, change));
        let is_appended = self.append(&record, waiter).is_ok();
        self.lead();
        let is_journaled = is_appended && *told.lock();
        if !is_journaled {
            // A replay may or may not cut the file. If that cannot be excluded now, the next start decides.
            if !self.make_dead(file)? {
                return Err(io::Error::other("the pool stops"));
            }
        }
        self.uncut = None;
        self.disk.resize(Name::Replica(file), size)?;
        if is_journaled {
            self.oracle.lock().stable(file, change);
            return Ok(());
        }
        self.sync_in_place(file)
    }

    pub fn truncate_unjournaled(&mut self, file: u64, size: usize) -> io::Result<()> {
        if !self.make_dead(file)? {
            return Ok(());
        }
        self.oracle.lock().changed(file, FileChange::Truncate(size));
        self.disk.resize(Name::Replica(file), size)?;
        self.sync_in_place(file)
    }

    pub fn remove(&mut self, file: u64) -> io::Result<()> {
        let change = self.oracle.lock().changed(file, FileChange::Remove);
        self.disk.unlink(Name::Replica(file))?;
        let record = Record::Remove { file: FileId(file) };
        if self.fault == Fault::NoRemoveRecord {
            self.disk.sync_names()?;
            let count = self.oracle.lock().count(file);
            self.oracle.lock().all_stable(file, count);
            return Ok(());
        }
        self.journal(file, change, &record)
    }

    pub fn fence(&mut self, file: u64, epoch: u64) -> io::Result<()> {
        self.oracle.lock().fenced(file, epoch, false);
        self.disk.write(Name::Label(file), 0, &epoch.to_le_bytes())?;
        let oracle = Arc::clone(&self.oracle);
        let record = Record::Fence { file: FileId(file), epoch };
        let waiter: Waiter = Box::new(move |outcome| {
            if outcome.is_ok() {
                oracle.lock().fenced(file, epoch, true);
            }
        });
        // A refused fence is not answered here.
        let _ = self.append(&record, waiter);
        Ok(())
    }

    fn sync_files(&self, file: u64) -> io::Result<()> {
        for name in [Name::Replica(file), Name::Label(file)] {
            if self.disk.content(name).is_some() {
                self.disk.sync_content(name)?;
            }
        }
        self.disk.sync_names()
    }

    /// Rule 4.
    fn settle(&mut self, file: u64) -> io::Result<()> {
        let id = FileId(file);
        let through = self.journal.newest(id);
        if self.fault != Fault::SettleUnsynced {
            self.sync_files(file)?;
        }
        if let Some(through) = through {
            self.journal.settled(id, through);
        }
        Ok(())
    }

    /// Rule 5: everything so far is stable when this returns, if it may be answered at all.
    pub fn sync_in_place(&mut self, file: u64) -> io::Result<()> {
        let count = self.oracle.lock().count(file);
        if self.make_dead(file)? {
            self.oracle.lock().all_stable(file, count);
        }
        Ok(())
    }

    /// Syncs the file. Whether no replay brings anything of it from now on.
    fn make_dead(&mut self, file: u64) -> io::Result<bool> {
        self.settle(file)?;
        let is_dead = self.fault == Fault::NoBarrier
            || !self.journal.is_live(FileId(file))
            || self.barrier()
            // The first one may have found too many waiting.
            || self.barrier()
            || (self.journal.failure().is_some() && self.make_void()?);
        Ok(is_dead && !self.is_read_only)
    }

    fn barrier(&mut self) -> bool {
        let (told, waiter) = told();
        if let Some(turn) = self.journal.barrier(waiter) {
            self.turn = Some(turn);
        }
        self.lead();
        *told.lock()
    }

    /// Rule 10. Whether live files may be answered as stable again.
    pub fn make_void(&mut self) -> io::Result<bool> {
        self.lead();
        while let Some(unsettled) = self.journal.oldest_unsettled(1).first() {
            self.settle(unsettled.file.0)?;
        }
        if self.fault == Fault::NoVoid {
            return Ok(true);
        }
        let outcome = self.journal.void();
        self.is_read_only |= outcome.is_err();
        Ok(outcome.is_ok())
    }

    /// Rule 9.
    pub fn write_back(&mut self, ends_with_barrier: bool) -> io::Result<()> {
        for unsettled in self.journal.oldest_unsettled(2) {
            if self.fault == Fault::SettleTooFar {
                self.sync_files(unsettled.file.0)?;
                if self.exists(unsettled.file.0) {
                    self.write(unsettled.file.0, 0, b"behind the sync")?;
                }
                self.journal.settled(unsettled.file, u64::MAX);
                continue;
            }
            self.settle(unsettled.file.0)?;
        }
        if ends_with_barrier {
            self.barrier();
        }
        Ok(())
    }

    pub fn lead(&mut self) {
        if let Some(turn) = self.turn.take() {
            turn.lead();
        }
    }

    /// The machine or the process was down. Replays, perhaps killed on the way, and compares every file.
    pub fn recover(&mut self, cuts_power: bool, dice: &mut Dice) -> Result<(), String> {
        drop(self.turn.take());
        let mut cuts_power = cuts_power;
        let (mut was_cut, mut touched) = (false, BTreeSet::new());
        for killed_before in (0..3).rev() {
            was_cut |= cuts_power;
            if cuts_power {
                self.disk.lose_power(dice);
            } else {
                self.disk.restart();
            }
            if killed_before > 0 && dice.up_to(2) == 0 {
                self.disk.go_down_after(dice.up_to(30) as u64);
            }
            match replay(&self.disk, self.fault, &self.random, &mut touched) {
                Ok(journal) => {
                    self.journal = journal;
                    break;
                }
                Err(error) if self.disk.is_down() && killed_before > 0 => drop(error),
                Err(error) => return Err(error),
            }
            cuts_power = dice.up_to(1) == 0;
        }
        self.disk.restart();
        self.is_read_only = false;
        let mut oracle = self.oracle.lock();
        if let Some((file, change)) =
            self.uncut.take().filter(|(file, _)| !was_cut && !touched.contains(file))
        {
            oracle.withdraw(file, change);
        }
        for file in oracle.files() {
            let fence = fence_of(&self.disk, file);
            // The page cache of a file may still hold bytes that are not on disk.
            let is_durable = was_cut || touched.contains(&file);
            oracle.check(file, self.disk.content(Name::Replica(file)), fence, is_durable)?;
        }
        Ok(())
    }
}

/// Whether the waiter was told that its record is on disk.
fn told() -> (Arc<Mutex<bool>>, Waiter) {
    let told = Arc::new(Mutex::new(false));
    let teller = Arc::clone(&told);
    (told, Box::new(move |outcome| *teller.lock() = outcome.is_ok()))
}

/// Rule 11.
fn replay(
    disk: &Arc<Disk>,
    fault: Fault,
    random: &Arc<dyn Random>,
    touched: &mut BTreeSet<u64>,
) -> Result<Arc<Journal>, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let mut replay = Replay::open(Arc::new(Segments(Arc::clone(disk))), INSTANCE).map_err(|e| failed(&e))?;
    if let Some(dropped) = replay.summary().dropped.filter(|dropped| dropped.is_damage) {
        return Err(format!("stable records are lost: {dropped:?}"));
    }
    if replay.summary().damaged_headers > 0 {
        return Err("a header is damaged".to_owned());
    }
    for entry in replay.by_ref() {
        let entry = entry.map_err(|error| failed(&error))?;
        let is_older = |epoch, file: FileId| epoch < fence_of(disk, file.0);
        if fault == Fault::ReplayObeysLabel
            && matches!(entry.record(), Record::Write { epoch, file, .. } if is_older(epoch, file))
        {
            continue;
        }
        apply(disk, &entry.record()).map_err(|error| failed(&error))?;
        touched.insert(entry.record().file().0);
    }
    if fault != Fault::FinishUnsynced {
        for name in touched.iter().flat_map(|file| [Name::Replica(*file), Name::Label(*file)]) {
            if disk.content(name).is_some() {
                disk.sync_content(name).map_err(|error| failed(&error))?;
            }
        }
        disk.sync_names().map_err(|error| failed(&error))?;
    }
    replay.finish(small_config(), Arc::clone(random)).map_err(|error| failed(&error))
}

fn fence_of(disk: &Disk, file: u64) -> u64 {
    let label = disk.content(Name::Label(file)).unwrap_or_default();
    label.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn apply(disk: &Disk, record: &Record<'_>) -> io::Result<()> {
    let (replica, label) = (Name::Replica(record.file().0), Name::Label(record.file().0));
    let exists = disk.content(replica).is_some();
    match *record {
        Record::Create { .. } => {
            for name in [label, replica] {
                if disk.content(name).is_none() {
                    disk.create(name)?;
                }
            }
            Ok(())
        }
        Record::Write { offset, bytes, .. } if exists => disk.write(replica, offset as usize, bytes),
        Record::Truncate { size, .. } if exists => disk.resize(replica, size as usize),
        Record::Remove { .. } if exists => disk.unlink(replica),
        Record::Fence { epoch, .. } if exists => {
            disk.write(label, 0, &fence_of(disk, record.file().0).max(epoch).to_le_bytes())
        }
        Record::Write { .. } | Record::Truncate { .. } | Record::Remove { .. } | Record::Fence { .. } => {
            Ok(())
        }
    }
}
