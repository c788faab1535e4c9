//! Creation and lookup.

use api::{CreateKind, CreateMode, CreateSpec, NamespaceError, SetAttributes, SetTime};
use types::{Device, FileId, FileKind, Identity, Name, SymlinkTarget};

use super::{World, alice, at, bob, name, root, spec};
use crate::refused;

pub async fn a_created_file_is_found_with_its_attributes(world: World) {
    let work = world.work().await;
    let created = world.make(&alice(), work, "a", CreateKind::Regular, 0o640).await;
    assert!(created.is_new);
    let found = world.lookup(work, "a").await.unwrap();
    assert_eq!(found, created.attributes);
    assert_eq!((found.uid, found.gid, found.mode, found.nlink, found.size), (10, 100, 0o640, 1, 0));
    assert_eq!(found.kind, FileKind::Regular);
    assert_eq!(world.attributes(found.file).await, found);
}

pub async fn a_name_that_is_not_there_is_not_found(world: World) {
    let work = world.work().await;
    for _ in 0..2 {
        refused!(world.lookup(work, "a").await, NamespaceError::NotFound);
    }
    let file = world.file(&root(), work, "a").await;
    assert_eq!(world.lookup(work, "a").await.unwrap().file, file);
}

pub async fn a_missing_directory_is_stale_and_a_file_is_no_directory(world: World) {
    let work = world.work().await;
    let nowhere = FileId(u64::MAX / 4);
    refused!(world.lookup(nowhere, "a").await, NamespaceError::Stale(_));
    refused!(world.names.attributes(nowhere).await, NamespaceError::Stale(_));
    let regular = spec(CreateKind::Regular, 0o644);
    refused!(world.names.create(&root(), nowhere, &name("a"), &regular).await, NamespaceError::Stale(_));
    let file = world.file(&root(), work, "f").await;
    refused!(world.lookup(file, "a").await, NamespaceError::NotDirectory);
    refused!(world.names.create(&root(), file, &name("a"), &regular).await, NamespaceError::NotDirectory);
}

pub async fn a_look_up_tells_of_the_directory_too(world: World) {
    let work = world.work().await;
    for text in ["a", "b", "c"] {
        world.clock.advance(5);
        let made = world.make(&alice(), work, text, CreateKind::Regular, 0o644).await;
        let found = world.names.lookup(&alice(), work, &name("a")).await.unwrap();
        assert_eq!(found.dir, world.attributes(work).await);
        assert_eq!(
            found.dir.change, made.parent.after,
            "as it is by now, and not as it was when it had one entry"
        );
        assert_eq!(found.entry, world.lookup(work, "a").await.unwrap());
    }
}

pub async fn a_look_up_in_a_file_or_link_says_so_to_callers_without_permission_too(world: World) {
    let work = world.work().await;
    let file = world.make(&alice(), work, "f", CreateKind::Regular, 0o600).await.attributes.file;
    let target = CreateKind::Symlink(SymlinkTarget::new(b"f").unwrap());
    let link = world.make(&alice(), work, "l", target, 0o777).await.attributes.file;
    for no_directory in [file, link] {
        let found = world.names.lookup(&bob(), no_directory, &name("a")).await;
        refused!(found, NamespaceError::NotDirectory);
    }
}

pub async fn creating_moves_the_times_and_change_of_the_directory(world: World) {
    let work = world.work().await;
    let before = world.attributes(work).await;
    world.clock.advance(5);
    let created = world.make(&alice(), work, "a", CreateKind::Regular, 0o600).await;
    let after = world.attributes(work).await;
    assert_eq!((created.parent.before, created.parent.after), (before.change, after.change));
    assert!(after.change > before.change);
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    assert_eq!(after.atime, before.atime);
}

pub async fn guarded_creation_refuses_a_name_of_any_kind(world: World) {
    let work = world.work().await;
    world.file(&alice(), work, "file").await;
    world.dir(&alice(), work, "dir").await;
    for existing in ["file", "dir"] {
        for kind in [CreateKind::Regular, CreateKind::Directory, CreateKind::Fifo] {
            let made = world.names.create(&alice(), work, &name(existing), &spec(kind, 0o644)).await;
            refused!(made, NamespaceError::Exists);
        }
    }
}

