//! Files without a name, and how they get one.

use std::pin::Pin;
use std::task::Poll;

use api::{
    CreateKind, NamespaceError, Property, PropertyChange, Publish, Published, Replace, SetAttributes,
    Stability, Unnamed,
};
use types::{Attributes, Checksum, ChecksumKind, FileId, Identity, PoolId, SymlinkTarget};

use super::{World, alice, at, bob, name, placed, root, written};
use crate::refused;

const POOL: PoolId = PoolId(4);

pub fn complete(size: u64, replace: Replace) -> Publish {
    Publish { size, space_used: 4096, mtime: None, checksums: vec![sum(1)], replace }
}

pub fn sum(first: u8) -> Checksum {
    Checksum::new(ChecksumKind::Adler32, &[first, 2, 3, 4]).unwrap()
}

impl World {
    pub async fn unnamed(&self, who: &Identity, dir: FileId) -> Attributes {
        let new = Unnamed { permissions: 0o644, location: POOL };
        self.uploads.create_unnamed(who, dir, &new).await.unwrap()
    }

    pub async fn publish(
        &self,
        who: &Identity,
        (dir, text): (FileId, &str),
        how: &Publish,
    ) -> Result<Published, NamespaceError> {
        let file = self.unnamed(who, dir).await.file;
        self.uploads.publish(who, file, dir, &name(text), how).await
    }

    async fn orphans(&self) -> Vec<FileId> {
        let orphans = self.locations.orphans(FileId(0), 1000).await.unwrap();
        orphans.iter().map(|orphan| orphan.attributes.file).collect()
    }
}

pub async fn an_unnamed_file_has_a_place_and_no_name(world: World) {
    let work = world.work().await;
    let before = world.attributes(work).await;
    world.clock.advance(5);
    let made = world.unnamed(&alice(), work).await;
    assert_eq!((made.nlink, made.size, made.mode, made.uid, made.gid), (0, 0, 0o644, 10, 100));
    assert_eq!((made.mtime, made.birth), (at(1_000_005), at(1_000_005)));
    assert_eq!(world.attributes(made.file).await, made);
    let expected = placed(&[(POOL, at(world.clock.seconds()))]);
    assert_eq!(world.locality(made.file).await, expected);
    assert_eq!(world.attributes(work).await, before, "nothing is to be seen of it");
    assert_eq!(world.orphans().await, [made.file]);
}

pub async fn an_unnamed_file_needs_what_a_creation_needs(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    let file = world.file(&alice(), work, "a").await;
    let new = Unnamed { permissions: 0o644, location: POOL };
    for mode in [0o705, 0o706] {
        world.chmod(dir, mode).await;
        refused!(world.uploads.create_unnamed(&bob(), dir, &new).await, NamespaceError::AccessDenied);
    }
    world.chmod(dir, 0o703).await;
    assert!(world.uploads.create_unnamed(&bob(), dir, &new).await.is_ok());
    refused!(world.uploads.create_unnamed(&bob(), file, &new).await, NamespaceError::NotDirectory);
    let nowhere = FileId(u64::MAX / 4);
    refused!(world.uploads.create_unnamed(&bob(), nowhere, &new).await, NamespaceError::Stale(_));
}

pub async fn an_unnamed_file_gets_the_group_of_a_set_gid_directory(world: World) {
    let work = world.work().await;
    world.chmod(work, 0o2777).await;
    world.set(&root(), work, SetAttributes { gid: Some(101), ..SetAttributes::default() }).await.unwrap();
    assert_eq!(world.unnamed(&alice(), work).await.gid, 101);
    let published = world.publish(&bob(), (work, "a"), &complete(1, Replace::Never)).await.unwrap();
    assert_eq!((published.attributes.uid, published.attributes.gid), (20, 101));
}

pub async fn an_unnamed_file_that_is_given_up_is_forgotten(world: World) {
    let work = world.work().await;
    let before = world.names.usage().await.unwrap();
    let file = world.unnamed(&alice(), work).await.file;
    assert_eq!(world.names.usage().await.unwrap().files, before.files + 1);
    world.names.record_write(file, &written(70, Stability::Unstable)).await.unwrap();
    refused!(world.names.link(&alice(), file, work, &name("b")).await, NamespaceError::NotFound);
    world.locations.forget(&[file]).await.unwrap();
    refused!(world.names.attributes(file).await, NamespaceError::Stale(_));
    let how = complete(1, Replace::Any);
    refused!(world.uploads.publish(&alice(), file, work, &name("a"), &how).await, NamespaceError::Stale(_));
    assert_eq!(world.names.usage().await.unwrap(), before);
}

