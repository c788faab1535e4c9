//! Extended attributes of users.

use api::{
    Cookie, CreateKind, NamespaceError, Property, PropertyChange, Replace, SetXattr, Stability,
    XATTR_BYTES_MAX, XATTR_NAMES_BYTES_MAX, XATTRS_BYTES_MAX,
};
use bytes::Bytes;
use types::{Attributes, ChangeInfo, FileId, Identity, SymlinkTarget, XattrName};

use super::uploads::complete;
use super::{World, alice, at, bob, name, root, written};
use crate::refused;

fn xattr(text: &str) -> XattrName {
    XattrName::new(text.as_bytes()).unwrap()
}

impl World {
    async fn set_xattr(
        &self,
        who: &Identity,
        file: FileId,
        (text, value): (&str, &'static str),
        how: SetXattr,
    ) -> Result<ChangeInfo, NamespaceError> {
        self.xattrs.set_xattr(who, file, &xattr(text), &value.into(), how).await
    }

    async fn put_xattr(&self, file: FileId, text: &str, value: &'static str) {
        self.set_xattr(&root(), file, (text, value), SetXattr::Either).await.unwrap();
    }

    async fn remove_xattr(
        &self,
        who: &Identity,
        file: FileId,
        text: &str,
    ) -> Result<ChangeInfo, NamespaceError> {
        self.xattrs.remove_xattr(who, file, &xattr(text)).await
    }

    /// As root sees it.
    async fn value(&self, file: FileId, text: &str) -> Result<Bytes, NamespaceError> {
        self.xattrs.xattr(&root(), file, &xattr(text)).await
    }

    /// Names and values in the order of the listing.
    async fn xattrs_of(&self, file: FileId) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let mut found = Vec::new();
        for listed in self.xattrs.xattrs(&root(), file, Cookie::START).await.unwrap() {
            let value = self.xattrs.xattr(&root(), file, &listed.name).await.unwrap();
            found.push((text(listed.name.as_bytes()), text(&value)));
        }
        found
    }
}

