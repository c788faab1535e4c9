//! An upload: bytes into a file without a name, and the name when all of them are there.
//!
//! The bytes may go through the head ([`Upload::write`], [`ScatteredUpload`]), come from another file
//! ([`Upload::copy_from`]) or come in at a pool ([`Upload::received`]). An upload that ends before it has its name leaves
//! nothing, for the unnamed file is an orphan, unless a keeper takes it (`kept_uploads`).
//!
//! Grants of NFS clients on the file that has the name are recalled while the bytes come in, and the upload waits until
//! they are back or revoked: the bytes are not sent twice because a client is slow. The price is that an upload that
//! fails has cost the clients their layouts. They get others as soon as its request has ended.

mod copied;
mod naming;
mod scattered;

use std::sync::Arc;
use std::time::Duration;

use api::{Caller, NamespaceError, Purpose, Replace, SelectError, Selection, TicketMode, Unnamed};
use bytes::Bytes;
use file_state::{Holder, Modes, Share};
use thiserror::Error;
use types::{Attributes, Checksum, ChecksumKind, FileId, Name, PoolId, Timestamp};

use crate::{
    Change, Files, FilesError, Last, MovesSeen, OpenFile, PathTarget, Received, WalkError, Writer, mismatch,
    path_text, walk,
};
pub use naming::{NameToGive, Naming, NamingGuard, PublishError};
pub use scattered::ScatteredUpload;

/// If nothing is replaced.
const PERMISSIONS: u32 = 0o644;

/// The place of an upload, as a walk has found it.
#[derive(Clone, Debug)]
pub struct UploadTarget {
    place: PathTarget,
    way: Way,
}

#[derive(Clone, Copy, Debug)]
enum Way {
    /// The path leads there as long as nothing was renamed since.
    Walked(MovesSeen),
    /// The path is to be walked before the name is given.
    Unknown,
    /// The path leads elsewhere until the directory gets the name that is in the path.
    Beside,
}

impl UploadTarget {
    /// A place that the caller has walked to. The path is walked again before the name is given.
    pub fn new(place: PathTarget) -> UploadTarget {
        UploadTarget { place, way: Way::Unknown }
    }

    /// In a directory that gets the name in the path later: until then the path leads to the one that it replaces.
    pub fn beside(place: PathTarget) -> UploadTarget {
        UploadTarget { place, way: Way::Beside }
    }

    pub fn place(&self) -> &PathTarget {
        &self.place
    }
}

/// Terms that are given in advance.
#[derive(Clone, Debug)]
pub struct UploadTerms {
    pub replace: Replace,
    pub promised: Vec<Checksum>,
    pub size: Option<u64>,
    pub mtime: Option<Timestamp>,
    /// Sums to be computed beside those promised.
    pub kinds: Vec<ChecksumKind>,
}

impl Default for UploadTerms {
    fn default() -> UploadTerms {
        let (promised, kinds) = (Vec::new(), Vec::new());
        UploadTerms { replace: Replace::Any, promised, size: None, mtime: None, kinds }
    }
}

/// Why an upload is not gone on with, or gets no name. Nothing was kept of its bytes, unless [`FilesError::may_pass`].
#[derive(Debug, Error)]
pub enum UploadError {
    #[error("got {got} bytes of {told}; nothing was kept")]
    Length { told: u64, got: u64 },
    #[error("checksum does not agree: told {told}, got {got}; nothing was kept")]
    Checksum { told: Checksum, got: Checksum },
    #[error(
        "directory {directory} was moved or removed meanwhile: make it again, or upload to where it is now"
    )]
    DirectoryMoved { directory: Box<str> },
    #[error("file exists")]
    Exists,
    #[error("file was changed meanwhile")]
    Changed,
    #[error("a directory has this name")]
    IsDirectory,
    #[error("the name is given to one file after the other")]
    Contended,
    #[error("the file was not given its name")]
    Failed,
    #[error("the pool has started anew and may have lost bytes of the file; nothing was kept")]
    Lost,
    #[error(
        "this upload of {path} is over: another one was begun meanwhile, or it was given up; begin again with the first byte"
    )]
    Superseded { path: Box<str> },
    #[error("several uploads of this name were begun")]
    Ambiguous,
    #[error("a part of this upload is being received: come again")]
    BeingReceived,
    #[error("too many uploads are under way")]
    TooMany,
    #[error("{0} has too many uploads under way")]
    TooManyOf(Arc<str>),
}

/// An upload that has no name yet. Dropping it gives it up, unless it has a keeper.
pub struct Upload {
    /// There until this is dropped or completed.
    body: Option<Box<Body>>,
    is_over: bool,
    keeper: Option<Keeper>,
}

type Keeper = Box<dyn FnOnce(Upload) + Send + Sync>;

