//! The instance as the administrator's interface sees it, gathered from the doors, the pools and the namespace.

pub mod pool_io;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use admin::Instance;
use admin::instance::{
    BusyFileView, CacheView, ClientView, CopyView, GrantView, GssView, KeysView, LogLevels, NamespaceView,
    NfsView, OpenView, OperationCount, PoolCallsView, PoolView, Problem, ProcessView, QuestionCount,
    ScrubView, SlowOperation, Snapshot,
};
use admin::log::LogControl;
use api::{Observer, Paths, Pool, PoolManager, PoolStatus, Subject};
use async_trait::async_trait;
use door_nfs::{ClientStatus, DoorStatus, GrantCounts, HeadDoor};
use door_webdav::{CopyCounts, CopyFigures, Direction};
use file_state::{Modes, Share};
use files::Files;
use namespace::{SqlNamespace, Trouble, TroubleKind};
use parking_lot::{Mutex, RwLock};
use pool::{LocalPool, ResidencyBytes};
use types::{Clock, FileId, Name, PoolId};

use crate::cluster::ClusterHead;
use crate::keys::Keys;
use crate::pool_map::{PoolMap, PoolPace};
use crate::pools::{busiest, problems};
use crate::process;

/// Rates are over the last so many samples, one a second.
const WINDOW: usize = 10;
/// Operations that take longer are kept for the list of slow operations.
const SLOW: Duration = Duration::from_millis(100);
const SLOW_KEPT: usize = 50;
const SLOW_AGE_S: u64 = 600;
const OPENS_SHOWN: usize = 500;
/// Addresses of HTTP clients that are remembered, and for how long.
const HTTP_CLIENTS_MAX: usize = 1_000;
const HTTP_CLIENT_AGE: Duration = Duration::from_secs(300);

/// Measures every operation of every door.
pub struct Measures {
    clock: Arc<dyn Clock>,
    /// Recorders by door and operation, made at the first. Leaf lock.
    latencies: RwLock<HashMap<(&'static str, &'static str), Latency>>,
    /// Leaf lock.
    slow: Mutex<Vec<SlowOperation>>,
    /// Leaf lock.
    http_clients: Mutex<HashMap<IpAddr, Duration>>,
}

struct Latency {
    histogram: metrics::Histogram,
    count: std::sync::atomic::AtomicU64,
}

impl Measures {
    pub fn new(clock: Arc<dyn Clock>) -> Arc<Measures> {
        Arc::new(Measures {
            clock,
            latencies: RwLock::default(),
            slow: Mutex::default(),
            http_clients: Mutex::default(),
        })
    }

    pub fn http_client(&self, address: IpAddr) {
        let now = self.clock.monotonic();
        let mut clients = self.http_clients.lock();
        if let Some(seen) = clients.get_mut(&address) {
            *seen = now;
            return;
        }
        if clients.len() >= HTTP_CLIENTS_MAX {
            clients.retain(|_, seen| now.saturating_sub(*seen) < HTTP_CLIENT_AGE);
        }
        if clients.len() < HTTP_CLIENTS_MAX {
            clients.insert(address, now);
        }
    }

