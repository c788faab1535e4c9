//! Uploads and their names.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use api::{
    Account, ExpectedEnds, ExpectedFile, Limit, Namespace, NamespaceError, Properties, Quota, Quotas,
    Replace, SelectError,
};
use bytes::Bytes;
use file_state::{DelegationKind, FileStateError, LayoutMode, LayoutModes};
use forebay_files::{Change, ContentMode, FilesError, PublishError, Upload, UploadError, UploadTerms};
use futures_util::FutureExt;
use parking_lot::Mutex;
use types::{Attributes, Checksum, ChecksumKind, FileId, Identity};

use crate::scene::{A, DOOR, FOREIGN, FakeRecaller, POOL, Rules, give_name, name};
use crate::world::{OTHER, World, pattern};

pub async fn a_published_upload_shows_its_name_size_and_sums_together(scene: World) {
    let upload = scene.begin("file", Replace::Any, "123456789").await.unwrap();
    assert!(scene.found("file").await.is_none(), "no name before it is complete");
    let published = give_name(upload, &Rules::default()).await.unwrap();
    assert_eq!((published.attributes.size, published.replaced), (9, None));
    assert_eq!(scene.found("file").await.unwrap(), published.attributes);
    let sums = scene.namespace.checksums(published.attributes.file).await.unwrap();
    assert_eq!(sums.iter().map(Checksum::to_string).collect::<Vec<_>>(), ["adler32:091e01de"]);
    let content = scene.files.content(&published.attributes, ContentMode::Read).await.unwrap();
    assert_eq!(&content.read(0, 100).await.unwrap().data[..], b"123456789");
    assert!(!scene.files.is_in_use(published.attributes.file));
}

