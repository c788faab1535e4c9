//! Invariants of a directory's attributes, in every mode and on both engines, while folds run all the time and the
//! cache keeps nothing.

mod storm;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use api::{
    Consistency, Cookie, CreateKind, CreateSpec, Directories, ExpectedEnds, ExpectedFile, Namespace,
    NamespaceError, Replace, SetAttributes, SetTime,
};
use tempfile::TempDir;
use testkit::clock::ManualClock;
use testkit::namespace_suite::at;
use testkit::postgres::Cluster;
use types::{Attributes, ChangeInfo, FileId, Identity, Timestamp};

use super::pending::FOLDED_MAX;
use crate::config::{Config, Database, Server, Sync};
use crate::ops::{create, setattr};
use crate::scratch::{name, regular};
use crate::service::SqlNamespace;

const TOP: FileId = FileId::ROOT;

struct Engine {
    database: Database,
    clock: Arc<ManualClock>,
    _dir: TempDir,
}

impl Engine {
    fn sqlite() -> Engine {
        let dir = tempfile::tempdir().unwrap();
        let database = Database::Sqlite(dir.path().to_owned());
        Engine { database, clock: Arc::new(ManualClock::new(1_000_000)), _dir: dir }
    }

    /// SQLite, and PostgreSQL where there is one.
    fn all() -> Vec<Engine> {
        let mut engines = vec![Engine::sqlite()];
        if let Some(cluster) = Cluster::shared() {
            let url = cluster.create_database().unwrap();
            let server = Server { url, instance: [7; 16], may_be_new: true };
            engines.push(Engine { database: Database::Postgres(server), ..Engine::sqlite() });
        }
        engines
    }

    fn open(&self) -> Arc<SqlNamespace> {
        self.open_with(16)
    }

    fn open_with(&self, group_len_max: usize) -> Arc<SqlNamespace> {
        let config = Config {
            database: self.database.clone(),
            clock: self.clock.clone(),
            root_owner: (0, 0),
            sync: Sync::Interval(Duration::from_secs(60)),
            cache_bytes: 4 << 10,
            queue_len_max: 1024,
            group_len_max,
        };
        Arc::new(SqlNamespace::open(config).unwrap())
    }
}

fn folder() -> CreateSpec {
    CreateSpec { kind: CreateKind::Directory, ..regular() }
}

async fn made(namespace: &SqlNamespace, dir: FileId, text: &str, spec: &CreateSpec) -> FileId {
    namespace.create(&Identity::root(), dir, &name(text), spec).await.unwrap().attributes.file
}

async fn directory(namespace: &SqlNamespace, text: &str, mode: Consistency) -> FileId {
    let dir = made(namespace, TOP, text, &folder()).await;
    namespace.set_consistency(dir, Some(mode)).await.unwrap();
    dir
}

/// Readers give up now and then, since a directory is forgotten as soon as it is folded.
fn unless_busy<T>(answer: Result<T, NamespaceError>) -> Option<T> {
    match answer {
        Err(NamespaceError::Busy) => None,
        answer => Some(answer.unwrap()),
    }
}

/// As the committer does at its intervals.
fn fold(namespace: &SqlNamespace) {
    namespace.shared.cache.pending.fall_due();
    namespace.shared.writes.nudge();
}

async fn folded(namespace: &SqlNamespace, dir: FileId) {
    while namespace.shared.cache.pending.is_waiting(dir) {
        fold(namespace);
        tokio::task::yield_now().await;
    }
}

/// Ends as a killed process does.
async fn crash(namespace: Arc<SqlNamespace>) {
    let died: Result<(), _> = namespace.shared.submit(|_| panic!("killed, for the test")).await;
    assert!(matches!(died, Err(NamespaceError::Database(_))));
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
}

async fn set_mtime(namespace: &SqlNamespace, dir: FileId, time: Timestamp) {
    let set = SetAttributes { mtime: Some(SetTime::To(time)), ..SetAttributes::default() };
    let shown = namespace.set_attributes(&Identity::root(), dir, &set).await.unwrap();
    assert_eq!(shown.mtime, time);
    assert_eq!(namespace.attributes(dir).await.unwrap(), shown);
}