    fn record(&self, door: &'static str, operation: &'static str, took: Duration) {
        use std::sync::atomic::Ordering;
        let seconds = took.as_secs_f64();
        if let Some(latency) = self.latencies.read().get(&(door, operation)) {
            latency.histogram.record(seconds);
            latency.count.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut latencies = self.latencies.write();
        let latency = latencies.entry((door, operation)).or_insert_with(|| Latency {
            histogram: admin::metrics::operation_seconds(door, operation),
            count: std::sync::atomic::AtomicU64::new(0),
        });
        latency.histogram.record(seconds);
        latency.count.fetch_add(1, Ordering::Relaxed);
    }

    pub fn counts(&self) -> Vec<OperationCount> {
        let latencies = self.latencies.read();
        let mut counts: Vec<_> = latencies
            .iter()
            .map(|((door, operation), latency)| OperationCount {
                door: (*door).to_owned(),
                operation: (*operation).to_owned(),
                count: latency.count.load(std::sync::atomic::Ordering::Relaxed),
            })
            .collect();
        counts.sort_by(|a, b| (&a.door, &a.operation).cmp(&(&b.door, &b.operation)));
        counts
    }

    fn slow(&self) -> Vec<SlowOperation> {
        let now_s = u64::try_from(self.clock.now().seconds).unwrap_or(0);
        let mut slow = self.slow.lock();
        slow.retain(|one| one.at_s + SLOW_AGE_S > now_s);
        slow.clone()
    }
}

impl Observer for Measures {
    fn took(
        &self,
        door: &'static str,
        operation: &'static str,
        took: Duration,
        describe: &dyn Fn() -> Subject,
    ) {
        self.record(door, operation, took);
        if took < SLOW {
            return;
        }
        let Subject { what, client } = describe();
        let one = SlowOperation {
            at_s: u64::try_from(self.clock.now().seconds).unwrap_or(0),
            door: door.to_owned(),
            operation: operation.to_owned(),
            subject: what,
            client,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        };
        let mut slow = self.slow.lock();
        slow.retain(|other| other.at_s + SLOW_AGE_S > one.at_s);
        slow.push(one);
        slow.sort_by_key(|one| std::cmp::Reverse(one.took_ms));
        slow.truncate(SLOW_KEPT);
    }
}

pub struct Overview {
    pub site: String,
    pub clock: Arc<dyn Clock>,
    pub started: Duration,
    pub namespace: Arc<SqlNamespace>,
    pub pool_map: Arc<PoolMap>,
    /// Those of this process.
    pub local_pools: Vec<Arc<LocalPool>>,
    /// Has those of other hosts.
    pub cluster: Option<Arc<ClusterHead>>,
    pub door: Arc<HeadDoor>,
    pub keys: Arc<Keys>,
    pub files: Arc<Files>,
    pub measures: Arc<Measures>,
    pub copy_counts: Arc<CopyCounts>,
    pub log: LogControl,
    pub rates: Rates,
}

/// How fast the pools read and write.
#[derive(Default)]
pub struct Rates {
    /// One a second. Leaf lock.
    samples: Mutex<VecDeque<Sample>>,
}

struct Sample {
    at: Duration,
    /// Bytes read and written so far.
    pools: BTreeMap<PoolId, (u64, u64)>,
}

impl Rates {
    fn add(&self, sample: Sample) {
        let mut samples = self.samples.lock();
        samples.push_back(sample);
        while samples.len() > WINDOW + 1 {
            samples.pop_front();
        }
    }

    /// Bytes per second read and written.
    fn of(&self, pool: PoolId) -> (u64, u64) {
        let samples = self.samples.lock();
        let (Some(first), Some(last)) = (samples.front(), samples.back()) else { return (0, 0) };
        let (Some(from), Some(to)) = (first.pools.get(&pool), last.pools.get(&pool)) else { return (0, 0) };
        let seconds = last.at.saturating_sub(first.at).as_secs().max(1);
        (to.0.saturating_sub(from.0) / seconds, to.1.saturating_sub(from.1) / seconds)
    }
}

impl Overview {
    /// To be called every second.
    pub fn sample(&self) {
        let statuses = self.pool_map.pools().into_iter();
        let bytes = statuses.map(|status| (status.id, (status.read_bytes, status.written_bytes)));
        self.rates.add(Sample { at: self.clock.monotonic(), pools: bytes.collect() });
    }

    fn pool_calls(&self) -> Vec<PoolCallsView> {
        let calls = self.cluster.iter().flat_map(|cluster| cluster.calls());
        let view = |(pool, procedure, count): (PoolId, _, _)| PoolCallsView {
            pool: pool.to_string(),
            procedure,
            count,
        };
        calls.map(view).collect()
    }

    fn clients(&self, nfs: &[ClientStatus]) -> Vec<ClientView> {
        let nfs = nfs.iter().map(|client| ClientView {
            door: "nfs".to_owned(),
            name: client.name.clone(),
            address: client.address.clone(),
            opens: client.opens,
            locks: client.locks,
            layouts: client.layouts,
            delegations: client.delegations,
            idle_s: client.idle.as_secs(),
            courtesy: client.is_courtesy,
        });
        let now = self.clock.monotonic();
        let http = self.measures.http_clients.lock();
        let http = http.iter().filter(|(_, seen)| now.saturating_sub(**seen) < HTTP_CLIENT_AGE);
        let http = http.map(|(address, seen)| ClientView {
            door: "http".to_owned(),
            address: address.to_string(),
            idle_s: now.saturating_sub(*seen).as_secs(),
            ..ClientView::default()
        });
        nfs.chain(http).collect()
    }

