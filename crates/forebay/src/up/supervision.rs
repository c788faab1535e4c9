//! Tells the service manager how the process is, and feeds its watchdog as long as the parts that matter answer.
//!
//! Of a head these are the committer of the namespace, the listener of each door, and the tables that `forebay status` reads. A
//! part that waits for something outside (a database that is away, a full disk) counts as answering: a restart would not
//! help it, and the status says what it waits for.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use namespace::SqlNamespace;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::notify::Notifier;
use super::responder::Responder;
use crate::output::counted;
use crate::report::StatusReport;

/// How often the status is told where no watchdog asks for more.
const STATUS_PERIOD: Duration = Duration::from_secs(10);
/// A part has so much of the watchdog's time to answer, and is asked again after as much.
const PARTS_OF_WATCHDOG: u32 = 4;
const COMMITTER: &str = "committer of the namespace";

/// Parts of a process, for its manager.
#[async_trait]
pub trait Supervised: Send + Sync {
    /// In a line.
    async fn status(&self) -> String;

    /// Names of parts that do not answer within `patience`.
    async fn silent_parts(&self, patience: Duration) -> Vec<String>;
}

pub struct Supervision {
    pub notifier: Notifier,
    pub parts: Arc<dyn Supervised>,
}

impl Supervision {
    /// Until told to stop. Does nothing where no manager listens.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        if !self.notifier.is_heard() {
            return;
        }
        let watchdog = self.notifier.watchdog().map(|time| time / PARTS_OF_WATCHDOG);
        let period = watchdog.unwrap_or(STATUS_PERIOD).min(STATUS_PERIOD);
        let mut told = String::new();
        while !*stop.borrow() {
            let asking = async {
                match watchdog {
                    Some(patience) => self.feed(patience).await,
                    None => self.status().await,
                }
            };
            let Some(status) = unless_stopped(&mut stop, asking).await else { return };
            if status != told {
                self.notifier.status(&status);
                told = status;
            }
            tokio::select! {
                () = sleep(period) => {}
                _ = stop.changed() => {}
            }
        }
    }

    pub async fn status(&self) -> String {
        self.parts.status().await
    }

    /// Feeds the watchdog if every part answers within `patience`.
    async fn feed(&self, patience: Duration) -> String {
        let (mut silent, status) =
            tokio::join!(self.parts.silent_parts(patience), timeout(patience, self.status()));
        if status.is_err() {
            silent.push("tables of clients and files".to_owned());
        }
        if silent.is_empty() {
            self.notifier.is_alive();
            return status.unwrap_or_default();
        }
        let silent = silent.join(", ");
        tracing::error!(%silent, patience_s = patience.as_secs_f64(), "parts of the server do not answer; the watchdog is not fed");
        format!("does not answer: {silent}")
    }
}

/// Those of a head.
pub struct HeadParts {
    responder: Arc<Responder>,
    namespace: Arc<SqlNamespace>,
    /// Listeners of doors, by name.
    listeners: Vec<(String, SocketAddr)>,
    /// The question to the committer that has no answer yet. Leaf lock.
    turn: Mutex<Option<JoinHandle<bool>>>,
}

impl HeadParts {
    pub fn new(
        responder: Arc<Responder>,
        namespace: Arc<SqlNamespace>,
        listeners: Vec<(String, SocketAddr)>,
    ) -> HeadParts {
        HeadParts { responder, namespace, listeners, turn: Mutex::default() }
    }

    async fn committer_turns(&self, patience: Duration) -> bool {
        let mut turn = self.turn.lock().take();
        let namespace = Arc::clone(&self.namespace);
        let question = || async move { namespace.takes_turns().await };
        let has_turned = has_turned(&mut turn, question, patience).await;
        *self.turn.lock() = turn;
        has_turned
    }
}

