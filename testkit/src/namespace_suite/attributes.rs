//! Changes of attributes and records of written data.

use api::{CreateKind, NamespaceError, SetAttributes, SetTime, Stability, Written};
use types::{FileId, SymlinkTarget};

use super::{World, alice, at, bob, name, root, written};
use crate::refused;

fn none() -> SetAttributes {
    SetAttributes::default()
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..none() }
}

fn size(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..none() }
}

pub async fn only_the_owner_changes_the_mode(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.chmod(file, 0o666).await;
    refused!(world.set(&bob(), file, mode(0o777)).await, NamespaceError::NotPermitted);
    let before = world.attributes(file).await;
    world.clock.advance(5);
    let after = world.set(&alice(), file, mode(0o100_4711)).await.unwrap();
    assert_eq!(after.mode, 0o4711);
    assert!(after.ctime > before.ctime && after.change > before.change);
    assert_eq!(after.mtime, before.mtime);
    assert_eq!(world.lookup(work, "a").await.unwrap(), after);
}

pub async fn only_root_gives_a_file_away(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let to_bob = SetAttributes { uid: Some(20), ..none() };
    refused!(world.set(&alice(), file, to_bob.clone()).await, NamespaceError::NotPermitted);
    refused!(world.set(&bob(), file, to_bob.clone()).await, NamespaceError::NotPermitted);
    let to_self = SetAttributes { uid: Some(10), ..none() };
    assert!(world.set(&alice(), file, to_self).await.is_ok());
    assert_eq!(world.set(&root(), file, to_bob).await.unwrap().uid, 20);
}

pub async fn the_owner_chooses_among_his_groups(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let group = |gid| SetAttributes { gid: Some(gid), ..none() };
    assert_eq!(world.set(&alice(), file, group(101)).await.unwrap().gid, 101);
    refused!(world.set(&alice(), file, group(200)).await, NamespaceError::NotPermitted);
    refused!(world.set(&bob(), file, group(200)).await, NamespaceError::NotPermitted);
    assert_eq!(world.set(&root(), file, group(200)).await.unwrap().gid, 200);
    // It stays in a group that is not his.
    assert!(world.set(&alice(), file, group(200)).await.is_ok());
}

pub async fn a_change_of_owner_takes_set_uid_away(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.chmod(file, 0o6755).await;
    let to_bob = SetAttributes { uid: Some(20), ..none() };
    assert_eq!(world.set(&root(), file, to_bob.clone()).await.unwrap().mode, 0o755);
    world.chmod(file, 0o6745).await;
    assert_eq!(world.set(&root(), file, to_bob.clone()).await.unwrap().mode, 0o2745);
    let dir = world.dir(&alice(), work, "d").await;
    world.chmod(dir, 0o2755).await;
    assert_eq!(world.set(&root(), dir, to_bob).await.unwrap().mode, 0o2755);
}

pub async fn a_mode_for_a_strange_group_is_not_set_gid(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    assert_eq!(world.set(&alice(), file, mode(0o2755)).await.unwrap().mode, 0o2755);
    world.set(&root(), file, SetAttributes { gid: Some(200), ..none() }).await.unwrap();
    assert_eq!(world.set(&alice(), file, mode(0o2755)).await.unwrap().mode, 0o755);
    assert_eq!(world.set(&root(), file, mode(0o2755)).await.unwrap().mode, 0o2755);
}

pub async fn given_times_are_for_the_owner_and_now_for_writers(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let given = SetAttributes { mtime: Some(SetTime::To(at(-5))), ..none() };
    let now = SetAttributes { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..none() };
    refused!(world.set(&bob(), file, given.clone()).await, NamespaceError::NotPermitted);
    refused!(world.set(&bob(), file, now.clone()).await, NamespaceError::AccessDenied);
    world.chmod(file, 0o646).await;
    refused!(world.set(&bob(), file, given.clone()).await, NamespaceError::NotPermitted);
    world.clock.advance(7);
    let touched = world.set(&bob(), file, now).await.unwrap();
    assert_eq!((touched.atime, touched.mtime), (at(1_000_007), at(1_000_007)));
    world.clock.advance(7);
    let old = world.set(&alice(), file, given).await.unwrap();
    assert_eq!((old.mtime, old.atime, old.ctime), (at(-5), at(1_000_007), at(1_000_014)));
    assert_eq!(world.attributes(file).await, old);
}

