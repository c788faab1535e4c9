//! Uploads and their names.

use std::pin::pin;

use api::{
    Account, ExpectedFile, Limit, NamespaceError, Pool, Properties, Quota, Quotas, Replace, SelectError,
};
use bytes::Bytes;
use file_state::DelegationKind;
use futures_util::FutureExt;
use testkit::faulty::{Call, Fault, Faulty, Gate};
use testkit::memory_pool::MemoryPool;
use types::{Attributes, Checksum, ChecksumKind, Identity, PoolId};

use super::fakes::FakeRecaller;
use super::scene::{POOL, Rules, Scene, give_name, name};
use super::*;

#[tokio::test]
async fn a_published_upload_shows_its_name_size_and_sums_together() {
    let scene = Scene::set().await;
    let upload = scene.begin("file", Replace::Any, "123456789").await.unwrap();
    assert!(scene.found("file").await.is_none(), "no name before it is complete");
    let published = give_name(upload, &Rules::default()).await.unwrap();
    assert_eq!((published.attributes.size, published.replaced), (9, None));
    assert_eq!(scene.found("file").await.unwrap(), published.attributes);
    let sums = scene.namespace.checksums(published.attributes.file).await.unwrap();
    assert_eq!(sums.iter().map(Checksum::to_string).collect::<Vec<_>>(), ["adler32:091e01de"]);
    let content = scene.files.content(&published.attributes, crate::ContentMode::Read).await.unwrap();
    assert_eq!(&content.read(0, 100).await.unwrap().data[..], b"123456789");
    assert!(!scene.files.is_in_use(published.attributes.file));
}

#[tokio::test]
async fn bytes_that_were_not_promised_get_no_name() {
    let scene = Scene::set().await;
    let mut short = scene.begin("file", Replace::Any, "123").await.unwrap();
    short.promise(vec![]);
    short.write(Bytes::from_static(b"4")).await.unwrap();
    let refused = give_name(short, &Rules::default()).await;
    assert!(matches!(refused, Err(FilesError::Upload(UploadError::Length { told: 3, got: 4 }))));
    let mut wrong = scene.begin("file", Replace::Any, "123456789").await.unwrap();
    let promised = Checksum::new(ChecksumKind::Adler32, &[0; 4]).unwrap();
    wrong.promise(vec![promised]);
    let refused = give_name(wrong, &Rules::default()).await;
    let is_told =
        |error: &UploadError| matches!(error, UploadError::Checksum { told, .. } if *told == promised);
    assert!(matches!(refused, Err(FilesError::Upload(error)) if is_told(&error)));
    assert!(scene.found("file").await.is_none());
    assert_eq!(scene.reap().await.len(), 2);
}

/// Whether the directory goes before the upload begins or after.
#[tokio::test]
async fn an_upload_whose_directory_is_removed_is_told_so_and_not_that_a_file_is_stale() {
    let scene = Scene::set().await;
    let (early, late) = (scene.target("early").await, scene.begin("late", Replace::Any, "1").await.unwrap());
    let (who, dir) = (Identity::root(), name("dir"));
    scene.namespace.unlink(&who, FileId::ROOT, &dir, ExpectedFile::Any).await.unwrap();
    let begun = scene.files.begin_upload(FOREIGN, &scene.caller, early, UploadTerms::default()).await;
    let is_told = |error: &FilesError| matches!(error, FilesError::Upload(UploadError::DirectoryMoved));
    assert!(begun.is_err_and(|error| is_told(&error)));
    assert!(give_name(late, &Rules::default()).await.is_err_and(|error| is_told(&error)));
}

#[tokio::test]
async fn an_upload_replaces_the_state_that_its_terms_name_and_no_other() {
    let scene = Scene::set().await;
    let first = scene.put("file", Replace::Never, "one").await.unwrap().attributes;
    let exists = scene.put("file", Replace::Never, "two").await;
    assert!(matches!(exists, Err(FilesError::Upload(UploadError::Exists))));
    let of = |file: &Attributes| Replace::Exactly { file: file.file, change: file.change };
    let stale = Replace::Exactly { file: first.file, change: first.change - 1 };
    let changed = scene.put("file", stale, "two").await;
    assert!(matches!(changed, Err(FilesError::Upload(UploadError::Changed))));
    assert_eq!(scene.found("file").await.unwrap(), first);
    let second = scene.put("file", of(&first), "two").await.unwrap();
    assert_eq!(second.replaced.map(|replaced| replaced.file), Some(first.file));
    let gone = scene.put("other", of(&first), "two").await;
    assert!(matches!(gone, Err(FilesError::Upload(UploadError::Changed))));
}

