//! A pool on a local file system: opening and closing it, and the `Pool` seam.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use api::{
    Description, OpenReplica, Pool, PoolError, PoolStatus, ReplicaFacts, Ticket, TicketMode, Verifier,
};
use async_trait::async_trait;
use io_engine::{Engine, EngineConfig, Lane};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FlockOperation, XattrFlags, flock, fsetxattr};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use types::{Epoch, FileId, PoolId, Random};

use crate::counters::Counters;
use crate::descriptions::Descriptions;
use crate::error::OpenError;
use crate::handle::Handle;
use crate::identity::{self, Identity};
use crate::index::Index;
use crate::removed::Removed;
use crate::replica::Replica;
use crate::scan::{Found, scan};
use crate::shared::Shared;
use crate::space::Space;
use crate::store::Store;
use crate::table::Table;

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
    pub random: Arc<dyn Random>,
}

/// They wait together for the journal, so more of them make fewer commits.
const SYNC_THREADS: usize = 16;
const BUFFER_BYTES_MAX: usize = 64 << 20;
const REMOVED_LEN_MAX: usize = 64 << 10;
/// Each try has waited for a few files to be synced; others may have taken the room that made.
const ROOM_TRIES_MAX: usize = 16;
/// How often the index is written and the file system looked at.
const UPKEEP_PERIOD: Duration = Duration::from_secs(1);
/// Problems of a scan that are logged one by one.
const PROBLEMS_TOLD_MAX: usize = 10;
/// The index keeps ids in SQLite's signed integers.
const FILE_ID_MAX: FileId = FileId(i64::MAX.cast_unsigned());

pub struct LocalPool {
    shared: Arc<Shared>,
    table: Arc<Table>,
    upkeep: Arc<Upkeep>,
    upkeep_thread: Mutex<Option<JoinHandle<()>>>,
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
        let (index, clean) = Index::open(dir)?;
        if !clean {
            rebuild(dir, &index)?;
        }
        let space = Space::new(config.reserve_bytes, config.reserve_files);
        space.refresh(store.root());
        let counters = Counters::default();
        counters.replicas.set(index.count()?);
        let engine = Engine::start(EngineConfig {
            pool: config.id,
            data_threads: if config.threads == 0 { io_engine::default_threads() } else { config.threads },
            sync_threads: SYNC_THREADS,
            queue_len_max: config.queue_len_max.max(1),
            buffer_bytes_max: BUFFER_BYTES_MAX,
        });
        let mut verifier = Verifier([0; 8]);
        config.random.fill(&mut verifier.0);
        let removed = Removed::new(REMOVED_LEN_MAX);
        let closed = AtomicBool::new(false);
        let descriptions = Descriptions::new(dir);
        let shared = Arc::new(Shared {
            store,
            engine,
            index,
            descriptions,
            space,
            counters,
            removed,
            verifier,
            closed,
        });
        let upkeep = Arc::new(Upkeep::default());
        let thread = upkeep.start(Arc::clone(&shared)).map_err(|error| OpenError::io("start", dir, error))?;
        Ok(Arc::new(LocalPool {
            shared,
            table: Arc::new(Table::new(within_process_limit(config.id, config.open_files_max))),
            upkeep,
            upkeep_thread: Mutex::new(Some(thread)),
            lock: Mutex::new(Some(lock)),
        }))
    }

    /// Takes no more work, finishes what is queued, writes the index and lets the directory go. Blocks; a second call
    /// does nothing. A pool that is dropped without it rebuilds its index at the next start.
    pub fn close(&self) {
        let pool = self.shared.id();
        if !self.stop() {
            return;
        }
        match self.shared.index.close(&self.shared.store) {
            Ok(()) => tracing::debug!(%pool, "pool closed"),
            Err(reason) => tracing::warn!(%pool, reason, "pool index is not clean and will be rebuilt"),
        }
        *self.lock.lock() = None;
    }

    /// Whether it was running.
    fn stop(&self) -> bool {
        if self.shared.closed.swap(true, Ordering::AcqRel) {
            return false;
        }
        self.shared.engine.stop();
        self.upkeep.stop();
        if let Some(thread) = self.upkeep_thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!(pool = %self.shared.id(), "upkeep thread panicked");
        }
        true
    }

    async fn replica(&self, file: FileId) -> Result<Arc<Replica>, PoolError> {
        self.shared.check_open()?;
        if file > FILE_ID_MAX {
            return Err(PoolError::NoReplica(self.shared.id()));
        }
        for _ in 0..ROOM_TRIES_MAX {
            let to_settle = match self.table.take(file) {
                Ok(taken) => {
                    for replica in taken.to_settle {
                        // A failure marks the replica and is told to whoever syncs it next.
                        self.shared.settle(&replica, Box::new(|_| {}));
                    }
                    return Ok(taken.replica);
                }
                Err(full) => full.to_settle,
            };
            if to_settle.is_empty() {
                // All are in use: behind the work that is queued now, some may not be.
                self.shared.engine.submit(Lane::Sync, || Ok(())).await?;
            } else {
                self.settle_all(to_settle).await;
            }
        }
        Err(PoolError::Busy(self.shared.id()))
    }

    /// Writers who never sync fill the table with files that must not be closed; whoever comes next waits for some.
    async fn settle_all(&self, replicas: Vec<Arc<Replica>>) {
        let mut settled = Vec::with_capacity(replicas.len());
        for replica in replicas {
            let (answer, handle) = self.shared.engine.answer();
            let tell = move |synced| {
                let _ = answer.send(synced);
            };
            self.shared.settle(&replica, Box::new(tell));
            settled.push(handle);
        }
        for handle in settled {
            // As above: nobody here is to be told of a failure.
            let _ = handle.await;
        }
    }

    /// Runs `work` on the replica in a thread of `lane`.
    async fn with<T: Send + Unpin + 'static>(
        &self,
        file: FileId,
        lane: Lane,
        work: impl FnOnce(&Replica, &Shared) -> Result<T, PoolError> + Send + 'static,
    ) -> Result<T, PoolError> {
        let replica = self.replica(file).await?;
        let shared = Arc::clone(&self.shared);
        self.shared.engine.submit(lane, move || work(&replica, &shared)).await
    }
}

