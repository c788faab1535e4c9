//! The snapshot of the instance as series.

use std::collections::BTreeMap;

use ::metrics::{counter, gauge};

use crate::host::HostSnapshot;
use crate::instance::{
    CopyView, GatheredView, JournalView, NamespaceView, NfsView, PoolHostView, ReadAheadView, ScrubView,
    Snapshot,
};

/// Doors whose gauges read 0 while they have no client.
const DOORS: [&str; 2] = ["nfs", "http"];

/// Of pools on other hosts.
const STANDINGS: [&str; 3] = ["ready", "suspect", "out"];

/// Into the recorder of this thread.
pub(super) fn record(snapshot: &Snapshot) {
    let (version, site) = (snapshot.version.clone(), snapshot.site.clone());
    gauge!("forebay_build_info", "version" => version, "site" => site).set(1.0);
    gauge!("forebay_uptime_seconds").set(snapshot.uptime_s as f64);
    gauge!("forebay_namespace_files").set(snapshot.files as f64);
    gauge!("forebay_namespace_bytes").set(snapshot.bytes as f64);
    namespace(&snapshot.namespace);
    gauge!("forebay_keys_generation").set(snapshot.keys.generation);
    gauge!("forebay_keys_age_seconds").set(snapshot.keys.age_s as f64);
    pools(snapshot);
    clients(snapshot);
    nfs(snapshot);
    third_party(&snapshot.third_party);
    gauge!("forebay_gss_contexts").set(snapshot.gss.contexts as f64);
    counter!("forebay_gss_contexts_established_total").absolute(snapshot.gss.established);
    counter!("forebay_gss_contexts_refused_total").absolute(snapshot.gss.refused);
    io(snapshot);
    for calls in &snapshot.pool_calls {
        let (pool, procedure) = (calls.pool.clone(), calls.procedure);
        counter!("forebay_cluster_calls_total", "pool" => pool, "procedure" => procedure)
            .absolute(calls.count);
    }
    operations(snapshot);
}

/// Of a host with a pool alone: what it has of that.
pub(super) fn record_host(host: &HostSnapshot) {
    let HostSnapshot { pool, is_connected, lease_s, reconnects } = host;
    let (version, site) = (pool.version.clone(), pool.site.clone());
    gauge!("forebay_build_info", "version" => version, "site" => site).set(1.0);
    gauge!("forebay_uptime_seconds").set(pool.uptime_s as f64);
    pools(pool);
    io(pool);
    operations(pool);
    gauge!("forebay_head_connected").set(if *is_connected { 1.0 } else { 0.0 });
    gauge!("forebay_head_lease_seconds").set(*lease_s);
    counter!("forebay_head_reconnects_total").absolute(*reconnects);
}

fn operations(snapshot: &Snapshot) {
    for operation in &snapshot.operations {
        let (door, name) = (operation.door.clone(), operation.operation.clone());
        counter!("forebay_operations_total", "door" => door, "operation" => name).absolute(operation.count);
    }
}

fn io(snapshot: &Snapshot) {
    for io in &snapshot.io_modes {
        let count = |series: &'static str, value| {
            counter!(series, "mode" => io.mode, "reason" => io.reason).absolute(value);
        };
        count("forebay_io_reads_total", io.reads);
        count("forebay_io_writes_total", io.writes);
        count("forebay_io_read_bytes_total", io.read_bytes);
        count("forebay_io_written_bytes_total", io.written_bytes);
    }
    for lane in &snapshot.io_lanes {
        let set = |series: &'static str, value: u64| {
            gauge!(series, "lane" => lane.lane, "pool" => lane.pool.clone()).set(value as f64);
        };
        set("forebay_io_waiting_jobs", lane.waiting);
        set("forebay_io_busy_threads", lane.busy);
    }
    for cpu in &snapshot.io_cpu {
        counter!("forebay_io_cpu_bytes_total", "direction" => cpu.direction, "mode" => cpu.mode)
            .absolute(cpu.bytes);
    }
    read_ahead(snapshot.read_ahead);
    snapshot.journals.iter().for_each(journal);
    snapshot.gathered.iter().for_each(gathered);
}

fn journal(journal: &JournalView) {
    let count =
        |series: &'static str, value| counter!(series, "pool" => journal.pool.clone()).absolute(value);
    count("forebay_journal_records_total", journal.records);
    count("forebay_journal_bytes_total", journal.record_bytes);
    count("forebay_journal_syncs_total", journal.syncs);
    count("forebay_journal_refused_total", journal.refused);
    count("forebay_journal_written_back_total", journal.written_back);
    let set =
        |series: &'static str, value: u64| gauge!(series, "pool" => journal.pool.clone()).set(value as f64);
    set("forebay_journal_files", journal.files);
    set("forebay_journal_used_bytes", journal.used_bytes);
    set("forebay_journal_room_bytes", journal.room_bytes);
    set("forebay_journal_failed", u64::from(journal.failed));
}

