//! Random operations by random identities against a reference model: a tree in a map, written without a look at the
//! implementation, by the rules of POSIX and Linux alone.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "model/looks.rs"]
mod looks;
#[path = "model/reference.rs"]
mod reference;
#[path = "model/steps.rs"]
mod steps;
#[path = "model/watch.rs"]
mod watch;

use std::path::Path;
use std::sync::Arc;

use api::{
    Cookie, CreateKind, CreateMode, CreateSpec, ExpectedEnds, ExpectedFile, Locations, Namespace,
    NamespaceError, Properties, Property, PropertyChange, Publish, Replace, SetAttributes, Stability,
    Unnamed, Uploads, Xattrs,
};
use forebay_namespace::{Config, Database, SqlNamespace, Sync};
use proptest::prelude::*;
use reference::{Model, Refusal, Seen};
use steps::{Step, step};
use testkit::clock::ManualClock;
use testkit::namespace_suite::{name, written};
use types::{Attributes, Checksum, ChecksumKind, FileId, Identity, PoolId, SymlinkTarget, XattrName};
use watch::Watch;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

fn identities() -> [Identity; 4] {
    [
        Identity::root(),
        Identity::new(10, 100, &[101]),
        Identity::new(20, 200, &[]),
        Identity::new(30, 100, &[200, 101]),
    ]
}

struct Run {
    namespace: Arc<SqlNamespace>,
    watch: Option<Watch>,
    clock: Arc<ManualClock>,
    model: Model,
    dir: tempfile::TempDir,
    /// Model number to id, in the order of creation.
    ids: Vec<FileId>,
    cache_bytes: u64,
}

fn open(dir: &Path, clock: &Arc<ManualClock>, cache_bytes: u64) -> Arc<SqlNamespace> {
    let opened = SqlNamespace::open(Config {
        database: Database::Sqlite(dir.to_owned()),
        clock: clock.clone(),
        root_owner: (0, 0),
        // The order of things is under test here, not the disk.
        sync: Sync::Interval(std::time::Duration::from_secs(60)),
        cache_bytes,
        queue_len_max: 64,
        group_len_max: 16,
    });
    Arc::new(opened.unwrap())
}