    fn nfs_view(&self, door: &DoorStatus) -> NfsView {
        let sum = |of: fn(&ClientStatus) -> u64| door.clients.iter().map(of).sum();
        NfsView {
            sessions: sum(|client| client.sessions),
            slots: sum(|client| client.slots),
            slots_busy: sum(|client| client.slots_busy),
            lock_waiters: door.waiters,
            lost_locks: door.lost_locks,
            flight_bytes: door.flight_bytes,
            reply_cache_bytes: door.slots.reply_cache_bytes,
            copies_running: door.copies.running,
            copies_unheard: door.copies.unheard,
            grants: vec![
                grant_view("layout", door.layouts),
                grant_view("delegation", door.delegations),
                grant_view("all_layouts", door.all_layouts),
            ],
        }
    }

    fn scrub_view(&self, id: PoolId) -> ScrubView {
        self.local_pools.iter().find(|pool| pool.id() == id).map(|pool| scrub_view(pool)).unwrap_or_default()
    }

    /// How many there are, and those that are shown.
    fn opens(&self, nfs: &[ClientStatus]) -> (u64, Vec<OpenView>) {
        let (count, opens) = {
            let table = self.files.table();
            (table.holders().total().opens, table.all_opens().take(OPENS_SHOWN).collect::<Vec<_>>())
        };
        let names: HashMap<u64, &str> =
            nfs.iter().map(|client| (client.number, client.name.as_str())).collect();
        let view = |(file, owner, share): (FileId, file_state::Owner, Share)| OpenView {
            file: file.0,
            path: None,
            door: self.files.door_name(owner.holder.door).to_owned(),
            // An HTTP request has no client that can be named afterwards.
            client: self
                .door
                .client_number(owner.holder)
                .and_then(|number| names.get(&number).copied())
                .unwrap_or_default()
                .to_owned(),
            mode: mode(share),
        };
        (count as u64, opens.into_iter().map(view).collect())
    }
}

pub fn scrub_view(pool: &LocalPool) -> ScrubView {
    let report = pool.scrub_report();
    ScrubView {
        running: report.is_running,
        done_bytes: report.done_bytes,
        total_bytes: report.total_bytes,
        read_bytes: report.read_bytes,
        bad_blocks: report.bad_blocks,
        verified_bytes: report.verified_bytes,
        bad_replicas: report.bad.len() as u64,
        replicas_without_sums: report.last.map_or(0, |last| last.totals.left_out),
        last_complete_s: report.last.map_or(0, |last| last.ended_s),
    }
}

/// With bytes per second read and written.
pub fn pool_view(
    status: PoolStatus,
    address: Option<SocketAddr>,
    drained: bool,
    pace: PoolPace,
    (read_bytes_per_s, written_bytes_per_s): (u64, u64),
) -> PoolView {
    let us = |seconds: f64| (seconds * 1e6).round() as u64;
    PoolView {
        name: status.id.to_string(),
        address: address.map(|address| address.to_string()).unwrap_or_default(),
        drained,
        contended_files: status.contended.len() as u64,
        offline: status.trouble(),
        total_bytes: status.total_bytes,
        free_bytes: status.free_bytes,
        replicas: status.replicas,
        read_bytes: status.read_bytes,
        written_bytes: status.written_bytes,
        read_bytes_per_s,
        written_bytes_per_s,
        slow: pace.is_slow,
        client_read_us_per_operation: us(pace.reads.operation_s),
        client_read_us_per_mib: us(pace.reads.mib_s),
        client_write_us_per_operation: us(pace.writes.operation_s),
        client_write_us_per_mib: us(pace.writes.mib_s),
        ..PoolView::default()
    }
}

fn mode(share: Share) -> String {
    let words = |modes: Modes| match (modes.contains(Modes::READ), modes.contains(Modes::WRITE)) {
        (true, true) => Some("read-write"),
        (true, false) => Some("read"),
        (false, true) => Some("write"),
        (false, false) => None,
    };
    let access = words(share.access).unwrap_or("none");
    words(share.deny).map_or_else(|| access.to_owned(), |deny| format!("{access}, deny {deny}"))
}

fn grant_view(kind: &'static str, counts: GrantCounts) -> GrantView {
    GrantView {
        kind,
        granted: counts.granted,
        recalls_sent: counts.sent,
        recalls_answered: counts.answered,
        recalls_unanswered: counts.unanswered,
        revoked: counts.revoked,
        contended: counts.contended,
    }
}

fn copy_view(direction: &'static str, figures: CopyFigures) -> CopyView {
    CopyView {
        direction,
        running: figures.running,
        started: figures.started,
        done: figures.done,
        failed: figures.failed,
        aborted: figures.aborted,
        bytes: figures.bytes,
    }
}

fn namespace_view(figures: namespace::Figures) -> NamespaceView {
    let cache = figures.cache.into_iter().map(|kept| CacheView {
        kind: kept.kind,
        hits: kept.hits,
        misses: kept.misses,
        evictions: kept.evictions,
        entries: kept.entries,
        bytes: kept.bytes,
        max_bytes: kept.bytes_max,
    });
    let questions = figures.questions.into_iter().map(|asked| QuestionCount {
        by: asked.by,
        kind: asked.kind,
        count: asked.count,
    });
    NamespaceView { cache: cache.collect(), questions: questions.collect(), queued: figures.queued }
}

fn refusing_changes(trouble: Trouble) -> Problem {
    Problem {
        kind: "namespace-read-only",
        what: format!("the namespace takes no changes: {}", trouble.why),
        advice: advice(trouble.kind).to_owned(),
    }
}

fn refusing_growth(trouble: Trouble) -> Problem {
    Problem {
        kind: "namespace-full",
        what: format!("the namespace takes no new files and names, but other changes: {}", trouble.why),
        advice: advice(trouble.kind).to_owned(),
    }
}

/// Most of it ends without a restart, which would only interrupt clients.
fn advice(kind: TroubleKind) -> &'static str {
    match kind {
        TroubleKind::Full => "free space on the disk that holds the namespace; the server resumes by itself",
        TroubleKind::ReadOnly => {
            "make the namespace writable: its disk, or the rights of the user of the database; the server resumes by itself"
        }
        TroubleKind::Failed => {
            "check the log, and the disk or the PostgreSQL server that holds the namespace; the server resumes by itself"
        }
        TroubleKind::Away => "check PostgreSQL and the network to it; the server resumes by itself",
        TroubleKind::TooManyConnections => {
            "raise max_connections of PostgreSQL, or the limit of its user or database; the server resumes by itself"
        }
        TroubleKind::TakenOver => {
            "another head serves this namespace; stop this one, or stop the other one and restart this one"
        }
        TroubleKind::SetBack => "restore the newer database, then restart",
        TroubleKind::NeedsRestart => "check the log, then restart",
    }
}