#[async_trait]
impl Supervised for HeadParts {
    async fn status(&self) -> String {
        let responder = Arc::clone(&self.responder);
        // It takes the locks of tables: a thread that waits for one is none of the runtime's.
        let report = tokio::task::spawn_blocking(move || responder.status()).await;
        report.map_or_else(|_| "cannot tell its status".to_owned(), |report| status_line(&report))
    }

    async fn silent_parts(&self, patience: Duration) -> Vec<String> {
        let (turns, mut silent) =
            tokio::join!(self.committer_turns(patience), silent_listeners(&self.listeners, patience));
        if !turns {
            silent.push(COMMITTER.to_owned());
        }
        silent
    }
}

/// The outcome of `work`. `None`: the server stops, and does not wait for a part that is silent.
async fn unless_stopped<T>(stop: &mut watch::Receiver<bool>, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        outcome = work => Some(outcome),
        _ = stop.changed() => None,
    }
}

/// Whether the committer takes turns. A question without an answer stays asked, in `turn`: of a committer that is slow, each
/// turn counts, however long it took.
async fn has_turned<F: Future<Output = bool> + Send + 'static>(
    turn: &mut Option<JoinHandle<bool>>,
    question: impl FnOnce() -> F,
    patience: Duration,
) -> bool {
    let asked = turn.get_or_insert_with(|| tokio::spawn(question()));
    let Ok(answer) = timeout(patience, asked).await else { return false };
    *turn = None;
    answer.unwrap_or(false)
}

/// Names of the listeners that do not answer in time.
pub async fn silent_listeners(listeners: &[(String, SocketAddr)], patience: Duration) -> Vec<String> {
    let mut asked = JoinSet::new();
    for (name, address) in listeners.iter().cloned() {
        asked.spawn(async move { (!accepts(address, patience).await).then_some(name) });
    }
    let mut silent = Vec::new();
    while let Some(answer) = asked.join_next().await {
        silent.extend(answer.unwrap_or_else(|error| Some(error.to_string())));
    }
    silent.sort();
    silent
}

/// Whether a connection that says nothing and ends is accepted and ended in time. Every door does that, whatever it
/// speaks; one that turns the connection away answers as well.
async fn accepts(listener: SocketAddr, patience: Duration) -> bool {
    let exchange = async {
        let mut stream = TcpStream::connect(reachable(listener)).await?;
        stream.shutdown().await?;
        let mut unasked = [0; 64];
        while stream.read(&mut unasked).await? > 0 {}
        Ok::<_, std::io::Error>(())
    };
    match timeout(patience, exchange).await {
        Ok(Ok(())) => true,
        // A reset is an answer. Without descriptors nothing can be asked, and accepting goes on when there are some.
        Ok(Err(error)) => error.kind() != ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}

/// The address by which this host reaches a listener.
fn reachable(listener: SocketAddr) -> SocketAddr {
    let ip = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listener.port())
}

