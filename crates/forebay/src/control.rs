//! The control socket: a Unix socket in the data directory, one JSON line each way.
//!
//! Only who may enter the data directory (mode 0700) reaches it. Requests are answered one at a time per connection,
//! connections and request lengths are bounded.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::questions::{DirectoryQuestion, PoolQuestion, QuotaQuestion};

const CONNECTIONS_MAX: usize = 16;
const REQUEST_BYTES_MAX: u64 = 16_384;
/// A connection that says nothing for so long leaves its place to another.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    Status,
    Fsck,
    /// Tell the pools what their files are called.
    Describe,
    Directory(DirectoryQuestion),
    Quota(QuotaQuestion),
    Pool(PoolQuestion),
    RenewKeys,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

/// Answers the requests of the control socket.
#[async_trait::async_trait]
pub trait Responder: Send + Sync + 'static {
    async fn respond(&self, request: Request) -> Result<serde_json::Value>;
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
                    let _ = tokio::time::timeout(ANSWER_TIMEOUT, converse(stream, responder)).await;
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

async fn converse(stream: UnixStream, responder: Arc<dyn Responder>) -> Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    let mut reader = tokio::io::BufReader::new(reader.take(REQUEST_BYTES_MAX));
    tokio::time::timeout(REQUEST_TIMEOUT, tokio::io::AsyncBufReadExt::read_line(&mut reader, &mut line))
        .await??;
    let answer = match serde_json::from_str::<Request>(&line) {
        Ok(request) => match responder.respond(request).await {
            Ok(value) => Answer::Ok(value),
            Err(error) => Answer::Error(format!("{error:#}")),
        },
        Err(error) => Answer::Error(format!("request is not understood: {error}")),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    writer.write_all(&text).await?;
    Ok(())
}

/// Asks the process that runs on `data`; `None` if no process runs.
pub fn ask<T: DeserializeOwned>(data: &Path, request: Request) -> Result<Option<T>> {
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
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut text = serde_json::to_vec(&request)?;
    text.push(b'\n');
    stream.write_all(&text)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    match serde_json::from_str(&line)
        .map_err(|_| anyhow!("the running process stopped before it answered"))?
    {
        Answer::Ok(value) => Ok(Some(serde_json::from_value(value)?)),
        Answer::Error(error) => bail!(error),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    struct Idle;

    #[async_trait::async_trait]
    impl Responder for Idle {
        async fn respond(&self, _: Request) -> Result<serde_json::Value> {
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
