//! Rename, by the rules of Linux.

use api::{ExpectedEnds, ExpectedFile, NamespaceError, Replace};

use super::{World, alice, bob, name, root, written};
use crate::refused;

pub async fn a_rename_moves_the_file_and_tells_both_directories(world: World) {
    let work = world.work().await;
    let (a, b) = (world.dir(&alice(), work, "a").await, world.dir(&alice(), work, "b").await);
    let file = world.file(&alice(), a, "f").await;
    let before = (world.attributes(a).await, world.attributes(b).await);
    world.clock.advance(5);
    let renamed = world.rename(&alice(), (a, "f"), (b, "g")).await.unwrap();
    let after = (world.attributes(a).await, world.attributes(b).await);
    assert_eq!((renamed.source.before, renamed.source.after), (before.0.change, after.0.change));
    assert_eq!((renamed.target.before, renamed.target.after), (before.1.change, after.1.change));
    assert!(after.0.mtime > before.0.mtime && after.1.mtime > before.1.mtime);
    assert_eq!(
        (renamed.moved.file, renamed.moved.ctime, renamed.replaced),
        (file, super::at(1_000_005), None)
    );
    refused!(world.lookup(a, "f").await, NamespaceError::NotFound);
    assert_eq!(world.lookup(b, "g").await.unwrap(), renamed.moved);
    let within = world.rename(&alice(), (b, "g"), (b, "h")).await.unwrap();
    assert_eq!(within.source, within.target);
    assert_eq!(within.target.after, world.attributes(b).await.change);
}

pub async fn a_rename_replaces_a_file(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let other = world.file(&alice(), work, "b").await;
    let renamed = world.rename(&alice(), (work, "a"), (work, "b")).await.unwrap();
    let replaced = renamed.replaced.unwrap();
    assert_eq!((replaced.file, replaced.nlink), (other, 0));
    assert_eq!(world.lookup(work, "b").await.unwrap().file, file);
    refused!(world.lookup(work, "a").await, NamespaceError::NotFound);
    let orphans = world.locations.orphans(types::FileId(0), 10).await.unwrap();
    assert_eq!(orphans.iter().map(|orphan| orphan.attributes.file).collect::<Vec<_>>(), [other]);
}

pub async fn two_names_of_a_directory_change_places(world: World) {
    let work = world.work().await;
    let (tree, file) = (world.dir(&alice(), work, "tree").await, world.file(&alice(), work, "file").await);
    let inside = world.file(&alice(), tree, "inside").await;
    let (one, other) = (name("file"), name("tree"));
    let (owner, stranger) = (alice(), bob());
    let exchange = |who, taken| world.uploads.exchange(who, work, &one, (&other, taken));
    refused!(exchange(&owner, file).await, NamespaceError::Exists);
    world.chmod(work, 0o1777).await;
    refused!(exchange(&stranger, tree).await, NamespaceError::NotPermitted);
    let before = world.attributes(work).await;
    exchange(&owner, tree).await.unwrap();
    let after = world.attributes(work).await;
    assert_eq!(after.nlink, before.nlink);
    assert!(after.change > before.change);
    assert_eq!(world.lookup(work, "file").await.unwrap().file, tree);
    let moved = world.lookup(work, "tree").await.unwrap();
    assert_eq!((moved.file, moved.nlink), (file, 1));
    assert_eq!(world.lookup(tree, "inside").await.unwrap().file, inside);
    world.unlink(&alice(), work, "tree").await.unwrap();
    refused!(exchange(&owner, file).await, NamespaceError::NotFound);
}

pub async fn a_directory_replaces_only_an_empty_directory(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "a").await;
    let full = world.dir(&alice(), work, "full").await;
    world.file(&alice(), full, "f").await;
    refused!(world.rename(&alice(), (work, "a"), (work, "full")).await, NamespaceError::NotEmpty);
    world.unlink(&alice(), full, "f").await.unwrap();
    let links = world.attributes(work).await.nlink;
    let renamed = world.rename(&alice(), (work, "a"), (work, "full")).await.unwrap();
    assert_eq!(renamed.replaced.unwrap().file, full);
    assert_eq!(world.lookup(work, "full").await.unwrap().file, dir);
    assert_eq!(world.attributes(work).await.nlink, links - 1);
    refused!(world.names.attributes(full).await, NamespaceError::Stale(_));
}

pub async fn a_directory_replaces_no_file_and_no_file_a_directory(world: World) {
    let work = world.work().await;
    world.dir(&alice(), work, "d").await;
    world.file(&alice(), work, "f").await;
    refused!(world.rename(&alice(), (work, "d"), (work, "f")).await, NamespaceError::NotDirectory);
    refused!(world.rename(&alice(), (work, "f"), (work, "d")).await, NamespaceError::IsDirectory);
}

