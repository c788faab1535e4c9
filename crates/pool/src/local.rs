//! A pool on a local file system: opening and closing it, and the `Pool` seam.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use api::{
    Answers, Birth, Description, OpenReplica, Pool, PoolError, PoolStatus, Presence, ReplicaFacts, Ticket,
    TicketMode, Verifier,
};
use async_trait::async_trait;
use io_engine::capabilities::Capabilities;
use io_engine::mode::{ContentionThresholds, Policy};
use io_engine::{DataPath, Engine, EngineConfig, Work};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FlockOperation, XattrFlags, flock, fsetxattr};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use types::{ChecksumKind, Epoch, FileId, PoolId, Random};

use crate::calibrating::Calibrating;
use crate::contended::Contended;
use crate::counters::Counters;
use crate::descriptions::Descriptions;
use crate::disk_error::is_of_the_disk;
use crate::error::OpenError;
use crate::ext4_journal;
use crate::gathering::{GatherPolicy, Gathering};
use crate::handle::Handle;
use crate::identity::{self, Identity};
use crate::index::Index;
use crate::io::pinned_by;
use crate::journal::{self, JournalPlace};
use crate::parts::PoolParts;
use crate::pressure::Pressure;
use crate::removed::Removed;
use crate::replica::{Claim, Replica};
use crate::replicas::{Replicas, Settling};
use crate::scan::{Found, scan};
use crate::scrub::Scrubbing;
use crate::space::Space;
use crate::store::{Extent, Store};
use crate::writability::Writability;

pub struct Config {
    pub id: PoolId,
    pub dir: PathBuf,
    pub instance: [u8; 16],
    /// New data leaves this much of the file system free.
    pub reserve_bytes: u64,
    /// New replicas leave this many inodes free.
    pub reserve_files: u64,
    /// Replica files that are open: in use, or kept for the next use.
    pub open_files_max: usize,
    /// Jobs waiting for a thread, for data and for syncs each; beyond that callers are told `Busy`.
    pub queue_len_max: usize,
    /// Threads for data; 0: as the machine has cores.
    pub threads: usize,
    /// The rule that chooses between buffered, uncached and direct I/O.
    pub io: Policy,
    /// The waits that make a file contended.
    pub contention: ContentionThresholds,
    /// The directory of the write journal.
    pub journal: JournalPlace,
    /// Delayed allocation.
    pub gather: GatherPolicy,
    /// Digests of whole replicas that scrubs make and compare.
    pub digests: Vec<ChecksumKind>,
    pub random: Arc<dyn Random>,
}

/// They wait together for the journal, so more of them make fewer commits.
const SYNC_THREADS: usize = 16;
const BUFFER_BYTES_MAX: usize = 64 << 20;
/// One in so many open replicas may have a second descriptor, for direct I/O.
const DIRECT_SHARE: usize = 8;
const DIRECT_FILES_MAX: usize = 1024;
const REMOVED_LEN_MAX: usize = 64 << 10;
/// Each try has waited for a few files to be synced; others may have taken the room that made.
const ROOM_TRIES_MAX: usize = 16;
/// How often the index is written and the file system looked at.
const UPKEEP_PERIOD: Duration = Duration::from_secs(1);
/// Problems of a scan that are logged one by one.
const PROBLEMS_TOLD_MAX: usize = 10;
/// With less the index may find no room to be opened.
const INDEX_ROOM_BYTES: u64 = 1 << 20;
/// The index keeps ids in SQLite's signed integers.
const FILE_ID_MAX: FileId = FileId(i64::MAX.cast_unsigned());

pub struct LocalPool {
    shared: Arc<PoolParts>,
    replicas: Arc<Replicas>,
    upkeep: Arc<Upkeep>,
    upkeep_thread: Mutex<Option<JoinHandle<()>>>,
    dir: PathBuf,
    is_rebuilt: bool,
    is_let_go: AtomicBool,
    /// Held until the pool is dropped; `None` after `close`.
    lock: Mutex<Option<OwnedFd>>,
}

