//! Operations at a pool that fails, hangs, loses answers, tears writes, crashes or disappears, at each of their calls.
//!
//! Bytes that were acknowledged as stable are there, or an error says that they are not. A refused operation has left the
//! bytes before it, those after it, or some of both; none that are neither. It can be repeated, and leaves nothing behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{ANSWER_TIME, PoolError, RangeKind, Replace, Stability, Stretch};
use bytes::Bytes;
use forebay_files::{ContentMode, FilesError, UploadError};
use testkit::faulty::{Call, Fault, Gate, Schedule};
use types::{ByteRange, ChecksumKind, FileId, Identity, PoolId};

use crate::scene::{POOL, Rules, give_name};
use crate::world::{OTHER, World};

/// Longer than any answer of a pool is waited for.
const FOR_EVER: Duration = Duration::from_secs(601);

const CALLS: [Call; 8] =
    [Call::Open, Call::Make, Call::Truncate, Call::Facts, Call::Read, Call::Write, Call::Sync, Call::Range];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Seek,
    Checksum,
    Sync,
    Write(Stability),
    Allocate,
    Deallocate,
    Cut,
    Grow,
    Copy { source: PoolId },
    Put,
    Replacement,
}

const OPERATIONS: [Operation; 14] = [
    Operation::Read,
    Operation::Seek,
    Operation::Checksum,
    Operation::Sync,
    Operation::Write(Stability::Unstable),
    Operation::Write(Stability::FileSync),
    Operation::Allocate,
    Operation::Deallocate,
    Operation::Cut,
    Operation::Grow,
    Operation::Copy { source: POOL },
    Operation::Copy { source: OTHER },
    Operation::Put,
    Operation::Replacement,
];

const BEFORE: &[u8] = b"12345678";

#[derive(Debug)]
enum Answer {
    /// The operation is done, and on disk.
    Acknowledged,
    /// The pool has started anew since the bytes were written: a client writes them again.
    ToBeRepeated,
    Refused(FilesError),
}

impl Operation {
    fn has_file(self) -> bool {
        self != Operation::Put
    }

    fn made(self) -> &'static [u8] {
        match self {
            Operation::Read | Operation::Seek | Operation::Checksum | Operation::Sync => BEFORE,
            Operation::Write(_) => b"123456data",
            Operation::Allocate | Operation::Grow => b"12345678\0\0\0\0",
            Operation::Deallocate => b"12\0\0\0\x0078",
            Operation::Cut => b"123",
            Operation::Copy { .. } => b"123412345678",
            Operation::Put | Operation::Replacement => b"the bytes of an upload",
        }
    }
}

/// One operation on a file, or a free name, of its own.
struct Case<'a> {
    world: &'a World,
    of: Operation,
    text: String,
    source: FileId,
}

