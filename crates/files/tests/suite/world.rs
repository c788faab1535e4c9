//! Two pools of one kind under the files, and the judgement of what an operation left.

use std::sync::Arc;

use api::{
    CreateKind, CreateMode, CreateSpec, FileLocations, Locations, Namespace, Pool, SetAttributes, Stability,
};
use bytes::Bytes;
use forebay_files::{ContentMode, FilesError, PunctualPool};
use pool::LocalPool;
use testkit::channel::ChannelPool;
use testkit::clock::ManualClock;
use testkit::faulty::{Faulty, Schedule};
use testkit::memory_pool::MemoryPool;
use types::{Attributes, FileId, PoolId, Random};

use crate::scene::{LONG, POOL, Scene, Store, name};

/// The second pool. New files go to the first.
pub const OTHER: PoolId = PoolId(POOL.0 + 1);

pub type World = Scene<Pools>;

/// A pool, as the binary has it: each answer has a deadline.
pub struct TestPool {
    pub pool: Arc<dyn Pool>,
    /// Of the faults that it meets, if it can.
    schedule: Option<Schedule>,
    /// It can lose the bytes that no sync has covered.
    pub can_crash: bool,
    _directory: Option<tempfile::TempDir>,
}

pub struct Pools {
    pub first: TestPool,
    pub second: TestPool,
}

impl TestPool {
    fn of(pool: Arc<dyn Pool>) -> TestPool {
        let pool = Arc::new(PunctualPool::new(pool));
        TestPool { pool, schedule: None, can_crash: false, _directory: None }
    }

    pub fn schedule(&self) -> &Schedule {
        self.schedule.as_ref().expect("only pools that are faulty meet faults")
    }
}

pub fn memory(id: PoolId) -> TestPool {
    TestPool::of(Arc::new(MemoryPool::new(id)))
}

pub fn local(id: PoolId) -> TestPool {
    let (directory, pool) = open_local(id);
    TestPool { _directory: Some(directory), ..TestPool::of(pool) }
}

pub fn channelled(id: PoolId) -> TestPool {
    let (directory, pool) = open_local(id);
    TestPool { _directory: Some(directory), ..TestPool::of(Arc::new(ChannelPool::around(pool))) }
}

pub fn faulty_memory(id: PoolId) -> TestPool {
    let pool = Faulty::new(MemoryPool::new(id));
    let schedule = Some(pool.schedule().clone());
    TestPool { schedule, can_crash: true, ..TestPool::of(Arc::new(pool)) }
}

pub fn faulty_local(id: PoolId) -> TestPool {
    let (directory, pool) = open_local(id);
    let pool = Faulty::around(pool);
    let schedule = Some(pool.schedule().clone());
    TestPool { schedule, _directory: Some(directory), ..TestPool::of(Arc::new(pool)) }
}

pub fn faulty_channelled(id: PoolId) -> TestPool {
    let (directory, pool) = open_local(id);
    let pool = Faulty::around(Arc::new(ChannelPool::around(pool)));
    let schedule = Some(pool.schedule().clone());
    TestPool { schedule, _directory: Some(directory), ..TestPool::of(Arc::new(pool)) }
}

/// With the faults on the far side of the channel.
pub fn channelled_faulty(id: PoolId) -> TestPool {
    let pool = Faulty::new(MemoryPool::new(id));
    let schedule = Some(pool.schedule().clone());
    let pool = ChannelPool::around(Arc::new(pool));
    TestPool { schedule, can_crash: true, ..TestPool::of(Arc::new(pool)) }
}

fn open_local(id: PoolId) -> (tempfile::TempDir, Arc<LocalPool>) {
    let directory = tempfile::tempdir().unwrap();
    let config = pool::Config {
        id,
        dir: directory.path().to_owned(),
        instance: [7; 16],
        reserve_bytes: 0,
        reserve_files: 0,
        open_files_max: 64,
        queue_len_max: 1024,
        threads: 2,
        io: pool::IoPolicy::default(),
        contention: pool::ContentionThresholds::default(),
        journal: pool::JournalPlace::Off,
        gather: pool::GatherPolicy::default(),
        digests: vec![types::ChecksumKind::Adler32],
        random: Arc::new(Numbers),
    };
    let pool = LocalPool::open(config).unwrap();
    (directory, pool)
}