impl Run {
    fn new(cache_bytes: u64) -> Run {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(10_000));
        let namespace = open(dir.path(), &clock, cache_bytes);
        let watch = Some(Watch::start(&namespace));
        Run { namespace, watch, clock, model: Model::new(10_000), dir, ids: vec![FileId::ROOT], cache_bytes }
    }

    async fn step(&mut self, who: &Identity, step: &Step) {
        self.clock.advance(1);
        let now = self.clock.seconds();
        self.model.now = now;
        match step {
            Step::Create { dir, name: text, kind, mode, permissions } => {
                self.create(who, *dir, *text, *kind, *mode, *permissions).await;
            }
            Step::Lookup { dir, name: text } => {
                let (dir, text) = (self.dir(*dir), NAMES[*text]);
                let expected = self.model.lookup(who, dir, text);
                let found = self.namespace.lookup(who, self.ids[dir], &name(text)).await;
                let found = found.map(|found| found.entry);
                self.compare(found, expected);
            }
            Step::Unlink { dir, name: text, expected } => {
                let (dir, text) = (self.dir(*dir), NAMES[*text]);
                let (file, is_expected) = self.expectation((dir, text), *expected);
                let expected = self.model.unlink(who, dir, text, is_expected);
                let found = self.namespace.unlink(who, self.ids[dir], &name(text), file).await;
                self.compare(found.map(|unlinked| unlinked.attributes), expected);
            }
            Step::Link { file, dir, name: text } => {
                let (file, dir, text) = (self.file(*file), self.dir(*dir), NAMES[*text]);
                let expected = self.model.link(who, file, dir, text);
                let found = self.namespace.link(who, self.ids[file], self.ids[dir], &name(text)).await;
                self.compare(found.map(|linked| linked.attributes), expected);
            }
            Step::Rename { from, to, replace, expected } => {
                let (from, to) = ((self.dir(from.0), NAMES[from.1]), (self.dir(to.0), NAMES[to.1]));
                let (rule, is_allowed) = self.rule(to, *replace).await;
                let is_any = rule == Replace::Any;
                let (source_file, is_source_expected) = self.expectation(from, expected.0);
                let (target_file, is_target_expected) = self.expectation(to, expected.1);
                let are_expected = is_source_expected && is_target_expected;
                let expected_ends = ExpectedEnds { source: source_file, target: target_file };
                let expected = self.model.rename(who, from, to, are_expected, is_allowed.then_some(is_any));
                let (from_name, to_name) = (name(from.1), name(to.1));
                let (source, target) = ((self.ids[from.0], &from_name), (self.ids[to.0], &to_name));
                let found = self.namespace.rename(who, source, target, rule, expected_ends).await;
                self.compare(found.map(|renamed| renamed.moved), expected);
            }
            Step::Set { file, set } => {
                let file = self.file(*file);
                let expected = self.model.set(who, file, set);
                let found = self.namespace.set_attributes(who, self.ids[file], set).await;
                self.compare(found, expected);
            }
            Step::RecordWrite { file, size, is_stable } => {
                let file = self.file(*file);
                let expected = self.model.record_write(file, *size);
                let stability = if *is_stable { Stability::FileSync } else { Stability::Unstable };
                let found = self.namespace.record_write(self.ids[file], &written(*size, stability)).await;
                self.compare(found, expected);
            }
            Step::CreateUnnamed { .. } | Step::Publish { .. } => self.upload(who, step).await,
            Step::SetProperties { .. } | Step::RecordChecksum { .. } => self.attach(who, step).await,
            Step::SetXattr { .. } | Step::RemoveXattr { .. } => self.change_xattr(who, step).await,
            Step::Forget { file } => {
                let file = self.file(*file);
                self.model.forget(file);
                self.namespace.forget(&[self.ids[file]]).await.unwrap();
            }
            Step::List { dir } => self.list(who, *dir).await,
            Step::Place { file, how, pool } => self.place(*file, *how, PoolId(*pool)).await,
            Step::Look { file } => self.look(who, *file).await,
            Step::Reopen => self.reopen().await,
        }
    }

    async fn reopen(&mut self) {
        self.close().await;
        // The lock goes with the value.
        let spare = tempfile::tempdir().unwrap();
        drop(std::mem::replace(&mut self.namespace, open(spare.path(), &self.clock, 0)));
        self.namespace = open(self.dir.path(), &self.clock, self.cache_bytes);
        self.watch = Some(Watch::start(&self.namespace));
    }

    async fn close(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.end().await;
        }
        self.namespace.close().await;
    }

    async fn create(
        &mut self,
        who: &Identity,
        dir: usize,
        text: usize,
        kind: u8,
        mode: u8,
        permissions: u32,
    ) {
        let (dir, text) = (self.dir(dir), NAMES[text]);
        let kind = match kind {
            0..=3 => CreateKind::Directory,
            4..=5 => CreateKind::Regular,
            6 => CreateKind::Fifo,
            _ => CreateKind::Symlink(SymlinkTarget::new(b"somewhere").unwrap()),
        };
        let mode = match mode {
            0 => CreateMode::Unchecked,
            1 => CreateMode::Exclusive { verifier: [7; 8] },
            _ => CreateMode::Guarded,
        };
        let set = SetAttributes::default();
        let spec = CreateSpec { kind, mode, permissions, umask: None, set, location: None };
        let expected = self.model.create(who, dir, text, &spec);
        let found = self.namespace.create(who, self.ids[dir], &name(text), &spec).await;
        if let Ok(created) = &found
            && created.is_new
        {
            self.ids.push(created.attributes.file);
        }
        self.compare(found.map(|created| created.attributes), expected);
    }

    async fn list(&mut self, who: &Identity, dir: usize) {
        let dir = self.dir(dir);
        let expected = self.model.list(who, dir);
        match (self.namespace.list(who, self.ids[dir], Cookie::START, 100).await, expected) {
            (Ok(page), Ok(expected)) => {
                let mut found: Vec<(String, Seen)> = page
                    .entries
                    .iter()
                    .map(|entry| (entry.name.to_string(), seen(&entry.attributes)))
                    .collect();
                found.sort();
                assert_eq!(found, expected);
            }
            (Err(error), Err(expected)) => assert_eq!(refusal(&error), expected),
            (found, expected) => panic!("listed {found:?}, expected {expected:?}"),
        }
    }

    async fn upload(&mut self, who: &Identity, step: &Step) {
        match *step {
            Step::CreateUnnamed { dir, permissions } => {
                let dir = self.dir(dir);
                let expected = self.model.create_unnamed(who, dir, permissions);
                let new = Unnamed { permissions, location: PoolId(1) };
                let found = self.namespace.create_unnamed(who, self.ids[dir], &new).await;
                self.ids.extend(found.as_ref().map(|made| made.file));
                self.compare(found, expected);
            }
            Step::Publish { file, dir, name: text, size, replace, is_summed } => {
                let (file, dir, text) = (self.model.unnamed(file), self.dir(dir), NAMES[text]);
                let there = self.model.child(dir, text);
                let change = self.change_of(there).await;
                let (rule, is_allowed) = self.rule((dir, text), replace).await;
                let checksums: Vec<Checksum> = is_summed.then(|| sum(size as u8)).into_iter().collect();
                let expected =
                    self.model.publish(who, file, (dir, text), size, is_allowed, checksums.clone());
                let how = Publish { size, space_used: 0, mtime: None, checksums, replace: rule };
                let found =
                    self.namespace.publish(who, self.ids[file], self.ids[dir], &name(text), &how).await;
                if let (Ok(found), Some(_)) = (&found, there) {
                    assert!(found.attributes.change > change);
                }
                self.compare(found.map(|published| published.attributes), expected);
                self.compare_attached(file).await;
            }
            _ => unreachable!("only uploads come here"),
        }
    }

    /// Of what a name may be taken from, and whether that allows it as things are.
    async fn rule(&self, (dir, text): (usize, &str), replace: u8) -> (Replace, bool) {
        let there = self.model.child(dir, text);
        let file = there.map_or(FileId(4), |there| self.ids[there]);
        match replace {
            0 => (Replace::Never, there.is_none()),
            // Now and then of an older state, or of a file that is not there.
            1 | 2 => {
                let (change, is_now) = (self.change_of(there).await, replace == 2);
                let change = if is_now { change } else { change.wrapping_sub(1) };
                (Replace::Exactly { file, change }, is_now && there.is_some())
            }
            3 => (Replace::File(file), there.is_some()),
            4 => (Replace::File(FileId(4)), there.is_some() && file == FileId(4)),
            _ => (Replace::Any, true),
        }
    }

    /// Of what a name is expected to stand for, and whether it does. Now and then it stands for something else.
    fn expectation(&self, (dir, text): (usize, &str), choice: u8) -> (ExpectedFile, bool) {
        let there = self.model.child(dir, text).map(|there| self.ids[there]);
        match choice {
            0 => (ExpectedFile::Absent, there.is_none()),
            1 => (ExpectedFile::Exactly(FileId(4)), there == Some(FileId(4))),
            2 | 3 => (there.map_or(ExpectedFile::Absent, ExpectedFile::Exactly), true),
            _ => (ExpectedFile::Any, true),
        }
    }

    async fn change_of(&self, there: Option<usize>) -> u64 {
        match there {
            Some(there) => self.namespace.attributes(self.ids[there]).await.unwrap().change,
            None => 0,
        }
    }

    async fn attach(&mut self, who: &Identity, step: &Step) {
        let file = match step {
            Step::SetProperties { file, changes } => {
                let file = self.file(*file);
                let text = |at: &usize| NAMES[*at].to_owned();
                let given: Vec<PropertyChange> = changes
                    .iter()
                    .map(|(at, value)| match value {
                        Some(value) => {
                            let value = vec![*value].into();
                            PropertyChange::Set(Property { name: text(at), value })
                        }
                        None => PropertyChange::Remove(text(at)),
                    })
                    .collect();
                let expected = self.model.set_properties(who, file, &given);
                let found = self.namespace.set_properties(who, self.ids[file], &given).await;
                self.compare(found, expected);
                file
            }
            Step::RecordChecksum { file, is_late, first } => {
                let file = self.file(*file);
                let change = self.namespace.attributes(self.ids[file]).await.map_or(0, |found| found.change);
                let of_change = change - u64::from(*is_late && change > 0);
                let expected = self.model.record(file, *is_late, sum(*first));
                let found = self.namespace.record_checksums(self.ids[file], of_change, &[sum(*first)]).await;
                assert_eq!(found.map_err(|error| refusal(&error)), expected);
                file
            }
            _ => unreachable!("only what is attached comes here"),
        };
        self.compare_attached(file).await;
    }

    async fn change_xattr(&mut self, who: &Identity, step: &Step) {
        let before = async |file| self.namespace.attributes(file).await.map_or(0, |found| found.change);
        let (file, expected, found, change) = match step {
            Step::SetXattr { file, name, value, how } => {
                let (file, text, given) = (self.file(*file), NAMES[*name], vec![*value].into());
                let (id, change) = (self.ids[file], before(self.ids[file]).await);
                let expected = self.model.set_xattr(who, file, (text, *value), *how);
                (file, expected, self.namespace.set_xattr(who, id, &xattr(text), &given, *how).await, change)
            }
            Step::RemoveXattr { file, name } => {
                let (file, text) = (self.file(*file), NAMES[*name]);
                let (id, change) = (self.ids[file], before(self.ids[file]).await);
                let expected = self.model.remove_xattr(who, file, text);
                (file, expected, self.namespace.remove_xattr(who, id, &xattr(text)).await, change)
            }
            _ => unreachable!("only extended attributes come here"),
        };
        match found {
            Ok(found) => {
                let after = self.namespace.attributes(self.ids[file]).await.unwrap();
                assert_eq!((found.before, found.after), (change, after.change));
                assert!(found.atomic && found.after > found.before);
                self.compare(Ok(after), expected);
            }
            Err(error) => self.compare(Err(error), expected),
        }
        self.compare_attached(file).await;
    }

    /// Names by themselves, and each value asked for by its name.
    async fn xattrs(&self, id: FileId) -> Vec<(String, u8)> {
        let (root, mut found) = (Identity::root(), Vec::new());
        for listed in self.namespace.xattrs(&root, id, Cookie::START).await.unwrap() {
            let value = self.namespace.xattr(&root, id, &listed.name).await.unwrap();
            found.push((String::from_utf8(listed.name.as_bytes().to_vec()).unwrap(), value[0]));
        }
        found
    }

    async fn compare_attached(&self, file: usize) {
        let id = self.ids[file];
        let found = match self.namespace.properties(id).await {
            Ok(found) => {
                let properties = found.into_iter().map(|property| (property.name, property.value)).collect();
                Ok((properties, self.namespace.checksums(id).await.unwrap(), self.xattrs(id).await))
            }
            Err(error) => Err(refusal(&error)),
        };
        assert_eq!(found, self.model.attached(file));
    }

    /// Everything that exists, after a run.
    async fn compare_all(&mut self) {
        for (number, id) in self.ids.clone().into_iter().enumerate() {
            let found = self.namespace.attributes(id).await;
            self.compare(found, self.model.attributes(number));
            self.compare_attached(number).await;
            self.look(&Identity::root(), self.ids.len() - 1 - number).await;
        }
    }

    fn compare(&self, found: Result<Attributes, NamespaceError>, expected: Result<Seen, Refusal>) {
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(seen(&found), expected),
            (Err(found), Err(expected)) => assert_eq!(refusal(&found), expected),
            (found, expected) => panic!("found {found:?}, expected {expected:?}"),
        }
    }

    fn dir(&self, index: usize) -> usize {
        let dirs = self.model.directories();
        dirs[index % dirs.len()]
    }

    fn file(&self, index: usize) -> usize {
        // The latest ones, so that most of them live.
        let len = self.ids.len();
        len - 1 - index % len
    }
}

