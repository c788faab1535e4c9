//! A pool behind a channel: every call and every answer goes through bytes, as to a pool on another host.
//!
//! It shows that the seam of pools needs nothing that a network cannot carry. The pool's side is a task that owns the
//! pool (`host`); this side numbers its requests and waits for the answers, in whatever order they come. A request
//! without an answer when the channel is cut is `Unknown`, one that is made later `Offline`.

mod host;
mod link;
mod replica;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use api::{
    Answers, Birth, Description, OpenReplica, Pool, PoolError, PoolStatus, ReplicaFacts, Ticket, Verifier,
};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use types::{Epoch, FileId, PoolId};
use xdr::Xdr;

use host::Host;
use link::{IN_FLIGHT_MAX, Link};
use replica::ChannelReplica;
use wire::{Call, Greeting, Opened, Reply};

pub struct ChannelPool {
    link: Arc<Link>,
    clone_granularity: Option<u32>,
    held: watch::Sender<bool>,
    /// The pool's side, and the task that takes its answers. Empty after [`ChannelPool::cut`].
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl ChannelPool {
    /// Puts a pool behind a channel. Called in a runtime, which runs both of its sides.
    pub fn around(pool: Arc<dyn Pool>) -> ChannelPool {
        let (requests, received) = mpsc::channel(IN_FLIGHT_MAX);
        let (answers, answered) = mpsc::channel(IN_FLIGHT_MAX);
        let (held, hold) = watch::channel(false);
        let host = Host::new(pool);
        let greeting: Greeting = wire::read(host.greeting());
        let link = Arc::new(Link::new(PoolId(greeting.pool), greeting.status.into_status(), requests));
        let taking = Arc::clone(&link).take(answered);
        let tasks = vec![tokio::spawn(host.serve(received, answers, hold)), tokio::spawn(taking)];
        ChannelPool { link, clone_granularity: greeting.clone_granularity, held, tasks: Mutex::new(tasks) }
    }

    /// While `is_held`, the pool's side takes no requests: the pool hangs.
    pub fn hold(&self, is_held: bool) {
        self.held.send_replace(is_held);
    }

    /// Loses the connection, for good.
    pub fn cut(&self) {
        self.link.cut();
        self.tasks.lock().drain(..).for_each(|task| task.abort());
    }

    async fn answers<W: Xdr + Send + Unpin + 'static, T>(
        &self,
        count: usize,
        call: Call,
        understand: impl Fn(W) -> T,
    ) -> Answers<T> {
        match self.link.ask::<Vec<Reply<W>>>(call).await {
            Ok(replies) => {
                assert_eq!(replies.len(), count, "the pool's side answers for each file");
                replies.into_iter().map(|reply| reply.into_result().map(&understand)).collect()
            }
            Err(error) => Answers::alike(count, &error),
        }
    }
}

impl Drop for ChannelPool {
    fn drop(&mut self) {
        self.cut();
    }
}

#[async_trait]
impl Pool for ChannelPool {
    fn id(&self) -> PoolId {
        self.link.pool()
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        let link = Arc::clone(&self.link);
        // An answer that nobody waits for closes it again.
        let opened = self.link.start(Call::Open(wire::Ticket::of(ticket)), |opened: Reply<Opened>| {
            let Opened { replica, verifier, has_ranges } = opened.into_result()?;
            Ok(ChannelReplica { link, replica, verifier: Verifier(verifier), has_ranges })
        });
        Ok(Arc::new(opened.await?))
    }

    async fn make(&self, files: &[(FileId, Birth)], within: Duration) -> Answers<()> {
        let files: Vec<_> = files.iter().map(|(file, birth)| (file.0, birth.0)).collect();
        let count = files.len();
        self.answers(count, Call::Make { files, within_ms: milliseconds(within) }, |()| ()).await
    }

    async fn truncate(&self, files: &[(FileId, u64)], within: Duration) -> Answers<ReplicaFacts> {
        let files: Vec<_> = files.iter().map(|(file, size)| (file.0, *size)).collect();
        let count = files.len();
        let call = Call::Truncate { files, within_ms: milliseconds(within) };
        self.answers(count, call, wire::Facts::into_facts).await
    }

    async fn remove(&self, files: &[FileId], within: Duration) -> Answers<()> {
        let call = Call::Remove { files: numbers(files), within_ms: milliseconds(within) };
        self.answers(files.len(), call, |()| ()).await
    }

    async fn sync_removals(&self, files: &[FileId], within: Duration) -> Result<(), PoolError> {
        let call = Call::SyncRemovals { files: numbers(files), within_ms: milliseconds(within) };
        self.link.ask::<Reply<()>>(call).await?.into_result()
    }

    async fn fence(&self, files: &[(FileId, Epoch)], within: Duration) -> Answers<()> {
        let files: Vec<_> = files.iter().map(|(file, epoch)| (file.0, epoch.0)).collect();
        let count = files.len();
        self.answers(count, Call::Fence { files, within_ms: milliseconds(within) }, |()| ()).await
    }

    async fn facts(&self, files: &[FileId], within: Duration) -> Answers<Option<ReplicaFacts>> {
        let call = Call::Facts { files: numbers(files), within_ms: milliseconds(within) };
        let understand = |facts: Option<wire::Facts>| facts.map(wire::Facts::into_facts);
        self.answers(files.len(), call, understand).await
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        let call = Call::Replicas { after: after.0, limit: limit as u64 };
        let listed = self.link.ask::<Reply<Vec<wire::Facts>>>(call).await?.into_result()?;
        Ok(listed.into_iter().map(wire::Facts::into_facts).collect())
    }

    async fn describe(
        &self,
        after: FileId,
        through: FileId,
        files: Vec<Description>,
    ) -> Result<(), PoolError> {
        let files = files.iter().map(wire::Described::of).collect();
        let call = Call::Describe { after: after.0, through: through.0, files };
        self.link.ask::<Reply<()>>(call).await?.into_result()
    }

    fn clone_granularity(&self) -> Option<u32> {
        self.clone_granularity
    }

    fn status(&self) -> PoolStatus {
        self.link.status()
    }
}

fn numbers(files: &[FileId]) -> Vec<u64> {
    files.iter().map(|file| file.0).collect()
}

/// At most some hundred million years.
fn milliseconds(within: Duration) -> u64 {
    u64::try_from(within.as_millis()).unwrap_or(u64::MAX)
}
