//! The pool's side of the channel: a task that has the pool, does what the requests say and answers.
//!
//! I/O is started in the order of the requests. Each answer brings the pool's status along, and so does a tick without
//! requests.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::{Advice, Answers, Birth, IoHandle, OpenReplica, Pool, PoolError, RangeKind, ReplicaRanges};
use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use types::{Epoch, FileId};
use xdr::{Opaque, Xdr};

use super::wire::{self, Answer, Call, Greeting, Op, Opened, Reply, Request};

/// How often the status is told without a request.
const STATUS_PERIOD: Duration = Duration::from_millis(100);

pub(super) struct Host {
    pool: Arc<dyn Pool>,
    /// Replicas that are open for the other side, by their numbers.
    open: HashMap<u64, Arc<dyn OpenReplica>>,
    last_opened: u64,
    /// Requests under way.
    tasks: JoinSet<Done>,
}

/// The answer to a request.
struct Done {
    number: u64,
    body: Bytes,
    opened: Option<(u64, Arc<dyn OpenReplica>)>,
}

impl Host {
    pub fn new(pool: Arc<dyn Pool>) -> Host {
        Host { pool, open: HashMap::new(), last_opened: 0, tasks: JoinSet::new() }
    }

    /// The first message of a connection.
    pub fn greeting(&self) -> Bytes {
        let clone_granularity = self.pool.clone_granularity();
        let status = wire::Status::of(&self.pool.status());
        wire::written(&Greeting { pool: self.pool.id().0, clone_granularity, status })
    }

    pub async fn serve(
        mut self,
        mut requests: mpsc::Receiver<Bytes>,
        answers: mpsc::Sender<Bytes>,
        mut hold: watch::Receiver<bool>,
    ) {
        let mut ticks = tokio::time::interval(STATUS_PERIOD);
        loop {
            let is_held = *hold.borrow_and_update();
            let (number, body) = tokio::select! {
                // In this order: a request that is sent after the pool was told to hang is not taken.
                biased;
                changed = hold.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                request = requests.recv(), if !is_held => {
                    let Some(request) = request else { return };
                    self.begin(wire::read(request));
                    continue;
                }
                Some(done) = self.tasks.join_next() => {
                    let Ok(Done { number, body, opened }) = done else { return };
                    self.open.extend(opened);
                    (number, body)
                }
                _ = ticks.tick() => (0, Bytes::new()),
            };
            let status = wire::Status::of(&self.pool.status());
            let answer = wire::written(&Answer { number, status, body: Opaque(body) });
            if answers.send(answer).await.is_err() {
                return;
            }
        }
    }

    fn begin(&mut self, request: Request) {
        let Request { number, closed, call } = request;
        closed.iter().for_each(|replica| _ = self.open.remove(replica));
        match call {
            Call::Open(ticket) => self.begin_opening(number, ticket),
            Call::Io { replica, op } => {
                let replica = self.open.get(&replica).cloned().expect("it was opened and is not closed");
                self.begin_io(number, &*replica, op);
            }
            call => {
                let pool = Arc::clone(&self.pool);
                self.tasks.spawn(async move { Done { number, body: ask(&*pool, call).await, opened: None } });
            }
        }
    }

    fn begin_opening(&mut self, number: u64, ticket: wire::Ticket) {
        self.last_opened += 1;
        let (replica, pool) = (self.last_opened, Arc::clone(&self.pool));
        self.tasks.spawn(async move {
            let opened = pool.open(&ticket.into_ticket()).await;
            let told = opened.as_ref().map(|open| Opened {
                replica,
                verifier: open.verifier().0,
                has_ranges: open.ranges().is_some(),
            });
            let body = wire::written(&Reply::of(told.map_err(Clone::clone)));
            Done { number, body, opened: opened.ok().map(|open| (replica, open)) }
        });
    }

    fn begin_io(&mut self, number: u64, replica: &dyn OpenReplica, op: Op) {
        match op {
            Op::Read { offset, length } => {
                let read = replica.read_at(offset, length);
                self.answer(number, async move {
                    Reply::of(read.await.map(|read| (Opaque(read.data), read.end_of_file)))
                });
            }
            Op::Write { offset, data, stability } => {
                let written = replica.write_at(offset, data.into_bytes(), stability.into_stability());
                self.answer(number, async move { Reply::of(written.await.map(wire::Stability::of)) });
            }
            Op::Sync => {
                let synced = replica.sync();
                self.answer(number, async move { Reply::of(synced.await.map(|verifier| verifier.0)) });
            }
            op => {
                let ranges = replica.ranges().expect("the other side was told that there are none");
                self.begin_on_ranges(number, ranges, op);
            }
        }
    }

