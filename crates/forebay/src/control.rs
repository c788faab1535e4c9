//! The control socket: a Unix socket in the data directory. A connection has one request and one answer, a line of JSON
//! each; until the answer is there, each second a line says how far the work is.
//!
//! Only users that may enter the data directory (mode 0700) reach it. Connections and request lengths are bounded. If
//! the other end closes its connection, the work is dropped.

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
use tokio::sync::Semaphore;

use crate::cli::ProgressArguments;
use crate::progress::{Meter, Progress, Shown};
use crate::questions::{CreateDirectoryQuestion, DirectoryQuestion, PoolQuestion, QuotaQuestion};

const CONNECTIONS_MAX: usize = 16;
const REQUEST_BYTES_MAX: u64 = 16_384;
/// A connection that says nothing for so long, or takes nothing, leaves its place to another.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Between two lines about progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(1);
/// Between two lines of a process that answers.
const LINE_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    Status,
    Fsck,
    /// Tell the pools what their files are called.
    Describe,
    Directory(DirectoryQuestion),
    CreateDirectory(CreateDirectoryQuestion),
    Quota(QuotaQuestion),
    Pool(PoolQuestion),
    RenewKeys,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The work goes on; `None`: it tells nothing of itself.
    Progress(Option<Progress>),
    Ok(serde_json::Value),
    Error(String),
}

/// Answers the requests of the control socket.
#[async_trait::async_trait]
pub trait Responder: Send + Sync + 'static {
    /// Dropped if the other end closes its connection.
    async fn respond(&self, request: Request, meter: &Arc<Meter>) -> Result<serde_json::Value>;
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
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) => respond(&mut writer, responder, request).await?,
        Err(error) => Answer::Error(format!("request is not understood: {error}")),
    };
    send(&mut writer, &answer).await
}

/// Says how far the work is until it is done. An error: the other end is gone.
async fn respond(writer: &mut OwnedWriteHalf, responder: &dyn Responder, request: Request) -> Result<Answer> {
    let meter = Meter::new();
    let mut work = responder.respond(request, &meter);
    loop {
        match tokio::time::timeout(PROGRESS_PERIOD, &mut work).await {
            Err(_) => send(writer, &Answer::Progress(meter.progress())).await?,
            Ok(done) => {
                if let Some(last) = meter.progress() {
                    send(writer, &Answer::Progress(Some(last))).await?;
                }
                return Ok(match done {
                    Ok(value) => Answer::Ok(value),
                    Err(error) => Answer::Error(format!("{error:#}")),
                });
            }
        }
    }
}

async fn send(writer: &mut OwnedWriteHalf, answer: &Answer) -> Result<()> {
    let mut text = serde_json::to_vec(answer)?;
    text.push(b'\n');
    Ok(tokio::time::timeout(REQUEST_TIMEOUT, writer.write_all(&text)).await??)
}

/// Asks the process that runs on `data`; `None` if no process runs.
pub fn ask<T: DeserializeOwned>(data: &Path, request: Request) -> Result<Option<T>> {
    ask_telling(data, request, &mut |_| {})
}

/// As [`ask`], and shows how far the process is.
pub fn ask_showing<T: DeserializeOwned>(
    data: &Path,
    request: Request,
    arguments: ProgressArguments,
) -> Result<Option<T>> {
    let told = Arc::new(Mutex::new(None));
    let shown = Arc::clone(&told);
    let _shown = Shown::begin(arguments, move || shown.lock().clone());
    ask_telling(data, request, &mut |progress| *told.lock() = Some(progress))
}

fn ask_telling<T: DeserializeOwned>(
    data: &Path,
    request: Request,
    tell: &mut dyn FnMut(Progress),
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
    stream.write_all(&text)?;
    let mut lines = BufReader::new(&stream).lines();
    loop {
        let line = lines.next().transpose()?.unwrap_or_default();
        match serde_json::from_str(&line)
            .map_err(|_| anyhow!("the running process stopped before it answered"))?
        {
            Answer::Progress(progress) => progress.into_iter().for_each(&mut *tell),
            Answer::Ok(value) => return Ok(Some(serde_json::from_value(value)?)),
            Answer::Error(error) => bail!(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;

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
        async fn respond(&self, _: Request, meter: &Arc<Meter>) -> Result<serde_json::Value> {
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
            let answer = ask_telling::<String>(dir.path(), Request::Status, &mut |progress| {
                lines.push((progress.done, progress.total));
                may_answer.notify_one();
            });
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

    struct Idle;

    #[async_trait::async_trait]
    impl Responder for Idle {
        async fn respond(&self, _: Request, _: &Arc<Meter>) -> Result<serde_json::Value> {
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