#[async_trait]
impl Instance for Overview {
    async fn snapshot(&self) -> Snapshot {
        let usage = self.namespace.totals();
        let statuses = self.pool_map.pools();
        let mut hosts = self.cluster.as_ref().map(|cluster| cluster.hosts()).unwrap_or_default();
        let io: Vec<_> = self.local_pools.iter().map(|pool| (pool.id(), pool.io())).collect();
        let pools = statuses.into_iter().map(|status| {
            let (id, rates) = (status.id, self.rates.of(status.id));
            let address = self.pool_map.address(id, door_nfs::NAME);
            let view =
                pool_view(status, address, self.pool_map.is_drained(id), self.pool_map.pace(id), rates);
            let bytes = io.iter().find(|(known, _)| *known == id).map(|(_, report)| report.residency);
            let ResidencyBytes { resident, missing, unknown } = bytes.unwrap_or_default();
            PoolView {
                resident_read_bytes: resident,
                missing_read_bytes: missing,
                unknown_read_bytes: unknown,
                scrub: self.scrub_view(id),
                host: hosts.remove(&id),
                ..view
            }
        });
        let door = self.door.status();
        let nfs_view = self.nfs_view(&door);
        let DoorStatus { clients: nfs, security, .. } = door;
        let (open_count, open_files) = self.opens(&nfs);
        let keys = self.keys.report();
        Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            site: self.site.clone(),
            uptime_s: self.clock.monotonic().saturating_sub(self.started).as_secs(),
            files: usage.files,
            bytes: usage.bytes,
            pools: pools.collect(),
            clients: self.clients(&nfs),
            open_count,
            open_files,
            io_modes: pool_io::modes(&io),
            io_times: pool_io::times(&io),
            io_lanes: pool_io::lanes(&io),
            io_cpu: pool_io::cpu(&io),
            journals: pool_io::journals(&io),
            gathered: pool_io::gathered(&io),
            pool_calls: self.pool_calls(),
            read_ahead: pool_io::read_ahead(&io),
            slow_operations: self.measures.slow(),
            operations: self.measures.counts(),
            namespace: namespace_view(self.namespace.figures()),
            nfs: nfs_view,
            third_party: [(Direction::Pull, "pull"), (Direction::Push, "push")]
                .map(|(direction, name)| copy_view(name, self.copy_counts.figures(direction)))
                .into(),
            keys: KeysView { generation: keys.generation, age_s: keys.age_s },
            gss: GssView {
                contexts: security.contexts,
                established: security.established,
                refused: security.refused,
            },
        }
    }

    async fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        problems.extend(self.namespace.trouble().map(refusing_changes));
        problems.extend(self.namespace.growth_trouble().map(refusing_growth));
        problems.extend(self.pool_map.pools().iter().filter_map(problems::of_status));
        problems.extend(self.local_pools.iter().flat_map(|pool| problems::of_disk(pool)));
        problems
    }

    async fn process(&self) -> ProcessView {
        tokio::task::spawn_blocking(process::view).await.unwrap_or_default()
    }

    async fn paths(&self, files: &[FileId]) -> Vec<Option<Vec<Name>>> {
        self.namespace.paths(files).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot look up the paths of open files");
            vec![None; files.len()]
        })
    }

    async fn busiest_files(&self, top: usize) -> Vec<BusyFileView> {
        busiest::views(&*self.namespace, &self.local_pools, top).await
    }

    fn log_levels(&self) -> LogLevels {
        self.log.levels()
    }

    fn set_log_levels(&self, levels: &LogLevels) -> Result<(), String> {
        self.log.set(levels)
    }
}