pub async fn unchecked_creation_returns_the_existing_file_untouched(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let dir = world.dir(&alice(), work, "d").await;
    let before = (world.attributes(work).await, world.attributes(file).await);
    world.clock.advance(5);
    let unchecked = CreateSpec { mode: CreateMode::Unchecked, ..spec(CreateKind::Regular, 0o777) };
    let created = world.names.create(&alice(), work, &name("a"), &unchecked).await.unwrap();
    assert!(!created.is_new);
    assert_eq!(created.attributes, before.1);
    assert_eq!(created.parent.before, created.parent.after);
    assert_eq!((world.attributes(work).await, world.attributes(file).await), before);
    // Of another kind: the door sees what it is.
    let created = world.names.create(&alice(), work, &name("d"), &unchecked).await.unwrap();
    assert_eq!((created.attributes.file, created.is_new), (dir, false));
}

pub async fn a_repeated_exclusive_creation_finds_its_own_file(world: World) {
    let work = world.work().await;
    let exclusive = |verifier| CreateSpec {
        mode: CreateMode::Exclusive { verifier },
        ..spec(CreateKind::Regular, 0o644)
    };
    let first = world.names.create(&alice(), work, &name("a"), &exclusive(*b"verify-1")).await.unwrap();
    let again = world.names.create(&alice(), work, &name("a"), &exclusive(*b"verify-1")).await.unwrap();
    assert_eq!((first.is_new, again.is_new), (true, false));
    assert_eq!(first.attributes, again.attributes);
    let other = world.names.create(&alice(), work, &name("a"), &exclusive(*b"verify-2")).await;
    refused!(other, NamespaceError::Exists);
    world.file(&alice(), work, "b").await;
    refused!(
        world.names.create(&alice(), work, &name("b"), &exclusive([0; 8])).await,
        NamespaceError::Exists
    );
}

pub async fn creation_needs_write_and_search_permission(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    let regular = spec(CreateKind::Regular, 0o644);
    for mode in [0o700, 0o705, 0o706, 0o704] {
        world.chmod(dir, mode).await;
        refused!(world.names.create(&bob(), dir, &name("a"), &regular).await, NamespaceError::AccessDenied);
    }
    world.chmod(dir, 0o703).await;
    assert!(world.names.create(&bob(), dir, &name("a"), &regular).await.is_ok());
    let friend = Identity::new(30, 300, &[7, 100]);
    world.chmod(dir, 0o777 & !0o020).await;
    refused!(world.names.create(&friend, dir, &name("b"), &regular).await, NamespaceError::AccessDenied);
    world.chmod(dir, 0o730).await;
    assert!(world.names.create(&friend, dir, &name("b"), &regular).await.is_ok());
}

pub async fn an_existing_name_needs_search_permission_only(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.file(&alice(), dir, "a").await;
    let unchecked = CreateSpec { mode: CreateMode::Unchecked, ..spec(CreateKind::Regular, 0o644) };
    world.chmod(dir, 0o701).await;
    assert!(world.names.create(&bob(), dir, &name("a"), &unchecked).await.is_ok());
    let guarded = spec(CreateKind::Regular, 0o644);
    refused!(world.names.create(&bob(), dir, &name("a"), &guarded).await, NamespaceError::Exists);
    assert!(world.names.lookup(&bob(), dir, &name("a")).await.is_ok());
    world.chmod(dir, 0o706).await;
    refused!(world.names.create(&bob(), dir, &name("a"), &unchecked).await, NamespaceError::AccessDenied);
    refused!(world.names.lookup(&bob(), dir, &name("a")).await, NamespaceError::AccessDenied);
}

pub async fn a_set_gid_directory_hands_its_group_down(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.chmod(dir, 0o2777).await;
    let file = world.make(&bob(), dir, "f", CreateKind::Regular, 0o644).await.attributes;
    assert_eq!((file.uid, file.gid, file.mode), (20, 100, 0o644));
    let sub = world.make(&bob(), dir, "s", CreateKind::Directory, 0o755).await.attributes;
    assert_eq!((sub.gid, sub.mode), (100, 0o2755));
}

pub async fn a_file_for_a_strange_group_is_not_made_set_gid(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.chmod(dir, 0o2777).await;
    let strange = world.make(&bob(), dir, "bob", CreateKind::Regular, 0o2755).await.attributes;
    assert_eq!((strange.gid, strange.mode), (100, 0o755));
    let own = world.make(&alice(), dir, "alice", CreateKind::Regular, 0o2755).await.attributes;
    assert_eq!((own.gid, own.mode), (100, 0o2755));
}

