//! Changes of attributes.

use api::{Birth, SetAttributes};
use testkit::watched_namespace::WatchedNamespace;
use types::Identity;

use super::fakes::FakeRecaller;
use super::scene::Scene;
use super::*;

fn by(identity: &Identity) -> By<'_> {
    By { identity, holder: Some(FOREIGN), patience: SHORT }
}

async fn scene_with_delegation() -> (Scene, Arc<FakeRecaller>, api::Published) {
    let scene = Scene::set().await;
    let put = scene.put("file", api::Replace::Never, "12345678").await.unwrap();
    let clients = FakeRecaller::attach(&scene.files, DOOR, false);
    scene.files.delegate_reading(put.attributes.file, A).unwrap();
    (scene, clients, put)
}

#[tokio::test]
async fn attributes_are_set_once_delegations_are_back() {
    let (scene, clients, put) = scene_with_delegation().await;
    let (files, file) = (&scene.files, put.attributes.file);
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let refused = files.set_attributes(by(&scene.caller.identity), &put.attributes, set.clone()).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused.error, FilesError::Recalled));
    assert_eq!((refused.progress, clients.holders()), (SetProgress::Nothing, vec![A]));
    assert_eq!(files.attributes(file).await.unwrap(), put.attributes);
    files.return_delegation(file, A);
    let set = files.set_attributes(by(&scene.caller.identity), &put.attributes, set).await.unwrap();
    assert_eq!((set.mode & 0o777, set.change > put.attributes.change), (0o600, true));
}

#[tokio::test]
async fn nothing_is_recalled_for_attributes_that_the_caller_may_not_set() {
    let (scene, clients, put) = scene_with_delegation().await;
    let stranger = Identity::new(11, 101, &[]);
    let mode = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    for (set, denied) in [(mode, "operation not permitted"), (cut, "access denied")] {
        let refused = scene.files.set_attributes(by(&stranger), &put.attributes, set).await.unwrap_err();
        assert_eq!((refused.progress, &*refused.to_string()), (SetProgress::Nothing, denied));
    }
    assert_eq!(clients.holders(), []);
    assert_eq!(scene.files.attributes(put.attributes.file).await.unwrap(), put.attributes);
}

/// The permission to change the attributes is not enough to cut the file.
#[tokio::test]
async fn a_refused_length_with_others_leaves_the_others_unset_and_the_bytes_as_they_are() {
    let (scene, _, put) = scene_with_delegation().await;
    scene.files.return_delegation(put.attributes.file, A);
    let writer = Identity::new(11, 100, &[]);
    let set =
        SetAttributes { size: Some(0), size_is_authorized: true, uid: Some(11), ..SetAttributes::default() };
    let refused = scene.files.set_attributes(by(&writer), &put.attributes, set).await.unwrap_err();
    assert_eq!(refused.progress, SetProgress::Nothing);
    assert_eq!(scene.files.attributes(put.attributes.file).await.unwrap(), put.attributes);
    let facts = scene.files.replica_facts(&put.attributes).await.unwrap().unwrap();
    assert_eq!(facts.size, 8);
}

#[tokio::test]
async fn a_length_that_no_pool_takes_leaves_the_others_set_and_says_so() {
    let (scene, _, put) = scene_with_delegation().await;
    scene.files.return_delegation(put.attributes.file, A);
    scene.pools.lose(super::scene::POOL);
    let set = SetAttributes {
        size: Some(3),
        size_is_authorized: true,
        mode: Some(0o600),
        ..SetAttributes::default()
    };
    let failed = scene.files.set_attributes(by(&scene.caller.identity), &put.attributes, set).await;
    assert_eq!(failed.unwrap_err().progress, SetProgress::AllButSize);
    let found = scene.files.attributes(put.attributes.file).await.unwrap();
    assert_eq!((found.mode & 0o777, found.size), (0o600, 8));
}

/// The replica is shorter than the file until the namespace has heard of the cut.
#[tokio::test]
async fn a_namespace_that_is_busy_after_a_cut_is_told_of_it_again() {
    let (scene, _, put) = scene_with_delegation().await;
    scene.files.return_delegation(put.attributes.file, A);
    scene.names.be_busy("set_attributes", 3);
    scene.names.take_asked();
    let cut = scene.files.set_length(by(&scene.caller.identity), &put.attributes, 3, false).await.unwrap();
    assert_eq!(scene.names.take_asked(), ["set_attributes"; 4]);
    let facts = scene.files.replica_facts(&cut).await.unwrap().unwrap();
    assert_eq!((cut.size, facts.size), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_stays_busy_after_a_cut_is_an_error_in_the_end() {
    let mut watched = None;
    let (fakes, files) =
        Fakes::files_over(|fakes| watched.insert(Arc::new(WatchedNamespace::new(fakes))).clone());
    let watched = watched.unwrap();
    fakes.put_replica(Birth(100), 10, 100);
    watched.be_busy("set_attributes", usize::MAX);
    let began = tokio::time::Instant::now();
    let failed = files.set_length(by(&Identity::root()), &attributes(FILE, 10), 3, false).await;
    assert!(failed.is_err_and(|error| error.is_retryable()));
    assert_eq!(watched.take_asked(), ["set_attributes"; 12]);
    assert!(began.elapsed() < Duration::from_secs(10), "the turn at the length is not held for ever");
    assert_eq!(fakes.truncated(), [3]);
}
