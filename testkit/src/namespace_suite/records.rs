//! Locations, epochs, client records, usage.

use api::{ClientRecord, CreateKind, CreateSpec, Locality, NamespaceError, SetAttributes, Stability};
use types::{Epoch, FileId, PoolId};

use super::{World, alice, at, name, placed, spec, written};
use crate::refused;

pub async fn locations_are_added_and_dropped_idempotently(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    assert_eq!(world.locality(file).await, Locality::Empty);
    let before = world.attributes(file).await;
    let begun = at(world.clock.seconds());
    for pool in [5, 2, 5] {
        world.locations.add_location(file, PoolId(pool)).await.unwrap();
        world.clock.advance(1);
    }
    let both = [(PoolId(2), at(begun.seconds + 1)), (PoolId(5), begun)];
    assert_eq!(world.locality(file).await, placed(&both));
    for _ in 0..2 {
        world.locations.drop_location(file, PoolId(2)).await.unwrap();
    }
    assert_eq!(world.locality(file).await, placed(&both[1..]));
    assert_eq!(world.attributes(file).await, before, "users of the file see nothing of it");
    let nowhere = FileId(u64::MAX / 4);
    refused!(world.locations.add_location(nowhere, PoolId(1)).await, NamespaceError::Stale(_));
    assert!(world.locations.drop_location(nowhere, PoolId(1)).await.is_ok());
    refused!(world.locations.locality(nowhere).await, NamespaceError::Stale(_));
    refused!(world.locations.locality(work).await, NamespaceError::IsDirectory);
    refused!(world.locations.add_location(work, PoolId(1)).await, NamespaceError::IsDirectory);
}

pub async fn a_location_is_recorded_with_the_creation(world: World) {
    let work = world.work().await;
    let spec = CreateSpec { location: Some(PoolId(9)), ..spec(CreateKind::Regular, 0o644) };
    let file = world.names.create(&alice(), work, &name("a"), &spec).await.unwrap().attributes.file;
    let made = at(world.clock.seconds());
    assert_eq!(world.locality(file).await, placed(&[(PoolId(9), made)]));
    assert_eq!(world.listed(file).await, placed(&[(PoolId(9), made)]));
}

pub async fn a_replica_that_is_dropped_and_noted_again_is_good_since_then(world: World) {
    let work = world.work().await;
    let spec = CreateSpec { location: Some(PoolId(9)), ..spec(CreateKind::Regular, 0o644) };
    let file = world.names.create(&alice(), work, &name("a"), &spec).await.unwrap().attributes.file;
    world.clock.advance(10);
    world.locations.drop_location(file, PoolId(9)).await.unwrap();
    assert_eq!(world.listed(file).await, Locality::Empty);
    world.locations.add_location(file, PoolId(9)).await.unwrap();
    let again = placed(&[(PoolId(9), at(world.clock.seconds()))]);
    assert_eq!((world.locality(file).await, world.listed(file).await), (again.clone(), again));
}

pub async fn a_file_with_a_length_and_no_replica_is_lost_until_it_is_made_empty(world: World) {
    let work = world.work().await;
    let cut = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    for (text, stability) in [("a", Stability::FileSync), ("b", Stability::Unstable)] {
        let file = world.file(&alice(), work, text).await;
        world.names.record_write(file, &written(7, stability)).await.unwrap();
        assert_eq!(world.locality(file).await, Locality::Lost);
        world.set(&alice(), file, cut(3)).await.unwrap();
        assert_eq!((world.locality(file).await, world.listed(file).await), (Locality::Lost, Locality::Lost));
        world.set(&alice(), file, cut(0)).await.unwrap();
        assert_eq!(
            (world.locality(file).await, world.listed(file).await),
            (Locality::Empty, Locality::Empty)
        );
        world.set(&alice(), file, cut(3)).await.unwrap();
        assert_eq!(world.locality(file).await, Locality::Lost, "and not a file of zeros");
    }
    let long = CreateSpec { set: cut(5), ..spec(CreateKind::Regular, 0o644) };
    let file = world.names.create(&alice(), work, &name("c"), &long).await.unwrap().attributes.file;
    assert_eq!(world.locality(file).await, Locality::Lost);
}

pub async fn a_file_that_loses_its_last_replica_is_lost_if_it_has_a_length(world: World) {
    let work = world.work().await;
    for (text, size, left) in [("a", 0, Locality::Empty), ("b", 7, Locality::Lost)] {
        let spec = CreateSpec { location: Some(PoolId(1)), ..spec(CreateKind::Regular, 0o644) };
        let file = world.names.create(&alice(), work, &name(text), &spec).await.unwrap().attributes.file;
        world.names.record_write(file, &written(size, Stability::FileSync)).await.unwrap();
        world.locations.add_location(file, PoolId(2)).await.unwrap();
        world.locations.drop_location(file, PoolId(1)).await.unwrap();
        assert_eq!(world.locality(file).await.pools().collect::<Vec<_>>(), [PoolId(2)]);
        world.locations.drop_location(file, PoolId(2)).await.unwrap();
        assert_eq!((world.locality(file).await, world.listed(file).await), (left.clone(), left));
        world.locations.add_location(file, PoolId(3)).await.unwrap();
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        world.set(&alice(), file, cut).await.unwrap();
        assert_eq!(world.locality(file).await.pools().collect::<Vec<_>>(), [PoolId(3)], "it keeps its place");
    }
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

pub async fn files_are_told_with_their_localities_in_pages(world: World) {
    let work = world.work().await;
    let mut files = Vec::new();
    for number in 0..5 {
        let spec = CreateSpec { location: Some(PoolId(number)), ..spec(CreateKind::Regular, 0o644) };
        let made = world.names.create(&alice(), work, &name(&format!("f{number}")), &spec).await.unwrap();
        let expected = placed(&[(PoolId(number), at(world.clock.seconds()))]);
        files.push((made.attributes.file, expected));
        let empty = world.file(&alice(), work, &format!("e{number}")).await;
        files.push((empty, Locality::Empty));
        world.dir(&alice(), work, &format!("d{number}")).await;
    }
    let mut found = Vec::new();
    let mut after = FileId(0);
    loop {
        let page = world.locations.files(after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.attributes.file;
        found.extend(page.into_iter().map(|file| (file.attributes.file, file.locality)));
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
