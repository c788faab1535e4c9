//! Groups and their callers.

mod deferral;

use super::*;
use crate::config::{Config, Sync};
use crate::scratch::{config, name, occupy, open, regular};
use crate::service::SqlNamespace;
use crate::sqlite::rows::CHECKPOINT_BYTES;
use api::{
    CreateKind, CreateSpec, ExpectedEnds, ExpectedFile, Locations, Namespace, Properties, Property,
    PropertyChange, Replace, SetAttributes, SetXattr, Stability, Written, Xattrs,
};
use types::{Access, Ace, AceWho, Acl, Identity};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_is_busy_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let (release, occupied) = occupy(&namespace);
    release.wait_begun();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let shared = Arc::clone(&namespace.shared);
        let (pushed, is_pushed) = oneshot::channel();
        waiting.push(tokio::spawn(async move {
            let submitted = shared.submit(|_| Ok(()));
            tokio::pin!(submitted);
            let mut pushed = Some(pushed);
            std::future::poll_fn(|context| {
                let polled = submitted.as_mut().poll(context);
                if let Some(pushed) = pushed.take() {
                    pushed.send(()).unwrap();
                }
                polled
            })
            .await
        }));
        is_pushed.await.unwrap();
    }
    let refused = namespace.shared.submit(|_| Ok(())).await;
    assert!(matches!(refused, Err(NamespaceError::Busy)));
    release.release();
    occupied.await.unwrap().unwrap();
    for waited in waiting {
        waited.await.unwrap().unwrap();
    }
    assert!(namespace.shared.submit(|_| Ok(())).await.is_ok());
}

/// An operation is queued at its first poll.
async fn begun(asked: impl Future) {
    tokio::pin!(asked);
    tokio::select! {
        biased;
        _ = &mut asked => panic!("the committer is busy"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_nobody_waits_for_can_be_seen_behind_any_later_answer() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let (root, left) = (Identity::root(), name("left"));
    let (release, occupied) = occupy(&namespace);
    release.wait_begun();
    begun(namespace.create(&root, FileId::ROOT, &left, &regular())).await;
    let later = tokio::spawn({
        let namespace = Arc::clone(&namespace);
        async move { namespace.forget(&[]).await }
    });
    release.release();
    later.await.unwrap().unwrap();
    assert!(namespace.lookup(&root, FileId::ROOT, &left).await.is_ok());
    occupied.await.unwrap().unwrap();
}

/// Callers take turns then, but what has to be behind everything is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgetting_is_answered_behind_all_that_waits_also_when_one_group_does_not_take_it() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let root = Identity::root();
    let (release, occupied) = occupy(&namespace);
    release.wait_begun();
    for text in ["a", "b", "c", "d", "e", "left"] {
        begun(namespace.create(&root, FileId::ROOT, &name(text), &regular())).await;
    }
    let asked = namespace.forget(&[]);
    tokio::pin!(asked);
    tokio::select! {
        biased;
        _ = &mut asked => panic!("the committer is busy"),
        () = std::future::ready(()) => {}
    }
    release.release();
    asked.await.unwrap();
    assert!(namespace.lookup(&root, FileId::ROOT, &name("left")).await.is_ok());
    occupied.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_create_is_in_the_first_group_though_another_user_has_more_than_a_group() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let (root, user) = (Identity::root(), Identity::new(10, 100, &[]));
    let set = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    namespace.set_attributes(&root, FileId::ROOT, &set).await.unwrap();
    let (release, occupied) = occupy(&namespace);
    release.wait_begun();
    for text in ["a", "b", "c", "d", "e", "f"] {
        begun(namespace.create(&root, FileId::ROOT, &name(text), &regular())).await;
    }
    let asked = async { namespace.create(&user, FileId::ROOT, &name("mine"), &regular()).await };
    tokio::pin!(asked);
    tokio::select! {
        biased;
        _ = &mut asked => panic!("the committer is busy"),
        () = std::future::ready(()) => {}
    }
    release.release();
    // Ids are given as operations are applied.
    let mine = asked.await.unwrap().attributes.file;
    namespace.forget(&[]).await.unwrap();
    let last = namespace.lookup(&root, FileId::ROOT, &name("f")).await.unwrap().entry.file;
    assert!(mine < last, "{mine} and {last}");
    occupied.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_group_that_fails_leaves_no_trace_and_the_next_one_works() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let root = Identity::root();
    let kept = namespace.create(&root, FileId::ROOT, &name("kept"), &regular()).await.unwrap().attributes;
    let written =
        Written { size_at_least: Some(9), mtime: None, space_used: None, stability: Stability::Unstable };
    let shown = namespace.record_write(kept.file, &written).await.unwrap();
    let before = namespace.attributes(FileId::ROOT).await.unwrap();
    // All of it in one operation, so that it is one group.
    let failed: Result<(), _> = namespace
        .shared
        .submit(move |group| {
            crate::ops::create::create(group, &Identity::root(), FileId::ROOT, &name("gone"), &regular())?;
            crate::ops::unlink::unlink(
                group,
                &Identity::root(),
                FileId::ROOT,
                &name("kept"),
                ExpectedFile::Any,
            )?;
            Err(OpError::Failed(StoreError::Failed("for the test".to_owned())))
        })
        .await;
    assert!(matches!(failed, Err(NamespaceError::Database(_))));
    assert_eq!(namespace.attributes(FileId::ROOT).await.unwrap(), before);
    let gone = namespace.lookup(&root, FileId::ROOT, &name("gone")).await;
    assert!(matches!(gone, Err(NamespaceError::NotFound)));
    assert_eq!(namespace.lookup(&root, FileId::ROOT, &name("kept")).await.unwrap().entry, shown);
    namespace.create(&root, FileId::ROOT, &name("gone"), &regular()).await.unwrap();
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
}

#[tokio::test]
async fn a_full_disk_is_told_and_over_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let limit = |pages: u32| {
        let shared = Arc::clone(&namespace.shared);
        async move {
            shared
                .submit(move |group| {
                    Ok(group.inodes.source.store.execute(&format!("PRAGMA max_page_count = {pages}"))?)
                })
                .await
        }
    };
    // No fewer than there are: what is free in those goes first.
    limit(1).await.unwrap();
    let mut made = 0;
    let refused = loop {
        let text = name(&format!("{made:0>200}"));
        match namespace.create(&Identity::root(), FileId::ROOT, &text, &regular()).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, NamespaceError::NoSpace), "{refused}");
    let text = name(&format!("{made:0>200}"));
    let lookup = namespace.lookup(&Identity::root(), FileId::ROOT, &text).await;
    assert!(matches!(lookup, Err(NamespaceError::NotFound)));
    let refusing = namespace.growth_trouble().unwrap();
    assert_eq!(refusing.kind, TroubleKind::Full, "{}", refusing.why);
    limit(100_000).await.unwrap();
    well_again(&namespace).await;
    namespace.create(&Identity::root(), FileId::ROOT, &text, &regular()).await.unwrap();
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
}

