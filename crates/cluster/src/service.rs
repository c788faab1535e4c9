//! The pool's side of the pool seam: answers the calls of a head from a pool of this process.
//!
//! I/O names its replica by a ticket, so nothing is lost with a connection. Replicas that were used lately stay open, a bounded
//! number; an open replica looks at the epoch at each use (the suite of pools asks that of every pool), so a fence is not
//! hidden. I/O begins in the order in which it came, also while its replica is being opened.

mod io;
mod open;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use api::{Answers, OpenReplica, Pool, PoolError};
use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use types::{Epoch, FileId};
use xdr::{Decoder, Encoder, Xdr};

use crate::rpc::{Answerer, Refused};
use crate::wire::{self, Batch, Described, Facts, Listed, Opened, Replies, Reply, Ticket, procedure};

use io::{Begun, Operation};
use open::{OpenReplicas, ReplicaPlace};

/// Replicas that stay open for the next call.
const OPEN_MAX: usize = 256;

pub struct PoolService {
    pool: Arc<dyn Pool>,
    /// Leaf lock.
    open: Mutex<OpenReplicas>,
    /// Bytes of reads under way.
    reading: Arc<AtomicUsize>,
}

impl PoolService {
    pub fn new(pool: Arc<dyn Pool>) -> PoolService {
        PoolService::with_open_max(pool, OPEN_MAX)
    }

    /// For a pool that has few descriptors: it keeps at most so many replicas open for calls to come.
    pub fn with_open_max(pool: Arc<dyn Pool>, open_max: usize) -> PoolService {
        PoolService { pool, open: Mutex::new(OpenReplicas::new(open_max)), reading: Arc::default() }
    }

    /// Closes replicas that were not used lately. To be called each second or so: calls do it too, but there may be none.
    pub fn sweep(&self) {
        let closed = self.open.lock().sweep();
        drop(closed);
    }

    /// Begins the operation before the first wait, if the replica is open, or else behind those that came before.
    async fn on_replica(&self, ticket: api::Ticket, operation: Operation) -> Encoder {
        let place = self.open.lock().find(&ticket);
        let begun = match place {
            ReplicaPlace::Open(replica) => self.begin(&*replica, operation),
            ReplicaPlace::Absent => return self.open_for(ticket, operation).await,
            ReplicaPlace::Opening => {
                let (sender, begun) = oneshot::channel();
                let is_behind = self.open.lock().wait(&ticket, operation, sender);
                match is_behind {
                    Ok(()) => match begun.await {
                        Ok(begun) => begun,
                        // The call that opened it is gone with its connection.
                        Err(_) => return failed(PoolError::Busy(self.pool.id())),
                    },
                    Err((replica, operation)) => self.begin(&*replica, operation),
                }
            }
        };
        begun.await
    }

    async fn open_for(&self, ticket: api::Ticket, operation: Operation) -> Encoder {
        let opening = Opening { service: self, ticket };
        let opened = self.opened(&ticket).await;
        let own = self.begin_or_fail(&opened, operation);
        // Those that came meanwhile, and those that come while these begin.
        loop {
            let waiting = self.open.lock().settle(&ticket, &opened);
            if waiting.is_empty() {
                break;
            }
            for (operation, sender) in waiting {
                let _ = sender.send(self.begin_or_fail(&opened, operation));
            }
        }
        std::mem::forget(opening);
        own.await
    }

    /// Opens the replica. If the pool has too many open, those that wait here for the next call make room.
    async fn opened(&self, ticket: &api::Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        match self.pool.open(ticket).await {
            Err(PoolError::Busy(pool)) => {
                let closed = self.open.lock().let_go();
                if closed.is_empty() {
                    return Err(PoolError::Busy(pool));
                }
                drop(closed);
                self.pool.open(ticket).await
            }
            opened => opened,
        }
    }

    fn begin_or_fail(&self, opened: &Result<Arc<dyn OpenReplica>, PoolError>, operation: Operation) -> Begun {
        match opened {
            Ok(replica) => self.begin(&**replica, operation),
            Err(error) => {
                let results = failed(error.clone());
                Box::pin(async move { results })
            }
        }
    }

    fn begin(&self, replica: &dyn OpenReplica, operation: Operation) -> Begun {
        io::begin(replica, operation, self.pool.id(), &self.reading)
    }

