//! A door for a line protocol over TCP, as an example: a door parses a request, asks [`Files`] for one operation, and maps
//! one error to a word.
//!
//! `PUT path length` and the bytes, `GET path`, `DELETE path`, `COPY from to`, `WATCH path`. The answer is `OK` or a word
//! ([`word`]). A client may keep a copy of a file that it watches, until it reads `CHANGED` or sends a line.
//!
//! Absent: authentication (all connections have one caller), names with spaces, listings.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{Activity, Caller, Namespace, NamespaceError, PoolError, Replace, SelectError};
use bytes::Bytes;
use file_state::Holder;
use forebay_files::{
    By, ContentMode, Door, Entry, Files, FilesError, Last, Recall, Recaller, RegisterError, Upload,
    UploadError, UploadTerms, WalkError, walk,
};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use types::{Access, FileId, Name};

const CONNECTIONS_MAX: usize = 64;
const LINE_BYTES_MAX: u64 = 4_096;
const PIECE_BYTES: u32 = 1 << 16;
/// For a client to send or take a piece of a file.
const PIECE_TIME: Duration = Duration::from_secs(30);

pub struct LineDoor {
    files: Arc<Files>,
    namespace: Arc<dyn Namespace>,
    door: Door,
    caller: Caller,
    /// How long a removal waits for what clients of other doors have to return.
    patience: Duration,
    watchers: Arc<Watchers>,
    connections: AtomicU64,
}

impl LineDoor {
    pub fn register(
        files: Arc<Files>,
        namespace: Arc<dyn Namespace>,
        caller: Caller,
        patience: Duration,
    ) -> Result<LineDoor, RegisterError> {
        let door = files.register("line")?;
        let watchers = Arc::new(Watchers::default());
        files.recall_through(door, watchers.clone());
        Ok(LineDoor { files, namespace, door, caller, patience, watchers, connections: AtomicU64::new(0) })
    }

