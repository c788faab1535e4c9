//! A pool in memory that keeps its word: fences, births, sizes and holes are those of a pool on disks, and a crash takes
//! the bytes that no sync has covered.
//!
//! It answers at once. Faults and delays are put around it ([`crate::faulty`]). It lends no files.

mod replica;
mod sparse_bytes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use api::{
    Answers, Birth, Description, OpenReplica, Pool, PoolError, PoolStatus, Presence, ReplicaFacts, Ticket,
    TicketMode, Verifier,
};
use async_trait::async_trait;
use bytes::Bytes;
use types::{Clock, Epoch, FileId, PoolId, Timestamp};

use self::replica::MemoryReplica;
use self::sparse_bytes::SparseBytes;
use crate::faulty::Crash;

/// Clones are the same pool.
#[derive(Clone)]
pub struct MemoryPool(Arc<PoolParts>);

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of all replicas together.
    pub capacity_bytes: u64,
    /// Of one replica.
    pub replica_bytes_max: u64,
}

struct PoolParts {
    id: PoolId,
    limits: Limits,
    has_ranges: bool,
    /// `None`: replicas have no time of modification.
    clock: Option<Arc<dyn Clock>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    replicas: BTreeMap<FileId, ReplicaCell>,
    removed: BTreeSet<FileId>,
    /// Replicas that are on disk, and whose removal is not.
    unsynced_removals: BTreeMap<FileId, ReplicaCell>,
    fences: BTreeMap<FileId, Epoch>,
    descriptions: BTreeMap<FileId, Description>,
    /// Starts and crashes so far.
    start: u32,
    counts: Counts,
    contended: Vec<FileId>,
}

/// An open replica shares it with the pool, and keeps it when it is removed. Its lock is taken after that of the state.
type ReplicaCell = Arc<Mutex<Replica>>;

#[derive(Default)]
struct Replica {
    birth: Birth,
    content: SparseBytes,
    /// As a crash leaves it. `None`: its name is not on disk.
    on_disk: Option<SparseBytes>,
    modified: Option<Timestamp>,
}

#[derive(Default)]
struct Counts {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    written_bytes: u64,
    syncs: u64,
}

const ROOMY: Limits = Limits { capacity_bytes: 1 << 40, replica_bytes_max: i64::MAX.cast_unsigned() };
const FILES_MAX: u64 = 1 << 20;

impl MemoryPool {
    pub fn new(id: PoolId) -> MemoryPool {
        MemoryPool::with(id, ROOMY, true, None)
    }

    pub fn with_clock(id: PoolId, clock: Arc<dyn Clock>) -> MemoryPool {
        MemoryPool::with(id, ROOMY, true, Some(clock))
    }

    pub fn with_limits(id: PoolId, limits: Limits) -> MemoryPool {
        MemoryPool::with(id, limits, true, None)
    }

    /// Its replicas can be read and written and nothing more.
    pub fn without_ranges(id: PoolId) -> MemoryPool {
        MemoryPool::with(id, ROOMY, false, None)
    }

    fn with(id: PoolId, limits: Limits, has_ranges: bool, clock: Option<Arc<dyn Clock>>) -> MemoryPool {
        MemoryPool(Arc::new(PoolParts { id, limits, has_ranges, clock, state: Mutex::default() }))
    }

    /// A replica with these bytes, on disk, in place of any that the file has.
    pub fn put(&self, file: FileId, birth: Birth, data: impl Into<Bytes>) {
        let mut content = SparseBytes::default();
        content.write(0, data.into());
        let replica = Replica { birth, on_disk: Some(content.clone()), content, modified: self.now() };
        let mut state = self.state();
        state.removed.remove(&file);
        state.unsynced_removals.remove(&file);
        state.replicas.insert(file, Arc::new(Mutex::new(replica)));
    }

    /// Opens a replica to read and write, as the head does for a file without data.
    pub fn writer(&self, file: FileId) -> Arc<dyn OpenReplica> {
        let epoch = self.state().fences.get(&file).copied().unwrap_or_default();
        let (pool, mode, presence) = (self.0.id, TicketMode::ReadWrite, Presence::Unmade);
        let ticket =
            Ticket { file, birth: Birth::UNKNOWN, pool, mode, epoch, presence, io: types::IoMode::Auto };
        Arc::new(MemoryReplica::new(self.clone(), ticket))
    }