/// By itself: nobody asks for anything.
async fn well_again(namespace: &SqlNamespace) {
    while namespace.trouble().is_some() || namespace.growth_trouble().is_some() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// `/health` told of it until somebody changed something.
#[tokio::test]
async fn a_disk_that_works_again_is_known_to_without_anybody_changing_anything() {
    for sync in [INTERVAL, Sync::Always] {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open_with(&dir, sync);
        let beside = rusqlite::Connection::open(dir.path().join("namespace.db")).unwrap();
        let refuses =
            "CREATE TRIGGER refuses BEFORE UPDATE ON progress BEGIN SELECT RAISE(ABORT, 'refused'); END";
        beside.execute_batch(refuses).unwrap();
        let refused = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await;
        assert!(matches!(refused, Err(NamespaceError::Database(_))));
        assert_eq!(namespace.trouble().unwrap().kind, TroubleKind::Failed);
        namespace.shared.submit(|_| Ok(())).await.unwrap();
        assert!(namespace.trouble().is_some(), "what writes nothing does not say that it can be written");
        beside.execute_batch("DROP TRIGGER refuses").unwrap();
        drop(beside);
        well_again(&namespace).await;
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

/// A create that finds no room fails alone: a removal of the same group passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_reserve_a_namespace_takes_what_needs_no_room_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let root = Identity::root();
    let top = FileId::ROOT;
    let namespace = open(&dir);
    let mut files = Vec::new();
    for text in ["a", "b", "c", "d"] {
        files.push(namespace.create(&root, top, &name(text), &regular()).await.unwrap().attributes.file);
    }
    let xattr = types::XattrName::new(b"colour").unwrap();
    namespace.set_xattr(&root, files[0], &xattr, &"red".into(), SetXattr::Create).await.unwrap();
    namespace.close().await;
    drop(namespace);
    // A directory holds no room.
    let reserve = dir.path().join("reserve");
    std::fs::remove_file(&reserve).unwrap();
    std::fs::create_dir(&reserve).unwrap();

    let namespace = open(&dir);
    assert_eq!(namespace.growth_trouble().unwrap().kind, TroubleKind::Full, "from the start");
    let refused =
        |done: Result<(), NamespaceError>| assert!(matches!(done, Err(NamespaceError::NoSpace)), "{done:?}");
    let folder = CreateSpec { kind: CreateKind::Directory, ..regular() };
    refused(namespace.create(&root, top, &name("new"), &regular()).await.map(drop));
    refused(namespace.create(&root, top, &name("new"), &folder).await.map(drop));
    refused(namespace.link(&root, files[0], top, &name("new")).await.map(drop));
    let to_new = namespace
        .rename(&root, (top, &name("a")), (top, &name("new")), Replace::Any, ExpectedEnds::ANY)
        .await;
    refused(to_new.map(drop));
    refused(namespace.set_xattr(&root, files[0], &xattr, &"blue".into(), SetXattr::Either).await.map(drop));
    let property = Property { name: "{DAV:}colour".to_owned(), value: "red".into() };
    let set = [PropertyChange::Set(property)];
    refused(namespace.set_properties(&root, files[0], &set).await.map(drop));
    let acl = Acl::new(vec![Ace::deny(AceWho::User(5), Access::READ)]).ok();
    let given = SetAttributes { acl, ..SetAttributes::default() };
    refused(namespace.set_attributes(&root, files[0], &given).await.map(drop));
    assert_eq!(namespace.trouble(), None);

    let (release, occupied) = occupy(&namespace);
    release.wait_begun();
    let create = async { namespace.create(&root, top, &name("new"), &regular()).await.map(drop) };
    let remove = async { namespace.unlink(&root, top, &name("b"), ExpectedFile::Any).await.map(drop) };
    let both = async { tokio::join!(create, remove) };
    tokio::pin!(both);
    tokio::select! {
        biased;
        _ = &mut both => panic!("the committer is busy"),
        () = std::future::ready(()) => {}
    }
    release.release();
    let (created, removed) = both.await;
    refused(created);
    removed.unwrap();
    occupied.await.unwrap().unwrap();
    namespace
        .rename(&root, (top, &name("c")), (top, &name("d")), Replace::Any, ExpectedEnds::ANY)
        .await
        .unwrap();
    namespace.remove_xattr(&root, files[0], &xattr).await.unwrap();
    let cut = SetAttributes { size: Some(0), mode: Some(0o600), ..SetAttributes::default() };
    namespace.set_attributes(&root, files[0], &cut).await.unwrap();

    std::fs::remove_dir(&reserve).unwrap();
    well_again(&namespace).await;
    namespace.create(&root, top, &name("new"), &regular()).await.unwrap();
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
}

/// A commit for which the index had no room failed when it was on disk already.
#[tokio::test]
async fn the_index_of_the_log_has_room_from_the_start() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let index = dir.path().join("namespace.db-shm").metadata().unwrap();
    assert!(index.len() >= 2 * 32_768 && index.blocks() * 512 >= index.len(), "{index:?}");
    namespace.close().await;
}

#[tokio::test]
async fn a_closed_namespace_takes_nothing_and_has_written_everything() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let file = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await.unwrap();
    let file = file.attributes.file;
    let written =
        Written { size_at_least: Some(77), mtime: None, space_used: None, stability: Stability::Unstable };
    let shown = namespace.record_write(file, &written).await.unwrap();
    namespace.close().await;
    namespace.close().await;
    let refused = namespace.create(&Identity::root(), FileId::ROOT, &name("b"), &regular()).await;
    assert!(matches!(refused, Err(NamespaceError::Busy)));
    assert!(matches!(namespace.record_write(file, &written).await, Err(NamespaceError::Busy)));
    drop(namespace);
    // A clean end raises no floor: clients keep what they cached.
    assert_eq!(open(&dir).attributes(file).await.unwrap(), shown);
}

