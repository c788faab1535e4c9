//! `Sync::Names`: the changes that are answered before they are on disk, and what brings them there.

use super::*;

const NAMES: Sync = Sync::Names(Duration::from_secs(60));
/// A group that the flush of waiting work shares is on disk when it is answered; not all of so many do.
const TRIES: usize = 50;

fn is_behind(namespace: &SqlNamespace) -> bool {
    namespace.shared.committer.lock().as_ref().unwrap().is_behind
}

/// After each of some changes, whether something that was answered may not be on disk.
async fn left_behind(namespace: &SqlNamespace, change: impl AsyncFn(usize)) -> Vec<bool> {
    let mut left = Vec::new();
    for number in 0..TRIES {
        namespace.settle().await.unwrap();
        change(number).await;
        left.push(is_behind(namespace));
    }
    left
}

async fn set(namespace: &SqlNamespace, file: FileId, set: SetAttributes) {
    namespace.set_attributes(&Identity::root(), file, &set).await.unwrap();
}

fn mode(mode: u32) -> SetAttributes {
    SetAttributes { mode: Some(mode), ..SetAttributes::default() }
}

fn owner(uid: u32, gid: u32) -> SetAttributes {
    SetAttributes { uid: Some(uid), gid: Some(gid), ..SetAttributes::default() }
}

async fn made(namespace: &SqlNamespace, text: &str) -> FileId {
    let root = Identity::root();
    namespace.create(&root, FileId::ROOT, &name(text), &regular()).await.unwrap().attributes.file
}

#[tokio::test]
async fn times_and_more_rights_are_answered_before_they_are_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open_with(&dir, NAMES);
    let file = made(&namespace, "a").await;
    let times = SetAttributes { mtime: Some(api::SetTime::Now), ..SetAttributes::default() };
    for change in [times, mode(0o755), owner(10, 100)] {
        let left = left_behind(&namespace, async |_| set(&namespace, file, change.clone()).await).await;
        assert!(left.contains(&true), "{change:?}");
    }
    namespace.close().await;
    drop(namespace);
    let kept = open_with(&dir, NAMES).attributes(file).await.unwrap();
    assert_eq!((kept.mode, kept.uid, kept.gid), (0o755, 10, 100));
}

#[tokio::test]
async fn every_other_change_is_on_disk_when_it_is_answered_with_all_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open_with(&dir, NAMES);
    let (root, file) = (Identity::root(), made(&namespace, "a").await);
    let xattr = types::XattrName::new(b"colour").unwrap();
    let none: &[bool] = &[false; TRIES];

    let names = async |number: usize| {
        set(&namespace, file, mode(0o777)).await;
        made(&namespace, &format!("n{number}")).await;
    };
    assert_eq!(left_behind(&namespace, names).await, none, "a name");
    let length = async |number: usize| {
        set(&namespace, file, mode(0o777)).await;
        set(&namespace, file, SetAttributes { size: Some(number as u64), ..SetAttributes::default() }).await;
    };
    assert_eq!(left_behind(&namespace, length).await, none, "a length");
    let less = async |_| {
        set(&namespace, file, mode(0o777)).await;
        set(&namespace, file, mode(0o750)).await;
    };
    assert_eq!(left_behind(&namespace, less).await, none, "a mode with fewer rights");
    let given = async |number: usize| set(&namespace, file, owner(10 + number as u32, 100)).await;
    set(&namespace, file, owner(9, 100)).await;
    assert_eq!(left_behind(&namespace, given).await, none, "an owner who was not root");
    let acl = async |_| {
        let acl = Acl::new(vec![Ace::deny(AceWho::User(5), Access::READ)]).ok();
        set(&namespace, file, SetAttributes { acl, ..SetAttributes::default() }).await;
    };
    assert_eq!(left_behind(&namespace, acl).await, none, "an ACL");
    let attribute = async |_| {
        namespace.set_xattr(&root, file, &xattr, &"red".into(), SetXattr::Either).await.unwrap();
    };
    assert_eq!(left_behind(&namespace, attribute).await, none, "an extended attribute");
}

/// A COMMIT of a file without a replica says nothing new.
#[tokio::test]
async fn a_stable_write_that_changes_nothing_brings_earlier_attributes_to_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open_with(&dir, NAMES);
    let file = made(&namespace, "a").await;
    let nothing =
        Written { size_at_least: None, mtime: None, space_used: None, stability: Stability::FileSync };
    let commit = async |_| {
        set(&namespace, file, mode(0o755)).await;
        namespace.record_write(file, &nothing).await.unwrap();
    };
    assert_eq!(left_behind(&namespace, commit).await, [false; TRIES]);
    let sequence = || namespace.shared.committer.lock().as_ref().unwrap().sequence;
    let mut written = Vec::new();
    for _ in 0..TRIES {
        let before = sequence();
        namespace.record_write(file, &nothing).await.unwrap();
        written.push(sequence() - before);
    }
    assert!(written.contains(&0), "with nothing behind it writes no group: {written:?}");
}

#[tokio::test]
async fn a_caller_commits_a_deferrable_change_itself_and_hands_every_other_over() {
    let here = std::thread::current().id();
    let dir = tempfile::tempdir().unwrap();
    let namespace = open_with(&dir, NAMES);
    let shared = &namespace.shared;
    let mut by = Vec::new();
    while by.len() < 10_000 && !by.contains(&here) {
        let asked =
            shared.submit_deferrable(Order::BY_INSTANCE, [], |_| Ok(std::thread::current().id())).await;
        by.push(asked.unwrap());
        assert_ne!(shared.submit(|_| Ok(std::thread::current().id())).await.unwrap(), here);
    }
    assert!(by.contains(&here));
}

/// Nothing is asked twice then.
#[tokio::test]
async fn a_change_that_takes_rights_is_made_at_once_in_a_group_that_is_awaited() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = open_with(&dir, NAMES);
    let file = made(&namespace, "a").await;
    let take = move |group: &mut Group<'_>| {
        crate::ops::setattr::set_if_deferrable(group, &Identity::root(), file, &mode(0o600))
    };
    let taken = namespace.shared.submit(take).await.unwrap();
    assert_eq!(taken.unwrap().mode, 0o600);
}