impl Case<'_> {
    async fn set(world: &World, of: Operation) -> Case<'_> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let text = format!("file {number}");
        if of.has_file() {
            world.make(&text, POOL, BEFORE).await;
        }
        let at = if let Operation::Copy { source } = of { source } else { POOL };
        let source = world.make(&format!("source {number}"), at, BEFORE).await.file;
        Case { world, of, text, source }
    }

    fn schedule(&self) -> &Schedule {
        self.world.pool.first.schedule()
    }

    async fn make(&self) -> Answer {
        let stable = match self.of {
            Operation::Put | Operation::Replacement => self.put().await.map(|()| true),
            _ => self.change().await,
        };
        match stable {
            Ok(true) => Answer::Acknowledged,
            Ok(false) => Answer::ToBeRepeated,
            Err(error) => Answer::Refused(error),
        }
    }

    async fn put(&self) -> Result<(), FilesError> {
        let bytes = std::str::from_utf8(self.of.made()).unwrap();
        let upload = self.world.begin(&self.text, Replace::Any, bytes).await?;
        give_name(upload, &Rules::default()).await.map(drop)
    }

    /// `false`: as [`Answer::ToBeRepeated`].
    async fn change(&self) -> Result<bool, FilesError> {
        let (files, by) = (&self.world.files, self.world.by());
        let who = by.identity;
        let file = self.world.found(&self.text).await.unwrap();
        if let Operation::Cut | Operation::Grow = self.of {
            let size = self.of.made().len() as u64;
            return files.set_length(by, &file, size, false).await.map(|_| true);
        }
        let content = files.content(&file, ContentMode::Write).await?;
        let range = |from, to| ByteRange::from_bounds(from, to).unwrap();
        let verifier = content.verifier()?;
        match self.of {
            Operation::Read => assert_eq!(content.read(0, 100).await?.data, BEFORE),
            Operation::Seek => assert_eq!(content.seek(0, RangeKind::Hole).await?, 8),
            Operation::Checksum => {
                let sum = files.checksum(&Identity::root(), &file, ChecksumKind::Adler32, &content).await?;
                assert_eq!(sum.to_string(), "adler32:074001a5");
            }
            Operation::Sync => drop(content.sync().await?),
            Operation::Write(stability) => {
                content.write(who, 6, Bytes::from_static(b"data"), stability).await?;
                return Ok(stability == Stability::FileSync || content.sync().await? == verifier);
            }
            Operation::Allocate => content.allocate(who, range(2, 12)).await?,
            Operation::Deallocate => content.deallocate(range(2, 6)).await?,
            Operation::Copy { .. } => {
                let source = self.world.attributes(self.source).await;
                let source = files.content(&source, ContentMode::Read).await?;
                let mut rest = Stretch { from: 0, to: 4, length: 8 };
                while rest.length > 0 {
                    rest = rest.behind(files.copy(&source, &content, rest, |_| false).await?);
                }
                return Ok(content.sync().await? == verifier);
            }
            Operation::Cut | Operation::Grow | Operation::Put | Operation::Replacement => unreachable!(),
        }
        Ok(true)
    }

    /// `None`: there is no file.
    async fn bytes(&self) -> Option<Result<Vec<u8>, FilesError>> {
        let file = self.world.found(&self.text).await?;
        Some(self.world.read(file.file).await)
    }

    /// The calls that it makes where nothing fails, by kind.
    async fn count_calls(self) -> Vec<(Call, u64)> {
        let before = CALLS.map(|call| self.schedule().count(call));
        assert!(matches!(self.make().await, Answer::Acknowledged), "{:?}", self.of);
        let after = CALLS.map(|call| self.schedule().count(call));
        assert_eq!(self.bytes().await.unwrap().unwrap(), self.of.made(), "{:?}", self.of);
        (0..CALLS.len()).map(|at| (CALLS[at], after[at] - before[at])).collect()
    }

    /// Takes the fault away, and judges the answer to an operation that has met it, what is left, and another attempt.
    async fn judge(&self, call: Call, answer: Answer, context: &str) {
        self.schedule().lift(call);
        self.schedule().reappear();
        let may_lose = self.world.pool.first.can_crash;
        if may_lose {
            crash(self.world).await;
        }
        match (&answer, self.bytes().await) {
            (Answer::Acknowledged, Some(bytes)) => {
                let bytes = bytes.unwrap_or_else(|error| panic!("{context}: acknowledged, and {error}"));
                assert_eq!(bytes, self.of.made(), "{context}: acknowledged");
            }
            (Answer::Acknowledged, None) => panic!("{context}: acknowledged, and there is no file"),
            (_, None) => assert!(!self.of.has_file(), "{context}: the file is gone"),
            (_, Some(Ok(bytes))) => assert!(self.may_be(&bytes), "{context}: {bytes:?}"),
            // A size that the namespace has heard of, and whose bytes no sync has covered.
            (_, Some(Err(FilesError::Pool(PoolError::Io { .. })))) if may_lose => {}
            // The replica was cut, and the namespace has not heard of it until the cut is repeated.
            (
                Answer::Refused(FilesError::Pool(PoolError::Unknown(_))),
                Some(Err(FilesError::Pool(PoolError::Io { .. }))),
            ) if self.of == Operation::Cut => {}
            (_, Some(Err(error))) => panic!("{context}: {error}"),
        }
        if let Answer::Refused(error) = &answer {
            let is_clear = matches!(error, FilesError::Pool(_) | FilesError::Upload(UploadError::Lost));
            assert!(is_clear, "{context}: {error:?}");
        }
        assert!(self.world.files.table().is_empty(), "{context}: {:?}", self.world.files.table());
        let again = self.make_again(may_lose).await;
        assert!(matches!(again, Answer::Acknowledged), "{context}: {again:?}");
        assert_eq!(self.bytes().await.unwrap().unwrap(), self.of.made(), "{context}: again");
    }

    /// A client whose bytes were lost writes all of them again.
    async fn make_again(&self, may_lose: bool) -> Answer {
        let is_changed = self.of.has_file() && self.of != Operation::Cut;
        if may_lose && is_changed && self.bytes().await.is_some_and(|bytes| bytes.is_err()) {
            let file = self.world.found(&self.text).await.unwrap();
            let file = self.world.files.set_length(self.world.by(), &file, 0, false).await.unwrap();
            let (who, data) = (&self.world.caller.identity, (0, Bytes::from_static(BEFORE)));
            self.world.files.write(who, &file, data, Stability::FileSync, None).await.unwrap();
        }
        self.make().await
    }

    /// Whether a refused operation may leave these bytes.
    fn may_be(&self, bytes: &[u8]) -> bool {
        let made = self.of.made();
        match self.of {
            Operation::Put => bytes == made,
            Operation::Replacement => bytes == made || bytes == BEFORE,
            _ => {
                let lengths = [BEFORE.len(), made.len()];
                let mut told = bytes.iter().enumerate();
                (lengths.contains(&bytes.len()) || bytes.len() > BEFORE.len().min(made.len()))
                    && bytes.len() <= BEFORE.len().max(made.len())
                    && told.all(|(at, byte)| BEFORE.get(at) == Some(byte) || made.get(at) == Some(byte))
            }
        }
    }
}

