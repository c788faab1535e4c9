//! The start: records of the last run are applied to their files, and the journal begins anew.
//!
//! A file that is not there is made only if its creation is in the journal too. Records of a replica that somebody put in
//! its place are left alone, and told. Applied twice the outcome is the same, so a start that is killed is repeated.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use ::write_journal::{Config, Directory, Entry, Journal, Record, Replay, Storage, Summary};
use api::Birth;
use io_engine::write::write_all;
use parking_lot::Mutex;
use rustix::fs::statvfs;
use rustix::io::Errno;
use types::{Epoch, FileId, PoolId, Random};

use super::place::{self, JournalPlace};
use super::{PAYLOAD_BYTES_MAX, PoolJournal, compare};
use crate::counters::Counter;
use crate::error::OpenError;
use crate::label::{self, Label, LabelError};
use crate::parts::PoolParts;
use crate::store::{Faults, Store, look_at};

const SEGMENTS: u32 = 16;
const SEGMENT_BYTES_MAX: u64 = if cfg!(test) { SEGMENT_BYTES_MIN } else { 4 << 20 };
const SEGMENT_BYTES_MIN: u64 = 1 << 20;
/// The journal takes at most this part of its file system.
const DISK_SHARE: u64 = 64;
/// Files with records; notes of all of them have room in the shortest segment.
pub const FILES_MAX: usize = 12 << 10;
/// Files that are open at once while records are applied.
const OPEN_MAX: usize = 256;
/// Replicas that are told one by one.
const TOLD_MAX: u64 = 10;

/// The parts of a pool's configuration that say how to open its journal.
#[derive(Clone)]
pub struct Setting {
    pub place: JournalPlace,
    pub pool_dir: PathBuf,
    pub files_max: usize,
    pub random: Arc<dyn Random>,
}

/// The journal, and whether records were applied.
pub struct Opened {
    pub journal: PoolJournal,
    pub has_applied: bool,
}

/// Records that are to be applied once the disk takes writes. The files are as if they were.
pub struct Late(Setting);

/// Applies what any earlier journal of the pool holds, and opens the one at its place. Blocks.
pub fn open(setting: Setting, store: &Store) -> Result<Opened, OpenError> {
    let mut journal = PoolJournal { files_max: setting.files_max, ..PoolJournal::default() };
    let has_applied = match begin(&setting, store, &journal.counts.syncs) {
        Ok((begun, has_applied)) => {
            journal.journal = begun.map(OnceLock::from).unwrap_or_default();
            has_applied
        }
        Err(Failure { error, has_records: true })
            if error.is_read_only() && compare::files_have_all(&setting, store)? =>
        {
            tracing::info!(pool = %store.pool, %error, "write journal is to be applied once the disk takes writes");
            journal.late = Mutex::new(Some(Late(setting)));
            journal.is_late = AtomicBool::new(true);
            false
        }
        Err(failure) => return Err(failure.error),
    };
    Ok(Opened { journal, has_applied })
}

impl PoolJournal {
    /// Applies the records that a start could not, if the disk takes them now. Until then nothing is changed. Blocks.
    pub fn apply_late(&self, shared: &PoolParts) {
        if !self.is_late() || shared.store.is_read_only() {
            return;
        }
        let mut late = self.late.lock();
        let Some(Late(setting)) = &*late else { return };
        match begin(setting, &shared.store, &self.counts.syncs) {
            Ok((begun, _)) => {
                // The namespace has not looked at the lengths that the labels state from now on.
                shared.index.doubt();
                if let Some(begun) = begun {
                    self.journal.get_or_init(|| begun);
                }
                *late = None;
                self.is_late.store(false, Ordering::Release);
            }
            Err(Failure { error, .. }) => {
                tracing::debug!(pool = %shared.id(), %error, "write journal is not applied")
            }
        }
    }
}

