//! Opens that live as long as their guard, and files that are being made.

use api::{Activities, Activity, Caller, ExpectedFile, NamespaceError, PathGrant, Replace, SetAttributes};
use file_state::DelegationKind;
use types::Identity;

use super::fakes::FakeRecaller;
use super::scene::{Scene, name};
use super::*;

fn reading() -> Share {
    Share::new(Modes::READ, Modes::NONE)
}

fn is_stale(error: FilesError) -> bool {
    matches!(error, FilesError::Namespace(NamespaceError::Stale(_)))
}

fn unlink(fakes: &Fakes) {
    fakes.files.lock().get_mut(&FILE).unwrap().nlink = 0;
}

#[tokio::test]
async fn a_file_is_in_use_until_the_last_guard_goes() {
    let (fakes, files) = Fakes::files();
    let (first, attributes) = files.open(FILE, FOREIGN, reading()).await.unwrap();
    assert_eq!((first.file(), attributes.size), (FILE, 10));
    unlink(&fakes);
    let (second, _) = files.open(FILE, FOREIGN, reading()).await.unwrap();
    assert_ne!(first.owner(), second.owner());
    drop(first);
    assert!(files.is_in_use(FILE));
    drop(second);
    assert!(!files.is_in_use(FILE));
    assert!(files.open(FILE, FOREIGN, reading()).await.is_err_and(is_stale), "it may be on its way out");
}

#[tokio::test]
async fn a_file_that_loses_its_name_while_it_is_opened_is_not_open() {
    let (fakes, files) = Fakes::files();
    *fakes.looks_until_unlinked.lock() = Some(1);
    assert!(files.open(FILE, FOREIGN, reading()).await.is_err_and(is_stale));
    assert!(!files.is_in_use(FILE));
}

#[tokio::test]
async fn an_open_that_another_denies_is_refused() {
    let (_fakes, files) = Fakes::files();
    files.table().open(FILE, Owner { holder: A, number: 1 }, Share::new(Modes::READ, Modes::READ)).unwrap();
    let refused = files.open(FILE, FOREIGN, reading()).await.map(|_| ());
    assert!(matches!(refused, Err(FilesError::Denied)));
}

#[tokio::test]
async fn a_file_that_is_being_made_is_waited_for_until_it_is_held() {
    let (_fakes, files) = Fakes::files();
    assert!(files.births_settled(Duration::ZERO).await);
    let (made, is_made) = tokio::sync::oneshot::channel();
    let making = files.make_unnamed(FOREIGN, reading(), async { Ok(is_made.await.unwrap()) });
    tokio::pin!(making);
    tokio::select! {
        biased;
        _ = &mut making => panic!("it is not made yet"),
        () = async {} => {}
    }
    assert!(!files.births_settled(SHORT).await, "it may be any of those without a name");
    let settled = files.births_settled(LONG);
    tokio::pin!(settled);
    made.send(attributes(FILE, 0)).unwrap();
    let (open, _) = making.await.unwrap();
    assert!(settled.await && files.is_in_use(open.file()));
    drop(open);
    assert!(!files.is_in_use(FILE));
}

#[tokio::test]
async fn removing_unnamed_files_does_not_wait_for_files_begun_later() {
    let (_fakes, files) = Fakes::files();
    let first = files.births.begin();
    let settled = files.births_settled(LONG);
    tokio::pin!(settled);
    tokio::select! {
        biased;
        _ = &mut settled => panic!("one is under way"),
        () = async {} => {}
    }
    let second = files.births.begin();
    drop(first);
    assert!(settled.await);
    assert!(!files.births_settled(SHORT).await);
    drop(second);
    assert!(files.births_settled(Duration::ZERO).await);
}

#[tokio::test]
async fn a_file_that_could_not_be_made_or_is_given_up_is_not_waited_for() {
    let (_fakes, files) = Fakes::files();
    let failed = files.make_unnamed(FOREIGN, reading(), async { Err(NamespaceError::Busy) }).await;
    assert!(failed.is_err_and(|error| error.is_retryable()));
    {
        let given_up = files.make_unnamed(FOREIGN, reading(), std::future::pending());
        tokio::pin!(given_up);
        tokio::select! {
            biased;
            _ = &mut given_up => panic!("it is never made"),
            () = async {} => {}
        }
    }
    assert!(files.births_settled(Duration::ZERO).await);
}

/// While the reader waits for a delegation of the file that it has found.
#[tokio::test]
async fn a_reader_of_a_path_opens_the_file_that_has_replaced_the_one_it_has_found() {
    let scene = Scene::set().await;
    let clients = FakeRecaller::attach(&scene.files, DOOR, false);
    let old = scene.put("file", Replace::Never, "old").await.unwrap().attributes.file;
    scene.files.table().delegations().grant(old, A, DelegationKind::Write, Duration::ZERO).unwrap();
    let path = [name("dir"), name("file")];
    let reading = scene.files.open_to_read(&scene.caller, &path, FOREIGN);
    let replacing = async {
        while clients.holders().is_empty() {
            tokio::task::yield_now().await;
        }
        scene.namespace.unlink(&Identity::root(), scene.dir, &name("file"), ExpectedFile::Any).await.unwrap();
        let new = scene.put("file", Replace::Never, "new").await.unwrap().attributes.file;
        scene.files.return_delegation(old, A);
        new
    };
    let (opened, new) = tokio::join!(reading, replacing);
    assert_eq!(opened.unwrap().1.file, new);
    assert!(!scene.files.is_in_use(old));
}

#[tokio::test]
async fn a_reader_of_a_path_needs_permission_and_a_regular_file() {
    let scene = Scene::set().await;
    let file = scene.put("file", Replace::Never, "bytes").await.unwrap().attributes.file;
    let path = [name("dir"), name("file")];
    let opened = scene.files.open_to_read(&scene.caller, &path[..1], A).await.map(drop);
    assert!(matches!(opened, Err(FilesError::Namespace(NamespaceError::IsDirectory))), "{opened:?}");
    let grant =
        PathGrant { activities: Activities::of(&[Activity::Upload]), path: vec![], is_below_only: false };
    let uploader = Caller { grants: Some([grant].into()), ..scene.caller.clone() };
    let opened = scene.files.open_to_read(&uploader, &path, A).await.map(drop);
    assert!(matches!(opened, Err(FilesError::Path(WalkError::Denied))), "{opened:?}");
    let hidden = SetAttributes { mode: Some(0o200), ..SetAttributes::default() };
    scene.namespace.set_attributes(&Identity::root(), file, &hidden).await.unwrap();
    let opened = scene.files.open_to_read(&scene.caller, &path, A).await.map(drop);
    assert!(matches!(opened, Err(FilesError::Namespace(NamespaceError::AccessDenied))), "{opened:?}");
    assert!(!scene.files.is_in_use(file));
}
