//! A namespace that remembers what it was asked, and a pool in memory.

use std::collections::BTreeMap;

use api::{
    Account, Acls, Birth, Cookie, Counted, CreateSpec, Created, ExpectedEnds, ExpectedFile, FileLocations,
    Found, Linked, ListedXattr, Locality, NamespaceError, Page, Pool, Property, PropertyChange, Publish,
    Published, Quota, Renamed, Replace, ReplicaRef, SetAttributes, SetXattr, Standing, Unlinked, Unnamed,
    Usage, Written,
};
use async_trait::async_trait;
use bytes::Bytes;
use testkit::clock::ManualClock;
use testkit::faulty::{Faulty, Request};
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use types::{
    Acl, Attributes, ChangeInfo, Checksum, Epoch, FileKind, Identity, Name, PoolId, SymlinkTarget, Timestamp,
    XattrName,
};

use super::*;

pub use super::scene::{FakeRecaller, POOL};

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
        io: types::IoMode::Auto,
    }
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::new(seconds, 0).unwrap()
}

/// A namespace that has `FILE`, of 10 bytes, on `POOL`, and that pool, where its replica is missing.
pub struct Fakes {
    pub files: Mutex<BTreeMap<FileId, Attributes>>,
    pub locations: Arc<Mutex<BTreeMap<FileId, Vec<PoolId>>>>,
    /// Where the data of every file is, in place of `locations`.
    pub spoilt: Mutex<Option<Locality>>,
    pub recorded_writes: Mutex<Vec<Written>>,
    /// The last one of each file.
    pub checksums: Mutex<BTreeMap<FileId, Checksum>>,
    /// The file loses its name after so many looks at it.
    pub looks_until_unlinked: Mutex<Option<u32>>,
    pub room: Mutex<Option<u64>>,
    pub removals_tried: Mutex<usize>,
    pub pool: Arc<Faulty<MemoryPool>>,
    pub pools: Arc<MemoryPools>,
    pub clock: Arc<ManualClock>,
    pool_clock: Arc<ManualClock>,
}

impl Fakes {
    pub fn files() -> (Arc<Fakes>, Arc<Files>) {
        Fakes::files_over(|fakes| fakes)
    }

    /// With another namespace than the fake one.
    pub fn files_over(namespace: impl FnOnce(Arc<Fakes>) -> Arc<dyn Namespace>) -> (Arc<Fakes>, Arc<Files>) {
        let pool_clock = Arc::new(ManualClock::new(100));
        let pool = Arc::new(Faulty::new(MemoryPool::with_clock(POOL, pool_clock.clone())));
        let fakes = Arc::new(Fakes {
            files: Mutex::new(BTreeMap::from([(FILE, attributes(FILE, 10))])),
            locations: Arc::new(Mutex::new(BTreeMap::from([(FILE, vec![POOL])]))),
            spoilt: Mutex::new(None),
            recorded_writes: Mutex::default(),
            checksums: Mutex::default(),
            looks_until_unlinked: Mutex::default(),
            room: Mutex::default(),
            removals_tried: Mutex::default(),
            pools: Arc::new(MemoryPools::of([pool.clone() as Arc<dyn Pool>])),
            pool,
            clock: Arc::new(ManualClock::new(1_000)),
            pool_clock,
        });
        let files = Files::new(FilesServices {
            namespace: namespace(fakes.clone()),
            acls: fakes.clone(),
            locations: fakes.clone(),
            properties: fakes.clone(),
            xattrs: fakes.clone(),
            quotas: fakes.clone(),
            uploads: fakes.clone(),
            pools: fakes.pools.clone(),
            clock: fakes.clock.clone(),
            recall_time: LEASE,
        });
        assert_eq!((files.register("one"), files.register("other")), (Ok(DOOR), Ok(OTHER_DOOR)));
        (fakes, Arc::new(files))
    }

    /// The pool has a replica of `FILE` that was written then.
    pub fn put_replica(&self, birth: Birth, size: usize, modified_s: i64) {
        self.pool_clock.set(modified_s);
        self.pool.pool().put(FILE, birth, vec![7; size]);
    }

