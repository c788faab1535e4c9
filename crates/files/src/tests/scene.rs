//! A namespace in SQLite and a pool in memory, and uploads to them.

use api::{
    Caller, CreateKind, CreateMode, CreateSpec, NamespaceError, Publish, Published, Replace, SetAttributes,
    Unnamed,
};
use async_trait::async_trait;
use bytes::Bytes;
use namespace::{Config, Database, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::faulty::Faulty;
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use testkit::watched_namespace::WatchedNamespace;
use tokio::sync::RwLock;
use types::{Attributes, ChecksumKind, Identity, Name, PoolId};

use super::*;

pub const POOL: PoolId = PoolId(3);

/// A namespace with a directory `dir` that everybody may write, and one pool.
pub struct Scene {
    pub names: Arc<WatchedNamespace>,
    pub namespace: Arc<SqlNamespace>,
    pub pools: Arc<MemoryPools>,
    pub pool: Arc<Faulty<MemoryPool>>,
    pub files: Arc<Files>,
    pub clock: Arc<ManualClock>,
    pub caller: Caller,
    pub dir: FileId,
    /// No name is given while a test has locked it.
    pub giving: Arc<RwLock<()>>,
    _dir: tempfile::TempDir,
}

/// A namespace in a directory that goes with the test.
pub fn sqlite(clock: &Arc<ManualClock>) -> (tempfile::TempDir, Arc<SqlNamespace>) {
    let database = tempfile::tempdir().unwrap();
    let config = Config {
        database: Database::Sqlite(database.path().to_owned()),
        clock: clock.clone(),
        root_owner: (0, 0),
        sync: Sync::Interval(LONG),
        cache_bytes: 1 << 20,
        queue_len_max: 100,
        group_len_max: 100,
    };
    (database, Arc::new(SqlNamespace::open(config).unwrap()))
}

impl Scene {
    pub async fn set() -> Scene {
        let clock = Arc::new(ManualClock::new(1_000));
        let (database, namespace) = sqlite(&clock);
        let names = Arc::new(WatchedNamespace::new(namespace.clone()));
        let pool = Arc::new(Faulty::new(MemoryPool::new(POOL)));
        let pools = Arc::new(MemoryPools::of([pool.clone() as Arc<dyn api::Pool>]));
        let giving = Arc::new(RwLock::new(()));
        let uploads =
            Arc::new(Gated { uploads: namespace.clone(), names: names.clone(), giving: giving.clone() });
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
        let dir = FileId::ROOT;
        let mut scene =
            Scene { names, namespace, pools, pool, files, clock, caller, dir, giving, _dir: database };
        scene.dir = scene.make_directory("dir").await;
        scene
    }

    pub async fn make_directory(&self, text: &str) -> FileId {
        let spec = CreateSpec {
            kind: CreateKind::Directory,
            mode: CreateMode::Guarded,
            permissions: 0o777,
            umask: None,
            set: SetAttributes::default(),
            location: None,
        };
        let made = self.namespace.create(&Identity::root(), FileId::ROOT, &name(text), &spec).await;
        made.unwrap().attributes.file
    }

    pub async fn target(&self, text: &str) -> UploadTarget {
        self.files.upload_target(&self.caller, &[name("dir"), name(text)]).await.unwrap()
    }

    /// Begins an upload to `dir/name`, of these bytes.
    pub async fn begin(
        &self,
        text: &str,
        replace: Replace,
        bytes: &'static str,
    ) -> Result<Upload, FilesError> {
        self.begin_with(text, replace, bytes, bytes.len() as u64).await
    }

    /// As [`Scene::begin`], with the first bytes of so many.
    pub async fn begin_with(
        &self,
        text: &str,
        replace: Replace,
        bytes: &'static str,
        size: u64,
    ) -> Result<Upload, FilesError> {
        let (target, size) = (self.target(text).await, Some(size));
        let terms =
            UploadTerms { replace, size, kinds: vec![ChecksumKind::Adler32], ..UploadTerms::default() };
        let mut upload = self.files.begin_upload(FOREIGN, &self.caller, target, terms).await?;
        upload.open().await?;
        upload.write(Bytes::from_static(bytes.as_bytes())).await?;
        Ok(upload)
    }

    pub async fn put(
        &self,
        text: &str,
        replace: Replace,
        bytes: &'static str,
    ) -> Result<Published, FilesError> {
        give_name(self.begin(text, replace, bytes).await?, &Rules::default()).await
    }

    pub async fn found(&self, text: &str) -> Option<Attributes> {
        let found = self.namespace.lookup(&Identity::root(), self.dir, &name(text)).await;
        found.ok().map(|found| found.entry)
    }

    /// Renames in the root directory, as a door does.
    pub async fn rename(&self, from: &str, to: &str) {
        let (from, to) = (name(from), name(to));
        let (from, to) = ((FileId::ROOT, &from), (FileId::ROOT, &to));
        let renamed = self
            .namespace
            .rename(&Identity::root(), from, to, Replace::Never, api::ExpectedEnds::ANY)
            .await
            .unwrap();
        self.files.call_back(renamed.moved.file, Some(A), Change::Rename);
    }

    /// Takes away what nobody holds, as the reaper does.
    pub async fn reap(&self) -> Vec<FileId> {
        let left = self.namespace.orphans(FileId(0), 100).await.unwrap();
        let unused = self.files.begin_freeing(left.iter().map(|left| left.attributes.file));
        let unused: Vec<FileId> = unused.into_iter().collect();
        self.namespace.forget(&unused).await.unwrap();
        unused
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub async fn give_name(upload: Upload, rules: &Rules) -> Result<Published, FilesError> {
    match upload.finish().await?.publish(rules).await {
        Ok(published) => Ok(published),
        Err(PublishError::Files(error)) => Err(error),
        Err(PublishError::Door(_)) => panic!("the door refuses nothing"),
    }
}

/// As slow as the namespace. A test may hold up that names are given.
struct Gated {
    uploads: Arc<dyn Uploads>,
    names: Arc<WatchedNamespace>,
    giving: Arc<RwLock<()>>,
}

#[async_trait]
impl Uploads for Gated {
    async fn create_unnamed(
        &self,
        who: &Identity,
        dir: FileId,
        new: &Unnamed,
    ) -> Result<Attributes, NamespaceError> {
        self.names.travel().await;
        let created = self.uploads.create_unnamed(who, dir, new).await;
        self.names.travel().await;
        created
    }

    async fn publish(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
        how: &Publish,
    ) -> Result<Published, NamespaceError> {
        let _turn = self.giving.read().await;
        self.names.travel().await;
        let published = self.uploads.publish(who, file, dir, name, how).await;
        self.names.travel().await;
        published
    }

    async fn exchange(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        taken: (&Name, FileId),
    ) -> Result<(), NamespaceError> {
        self.names.travel().await;
        let exchanged = self.uploads.exchange(who, dir, name, taken).await;
        self.names.travel().await;
        exchanged
    }
}

/// The rules of a door, and what it was asked.
#[derive(Default)]
pub struct Rules {
    pub refuses: bool,
    pub may_pass: bool,
    /// Of each time, whether the name was free.
    pub asked: Mutex<Vec<bool>>,
}

pub struct NoGuard;

impl NamingGuard for NoGuard {
    fn given(&mut self, _: &Published) {}
}

impl Naming for Rules {
    type Guard = NoGuard;
    type Refused = bool;

    async fn begin(&self, name: NameToGive<'_>) -> Result<NoGuard, bool> {
        self.asked.lock().push(name.is_new);
        if self.refuses { Err(self.may_pass) } else { Ok(NoGuard) }
    }

    fn may_pass(refused: &bool) -> bool {
        *refused
    }
}
