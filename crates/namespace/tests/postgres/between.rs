//! Something stands between a head and its server: it says nothing for a while, or leaves out what was asked for at login.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{Namespace, NamespaceError};
use forebay_namespace::{SqlNamespace, TroubleKind};
use testkit::namespace_suite::{name, root};
use testkit::postgres::{Cluster, unless_missing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

use super::{TOP, create, try_open};

#[derive(Clone)]
struct Between {
    port: u16,
    /// Nothing passes while it is.
    is_silent: watch::Sender<bool>,
    /// A client has sent bytes that were not handed on.
    is_asked: Arc<AtomicBool>,
}

impl Between {
    /// `keeps`: what it hands on of a login.
    async fn new(cluster: &Cluster, keeps: fn(&str) -> bool) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = cluster.socket_directory().join(format!(".s.PGSQL.{}", cluster.port()));
        let between = Between { port, is_silent: watch::Sender::new(false), is_asked: Arc::default() };
        let here = between.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, here) = (UnixStream::connect(&socket).await, here.clone());
                tokio::spawn(async move { here.serve(client, server.unwrap(), keeps).await });
            }
        });
        between
    }

    fn url(&self, url: &str) -> String {
        let database = url.rsplit_once('/').unwrap().1;
        format!("postgres://forebay@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    async fn serve(self, mut client: TcpStream, mut server: UnixStream, keeps: fn(&str) -> bool) {
        let Ok(length) = client.read_u32().await else { return };
        let mut login = vec![0; length as usize - 4];
        client.read_exact(&mut login).await.unwrap();
        let login = kept(&login, keeps);
        server.write_all(&(login.len() as u32 + 4).to_be_bytes()).await.unwrap();
        server.write_all(&login).await.unwrap();
        let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
            (client.split(), server.split());
        let up = async {
            let mut bytes = vec![0; 65_536];
            while let Ok(count @ 1..) = from_client.read(&mut bytes).await {
                if *self.is_silent.borrow() {
                    self.is_asked.store(true, Ordering::SeqCst);
                    self.while_silent().await;
                }
                if to_server.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        };
        let down = async {
            let mut bytes = vec![0; 65_536];
            while let Ok(count @ 1..) = from_server.read(&mut bytes).await {
                self.while_silent().await;
                if to_client.write_all(&bytes[..count]).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! { () = up => {} () = down => {} }
    }

    async fn while_silent(&self) {
        self.is_silent.subscribe().wait_for(|is_silent| !is_silent).await.unwrap();
    }
}

/// A login without its length: the version, then names and values that end with a zero.
fn kept(login: &[u8], keeps: fn(&str) -> bool) -> Vec<u8> {
    let texts: Vec<&str> = std::str::from_utf8(&login[4..]).unwrap().split('\0').collect();
    let mut kept = login[..4].to_vec();
    for pair in texts.chunks(2).take_while(|pair| !pair[0].is_empty()) {
        if keeps(pair[0]) {
            kept.extend_from_slice(format!("{}\0{}\0", pair[0], pair[1]).as_bytes());
        }
    }
    kept.push(0);
    kept
}

/// As a pooler with `ignore_startup_parameters`: 16 tables were made in `public`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_login_of_which_something_was_left_out_is_refused_before_anything_is_made() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let pooler = Between::new(cluster, |parameter| parameter != "options").await;
    let refused = try_open(&pooler.url(&url), 10).map(drop).unwrap_err().to_string();
    assert!(refused.contains("search_path is") && refused.contains("pgbouncer"), "{refused}");
    let made = "SELECT count(*) FROM pg_tables WHERE schemaname IN ('public', 'forebay')";
    assert_eq!(cluster.query(&url, made).unwrap().trim(), "0");
}

/// So long may a change wait behind one that was sent, of which 30 s are its patience.
const BEHIND_MAX: Duration = Duration::from_secs(60);
/// For what is refused at once, on a busy machine.
const AT_ONCE_MAX: Duration = Duration::from_secs(5);

async fn within<T>(time: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, work).await.expect("it takes too long")
}

/// It has been found out: nobody waits any more, for what is in memory nor for what is not.
async fn require_refused_at_once(namespace: &SqlNamespace, text: &str) {
    let created = within(AT_ONCE_MAX, create(namespace, text)).await;
    assert!(matches!(created, Err(NamespaceError::Busy)), "{created:?}");
    for text in ["before", "unknown"] {
        let name = name(text);
        let found = within(AT_ONCE_MAX, namespace.lookup(&root(), TOP, &name)).await;
        assert!(matches!(found, Err(NamespaceError::Busy)), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_silence_that_a_reader_finds_first_has_changes_refused_at_once_too() {
    let Some(cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let between = Between::new(&cluster, |_| true).await;
    let namespace = try_open(&between.url(&url), 1 << 20).unwrap();
    create(&namespace, "before").await.unwrap();
    between.is_silent.send_replace(true);
    let name = name("cold");
    let found = within(BEHIND_MAX, namespace.lookup(&root(), TOP, &name)).await;
    assert!(matches!(found, Err(NamespaceError::Busy)), "{found:?}");
    require_refused_at_once(&namespace, "refused").await;
    between.is_silent.send_replace(false);
    while let Err(refused) = create(&namespace, "after").await {
        assert!(matches!(refused, NamespaceError::Busy), "{refused}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let absent = namespace.lookup(&root(), TOP, &super::name("refused")).await;
    assert!(matches!(absent, Err(NamespaceError::NotFound)), "{absent:?}");
}

/// They waited for up to 100 s, one group behind the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn changes_behind_a_group_that_waits_for_a_silent_database_are_refused_and_later_ones_at_once() {
    let Some(cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let between = Between::new(&cluster, |_| true).await;
    let namespace = Arc::new(try_open(&between.url(&url), 1 << 20).unwrap());
    create(&namespace, "before").await.unwrap();
    between.is_silent.send_replace(true);
    let creating = |text: &'static str| {
        let namespace = Arc::clone(&namespace);
        tokio::spawn(async move { create(&namespace, text).await })
    };
    let first = creating("first");
    // Also what the background asks holds the connection.
    while !between.is_asked.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let behind = [creating("second"), creating("third")];
    for refused in behind {
        assert!(matches!(within(BEHIND_MAX, refused).await.unwrap(), Err(NamespaceError::Busy)));
    }
    for text in ["fourth", "fifth"] {
        require_refused_at_once(&namespace, text).await;
    }
    between.is_silent.send_replace(false);
    let first = first.await.unwrap();
    let seen = loop {
        match namespace.lookup(&root(), TOP, &name("first")).await {
            Err(NamespaceError::Busy) => tokio::time::sleep(Duration::from_millis(50)).await,
            seen => break seen,
        }
    };
    assert_eq!(first.is_ok(), seen.is_ok(), "what is done is told as done: {first:?} {seen:?}");
    while let Err(refused) = create(&namespace, "after").await {
        assert!(matches!(refused, NamespaceError::Busy), "{refused}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for text in ["second", "third", "fourth", "fifth"] {
        let absent = namespace.lookup(&root(), TOP, &name(text)).await;
        assert!(matches!(absent, Err(NamespaceError::NotFound)), "{absent:?}");
    }
}

/// `/health` waited for the database, and `forebay status` failed. Afterwards both reported it until the next change.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_silent_database_is_told_of_without_asking_it_and_so_is_its_return() {
    let Some(cluster) = unless_missing(Cluster::start()) else { return };
    let url = cluster.create_database().unwrap();
    let between = Between::new(&cluster, |_| true).await;
    let namespace = Arc::new(try_open(&between.url(&url), 1 << 20).unwrap());
    create(&namespace, "before").await.unwrap();
    let totals = namespace.totals();
    between.is_silent.send_replace(true);
    let refused = tokio::spawn({
        let namespace = Arc::clone(&namespace);
        async move { create(&namespace, "refused").await }
    });
    let trouble = loop {
        match namespace.trouble() {
            Some(trouble) => break trouble,
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert_eq!(trouble.kind, TroubleKind::Away, "{}", trouble.why);
    assert_eq!(namespace.totals().files, totals.files);
    // It may come true later.
    let _ = refused.await.unwrap();
    between.is_silent.send_replace(false);
    while namespace.trouble().is_some() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // Callers hear of it a moment later.
    while let Err(refused) = create(&namespace, "after").await {
        assert!(matches!(refused, NamespaceError::Busy), "{refused}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