fn begin(
    setting: &Setting,
    store: &Store,
    syncs: &Arc<Counter>,
) -> Result<(Option<Arc<Journal>>, bool), Failure> {
    let Setting { place, pool_dir, files_max, random } = setting;
    let before = |error| Failure { error, has_records: true };
    let wanted = place.of(store.pool, pool_dir);
    let segment_bytes = wanted.as_deref().map(segment_bytes).transpose().map_err(before)?.flatten();
    if let (Some(path), None) = (&wanted, segment_bytes) {
        tracing::debug!(pool = %store.pool, path = %path.display(), "disk is too small for a write journal");
    }
    let wanted = wanted.filter(|_| segment_bytes.is_some());
    let bounds = |segment_bytes| Config {
        segments: SEGMENTS,
        segment_bytes,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        files_max: *files_max,
        ..Config::default()
    };
    let mut has_applied = false;
    let is_wanted = |found: &PathBuf| wanted.as_ref().is_some_and(|wanted| place::is_same(found, wanted));
    let found = place::found(pool_dir).map_err(before)?;
    let others: Vec<_> = found.into_iter().filter(|found| !is_wanted(found)).collect();
    for other in &others {
        let start = Start { path: other, store, config: bounds(SEGMENT_BYTES_MIN), random };
        has_applied |= start.run(&Arc::default())?.1;
    }
    let mut journal = None;
    if let (Some(path), Some(segment_bytes)) = (&wanted, segment_bytes) {
        let start = Start { path, store, config: bounds(segment_bytes), random };
        match start.run(syncs) {
            Ok((opened, applied)) => {
                journal = Some(opened);
                has_applied |= applied;
            }
            Err(Failure { error, has_records: false }) if error.is_of_disk() => {
                tracing::info!(pool = %store.pool, %error, "pool has no write journal until the next start");
            }
            Err(failure) => return Err(failure),
        }
    }
    // Where nothing can be written the note stays, and so do the records, which are void.
    if journal.is_some() || wanted.is_none() {
        place::note(pool_dir, wanted.as_deref()).map_err(before)?;
        others.iter().try_for_each(|other| place::remove(other)).map_err(before)?;
    }
    Ok((journal, has_applied))
}

/// By the size of the file system above.
fn segment_bytes(path: &Path) -> Result<Option<u64>, OpenError> {
    let above = path.parent().unwrap_or(path);
    let about = statvfs(above).map_err(|errno| OpenError::io("look at the file system of", above, errno))?;
    let share = about.f_blocks.saturating_mul(about.f_frsize) / DISK_SHARE / u64::from(SEGMENTS);
    let bytes = (share / SEGMENT_BYTES_MIN * SEGMENT_BYTES_MIN).min(SEGMENT_BYTES_MAX);
    Ok((bytes > 0).then_some(bytes))
}

struct Start<'a> {
    path: &'a Path,
    store: &'a Store,
    config: Config,
    random: &'a Arc<dyn Random>,
}

struct Failure {
    error: OpenError,
    /// There are, or may be, records that are not applied.
    has_records: bool,
}

impl Start<'_> {
    /// The journal, and whether there was something to apply.
    fn run(self, syncs: &Arc<Counter>) -> Result<(Arc<Journal>, bool), Failure> {
        let Start { path, store, config, random } = self;
        // Where not even that can be read, there are if there are segments.
        let before = |error| Failure { error, has_records: place::has_segments(path) };
        let directory = Directory::open(path)
            .map_err(|error| before(OpenError::io("open write journal", path, error)))?;
        let (syncs, faults) = (Arc::clone(syncs), Arc::clone(&store.faults));
        let storage = Arc::new(Counted { inner: directory, syncs, faults });
        let of_journal = |error| OpenError::Journal { place: path.to_owned(), error };
        let mut replay = Replay::open(storage, identity(store)).map_err(|error| before(of_journal(error)))?;
        let summary = replay.summary().clone();
        tell(store.pool, path, &summary);
        let of_records = |error| Failure { error, has_records: summary.records > 0 };
        let mut applying = Applying { store, path, files: HashMap::new(), passed_over: 0 };
        for entry in replay.by_ref() {
            let entry = entry.map_err(|error| of_records(of_journal(error)))?;
            applying.apply(&entry).map_err(of_records)?;
        }
        applying.sync().map_err(of_records)?;
        let journal =
            replay.finish(config, Arc::clone(random)).map_err(|error| of_records(of_journal(error)))?;
        let has_applied = summary.records > 0;
        if has_applied {
            let (records, passed_over) = (summary.records, applying.passed_over);
            tracing::info!(pool = %store.pool, records, passed_over, "write journal applied");
        }
        Ok((journal, has_applied))
    }
}

