//! An upload in its two halves: bytes into an unnamed replica, which may happen at a pool, and the name, which the head
//! gives when all of them are there. What ends before that leaves nothing: the unnamed file is an orphan.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use access::OpenFile;
use api::{Caller, IoHandle, OpenReplica, Publish, Published, Replace, Stability, TicketMode, Unnamed};
use bytes::Bytes;
use file_state::{Change, Modes, Share};
use http::StatusCode;
use types::{Attributes, Checksum, ChecksumKind, FileId, Name, PoolId, Timestamp};

use crate::front::{Front, REQUESTS};
use crate::locks::Path;
use crate::refusal::Refusal;
use crate::sums::{Sums, mismatch};

/// Bytes handed to the pool and not answered yet.
const IN_FLIGHT_BYTES_MAX: usize = 16 << 20;

/// The data half: consecutive bytes into a replica, summed as they pass.
pub(crate) struct Writer {
    replica: Arc<dyn OpenReplica>,
    sums: Sums,
    offset: u64,
    in_flight: VecDeque<(usize, IoHandle<Stability>)>,
    in_flight_bytes: usize,
    /// Bytes before `offset` are missing: a write failed, or was given up while it was waited for.
    is_broken: bool,
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
        Ok(())
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
    _held: OpenFile,
}

/// What the client has said of the upload in advance.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub replace: Replace,
    pub promised: Vec<Checksum>,
    pub size: Option<u64>,
    pub mtime: Option<Timestamp>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { replace: Replace::Any, promised: Vec::new(), size: None, mtime: None }
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
        let share = Share::new(Modes::WRITE, Modes::NONE);
        let (held, file) = self.services.access.make_unnamed(REQUESTS, share, make).await?;
        let deadline = self.services.clock.monotonic() + Duration::from_secs(3_600);
        Ok(Pending { caller: caller.clone(), path, dir, name, file, pool, terms, deadline, _held: held })
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
    use api::{IoHandle, PoolError, ReadData, Verifier};

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
}