/// Two directories that everybody works in, and what was acknowledged of each.
struct Stage {
    namespace: Arc<SqlNamespace>,
    clock: Arc<ManualClock>,
    mode: Consistency,
    dirs: [FileId; 2],
    acknowledged: [AtomicU64; 2],
    is_over: AtomicBool,
}

const WORKERS: usize = 4;
const ROUNDS: usize = 60;

impl Stage {
    async fn new(engine: &Engine, mode: Consistency) -> Arc<Stage> {
        let namespace = engine.open();
        let dirs = [directory(&namespace, "a", mode).await, directory(&namespace, "b", mode).await];
        Arc::new(Stage {
            namespace,
            clock: engine.clock.clone(),
            mode,
            dirs,
            acknowledged: Default::default(),
            is_over: AtomicBool::new(false),
        })
    }

    fn acknowledge(&self, dir: usize, change: ChangeInfo) {
        assert_eq!(change.atomic, self.mode != Consistency::Weak);
        self.acknowledged[dir].fetch_max(change.after, Ordering::SeqCst);
    }

    async fn work(&self, worker: usize) {
        let (root, namespace) = (Identity::root(), &self.namespace);
        for round in 0..ROUNDS {
            let (here, there) = (round % 2, (round + 1) % 2);
            let (old, new) = (name(&format!("{worker}-{round}")), name(&format!("{worker}-{round}-moved")));
            let spec = if round % 3 == 0 { folder() } else { regular() };
            let made = namespace.create(&root, self.dirs[here], &old, &spec).await.unwrap();
            self.acknowledge(here, made.parent);
            let (from, to) = ((self.dirs[here], &old), (self.dirs[there], &new));
            let moved = namespace.rename(&root, from, to, Replace::Never, ExpectedEnds::ANY).await.unwrap();
            self.acknowledge(here, moved.source);
            self.acknowledge(there, moved.target);
            if round % 4 == 1 {
                let gone = namespace.unlink(&root, self.dirs[there], &new, ExpectedFile::Any).await.unwrap();
                self.acknowledge(there, gone.parent);
            }
            self.clock.advance(1);
        }
    }

    async fn fold(&self) {
        while !self.is_over.load(Ordering::SeqCst) {
            fold(&self.namespace);
            let forgotten = self.namespace.shared.submit(|group| {
                group.inodes.source.cache.pending.forget_all();
                Ok(())
            });
            forgotten.await.unwrap();
        }
    }