struct Body {
    files: Arc<Files>,
    holder: Holder,
    caller: Caller,
    target: UploadTarget,
    terms: UploadTerms,
    file: Attributes,
    pool: PoolId,
    held: OpenFile,
    data: Data,
}

enum Data {
    /// No byte has come through the head.
    Awaited,
    Coming(Box<Writer>),
    OnDisk(Received),
}

/// An upload whose bytes are all on disk: only the name is missing.
pub struct Complete(Upload);

impl Files {
    /// Walks to where an upload is to get its name, as [`walk`]. While nothing is renamed, the path is not walked again.
    pub async fn upload_target(&self, caller: &Caller, path: &[Name]) -> Result<UploadTarget, WalkError> {
        let seen = self.moves();
        let place = walk(&*self.services.namespace, caller, path, Last::Followed).await?;
        Ok(UploadTarget { place, way: Way::Walked(seen) })
    }

    /// Makes an unnamed file on a pool with space for all that was said to come. Refuses more than quotas allow; the file
    /// that is replaced gives its space.
    pub async fn begin_upload(
        self: &Arc<Self>,
        holder: Holder,
        caller: &Caller,
        target: UploadTarget,
        terms: UploadTerms,
    ) -> Result<Upload, FilesError> {
        let (dir, name) = target.place.entry()?;
        let judged = |error| of_directory(&target.place.path, error);
        let who = &caller.identity;
        let freed = target.place.found.as_ref().map_or(0, |found| found.size);
        // A body of unknown length counts as one byte.
        self.require_room(who, dir, terms.size.unwrap_or(1), freed).await.map_err(judged)?;
        let pool = self.choose(&Selection {
            directory: Some(dir),
            name: Some(name),
            owner: Some((who.uid, who.gid)),
            bytes: terms.size.unwrap_or(0),
            ..Selection::new(Purpose::Create)
        })?;
        let new = Unnamed { permissions: PERMISSIONS, location: pool };
        let make = self.services.uploads.create_unnamed(who, dir, &new);
        let share = Share::new(Modes::BOTH, Modes::NONE);
        let (held, file) = self.make_unnamed(holder, share, make).await.map_err(judged)?;
        let (files, caller, data) = (Arc::clone(self), caller.clone(), Data::Awaited);
        let body = Body { files, holder, caller, target, terms, file, pool, held, data };
        Ok(Upload { body: Some(Box::new(body)), is_over: false, keeper: None })
    }
}

impl Upload {
    /// The unnamed file.
    pub fn file(&self) -> &Attributes {
        &self.body().file
    }

    /// Of the name that it is to get.
    pub fn path(&self) -> &[Name] {
        &self.body().target.place.path
    }

    pub fn pool(&self) -> PoolId {
        self.body().pool
    }

    pub fn terms(&self) -> &UploadTerms {
        &self.body().terms
    }

    /// The sums that are kept, and those that were promised.
    pub fn kinds(&self) -> Vec<ChecksumKind> {
        let terms = self.terms();
        let promised = terms.promised.iter().map(Checksum::kind);
        terms.kinds.iter().copied().chain(promised).collect()
    }

    /// Replaces the promises that were made before.
    pub fn promise(&mut self, promised: Vec<Checksum>) {
        self.body_mut().terms.promised = promised;
    }

    /// Tells where a later walk of the same path has led.
    pub fn walked_again(&mut self, again: &UploadTarget) {
        let body = self.body_mut();
        let dir = |target: &UploadTarget| target.place.parent.map(|parent| parent.file);
        if again.place.path == body.target.place.path && dir(again) == dir(&body.target) {
            body.retarget(again.clone());
        }
    }