impl LocalPool {
    /// Opens the pool in a directory, making it in an empty one. Blocks, and long where the index has to be rebuilt.
    pub fn open(config: Config) -> Result<Arc<LocalPool>, OpenError> {
        let dir = config.dir.as_path();
        let (root, lock) = claim(dir)?;
        identify(dir, &Identity { pool: config.id, instance: config.instance })?;
        let store = Store::new(config.id, config.instance, root)
            .map_err(|errno| OpenError::io("prepare", dir, errno))?;
        if ext4_journal::is_missing(store.root()) {
            tracing::warn!(
                pool = %config.id, dir = %dir.display(),
                "file system is ext4 without a journal: acknowledged data may be lost when the power is cut"
            );
        }
        let open_files_max = within_process_limit(config.id, config.open_files_max);
        let opened = open_journal(&config.journal, dir, open_files_max, &config.random, &store)?;
        let (index, is_clean) = Index::open(dir)?;
        let clean = is_clean && !opened.has_applied;
        if !clean && let Err(error) = rebuild(dir, &index) {
            index.leave_disk(error)?;
            rebuild(dir, &index)?;
        }
        let space = Space::new(config.reserve_bytes, config.reserve_files);
        space.refresh(store.root());
        let counters = Counters::default();
        counters.replicas.set(index.count()?);
        let engine = start_engine(&config, &store, open_files_max);
        let pressure = Pressure::new();
        let mut verifier = Verifier([0; 8]);
        config.random.fill(&mut verifier.0);
        let writability = try_to_write(config.id, &store);
        // Behind the records: what they write makes sums stale.
        let scrubbing = Scrubbing::open(dir, store.root(), config.digests.clone(), clean);
        let shared = Arc::new(PoolParts {
            gathering: Gathering::new(config.gather, &store),
            store,
            engine,
            calibrating: Arc::new(Calibrating::new(dir.to_owned())),
            journal: opened.journal,
            scrubbing,
            pressure,
            index,
            descriptions: Descriptions::new(dir),
            space,
            writability,
            counters,
            contended: Contended::default(),
            removed: Removed::new(REMOVED_LEN_MAX),
            verifier,
            closed: AtomicBool::new(false),
        });
        shared.calibrating.load(&shared);
        let replicas = Replicas::new(Arc::clone(&shared), open_files_max);
        shared.journal.attach(&replicas);
        shared.gathering.attach(&replicas);
        let failed = |error| OpenError::io("start", dir, error);
        shared.journal.write_back.start(&shared, &replicas).map_err(failed)?;
        let upkeep = Arc::new(Upkeep::default());
        let thread = upkeep.start(Arc::clone(&shared)).map_err(failed)?;
        Ok(Arc::new(LocalPool {
            shared,
            replicas,
            upkeep,
            upkeep_thread: Mutex::new(Some(thread)),
            dir: config.dir,
            is_rebuilt: !clean,
            is_let_go: AtomicBool::new(false),
            lock: Mutex::new(Some(lock)),
        }))
    }

    pub(crate) fn parts(&self) -> &PoolParts {
        &self.shared
    }

