//! The server dies for good and a standby takes its place, with or without what was answered last.

use std::sync::Arc;

use api::NamespaceError;
use forebay_namespace::{Mark, Noted, Reach, Witness};
use testkit::postgres::{Cluster, unless_missing};

use super::load::Load;
use super::{create, names, open, open_noted, try_open};

/// A URL of a database on both.
fn url_of_both(url: &str, one: u16, other: u16) -> String {
    let (start, host) = url.split_once('@').unwrap();
    let (_, database) = host.split_once('/').unwrap();
    format!("{start}@127.0.0.1:{one},127.0.0.1:{other}/{database}")
}

fn wait_for(cluster: &Cluster, url: &str, sql: &str, wanted: &str) {
    while cluster.query(url, sql).unwrap().trim() != wanted {
        std::thread::yield_now();
    }
}

const IS_SYNCHRONOUS: &str = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
/// Sessions that wait for a synchronous standby.
const WAITING: &str = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_goes_on_at_the_standby_that_is_promoted_with_every_acknowledged_change_once() {
    let Some(mut primary) = unless_missing(Cluster::start()) else { return };
    let url = primary.create_database().unwrap();
    // A setting of the role that is weaker than the head's does not count.
    let lax = format!("ALTER ROLE {} SET synchronous_commit = off", primary.superuser());
    primary.query(&url, &lax).unwrap();
    let standby = primary.standby().unwrap();
    primary.set("synchronous_standby_names", "*").unwrap();
    wait_for(&primary, &url, IS_SYNCHRONOUS, "1");
    let both = url_of_both(&url, primary.port(), standby.port());
    let namespace = open(&both);
    let load = Load::begin(&namespace);
    load.wait_for(200).await;
    primary.kill_9().unwrap();
    standby.promote().unwrap();
    load.wait_for(200).await;
    let acknowledged = load.end().await;
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
    drop(namespace);
    assert_eq!(names(&open(&both)).await, acknowledged);
}

/// Keeps the last mark in memory.
#[derive(Default)]
struct Memory(parking_lot::Mutex<Mark>);

impl Witness for Memory {
    fn note(&self, mark: &Mark, _: Reach) -> std::io::Result<()> {
        *self.0.lock() = *mark;
        Ok(())
    }
}

/// A head goes on at the standby and is killed before anything but its new connection was noted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_is_refused_after_the_head_went_on_at_the_standby() {
    let Some(mut primary) = unless_missing(Cluster::start()) else { return };
    let url = primary.create_database().unwrap();
    let mut standby = primary.standby().unwrap();
    primary.set("synchronous_standby_names", "*").unwrap();
    wait_for(&primary, &url, IS_SYNCHRONOUS, "1");
    let both = url_of_both(&url, primary.port(), standby.port());
    let namespace = open(&both);
    let memory = Arc::new(Memory::default());
    namespace.keep_marks(memory.clone()).unwrap();
    let mut given = vec![create(&namespace, "first").await.unwrap()];
    let at_primary = memory.0.lock().place;
    primary.kill_9().unwrap();
    standby.promote().unwrap();
    given.push(create(&namespace, "at the standby").await.unwrap());
    let mark = *memory.0.lock();
    assert!(mark.place > at_primary);
    assert!(given.iter().all(|file| file.0 < mark.files));
    let noted = vec![Noted { by: "pool-0".to_owned(), mark }];
    // As if it was killed: what it notes at its end is not looked at.
    namespace.close().await;
    drop(namespace);

    standby.stop().unwrap();
    primary.start_again().unwrap();
    primary.set("synchronous_standby_names", "").unwrap();
    let refused = open_noted(&both, noted.clone()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("is behind pool-0") && refused.contains("namespace restore"), "{refused}");
    // Nothing was changed by it: the newer one is taken, and gives no id that may have been given.
    primary.stop().unwrap();
    standby.start_again().unwrap();
    let namespace = Arc::new(open_noted(&both, noted).unwrap());
    assert!(create(&namespace, "next").await.unwrap().0 >= mark.files);
    assert_eq!(names(&namespace).await, ["at the standby", "first", "next"]);
}

