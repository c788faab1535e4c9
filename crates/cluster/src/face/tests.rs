//! Data faces and their head, over bytes: what is held, begun and completed, and what is left of it when one of them is gone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cluster_state::Process;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use types::Random;
use xdr::{Bytes, from_bytes, to_bytes};

use super::wire::{BeginCall, CompleteCall, HoldAnswer, HoldCall, Kinds, Note, Notes};
use super::*;
use crate::rpc::{Answerer, CallError, Connection, Refused};

const POOL: PoolId = PoolId(3);
const FILE: FileId = FileId(70);

fn held_version() -> HeldVersion {
    let time = Timestamp::new(1_800_000_000, 5).unwrap();
    HeldVersion { birth: time, size: 9, mtime: time, io: IoMode::Direct }
}

fn stored() -> StoredVersion {
    StoredVersion { file: FILE.0, change: 8, is_new: true }
}

fn arrived() -> ArrivedBytes {
    let sum = Checksum::new(ChecksumKind::Adler32, &[1, 2, 3, 4]).unwrap();
    ArrivedBytes { size: 9, checksums: vec![sum] }
}

/// Has [`FILE`] and an upload of that number, on [`POOL`].
#[derive(Default)]
struct Faces {
    held: Arc<AtomicUsize>,
    /// As they were called.
    calls: Mutex<BTreeMap<&'static str, usize>>,
    /// Completions wait for a permit if there is a gate.
    gate: Option<Arc<Semaphore>>,
    denies: Mutex<Option<Denied>>,
}

struct CountedHold(Arc<AtomicUsize>);

impl Drop for CountedHold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Faces {
    fn call(&self, name: &'static str) {
        *self.calls.lock().entry(name).or_default() += 1;
    }