    /// Asks clients for their grants on the file that is to be replaced, and does not wait for them. Refused where that
    /// would be when the name is given.
    pub async fn recall_ahead(&self) -> Result<(), FilesError> {
        let body = self.body();
        let Some(found) = body.target.place.found else { return Ok(()) };
        match body.before_replacing(found.file, Duration::ZERO).await {
            Ok(_) | Err(FilesError::Recalled) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Hands the upload to `keeper` when it is dropped before it is over, and may be gone on with.
    pub fn keep_by(&mut self, keeper: impl FnOnce(Upload) + Send + Sync + 'static) {
        self.keeper = Some(Box::new(keeper));
    }

    /// Opens the replica to write through the head.
    pub async fn open(&mut self) -> Result<(), FilesError> {
        self.writer().await.map(drop)
    }

    /// Bytes that have come, all of them where only the name is missing.
    pub fn arrived(&self) -> u64 {
        match &self.body().data {
            Data::Awaited => 0,
            Data::Coming(writer) => writer.offset(),
            Data::OnDisk(received) => received.size,
        }
    }

    /// Whether bytes can be appended.
    pub fn is_coming(&self) -> bool {
        matches!(self.body().data, Data::Coming(_))
    }

    /// Appends. An upload that was refused this, or whose write was not waited for, tells by [`Upload::arrived`] where to
    /// go on.
    ///
    /// # Panics
    ///
    /// If all bytes were said to be there.
    pub async fn write(&mut self, bytes: Bytes) -> Result<(), FilesError> {
        self.writer().await?.write(bytes).await
    }

    /// All bytes have come, and are on disk when this is answered.
    pub async fn finish(mut self) -> Result<Complete, FilesError> {
        if !matches!(self.body().data, Data::OnDisk(_)) {
            let received = self.writer().await?.finish().await?;
            self.body_mut().data = Data::OnDisk(received);
        }
        Ok(self.complete())
    }

    /// The bytes have come in at the pool, and are on its disk.
    pub fn received(mut self, received: Received) -> Complete {
        self.body_mut().data = Data::OnDisk(received);
        self.complete()
    }

    fn complete(self) -> Complete {
        let body = self.body();
        // The upload's own open is not in the way of locks of the name, which deny writing.
        let reading = Share::new(Modes::READ, Modes::NONE);
        body.files.table().downgrade(body.file.file, body.held.owner(), reading);
        Complete(self)
    }

    async fn writer(&mut self) -> Result<&mut Writer, FilesError> {
        if let Data::Awaited = self.body().data {
            let body = self.body();
            let replica = body.files.open_replica(&body.file, TicketMode::ReadWrite).await?;
            let replica = replica.ok_or(FilesError::Select(SelectError::NoLocation))?;
            let writer = Writer::new(replica, self.kinds());
            self.body_mut().data = Data::Coming(Box::new(writer));
        }
        match &mut self.body_mut().data {
            Data::Coming(writer) => Ok(writer),
            Data::Awaited | Data::OnDisk(_) => unreachable!("nothing is appended to what is complete"),
        }
    }

    fn body(&self) -> &Body {
        self.body.as_ref().expect("taken only when this is dropped")
    }

    fn body_mut(&mut self) -> &mut Body {
        self.body.as_mut().expect("taken only when this is dropped")
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        // Its request has ended, also if a later one goes on with it.
        body.withdraw();
        let Some(keeper) = self.keeper.take() else { return };
        // A client that is told where to go on cannot send lost bytes again, and before the first byte there is nothing
        // to go on with: such an upload starts anew.
        let is_of_use = match &body.data {
            Data::Coming(writer) => !writer.is_broken() && writer.offset() > 0,
            Data::Awaited | Data::OnDisk(_) => true,
        };
        if is_of_use && !self.is_over {
            keeper(Upload { body: Some(body), is_over: false, keeper: None });
        }
    }
}

impl Body {
    async fn before_replacing(
        &self,
        file: FileId,
        patience: Duration,
    ) -> Result<crate::FileChangeGuard, FilesError> {
        self.files.before_change(file, Some(self.holder), Change::Replace, patience).await
    }

    /// Lets clients have layouts of the file that is not going to be replaced now.
    fn withdraw(&self) {
        if let Some(found) = self.target.place.found {
            self.files.table().changes().withdraw(found.file, self.holder);
        }
    }

    /// Another walk has led to `target`, where another file may have the name.
    fn retarget(&mut self, target: UploadTarget) {
        let file = |target: &UploadTarget| target.place.found.map(|found| found.file);
        if file(&target) != file(&self.target) {
            self.withdraw();
        }
        self.target = target;
    }

    /// Compares the bytes that came with the promises.
    fn judge_received(&self) -> Result<Received, UploadError> {
        let Data::OnDisk(received) = &self.data else { unreachable!("only what is complete gets a name") };
        let got = received.size;
        if let Some(told) = self.terms.size.filter(|size| *size != got) {
            return Err(UploadError::Length { told, got });
        }
        match mismatch(&self.terms.promised, &received.checksums) {
            Some((told, got)) => Err(UploadError::Checksum { told, got }),
            None => Ok(received.clone()),
        }
    }

    fn entry(&self) -> (FileId, &Name) {
        self.target.place.entry().expect("an upload begins at an entry")
    }
}

/// Of a question about the directory on this path that the walk has found.
fn of_directory(path: &[Name], error: FilesError) -> FilesError {
    match error {
        FilesError::Namespace(NamespaceError::NotFound | NamespaceError::Stale(_)) => {
            directory_moved(path).into()
        }
        error => error,
    }
}

/// The directory that was to hold the last name of this path.
fn directory_moved(path: &[Name]) -> UploadError {
    let above = path.split_last().map_or(path, |(_, above)| above);
    UploadError::DirectoryMoved { directory: path_text(above) }
}
