//! Properties of files, and the checksums that are known of their data.

use api::uploads::{PROPERTIES_BYTES_MAX, PROPERTIES_LEN_MAX, PROPERTY_NAME_BYTES_MAX};
use api::{
    CreateKind, NamespaceError, Property, PropertyChange, Replace, SetAttributes, SetTime, Stability, Written,
};
use bytes::Bytes;
use types::{Attributes, Checksum, ChecksumKind, FileId, Identity};

use super::uploads::{complete, sum};
use super::{World, alice, at, bob, name, root, written};
use crate::refused;

fn property(name: &str, value: &'static [u8]) -> Property {
    Property { name: name.to_owned(), value: Bytes::from_static(value) }
}

fn set(name: &str, value: &'static [u8]) -> PropertyChange {
    PropertyChange::Set(property(name, value))
}

fn remove(name: &str) -> PropertyChange {
    PropertyChange::Remove(name.to_owned())
}

fn size(size: u64) -> SetAttributes {
    SetAttributes { size: Some(size), ..SetAttributes::default() }
}

impl World {
    async fn patch(
        &self,
        who: &Identity,
        file: FileId,
        changes: &[PropertyChange],
    ) -> Result<Attributes, NamespaceError> {
        self.properties.set_properties(who, file, changes).await
    }

    /// By name.
    async fn known(&self, file: FileId) -> Vec<Property> {
        let mut known = self.properties.properties(file).await.unwrap();
        known.sort_by(|a, b| a.name.cmp(&b.name));
        known
    }

    async fn sums(&self, file: FileId) -> Vec<Checksum> {
        self.properties.checksums(file).await.unwrap()
    }

    /// A published file of ten bytes with a checksum.
    async fn summed(&self, dir: FileId, text: &str) -> FileId {
        let published = self.publish(&alice(), (dir, text), &complete(10, Replace::Any)).await.unwrap();
        assert_eq!(self.sums(published.attributes.file).await, [sum(1)]);
        published.attributes.file
    }
}

pub async fn properties_are_kept_to_the_byte(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    assert!(world.known(file).await.is_empty());
    let changes = [set("{DAV:}empty", b""), set("{urn:x}b\u{e9}ta", b"<a>\0\xff</a>"), set("", b"no name")];
    world.patch(&alice(), file, &changes).await.unwrap();
    let expected = [
        property("", b"no name"),
        property("{DAV:}empty", b""),
        property("{urn:x}b\u{e9}ta", b"<a>\0\xff</a>"),
    ];
    assert_eq!(world.known(file).await, expected);
    refused!(world.properties.properties(FileId(u64::MAX / 4)).await, NamespaceError::Stale(_));
    let nowhere = FileId(u64::MAX / 4);
    refused!(world.patch(&root(), nowhere, &changes).await, NamespaceError::Stale(_));
}

pub async fn changes_of_properties_apply_in_order(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let changes = [set("a", b"1"), set("b", b"1"), set("a", b"2"), remove("b"), remove("c"), set("c", b"3")];
    world.patch(&alice(), file, &changes).await.unwrap();
    assert_eq!(world.known(file).await, [property("a", b"2"), property("c", b"3")]);
    world.patch(&alice(), file, &[remove("nothing"), remove("a"), remove("c")]).await.unwrap();
    assert!(world.known(file).await.is_empty());
    world.patch(&alice(), file, &[set("a", b"9")]).await.unwrap();
    assert_eq!(world.known(file).await, [property("a", b"9")]);
}

pub async fn changing_properties_moves_change_and_ctime_and_no_other_time(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let before = world.attributes(file).await;
    world.clock.advance(5);
    assert_eq!(world.patch(&alice(), file, &[]).await.unwrap(), before);
    let after = world.patch(&alice(), file, &[remove("nothing")]).await.unwrap();
    assert!(after.change > before.change);
    let expected = Attributes { change: after.change, ctime: at(1_000_005), ..before };
    assert_eq!(after, expected);
    assert_eq!(world.lookup(work, "a").await.unwrap(), after);
}

pub async fn properties_are_for_the_owner_and_for_writers(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    refused!(world.patch(&bob(), file, &[set("a", b"1")]).await, NamespaceError::AccessDenied);
    world.chmod(file, 0o006).await;
    assert!(world.patch(&bob(), file, &[set("a", b"2")]).await.is_ok());
    world.chmod(file, 0).await;
    assert!(world.patch(&alice(), file, &[set("b", b"2")]).await.is_ok());
    assert!(world.patch(&root(), file, &[set("c", b"2")]).await.is_ok());
    assert_eq!(world.known(file).await.len(), 3);
}

