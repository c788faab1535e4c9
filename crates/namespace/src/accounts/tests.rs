//! Usage as counted against a recount, and quotas at their limits.

mod limits;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use api::{
    Account, Counted, CreateKind, CreateSpec, ExpectedEnds, ExpectedFile, Limit, Locations, Namespace,
    NamespaceError, Publish, Quota, Quotas, Replace, Scope, SetAttributes, Stability, Unnamed, Uploads,
    Written,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testkit::clock::ManualClock;
use types::{FileId, Identity, Name, PoolId};

use crate::group::{Group, OpResult};
use crate::inode::NO_PARENT;
use crate::ops;
use crate::scratch::{Engine, name, regular};
use crate::service::SqlNamespace;
use crate::session::Purpose;
use crate::written::Delta;

const TOP: FileId = FileId::ROOT;

fn folder() -> CreateSpec {
    CreateSpec { kind: CreateKind::Directory, permissions: 0o777, ..regular() }
}

fn alice() -> Identity {
    Identity::new(10, 100, &[101])
}

#[derive(Clone, Debug)]
enum Step {
    Create { dir: usize, name: usize, is_directory: bool, who: usize, size: Option<u64> },
    Unlink { dir: usize, name: usize },
    Link { file: usize, dir: usize, name: usize },
    Rename { from: (usize, usize), to: (usize, usize) },
    Set { file: usize, size: Option<u64>, uid: Option<u32>, gid: Option<u32> },
    RecordWrite { file: usize, size: u64 },
    Unnamed { dir: usize },
    Publish { file: usize, dir: usize, name: usize, size: u64 },
    Forget { file: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let dir = || 0_usize..6;
    let name = || 0_usize..4;
    let file = || 0_usize..12;
    let size = || prop_oneof![4 => 0_u64..1000, 1 => Just(1_u64 << 62)];
    prop_oneof![
        8 => (dir(), name(), any::<bool>(), 0_usize..3, prop::option::of(size()))
            .prop_map(|(dir, name, is_directory, who, size)| Step::Create { dir, name, is_directory, who, size }),
        5 => (dir(), name()).prop_map(|(dir, name)| Step::Unlink { dir, name }),
        4 => (file(), dir(), name()).prop_map(|(file, dir, name)| Step::Link { file, dir, name }),
        6 => ((dir(), name()), (dir(), name())).prop_map(|(from, to)| Step::Rename { from, to }),
        3 => (file(), prop::option::of(size()), prop::option::of(10_u32..13), prop::option::of(100_u32..103))
            .prop_map(|(file, size, uid, gid)| Step::Set { file, size, uid, gid }),
        2 => (file(), size()).prop_map(|(file, size)| Step::RecordWrite { file, size }),
        2 => dir().prop_map(|dir| Step::Unnamed { dir }),
        3 => (file(), dir(), name(), size())
            .prop_map(|(file, dir, name, size)| Step::Publish { file, dir, name, size }),
        1 => file().prop_map(|file| Step::Forget { file }),
    ]
}

/// Files and directories ever made, by which steps name them.
struct Made {
    dirs: Vec<FileId>,
    files: Vec<FileId>,
}

impl Made {
    fn dir(&self, at: usize) -> FileId {
        self.dirs[at % self.dirs.len()]
    }