/// Lets each operation meet the fault at each call of each kind.
async fn at_each_call(world: &World, fault: impl Fn(Call) -> Option<Fault>) {
    let mut is_met = false;
    for of in OPERATIONS {
        let counts = Case::set(world, of).await.count_calls().await;
        for (call, count) in counts {
            for at in 0..count {
                let Some(fault) = fault(call) else { continue };
                is_met = true;
                let context = format!("{of:?} at {call:?} {at} of {count}: {fault:?}");
                let case = Case::set(world, of).await;
                case.schedule().on(call, at..=at, fault);
                let answer = case.make().await;
                case.judge(call, answer, &context).await;
            }
        }
        world.judge_and_reap(&format!("after {of:?} at all calls")).await;
    }
    assert!(is_met, "no call was made that can meet it");
}

pub async fn acknowledged_bytes_survive_a_call_that_fails(world: World) {
    let errors = [
        PoolError::Io { pool: POOL, operation: "do it", reason: "the disk is broken".to_owned() },
        PoolError::NoSpace(POOL),
        PoolError::Busy(POOL),
    ];
    for error in errors {
        at_each_call(&world, |_| Some(Fault::Fail(error.clone()))).await;
    }
}

pub async fn acknowledged_bytes_survive_a_lost_answer(world: World) {
    at_each_call(&world, |_| Some(Fault::LoseAnswer)).await;
}

pub async fn acknowledged_bytes_survive_a_torn_write(world: World) {
    let torn = || Fault::Tear { bytes: 2, error: PoolError::NoSpace(POOL) };
    at_each_call(&world, |call| (call == Call::Write).then(torn)).await;
}

pub async fn acknowledged_bytes_survive_a_pool_that_disappears_and_comes_back(world: World) {
    at_each_call(&world, |_| Some(Fault::Disappear)).await;
}

pub async fn acknowledged_bytes_survive_a_crash_that_loses_others(world: World) {
    assert!(world.pool.first.can_crash, "or nothing is shown");
    at_each_call(&world, |_| Some(Fault::LoseUnsynced)).await;
}

