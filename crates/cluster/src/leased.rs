//! A pool as its clients see it: tickets to write are honoured under a lease only.
//!
//! Reading goes on without a lease: nobody else can have changed the only copy of a file. A write that began under a lease
//! may end after it. It is ordered before the fences that the pool has to take before its next lease, for a fence waits
//! for the writes that are under way.

use std::sync::Arc;
use std::time::Duration;

use api::{
    Answers, Birth, Description, IoHandle, LocalRange, OpenReplica, Pool, PoolError, PoolStatus, ReadData,
    ReplicaFacts, ReplicaRanges, Stability, Ticket, TicketMode, Verifier,
};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use cluster_state::HeldLease;
use futures_channel::oneshot;
use types::{ByteRange, Clock, Epoch, FileId, PoolId};

use crate::{MakingPool, tasks};

/// A write waits so long for a lease. Longer than a head takes to start, and shorter than a client's patience.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

pub struct LeasedPool {
    pool: Arc<MakingPool>,
    right: Right,
}

#[derive(Clone)]
struct Right {
    lease: Arc<HeldLease>,
    clock: Arc<dyn Clock>,
}

impl Right {
    fn is_held(&self) -> bool {
        self.lease.holds(self.clock.monotonic())
    }

    /// Whether the lease came in time.
    async fn wait(&self) -> bool {
        let end = self.clock.monotonic() + PATIENCE;
        while !self.is_held() {
            if self.clock.monotonic() >= end {
                return false;
            }
            tokio::time::sleep(LOOK).await;
        }
        true
    }
}

impl LeasedPool {
    pub fn new(pool: Arc<MakingPool>, lease: Arc<HeldLease>, clock: Arc<dyn Clock>) -> LeasedPool {
        LeasedPool { pool, right: Right { lease, clock } }
    }
}

#[async_trait]
impl Pool for LeasedPool {
    fn id(&self) -> PoolId {
        self.pool.id()
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        let replica = self.pool.open_for_client(ticket).await?;
        Ok(match ticket.mode {
            TicketMode::Read => replica,
            TicketMode::ReadWrite => Arc::new(LeasedReplica { replica, right: self.right.clone() }),
        })
    }

    async fn make(&self, files: &[(FileId, Birth)], within: Duration) -> Answers<()> {
        self.pool.make(files, within).await
    }

    async fn truncate(&self, files: &[(FileId, u64)], within: Duration) -> Answers<ReplicaFacts> {
        self.pool.truncate(files, within).await
    }

    async fn remove(&self, files: &[FileId], within: Duration) -> Answers<()> {
        self.pool.remove(files, within).await
    }

    async fn sync_removals(&self, files: &[FileId], within: Duration) -> Result<(), PoolError> {
        self.pool.sync_removals(files, within).await
    }

    async fn fence(&self, files: &[(FileId, Epoch)], within: Duration) -> Answers<()> {
        self.pool.fence(files, within).await
    }

    async fn facts(&self, files: &[FileId], within: Duration) -> Answers<Option<ReplicaFacts>> {
        self.pool.facts(files, within).await
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        self.pool.replicas(after, limit).await
    }

    async fn describe(
        &self,
        after: FileId,
        through: FileId,
        files: Vec<Description>,
    ) -> Result<(), PoolError> {
        self.pool.describe(after, through, files).await
    }

    fn clone_granularity(&self) -> Option<u32> {
        self.pool.clone_granularity()
    }

    fn status(&self) -> PoolStatus {
        self.pool.status()
    }
}

struct LeasedReplica {
    replica: Arc<dyn OpenReplica>,
    right: Right,
}

impl OpenReplica for LeasedReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        self.replica.read_at(offset, length)
    }

    fn read_resident(&self, offset: u64, length: u32, into: &mut BytesMut) -> bool {
        self.replica.read_resident(offset, length, into)
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        if self.right.is_held() {
            return self.replica.write_at(offset, data, stability);
        }
        let (replica, right) = (Arc::clone(&self.replica), self.right.clone());
        let (tell, answer) = oneshot::channel();
        tasks::spawn(async move {
            let written = match right.wait().await {
                true => replica.write_at(offset, data, stability).await,
                false => Err(PoolError::Fenced),
            };
            let _ = tell.send(written);
        });
        IoHandle::waiting(answer, PoolError::Fenced)
    }

    fn sync(&self) -> IoHandle<Verifier> {
        self.replica.sync()
    }

    fn verifier(&self) -> Verifier {
        self.replica.verifier()
    }

    fn local_range(&self, range: ByteRange) -> Option<Arc<dyn LocalRange>> {
        self.replica.local_range(range)
    }

    // A client of a pool reads, writes and commits, and nothing more.
    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        None
    }
}