/// A new verifier for each start.
struct Numbers;

impl Random for Numbers {
    fn fill(&self, bytes: &mut [u8]) {
        static NEXT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
        bytes.fill(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    }
}

impl Scene<Pools> {
    pub async fn set(store: impl FnOnce(&Arc<ManualClock>) -> Store, pool: fn(PoolId) -> TestPool) -> World {
        let pools = Pools { first: pool(POOL), second: pool(OTHER) };
        let both = [&pools.first, &pools.second].map(|pool| Arc::clone(&pool.pool));
        Scene::over(store, pools, both).await
    }

    /// A file of these bytes in the directory, on disk.
    pub async fn make(&self, text: &str, pool: PoolId, bytes: impl Into<Bytes>) -> Attributes {
        let file = self.make_empty(text, pool).await;
        let (who, bytes) = (&self.caller.identity, bytes.into());
        self.files.write(who, &file, (0, bytes), Stability::FileSync, None).await.unwrap();
        self.attributes(file.file).await
    }

    pub async fn make_empty(&self, text: &str, pool: PoolId) -> Attributes {
        let spec = CreateSpec { location: Some(pool), ..spec(CreateMode::Guarded) };
        let made = self.namespace.create(&self.caller.identity, self.dir, &name(text), &spec).await;
        made.unwrap().attributes
    }

    pub async fn attributes(&self, file: FileId) -> Attributes {
        self.files.attributes(file).await.unwrap()
    }

    /// All bytes that the file has now.
    pub async fn read(&self, file: FileId) -> Result<Vec<u8>, FilesError> {
        let file = self.files.attributes(file).await?;
        let content = self.files.content(&file, ContentMode::Read).await?;
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < file.size {
            let read = content.read(bytes.len() as u64, 1 << 20).await?;
            assert!(!read.data.is_empty(), "a read within the file answers a byte at least");
            bytes.extend_from_slice(&read.data);
        }
        Ok(bytes)
    }

    /// Nobody holds anything, the namespace agrees with itself, and each replica is that of a file which is noted to be
    /// there.
    pub async fn judge(&self, context: &str) {
        self.files.all_seen().await;
        assert!(self.files.table().is_empty(), "{context}: {:?}", self.files.table());
        assert!(self.files.births_settled(LONG).await, "{context}");
        assert_eq!(self.namespace.check().unwrap(), [], "{context}");
        let mut known = self.namespace.files(FileId(0), 1_000).await.unwrap();
        known.extend(self.namespace.orphans(FileId(0), 1_000).await.unwrap());
        for at in [&self.pool.first.pool, &self.pool.second.pool] {
            for replica in at.replicas(FileId(0), 1_000).await.unwrap() {
                let is_it = |file: &FileLocations| {
                    file.attributes.file == replica.file
                        && file.locality.good_pools().any(|pool| pool == at.id())
                };
                assert!(known.iter().any(is_it), "{context}: {replica:?}");
            }
        }
    }

    /// As [`World::judge`], and the reaper takes what is without a name, with its replicas.
    pub async fn judge_and_reap(&self, context: &str) {
        self.judge(context).await;
        let left = self.namespace.orphans(FileId(0), 1_000).await.unwrap();
        for at in [&self.pool.first.pool, &self.pool.second.pool] {
            let files: Vec<FileId> = left.iter().map(|left| left.attributes.file).collect();
            for removed in at.remove(&files, LONG).await {
                removed.unwrap();
            }
            at.sync_removals(&files, LONG).await.unwrap();
        }
        assert_eq!(self.reap().await.len(), left.len(), "{context}: nobody holds them");
        assert_eq!(self.orphans().await, [], "{context}");
        self.judge(context).await;
    }
}

/// Of a regular file without a place.
pub fn spec(mode: CreateMode) -> CreateSpec {
    let set = SetAttributes::default();
    CreateSpec { kind: CreateKind::Regular, mode, permissions: 0o644, umask: None, set, location: None }
}

/// So many bytes, of which no two pieces of less than 251 are alike.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}
