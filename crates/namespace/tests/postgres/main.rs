//! PostgreSQL goes away and comes back, is taken over, is set back.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;

use api::{Cookie, CreateKind, Namespace, NamespaceError, Quotas};
use forebay_namespace::{Config, Database, Noted, OpenError, Server, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::namespace_suite::{name, root, spec};
use testkit::postgres::{Cluster, Options, unless_missing};
use types::FileId;

mod between;
mod failover;
mod load;
mod names;
mod pooler;
mod tls;

const TOP: FileId = FileId::ROOT;

fn try_open(url: &str, cache_bytes: u64) -> Result<SqlNamespace, OpenError> {
    open_as(server(url), cache_bytes, Sync::Always)
}

fn server(url: &str) -> Server {
    Server { url: url.to_owned(), instance: [7; 16], may_be_new: true }
}

fn open_for(server: Server, cache_bytes: u64) -> Result<SqlNamespace, OpenError> {
    open_as(server, cache_bytes, Sync::Always)
}

fn open_as(server: Server, cache_bytes: u64, sync: Sync) -> Result<SqlNamespace, OpenError> {
    SqlNamespace::open(config_of(server, cache_bytes, sync))
}

fn open_noted(url: &str, noted: Vec<Noted>) -> Result<SqlNamespace, OpenError> {
    SqlNamespace::open_after(config_of(server(url), 1 << 20, Sync::Always), noted)
}

fn config_of(server: Server, cache_bytes: u64, sync: Sync) -> Config {
    Config {
        database: Database::Postgres(server),
        clock: Arc::new(ManualClock::new(1_000_000)),
        root_owner: (0, 0),
        sync,
        cache_bytes,
        queue_len_max: 256,
        group_len_max: 64,
    }
}

fn open(url: &str) -> Arc<SqlNamespace> {
    Arc::new(try_open(url, 1 << 20).unwrap())
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

/// So often the server is killed. More can be asked for by `FOREBAY_TEST_KILLS`.
const KILLS: usize = 20;

fn kills() -> usize {
    std::env::var("FOREBAY_TEST_KILLS").map_or(KILLS, |text| text.parse().unwrap())
}

/// Kills the server again and again under load; nobody hears of it but by waiting.
async fn kill_again_and_again(sync: Sync) {
    let Some(mut cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let namespace = Arc::new(open_as(server(&url), 1 << 20, sync).unwrap());
    let load = load::Load::begin(&namespace);
    for _ in 0..kills() {
        load.wait_for(100).await;
        cluster.kill_9().unwrap();
        cluster.start_again().unwrap();
    }
    load.wait_for(50).await;
    let acknowledged = load.end().await;
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
    drop(namespace);
    assert_eq!(names(&open(&url)).await, acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_killed_and_comes_back_has_every_acknowledged_change_once() {
    kill_again_and_again(Sync::Always).await;
}

/// The server answers before it has written anything down, and loses it when it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_killed_before_its_disk_had_all_gets_it_again() {
    kill_again_and_again(Sync::Interval(std::time::Duration::from_millis(100))).await;
}

/// The WAL writer sleeps for as long as the test lasts, so that nothing but a commit brings changes to the disk.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_told_to_answer_before_its_disk_has_it_keeps_what_was_acknowledged() {
    let settings = vec![("wal_writer_delay".to_owned(), "10s".to_owned())];
    let Some(mut cluster) = unless_missing(Cluster::start_with(&Options { settings, ..Options::default() }))
    else {
        return;
    };
    let url = cluster.create_database().unwrap();
    let namespace = open(&url);
    create(&namespace, "before").await.unwrap();
    cluster.set("synchronous_commit", "off").unwrap();
    let made: Vec<String> = (0..20).map(|number| format!("made-{number:02}")).collect();
    for name in &made {
        create(&namespace, name).await.unwrap();
    }
    cluster.kill_9().unwrap();
    drop(namespace);
    cluster.start_again().unwrap();
    let expected: Vec<String> = [vec!["before".to_owned()], made].concat();
    assert_eq!(names(&open(&url)).await, expected);
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
        assert_eq!(namespace.lookup(&root(), TOP, &name(&text)).await.unwrap().entry.file, file);
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

/// The tables of a stranger are looked at with care: the start ended in a panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_schema_of_somebody_else_is_refused_whatever_its_tables_are_called() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let theirs = "CREATE SCHEMA forebay; CREATE TABLE forebay.meta (key integer, value text); \
                  INSERT INTO forebay.meta VALUES (1, 'one')";
    cluster.query(&url, theirs).unwrap();
    let refused = open_for(server(&url), 10).map(|_| ()).unwrap_err();
    assert!(matches!(refused, OpenError::ForeignSchema(_)), "{refused}");
}

/// It was brought up to date all the same, and the program that it belongs to could not open it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_refused_is_not_changed_before() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let server = |instance: u8, may_be_new| Server { url: url.clone(), instance: [instance; 16], may_be_new };
    let refused = |server| open_for(server, 10).map(|_| ()).unwrap_err();
    assert!(matches!(refused(server(1, false)), OpenError::NamespaceGone(_)));
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'forebay'";
    assert_eq!(cluster.query(&url, schemas).unwrap().trim(), "0");
    drop(open_for(server(1, true), 10).unwrap());
    // An older program's, as far as the start can tell.
    let older = "DELETE FROM forebay.schema_version WHERE version = (SELECT max(version) FROM forebay.schema_version)";
    cluster.query(&url, older).unwrap();
    let state = "SELECT max(version), (SELECT count(*) FROM pg_class) FROM forebay.schema_version";
    let before = cluster.query(&url, state).unwrap();
    let told = refused(server(2, true));
    assert!(matches!(told, OpenError::OtherInstance(_)), "{told}");
    assert_eq!(cluster.query(&url, state).unwrap(), before);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_set_back_under_a_living_session_gets_no_clean_end() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let namespace = open(&url);
    create(&namespace, "before").await.unwrap();
    cluster.query(&url, "UPDATE forebay.progress SET groups = groups - 1").unwrap();
    namespace.close().await;
    let ended = cluster.query(&url, "SELECT value FROM forebay.meta WHERE key = 'clean_end'").unwrap();
    assert_eq!(ended.trim(), "0");
}

/// A head that ends between the two would give their numbers again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reserved_numbers_are_noted_before_lost_groups_are_sent_again() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let interval = Sync::Interval(std::time::Duration::from_secs(60));
    let namespace = open_as(server(&url), 1 << 20, interval).unwrap();
    create(&namespace, "lost").await.unwrap();
    let spy = "CREATE TABLE public.seen (groups bigint); CREATE FUNCTION public.spy() RETURNS trigger \
               LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen SELECT groups FROM forebay.progress; \
               RETURN NULL; END $$; CREATE TRIGGER spy AFTER INSERT OR UPDATE ON forebay.meta \
               FOR EACH ROW EXECUTE FUNCTION public.spy()";
    cluster.query(&url, spy).unwrap();
    // As after a crash that lost it.
    let lose = "UPDATE forebay.progress SET groups = groups - 1; DELETE FROM forebay.usage_journal";
    let before = cluster.query(&url, "SELECT groups - 1 FROM forebay.progress").unwrap();
    end_sessions(cluster, &url, lose);
    create(&namespace, "after").await.unwrap();
    let seen = cluster.query(&url, "SELECT min(groups) FROM public.seen").unwrap();
    assert_eq!(seen.trim(), before.trim(), "the groups were sent first");
    assert_eq!(names(&namespace).await, ["after", "lost"]);
}

/// How long an answer may take is not the role's to say.
#[test]
fn a_role_whose_statements_have_little_time_works() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let theirs = url_of_role(cluster, &url, "hasty", "");
    let sql = "CREATE SCHEMA forebay AUTHORIZATION hasty; ALTER ROLE hasty SET statement_timeout = 1; \
               ALTER ROLE hasty SET lock_timeout = 1; ALTER ROLE hasty SET idle_session_timeout = 1; \
               ALTER ROLE hasty SET idle_in_transaction_session_timeout = 1; CREATE FUNCTION public.spy() RETURNS trigger \
               LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END $$";
    cluster.query(&url, sql).unwrap();
    drop(try_open(&theirs, 10).unwrap());
    // Each group takes longer than that.
    let slow = "CREATE TRIGGER slow AFTER UPDATE OF groups ON forebay.progress EXECUTE FUNCTION public.spy()";
    cluster.query(&url, slow).unwrap();
    let namespace = try_open(&theirs, 10).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(create(&namespace, "made")).unwrap();
    assert_eq!(namespace.read_only(), None);
    drop(namespace);
    // Also one that is idle within its transaction, between two questions.
    let read = runtime.block_on(async {
        let namespace = try_open(&theirs, 10).unwrap();
        names(&namespace).await
    });
    assert_eq!(read, ["made"]);
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
fn a_database_that_does_not_open_reports_the_reason() {
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

/// Killed in the middle: heads stay away, and the next attempt goes over it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rebuild_that_was_not_finished_is_opened_by_no_head_and_done_again() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let discard =
        || tokio::task::block_in_place(|| forebay_namespace::bulk::discard_unfinished(&url).unwrap());
    let begin = async || {
        discard();
        let namespace = open(&url);
        assert_eq!(namespace.usage().await.unwrap().files, 1);
        namespace.close().await;
        let mut repairs = namespace.repairs().unwrap();
        repairs.begin_load().unwrap();
        let replica = forebay_namespace::Stray {
            file: FileId(7),
            pool: types::PoolId(0),
            size: 1,
            space_used: 1,
            epoch: types::Epoch(0),
            modified: None,
            birth: None,
        };
        let known = forebay_namespace::FileFacts {
            replicas: vec![replica],
            ..forebay_namespace::FileFacts::default()
        };
        let mut load = forebay_namespace::Load::default();
        repairs.load(&mut load, &[known]).unwrap();
        (repairs, load, namespace)
    };
    drop(begin().await);
    let refused = try_open(&url, 10).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("was not finished"), "{refused}");
    let (mut repairs, load, namespace) = begin().await;
    repairs.finish_load(&load, &mut Unheard).unwrap();
    drop((repairs, namespace));
    discard();
    assert_eq!(open(&url).usage().await.unwrap().files, 3);
}