/// A session that is ended while it waits for the standby has committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_arrived_without_its_answer_waits_for_the_standby_too() {
    let Some(primary) = unless_missing(Cluster::start()) else { return };
    let url = primary.create_database().unwrap();
    let mut standby = primary.standby().unwrap();
    primary.set("synchronous_standby_names", "*").unwrap();
    wait_for(&primary, &url, IS_SYNCHRONOUS, "1");
    let namespace = open(&url);
    create(&namespace, "before").await.unwrap();
    standby.stop().unwrap();
    let creating = tokio::spawn({
        let namespace = Arc::clone(&namespace);
        async move { create(&namespace, "made").await }
    });
    let waiting = || primary.query(&url, WAITING).unwrap().trim().to_owned();
    let first = loop {
        let found = waiting();
        if !found.is_empty() {
            break found;
        }
        std::thread::yield_now();
    };
    primary.query(&url, &format!("SELECT pg_terminate_backend({first})")).unwrap();
    let next = loop {
        let found = waiting();
        if creating.is_finished() || (!found.is_empty() && found != first) {
            break found;
        }
        std::thread::yield_now();
    };
    assert!(!creating.is_finished() && next != first, "it was answered and no standby had it");
    standby.start_again().unwrap();
    creating.await.unwrap().unwrap();
    assert_eq!(names(&namespace).await, ["before", "made"]);
}

/// Only what replication was not told to wait for can be missing there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_whose_standby_lost_acknowledged_changes_ends_writing_and_answers_nothing_old() {
    let Some(mut primary) = unless_missing(Cluster::start()) else { return };
    let url = primary.create_database().unwrap();
    let mut standby = primary.standby().unwrap();
    let both = url_of_both(&url, primary.port(), standby.port());
    let namespace = Arc::new(try_open(&both, 1).unwrap());
    create(&namespace, "before").await.unwrap();
    let there = url.replace(&primary.port().to_string(), &standby.port().to_string());
    wait_for(&standby, &there, "SELECT count(*) FROM forebay.dentries", "1");
    standby.stop().unwrap();
    create(&namespace, "lost").await.unwrap();
    primary.kill_9().unwrap();
    standby.start_again().unwrap();
    standby.promote().unwrap();
    let refused = create(&namespace, "after").await.unwrap_err();
    assert!(
        matches!(&refused, NamespaceError::Database(told) if told.contains("had not received everything")),
        "{refused}"
    );
    assert!(namespace.read_only().unwrap().contains("had not received everything"));
    let cold = api::Namespace::lookup(&*namespace, &super::root(), super::TOP, &super::name("unknown")).await;
    assert!(
        matches!(&cold, Err(NamespaceError::Database(told)) if told.contains("had not received everything")),
        "{cold:?}"
    );
    drop(namespace);
    assert_eq!(names(&open(&both)).await, ["before"]);
}

#[test]
fn a_standby_is_no_place_to_open_a_namespace() {
    let Some(primary) = unless_missing(Cluster::start()) else { return };
    let url = primary.create_database().unwrap();
    let standby = primary.standby().unwrap();
    let refused = |url: &str| try_open(url, 10).map(drop).unwrap_err().to_string();
    let alone = refused(&url.replace(&primary.port().to_string(), &standby.port().to_string()));
    assert!(alone.contains("it is a standby") && alone.contains("name the primary"), "{alone}");
    let (nobody, there) = (1, standby.port());
    let neither = refused(&url_of_both(&url, nobody, there));
    assert!(neither.contains("127.0.0.1:1: ") && neither.contains("does PostgreSQL run there"), "{neither}");
    assert!(neither.contains(&format!("127.0.0.1:{there}: it takes no writes")), "{neither}");
    // It does not matter which is named first.
    assert!(try_open(&url_of_both(&url, there, primary.port()), 10).is_ok());
}