    /// Of the calls of the pool that were made, those that `of` gives something for.
    pub fn asked<T>(&self, of: impl Fn(Request) -> Option<T>) -> Vec<T> {
        self.pool.schedule().passed().into_iter().filter_map(of).collect()
    }

    /// The sizes to which replicas were truncated.
    pub fn truncated(&self) -> Vec<u64> {
        self.asked(|request| match request {
            Request::Truncate(_, size) => Some(size),
            _ => None,
        })
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

    async fn lookup(&self, _: &Identity, _: FileId, _: &Name) -> Result<Found, NamespaceError> {
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
    async fn unlink(
        &self,
        _: &Identity,
        _: FileId,
        _: &Name,
        _: ExpectedFile,
    ) -> Result<Unlinked, NamespaceError> {
        // Another file has the name each time.
        *self.removals_tried.lock() += 1;
        Err(NamespaceError::Moved)
    }
    async fn rename(
        &self,
        _: &Identity,
        _: (FileId, &Name),
        _: (FileId, &Name),
        _: Replace,
        _: ExpectedEnds,
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
    fn are_any(&self) -> bool {
        self.room.lock().is_some()
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
    async fn checksums(&self, file: FileId) -> Result<Vec<Checksum>, NamespaceError> {
        Ok(self.checksums.lock().get(&file).copied().into_iter().collect())
    }
    async fn record_checksums(
        &self,
        file: FileId,
        of_change: u64,
        checksums: &[Checksum],
    ) -> Result<bool, NamespaceError> {
        let is_same = self.files.lock()[&file].change == of_change;
        if is_same {
            self.checksums.lock().extend(checksums.iter().map(|sum| (file, *sum)));
        }
        Ok(is_same)
    }
    async fn forget_checksums(&self, _file: FileId) -> Result<(), NamespaceError> {
        Ok(())
    }
}

#[async_trait]
impl Xattrs for Fakes {
    async fn xattr(&self, _: &Identity, _: FileId, _: &XattrName) -> Result<Bytes, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn xattrs(&self, _: &Identity, _: FileId, _: Cookie) -> Result<Vec<ListedXattr>, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn set_xattr(
        &self,
        _: &Identity,
        _: FileId,
        _: &XattrName,
        _: &Bytes,
        _: SetXattr,
    ) -> Result<ChangeInfo, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn remove_xattr(
        &self,
        _: &Identity,
        _: FileId,
        _: &XattrName,
    ) -> Result<ChangeInfo, NamespaceError> {
        Err(NOT_ASKED)
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
        let locations = Arc::clone(&self.locations);
        // Others get their turn meanwhile, as they do while a database writes, which it does also for a caller that is
        // gone.
        let added = tokio::spawn(async move { locations.lock().entry(file).or_default().push(pool) });
        added.await.expect("it does not panic");
        Ok(())
    }
    async fn drop_location(&self, _: FileId, _: PoolId) -> Result<(), NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn begin_filling(&self, _: FileId, _: PoolId) -> Result<Attributes, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn replace_location(
        &self,
        _: FileId,
        _: PoolId,
        _: PoolId,
        _: u64,
    ) -> Result<Attributes, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn unsettled(&self, _: FileId, _: usize) -> Result<Vec<FileLocations>, NamespaceError> {
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

#[async_trait]
impl Uploads for Fakes {
    async fn create_unnamed(
        &self,
        _: &Identity,
        _: FileId,
        _: &Unnamed,
    ) -> Result<Attributes, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn publish(
        &self,
        _: &Identity,
        _: FileId,
        _: FileId,
        _: &Name,
        _: &Publish,
    ) -> Result<Published, NamespaceError> {
        Err(NOT_ASKED)
    }
    async fn exchange(
        &self,
        _: &Identity,
        _: FileId,
        _: &Name,
        _: (&Name, FileId),
    ) -> Result<(), NamespaceError> {
        Err(NOT_ASKED)
    }
}