    pub(crate) fn table(&self) -> &Replicas {
        &self.replicas
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether the pool was not closed in order before it was opened, so that its index was made from the files.
    pub fn is_rebuilt(&self) -> bool {
        self.is_rebuilt
    }

    /// As [`Pool::replicas`], as the index has them: nothing may be written meanwhile. Blocks.
    pub fn indexed(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        let failed = |reason| PoolError::Io { pool: self.shared.id(), operation: "list replicas", reason };
        self.shared.index.list(after, limit).map_err(failed)
    }

    /// Makes a replica one of another file, which has no replica. Nobody has either open. A crash in between leaves one
    /// of the two names, or both. Blocks.
    pub fn renumber(&self, from: FileId, to: FileId) -> Result<(), PoolError> {
        let PoolParts { store, index, .. } = &*self.shared;
        let renumbered = store.renumber(from, to);
        renumbered.map_err(|errno| self.shared.write_failure("renumber a replica", errno))?;
        index.note(to);
        index.note(from);
        Ok(())
    }

    /// The pool counts as one that was not closed in order ([`LocalPool::is_rebuilt`] at the next start).
    pub fn doubt_index(&self) {
        self.shared.index.doubt();
    }

    /// As the store does: a replica that lies in another file's place goes into its own. Nobody has either open. Blocks.
    pub fn put_in_place(&self, place: FileId) -> Result<bool, PoolError> {
        let PoolParts { store, index, .. } = &*self.shared;
        let mut moved = Vec::new();
        let put = store.put_in_place(place, &mut moved);
        moved.into_iter().for_each(|file| index.note(file));
        put.map_err(|errno| self.shared.write_failure("put a replica into its place", errno))
    }

    /// Takes no more work and finishes what is queued. Blocks; a second call does nothing.
    pub fn end_work(&self) {
        self.stop();
    }

    /// The same, writes the index and lets the directory go. Blocks; a second call does nothing. A pool that is dropped
    /// without it rebuilds its index at the next start.
    pub fn close(&self) {
        let pool = self.shared.id();
        self.stop();
        if self.is_let_go.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.gathering.close(&self.shared);
        if let Err(reason) = self.shared.journal.close(&self.shared) {
            tracing::warn!(%pool, reason, "write journal has records that the next start applies");
            self.shared.index.doubt();
        }
        // Behind the journal, whose files it brings to the disk without their times.
        if let Err(reason) = self.shared.scrubbing.settle(&self.shared) {
            tracing::info!(%pool, reason, "block sums will be in doubt");
            self.shared.index.doubt();
        }
        match self.shared.index.close(&self.shared.store) {
            Ok(()) => tracing::debug!(%pool, "pool closed"),
            Err(reason) => tracing::warn!(%pool, reason, "pool index is not clean and will be rebuilt"),
        }
        self.let_go();
    }

    /// A replica that is still open does not keep another process from opening the pool.
    fn let_go(&self) {
        self.shared.index.let_go();
        self.shared.descriptions.let_go();
        *self.lock.lock() = None;
    }

    fn stop(&self) {
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.shared.journal.write_back.stop();
        self.shared.engine.stop();
        self.upkeep.stop();
        if let Some(thread) = self.upkeep_thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!(pool = %self.shared.id(), "upkeep thread panicked");
        }
        // Nobody begins one any more.
        self.shared.calibrating.stop();
        self.shared.scrubbing.stop();
    }

    async fn replica(&self, file: FileId) -> Result<Arc<Replica>, PoolError> {
        self.shared.check_open()?;
        if file > FILE_ID_MAX {
            return Err(PoolError::NoReplica(self.shared.id()));
        }
        for _ in 0..ROOM_TRIES_MAX {
            let to_settle = match self.replicas.take(file) {
                Ok(replica) => return Ok(replica),
                Err(full) => full.to_settle,
            };
            if to_settle.is_empty() {
                // All are in use: behind the work that is queued now, some may not be.
                self.shared.engine.wait_behind_syncs().await?;
            } else {
                self.settle_all(to_settle).await;
            }
        }
        Err(PoolError::Busy(self.shared.id()))
    }

    /// To make the file of a replica that has no bytes to keep, in place of one that somebody else than the head has removed.
    async fn replica_to_fill(&self, file: FileId) -> Result<Arc<Replica>, PoolError> {
        let replica = self.replica(file).await?;
        if !replica.file().is_orphaned(&self.shared)? {
            return Ok(replica);
        }
        self.replicas.drop_replica(&replica);
        self.replica(file).await
    }

