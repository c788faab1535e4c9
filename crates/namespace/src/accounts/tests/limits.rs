//! Quotas at their limits.

use api::{ExpectedEnds, ExpectedFile};

use super::*;

async fn create(
    namespace: &SqlNamespace,
    who: &Identity,
    dir: FileId,
    text: &str,
    spec: &CreateSpec,
) -> Result<FileId, NamespaceError> {
    Ok(namespace.create(who, dir, &name(text), spec).await?.attributes.file)
}

fn of_size(size: u64) -> CreateSpec {
    CreateSpec { set: SetAttributes { size: Some(size), ..SetAttributes::default() }, ..regular() }
}

fn files(hard: u64) -> Option<Quota> {
    Some(Quota { files: Limit { hard: Some(hard), ..Limit::default() }, ..Quota::default() })
}

fn bytes(hard: u64) -> Option<Quota> {
    Some(Quota { bytes: Limit { hard: Some(hard), ..Limit::default() }, ..Quota::default() })
}

macro_rules! refused {
    ($result:expr) => {
        assert!(matches!($result.await, Err(NamespaceError::QuotaExceeded)))
    };
}

/// A namespace of each engine in which everybody may make files in the root.
async fn each(mut test: impl AsyncFnMut(&Engine, Arc<SqlNamespace>, Arc<ManualClock>)) {
    for engine in Engine::all() {
        let clock = Arc::new(ManualClock::new(1_000_000));
        let namespace = engine.open_with(clock.clone());
        let all = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        namespace.set_attributes(&Identity::root(), TOP, &all).await.unwrap();
        test(&engine, Arc::clone(&namespace), clock).await;
        compare(&namespace).await.unwrap();
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}

#[tokio::test]
async fn a_create_beyond_the_quota_fails_alone_in_its_group() {
    each(async |_, namespace, _| {
        namespace.set_quota(Account::user(10), files(2)).await.unwrap();
        let made = namespace.shared.submit(|group| {
            let mut made = Vec::new();
            for (number, who) in [alice(), alice(), alice(), Identity::new(11, 102, &[])].iter().enumerate() {
                let text = name(&format!("f{number}"));
                made.push(ops::create::create(group, who, TOP, &text, &regular()).is_ok());
            }
            // The removed file becomes an orphan; to forget an unknown file changes nothing.
            ops::unlink::unlink(group, &alice(), TOP, &name("f0"), ExpectedFile::Any)?;
            ops::records::forget(group, &[FileId(4711)])?;
            Ok(made)
        });
        assert_eq!(made.await.unwrap(), [true, true, false, true]);
        // An orphan counts until it is forgotten.
        refused!(create(&namespace, &alice(), TOP, "more", &regular()));
        let orphans = namespace.orphans(FileId(0), 9).await.unwrap();
        namespace.forget(&[orphans[0].attributes.file]).await.unwrap();
        create(&namespace, &alice(), TOP, "more", &regular()).await.unwrap();
        refused!(create(&namespace, &alice(), TOP, "d", &folder()));
        // Root may always.
        let owned = SetAttributes { uid: Some(10), ..SetAttributes::default() };
        let spec = CreateSpec { set: owned, ..regular() };
        create(&namespace, &Identity::root(), TOP, "by root", &spec).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_file_grows_up_to_the_quota_and_shrinks_from_beyond_it() {
    each(async |_, namespace, _| {
        let file = create(&namespace, &alice(), TOP, "f", &of_size(60)).await.unwrap();
        namespace.set_quota(Account::group(100), bytes(100)).await.unwrap();
        let set = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
        assert_eq!(namespace.room(&alice(), file).await.unwrap(), Some(40));
        refused!(namespace.set_attributes(&alice(), file, &set(101)));
        namespace.set_attributes(&alice(), file, &set(100)).await.unwrap();
        refused!(create(&namespace, &alice(), TOP, "g", &of_size(1)));
        create(&namespace, &alice(), TOP, "empty", &regular()).await.unwrap();
        // A size that a pool already holds is recorded, also above the quota.
        let written = Written {
            size_at_least: Some(150),
            mtime: None,
            space_used: None,
            stability: Stability::FileSync,
        };
        namespace.record_write(file, &written).await.unwrap();
        assert_eq!(namespace.room(&alice(), file).await.unwrap(), Some(0));
        namespace.set_attributes(&alice(), file, &set(120)).await.unwrap();
        refused!(namespace.set_attributes(&alice(), file, &set(121)));
        // In another group it is another matter.
        let other = SetAttributes { gid: Some(101), ..SetAttributes::default() };
        namespace.set_attributes(&alice(), file, &other).await.unwrap();
        namespace.set_quota(Account::group(100), bytes(119)).await.unwrap();
        let back = SetAttributes { gid: Some(100), ..SetAttributes::default() };
        refused!(namespace.set_attributes(&alice(), file, &back));
    })
    .await;
}

#[tokio::test]
async fn a_soft_limit_is_passed_for_its_grace_and_then_holds() {
    each(async |_, namespace, clock| {
        let soft = Limit { soft: Some(1), hard: Some(5), over_since: None };
        let quota = Quota { files: soft, ..Quota::default() };
        namespace.set_quota(Account::user(10), Some(quota)).await.unwrap();
        let over = |namespace: &SqlNamespace| {
            namespace.standing_here(Account::user(10)).unwrap().quota.files.over_since
        };
        let first = create(&namespace, &alice(), TOP, "f0", &folder()).await.unwrap();
        assert_eq!(over(&namespace), None);
        create(&namespace, &alice(), TOP, "f1", &folder()).await.unwrap();
        assert_eq!(over(&namespace), Some(1_000_000));
        clock.advance(7 * 86_400 - 1);
        create(&namespace, &alice(), TOP, "f2", &folder()).await.unwrap();
        assert_eq!(over(&namespace), Some(1_000_000));
        clock.advance(1);
        refused!(create(&namespace, &alice(), TOP, "f3", &folder()));
        // Raising the limit forgets no time; coming below it does.
        namespace.unlink(&alice(), TOP, &name("f1"), ExpectedFile::Any).await.unwrap();
        refused!(create(&namespace, &alice(), first, "f3", &folder()));
        namespace.unlink(&alice(), TOP, &name("f2"), ExpectedFile::Any).await.unwrap();
        assert_eq!(over(&namespace), None);
        create(&namespace, &alice(), first, "f3", &folder()).await.unwrap();
        assert_eq!(over(&namespace), Some(1_000_000 + 7 * 86_400));
    })
    .await;
}

#[tokio::test]
async fn quotas_are_there_after_a_restart() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let none = Limit { soft: Some(0), hard: None, over_since: None };
        let quota = Quota { bytes: none, files: none };
        for account in [Account::user(0), Account::group(u32::MAX), Account::tree(TOP)] {
            namespace.set_quota(account, Some(quota)).await.unwrap();
        }
        create(&namespace, &Identity::root(), TOP, "f", &of_size(3)).await.unwrap();
        let before = namespace.quotas().await.unwrap();
        assert_eq!(before.iter().filter(|standing| standing.quota.bytes.over_since.is_some()).count(), 2);
        namespace.close().await;
        drop(namespace);
        let again = engine.open();
        assert_eq!(again.quotas().await.unwrap(), before);
        again.set_quota(Account::tree(TOP), None).await.unwrap();
        assert_eq!(again.quotas().await.unwrap().len(), 2);
        again.close().await;
        assert_eq!(again.check().unwrap(), []);
    }
}

#[tokio::test]
async fn a_tree_is_bounded_wherever_below_it_something_is_made_or_moved() {
    each(async |_, namespace, _| {
        let root = Identity::root();
        let tree = create(&namespace, &alice(), TOP, "tree", &folder()).await.unwrap();
        let below = create(&namespace, &alice(), tree, "below", &folder()).await.unwrap();
        let elsewhere = create(&namespace, &alice(), TOP, "elsewhere", &folder()).await.unwrap();
        let file = create(&namespace, &alice(), elsewhere, "f", &of_size(70)).await.unwrap();
        create(&namespace, &alice(), elsewhere, "g", &of_size(20)).await.unwrap();
        namespace.set_quota(Account::tree(tree), bytes(100)).await.unwrap();
        namespace.set_quota(Account::tree(below), files(3)).await.unwrap();
        create(&namespace, &alice(), below, "x", &of_size(20)).await.unwrap();
        refused!(create(&namespace, &alice(), below, "y", &of_size(81)));

        // A whole tree with 90 bytes does not fit, less does, and root may.
        refused!(namespace.rename(
            &alice(),
            (TOP, &name("elsewhere")),
            (below, &name("e")),
            Replace::Any,
            ExpectedEnds::ANY
        ));
        namespace
            .rename(&alice(), (elsewhere, &name("f")), (below, &name("f")), Replace::Any, ExpectedEnds::ANY)
            .await
            .unwrap();
        refused!(namespace.rename(
            &alice(),
            (elsewhere, &name("g")),
            (tree, &name("g")),
            Replace::Any,
            ExpectedEnds::ANY
        ));
        namespace
            .rename(&root, (TOP, &name("elsewhere")), (tree, &name("e")), Replace::Any, ExpectedEnds::ANY)
            .await
            .unwrap();
        let used = |dir| namespace.standing_here(Account::tree(dir)).unwrap().used;
        assert_eq!(used(tree), Counted { files: 3, directories: 2, bytes: 110 });
        assert_eq!(used(below), Counted { files: 2, directories: 0, bytes: 90 });
        assert_eq!(namespace.tree(file).await.unwrap().unwrap().account, Account::tree(tree));
        assert_eq!(namespace.room(&alice(), file).await.unwrap(), Some(0));

        // Within a tree all may move; out of it too, and then there is room.
        namespace
            .rename(&alice(), (below, &name("f")), (elsewhere, &name("f")), Replace::Any, ExpectedEnds::ANY)
            .await
            .unwrap();
        namespace
            .rename(&alice(), (tree, &name("e")), (TOP, &name("e")), Replace::Any, ExpectedEnds::ANY)
            .await
            .unwrap();
        assert_eq!(used(tree), Counted { files: 1, directories: 1, bytes: 20 });
        assert_eq!(used(below), Counted { files: 1, directories: 0, bytes: 20 });
        create(&namespace, &alice(), tree, "y", &of_size(80)).await.unwrap();

        // A directory takes its quota with it.
        for text in ["x", "y"] {
            let dir = if text == "x" { below } else { tree };
            namespace.unlink(&alice(), dir, &name(text), ExpectedFile::Any).await.unwrap();
        }
        namespace.unlink(&alice(), tree, &name("below"), ExpectedFile::Any).await.unwrap();
        assert_eq!(namespace.quotas().await.unwrap().len(), 1);
        refused_as_missing(&namespace, below).await;
    })
    .await;
}

async fn refused_as_missing(namespace: &SqlNamespace, dir: FileId) {
    let refused = namespace.set_quota(Account::tree(dir), files(3)).await;
    assert!(matches!(refused, Err(NamespaceError::NotFound)));
}

#[tokio::test]
async fn a_file_of_several_names_counts_once_and_moves_with_the_name_it_counts_at() {
    each(async |_, namespace, _| {
        let a = create(&namespace, &alice(), TOP, "a", &folder()).await.unwrap();
        let b = create(&namespace, &alice(), TOP, "b", &folder()).await.unwrap();
        let file = create(&namespace, &alice(), a, "f", &of_size(7)).await.unwrap();
        namespace.link(&alice(), file, b, &name("g")).await.unwrap();
        namespace.link(&alice(), file, b, &name("h")).await.unwrap();
        let bytes = async |dir| namespace.counted(Account::tree(dir)).await.unwrap().bytes;
        assert_eq!((bytes(a).await, bytes(b).await, bytes(TOP).await), (7, 0, 7));
        // Another name goes in the same group, and is no place to count at.
        let gone = namespace.shared.submit(move |group| {
            ops::unlink::unlink(group, &alice(), b, &name("g"), ExpectedFile::Any)?;
            ops::unlink::unlink(group, &alice(), a, &name("f"), ExpectedFile::Any)?;
            Ok(())
        });
        gone.await.unwrap();
        assert_eq!((bytes(a).await, bytes(b).await, bytes(TOP).await), (0, 7, 7));
        namespace.unlink(&alice(), b, &name("h"), ExpectedFile::Any).await.unwrap();
        assert_eq!((bytes(b).await, bytes(TOP).await), (0, 0));
        assert_eq!(namespace.counted(Account::user(10)).await.unwrap().bytes, 7);
    })
    .await;
}

#[tokio::test]
async fn an_upload_is_judged_by_what_it_is_when_it_gets_its_name() {
    each(async |_, namespace, _| {
        let old = create(&namespace, &alice(), TOP, "f", &of_size(60)).await.unwrap();
        namespace.set_quota(Account::user(10), bytes(100)).await.unwrap();
        let upload = async |text: &str, size| {
            let new = Unnamed { permissions: 0o600, location: PoolId(0) };
            let file = namespace.create_unnamed(&alice(), TOP, &new).await?.file;
            let how =
                Publish { size, space_used: 0, mtime: None, checksums: Vec::new(), replace: Replace::Any };
            namespace.publish(&alice(), file, TOP, &name(text), &how).await
        };
        refused!(upload("g", 41));
        upload("g", 40).await.unwrap();
        // The replaced file frees its place.
        upload("f", 60).await.unwrap();
        namespace.forget(&[old]).await.unwrap();
        refused!(upload("f", 61));
        let orphans = namespace.orphans(FileId(0), 9).await.unwrap();
        let orphans: Vec<FileId> = orphans.iter().map(|orphan| orphan.attributes.file).collect();
        namespace.forget(&orphans).await.unwrap();
        assert_eq!(
            namespace.counted(Account::user(10)).await.unwrap(),
            Counted { files: 2, directories: 0, bytes: 100 }
        );
    })
    .await;
}

/// As after a crash: the database has the groups, and `usage` is as of the last time that all was put into it.
#[tokio::test]
async fn a_start_recovers_usage_that_only_the_journal_holds() {
    let engine = &Engine::all()[0];
    let namespace = engine.open();
    let dir = create(&namespace, &Identity::root(), TOP, "d", &folder()).await.unwrap();
    create(&namespace, &Identity::root(), dir, "f", &of_size(5)).await.unwrap();
    let copy = engine.copied();
    namespace.close().await;
    let again = copy.open();
    assert_eq!(
        again.counted(Account::tree(TOP)).await.unwrap(),
        Counted { files: 1, directories: 1, bytes: 5 }
    );
    compare(&again).await.unwrap();
    // Opened, it is in its place.
    assert_eq!(again.check().unwrap(), []);
}

/// Both engines' own sums fail beyond their largest number: no user with sparse files stops the groups of all.
#[tokio::test]
async fn more_bytes_than_a_number_holds_are_counted_and_taken_off_again() {
    each(async |_, namespace, _| {
        let flush = async || {
            let flushed = namespace.shared.submit(|group| {
                group.quotas.is_flush = true;
                Ok(())
            });
            flushed.await.unwrap();
        };
        let huge = i64::MAX.cast_unsigned();
        for text in ["a", "b", "c"] {
            create(&namespace, &alice(), TOP, text, &of_size(huge)).await.unwrap();
            flush().await;
            compare(&namespace).await.unwrap();
        }
        namespace.set_quota(Account::user(10), bytes(1 << 40)).await.unwrap();
        refused!(create(&namespace, &alice(), TOP, "d", &of_size(1)));
        for text in ["a", "b"] {
            namespace.unlink(&alice(), TOP, &name(text), ExpectedFile::Any).await.unwrap();
        }
        let orphans = namespace.orphans(FileId(0), 9).await.unwrap();
        let orphans: Vec<FileId> = orphans.iter().map(|orphan| orphan.attributes.file).collect();
        namespace.forget(&orphans).await.unwrap();
        flush().await;
        assert_eq!(namespace.counted(Account::tree(TOP)).await.unwrap().bytes(), huge);
    })
    .await;
}

/// Only for a tree's quota the directories above are looked up.
#[tokio::test]
async fn a_quota_of_a_user_asks_for_no_directory_above() {
    for engine in Engine::all() {
        let namespace = engine.open();
        let mut dir = TOP;
        for _ in 0..5 {
            dir = create(&namespace, &Identity::root(), dir, "d", &folder()).await.unwrap();
        }
        namespace.set_quota(Account::user(10), files(9)).await.unwrap();
        namespace.close().await;
        drop(namespace);
        let again = engine.open();
        let asked = again.shared.submit(move |group| {
            let asked = |group: &Group<'_>| {
                let questions = group.inodes.source.cache.counts.questions().into_iter();
                let of_inodes = questions.filter(|asked| asked.by == "committer" && asked.kind == "inode");
                of_inodes.map(|asked| asked.count).sum::<u64>()
            };
            let before = asked(group);
            ops::create::create(group, &alice(), dir, &name("f"), &regular())?;
            Ok(asked(group) - before)
        });
        assert_eq!(asked.await.unwrap(), 1, "the directory itself");
        again.close().await;
    }
}

/// However deep something lies, it counts for what is above, and is judged by that.
#[tokio::test]
async fn a_quota_holds_for_what_lies_very_deep() {
    const DEEP: u64 = 1200;
    for engine in Engine::all() {
        let namespace = engine.open();
        let root = Identity::root();
        let tree = create(&namespace, &root, TOP, "tree", &folder()).await.unwrap();
        let mut bottom = tree;
        for _ in 0..DEEP {
            bottom = create(&namespace, &alice(), bottom, "d", &folder()).await.unwrap();
        }
        namespace.set_quota(Account::tree(tree), files(DEEP + 1)).await.unwrap();
        create(&namespace, &alice(), bottom, "f", &regular()).await.unwrap();
        refused!(create(&namespace, &alice(), bottom, "g", &regular()));
        let counted = namespace.counted(Account::tree(tree)).await.unwrap();
        assert_eq!((counted.files, counted.directories), (1, DEEP.cast_signed()));
        namespace.close().await;
        assert_eq!(namespace.check().unwrap(), []);
    }
}
