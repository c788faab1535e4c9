//! Deadlines of a pool's answers, in one place for every pool.
//!
//! A pool may hang, or be on a host that is gone. Its caller gets [`PoolError::Unknown`] then, and asks again later or
//! goes on without the answer. The pool may still do it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::{
    ANSWER_TIME, Advice, Answers, BATCH_LEN_MAX, Birth, Description, IoHandle, LocalRange, OpenReplica, Pool,
    PoolError, PoolStatus, RangeKind, ReadData, ReplicaFacts, ReplicaRanges, Source, Stability, Stretch,
    Ticket, Verifier, WriteThrough,
};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use tokio::time::timeout;
use types::{ByteRange, Epoch, FileId, PoolId};

/// For listings and I/O. A disk may take minutes to write what is in its cache, and a client would write it all again.
const LONG_TIME: Duration = Duration::from_secs(600);

/// A pool whose every call ends in time.
pub struct PunctualPool {
    pool: Arc<dyn Pool>,
    io_time: Duration,
}

impl PunctualPool {
    pub fn new(pool: Arc<dyn Pool>) -> PunctualPool {
        PunctualPool { pool, io_time: LONG_TIME }
    }

    async fn answers<T>(
        &self,
        count: usize,
        within: Duration,
        asked: impl Future<Output = Answers<T>>,
    ) -> Answers<T> {
        assert!(count <= BATCH_LEN_MAX, "{count} files in one call; {BATCH_LEN_MAX} are allowed");
        match timeout(within, asked).await {
            Ok(answers) => {
                assert_eq!(answers.count(), count, "a pool answers for each file");
                answers
            }
            Err(_) => Answers::alike(count, &PoolError::Unknown(self.id())),
        }
    }

    async fn answer<T>(
        &self,
        within: Duration,
        asked: impl Future<Output = Result<T, PoolError>>,
    ) -> Result<T, PoolError> {
        timeout(within, asked).await.unwrap_or_else(|_| Err(PoolError::Unknown(self.id())))
    }
}

#[async_trait]
impl Pool for PunctualPool {
    fn id(&self) -> PoolId {
        self.pool.id()
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        let replica = self.answer(ANSWER_TIME, self.pool.open(ticket)).await?;
        Ok(Arc::new(PunctualReplica { replica, pool: self.id(), time: self.io_time }))
    }

    async fn make(&self, files: &[(FileId, Birth)], within: Duration) -> Answers<()> {
        self.answers(files.len(), within, self.pool.make(files, within)).await
    }

    async fn truncate(&self, files: &[(FileId, u64)], within: Duration) -> Answers<ReplicaFacts> {
        self.answers(files.len(), within, self.pool.truncate(files, within)).await
    }

    async fn remove(&self, files: &[FileId], within: Duration) -> Answers<()> {
        self.answers(files.len(), within, self.pool.remove(files, within)).await
    }

    async fn sync_removals(&self, files: &[FileId], within: Duration) -> Result<(), PoolError> {
        assert!(files.len() <= BATCH_LEN_MAX, "{} files in one call", files.len());
        self.answer(within, self.pool.sync_removals(files, within)).await
    }

    async fn fence(&self, files: &[(FileId, Epoch)], within: Duration) -> Answers<()> {
        self.answers(files.len(), within, self.pool.fence(files, within)).await
    }

    async fn facts(&self, files: &[FileId], within: Duration) -> Answers<Option<ReplicaFacts>> {
        self.answers(files.len(), within, self.pool.facts(files, within)).await
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        self.answer(LONG_TIME, self.pool.replicas(after, limit)).await
    }

    async fn describe(
        &self,
        after: FileId,
        through: FileId,
        files: Vec<Description>,
    ) -> Result<(), PoolError> {
        self.answer(LONG_TIME, self.pool.describe(after, through, files)).await
    }

    fn clone_granularity(&self) -> Option<u32> {
        self.pool.clone_granularity()
    }

    fn status(&self) -> PoolStatus {
        self.pool.status()
    }
}

struct PunctualReplica {
    replica: Arc<dyn OpenReplica>,
    pool: PoolId,
    time: Duration,
}

impl PunctualReplica {
    fn timed<T>(&self, io: IoHandle<T>) -> IoHandle<T> {
        let (pool, time) = (self.pool, self.time);
        io.until(async move {
            tokio::time::sleep(time).await;
            PoolError::Unknown(pool)
        })
    }

    fn inner_ranges(&self) -> &dyn ReplicaRanges {
        self.replica.ranges().expect("`ranges` is only answered where it has them")
    }
}

impl OpenReplica for PunctualReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        self.timed(self.replica.read_at(offset, length))
    }

    fn read_resident(&self, offset: u64, length: u32, into: &mut BytesMut) -> bool {
        self.replica.read_resident(offset, length, into)
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        self.timed(self.replica.write_at(offset, data, stability))
    }

    fn write_through(&self, offset: u64, data: Bytes) -> WriteThrough {
        let WriteThrough { written, synced, may_keep_length } = self.replica.write_through(offset, data);
        WriteThrough { written: self.timed(written), synced: self.timed(synced), may_keep_length }
    }

    fn sync(&self) -> IoHandle<Verifier> {
        self.timed(self.replica.sync())
    }

    fn verifier(&self) -> Verifier {
        self.replica.verifier()
    }

    fn local_range(&self, range: ByteRange) -> Option<Arc<dyn LocalRange>> {
        self.replica.local_range(range)
    }

    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        self.replica.ranges().map(|_| self as &dyn ReplicaRanges)
    }
}

impl ReplicaRanges for PunctualReplica {
    fn allocate(&self, range: ByteRange) -> IoHandle<()> {
        self.timed(self.inner_ranges().allocate(range))
    }

    fn deallocate(&self, range: ByteRange) -> IoHandle<()> {
        self.timed(self.inner_ranges().deallocate(range))
    }

    fn extend(&self, length: u64) -> IoHandle<()> {
        self.timed(self.inner_ranges().extend(length))
    }

    fn seek(&self, offset: u64, kind: RangeKind) -> IoHandle<Option<u64>> {
        self.timed(self.inner_ranges().seek(offset, kind))
    }

    fn copy_from(&self, source: Source, stretch: Stretch) -> IoHandle<u64> {
        self.timed(self.inner_ranges().copy_from(source, stretch))
    }

    fn share_from(&self, source: Source, stretch: Stretch) -> IoHandle<bool> {
        self.timed(self.inner_ranges().share_from(source, stretch))
    }

    fn advise(&self, range: ByteRange, advice: Advice) -> IoHandle<()> {
        self.timed(self.inner_ranges().advise(range, advice))
    }
}