fn gathered(gathered: &GatheredView) {
    let count =
        |series: &'static str, value| counter!(series, "pool" => gathered.pool.clone()).absolute(value);
    count("forebay_gathered_writes_total", gathered.writes);
    count("forebay_gathered_bytes_total", gathered.bytes);
    count("forebay_gathered_extents_total", gathered.extents);
    count("forebay_gathered_complete_extents_total", gathered.complete);
    count("forebay_gathered_failures_total", gathered.failed);
    count("forebay_gathered_no_memory_total", gathered.no_memory);
    gauge!("forebay_gathered_memory_bytes", "pool" => gathered.pool.clone())
        .set(gathered.memory_bytes as f64);
}

fn read_ahead(view: ReadAheadView) {
    let ReadAheadView { advised_bytes, used_bytes, wasted_bytes, dropped_bytes } = view;
    for (outcome, bytes) in [("used", used_bytes), ("wasted", wasted_bytes), ("dropped", dropped_bytes)] {
        counter!("forebay_io_readahead_bytes_total", "outcome" => outcome).absolute(bytes);
    }
    let ended_bytes = used_bytes + wasted_bytes + dropped_bytes;
    gauge!("forebay_io_readahead_outstanding_bytes").set(advised_bytes.saturating_sub(ended_bytes) as f64);
}

fn namespace(namespace: &NamespaceView) {
    gauge!("forebay_namespace_queue_operations").set(namespace.queued as f64);
    for cache in &namespace.cache {
        let kind = cache.kind;
        counter!("forebay_namespace_cache_hits_total", "kind" => kind).absolute(cache.hits);
        counter!("forebay_namespace_cache_misses_total", "kind" => kind).absolute(cache.misses);
        counter!("forebay_namespace_cache_evictions_total", "kind" => kind).absolute(cache.evictions);
        gauge!("forebay_namespace_cache_entries", "kind" => kind).set(cache.entries as f64);
        gauge!("forebay_namespace_cache_bytes", "kind" => kind).set(cache.bytes as f64);
        gauge!("forebay_namespace_cache_max_bytes", "kind" => kind).set(cache.max_bytes as f64);
    }
    for asked in &namespace.questions {
        let (by, kind) = (asked.by, asked.kind);
        counter!("forebay_namespace_questions_total", "by" => by, "kind" => kind).absolute(asked.count);
    }
}

fn pools(snapshot: &Snapshot) {
    for pool in &snapshot.pools {
        let set = |series: &'static str, value: f64| gauge!(series, "pool" => pool.name.clone()).set(value);
        set("forebay_pool_up", if pool.offline.is_none() { 1.0 } else { 0.0 });
        set("forebay_pool_drained", if pool.drained { 1.0 } else { 0.0 });
        set("forebay_pool_total_bytes", pool.total_bytes as f64);
        set("forebay_pool_free_bytes", pool.free_bytes as f64);
        set("forebay_pool_replicas", pool.replicas as f64);
        let count =
            |series: &'static str, value| counter!(series, "pool" => pool.name.clone()).absolute(value);
        count("forebay_pool_read_bytes_total", pool.read_bytes);
        count("forebay_pool_written_bytes_total", pool.written_bytes);
        for (residency, bytes) in [
            ("resident", pool.resident_read_bytes),
            ("missing", pool.missing_read_bytes),
            ("unknown", pool.unknown_read_bytes),
        ] {
            let name = pool.name.clone();
            counter!("forebay_io_residency_bytes_total", "pool" => name, "residency" => residency)
                .absolute(bytes);
        }
        set("forebay_pool_contended_files", pool.contended_files as f64);
        set("forebay_pool_slow", if pool.slow { 1.0 } else { 0.0 });
        scrub(&pool.name, &pool.scrub);
        if let Some(host) = &pool.host {
            pool_host(&pool.name, host);
        }
        for (direction, operation_us, mib_us) in [
            ("read", pool.client_read_us_per_operation, pool.client_read_us_per_mib),
            ("write", pool.client_write_us_per_operation, pool.client_write_us_per_mib),
        ] {
            let set = |series: &'static str, us: u64| {
                let name = pool.name.clone();
                gauge!(series, "direction" => direction, "pool" => name).set(us as f64 / 1e6);
            };
            set("forebay_pool_client_operation_seconds", operation_us);
            set("forebay_pool_client_mib_seconds", mib_us);
        }
    }
}