pub async fn both_names_of_one_file_stay(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.names.link(&alice(), file, work, &name("b")).await.unwrap();
    let before = (world.attributes(work).await, world.attributes(file).await);
    world.clock.advance(5);
    let renamed = world.rename(&alice(), (work, "a"), (work, "b")).await.unwrap();
    assert_eq!((renamed.replaced, renamed.moved), (None, before.1));
    assert_eq!((world.attributes(work).await, world.attributes(file).await), before);
    assert!(world.lookup(work, "a").await.is_ok() && world.lookup(work, "b").await.is_ok());
    assert!(world.rename(&alice(), (work, "a"), (work, "a")).await.is_ok());
}

pub async fn a_file_that_replaces_itself_by_another_name_loses_the_one_it_came_from(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.names.link(&alice(), file, work, &name("b")).await.unwrap();
    let to_itself = world.rename_over(&alice(), (work, "a"), (work, "a"), Replace::File(file)).await;
    assert_eq!(to_itself.unwrap().moved.nlink, 2);
    let before = world.attributes(work).await;
    let renamed = world.rename_over(&alice(), (work, "a"), (work, "b"), Replace::File(file)).await.unwrap();
    assert_eq!((renamed.moved.file, renamed.moved.nlink, renamed.replaced), (file, 1, None));
    assert_eq!((renamed.source.before, renamed.source), (before.change, renamed.target));
    assert_eq!(world.attributes(work).await.change, renamed.source.after);
    refused!(world.lookup(work, "a").await, NamespaceError::NotFound);
    assert_eq!(world.lookup(work, "b").await.unwrap(), renamed.moved);
}

pub async fn a_directory_does_not_move_below_itself(world: World) {
    let work = world.work().await;
    let a = world.dir(&alice(), work, "a").await;
    let b = world.dir(&alice(), a, "b").await;
    let c = world.dir(&alice(), b, "c").await;
    for below in [a, b, c] {
        refused!(world.rename(&alice(), (work, "a"), (below, "x")).await, NamespaceError::Cycle);
    }
    assert!(world.rename(&alice(), (b, "c"), (work, "c")).await.is_ok());
    assert!(world.rename(&alice(), (work, "a"), (c, "a")).await.is_ok());
}

pub async fn an_ancestor_is_not_replaced(world: World) {
    let work = world.work().await;
    let a = world.dir(&alice(), work, "a").await;
    let b = world.dir(&alice(), a, "b").await;
    world.dir(&alice(), b, "c").await;
    refused!(world.rename(&alice(), (b, "c"), (work, "a")).await, NamespaceError::NotEmpty);
    world.file(&alice(), b, "f").await;
    refused!(world.rename(&alice(), (b, "f"), (work, "a")).await, NamespaceError::NotEmpty);
}

pub async fn moving_a_directory_moves_its_link_and_its_parent(world: World) {
    let work = world.work().await;
    let (a, b) = (world.dir(&alice(), work, "a").await, world.dir(&alice(), work, "b").await);
    let dir = world.dir(&alice(), a, "d").await;
    world.rename(&alice(), (a, "d"), (b, "d")).await.unwrap();
    assert_eq!((world.attributes(a).await.nlink, world.attributes(b).await.nlink), (2, 3));
    assert_eq!(world.names.parent(&alice(), dir).await.unwrap().file, b);
    // Onto another: one comes, one goes.
    world.dir(&alice(), a, "d").await;
    world.rename(&alice(), (b, "d"), (a, "d")).await.unwrap();
    assert_eq!((world.attributes(a).await.nlink, world.attributes(b).await.nlink), (3, 2));
    // Within one directory nothing moves.
    world.rename(&alice(), (a, "d"), (a, "e")).await.unwrap();
    assert_eq!(world.attributes(a).await.nlink, 3);
}

pub async fn moving_a_directory_needs_write_permission_on_it(world: World) {
    let work = world.work().await;
    let (a, b) = (world.dir(&bob(), work, "a").await, world.dir(&bob(), work, "b").await);
    world.chmod(a, 0o777).await;
    world.chmod(b, 0o777).await;
    world.dir(&alice(), a, "d").await;
    refused!(world.rename(&bob(), (a, "d"), (b, "d")).await, NamespaceError::AccessDenied);
    // Its ".." stays what it was.
    assert!(world.rename(&bob(), (a, "d"), (a, "e")).await.is_ok());
    assert!(world.rename(&root(), (a, "e"), (b, "e")).await.is_ok());
}

pub async fn in_a_sticky_directory_only_owners_rename_and_replace(world: World) {
    let work = world.work().await;
    let dir = world.dir(&root(), work, "d").await;
    world.chmod(dir, 0o1777).await;
    world.file(&alice(), dir, "a").await;
    world.file(&bob(), dir, "b").await;
    refused!(world.rename(&bob(), (dir, "a"), (dir, "x")).await, NamespaceError::NotPermitted);
    refused!(world.rename(&bob(), (dir, "b"), (dir, "a")).await, NamespaceError::NotPermitted);
    assert!(world.rename(&bob(), (dir, "b"), (dir, "x")).await.is_ok());
}

