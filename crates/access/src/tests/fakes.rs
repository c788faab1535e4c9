//! A namespace, a pool and a recaller that remember what they were asked.

use std::collections::BTreeMap;
use std::sync::Weak;

use api::{
    Account, Acls, ClientReport, Cookie, Counted, CreateSpec, Created, FileLocations, Grant, IoHandle,
    Linked, Locality, NamespaceError, OpenReplica, Page, Pool, PoolError, PoolStatus, Property,
    PropertyChange, Quota, ReadData, Renamed, Replace, ReplicaFacts, ReplicaRef, SelectError, Selection,
    SetAttributes, Stability, Standing, Ticket, Unlinked, Usage, Verifier, Written,
};
use async_trait::async_trait;
use bytes::Bytes;
use types::{Acl, Attributes, Checksum, Epoch, FileKind, Identity, Name, PoolId, SymlinkTarget, Timestamp};

use super::*;

pub const POOL: PoolId = PoolId(3);

pub fn attributes(file: FileId, size: u64) -> Attributes {
    Attributes {
        file,
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 0,
        gid: 0,
        nlink: 1,
        size,
        space_used: 0,
        atime: at(100),
        mtime: at(100),
        ctime: at(100),
        birth: at(100),
        change: 1,
        epoch: Epoch(4),
        has_acl: false,
    }
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::new(seconds, 0).unwrap()
}

/// All services in one; `FILE` is there, of 10 bytes, on `POOL`.
pub struct Fakes {
    pub files: Mutex<BTreeMap<FileId, Attributes>>,
    pub locations: Mutex<BTreeMap<FileId, Vec<PoolId>>>,
    /// Where the data of every file is, in place of `locations`.
    pub spoilt: Mutex<Option<Locality>>,
    /// Pools among which one was to be selected.
    pub selected: Mutex<Vec<Vec<PoolId>>>,
    pub recorded_writes: Mutex<Vec<Written>>,
    /// The file loses its name after so many looks at it.
    pub looks_until_unlinked: Mutex<Option<u32>>,
    pub pool: Arc<FakePool>,
    pub has_pool: Mutex<bool>,
    pub room: Mutex<Option<u64>>,
}

impl Fakes {
    pub fn access() -> (Arc<Fakes>, Arc<FileAccess>) {
        let fakes = Arc::new(Fakes {
            files: Mutex::new(BTreeMap::from([(FILE, attributes(FILE, 10))])),
            locations: Mutex::new(BTreeMap::from([(FILE, vec![POOL])])),
            spoilt: Mutex::new(None),
            selected: Mutex::default(),
            recorded_writes: Mutex::default(),
            looks_until_unlinked: Mutex::default(),
            pool: Arc::default(),
            has_pool: Mutex::new(true),
            room: Mutex::default(),
        });
        let access = FileAccess::new(AccessServices {
            namespace: fakes.clone(),
            acls: fakes.clone(),
            locations: fakes.clone(),
            properties: fakes.clone(),
            quotas: fakes.clone(),
            pools: fakes.clone(),
            clock: Arc::new(StoppedClock),
            recall_time: LEASE,
        });
        (fakes, Arc::new(access))
    }
}

pub struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Timestamp {
        at(1_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(5)
    }
}

const NOT_ASKED: NamespaceError = NamespaceError::NotFound;

#[async_trait]
impl Acls for Fakes {
    async fn acl(&self, _: &Attributes) -> Result<Option<Acl>, NamespaceError> {
        Ok(None)
    }
}

#[async_trait]
impl Namespace for Fakes {
    async fn attributes(&self, file: FileId) -> Result<Attributes, NamespaceError> {
        let mut files = self.files.lock();
        let known = files.get_mut(&file).ok_or(NamespaceError::Stale(file))?;
        match &mut *self.looks_until_unlinked.lock() {
            Some(0) => known.nlink = 0,
            Some(looks) => *looks -= 1,
            None => {}
        }
        Ok(*known)
    }

    async fn record_write(&self, file: FileId, written: &Written) -> Result<Attributes, NamespaceError> {
        self.recorded_writes.lock().push(*written);
        let mut files = self.files.lock();
        let known = files.get_mut(&file).ok_or(NamespaceError::Stale(file))?;
        known.size = known.size.max(written.size_at_least.unwrap_or(0));
        known.change += 1;
        Ok(*known)
    }

