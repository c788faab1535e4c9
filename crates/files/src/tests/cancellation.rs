//! Operations whose callers are dropped after each of their polls: each leaves nothing, or is done to its end.

mod making;
mod settings;

use std::future::poll_fn;
use std::sync::atomic::AtomicUsize;
use std::task::Poll;

use api::{FileLocations, Locations, Pool, Published, Replace, Stability, Stretch};
use bytes::Bytes;
use file_state::{DelegationKind, Held};
use futures_util::FutureExt;
use testkit::faulty::{Call, Fault, Gate};
use testkit::memory_pool::MemoryPool;
use types::{Attributes, ByteRange, ChecksumKind, Name, PoolId};

use super::fakes::FakeRecaller;
use super::scene::{POOL, Rules, Scene, give_name, name};
use super::*;

/// When a caller is dropped after a poll that had no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Before anybody has answered it.
    AtOnce,
    /// It was woken and has not looked.
    Woken,
}

/// A scene whose pool and namespace take a poll for each call, and the clients of a door.
struct Stage {
    scene: Scene,
    gate: Gate,
    clients: Arc<FakeRecaller>,
}

impl Stage {
    async fn set() -> Stage {
        let scene = Scene::set().await;
        scene.names.slow_down();
        let clients = FakeRecaller::attach(&scene.files, DOOR, false);
        let gate = Gate::open();
        let calls =
            [Call::Open, Call::Make, Call::Truncate, Call::Facts, Call::Read, Call::Write, Call::Sync];
        for call in calls.into_iter().chain([Call::Range]) {
            scene.pool.schedule().on(call, .., Fault::Delay(gate.clone()));
        }
        Stage { scene, gate, clients }
    }

    fn files(&self) -> &Arc<Files> {
        &self.scene.files
    }

    fn by(&self) -> By<'_> {
        By { identity: &self.scene.caller.identity, holder: Some(B), patience: LONG }
    }

    async fn at(&self, name: &Name) -> Option<FileId> {
        let dir = self.scene.dir;
        let found = self.scene.namespace.lookup(&self.scene.caller.identity, dir, name).await;
        found.ok().map(|found| found.entry.file)
    }

    /// A file of eight bytes.
    async fn put(&self, text: &str) -> FileId {
        self.scene.put(text, Replace::Never, "12345678").await.unwrap().attributes.file
    }

    /// The answer. `None`: the caller was dropped after so many polls.
    async fn polled<T>(&self, work: impl Future<Output = T>, polls: usize, when: When) -> Option<T> {
        let mut work = Box::pin(work);
        self.gate.let_pass(0);
        for poll in 1..=polls {
            let is_dropped = poll == polls && when == When::AtOnce;
            let mut is_polled = false;
            let answer = poll_fn(|context| {
                if is_polled {
                    return Poll::Ready(None);
                }
                is_polled = true;
                let polled = work.as_mut().poll(context);
                if polled.is_pending() && is_dropped {
                    return Poll::Ready(None);
                }
                self.gate.let_waiting_pass();
                polled.map(Some)
            });
            if let Some(answer) = answer.await {
                return Some(answer);
            }
        }
        None
    }

    /// All that was begun ends.
    async fn settle(&self) {
        self.gate.let_all_pass();
        while !self.files().tasks.is_idle() {
            tokio::task::yield_now().await;
        }
        self.files().all_seen().await;
    }

    /// Nobody holds anything, the namespace agrees with itself, and the reaper would find every replica without a file.
    async fn judge(&self, context: &str) {
        let files = self.files();
        assert!(files.table().is_empty(), "{context}: {:?}", files.table());
        assert!(files.births_settled(Duration::ZERO).await, "{context}");
        assert_eq!(self.scene.namespace.check().unwrap(), [], "{context}");
        let namespace = &self.scene.namespace;
        let known = namespace.files(FileId(0), 1_000).await.unwrap();
        let orphans = namespace.orphans(FileId(0), 1_000).await.unwrap();
        for replica in self.scene.pool.pool().replicas(FileId(0), 1_000).await.unwrap() {
            let is_it = |file: &FileLocations| {
                file.attributes.file == replica.file && file.locality.good_pools().any(|pool| pool == POOL)
            };
            assert!(known.iter().chain(&orphans).any(is_it), "{context}: {replica:?}");
        }
    }

    fn recalled(&self, file: FileId) -> bool {
        self.clients.recalled.lock().iter().any(|recall| recall.file == file)
    }

    /// Clients have nothing any more.
    fn give_all_back(&self) {
        self.files().table().release_holder(A);
        self.files().returned();
    }
}

