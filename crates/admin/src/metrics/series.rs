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

/// Each series needs its row in docs/reference/metrics.md.
pub const SERIES: &[Series] = &[
    gauge("forebay_build_info", &["version", "site"], "Always 1; the labels have version and site."),
    gauge("forebay_uptime_seconds", &[], "Time since the start."),
    gauge("forebay_healthy", &[], "1 if the instance has no problem, as /health reports; otherwise 0."),
    gauge("forebay_problems", &["kind"], "Problems that the instance has now, by kind."),
    gauge("forebay_namespace_files", &[], "Files, directories and other objects in the namespace."),
    gauge("forebay_namespace_bytes", &[], "Sum of the sizes of all files."),
    counter(
        "forebay_namespace_cache_hits_total",
        &["kind"],
        "Lookups that the cache of the namespace answered.",
    ),
    counter(
        "forebay_namespace_cache_misses_total",
        &["kind"],
        "Lookups that the cache could not answer, those of absent names too.",
    ),
    counter(
        "forebay_namespace_cache_evictions_total",
        &["kind"],
        "Entries that the cache dropped for lack of space.",
    ),
    gauge("forebay_namespace_cache_entries", &["kind"], "Entries in the cache; absent names count as names."),
    gauge("forebay_namespace_cache_bytes", &["kind"], "Memory of these entries."),
    gauge("forebay_namespace_cache_max_bytes", &["kind"], "Memory that these entries may take."),
    counter(
        "forebay_namespace_questions_total",
        &["by", "kind"],
        "Queries to the database of the namespace, by readers and by the committer.",
    ),
    gauge("forebay_namespace_queue_operations", &[], "Changes that wait to be committed."),
    histogram(super::GROUP_OPERATIONS, &[], "Changes of one commit; the count is the number of commits."),
    histogram(super::COMMIT_SECONDS, &[], "Duration of a commit, from the first row to the disk."),
    gauge("forebay_keys_generation", &[], "Generation of the keys of pool tickets."),
    gauge("forebay_keys_age_seconds", &[], "Time since these keys were renewed."),
    gauge("forebay_pool_up", &["pool"], "1 if the pool is online, 0 if it is offline."),
    gauge(
        "forebay_pool_drained",
        &["pool"],
        "1 if the pool gets no new files and no clients, offline or not.",
    ),
    gauge("forebay_pool_total_bytes", &["pool"], "Size of the pool's file system."),
    gauge("forebay_pool_free_bytes", &["pool"], "Bytes that can still be written to the pool."),
    gauge("forebay_pool_replicas", &["pool"], "Replicas in the pool."),
    counter("forebay_pool_read_bytes_total", &["pool"], "Bytes read from the pool."),
    counter("forebay_pool_written_bytes_total", &["pool"], "Bytes written to the pool."),
    counter(
        "forebay_pool_verified_bytes_total",
        &["pool"],
        "Bytes of reads and copies that were compared with block sums.",
    ),
    gauge(
        "forebay_pool_contended_files",
        &["pool"],
        "Files of the pool whose writers contend for the same pages now, at most 64.",
    ),
    gauge(
        "forebay_pool_slow",
        &["pool"],
        "1 if the pool is slow to write to, as NFS clients report; it then gets half as many new files.",
    ),
    gauge(
        "forebay_pool_client_operation_seconds",
        &["direction", "pool"],
        "Time of a read or write at the pool, as NFS clients report; 0 without recent reports.",
    ),
    gauge(
        "forebay_pool_client_mib_seconds",
        &["direction", "pool"],
        "Time per MiB at the pool, as NFS clients report; 0 without recent reports.",
    ),
    gauge(
        "forebay_pool_host_state",
        &["pool", "state"],
        "1 for the state of the pool on another host, 0 for the other states.",
    ),
    gauge(
        "forebay_pool_host_silent_seconds",
        &["pool"],
        "Time since the pool host gave a sign of life, or since the start of the head if it gave none.",
    ),
    gauge("forebay_pool_host_lease_seconds", &["pool"], "Time left of the pool's lease; 0 if it is over."),
    gauge(
        "forebay_pool_host_missed_fences",
        &["pool"],
        "Files of which a fence was not delivered to the pool host.",
    ),
    gauge("forebay_pool_host_connections", &["pool"], "Connections of the pool host to the head."),
    counter(
        "forebay_pool_host_reconnects_total",
        &["pool"],
        "Times that the pool host has connected again since the start of the head.",
    ),
    gauge("forebay_head_connected", &[], "1 if this pool host is connected to its head, 0 if it is not."),
    gauge("forebay_head_lease_seconds", &[], "Time left of the lease of this pool host; 0 if it has none."),
    counter(
        "forebay_head_reconnects_total",
        &[],
        "Times that this pool host has connected again to its head since its start.",
    ),
    gauge("forebay_scrub_running", &["pool"], "1 while a scrub of the pool runs."),
    counter("forebay_scrub_read_bytes_total", &["pool"], "Bytes that scrubs read."),
    counter("forebay_scrub_bad_blocks_total", &["pool"], "Bad blocks that scrubs, reads and copies found."),
    gauge("forebay_scrub_bad_replicas", &["pool"], "Replicas with bad blocks that are there now."),
    gauge(
        "forebay_scrub_replicas_without_sums",
        &["pool"],
        "Replicas without block sums at the end of the last complete scrub.",
    ),
    gauge(
        "forebay_scrub_last_complete_seconds",
        &["pool"],
        "End of the last complete scrub, in seconds since 1970; 0 if there was none.",
    ),
    gauge("forebay_clients", &["door"], "Clients that the protocol knows."),
    gauge("forebay_open_files", &["door"], "Files that clients have open."),
    gauge("forebay_locks", &["door"], "Locks that clients hold."),
    gauge("forebay_layouts", &["door"], "Layouts that clients hold."),
    gauge("forebay_delegations", &["door"], "Delegations that clients hold."),
    gauge(
        "forebay_nfs_courtesy_clients",
        &[],
        "NFS clients whose lease has ended and that keep state until other clients need it.",
    ),
    gauge("forebay_nfs_sessions", &[], "Sessions of NFS clients."),
    gauge("forebay_nfs_slots", &[], "Slots of these sessions."),
    gauge("forebay_nfs_slots_busy", &[], "Slots with a running request."),
    gauge("forebay_nfs_lock_waiters", &[], "Locks for which NFS clients wait for a notification."),
    gauge(
        "forebay_nfs_clients_with_lost_locks",
        &[],
        "Clients that get no layouts of files on which they have lost locks.",
    ),
    gauge("forebay_nfs_flight_bytes", &[], "Bytes of NFS calls and replies in memory, of head and pools."),
    counter("forebay_nfs_granted_total", &["kind"], "Layouts and delegations that were granted."),
    counter(
        "forebay_nfs_recalls_total",
        &["kind", "outcome"],
        "Recalls of layouts and delegations, by outcome.",
    ),
    counter(
        "forebay_nfs_revoked_total",
        &["kind"],
        "Layouts and delegations that were revoked because they were not returned in time.",
    ),
    counter(
        "forebay_nfs_delegations_contended_total",
        &[],
        "Delegations to write that were not granted because writers contended for the file.",
    ),
    gauge(
        "forebay_nfs_copies",
        &["state"],
        "Copies within the server that continue after COPY was answered.",
    ),
    gauge(
        "forebay_nfs_reply_cache_max_bytes",
        &[],
        "Memory that replies kept for retransmissions may take at the head.",
    ),
    gauge("forebay_third_party_copies", &["direction"], "Third-party copies that run."),
    counter("forebay_third_party_copies_started_total", &["direction"], "Third-party copies that began."),
    counter(
        "forebay_third_party_copies_finished_total",
        &["direction", "result"],
        "Third-party copies that ended, by result.",
    ),
    counter(
        "forebay_third_party_copy_bytes_total",
        &["direction"],
        "Bytes that third-party copies moved, those of failed ones and of retries too.",
    ),
    gauge("forebay_gss_contexts", &[], "Kerberos contexts that NFS clients have."),
    counter("forebay_gss_contexts_established_total", &[], "Kerberos contexts that were established."),
    counter("forebay_gss_contexts_refused_total", &[], "Kerberos tickets of NFS clients that were refused."),
    counter(
        "forebay_io_reads_total",
        &["mode", "reason"],
        "Reads at the pools, by I/O mode and the reason for it.",
    ),
    counter(
        "forebay_io_writes_total",
        &["mode", "reason"],
        "Writes at the pools, by I/O mode and the reason for it.",
    ),
    counter("forebay_io_read_bytes_total", &["mode", "reason"], "Bytes of these reads."),
    counter("forebay_io_written_bytes_total", &["mode", "reason"], "Bytes of these writes."),
    histogram(
        super::IO_SECONDS,
        &["direction", "mode"],
        "Time of reads and writes at the page cache or the disk, by I/O mode; syncs and waits for a thread apart.",
    ),
    counter(
        "forebay_io_cpu_seconds_total",
        &["direction", "mode"],
        "CPU time of the threads that ran reads and writes, by I/O mode, without syncs; short ones are sampled.",
    ),
    counter("forebay_io_cpu_bytes_total", &["direction", "mode"], "Bytes of these reads and writes."),
    counter(
        "forebay_io_thread_cpu_seconds_total",
        &["lane", "pool"],
        "CPU time of the threads of the pool, syncs and other work included.",
    ),
    counter(
        "forebay_io_residency_bytes_total",
        &["pool", "residency"],
        "Bytes of reads, by whether they were in memory when they were asked for.",
    ),
    gauge("forebay_io_waiting_jobs", &["lane", "pool"], "Jobs that wait for a thread of the pool."),
    gauge("forebay_io_busy_threads", &["lane", "pool"], "Threads of the pool that run a job."),
    counter(
        "forebay_io_readahead_bytes_total",
        &["outcome"],
        "Bytes that pools had the kernel fetch before they were read, by outcome.",
    ),
    gauge(
        "forebay_io_readahead_outstanding_bytes",
        &[],
        "Bytes of these that have no outcome yet, of all pools.",
    ),
    counter("forebay_journal_records_total", &["pool"], "Records of the pool's write journal."),
    counter("forebay_journal_bytes_total", &["pool"], "Bytes of the writes in these records."),
    counter("forebay_journal_syncs_total", &["pool"], "Syncs of the write journal."),
    counter(
        "forebay_journal_refused_total",
        &["pool"],
        "Small stable writes that the write journal did not take and that were synced with their file.",
    ),
    counter(
        "forebay_journal_written_back_total",
        &["pool"],
        "Syncs of files whose writes the journal already had.",
    ),
    gauge("forebay_journal_files", &["pool"], "Files with records that a restart would apply."),
    gauge("forebay_journal_used_bytes", &["pool"], "Space of the write journal in use."),
    gauge("forebay_journal_room_bytes", &["pool"], "Space of the write journal."),
    gauge(
        "forebay_journal_failed",
        &["pool"],
        "1 if the write journal failed and is off until the next start.",
    ),
    counter(
        "forebay_gathered_writes_total",
        &["pool"],
        "Writes that delayed allocation kept in memory before they went to their files.",
    ),
    counter("forebay_gathered_bytes_total", &["pool"], "Bytes of these writes."),
    counter(
        "forebay_gathered_extents_total",
        &["pool"],
        "Pieces of files, of up to 1 MiB, that these writes were merged into.",
    ),
    counter("forebay_gathered_complete_extents_total", &["pool"], "Of these, pieces without gaps."),
    counter("forebay_gathered_failures_total", &["pool"], "Tries to write such a piece that failed."),
    counter(
        "forebay_gathered_no_memory_total",
        &["pool"],
        "Writes out of order for which delayed allocation had no memory.",
    ),
    gauge("forebay_gathered_memory_bytes", &["pool"], "Memory in use for delayed allocation."),
    counter(
        "forebay_cluster_calls_total",
        &["pool", "procedure"],
        "Calls that the head sent to pools on other hosts, by procedure; a call that was repeated counts again.",
    ),
    counter("forebay_operations_total", &["door", "operation"], "Operations that clients requested."),
    histogram(super::OPERATION_SECONDS, &["door", "operation"], "Duration of operations."),
    counter("process_cpu_seconds_total", &[], "CPU time of the process, user and system."),
    gauge("process_open_fds", &[], "File descriptors that the process has open."),
    gauge("process_max_fds", &[], "File descriptors that it may have open."),
    gauge("process_resident_memory_bytes", &[], "Memory of the process that is in RAM."),
    gauge("process_virtual_memory_bytes", &[], "Address space of the process."),
    gauge("process_threads", &[], "Threads of the process."),
    gauge("process_start_time_seconds", &[], "When the process was started, in seconds since 1970."),
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