    async fn lookup(&self, _: &Identity, _: FileId, _: &Name) -> Result<Attributes, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn parent(&self, _: &Identity, _: FileId) -> Result<Attributes, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn set_attributes(
        &self,
        _: &Identity,
        _: FileId,
        _: &SetAttributes,
    ) -> Result<Attributes, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn create(
        &self,
        _: &Identity,
        _: FileId,
        _: &Name,
        _: &CreateSpec,
    ) -> Result<Created, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn link(&self, _: &Identity, _: FileId, _: FileId, _: &Name) -> Result<Linked, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn unlink(&self, _: &Identity, _: FileId, _: &Name) -> Result<Unlinked, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn rename(
        &self,
        _: &Identity,
        _: (FileId, &Name),
        _: (FileId, &Name),
        _: Replace,
    ) -> Result<Renamed, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn list(&self, _: &Identity, _: FileId, _: Cookie, _: usize) -> Result<Page, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn read_link(&self, _: FileId) -> Result<SymlinkTarget, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn usage(&self) -> Result<Usage, NamespaceError> {
        Err(NOT_ASKED)
    }
}

/// Nobody is bounded, but by `room`.
#[async_trait]
impl Quotas for Fakes {
    async fn counted(&self, _account: Account) -> Result<Counted, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn quotas(&self) -> Result<Vec<Standing>, NamespaceError> {
        Ok(Vec::new())
    }
    async fn standing(&self, _account: Account) -> Result<Option<Standing>, NamespaceError> {
        Ok(None)
    }
    async fn set_quota(&self, _account: Account, _quota: Option<Quota>) -> Result<(), NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn room(&self, _who: &Identity, _file: FileId) -> Result<Option<u64>, NamespaceError> {
        Ok(*self.room.lock())
    }
    async fn tree(&self, _file: FileId) -> Result<Option<Standing>, NamespaceError> {
        Ok(None)
    }
}

#[async_trait]
impl Properties for Fakes {
    async fn properties(&self, _file: FileId) -> Result<Vec<Property>, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn set_properties(
        &self,
        _who: &Identity,
        _file: FileId,
        _changes: &[PropertyChange],
    ) -> Result<Attributes, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn checksums(&self, _file: FileId) -> Result<Vec<Checksum>, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn record_checksums(
        &self,
        _file: FileId,
        _of_change: u64,
        _checksums: &[Checksum],
    ) -> Result<bool, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn forget_checksums(&self, _file: FileId) -> Result<(), NamespaceError> {
        Ok(())
    }
}

#[async_trait]
impl Locations for Fakes {
    async fn settle(&self) -> Result<(), NamespaceError> {
        Ok(())
    }

    async fn locality(&self, file: FileId) -> Result<Locality, NamespaceError> {
        let known = self.locations.lock().get(&file).cloned().unwrap_or_default();
        let good: Arc<[_]> = known.into_iter().map(|pool| ReplicaRef::good(pool, Timestamp::EPOCH)).collect();
        let spoilt = self.spoilt.lock().clone();
        Ok(spoilt.unwrap_or(if good.is_empty() { Locality::Empty } else { Locality::Replicas(good) }))
    }
    async fn add_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
        // Others get their turn meanwhile, as they do while a database writes.
        tokio::task::yield_now().await;
        self.locations.lock().entry(file).or_default().push(pool);
        Ok(())
    }
    async fn drop_location(&self, _: FileId, _: PoolId) -> Result<(), NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn raise_epoch(&self, _: FileId) -> Result<Epoch, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn orphans(&self, _: FileId, _: usize) -> Result<Vec<FileLocations>, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn forget(&self, _: &[FileId]) -> Result<(), NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn files(&self, _: FileId, _: usize) -> Result<Vec<FileLocations>, NamespaceError> {
        Err(NOT_ASKED)
    }
}

impl PoolManager for Fakes {
    fn select(&self, want: &Selection<'_>) -> Result<Grant, SelectError> {
        self.selected.lock().push(want.locations.to_vec());
        Ok(Grant { pool: POOL })
    }
    fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>> {
        (*self.has_pool.lock() && id == POOL).then(|| self.pool.clone() as Arc<dyn Pool>)
    }
    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }
    fn report(&self, _: &ClientReport) {}
}

#[derive(Default)]
pub struct FakePool {
    pub facts: Mutex<Option<ReplicaFacts>>,
    pub is_offline: Mutex<bool>,
    pub asked: AtomicU64,
    pub opened: Mutex<Vec<Ticket>>,
    pub truncated: Mutex<Vec<u64>>,
    pub made: Mutex<Vec<FileId>>,
}

impl FakePool {
    fn judge(&self) -> Result<(), PoolError> {
        if *self.is_offline.lock() { Err(PoolError::Offline(POOL)) } else { Ok(()) }
    }
}

