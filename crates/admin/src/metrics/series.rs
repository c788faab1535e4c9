//! The table of all series.

use ::metrics::{describe_counter, describe_gauge, describe_histogram};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Clone, Copy, Debug)]
pub struct Series {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Series {
    Series { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Series {
    Series { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Series {
    Series { name, kind: Kind::Histogram, labels, help }
}

/// Whatever is added here needs its row in docs/metrics.md.
pub const SERIES: &[Series] = &[
    gauge("forebay_build_info", &["version", "site"], "Always 1; what runs is in the labels."),
    gauge("forebay_uptime_seconds", &[], "Time since the start."),
    gauge("forebay_healthy", &[], "1 if nothing is wrong, as /health says."),
    gauge("forebay_problems", &["kind"], "Things that are wrong now, by kind."),
    gauge("forebay_namespace_files", &[], "Files of any kind in the namespace."),
    gauge("forebay_namespace_bytes", &[], "Sum of the sizes of all files."),
    gauge("forebay_pool_up", &["pool"], "1 if the pool is in order, 0 if it is offline."),
    gauge("forebay_pool_total_bytes", &["pool"], "Size of the pool's file system."),
    gauge("forebay_pool_free_bytes", &["pool"], "Bytes that can still be written to the pool."),
    gauge("forebay_pool_replicas", &["pool"], "Replicas in the pool."),
    counter("forebay_pool_read_bytes_total", &["pool"], "Bytes read from the pool."),
    counter("forebay_pool_written_bytes_total", &["pool"], "Bytes written to the pool."),
    gauge("forebay_clients", &["door"], "Clients that the door knows."),
    gauge("forebay_open_files", &["door"], "Files that clients have open."),
    gauge("forebay_locks", &["door"], "Locks that clients hold."),
    gauge("forebay_layouts", &["door"], "Layouts that clients hold."),
    counter(
        "forebay_io_reads_total",
        &["mode", "reason"],
        "Reads at the pools, by how they were done and why so.",
    ),
    counter(
        "forebay_io_writes_total",
        &["mode", "reason"],
        "Writes at the pools, by how they were done and why so.",
    ),
    counter("forebay_operations_total", &["door", "operation"], "Operations that clients asked for."),
    histogram(super::OPERATION_SECONDS, &["door", "operation"], "How long operations took."),
];

impl Series {
    pub(super) fn describe(&self) {
        match self.kind {
            Kind::Counter => describe_counter!(self.name, self.help),
            Kind::Gauge => describe_gauge!(self.name, self.help),
            Kind::Histogram => describe_histogram!(self.name, self.help),
        }
    }
}
