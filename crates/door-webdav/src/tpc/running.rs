//! The third-party copies that run: how many, and how each is told to its client.
//!
//! A transfer is a task that this table owns; the response only watches it. When the client goes away the response is
//! dropped, and the task hears of it and cleans up, which a dropped future could not.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream;
use http::StatusCode;
use http::header::{self, HeaderValue};
use http_client::Client;
use http_server::{Response, ResponseBody};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{info, warn};

use super::counts::CopyCounts;
use super::failure::Failure;
use super::marker::{Progress, SUCCESS, aborted_line, failure_line};
use super::push::Trace;
use super::remote::Remote;
use super::{CopyRefusal, CopyRequest, CopySource, CopyTarget, pull, push};

#[derive(Clone, Debug)]
pub struct ThirdPartyConfig {
    /// Beyond this a COPY is told to come later (429).
    pub transfers_max: usize,
    /// Of one pull, whatever the client asks for.
    pub streams_max: usize,
    /// A stream is not opened for less.
    pub part_bytes_min: u64,
    /// FTS gives up on a transfer that is silent for 30 s.
    pub marker_interval: Duration,
    /// For one stretch of a file, in a row without progress.
    pub retries_max: u32,
    /// Before the first retry; doubled each time.
    pub retry_pause: Duration,
    /// How long the other server may compute a checksum.
    pub checksum_timeout: Duration,
    /// A transfer that moves less than `speed_min_bytes_s` on average over this time is ended.
    pub speed_window: Duration,
    pub speed_min_bytes_s: u64,
    /// Where the client does not say: whether a copy fails if the other server tells no checksum.
    pub require_checksum: bool,
}

impl Default for ThirdPartyConfig {
    fn default() -> ThirdPartyConfig {
        ThirdPartyConfig {
            transfers_max: 100,
            streams_max: 8,
            part_bytes_min: 16 << 20,
            marker_interval: Duration::from_secs(5),
            retries_max: 3,
            retry_pause: Duration::from_secs(1),
            checksum_timeout: Duration::from_secs(600),
            speed_window: Duration::from_secs(300),
            speed_min_bytes_s: 1024,
            require_checksum: false,
        }
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct RunningCopies {
    shared: Arc<CopyTasks>,
}

struct CopyTasks {
    client: Client,
    config: ThirdPartyConfig,
    counts: Arc<CopyCounts>,
    slots: Arc<Semaphore>,
    /// Locked only to add a task and to take finished ones out.
    tasks: Mutex<JoinSet<()>>,
    stop: watch::Sender<bool>,
}

/// The right to run one transfer.
pub struct Slot {
    shared: Arc<CopyTasks>,
    permit: OwnedSemaphorePermit,
}

impl RunningCopies {
    pub fn new(client: Client, config: ThirdPartyConfig, counts: Arc<CopyCounts>) -> RunningCopies {
        let slots = Arc::new(Semaphore::new(config.transfers_max));
        let (tasks, stop) = (Mutex::new(JoinSet::new()), watch::Sender::new(false));
        RunningCopies { shared: Arc::new(CopyTasks { client, config, counts, slots, tasks, stop }) }
    }

    /// To be asked before a target is made. The refusal is 429, or 503 while stopping.
    pub fn admit(&self) -> Result<Slot, CopyRefusal> {
        let refuse = |status, text: &str| CopyRefusal { status, message: text.to_owned() };
        if *self.shared.stop.borrow() {
            return Err(refuse(StatusCode::SERVICE_UNAVAILABLE, "server is stopping"));
        }
        match Arc::clone(&self.shared.slots).try_acquire_owned() {
            Ok(permit) => Ok(Slot { shared: Arc::clone(&self.shared), permit }),
            Err(_) => Err(refuse(StatusCode::TOO_MANY_REQUESTS, "too many transfers run; try again later")),
        }
    }

    pub fn count(&self) -> usize {
        self.shared.config.transfers_max - self.shared.slots.available_permits()
    }

    /// Ends all transfers, lets them clean up for as long as `patience`, and leaves none behind.
    pub async fn stop(&self, patience: Duration) {
        self.shared.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.shared.tasks.lock());
        let all = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all).await.is_err() {
            warn!(left = tasks.len(), "transfers did not clean up in time");
            tasks.shutdown().await;
        }
    }
}

impl Slot {
    /// 202, and how it goes. Dropping the response ends the transfer.
    pub fn pull(self, request: CopyRequest, target: Box<dyn CopyTarget>) -> Response {
        let (shared, stripes) =
            (Arc::clone(&self.shared), request.streams.min(self.shared.config.streams_max));
        self.start(request, stripes, move |remote, client_gone| async move {
            let fetching = Box::pin(pull::fetch(&remote, target.as_ref()));
            let fetched = shared.until_ended(&remote, client_gone, fetching).await?;
            // From here on it is decided; a client that goes away now finds the file.
            Ok(target.publish(fetched.size, fetched.checksums).await?)
        })
    }

