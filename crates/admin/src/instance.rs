//! The instance as the administrator's interface sees it. The binary implements it; this crate renders it.

use std::net::IpAddr;

use async_trait::async_trait;
use http_wire::target::encode_path;
use serde::{Deserialize, Serialize, Serializer};
use types::{FileId, Name};

#[async_trait]
pub trait Instance: Send + Sync {
    /// Cheap: from memory, and at most a second old.
    async fn snapshot(&self) -> Snapshot;

    /// Current problems; empty when all is well.
    async fn problems(&self) -> Vec<Problem>;

    /// Figures that the system has of this process now.
    async fn process(&self) -> ProcessView;

    /// A path of each file as of now, in the order asked; `None` where it has no name. Not from memory: asked for what is
    /// shown, and for administrators.
    async fn paths(&self, files: &[FileId]) -> Vec<Option<Vec<Name>>>;

    /// The files with the most bytes of those that the pools of this process have open. For administrators, as above.
    async fn busiest_files(&self, top: usize) -> Vec<BusyFileView>;

    fn log_levels(&self) -> LogLevels;

    /// The message of the error is for the user.
    fn set_log_levels(&self, levels: &LogLevels) -> Result<(), String>;
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    pub version: String,
    pub site: String,
    pub uptime_s: u64,
    pub files: u64,
    pub bytes: u64,
    pub pools: Vec<PoolView>,
    pub clients: Vec<ClientView>,
    /// All of them; `open_files` has no more than are shown.
    pub open_count: u64,
    pub open_files: Vec<OpenView>,
    /// How data is read and written at the pools, and why it is done so.
    pub io_modes: Vec<IoModeView>,
    /// Of all pools together.
    pub io_times: Vec<IoTimesView>,
    pub io_lanes: Vec<IoLaneView>,
    /// Of all pools of this process together.
    pub io_cpu: Vec<IoCpuView>,
    /// Of pools that have one.
    pub journals: Vec<JournalView>,
    /// Of pools with delayed allocation.
    pub gathered: Vec<GatheredView>,
    /// Of pools on other hosts.
    pub pool_calls: Vec<PoolCallsView>,
    /// Of all pools of this process together.
    pub read_ahead: ReadAheadView,
    /// The slowest of the last 10 minutes.
    pub slow_operations: Vec<SlowOperation>,
    /// Counted since the start, by door and operation.
    pub operations: Vec<OperationCount>,
    pub namespace: NamespaceView,
    pub nfs: NfsView,
    /// Third-party copies, by direction.
    pub third_party: Vec<CopyView>,
    pub keys: KeysView,
    pub gss: GssView,
}