/// Pools keep lengths of stable writes only until the namespace has them.
#[tokio::test]
async fn a_length_that_is_not_written_at_the_end_is_in_doubt() {
    for is_refused in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open(&dir);
        let file = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await.unwrap();
        let beside = rusqlite::Connection::open(dir.path().join("namespace.db")).unwrap();
        if is_refused {
            let refuses =
                "CREATE TRIGGER refuses BEFORE UPDATE ON progress BEGIN SELECT RAISE(ABORT, 'refused'); END";
            beside.execute_batch(refuses).unwrap();
        }
        let written = Written {
            size_at_least: Some(77),
            mtime: None,
            space_used: None,
            stability: Stability::Unstable,
        };
        namespace.record_write(file.attributes.file, &written).await.unwrap();
        namespace.close().await;
        assert_eq!(namespace.has_lengths_in_doubt(), is_refused);
    }
}

#[tokio::test]
async fn an_unstable_write_reaches_the_database_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let file = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await.unwrap();
    let file = file.attributes.file;
    for size in [77, 78] {
        let written = Written {
            size_at_least: Some(size),
            mtime: None,
            space_used: None,
            stability: Stability::Unstable,
        };
        namespace.record_write(file, &written).await.unwrap();
        let in_database =
            || async { namespace.reads.inode(file).await.unwrap().value.unwrap().attributes.size };
        while in_database().await != size {
            tokio::task::yield_now().await;
        }
    }
}