/// Until then a change that waited may be asked for again before others get new grants.
fn recall_time_passes(stage: &Stage) {
    stage.scene.clock.pass(LONG);
    let now = stage.scene.clock.monotonic();
    assert_eq!(stage.files().table().expired_recalls(now, now), [], "everything was returned");
}

/// Drops callers after one poll, then after two, and so on, until the operation is done before: `case` says so.
async fn at_each_poll(mut case: impl AsyncFnMut(usize, When) -> bool) {
    for when in [When::AtOnce, When::Woken] {
        let mut polls = 1;
        while !case(polls, when).await {
            polls += 1;
        }
        assert!(polls > 1, "something was waited for");
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameChange {
    Removal,
    Move,
    Replacement,
    Link,
    Exchange,
}

/// A change of the names of `file`, which is `old`.
struct Names<'a> {
    stage: &'a Stage,
    change: NameChange,
    file: FileId,
    old: Name,
    new: Name,
    other: Option<FileId>,
}

impl Names<'_> {
    async fn of<'a>(stage: &'a Stage, change: NameChange, case: &str) -> Names<'a> {
        let (old, new) = (format!("old {case}"), format!("new {case}"));
        let file = stage.put(&old).await;
        let is_taken = matches!(change, NameChange::Replacement | NameChange::Exchange);
        let other = if is_taken { Some(stage.put(&new).await) } else { None };
        Names { stage, change, file, old: name(&old), new: name(&new), other }
    }

    async fn make(&self) -> Result<(), FilesError> {
        let (files, by, dir) = (self.stage.files(), self.stage.by(), self.stage.scene.dir);
        let (from, to) = (Entry::any(dir, &self.old), Entry::any(dir, &self.new));
        match self.change {
            NameChange::Removal => files.remove(by, from).await.map(drop),
            NameChange::Move => files.rename(by, from, to, Replace::Never).await.map(drop),
            NameChange::Replacement => files.rename(by, from, to, Replace::Any).await.map(drop),
            NameChange::Link => {
                let dir = files.attributes(dir).await?;
                files.link(by, self.file, &dir, &self.new).await.map(drop)
            }
            NameChange::Exchange => files.exchange(by, (dir, &self.new), (&self.old, self.file)).await,
        }
    }

    /// Whether the change is made; the names are as before it, or as after it.
    async fn is_made(&self) -> bool {
        let names = (self.stage.at(&self.old).await, self.stage.at(&self.new).await);
        let file = Some(self.file);
        let made = match self.change {
            NameChange::Removal => (None, None),
            NameChange::Move | NameChange::Replacement => (None, file),
            NameChange::Link => (file, file),
            NameChange::Exchange => (self.other, file),
        };
        assert!(names == made || names == (file, self.other), "{:?}: {names:?}", self.change);
        names == made
    }

    /// Drops the caller after so many polls. `true`: it was done before.
    async fn is_made_before(&self, polls: usize, when: When) -> bool {
        let (stage, files) = (self.stage, self.stage.files());
        let context = format!("{:?}, dropped after {polls} polls, {when:?}", self.change);
        let answer = stage.polled(self.make(), polls, when).await;
        let seen = (files.moves(), files.removals());
        let delegated: Vec<FileId> = [Some(self.file), self.other].into_iter().flatten().collect();
        let delegate = |file: &FileId| {
            files.table().delegations().grant(*file, A, DelegationKind::Read, Duration::ZERO).is_ok()
        };
        let delegated: Vec<FileId> = delegated.into_iter().filter(delegate).collect();
        stage.settle().await;
        let is_made = self.is_made().await;
        if answer.is_none() && is_made {
            let is_move = !matches!(self.change, NameChange::Removal | NameChange::Link);
            assert!(!is_move || files.moves() != seen.0, "{context}: paths are walked again");
            let is_removal = matches!(self.change, NameChange::Removal | NameChange::Replacement);
            assert!(!is_removal || files.removals() != seen.1, "{context}: opens look again");
            // The other of an exchange is known to nobody.
            let is_exchange = self.change == NameChange::Exchange;
            let mut to_recall = delegated.iter().filter(|file| !is_exchange || **file == self.file);
            assert!(to_recall.all(|file| stage.recalled(*file)), "{context}");
        }
        stage.give_all_back();
        stage.judge(&context).await;
        if let Some(answer) = answer {
            assert!(answer.is_ok() && is_made, "{context}: {answer:?}");
            return true;
        }
        if !is_made {
            self.make().await.unwrap();
        }
        false
    }
}