impl Snapshot {
    /// As it is shown to users who are no administrators: without who the clients are and what they work on. Such texts
    /// are empty then, and left out of JSON.
    #[must_use]
    pub fn without_names(mut self) -> Snapshot {
        for client in &mut self.clients {
            client.name.clear();
            client.address.clear();
        }
        for open in &mut self.open_files {
            open.client.clear();
            open.path = None;
        }
        for slow in &mut self.slow_operations {
            slow.subject.clear();
            slow.client.clear();
        }
        self
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct PoolView {
    pub name: String,
    pub address: String,
    /// `None`: in order.
    pub offline: Option<String>,
    /// No new files and no clients.
    pub drained: bool,
    pub total_bytes: u64,
    pub free_bytes: u64,
    pub replicas: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Over the last seconds.
    pub read_bytes_per_s: u64,
    pub written_bytes_per_s: u64,
    /// To NFS clients, as most of them tell: it gets half as many new files.
    pub slow: bool,
    /// Time of reads as NFS clients report it; 0: no client reported lately.
    pub client_read_us_per_operation: u64,
    pub client_read_us_per_mib: u64,
    pub client_write_us_per_operation: u64,
    pub client_write_us_per_mib: u64,
    /// Bytes of reads that were in memory when they were asked for, that were not, and of which nobody looked.
    pub resident_read_bytes: u64,
    pub missing_read_bytes: u64,
    pub unknown_read_bytes: u64,
    /// Files whose writers contend for the same pages now.
    pub contended_files: u64,
    pub scrub: ScrubView,
    /// `None`: the pool is one of this process.
    pub host: Option<PoolHostView>,
}

/// The host of a pool that has joined, as the head sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PoolHostView {
    /// As it calls itself.
    pub host: String,
    /// Of its program; `None`: it has not connected since the start of the head.
    pub version: Option<String>,
    /// `ready`, `suspect`, `out`.
    pub standing: String,
    /// Since its last sign of life, or since the start of the head if it has given none.
    pub silent_s: u64,
    /// Left of its lease; 0: it is over.
    pub lease_s: f64,
    /// Files of which a fence was not delivered.
    pub missed_fences: u64,
    /// Connections of the pool host.
    pub connections: u64,
    /// Since the start of the head.
    pub reconnects: u64,
}

impl PoolHostView {
    /// `None`: nothing.
    pub fn missed(&self) -> Option<String> {
        (self.missed_fences > 0).then(|| format!("fences missed: {}", self.missed_fences))
    }
}

/// The comparison of a pool's replicas with their block sums.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ScrubView {
    pub running: bool,
    /// Of the one that runs.
    pub done_bytes: u64,
    pub total_bytes: u64,
    /// Since the start.
    pub read_bytes: u64,
    /// Found since the start.
    pub bad_blocks: u64,
    /// Of reads and copies that were compared with block sums since the start.
    pub verified_bytes: u64,
    /// With bad blocks, and there now.
    pub bad_replicas: u64,
    /// At the end of the last complete scrub.
    pub replicas_without_sums: u64,
    /// Seconds since 1970; 0: never.
    pub last_complete_s: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct ClientView {
    /// `nfs`, `http`.
    pub door: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    pub opens: u64,
    pub locks: u64,
    pub layouts: u64,
    pub delegations: u64,
    pub idle_s: u64,
    /// Its lease is over, and it stays until somebody needs what it has.
    pub courtesy: bool,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct OpenView {
    pub file: u64,
    /// Filled where it is shown.
    #[serde(serialize_with = "encoded")]
    pub path: Option<Vec<Name>>,
    pub door: String,
    /// A client's name; nobody's in particular for a door whose requests open files for themselves.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// `read`, `write`, `read-write`, with `deny …` where others are denied.
    pub mode: String,
}

/// A file that a pool has open, counted since it was opened there.
#[derive(Clone, Debug, Default)]
pub struct BusyFileView {
    pub pool: String,
    /// The number of the file, as its replica is named.
    pub file: String,
    /// `None`: it has no name, or the namespace gave no answer.
    pub path: Option<String>,
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Shares of the bytes: `direct 75 %, buffered 25 %`.
    pub modes: String,
    /// Writes that waited for another one of the same pages.
    pub waits: u64,
    pub contended: bool,
}

/// A name may not be text.
fn encoded<S: Serializer>(path: &Option<Vec<Name>>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| encode_path(path, false)).serialize(serializer)
}

/// Says where the files of these rows are. For administrators: it asks nobody's permission.
pub(crate) async fn find_paths(instance: &dyn Instance, shown: &mut [OpenView]) {
    let files: Vec<FileId> = shown.iter().map(|open| FileId(open.file)).collect();
    for (open, path) in shown.iter_mut().zip(instance.paths(&files).await) {
        open.path = path;
    }
}

/// Bytes that pools had the kernel fetch before they were read.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct ReadAheadView {
    /// Those below, and those that may still be read.
    pub advised_bytes: u64,
    pub used_bytes: u64,
    /// Not read in time.
    pub wasted_bytes: u64,
    /// Not fetched after all: the page cache had them, or the threads of the pool had no time.
    pub dropped_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct IoModeView {
    /// `buffered`, `uncached`, `direct`.
    pub mode: &'static str,
    /// The rule that chose the mode.
    pub reason: &'static str,
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// Times of reads or writes in one mode.
#[derive(Clone, Debug, Default, Serialize)]
pub struct IoTimesView {
    /// `read`, `write`.
    pub direction: &'static str,
    pub mode: &'static str,
    /// Seconds, and how many took at most so long. In order.
    pub up_to: Vec<(f64, u64)>,
    pub count: u64,
    pub sum_s: f64,
    /// The end of the bucket, at most a quarter too long.
    pub p50_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

/// CPU time of the threads that ran reads or writes in one mode, without syncs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct IoCpuView {
    /// `read`, `write`.
    pub direction: &'static str,
    pub mode: &'static str,
    /// Of the requests that were measured, each counted for those that it stands for.
    pub bytes: u64,
    /// Of the same requests.
    pub cpu_s: f64,
}

/// The threads of a pool for one sort of work.
#[derive(Clone, Debug, Default, Serialize)]
pub struct IoLaneView {
    /// `pool-0`.
    pub pool: String,
    /// `data`, `sync`.
    pub lane: &'static str,
    pub waiting: u64,
    /// Since the start.
    pub waiting_max: u64,
    pub busy: u64,
    pub threads_max: u64,
    /// How long most jobs waited for a thread.
    pub wait_p99_s: f64,
    pub cpu_s: f64,
}

/// The write journal of a pool.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JournalView {
    /// `pool-0`.
    pub pool: String,
    /// These five since the start.
    pub records: u64,
    /// Of the writes in these records.
    pub record_bytes: u64,
    pub syncs: u64,
    /// Writes that were synced with their file, since the journal was full or had failed.
    pub refused: u64,
    /// Syncs of files whose writes the journal already had.
    pub written_back: u64,
    /// Files with records that a restart would apply.
    pub files: u64,
    pub used_bytes: u64,
    pub room_bytes: u64,
    /// It takes nothing until the next start.
    pub failed: bool,
}

/// The delayed allocation of a pool.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GatheredView {
    /// `pool-0`.
    pub pool: String,
    /// These six since the start. Writes that were kept in memory first.
    pub writes: u64,
    pub bytes: u64,
    /// Pieces of their files that they were merged into, and those of them without gaps.
    pub extents: u64,
    pub complete: u64,
    /// Tries to write one that failed.
    pub failed: u64,
    /// Writes out of order that found no memory.
    pub no_memory: u64,
    pub memory_bytes: u64,
}

