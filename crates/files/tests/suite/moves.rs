//! Moves of replicas to another pool: nothing that was acknowledged is lost, whoever does what in between, and whatever is
//! interrupted leaves what the next look clears up.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use api::{
    ANSWER_TIME, ExpectedFile, Grant, Locations, Namespace, PoolError, Presence, ReplicaState, SelectError,
    Stability, Ticket, TicketMode,
};
use async_trait::async_trait;
use bytes::Bytes;
use file_state::{LayoutMode, Modes, Share};
use forebay_files::{ContentMode, CopyPace, FilesError, MoveError, MoveWaits, Moved, Mover};
use futures_util::future::BoxFuture;
use testkit::faulty::{Call, Fault};
use testkit::memory_pool::{Limits, MemoryPool};
use tokio::sync::Mutex;
use types::{Attributes, FileId, PoolId};

use crate::scene::{A, LONG, POOL, Scene, name, sqlite};
use crate::world::{OTHER, World, pattern};

const MIB: usize = 1 << 20;
const DONE: Moved = Moved::Done { to: OTHER };

/// Does something once, when the first piece was copied.
struct Then<'a>(Mutex<Option<BoxFuture<'a, bool>>>);

impl<'a> Then<'a> {
    fn goes_on(step: impl Future<Output = ()> + Send + 'a) -> Then<'a> {
        Then(Mutex::new(Some(Box::pin(async move {
            step.await;
            true
        }))))
    }

    fn nothing() -> Then<'a> {
        Then(Mutex::new(None))
    }
}

#[async_trait]
impl CopyPace for Then<'_> {
    async fn rest(&self, _: Duration) -> bool {
        match self.0.lock().await.take() {
            Some(step) => step.await,
            None => true,
        }
    }
}

struct Case<'a> {
    world: &'a World,
    mover: Mover,
}

impl Case<'_> {
    fn of(world: &World) -> Case<'_> {
        Case { world, mover: world.files.mover().unwrap() }
    }

    async fn try_move(&self, file: FileId, pace: &Then<'_>) -> Result<Moved, MoveError> {
        self.mover.move_away(file, POOL, pace).await
    }

    async fn moved(&self, file: FileId) {
        assert_eq!(self.try_move(file, &Then::nothing()).await.unwrap(), DONE);
    }

    async fn states(&self, file: FileId) -> Vec<(PoolId, ReplicaState)> {
        let locality = self.world.namespace.locality(file).await.unwrap();
        locality.replicas().iter().map(|replica| (replica.pool, replica.state)).collect()
    }

    async fn sizes(&self, file: FileId) -> [Option<u64>; 2] {
        let mut sizes = [None; 2];
        for (size, at) in sizes.iter_mut().zip([&self.world.pool.first, &self.world.pool.second]) {
            let facts = at.pool.facts(&[file], ANSWER_TIME).await.sole().unwrap();
            *size = facts.map(|facts| facts.size);
        }
        sizes
    }

    /// The file is at the other pool alone, and has these bytes.
    async fn judge(&self, file: FileId, bytes: &[u8]) {
        assert_eq!(self.states(file).await, [(OTHER, ReplicaState::Good)]);
        assert_eq!(self.sizes(file).await[0], None);
        assert!(self.world.read(file).await.unwrap() == bytes);
        self.world.judge("a move").await;
    }

    async fn write(&self, file: FileId, offset: u64, bytes: &'static [u8]) {
        let file = self.world.attributes(file).await;
        let (who, bytes) = (&self.world.caller.identity, Bytes::from_static(bytes));
        self.world.files.write(who, &file, (offset, bytes), Stability::FileSync, None).await.unwrap();
    }

    async fn settle_all(&self) {
        for left in self.mover.unsettled(FileId(0), 100).await.unwrap() {
            self.mover.settle(left.attributes.file).await.unwrap();
        }
    }
}

async fn set_length(world: &World, file: &Attributes, size: u64) {
    world.files.set_length(world.by(), file, size, false).await.unwrap();
}