    /// Of a file that comes from another pool, and may have been here before. Those that have the removed replica open do
    /// not reach the new one.
    async fn replica_to_refill(&self, file: FileId) -> Result<Arc<Replica>, PoolError> {
        self.shared.removed.forget(file);
        let replica = self.replica_to_fill(file).await?;
        if !replica.file().is_removed() {
            return Ok(replica);
        }
        self.replicas.drop_replica(&replica);
        self.replica(file).await
    }

    /// Writers that never sync fill the table with files that must not be closed; the next caller waits for some.
    async fn settle_all(&self, replicas: Vec<Arc<Replica>>) {
        let mut settled = Vec::with_capacity(replicas.len());
        for replica in replicas {
            settled.push(self.shared.engine.sync(&self.settling(replica)));
        }
        for handle in settled {
            // As above: nobody here is to be told of a failure.
            let _ = handle.await;
        }
    }

    fn settling(&self, replica: Arc<Replica>) -> Settling {
        Settling { shared: Arc::clone(&self.shared), replica }
    }

    async fn make_one(&self, file: FileId, birth: Birth) -> Result<(), PoolError> {
        self.shared.check_changeable()?;
        let replica = self.replica_to_fill(file).await?;
        let there = replica.file();
        if there.open().is_some() && there.record().birth() == birth && !there.is_removed() {
            return Ok(());
        }
        self.with(file, Work::Create, move |replica, shared| replica.make(shared, birth)).await
    }

    async fn truncate_one(&self, file: FileId, size: u64) -> Result<ReplicaFacts, PoolError> {
        self.shared.check_changeable()?;
        if size == 0 {
            self.replica_to_fill(file).await?;
        }
        self.with(file, Work::Truncate, move |replica, shared| replica.truncate(shared, size)).await
    }

    async fn remove_one(&self, file: FileId) -> Result<(), PoolError> {
        self.shared.check_changeable()?;
        let replicas = Arc::clone(&self.replicas);
        self.with(file, Work::Remove, move |replica, shared| {
            replica.remove(shared)?;
            replicas.drop_replica(replica);
            Ok(())
        })
        .await
    }

    async fn facts_of(&self, file: FileId) -> Result<Option<ReplicaFacts>, PoolError> {
        let replica = self.replica(file).await?;
        if replica.file().open().is_some()
            && let Some(facts) = replica.facts_at_once(&self.shared)
        {
            // The kernel has the attributes of an open file in memory: not worth a thread.
            return facts;
        }
        self.with(file, Work::Inspect, |replica, shared| {
            replica.file().load(shared)?;
            replica.facts(shared)
        })
        .await
    }

    /// Runs `job` on the replica in a thread of the engine.
    async fn with<T: Send + Unpin + 'static>(
        &self,
        file: FileId,
        work: Work,
        job: impl FnOnce(&Replica, &PoolParts) -> Result<T, PoolError> + Send + 'static,
    ) -> Result<T, PoolError> {
        let replica = self.replica(file).await?;
        let shared = Arc::clone(&self.shared);
        self.shared.engine.run(work, move || job(&replica, &shared)).await
    }
}

impl Drop for LocalPool {
    fn drop(&mut self) {
        self.stop();
        if !self.is_let_go.swap(true, Ordering::AcqRel) {
            self.let_go();
        }
    }
}

