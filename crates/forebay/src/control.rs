//! The control socket: a Unix socket in the data directory. A connection has one request and one answer, a line of JSON
//! each. Until the answer is there, each second a line says how far the work is. A list that may be long comes before the
//! answer, a line for each item.
//!
//! Only users that may enter the data directory (mode 0700) reach it. Connections and request lengths are bounded. If
//! the other end closes its connection, the work is dropped. If it only stops reading (Ctrl-Z), the work goes on, unless it
//! has items to send: then it waits.

use std::fmt::Display;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;

use crate::cli::ProgressArguments;
use crate::progress::{Meter, Progress, Shown};
use crate::questions::{
    CreateDirectoryQuestion, DirectoryQuestion, FsckQuestion, MemberQuestion, PoolQuestion, QuotaQuestion,
    ScrubQuestion,
};

const CONNECTIONS_MAX: usize = 16;
const REQUEST_BYTES_MAX: u64 = 16_384;
/// A connection that says nothing for so long leaves its place to another.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// So does one that takes nothing of its answer for so long.
const TAKE_TIMEOUT: Duration = Duration::from_secs(600);
/// Items that are waiting to be sent.
const ITEMS_WAITING_MAX: usize = 64;
/// Further items wait while so much is unsent.
const UNSENT_BYTES_MAX: usize = 64 << 10;
/// Between two lines about progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// Between two lines of a process that answers.
const LINE_TIMEOUT: Duration = Duration::from_secs(600);
/// Begins the error that a process answers to a request of another version; commands look for it.
const NOT_UNDERSTOOD: &str = "request is not understood";

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    Status,
    Fsck(FsckQuestion),
    /// Tell the pools what their files are called.
    Describe,
    Directory(DirectoryQuestion),
    CreateDirectory(CreateDirectoryQuestion),
    Quota(QuotaQuestion),
    Pool(PoolQuestion),
    /// Decisions of the pools about modes of I/O.
    Iostat,
    /// So many files of each pool, those with the most bytes.
    BusiestFiles(u16),
    /// Decisions of the pools about the modes of a file, by its path.
    WhyIo(String),
    /// Measure the modes of I/O on a pool's disk.
    Calibrate(u32),
    /// Compare the replicas of a pool with their block sums.
    Scrub(ScrubQuestion),
    /// The last scrub of a pool, and the next one.
    ScrubStatus(u32),
    RenewKeys,
    /// A token that is valid for so many hours.
    ClusterToken(u32),
    ClusterStatus,
    Member(MemberQuestion),
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The work goes on; `None`: it tells nothing of itself.
    Progress(Option<Progress>),
    /// One of the list that was asked for.
    Item(serde_json::Value),
    Ok(serde_json::Value),
    Error(String),
}

/// Answers the requests of the control socket.
#[async_trait::async_trait]
pub trait Responder: Send + Sync + 'static {
    /// Dropped if the other end closes its connection. The meter is stopped then, for threads and tasks that go on. A list
    /// that was asked for goes to `items`.
    async fn respond(&self, request: Request, meter: &Arc<Meter>, items: Items) -> Result<serde_json::Value>;
}

/// Takes a list, item by item, and does not keep it.
pub struct Items(mpsc::Sender<serde_json::Value>);

/// A way for items, and its end.
pub fn items() -> (Items, mpsc::Receiver<serde_json::Value>) {
    let (sender, receiver) = mpsc::channel(ITEMS_WAITING_MAX);
    (Items(sender), receiver)
}

impl Items {
    /// Waits while the other end is slow.
    pub async fn send(&self, item: &impl Serialize) -> Result<()> {
        let sent = self.0.send_timeout(serde_json::to_value(item)?, TAKE_TIMEOUT).await;
        sent.map_err(|_| anyhow!("nobody takes the list"))
    }
}

pub fn listen(data: &Path) -> Result<UnixListener> {
    let path = data.join("control.sock");
    // We hold the data directory's lock: a socket that is there was left by a killed process.
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(crate::data_dir::complaint(&path, "replace", &error));
        }
        _ => {}
    }
    let dir = std::fs::File::open(data)?;
    UnixListener::bind(short_path(&dir)).with_context(|| format!("cannot listen on {}", path.display()))
}