    async fn open(&self, ticket: api::Ticket) -> Encoder {
        let opened = self.opened(&ticket).await;
        let told = opened
            .as_ref()
            .map(|replica| Opened { verifier: replica.verifier().0, has_ranges: replica.ranges().is_some() });
        let results = results(&Reply::of(told.map_err(Clone::clone)));
        if let Ok(replica) = opened {
            let closed = self.open.lock().keep(ticket, replica);
            drop(closed);
        }
        results
    }

    /// Calls that are not about one replica.
    async fn ask(&self, procedure: u32, d: &mut Decoder) -> Result<Encoder, Refused> {
        let pool = &self.pool;
        Ok(match procedure {
            procedure::OPEN => self.open(decoded::<Ticket>(d)?.0).await,
            procedure::MAKE => {
                let batch: Batch<(u64, u32)> = decoded(d)?;
                let files = map(&batch, |(file, birth)| (FileId(file), api::Birth(birth)));
                replies(pool.make(&files, batch.within()).await, |()| ())
            }
            procedure::TRUNCATE => {
                let batch: Batch<(u64, u64)> = decoded(d)?;
                let files = map(&batch, |(file, size)| (FileId(file), size));
                replies(pool.truncate(&files, batch.within()).await, Facts)
            }
            procedure::REMOVE => {
                let batch: Batch<u64> = decoded(d)?;
                let files = map(&batch, FileId);
                let removed = pool.remove(&files, batch.within()).await;
                self.open.lock().note_removed(&files);
                replies(removed, |()| ())
            }
            procedure::SYNC_REMOVALS => {
                let batch: Batch<u64> = decoded(d)?;
                let files = map(&batch, FileId);
                results(&Reply::of(pool.sync_removals(&files, batch.within()).await))
            }
            procedure::FENCE => {
                let batch: Batch<(u64, u32)> = decoded(d)?;
                let files = map(&batch, |(file, epoch)| (FileId(file), Epoch(epoch)));
                replies(pool.fence(&files, batch.within()).await, |()| ())
            }
            procedure::FACTS => {
                let batch: Batch<u64> = decoded(d)?;
                let facts = pool.facts(&map(&batch, FileId), batch.within()).await;
                replies(facts, |facts| facts.map(Facts))
            }
            procedure::REPLICAS => self.list(decoded(d)?).await,
            procedure::DESCRIBE => {
                let wire::Describe { after, through, files } = decoded(d)?;
                let files = files.into_iter().map(Described::into_description).collect();
                results(&Reply::of(pool.describe(FileId(after), FileId(through), files).await))
            }
            _ => return Err(Refused::NoProcedure),
        })
    }

    async fn list(&self, wire::List { after, limit }: wire::List) -> Encoder {
        let limit = wire::LISTED_MAX.min(limit as usize);
        let listed = self.pool.replicas(FileId(after), limit).await;
        let of_facts = |listed: Vec<_>| Listed { replicas: listed.into_iter().map(Facts).collect() };
        results(&Reply::of(listed.map(of_facts)))
    }
}

#[async_trait]
impl Answerer for PoolService {
    async fn answer(&self, procedure: u32, mut arguments: Decoder) -> Result<Encoder, Refused> {
        self.sweep();
        match Operation::of(procedure, &mut arguments)? {
            Some((ticket, operation)) => Ok(self.on_replica(ticket, operation).await),
            None => self.ask(procedure, &mut arguments).await,
        }
    }
}

/// A replica that is being opened by a call. If the call is dropped, those that wait for it end.
struct Opening<'a> {
    service: &'a PoolService,
    ticket: api::Ticket,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        let waiting = self.service.open.lock().give_up(&self.ticket);
        drop(waiting);
    }
}

fn decoded<T: Xdr>(d: &mut Decoder) -> Result<T, Refused> {
    T::decode(d).map_err(|_| Refused::Garbage)
}

fn map<W: Copy, T>(batch: &Batch<W>, of_one: impl Fn(W) -> T) -> Vec<T> {
    batch.files.iter().map(|file| of_one(*file)).collect()
}

fn results(value: &impl Xdr) -> Encoder {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    encoder
}

fn failed(error: PoolError) -> Encoder {
    results(&Reply::<()>::of(Err(error)))
}

fn replies<T, W: Xdr>(answers: Answers<T>, say: impl Fn(T) -> W) -> Encoder {
    let answers = answers.into_iter().map(|answer| Reply::of(answer.map(&say))).collect();
    results(&Replies { answers })
}