#[tokio::test]
async fn a_name_that_another_file_gets_meanwhile_is_asked_for_again() {
    let scene = Scene::set().await;
    let (rules, late) = (Rules::default(), scene.begin("file", Replace::Any, "late").await.unwrap());
    let never = scene.begin("file", Replace::Never, "never").await.unwrap();
    let early = scene.put("file", Replace::Any, "early").await.unwrap().attributes;
    let refused = give_name(never, &Rules::default()).await;
    assert!(matches!(refused, Err(FilesError::Upload(UploadError::Exists))));
    let published = give_name(late, &rules).await.unwrap();
    assert_eq!(published.replaced.map(|replaced| replaced.file), Some(early.file));
    // The name was free when it was asked for first, and was walked to anew for the second time.
    assert_eq!(*rules.asked.lock(), [true, true, false]);
    let gone = scene.begin("file", Replace::Any, "new").await.unwrap();
    scene.namespace.unlink(&Identity::root(), scene.dir, &name("file"), ExpectedFile::Any).await.unwrap();
    assert_eq!(give_name(gone, &Rules::default()).await.unwrap().replaced, None);
}

#[tokio::test]
async fn a_path_that_leads_elsewhere_when_the_bytes_are_there_is_refused() {
    let scene = Scene::set().await;
    let upload = scene.begin("file", Replace::Any, "bytes").await.unwrap();
    scene.rename("dir", "moved").await;
    let refused = give_name(upload, &Rules::default()).await;
    assert!(matches!(refused, Err(FilesError::Upload(UploadError::DirectoryMoved))));
    assert!(scene.found("file").await.is_none());
}

#[tokio::test]
async fn a_path_is_walked_once_unless_something_was_renamed() {
    let scene = Scene::set().await;
    scene.names.take_asked();
    scene.put("file", Replace::Any, "one").await.unwrap();
    let walk = ["attributes", "lookup", "lookup"];
    assert_eq!(scene.names.take_asked(), walk);
    let upload = scene.begin("file", Replace::Any, "two").await.unwrap();
    scene.make_directory("other").await;
    scene.rename("other", "renamed").await;
    give_name(upload, &Rules::default()).await.unwrap();
    assert_eq!(scene.names.take_asked(), [walk, walk].concat());
}

#[tokio::test]
async fn a_dropped_upload_leaves_an_orphan_that_nobody_holds() {
    let scene = Scene::set().await;
    let upload = scene.begin("file", Replace::Any, "bytes").await.unwrap();
    let file = upload.file().file;
    assert!(scene.reap().await.is_empty(), "it is held while its bytes come in");
    drop(upload);
    assert_eq!(scene.reap().await, [file]);
    assert!(scene.namespace.attributes(file).await.is_err() && scene.found("file").await.is_none());
}

#[tokio::test]
async fn an_upload_that_has_no_room_is_not_begun_and_one_that_was_given_up_takes_none() {
    let scene = Scene::set().await;
    let bytes = Limit { hard: Some(10), ..Limit::default() };
    let quota = Quota { bytes, files: Limit::default() };
    scene.namespace.set_quota(Account::user(10), Some(quota)).await.unwrap();
    drop(scene.begin("file", Replace::Any, "12345678").await.unwrap());
    scene.put("file", Replace::Any, "12345678").await.unwrap();
    let is_full = |error| matches!(error, FilesError::Namespace(NamespaceError::QuotaExceeded));
    assert!(scene.put("other", Replace::Any, "12345678").await.is_err_and(is_full));
    scene.put("file", Replace::Any, "1234567890").await.expect("the replaced file gives its space");
}

#[tokio::test]
async fn bytes_that_come_in_any_order_are_one_file_without_what_was_given_up_behind_its_end() {
    let scene = Scene::set().await;
    let target = scene.target("file").await;
    let upload =
        scene.files.begin_upload(FOREIGN, &scene.caller, target, UploadTerms::default()).await.unwrap();
    let upload = upload.scattered().await.unwrap();
    for (offset, bytes) in [(6, "789"), (9, "given up"), (0, "123456")] {
        upload.write_at(offset, Bytes::from_static(bytes.as_bytes())).await.unwrap();
    }
    assert_eq!(upload.read_at(4, 4).await.unwrap(), "5678");
    let complete = upload.finish(9, Vec::new()).await.unwrap();
    let published = complete.publish(&Rules::default()).await.unwrap();
    assert_eq!(published.attributes.size, 9);
    let content = scene.files.content(&published.attributes, crate::ContentMode::Read).await.unwrap();
    assert_eq!(&content.read(0, 100).await.unwrap().data[..], b"123456789");
}