fn open_with(dir: &tempfile::TempDir, sync: Sync) -> SqlNamespace {
    SqlNamespace::open(Config { sync, ..config(dir) }).unwrap()
}

const INTERVAL: Sync = Sync::Interval(Duration::from_secs(60));

#[tokio::test]
async fn a_caller_that_finds_the_committer_idle_commits_itself_if_no_sync_is_needed() {
    let here = std::thread::current().id();
    for (sync, is_here) in [(INTERVAL, true), (Sync::Always, false)] {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open_with(&dir, sync);
        let mut by = Vec::new();
        // The thread holds the committer for a moment when it starts, and when it has answered.
        while by.len() < 3 || is_here && by.len() < 10_000 && !by.contains(&here) {
            by.push(namespace.shared.submit(|_| Ok(std::thread::current().id())).await.unwrap());
        }
        assert_eq!(by.contains(&here), is_here, "{sync:?}");
        let behind = namespace.shared.submit_for(Order::Behind, [], |_| Ok(std::thread::current().id()));
        assert_ne!(behind.await.unwrap(), here);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_commits_by_himself_past_what_waits_or_is_under_way() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let (release, occupied) = occupy(&namespace);
    release.wait_begun();
    // One that nobody waits for, in the queue; then it is under way.
    begun(namespace.create(&Identity::root(), FileId::ROOT, &name("first"), &regular())).await;
    let (root, text, spec) = (Identity::root(), name("later"), regular());
    let later = namespace.create(&root, FileId::ROOT, &text, &spec);
    tokio::pin!(later);
    tokio::select! {
        biased;
        _ = &mut later => panic!("the committer is busy"),
        () = std::future::ready(()) => {}
    }
    release.release();
    let later = later.await.unwrap().attributes.file;
    let first = namespace.lookup(&Identity::root(), FileId::ROOT, &name("first")).await.unwrap().entry.file;
    assert!(first < later);
    occupied.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_caller_hands_over_to_the_committer_thread_until_a_group_holds_one_operation() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let here = std::thread::current().id();
    namespace.shared.committer.lock().as_mut().unwrap().last_len = 2;
    let mut by = Vec::new();
    while by.len() < 10_000 && !by.contains(&here) {
        by.push(namespace.shared.submit(|_| Ok(std::thread::current().id())).await.unwrap());
    }
    assert!(by[0] != here && by.contains(&here));
}

#[tokio::test]
async fn the_log_is_carried_into_the_database_between_groups() {
    for sync in [INTERVAL, Sync::Always] {
        let dir = tempfile::tempdir().unwrap();
        let namespace = open_with(&dir, sync);
        // Each writes some eight pages.
        for number in 0..1500 {
            let text = name(&format!("{:0>9}", number * 7919 % 1_000_003));
            namespace.create(&Identity::root(), FileId::ROOT, &text, &regular()).await.unwrap();
        }
        let written = dir.path().join("namespace.db-wal").metadata().unwrap().len();
        assert!(written < 2 * CHECKPOINT_BYTES, "{sync:?}: {written} bytes");
        let database = dir.path().join("namespace.db").metadata().unwrap().len();
        assert!(database > 100_000, "{sync:?}: {database} bytes");
    }
}

#[tokio::test]
async fn a_panic_in_the_committers_own_thread_leaves_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open_with(&dir, Sync::Always);
    let died: Result<(), _> = namespace.shared.submit(|_| panic!("a bug, for the test")).await;
    assert!(matches!(died, Err(NamespaceError::Database(_))));
    let after = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await;
    assert!(after.is_err());
    namespace.close().await;
}

#[tokio::test]
async fn a_panic_of_the_committer_leaves_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    let died: Result<(), _> = namespace.shared.submit(|_| panic!("a bug, for the test")).await;
    assert!(matches!(died, Err(NamespaceError::Database(_))));
    // It may still be on its way out.
    let after = namespace.create(&Identity::root(), FileId::ROOT, &name("a"), &regular()).await;
    assert!(after.is_err());
    assert!(namespace.attributes(FileId::ROOT).await.is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committer_that_is_held_up_takes_no_turn_and_one_that_has_panicked_never_will() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open(&dir);
    assert!(namespace.takes_turns().await);
    let (release, occupied) = occupy(&namespace);
    release.wait_begun();
    let asked = tokio::time::timeout(Duration::from_millis(50), namespace.takes_turns()).await;
    assert!(asked.is_err(), "it answers although an operation holds it up");
    release.release();
    occupied.await.unwrap().unwrap();
    assert!(namespace.takes_turns().await);
    let broken = namespace.shared.submit(|_| -> OpResult<()> { panic!("as a bug would") }).await;
    assert!(broken.is_err());
    assert!(!namespace.takes_turns().await);
}
