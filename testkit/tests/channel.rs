//! A pool behind a channel: it passes the suite of the seam, and shows calls that end without an answer.

#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::{ANSWER_TIME, BATCH_LEN_MAX, Birth, OpenReplica, Pool, PoolError, Stability, Ticket, TicketMode};
use bytes::Bytes;
use files::PunctualPool;
use forebay_testkit::channel::ChannelPool;
use forebay_testkit::pool_suite::PoolUnderTest;
use pool::LocalPool;
use types::{Epoch, FileId, PoolId, Random};

const POOL: PoolId = PoolId(3);
const FILE: FileId = FileId(7);
const SHORT: Duration = Duration::from_millis(20);

/// A new verifier for each start.
struct Numbers;

impl Random for Numbers {
    fn fill(&self, bytes: &mut [u8]) {
        static NEXT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(1);
        bytes.fill(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    }
}

fn open(dir: &Path) -> Arc<LocalPool> {
    let config = pool::Config {
        id: POOL,
        dir: dir.to_owned(),
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
    LocalPool::open(config).unwrap()
}

/// As the binary has it, with a channel between the deadlines and the pool.
struct Channelled {
    local: Arc<LocalPool>,
    pool: Arc<PunctualPool>,
    // Behind the pool, which lies there.
    dir: tempfile::TempDir,
}

impl PoolUnderTest for Channelled {
    fn lends_files(&self) -> bool {
        false
    }

    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let local = open(dir.path());
        let pool = Arc::new(PunctualPool::new(Arc::new(ChannelPool::around(local.clone()))));
        Channelled { local, pool, dir }
    }

    fn pool(&self) -> Arc<dyn Pool> {
        Arc::clone(&self.pool) as Arc<dyn Pool>
    }

    fn restart(&mut self) {
        self.local.close();
        self.local = open(self.dir.path());
        self.pool = Arc::new(PunctualPool::new(Arc::new(ChannelPool::around(self.local.clone()))));
    }
}

forebay_testkit::pool_suite!(Channelled);

/// The channel, and the pool as its callers have it.
struct Scene {
    channel: Arc<ChannelPool>,
    pool: PunctualPool,
    local: Arc<LocalPool>,
    _dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let local = open(dir.path());
        let channel = Arc::new(ChannelPool::around(local.clone()));
        let pool = PunctualPool::new(channel.clone());
        Scene { channel, pool, local, _dir: dir }
    }

    async fn writer(&self) -> Arc<dyn OpenReplica> {
        let (birth, presence) = (Birth::UNKNOWN, api::Presence::Unmade);
        let (epoch, mode) = (Epoch(0), TicketMode::ReadWrite);
        self.pool
            .open(&Ticket { file: FILE, birth, pool: POOL, mode, epoch, presence, io: types::IoMode::Auto })
            .await
            .unwrap()
    }
}

fn is_unknown<T: std::fmt::Debug>(answer: Result<T, PoolError>) {
    assert!(matches!(answer, Err(PoolError::Unknown(POOL))), "{answer:?}");
}

#[tokio::test]
async fn a_ticket_keeps_its_mode_of_io_on_the_way() {
    let scene = Scene::new();
    let (birth, presence) = (Birth::UNKNOWN, api::Presence::Unmade);
    let (epoch, mode) = (Epoch(0), TicketMode::ReadWrite);
    let mut pinned = Vec::new();
    for io in types::IoMode::ALL {
        let ticket = Ticket { file: FILE, birth, pool: POOL, mode, epoch, presence, io };
        scene.pool.open(&ticket).await.unwrap();
        pinned.push(scene.local.file_io(FILE).unwrap().pinned.map_or("auto", |mode| mode.label()));
    }
    assert_eq!(pinned, types::IoMode::ALL.map(types::IoMode::name));
}