pub async fn a_moved_file_has_the_bytes_and_holes_that_it_had(world: World) {
    let case = Case::of(&world);
    let mut bytes = pattern(2 * MIB + 77);
    let file = world.make("file", POOL, bytes.clone()).await;
    case.write(file.file, 9 * MIB as u64, b"behind a hole").await;
    set_length(&world, &world.attributes(file.file).await, 12 * MIB as u64).await;
    bytes.resize(9 * MIB, 0);
    bytes.extend_from_slice(b"behind a hole");
    bytes.resize(12 * MIB, 0);
    let before = world.attributes(file.file).await;
    case.moved(file.file).await;
    case.judge(file.file, &bytes).await;
    let after = world.attributes(file.file).await;
    assert_eq!((after.size, after.mtime, after.ctime), (before.size, before.mtime, before.ctime));
    assert!(after.epoch > before.epoch && after.change > before.change);
    let facts = world.pool.second.pool.facts(&[file.file], ANSWER_TIME).await.sole().unwrap().unwrap();
    assert!(facts.space_used < 6 * MIB as u64, "{facts:?}");
    assert_eq!(case.try_move(file.file, &Then::nothing()).await.unwrap(), Moved::NothingToDo);
}

pub async fn a_file_that_was_moved_away_comes_back_and_goes_again(world: World) {
    let case = Case::of(&world);
    for (text, bytes) in [("file", pattern(MIB + 5)), ("empty", Vec::new())] {
        let file = match bytes.is_empty() {
            true => world.make_empty(text, POOL).await,
            false => world.make(text, POOL, bytes.clone()).await,
        };
        for _ in 0..2 {
            case.moved(file.file).await;
            case.judge(file.file, &bytes).await;
            let back = case.mover.move_away(file.file, OTHER, &Then::nothing()).await.unwrap();
            assert_eq!(back, Moved::Done { to: POOL });
            assert!(world.read(file.file).await.unwrap() == bytes);
        }
        case.moved(file.file).await;
        case.write(file.file, 0, b"written").await;
        assert!(world.read(file.file).await.unwrap().starts_with(b"written"));
    }
    world.judge("the last").await;
}

pub async fn a_file_that_is_written_while_it_is_copied_stays_and_is_moved_later(world: World) {
    let case = Case::of(&world);
    let file = world.make("file", POOL, pattern(3 * MIB)).await;
    let write = Then::goes_on(case.write(file.file, 5, b"NEW"));
    let waits = case.try_move(file.file, &write).await.unwrap();
    assert_eq!(waits, Moved::Waits(MoveWaits::Changed));
    assert_eq!(case.states(file.file).await, [(POOL, ReplicaState::Good)]);
    assert_eq!(case.sizes(file.file).await[1], None, "the copy is removed");
    world.judge("a copy that was given up").await;
    case.moved(file.file).await;
    let mut bytes = pattern(3 * MIB);
    bytes[5..8].copy_from_slice(b"NEW");
    case.judge(file.file, &bytes).await;
}

pub async fn a_file_that_is_cut_while_it_is_copied_is_moved_later_with_its_new_length(world: World) {
    let case = Case::of(&world);
    let file = world.make("file", POOL, pattern(3 * MIB)).await;
    let cut = Then::goes_on(set_length(&world, &file, 1000));
    assert_eq!(case.try_move(file.file, &cut).await.unwrap(), Moved::Waits(MoveWaits::Changed));
    case.moved(file.file).await;
    case.judge(file.file, &pattern(1000)).await;
}

pub async fn a_file_opened_before_it_was_moved_is_read_and_written_where_it_is(world: World) {
    let case = Case::of(&world);
    let file = world.make("file", POOL, pattern(2 * MIB)).await;
    let reader = world.files.content(&file, ContentMode::Read).await.unwrap();
    let writer = world.files.content(&file, ContentMode::Change).await.unwrap();
    case.moved(file.file).await;
    let who = &world.caller.identity;
    writer.write(who, 7, Bytes::from_static(b"LATE"), Stability::FileSync).await.unwrap();
    let mut bytes = pattern(2 * MIB);
    bytes[7..11].copy_from_slice(b"LATE");
    case.judge(file.file, &bytes).await;
    // Whether it still sees the old replica is the pool's matter: an error it does not see.
    let read = reader.read(MIB as u64, 100).await.unwrap();
    assert_eq!(&read.data[..], &bytes[MIB..MIB + 100]);
}