struct Unheard;

impl forebay_namespace::RepairLog for Unheard {
    fn note(&mut self, _: &str, _: &str) -> std::io::Result<()> {
        Ok(())
    }

    fn secure(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A role of its own, so that what is said of it does not concern the others of the shared server.
fn url_of_role(cluster: &Cluster, url: &str, role: &str, attributes: &str) -> String {
    let sql = format!("CREATE ROLE {role} LOGIN PASSWORD 'secret' {attributes}");
    cluster.query(url, &sql).unwrap();
    let (_, host) = url.split_once('@').unwrap();
    format!("postgres://{role}:secret@{host}")
}

#[test]
fn a_role_that_may_not_make_a_schema_is_told_and_may_have_one_made() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let theirs = url_of_role(cluster, &url, "poor", "");
    let refused = try_open(&theirs, 10).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::NoRightToCreate(_)), "{refused}");
    cluster.query(&url, "CREATE SCHEMA forebay").unwrap();
    let refused = try_open(&theirs, 10).map(drop).unwrap_err();
    assert!(refused.to_string().contains("permission denied for schema forebay"), "{refused}");
    cluster.query(&url, "ALTER SCHEMA forebay OWNER TO poor").unwrap();
    drop(try_open(&theirs, 10).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_with_fewer_connections_than_it_likes_works_and_with_one_says_that_it_is_too_few() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let theirs = url_of_role(cluster, &url, "narrow", "CONNECTION LIMIT 1");
    cluster.query(&url, "CREATE SCHEMA forebay AUTHORIZATION narrow").unwrap();
    let refused = try_open(&theirs, 10).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::TooFewConnections(_)), "{refused}");
    // To write, to read, and to count what is there when it is opened.
    cluster.query(&url, "ALTER ROLE narrow CONNECTION LIMIT 3").unwrap();
    let namespace = loop {
        // The server may not have noticed yet that the refused one is gone.
        match try_open(&theirs, 10) {
            Ok(namespace) => break namespace,
            Err(OpenError::TooFewConnections(_) | OpenError::DatabaseInUse(_)) => {}
            Err(error) => panic!("{error}"),
        }
    };
    create(&namespace, "made").await.unwrap();
    for number in 0..10 {
        let absent = namespace.lookup(&root(), TOP, &name(&format!("{number}"))).await;
        assert!(matches!(absent, Err(NamespaceError::NotFound)), "{absent:?}");
    }
    assert_eq!(namespace.read_only(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_gets_no_connection_any_more_says_what_to_raise() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let theirs = url_of_role(cluster, &url, "crowded", "");
    cluster.query(&url, "CREATE SCHEMA forebay AUTHORIZATION crowded").unwrap();
    let namespace = try_open(&theirs, 10).unwrap();
    create(&namespace, "made").await.unwrap();
    end_sessions(cluster, &url, "ALTER ROLE crowded CONNECTION LIMIT 0");
    let told = loop {
        match namespace.read_only() {
            Some(told) if told.contains("53300") => break told,
            _ => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    };
    assert!(told.contains("CONNECTION LIMIT of user or database"), "{told}");
    // Of two servers, of which the other is down, the error names both.
    let (start, database) = theirs.rsplit_once('/').unwrap();
    let refused = try_open(&format!("{start},127.0.0.1:1/{database}"), 10).map(drop).unwrap_err().to_string();
    assert!(refused.contains("CONNECTION LIMIT of user or database"), "{refused}");
    assert!(refused.contains("127.0.0.1:1: ") && refused.contains("does PostgreSQL run there"), "{refused}");
    cluster.query(&url, "ALTER ROLE crowded CONNECTION LIMIT 5").unwrap();
    while let Err(refused) = create(&namespace, "later").await {
        assert!(matches!(refused, NamespaceError::Busy), "{refused}");
    }
}

/// Its memory is not the truth any more, and its clients are to turn to the other head.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_was_taken_over_from_tells_of_no_quotas_and_says_that_it_was() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let namespace = open(&url);
    let account = api::Account::user(7);
    namespace.set_quota(account, Some(api::Quota::default())).await.unwrap();
    assert!(namespace.standing(account).await.unwrap().is_some());
    end_sessions(cluster, &url, "UPDATE forebay.progress SET epoch = epoch + 1");
    tokio::time::timeout(std::time::Duration::from_secs(60), namespace.taken_over()).await.unwrap();
    let told = [
        namespace.standing(account).await.map(drop).unwrap_err(),
        namespace.quotas().await.map(drop).unwrap_err(),
    ];
    for refused in told {
        assert!(
            matches!(&refused, NamespaceError::Database(told) if told.contains("another head")),
            "{refused}"
        );
    }
}

/// Names are bytes; those of properties are text.
#[test]
fn a_database_whose_encoding_has_not_every_character_is_refused() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    for (encoding, is_refused) in [("LATIN1", true), ("SQL_ASCII", false)] {
        let name = format!("in_{}", encoding.to_lowercase());
        let sql = format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}'");
        cluster.query(&url, &sql).unwrap();
        let there = format!("{}/{name}", url.rsplit_once('/').unwrap().0);
        let opened = try_open(&there, 10).map(drop);
        assert_eq!(matches!(opened, Err(OpenError::DatabaseEncoding { .. })), is_refused, "{encoding}");
        assert_eq!(opened.is_err(), is_refused, "{encoding}");
    }
}