pub async fn a_missing_source_is_not_found(world: World) {
    let work = world.work().await;
    world.file(&alice(), work, "b").await;
    refused!(world.rename(&alice(), (work, "a"), (work, "b")).await, NamespaceError::NotFound);
    assert!(world.lookup(work, "b").await.is_ok());
}

pub async fn renaming_needs_permission_on_both_directories(world: World) {
    let work = world.work().await;
    let (a, b) = (world.dir(&alice(), work, "a").await, world.dir(&alice(), work, "b").await);
    world.file(&alice(), a, "f").await;
    world.chmod(a, 0o777).await;
    refused!(world.rename(&bob(), (a, "f"), (b, "f")).await, NamespaceError::AccessDenied);
    world.chmod(b, 0o777).await;
    world.chmod(a, 0o755).await;
    refused!(world.rename(&bob(), (a, "f"), (b, "f")).await, NamespaceError::AccessDenied);
    world.chmod(a, 0o777).await;
    assert!(world.rename(&bob(), (a, "f"), (b, "f")).await.is_ok());
}

pub async fn a_rename_onto_a_name_that_must_be_free_replaces_nothing(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "file").await;
    world.dir(&alice(), work, "dir").await;
    let other = world.file(&alice(), work, "other").await;
    world.names.link(&alice(), file, work, &name("link")).await.unwrap();
    let before = world.attributes(work).await;
    for taken in ["other", "dir", "link", "file"] {
        let renamed = world.rename_over(&alice(), (work, "file"), (work, taken), Replace::Never).await;
        refused!(renamed, NamespaceError::Exists);
    }
    assert_eq!(world.attributes(work).await, before);
    assert_eq!(world.lookup(work, "other").await.unwrap().file, other);
    world.rename_over(&alice(), (work, "file"), (work, "free"), Replace::Never).await.unwrap();
    assert_eq!(world.lookup(work, "free").await.unwrap().file, file);
    // A missing source is reported before an existing target, as with Linux' `RENAME_NOREPLACE`.
    let renamed = world.rename_over(&alice(), (work, "file"), (work, "other"), Replace::Never).await;
    refused!(renamed, NamespaceError::NotFound);
}

pub async fn a_rename_replaces_the_very_file_it_was_told(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "file").await;
    let meant = world.file(&alice(), work, "other").await;
    world.rename(&alice(), (work, "other"), (work, "away")).await.unwrap();
    let rename = async |replace| world.rename_over(&alice(), (work, "file"), (work, "other"), replace).await;
    refused!(rename(Replace::File(meant)).await, NamespaceError::Exists);
    let appeared = world.file(&alice(), work, "other").await;
    refused!(rename(Replace::File(meant)).await, NamespaceError::Exists);
    let change = world.attributes(appeared).await.change;
    let stale = Replace::Exactly { file: appeared, change: change - 1 };
    refused!(rename(stale).await, NamespaceError::Exists);
    assert_eq!(world.lookup(work, "other").await.unwrap().file, appeared);
    // Its state does not matter.
    world.names.record_write(appeared, &written(5, api::Stability::FileSync)).await.unwrap();
    let renamed = rename(Replace::File(appeared)).await.unwrap();
    assert_eq!((renamed.moved.file, renamed.replaced.unwrap().file), (file, appeared));
}

pub async fn a_rename_moves_and_replaces_the_expected_files_only(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "file").await;
    let other = world.file(&alice(), work, "other").await;
    let (old, new, free) = (name("file"), name("other"), name("free"));
    let before = world.attributes(work).await;
    let rename = async |to, replace, source, target| {
        let expected = ExpectedEnds { source, target };
        world.names.rename(&alice(), (work, &old), (work, to), replace, expected).await
    };
    let (any, this, that) = (ExpectedFile::Any, ExpectedFile::Exactly(file), ExpectedFile::Exactly(other));
    for replace in [Replace::Any, Replace::Never] {
        refused!(rename(&new, replace, that, any).await, NamespaceError::Moved);
        refused!(rename(&new, replace, this, ExpectedFile::Absent).await, NamespaceError::Moved);
        refused!(rename(&new, replace, this, this).await, NamespaceError::Moved);
        refused!(rename(&free, replace, this, that).await, NamespaceError::Moved);
    }
    assert_eq!(world.attributes(work).await, before);
    refused!(rename(&new, Replace::Never, this, that).await, NamespaceError::Exists);
    let renamed = rename(&new, Replace::Any, this, that).await.unwrap();
    assert_eq!((renamed.moved.file, renamed.replaced.unwrap().file), (file, other));
    refused!(rename(&free, Replace::Any, this, ExpectedFile::Absent).await, NamespaceError::NotFound);
}