pub async fn a_file_that_is_removed_while_it_is_copied_leaves_nothing(world: World) {
    let case = Case::of(&world);
    let file = world.make("file", POOL, pattern(2 * MIB)).await;
    let remove = Then::goes_on(async {
        let (who, dir) = (&world.caller.identity, world.dir);
        world.namespace.unlink(who, dir, &name("file"), ExpectedFile::Any).await.unwrap();
        assert_eq!(world.reap().await, [], "the move holds it");
    });
    let moved = case.try_move(file.file, &remove).await.unwrap();
    assert!(matches!(moved, Moved::Waits(MoveWaits::Changed) | Moved::NothingToDo), "{moved:?}");
    world.judge_and_reap("a file that was removed").await;
    assert_eq!(case.sizes(file.file).await, [None, None]);
    assert_eq!(case.try_move(file.file, &Then::nothing()).await.unwrap(), Moved::NothingToDo);
}

pub async fn a_file_that_somebody_writes_or_has_at_a_pool_waits(world: World) {
    let case = Case::of(&world);
    let file = world.make("file", POOL, "some bytes").await;
    let in_use = Moved::Waits(MoveWaits::InUse);
    let share = Share::new(Modes::WRITE, Modes::NONE);
    let (open, _) = world.files.open(file.file, A, share).await.unwrap();
    assert_eq!(case.try_move(file.file, &Then::nothing()).await.unwrap(), in_use);
    drop(open);
    for mode in [LayoutMode::Read, LayoutMode::ReadWrite] {
        let now = Duration::from_secs(1);
        world.files.table().layouts().grant(file.file, A, mode, now).unwrap();
        assert_eq!(case.try_move(file.file, &Then::nothing()).await.unwrap(), in_use);
        world.files.table().release_holder(A);
    }
    assert_eq!(case.states(file.file).await, [(POOL, ReplicaState::Good)]);
    case.moved(file.file).await;
    case.judge(file.file, b"some bytes").await;
}

pub async fn while_a_file_is_moved_no_client_is_sent_to_a_pool_and_old_tickets_write_nothing(world: World) {
    let case = Case::of(&world);
    let file = world.make("file", POOL, pattern(MIB)).await;
    let old = Grant { pool: POOL }.ticket(&file, TicketMode::ReadWrite);
    let late = world.pool.first.pool.open(&old).await.unwrap();
    let look = Then::goes_on(async {
        let now = world.attributes(file.file).await;
        for mode in [TicketMode::Read, TicketMode::ReadWrite] {
            let sent = world.files.locate(&now, mode, Some(1)).await;
            assert!(matches!(sent, Err(FilesError::Select(SelectError::Unavailable))), "{sent:?}");
        }
        let written = late.write_at(0, Bytes::from_static(b"late"), Stability::FileSync).await;
        assert!(matches!(written, Err(PoolError::Fenced)), "{written:?}");
        let again = case.mover.move_away(file.file, POOL, &Then::nothing()).await.unwrap();
        assert_eq!(again, Moved::Waits(MoveWaits::InUse), "two moves of one file");
    });
    assert_eq!(case.try_move(file.file, &look).await.unwrap(), DONE);
    case.judge(file.file, &pattern(MIB)).await;
    let now = world.attributes(file.file).await;
    assert_eq!(world.files.locate(&now, TicketMode::Read, Some(1)).await.unwrap().unwrap().pool, OTHER);
}

