//! An upload in its two halves: bytes into an unnamed replica, which may happen at a pool, and the name, which the head
//! gives when all of them are there. What ends before that leaves nothing: the unnamed file is an orphan.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use access::OpenFile;
use api::{
    Caller, IoHandle, OpenReplica, Publish, Published, Replace, Stability, TicketMode, Unnamed, Verifier,
};
use bytes::Bytes;
use file_state::{Change, Modes, Share};
use http::StatusCode;
use types::{Attributes, Checksum, ChecksumKind, FileId, Name, PoolId, Timestamp};

use crate::conditions::locked;
use crate::front::{Front, REQUESTS};
use crate::locks::{Path, Reach};
use crate::refusal::Refusal;
use crate::sums::{Sums, mismatch};

/// Bytes handed to the pool and not answered yet.
const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;
/// After so many bytes a sync is begun, so that the disk works while the rest comes in and little is left for the end.
/// Twice as much is about what an upload may leave unwritten in memory.
const UNSYNCED_BYTES_MAX: u64 = 64 << 20;

/// The data half: consecutive bytes into a replica, summed as they pass.
pub(crate) struct Writer {
    replica: Arc<dyn OpenReplica>,
    sums: Sums,
    offset: u64,
    in_flight: VecDeque<(usize, IoHandle<Stability>)>,
    in_flight_bytes: usize,
    /// Bytes before `offset` are missing: a write failed, or was given up while it was waited for.
    is_broken: bool,
    /// How far the writes went when the last sync was begun.
    synced_to: u64,
    syncing: Option<IoHandle<Verifier>>,
}

/// What a writer has put onto the disk.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub size: u64,
    pub checksums: Vec<Checksum>,
}

impl Writer {
    pub fn new(replica: Arc<dyn OpenReplica>, kinds: impl IntoIterator<Item = ChecksumKind>) -> Writer {
        Writer {
            replica,
            sums: Sums::new(kinds),
            offset: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            is_broken: false,
            synced_to: 0,
            syncing: None,
        }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Nothing can be appended to it: what would be published has a hole, under checksums that do not know it.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub async fn write(&mut self, bytes: Bytes) -> Result<(), Refusal> {
        let length = bytes.len();
        let handle = self.replica.write_at(self.offset, bytes.clone(), Stability::Unstable);
        self.in_flight.push_back((length, handle));
        self.in_flight_bytes += length;
        // While the disk thread copies the bytes, they are summed.
        self.sums.update(&bytes);
        self.offset += length as u64;
        while self.in_flight_bytes > IN_FLIGHT_BYTES_MAX {
            self.settle_oldest().await?;
        }
        if self.offset - self.synced_to >= UNSYNCED_BYTES_MAX {
            // A disk that is slower than the client holds it back here.
            self.settle_sync().await?;
            self.syncing = Some(self.replica.sync());
            self.synced_to = self.offset;
        }
        Ok(())
    }

    async fn settle_sync(&mut self) -> Result<(), Refusal> {
        // Waited for in its place, so that who gives this up loses no answer.
        let Some(syncing) = &mut self.syncing else { return Ok(()) };
        let synced = syncing.await;
        self.syncing = None;
        match synced {
            // The last sync covers everything, so one that found no room in the queue may be missed.
            Err(error) if !error.is_retryable() => {
                self.is_broken = true;
                Err(error.into())
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    async fn settle_oldest(&mut self) -> Result<(), Refusal> {
        if let Some((length, handle)) = self.in_flight.pop_front() {
            self.in_flight_bytes -= length;
            self.is_broken = true;
            handle.await?;
            self.is_broken = false;
        }
        Ok(())
    }

    /// All bytes are on the disk when this is answered.
    pub async fn finish(mut self) -> Result<Received, Refusal> {
        while !self.in_flight.is_empty() {
            self.settle_oldest().await?;
        }
        self.settle_sync().await?;
        if self.offset > 0 {
            self.replica.sync().await?;
        }
        Ok(Received { size: self.offset, checksums: self.sums.finish() })
    }
}

/// The name half. Dropping it gives the upload up.
pub(crate) struct Pending {
    pub caller: Caller,
    pub path: Path,
    pub dir: FileId,
    pub name: Name,
    pub file: Attributes,
    pub pool: PoolId,
    pub terms: Terms,
    /// Given up then if it was sent elsewhere and nothing was heard.
    pub deadline: Duration,
    held: OpenFile,
}

/// What the client has said of the upload in advance.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub replace: Replace,
    pub promised: Vec<Checksum>,
    pub size: Option<u64>,
    pub mtime: Option<Timestamp>,
    /// Of locks that the client submitted: asked again when the name is given, which may be hours later.
    pub lock_tokens: Vec<String>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            replace: Replace::Any,
            promised: Vec::new(),
            size: None,
            mtime: None,
            lock_tokens: Vec::new(),
        }
    }
}

const PERMISSIONS: u32 = 0o644;

impl Front {
    /// An unnamed file on a pool with space.
    pub(crate) async fn begin_upload(
        &self,
        caller: &Caller,
        path: Path,
        dir: FileId,
        terms: Terms,
    ) -> Result<Pending, Refusal> {
        let name = path.last().cloned().ok_or_else(|| Refusal::forbidden("the root is a directory"))?;
        let pool = self.services.access.choose(None)?;
        let new = Unnamed { permissions: PERMISSIONS, location: pool };
        let make = self.services.uploads.create_unnamed(&caller.identity, dir, &new);
        let share = Share::new(Modes::BOTH, Modes::NONE);
        let (held, file) = self.services.access.make_unnamed(REQUESTS, share, make).await?;
        let deadline = self.services.clock.monotonic() + Duration::from_secs(3_600);
        Ok(Pending { caller: caller.clone(), path, dir, name, file, pool, terms, deadline, held })
    }