    fn file(&self, at: usize) -> FileId {
        // The last ones are there most likely.
        self.files.iter().rev().nth(at % self.files.len().max(1)).copied().unwrap_or(FileId(4711))
    }
}

fn text(number: usize) -> Name {
    name(["a", "b", "c", "d"][number])
}

fn apply(group: &mut Group<'_>, made: &mut Made, step: &Step) -> OpResult<()> {
    let root = Identity::root();
    match step.clone() {
        Step::Create { dir, name, is_directory, who, size } => {
            let who = [root, alice(), Identity::new(11, 102, &[])][who].clone();
            let set = SetAttributes { size: size.filter(|_| !is_directory), ..SetAttributes::default() };
            let spec = if is_directory { folder() } else { CreateSpec { set, ..regular() } };
            let file = ops::create::create(group, &who, made.dir(dir), &text(name), &spec)?.attributes.file;
            if is_directory { &mut made.dirs } else { &mut made.files }.push(file);
        }
        Step::Unlink { dir, name } => {
            ops::unlink::unlink(group, &root, made.dir(dir), &text(name), ExpectedFile::Any)?;
        }
        Step::Link { file, dir, name } => {
            ops::link::link(group, &root, made.file(file), made.dir(dir), &text(name))?;
        }
        Step::Rename { from, to } => {
            let (from, to) = ((made.dir(from.0), text(from.1)), (made.dir(to.0), text(to.1)));
            ops::rename::rename(
                group,
                &root,
                (from.0, &from.1),
                (to.0, &to.1),
                Replace::Any,
                ExpectedEnds::ANY,
            )?;
        }
        Step::Set { file, size, uid, gid } => {
            let set = SetAttributes { size, uid, gid, ..SetAttributes::default() };
            ops::setattr::set_attributes(group, &root, made.file(file), &set)?;
        }
        Step::RecordWrite { file, size } => {
            let written = Written {
                size_at_least: Some(size),
                mtime: None,
                space_used: None,
                stability: Stability::FileSync,
            };
            ops::writes::record_write(group, made.file(file), &Delta::new(&written, group.now()))?;
        }
        Step::Unnamed { dir } => {
            let new = Unnamed { permissions: 0o600, location: PoolId(0) };
            made.files.push(ops::publish::create_unnamed(group, &alice(), made.dir(dir), &new)?.file);
        }
        Step::Publish { file, dir, name, size } => {
            let how =
                Publish { size, space_used: 0, mtime: None, checksums: Vec::new(), replace: Replace::Any };
            ops::publish::publish(group, &root, made.file(file), (made.dir(dir), &text(name)), &how)?;
        }
        Step::Forget { file } => ops::records::forget(group, &[made.file(file)])?,
    }
    Ok(())
}

/// As the rows of the inodes have it.
fn recount(namespace: &SqlNamespace) -> BTreeMap<Account, Counted> {
    let mut session = namespace.reads.session(Purpose::Look).unwrap();
    let parents: HashMap<FileId, FileId> = session
        .rows("SELECT id, parent FROM inodes WHERE kind = 1", |row| (row.id(0), row.id(1)))
        .unwrap()
        .into_iter()
        .collect();
    let mut counted: BTreeMap<Account, Counted> = BTreeMap::new();
    for (account, change) in super::load::recounted(&mut *session).unwrap() {
        if account.scope != Scope::Tree {
            counted.entry(account).or_default().add(&change);
            continue;
        }
        let mut at = FileId(account.id);
        while at != NO_PARENT {
            counted.entry(Account::tree(at)).or_default().add(&change);
            at = parents[&at];
        }
    }
    for dir in parents.keys() {
        counted.entry(Account::tree(*dir)).or_default();
    }
    counted
}

async fn compare(namespace: &SqlNamespace) -> Result<(), TestCaseError> {
    for (account, there) in recount(namespace) {
        prop_assert_eq!(namespace.counted(account).await.unwrap(), there, "{:?}", account);
        if let Some(standing) = namespace.standing_here(account) {
            prop_assert_eq!(standing.used, there, "{:?} has a quota", account);
        }
    }
    Ok(())
}

/// Groups of steps, and after which of them the namespace is closed and opened, or has a quota given to a directory.
fn run(engine: &Engine, groups: &[(Vec<Step>, u8, usize)]) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut namespace = engine.open();
        let mut made = Made { dirs: vec![TOP], files: Vec::new() };
        for (steps, then, which) in groups {
            let steps = steps.clone();
            made = namespace
                .shared
                .submit(move |group| {
                    for step in &steps {
                        // A refused step leaves no trace.
                        if let Err(crate::group::OpError::Failed(error)) = apply(group, &mut made, step) {
                            return Err(error.into());
                        }
                    }
                    Ok(made)
                })
                .await
                .unwrap();
            match then {
                0 => {
                    namespace.close().await;
                    prop_assert_eq!(namespace.check().unwrap(), []);
                    drop(namespace);
                    namespace = engine.open();
                }
                1 | 2 => {
                    let quota = Quota { bytes: Limit::default(), files: Limit::default() };
                    let account =
                        [Account::tree(made.dir(*which)), Account::user(10)][usize::from(*then) - 1];
                    match namespace.set_quota(account, Some(quota)).await {
                        Ok(()) | Err(NamespaceError::NotFound) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                3 | 4 => {
                    let flushed = namespace.shared.submit(|group| {
                        group.quotas.is_flush = true;
                        Ok(())
                    });
                    flushed.await.unwrap();
                }
                _ => {}
            }
            compare(&namespace).await?;
        }
        namespace.close().await;
        prop_assert_eq!(namespace.check().unwrap(), []);
        drop(namespace);
        compare(&engine.open()).await
    })
}

#[test]
fn counted_usage_equals_a_recount() {
    let groups = prop::collection::vec((prop::collection::vec(step(), 1..7), 0_u8..9, 0_usize..6), 1..14);
    for (at, _) in Engine::all().iter().enumerate() {
        let cases = if at == 0 { 24 } else { 4 };
        let mut runner = TestRunner::new(Config { cases, ..Config::default() });
        let tested = runner.run(&groups, |groups| run(&Engine::all()[at], &groups));
        tested.unwrap_or_else(|failure| panic!("{failure}"));
    }
}