pub async fn symbolic_links_keep_their_target(world: World) {
    let work = world.work().await;
    let target = SymlinkTarget::new(b"../\xff\xfe/somewhere").unwrap();
    let link = world.make(&alice(), work, "l", CreateKind::Symlink(target.clone()), 0o600).await.attributes;
    assert_eq!((link.kind, link.mode, link.size), (FileKind::Symlink, 0o777, 15));
    assert_eq!(world.names.read_link(link.file).await.unwrap(), target);
    let file = world.file(&alice(), work, "f").await;
    refused!(world.names.read_link(file).await, NamespaceError::NotSymlink);
    world.unlink(&alice(), work, "l").await.unwrap();
    refused!(world.names.read_link(link.file).await, NamespaceError::Stale(_));
}

pub async fn devices_fifos_and_sockets_keep_their_kind(world: World) {
    let work = world.work().await;
    let device = Device { major: 259, minor: 1_048_575 };
    let kinds = [
        ("b", CreateKind::BlockDevice(device), FileKind::BlockDevice(device)),
        ("c", CreateKind::CharacterDevice(device), FileKind::CharacterDevice(device)),
        ("p", CreateKind::Fifo, FileKind::Fifo),
        ("s", CreateKind::Socket, FileKind::Socket),
    ];
    for (text, kind, expected) in kinds {
        world.make(&root(), work, text, kind, 0o660).await;
        assert_eq!(world.lookup(work, text).await.unwrap().kind, expected);
    }
}

pub async fn a_directory_counts_its_subdirectories(world: World) {
    let work = world.work().await;
    let top = world.dir(&alice(), work, "top").await;
    assert_eq!(world.attributes(top).await.nlink, 2);
    world.dir(&alice(), top, "a").await;
    world.dir(&alice(), top, "b").await;
    world.file(&alice(), top, "f").await;
    assert_eq!(world.attributes(top).await.nlink, 4);
    world.unlink(&alice(), top, "a").await.unwrap();
    assert_eq!(world.attributes(top).await.nlink, 3);
}

pub async fn creation_sets_attributes_in_the_same_step(world: World) {
    let work = world.work().await;
    let set = SetAttributes {
        size: Some(4096),
        mtime: Some(SetTime::To(at(77))),
        atime: Some(SetTime::To(at(78))),
        ..SetAttributes::default()
    };
    let spec = CreateSpec { set, ..spec(CreateKind::Regular, 0o400) };
    let made = world.names.create(&alice(), work, &name("a"), &spec).await.unwrap().attributes;
    assert_eq!((made.size, made.mtime, made.atime, made.mode), (4096, at(77), at(78), 0o400));
    assert_eq!(world.attributes(made.file).await, made);
}

pub async fn only_root_creates_for_another_owner(world: World) {
    let work = world.work().await;
    let set = SetAttributes { uid: Some(20), gid: Some(200), ..SetAttributes::default() };
    let spec = CreateSpec { set, ..spec(CreateKind::Regular, 0o644) };
    refused!(world.names.create(&alice(), work, &name("a"), &spec).await, NamespaceError::NotPermitted);
    refused!(world.lookup(work, "a").await, NamespaceError::NotFound);
    let made = world.names.create(&root(), work, &name("a"), &spec).await.unwrap().attributes;
    assert_eq!((made.uid, made.gid), (20, 200));
}

pub async fn names_are_bytes(world: World) {
    let work = world.work().await;
    let long = [b'x'; Name::BYTES_MAX];
    let names: [&[u8]; 5] = [b"\xff\xfe", "gr\u{fc}n".as_bytes(), b" ", b"...", &long];
    for bytes in names {
        let name = Name::new(bytes).unwrap();
        let regular = spec(CreateKind::Regular, 0o644);
        let made = world.names.create(&alice(), work, &name, &regular).await.unwrap().attributes;
        assert_eq!(world.names.lookup(&alice(), work, &name).await.unwrap().entry, made);
    }
    let page = world.names.list(&root(), work, api::Cookie::START, 10).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.name.as_bytes()).collect::<Vec<_>>(), names);
}