async fn drop_changes(change: NameChange, are_names_looked_up: bool) {
    let stage = Stage::set().await;
    let elsewhere = stage.put("elsewhere").await;
    let mut cases = 0;
    at_each_poll(async |polls, when| {
        cases += 1;
        let names = Names::of(&stage, change, &cases.to_string()).await;
        if are_names_looked_up {
            delegate(&stage, elsewhere);
        }
        names.is_made_before(polls, when).await
    })
    .await;
}

fn delegate(stage: &Stage, file: FileId) {
    stage.files().table().delegations().grant(file, A, DelegationKind::Read, Duration::ZERO).unwrap();
}

#[tokio::test]
async fn a_dropped_change_of_names_is_made_to_its_end_or_not_at_all() {
    for change in [NameChange::Removal, NameChange::Move, NameChange::Replacement, NameChange::Link] {
        drop_changes(change, false).await;
        drop_changes(change, true).await;
    }
    drop_changes(NameChange::Exchange, false).await;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Read,
    Checksum,
    Sync,
    Write(Stability),
    Allocate,
    Deallocate,
    Cut,
    Grow,
    Copy,
}

/// A use of the bytes of `file`, which are `12345678`.
struct Bytes8<'a> {
    stage: &'a Stage,
    of: Use,
    file: Attributes,
    source: Attributes,
}

impl Bytes8<'_> {
    async fn make(&self) -> Result<(), FilesError> {
        let (files, by) = (self.stage.files(), self.stage.by());
        let who = by.identity;
        let content = files.content(&self.file, ContentMode::Write).await?;
        let range = |from, to| ByteRange::from_bounds(from, to).unwrap();
        match self.of {
            Use::Read => content.read(0, 100).await.map(drop),
            Use::Checksum => files
                .checksum(&types::Identity::root(), &self.file, ChecksumKind::Crc32c, &content)
                .await
                .map(drop),
            Use::Sync => content.sync().await.map(drop),
            Use::Write(stability) => content.write(who, 6, Bytes::from_static(b"data"), stability).await,
            Use::Allocate => content.allocate(who, range(2, 12)).await,
            Use::Deallocate => content.deallocate(range(2, 6)).await,
            Use::Cut => files.set_length(by, &self.file, 3, false).await.map(drop),
            Use::Grow => files.set_length(by, &self.file, 12, false).await.map(drop),
            Use::Copy => {
                let source = files.content(&self.source, ContentMode::Read).await?;
                let stretch = Stretch { from: 0, to: 4, length: 8 };
                files.copy(&source, &content, stretch, |_| false).await.map(drop)
            }
        }
    }

    fn made(&self) -> &'static [u8] {
        match self.of {
            Use::Read | Use::Checksum | Use::Sync => b"12345678",
            Use::Write(_) => b"123456data",
            Use::Allocate | Use::Grow => b"12345678\0\0\0\0",
            Use::Deallocate => b"12\0\0\0\x0078",
            Use::Cut => b"123",
            Use::Copy => b"123412345678",
        }
    }

    /// As the pool has them, whatever waits at the gate.
    async fn at_pool(&self) -> Bytes {
        let replica = self.stage.scene.pool.pool().writer(self.file.file);
        replica.read_at(0, 100).await.unwrap().data
    }

    /// Drops the caller after so many polls. `true`: it was done before.
    async fn is_made_before(&self, polls: usize, when: When) -> bool {
        let (stage, files) = (self.stage, self.stage.files());
        let context = format!("{:?}, dropped after {polls} polls, {when:?}", self.of);
        let answer = stage.polled(self.make(), polls, when).await;
        let turn = files.begin_resizing(&self.file, 1, None, LONG).now_or_never();
        let then = self.at_pool().await;
        stage.settle().await;
        assert!(
            turn.is_none() || self.at_pool().await == then,
            "{context}: it went on in the turn of another"
        );
        drop(turn);
        let turn = files.begin_resizing(&self.file, 1, None, LONG).now_or_never();
        assert!(turn.is_some_and(|turn| turn.is_ok()), "{context}: a turn is left");
        stage.judge(&context).await;
        let now = files.attributes(self.file.file).await.unwrap();
        let bytes = self.at_pool().await;
        assert_eq!(bytes.len() as u64, now.size, "{context}: the namespace has heard of the length");
        let is_made = bytes == self.made();
        assert!(is_made || bytes == b"12345678"[..], "{context}: {bytes:?}");
        assert!(bytes == b"12345678"[..] || now.change != self.file.change, "{context}: caches would stay");
        if let Some(answer) = answer {
            assert!(answer.is_ok() && is_made, "{context}: {answer:?}");
            return true;
        }
        self.make().await.unwrap();
        assert_eq!(self.at_pool().await, self.made(), "{context}");
        false
    }
}

