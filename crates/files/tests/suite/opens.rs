//! Opens: files that are made, shares, files that lose their names, delegations that are in the way.

use api::{
    Activities, Activity, Caller, CreateMode, Namespace, NamespaceError, PathGrant, Replace, SetAttributes,
};
use file_state::{DelegationKind, LayoutMode, LayoutModes};
use forebay_files::{ContentMode, Entry, FilesError, Modes, Share, WalkError};
use types::Identity;

use crate::scene::{A, B, DOOR, FOREIGN, FakeRecaller, POOL, SHORT, name};
use crate::world::{World, spec};

const READING: Share = Share::new(Modes::READ, Modes::NONE);

fn is_stale<T>(answer: &Result<T, FilesError>) -> bool {
    matches!(answer, Err(FilesError::Namespace(NamespaceError::Stale(_))))
}

pub async fn a_file_is_made_by_each_kind_of_creation_and_opened(world: World) {
    let who = &world.caller.identity;
    let create = async |text, mode| world.namespace.create(who, world.dir, &name(text), &spec(mode)).await;
    let (one, other) =
        (CreateMode::Exclusive { verifier: [1; 8] }, CreateMode::Exclusive { verifier: [2; 8] });
    let modes = [("unchecked", CreateMode::Unchecked), ("guarded", CreateMode::Guarded), ("exclusive", one)];
    for (text, mode) in modes {
        let made = create(text, mode).await.unwrap();
        assert!(made.is_new, "{text}");
        let file = made.attributes.file;
        let (open, held) = world.files.open(file, A, Share::new(Modes::BOTH, Modes::NONE)).await.unwrap();
        assert_eq!((open.file(), held.size), (file, 0), "{text}");
        assert!(world.files.is_in_use(file));
        let existing = create(text, CreateMode::Unchecked).await.unwrap();
        assert_eq!((existing.attributes.file, existing.is_new), (file, false), "{text}");
        let again = create(text, one).await;
        match mode {
            CreateMode::Exclusive { .. } => assert_eq!(again.unwrap().attributes.file, file),
            _ => assert!(matches!(again, Err(NamespaceError::Exists)), "{text}"),
        }
        for mode in [CreateMode::Guarded, other] {
            assert!(matches!(create(text, mode).await, Err(NamespaceError::Exists)), "{text}");
        }
        drop(open);
        assert!(!world.files.is_in_use(file));
    }
    world.judge("all opens are closed").await;
}

pub async fn an_open_that_another_denies_is_refused(world: World) {
    let file = world.make_empty("file", POOL).await.file;
    let (denying, _) = world.files.open(file, A, Share::new(Modes::READ, Modes::WRITE)).await.unwrap();
    let writing = Share::new(Modes::WRITE, Modes::NONE);
    for holder in [B, FOREIGN] {
        let refused = world.files.open(file, holder, writing).await.map(drop);
        assert!(matches!(refused, Err(FilesError::Denied)), "{refused:?}");
        drop(world.files.open(file, holder, READING).await.unwrap());
    }
    let refused = world.files.open(file, B, Share::new(Modes::READ, Modes::READ)).await.map(drop);
    assert!(matches!(refused, Err(FilesError::Denied)), "its holder reads: {refused:?}");
    drop(denying);
    drop(world.files.open(file, B, writing).await.unwrap());
    world.judge("all opens are closed").await;
}

pub async fn an_open_file_keeps_its_data_until_the_last_open_goes(world: World) {
    let file = world.make("file", POOL, "bytes").await.file;
    let (first, _) = world.files.open(file, FOREIGN, READING).await.unwrap();
    world.files.remove(world.by(), Entry::any(world.dir, &name("file"))).await.unwrap();
    let (second, held) = world.files.open(file, FOREIGN, READING).await.unwrap();
    assert_eq!(held.nlink, 0);
    assert_ne!(first.owner(), second.owner());
    drop(first);
    assert_eq!(world.reap().await, [], "it is open");
    assert_eq!(world.read(file).await.unwrap(), b"bytes");
    drop(second);
    assert!(is_stale(&world.files.open(file, FOREIGN, READING).await), "it may be on its way out");
    world.judge_and_reap("the last open is closed").await;
    assert!(is_stale(&world.read(file).await));
}

pub async fn a_file_that_loses_its_name_while_it_is_opened_is_not_open(world: World) {
    let found = world.make_empty("file", POOL).await;
    let (namespace, dir) = (world.namespace.clone(), world.dir);
    world.names.behind_next("attributes", async move {
        let any = api::ExpectedFile::Any;
        namespace.unlink(&Identity::root(), dir, &name("file"), any).await.unwrap();
    });
    // The first look finds it with its name, the one that follows does not.
    assert!(is_stale(&world.files.open(found.file, A, READING).await));
    assert!(!world.names.cancel(), "it was looked at");
    world.judge_and_reap("it is not open").await;
}