/// Of the pool, for several of an instance may have theirs on one disk.
pub fn identity(store: &Store) -> [u8; 16] {
    let mut identity = store.instance;
    for (byte, of_pool) in identity.iter_mut().zip(store.pool.0.to_le_bytes()) {
        *byte ^= of_pool;
    }
    identity
}

fn tell(pool: PoolId, path: &Path, summary: &Summary) {
    let is_damaged = summary.dropped.is_some_and(|dropped| dropped.is_damage);
    if is_damaged || summary.damaged_headers > 0 {
        tracing::error!(
            %pool, path = %path.display(), damaged_segments = summary.damaged_headers,
            "write journal is damaged: small writes of the last minute before the stop may be lost"
        );
    }
    tracing::debug!(%pool, ?summary, "write journal read");
}

/// A replica with writes that were made again.
struct Touched {
    open: OwnedFd,
    label: Label,
    /// Of the longest write.
    end: u64,
}

impl Touched {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.end = self.end.max(offset.saturating_add(bytes.len() as u64));
        write_all(self.open.as_fd(), bytes, offset)
    }

    /// The label promises to the namespace what the records promised.
    fn sync(&self, store: &Store) -> Result<(), Errno> {
        if self.label.length < Some(self.end) {
            match label::write(&self.open, &Label { length: Some(self.end), ..self.label }) {
                // Bytes that are there already need no room, and no other file is to be kept from being served.
                Ok(()) | Err(Errno::NOSPC | Errno::DQUOT) => {}
                Err(errno) => return Err(errno),
            }
        }
        store.sync_all(self.open.as_fd())?;
        store.sync_name(self.label.file)
    }
}

/// Applies records in their order.
struct Applying<'a> {
    store: &'a Store,
    path: &'a Path,
    /// Touched, and not synced yet. `None`: there is no such file, or another one.
    files: HashMap<FileId, Option<Touched>>,
    /// Records of files that are gone, or that are not what the record says.
    passed_over: u64,
}

