//! A head's pool and its service over pipes that are cut, by the clock of a paused runtime.

use api::{ANSWER_TIME, Presence, Stability, TicketMode};
use bytes::Bytes;
use testkit::faulty::{Call, Fault, Faulty, Gate};
use testkit::memory_pool::MemoryPool;
use tokio::time::{Instant, advance, sleep, timeout};
use types::{FileKind, Name, Timestamp};
use xdr::{Decoder, Encoder};

use super::*;
use crate::rpc::{Answerer, Refused};
use crate::service::PoolService;

const POOL: PoolId = PoolId(3);
const FILE: FileId = FileId(7);
const RULES: LeaseRules = LeaseRules { lease: Duration::from_secs(10), suspect: Duration::from_secs(3) };

struct RuntimeClock(Instant);

impl Clock for RuntimeClock {
    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

struct Nothing;

#[async_trait]
impl Answerer for Nothing {
    async fn answer(&self, _: u32, _: Decoder) -> Result<Encoder, Refused> {
        Err(Refused::NoProcedure)
    }
}

struct Scene {
    pool: Arc<Faulty<MemoryPool>>,
    remote: Arc<RemotePool>,
    session: Mutex<Option<SessionId>>,
}

/// The head's ends of a session. The control connection is the first.
struct Dialled(Vec<Arc<Connection>>);

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn connection(answerer: Arc<dyn Answerer>) -> Arc<Connection> {
    let (near, far) = tokio::io::duplex(64 << 10);
    Connection::start(far, answerer);
    Connection::start(near, Arc::new(Nothing))
}

fn ticket() -> api::Ticket {
    let (birth, mode, epoch) = (Birth(5), TicketMode::ReadWrite, Epoch(1));
    let (presence, io) = (Presence::Unmade, types::IoMode::Auto);
    api::Ticket { file: FILE, birth, pool: POOL, mode, epoch, presence, io }
}

impl Scene {
    fn new() -> Scene {
        let pool = Arc::new(Faulty::new(MemoryPool::new(POOL)));
        let remote = RemotePool::new(POOL, RULES, Arc::new(RuntimeClock(Instant::now())));
        Scene { pool, remote, session: Mutex::new(None) }
    }

    fn dial(&self, incarnation: u64) -> Dialled {
        let service = Arc::new(PoolService::new(self.pool.clone()));
        self.dial_to(incarnation, service)
    }

    fn dial_to(&self, incarnation: u64, answerer: Arc<dyn Answerer>) -> Dialled {
        let connections: Vec<_> = (0..3).map(|_| connection(answerer.clone())).collect();
        let process = Process { starts: incarnation, draw: incarnation };
        let arrival = Arrival { process, has_lease: false };
        let greeting = Greeting::of(&*self.pool);
        let session = self.remote.connect(arrival, connections[0].clone(), greeting).unwrap();
        *self.session.lock() = Some(session);
        for data in &connections[1..] {
            assert!(self.remote.add_data(process, data.clone()));
        }
        Dialled(connections)
    }

    fn cut(&self, dialled: &Dialled) {
        dialled.0.iter().for_each(|connection| connection.close());
        self.remote.disconnect(&dialled.0[0]);
    }

    /// A scene whose pool has a lease, and whose connections are lost.
    fn cut_off() -> Scene {
        let scene = Scene::new();
        let dialled = scene.dial(1);
        scene.renew();
        scene.cut(&dialled);
        scene
    }

    fn renew(&self) -> Option<Duration> {
        let session = self.session.lock().expect("the pool has said hello");
        let terms = Terms { term: Term::FIRST, floor: Term::FIRST };
        let held = HeldTerms { terms, is_settled: true };
        match self.remote.renew(session, held, self.pool.status()) {
            Renewal::Lease(lease) => Some(lease),
            Renewal::NotYet { .. } | Renewal::Unknown => None,
        }
    }

    async fn fence(&self, epoch: u32) -> Result<(), PoolError> {
        self.remote.fence(&[(FILE, Epoch(epoch))], ANSWER_TIME).await.sole()
    }