/// The namespace may have heard of their length, from the head or by a LAYOUTCOMMIT.
pub async fn a_crash_takes_replicas_of_which_nothing_was_committed_and_no_others(world: World) {
    let (files, who, bytes) = (&world.files, &world.caller.identity, Bytes::from_static(BEFORE));
    let through_head = world.make_empty("through the head", POOL).await;
    files.write(who, &through_head, (0, bytes.clone()), Stability::Unstable, None).await.unwrap();
    let at_pool = world.make_empty("at the pool", POOL).await;
    let replica = files.open_for_writing(&at_pool).await.unwrap();
    replica.write_at(0, bytes.clone(), Stability::Unstable).await.unwrap();
    files.commit_written(&at_pool, None, None).await.unwrap();
    let committed = world.make_empty("committed", POOL).await;
    files.write(who, &committed, (0, bytes.clone()), Stability::Unstable, None).await.unwrap();
    let content = files.content(&committed, ContentMode::Write).await.unwrap();
    content.sync().await.unwrap();
    let stable = world.make("stable", POOL, BEFORE).await;
    drop((replica, content));

    crash(&world).await;
    for kept in [committed, stable] {
        assert_eq!(world.read(kept.file).await.unwrap(), BEFORE);
    }
    let left = world.pool.first.pool.replicas(FileId(0), 1_000).await.unwrap();
    for gone in [through_head, at_pool] {
        assert!(!left.iter().any(|replica| replica.file == gone.file));
        let now = world.attributes(gone.file).await;
        assert_eq!(now.size, BEFORE.len() as u64, "the file is left as it is");
        let read = world.read(gone.file).await;
        assert!(matches!(read, Err(FilesError::Pool(PoolError::Io { .. }))), "{read:?}");
        files.write(who, &now, (0, bytes.clone()), Stability::FileSync, None).await.unwrap();
        assert_eq!(world.read(gone.file).await.unwrap(), BEFORE, "the client sends it again");
    }
    world.judge_and_reap("after the crash").await;
}

/// The pool loses what no sync has covered.
async fn crash(world: &World) {
    let pool = &world.pool.first;
    pool.schedule().on(Call::Facts, 0..1, Fault::LoseUnsynced);
    pool.pool.facts(&[FileId(1)], ANSWER_TIME).await.sole().unwrap();
    pool.schedule().lift(Call::Facts);
}

/// The operation waits for it, and is done.
pub async fn an_operation_waits_for_a_call_that_takes_its_time(world: World) {
    at_each_gate(
        &world,
        |gate| async move { gate.let_all_pass() },
        |answer| matches!(answer, Answer::Acknowledged),
    )
    .await;
}

/// The operation ends at the deadline of the pool's answers, and the pool does later what it was asked for.
pub async fn an_operation_ends_in_time_at_a_call_that_hangs(world: World) {
    let pass_the_time = |_| async {
        tokio::time::pause();
        tokio::time::advance(FOR_EVER).await;
        tokio::time::resume();
    };
    let is_bounded = |answer: &Answer| match answer {
        Answer::Acknowledged => true,
        Answer::Refused(error) => matches!(error, FilesError::Pool(PoolError::Unknown(POOL))),
        Answer::ToBeRepeated => false,
    };
    at_each_gate(&world, pass_the_time, is_bounded).await;
}

/// Lets each call of each operation wait at a gate until `then` is done.
async fn at_each_gate<T: Future<Output = ()>>(
    world: &World,
    then: impl Fn(Gate) -> T,
    is_right: impl Fn(&Answer) -> bool,
) {
    for of in OPERATIONS {
        let counts = Case::set(world, of).await.count_calls().await;
        for (call, count) in counts {
            for at in 0..count {
                let context = format!("{of:?} at {call:?} {at} of {count}");
                let case = Case::set(world, of).await;
                let gate = Gate::shut();
                case.schedule().on(call, at..=at, Fault::Delay(gate.clone()));
                let waiting = async {
                    while gate.waiting() == 0 {
                        tokio::task::yield_now().await;
                    }
                    then(gate.clone()).await;
                };
                let (answer, ()) = tokio::join!(case.make(), waiting);
                assert!(is_right(&answer), "{context}: {answer:?}");
                gate.let_all_pass();
                case.judge(call, answer, &context).await;
            }
        }
        world.judge_and_reap(&format!("after {of:?} at all calls")).await;
    }
}
