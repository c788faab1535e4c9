//! Locations, epochs, client records, usage.

use api::{
    ClientRecord, CreateKind, CreateSpec, Locality, NamespaceError, ReplicaRef, ReplicaState, SetAttributes,
    Stability,
};
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

/// A file of 7 bytes at this pool.
async fn file_at(world: &World, work: FileId, text: &str, pool: PoolId) -> FileId {
    let spec = CreateSpec { location: Some(pool), ..spec(CreateKind::Regular, 0o644) };
    let file = world.names.create(&alice(), work, &name(text), &spec).await.unwrap().attributes.file;
    world.names.record_write(file, &written(7, Stability::FileSync)).await.unwrap();
    file
}

fn states(locality: &Locality) -> Vec<(u32, ReplicaState)> {
    locality.replicas().iter().map(|replica| (replica.pool.0, replica.state)).collect()
}

pub async fn a_copy_is_noted_beside_a_good_replica_and_takes_its_place_in_one_change(world: World) {
    use ReplicaState::{Filling, Good, Stale};
    let (from, to) = (PoolId(5), PoolId(2));
    let file = file_at(&world, world.work().await, "a", from).await;
    let before = world.attributes(file).await;
    world.clock.advance(3);
    let begun = world.locations.begin_filling(file, to).await.unwrap();
    assert_eq!(begun, world.attributes(file).await);
    assert!(begun.epoch == before.epoch.next() && begun.change > before.change);
    assert_eq!((begun.size, begun.mtime, begun.ctime), (before.size, before.mtime, before.ctime));
    for locality in [world.locality(file).await, world.listed(file).await] {
        assert_eq!(states(&locality), [(2, Filling), (5, Good)]);
        assert_eq!(locality.good_pools().collect::<Vec<_>>(), [from]);
    }
    world.clock.advance(4);
    let after = world.locations.replace_location(file, from, to, begun.change).await.unwrap();
    assert_eq!(after, world.attributes(file).await);
    assert!(after.epoch == begun.epoch.next() && after.change > begun.change);
    let now = at(world.clock.seconds());
    let stale = ReplicaRef { pool: from, state: Stale, since: now };
    let expected = Locality::Replicas([ReplicaRef::good(to, now), stale].into());
    assert_eq!((world.locality(file).await, world.listed(file).await), (expected.clone(), expected));
    world.locations.drop_location(file, from).await.unwrap();
    assert_eq!(world.locality(file).await, placed(&[(to, now)]));
}

pub async fn a_copy_does_not_take_the_place_of_a_replica_of_a_file_that_was_changed(world: World) {
    let (from, to, work) = (PoolId(5), PoolId(2), world.work().await);
    for (text, stability) in [("a", Stability::FileSync), ("b", Stability::Unstable)] {
        let file = file_at(&world, work, text, from).await;
        let begun = world.locations.begin_filling(file, to).await.unwrap();
        let noted = world.locality(file).await;
        world.names.record_write(file, &written(7, stability)).await.unwrap();
        let replaced = world.locations.replace_location(file, from, to, begun.change).await;
        refused!(replaced, NamespaceError::Moved);
        assert_eq!(world.locality(file).await, noted);
        assert_eq!(world.attributes(file).await.epoch, begun.epoch);
        let again = world.locations.begin_filling(file, to).await.unwrap();
        world.locations.replace_location(file, from, to, again.change).await.unwrap();
    }
}

pub async fn a_replica_is_not_made_where_there_is_another_or_of_nothing(world: World) {
    let (from, to, work) = (PoolId(5), PoolId(2), world.work().await);
    let file = file_at(&world, work, "a", from).await;
    refused!(world.locations.begin_filling(file, from).await, NamespaceError::Moved);
    let change = world.attributes(file).await.change;
    refused!(world.locations.replace_location(file, from, to, change).await, NamespaceError::Moved);
    assert_eq!(states(&world.locality(file).await), [(5, ReplicaState::Good)]);
    let begun = world.locations.begin_filling(file, to).await.unwrap();
    refused!(world.locations.replace_location(file, to, from, begun.change).await, NamespaceError::Moved);
    world.locations.replace_location(file, from, to, begun.change).await.unwrap();
    refused!(world.locations.begin_filling(file, from).await, NamespaceError::Moved);
    let empty = world.file(&alice(), work, "empty").await;
    refused!(world.locations.begin_filling(empty, to).await, NamespaceError::Moved);
    refused!(world.locations.begin_filling(work, to).await, NamespaceError::IsDirectory);
    refused!(world.locations.begin_filling(FileId(u64::MAX / 4), to).await, NamespaceError::Stale(_));
}

pub async fn files_with_replicas_that_are_not_good_are_listed_in_pages(world: World) {
    let (mut expected, work) = (Vec::new(), world.work().await);
    for number in 0..6 {
        let file = file_at(&world, work, &format!("f{number}"), PoolId(5)).await;
        if number % 2 == 0 {
            world.locations.begin_filling(file, PoolId(2)).await.unwrap();
            world.locations.begin_filling(file, PoolId(7)).await.unwrap();
            expected.push((file, world.locality(file).await));
        }
    }
    let (mut found, mut after) = (Vec::new(), FileId(0));
    loop {
        let page = world.locations.unsettled(after, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.attributes.file;
        found.extend(page.into_iter().map(|file| (file.attributes.file, file.locality)));
    }
    assert_eq!(found, expected);
    world.locations.drop_location(expected[0].0, PoolId(2)).await.unwrap();
    world.locations.drop_location(expected[0].0, PoolId(7)).await.unwrap();
    let left = world.locations.unsettled(FileId(0), 9).await.unwrap();
    assert_eq!(
        left.iter().map(|file| file.attributes.file).collect::<Vec<_>>(),
        [expected[1].0, expected[2].0]
    );
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