#[async_trait]
impl Pool for LocalPool {
    fn id(&self) -> PoolId {
        self.shared.id()
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        if ticket.pool != self.shared.id() {
            return Err(PoolError::NoReplica(self.shared.id()));
        }
        let replica = match (ticket.mode, ticket.presence) {
            (TicketMode::ReadWrite, Presence::Unmade) => self.replica_to_fill(ticket.file).await?,
            (TicketMode::ReadWrite, Presence::Filling) => self.replica_to_refill(ticket.file).await?,
            _ => self.replica(ticket.file).await?,
        };
        // A write runs on a thread of the engine anyway, and looks at the replica there.
        let there = replica.file();
        let is_to_load = !there.is_loaded() && !there.load_resident(&self.shared)?;
        if is_to_load && ticket.mode == TicketMode::Read {
            let (shared, loading) = (Arc::clone(&self.shared), Arc::clone(&replica));
            self.shared.engine.run(Work::Open, move || loading.file().load(&shared)).await?;
        }
        if there.is_removed() || self.shared.removed.contains(ticket.file) {
            return Err(PoolError::NoReplica(self.shared.id()));
        }
        let claim = Claim::of(ticket);
        there.record().check_claim(&self.shared, claim)?;
        if ticket.mode == TicketMode::Read {
            // Before the caller says that it has the file.
            there.check_present(&self.shared, claim)?;
            there.check_whole_lately(&self.shared)?;
        }
        replica.io().pin(pinned_by(ticket.io));
        let (shared, replicas) = (Arc::clone(&self.shared), Arc::clone(&self.replicas));
        Ok(Arc::new(Handle { shared, replicas, replica, claim, mode: ticket.mode }))
    }

    async fn make(&self, files: &[(FileId, Birth)], _within: Duration) -> Answers<()> {
        each(files, |(file, birth)| self.make_one(file, birth)).await
    }

    async fn truncate(&self, files: &[(FileId, u64)], _within: Duration) -> Answers<ReplicaFacts> {
        each(files, |(file, size)| self.truncate_one(file, size)).await
    }

    async fn remove(&self, files: &[FileId], _within: Duration) -> Answers<()> {
        each(files, |file| self.remove_one(file)).await
    }

    async fn sync_removals(&self, files: &[FileId], _within: Duration) -> Result<(), PoolError> {
        self.shared.check_open()?;
        let (shared, files) = (Arc::clone(&self.shared), files.to_vec());
        let sync = move || {
            // Before the sync: the removals were before this.
            let newest: Vec<_> =
                files.iter().filter_map(|file| Some((*file, shared.journal.newest(*file)?))).collect();
            let synced = shared.store.sync_names(&files);
            synced.map_err(|errno| shared.write_failure("sync directories", errno))?;
            check_gone(&shared, &files)?;
            if newest.is_empty() {
                return Ok(());
            }
            newest.iter().for_each(|(file, newest)| shared.journal.settled(*file, *newest));
            shared.journal.barrier(&shared)
        };
        self.shared.engine.run(Work::SyncNames, sync).await
    }

    async fn fence(&self, files: &[(FileId, Epoch)], _within: Duration) -> Answers<()> {
        each(files, |(file, epoch)| {
            self.with(file, Work::Fence, move |replica, shared| {
                shared.check_changeable()?;
                replica.fence(shared, epoch)
            })
        })
        .await
    }

    async fn facts(&self, files: &[FileId], _within: Duration) -> Answers<Option<ReplicaFacts>> {
        each(files, |file| self.facts_of(file)).await
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        self.shared.check_open()?;
        let (shared, replicas) = (Arc::clone(&self.shared), Arc::clone(&self.replicas));
        let list = move || {
            let failed = |reason| PoolError::Io { pool: shared.id(), operation: "list replicas", reason };
            // Where that fails, what is not written down is known all the same.
            if let Err(reason) = shared.index.flush(&shared.store) {
                tracing::debug!(pool = %shared.id(), reason, "replicas are listed without writing the index");
            }
            list_files(&shared, &replicas, after, limit).map_err(failed)
        };
        self.shared.engine.run(Work::List, list).await
    }

    async fn describe(
        &self,
        after: FileId,
        through: FileId,
        files: Vec<Description>,
    ) -> Result<(), PoolError> {
        self.shared.check_open()?;
        let shared = Arc::clone(&self.shared);
        let write = move || {
            let failed = |reason| PoolError::Io { pool: shared.id(), operation: "describe files", reason };
            // A place that cannot be looked at counts as a replica.
            let has_replica = |file| !matches!(shared.store.look(file), Ok(None));
            shared.descriptions.replace(after, through, &files, has_replica).map_err(failed)
        };
        self.shared.engine.run(Work::Describe, write).await
    }

