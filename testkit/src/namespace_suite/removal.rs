//! Removal, hard links, orphans.

use api::{CreateKind, ExpectedFile, FileLocations, NamespaceError};
use types::{FileId, PoolId};

use super::{World, alice, at, bob, name, placed, root};
use crate::refused;

pub async fn removal_needs_write_permission_on_the_directory(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.file(&alice(), dir, "a").await;
    for mode in [0o700, 0o705, 0o706] {
        world.chmod(dir, mode).await;
        refused!(world.unlink(&bob(), dir, "a").await, NamespaceError::AccessDenied);
    }
    world.chmod(dir, 0o703).await;
    refused!(world.unlink(&bob(), dir, "b").await, NamespaceError::NotFound);
    assert!(world.unlink(&bob(), dir, "a").await.is_ok());
}

pub async fn in_a_sticky_directory_only_owners_remove(world: World) {
    let work = world.work().await;
    let dir = world.dir(&root(), work, "d").await;
    world.chmod(dir, 0o1777).await;
    world.file(&alice(), dir, "a").await;
    refused!(world.unlink(&bob(), dir, "a").await, NamespaceError::NotPermitted);
    assert!(world.unlink(&alice(), dir, "a").await.is_ok());
}

pub async fn a_removal_takes_the_expected_file_only(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let other = world.file(&alice(), work, "b").await;
    let before = world.attributes(work).await;
    let remove = async |expected| world.names.unlink(&alice(), work, &name("a"), expected).await;
    for expected in [ExpectedFile::Absent, ExpectedFile::Exactly(other)] {
        refused!(remove(expected).await, NamespaceError::Moved);
    }
    // Whether another file may be removed is not what was asked.
    let by_other = world.names.unlink(&bob(), work, &name("a"), ExpectedFile::Exactly(other)).await;
    refused!(by_other, NamespaceError::Moved);
    assert_eq!(world.attributes(work).await, before);
    assert_eq!(remove(ExpectedFile::Exactly(file)).await.unwrap().attributes.file, file);
    refused!(remove(ExpectedFile::Exactly(file)).await, NamespaceError::NotFound);
}

pub async fn a_directory_with_entries_is_not_removed(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.file(&alice(), dir, "a").await;
    refused!(world.unlink(&alice(), work, "d").await, NamespaceError::NotEmpty);
    world.unlink(&alice(), dir, "a").await.unwrap();
    let removed = world.unlink(&alice(), work, "d").await.unwrap();
    assert_eq!((removed.attributes.file, removed.attributes.nlink), (dir, 0));
    refused!(world.lookup(work, "d").await, NamespaceError::NotFound);
}

pub async fn a_removed_directory_is_stale(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.unlink(&alice(), work, "d").await.unwrap();
    refused!(world.names.attributes(dir).await, NamespaceError::Stale(_));
    refused!(world.lookup(dir, "a").await, NamespaceError::Stale(_));
    let regular = super::spec(CreateKind::Regular, 0o644);
    refused!(world.names.create(&alice(), dir, &name("a"), &regular).await, NamespaceError::Stale(_));
    refused!(world.names.parent(&alice(), dir).await, NamespaceError::Stale(_));
}

pub async fn a_file_whose_last_name_went_is_an_orphan_until_forgotten(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.locations.add_location(file, PoolId(3)).await.unwrap();
    let begun = at(world.clock.seconds());
    world.clock.advance(5);
    let gone = world.unlink(&alice(), work, "a").await.unwrap().attributes;
    assert_eq!(gone.nlink, 0);
    assert_eq!(gone.ctime, super::at(1_000_005));
    assert_eq!(world.attributes(file).await, gone);
    let orphans = world.locations.orphans(FileId(0), 10).await.unwrap();
    let locality = placed(&[(PoolId(3), begun)]);
    assert_eq!(orphans, [FileLocations { attributes: gone, locality }]);
    // Somebody may have it open still.
    world.names.record_write(file, &super::written(10, api::Stability::FileSync)).await.unwrap();
    world.locations.forget(&[file]).await.unwrap();
    refused!(world.names.attributes(file).await, NamespaceError::Stale(_));
    refused!(world.locations.locality(file).await, NamespaceError::Stale(_));
    assert!(world.locations.orphans(FileId(0), 10).await.unwrap().is_empty());
}

pub async fn forgetting_leaves_alone_what_has_a_name(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.locations.forget(&[file, FileId(u64::MAX / 4)]).await.unwrap();
    assert_eq!(world.lookup(work, "a").await.unwrap().file, file);
}

pub async fn a_hard_link_is_the_same_file(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.clock.advance(5);
    let linked = world.names.link(&bob(), file, work, &name("b")).await.unwrap();
    assert_eq!((linked.attributes.nlink, linked.attributes.ctime), (2, super::at(1_000_005)));
    assert!(linked.parent.after > linked.parent.before);
    assert_eq!(world.lookup(work, "b").await.unwrap(), world.lookup(work, "a").await.unwrap());
    refused!(world.names.link(&bob(), file, work, &name("a")).await, NamespaceError::Exists);
    assert_eq!(world.unlink(&alice(), work, "a").await.unwrap().attributes.nlink, 1);
    assert!(world.locations.orphans(FileId(0), 10).await.unwrap().is_empty());
    assert_eq!(world.lookup(work, "b").await.unwrap().file, file);
}

pub async fn a_directory_takes_no_hard_link(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    refused!(world.names.link(&root(), dir, work, &name("e")).await, NamespaceError::NotPermitted);
}

pub async fn an_orphan_takes_no_new_name(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.unlink(&alice(), work, "a").await.unwrap();
    refused!(world.names.link(&alice(), file, work, &name("b")).await, NamespaceError::NotFound);
}

pub async fn a_name_is_free_again_after_its_removal(world: World) {
    let work = world.work().await;
    let first = world.file(&alice(), work, "a").await;
    world.unlink(&alice(), work, "a").await.unwrap();
    refused!(world.lookup(work, "a").await, NamespaceError::NotFound);
    let second = world.file(&alice(), work, "a").await;
    assert_ne!(first, second);
    assert_eq!(world.lookup(work, "a").await.unwrap().file, second);
}
