//! A pool behind a connection: every call and every answer goes through bytes, as to a pool on another host.
//!
//! The head's side is a [`RemotePool`], the pool's side a [`PoolService`], with pipes of this process in between: one control
//! connection and two for data. The lease is without end, and the state of the pool is told when it is asked for.

mod hold;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{
    Answers, Birth, Description, OpenReplica, Pool, PoolError, PoolStatus, ReplicaFacts, Term, Ticket,
};
use async_trait::async_trait;
use cluster::{
    Answerer, Arrival, Connection, Greeting, LeaseRules, PoolService, Process, Refused, RemotePool, Status,
};
use cluster_state::{HeldTerms, SessionId, Terms};
use types::{Epoch, FileId, PoolId};
use xdr::{Decoder, Encoder};

use crate::clock::ManualClock;
use hold::{Hold, Holdable};

const DATA_CONNECTIONS: usize = 2;
const PIPE_BYTES: usize = 256 << 10;
const PROCESS: Process = Process { starts: 1, draw: 1 };
const HELD: HeldTerms =
    HeldTerms { terms: Terms { term: Term::FIRST, floor: Term::FIRST }, is_settled: true };
/// A hundred years.
const WITHOUT_END: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub struct ChannelPool {
    remote: Arc<RemotePool>,
    pool: Arc<dyn Pool>,
    service: Arc<PoolService>,
    hold: Arc<Hold>,
    /// The head's ends; the first one is the control connection.
    connections: Vec<Arc<Connection>>,
    session: SessionId,
    is_cut: AtomicBool,
}

/// The head is asked for nothing.
struct Mute;

#[async_trait]
impl Answerer for Mute {
    async fn answer(&self, _procedure: u32, _arguments: Decoder) -> Result<Encoder, Refused> {
        Err(Refused::NoProcedure)
    }
}

impl ChannelPool {
    /// Puts a pool behind a channel. Called in a runtime, which runs both of its sides.
    pub fn around(pool: Arc<dyn Pool>) -> ChannelPool {
        let rules = LeaseRules { lease: WITHOUT_END, suspect: WITHOUT_END };
        let remote = RemotePool::new(pool.id(), rules, Arc::new(ManualClock::new(0)));
        let service = Arc::new(PoolService::new(Arc::clone(&pool)));
        let hold = Arc::new(Hold::default());
        let connections: Vec<_> =
            (0..=DATA_CONNECTIONS).map(|_| connection(Arc::clone(&service), Arc::clone(&hold))).collect();
        let [control, data @ ..] = &*connections else { unreachable!("there is one at least") };
        let arrival = Arrival { process: PROCESS, has_lease: true };
        let session = remote.connect(arrival, Arc::clone(control), Greeting::of(&*pool));
        let session = session.expect("it is the only process");
        remote.renew(session, HELD, told(&*pool));
        for data in data {
            assert!(remote.add_data(PROCESS, Arc::clone(data)), "the session has begun");
        }
        ChannelPool { remote, pool, service, hold, connections, session, is_cut: AtomicBool::new(false) }
    }

    /// While `is_held`, the pool's side takes no requests: the pool hangs.
    pub fn hold(&self, is_held: bool) {
        self.hold.set(is_held);
    }

    /// Loses the connections, for good.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.connections.iter().for_each(|connection| connection.close());
        self.remote.disconnect(&self.connections[0]);
    }
}

/// The head's end.
fn connection(service: Arc<PoolService>, hold: Arc<Hold>) -> Arc<Connection> {
    let (head, pool) = tokio::io::duplex(PIPE_BYTES);
    Connection::start(Holdable::new(pool, hold), service);
    Connection::start(head, Arc::new(Mute))
}

/// The state of the pool as the wire brings it.
fn told(pool: &dyn Pool) -> PoolStatus {
    let bytes = xdr::to_bytes(&Status::of(&pool.status()));
    let status: Status = xdr::from_bytes(bytes).expect("it was written just now");
    status.into_status(pool.id())
}

impl Drop for ChannelPool {
    fn drop(&mut self) {
        self.cut();
    }
}

#[async_trait]
impl Pool for ChannelPool {
    fn id(&self) -> PoolId {
        self.remote.id()
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        self.remote.open(ticket).await
    }

    async fn make(&self, files: &[(FileId, Birth)], within: Duration) -> Answers<()> {
        self.remote.make(files, within).await
    }

    async fn truncate(&self, files: &[(FileId, u64)], within: Duration) -> Answers<ReplicaFacts> {
        self.remote.truncate(files, within).await
    }

    async fn remove(&self, files: &[FileId], within: Duration) -> Answers<()> {
        self.remote.remove(files, within).await
    }

    async fn sync_removals(&self, files: &[FileId], within: Duration) -> Result<(), PoolError> {
        self.remote.sync_removals(files, within).await
    }

    async fn fence(&self, files: &[(FileId, Epoch)], within: Duration) -> Answers<()> {
        self.remote.fence(files, within).await
    }

    async fn facts(&self, files: &[FileId], within: Duration) -> Answers<Option<ReplicaFacts>> {
        self.remote.facts(files, within).await
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        self.remote.replicas(after, limit).await
    }

    async fn describe(
        &self,
        after: FileId,
        through: FileId,
        files: Vec<Description>,
    ) -> Result<(), PoolError> {
        self.remote.describe(after, through, files).await
    }

    fn clone_granularity(&self) -> Option<u32> {
        self.remote.clone_granularity()
    }

    fn status(&self) -> PoolStatus {
        if !self.is_cut.load(Ordering::Acquire) && !self.hold.is_held() {
            self.service.sweep();
            self.remote.renew(self.session, HELD, told(&*self.pool));
        }
        self.remote.status()
    }
}
