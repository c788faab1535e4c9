//! A directory in a namespace, pools, the files over both, and the clients of two doors: what all tests of this crate stand
//! on, those beside the code included.

// Each test takes what it needs.
#![allow(dead_code, unused_imports)]

mod recaller;
mod store;
mod uploads;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use api::{
    Caller, CreateKind, CreateMode, CreateSpec, ExpectedEnds, Locations, Namespace, Pool, Replace,
    SetAttributes,
};
use file_state::Holder;
use forebay_files::{By, Change, Door, Files, FilesServices};
use namespace::SqlNamespace;
use testkit::clock::ManualClock;
use testkit::faulty::Faulty;
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use testkit::watched_namespace::WatchedNamespace;
use tokio::sync::RwLock;
use types::{Attributes, FileId, Identity, Name, PoolId};

pub use recaller::FakeRecaller;
pub use store::{Store, postgres, sqlite};
pub use uploads::{Rules, give_name};

/// In the order of their registration.
pub const DOOR: Door = Door::numbered(0);
pub const OTHER_DOOR: Door = Door::numbered(1);
pub const A: Holder = Holder::of(DOOR, 1);
pub const B: Holder = Holder::of(DOOR, 2);
pub const FOREIGN: Holder = Holder::of(OTHER_DOOR, 1);

/// For what comes, and for what must not be waited for.
pub const LONG: Duration = Duration::from_secs(60);
pub const SHORT: Duration = Duration::from_millis(5);

pub const POOL: PoolId = PoolId(3);

/// A namespace with a directory `dir` that everybody may write, and pools. `P` is as much as the test has of these.
pub struct Scene<P = Arc<Faulty<MemoryPool>>> {
    pub names: Arc<WatchedNamespace>,
    pub namespace: Arc<SqlNamespace>,
    pub pools: Arc<MemoryPools>,
    pub pool: P,
    pub files: Arc<Files>,
    pub clock: Arc<ManualClock>,
    pub caller: Caller,
    pub dir: FileId,
    /// No name is given while a test has locked it.
    pub giving: Arc<RwLock<()>>,
    /// Names that the namespace was asked to give, those included that wait for the test.
    pub names_to_give: Arc<AtomicUsize>,
    _keep: store::Keep,
}

impl Scene {
    /// In SQLite, with one pool in memory.
    pub async fn set() -> Scene {
        let pool = Arc::new(Faulty::new(MemoryPool::new(POOL)));
        let pools = [pool.clone() as Arc<dyn Pool>];
        Scene::over(sqlite, pool, pools).await
    }
}

impl<P> Scene<P> {
    pub async fn over(
        store: impl FnOnce(&Arc<ManualClock>) -> Store,
        pool: P,
        pools: impl IntoIterator<Item = Arc<dyn Pool>>,
    ) -> Scene<P> {
        let clock = Arc::new(ManualClock::new(1_000));
        let (keep, namespace) = store(&clock);
        let names = Arc::new(WatchedNamespace::new(namespace.clone()));
        let pools = Arc::new(MemoryPools::of(pools));
        let giving = Arc::new(RwLock::new(()));
        let names_to_give = Arc::new(AtomicUsize::new(0));
        let uploads = Arc::new(uploads::Gated {
            uploads: namespace.clone(),
            names: names.clone(),
            giving: giving.clone(),
            names_to_give: names_to_give.clone(),
        });
        let files = Arc::new(Files::new(FilesServices {
            namespace: names.clone(),
            acls: namespace.clone(),
            locations: namespace.clone(),
            properties: namespace.clone(),
            xattrs: namespace.clone(),
            quotas: namespace.clone(),
            uploads,
            pools: pools.clone(),
            clock: clock.clone(),
            recall_time: LONG,
        }));
        assert_eq!((files.register("one"), files.register("other")), (Ok(DOOR), Ok(OTHER_DOOR)));
        let caller = Caller { identity: Identity::new(10, 100, &[]), ..Caller::anonymous() };
        let dir = make_directory(&namespace, "dir").await;
        Scene { names, namespace, pools, pool, files, clock, caller, dir, giving, names_to_give, _keep: keep }
    }

    /// Of the caller, as a client of the first door.
    pub fn by(&self) -> By<'_> {
        By { identity: &self.caller.identity, holder: Some(B), patience: LONG }
    }

    pub async fn make_directory(&self, text: &str) -> FileId {
        make_directory(&self.namespace, text).await
    }

    pub async fn found(&self, text: &str) -> Option<Attributes> {
        let found = self.namespace.lookup(&Identity::root(), self.dir, &name(text)).await;
        found.ok().map(|found| found.entry)
    }

    /// Renames in the root directory, as a door does.
    pub async fn rename(&self, from: &str, to: &str) {
        let (from, to) = (name(from), name(to));
        let (from, to) = ((FileId::ROOT, &from), (FileId::ROOT, &to));
        let who = Identity::root();
        let renamed = self.namespace.rename(&who, from, to, Replace::Never, ExpectedEnds::ANY).await.unwrap();
        self.files.call_back(renamed.moved.file, Some(A), Change::Rename);
    }

    /// Files without a name.
    pub async fn orphans(&self) -> Vec<FileId> {
        let left = self.namespace.orphans(FileId(0), 1_000).await.unwrap();
        left.iter().map(|left| left.attributes.file).collect()
    }

    /// Takes away what nobody holds, as the reaper does.
    pub async fn reap(&self) -> Vec<FileId> {
        let left = self.orphans().await;
        assert!(self.files.births_settled(LONG).await);
        let unused: Vec<FileId> = self.files.begin_freeing(left).into_iter().collect();
        self.namespace.forget(&unused).await.unwrap();
        unused
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Of root, in the root directory, for everybody to write.
async fn make_directory(namespace: &SqlNamespace, text: &str) -> FileId {
    let spec = CreateSpec {
        kind: CreateKind::Directory,
        mode: CreateMode::Guarded,
        permissions: 0o777,
        umask: None,
        set: SetAttributes::default(),
        location: None,
    };
    let made = namespace.create(&Identity::root(), FileId::ROOT, &name(text), &spec).await;
    made.unwrap().attributes.file
}
