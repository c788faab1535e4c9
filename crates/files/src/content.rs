//! The bytes of a file, as the head reads and writes them for every door.
//!
//! A file is as long as the namespace says. Within that length zeros are read where a replica has a hole, and nowhere
//! else: a replica that ends before it has lost bytes, and reading there is an error. A cut is made at the replicas first
//! and in the namespace afterwards, so a reader that meets the end too early waits for its turn at the length
//! (`lengths`), looks at the length once more and reads again.

mod copy;
mod segments;

use std::sync::Arc;

use api::{
    ANSWER_TIME, Advice, OpenReplica, PoolError, RangeKind, ReadData, ReplicaRanges, Stability, Ticket,
    TicketMode, Verifier, WriteThrough, Written,
};
use bytes::Bytes;
use types::{Attributes, ByteRange, Identity};

use crate::replicas::{Located, lost};
use crate::{FileChangeGuard, Files, FilesError};

pub(crate) use copy::copy_whole;
pub use segments::{Segment, Segments};

/// The use that the caller makes of the bytes; it has judged whether it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentMode {
    Read,
    /// To change bytes that are there.
    Change,
    /// A file without a replica gets one.
    Write,
    /// As `Write`, and nothing that the file has is left: a replica that was lost is made anew.
    Replace,
}

/// A file whose bytes can be read or written.
///
/// A change that a pool was asked for comes to its end, and the namespace hears of it, also when its caller is dropped.
#[derive(Clone)]
pub struct Content {
    files: Arc<Files>,
    /// As the caller knew it.
    file: Attributes,
    /// `None`: nothing was written to the file.
    located: Option<Located>,
    /// As of before it was located: with another number the replica may be one that is not read and written any more.
    replaced: u64,
    /// Keeps delegations of the file off: a change takes it along.
    _changing: Option<Arc<FileChangeGuard>>,
}

impl Files {
    /// The bytes of a file, whose attributes the caller has just read, with what the pools know better
    /// ([`Files::freshen`]).
    pub async fn content(
        self: &Arc<Self>,
        file: &Attributes,
        mode: ContentMode,
    ) -> Result<Content, FilesError> {
        let replaced = self.replicas_replaced();
        let located = match mode {
            ContentMode::Read => self.open_located(file, TicketMode::Read).await?,
            ContentMode::Change => self.open_located(file, TicketMode::ReadWrite).await?,
            ContentMode::Write => Some(self.open_located_for_writing(file).await?),
            ContentMode::Replace => Some(self.open_located_for_replacing(file).await?),
        };
        Ok(Content { files: Arc::clone(self), file: *file, located, replaced, _changing: None })
    }

    /// Writes once. A write of all bytes that the file has replaces it: so does what a client sends again after a power
    /// cut, of whose first bytes only the size has reached the disk. `changing` is as of [`Content::keeping`].
    pub async fn write(
        self: &Arc<Self>,
        who: &Identity,
        file: &Attributes,
        (offset, data): (u64, Bytes),
        stability: Stability,
        changing: Option<FileChangeGuard>,
    ) -> Result<Verifier, FilesError> {
        let replaces_all = offset == 0 && data.len() as u64 >= file.size;
        let mode = if replaces_all { ContentMode::Replace } else { ContentMode::Write };
        require_end(offset, data.len() as u64)?;
        let content = self.content(file, mode).await?.keeping(changing.map(Arc::new));
        content.write(who, offset, data, stability).await?;
        content.verifier()
    }
}

impl Content {
    /// For a caller without an open, who has recalled delegations of the file: they are kept off as long as this lives, and
    /// until the last change that was begun is made.
    #[must_use]
    pub fn keeping(self, changing: Option<Arc<FileChangeGuard>>) -> Content {
        Content { _changing: changing, ..self }
    }

    pub fn file(&self) -> &Attributes {
        &self.file
    }

    /// The replica that is read, for a server that sends bytes from the disk to the network itself and breaks off where
    /// the replica ends early. `None`: the file is empty.
    pub fn replica(&self) -> Option<&Arc<dyn OpenReplica>> {
        self.located.as_ref().map(|located| &located.replica)
    }