pub async fn an_old_replica_stays_while_somebody_has_the_file_open(world: World) {
    let case = Case::of(&world);
    let file = world.make("file", POOL, "some bytes").await;
    let (open, _) = world.files.open(file.file, A, Share::new(Modes::READ, Modes::NONE)).await.unwrap();
    case.moved(file.file).await;
    let both = [(POOL, ReplicaState::Stale), (OTHER, ReplicaState::Good)];
    assert_eq!((case.states(file.file).await, case.sizes(file.file).await), (both.into(), [Some(10); 2]));
    case.settle_all().await;
    assert_eq!(case.states(file.file).await, both);
    case.write(file.file, 0, b"SOME").await;
    assert_eq!(world.read(file.file).await.unwrap(), b"SOME bytes", "the new one is read and written");
    world.clock.advance(660);
    case.settle_all().await;
    drop(open);
    case.judge(file.file, b"SOME bytes").await;
}

/// As a kill would, but for the step that is completed all the same.
pub async fn a_move_that_ends_anywhere_is_cleared_up_and_can_be_made_again(world: World) {
    let case = Case::of(&world);
    let bytes = pattern(MIB + 3);
    // Not at every one: over a channel there are hundreds.
    for polls in std::iter::successors(Some(0_u32), |polls| Some(polls + 1 + polls / 8)) {
        let file = world.make(&format!("file {polls}"), POOL, bytes.clone()).await;
        let pace = Then::nothing();
        let is_over = {
            let mut moving = pin!(case.try_move(file.file, &pace));
            let mut left = polls;
            std::future::poll_fn(|context| match moving.as_mut().poll(context) {
                Poll::Ready(moved) => Poll::Ready(Some(moved.unwrap())),
                Poll::Pending if left == 0 => Poll::Ready(None),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            })
            .await
        };
        // The step that goes on by itself ends soon; then the file is free.
        let settled = async {
            while matches!(
                case.try_move(file.file, &pace).await.unwrap(),
                Moved::Waits(MoveWaits::InUse | MoveWaits::Changed)
            ) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, settled).await.expect("nothing holds the file for ever");
        case.settle_all().await;
        case.judge(file.file, &bytes).await;
        if let Some(moved) = is_over {
            assert_eq!(moved, DONE);
            assert!(polls > 3, "the move has steps");
            break;
        }
    }
}

pub async fn bytes_that_another_pool_gives_back_otherwise_are_found(world: World) {
    let case = Case::of(&world);
    // One piece: it is written when the copy rests for the first time.
    let file = world.make("file", POOL, pattern(5000)).await;
    let spoil = Then::goes_on(async {
        let ticket = Grant { pool: OTHER }.own_ticket(&file, TicketMode::ReadWrite);
        let ticket = Ticket { presence: Presence::Filling, ..ticket };
        let target = world.pool.second.pool.open(&ticket).await.unwrap();
        target.write_at(100, Bytes::from_static(b"rot"), Stability::FileSync).await.unwrap();
    });
    let moved = case.try_move(file.file, &spoil).await;
    assert!(matches!(moved, Err(MoveError::Differs { pool: OTHER, offset: 0 })), "{moved:?}");
    assert_eq!(case.states(file.file).await, [(POOL, ReplicaState::Good)]);
    assert_eq!(case.sizes(file.file).await, [Some(5000), None]);
    case.moved(file.file).await;
    case.judge(file.file, &pattern(5000)).await;
}

pub async fn a_move_at_a_pool_that_fails_loses_nothing_and_is_made_when_it_is_well(world: World) {
    let case = Case::of(&world);
    let bytes = pattern(MIB + 3);
    let calls = [
        Call::Open,
        Call::Make,
        Call::Truncate,
        Call::Remove,
        Call::SyncRemovals,
        Call::Fence,
        Call::Facts,
        Call::Read,
        Call::Write,
        Call::Sync,
        Call::Range,
    ];
    let io = |pool| PoolError::Io { pool, operation: "work", reason: "EIO".to_owned() };
    for (at, id) in [(&world.pool.first, POOL), (&world.pool.second, OTHER)] {
        for fault in [Fault::Fail(io(id)), Fault::LoseAnswer] {
            for (call, which) in calls.into_iter().flat_map(|call| (0..3).map(move |which| (call, which))) {
                let text = format!("{id} {fault:?} {call:?} {which}");
                let file = world.make(&text, POOL, bytes.clone()).await;
                at.schedule().on(call, which..=which, fault.clone());
                let moved = case.try_move(file.file, &Then::nothing()).await;
                at.schedule().lift(call);
                assert!(world.read(file.file).await.unwrap() == bytes, "{text}: {moved:?}");
                case.settle_all().await;
                if case.states(file.file).await != [(OTHER, ReplicaState::Good)] {
                    case.moved(file.file).await;
                }
                case.judge(file.file, &bytes).await;
                world.judge(&text).await;
            }
        }
    }
}