pub async fn a_published_file_shows_name_size_times_and_checksums_together(world: World) {
    let work = world.work().await;
    refused!(world.lookup(work, "a").await, NamespaceError::NotFound);
    let unnamed = world.unnamed(&alice(), work).await;
    world.names.record_write(unnamed.file, &written(7, Stability::Unstable)).await.unwrap();
    let before = world.attributes(work).await;
    world.clock.advance(9);
    let how = Publish { mtime: Some(at(-77)), ..complete(1000, Replace::Never) };
    let published = world.uploads.publish(&alice(), unnamed.file, work, &name("a"), &how).await.unwrap();
    let shown = published.attributes;
    assert_eq!((shown.file, shown.nlink, shown.size, shown.space_used), (unnamed.file, 1, 1000, 4096));
    assert_eq!((shown.mtime, shown.ctime, shown.birth), (at(-77), at(1_000_009), at(1_000_000)));
    assert!(shown.change > unnamed.change);
    assert_eq!(world.lookup(work, "a").await.unwrap(), shown);
    assert_eq!(world.attributes(unnamed.file).await, shown);
    assert_eq!(world.properties.checksums(shown.file).await.unwrap(), [sum(1)]);
    let after = world.attributes(work).await;
    assert_eq!((published.parent.before, published.parent.after), (before.change, after.change));
    assert!(published.parent.atomic && after.change > before.change && after.mtime == at(1_000_009));
    assert_eq!(published.replaced, None);
    assert!(world.orphans().await.is_empty());
    assert_eq!(world.locality(shown.file).await.pools().collect::<Vec<_>>(), [POOL]);
    let page = world.names.list(&root(), work, api::Cookie::START, 10).await.unwrap();
    assert_eq!(page.entries.iter().map(|entry| entry.attributes).collect::<Vec<_>>(), [shown]);
}

pub async fn a_file_published_without_a_time_gets_the_present_time(world: World) {
    let work = world.work().await;
    let file = world.unnamed(&alice(), work).await.file;
    world.clock.advance(9);
    let how = complete(0, Replace::Never);
    let shown = world.uploads.publish(&alice(), file, work, &name("a"), &how).await.unwrap().attributes;
    assert_eq!(shown.mtime, at(1_000_009));
}

pub async fn a_file_is_published_once(world: World) {
    let work = world.work().await;
    let file = world.unnamed(&alice(), work).await.file;
    let how = complete(5, Replace::Any);
    world.uploads.publish(&alice(), file, work, &name("a"), &how).await.unwrap();
    let again = world.uploads.publish(&alice(), file, work, &name("b"), &how).await;
    refused!(again, NamespaceError::Stale(_));
    // Nor when it has lost that name, as other files have.
    world.unlink(&alice(), work, "a").await.unwrap();
    let again = world.uploads.publish(&alice(), file, work, &name("b"), &how).await;
    refused!(again, NamespaceError::Stale(_));
    for other in [work, world.file(&alice(), work, "c").await] {
        let published = world.uploads.publish(&root(), other, work, &name("b"), &how).await;
        refused!(published, NamespaceError::Stale(_));
    }
}

pub async fn a_name_that_must_be_free_is_not_replaced(world: World) {
    let work = world.work().await;
    let old = world.file(&alice(), work, "a").await;
    world.dir(&alice(), work, "d").await;
    let file = world.unnamed(&alice(), work).await.file;
    let how = complete(5, Replace::Never);
    for taken in ["a", "d"] {
        let published = world.uploads.publish(&alice(), file, work, &name(taken), &how).await;
        refused!(published, NamespaceError::Exists);
    }
    assert_eq!(world.lookup(work, "a").await.unwrap().file, old);
    // It was refused, not used up.
    assert!(world.uploads.publish(&alice(), file, work, &name("b"), &how).await.is_ok());
}

pub async fn exactly_one_state_is_replaced(world: World) {
    let work = world.work().await;
    let old = world.file(&alice(), work, "a").await;
    let change = world.attributes(old).await.change;
    let exactly = |file, change| complete(5, Replace::Exactly { file, change });
    let file = world.unnamed(&alice(), work).await.file;
    let publish =
        async |text: &str, how: Publish| world.uploads.publish(&alice(), file, work, &name(text), &how).await;
    refused!(publish("b", exactly(old, change)).await, NamespaceError::Exists);
    refused!(publish("a", exactly(file, change)).await, NamespaceError::Exists);
    refused!(publish("a", exactly(old, change - 1)).await, NamespaceError::Exists);
    // A write that is not on disk yet counts.
    let shown = world.names.record_write(old, &written(9, Stability::Unstable)).await.unwrap();
    refused!(publish("a", exactly(old, change)).await, NamespaceError::Exists);
    let published = publish("a", exactly(old, shown.change)).await.unwrap();
    assert_eq!(published.replaced.unwrap().file, old);
}