    /// 202, and how it goes. Dropping the response ends the transfer.
    pub fn push(self, request: CopyRequest, source: Arc<dyn CopySource>) -> Response {
        let shared = Arc::clone(&self.shared);
        self.start(request, 1, move |remote, client_gone| async move {
            let trace = Arc::new(Trace::default());
            let sending = Box::pin(push::send(&remote, &source, &trace));
            let outcome = shared.until_ended(&remote, client_gone, sending).await;
            if outcome.is_err() {
                push::clean_up(&remote, &trace).await;
            }
            outcome
        })
    }

    fn start<J, F>(self, request: CopyRequest, stripes: usize, job: J) -> Response
    where
        J: FnOnce(Remote, oneshot::Receiver<()>) -> F,
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let Slot { shared, permit } = self;
        let counted = shared.counts.begin(request.direction);
        let progress = Arc::new(Progress::new(stripes, counted.counters()));
        let (client, client_gone) = oneshot::channel();
        let (report, outcome) = oneshot::channel();
        let remote = Remote {
            client: shared.client.clone(),
            request: Arc::new(request),
            progress: Arc::clone(&progress),
            config: shared.config.clone(),
        };
        let what = (remote.request.direction, remote.request.remote.to_string());
        let job = Box::pin(job(remote, client_gone));
        let moved = Arc::clone(&progress);
        let task = async move {
            let outcome = job.await;
            let bytes = moved.total();
            match &outcome {
                Ok(()) => info!(direction = ?what.0, remote = %what.1, bytes, "transfer done"),
                Err(failure) => {
                    info!(direction = ?what.0, remote = %what.1, bytes, %failure, "transfer failed")
                }
            }
            counted.end(&outcome);
            drop(permit);
            // The client may be gone.
            let _ = report.send(outcome);
        };
        let mut tasks = shared.tasks.lock();
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
        drop(tasks);
        watched(progress, outcome, client, shared.config.marker_interval)
    }
}

impl CopyTasks {
    /// Ended by its own end, by the client going away, by the server stopping, or because nothing moves.
    async fn until_ended<T>(
        &self,
        remote: &Remote,
        client_gone: oneshot::Receiver<()>,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut stop = self.stop.subscribe();
        tokio::select! {
            outcome = work => outcome,
            // The sender is never used: it is dropped with the response.
            _ = client_gone => Err(Failure::Cancelled),
            _ = stop.wait_for(|stop| *stop) => Err(Failure::Stopping),
            failure = too_slow(remote) => Err(failure),
        }
    }
}

async fn too_slow(remote: &Remote) -> Failure {
    let (window, progress) = (remote.config.speed_window, &remote.progress);
    let least = remote.config.speed_min_bytes_s.saturating_mul(window.as_secs());
    let mut before = 0;
    loop {
        tokio::time::sleep(window).await;
        let total = progress.total();
        let bytes = total.saturating_sub(before);
        // Waiting for a checksum has a deadline of its own.
        if bytes < least && !progress.is_verifying() {
            return Failure::TooSlow { bytes, window_s: window.as_secs() };
        }
        before = total;
    }
}

struct Watched {
    progress: Arc<Progress>,
    outcome: oneshot::Receiver<Result<(), Failure>>,
    ticks: Interval,
    is_over: bool,
    /// Dropped with the response; the transfer listens for that.
    _client: oneshot::Sender<()>,
}

impl Watched {
    /// A marker at once and then at every tick, and the last one together with the outcome.
    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        let outcome = tokio::select! {
            biased;
            outcome = &mut self.outcome => outcome,
            _ = self.ticks.tick() => return Some(self.progress.markers(now_s())),
        };
        self.is_over = true;
        let last = match outcome {
            Ok(Ok(())) => SUCCESS.to_owned(),
            Ok(Err(failure)) if failure.is_abort() => aborted_line(&failure.to_string()),
            Ok(Err(failure)) => failure_line(&failure.to_string()),
            Err(_) => failure_line("internal error, see the server's log"),
        };
        Some(self.progress.markers(now_s()) + &last)
    }
}

fn watched(
    progress: Arc<Progress>,
    outcome: oneshot::Receiver<Result<(), Failure>>,
    client: oneshot::Sender<()>,
    marker_interval: Duration,
) -> Response {
    let mut ticks = tokio::time::interval(marker_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let watched = Watched { progress, outcome, ticks, is_over: false, _client: client };
    let lines = stream::unfold(watched, |mut watched| async move {
        let text = watched.next().await?;
        Some((Ok(Bytes::from(text)), watched))
    });
    Response::new(StatusCode::ACCEPTED)
        .with(header::CONTENT_TYPE, HeaderValue::from_static("text/perf-marker-stream"))
        .with_body(ResponseBody::Stream(Box::pin(lines)))
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