/// While the reader waits for a delegation of the file that it has found.
pub async fn a_reader_of_a_path_opens_the_file_that_has_replaced_the_one_it_has_found(world: World) {
    let clients = FakeRecaller::attach(&world.files, DOOR, false);
    let old = world.put("file", Replace::Never, "old").await.unwrap().attributes.file;
    world.files.table().delegations().grant(old, A, DelegationKind::Write, SHORT).unwrap();
    let path = [name("dir"), name("file")];
    let reading = world.files.open_to_read(&world.caller, &path, FOREIGN);
    let replacing = async {
        clients.until_recalled(1).await;
        let any = api::ExpectedFile::Any;
        world.namespace.unlink(&Identity::root(), world.dir, &name("file"), any).await.unwrap();
        let new = world.put("file", Replace::Never, "new").await.unwrap().attributes.file;
        world.files.return_delegation(old, A);
        new
    };
    let (opened, new) = tokio::join!(reading, replacing);
    assert_eq!(opened.unwrap().1.file, new);
    assert!(!world.files.is_in_use(old));
}

pub async fn a_reader_of_a_path_needs_permission_and_a_regular_file(world: World) {
    let file = world.put("file", Replace::Never, "bytes").await.unwrap().attributes.file;
    let path = [name("dir"), name("file")];
    let opened = world.files.open_to_read(&world.caller, &path[..1], A).await.map(drop);
    assert!(matches!(opened, Err(FilesError::Namespace(NamespaceError::IsDirectory))), "{opened:?}");
    let grant =
        PathGrant { activities: Activities::of(&[Activity::Upload]), path: vec![], is_below_only: false };
    let uploader = Caller { grants: Some([grant].into()), ..world.caller.clone() };
    let opened = world.files.open_to_read(&uploader, &path, A).await.map(drop);
    assert!(matches!(opened, Err(FilesError::Path(WalkError::Denied))), "{opened:?}");
    let hidden = SetAttributes { mode: Some(0o200), ..SetAttributes::default() };
    world.namespace.set_attributes(&Identity::root(), file, &hidden).await.unwrap();
    let opened = world.files.open_to_read(&world.caller, &path, A).await.map(drop);
    assert!(matches!(opened, Err(FilesError::Namespace(NamespaceError::AccessDenied))), "{opened:?}");
    assert!(!world.files.is_in_use(file));
}

pub async fn a_reader_waits_for_the_delegation_of_a_writer_and_not_for_that_of_a_reader(world: World) {
    let file = world.make_empty("file", POOL).await.file;
    let clients = FakeRecaller::attach(&world.files, DOOR, true);
    world.files.table().delegations().grant(file, A, DelegationKind::Write, SHORT).unwrap();
    let (open, _) = world.files.open(file, FOREIGN, READING).await.unwrap();
    assert_eq!(clients.holders(), [A]);
    drop(open);
    world.files.delegate_reading(file, A).unwrap();
    drop(world.files.open(file, FOREIGN, READING).await.unwrap());
    assert_eq!(clients.holders(), [A], "readers do not disturb each other");
}

/// A cut takes bytes away below the layout of another.
pub async fn a_cut_waits_for_the_layouts_of_others_and_what_grows_does_not(world: World) {
    let file = world.make("file", POOL, "0123456789").await;
    let clients = FakeRecaller::attach(&world.files, DOOR, false);
    world.files.table().layouts().grant(file.file, A, LayoutMode::ReadWrite, SHORT).unwrap();
    let by = forebay_files::By { patience: SHORT, ..world.by() };
    for size in [0, 4] {
        let refused = world.files.set_length(by, &file, size, false).await;
        assert!(matches!(&refused, Err(error @ FilesError::Recalled) if error.is_retryable()), "{refused:?}");
    }
    assert_eq!(clients.holders(), [A], "once");
    let file = world.files.set_length(by, &file, 12, false).await.unwrap();
    assert_eq!(world.read(file.file).await.unwrap(), b"0123456789\0\0");
    let cutting = world.files.set_length(world.by(), &file, 4, false);
    let returning = async {
        tokio::task::yield_now().await;
        assert!(world.files.table().layouts().give_back(file.file, A, LayoutModes::ALL).is_empty());
        world.files.returned();
    };
    let (cut, ()) = tokio::join!(cutting, returning);
    assert_eq!(cut.unwrap().size, 4);
    assert_eq!(world.read(file.file).await.unwrap(), b"0123");
    world.judge("the layout is returned").await;
}

/// The bytes that are written below a layout are seen before the layout is returned.
pub async fn bytes_that_a_client_writes_at_the_pool_are_seen_by_others(world: World) {
    let file = world.make("file", POOL, "0123").await;
    world.files.table().layouts().grant(file.file, A, LayoutMode::ReadWrite, SHORT).unwrap();
    let replica = world.files.open_for_writing(&file).await.unwrap();
    replica.write_at(4, "4567".into(), api::Stability::Unstable).await.unwrap();
    assert_eq!(world.attributes(file.file).await.size, 4);
    let seen = world.files.fresh_attributes(file.file).await.unwrap();
    assert!(seen.size == 8 && seen.change > file.change);
    let content = world.files.content(&seen, ContentMode::Read).await.unwrap();
    assert_eq!(content.read(0, 100).await.unwrap().data, "01234567");
    assert_eq!(world.attributes(file.file).await.size, 8, "the namespace has heard of it");
}
