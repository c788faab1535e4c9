//! PostgreSQL goes away and comes back, is taken over, is set back.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use api::{Cookie, CreateKind, Namespace, NamespaceError};
use forebay_namespace::{Config, Database, OpenError, Server, SqlNamespace, Sync};
use testkit::namespace_suite::{HandClock, name, root, spec};
use testkit::postgres::{Cluster, unless_missing};
use types::FileId;

const TOP: FileId = FileId::ROOT;

fn try_open(url: &str, cache_entries: usize) -> Result<SqlNamespace, OpenError> {
    open_for(Server { url: url.to_owned(), instance: [7; 16], may_be_new: true }, cache_entries)
}

fn open_for(server: Server, cache_entries: usize) -> Result<SqlNamespace, OpenError> {
    SqlNamespace::open(Config {
        database: Database::Postgres(server),
        clock: Arc::new(HandClock::new(1_000_000)),
        root_owner: (0, 0),
        sync: Sync::Always,
        cache_entries,
        queue_len_max: 256,
        group_len_max: 64,
    })
}

fn open(url: &str) -> Arc<SqlNamespace> {
    Arc::new(try_open(url, 10_000).unwrap())
}

async fn create(namespace: &SqlNamespace, text: &str) -> Result<FileId, NamespaceError> {
    let regular = spec(CreateKind::Regular, 0o644);
    Ok(namespace.create(&root(), TOP, &name(text), &regular).await?.attributes.file)
}

async fn names(namespace: &SqlNamespace) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), Cookie::START);
    loop {
        let page = namespace.list(&root(), TOP, after, 1000).await.unwrap();
        for entry in &page.entries {
            names.push(String::from_utf8(entry.name.as_bytes().to_vec()).unwrap());
            after = entry.cookie;
        }
        if page.is_last {
            names.sort();
            return names;
        }
    }
}

/// All sessions of the database end, as when a server restarts.
fn end_sessions(cluster: &Cluster, url: &str, change: &str) {
    let sql = format!(
        "{change}; SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid != pg_backend_pid()"
    );
    cluster.query(url, &sql).unwrap();
}

const ROUNDS: usize = 4;
const CREATORS: u64 = 6;

/// Nobody hears of it but by waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_and_comes_back_has_every_acknowledged_change_once() {
    let Some(mut cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let namespace = open(&url);
    let (is_over, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let creators: Vec<_> = (0..CREATORS)
        .map(|creator| {
            let (namespace, is_over, made) =
                (Arc::clone(&namespace), Arc::clone(&is_over), Arc::clone(&made));
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    let text = format!("{creator}-{:06}", acknowledged.len());
                    create(&namespace, &text).await.unwrap();
                    acknowledged.push(text);
                    made.fetch_add(1, Ordering::Relaxed);
                }
                acknowledged
            })
        })
        .collect();
    for round in 1..=ROUNDS as u64 {
        while made.load(Ordering::Relaxed) < round * 100 {
            tokio::task::yield_now().await;
        }
        cluster.kill_9().unwrap();
        cluster.start_again().unwrap();
    }
    let before = made.load(Ordering::Relaxed);
    while made.load(Ordering::Relaxed) < before + 50 {
        tokio::task::yield_now().await;
    }
    is_over.store(true, Ordering::Relaxed);
    let mut acknowledged = Vec::new();
    for creator in creators {
        acknowledged.extend(creator.await.unwrap());
    }
    acknowledged.sort();
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
    drop(namespace);
    assert_eq!(names(&open(&url)).await, acknowledged);
}