    /// By each of the ways to a directory's attributes: change and times, mtime only of the second one.
    async fn watch(&self, way: usize) {
        let mut last = [(0, at(0), at(0)); 2];
        while !self.is_over.load(Ordering::SeqCst) {
            for (dir, last) in last.iter_mut().enumerate() {
                let acknowledged = self.acknowledged[dir].load(Ordering::SeqCst);
                let shown = self.look(dir, way).await;
                let mtime = if dir == 1 { shown.mtime } else { at(0) };
                let now = (shown.change, mtime, shown.ctime);
                assert!(now.0 >= last.0 && now.1 >= last.1 && now.2 >= last.2, "{now:?} after {last:?}");
                assert!(now.0 >= acknowledged, "{now:?} after {acknowledged:#x}");
                *last = now;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn look(&self, dir: usize, way: usize) -> Attributes {
        let (root, file, text) = (Identity::root(), self.dirs[dir], name(["a", "b"][dir]));
        loop {
            let found = match way % 3 {
                0 => self.namespace.attributes(file).await,
                1 => self.namespace.lookup(&root, TOP, &text).await.map(|found| found.entry),
                _ => self.namespace.list(&root, TOP, Cookie::START, 10).await.map(|page| {
                    page.entries.iter().find(|entry| entry.attributes.file == file).unwrap().attributes
                }),
            };
            if let Some(attributes) = unless_busy(found) {
                return attributes;
            }
        }
    }

    /// A client that keeps a listing for as long as the change attribute stays what it was before.
    async fn cache_listings(&self) {
        let mut cached: HashMap<u64, Vec<FileId>> = HashMap::new();
        while !self.is_over.load(Ordering::SeqCst) {
            let (root, dir) = (Identity::root(), self.dirs[1]);
            let before = self.look(1, 0).await.change;
            let listed = self.namespace.list(&root, dir, Cookie::START, 4000).await;
            let Some(page) = unless_busy(listed) else { continue };
            let listed: Vec<FileId> = page.entries.iter().map(|entry| entry.attributes.file).collect();
            let after = self.look(1, 0).await.change;
            if before == after {
                assert_eq!(*cached.entry(after).or_insert_with(|| listed.clone()), listed);
            }
        }
    }

    /// Says when `dirs[0]` was modified, again and again, and then nobody says anything else.
    async fn set_times(&self) {
        for round in 0..ROUNDS as i64 {
            let (file, time) = (self.dirs[0], at(round));
            let set = SetAttributes { mtime: Some(SetTime::To(time)), ..SetAttributes::default() };
            let shown = self.namespace.set_attributes(&Identity::root(), file, &set).await.unwrap();
            assert_eq!(shown.mtime, time);
            self.acknowledged[0].fetch_max(shown.change, Ordering::SeqCst);
        }
    }
}

async fn play(engine: &Engine, mode: Consistency) {
    let stage = Stage::new(engine, mode).await;
    let (mut watchers, mut workers) = (Vec::new(), Vec::new());
    for way in 0..6 {
        let stage = Arc::clone(&stage);
        watchers.push(tokio::spawn(async move { stage.watch(way).await }));
    }
    let folding = Arc::clone(&stage);
    watchers.push(tokio::spawn(async move { folding.fold().await }));
    if mode != Consistency::Weak {
        let listing = Arc::clone(&stage);
        watchers.push(tokio::spawn(async move { listing.cache_listings().await }));
    }
    for worker in 0..WORKERS {
        let stage = Arc::clone(&stage);
        workers.push(tokio::spawn(async move { stage.work(worker).await }));
    }
    let setting = Arc::clone(&stage);
    workers.push(tokio::spawn(async move { setting.set_times().await }));
    for worker in workers {
        worker.await.unwrap();
    }
    set_mtime(&stage.namespace, stage.dirs[0], at(77)).await;
    stage.is_over.store(true, Ordering::SeqCst);
    for watcher in watchers {
        watcher.await.unwrap();
    }
    let namespace = &stage.namespace;
    for dir in stage.dirs {
        folded(namespace, dir).await;
    }
    assert_eq!(namespace.attributes(stage.dirs[0]).await.unwrap().mtime, at(77), "as it was set");
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_of_a_directory_goes_backwards_and_no_listing_outlives_a_change() {
    for engine in Engine::all() {
        for mode in [Consistency::Strong, Consistency::Soft, Consistency::Weak, Consistency::Auto] {
            play(&engine, mode).await;
            // The next mode begins with the same names.
            let namespace = engine.open();
            for (old, new) in [("a", format!("a-{}", mode.name())), ("b", format!("b-{}", mode.name()))] {
                let (from, to) = ((TOP, &name(old)), (TOP, &name(&new)));
                namespace
                    .rename(&Identity::root(), from, to, Replace::Never, ExpectedEnds::ANY)
                    .await
                    .unwrap();
            }
            namespace.close().await;
        }
    }
}

#[tokio::test]
async fn a_time_that_was_set_outlives_folds_creates_and_crashes() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let mut dirs = Vec::new();
        for mode in Consistency::ALL {
            let dir = directory(&namespace, mode.name(), mode).await;
            // To the past, over what waits.
            made(&namespace, dir, "first", &regular()).await;
            set_mtime(&namespace, dir, at(5)).await;
            folded(&namespace, dir).await;
            assert_eq!(namespace.attributes(dir).await.unwrap().mtime, at(5));
            // To the future: what comes to the directory now was not later.
            let future = at(9_000_000);
            set_mtime(&namespace, dir, future).await;
            engine.clock.advance(10);
            made(&namespace, dir, "second", &folder()).await;
            dirs.push((dir, future, at(engine.clock.seconds())));
        }
        crash(namespace).await;
        let namespace = engine.open();
        for (dir, mtime, ctime) in dirs {
            let shown = namespace.attributes(dir).await.unwrap();
            assert_eq!((shown.mtime, shown.ctime, shown.nlink), (mtime, ctime, 3));
        }
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

#[tokio::test]
async fn pending_directory_changes_survive_a_kill_of_the_process() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let mut known = Vec::new();
        for mode in [Consistency::Soft, Consistency::Weak] {
            let dir = directory(&namespace, mode.name(), mode).await;
            for number in 0..40 {
                let text = format!("d{number}");
                made(&namespace, dir, &text, &folder()).await;
                if number % 4 == 0 {
                    namespace.unlink(&Identity::root(), dir, &name(&text), ExpectedFile::Any).await.unwrap();
                }
                engine.clock.advance(1);
            }
            // A last one that is pending for sure.
            let truth = namespace.shared.submit(move |group| {
                create::create(group, &Identity::root(), dir, &name("last"), &folder())?;
                group.directory(dir)
            });
            known.push(truth.await.unwrap().attributes);
        }
        crash(namespace).await;
        let namespace = engine.open();
        for truth in known {
            assert_eq!(truth.nlink, 2 + 31);
            let shown = namespace.attributes(truth.file).await.unwrap();
            // A floor may have been raised over the change attribute.
            assert!(shown.change >= truth.change);
            assert_eq!(Attributes { change: truth.change, ..shown }, truth);
        }
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

/// Rows of many groups, as a process leaves them that was killed at the worst moment, also with times that lie a part of a
/// second apart.
#[tokio::test]
async fn the_next_start_merges_all_deltas_at_once() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let dir = directory(&namespace, "d", Consistency::Soft).await;
        for text in ["x", "y"] {
            made(&namespace, dir, text, &folder()).await;
        }
        namespace.close().await;
        drop(namespace);
        let namespace = engine.open();
        let before = namespace.attributes(dir).await.unwrap();
        let (id, change) = (dir.0, before.change);
        let left = format!(
            "UPDATE inodes SET nlink = 3 WHERE id = {id}; \
             INSERT INTO dir_deltas VALUES ({id}, 7, 3, {change} + 1, 2000000, 5), ({id}, 8, -1, {change} + 9, 2000000, 70), \
             ({id}, 9, -1, {change} + 4, 1999999, 999)"
        );
        namespace
            .shared
            .submit(move |group| {
                group.inodes.source.store.execute(&left)?;
                // Or nothing is written.
                create::create(group, &Identity::root(), TOP, &name("other"), &regular())?;
                Ok(())
            })
            .await
            .unwrap();
        crash(namespace).await;
        let namespace = engine.open();
        let after = namespace.attributes(dir).await.unwrap();
        let time = Timestamp::new(2_000_000, 70).unwrap();
        assert_eq!((after.nlink, after.mtime, after.ctime), (4, time, time));
        assert!(after.change >= change + 9);
        namespace.close().await;
    }
}

#[tokio::test]
async fn a_weak_directory_shows_old_attributes_and_then_the_new_ones_but_its_entries_at_once() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let dir = directory(&namespace, "d", Consistency::Weak).await;
        let before = namespace.attributes(dir).await.unwrap();
        engine.clock.advance(5);
        let root = Identity::root();
        let (infos, truth) = namespace
            .shared
            .submit(move |group| {
                let root = Identity::root();
                let one = create::create(group, &root, dir, &name("one"), &folder())?.parent;
                let two = create::create(group, &root, dir, &name("two"), &regular())?.parent;
                // A change of nothing shows no newer attributes.
                let nothing = setattr::set_attributes(group, &root, dir, &SetAttributes::default())?;
                let truth = group.directory(dir)?;
                assert_eq!(nothing, group.shown(&truth).attributes);
                Ok(([one, two], truth.attributes))
            })
            .await
            .unwrap();
        let shown = ChangeInfo { atomic: false, before: before.change, after: before.change };
        assert_eq!(infos, [shown; 2]);
        assert!(truth.change > before.change);
        // Readers see the old attributes or the new ones; both entries are there meanwhile.
        while namespace.attributes(dir).await.unwrap() != truth {
            let now = namespace.attributes(dir).await.unwrap();
            assert!(now == before || now == truth);
            let page = namespace.list(&root, dir, Cookie::START, 10).await.unwrap();
            assert_eq!(page.entries.len(), 2);
            tokio::task::yield_now().await;
        }
        // A change of the directory itself is written at once, with all pending changes.
        made(&namespace, dir, "three", &folder()).await;
        let set = SetAttributes { mode: Some(0o711), ..SetAttributes::default() };
        let shown = namespace.set_attributes(&root, dir, &set).await.unwrap();
        assert_eq!((shown.mode, shown.nlink), (0o711, 4));
        assert_eq!(namespace.attributes(dir).await.unwrap(), shown);
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

/// Thousands of directories to be folded stop nobody: a group carries a few of them beside what waits.
#[tokio::test]
async fn folding_many_directories_is_spread_over_groups() {
    const DIRS: usize = 3_000;
    let engine = Engine::sqlite();
    let namespace = engine.open_with(2 * DIRS);
    namespace.set_default_consistency(Consistency::Soft);
    let dirs = namespace.shared.submit(|group| {
        let create = |number| {
            let text = name(&format!("d{number}"));
            Ok(create::create(group, &Identity::root(), TOP, &text, &folder())?.attributes.file)
        };
        (0..DIRS).map(create).collect::<crate::group::OpResult<Vec<_>>>()
    });
    let dirs = dirs.await.unwrap();
    let all = dirs.clone();
    let touched = namespace.shared.submit(move |group| {
        for dir in dirs {
            create::create(group, &Identity::root(), dir, &name("d"), &folder())?;
        }
        Ok(())
    });
    touched.await.unwrap();
    let mut last = None;
    loop {
        // Others work meanwhile.
        let observed = namespace.shared.submit(|group| {
            let found = group.inodes.source.cache.pending.groups_and_waiting();
            group.inodes.fold(TOP)?;
            Ok(found)
        });
        let (groups, waiting) = observed.await.unwrap();
        if let Some((last_groups, last_waiting)) = last {
            let folded: usize = last_waiting - waiting;
            // And TOP, by what is done here.
            let most = FOLDED_MAX * usize::try_from(groups - last_groups).unwrap() + 1;
            assert!(folded <= most, "{folded} in {most} places");
        } else {
            fold(&namespace);
        }
        if waiting == 0 {
            break;
        }
        last = Some((groups, waiting));
    }
    for dir in all {
        assert_eq!(namespace.attributes(dir).await.unwrap().nlink, 3);
    }
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
}

#[tokio::test]
async fn a_mode_is_inherited_kept_and_taken_back() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let dir = directory(&namespace, "d", Consistency::Weak).await;
        let sub = made(&namespace, dir, "sub", &folder()).await;
        let file = made(&namespace, sub, "file", &regular()).await;
        namespace.set_consistency(dir, None).await.unwrap();
        namespace.close().await;
        drop(namespace);
        let namespace = engine.open();
        assert_eq!(namespace.consistency(sub).await.unwrap(), Some(Consistency::Weak));
        assert_eq!(namespace.consistency(dir).await.unwrap(), None);
        let is_refused = |result| matches!(result, Err(NamespaceError::NotDirectory));
        assert!(is_refused(namespace.consistency(file).await.map(|_| ())));
        assert!(is_refused(namespace.set_consistency(file, None).await));
        namespace.close().await;
    }
}
