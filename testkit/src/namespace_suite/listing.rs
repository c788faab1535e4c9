//! Listings in pages.

use std::collections::BTreeSet;

use api::{Cookie, ExpectedFile, NamespaceError, Stability};
use types::FileId;

use super::{World, alice, bob, root, written};
use crate::refused;

async fn listed(world: &World, dir: FileId, limit: usize) -> Vec<String> {
    let mut names = Vec::new();
    let mut after = Cookie::START;
    loop {
        let page = world.names.list(&root(), dir, after, limit).await.unwrap();
        assert!(page.entries.len() <= limit);
        names.extend(page.entries.iter().map(|entry| entry.name.to_string()));
        if page.is_last {
            return names;
        }
        after = page.entries.last().expect("a page that is not the last has entries").cookie;
    }
}

pub async fn a_listing_has_every_entry_once_in_pages(world: World) {
    let work = world.work().await;
    let names: Vec<String> = (0..23).map(|number| format!("f{number}")).collect();
    for text in &names {
        world.file(&alice(), work, text).await;
    }
    for limit in [1, 4, 23, 24, 1000] {
        assert_eq!(listed(&world, work, limit).await, names);
    }
    let page = world.names.list(&root(), work, Cookie::START, 100).await.unwrap();
    for entry in page.entries {
        assert!(entry.cookie.0 > 2);
        assert_eq!(entry.attributes, world.names.lookup(&root(), work, &entry.name).await.unwrap().entry);
    }
}

pub async fn a_listing_continues_behind_a_removed_entry(world: World) {
    let work = world.work().await;
    for number in 0..6 {
        world.file(&alice(), work, &format!("f{number}")).await;
    }
    let page = world.names.list(&root(), work, Cookie::START, 3).await.unwrap();
    let after = page.entries[2].cookie;
    world.unlink(&alice(), work, "f2").await.unwrap();
    world.unlink(&alice(), work, "f3").await.unwrap();
    world.file(&alice(), work, "late").await;
    let page = world.names.list(&root(), work, after, 10).await.unwrap();
    assert_eq!(
        page.entries.iter().map(|entry| entry.name.to_string()).collect::<Vec<_>>(),
        ["f4", "f5", "late"]
    );
    assert!(page.is_last);
}

pub async fn a_directory_is_listed_while_it_is_emptied(world: World) {
    let work = world.work().await;
    let names: BTreeSet<String> = (0..200).map(|number| format!("f{number}")).collect();
    for text in &names {
        world.file(&alice(), work, text).await;
    }
    let mut seen = BTreeSet::new();
    let mut after = Cookie::START;
    loop {
        let page = world.names.list(&root(), work, after, 7).await.unwrap();
        for entry in &page.entries {
            assert!(seen.insert(entry.name.to_string()), "{} came twice", entry.name);
            world.names.unlink(&alice(), work, &entry.name, ExpectedFile::Any).await.unwrap();
            after = entry.cookie;
        }
        if page.is_last {
            break;
        }
    }
    assert_eq!(seen, names);
    assert!(listed(&world, work, 10).await.is_empty());
}

pub async fn a_listing_needs_read_permission(world: World) {
    let work = world.work().await;
    let dir = world.dir(&alice(), work, "d").await;
    world.chmod(dir, 0o733).await;
    refused!(world.names.list(&bob(), dir, Cookie::START, 10).await, NamespaceError::AccessDenied);
    world.chmod(dir, 0o704).await;
    assert!(world.names.list(&bob(), dir, Cookie::START, 10).await.is_ok());
    let file = world.file(&alice(), work, "f").await;
    refused!(world.names.list(&alice(), file, Cookie::START, 10).await, NamespaceError::NotDirectory);
}

pub async fn a_cookie_that_was_never_given_is_refused(world: World) {
    let work = world.work().await;
    for cookie in [1, 2, u64::MAX / 2, u64::MAX] {
        refused!(world.names.list(&root(), work, Cookie(cookie), 10).await, NamespaceError::BadCookie);
    }
}

pub async fn an_empty_directory_lists_nothing(world: World) {
    let work = world.work().await;
    let page = world.names.list(&root(), work, Cookie::START, 10).await.unwrap();
    assert!(page.is_last && page.entries.is_empty());
}

pub async fn a_listing_shows_unstable_sizes(world: World) {
    let work = world.work().await;
    let file = world.file(&alice(), work, "a").await;
    let after = world.names.record_write(file, &written(77, Stability::Unstable)).await.unwrap();
    let page = world.names.list(&root(), work, Cookie::START, 10).await.unwrap();
    assert_eq!(page.entries[0].attributes, after);
}

pub async fn a_replaced_name_keeps_its_place(world: World) {
    let work = world.work().await;
    for text in ["a", "b", "c"] {
        world.file(&alice(), work, text).await;
    }
    world.rename(&alice(), (work, "c"), (work, "a")).await.unwrap();
    assert_eq!(listed(&world, work, 10).await, ["a", "b"]);
    world.rename(&alice(), (work, "a"), (work, "z")).await.unwrap();
    assert_eq!(listed(&world, work, 10).await, ["b", "z"]);
}