    /// Changes whenever bytes that were written and not synced may have been lost.
    pub fn verifier(&self) -> Result<Verifier, FilesError> {
        Ok(self.open()?.replica.verifier())
    }

    /// Bytes from `offset` on: at least one, unless the file ends there. `end_of_file` says that the file ends behind
    /// them.
    pub async fn read(&self, offset: u64, length: u32) -> Result<ReadData, FilesError> {
        let Some(Located { replica, .. }) = &self.located else { return Ok(nothing()) };
        let wanted = within(self.file.size, offset, length);
        if wanted == 0 {
            return Ok(nothing());
        }
        let read = match replica.read_at(offset, wanted).await {
            // A replica that was moved away is removed in the end.
            Err(error) => Box::pin(self.read_where_it_is(error, offset, wanted)).await?,
            Ok(read) => read,
        };
        if is_short(&read, wanted) {
            return self.read_in_turn(offset, length).await;
        }
        Ok(bounded(read, offset, self.file.size))
    }

    async fn read_where_it_is(
        &self,
        error: PoolError,
        offset: u64,
        wanted: u32,
    ) -> Result<ReadData, FilesError> {
        let now = self.at_present_place().await?;
        match (&self.located, &now.located) {
            (Some(before), Some(now)) if before.ticket.pool != now.ticket.pool => {
                self.judged(now.replica.read_at(offset, wanted).await).await
            }
            _ => self.judged(Err(error)).await,
        }
    }

    /// The file may have been moved since it was located. While a caller keeps its length steady it stays where it is.
    async fn at_present_place(&self) -> Result<Content, FilesError> {
        let replaced = self.files.replicas_replaced();
        let Some(located) = self.located.as_ref().filter(|_| replaced != self.replaced) else {
            return Ok(self.clone());
        };
        let (file, Ticket { pool, mode, .. }) = (&self.file, located.ticket);
        let locality = self.files.services.locations.locality(file.file).await?;
        let located = match locality.good_pools().any(|good| good == pool) {
            true => self.located.clone(),
            false => self.files.open_located(file, mode).await?,
        };
        Ok(Content { located, replaced, ..self.clone() })
    }

    /// Again, while nobody sets the length of the file.
    async fn read_in_turn(&self, offset: u64, length: u32) -> Result<ReadData, FilesError> {
        self.files.has_finished_cuts(self.file.file).await;
        let _steady = self.files.steady(self.file.file).await;
        let now = Box::pin(self.at_present_place()).await?;
        let located = now.open()?;
        // Asking the pools for more would take the same turn.
        let size = self.files.attributes(self.file.file).await?.size;
        let wanted = within(size, offset, length);
        if wanted == 0 {
            return Ok(nothing());
        }
        let read = self.judged(located.replica.read_at(offset, wanted).await).await?;
        if is_short(&read, wanted) {
            return Err(lost(located.ticket.pool, ENDS_EARLY).into());
        }
        Ok(bounded(read, offset, size))
    }