#[cfg(test)]
mod tests {
    use crate::pool_map::Pace;

    use super::*;

    fn status(offline: Option<&str>) -> PoolStatus {
        PoolStatus {
            offline: offline.map(str::to_owned),
            total_bytes: 10,
            free_bytes: 5,
            total_files: 10,
            free_files: 5,
            replicas: 1,
            ..PoolStatus::untold(PoolId(1))
        }
    }

    fn address() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 2049))
    }

    /// Each said to make space and to restart, also where PostgreSQL was away.
    #[test]
    fn a_restart_is_advised_where_nothing_else_helps_and_nowhere_else() {
        let kinds = [
            (TroubleKind::Full, "free space", false),
            (TroubleKind::ReadOnly, "writable", false),
            (TroubleKind::Failed, "disk", false),
            (TroubleKind::Away, "PostgreSQL", false),
            (TroubleKind::TooManyConnections, "max_connections", false),
            (TroubleKind::TakenOver, "another head", true),
            (TroubleKind::SetBack, "newer database", true),
            (TroubleKind::NeedsRestart, "log", true),
        ];
        for (kind, word, needs_restart) in kinds {
            let problem = refusing_changes(Trouble { kind, why: "the cause".to_owned() });
            assert!(problem.what.contains("the cause") && problem.advice.contains(word), "{problem:?}");
            assert_eq!(problem.advice.contains("restart"), needs_restart, "{problem:?}");
            assert_eq!(problem.advice.contains("by itself"), !needs_restart, "{problem:?}");
        }
    }

    #[test]
    fn of_a_pool_that_is_drained_and_offline_both_are_shown() {
        for (offline, drained) in [(None, false), (None, true), (Some("disk"), false), (Some("disk"), true)] {
            let view = pool_view(status(offline), Some(address()), drained, PoolPace::default(), (0, 0));
            assert_eq!((view.offline.as_deref(), view.drained), (offline, drained));
        }
    }

    #[test]
    fn the_pace_of_a_pool_is_shown_in_microseconds() {
        let pace = |operation_s, mib_s| Pace { operation_s, mib_s };
        let pace = PoolPace { reads: pace(0.001, 0.25), writes: pace(0.0000026, 0.0), is_slow: true };
        let view = pool_view(status(None), Some(address()), false, pace, (0, 0));
        assert_eq!((view.client_read_us_per_operation, view.client_read_us_per_mib), (1_000, 250_000));
        assert_eq!((view.client_write_us_per_operation, view.client_write_us_per_mib), (3, 0));
        assert!(view.slow);
    }
}
