//! Copies of bytes between two files.

use api::{Birth, Pool, PoolError, Stretch};
use bytes::Bytes;
use futures_util::FutureExt;
use testkit::faulty::{Call, Fault, Faulty, Gate, Request, Schedule};
use testkit::memory_pool::MemoryPool;
use types::{Attributes, PoolId};

use super::fakes::POOL;
use super::*;

const TARGET: FileId = FileId(8);
const OTHER: PoolId = PoolId(POOL.0 + 1);
const PIECE: u64 = 1 << 20;
const WHOLE: Stretch = Stretch { from: 5, to: 7, length: 4 * PIECE };

/// A source and a target, open, and the faults that the pool of the target meets.
struct Ends {
    fakes: Arc<Fakes>,
    files: Arc<Files>,
    target_pool: Schedule,
    source: Content,
    target: Content,
}

impl Ends {
    /// A full source in one pool, and a target that is empty in another one.
    async fn in_two_pools(target: MemoryPool) -> Ends {
        let (fakes, files) = Fakes::files();
        let target = Arc::new(Faulty::new(target));
        fakes.pools.list().add(target.clone() as Arc<dyn Pool>).unwrap();
        fakes.locations.lock().insert(TARGET, vec![OTHER]);
        Ends::open(fakes, files, target.schedule().clone(), WHOLE.from + WHOLE.length).await
    }

    async fn in_one_pool() -> Ends {
        let (fakes, files) = Fakes::files();
        fakes.locations.lock().insert(TARGET, vec![POOL]);
        let schedule = fakes.pool.schedule().clone();
        Ends::open(fakes, files, schedule, WHOLE.from + WHOLE.length).await
    }

    async fn open(fakes: Arc<Fakes>, files: Arc<Files>, target_pool: Schedule, size: u64) -> Ends {
        fakes.put_replica(Birth::UNKNOWN, size as usize, 100);
        let (source, target) = (attributes(FILE, size), attributes(TARGET, 0));
        fakes.files.lock().extend([(FILE, source), (TARGET, target)]);
        let source = files.content(&source, ContentMode::Read).await.unwrap();
        let target = files.content(&target, ContentMode::Write).await.unwrap();
        Ends { fakes, files, target_pool, source, target }
    }

    async fn copy(&self, stretch: Stretch, is_over: impl Fn(u64) -> bool) -> Result<u64, FilesError> {
        self.files.copy(&self.source, &self.target, stretch, is_over).await
    }

    /// Of the target, as the namespace knows it.
    fn attributes(&self) -> Attributes {
        self.fakes.files.lock()[&TARGET]
    }

    async fn target_bytes(&self, offset: u64, length: u32) -> Bytes {
        let content = self.files.content(&self.attributes(), ContentMode::Read).await.unwrap();
        content.read(offset, length).await.unwrap().data
    }
}

#[tokio::test]
async fn a_copy_that_takes_long_answers_with_the_bytes_done_and_at_least_one_piece() {
    let ends = Ends::in_two_pools(MemoryPool::without_ranges(OTHER)).await;
    assert_eq!(ends.copy(WHOLE, |_| true).await.unwrap(), PIECE);
    let is_write = |request: &Request| matches!(request, Request::Write { .. });
    let writes: Vec<_> = ends.target_pool.passed().into_iter().filter(is_write).collect();
    assert_eq!(writes, [Request::Write { offset: 7, length: PIECE }]);
    assert_eq!(ends.attributes().size, 7 + PIECE);
    assert_eq!(ends.copy(WHOLE, |_| false).await.unwrap(), WHOLE.length);
    assert_eq!(ends.target_pool.count(Call::Write), 5);
    assert!(ends.target_bytes(7, WHOLE.length as u32).await == vec![7; WHOLE.length as usize]);
}