/// Socket addresses hold 107 bytes; a data directory may be deeper. The way over its descriptor is always short.
fn short_path(dir: &std::fs::File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/control.sock", dir.as_raw_fd()))
}

pub async fn serve(listener: UnixListener, responder: Arc<dyn Responder>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let responder = Arc::clone(&responder);
                tokio::spawn(async move {
                    let _ = converse(stream, &*responder).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a control connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, responder: &dyn Responder) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = tokio::io::BufReader::new(reader.take(REQUEST_BYTES_MAX));
    tokio::time::timeout(REQUEST_TIMEOUT, tokio::io::AsyncBufReadExt::read_line(&mut reader, &mut line))
        .await??;
    let last = match serde_json::from_str::<Request>(&line) {
        Ok(request) => respond(&mut writer, responder, request).await?,
        Err(error) => text(&Answer::Error(format!("{NOT_UNDERSTOOD}: {error}")))?,
    };
    send(&mut writer, &last).await
}

/// Says how far the work is until it is done. Returns the lines that are left to send, the answer last. An error: the other
/// end is gone.
///
/// A line about progress is left out while the one before is not written, so that the work does not wait for it.
async fn respond(
    writer: &mut OwnedWriteHalf,
    responder: &dyn Responder,
    request: Request,
) -> Result<Vec<u8>> {
    let meter = Meter::new();
    let _stop = StopOnDrop(Arc::clone(&meter));
    let (items, mut listed) = items();
    let mut work = responder.respond(request, &meter, items);
    let mut period = tokio::time::interval_at(Instant::now() + PROGRESS_PERIOD, PROGRESS_PERIOD);
    let mut unsent = Vec::new();
    let done = loop {
        tokio::select! {
            done = &mut work => break done,
            written = writer.write(&unsent), if !unsent.is_empty() => {
                unsent.drain(..written?);
            }
            Some(item) = listed.recv(), if unsent.len() < UNSENT_BYTES_MAX => {
                unsent.extend(text(&Answer::Item(item))?);
            }
            _ = period.tick() => {
                if unsent.is_empty() {
                    unsent = text(&Answer::Progress(meter.progress()))?;
                }
            }
        }
    };
    while let Ok(item) = listed.try_recv() {
        unsent.extend(text(&Answer::Item(item))?);
    }
    if let Some(last) = meter.progress() {
        unsent.extend(text(&Answer::Progress(Some(last)))?);
    }
    unsent.extend(text(&match done {
        Ok(value) => Answer::Ok(value),
        Err(error) => Answer::Error(format!("{error:#}")),
    })?);
    Ok(unsent)
}

/// Tells the work that nobody waits for it any more.
struct StopOnDrop(Arc<Meter>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn text(answer: &Answer) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec(answer)?;
    text.push(b'\n');
    Ok(text)
}

async fn send(writer: &mut OwnedWriteHalf, mut text: &[u8]) -> Result<()> {
    while !text.is_empty() {
        let written = tokio::time::timeout(TAKE_TIMEOUT, writer.write(text)).await??;
        text = &text[written..];
    }
    Ok(())
}

/// Asks the process that runs on `data`; `None` if no process runs.
pub fn ask<T: DeserializeOwned>(data: &Path, request: Request) -> Result<Option<T>> {
    ask_telling(data, request, &mut |_| {}, &mut no_items)
}

/// As [`ask`], and shows how far the process is.
pub fn ask_showing<T: DeserializeOwned>(
    data: &Path,
    request: Request,
    arguments: ProgressArguments,
) -> Result<Option<T>> {
    ask_listing(data, request, arguments, &mut no_items)
}

/// As [`ask_showing`], and hands the items of a list to `take`.
pub fn ask_listing<T: DeserializeOwned>(
    data: &Path,
    request: Request,
    arguments: ProgressArguments,
    take: &mut dyn FnMut(serde_json::Value) -> Result<()>,
) -> Result<Option<T>> {
    let told = Arc::new(Mutex::new(None));
    let shown = Arc::clone(&told);
    let _shown = Shown::begin(arguments, move || shown.lock().clone());
    ask_telling(data, request, &mut |progress| *told.lock() = Some(progress), take)
}

/// As [`ask`], and hands the items of a list to `take`.
pub fn ask_items<T: DeserializeOwned>(
    data: &Path,
    request: Request,
    take: &mut dyn FnMut(serde_json::Value) -> Result<()>,
) -> Result<Option<T>> {
    ask_telling(data, request, &mut |_| {}, take)
}

fn no_items(_: serde_json::Value) -> Result<()> {
    Err(another_version("it sends a list"))
}

fn ask_telling<T: DeserializeOwned>(
    data: &Path,
    request: Request,
    tell: &mut dyn FnMut(Progress),
    take: &mut dyn FnMut(serde_json::Value) -> Result<()>,
) -> Result<Option<T>> {
    let dir = match std::fs::File::open(data) {
        Ok(dir) => dir,
        Err(error) => return Err(crate::data_dir::complaint(data, "open", &error)),
    };
    let mut stream = match BlockingStream::connect(short_path(&dir)) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(crate::data_dir::complaint(&data.join("control.sock"), "reach", &error)),
    };
    stream.set_read_timeout(Some(LINE_TIMEOUT))?;
    let mut text = serde_json::to_vec(&request)?;
    text.push(b'\n');
    if text.len() as u64 > REQUEST_BYTES_MAX {
        bail!("the command is longer than {REQUEST_BYTES_MAX} bytes");
    }
    stream.write_all(&text)?;
    let mut reader = BufReader::new(&stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if !line.ends_with('\n') {
            bail!("the running process stopped before it answered");
        }
        match serde_json::from_str(&line).map_err(another_version)? {
            Answer::Progress(progress) => progress.into_iter().for_each(&mut *tell),
            Answer::Item(item) => take(item)?,
            Answer::Ok(value) => return serde_json::from_value(value).map(Some).map_err(another_version),
            Answer::Error(error) if error.starts_with(NOT_UNDERSTOOD) => return Err(another_version(error)),
            Answer::Error(error) => bail!(error),
        }
    }
}