/// A setting of a role or a database stays only if it is stronger than the head's.
#[test]
fn a_setting_of_the_role_never_weakens_synchronous_commit() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let theirs = url_of_role(cluster, &url, "lax", "");
    cluster
        .query(&url, "CREATE SCHEMA forebay AUTHORIZATION lax; CREATE TABLE public.seen (setting text)")
        .unwrap();
    cluster.query(&url, "GRANT INSERT ON public.seen TO lax").unwrap();
    drop(try_open(&theirs, 10).unwrap());
    // Recorded by the transactions of groups themselves.
    let spy = "CREATE FUNCTION public.spy() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
               INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$; \
               CREATE TRIGGER spy AFTER UPDATE OF groups ON forebay.progress EXECUTE FUNCTION public.spy()";
    cluster.query(&url, spy).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (number, (said, meant)) in
        [("off", "on"), ("local", "on"), ("remote_write", "remote_write"), ("remote_apply", "remote_apply")]
            .into_iter()
            .enumerate()
    {
        let sql = format!("TRUNCATE public.seen; ALTER ROLE lax SET synchronous_commit = {said}");
        cluster.query(&url, &sql).unwrap();
        let namespace = try_open(&theirs, 10).unwrap();
        runtime.block_on(create(&namespace, &format!("{number}"))).unwrap();
        runtime.block_on(namespace.close());
        let seen = cluster.query(&url, "SELECT DISTINCT setting FROM public.seen").unwrap();
        assert_eq!(seen.trim(), meant, "{said}");
    }
}

/// A reader may be asked before anybody writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_set_back_answers_nothing_old_and_is_found_out_though_nobody_writes() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let namespace = try_open(&url, 1).unwrap();
    create(&namespace, "before").await.unwrap();
    // While all sessions go on.
    cluster.query(&url, "UPDATE forebay.progress SET groups = groups - 1").unwrap();
    let refused = namespace.lookup(&root(), TOP, &name("unknown")).await.unwrap_err();
    assert!(matches!(&refused, NamespaceError::Database(told) if told.contains("set back")), "{refused}");
    assert!(namespace.read_only().unwrap().contains("set back"));
}