    /// Writes at a replica and makes it visible, in this order: the bytes are there before the size says so. Quotas are
    /// asked first, of the identity that the bytes are written for.
    pub async fn write(
        &self,
        who: &Identity,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<(), FilesError> {
        let end = require_end(offset, data.len() as u64)?;
        require_room(self, who, end).await?;
        if data.is_empty() {
            return Ok(());
        }
        self.open()?;
        self.change(move |content| async move { content.write_steadily(offset, data, end, stability).await })
            .await
    }

    async fn write_steadily(
        &self,
        offset: u64,
        data: Bytes,
        end: u64,
        stability: Stability,
    ) -> Result<(), FilesError> {
        let replica = &self.open()?.replica;
        if stability == Stability::Unstable {
            replica.write_at(offset, data, stability).await?;
            self.note_written(end, stability).await?;
            return Ok(());
        }
        let WriteThrough { written, synced, may_keep_length } = replica.write_through(offset, data);
        written.await?;
        // A start finds a length that the pool keeps by comparing files that have names, so only where the file has become
        // longer. Quotas count what the namespace has.
        let is_compared = end > self.file.size && self.file.nlink > 0;
        let is_kept = may_keep_length && is_compared && !self.files.quotas().are_any();
        let noted = if is_kept { Stability::Unstable } else { stability };
        // Both go to the disk at once.
        let (synced, noted) = tokio::join!(synced, self.note_written(end, noted));
        let (synced, noted) = (synced?, noted?);
        if is_kept && !(synced.keeps_length && noted.size == end) {
            self.note_written(end, stability).await?;
        }
        Ok(())
    }

    async fn note_written(&self, end: u64, stability: Stability) -> Result<Attributes, FilesError> {
        let written = Written { size_at_least: Some(end), mtime: None, space_used: None, stability };
        Ok(self.files.services.namespace.record_write(self.file.file, &written).await?)
    }

    /// Brings all that was written to the disk, with the size and the times.
    pub async fn sync(&self) -> Result<Verifier, FilesError> {
        let located = self.open()?;
        let synced = located.replica.sync().await?;
        let _steady = self.files.steady(self.file.file).await;
        self.record_on_disk(None).await?;
        Ok(synced)
    }

    /// Reserves space for the range, which belongs to the file from then on; on disk when it is answered.
    pub async fn allocate(&self, who: &Identity, range: ByteRange) -> Result<(), FilesError> {
        let end = require_end(range.offset(), range.length())?;
        require_room(self, who, end).await?;
        self.ranges()?;
        self.change(move |content| async move {
            let verifier = content.verifier()?;
            content.ranges()?.allocate(range).await?;
            content.settle(verifier, end).await
        })
        .await
    }

    /// The range reads as zeros and its space is free, where there is any; on disk when it is answered.
    pub async fn deallocate(&self, range: ByteRange) -> Result<(), FilesError> {
        if self.located.is_none() {
            return Ok(());
        }
        self.ranges()?;
        self.change(move |content| async move {
            let verifier = content.verifier()?;
            content.ranges()?.deallocate(range).await?;
            // Written, but not longer for it.
            content.settle(verifier, 0).await
        })
        .await
    }

    /// Where `kind` next begins, from an offset within the file on; the size where it does not. A pool that cannot tell
    /// has data only.
    pub async fn seek(&self, offset: u64, kind: RangeKind) -> Result<u64, FilesError> {
        self.seek_before(offset, kind, self.file.size).await
    }

    /// As [`Content::seek`], as if the file ended at `end`, which is not behind its end.
    async fn seek_before(&self, offset: u64, kind: RangeKind, end: u64) -> Result<u64, FilesError> {
        let found = match (self.open()?.replica.ranges(), kind) {
            (Some(ranges), _) => ranges.seek(offset, kind).await?,
            (None, RangeKind::Data) => Some(offset),
            (None, RangeKind::Hole) => None,
        };
        let found = found.unwrap_or(end).min(end);
        // Behind the last byte of a replica its file system has a hole, too.
        let may_be_gap = if kind == RangeKind::Hole { found < end } else { found == end };
        if may_be_gap {
            self.require_bytes(end).await?;
        }
        Ok(found)
    }

    /// Whether the pool took the hint.
    pub async fn advise(&self, range: ByteRange, advice: Advice) -> bool {
        let ranges = self.located.as_ref().and_then(|located| located.replica.ranges());
        // A hint that comes to nothing is no error.
        match ranges {
            Some(ranges) => ranges.advise(range, advice).await.is_ok(),
            None => false,
        }
    }

    /// The replica goes as far as `end`, or the file is shorter by now: then the caller is to begin again.
    pub(crate) async fn require_bytes(&self, end: u64) -> Result<(), FilesError> {
        if self.replica_length().await? >= end {
            return Ok(());
        }
        self.files.has_finished_cuts(self.file.file).await;
        let _steady = self.files.steady(self.file.file).await;
        let now = self.files.attributes(self.file.file).await?;
        if now.size < end {
            return Err(FilesError::Shortened);
        }
        match self.replica_length().await? >= end {
            true => Ok(()),
            false => Err(lost(self.open()?.ticket.pool, ENDS_EARLY).into()),
        }
    }

    async fn replica_length(&self) -> Result<u64, FilesError> {
        let pool = self.open()?.ticket.pool;
        let at = self.files.services.pools.pool(pool).ok_or(PoolError::Offline(pool))?;
        let facts = at.facts(&[self.file.file], ANSWER_TIME).await.sole();
        Ok(self.judged(facts).await?.map_or(0, |facts| facts.size))
    }

    /// Makes a change at the pool and tells the namespace of it. The length stays steady until it is made, also when the
    /// caller is dropped.
    async fn change<T, W>(&self, change: impl FnOnce(Content) -> W + Send) -> Result<T, FilesError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, FilesError>> + Send + 'static,
    {
        let (files, file) = (&self.files, self.file.file);
        files.before_write(file).await?;
        let steady = files.steady(file).await;
        let change = change(Box::pin(self.at_present_place()).await?);
        let change = async move {
            let _steady = steady;
            change.await
        };
        files.tasks.carry_on(change).await
    }

    /// Brings a change to the disk and makes it visible, in this order. The caller keeps the length steady from before the
    /// change, and has noted the verifier then. `Unknown`: the pool has started anew since and may have lost the change.
    async fn settle(&self, verifier: Verifier, size_at_least: u64) -> Result<(), FilesError> {
        let Located { replica, ticket } = self.open()?;
        if replica.sync().await? != verifier {
            return Err(PoolError::Unknown(ticket.pool).into());
        }
        self.record_on_disk(Some(size_at_least)).await
    }

    async fn record_on_disk(&self, size_at_least: Option<u64>) -> Result<(), FilesError> {
        let space_used = self.files.replica_facts(&self.file).await?.map(|facts| facts.space_used);
        let written = Written { size_at_least, mtime: None, space_used, stability: Stability::FileSync };
        self.files.services.namespace.record_write(self.file.file, &written).await?;
        Ok(())
    }

    fn ranges(&self) -> Result<&dyn ReplicaRanges, FilesError> {
        let Located { replica, ticket } = self.open()?;
        replica.ranges().ok_or(PoolError::Unsupported(ticket.pool).into())
    }

    fn open(&self) -> Result<&Located, FilesError> {
        // One without is empty, and nobody asks for its bytes.
        self.located.as_ref().ok_or(api::SelectError::NoLocation.into())
    }

    /// An error of the pool is `Stale` if the file was removed meanwhile.
    async fn judged<T>(&self, answer: Result<T, PoolError>) -> Result<T, FilesError> {
        match answer {
            Ok(value) => Ok(value),
            Err(error) => Err(self.files.unless_removed(self.file.file, error.into()).await),
        }
    }
}

async fn require_room(content: &Content, who: &Identity, end: u64) -> Result<(), FilesError> {
    let Content { files, file, .. } = content;
    if end <= file.size {
        return Ok(());
    }
    files.require_room(who, file.file, end - file.size, 0).await
}

const ENDS_EARLY: &str = "ends before the length of the file";

fn nothing() -> ReadData {
    ReadData { data: Bytes::new(), end_of_file: true }
}

fn within(size: u64, offset: u64, length: u32) -> u32 {
    // No more than `length`, so it fits.
    size.saturating_sub(offset).min(length.into()) as u32
}

fn is_short(read: &ReadData, wanted: u32) -> bool {
    read.data.len() < wanted as usize && (read.end_of_file || read.data.is_empty())
}

fn bounded(read: ReadData, offset: u64, size: u64) -> ReadData {
    ReadData { end_of_file: offset + read.data.len() as u64 >= size, data: read.data }
}

fn require_end(offset: u64, length: u64) -> Result<u64, FilesError> {
    let end = offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
    end.ok_or(FilesError::TooLarge)
}