pub async fn a_truncation_needs_write_permission_or_an_open_file(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    refused!(world.set(&bob(), file, size(5)).await, NamespaceError::AccessDenied);
    let open = SetAttributes { size_is_authorized: true, ..size(5) };
    world.clock.advance(5);
    let after = world.set(&bob(), file, open).await.unwrap();
    assert_eq!((after.size, after.mtime), (5, at(1_000_005)));
    world.chmod(file, 0o4777).await;
    assert_eq!(world.set(&root(), file, size(6)).await.unwrap().mode, 0o4777);
    let cut = world.set(&bob(), file, size(2)).await.unwrap();
    assert_eq!((cut.size, cut.mode), (2, 0o777));
}

pub async fn a_mode_that_is_set_with_a_length_keeps_its_set_id_bits(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.chmod(file, 0o2755).await;
    let program = SetAttributes { mode: Some(0o4755), ..size(5) };
    assert_eq!(world.set(&alice(), file, program).await.unwrap().mode, 0o4755);
    let kept = SetAttributes { keeps_set_id: true, ..size(4) };
    assert_eq!(world.set(&alice(), file, kept).await.unwrap().mode, 0o4755);
    assert_eq!(world.set(&alice(), file, size(3)).await.unwrap().mode, 0o755);
}

pub async fn only_regular_files_have_a_size_to_set(world: World) {
    let work = world.work().await;
    refused!(world.set(&root(), work, size(0)).await, NamespaceError::IsDirectory);
    let target = SymlinkTarget::new(b"x").unwrap();
    let link = world.make(&root(), work, "l", CreateKind::Symlink(target), 0o777).await.attributes.file;
    refused!(world.set(&root(), link, size(0)).await, NamespaceError::NotRegular);
}

pub async fn setting_nothing_changes_nothing(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let before = world.attributes(file).await;
    world.clock.advance(5);
    assert_eq!(world.set(&bob(), file, none()).await.unwrap(), before);
    assert_eq!(world.attributes(file).await, before);
}

pub async fn recorded_writes_show_size_and_times_together(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let before = world.attributes(file).await;
    world.clock.advance(5);
    let long = Written { space_used: Some(512), ..written(100, Stability::FileSync) };
    let after = world.names.record_write(file, &long).await.unwrap();
    assert_eq!(
        (after.size, after.space_used, after.mtime, after.ctime),
        (100, 512, at(1_000_005), at(1_000_005))
    );
    assert!(after.change > before.change);
    assert_eq!(world.lookup(work, "a").await.unwrap(), after);
    let again = world.names.record_write(file, &written(50, Stability::DataSync)).await.unwrap();
    assert_eq!(again.size, 100);
    world.clock.advance(5);
    let timed = Written { mtime: Some(at(1_000_007)), ..written(10, Stability::FileSync) };
    assert_eq!(world.names.record_write(file, &timed).await.unwrap().mtime, at(1_000_007));
    // Written before the last change of attributes: what that set stands.
    let late = Written { mtime: Some(at(1_000_008)), ..written(200, Stability::FileSync) };
    let after = world.names.record_write(file, &late).await.unwrap();
    assert_eq!((after.size, after.mtime, after.ctime), (200, at(1_000_007), at(1_000_010)));
}

pub async fn an_unstable_write_is_seen_at_once(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let mut change = world.attributes(file).await.change;
    for step in 1..20 {
        let after = world.names.record_write(file, &written(step * 10, Stability::Unstable)).await.unwrap();
        assert_eq!(after.size, step * 10);
        assert!(after.change > change);
        change = after.change;
        assert_eq!(world.attributes(file).await, after);
        assert_eq!(world.lookup(work, "a").await.unwrap(), after);
    }
}