pub async fn properties_beyond_their_bounds_are_refused_as_a_whole(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.patch(&alice(), file, &[set("kept", b"1")]).await.unwrap();
    let before = world.attributes(file).await;
    let sized = |name: &str, bytes: usize| {
        PropertyChange::Set(Property { name: name.to_owned(), value: vec![b'x'; bytes].into() })
    };
    let rest = PROPERTIES_BYTES_MAX - "kept1".len() - "n".len();
    let many = |len: usize| -> Vec<_> { (0..len).map(|number| sized(&number.to_string(), 0)).collect() };
    let too_long = "n".repeat(PROPERTY_NAME_BYTES_MAX + 1);
    for changes in
        [vec![set("b", b"1"), sized("n", rest)], vec![sized(&too_long, 0)], many(PROPERTIES_LEN_MAX)]
    {
        refused!(world.patch(&alice(), file, &changes).await, NamespaceError::NoSpace);
        assert_eq!(world.known(file).await, [property("kept", b"1")]);
        assert_eq!(world.attributes(file).await, before);
    }
    // The bound applies to the result of the changes, not to the states in between.
    world.patch(&alice(), file, &[sized("n", rest + 1), sized("n", rest)]).await.unwrap();
    refused!(world.patch(&alice(), file, &[set("m", b"")]).await, NamespaceError::NoSpace);
    world.patch(&alice(), file, &[remove("n"), remove("kept"), sized(&too_long[1..], 1)]).await.unwrap();
    world.patch(&alice(), file, &many(PROPERTIES_LEN_MAX - 1)).await.unwrap();
    assert_eq!(world.known(file).await.len(), PROPERTIES_LEN_MAX);
}

pub async fn properties_follow_the_file_not_the_name(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.patch(&alice(), file, &[set("a", b"1")]).await.unwrap();
    world.rename(&alice(), (work, "a"), (work, "b")).await.unwrap();
    world.names.link(&alice(), file, work, &name("c")).await.unwrap();
    world.unlink(&alice(), work, "b").await.unwrap();
    assert_eq!(world.known(file).await, [property("a", b"1")]);
    world.names.record_write(file, &written(5, Stability::FileSync)).await.unwrap();
    world.unlink(&alice(), work, "c").await.unwrap();
    assert_eq!(world.known(file).await, [property("a", b"1")], "somebody may have it open");
    world.locations.forget(&[file]).await.unwrap();
    refused!(world.properties.properties(file).await, NamespaceError::Stale(_));
}

pub async fn every_kind_of_file_may_have_properties(world: World) {
    let work = world.work().await;
    for (text, kind) in [("d", CreateKind::Directory), ("p", CreateKind::Fifo)] {
        let file = world.make(&alice(), work, text, kind, 0o755).await.attributes.file;
        world.patch(&alice(), file, &[set("a", b"1")]).await.unwrap();
        assert_eq!(world.known(file).await, [property("a", b"1")]);
        world.unlink(&alice(), work, text).await.unwrap();
        refused!(world.properties.properties(file).await, NamespaceError::Stale(_));
    }
}

pub async fn recorded_checksums_are_added_to_those_known(world: World) {
    let work = world.work().await;
    let file = world.summed(work, "a").await;
    let before = world.attributes(file).await;
    world.clock.advance(5);
    let md5 = Checksum::new(ChecksumKind::Md5, &[7; 16]).unwrap();
    let crc32c = Checksum::new(ChecksumKind::Crc32c, &[1, 2, 3, 4]).unwrap();
    assert!(world.properties.record_checksums(file, before.change, &[md5, sum(9), crc32c]).await.unwrap());
    let mut found = world.sums(file).await;
    found.sort_by_key(Checksum::kind);
    assert_eq!(found, [sum(9), crc32c, md5]);
    assert_eq!(world.attributes(file).await, before, "nothing of the file changed");
    assert!(world.properties.record_checksums(file, before.change, &[]).await.unwrap());
    assert_eq!(world.sums(file).await.len(), 3);
    let dir = world.attributes(work).await;
    let recorded = world.properties.record_checksums(work, dir.change, &[md5]).await;
    refused!(recorded, NamespaceError::IsDirectory);
    refused!(world.properties.checksums(FileId(u64::MAX / 4)).await, NamespaceError::Stale(_));
}

