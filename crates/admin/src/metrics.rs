//! Metrics in the text format of Prometheus.
//!
//! Values that the instance counts anyway are read from its snapshot on request. Values that only one place in the code
//! knows (how long an operation took) are recorded there by the `metrics` facade and end in the same recorder. Every
//! series stands in [`SERIES`] and, with its labels, in docs/reference/metrics.md; a test compares the two.
//!
//! Labels come from the code and the configuration, never from what a client sends, so the series are bounded.

mod io_cpu;
mod io_times;
mod process;
mod series;
mod snapshot;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Histogram, SetRecorderError, with_local_recorder};
use http::Method;
use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use parking_lot::Mutex;
use thiserror::Error;

pub use series::{Kind, SERIES, Series};

use crate::host::HostSnapshot;
use crate::instance::{Problem, ProcessView, Snapshot};

/// How long operations took, by door and operation.
pub const OPERATION_SECONDS: &str = "forebay_operation_seconds";

/// How long reads and writes took at the pools, by direction and mode.
const IO_SECONDS: &str = "forebay_io_seconds";

/// How many operations the namespace commits at once, and how long that takes; recorded there, without labels.
const GROUP_OPERATIONS: &str = "forebay_namespace_group_operations";
const COMMIT_SECONDS: &str = "forebay_namespace_commit_seconds";

/// Of as many as a group may have.
const OPERATIONS: &[f64] = &[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

/// From what the page cache answers to what a client has given up on.
const SECONDS: &[f64] = &[
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
    30.0, 60.0,
];

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Debug, Error)]
pub enum MetricsError {
    #[error("cannot make the recorder of metrics: {0}")]
    Build(#[from] BuildError),
    #[error("another recorder of metrics is there already")]
    Installed,
}

/// Where measurements end. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
    /// Every kind of problem seen so far: one that is over must read as 0, not as nothing. Leaf lock.
    problems_seen: Arc<Mutex<BTreeSet<&'static str>>>,
}

/// Makes a recorder that everything in this process records to. Once per process.
pub fn install() -> Result<Recorder, MetricsError> {
    let recorder = Recorder::new()?;
    ::metrics::set_global_recorder(Arc::clone(&recorder.recorder))
        .map_err(|_: SetRecorderError<_>| MetricsError::Installed)?;
    Ok(recorder)
}

/// Where to record how long an operation took; worth keeping where there are many. Both names are the program's own,
/// never a client's.
pub fn operation_seconds(door: &'static str, operation: &'static str) -> Histogram {
    ::metrics::histogram!(OPERATION_SECONDS, "door" => door, "operation" => operation)
}

/// The method as an operation: one name for all that we do not know.
pub fn operation_of(method: &Method) -> &'static str {
    const KNOWN: [&str; 14] = [
        "GET",
        "HEAD",
        "PUT",
        "POST",
        "DELETE",
        "OPTIONS",
        "PROPFIND",
        "PROPPATCH",
        "MKCOL",
        "COPY",
        "MOVE",
        "LOCK",
        "UNLOCK",
        "PATCH",
    ];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("other")
}

impl Recorder {
    /// One that nobody records to but who is told to.
    pub fn new() -> Result<Recorder, MetricsError> {
        let full = |name: &str| Matcher::Full(name.to_owned());
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(full(OPERATION_SECONDS), SECONDS)?
            .set_buckets_for_metric(full(COMMIT_SECONDS), SECONDS)?
            .set_buckets_for_metric(full(GROUP_OPERATIONS), OPERATIONS)?
            .build_recorder();
        let handle = recorder.handle();
        let recorder = Arc::new(recorder);
        let recorded = || {
            SERIES.iter().filter(|series| {
                let name = series.name;
                !process::has(name) && !io_cpu::has(name) && name != IO_SECONDS
            })
        };
        with_local_recorder(&recorder, || recorded().for_each(Series::describe));
        Ok(Recorder { recorder, handle, problems_seen: Arc::default() })
    }

    /// Sorts what was measured since the last time, which is kept one by one until then. To be called every second or
    /// so, for nobody may ask for the metrics for days.
    pub fn tick(&self) {
        self.handle.run_upkeep();
    }

    pub(crate) fn render(&self, snapshot: &Snapshot, problems: &[Problem], process: &ProcessView) -> String {
        with_local_recorder(&self.recorder, || {
            snapshot::record(snapshot);
            self.record_problems(problems);
        });
        without_former_pools(&self.handle.render(), snapshot)
            + &io_times::text(&snapshot.io_times)
            + &io_cpu::text(snapshot)
            + &process::text(process)
    }

    /// Of a host with a pool alone.
    pub(crate) fn render_host(
        &self,
        host: &HostSnapshot,
        problems: &[Problem],
        process: &ProcessView,
    ) -> String {
        with_local_recorder(&self.recorder, || {
            snapshot::record_host(host);
            self.record_problems(problems);
        });
        self.handle.render()
            + &io_times::text(&host.pool.io_times)
            + &io_cpu::text(&host.pool)
            + &process::text(process)
    }

    fn record_problems(&self, problems: &[Problem]) {
        let mut seen = self.problems_seen.lock();
        seen.extend(problems.iter().map(|problem| problem.kind));
        for kind in seen.iter() {
            let count = problems.iter().filter(|problem| problem.kind == *kind).count();
            ::metrics::gauge!("forebay_problems", "kind" => *kind).set(count as f64);
        }
        ::metrics::gauge!("forebay_healthy").set(if problems.is_empty() { 1.0 } else { 0.0 });
    }
}

/// The recorder keeps all series that it ever had. Those of pools that are not there any more are left out.
fn without_former_pools(text: &str, snapshot: &Snapshot) -> String {
    let listed = snapshot.pools.iter().map(|pool| pool.name.as_str());
    let lanes = snapshot.io_lanes.iter().map(|lane| lane.pool.as_str());
    let journals = snapshot.journals.iter().map(|journal| journal.pool.as_str());
    let gathered = snapshot.gathered.iter().map(|gathered| gathered.pool.as_str());
    let calls = snapshot.pool_calls.iter().map(|calls| calls.pool.as_str());
    let known: BTreeSet<&str> = listed.chain(lanes).chain(journals).chain(gathered).chain(calls).collect();
    let is_kept = |line: &&str| pool_of(line).is_none_or(|pool| known.contains(pool));
    text.split_inclusive('\n').filter(is_kept).collect()
}

/// The label of a line, if it has one. Names of pools need no escapes.
fn pool_of(line: &str) -> Option<&str> {
    let labels = line.split_once('{')?.1;
    let at = labels.find("pool=\"").filter(|at| *at == 0 || labels.as_bytes()[at - 1] == b',')?;
    labels[at + "pool=\"".len()..].split_once('"').map(|(pool, _)| pool)
}

/// As it is measured, for who has no histogram of its own.
pub fn observe(door: &'static str, operation: &'static str, took: Duration) {
    operation_seconds(door, operation).record(took.as_secs_f64());
}

#[cfg(test)]
mod tests;