fn pool_host(pool: &str, host: &PoolHostView) {
    for state in STANDINGS {
        let is_so = if host.standing == state { 1.0 } else { 0.0 };
        gauge!("forebay_pool_host_state", "pool" => pool.to_owned(), "state" => state).set(is_so);
    }
    let set = |series: &'static str, value: f64| gauge!(series, "pool" => pool.to_owned()).set(value);
    set("forebay_pool_host_silent_seconds", host.silent_s as f64);
    set("forebay_pool_host_lease_seconds", host.lease_s);
    set("forebay_pool_host_missed_fences", host.missed_fences as f64);
    set("forebay_pool_host_connections", host.connections as f64);
    counter!("forebay_pool_host_reconnects_total", "pool" => pool.to_owned()).absolute(host.reconnects);
}

fn scrub(pool: &str, scrub: &ScrubView) {
    let set = |series: &'static str, value: f64| gauge!(series, "pool" => pool.to_owned()).set(value);
    set("forebay_scrub_running", if scrub.running { 1.0 } else { 0.0 });
    set("forebay_scrub_bad_replicas", scrub.bad_replicas as f64);
    set("forebay_scrub_replicas_without_sums", scrub.replicas_without_sums as f64);
    set("forebay_scrub_last_complete_seconds", scrub.last_complete_s as f64);
    let count = |series: &'static str, value| counter!(series, "pool" => pool.to_owned()).absolute(value);
    count("forebay_scrub_read_bytes_total", scrub.read_bytes);
    count("forebay_scrub_bad_blocks_total", scrub.bad_blocks);
    count("forebay_pool_verified_bytes_total", scrub.verified_bytes);
}

fn nfs(snapshot: &Snapshot) {
    let courtesy = snapshot.clients.iter().filter(|client| client.courtesy).count();
    gauge!("forebay_nfs_courtesy_clients").set(courtesy as f64);
    let NfsView { sessions, slots, slots_busy, lock_waiters, lost_locks, flight_bytes, grants, .. } =
        &snapshot.nfs;
    gauge!("forebay_nfs_copies", "state" => "running").set(snapshot.nfs.copies_running as f64);
    gauge!("forebay_nfs_copies", "state" => "unheard").set(snapshot.nfs.copies_unheard as f64);
    gauge!("forebay_nfs_reply_cache_max_bytes").set(snapshot.nfs.reply_cache_bytes as f64);
    gauge!("forebay_nfs_sessions").set(*sessions as f64);
    gauge!("forebay_nfs_slots").set(*slots as f64);
    gauge!("forebay_nfs_slots_busy").set(*slots_busy as f64);
    gauge!("forebay_nfs_lock_waiters").set(*lock_waiters as f64);
    gauge!("forebay_nfs_clients_with_lost_locks").set(*lost_locks as f64);
    gauge!("forebay_nfs_flight_bytes").set(*flight_bytes as f64);
    let contended = grants.iter().map(|grant| grant.contended).sum();
    counter!("forebay_nfs_delegations_contended_total").absolute(contended);
    for grant in grants {
        let kind = grant.kind;
        counter!("forebay_nfs_granted_total", "kind" => kind).absolute(grant.granted);
        counter!("forebay_nfs_revoked_total", "kind" => kind).absolute(grant.revoked);
        for (outcome, count) in [
            ("sent", grant.recalls_sent),
            ("answered", grant.recalls_answered),
            ("unanswered", grant.recalls_unanswered),
        ] {
            counter!("forebay_nfs_recalls_total", "kind" => kind, "outcome" => outcome).absolute(count);
        }
    }
}

fn third_party(copies: &[CopyView]) {
    for copies in copies {
        let direction = copies.direction;
        gauge!("forebay_third_party_copies", "direction" => direction).set(copies.running as f64);
        counter!("forebay_third_party_copies_started_total", "direction" => direction)
            .absolute(copies.started);
        counter!("forebay_third_party_copy_bytes_total", "direction" => direction).absolute(copies.bytes);
        for (result, count) in [("done", copies.done), ("failed", copies.failed), ("aborted", copies.aborted)]
        {
            counter!("forebay_third_party_copies_finished_total", "direction" => direction, "result" => result)
                .absolute(count);
        }
    }
}

fn clients(snapshot: &Snapshot) {
    let mut doors: BTreeMap<&str, [u64; 5]> = DOORS.into_iter().map(|door| (door, [0; 5])).collect();
    for client in &snapshot.clients {
        let sums = doors.entry(&client.door).or_default();
        let values = [1, client.opens, client.locks, client.layouts, client.delegations];
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
    let series =
        ["forebay_clients", "forebay_open_files", "forebay_locks", "forebay_layouts", "forebay_delegations"];
    for (door, sums) in doors {
        for (series, sum) in series.into_iter().zip(sums) {
            gauge!(series, "door" => door.to_owned()).set(sum as f64);
        }
    }
}