    /// From now on writers of these files contend, and of no others.
    pub fn set_contended(&self, files: &[FileId]) {
        self.state().contended = files.to_vec();
    }

    /// The descriptions that the pool keeps, by id.
    pub fn descriptions(&self) -> Vec<Description> {
        self.state().descriptions.values().cloned().collect()
    }

    /// Ends the pool in order and starts it again.
    pub fn restart(&self) {
        let mut state = self.state();
        for replica in state.replicas.values() {
            lock(replica).sync();
        }
        state.unsynced_removals.clear();
        state.start += 1;
    }

    /// Forgets every file that it ever had.
    pub fn clear(&self) {
        let mut state = self.state();
        *state = State { start: state.start, ..State::default() };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    fn now(&self) -> Option<Timestamp> {
        self.0.clock.as_ref().map(|clock| clock.now())
    }

    fn verifier(&self) -> Verifier {
        self.0.verifier(&self.state())
    }
}

impl Crash for MemoryPool {
    /// Bytes, names and removals that no sync has covered are gone, and the verifier changes. Open replicas go on with what
    /// is left, as over a connection that is made again.
    fn crash(&self) {
        let mut state = self.state();
        for (file, replica) in std::mem::take(&mut state.unsynced_removals) {
            state.removed.remove(&file);
            state.replicas.insert(file, replica);
        }
        state.replicas.retain(|_, replica| lock(replica).lose_unsynced());
        state.start += 1;
    }
}

impl PoolParts {
    fn verifier(&self, state: &State) -> Verifier {
        let mut verifier = [0; 8];
        verifier[..4].copy_from_slice(&self.id.0.to_be_bytes());
        verifier[4..].copy_from_slice(&state.start.to_be_bytes());
        Verifier(verifier)
    }

    fn free_bytes(&self, state: &State) -> u64 {
        let used: u64 = state.replicas.values().map(|replica| lock(replica).content.space_used()).sum();
        self.limits.capacity_bytes.saturating_sub(used)
    }

    /// Bytes of another file, or of none, in place of the file's own.
    fn lost(&self, reason: &str) -> PoolError {
        let operation = "find the data of the file";
        PoolError::Io { pool: self.id, operation, reason: reason.to_owned() }
    }

    fn check_birth(&self, replica: &Replica, birth: Birth) -> Result<(), PoolError> {
        if replica.birth.agrees_with(birth) {
            return Ok(());
        }
        Err(self.lost("its replica is that of another file, which was made at another time"))
    }

    fn check_not_removed(&self, state: &State, file: FileId) -> Result<(), PoolError> {
        if state.removed.contains(&file) { Err(PoolError::NoReplica(self.id)) } else { Ok(()) }
    }
}

impl State {
    /// The replica of a file that is not removed, made if it does not exist.
    fn make(&mut self, file: FileId, birth: Birth) -> &ReplicaCell {
        let replica = self.replicas.entry(file).or_default();
        lock(replica).learn_birth(birth);
        replica
    }

    fn facts(&self, file: FileId) -> Option<ReplicaFacts> {
        self.replicas.get(&file).map(|replica| lock(replica).facts(file))
    }
}

impl Replica {
    fn learn_birth(&mut self, birth: Birth) {
        if self.birth == Birth::UNKNOWN {
            self.birth = birth;
        }
    }

    fn sync(&mut self) {
        self.on_disk = Some(self.content.clone());
    }

    /// Whether there is still a replica.
    fn lose_unsynced(&mut self) -> bool {
        self.content = self.on_disk.clone().unwrap_or_default();
        self.on_disk.is_some()
    }

    fn facts(&self, file: FileId) -> ReplicaFacts {
        ReplicaFacts {
            file,
            birth: self.birth,
            size: self.content.size(),
            space_used: self.content.space_used(),
            modified: self.modified,
        }
    }
}

/// About one file of a batch.
impl MemoryPool {
    fn make_one(&self, file: FileId, birth: Birth) -> Result<(), PoolError> {
        let mut state = self.state();
        self.0.check_not_removed(&state, file)?;
        if let Some(replica) = state.replicas.get(&file) {
            self.0.check_birth(&lock(replica), birth)?;
        }
        state.make(file, birth);
        Ok(())
    }