    fn count(&self, name: &str) -> usize {
        self.calls.lock().get(name).copied().unwrap_or_default()
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl DataFaces for Faces {
    async fn hold(
        &self,
        pool: PoolId,
        file: FileId,
        change: u64,
    ) -> Result<Option<(Hold, HeldVersion)>, Denied> {
        if (pool, file, change) != (POOL, FILE, 5) {
            return Ok(None);
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        Ok(Some((Box::new(CountedHold(Arc::clone(&self.held))), held_version())))
    }

    async fn begin(&self, _: PoolId, _: FileId, _: bool) -> Result<Vec<ChecksumKind>, Denied> {
        self.call("begin");
        Ok(vec![ChecksumKind::Adler32, ChecksumKind::Sha256])
    }

    fn put_off(&self, _: PoolId, _: FileId) {
        self.call("put_off");
    }

    fn give_up(&self, _: PoolId, _: FileId) {
        self.call("give_up");
    }

    async fn complete(&self, _: PoolId, _: FileId, _: ArrivedBytes) -> Result<StoredVersion, Denied> {
        self.call("complete");
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        match self.denies.lock().clone() {
            Some(denied) => Err(denied),
            None => Ok(stored()),
        }
    }
}

#[derive(Default)]
struct Numbers(AtomicU64);

impl Random for Numbers {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        bytes.iter_mut().zip(number).for_each(|(byte, value)| *byte = value);
    }
}

/// The head's end of a session.
struct Session {
    desk: Arc<FaceDesk>,
    faces: Arc<dyn DataFaces>,
    holds: Holds,
}

#[async_trait]
impl Answerer for Session {
    async fn answer(&self, procedure: u32, mut arguments: Decoder) -> Result<Encoder, Refused> {
        self.desk.answer((POOL, &self.faces), &self.holds, procedure, &mut arguments).await
    }
}

struct Nothing;

#[async_trait]
impl Answerer for Nothing {
    async fn answer(&self, _: u32, _: Decoder) -> Result<Encoder, Refused> {
        Err(Refused::NoProcedure)
    }
}

/// A pool with a link, and a head.
struct World {
    faces: Arc<Faces>,
    desk: Arc<FaceDesk>,
    link: Arc<FaceLink>,
}

impl World {
    fn of(faces: Faces) -> World {
        let (faces, desk) = (Arc::new(faces), Arc::default());
        World { faces, desk, link: FaceLink::new(Arc::new(Numbers::default())) }
    }

    /// A session, as `head.rs` and `member.rs` begin and end one.
    fn connect(&self) -> (Arc<Session>, Arc<Connection>) {
        let (here, there) = tokio::io::duplex(1 << 16);
        let (desk, faces) = (Arc::clone(&self.desk), Arc::clone(&self.faces) as Arc<dyn DataFaces>);
        let session = Arc::new(Session { desk, faces, holds: Holds::default() });
        Connection::start(there, Arc::clone(&session) as _);
        let connection = Connection::start(here, Arc::new(Nothing));
        self.link.connect(Arc::clone(&connection), None);
        tokio::spawn(Arc::clone(&self.link).keep_telling(Arc::clone(&connection)));
        (session, connection)
    }

    fn lose(&self, (session, connection): (Arc<Session>, Arc<Connection>)) {
        self.link.disconnect();
        connection.close();
        session.holds.end();
    }
}

async fn until(is_so: impl Fn() -> bool) {
    let all = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("it comes to be so");
}

/// The text is the protocol: other versions of the program read and write it.
#[test]
fn numbers_on_the_wire_stay_as_they_are() {
    assert_eq!((procedure::HOLD, procedure::TELL, procedure::BEGIN, procedure::COMPLETE), (40, 41, 42, 43));
    let call = HoldCall { hold: 1, file: 2, change: 3 };
    assert_eq!(to_bytes(&call), b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03"[..]);
    assert_eq!(to_bytes(&HoldAnswer::Changed), b"\0\0\0\x01"[..]);
    for (note, number) in [(Note::Release(1), 0), (Note::PutOff(1), 1), (Note::GiveUp(1), 2)] {
        assert_eq!(to_bytes(&note), [0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0, 1][..]);
    }
    let kinds = Kinds::of(&[ChecksumKind::Sha256, ChecksumKind::Adler32, ChecksumKind::Sha256]);
    assert_eq!(to_bytes(&kinds), b"\0\0\0\x02\0\0\0\x01\0\0\0\x04"[..]);
    assert_eq!(from_bytes::<Kinds>(b"\0\0\0\x01\0\0\0\x05".to_vec().into()).ok(), None);
}

#[test]
fn an_upload_comes_back_and_a_checksum_of_a_wrong_length_does_not() {
    let call = to_bytes(&CompleteCall::of(FILE.0, &arrived()));
    let back: CompleteCall = from_bytes(call.clone()).unwrap();
    assert_eq!(back.into_arrived(), Some(arrived()));
    // The length of the checksum stands 8 bytes before the end.
    let mut short = call.to_vec();
    let at = short.len() - 5;
    short[at] = 3;
    assert_eq!(from_bytes::<CompleteCall>(short.into()).unwrap().into_arrived(), None);
}

#[test]
fn a_face_is_told_with_names_and_networks_that_can_be() {
    let face = HttpFace {
        port: 8081,
        name: Some("fb2.example.org".to_owned()),
        is_tls: true,
        plain_networks: vec!["10.1.0.0/16".parse().unwrap()],
    };
    let told = Added(Some(ToldFace::of(&face)));
    let back: Added<ToldFace> = from_bytes(to_bytes(&told)).unwrap();
    assert_eq!(back.0.unwrap().into_face(), Ok(face.clone()));
    assert_eq!(from_bytes::<Added<ToldFace>>(Bytes::new()).unwrap(), Added(None), "by a pool of before");
    for name in ["a/b", "a b", "evil@host", "a\r\nb", "a?b", "a#b"] {
        let told = ToldFace::of(&HttpFace { name: Some(name.to_owned()), ..face.clone() });
        assert!(told.into_face().is_err(), "{name:?}");
    }
    assert!(ToldFace::of(&HttpFace { port: 0, ..face }).into_face().is_err());
}

#[tokio::test]
async fn a_file_is_held_until_it_is_let_go_of_or_the_session_ends() {
    let world = World::of(Faces::default());
    let session = world.connect();
    let (hold, held) = world.link.hold(FILE, 5).await.unwrap().unwrap();
    assert_eq!((held, world.faces.held()), (held_version(), 1));
    drop(hold);
    until(|| world.faces.held() == 0).await;
    let _hold = world.link.hold(FILE, 5).await.unwrap().unwrap();
    assert_eq!(world.faces.held(), 1);
    world.lose(session);
    assert_eq!(world.faces.held(), 0);
}

#[tokio::test]
async fn a_file_of_another_version_is_not_held() {
    let world = World::of(Faces::default());
    let (session, _) = world.connect();
    assert!(world.link.hold(FILE, 6).await.unwrap().is_none());
    assert!(world.link.hold(FileId(71), 5).await.unwrap().is_none());
    until(|| session.holds.count() == 0).await;
    assert_eq!(world.faces.held(), 0);
}

#[tokio::test]
async fn holds_of_a_pool_have_a_bound() {
    let world = World::of(Faces::default());
    let (_, connection) = world.connect();
    let hold = async |number| {
        let call = HoldCall { hold: number, file: FILE.0, change: 5 };
        connection.call::<_, HoldAnswer>(procedure::HOLD, &call, Duration::from_secs(20)).await.unwrap()
    };
    for number in 0..HOLDS_MAX as u64 {
        assert!(matches!(hold(number).await, HoldAnswer::Held(_)));
    }
    assert!(matches!(hold(0).await, HoldAnswer::Denied(_)), "a number is used once");
    let HoldAnswer::Denied(denied) = hold(1 << 40).await else { panic!("there is no bound") };
    assert!(denied.into_denied().is_passing);
    let notes = Notes { notes: vec![Note::Release(7)] };
    connection.call::<_, ()>(procedure::TELL, &notes, Duration::from_secs(20)).await.unwrap();
    assert!(matches!(hold(1 << 40).await, HoldAnswer::Held(_)));
    assert_eq!(world.faces.held(), HOLDS_MAX);
}

/// A hold that is granted when its session is over would stay for ever.
#[tokio::test]
async fn nothing_is_held_after_the_end_of_a_session() {
    let world = World::of(Faces::default());
    let (session, connection) = world.connect();
    session.holds.end();
    let call = HoldCall { hold: 1, file: FILE.0, change: 5 };
    let answer: HoldAnswer = connection.call(procedure::HOLD, &call, Duration::from_secs(20)).await.unwrap();
    assert!(matches!(answer, HoldAnswer::Denied(_)));
    assert_eq!(world.faces.held(), 0);
}

#[tokio::test]
async fn an_upload_is_begun_once_at_a_time_and_completed() {
    let world = World::of(Faces::default());
    let _session = world.connect();
    let kinds = world.link.begin(FILE, false).await.unwrap();
    assert_eq!(kinds, [ChecksumKind::Adler32, ChecksumKind::Sha256]);
    assert_eq!(world.link.begin(FILE, false).await, Err(FaceError::Begun));
    assert_eq!(world.link.complete(FILE, &arrived()).await, Ok(stored()));
    assert_eq!((world.faces.count("begin"), world.faces.count("put_off")), (1, 0));
}

#[tokio::test]
async fn a_refusal_is_told_as_the_head_says_it() {
    let world = World::of(Faces::default());
    let _session = world.connect();
    let xml = Some(b"<error/>".to_vec());
    let denied = Denied { status: 423, reason: "locked".to_owned(), is_passing: false, xml };
    *world.faces.denies.lock() = Some(denied.clone());
    world.link.begin(FILE, false).await.unwrap();
    assert_eq!(world.link.complete(FILE, &arrived()).await, Err(FaceError::Denied(denied)));
    *world.faces.denies.lock() = None;
    world.link.begin(FILE, true).await.unwrap();
    assert_eq!(world.link.complete(FILE, &arrived()).await, Ok(stored()), "the lock is gone");
    assert_eq!(world.faces.count("complete"), 2);
}

/// The pool does not know whether the head has done it.
#[tokio::test]
async fn an_upload_whose_answer_was_lost_is_completed_once_and_told_again() {
    let gate = Arc::new(Semaphore::new(0));
    let world = World::of(Faces { gate: Some(Arc::clone(&gate)), ..Faces::default() });
    let first = world.connect();
    world.link.begin(FILE, false).await.unwrap();
    let link = Arc::clone(&world.link);
    let completing = tokio::spawn(async move { link.complete(FILE, &arrived()).await });
    until(|| world.faces.count("complete") == 1).await;
    world.lose(first);
    let _second = world.connect();
    gate.add_permits(1);
    assert_eq!(completing.await.unwrap(), Ok(stored()));
    // As a client does that was told to come again.
    assert_eq!(world.link.begin(FILE, true).await, Ok(vec![ChecksumKind::Adler32]));
    assert_eq!(world.link.complete(FILE, &arrived()).await, Ok(stored()));
    assert_eq!((world.faces.count("complete"), world.faces.count("begin")), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_away_is_waited_for_a_bounded_time() {
    let world = World::of(Faces::default());
    let began = tokio::time::Instant::now();
    assert!(matches!(world.link.hold(FILE, 5).await, Err(FaceError::Away)));
    assert_eq!(world.link.begin(FILE, false).await, Err(FaceError::Away));
    assert_eq!(world.link.complete(FILE, &arrived()).await, Err(FaceError::Away));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let link = Arc::clone(&world.link);
    let waiting = tokio::spawn(async move { link.begin(FILE, false).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _session = world.connect();
    assert!(waiting.await.unwrap().is_ok(), "it came in time");
}

#[tokio::test]
async fn ends_of_uploads_are_told_to_the_next_session() {
    let world = World::of(Faces::default());
    let first = world.connect();
    for file in [FILE, FileId(71)] {
        world.link.begin(file, false).await.unwrap();
    }
    world.lose(first);
    world.link.put_off(FILE);
    world.link.give_up(FileId(71));
    let _second = world.connect();
    until(|| (world.faces.count("put_off"), world.faces.count("give_up")) == (1, 1)).await;
    assert!(world.link.begin(FILE, true).await.is_ok());
}

#[tokio::test]
async fn uploads_that_another_process_of_the_pool_began_are_given_up() {
    let world = World::of(Faces::default());
    let _session = world.connect();
    let faces = Arc::clone(&world.faces) as Arc<dyn DataFaces>;
    let greet = |starts| world.desk.greet(POOL, Process { starts, draw: 0 }, Some(&faces));
    greet(1);
    world.link.begin(FILE, false).await.unwrap();
    greet(1);
    assert_eq!(world.faces.count("give_up"), 0, "the same process has them still");
    greet(2);
    assert_eq!(world.faces.count("give_up"), 1);
    world.link.put_off(FILE);
    world.link.begin(FILE, false).await.unwrap();
    world.desk.leave(POOL, Some(&faces));
    assert_eq!(world.faces.count("give_up"), 2, "the pool was away for too long");
}

/// A pool host that lies can end its own uploads, and none that it has not begun.
#[tokio::test]
async fn notes_about_uploads_that_the_pool_did_not_begin_do_nothing() {
    let world = World::of(Faces::default());
    let (_, connection) = world.connect();
    let notes = Notes { notes: vec![Note::GiveUp(FILE.0), Note::PutOff(FILE.0), Note::Release(1)] };
    connection.call::<_, ()>(procedure::TELL, &notes, Duration::from_secs(20)).await.unwrap();
    assert_eq!((world.faces.count("give_up"), world.faces.count("put_off")), (0, 0));
    let begin = BeginCall { file: FILE.0, has_bytes: false };
    let unknown = connection.call::<_, ()>(59, &begin, Duration::from_secs(20)).await;
    assert_eq!(unknown, Err(CallError::Refused));
}