    async fn is_fenced(&self) -> bool {
        let opened = self.pool.pool().open(&ticket()).await;
        match opened {
            Ok(replica) => matches!(replica.read_at(0, 1).await, Err(PoolError::Fenced)),
            Err(error) => matches!(error, PoolError::Fenced),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn operators_see_silence_missed_fences_connections_and_reconnects() {
    let scene = Scene::new();
    advance(s(4)).await;
    let report = scene.remote.report();
    assert_eq!((report.silence, report.connections, report.reconnects), (s(4), 0, 0), "it never came");
    let dialled = scene.dial(1);
    scene.renew();
    advance(s(1)).await;
    let report = scene.remote.report();
    assert_eq!((report.standing, report.silence, report.connections), (Standing::Ready, s(1), 3));
    assert_eq!((report.lease_left, report.missed_fences), (RULES.lease.mul_f64(1.05) - s(1), 0));
    scene.cut(&dialled);
    advance(s(20)).await;
    scene.fence(5).await.unwrap();
    let report = scene.remote.report();
    assert_eq!((report.standing, report.silence, report.connections), (Standing::Out, s(21), 0));
    assert_eq!((report.lease_left, report.missed_fences, report.reconnects), (s(0), 1, 0));
    let _dialled = scene.dial(1);
    assert_eq!(scene.remote.report().reconnects, 1);
}

fn is_unknown<T>(answer: &Result<T, PoolError>) -> bool {
    matches!(answer, Err(PoolError::Unknown(POOL)))
}

fn write(replica: &Arc<dyn OpenReplica>, data: &'static str) -> api::IoHandle<Stability> {
    replica.write_at(0, Bytes::from(data), Stability::Unstable)
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_a_connection_a_moment() {
    let scene = Scene::new();
    let begun = Instant::now();
    assert!(is_unknown(&scene.remote.open(&ticket()).await));
    assert_eq!(begun.elapsed().as_secs(), 3);
    let ticket = ticket();
    let (opened, dialled) = tokio::join!(scene.remote.open(&ticket), async {
        sleep(s(2)).await;
        scene.dial(1)
    });
    assert!(opened.is_ok());
    scene.cut(&dialled);
    let facts = scene.remote.facts(&[FILE], ANSWER_TIME).await.sole();
    assert!(is_unknown(&facts));
    advance(s(20)).await;
    let begun = Instant::now();
    assert!(is_unknown(&scene.remote.open(&ticket).await));
    assert_eq!(begun.elapsed(), s(0), "a pool that is long gone is not waited for");
    assert!(timeout(s(9), scene.remote.until_lease_is_over_or(|_, _| false)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_on_the_next_connection_and_a_write_is_not() {
    let (scene, gate) = (Scene::new(), Gate::shut());
    let dialled = scene.dial(1);
    scene.renew().unwrap();
    let replica = scene.remote.open(&ticket()).await.unwrap();
    write(&replica, "kept").await.unwrap();
    for call in [Call::Read, Call::Write, Call::Sync, Call::Facts] {
        scene.pool.schedule().on(call, 0..1, Fault::Delay(gate.clone()));
    }
    let (read, written, synced) = (replica.read_at(0, 9), write(&replica, "lost"), replica.sync());
    let facts = scene.remote.facts(&[FILE], ANSWER_TIME);
    let again = async {
        sleep(s(1)).await;
        scene.cut(&dialled);
        sleep(s(1)).await;
        scene.dial(1)
    };
    let (read, written, synced, facts, _dialled) = tokio::join!(read, written, synced, facts, again);
    assert_eq!(read.unwrap().data, "kept");
    assert!(is_unknown(&written));
    assert_eq!(synced.unwrap(), replica.verifier());
    assert_eq!(facts.sole().unwrap().unwrap().size, 4);
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_when_they_are_sent_and_once_more_when_repeated() {
    let (scene, gate) = (Scene::new(), Gate::shut());
    let sent = || {
        let calls = scene.remote.calls().into_iter();
        calls.filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert!(is_unknown(&scene.remote.open(&ticket()).await));
    assert_eq!(sent(), [], "without a connection nothing is sent");
    let first = scene.dial(1);
    let replica = scene.remote.open(&ticket()).await.unwrap();
    write(&replica, "x").await.unwrap();
    let made = scene.remote.make(&[(FileId(8), Birth(5)), (FileId(9), Birth(5))], ANSWER_TIME).await;
    assert!(made.into_iter().all(|answer| answer.is_ok()));
    assert_eq!(sent(), [("OPEN", 1), ("WRITE", 1), ("MAKE", 1)], "a batch is one call");
    scene.pool.schedule().on(Call::Read, 0..1, Fault::Delay(gate));
    let (read, _second) = tokio::join!(replica.read_at(0, 9), async {
        sleep(s(1)).await;
        scene.cut(&first);
        scene.dial(1)
    });
    read.unwrap();
    assert_eq!(sent(), [("OPEN", 1), ("READ", 2), ("WRITE", 1), ("MAKE", 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_read_is_repeated_once_only() {
    let (scene, gate) = (Scene::new(), Gate::shut());
    let first = scene.dial(1);
    let replica = scene.remote.open(&ticket()).await.unwrap();
    scene.pool.schedule().on(Call::Read, .., Fault::Delay(gate));
    let (read, ()) = tokio::join!(replica.read_at(0, 9), async {
        sleep(s(1)).await;
        scene.cut(&first);
        let second = scene.dial(1);
        sleep(s(1)).await;
        scene.cut(&second);
        let _third = scene.dial(1);
    });
    assert!(is_unknown(&read));
}

#[tokio::test(start_paused = true)]
async fn one_lost_data_connection_is_done_without() {
    let (scene, gate) = (Scene::new(), Gate::shut());
    let dialled = scene.dial(1);
    let replica = scene.remote.open(&ticket()).await.unwrap();
    scene.pool.schedule().on(Call::Read, 0..1, Fault::Delay(gate));
    let (read, ()) = tokio::join!(replica.read_at(0, 9), async {
        sleep(s(1)).await;
        dialled.0[1].close();
        dialled.0[2].close();
    });
    assert!(read.unwrap().end_of_file);
    assert!(!dialled.0[0].is_closed());
    assert!(write(&replica, "on").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn writes_that_waited_for_a_connection_keep_their_order() {
    let scene = Scene::new();
    let dialled = scene.dial(1);
    let replica = scene.remote.open(&ticket()).await.unwrap();
    scene.cut(&dialled);
    let first: Vec<_> = (0..50).map(|_| write(&replica, "old")).collect();
    let last = write(&replica, "new");
    let _dialled = scene.dial(1);
    assert!(last.await.is_ok());
    for written in first {
        assert!(written.await.is_ok());
    }
    assert_eq!(replica.read_at(0, 9).await.unwrap().data, "new");
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_a_connection_have_a_bound() {
    let scene = Scene::new();
    let dialled = scene.dial(1);
    let replica = scene.remote.open(&ticket()).await.unwrap();
    scene.cut(&dialled);
    let _waiting: Vec<_> = (0..crate::rpc::CALLS_MAX).map(|_| write(&replica, "x")).collect();
    assert!(matches!(write(&replica, "x").await, Err(PoolError::Busy(POOL))));
}

#[tokio::test(start_paused = true)]
async fn a_restart_of_the_pool_is_seen_by_its_verifier() {
    let scene = Scene::new();
    let dialled = scene.dial(1);
    let replica = scene.remote.open(&ticket()).await.unwrap();
    write(&replica, "x").await.unwrap();
    assert_eq!(replica.sync().await.unwrap(), replica.verifier());
    let before = replica.verifier();
    scene.cut(&dialled);
    scene.pool.pool().restart();
    let _dialled = scene.dial(2);
    assert_eq!(replica.read_at(0, 9).await.unwrap().data, "x", "it is open all the same");
    assert_ne!(replica.sync().await.unwrap(), before);
    assert_eq!(replica.verifier(), before);
}

#[tokio::test(start_paused = true)]
async fn a_session_replaces_the_one_before() {
    let scene = Scene::new();
    let first = scene.dial(1);
    let second = scene.dial(2);
    assert!(first.0.iter().all(|connection| connection.is_closed()));
    scene.remote.disconnect(&first.0[0]);
    assert!(!scene.remote.add_data(Process { starts: 1, draw: 1 }, connection(Arc::new(Nothing))));
    assert!(scene.remote.open(&ticket()).await.is_ok(), "the one of now goes on");
    scene.renew();
    assert_eq!(scene.remote.standing(), Standing::Ready);
    scene.remote.disconnect(&second.0[0]);
    assert!(second.0.iter().all(|connection| connection.is_closed()));
    assert_eq!(scene.remote.standing(), Standing::Suspect);
}

#[tokio::test(start_paused = true)]
async fn a_silent_pool_is_offline() {
    let scene = Scene::new();
    let offline = || scene.remote.status().offline.unwrap_or_default();
    assert_eq!(offline(), "it has not connected since the start of the head");
    let _dialled = scene.dial(1);
    scene.renew();
    assert_eq!((offline(), scene.remote.status().id), (String::new(), POOL));
    advance(s(4)).await;
    assert_eq!(offline(), "no answer for 4 s");
    scene.renew();
    assert_eq!(offline(), "");
}

#[tokio::test(start_paused = true)]
async fn a_fence_is_confirmed_by_the_pool() {
    let scene = Scene::new();
    let _dialled = scene.dial(1);
    scene.renew();
    scene.fence(2).await.unwrap();
    assert!(scene.is_fenced().await);
    assert_eq!(scene.renew(), Some(RULES.lease));
}

#[tokio::test(start_paused = true)]
async fn a_fence_waits_for_the_end_of_the_lease_of_a_pool_that_is_gone() {
    let scene = Scene::cut_off();
    let begun = Instant::now();
    scene.fence(2).await.unwrap();
    assert!((10.5..10.6).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
    assert!(!scene.is_fenced().await);
    // It gets no lease before it has the fence.
    let _dialled = scene.dial(1);
    assert_eq!(scene.renew(), None);
    sleep(s(1)).await;
    assert!(scene.is_fenced().await);
    assert_eq!(scene.renew(), Some(RULES.lease));
}

#[tokio::test(start_paused = true)]
async fn a_fence_waits_for_a_pool_that_hangs_and_renews_all_the_same() {
    let (scene, gate) = (Scene::new(), Gate::shut());
    let _dialled = scene.dial(1);
    scene.renew();
    scene.pool.schedule().on(Call::Fence, .., Fault::Delay(gate.clone()));
    let begun = Instant::now();
    let renewing = async {
        while scene.remote.standing() != Standing::Out {
            sleep(s(1)).await;
            scene.renew();
        }
    };
    let (fenced, ()) = tokio::join!(scene.fence(2), renewing);
    fenced.unwrap();
    assert!((14.0..17.0).contains(&begun.elapsed().as_secs_f64()), "{:?}", begun.elapsed());
    gate.let_all_pass();
    sleep(s(1)).await;
    assert_eq!(scene.renew(), Some(RULES.lease));
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_was_missed_is_delivered_when_the_pool_is_back() {
    let scene = Scene::cut_off();
    let begun = Instant::now();
    let (fenced, _dialled) = tokio::join!(scene.fence(2), async {
        sleep(s(5)).await;
        scene.dial(1)
    });
    fenced.unwrap();
    assert!(begun.elapsed() < s(6) && scene.is_fenced().await, "{:?}", begun.elapsed());
}

/// A write of a client that was fenced off may hang there, and would come over that of the head.
#[tokio::test(start_paused = true)]
async fn writes_of_the_head_wait_until_a_pool_that_was_passed_over_has_confirmed_its_fences() {
    let (scene, gate) = (Scene::new(), Gate::shut());
    let _dialled = scene.dial(1);
    scene.renew().unwrap();
    let replica = scene.remote.open(&ticket()).await.unwrap();
    scene.pool.schedule().on(Call::Fence, .., Fault::Delay(gate.clone()));
    let renewing = async {
        for _ in 0..20 {
            sleep(s(1)).await;
            scene.renew();
        }
    };
    let (fenced, ()) = tokio::join!(scene.fence(1), renewing);
    fenced.unwrap();
    let begun = Instant::now();
    assert!(is_unknown(&write(&replica, "early").await));
    assert_eq!(begun.elapsed(), s(3));
    assert!(is_unknown(&scene.remote.truncate(&[(FILE, 0)], ANSWER_TIME).await.sole()));
    assert!(replica.read_at(0, 9).await.is_ok(), "reads go on");
    let (first, second, ()) = tokio::join!(write(&replica, "first"), write(&replica, "next"), async {
        sleep(s(1)).await;
        gate.let_all_pass();
        sleep(s(1)).await;
        assert!(scene.renew().is_some());
    });
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(replica.read_at(0, 9).await.unwrap().data, "nextt");
}

#[tokio::test(start_paused = true)]
async fn many_missed_fences_are_delivered_in_batches() {
    let scene = Scene::cut_off();
    let fences: Vec<_> = (0..3 * 1024).map(|file| (FileId(file), Epoch(9))).collect();
    for batch in fences.chunks(1024) {
        let fenced = scene.remote.fence(batch, ANSWER_TIME).await;
        assert!(fenced.into_iter().all(|fenced| fenced.is_ok()));
    }
    let _dialled = scene.dial(1);
    sleep(s(1)).await;
    assert_eq!((scene.renew(), scene.pool.schedule().count(Call::Fence)), (Some(RULES.lease), 3 * 1024));
}

#[tokio::test(start_paused = true)]
async fn a_new_process_of_the_pool_ends_the_wait_for_a_fence() {
    let scene = Scene::cut_off();
    let begun = Instant::now();
    let (fenced, _dialled) = tokio::join!(scene.fence(2), async {
        sleep(s(4)).await;
        scene.dial_to(2, Arc::new(Nothing))
    });
    fenced.unwrap();
    assert!(begun.elapsed() < s(5), "{:?}", begun.elapsed());
    assert_eq!(scene.renew(), None);
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_the_pool_refuses_is_an_error_and_costs_it_the_lease() {
    let scene = Scene::new();
    let _dialled = scene.dial(1);
    scene.renew();
    let error = PoolError::Io { pool: POOL, operation: "note a fence", reason: "EIO".to_owned() };
    scene.pool.schedule().on(Call::Fence, .., Fault::Fail(error));
    assert!(matches!(scene.fence(2).await, Err(PoolError::Io { operation: "note a fence", .. })));
    advance(s(6)).await;
    assert_eq!(scene.renew(), None);
    sleep(s(1)).await;
    scene.pool.schedule().lift(Call::Fence);
    assert_eq!(scene.renew(), None);
    sleep(s(1)).await;
    assert_eq!(scene.renew(), Some(RULES.lease));
}

#[tokio::test]
async fn long_lists_take_several_messages() {
    let scene = Scene::new();
    let _dialled = scene.dial(1);
    let count = wire::LISTED_MAX as u64 + 100;
    for file in 1..=count {
        scene.pool.pool().put(FileId(file), Birth(5), "");
    }
    let listed = async |limit| scene.remote.replicas(FileId(10), limit).await.unwrap();
    assert_eq!(listed(usize::MAX).await.len() as u64, count - 10);
    assert_eq!(listed(wire::LISTED_MAX + 5).await.len(), wire::LISTED_MAX + 5);
    assert_eq!(listed(0).await.len(), 0);

    let name = |file: u64| (FileId(1), Name::new(format!("{file:0>250}").as_bytes()).unwrap());
    let described = |file| Description {
        file: FileId(file),
        kind: FileKind::Regular,
        mode: 0o644,
        uid: 1,
        gid: 2,
        size: 3,
        mtime: Timestamp::EPOCH,
        change: 4,
        epoch: Epoch(5),
        names: (0..20).map(name).collect(),
        target: None,
        replicas: Vec::new(),
    };
    let files: Vec<_> = (1..=3000).map(described).collect();
    scene.remote.describe(FileId(0), FileId(4000), files.clone()).await.unwrap();
    assert_eq!(scene.pool.pool().descriptions(), files);
    scene.remote.describe(FileId(1000), FileId(4000), Vec::new()).await.unwrap();
    assert_eq!(scene.pool.pool().descriptions().len(), 1000);
}

/// Answers every call with the same bytes.
struct Hostile(Vec<u8>);

#[async_trait]
impl Answerer for Hostile {
    async fn answer(&self, _: u32, _: Decoder) -> Result<Encoder, Refused> {
        let mut results = Encoder::new();
        results.put_raw(&self.0);
        Ok(results)
    }
}

mod answers_of_any_bytes {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn do_not_make_the_head_panic(
            words in prop::collection::vec(prop_oneof![0..4u32, any::<u32>()], 0..40),
        ) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let scene = Scene::new();
                let _dialled = scene.dial_to(1, Arc::new(Hostile(bytes)));
                let within = Duration::from_secs(1);
                let _ = scene.remote.make(&[(FILE, Birth(5))], within).await;
                let _ = scene.remote.truncate(&[(FILE, 5), (FILE, 6)], within).await;
                let _ = scene.remote.facts(&[FILE], within).await;
                let _ = scene.remote.sync_removals(&[FILE], within).await;
                let _ = scene.remote.replicas(FILE, 9).await;
                let _ = scene.remote.describe(FILE, FILE, Vec::new()).await;
                let opened = Opened { verifier: [7; 8], has_ranges: true };
                let replica = RemoteReplica::new(Arc::clone(&scene.remote.links), ticket(), &opened);
                let read = replica.read_at(0, 9).await;
                assert!(read.is_err() || read.is_ok_and(|read| read.data.len() <= 9));
                let _ = replica.write_at(0, Bytes::from("x"), Stability::Unstable).await;
                let _ = replica.sync().await;
                let _ = replica.ranges().unwrap().seek(0, api::RangeKind::Data).await;
            });
        }
    }
}