    fn truncate_one(&self, file: FileId, size: u64) -> Result<ReplicaFacts, PoolError> {
        if size > self.0.limits.replica_bytes_max {
            return Err(PoolError::TooLarge);
        }
        let mut state = self.state();
        self.0.check_not_removed(&state, file)?;
        if size == 0 && !state.replicas.contains_key(&file) {
            return Ok(Replica::default().facts(file));
        }
        let mut replica = lock(state.make(file, Birth::UNKNOWN));
        if replica.content.size() != size {
            replica.modified = self.now();
        }
        replica.content.set_size(size);
        replica.sync();
        Ok(replica.facts(file))
    }

    fn remove_one(&self, file: FileId) {
        let mut state = self.state();
        state.removed.insert(file);
        state.fences.remove(&file);
        state.descriptions.remove(&file);
        if let Some(replica) = state.replicas.remove(&file)
            && lock(&replica).on_disk.is_some()
        {
            state.unsynced_removals.insert(file, replica);
        }
    }

    fn fence_one(&self, file: FileId, epoch: Epoch) {
        let mut state = self.state();
        if !state.removed.contains(&file) {
            let fence = state.fences.entry(file).or_default();
            *fence = epoch.max(*fence);
        }
    }
}

#[async_trait]
impl Pool for MemoryPool {
    fn id(&self) -> PoolId {
        self.0.id
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        if ticket.pool != self.0.id {
            return Err(PoolError::NoReplica(self.0.id));
        }
        if (ticket.mode, ticket.presence) == (TicketMode::ReadWrite, Presence::Filling) {
            self.state().removed.remove(&ticket.file);
        }
        let replica = MemoryReplica::new(self.clone(), *ticket);
        replica.check_opened()?;
        Ok(Arc::new(replica))
    }

    async fn make(&self, files: &[(FileId, Birth)], _within: Duration) -> Answers<()> {
        files.iter().map(|(file, birth)| self.make_one(*file, *birth)).collect()
    }

    async fn truncate(&self, files: &[(FileId, u64)], _within: Duration) -> Answers<ReplicaFacts> {
        files.iter().map(|(file, size)| self.truncate_one(*file, *size)).collect()
    }

    async fn remove(&self, files: &[FileId], _within: Duration) -> Answers<()> {
        files.iter().map(|file| self.remove_one(*file)).map(Ok).collect()
    }

    async fn sync_removals(&self, files: &[FileId], _within: Duration) -> Result<(), PoolError> {
        let mut state = self.state();
        state.unsynced_removals.retain(|file, _| !files.contains(file));
        match files.iter().any(|file| state.replicas.contains_key(file)) {
            true => Err(self.0.lost("a replica is there again after its removal")),
            false => Ok(()),
        }
    }

    async fn fence(&self, files: &[(FileId, Epoch)], _within: Duration) -> Answers<()> {
        files.iter().map(|(file, epoch)| self.fence_one(*file, *epoch)).map(Ok).collect()
    }

    async fn facts(&self, files: &[FileId], _within: Duration) -> Answers<Option<ReplicaFacts>> {
        let state = self.state();
        files.iter().map(|file| Ok(state.facts(*file))).collect()
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        let state = self.state();
        let listed = state.replicas.range(FileId(after.0.saturating_add(1))..).take(limit);
        Ok(listed
            .map(|(file, replica)| ReplicaFacts { modified: None, ..lock(replica).facts(*file) })
            .collect())
    }

    async fn describe(
        &self,
        after: FileId,
        through: FileId,
        files: Vec<Description>,
    ) -> Result<(), PoolError> {
        let descriptions = &mut self.state().descriptions;
        descriptions.retain(|file, _| *file <= after || *file > through);
        descriptions.extend(files.into_iter().map(|description| (description.file, description)));
        Ok(())
    }

    fn status(&self) -> PoolStatus {
        let state = self.state();
        let (replicas, counts) = (state.replicas.len() as u64, &state.counts);
        PoolStatus {
            id: self.0.id,
            offline: None,
            is_away: false,
            read_only: None,
            total_bytes: self.0.limits.capacity_bytes,
            free_bytes: self.0.free_bytes(&state),
            total_files: FILES_MAX,
            free_files: FILES_MAX.saturating_sub(replicas),
            replicas,
            read_bytes: counts.read_bytes,
            written_bytes: counts.written_bytes,
            reads: counts.reads,
            writes: counts.writes,
            syncs: counts.syncs,
            contended: state.contended.clone(),
            made_through: None,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics while it holds the lock")
}