#[tokio::test]
async fn a_pool_that_hangs_is_not_waited_for_and_may_do_it_yet() {
    let scene = Scene::new();
    let file = [FILE, FileId(8)];
    scene.channel.hold(true);
    for answer in scene.pool.make(&file.map(|file| (file, Birth(5))), SHORT).await {
        is_unknown(answer);
    }
    for answer in scene.pool.facts(&file, SHORT).await {
        is_unknown(answer);
    }
    is_unknown(scene.pool.truncate(&[(FILE, 9)], SHORT).await.sole());
    is_unknown(scene.pool.fence(&[(FILE, Epoch(1))], SHORT).await.sole());
    is_unknown(scene.pool.remove(&[FileId(8)], SHORT).await.sole());
    is_unknown(scene.pool.sync_removals(&file, SHORT).await);
    assert_eq!(scene.local.status().replicas, 0, "nothing is done yet");
    scene.channel.hold(false);
    let is_truncated = async {
        let size = || async { scene.pool.facts(&[FILE], ANSWER_TIME).await.sole().unwrap() };
        while size().await.is_none_or(|facts| facts.size != 9) {}
    };
    tokio::time::timeout(ANSWER_TIME, is_truncated)
        .await
        .expect("what was not waited for is done all the same");
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_deadline_of_their_own_end_too() {
    let scene = Scene::new();
    let writer = scene.writer().await;
    scene.channel.hold(true);
    let opened = scene.pool.open(&Ticket {
        file: FILE,
        birth: Birth::UNKNOWN,
        pool: POOL,
        mode: TicketMode::Read,
        epoch: Epoch(0),
        presence: api::Presence::Unmade,
        io: types::IoMode::Auto,
    });
    is_unknown(opened.await.map(drop));
    is_unknown(scene.pool.replicas(FileId(0), 9).await);
    is_unknown(scene.pool.describe(FileId(0), FileId(9), Vec::new()).await);
    is_unknown(writer.read_at(0, 1).await);
    is_unknown(writer.write_at(0, Bytes::from("x"), Stability::Unstable).await);
    is_unknown(writer.write_through(0, Bytes::from("x")).written.await);
    is_unknown(writer.sync().await);
    is_unknown(writer.ranges().unwrap().extend(1).await);
}

#[tokio::test]
async fn a_call_is_unknown_if_the_connection_is_lost_under_way_or_before_it() {
    let scene = Scene::new();
    let writer = scene.writer().await;
    assert_eq!(scene.pool.status().offline, None);
    scene.channel.hold(true);
    let removal = scene.pool.remove(&[FILE], ANSWER_TIME);
    let write = writer.write_at(0, Bytes::from("x"), Stability::Unstable);
    let cut = async {
        tokio::task::yield_now().await;
        scene.channel.cut();
    };
    let (removed, written, ()) = tokio::join!(removal, write, cut);
    is_unknown(removed.sole());
    is_unknown(written);
    // They wait for another connection first.
    let (removed, synced) = tokio::join!(scene.pool.remove(&[FILE], ANSWER_TIME), writer.sync());
    is_unknown(removed.sole());
    is_unknown(synced);
    assert!(scene.pool.status().offline.is_some());
}

#[tokio::test]
async fn requests_without_an_answer_have_a_bound() {
    let scene = Scene::new();
    let writer = scene.writer().await;
    scene.channel.hold(true);
    let waiting: Vec<_> = (0..1024).map(|_| writer.read_at(0, 1)).collect();
    assert!(matches!(writer.read_at(0, 1).await, Err(PoolError::Busy(POOL))));
    scene.channel.hold(false);
    for read in waiting {
        assert!(read.await.unwrap().end_of_file);
    }
    assert!(writer.read_at(0, 1).await.unwrap().end_of_file);
}

#[tokio::test]
async fn a_batch_is_answered_file_by_file() {
    let scene = Scene::new();
    let files: Vec<_> = (1..=BATCH_LEN_MAX as u64).map(|file| (FileId(file), Birth(5))).collect();
    assert!(scene.pool.make(&files, ANSWER_TIME).await.into_iter().all(|made| made.is_ok()));
    let sizes = [(FileId(1), 10), (FileId(2), u64::MAX), (FileId(3), 30)];
    let truncated: Vec<_> = scene.pool.truncate(&sizes, ANSWER_TIME).await.into_iter().collect();
    let size_of = |at: usize| truncated[at].as_ref().map(|facts| (facts.file, facts.size)).ok();
    assert_eq!((size_of(0), size_of(2)), (Some((FileId(1), 10)), Some((FileId(3), 30))));
    assert!(matches!(truncated[1], Err(PoolError::TooLarge)));
    let asked = [FileId(3), FileId(5000), FileId(1)];
    let facts: Vec<_> = scene.pool.facts(&asked, ANSWER_TIME).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        facts.iter().map(|facts| facts.map(|facts| facts.size)).collect::<Vec<_>>(),
        [Some(30), None, Some(10)]
    );
}

#[tokio::test]
#[should_panic(expected = "files in one call")]
async fn a_batch_that_is_too_long_is_a_fault_of_the_caller() {
    let scene = Scene::new();
    let files = vec![FILE; BATCH_LEN_MAX + 1];
    let _ = scene.pool.facts(&files, ANSWER_TIME).await;
}

#[tokio::test]
async fn replicas_that_nobody_has_open_are_let_go_by_the_other_side() {
    let scene = Scene::new();
    // More than the pool may have open at once.
    for file in 1..200 {
        let (birth, presence) = (Birth::UNKNOWN, api::Presence::Unmade);
        let (epoch, mode) = (Epoch(0), TicketMode::ReadWrite);
        let ticket =
            Ticket { file: FileId(file), birth, pool: POOL, mode, epoch, presence, io: types::IoMode::Auto };
        let replica = scene.pool.open(&ticket).await.unwrap();
        replica.write_at(0, Bytes::from("x"), Stability::FileSync).await.unwrap();
    }
    assert_eq!(scene.pool.replicas(FileId(0), 1000).await.unwrap().len(), 199);
}
