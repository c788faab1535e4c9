//! How often an operation waits for PostgreSQL, and what it does when the database ends its transaction for another's sake.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use api::{CreateKind, Namespace};
use forebay_namespace::{Config, Database, Server, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::namespace_suite::{name, root, spec};
use testkit::postgres::{Cluster, unless_missing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use types::FileId;

const TOP: FileId = FileId::ROOT;
/// A client that sent nothing for so long waits for an answer.
const QUIET: Duration = Duration::from_millis(60);

fn open(url: &str) -> SqlNamespace {
    SqlNamespace::open(Config {
        database: Database::Postgres(Server { url: url.to_owned(), instance: [7; 16], may_be_new: true }),
        clock: Arc::new(ManualClock::new(1_000_000)),
        root_owner: (0, 0),
        sync: Sync::Always,
        cache_bytes: 1 << 20,
        queue_len_max: 256,
        group_len_max: 64,
    })
    .unwrap()
}

/// Between a head and its database: an answer is handed on only when the client has nothing more to say, and that is one
/// round trip.
struct Between {
    round_trips: Arc<AtomicUsize>,
    port: u16,
}

impl Between {
    async fn new(cluster: &Cluster) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = cluster.socket_directory().join(format!(".s.PGSQL.{}", cluster.port()));
        let round_trips = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&round_trips);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.unwrap();
                tokio::spawn(hand_on(client, server, Arc::clone(&counted)));
            }
        });
        Between { round_trips, port }
    }

    async fn count<T>(&self, work: impl Future<Output = T>) -> usize {
        let before = self.round_trips.load(Ordering::SeqCst);
        work.await;
        self.round_trips.load(Ordering::SeqCst) - before
    }
}

async fn hand_on(mut client: TcpStream, mut server: UnixStream, round_trips: Arc<AtomicUsize>) -> Option<()> {
    let (mut asked, mut answered) = (vec![0; 65_536], vec![0; 65_536]);
    let mut held = Vec::new();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    loop {
        tokio::select! {
            read = from_client.read(&mut asked) => {
                let read = read.ok().filter(|read| *read > 0)?;
                to_server.write_all(&asked[..read]).await.ok()?;
            }
            read = from_server.read(&mut answered) => {
                let read = read.ok().filter(|read| *read > 0)?;
                held.extend_from_slice(&answered[..read]);
            }
            () = tokio::time::sleep(QUIET), if !held.is_empty() => {
                round_trips.fetch_add(1, Ordering::SeqCst);
                to_client.write_all(&held).await.ok()?;
                held.clear();
            }
        }
    }
}

/// Of several times, since now and then a session makes its plans anew, a statement is prepared, or the database is looked
/// after in the background.
fn least(counted: &[usize]) -> usize {
    counted.iter().copied().min().unwrap()
}

/// Two for a create (what it begins with, then everything it does), one for a cold name, none for a warm one. dCache's
/// Chimera asks 16 times for a create and 11 times to open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_waits_twice_for_the_database_a_cold_lookup_once_and_a_warm_one_never() {
    let Some(cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let database = cluster.query(&url, "SELECT current_database()").unwrap();
    let (root, folder, regular) =
        (root(), spec(CreateKind::Directory, 0o755), spec(CreateKind::Regular, 0o644));
    let namespace = open(&url);
    let mut dirs = Vec::new();
    for number in 0..24 {
        let dir = name(&format!("dir-{number}"));
        let dir = namespace.create(&root, TOP, &dir, &folder).await.unwrap().attributes.file;
        namespace.create(&root, dir, &name("file"), &regular).await.unwrap();
        dirs.push(dir);
    }
    namespace.close().await;
    drop(namespace);

    let between = Between::new(&cluster).await;
    let url = format!(
        "host=127.0.0.1 port={} user={} dbname={} sslmode=disable",
        between.port,
        cluster.superuser(),
        database.trim()
    );
    let namespace = tokio::task::spawn_blocking(move || open(&url)).await.unwrap();
    let (file, new) = (name("file"), name("new"));
    // Each connection prepares each statement once.
    for dir in &dirs[..8] {
        namespace.lookup(&root, *dir, &file).await.unwrap();
        namespace.create(&root, *dir, &new, &regular).await.unwrap();
    }
    for dir in &dirs[8..12] {
        namespace.create(&root, *dir, &new, &regular).await.unwrap();
    }
    let (mut cold, mut warm, mut creates) = (Vec::new(), Vec::new(), Vec::new());
    for dir in &dirs[12..17] {
        cold.push(between.count(namespace.lookup(&root, *dir, &file)).await);
        warm.push(between.count(namespace.lookup(&root, *dir, &file)).await);
    }
    for dir in &dirs[17..22] {
        creates.push(between.count(namespace.create(&root, *dir, &new, &regular)).await);
    }
    assert_eq!((least(&cold), least(&warm), least(&creates)), (1, 0, 2), "{cold:?} {warm:?} {creates:?}");
    namespace.close().await;
}

/// Another session holds what the group needs and asks for what the group holds: the server ends one of the two, and that
/// it was ours nobody hears of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_loses_a_deadlock_is_written_nevertheless() {
    let Some(cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let namespace = Arc::new(open(&url));
    let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // It never looks for a deadlock itself: the head has to, and to give way.
    other.batch_execute("SET deadlock_timeout = '1h'; SET search_path = forebay; BEGIN").await.unwrap();
    other.batch_execute("SELECT 1 FROM inodes WHERE id = 1 FOR UPDATE").await.unwrap();
    let created = tokio::spawn({
        let namespace = Arc::clone(&namespace);
        async move {
            let regular = spec(CreateKind::Regular, 0o644);
            namespace.create(&root(), TOP, &name("there"), &regular).await.map(|created| created.is_new)
        }
    });
    // Until the group has moved the number on and waits for the directory.
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted";
    while cluster.query(&url, waits).unwrap().trim() == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.batch_execute("UPDATE progress SET epoch = epoch").await.unwrap();
    other.batch_execute("ROLLBACK").await.unwrap();
    assert!(created.await.unwrap().unwrap());
    assert_eq!(namespace.read_only(), None);
    let deadlocks = "SELECT pg_stat_force_next_flush(); SELECT deadlocks FROM pg_stat_database \
        WHERE datname = current_database()";
    assert!(cluster.query(&url, deadlocks).unwrap().trim().ends_with('1'));
    namespace.close().await;
    assert_eq!(namespace.check().unwrap(), []);
}