pub async fn one_file_in_whatever_state_is_replaced(world: World) {
    let work = world.work().await;
    let old = world.file(&alice(), work, "a").await;
    let file = world.unnamed(&alice(), work).await.file;
    let publish = async |text: &str, replaced| {
        let how = complete(5, Replace::File(replaced));
        world.uploads.publish(&alice(), file, work, &name(text), &how).await
    };
    refused!(publish("b", old).await, NamespaceError::Exists);
    refused!(publish("a", file).await, NamespaceError::Exists);
    world.names.record_write(old, &written(9, Stability::Unstable)).await.unwrap();
    assert_eq!(publish("a", old).await.unwrap().replaced.unwrap().file, old);
}

pub async fn a_replaced_file_hands_on_owner_mode_and_properties(world: World) {
    let work = world.work().await;
    let old = world.file(&alice(), work, "a").await;
    world.chmod(old, 0o6676).await;
    let property = Property { name: "colour".to_owned(), value: "red".into() };
    let set = [PropertyChange::Set(property.clone())];
    for _ in 0..5 {
        world.properties.set_properties(&alice(), old, &set).await.unwrap();
    }
    let before = world.names.record_write(old, &written(9, Stability::Unstable)).await.unwrap();
    world.chmod(old, 0o6676).await;
    world.clock.advance(5);
    let published = world.publish(&bob(), (work, "a"), &complete(5, Replace::Any)).await.unwrap();
    let (shown, replaced) = (published.attributes, published.replaced.unwrap());
    assert_eq!((shown.mode, shown.uid, shown.gid, shown.size), (0o676, 10, 100, 5));
    assert_eq!(shown.birth, at(1_000_005));
    assert!(shown.change > before.change, "who caches by it must see the new contents");
    assert_eq!((replaced.file, replaced.nlink, replaced.size), (old, 0, 9));
    assert_eq!(world.attributes(old).await, replaced);
    assert_eq!(world.orphans().await, [old]);
    let properties = async |file| world.properties.properties(file).await.unwrap();
    let expected = [property];
    assert_eq!(properties(shown.file).await, expected);
    assert_eq!(properties(old).await, expected, "who has it open still sees it as it was");
    world.locations.forget(&[old]).await.unwrap();
    assert_eq!(properties(shown.file).await, expected);
}

pub async fn a_file_with_properties_of_its_own_keeps_them(world: World) {
    let work = world.work().await;
    let old = world.file(&alice(), work, "a").await;
    let property = |name: &str| Property { name: name.to_owned(), value: "x".into() };
    let set = |name| [PropertyChange::Set(property(name))];
    world.properties.set_properties(&alice(), old, &set("old")).await.unwrap();
    let file = world.unnamed(&alice(), work).await.file;
    world.properties.set_properties(&alice(), file, &set("new")).await.unwrap();
    let how = complete(5, Replace::Any);
    world.uploads.publish(&alice(), file, work, &name("a"), &how).await.unwrap();
    assert_eq!(world.properties.properties(file).await.unwrap(), [property("new")]);
}

pub async fn a_replaced_file_with_another_name_keeps_that(world: World) {
    let work = world.work().await;
    let old = world.file(&alice(), work, "a").await;
    world.names.link(&alice(), old, work, &name("b")).await.unwrap();
    let published = world.publish(&alice(), (work, "a"), &complete(5, Replace::Any)).await.unwrap();
    assert_eq!(published.replaced.unwrap().nlink, 1);
    assert_eq!(world.lookup(work, "b").await.unwrap().file, old);
    assert_ne!(world.lookup(work, "a").await.unwrap().file, old);
    assert!(world.orphans().await.is_empty());
}

pub async fn a_replaced_symbolic_link_hands_nothing_on(world: World) {
    let work = world.work().await;
    let target = SymlinkTarget::new(b"elsewhere").unwrap();
    let link = world.make(&alice(), work, "a", CreateKind::Symlink(target), 0o777).await.attributes;
    let published = world.publish(&bob(), (work, "a"), &complete(5, Replace::Any)).await.unwrap();
    let shown = published.attributes;
    assert_eq!((shown.mode, shown.uid, shown.gid), (0o644, 20, 200));
    assert!(shown.change > link.change);
    refused!(world.names.attributes(link.file).await, NamespaceError::Stale(_));
}