    /// Writes through the head.
    pub(crate) async fn writer(&self, pending: &Pending, more: &[ChecksumKind]) -> Result<Writer, Refusal> {
        let replica = self.services.access.open_replica(&pending.file, TicketMode::ReadWrite).await?;
        let replica = replica
            .ok_or_else(|| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "new file has no location"))?;
        Ok(Writer::new(replica, self.kinds_for(pending, more)))
    }

    /// The sums that are kept, and those that the client will hold against them.
    pub(crate) fn kinds_for(&self, pending: &Pending, more: &[ChecksumKind]) -> Vec<ChecksumKind> {
        let promised = pending.terms.promised.iter().map(Checksum::kind);
        self.config.checksums.iter().copied().chain(promised).chain(more.iter().copied()).collect()
    }

    /// Compares, makes way, and gives the name.
    pub(crate) async fn publish(&self, pending: &Pending, received: Received) -> Result<Published, Refusal> {
        if let Some(size) = pending.terms.size.filter(|size| *size != received.size) {
            return Err(Refusal::bad_request(format!(
                "got {} bytes of {size}; nothing was kept",
                received.size
            )));
        }
        if let Some((promised, found)) = mismatch(&pending.terms.promised, &received.checksums) {
            return Err(Refusal::bad_request(format!(
                "checksum does not agree: told {promised}, got {found}; nothing was kept"
            )));
        }
        let tokens = &pending.terms.lock_tokens;
        let lock =
            self.locks.lock().forbidding(&pending.path, Reach::One, &pending.caller.name, tokens).cloned();
        if let Some(lock) = lock {
            return Err(locked(&lock.root_href));
        }
        let identity = &pending.caller.identity;
        match self.services.namespace.lookup(identity, pending.dir, &pending.name).await {
            Ok(before) => self.make_way(before.file).await?,
            Err(api::NamespaceError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let space_used = match self.services.pools.pool(pending.pool) {
            Some(pool) => pool.facts(pending.file.file).await?.map_or(0, |facts| facts.space_used),
            None => 0,
        };
        let how = Publish {
            size: received.size,
            space_used,
            mtime: pending.terms.mtime,
            checksums: received.checksums,
            replace: pending.terms.replace,
        };
        let published = self
            .services
            .uploads
            .publish(identity, pending.file.file, pending.dir, &pending.name, &how)
            .await;
        let published = published.map_err(|error| match (error, pending.terms.replace) {
            (api::NamespaceError::Exists, Replace::Never) => Refusal::precondition("file exists"),
            (api::NamespaceError::Exists, _) => Refusal::precondition("file was changed meanwhile"),
            (api::NamespaceError::IsDirectory, _) => {
                Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "a directory has this name")
            }
            (error, _) => error.into(),
        })?;
        // Written as a whole: the upload's own open is not in the way of what locks of the name deny to writers.
        let reading = Share::new(Modes::READ, Modes::NONE);
        self.services.access.table().downgrade(pending.file.file, pending.held.owner(), reading);
        self.carry_locks(&pending.path, &published.attributes);
        Ok(published)
    }

    /// Calls back what NFS clients hold of a file that is about to lose its name or its contents.
    pub(crate) async fn make_way(&self, file: FileId) -> Result<(), Refusal> {
        let (patience, deadline) = (self.config.recall_patience, self.config.recall_deadline);
        self.services.access.before_change(file, Some(REQUESTS), Change::Replace, patience, deadline).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use api::{PoolError, ReadData};

    use super::*;

    /// A disk that is full for the first write and not for the next.
    struct FullOnce(std::sync::atomic::AtomicBool);

    impl OpenReplica for FullOnce {
        fn read_at(&self, _offset: u64, _length: u32) -> IoHandle<ReadData> {
            IoHandle::ready(Ok(ReadData { data: Bytes::new(), end_of_file: true }))
        }

        fn write_at(&self, _offset: u64, _data: Bytes, stability: Stability) -> IoHandle<Stability> {
            let is_full = self.0.swap(false, std::sync::atomic::Ordering::Relaxed);
            IoHandle::ready(if is_full { Err(PoolError::TooLarge) } else { Ok(stability) })
        }

        fn sync(&self) -> IoHandle<Verifier> {
            IoHandle::ready(Ok(self.verifier()))
        }

        fn verifier(&self) -> Verifier {
            Verifier([0; 8])
        }
    }

    #[tokio::test]
    async fn a_writer_that_lost_bytes_says_so_before_more_are_appended() {
        let replica = Arc::new(FullOnce(true.into()));
        let mut writer = Writer::new(replica, []);
        let bytes = Bytes::from(vec![7; IN_FLIGHT_BYTES_MAX]);
        assert!(writer.write(bytes).await.is_ok() && !writer.is_broken());
        assert!(writer.write(Bytes::from_static(b"more")).await.is_err());
        assert!(writer.is_broken());
    }

    /// Takes everything and counts syncs; the first is answered with `ahead`.
    struct Counted {
        syncs: AtomicUsize,
        ahead: Result<(), PoolError>,
    }

    impl OpenReplica for Counted {
        fn read_at(&self, _offset: u64, _length: u32) -> IoHandle<ReadData> {
            IoHandle::ready(Ok(ReadData { data: Bytes::new(), end_of_file: true }))
        }

        fn write_at(&self, _offset: u64, _data: Bytes, stability: Stability) -> IoHandle<Stability> {
            IoHandle::ready(Ok(stability))
        }

        fn sync(&self) -> IoHandle<Verifier> {
            let is_first = self.syncs.fetch_add(1, Ordering::Relaxed) == 0;
            let answer = if is_first { self.ahead.clone() } else { Ok(()) };
            IoHandle::ready(answer.map(|()| self.verifier()))
        }

        fn verifier(&self) -> Verifier {
            Verifier([0; 8])
        }
    }

    fn counted(ahead: Result<(), PoolError>) -> (Arc<Counted>, Writer) {
        let replica = Arc::new(Counted { syncs: AtomicUsize::new(0), ahead });
        let writer = Writer::new(replica.clone(), []);
        (replica, writer)
    }

    async fn send(writer: &mut Writer, bytes: u64) -> Result<(), Refusal> {
        let part = Bytes::from(vec![0; 4 << 20]);
        for _ in 0..bytes / part.len() as u64 {
            writer.write(part.clone()).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn the_disk_works_while_the_rest_comes_in() {
        let (replica, mut writer) = counted(Ok(()));
        let syncs = || replica.syncs.load(Ordering::Relaxed);
        send(&mut writer, UNSYNCED_BYTES_MAX - (4 << 20)).await.unwrap();
        assert_eq!(syncs(), 0);
        send(&mut writer, 2 * UNSYNCED_BYTES_MAX).await.unwrap();
        assert_eq!(syncs(), 2);
        assert_eq!(writer.finish().await.unwrap().size, 3 * UNSYNCED_BYTES_MAX - (4 << 20));
        // The last covers what came after the others had begun.
        assert_eq!(syncs(), 3);
    }

    #[tokio::test]
    async fn a_sync_that_failed_on_the_way_breaks_the_upload() {
        let lost = || PoolError::Io { pool: PoolId(0), operation: "sync", reason: "lost".to_owned() };
        let (_, mut writer) = counted(Err(lost()));
        assert!(send(&mut writer, 2 * UNSYNCED_BYTES_MAX).await.is_err());
        assert!(writer.is_broken());
        let (_, mut writer) = counted(Err(lost()));
        send(&mut writer, UNSYNCED_BYTES_MAX).await.unwrap();
        assert!(writer.finish().await.is_err());
    }

    #[tokio::test]
    async fn a_sync_on_the_way_that_found_no_room_is_made_up_for_by_the_last() {
        let (replica, mut writer) = counted(Err(PoolError::Busy(PoolId(0))));
        send(&mut writer, UNSYNCED_BYTES_MAX).await.unwrap();
        assert_eq!(writer.finish().await.unwrap().size, UNSYNCED_BYTES_MAX);
        assert_eq!(replica.syncs.load(Ordering::Relaxed), 2);
    }
}
