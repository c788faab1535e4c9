//! Faults around a pool: each call asks a schedule first, which the test or its dice write.
//!
//! Open replicas of such a pool lend no file and have nothing resident, so that every byte passes by the schedule.

mod gate;
mod replica;
mod request;
mod schedule;

use std::sync::Arc;
use std::time::Duration;

use api::{Answers, Birth, Description, OpenReplica, Pool, PoolError, PoolStatus, ReplicaFacts, Ticket};
use async_trait::async_trait;
use futures_channel::oneshot;
use types::{Epoch, FileId, PoolId};

pub use self::gate::Gate;
pub use self::replica::FaultyReplica;
pub use self::request::{Call, Request};
use self::schedule::Passage;
pub use self::schedule::{Fault, Schedule};

/// A pool that can lose the bytes that no sync has covered.
pub trait Crash: Send + Sync {
    fn crash(&self);
}

/// A pool whose calls meet the faults of its schedule.
pub struct Faulty<P: ?Sized> {
    pool: Arc<P>,
    schedule: Schedule,
}

impl<P: Pool + Crash + 'static> Faulty<P> {
    pub fn new(pool: P) -> Faulty<P> {
        let pool = Arc::new(pool);
        let crashing = Arc::clone(&pool);
        let schedule = Schedule::of(pool.id(), Some(Arc::new(move || crashing.crash())));
        Faulty { pool, schedule }
    }
}

impl Faulty<dyn Pool> {
    /// Around a pool of any kind. It does not crash: `Fault::LoseUnsynced` is not for its schedule.
    pub fn around(pool: Arc<dyn Pool>) -> Faulty<dyn Pool> {
        let schedule = Schedule::of(pool.id(), None);
        Faulty { pool, schedule }
    }
}

impl<P: ?Sized> Faulty<P> {
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The pool without its faults.
    pub fn pool(&self) -> &P {
        &self.pool
    }

    async fn pass<T>(
        &self,
        request: Request,
        call: impl Future<Output = Result<T, PoolError>>,
    ) -> Result<T, PoolError> {
        match self.schedule.begin(request)? {
            Passage::Free => call.await,
            Passage::Delayed(gate) => {
                self.wait_at(&gate).await?;
                call.await
            }
            Passage::AnsweredLate(gate) => {
                let answer = call.await;
                self.wait_at(&gate).await?;
                answer
            }
            Passage::Unanswered(error) => {
                // The caller does not hear what came of it.
                let _ = call.await;
                Err(error)
            }
            Passage::Torn { error, .. } => Err(error),
        }
    }

    /// A batch is a request for each file, in turn.
    async fn pass_each<F: Copy, T, C: Future<Output = Result<T, PoolError>>>(
        &self,
        files: &[F],
        request: impl Fn(F) -> Request,
        call: impl Fn(F) -> C,
    ) -> Answers<T> {
        let mut answers = Vec::with_capacity(files.len());
        for file in files {
            answers.push(self.pass(request(*file), call(*file)).await);
        }
        answers.into_iter().collect()
    }

    async fn wait_at(&self, gate: &Gate) -> Result<(), PoolError> {
        let (go, gone) = oneshot::channel();
        // A caller that gave up waiting still takes its turn.
        gate.enter(move || _ = go.send(()));
        gone.await.map_err(|_| self.schedule.offline())
    }
}

#[async_trait]
impl<P: Pool + ?Sized> Pool for Faulty<P> {
    fn id(&self) -> PoolId {
        self.pool.id()
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        let replica = self.pass(Request::Open(*ticket), self.pool.open(ticket)).await?;
        Ok(Arc::new(FaultyReplica::new(replica, &self.schedule)))
    }

    async fn make(&self, files: &[(FileId, Birth)], within: Duration) -> Answers<()> {
        let make = |file: (FileId, Birth)| async move { self.pool.make(&[file], within).await.sole() };
        self.pass_each(files, |(file, birth)| Request::Make(file, birth), make).await
    }

    async fn truncate(&self, files: &[(FileId, u64)], within: Duration) -> Answers<ReplicaFacts> {
        let truncate = |file: (FileId, u64)| async move { self.pool.truncate(&[file], within).await.sole() };
        self.pass_each(files, |(file, size)| Request::Truncate(file, size), truncate).await
    }

    async fn remove(&self, files: &[FileId], within: Duration) -> Answers<()> {
        let remove = |file: FileId| async move { self.pool.remove(&[file], within).await.sole() };
        self.pass_each(files, Request::Remove, remove).await
    }

    async fn sync_removals(&self, files: &[FileId], within: Duration) -> Result<(), PoolError> {
        self.pass(Request::SyncRemovals(files.to_vec()), self.pool.sync_removals(files, within)).await
    }

    async fn fence(&self, files: &[(FileId, Epoch)], within: Duration) -> Answers<()> {
        let fence = |file: (FileId, Epoch)| async move { self.pool.fence(&[file], within).await.sole() };
        self.pass_each(files, |(file, epoch)| Request::Fence(file, epoch), fence).await
    }

    async fn facts(&self, files: &[FileId], within: Duration) -> Answers<Option<ReplicaFacts>> {
        let facts = |file: FileId| async move { self.pool.facts(&[file], within).await.sole() };
        self.pass_each(files, Request::Facts, facts).await
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        self.pass(Request::List { after }, self.pool.replicas(after, limit)).await
    }

    async fn describe(
        &self,
        after: FileId,
        through: FileId,
        files: Vec<Description>,
    ) -> Result<(), PoolError> {
        self.pass(Request::Describe { after, through }, self.pool.describe(after, through, files)).await
    }

    fn clone_granularity(&self) -> Option<u32> {
        self.pool.clone_granularity()
    }

    fn status(&self) -> PoolStatus {
        let offline = self.schedule.is_gone().then(|| "it has disappeared".to_owned());
        let status = self.pool.status();
        PoolStatus { offline: offline.or(status.offline), ..status }
    }
}