/// Clients of a door that hold the file which is to be replaced.
async fn delegated(scene: &Scene, gives_back: bool) -> (Arc<FakeRecaller>, FileId) {
    let clients = FakeRecaller::attach(&scene.files, DOOR, gives_back);
    let file = scene.put("file", Replace::Any, "old").await.unwrap().attributes.file;
    scene.files.table().delegations().grant(file, A, DelegationKind::Read, Duration::ZERO).unwrap();
    (clients, file)
}

fn give_back(scene: &Scene, file: FileId) {
    scene.files.table().delegations().give_back(file, A);
    scene.files.returned();
}

#[tokio::test]
async fn clients_are_asked_once_for_what_they_hold_and_waited_for_when_the_name_is_given() {
    let scene = Scene::set().await;
    let (clients, file) = delegated(&scene, false).await;
    let upload = scene.begin("file", Replace::Any, "new").await.unwrap();
    upload.recall_ahead().await.unwrap();
    assert_eq!(clients.holders(), [A]);
    let rules = Rules::default();
    let mut naming = pin!(give_name(upload, &rules));
    assert!(naming.as_mut().now_or_never().is_none());
    give_back(&scene, file);
    assert_eq!(naming.await.unwrap().replaced.map(|replaced| replaced.file), Some(file));
    assert_eq!((clients.holders(), rules.asked.lock().clone()), (vec![A], vec![false]));
}

#[tokio::test]
async fn nothing_is_recalled_for_an_upload_that_is_refused_anyway() {
    let scene = Scene::set().await;
    let (clients, file) = delegated(&scene, true).await;
    let refused = scene.put("file", Replace::Never, "new").await;
    assert!(matches!(refused, Err(FilesError::Upload(UploadError::Exists))));
    let rules = Rules { refuses: true, ..Rules::default() };
    let complete = scene.begin("file", Replace::File(file), "new").await.unwrap().finish().await.unwrap();
    assert!(matches!(complete.publish(&rules).await, Err(PublishError::Door(false))));
    assert_eq!(clients.holders(), []);
}

/// Takes up what was kept of an upload.
fn keep(upload: &mut Upload) -> Arc<Mutex<Option<Upload>>> {
    let kept = Arc::<Mutex<Option<Upload>>>::default();
    let keeper = Arc::clone(&kept);
    upload.keep_by(move |upload| *keeper.lock() = Some(upload));
    kept
}

#[tokio::test]
async fn a_hindrance_that_may_pass_leaves_an_upload_with_its_keeper() {
    let scene = Scene::set().await;
    for may_pass in [true, false] {
        let mut upload = scene.begin("file", Replace::Any, "bytes").await.unwrap();
        let kept = keep(&mut upload);
        let rules = Rules { refuses: true, may_pass, ..Rules::default() };
        let refused = upload.finish().await.unwrap().publish(&rules).await;
        assert!(matches!(refused, Err(PublishError::Door(told)) if told == may_pass));
        let kept = kept.lock().take();
        assert_eq!(kept.is_some(), may_pass);
        if let Some(kept) = kept {
            give_name(kept, &Rules::default()).await.unwrap();
        }
    }
    assert_eq!(scene.found("file").await.unwrap().size, 5);
}

#[tokio::test]
async fn a_caller_that_stops_waiting_for_a_recall_leaves_its_upload_with_its_keeper() {
    let scene = Scene::set().await;
    let (_clients, file) = delegated(&scene, false).await;
    let mut upload = scene.begin("file", Replace::Any, "new").await.unwrap();
    let (kept, rules) = (keep(&mut upload), Rules::default());
    assert!(give_name(upload, &rules).now_or_never().is_none());
    let kept = kept.lock().take().expect("it was not being given its name");
    assert_eq!(scene.found("file").await.unwrap().file, file);
    give_back(&scene, file);
    give_name(kept, &rules).await.unwrap();
}

#[tokio::test]
async fn a_caller_that_stops_waiting_for_the_name_does_not_stop_it() {
    let scene = Scene::set().await;
    let mut upload = scene.begin("file", Replace::Any, "bytes").await.unwrap();
    let (kept, file) = (keep(&mut upload), upload.file().file);
    let held_up = scene.giving.write().await;
    let rules = Rules::default();
    {
        let mut naming = pin!(give_name(upload, &rules));
        while rules.asked.lock().is_empty() {
            assert!(naming.as_mut().now_or_never().is_none());
        }
    }
    drop(held_up);
    while scene.files.is_in_use(file) {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.found("file").await.unwrap().file, file);
    assert!(kept.lock().is_none());
}

