//! Notes of cuts on disk, and the cuts that they finish.

use api::{CreateKind, CreateMode, CreateSpec, Namespace, Pool, PoolManager, SetAttributes};
use bytes::Bytes;
use files::{By, ContentMode, FilesServices};
use namespace::{Config, Database, SqlNamespace, Sync};
use testkit::faulty::{Call, Fault, Faulty};
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use types::{Identity, Name};

use super::*;
use crate::system::{SystemClock, SystemRandom};

/// Not the head's own, which is pool 0.
const POOL: PoolId = PoolId(1);

/// A head with a pool on another host, and a file of ten bytes there.
struct Scene {
    dir: tempfile::TempDir,
    data: DataDir,
    namespace: Arc<SqlNamespace>,
    pool: Arc<Faulty<MemoryPool>>,
    pools: Arc<MemoryPools>,
    file: FileId,
}

/// One start of the head.
struct Start {
    cuts: Arc<Cuts>,
    files: Arc<Files>,
}

impl Scene {
    async fn set() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(&dir.path().join("data"), Some(1), &SystemRandom).unwrap();
        let names = dir.path().join("names");
        std::fs::create_dir(&names).unwrap();
        let namespace = SqlNamespace::open(Config {
            database: Database::Sqlite(names),
            clock: Arc::new(SystemClock::new()),
            root_owner: (0, 0),
            sync: Sync::Always,
            cache_bytes: 1 << 20,
            queue_len_max: 10,
            group_len_max: 10,
        });
        let namespace = Arc::new(namespace.unwrap());
        let pool = Arc::new(Faulty::new(MemoryPool::new(POOL)));
        let pools = Arc::new(MemoryPools::of([pool.clone() as Arc<dyn Pool>]));
        let spec = CreateSpec {
            kind: CreateKind::Regular,
            mode: CreateMode::Guarded,
            permissions: 0o644,
            umask: None,
            set: SetAttributes::default(),
            location: Some(POOL),
        };
        let name = Name::new(b"file").unwrap();
        let made = namespace.create(&Identity::root(), FileId::ROOT, &name, &spec).await.unwrap();
        let file = made.attributes.file;
        let scene = Scene { dir, data, namespace, pool, pools, file };
        let start = scene.start();
        let empty = start.files.attributes(file).await.unwrap();
        let content = start.files.content(&empty, ContentMode::Write).await.unwrap();
        let data = Bytes::from_static(b"ten bytes.");
        content.write(&Identity::root(), 0, data, api::Stability::FileSync).await.unwrap();
        scene
    }

    fn start(&self) -> Start {
        let namespace = &self.namespace;
        let files = Arc::new(Files::new(FilesServices {
            namespace: namespace.clone(),
            acls: namespace.clone(),
            locations: namespace.clone(),
            properties: namespace.clone(),
            xattrs: namespace.clone(),
            quotas: namespace.clone(),
            uploads: namespace.clone(),
            pools: Arc::clone(&self.pools) as Arc<dyn PoolManager>,
            clock: Arc::new(SystemClock::new()),
            recall_time: Duration::from_secs(90),
        }));
        let cuts = Cuts::open(&self.data, namespace.clone()).unwrap();
        files.note_cuts(Arc::clone(&cuts) as _);
        Start { cuts, files }
    }

    /// The pool cuts, and the head ends before it has the answer.
    async fn cut_and_end(&self, size: u64) {
        let Start { files, .. } = self.start();
        self.pool.schedule().on(Call::Truncate, 0..1, Fault::LoseAnswer);
        assert!(self.cut(&files, size).await.is_err());
        assert_eq!(self.namespace.attributes(self.file).await.unwrap().size, 10);
    }

    async fn cut(&self, files: &Arc<Files>, size: u64) -> Result<(), files::FilesError> {
        let root = Identity::root();
        let by = By { identity: &root, holder: None, patience: Duration::from_secs(9) };
        let file = files.attributes(self.file).await?;
        files.set_length(by, &file, size, false).await.map(drop)
    }

    async fn size(&self, files: &Files) -> u64 {
        files.fresh_attributes(self.file).await.unwrap().size
    }

    fn left(&self, start: &Start) -> usize {
        start.cuts.notes.lock().left.len()
    }

    fn set_away(&self, is_away: bool) {
        self.pools.list().set_disabled(POOL, is_away).unwrap();
    }

    fn notes(&self) -> String {
        let text = std::fs::read_to_string(self.dir.path().join("data").join(NAME)).unwrap();
        assert_eq!(text.len(), NOTES_MAX * LINE_BYTES);
        text.trim().to_owned()
    }
}

#[tokio::test]
async fn a_cut_at_another_host_that_the_end_of_the_head_interrupted_is_finished_when_the_pool_comes() {
    let scene = Scene::set().await;
    scene.cut_and_end(4).await;
    scene.set_away(true);
    let start = scene.start();
    start.cuts.finish_left(&start.files).await;
    assert_eq!(scene.size(&start.files).await, 10, "nobody waits for a pool that is away");
    scene.set_away(false);
    start.cuts.finish_left(&start.files).await;
    assert_eq!(start.files.attributes(scene.file).await.unwrap().size, 4);
    start.cuts.clear_ended().await;
    assert_eq!((scene.notes().as_str(), scene.left(&start)), ("", 0));
}