    fn clone_granularity(&self) -> Option<u32> {
        self.shared.store.clone_granularity
    }

    fn status(&self) -> PoolStatus {
        let (free, counters) = (self.shared.space.free(), &self.shared.counters);
        let closed = self.shared.closed.load(Ordering::Acquire).then(|| "it is closed".to_owned());
        // A full pool is known by its space, and refuses as one.
        let index_refusal = self.shared.index.refusal().filter(|_| free.free_bytes >= INDEX_ROOM_BYTES);
        PoolStatus {
            id: self.shared.id(),
            offline: closed.or_else(|| self.shared.space.refusal()),
            is_away: false,
            read_only: self.shared.writability.refusal().or(index_refusal),
            total_bytes: free.total_bytes,
            free_bytes: free.free_bytes,
            total_files: free.total_files,
            free_files: free.free_files,
            replicas: counters.replicas.value(),
            read_bytes: counters.read_bytes.value(),
            written_bytes: counters.written_bytes.value(),
            reads: counters.reads.value(),
            writes: counters.writes.value(),
            syncs: counters.syncs.value(),
            contended: self.shared.contended.now(Instant::now()),
            made_through: None,
        }
    }
}

/// An error if one of the files has a replica: its removal was not on disk when the power was cut. The head asks here before it
/// forgets the file.
fn check_gone(shared: &PoolParts, files: &[FileId]) -> Result<(), PoolError> {
    for file in files {
        if shared.store.look(*file).map_err(|errno| shared.failure("sync removals", errno))?.is_some() {
            let reason = format!("the replica of {file} is there again after its removal");
            return Err(PoolError::Io { pool: shared.id(), operation: "sync removals", reason });
        }
    }
    Ok(())
}

/// Replicas that the index lists, with the facts of their files. Files that are gone or replaced by something else are
/// left out; of a file that cannot be looked at the facts are those of the index. Empty: there are no more.
fn list_files(
    shared: &PoolParts,
    replicas: &Replicas,
    mut after: FileId,
    limit: usize,
) -> Result<Vec<ReplicaFacts>, String> {
    loop {
        let listed = shared.index.list(after, limit)?;
        let Some(last) = listed.last() else { return Ok(listed) };
        after = last.file;
        let mut there = Vec::with_capacity(listed.len());
        let is_gathering = shared.gathering.budget().is_some();
        for facts in listed {
            // Before the look: a flush takes bytes from memory to the file.
            let replica = if is_gathering { replicas.find(facts.file) } else { None };
            let gathered = replica.map_or(0, |replica| replica.gathered_end());
            match shared.store.look_inside(facts.file) {
                Ok(Some((Extent { size, space_used, .. }, birth))) => {
                    let size = size.max(gathered);
                    there.push(ReplicaFacts { birth, size, space_used, ..facts });
                }
                Ok(None) => {}
                Err(_) => there.push(facts),
            }
        }
        if !there.is_empty() {
            return Ok(there);
        }
    }
}

/// Applies the write journal of a pool that is closed, for programs that read its files by themselves. Whether there were
/// records. Blocks.
pub fn apply_journal(
    journal: &JournalPlace,
    dir: &Path,
    expected: &Identity,
    random: &Arc<dyn Random>,
) -> Result<bool, OpenError> {
    if !journal::is_there(dir)? {
        return Ok(false);
    }
    let (root, _lock) = claim(dir)?;
    identify(dir, expected)?;
    let store = Store::new(expected.pool, expected.instance, root)
        .map_err(|errno| OpenError::io("prepare", dir, errno))?;
    Ok(open_journal(journal, dir, usize::MAX, random, &store)?.has_applied)
}