impl Drop for LocalPool {
    fn drop(&mut self) {
        self.stop();
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
        let replica = self.replica(ticket.file).await?;
        // Whoever is going to write needs a thread for that, which finds out, too.
        let is_to_load = !replica.is_loaded() && !replica.load_resident(&self.shared)?;
        if is_to_load && ticket.mode == TicketMode::Read {
            let (shared, loading) = (Arc::clone(&self.shared), Arc::clone(&replica));
            self.shared.engine.submit(Lane::Data, move || loading.load(&shared)).await?;
        }
        if replica.is_removed() || self.shared.removed.contains(ticket.file) {
            return Err(PoolError::NoReplica(self.shared.id()));
        }
        replica.check_epoch(ticket.epoch)?;
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(Handle { shared, replica, epoch: ticket.epoch, mode: ticket.mode }))
    }

    async fn truncate(&self, file: FileId, size: u64) -> Result<ReplicaFacts, PoolError> {
        self.with(file, Lane::Sync, move |replica, shared| replica.truncate(shared, size)).await
    }

    async fn remove(&self, file: FileId) -> Result<(), PoolError> {
        let table = Arc::clone(&self.table);
        self.with(file, Lane::Sync, move |replica, shared| {
            replica.remove(shared)?;
            table.drop_replica(file);
            Ok(())
        })
        .await
    }

    async fn fence(&self, file: FileId, epoch: Epoch) -> Result<(), PoolError> {
        self.with(file, Lane::Sync, move |replica, shared| replica.fence(shared, epoch)).await
    }

    async fn facts(&self, file: FileId) -> Result<Option<ReplicaFacts>, PoolError> {
        let replica = self.replica(file).await?;
        if replica.open_file().is_some() {
            // What the kernel knows of an open file is in memory: not worth a thread.
            return replica.facts(&self.shared);
        }
        self.with(file, Lane::Data, |replica, shared| {
            replica.load(shared)?;
            replica.facts(shared)
        })
        .await
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        self.shared.check_open()?;
        let shared = Arc::clone(&self.shared);
        let list = move || {
            let failed = |reason| PoolError::Io { pool: shared.id(), operation: "list replicas", reason };
            shared.index.flush(&shared.store).map_err(failed)?;
            shared.index.list(after, limit).map_err(failed)
        };
        self.shared.engine.submit(Lane::Sync, list).await
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
            // What cannot be looked at is taken for one.
            let has_replica = |file| !matches!(shared.store.look(file), Ok(None));
            shared.descriptions.replace(after, through, &files, has_replica).map_err(failed)
        };
        self.shared.engine.submit(Lane::Sync, write).await
    }

    fn clone_granularity(&self) -> Option<u32> {
        self.shared.store.clone_granularity
    }

    fn status(&self) -> PoolStatus {
        let (free, counters) = (self.shared.space.free(), &self.shared.counters);
        let closed = self.shared.closed.load(Ordering::Acquire).then(|| "it is closed".to_owned());
        PoolStatus {
            id: self.shared.id(),
            offline: closed.or_else(|| self.shared.space.refusal()),
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
        }
    }
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
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let lock = OwnedFd::from(lock.map_err(|error| OpenError::io("make", &path, error))?);
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { dir: dir.to_owned() }),
        Err(errno) => return Err(OpenError::io("lock", &path, errno)),
    }
    match fsetxattr(lock.as_fd(), "user.forebay.test", b"1", XattrFlags::empty()) {
        Ok(()) => Ok((root.into(), lock)),
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
    let Some(found) = Identity::read(dir)? else {
        return expected.write(dir);
    };
    if found.instance != expected.instance {
        return Err(OpenError::OtherInstance { dir: dir.to_owned() });
    }
    if found.pool != expected.pool {
        let (found, expected) = (found.pool, expected.pool);
        return Err(OpenError::OtherPool { dir: dir.to_owned(), found, expected });
    }
    Ok(())
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
                tracing::warn!(%pool, %problem, "something in the pool is not as it should be");
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
    fn start(self: &Arc<Upkeep>, shared: Arc<Shared>) -> std::io::Result<JoinHandle<()>> {
        let upkeep = Arc::clone(self);
        let name = format!("{}-upkeep", shared.id());
        std::thread::Builder::new().name(name).spawn(move || upkeep.run(&shared))
    }

    fn run(&self, shared: &Shared) {
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
mod tests {
    use api::{Stability, TicketMode};
    use bytes::Bytes;

    use super::*;

    struct Fixed;

    impl Random for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    fn pool(dir: &tempfile::TempDir) -> Arc<LocalPool> {
        let config = Config {
            id: PoolId(1),
            dir: dir.path().to_owned(),
            instance: [1; 16],
            reserve_bytes: 0,
            reserve_files: 0,
            open_files_max: 16,
            queue_len_max: 64,
            threads: 1,
            random: Arc::new(Fixed),
        };
        LocalPool::open(config).unwrap()
    }

    async fn replica(pool: &LocalPool, file: u64) -> Arc<dyn OpenReplica> {
        let (file, epoch) = (FileId(file), Epoch(0));
        let ticket = Ticket { file, pool: PoolId(1), mode: TicketMode::ReadWrite, epoch };
        pool.open(&ticket).await.unwrap()
    }

    async fn write(replica: &Arc<dyn OpenReplica>, stability: Stability) -> Result<Stability, PoolError> {
        replica.write_at(0, Bytes::from("data"), stability).await
    }

    fn fail_syncs(pool: &LocalPool, fail: bool) {
        pool.shared.store.fail_syncs.store(fail, Ordering::SeqCst);
    }

    #[tokio::test]
    async fn a_failed_write_back_is_told_to_every_later_sync_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let broken = |result: Result<(), PoolError>| assert!(matches!(result, Err(PoolError::Io { .. })));
        let running = pool(&dir);
        let lost = replica(&running, 1).await;
        write(&lost, Stability::Unstable).await.unwrap();
        fail_syncs(&running, true);
        broken(lost.sync().await.map(drop));
        fail_syncs(&running, false);
        for _ in 0..2 {
            broken(lost.sync().await.map(drop));
            broken(replica(&running, 1).await.sync().await.map(drop));
            broken(write(&lost, Stability::Unstable).await.map(drop));
            broken(running.truncate(FileId(1), 0).await.map(drop));
        }
        running.close();
        let running = pool(&dir);
        let lost = replica(&running, 1).await;
        broken(lost.sync().await.map(drop));
        broken(write(&lost, Stability::FileSync).await.map(drop));
        assert_eq!(lost.read_at(0, 9).await.unwrap().data, "data");
        let other = replica(&running, 2).await;
        write(&other, Stability::FileSync).await.unwrap();
        running.remove(FileId(1)).await.unwrap();
    }

    /// As `open` leaves it to a writer when the disk would have to be asked.
    fn unloaded(pool: &LocalPool, file: u64, epoch: u32) -> Handle {
        let (replica, shared) = (Arc::new(Replica::new(FileId(file))), Arc::clone(&pool.shared));
        Handle { shared, replica, epoch: Epoch(epoch), mode: TicketMode::ReadWrite }
    }

    #[tokio::test]
    async fn a_writer_whose_replica_was_not_looked_at_yet_finds_it_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let running = pool(&dir);
        for file in 1..4 {
            write(&replica(&running, file).await, Stability::FileSync).await.unwrap();
        }
        running.fence(FileId(2), Epoch(3)).await.unwrap();
        fail_syncs(&running, true);
        let lost = replica(&running, 3).await;
        write(&lost, Stability::FileSync).await.unwrap_err();
        drop(lost);
        fail_syncs(&running, false);
        running.close();
        drop(running);
        let running = pool(&dir);
        assert_eq!(unloaded(&running, 1, 0).read_at(1, 9).await.unwrap().data, "ata");
        assert!(unloaded(&running, 1, 0).sync().await.is_ok());
        let more = || Bytes::from("more");
        unloaded(&running, 1, 0).write_through(4, more()).synced.await.unwrap();
        assert_eq!(unloaded(&running, 1, 0).read_at(0, 9).await.unwrap().data, "datamore");
        let fenced = |result: Result<(), PoolError>| assert!(matches!(result, Err(PoolError::Fenced)));
        fenced(unloaded(&running, 2, 2).read_at(0, 1).await.map(drop));
        fenced(unloaded(&running, 2, 2).sync().await.map(drop));
        fenced(unloaded(&running, 2, 2).write_through(0, more()).written.await.map(drop));
        fenced(unloaded(&running, 2, 2).write_at(0, more(), Stability::Unstable).await.map(drop));
        assert!(matches!(unloaded(&running, 3, 0).sync().await, Err(PoolError::Io { .. })));
        assert!(matches!(
            unloaded(&running, 3, 0).write_through(0, more()).synced.await,
            Err(PoolError::Io { .. })
        ));
        assert!(unloaded(&running, 9, 0).read_at(0, 9).await.unwrap().data.is_empty());
        running.remove(FileId(1)).await.unwrap();
        let gone = unloaded(&running, 1, 0).write_through(0, more()).written.await;
        assert!(matches!(gone, Err(PoolError::NoReplica(_))));
    }

    #[tokio::test]
    async fn a_write_that_was_to_be_stable_fails_with_its_sync() {
        let dir = tempfile::tempdir().unwrap();
        let running = pool(&dir);
        fail_syncs(&running, true);
        let lost = replica(&running, 1).await;
        assert!(matches!(write(&lost, Stability::DataSync).await, Err(PoolError::Io { .. })));
        assert!(matches!(running.truncate(FileId(2), 10).await, Err(PoolError::Io { .. })));
    }

    #[tokio::test]
    async fn a_broken_replica_is_remembered_though_far_more_are_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let running = pool(&dir);
        let lost = replica(&running, 1).await;
        write(&lost, Stability::Unstable).await.unwrap();
        fail_syncs(&running, true);
        assert!(lost.sync().await.is_err());
        fail_syncs(&running, false);
        drop(lost);
        for file in 2..200 {
            write(&replica(&running, file).await, Stability::FileSync).await.unwrap();
        }
        assert!(replica(&running, 1).await.sync().await.is_err());
    }

    #[tokio::test]
    async fn a_fence_that_cannot_be_written_down_holds_and_is_asked_for_again() {
        let dir = tempfile::tempdir().unwrap();
        let running = pool(&dir);
        let fenced = replica(&running, 1).await;
        write(&fenced, Stability::FileSync).await.unwrap();
        fail_syncs(&running, true);
        assert!(running.fence(FileId(1), Epoch(2)).await.is_err());
        assert!(matches!(write(&fenced, Stability::Unstable).await, Err(PoolError::Fenced)));
        assert!(running.fence(FileId(1), Epoch(2)).await.is_err());
        fail_syncs(&running, false);
        running.fence(FileId(1), Epoch(2)).await.unwrap();
    }
}