impl Applying<'_> {
    fn apply(&mut self, entry: &Entry) -> Result<(), OpenError> {
        let record = entry.record();
        let failed = |errno: Errno| OpenError::io("apply a record of the write journal", self.path, errno);
        let file = record.file();
        let written = match record {
            Record::Create { birth, epoch, .. } => {
                let created = self.create(file, birth_of(birth), epoch_of(epoch)).map_err(failed)?;
                self.files.insert(file, created);
                Ok(())
            }
            Record::Write { birth, offset, bytes, .. } => {
                if !self.files.contains_key(&file) {
                    let opened = self.open(file, birth_of(birth)).map_err(failed)?;
                    self.files.insert(file, opened);
                }
                match self.files.get_mut(&file) {
                    Some(Some(touched)) => touched.write(offset, bytes),
                    _ => {
                        self.passed_over += 1;
                        Ok(())
                    }
                }
            }
            Record::Truncate { .. } | Record::Remove { .. } | Record::Fence { .. } => {
                let reason =
                    format!("record {} is of a kind that this program does not write", entry.sequence);
                return Err(OpenError::Damaged { path: self.path.to_owned(), reason });
            }
        };
        written.or_else(|errno| self.lose(file, errno))?;
        if self.files.len() >= OPEN_MAX { self.sync() } else { Ok(()) }
    }

    fn create(&mut self, file: FileId, birth: Birth, epoch: Epoch) -> Result<Option<Touched>, Errno> {
        let (created, is_fresh) = match self.store.create(file) {
            Err(errno) if is_of_its_place(errno) => return Ok(None),
            created => created?,
        };
        let is_unlabelled = || {
            matches!(label::read(&created), Ok(None)) && look_at(created.as_fd()).is_ok_and(|it| it.size == 0)
        };
        if is_fresh || is_unlabelled() {
            let label = self.store.label(file, birth, epoch, 0);
            label::write(&created, &label)?;
            return Ok(Some(Touched { open: created, label, end: 0 }));
        }
        self.admit(file, birth, created)
    }

    fn open(&mut self, file: FileId, birth: Birth) -> Result<Option<Touched>, Errno> {
        match self.store.open(file) {
            Ok(Some(found)) => self.admit(file, birth, found),
            Ok(None) => Ok(None),
            Err(errno) if is_of_its_place(errno) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// The replica, if it is the one that the record is of.
    fn admit(&mut self, file: FileId, birth: Birth, found: OwnedFd) -> Result<Option<Touched>, Errno> {
        let label = match label::read(&found) {
            Ok(label) => label,
            Err(LabelError::Malformed) => None,
            Err(LabelError::Unreadable(errno)) => return Err(errno),
        };
        let its = label.filter(|label| {
            label.file == file && label.instance == self.store.instance && label.birth.agrees_with(birth)
        });
        if its.is_none() && self.passed_over < TOLD_MAX {
            tracing::warn!(pool = %self.store.pool, %file, "write journal has records of a replica that is another one now");
        }
        Ok(its.map(|label| Touched { open: found, label, end: 0 }))
    }

    /// Brings what was touched to the disk.
    fn sync(&mut self) -> Result<(), OpenError> {
        for (file, touched) in std::mem::take(&mut self.files) {
            let Some(touched) = touched else { continue };
            if let Err(errno) = touched.sync(self.store) {
                self.files.insert(file, Some(touched));
                self.lose(file, errno)?;
            }
        }
        self.files.clear();
        Ok(())
    }

    /// A disk that fails at one place keeps the pool from no other file; this one is broken, as after a failed sync.
    fn lose(&self, file: FileId, errno: Errno) -> Result<(), OpenError> {
        let failed = |errno: Errno| OpenError::io("apply a record of the write journal to", self.path, errno);
        let Some(Some(Touched { open, .. })) = self.files.get(&file) else { return Err(failed(errno)) };
        if errno != Errno::IO {
            return Err(failed(errno));
        }
        label::mark_broken(open).and_then(|()| self.store.sync_all(open.as_fd())).map_err(failed)?;
        tracing::error!(pool = %self.store.pool, %file, %errno, "disk lost written data; the replica is broken");
        Ok(())
    }
}

/// Something else lies there, or above it: no reason to keep all other files from being served.
fn is_of_its_place(errno: Errno) -> bool {
    matches!(errno, Errno::ISDIR | Errno::LOOP | Errno::NXIO | Errno::NOTDIR)
}

/// Both come from this program, which has them in 32 bits.
fn birth_of(word: u64) -> Birth {
    Birth(word as u32)
}

fn epoch_of(word: u64) -> Epoch {
    Epoch(word as u32)
}

/// Segments in a directory, whose syncs are counted.
struct Counted {
    inner: Directory,
    syncs: Arc<Counter>,
    faults: Arc<Faults>,
}

impl Storage for Counted {
    fn segments(&self) -> io::Result<Vec<u32>> {
        self.inner.segments()
    }

    fn make(&self, segment: u32, segment_bytes: u64) -> io::Result<()> {
        self.inner.make(segment, segment_bytes)
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        self.inner.remove(segment)
    }

    fn segment_bytes(&self, segment: u32) -> io::Result<u64> {
        self.inner.segment_bytes(segment)
    }

    fn read_at(&self, segment: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(segment, offset, into)
    }

    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.faults.of_journal()?;
        self.inner.write_at(segment, offset, bytes)
    }

    fn sync(&self, segment: u32) -> io::Result<()> {
        self.syncs.add(1);
        self.faults.of_journal()?;
        self.inner.sync(segment)
    }
}