/// Replicas with records stay open, so that there are fewer than may be open.
fn open_journal(
    place: &JournalPlace,
    dir: &Path,
    open_files_max: usize,
    random: &Arc<dyn Random>,
    store: &Store,
) -> Result<journal::Opened, OpenError> {
    let setting = journal::Setting {
        place: place.clone(),
        pool_dir: dir.to_owned(),
        files_max: (open_files_max / 2).clamp(1, journal::FILES_MAX),
        random: Arc::clone(random),
    };
    journal::open(setting, store)
}

fn try_to_write(pool: PoolId, store: &Store) -> Writability {
    let writability = Writability::default();
    if let Err(errno) = store.try_to_write() {
        writability.note(pool, errno);
    }
    writability
}

fn start_engine(config: &Config, store: &Store, open_files_max: usize) -> Engine {
    // The trials write a file without a name. A disk that takes no writes cannot be tried.
    let capabilities = match config.io {
        Policy::Buffered => Capabilities::NONE,
        _ => Capabilities::probe(store.root()).unwrap_or_else(|errno| {
            tracing::info!(pool = %config.id, %errno, "modes of I/O cannot be tried, it is buffered until the next start");
            Capabilities::NONE
        }),
    };
    tracing::debug!(pool = %config.id, ?capabilities, policy = %config.io, "modes of I/O of the disk");
    let direct_files_max = (open_files_max / DIRECT_SHARE).min(DIRECT_FILES_MAX);
    let path = DataPath::new(config.io, capabilities, direct_files_max).with_contention(config.contention);
    let config = EngineConfig {
        pool: config.id,
        data_threads: if config.threads == 0 { io_engine::default_threads() } else { config.threads },
        sync_threads: SYNC_THREADS,
        queue_len_max: config.queue_len_max.max(1),
        buffer_bytes_max: BUFFER_BYTES_MAX,
    };
    Engine::start(config, path)
}

/// Half of what the process may open: the clients' connections need theirs, and a pool that runs into the process's limit
/// can only say that it is busy.
fn within_process_limit(pool: PoolId, open_files_max: usize) -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let share = usize::try_from(limit / 2).unwrap_or(usize::MAX).max(1);
    if open_files_max > share {
        tracing::warn!(%pool, open_files_max, limit, share, "fewer replicas are kept open: raise the limit (ulimit -n)");
    }
    open_files_max.min(share)
}

/// Makes the directory if need be and takes it for this process.
pub fn claim(dir: &Path) -> Result<(OwnedFd, OwnedFd), OpenError> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| OpenError::io("make", dir, error))?;
    let root = File::open(dir).map_err(|error| OpenError::io("open", dir, error))?;
    if Identity::read(dir)?.is_none() && !holds_nothing(dir)? {
        return Err(OpenError::NotAPool { dir: dir.to_owned() });
    }
    let path = dir.join("lock");
    let made = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let lock = match made {
        // Of a pool that was there before, which can still be read.
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem && path.exists() => File::open(&path),
        made => made,
    };
    let lock = OwnedFd::from(lock.map_err(|error| OpenError::io("make", &path, error))?);
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(errno) => return Err(OpenError::io("lock", &path, errno)),
    }
    match fsetxattr(lock.as_fd(), "user.forebay.test", b"1", XattrFlags::empty()) {
        Ok(()) => Ok((root.into(), lock)),
        Err(errno) if is_of_the_disk(errno) => Ok((root.into(), lock)),
        Err(Errno::OPNOTSUPP) => Err(OpenError::NoAttributes { dir: dir.to_owned() }),
        Err(errno) => Err(OpenError::io("label", &path, errno)),
    }
}

