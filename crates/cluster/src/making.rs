//! A pool that makes the replicas of new files for clients, so that the head gives out layouts of empty files without asking it.
//!
//! The calls of the head and those of clients both come through here. No removal begins while a replica is being made for a
//! client, and none that has begun is overlooked.

use std::sync::Arc;
use std::time::Duration;

use api::{
    ANSWER_TIME, Answers, Birth, Description, OpenReplica, Pool, PoolError, PoolStatus, Presence,
    ReplicaFacts, Ticket, TicketMode,
};
use async_trait::async_trait;
use cluster_state::NewFiles;
use parking_lot::Mutex;
use tokio::sync::RwLock;
use types::{Epoch, FileId, PoolId};

pub struct MakingPool {
    pool: Arc<dyn Pool>,
    /// Shared by those that make a replica for a client. Before `files`.
    removals: RwLock<()>,
    /// Leaf lock.
    files: Mutex<NewFiles>,
}

impl MakingPool {
    pub fn new(pool: Arc<dyn Pool>) -> Arc<MakingPool> {
        Arc::new(MakingPool { pool, removals: RwLock::default(), files: Mutex::default() })
    }

    /// A session with the head begins, where no file has a higher number yet.
    pub fn begin(&self, newest: FileId) {
        self.files.lock().begin(newest);
    }

    /// By the ticket of a client. It makes no replica of a file that is old, or whose replica was made or removed before.
    pub(crate) async fn open_for_client(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        if ticket.presence != Presence::Unmade {
            return self.pool.open(ticket).await;
        }
        let made = Ticket { presence: Presence::Made, ..*ticket };
        let no_removal = self.removals.read().await;
        if !self.files.lock().may_make(ticket.file) {
            drop(no_removal);
            return self.pool.open(&made).await;
        }
        if ticket.mode == TicketMode::Read {
            return self.pool.open(ticket).await;
        }
        // Now, and not by the first write: from here on a replica that is missing is lost.
        self.pool.make(&[(ticket.file, ticket.birth)], ANSWER_TIME).await.sole()?;
        self.files.lock().note([ticket.file]);
        drop(no_removal);
        self.pool.open(&made).await
    }
}

#[async_trait]
impl Pool for MakingPool {
    fn id(&self) -> PoolId {
        self.pool.id()
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        self.pool.open(ticket).await
    }

    async fn make(&self, files: &[(FileId, Birth)], within: Duration) -> Answers<()> {
        self.pool.make(files, within).await
    }

    async fn truncate(&self, files: &[(FileId, u64)], within: Duration) -> Answers<ReplicaFacts> {
        self.pool.truncate(files, within).await
    }

    async fn remove(&self, files: &[FileId], within: Duration) -> Answers<()> {
        {
            let _alone = self.removals.write().await;
            self.files.lock().note(files.iter().copied());
        }
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
        PoolStatus { made_through: self.files.lock().through(), ..self.pool.status() }
    }
}

#[cfg(test)]
mod tests {
    //! Tickets of clients at a pool in memory.

    use testkit::memory_pool::MemoryPool;

    use super::*;

    const POOL: PoolId = PoolId(3);

    fn ticket(file: u64, mode: TicketMode) -> Ticket {
        let (file, birth, epoch, presence) = (FileId(file), Birth(5), Epoch(1), Presence::Unmade);
        Ticket { file, birth, pool: POOL, mode, epoch, presence, io: types::IoMode::Auto }
    }

    async fn has_replica(pool: &MakingPool, file: u64) -> bool {
        pool.facts(&[FileId(file)], ANSWER_TIME).await.sole().unwrap().is_some()
    }

    async fn is_written(pool: &MakingPool, file: u64) -> bool {
        let Ok(replica) = pool.open_for_client(&ticket(file, TicketMode::ReadWrite)).await else {
            return false;
        };
        replica.write_at(0, "x".into(), api::Stability::FileSync).await.is_ok()
    }

    #[tokio::test]
    async fn a_ticket_to_write_makes_the_replica_of_a_new_file() {
        let pool = MakingPool::new(Arc::new(MemoryPool::new(POOL)));
        assert_eq!(pool.status().made_through, None);
        assert!(!is_written(&pool, 8).await, "no head has told which files are new");
        pool.begin(FileId(7));
        assert_eq!(pool.status().made_through, Some(FileId(7)));
        let to_read = pool.open_for_client(&ticket(8, TicketMode::Read)).await.unwrap();
        assert!(to_read.read_at(0, 10).await.unwrap().end_of_file && !has_replica(&pool, 8).await);
        assert!(is_written(&pool, 8).await && is_written(&pool, 8).await);
        assert!(!is_written(&pool, 7).await && !has_replica(&pool, 7).await);
    }

    #[tokio::test]
    async fn a_ticket_brings_back_no_replica_that_was_removed_or_lost() {
        let memory = Arc::new(MemoryPool::new(POOL));
        let pool = MakingPool::new(memory.clone());
        pool.begin(FileId(7));
        pool.remove(&[FileId(8)], ANSWER_TIME).await.sole().unwrap();
        assert!(!is_written(&pool, 8).await && !has_replica(&pool, 8).await);
        assert!(pool.open_for_client(&ticket(8, TicketMode::Read)).await.is_err());
        assert!(is_written(&pool, 9).await);
        // Not by the head.
        memory.remove(&[FileId(9)], ANSWER_TIME).await.sole().unwrap();
        assert!(!is_written(&pool, 9).await && !has_replica(&pool, 9).await);
    }
}