/// Between the arrival of the pool and the next pass.
#[tokio::test]
async fn the_end_of_a_file_whose_cut_was_interrupted_is_no_error_to_readers() {
    let scene = Scene::set().await;
    scene.cut_and_end(4).await;
    let Start { files, .. } = scene.start();
    let before = files.attributes(scene.file).await.unwrap();
    assert_eq!(before.size, 10);
    let content = files.content(&before, ContentMode::Read).await.unwrap();
    assert_eq!(content.read(0, 100).await.unwrap().data, "ten ");
    scene.cut_and_end_again().await;
    let Start { files, .. } = scene.start();
    // A client that reads at the pool would take the rest for zeros.
    let before = files.attributes(scene.file).await.unwrap();
    files.locate(&before, api::TicketMode::Read, Some(1)).await.unwrap();
    assert_eq!(files.attributes(scene.file).await.unwrap().size, 2);
    assert_eq!(scene.size(&files).await, 2);
}

impl Scene {
    async fn cut_and_end_again(&self) {
        let Start { files, .. } = self.start();
        self.pool.schedule().on(Call::Truncate, 0..1, Fault::LoseAnswer);
        assert!(self.cut(&files, 2).await.is_err());
    }
}

#[tokio::test]
async fn a_replica_on_another_host_that_is_short_for_another_reason_is_left() {
    for (left, cut) in [(3, Some(4)), (4, None)] {
        let scene = Scene::set().await;
        if let Some(cut) = cut {
            scene.cut_and_end(cut).await;
        }
        let birth = api::Birth::of(scene.namespace.attributes(scene.file).await.unwrap().birth);
        scene.pool.pool().put(scene.file, birth, vec![1; left]);
        let start = scene.start();
        start.cuts.finish_left(&start.files).await;
        assert_eq!((scene.size(&start.files).await, scene.left(&start)), (10, 0));
        let file = start.files.attributes(scene.file).await.unwrap();
        let content = start.files.content(&file, ContentMode::Read).await.unwrap();
        assert!(content.read(0, 100).await.is_err(), "its bytes are lost");
    }
}

#[tokio::test]
async fn a_cut_that_the_pool_did_not_make_is_forgotten_by_the_next_start() {
    let scene = Scene::set().await;
    let Start { files, cuts } = scene.start();
    scene.pool.schedule().on(Call::Truncate, 0..1, Fault::Fail(PoolError::Unknown(POOL)));
    assert!(scene.cut(&files, 4).await.is_err());
    cuts.finish_left(&files).await;
    assert!(cuts.left(scene.file).is_some(), "the pool may do it yet");
    let start = scene.start();
    start.cuts.finish_left(&start.files).await;
    assert_eq!((scene.size(&start.files).await, scene.left(&start)), (10, 0));
}

#[tokio::test]
async fn cuts_are_noted_at_other_hosts_only_and_until_the_namespace_has_them_on_disk() {
    let scene = Scene::set().await;
    let start = scene.start();
    scene.cut(&start.files, 4).await.unwrap();
    assert!(scene.notes().contains(r#""size":4"#), "{}", scene.notes());
    start.cuts.clear_ended().await;
    assert_eq!(scene.notes(), "");
    scene.cut(&start.files, 40).await.unwrap();
    assert_eq!(scene.notes(), "", "a file that grows");
    let own = Cut { file: scene.file, pool: PoolId(0), size: 1 };
    assert_eq!(start.cuts.begin(own).await.unwrap(), None);
}

#[tokio::test]
async fn there_is_a_bound_of_notes_and_cuts_that_nobody_heard_of_give_way() {
    let scene = Scene::set().await;
    let Start { cuts, .. } = scene.start();
    let cut = |file| Cut { file: FileId(file), pool: POOL, size: 1 };
    let mut numbers = Vec::new();
    for file in 0..NOTES_MAX as u64 {
        numbers.push(cuts.begin(cut(file)).await.unwrap().unwrap());
    }
    assert!(matches!(cuts.begin(cut(5_000)).await, Err(PoolError::Busy(POOL))));
    cuts.leave(numbers[7]);
    cuts.leave(numbers[5]);
    let in_its_place = cuts.begin(cut(5_000)).await.unwrap().unwrap();
    assert_eq!((cuts.left(FileId(7)), cuts.left(FileId(5))), (None, Some((numbers[5], cut(5)))));
    // By a caller that had found it.
    cuts.end(numbers[7]);
    cuts.leave(in_its_place);
    assert_eq!(cuts.left(FileId(5_000)), Some((in_its_place, cut(5_000))));
    cuts.end(numbers[9]);
    cuts.begin(cut(5_001)).await.unwrap().unwrap();
    assert!(cuts.left(FileId(5)).is_some(), "one that had ended gave way");
}