fn xattr(text: &str) -> XattrName {
    XattrName::new(text.as_bytes()).unwrap()
}

fn sum(first: u8) -> Checksum {
    Checksum::new(ChecksumKind::Adler32, &[first, 1, 1, 1]).unwrap()
}

fn seen(attributes: &Attributes) -> Seen {
    Seen {
        mode: attributes.mode,
        uid: attributes.uid,
        gid: attributes.gid,
        nlink: attributes.nlink,
        size: attributes.size,
        atime: attributes.atime.seconds,
        mtime: attributes.mtime.seconds,
        ctime: attributes.ctime.seconds,
        is_directory: attributes.kind.is_directory(),
    }
}

fn refusal(error: &NamespaceError) -> Refusal {
    match error {
        NamespaceError::NotFound => Refusal::NotFound,
        NamespaceError::Stale(_) => Refusal::Stale,
        NamespaceError::Exists => Refusal::Exists,
        NamespaceError::Moved => Refusal::Moved,
        NamespaceError::NotDirectory => Refusal::NotDirectory,
        NamespaceError::IsDirectory => Refusal::IsDirectory,
        NamespaceError::NotRegular => Refusal::NotRegular,
        NamespaceError::NotEmpty => Refusal::NotEmpty,
        NamespaceError::AccessDenied => Refusal::AccessDenied,
        NamespaceError::NotPermitted => Refusal::NotPermitted,
        NamespaceError::NotSymlink => Refusal::NotSymlink,
        NamespaceError::Cycle => Refusal::Cycle,
        other => panic!("unexpected error: {other}"),
    }
}