    fn begin_on_ranges(&mut self, number: u64, ranges: &dyn ReplicaRanges, op: Op) {
        match op {
            Op::Allocate(range) => self.finish(number, ranges.allocate(range.into_range())),
            Op::Deallocate(range) => self.finish(number, ranges.deallocate(range.into_range())),
            Op::Extend(length) => self.finish(number, ranges.extend(length)),
            Op::Seek { offset, is_data } => {
                let kind = if is_data { RangeKind::Data } else { RangeKind::Hole };
                self.finish(number, ranges.seek(offset, kind));
            }
            Op::Copy { source, stretch } => {
                self.finish(number, ranges.copy_from(source.into_source(), stretch.into_stretch()));
            }
            Op::Share { source, stretch } => {
                self.finish(number, ranges.share_from(source.into_source(), stretch.into_stretch()));
            }
            Op::Advise { range, is_needed } => {
                let advice = if is_needed { Advice::WillNeed } else { Advice::DontNeed };
                self.finish(number, ranges.advise(range.into_range(), advice));
            }
            Op::Read { .. } | Op::Write { .. } | Op::Sync => unreachable!("begun before"),
        }
    }

    /// The outcome is its own message.
    fn finish<T: Xdr + Send + Unpin + 'static>(&mut self, number: u64, io: IoHandle<T>) {
        self.answer(number, async move { Reply::of(io.await) });
    }

    fn answer<T: Xdr>(&mut self, number: u64, answer: impl Future<Output = T> + Send + 'static) {
        self.tasks.spawn(async move { Done { number, body: wire::written(&answer.await), opened: None } });
    }
}

/// A call to the pool itself.
async fn ask(pool: &dyn Pool, call: Call) -> Bytes {
    match call {
        Call::Make { files, within_ms } => {
            let files: Vec<_> = files.iter().map(|(file, birth)| (FileId(*file), Birth(*birth))).collect();
            replies(pool.make(&files, Duration::from_millis(within_ms)).await, |()| ())
        }
        Call::Truncate { files, within_ms } => {
            let files: Vec<_> = files.iter().map(|(file, size)| (FileId(*file), *size)).collect();
            replies(pool.truncate(&files, Duration::from_millis(within_ms)).await, wire::Facts::of)
        }
        Call::Remove { files, within_ms } => {
            replies(pool.remove(&ids(&files), Duration::from_millis(within_ms)).await, |()| ())
        }
        Call::SyncRemovals { files, within_ms } => {
            reply(pool.sync_removals(&ids(&files), Duration::from_millis(within_ms)).await)
        }
        Call::Fence { files, within_ms } => {
            let files: Vec<_> = files.iter().map(|(file, epoch)| (FileId(*file), Epoch(*epoch))).collect();
            replies(pool.fence(&files, Duration::from_millis(within_ms)).await, |()| ())
        }
        Call::Facts { files, within_ms } => {
            let facts = pool.facts(&ids(&files), Duration::from_millis(within_ms)).await;
            replies(facts, |facts| facts.map(wire::Facts::of))
        }
        Call::Replicas { after, limit } => {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let listed = pool.replicas(FileId(after), limit).await;
            reply(listed.map(|listed| listed.into_iter().map(wire::Facts::of).collect::<Vec<_>>()))
        }
        Call::Describe { after, through, files } => {
            let files = files.into_iter().map(wire::Described::into_description).collect();
            reply(pool.describe(FileId(after), FileId(through), files).await)
        }
        Call::Open(_) | Call::Io { .. } => unreachable!("begun before"),
    }
}

fn ids(files: &[u64]) -> Vec<FileId> {
    files.iter().copied().map(FileId).collect()
}

fn reply<T: Xdr>(answer: Result<T, PoolError>) -> Bytes {
    wire::written(&Reply::of(answer))
}

fn replies<T, W: Xdr>(answers: Answers<T>, say: impl Fn(T) -> W) -> Bytes {
    let replies: Vec<_> = answers.into_iter().map(|answer| Reply::of(answer.map(&say))).collect();
    wire::written(&replies)
}
