//! Locations, epochs, client records, usage.

use api::{ClientRecord, CreateKind, CreateSpec, NamespaceError, SetAttributes, Stability};
use types::{Epoch, FileId, PoolId};

use super::{World, alice, name, spec, written};
use crate::refused;

pub async fn locations_are_added_and_dropped_idempotently(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    assert!(world.locations.locations(file).await.unwrap().is_empty());
    for pool in [5, 2, 5] {
        world.locations.add_location(file, PoolId(pool)).await.unwrap();
    }
    assert_eq!(world.locations.locations(file).await.unwrap(), [PoolId(2), PoolId(5)]);
    for _ in 0..2 {
        world.locations.drop_location(file, PoolId(2)).await.unwrap();
    }
    assert_eq!(world.locations.locations(file).await.unwrap(), [PoolId(5)]);
    let nowhere = FileId(u64::MAX / 4);
    refused!(world.locations.add_location(nowhere, PoolId(1)).await, NamespaceError::Stale(_));
    assert!(world.locations.drop_location(nowhere, PoolId(1)).await.is_ok());
    refused!(world.locations.locations(nowhere).await, NamespaceError::Stale(_));
    refused!(world.locations.add_location(work, PoolId(1)).await, NamespaceError::IsDirectory);
}

pub async fn a_location_is_recorded_with_the_creation(world: World) {
    let work = world.work().await;
    let spec = CreateSpec { location: Some(PoolId(9)), ..spec(CreateKind::Regular, 0o644) };
    let file = world.names.create(&alice(), work, &name("a"), &spec).await.unwrap().attributes.file;
    assert_eq!(world.locations.locations(file).await.unwrap(), [PoolId(9)]);
}

pub async fn the_epoch_only_rises(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    assert_eq!(world.attributes(file).await.epoch, Epoch(0));
    assert_eq!(world.locations.raise_epoch(file).await.unwrap(), Epoch(1));
    assert_eq!(world.locations.raise_epoch(file).await.unwrap(), Epoch(2));
    assert_eq!(world.attributes(file).await.epoch, Epoch(2));
    refused!(world.locations.raise_epoch(FileId(u64::MAX / 4)).await, NamespaceError::Stale(_));
}

pub async fn files_are_told_with_their_pools_in_pages(world: World) {
    let work = world.work().await;
    let mut files = Vec::new();
    for number in 0..5 {
        let spec = CreateSpec { location: Some(PoolId(number)), ..spec(CreateKind::Regular, 0o644) };
        let made = world.names.create(&alice(), work, &name(&format!("f{number}")), &spec).await.unwrap();
        files.push((made.attributes.file, vec![PoolId(number)]));
        world.dir(&alice(), work, &format!("d{number}")).await;
    }
    let mut found = Vec::new();
    let mut after = FileId(0);
    loop {
        let page = world.locations.files(after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.attributes.file;
        found.extend(page.into_iter().map(|file| (file.attributes.file, file.pools)));
    }
    assert_eq!(found, files);
}

pub async fn client_records_are_kept_by_owner(world: World) {
    let record = |owner: &[u8], reclaim_complete| ClientRecord { owner: owner.to_vec(), reclaim_complete };
    world.records.put(&record(b"one", false)).await.unwrap();
    world.records.put(&record(b"two\0\xff", false)).await.unwrap();
    world.records.put(&record(b"one", true)).await.unwrap();
    let mut records = world.records.load().await.unwrap();
    records.sort_by(|a, b| a.owner.cmp(&b.owner));
    assert_eq!(records, [record(b"one", true), record(b"two\0\xff", false)]);
    for _ in 0..2 {
        world.records.remove(b"one").await.unwrap();
    }
    assert_eq!(world.records.load().await.unwrap(), [record(b"two\0\xff", false)]);
    assert!(world.records.put(&record(&[0; 1025], false)).await.is_err());
}

pub async fn usage_counts_files_and_bytes(world: World) {
    let before = world.names.usage().await.unwrap();
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.dir(&alice(), work, "d").await;
    world.names.record_write(file, &written(1000, Stability::FileSync)).await.unwrap();
    let usage = world.names.usage().await.unwrap();
    assert_eq!((usage.files - before.files, usage.bytes - before.bytes), (3, 1000));
    let cut = SetAttributes { size: Some(10), ..SetAttributes::default() };
    world.set(&alice(), file, cut).await.unwrap();
    assert_eq!(world.names.usage().await.unwrap().bytes - before.bytes, 10);
    world.unlink(&alice(), work, "a").await.unwrap();
    world.unlink(&alice(), work, "d").await.unwrap();
    world.locations.forget(&[file]).await.unwrap();
    let usage = world.names.usage().await.unwrap();
    assert_eq!((usage.files - before.files, usage.bytes), (1, before.bytes));
}