#[tokio::test]
async fn an_upload_without_a_pool_for_its_bytes_is_not_begun() {
    let scene = Scene::set().await;
    scene.pools.lose(POOL);
    let refused = scene.begin("file", Replace::Any, "bytes").await.map(drop);
    assert!(matches!(refused, Err(FilesError::Select(SelectError::NoSpace))), "{refused:?}");
    assert_eq!(scene.reap().await, []);
}

/// A file `file` in a pool that counts its calls, held open as its copies are made.
async fn to_be_copied(scene: &Scene) -> (Arc<Faulty<MemoryPool>>, Attributes, Content) {
    let pool = Arc::new(Faulty::new(MemoryPool::new(PoolId(9))));
    scene.pools.list().remove(POOL).unwrap();
    scene.pools.list().add(pool.clone() as Arc<dyn Pool>).unwrap();
    let file = scene.put("file", Replace::Never, "123456789").await.unwrap().attributes;
    let content = scene.files.content(&file, ContentMode::Read).await.unwrap();
    (pool, file, content)
}

async fn copied(scene: &Scene, content: &Content, kind: ChecksumKind) -> (Attributes, String) {
    let terms = UploadTerms { size: Some(9), kinds: vec![kind], ..UploadTerms::default() };
    let upload = scene.files.begin_upload(FOREIGN, &scene.caller, scene.target("copy").await, terms).await;
    let complete = upload.unwrap().copy_from(content).await.unwrap();
    let published = complete.publish(&Rules::default()).await.unwrap().attributes;
    let sums = scene.namespace.checksums(published.file).await.unwrap();
    let copy = scene.files.content(&published, ContentMode::Read).await.unwrap();
    assert_eq!(copy.read(0, 100).await.unwrap().data, b"123456789"[..]);
    (published, sums.iter().map(Checksum::to_string).collect::<Vec<_>>().join(" "))
}

#[tokio::test]
async fn a_copy_of_a_file_with_kept_sums_takes_them_over_and_the_head_sees_no_byte() {
    let scene = Scene::set().await;
    let (pool, _file, content) = to_be_copied(&scene).await;
    let writes = pool.schedule().count(Call::Write);
    let (copy, sums) = copied(&scene, &content, ChecksumKind::Adler32).await;
    assert_eq!((copy.size, &sums[..]), (9, "adler32:091e01de"));
    assert_eq!(pool.schedule().count(Call::Write), writes);
    assert_eq!(pool.schedule().count(Call::Read), 1, "by this test");
}

#[tokio::test]
async fn a_copy_that_is_to_have_other_sums_or_whose_source_is_written_is_read_and_summed() {
    let scene = Scene::set().await;
    let (pool, file, content) = to_be_copied(&scene).await;
    let (_, sums) = copied(&scene, &content, ChecksumKind::Crc32c).await;
    assert_eq!(sums, "crc32c:e3069283");
    assert_eq!(pool.schedule().count(Call::Read), 2, "one by this test");
    let writing = scene.files.open(file.file, FOREIGN, Share::new(Modes::WRITE, Modes::NONE)).await.unwrap();
    let (_, sums) = copied(&scene, &content, ChecksumKind::Adler32).await;
    assert_eq!(sums, "adler32:091e01de");
    assert_eq!(pool.schedule().count(Call::Read), 4);
    drop(writing);
}

#[tokio::test]
async fn a_copy_whose_source_changes_meanwhile_does_not_take_its_sums() {
    let scene = Scene::set().await;
    let (pool, file, content) = to_be_copied(&scene).await;
    let gate = Gate::shut();
    pool.schedule().on(Call::Range, 0..1, Fault::Delay(gate.clone()));
    let copying = copied(&scene, &content, ChecksumKind::Adler32);
    let changing = async {
        while gate.waiting() == 0 {
            tokio::task::yield_now().await;
        }
        let touched = api::SetAttributes { mode: Some(0o600), ..api::SetAttributes::default() };
        scene.namespace.set_attributes(&Identity::root(), file.file, &touched).await.unwrap();
        gate.let_all_pass();
    };
    let ((_, sums), ()) = tokio::join!(copying, changing);
    assert_eq!(sums, "adler32:091e01de", "of the bytes that were read");
    assert_eq!(pool.schedule().count(Call::Read), 2);
}