/// But for what a first start that did not finish leaves behind.
fn holds_nothing(dir: &Path) -> Result<bool, OpenError> {
    let harmless = ["lock", "lost+found", identity::NEW_FILE_NAME];
    for entry in fs::read_dir(dir).map_err(|error| OpenError::io("read", dir, error))? {
        let entry = entry.map_err(|error| OpenError::io("read", dir, error))?;
        if !harmless.iter().any(|name| entry.file_name() == *name) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Under the lock: two first starts must not write two identities.
pub fn identify(dir: &Path, expected: &Identity) -> Result<(), OpenError> {
    let Some((found, version)) = Identity::read_versioned(dir)? else {
        return expected.write(dir);
    };
    if found.instance != expected.instance {
        return Err(OpenError::OtherInstance { dir: dir.to_owned() });
    }
    if found.pool != expected.pool {
        let (found, expected) = (found.pool, expected.pool);
        return Err(OpenError::OtherPool { dir: dir.to_owned(), found, expected });
    }
    if version < identity::VERSION {
        // An older binary would take the labels that this one writes for damaged.
        tracing::info!(dir = %dir.display(), from = version, to = identity::VERSION, "pool is upgraded to a new version");
        return expected.write(dir);
    }
    Ok(())
}

/// One file after the other, so that a large batch leaves the threads to others too.
async fn each<F: Copy, T, Asked: Future<Output = Result<T, PoolError>>>(
    files: &[F],
    ask: impl Fn(F) -> Asked,
) -> Answers<T> {
    let mut answers = Vec::with_capacity(files.len());
    for file in files {
        answers.push(ask(*file).await);
    }
    answers.into_iter().collect()
}

fn rebuild(dir: &Path, index: &Index) -> Result<(), OpenError> {
    let scan = scan(dir)?;
    let pool = scan.identity().pool;
    let (mut replicas, mut problems) = (0_u64, 0);
    let facts = scan.filter_map(|found| match found {
        Found::Replica(replica) => {
            replicas += 1;
            Some(replica.facts)
        }
        Found::Problem(problem) if problem.kind.is_left_by_a_kill() => {
            tracing::debug!(%pool, %problem, "left behind by a stop");
            None
        }
        Found::Problem(problem) => {
            problems += 1;
            if problems <= PROBLEMS_TOLD_MAX {
                tracing::warn!(%pool, %problem, "the pool has a problem");
            }
            None
        }
    });
    index.rebuild(facts)?;
    tracing::info!(%pool, replicas, problems, "pool index rebuilt from the files");
    Ok(())
}

/// The thread that keeps the books of a pool: it writes the index and looks at the free space, once a second.
#[derive(Default)]
struct Upkeep {
    /// Set to end the thread.
    stopping: Mutex<bool>,
    wake: Condvar,
}

impl Upkeep {
    fn start(self: &Arc<Upkeep>, shared: Arc<PoolParts>) -> std::io::Result<JoinHandle<()>> {
        let upkeep = Arc::clone(self);
        let name = format!("{}-upkeep", shared.id());
        std::thread::Builder::new().name(name).spawn(move || upkeep.run(&shared))
    }

    fn run(&self, shared: &Arc<PoolParts>) {
        let mut failing = false;
        loop {
            let mut stopping = self.stopping.lock();
            if *stopping {
                return;
            }
            self.wake.wait_for(&mut stopping, UPKEEP_PERIOD);
            if *stopping {
                return;
            }
            drop(stopping);
            shared.space.refresh(shared.store.root());
            shared.writability.look(shared.id(), &shared.store);
            shared.journal.apply_late(shared);
            shared.pressure.look(shared, Instant::now());
            Gathering::flush_due(shared);
            shared.calibrating.look(shared);
            shared.scrubbing.look(shared);
            let flushed = shared.index.flush(&shared.store);
            // Once for each time that it starts, not for each second that it lasts.
            if let (Err(reason), false) = (&flushed, failing) {
                tracing::warn!(pool = %shared.id(), reason, "cannot write the pool index");
            }
            failing = flushed.is_err();
        }
    }

    fn stop(&self) {
        *self.stopping.lock() = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod failing_disks;

#[cfg(test)]
mod failing_files;

#[cfg(test)]
mod gathered;

#[cfg(test)]
pub mod tests;