    /// Ends all connections when it is dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            while connections.try_join_next().is_some() {}
            if connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            connections.spawn(Arc::clone(&self).converse(stream));
        }
    }

    async fn converse(self: Arc<Self>, stream: TcpStream) -> io::Result<()> {
        let holder = Holder::of(self.door, self.connections.fetch_add(1, Ordering::Relaxed));
        let mut link = Link { stream: BufReader::new(stream), holder };
        loop {
            let line = link.line().await?;
            match self.obey(&mut link, &line).await {
                Ok(()) => {}
                Err(Failure::Refused(error)) => link.send(format!("{}\n", word(&error))).await?,
                // The length of a body that may follow is unknown.
                Err(Failure::Malformed) => return link.send("MALFORMED\n").await,
                Err(Failure::Lost(error)) => return Err(error),
            }
        }
    }

    async fn obey(&self, link: &mut Link, line: &str) -> Result<(), Failure> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["PUT", path, length] => {
                let length = length.parse().map_err(|_| Failure::Malformed)?;
                self.put(link, &names(path)?, length).await?;
            }
            ["GET", path] => return self.get(link, &names(path)?).await,
            ["DELETE", path] => self.delete(link.holder, &names(path)?).await?,
            ["COPY", from, to] => self.copy(link.holder, &names(from)?, &names(to)?).await?,
            ["WATCH", path] => return self.watch(link, &names(path)?).await,
            _ => return Err(Failure::Malformed),
        }
        Ok(link.send("OK\n").await?)
    }

    /// If the upload is refused, the bytes are read all the same: the next command follows them.
    async fn put(&self, link: &mut Link, path: &[Name], length: u64) -> Result<(), Failure> {
        let mut upload = self.begin_upload(link.holder, path, length).await;
        let mut left = length;
        while left > 0 {
            let bytes = link.body(left).await?;
            left -= bytes.len() as u64;
            if let Ok(coming) = &mut upload
                && let Err(error) = coming.write(bytes).await
            {
                upload = Err(error);
            }
        }
        upload?.finish().await?.publish_without_rules().await?;
        Ok(())
    }

    async fn begin_upload(&self, holder: Holder, path: &[Name], size: u64) -> Result<Upload, FilesError> {
        let target = self.files.upload_target(&self.caller, path).await?;
        let place = target.place();
        self.demand(Activity::Upload, &place.path)?;
        if let Some(found) = &place.found
            && !self.files.judge().allows(&self.caller.identity, found, Access::WRITE).await?
        {
            return Err(NamespaceError::AccessDenied.into());
        }
        let may_replace = self.caller.may(Activity::Delete, &place.path);
        let replace = if may_replace { Replace::Any } else { Replace::Never };
        let terms = UploadTerms { replace, size: Some(size), ..UploadTerms::default() };
        let upload = self.files.begin_upload(holder, &self.caller, target, terms).await?;
        upload.recall_ahead().await?;
        Ok(upload)
    }

    async fn get(&self, link: &mut Link, path: &[Name]) -> Result<(), Failure> {
        let (_held, file) = self.files.open_to_read(&self.caller, path, link.holder).await?;
        let content = self.files.content(&file, ContentMode::Read).await?;
        let (mut data, mut sent) = (content.read(0, PIECE_BYTES).await?.data, 0);
        link.send(format!("OK {}\n", file.size)).await?;
        while sent < file.size {
            if data.is_empty() {
                // The length is promised already.
                return Err(Failure::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
            sent += data.len() as u64;
            link.send(data).await?;
            data = content.read(sent, PIECE_BYTES).await.map_err(io::Error::other)?.data;
        }
        Ok(())
    }

    async fn delete(&self, holder: Holder, path: &[Name]) -> Result<(), FilesError> {
        let place = walk(&*self.namespace, &self.caller, path, Last::Itself).await?;
        self.demand(Activity::Delete, &place.path)?;
        let (dir, name) = place.entry()?;
        let by = By { identity: &self.caller.identity, holder: Some(holder), patience: self.patience };
        self.files.remove(by, Entry::any(dir, name)).await?;
        Ok(())
    }

    async fn copy(&self, holder: Holder, from: &[Name], to: &[Name]) -> Result<(), FilesError> {
        let (_held, source) = self.files.open_to_read(&self.caller, from, holder).await?;
        let content = self.files.content(&source, ContentMode::Read).await?;
        let upload = self.begin_upload(holder, to, source.size).await?;
        upload.copy_from(&content).await?.publish_without_rules().await?;
        Ok(())
    }

    async fn watch(&self, link: &mut Link, path: &[Name]) -> Result<(), Failure> {
        let (held, file) = self.files.open_to_read(&self.caller, path, link.holder).await?;
        let (tell, told) = oneshot::channel();
        self.watchers.0.lock().insert(link.holder, tell);
        let _watch = Watch { door: self, file: file.file, holder: link.holder };
        self.files.delegate_reading(file.file, link.holder)?;
        drop(held);
        link.send("OK\n").await?;
        tokio::select! {
            _ = told => {}
            line = link.line() => drop(line?),
        }
        Ok(link.send("CHANGED\n").await?)
    }

    fn demand(&self, activity: Activity, path: &[Name]) -> Result<(), WalkError> {
        if self.caller.may(activity, path) { Ok(()) } else { Err(WalkError::Denied) }
    }
}

/// The one place where an error becomes a word of the protocol.
fn word(error: &FilesError) -> &'static str {
    use {NamespaceError as N, UploadError as U};
    match error {
        FilesError::Namespace(N::NotFound | N::Stale(_)) | FilesError::Upload(U::DirectoryMoved { .. }) => {
            "NOT-FOUND"
        }
        FilesError::Namespace(N::AccessDenied | N::NotPermitted) | FilesError::Path(_) => "FORBIDDEN",
        FilesError::Namespace(N::IsDirectory | N::NotRegular | N::NotEmpty)
        | FilesError::Upload(U::IsDirectory) => "NOT-A-FILE",
        FilesError::Namespace(N::NoSpace | N::QuotaExceeded)
        | FilesError::Pool(PoolError::NoSpace(_))
        | FilesError::Select(SelectError::NoSpace) => "FULL",
        FilesError::Upload(U::Exists) => "EXISTS",
        FilesError::Denied => "LOCKED",
        error if error.may_pass() => "TRY-LATER",
        _ => "FAILED",
    }
}

#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Refused(#[from] FilesError),
    #[error("command is malformed")]
    Malformed,
    /// The connection is of no more use.
    #[error(transparent)]
    Lost(#[from] io::Error),
}

/// Connections that wait for a change of a file, and the way to tell them.
#[derive(Default)]
struct Watchers(Mutex<BTreeMap<Holder, oneshot::Sender<()>>>);

impl Recaller for Watchers {
    fn recall(&self, recalls: &[Recall]) {
        let mut watchers = self.0.lock();
        for tell in recalls.iter().filter_map(|recall| watchers.remove(&recall.holder)) {
            // A connection that has just ended gives back by itself.
            let _ = tell.send(());
        }
    }
}

/// Gives the delegation back when the client was told, or is gone.
struct Watch<'a> {
    door: &'a LineDoor,
    file: FileId,
    holder: Holder,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.door.watchers.0.lock().remove(&self.holder);
        self.door.files.return_delegation(self.file, self.holder);
    }
}

struct Link {
    stream: BufReader<TcpStream>,
    holder: Holder,
}

impl Link {
    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(LINE_BYTES_MAX).read_line(&mut line).await?;
        if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The next bytes of a body of which so many are missing.
    async fn body(&mut self, left: u64) -> io::Result<Bytes> {
        let mut bytes = vec![0; left.min(PIECE_BYTES.into()) as usize];
        let read = timeout(PIECE_TIME, self.stream.read(&mut bytes)).await??;
        bytes.truncate(read);
        if read > 0 { Ok(bytes.into()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        timeout(PIECE_TIME, self.stream.write_all(bytes.as_ref())).await?
    }
}

fn names(path: &str) -> Result<Vec<Name>, Failure> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| Name::new(part.as_bytes()).map_err(|_| Failure::Malformed)).collect()
}