#[tokio::test]
async fn a_dropped_change_of_bytes_is_told_the_namespace_or_not_made() {
    let writes = [Stability::Unstable, Stability::FileSync].map(Use::Write);
    let others = [Use::Read, Use::Checksum, Use::Sync, Use::Allocate, Use::Deallocate];
    for of in writes.into_iter().chain(others).chain([Use::Cut, Use::Grow, Use::Copy]) {
        let stage = Stage::set().await;
        let source = stage.put("source").await;
        let source = stage.files().attributes(source).await.unwrap();
        let mut cases = 0;
        at_each_poll(async |polls, when| {
            cases += 1;
            let file = stage.put(&cases.to_string()).await;
            let file = stage.files().attributes(file).await.unwrap();
            Bytes8 { stage: &stage, of, file, source }.is_made_before(polls, when).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_dropped_open_is_not_held() {
    let stage = Stage::set().await;
    let file = stage.put("file").await;
    let found = stage.files().attributes(file).await.unwrap();
    at_each_poll(async |polls, when| {
        let share = Share::new(Modes::BOTH, Modes::NONE);
        let open = stage.files().open_found(&found, B, share);
        let is_open = stage.polled(open, polls, when).await.map(|open| drop(open.unwrap())).is_some();
        stage.settle().await;
        stage.judge(&format!("dropped after {polls} polls, {when:?}")).await;
        is_open
    })
    .await;
}

/// Counts the guards that live.
#[derive(Default)]
struct Counting(Arc<AtomicUsize>);

struct Counted(Arc<AtomicUsize>);

impl NamingGuard for Counted {
    fn given(&mut self, _: &Published) {}
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Naming for Counting {
    type Guard = Counted;
    type Refused = ();

    async fn begin(&self, _: NameToGive<'_>) -> Result<Counted, ()> {
        tokio::task::yield_now().await;
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(Counted(Arc::clone(&self.0)))
    }

    fn may_pass((): &()) -> bool {
        false
    }
}

#[tokio::test]
async fn a_dropped_upload_has_its_name_or_is_left_to_the_reaper() {
    let stage = Stage::set().await;
    let (rules, mut cases) = (Counting::default(), 0);
    at_each_poll(async |polls, when| {
        cases += 1;
        let (text, context) = (cases.to_string(), format!("dropped after {polls} polls, {when:?}"));
        // Every other one replaces a file.
        let before = if cases % 2 == 0 { Some(stage.put(&text).await) } else { None };
        let put = async || {
            let upload = stage.scene.begin(&text, Replace::Any, "abcd").await.unwrap();
            let published = upload.finish().await.unwrap().publish(&rules).await.unwrap();
            published.attributes.file
        };
        let answer = stage.polled(put(), polls, when).await;
        stage.settle().await;
        assert_eq!(rules.0.load(Ordering::Relaxed), 0, "{context}: a guard is left");
        stage.judge(&context).await;
        let named = stage.at(&name(&text)).await;
        assert!(answer.is_none() || named == answer, "{context}");
        let reaped = stage.scene.reap().await;
        _ = stage.scene.pool.pool().remove(&reaped, LONG).await;
        assert_eq!(stage.scene.namespace.orphans(FileId(0), 1_000).await.unwrap(), [], "{context}");
        if named == before {
            let file = put().await;
            assert_eq!(stage.at(&name(&text)).await, Some(file), "{context}");
        }
        answer.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_dropped_part_of_an_upload_is_gone_on_with_where_it_ended() {
    let stage = Stage::set().await;
    let bounds = UploadBounds { all_max: 1, per_caller_max: 1 };
    let uploads = UploadsInParts::new(bounds, stage.scene.clock.clone());
    let mut cases = 0;
    at_each_poll(async |polls, when| {
        cases += 1;
        let (text, context) = (cases.to_string(), format!("dropped after {polls} polls, {when:?}"));
        let key = UploadKey::new(&stage.scene.caller, vec![name("dir"), name(&text)]);
        let place = uploads.admit(&stage.scene.caller).unwrap();
        let upload = stage.scene.begin_with(&text, Replace::Any, "1234", 8).await.unwrap();
        drop(uploads.begin(&key, upload, place));
        let last_part = async || {
            let mut upload = uploads.take_up(&key, None, 8).unwrap().expect("it is kept");
            let arrived = upload.arrived();
            assert!(arrived == 4 || arrived == 8, "{context}: {arrived}");
            if arrived == 4 {
                upload.write(Bytes::from_static(b"5678")).await.unwrap();
            }
            give_name(upload, &Rules::default()).await.unwrap();
        };
        let is_done = stage.polled(last_part(), polls, when).await.is_some();
        stage.settle().await;
        if stage.at(&name(&text)).await.is_none() {
            last_part().await;
        }
        let file = stage.at(&name(&text)).await.expect("it has its name");
        let replica = stage.scene.pool.pool().writer(file);
        assert_eq!(replica.read_at(0, 100).await.unwrap().data, b"12345678"[..], "{context}");
        stage.judge(&context).await;
        is_done
    })
    .await;
}

#[tokio::test]
async fn a_dropped_look_at_unsent_writes_leaves_the_delegation_as_it_is() {
    let stage = Stage::set().await;
    let file = stage.put("file").await;
    let files = stage.files();
    files.table().delegations().grant(file, A, DelegationKind::Write, Duration::ZERO).unwrap();
    *stage.clients.told.lock() = Some(Told { is_modified: true, size: 20, accessed: None, modified: None });
    at_each_poll(async |polls, when| {
        let found = files.attributes(file).await.unwrap();
        let seen = stage.polled(files.seen_by(found, Some(B), LONG), polls, when).await;
        stage.settle().await;
        assert!(!stage.recalled(file), "its holder answers");
        let again = files.seen_by(found, Some(B), LONG).await.unwrap();
        assert!(again.size == 20 && again.change > found.change);
        seen.is_some_and(|seen| seen.unwrap().size == 20)
    })
    .await;
    assert_eq!(files.table().holders().held(A).delegations, 1);
    stage.give_all_back();
    stage.judge("the delegation is returned").await;
}

/// The holder answers neither the question nor the recall.
#[tokio::test]
async fn a_dropped_look_or_change_that_waits_for_a_recall_leaves_the_recall_and_nothing_else() {
    for looks in [true, false] {
        let stage = Stage::set().await;
        let file = stage.put("file").await;
        let files = stage.files();
        let found = files.attributes(file).await.unwrap();
        files.table().delegations().grant(file, A, DelegationKind::Write, Duration::ZERO).unwrap();
        let wait = async || {
            if looks {
                files.seen_by(found, Some(B), LONG).await.map(drop)
            } else {
                files.before_change(file, Some(B), Change::Replace, LONG).await.map(drop)
            }
        };
        let mut polls = 1;
        while !stage.recalled(file) {
            assert!(stage.polled(wait(), polls, When::AtOnce).await.is_none(), "the holder does not answer");
            polls += 1;
        }
        assert_eq!(files.table().holders().held(B), Held::default());
        for _ in 0..2 {
            assert!(stage.polled(wait(), 1, When::AtOnce).await.is_none(), "the delegation is out");
        }
        assert_eq!(stage.clients.recalled.lock().len(), 1, "the recall is under way");
        stage.give_all_back();
        recall_time_passes(&stage);
        stage.judge("the delegation is returned").await;
        delegate(&stage, file);
        stage.give_all_back();
        wait().await.unwrap();
    }
}

/// A door whose holders return what they have while the change is waited for.
#[tokio::test]
async fn a_dropped_change_whose_recall_is_answered_holds_no_delegation_off() {
    let stage = Stage::set().await;
    let file = stage.put("file").await;
    let files = stage.files();
    at_each_poll(async |polls, when| {
        delegate(&stage, file);
        let returned = async {
            tokio::task::yield_now().await;
            stage.give_all_back();
        };
        let changed = async {
            let changing = files.before_change(file, Some(B), Change::Replace, LONG);
            let (changing, ()) = tokio::join!(changing, returned);
            let changing = changing.unwrap();
            tokio::task::yield_now().await;
            assert!(
                files.table().delegations().grant(file, A, DelegationKind::Read, Duration::ZERO).is_err()
            );
            drop(changing);
        };
        let is_made = stage.polled(changed, polls, when).await.is_some();
        stage.give_all_back();
        recall_time_passes(&stage);
        stage.judge(&format!("dropped after {polls} polls, {when:?}")).await;
        delegate(&stage, file);
        stage.give_all_back();
        is_made
    })
    .await;
}

#[tokio::test]
async fn a_file_whose_placing_was_dropped_gets_no_second_place() {
    const OTHER: PoolId = PoolId(POOL.0 + 1);
    let (fakes, files) = Fakes::files();
    fakes.pools.list().add(Arc::new(MemoryPool::new(OTHER))).unwrap();
    let file = FileId(8);
    assert!(files.place(file, None).now_or_never().is_none(), "the database writes");
    fakes.pools.lose(POOL);
    assert_eq!(files.place(file, None).await.unwrap(), POOL);
    assert_eq!(fakes.locations.lock()[&file], [POOL]);
}