#[async_trait]
impl Pool for FakePool {
    fn id(&self) -> PoolId {
        POOL
    }
    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        self.judge()?;
        self.opened.lock().push(*ticket);
        Ok(Arc::new(FakeReplica))
    }
    async fn make(&self, file: FileId, _: api::Birth) -> Result<(), PoolError> {
        self.judge()?;
        self.made.lock().push(file);
        Ok(())
    }

    async fn truncate(&self, file: FileId, size: u64) -> Result<ReplicaFacts, PoolError> {
        self.judge()?;
        self.truncated.lock().push(size);
        Ok(ReplicaFacts { file, birth: api::Birth::UNKNOWN, size, space_used: size * 2, modified: None })
    }
    async fn remove(&self, _: FileId) -> Result<(), PoolError> {
        self.judge()
    }
    async fn fence(&self, _: FileId, _: Epoch) -> Result<(), PoolError> {
        self.judge()
    }
    async fn facts(&self, _: FileId) -> Result<Option<ReplicaFacts>, PoolError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.judge()?;
        Ok(*self.facts.lock())
    }
    async fn replicas(&self, _: FileId, _: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        Ok(Vec::new())
    }
    fn status(&self) -> PoolStatus {
        panic!("nobody asks for it")
    }
}

struct FakeReplica;

impl OpenReplica for FakeReplica {
    fn read_at(&self, _: u64, _: u32) -> IoHandle<ReadData> {
        IoHandle::ready(Err(PoolError::Offline(POOL)))
    }
    fn write_at(&self, _: u64, _: Bytes, _: Stability) -> IoHandle<Stability> {
        IoHandle::ready(Err(PoolError::Offline(POOL)))
    }
    fn sync(&self) -> IoHandle<Verifier> {
        IoHandle::ready(Err(PoolError::Offline(POOL)))
    }
    fn verifier(&self) -> Verifier {
        Verifier([0; 8])
    }
}

/// A door whose clients give back at once, or never.
pub struct FakeRecaller {
    access: Weak<FileAccess>,
    gives_back: bool,
    pub recalled: Mutex<Vec<Recall>>,
    /// Holders that were asked for their unsent writes, and the answer of each.
    pub asked: Mutex<Vec<Holder>>,
    pub told: Mutex<Option<Told>>,
    /// Holders that can be dislodged, and whether they are gone at once.
    pub lost: Mutex<Vec<Holder>>,
    pub goes_at_once: bool,
}

impl FakeRecaller {
    pub fn register(access: &Arc<FileAccess>, door: Door, gives_back: bool) -> Arc<FakeRecaller> {
        FakeRecaller::register_with(access, door, gives_back, &[], false)
    }

    /// These clients were lost.
    pub fn register_with(
        access: &Arc<FileAccess>,
        door: Door,
        gives_back: bool,
        lost: &[Holder],
        goes_at_once: bool,
    ) -> Arc<FakeRecaller> {
        let recaller = Arc::new(FakeRecaller {
            access: Arc::downgrade(access),
            gives_back,
            recalled: Mutex::default(),
            asked: Mutex::default(),
            told: Mutex::default(),
            lost: Mutex::new(lost.to_vec()),
            goes_at_once,
        });
        access.register(door, recaller.clone());
        recaller
    }

    /// Releases the state of a lost client.
    pub fn release(&self, holder: Holder) {
        let access = self.access.upgrade().unwrap();
        access.table().release_holder(holder);
        access.returned();
    }

    pub fn holders(&self) -> Vec<Holder> {
        self.recalled.lock().iter().map(|recall| recall.holder).collect()
    }
}

#[async_trait]
impl Recaller for FakeRecaller {
    async fn ask_writer(&self, _: FileId, writer: Holder, _: Duration) -> Option<Told> {
        // Deadlocks if the table is still held.
        let access = self.access.upgrade().unwrap();
        assert!(access.table().holders().any(|holder| holder == writer));
        self.asked.lock().push(writer);
        // So that an answer takes some time.
        tokio::time::sleep(Duration::from_millis(1)).await;
        *self.told.lock()
    }

    fn recall(&self, recalls: &[Recall]) {
        self.recalled.lock().extend(recalls);
        let access = self.access.upgrade().unwrap();
        for recall in recalls.iter().filter(|_| self.gives_back) {
            // Deadlocks if the table is still held.
            match recall.granted {
                Granted::Layout(_) => given_back(&access, recall.holder),
                Granted::Delegation(_) => {
                    access.table().return_delegation(recall.file, recall.holder);
                    access.returned();
                }
            }
        }
    }

    async fn void_former(&self, _: FileId) -> bool {
        true
    }

    fn dislodge(&self, holders: &[Holder]) -> bool {
        let going: Vec<Holder> = {
            let lost = self.lost.lock();
            holders.iter().filter(|holder| lost.contains(holder)).copied().collect()
        };
        if self.goes_at_once {
            going.iter().for_each(|holder| self.release(*holder));
        }
        !going.is_empty()
    }
}
