//! Checksums of whole files.

use api::{Properties, Stability};
use bytes::Bytes;
use forebay_files::{ContentMode, Modes, Share};
use types::{ChecksumKind, Identity};

use crate::scene::{FOREIGN, POOL};
use crate::world::World;

pub async fn a_checksum_is_computed_once_for_all_who_wait_and_then_kept(world: World) {
    let file = world.make("file", POOL, "123456789").await;
    let content = world.files.content(&file, ContentMode::Read).await.unwrap();
    let before = world.pool.first.pool.status().reads;
    let who = Identity::root();
    let sum = || world.files.checksum(&who, &file, ChecksumKind::Crc32c, &content);
    let (one, other) = tokio::join!(sum(), sum());
    for sum in [one.unwrap(), other.unwrap(), sum().await.unwrap()] {
        assert_eq!(sum.to_string(), "crc32c:e3069283");
    }
    assert_eq!(world.pool.first.pool.status().reads - before, 1);
    let kept = world.namespace.checksums(file.file).await.unwrap();
    assert_eq!(kept.iter().map(ToString::to_string).collect::<Vec<_>>(), ["crc32c:e3069283"]);
}

pub async fn a_write_forgets_the_checksums_of_the_bytes_before(world: World) {
    let file = world.make("file", POOL, "12345678").await;
    let content = world.files.content(&file, ContentMode::Read).await.unwrap();
    world.files.checksum(&Identity::root(), &file, ChecksumKind::Adler32, &content).await.unwrap();
    let data = (8, Bytes::from_static(b"9"));
    world.files.write(&world.caller.identity, &file, data, Stability::FileSync, None).await.unwrap();
    assert_eq!(world.namespace.checksums(file.file).await.unwrap(), []);
    let file = world.attributes(file.file).await;
    let content = world.files.content(&file, ContentMode::Read).await.unwrap();
    let sum = world.files.checksum(&Identity::root(), &file, ChecksumKind::Adler32, &content).await.unwrap();
    assert_eq!(sum.to_string(), "adler32:091e01de");
}

pub async fn the_checksum_of_a_file_that_is_open_for_writing_is_not_kept(world: World) {
    let file = world.make("file", POOL, "123456789").await;
    let (writing, _) =
        world.files.open(file.file, FOREIGN, Share::new(Modes::WRITE, Modes::NONE)).await.unwrap();
    let content = world.files.content(&file, ContentMode::Read).await.unwrap();
    world.files.checksum(&Identity::root(), &file, ChecksumKind::Adler32, &content).await.unwrap();
    assert_eq!(world.namespace.checksums(file.file).await.unwrap(), []);
    drop(writing);
    world.files.checksum(&Identity::root(), &file, ChecksumKind::Adler32, &content).await.unwrap();
    assert_eq!(world.namespace.checksums(file.file).await.unwrap().len(), 1);
}