/// Calls of one procedure to a pool on another host.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PoolCallsView {
    /// `pool-1`.
    pub pool: String,
    /// `OPEN`, `MAKE`, …
    pub procedure: &'static str,
    /// Since the start.
    pub count: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct SlowOperation {
    pub at_s: u64,
    pub door: String,
    pub operation: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    pub took_ms: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct OperationCount {
    pub door: String,
    pub operation: String,
    pub count: u64,
}

/// Of all NFS clients together, besides what stands with each: now, and since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NfsView {
    pub sessions: u64,
    pub slots: u64,
    /// With a request running.
    pub slots_busy: u64,
    pub lock_waiters: u64,
    /// Clients that have lost locks.
    pub lost_locks: u64,
    /// Bytes of calls and replies in memory, of head and pools.
    pub flight_bytes: u64,
    /// Memory that the replies kept for retransmissions may take, at the head.
    pub reply_cache_bytes: u64,
    /// Copies that go on after COPY was answered.
    pub copies_running: u64,
    /// Finished copies whose clients have not been notified.
    pub copies_unheard: u64,
    pub grants: Vec<GrantView>,
}

/// Counts of grants of one kind and of their recalls, since the start.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GrantView {
    /// `layout`, `delegation`; `all_layouts`, which has recalls only.
    pub kind: &'static str,
    pub granted: u64,
    pub recalls_sent: u64,
    pub recalls_answered: u64,
    pub recalls_unanswered: u64,
    pub revoked: u64,
    /// Not granted since writers contended for the file; of delegations to write.
    pub contended: u64,
}

/// Third-party copies of one direction: now, and since the start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CopyView {
    /// `pull`, `push`.
    pub direction: &'static str,
    pub running: u64,
    pub started: u64,
    pub done: u64,
    pub failed: u64,
    pub aborted: u64,
    pub bytes: u64,
}

/// The keys that tickets to pools are sealed with.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct KeysView {
    pub generation: u32,
    pub age_s: u64,
}

/// Kerberos contexts of NFS clients: now, and since the start.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct GssView {
    pub contexts: u64,
    pub established: u64,
    pub refused: u64,
}

/// Counters of the namespace since the start, and its current queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NamespaceView {
    pub cache: Vec<CacheView>,
    pub questions: Vec<QuestionCount>,
    /// Operations that wait for the committer.
    pub queued: u64,
}

/// Of one kind of what the cache keeps.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CacheView {
    pub kind: &'static str,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub entries: u64,
    pub bytes: u64,
    pub max_bytes: u64,
}

/// Asked of the database, by readers or by the committer.
#[derive(Clone, Debug, Default, Serialize)]
pub struct QuestionCount {
    pub by: &'static str,
    pub kind: &'static str,
    pub count: u64,
}

/// By the names that client libraries of Prometheus use. `None`: the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessView {
    /// User and system time.
    pub cpu_seconds: Option<f64>,
    pub open_fds: Option<u64>,
    /// `u64::MAX`: as many as there are.
    pub max_fds: Option<u64>,
    pub resident_bytes: Option<u64>,
    pub virtual_bytes: Option<u64>,
    pub threads: Option<u64>,
    /// Since 1970.
    pub start_seconds: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// `pool-offline`, `disk-nearly-full`, `namespace-read-only`, …: stable, for alerting rules.
    pub kind: &'static str,
    /// The problem and its place.
    pub what: String,
    /// Advice to the operator.
    pub advice: String,
}

/// Levels are `error`, `warn`, `info`, `debug`, `trace`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogLevels {
    pub level: Option<String>,
    /// By door: `nfs`, `http`.
    pub doors: std::collections::BTreeMap<String, String>,
    /// By client address: everything its requests log, whatever the door's level is.
    pub clients: std::collections::BTreeMap<IpAddr, String>,
}