pub async fn bytes_that_were_not_promised_get_no_name(scene: World) {
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
pub async fn an_upload_whose_directory_is_removed_is_told_so_and_not_that_a_file_is_stale(scene: World) {
    let (early, late) = (scene.target("early").await, scene.begin("late", Replace::Any, "1").await.unwrap());
    let (who, dir) = (Identity::root(), name("dir"));
    scene.namespace.unlink(&who, FileId::ROOT, &dir, ExpectedFile::Any).await.unwrap();
    let begun = scene.files.begin_upload(FOREIGN, &scene.caller, early, UploadTerms::default()).await;
    let told = "directory /dir was moved or removed meanwhile: make it again, or upload to where it is now";
    assert_eq!(begun.err().unwrap().to_string(), told);
    assert_eq!(give_name(late, &Rules::default()).await.unwrap_err().to_string(), told);
}

pub async fn an_upload_replaces_the_state_that_its_terms_name_and_no_other(scene: World) {
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

pub async fn a_name_that_another_file_gets_meanwhile_is_asked_for_again(scene: World) {
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

pub async fn a_path_that_leads_elsewhere_when_the_bytes_are_there_is_refused(scene: World) {
    let upload = scene.begin("file", Replace::Any, "bytes").await.unwrap();
    scene.rename("dir", "moved").await;
    let refused = give_name(upload, &Rules::default()).await;
    assert!(matches!(refused, Err(FilesError::Upload(UploadError::DirectoryMoved { .. }))));
    assert!(scene.found("file").await.is_none());
}

pub async fn a_path_is_walked_once_unless_something_was_renamed(scene: World) {
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

pub async fn a_dropped_upload_leaves_an_orphan_that_nobody_holds(scene: World) {
    let upload = scene.begin("file", Replace::Any, "bytes").await.unwrap();
    let file = upload.file().file;
    assert!(scene.reap().await.is_empty(), "it is held while its bytes come in");
    drop(upload);
    assert_eq!(scene.reap().await, [file]);
    assert!(scene.namespace.attributes(file).await.is_err() && scene.found("file").await.is_none());
}

pub async fn an_upload_that_has_no_room_is_not_begun_and_one_that_was_given_up_takes_none(scene: World) {
    let bytes = Limit { hard: Some(10), ..Limit::default() };
    let quota = Quota { bytes, files: Limit::default() };
    scene.namespace.set_quota(Account::user(10), Some(quota)).await.unwrap();
    drop(scene.begin("file", Replace::Any, "12345678").await.unwrap());
    scene.put("file", Replace::Any, "12345678").await.unwrap();
    let is_full = |error| matches!(error, FilesError::Namespace(NamespaceError::QuotaExceeded));
    assert!(scene.put("other", Replace::Any, "12345678").await.is_err_and(is_full));
    scene.put("file", Replace::Any, "1234567890").await.expect("the replaced file gives its space");
}

pub async fn bytes_that_come_in_any_order_are_one_file_without_what_was_given_up_behind_its_end(
    scene: World,
) {
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
    let content = scene.files.content(&published.attributes, ContentMode::Read).await.unwrap();
    assert_eq!(&content.read(0, 100).await.unwrap().data[..], b"123456789");
}

/// Clients of a door that hold the file which is to be replaced.
async fn delegated(scene: &World, gives_back: bool) -> (Arc<FakeRecaller>, FileId) {
    let clients = FakeRecaller::attach(&scene.files, DOOR, gives_back);
    let file = scene.put("file", Replace::Any, "old").await.unwrap().attributes.file;
    scene.files.table().delegations().grant(file, A, DelegationKind::Read, Duration::ZERO).unwrap();
    (clients, file)
}

fn give_back(scene: &World, file: FileId) {
    scene.files.table().delegations().give_back(file, A);
    scene.files.returned();
}

pub async fn clients_are_asked_once_for_what_they_hold_and_waited_for_when_the_name_is_given(scene: World) {
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

pub async fn nothing_is_recalled_for_an_upload_that_is_refused_anyway(scene: World) {
    let (clients, file) = delegated(&scene, true).await;
    let refused = scene.put("file", Replace::Never, "new").await;
    assert!(matches!(refused, Err(FilesError::Upload(UploadError::Exists))));
    let rules = Rules { refuses: true, ..Rules::default() };
    let complete = scene.begin("file", Replace::File(file), "new").await.unwrap().finish().await.unwrap();
    assert!(matches!(complete.publish(&rules).await, Err(PublishError::Door(false))));
    assert_eq!(clients.holders(), []);
}

/// Also one that is kept for a later request.
pub async fn an_upload_whose_request_ends_keeps_layouts_from_no_client(scene: World) {
    let clients = FakeRecaller::attach(&scene.files, DOOR, false);
    let file = scene.put("file", Replace::Any, "old").await.unwrap().attributes.file;
    for is_kept in [false, true] {
        layout(&scene, file).unwrap();
        let mut upload = scene.begin("file", Replace::Any, "new").await.unwrap();
        let kept = is_kept.then(|| keep(&mut upload));
        upload.recall_ahead().await.unwrap();
        return_layout(&scene, file);
        assert_eq!(layout(&scene, file), Err(FileStateError::RecallConflict), "the upload comes first");
        drop(upload);
        layout(&scene, file).unwrap();
        assert_eq!(kept.as_ref().map(|kept| kept.lock().is_some()), is_kept.then_some(true));
        return_layout(&scene, file);
    }
    assert_eq!(clients.holders(), [A, A]);
}

pub async fn a_file_that_loses_its_name_during_an_upload_may_be_laid_out_again(scene: World) {
    let _clients = FakeRecaller::attach(&scene.files, DOOR, false);
    let file = scene.put("file", Replace::Any, "old").await.unwrap().attributes.file;
    layout(&scene, file).unwrap();
    let upload = scene.begin("file", Replace::Any, "new").await.unwrap();
    upload.recall_ahead().await.unwrap();
    return_layout(&scene, file);
    let (from, to) = (name("file"), name("elsewhere"));
    let (from, to) = ((scene.dir, &from), (scene.dir, &to));
    scene.namespace.rename(&Identity::root(), from, to, Replace::Never, ExpectedEnds::ANY).await.unwrap();
    scene.files.call_back(file, None, Change::Rename);
    assert_eq!(layout(&scene, file), Err(FileStateError::RecallConflict));
    give_name(upload, &Rules::default()).await.unwrap();
    layout(&scene, file).unwrap();
}

/// At the beginning of time, which ends no wait.
fn layout(scene: &World, file: FileId) -> Result<(), FileStateError> {
    scene.files.table().layouts().grant(file, A, LayoutMode::Read, Duration::ZERO)
}

fn return_layout(scene: &World, file: FileId) {
    assert!(scene.files.table().layouts().give_back(file, A, LayoutModes::ALL).is_empty());
    scene.files.returned();
}

/// Takes up what was kept of an upload.
fn keep(upload: &mut Upload) -> Arc<Mutex<Option<Upload>>> {
    let kept = Arc::<Mutex<Option<Upload>>>::default();
    let keeper = Arc::clone(&kept);
    upload.keep_by(move |upload| *keeper.lock() = Some(upload));
    kept
}

pub async fn a_hindrance_that_may_pass_leaves_an_upload_with_its_keeper(scene: World) {
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

pub async fn a_caller_that_stops_waiting_for_a_recall_leaves_its_upload_with_its_keeper(scene: World) {
    let (clients, file) = delegated(&scene, false).await;
    let mut upload = scene.begin("file", Replace::Any, "new").await.unwrap();
    let (kept, rules) = (keep(&mut upload), Rules::default());
    {
        let mut naming = pin!(give_name(upload, &rules));
        while clients.holders().is_empty() {
            assert!(naming.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    let kept = kept.lock().take().expect("it was not being given its name");
    assert_eq!(scene.found("file").await.unwrap().file, file);
    give_back(&scene, file);
    give_name(kept, &rules).await.unwrap();
}

pub async fn a_caller_that_stops_waiting_for_the_name_does_not_stop_it(scene: World) {
    let mut upload = scene.begin("file", Replace::Any, "bytes").await.unwrap();
    let (kept, file) = (keep(&mut upload), upload.file().file);
    let held_up = scene.giving.write().await;
    let rules = Rules::default();
    {
        let mut naming = pin!(give_name(upload, &rules));
        while scene.names_to_give.load(Ordering::Relaxed) == 0 {
            assert!(naming.as_mut().now_or_never().is_none());
            tokio::task::yield_now().await;
        }
    }
    drop(held_up);
    while scene.files.is_in_use(file) {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.found("file").await.unwrap().file, file);
    assert!(kept.lock().is_none());
}

pub async fn an_upload_without_a_pool_for_its_bytes_is_not_begun(scene: World) {
    scene.pools.lose(POOL);
    scene.pools.lose(OTHER);
    let refused = scene.begin("file", Replace::Any, "bytes").await.map(drop);
    assert!(matches!(refused, Err(FilesError::Select(SelectError::NoSpace))), "{refused:?}");
    assert_eq!(scene.reap().await, []);
}

/// Where the head copies, too: the copy is made in the pool of its source, and then in another one.
pub async fn a_copy_has_the_bytes_holes_and_sums_of_its_source(scene: World) {
    const MIB: usize = 1 << 20;
    let mut bytes = pattern(4 * MIB);
    let source = scene.make("source", POOL, bytes.clone()).await;
    let content = scene.files.content(&source, ContentMode::Change).await.unwrap();
    let hole = types::ByteRange::from_bounds(MIB as u64, 3 * MIB as u64).unwrap();
    content.deallocate(hole).await.unwrap();
    bytes[MIB..3 * MIB].fill(0);
    let source = scene.attributes(source.file).await;
    let content = scene.files.content(&source, ContentMode::Read).await.unwrap();
    // Once the sum is kept no byte of the source needs to be seen.
    let sum = scene.files.checksum(&Identity::root(), &source, ChecksumKind::Crc32c, &content).await.unwrap();
    for (text, kind) in [("seen", ChecksumKind::Adler32), ("unseen", ChecksumKind::Crc32c)] {
        let terms = UploadTerms { size: Some(source.size), kinds: vec![kind], ..UploadTerms::default() };
        let target = scene.target(text).await;
        let upload = scene.files.begin_upload(FOREIGN, &scene.caller, target, terms).await.unwrap();
        let copied = upload.copy_from(&content).await.unwrap();
        let copy = copied.publish(&Rules::default()).await.unwrap().attributes;
        assert!(scene.read(copy.file).await.unwrap() == bytes, "{text}");
        if kind == ChecksumKind::Crc32c {
            assert_eq!(scene.namespace.checksums(copy.file).await.unwrap(), [sum]);
            let copied = scene.files.content(&copy, ContentMode::Read).await.unwrap();
            crate::copies::require_hole(&copied).await;
        }
    }
    scene.judge_and_reap("both copies have their names").await;
}