/// One line: what there is, then what it waits for.
fn status_line(report: &StatusReport) -> String {
    let clients = counted(report.clients.len() as u64, "client", "clients");
    let mut out = format!("{}, {clients}", counted(report.files, "file", "files"));
    if report.grace_s > 0 {
        out += &format!("; grace period, {} s left", report.grace_s);
    }
    if let Some(refused) = &report.refused {
        out += &format!("; the namespace {refused}");
    }
    for pool in &report.pools {
        if let Some(why) = &pool.offline {
            out += &format!("; {}: {why}", pool.name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(300);

    #[tokio::test]
    async fn a_listener_that_nobody_accepts_from_is_silent() {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!accepts(address, PATIENCE).await, "the system alone has answered");
        let served = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut bytes = [0; 8];
                while stream.read(&mut bytes).await.is_ok_and(|count| count > 0) {}
            }
        });
        assert!(accepts(address, Duration::from_secs(60)).await);
        served.abort();
        assert!(served.await.is_err());
        assert!(!accepts(address, Duration::from_secs(60)).await, "nobody listens");
    }

    #[tokio::test]
    async fn listeners_that_do_not_answer_are_named() {
        let hung = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let listeners = [("a listener".to_owned(), hung.local_addr().unwrap())];
        assert_eq!(silent_listeners(&listeners, PATIENCE).await, ["a listener"]);
        assert!(silent_listeners(&[], PATIENCE).await.is_empty());
    }

    #[tokio::test]
    async fn a_turn_of_a_slow_committer_counts_however_long_it_took() {
        let (end, ended) = tokio::sync::oneshot::channel();
        let (mut turn, mut slow) = (None, Some(ended));
        let mut look = async || {
            let asked = slow.take();
            let question = || async move { asked.expect("it is asked once").await.is_ok() };
            has_turned(&mut turn, question, PATIENCE).await
        };
        assert!(!look().await);
        assert!(!look().await);
        end.send(()).unwrap();
        assert!(look().await);
        let mut turn = None;
        assert!(!has_turned(&mut turn, || async { false }, PATIENCE).await, "it says that it cannot");
        assert!(has_turned(&mut turn, || async { true }, PATIENCE).await, "it is asked anew");
    }

    #[tokio::test(start_paused = true)]
    async fn turns_that_take_most_of_the_watchdogs_time_keep_the_server_alive() {
        // As the unit has it.
        let watchdog = Duration::from_secs(180);
        for turn_s in [1, 44, 50, 90, 150] {
            let (mut turn, mut fed, mut feeds) = (None, Instant::now(), 0);
            while feeds < 20 {
                let question = || async move {
                    sleep(Duration::from_secs(turn_s)).await;
                    true
                };
                if has_turned(&mut turn, question, watchdog / PARTS_OF_WATCHDOG).await {
                    (fed, feeds) = (Instant::now(), feeds + 1);
                }
                assert!(fed.elapsed() < watchdog, "turns of {turn_s} s");
                sleep(STATUS_PERIOD).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_committer_that_takes_no_turn_at_all_starves_the_watchdog() {
        let watchdog = Duration::from_secs(180);
        let (mut turn, begin) = (None, Instant::now());
        while begin.elapsed() < 2 * watchdog {
            assert!(!has_turned(&mut turn, std::future::pending::<bool>, watchdog / PARTS_OF_WATCHDOG).await);
            sleep(STATUS_PERIOD).await;
        }
    }

    #[tokio::test]
    async fn a_stop_does_not_wait_for_a_silent_part() {
        let (sender, mut stop) = watch::channel(false);
        assert_eq!(unless_stopped(&mut stop, async { 7 }).await, Some(7));
        sender.send_replace(true);
        let asked = unless_stopped(&mut stop, std::future::pending::<()>());
        assert_eq!(timeout(Duration::from_secs(60), asked).await.expect("it ends with the server"), None);
    }

    #[test]
    fn the_status_says_what_there_is_and_what_is_waited_for() {
        let report = |refused: Option<&str>, grace_s| -> StatusReport {
            let mut json = serde_json::json!({
                "version": "1", "pid": 1, "data": "/d", "uptime_s": 1, "grace_s": grace_s, "files": 12, "clients": [],
                "opens": 0, "locks": 0, "layouts": 0, "delegations": 0, "operations_per_s": 0.0, "operations": {},
                "pools": [{
                    "name": "pool-1", "drained": false, "address": "", "offline": null, "total_bytes": 0, "free_bytes": 0, "free_files": 0,
                    "replicas": 0, "read_bytes": 0, "written_bytes": 0, "client_errors": 0
                }]
            });
            if let Some(refused) = refused {
                json["refused"] = refused.into();
                json["pools"][0]["offline"] = "its disk failed".into();
            }
            serde_json::from_value(json).unwrap()
        };
        assert_eq!(status_line(&report(None, 0)), "12 files, 0 clients");
        assert_eq!(
            status_line(&report(Some("takes no changes: the disk is full"), 71)),
            "12 files, 0 clients; grace period, 71 s left; the namespace takes no changes: the disk is full; pool-1: its disk failed"
        );
    }
}