/// A package may replace the program while the process of before runs.
fn another_version(error: impl Display) -> anyhow::Error {
    let version = env!("CARGO_PKG_VERSION");
    anyhow!(
        "the running process is not of the version of this command, {version} ({error}); restart the process"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use tokio::sync::Notify;

    use super::*;
    use crate::report::StatusReport;

    /// Counts to 1, and answers when it is told to.
    struct Slow {
        may_answer: Arc<Notify>,
        dropped: Arc<Notify>,
    }

    struct TellDrop(Arc<Notify>);

    impl Drop for TellDrop {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }

    #[async_trait::async_trait]
    impl Responder for Slow {
        async fn respond(&self, _: Request, meter: &Arc<Meter>, _: Items) -> Result<serde_json::Value> {
            let _tell = TellDrop(Arc::clone(&self.dropped));
            meter.begin_items("counting", Some(2));
            meter.add(1);
            self.may_answer.notified().await;
            Ok("done".into())
        }
    }

    fn slow() -> (tempfile::TempDir, Arc<Notify>, Arc<Notify>) {
        let dir = tempfile::tempdir().unwrap();
        let (may_answer, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let responder = Slow { may_answer: Arc::clone(&may_answer), dropped: Arc::clone(&dropped) };
        tokio::spawn(serve(listen(dir.path()).unwrap(), Arc::new(responder)));
        (dir, may_answer, dropped)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn progress_comes_before_the_answer_is_there() {
        let (dir, may_answer, _) = slow();
        let asking = tokio::task::spawn_blocking(move || {
            let mut lines = Vec::new();
            let mut tell = |progress: Progress| {
                lines.push((progress.done, progress.total));
                may_answer.notify_one();
            };
            let answer = ask_telling::<String>(dir.path(), Request::Status, &mut tell, &mut no_items);
            (answer.unwrap().unwrap(), lines)
        });
        let (answer, lines) = tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap().unwrap();
        assert_eq!(answer, "done");
        // Once for a second that passed, once with the answer.
        assert!(lines.len() >= 2 && lines.iter().all(|line| *line == (1, Some(2))), "{lines:?}");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_for_a_connection_that_was_closed_is_dropped() {
        let (dir, _, dropped) = slow();
        let mut stream = UnixStream::connect(dir.path().join("control.sock")).await.unwrap();
        stream.write_all(b"\"status\"\n").await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        drop(stream);
        tokio::time::timeout(Duration::from_secs(60), dropped.notified()).await.unwrap();
    }

    /// The work was dropped after some minutes: lines about progress filled the socket.
    #[tokio::test(start_paused = true)]
    async fn work_for_a_command_that_is_stopped_goes_on_and_its_answer_waits() {
        let (dir, may_answer, dropped) = slow();
        let mut stream = UnixStream::connect(dir.path().join("control.sock")).await.unwrap();
        stream.write_all(b"\"status\"\n").await.unwrap();
        const STOPPED_S: u64 = 20_000;
        // Of a clock that moves only while everybody waits.
        tokio::select! {
            () = dropped.notified() => panic!("the work is dropped"),
            () = tokio::time::sleep(Duration::from_secs(STOPPED_S)) => {}
        }
        may_answer.notify_one();
        dropped.notified().await;
        let mut lines = String::new();
        stream.read_to_string(&mut lines).await.unwrap();
        assert_eq!(lines.lines().last(), Some("{\"Ok\":\"done\"}"));
        let told = lines.lines().count();
        assert!(told < STOPPED_S as usize, "{told} lines fit the socket: it was never full");
        assert!(lines.lines().all(|line| serde_json::from_str::<Answer>(line).is_ok()), "a torn line");
    }

    /// Works in a thread, which cannot be dropped.
    struct Thread(Arc<Notify>);

    #[async_trait::async_trait]
    impl Responder for Thread {
        async fn respond(&self, _: Request, meter: &Arc<Meter>, _: Items) -> Result<serde_json::Value> {
            let (meter, ended) = (Arc::clone(meter), Arc::clone(&self.0));
            let work = tokio::task::spawn_blocking(move || {
                while !meter.is_stopped() {
                    std::thread::sleep(Duration::from_millis(10));
                }
                ended.notify_one();
            });
            work.await?;
            Ok(serde_json::Value::Null)
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thread_that_works_for_a_connection_that_was_closed_is_told_to_stop() {
        let (dir, ended) = (tempfile::tempdir().unwrap(), Arc::new(Notify::new()));
        tokio::spawn(serve(listen(dir.path()).unwrap(), Arc::new(Thread(Arc::clone(&ended)))));
        let mut stream = UnixStream::connect(dir.path().join("control.sock")).await.unwrap();
        stream.write_all(b"\"status\"\n").await.unwrap();
        let mut first = [0; 1];
        stream.read_exact(&mut first).await.unwrap();
        drop(stream);
        tokio::time::timeout(Duration::from_secs(60), ended.notified()).await.unwrap();
    }

    /// Asks a process that answers with `line`.
    fn answered(line: &'static str) -> String {
        let dir = tempfile::tempdir().unwrap();
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("control.sock")).unwrap();
        let process = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
        });
        let error = ask::<StatusReport>(dir.path(), Request::Status).unwrap_err();
        process.join().unwrap();
        format!("{error:#}")
    }

    /// It was "missing field `name`" until the server was restarted after an upgrade.
    #[test]
    fn an_answer_of_another_version_is_told_with_advice() {
        for line in [
            "{\"Ok\":{\"version\":\"0.0.9\",\"pools\":[{\"id\":0,\"is_drained\":false}]}}\n",
            "{\"Error\":\"request is not understood: unknown variant `status`\"}\n",
            "{\"Partial\":1}\n",
        ] {
            let told = answered(line);
            let is_advice = told.starts_with("the running process is not of the version of this command")
                && told.ends_with("; restart the process");
            assert!(is_advice, "{line}: {told}");
        }
        assert_eq!(answered("{\"Error\":\"no such pool\"}\n"), "no such pool");
        assert_eq!(answered("{\"Ok\":{\"pools\":["), "the running process stopped before it answered");
    }

    /// Sends numbers without an end, and notes how many of them were taken from it.
    struct Endless {
        sent: Arc<AtomicU64>,
        ended: Arc<Notify>,
    }

    #[async_trait::async_trait]
    impl Responder for Endless {
        async fn respond(&self, _: Request, _: &Arc<Meter>, items: Items) -> Result<serde_json::Value> {
            let _tell = TellDrop(Arc::clone(&self.ended));
            loop {
                items.send(&self.sent.load(Relaxed)).await?;
                self.sent.fetch_add(1, Relaxed);
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_list_arrives_in_order_and_ends_with_its_command() {
        let (dir, ended) = (tempfile::tempdir().unwrap(), Arc::new(Notify::new()));
        let responder = Endless { sent: Arc::default(), ended: Arc::clone(&ended) };
        tokio::spawn(serve(listen(dir.path()).unwrap(), Arc::new(responder)));
        let asking = tokio::task::spawn_blocking(move || {
            let mut next = 0;
            let mut take = |item: serde_json::Value| {
                assert_eq!(item, next);
                next += 1;
                if next < 100_000 { Ok(()) } else { bail!("that is enough") }
            };
            ask_telling::<String>(dir.path(), Request::Status, &mut |_| {}, &mut take)
        });
        let answer = tokio::time::timeout(Duration::from_secs(60), asking).await.unwrap().unwrap();
        assert_eq!(answer.unwrap_err().to_string(), "that is enough");
        tokio::time::timeout(Duration::from_secs(60), ended.notified()).await.unwrap();
    }

    /// The list of a command that was suspended for ever would hold the turn of all other checks.
    #[tokio::test(start_paused = true)]
    async fn a_list_that_nobody_takes_is_kept_within_bounds_and_given_up() {
        let (dir, ended, sent) = (tempfile::tempdir().unwrap(), Arc::new(Notify::new()), Arc::default());
        let responder = Endless { sent: Arc::clone(&sent), ended: Arc::clone(&ended) };
        tokio::spawn(serve(listen(dir.path()).unwrap(), Arc::new(responder)));
        let mut stream = UnixStream::connect(dir.path().join("control.sock")).await.unwrap();
        stream.write_all(b"\"status\"\n").await.unwrap();
        let since = Instant::now();
        ended.notified().await;
        // Of a clock that moves only while everybody waits.
        assert!(since.elapsed() < 2 * TAKE_TIMEOUT, "{:?}", since.elapsed());
        let waiting = sent.load(Relaxed);
        assert!(waiting < 1_000_000, "{waiting} items wait in memory");
        let mut lines = String::new();
        stream.read_to_string(&mut lines).await.unwrap();
        assert_eq!(lines.lines().last(), Some("{\"Error\":\"nobody takes the list\"}"));
    }

    struct Idle;

    #[async_trait::async_trait]
    impl Responder for Idle {
        async fn respond(&self, _: Request, _: &Arc<Meter>, _: Items) -> Result<serde_json::Value> {
            Ok(serde_json::Value::Null)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_say_nothing_leave_their_places_to_others() {
        let dir = tempfile::tempdir().unwrap();
        tokio::spawn(serve(listen(dir.path()).unwrap(), Arc::new(Idle)));
        let connect = || UnixStream::connect(dir.path().join("control.sock"));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            silent.push(connect().await.unwrap());
        }
        let since = Instant::now();
        let mut asking = connect().await.unwrap();
        asking.write_all(b"\"status\"\n").await.unwrap();
        let mut answer = String::new();
        asking.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "{\"Ok\":null}\n");
        // Of a clock that moves only while everybody waits.
        assert!(since.elapsed() < 2 * REQUEST_TIMEOUT, "{:?}", since.elapsed());
    }
}