fn pairs<const LEN: usize>(pairs: [(&str, &str); LEN]) -> Vec<(String, String)> {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

pub async fn extended_attributes_are_kept_to_the_byte(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let values = [
        (&b"\xff\x01/ not utf-8"[..], Bytes::from_static(b"\0\xff\0")),
        (&[b'n'; XattrName::BYTES_MAX], Bytes::from(vec![0xfe; XATTR_BYTES_MAX])),
        (b"..", Bytes::new()),
    ];
    for (name, value) in &values {
        let name = XattrName::new(name).unwrap();
        world.xattrs.set_xattr(&alice(), file, &name, value, SetXattr::Create).await.unwrap();
    }
    for (name, value) in &values {
        let name = XattrName::new(name).unwrap();
        assert!(world.xattrs.xattr(&alice(), file, &name).await.unwrap() == value, "{name:?}");
    }
    let listed = world.xattrs.xattrs(&alice(), file, Cookie::START).await.unwrap();
    assert!(listed.iter().map(|listed| listed.name.as_bytes()).eq(values.iter().map(|(name, _)| *name)));
    let nowhere = FileId(u64::MAX / 4);
    refused!(world.value(nowhere, "a").await, NamespaceError::Stale(_));
    refused!(world.xattrs.xattrs(&root(), nowhere, Cookie::START).await, NamespaceError::Stale(_));
    refused!(world.remove_xattr(&root(), nowhere, "a").await, NamespaceError::Stale(_));
    let set = world.set_xattr(&root(), nowhere, ("a", "1"), SetXattr::Either).await;
    refused!(set, NamespaceError::Stale(_));
}

pub async fn an_extended_attribute_is_made_and_replaced_as_it_was_asked(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let before = world.attributes(file).await;
    refused!(world.value(file, "a").await, NamespaceError::NotFound);
    refused!(world.remove_xattr(&alice(), file, "a").await, NamespaceError::NotFound);
    let replaced = world.set_xattr(&alice(), file, ("a", "0"), SetXattr::Replace).await;
    refused!(replaced, NamespaceError::NotFound);
    assert_eq!(world.attributes(file).await, before);
    world.set_xattr(&alice(), file, ("a", "1"), SetXattr::Create).await.unwrap();
    let before = world.attributes(file).await;
    refused!(world.set_xattr(&alice(), file, ("a", "2"), SetXattr::Create).await, NamespaceError::Exists);
    assert_eq!(world.attributes(file).await, before);
    assert_eq!(world.value(file, "a").await.unwrap(), "1");
    refused!(world.value(file, "b").await, NamespaceError::NotFound);
    world.set_xattr(&alice(), file, ("a", "3"), SetXattr::Replace).await.unwrap();
    for value in ["4", "5"] {
        world.set_xattr(&alice(), file, ("b", value), SetXattr::Either).await.unwrap();
        assert_eq!(world.value(file, "b").await.unwrap(), value);
    }
    assert_eq!(world.xattrs_of(file).await, pairs([("a", "3"), ("b", "5")]));
    for text in ["a", "b"] {
        world.remove_xattr(&alice(), file, text).await.unwrap();
        refused!(world.remove_xattr(&alice(), file, text).await, NamespaceError::NotFound);
    }
    assert_eq!(world.xattrs_of(file).await, []);
    world.set_xattr(&alice(), file, ("a", "6"), SetXattr::Create).await.unwrap();
    assert_eq!(world.xattrs_of(file).await, pairs([("a", "6")]));
}

pub async fn changing_an_extended_attribute_moves_change_and_ctime_and_no_other_time(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let dir = world.dir(&alice(), work, "d").await;
    // Entries that came just before may not be in the directory's row yet.
    world.file(&alice(), dir, "b").await;
    for (file, times) in [(file, 0), (dir, 3)] {
        for step in 0..3 {
            let before = world.attributes(file).await;
            world.clock.advance(5);
            let told = match step {
                0 => world.set_xattr(&alice(), file, ("a", "1"), SetXattr::Create).await.unwrap(),
                1 => world.set_xattr(&alice(), file, ("a", "1"), SetXattr::Either).await.unwrap(),
                _ => world.remove_xattr(&alice(), file, "a").await.unwrap(),
            };
            let after = world.attributes(file).await;
            let now = at(1_000_005 + 5 * (times + step));
            assert_eq!(after, Attributes { change: after.change, ctime: now, ..before });
            assert!(told.atomic && told.after > told.before);
            assert_eq!((told.before, told.after), (before.change, after.change));
        }
    }
}

pub async fn extended_attributes_follow_the_mode_bits(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.put_xattr(file, "a", "1").await;
    let (a, reads) = (xattr("a"), async |who: &Identity| {
        let value = world.xattrs.xattr(who, file, &xattr("a")).await.is_ok();
        assert_eq!(world.xattrs.xattrs(who, file, Cookie::START).await.is_ok(), value);
        value
    });
    let writes = async |who: &Identity| {
        let set = world.set_xattr(who, file, ("b", "1"), SetXattr::Either).await.is_ok();
        assert_eq!(world.remove_xattr(who, file, "b").await.is_ok(), set);
        set
    };
    for (mode, who, expected) in [
        (0o604, bob(), (true, false)),
        (0o602, bob(), (false, true)),
        (0o600, bob(), (false, false)),
        (0o077, alice(), (false, false)),
        (0o600, alice(), (true, true)),
        (0o400, alice(), (true, false)),
        (0o000, root(), (true, true)),
    ] {
        world.chmod(file, mode).await;
        assert_eq!((reads(&who).await, writes(&who).await), expected, "{mode:o} {who:?}");
    }
    world.chmod(file, 0).await;
    refused!(world.xattrs.xattr(&bob(), file, &a).await, NamespaceError::AccessDenied);
    let listed = world.xattrs.xattrs(&bob(), file, Cookie::START).await;
    refused!(listed, NamespaceError::AccessDenied);
    refused!(world.remove_xattr(&bob(), file, "a").await, NamespaceError::AccessDenied);
    let set = world.set_xattr(&bob(), file, ("a", "1"), SetXattr::Create).await;
    refused!(set, NamespaceError::AccessDenied);
}

pub async fn in_a_sticky_directory_only_its_owner_changes_its_extended_attributes(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.chmod(dir, 0o1777).await;
    let set = world.set_xattr(&bob(), dir, ("a", "1"), SetXattr::Either).await;
    refused!(set, NamespaceError::NotPermitted);
    for who in [alice(), root()] {
        world.set_xattr(&who, dir, ("a", "1"), SetXattr::Either).await.unwrap();
    }
    refused!(world.remove_xattr(&bob(), dir, "a").await, NamespaceError::NotPermitted);
    assert_eq!(world.xattrs.xattr(&bob(), dir, &xattr("a")).await.unwrap(), "1");
    // Its files are their owners'.
    let file = world.file(&bob(), dir, "f").await;
    world.set_xattr(&bob(), file, ("a", "1"), SetXattr::Create).await.unwrap();
    world.chmod(dir, 0o777).await;
    world.remove_xattr(&bob(), dir, "a").await.unwrap();
}

pub async fn only_files_and_directories_have_extended_attributes(world: World) {
    let work = world.work().await;
    let target = CreateKind::Symlink(SymlinkTarget::new(b"a").unwrap());
    for (text, kind) in [("p", CreateKind::Fifo), ("s", CreateKind::Socket), ("l", target)] {
        let file = world.make(&alice(), work, text, kind, 0o777).await.attributes.file;
        for who in [alice(), root()] {
            let set = world.set_xattr(&who, file, ("a", "1"), SetXattr::Either).await;
            refused!(set, NamespaceError::NotPermitted);
            refused!(world.remove_xattr(&who, file, "a").await, NamespaceError::NotPermitted);
            refused!(world.xattrs.xattr(&who, file, &xattr("a")).await, NamespaceError::NotFound);
            assert_eq!(world.xattrs.xattrs(&who, file, Cookie::START).await.unwrap(), []);
        }
    }
}

pub async fn extended_attributes_beyond_their_bounds_are_refused(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let set = async |text: &str, bytes: usize| {
        let value = vec![b'x'; bytes].into();
        world.xattrs.set_xattr(&alice(), file, &xattr(text), &value, SetXattr::Either).await
    };
    refused!(set("a", XATTR_BYTES_MAX + 1).await, NamespaceError::NoSpace);
    for text in ["a", "b", "c"] {
        set(text, XATTR_BYTES_MAX).await.unwrap();
    }
    let rest = XATTRS_BYTES_MAX - 3 * (1 + XATTR_BYTES_MAX) - "d".len();
    let before = world.attributes(file).await;
    refused!(set("d", rest + 1).await, NamespaceError::NoSpace);
    assert_eq!(world.attributes(file).await, before);
    set("d", rest).await.unwrap();
    refused!(set("e", 0).await, NamespaceError::NoSpace);
    // A replaced value frees its space.
    set("d", rest).await.unwrap();
    set("a", XATTR_BYTES_MAX - 1).await.unwrap();
    set("e", 0).await.unwrap();
    assert_eq!(world.xattrs.xattrs(&alice(), file, Cookie::START).await.unwrap().len(), 5);

    let file = world.file(&alice(), work, "b").await;
    let long = |number: usize| format!("{number:0width$}", width = XattrName::BYTES_MAX);
    let len = XATTR_NAMES_BYTES_MAX / xattr(&long(0)).listed_bytes();
    assert_eq!(len * xattr(&long(0)).listed_bytes(), XATTR_NAMES_BYTES_MAX, "they fill it");
    for number in 0..len {
        world.set_xattr(&alice(), file, (&long(number), ""), SetXattr::Create).await.unwrap();
    }
    let one_more = world.set_xattr(&alice(), file, ("a", ""), SetXattr::Create).await;
    refused!(one_more, NamespaceError::NoSpace);
    world.set_xattr(&alice(), file, (&long(0), "value"), SetXattr::Replace).await.unwrap();
}

pub async fn extended_attributes_are_listed_behind_a_cookie_whatever_else_changes(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    for text in ["e", "d", "c", "b", "a"] {
        world.put_xattr(file, text, "1").await;
    }
    let listed = async |after| {
        let listed = world.xattrs.xattrs(&alice(), file, after).await.unwrap();
        listed.iter().map(|listed| String::from_utf8_lossy(listed.name.as_bytes()).into_owned()).collect()
    };
    let names: Vec<String> = listed(Cookie::START).await;
    assert_eq!(names, ["e", "d", "c", "b", "a"], "in the order in which they were made");
    let all = world.xattrs.xattrs(&alice(), file, Cookie::START).await.unwrap();
    let second = all[1].cookie;
    // Listed attributes are removed, also the one that gave the cookie; one gets another value; a new one is added.
    for text in ["e", "d"] {
        world.remove_xattr(&alice(), file, text).await.unwrap();
    }
    world.put_xattr(file, "b", "2").await;
    world.put_xattr(file, "0", "1").await;
    let names: Vec<String> = listed(second).await;
    assert_eq!(names, ["c", "b", "a", "0"]);
    // Made anew, so behind all others.
    world.put_xattr(file, "d", "1").await;
    let names: Vec<String> = listed(second).await;
    assert_eq!(names, ["c", "b", "a", "0", "d"]);
    let last = world.xattrs.xattrs(&alice(), file, Cookie::START).await.unwrap()[4].cookie;
    let names: Vec<String> = listed(last).await;
    assert!(names.is_empty());
    let strange = world.xattrs.xattrs(&alice(), file, Cookie(u64::MAX / 2)).await;
    refused!(strange, NamespaceError::BadCookie);
}

pub async fn extended_attributes_follow_the_file_not_the_name(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    world.put_xattr(file, "a", "1").await;
    world.rename(&alice(), (work, "a"), (work, "b")).await.unwrap();
    world.names.link(&alice(), file, work, &name("c")).await.unwrap();
    world.unlink(&alice(), work, "b").await.unwrap();
    world.names.record_write(file, &written(5, Stability::Unstable)).await.unwrap();
    world.unlink(&alice(), work, "c").await.unwrap();
    assert_eq!(world.xattrs_of(file).await, pairs([("a", "1")]), "somebody may have it open");
    world.locations.forget(&[file]).await.unwrap();
    refused!(world.value(file, "a").await, NamespaceError::Stale(_));
    let dir = world.dir(&alice(), work, "d").await;
    world.put_xattr(dir, "a", "1").await;
    world.unlink(&alice(), work, "d").await.unwrap();
    refused!(world.value(dir, "a").await, NamespaceError::Stale(_));
    // A new file under the same name is another file.
    let file = world.file(&alice(), work, "c").await;
    assert_eq!(world.xattrs_of(file).await, []);
}

pub async fn a_replaced_file_hands_on_its_extended_attributes(world: World) {
    let work = world.work().await;
    let old = world.file(&alice(), work, "a").await;
    world.names.link(&alice(), old, work, &name("other")).await.unwrap();
    world.put_xattr(old, "b", "1").await;
    world.put_xattr(old, "a", "2").await;
    let expected = pairs([("b", "1"), ("a", "2")]);
    let publish = async || {
        let published = world.publish(&alice(), (work, "a"), &complete(5, Replace::Any)).await;
        published.unwrap().attributes.file
    };
    let new = publish().await;
    assert_eq!((world.xattrs_of(new).await, world.xattrs_of(old).await), (expected.clone(), expected));
    // They are two files from then on.
    world.put_xattr(new, "a", "3").await;
    world.remove_xattr(&alice(), old, "b").await.unwrap();
    assert_eq!(world.xattrs_of(publish().await).await, pairs([("b", "1"), ("a", "3")]));
    assert_eq!(world.xattrs_of(old).await, pairs([("a", "2")]));
    // One that has some of its own keeps those, and no others.
    let own = world.unnamed(&alice(), work).await.file;
    world.put_xattr(own, "own", "1").await;
    world.uploads.publish(&alice(), own, work, &name("a"), &complete(5, Replace::Any)).await.unwrap();
    assert_eq!(world.xattrs_of(own).await, pairs([("own", "1")]));
}

pub async fn extended_attributes_and_properties_do_not_see_each_other(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let property = Property { name: "a".to_owned(), value: "property".into() };
    let set = [PropertyChange::Set(property.clone())];
    world.properties.set_properties(&alice(), file, &set).await.unwrap();
    assert_eq!(world.xattrs_of(file).await, []);
    world.put_xattr(file, "a", "xattr").await;
    assert_eq!(world.properties.properties(file).await.unwrap(), [property]);
    world.properties.set_properties(&alice(), file, &[PropertyChange::Remove("a".to_owned())]).await.unwrap();
    assert_eq!(world.xattrs_of(file).await, pairs([("a", "xattr")]));
    world.remove_xattr(&alice(), file, "a").await.unwrap();
    assert!(world.properties.properties(file).await.unwrap().is_empty());
}
