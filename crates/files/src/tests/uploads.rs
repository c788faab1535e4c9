//! Copies of whole files by uploads: which bytes the head sees.

use api::{Namespace, Replace};
use api::{Pool, Properties};
use testkit::faulty::{Call, Fault, Faulty, Gate};
use testkit::memory_pool::MemoryPool;
use types::{Attributes, Checksum, ChecksumKind, Identity, PoolId};

use super::scene::{POOL, Rules, Scene};
use super::*;

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