/// Nobody has to ask for a file to hear of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_away_is_told_of_and_one_that_is_back_too() {
    let Some(mut cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let namespace = open(&url);
    create(&namespace, "before").await.unwrap();
    assert_eq!(namespace.read_only(), None);
    cluster.kill_9().unwrap();
    while namespace.read_only().is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    cluster.start_again().unwrap();
    create(&namespace, "after").await.unwrap();
    assert_eq!(namespace.read_only(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_whose_database_is_away_closes_and_refuses_what_waits() {
    let Some(mut cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let namespace = open(&url);
    create(&namespace, "before").await.unwrap();
    cluster.kill_9().unwrap();
    let waiting = tokio::spawn({
        let namespace = Arc::clone(&namespace);
        async move { create(&namespace, "waiting").await }
    });
    while namespace.read_only().is_none() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    namespace.close().await;
    assert!(waiting.await.unwrap().is_err());
    drop(namespace);
    cluster.start_again().unwrap();
    assert_eq!(names(&open(&url)).await, ["before"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_are_ended_are_begun_again() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    // A cache too small to answer from.
    let namespace = try_open(&url, 1).unwrap();
    for round in 0..5 {
        let text = format!("{round}");
        let file = create(&namespace, &text).await.unwrap();
        end_sessions(cluster, &url, "SELECT 1");
        assert_eq!(namespace.lookup(&root(), TOP, &name(&text)).await.unwrap().file, file);
        assert_eq!(names(&namespace).await.len(), round + 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_head_is_refused_until_the_first_ends() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let first = open(&url);
    create(&first, "a").await.unwrap();
    let refused = try_open(&url, 10).map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::DatabaseInUse(_)), "{refused}");
    create(&first, "b").await.unwrap();
    first.close().await;
    drop(first);
    assert_eq!(names(&open(&url)).await, ["a", "b"]);
}

/// Each of these would otherwise be written over by what the head holds for true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_was_taken_over_from_or_whose_database_was_set_back_writes_no_more() {
    let Some(cluster) = Cluster::shared() else { return };
    for (change, reason) in [
        ("UPDATE forebay.progress SET epoch = epoch + 1", "another head has taken"),
        ("UPDATE forebay.progress SET groups = groups - 1", "set back"),
        ("UPDATE forebay.progress SET groups = groups + 1", "set back"),
    ] {
        let url = cluster.create_database().unwrap();
        let namespace = open(&url);
        create(&namespace, "before").await.unwrap();
        end_sessions(cluster, &url, change);
        for text in ["after", "later"] {
            let refused = create(&namespace, text).await.unwrap_err();
            assert!(matches!(&refused, NamespaceError::Database(told) if told.contains(reason)), "{refused}");
        }
        assert!(namespace.read_only().unwrap().contains(reason));
        let found = cluster.query(&url, "SELECT count(*) FROM forebay.dentries").unwrap();
        assert_eq!(found.trim(), "1", "{change}");
    }
}

/// Its file ids would be those of other files in the pools.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_instance_or_one_that_was_emptied_is_refused() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let server = |instance: u8, may_be_new| Server { url: url.clone(), instance: [instance; 16], may_be_new };
    let refused = |server| open_for(server, 10).map(|_| ()).unwrap_err();
    assert!(matches!(refused(server(1, false)), OpenError::NamespaceGone(_)));
    drop(open_for(server(1, true), 10).unwrap());
    drop(open_for(server(1, false), 10).unwrap());
    assert!(matches!(refused(server(2, true)), OpenError::OtherInstance(_)));
    drop(open_for(server(1, false), 10).unwrap());
}

/// The guard of the group itself finds it, and what it finds is not taken for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_moved_under_a_living_session_is_not_taken_for_ours() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let namespace = open(&url);
    create(&namespace, "before").await.unwrap();
    cluster.query(&url, "UPDATE forebay.progress SET groups = groups + 1").unwrap();
    let refused = create(&namespace, "after").await.unwrap_err();
    assert!(matches!(&refused, NamespaceError::Database(told) if told.contains("set back")), "{refused}");
    assert!(namespace.lookup(&root(), TOP, &name("after")).await.is_err());
}

/// While the session goes on: found out by the group itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_of_an_older_epoch_changes_nothing() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let namespace = open(&url);
    create(&namespace, "before").await.unwrap();
    cluster.query(&url, "UPDATE forebay.progress SET epoch = epoch + 1").unwrap();
    let refused = create(&namespace, "after").await.unwrap_err();
    assert!(matches!(&refused, NamespaceError::Database(told) if told.contains("taken")), "{refused}");
    let found = cluster.query(&url, "SELECT count(*) FROM forebay.dentries").unwrap();
    assert_eq!(found.trim(), "1");
}

#[test]
fn what_does_not_open_says_why() {
    let refused = |url: &str| try_open(url, 10).map(|_| ()).unwrap_err().to_string();
    assert!(refused("postgres://[").contains("looks like postgres://"));
    let Some(cluster) = Cluster::shared() else { return };
    let nobody = refused("postgres://nobody:secret@127.0.0.1:1/namespace");
    assert!(nobody.contains("127.0.0.1:1/namespace") && !nobody.contains("secret"), "{nobody}");
    let url = cluster.create_database().unwrap();
    cluster.query(&url, "CREATE SCHEMA forebay; CREATE TABLE forebay.theirs (a integer)").unwrap();
    assert!(refused(&url).contains("not a forebay namespace"));
    let url = cluster.create_database().unwrap();
    drop(open(&url));
    cluster.query(&url, "INSERT INTO forebay.schema_version VALUES (99, now())").unwrap();
    assert!(refused(&url).contains("version 99"));
}