pub async fn a_pool_that_crashes_under_a_copy_gets_it_anew(world: World) {
    let case = Case::of(&world);
    let bytes = pattern(3 * MIB);
    for call in [Call::Write, Call::Sync, Call::Read, Call::Facts, Call::Fence] {
        for which in 0..4 {
            let file = world.make(&format!("{call:?} {which}"), POOL, bytes.clone()).await;
            world.pool.second.schedule().on(call, which..=which, Fault::LoseUnsynced);
            let moved = case.try_move(file.file, &Then::nothing()).await;
            world.pool.second.schedule().lift(call);
            case.settle_all().await;
            assert!(world.read(file.file).await.unwrap() == bytes, "{call:?} {which}: {moved:?}");
            if case.states(file.file).await != [(OTHER, ReplicaState::Good)] {
                case.moved(file.file).await;
            }
            case.judge(file.file, &bytes).await;
        }
    }
}

/// Rule 4: the namespace alone is not believed.
pub async fn an_old_replica_is_not_removed_before_the_new_one_is_seen(world: World) {
    let case = Case::of(&world);
    let file = world.make("file", POOL, "some bytes").await;
    world.pool.first.schedule().on(Call::Remove, .., Fault::Fail(PoolError::Busy(POOL)));
    case.moved(file.file).await;
    world.pool.first.schedule().lift(Call::Remove);
    assert_eq!(case.sizes(file.file).await, [Some(10); 2]);
    world.pool.second.pool.truncate(&[(file.file, 3)], ANSWER_TIME).await.sole().unwrap();
    assert!(case.mover.settle(file.file).await.is_err());
    assert_eq!(case.sizes(file.file).await, [Some(10), Some(3)]);
}

#[tokio::test]
async fn a_pool_that_becomes_full_is_followed_by_another_and_the_last_one_is_told() {
    let small = Limits { capacity_bytes: 100, replica_bytes_max: 1 << 20 };
    let from = MemoryPool::new(PoolId(1));
    let (full, third) = (MemoryPool::with_limits(PoolId(2), small), MemoryPool::new(PoolId(3)));
    let filling = testkit::faulty::Faulty::new(third.clone());
    let schedule = filling.schedule().clone();
    let pools: [std::sync::Arc<dyn api::Pool>; 3] =
        [std::sync::Arc::new(from), std::sync::Arc::new(full), std::sync::Arc::new(filling)];
    let scene = Scene::over(sqlite, (), pools).await;
    let who = &scene.caller.identity;
    let spec = api::CreateSpec { location: Some(PoolId(1)), ..crate::world::spec(api::CreateMode::Guarded) };
    let file = scene.namespace.create(who, scene.dir, &name("file"), &spec).await.unwrap().attributes;
    let bytes = Bytes::from(pattern(5000));
    scene.files.write(who, &file, (0, bytes), Stability::FileSync, None).await.unwrap();
    let mover = scene.files.mover().unwrap();
    schedule.on(Call::Write, 0..=0, Fault::Fail(PoolError::NoSpace(PoolId(3))));
    let moved = mover.move_away(file.file, PoolId(1), &Then::nothing()).await;
    assert!(matches!(moved, Err(MoveError::NoRoom(SelectError::NoSpace))), "{moved:?}");
    assert_eq!(moved.unwrap_err().to_string(), "no other pool has room for it: no pool has space for it");
    let locality = scene.namespace.locality(file.file).await.unwrap();
    assert_eq!(locality.pools().collect::<Vec<_>>(), [PoolId(1)], "nothing is left of the copy");
    let moved = mover.move_away(file.file, PoolId(1), &Then::nothing()).await.unwrap();
    assert_eq!(moved, Moved::Done { to: PoolId(3) });
}