/// Opened anew after so many steps, besides what the steps themselves say.
fn run(steps: &[(usize, Step)], cache_bytes: u64, reopen_after: usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut run = Run::new(cache_bytes);
        // Everybody may work in the root, so that most steps do something.
        let open = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        run.step(&Identity::root(), &Step::Set { file: 0, set: open }).await;
        let identities = identities();
        for (number, (who, step)) in steps.iter().enumerate() {
            run.step(&identities[*who], step).await;
            if number % reopen_after == reopen_after - 1 {
                run.reopen().await;
            }
        }
        run.compare_all().await;
        run.close().await;
        assert_eq!(run.namespace.check().unwrap(), []);
    });
}

fn steps(max: usize) -> impl Strategy<Value = Vec<(usize, Step)>> {
    prop::collection::vec((0_usize..4, step()), 1..max)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_do_what_the_model_does(steps in steps(250)) {
        run(&steps, 1 << 20, usize::MAX);
    }

    /// Room for a few entries of each kind: something is let go all the time.
    #[test]
    fn random_operations_on_the_smallest_cache_do_what_the_model_does(steps in steps(250)) {
        run(&steps, 4 << 10, usize::MAX);
    }

    #[test]
    fn random_operations_without_a_cache_do_what_the_model_does(steps in steps(250)) {
        run(&steps, 0, usize::MAX);
    }

}

proptest! {
    // Each start takes its time.
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn random_operations_over_many_starts_do_what_the_model_does(steps in steps(40)) {
        run(&steps, 1 << 20, 5);
    }
}