#[tokio::test]
async fn a_copy_that_fails_half_way_answers_with_the_bytes_done_and_then_with_the_error() {
    let ends = Ends::in_two_pools(MemoryPool::without_ranges(OTHER)).await;
    ends.target_pool.on(Call::Write, 2.., Fault::Fail(PoolError::NoSpace(OTHER)));
    let done = ends.copy(WHOLE, |_| false).await.unwrap();
    assert_eq!((done, ends.attributes().size), (2 * PIECE, 7 + 2 * PIECE));
    let rest = ends.copy(WHOLE.behind(done), |_| false).await;
    assert!(matches!(rest, Err(FilesError::Pool(PoolError::NoSpace(_)))));
    assert_eq!(ends.attributes().size, 7 + 2 * PIECE);
}

#[tokio::test]
async fn a_copy_that_is_dropped_half_way_tells_the_namespace_of_all_that_it_wrote() {
    for pieces in 1..=4 {
        let ends = Ends::in_two_pools(MemoryPool::without_ranges(OTHER)).await;
        let gate = Gate::shut();
        ends.target_pool.on(Call::Write, .., Fault::Delay(gate.clone()));
        let mut copy = Box::pin(ends.copy(WHOLE, |_| false));
        for _ in 1..pieces {
            assert!(copy.as_mut().now_or_never().is_none());
            gate.let_waiting_pass();
        }
        assert!(copy.as_mut().now_or_never().is_none(), "its last piece is under way");
        drop(copy);
        assert!(ends.files.steady(TARGET).now_or_never().is_some(), "others write");
        let target = attributes(TARGET, 0);
        let cut = ends.files.begin_resizing(&target, 0, None, LONG).now_or_never();
        assert!(cut.is_none(), "its turn lasts as long");
        gate.let_all_pass();
        while !ends.files.tasks.is_idle() {
            tokio::task::yield_now().await;
        }
        assert_eq!(ends.attributes().size, 7 + pieces * PIECE);
        assert!(ends.target_bytes(7, (pieces * PIECE) as u32).await == vec![7; (pieces * PIECE) as usize]);
        assert!(ends.files.begin_resizing(&target, 0, None, LONG).now_or_never().is_some());
    }
}

/// Whether or not the pool of the target can have holes.
#[tokio::test]
async fn a_hole_of_the_source_is_zeros_in_the_target() {
    for pool in [MemoryPool::new(OTHER), MemoryPool::without_ranges(OTHER)] {
        let ends = Ends::in_two_pools(pool).await;
        ends.copy(WHOLE, |_| false).await.unwrap();
        let range = types::ByteRange::from_bounds(0, 2 * PIECE).unwrap();
        let source = attributes(FILE, WHOLE.from + WHOLE.length);
        let holed = ends.files.content(&source, ContentMode::Change).await;
        holed.unwrap().deallocate(range).await.unwrap();
        assert_eq!(ends.copy(WHOLE, |_| false).await.unwrap(), WHOLE.length);
        let copied = ends.target_bytes(7, WHOLE.length as u32).await;
        let (zeros, data) = copied.split_at((2 * PIECE - WHOLE.from) as usize);
        assert!(zeros.iter().all(|byte| *byte == 0) && data.iter().all(|byte| *byte == 7));
    }
}

#[tokio::test]
async fn a_pool_copies_its_own_replicas_and_the_head_moves_no_byte() {
    let ends = Ends::in_one_pool().await;
    assert_eq!(ends.copy(WHOLE, |_| false).await.unwrap(), WHOLE.length);
    assert_eq!(ends.target_pool.count(Call::Read) + ends.target_pool.count(Call::Write), 0);
    assert!(ends.target_bytes(7, WHOLE.length as u32).await == vec![7; WHOLE.length as usize]);
}

#[tokio::test]
async fn a_source_that_was_cut_since_it_was_looked_at_is_looked_at_again() {
    let ends = Ends::in_one_pool().await;
    ends.fakes.put_replica(Birth::UNKNOWN, 100, 100);
    ends.fakes.files.lock().insert(FILE, attributes(FILE, 100));
    assert!(matches!(ends.copy(WHOLE, |_| false).await, Err(FilesError::Shortened)));
}
