//! Operations whose callers are dropped after each of their polls: each leaves nothing, or is done to its end.

use std::future::poll_fn;
use std::task::Poll;

use api::{FileLocations, Locations, Pool, Replace};
use file_state::DelegationKind;
use testkit::faulty::{Call, Fault, Gate};
use types::Name;

use super::fakes::FakeRecaller;
use super::scene::{POOL, Scene, name};
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
        let delegate =
            |file: &FileId| files.table().delegate(*file, A, DelegationKind::Read, Duration::ZERO).is_ok();
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
    stage.files().table().delegate(file, A, DelegationKind::Read, Duration::ZERO).unwrap();
}

#[tokio::test]
async fn a_dropped_change_of_names_is_made_to_its_end_or_not_at_all() {
    for change in [NameChange::Removal, NameChange::Move, NameChange::Replacement, NameChange::Link] {
        drop_changes(change, false).await;
        drop_changes(change, true).await;
    }
    drop_changes(NameChange::Exchange, false).await;
}