pub async fn checksums_of_an_older_state_are_not_recorded(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let change = world.names.record_write(file, &written(5, Stability::FileSync)).await.unwrap().change;
    for stability in [Stability::Unstable, Stability::FileSync] {
        world.names.record_write(file, &written(5, stability)).await.unwrap();
        assert!(!world.properties.record_checksums(file, change, &[sum(1)]).await.unwrap());
        assert!(world.sums(file).await.is_empty());
    }
    let change = world.attributes(file).await.change;
    assert!(world.properties.record_checksums(file, change, &[sum(1)]).await.unwrap());
    assert_eq!(world.sums(file).await, [sum(1)]);
}

pub async fn every_change_of_the_data_forgets_its_checksums(world: World) {
    let work = world.work().await;
    for stability in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
        // Also within the size that it has.
        let file = world.summed(work, "a").await;
        world.names.record_write(file, &written(3, stability)).await.unwrap();
        assert!(world.sums(file).await.is_empty(), "{stability:?}");
    }
    for to in [0, 10, 100] {
        let file = world.summed(work, "a").await;
        world.set(&alice(), file, size(to)).await.unwrap();
        assert!(world.sums(file).await.is_empty());
        // A checksum of the new data does not bring back those of the old data.
        let change = world.attributes(file).await.change;
        let md5 = Checksum::new(ChecksumKind::Md5, &[7; 16]).unwrap();
        assert!(world.properties.record_checksums(file, change, &[md5]).await.unwrap());
        assert_eq!(world.sums(file).await, [md5]);
    }
}

pub async fn checksums_are_forgotten_before_a_pool_is_written(world: World) {
    let work = world.work().await;
    let file = world.summed(work, "a").await;
    let before = world.attributes(file).await;
    world.clock.advance(5);
    world.properties.forget_checksums(file).await.unwrap();
    assert!(world.sums(file).await.is_empty());
    let after = world.attributes(file).await;
    assert!(after.change > before.change);
    assert_eq!(Attributes { change: before.change, ..after }, before);
    // There is nothing more to forget.
    for file in [file, work] {
        let before = world.attributes(file).await;
        world.properties.forget_checksums(file).await.unwrap();
        assert_eq!(world.attributes(file).await, before);
    }
    assert!(!world.properties.record_checksums(file, before.change, &[sum(1)]).await.unwrap());
    refused!(world.properties.forget_checksums(FileId(u64::MAX / 4)).await, NamespaceError::Stale(_));
}

pub async fn a_refused_truncation_forgets_nothing(world: World) {
    let work = world.work().await;
    let file = world.summed(work, "a").await;
    refused!(world.set(&bob(), file, size(0)).await, NamespaceError::AccessDenied);
    assert_eq!(world.sums(file).await, [sum(1)]);
}

pub async fn operations_that_leave_the_data_alone_keep_its_checksums(world: World) {
    let work = world.work().await;
    let file = world.summed(work, "a").await;
    let none = SetAttributes::default();
    world.chmod(file, 0o600).await;
    world.set(&alice(), file, SetAttributes { mtime: Some(SetTime::To(at(5))), ..none }).await.unwrap();
    world.rename(&alice(), (work, "a"), (work, "b")).await.unwrap();
    world.names.link(&alice(), file, work, &name("c")).await.unwrap();
    world.patch(&alice(), file, &[set("a", b"1")]).await.unwrap();
    world.locations.raise_epoch(file).await.unwrap();
    let idle =
        Written { size_at_least: None, mtime: None, space_used: Some(9), stability: Stability::Unstable };
    world.names.record_write(file, &idle).await.unwrap();
    world.unlink(&alice(), work, "b").await.unwrap();
    assert_eq!(world.sums(file).await, [sum(1)]);
}

pub async fn a_published_file_has_the_checksums_it_was_published_with(world: World) {
    let work = world.work().await;
    let old = world.summed(work, "a").await;
    let file = world.unnamed(&alice(), work).await;
    let sha = Checksum::new(ChecksumKind::Sha256, &[7; 32]).unwrap();
    assert!(world.properties.record_checksums(file.file, file.change, &[sha]).await.unwrap());
    let mut how = complete(5, Replace::Any);
    how.checksums = vec![sum(3), sum(5)];
    world.uploads.publish(&alice(), file.file, work, &name("a"), &how).await.unwrap();
    assert_eq!(world.sums(file.file).await, [sum(5)]);
    assert_eq!(world.sums(old).await, [sum(1)]);
    let mut how = complete(5, Replace::Any);
    how.checksums = vec![];
    let plain = world.publish(&alice(), (work, "a"), &how).await.unwrap().attributes.file;
    assert!(world.sums(plain).await.is_empty());
}