pub async fn an_upload_replaces_nothing_but_a_file(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.make(&alice(), work, "p", CreateKind::Fifo, 0o666).await;
    let how = complete(5, Replace::Any);
    refused!(world.publish(&alice(), (work, "d"), &how).await, NamespaceError::IsDirectory);
    refused!(world.publish(&alice(), (work, "p"), &how).await, NamespaceError::NotRegular);
    let change = world.attributes(dir).await.change;
    let how = complete(5, Replace::Exactly { file: dir, change });
    refused!(world.publish(&alice(), (work, "d"), &how).await, NamespaceError::IsDirectory);
}

pub async fn publishing_needs_permission_on_directory_and_file(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.chmod(dir, 0o777).await;
    let old = world.file(&alice(), dir, "a").await;
    let file = world.unnamed(&bob(), dir).await.file;
    let how = complete(5, Replace::Any);
    let publish = async |text: &str| world.uploads.publish(&bob(), file, dir, &name(text), &how).await;
    refused!(publish("a").await, NamespaceError::AccessDenied);
    world.chmod(old, 0o602).await;
    for mode in [0o706, 0o705] {
        world.chmod(dir, mode).await;
        for text in ["a", "b"] {
            refused!(publish(text).await, NamespaceError::AccessDenied);
        }
    }
    world.chmod(dir, 0o1777).await;
    refused!(publish("a").await, NamespaceError::NotPermitted);
    world.chmod(dir, 0o777).await;
    assert_eq!(publish("a").await.unwrap().attributes.uid, 10);
}

pub async fn a_directory_that_went_takes_no_published_file(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    let file = world.unnamed(&alice(), dir).await.file;
    world.unlink(&alice(), work, "d").await.unwrap();
    let how = complete(5, Replace::Any);
    let published = world.uploads.publish(&alice(), file, dir, &name("a"), &how).await;
    refused!(published, NamespaceError::Stale(gone) if gone == dir);
    assert_eq!(world.orphans().await, [file]);
}

/// Some replace, some must not; a reader sees one of them whole at any time.
pub async fn of_many_publishes_to_one_name_each_is_seen_whole(world: World) {
    const WRITERS: u64 = 40;
    let work = world.work().await;
    let first = complete(1000, Replace::Never);
    let first = world.publish(&alice(), (work, "a"), &Publish { checksums: vec![sum(0)], ..first }).await;
    let first = first.unwrap().attributes;
    let mut tasks: Vec<Pin<Box<dyn Future<Output = Option<Published>> + '_>>> = Vec::new();
    for number in 1..=WRITERS {
        let file = world.unnamed(&alice(), work).await.file;
        let exactly = Replace::Exactly { file: first.file, change: first.change };
        let replace = if number % 2 == 0 { Replace::Any } else { exactly };
        let how = Publish { checksums: vec![sum(number as u8)], ..complete(1000 + number, replace) };
        let world = &world;
        tasks.push(Box::pin(async move {
            world.uploads.publish(&alice(), file, work, &name("a"), &how).await.ok()
        }));
        tasks.push(Box::pin(async move {
            let seen = world.lookup(work, "a").await.unwrap();
            let number = u8::try_from(seen.size - 1000).unwrap();
            assert_eq!(world.properties.checksums(seen.file).await.unwrap(), [sum(number)]);
            None
        }));
    }
    let published = join(tasks).await;
    let done: Vec<_> = published.iter().flatten().collect();
    let replacing = WRITERS as usize / 2;
    assert!(done.len() == replacing || done.len() == replacing + 1, "one at most finds the first");
    // Each lost its name to exactly one other: the replaced ones and the last are all there were.
    let mut lost: Vec<_> = done.iter().map(|published| published.replaced.unwrap().file).collect();
    lost.sort();
    lost.dedup();
    assert_eq!(lost.len(), done.len());
    let last = world.lookup(work, "a").await.unwrap();
    assert!(!lost.contains(&last.file));
    let changes: Vec<_> = done.iter().map(|published| published.attributes.change).collect();
    assert_eq!(changes.iter().max(), Some(&last.change));
    assert_eq!(world.names.list(&root(), work, api::Cookie::START, 10).await.unwrap().entries.len(), 1);
}

/// All at once, in one task.
async fn join<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(value) = Pin::new(future).poll(context)
            {
                *output = Some(value);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}