pub async fn an_unstable_write_survives_a_change_of_attributes(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.names.record_write(file, &written(10, Stability::Unstable)).await.unwrap();
    let after = world.set(&alice(), file, mode(0o600)).await.unwrap();
    assert_eq!((after.size, after.mode), (10, 0o600));
    let after = world.names.record_write(file, &written(20, Stability::Unstable)).await.unwrap();
    assert_eq!((after.size, after.mode), (20, 0o600));
    world.names.link(&alice(), file, work, &name("b")).await.unwrap();
    let found = world.lookup(work, "b").await.unwrap();
    assert_eq!((found.size, found.mode, found.nlink), (20, 0o600, 2));
}

pub async fn a_truncation_after_an_unstable_write_wins(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.names.record_write(file, &written(10, Stability::Unstable)).await.unwrap();
    assert_eq!(world.set(&alice(), file, size(3)).await.unwrap().size, 3);
    assert_eq!(world.attributes(file).await.size, 3);
    assert_eq!(world.names.record_write(file, &written(5, Stability::Unstable)).await.unwrap().size, 5);
}

pub async fn a_write_without_bytes_changes_nothing(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let before = world.attributes(file).await;
    world.clock.advance(5);
    for stability in [Stability::Unstable, Stability::FileSync] {
        let nothing = Written { size_at_least: None, mtime: None, space_used: None, stability };
        assert_eq!(world.names.record_write(file, &nothing).await.unwrap(), before);
    }
}

pub async fn a_write_takes_set_uid_away(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    for stability in [Stability::Unstable, Stability::FileSync] {
        world.chmod(file, 0o6755).await;
        assert_eq!(world.names.record_write(file, &written(1, stability)).await.unwrap().mode, 0o755);
    }
}

pub async fn only_writes_of_regular_files_are_recorded(world: World) {
    let work = world.work().await;
    let fifo = world.make(&root(), work, "p", CreateKind::Fifo, 0o666).await.attributes.file;
    for stability in [Stability::Unstable, Stability::FileSync] {
        let bytes = written(1, stability);
        refused!(world.names.record_write(work, &bytes).await, NamespaceError::IsDirectory);
        refused!(world.names.record_write(fifo, &bytes).await, NamespaceError::NotRegular);
        refused!(world.names.record_write(FileId(u64::MAX / 4), &bytes).await, NamespaceError::Stale(_));
    }
}

pub async fn change_grows_with_every_mutation(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let mut seen = vec![(world.attributes(work).await.change, world.attributes(file).await.change)];
    // The clock goes backwards; change and the directory's times do not.
    world.clock.set(world.clock.seconds() - 500);
    let mtime = world.attributes(work).await.mtime;
    world.names.link(&alice(), file, work, &name("b")).await.unwrap();
    seen.push((world.attributes(work).await.change, world.attributes(file).await.change));
    world.rename(&alice(), (work, "b"), (work, "c")).await.unwrap();
    seen.push((world.attributes(work).await.change, world.attributes(file).await.change));
    world.unlink(&alice(), work, "c").await.unwrap();
    seen.push((world.attributes(work).await.change, world.attributes(file).await.change));
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "{seen:?}");
    assert_eq!(world.attributes(work).await.mtime, mtime);
}

pub async fn the_parent_of_a_directory_follows_its_moves(world: World) {
    let work = world.work().await;
    refused!(world.names.parent(&alice(), FileId::ROOT).await, NamespaceError::NotFound);
    assert_eq!(world.names.parent(&alice(), work).await.unwrap(), world.attributes(FileId::ROOT).await);
    let (a, b) = (world.dir(&alice(), work, "a").await, world.dir(&alice(), work, "b").await);
    assert_eq!(world.names.parent(&alice(), b).await.unwrap().file, work);
    world.rename(&alice(), (work, "b"), (a, "b")).await.unwrap();
    assert_eq!(world.names.parent(&alice(), b).await.unwrap().file, a);
    world.chmod(b, 0o700).await;
    refused!(world.names.parent(&bob(), b).await, NamespaceError::AccessDenied);
    let file = world.file(&alice(), work, "f").await;
    refused!(world.names.parent(&alice(), file).await, NamespaceError::NotDirectory);
}
