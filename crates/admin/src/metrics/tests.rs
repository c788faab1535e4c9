//! The text for Prometheus, and that documents and dashboard name the same series.

use super::*;
use crate::instance::{
    CacheView, ClientView, CopyView, GatheredView, GrantView, GssView, IoCpuView, IoLaneView, IoModeView,
    IoTimesView, JournalView, KeysView, NamespaceView, NfsView, OperationCount, PoolCallsView, PoolHostView,
    PoolView, QuestionCount, ReadAheadView, ScrubView,
};

fn snapshot() -> Snapshot {
    Snapshot {
        version: "1.2".to_owned(),
        site: "a \"site\"".to_owned(),
        uptime_s: 7,
        files: 3,
        bytes: 1 << 40,
        pools: vec![
            PoolView {
                name: "pool-0".to_owned(),
                free_bytes: 5,
                read_bytes: 11,
                slow: true,
                resident_read_bytes: 31,
                missing_read_bytes: 32,
                unknown_read_bytes: 33,
                contended_files: 2,
                client_write_us_per_operation: 2_500,
                client_read_us_per_mib: 500,
                scrub: ScrubView {
                    bad_blocks: 3,
                    verified_bytes: 65_536,
                    last_complete_s: 1_700_000_000,
                    ..ScrubView::default()
                },
                ..PoolView::default()
            },
            PoolView {
                name: "pool-1".to_owned(),
                offline: Some("disk".to_owned()),
                drained: true,
                host: Some(PoolHostView {
                    standing: "out".to_owned(),
                    silent_s: 41,
                    lease_s: 0.5,
                    missed_fences: 6,
                    connections: 3,
                    reconnects: 2,
                    ..PoolHostView::default()
                }),
                ..PoolView::default()
            },
        ],
        clients: vec![
            ClientView { door: "nfs".to_owned(), opens: 2, ..ClientView::default() },
            ClientView {
                door: "nfs".to_owned(),
                opens: 3,
                locks: 1,
                courtesy: true,
                ..ClientView::default()
            },
        ],
        io_modes: vec![IoModeView {
            mode: "direct",
            reason: "large-write",
            reads: 4,
            writes: 2,
            read_bytes: 4096,
            written_bytes: 2048,
        }],
        io_times: vec![IoTimesView {
            direction: "read",
            mode: "direct",
            up_to: vec![(0.000_001, 0), (0.000_004, 5)],
            count: 6,
            sum_s: 0.5,
            ..IoTimesView::default()
        }],
        io_lanes: vec![IoLaneView {
            pool: "pool-0".to_owned(),
            lane: "data",
            waiting: 4,
            busy: 2,
            cpu_s: 1.75,
            ..IoLaneView::default()
        }],
        io_cpu: vec![IoCpuView { direction: "write", mode: "direct", bytes: 4000, cpu_s: 0.125 }],
        journals: vec![JournalView {
            pool: "pool-0".to_owned(),
            records: 101,
            record_bytes: 102,
            syncs: 103,
            refused: 104,
            written_back: 105,
            files: 106,
            used_bytes: 107,
            room_bytes: 108,
            failed: true,
        }],
        gathered: vec![GatheredView {
            pool: "pool-0".to_owned(),
            writes: 201,
            bytes: 202,
            extents: 203,
            complete: 204,
            failed: 205,
            no_memory: 206,
            memory_bytes: 207,
        }],
        pool_calls: vec![PoolCallsView { pool: "pool-3".to_owned(), procedure: "MAKE", count: 12 }],
        read_ahead: ReadAheadView { advised_bytes: 100, used_bytes: 60, wasted_bytes: 5, dropped_bytes: 3 },
        operations: vec![OperationCount { door: "nfs".to_owned(), operation: "READ".to_owned(), count: 9 }],
        namespace: NamespaceView {
            cache: vec![CacheView { kind: "inode", hits: 8, misses: 2, bytes: 484, ..CacheView::default() }],
            questions: vec![QuestionCount { by: "reader", kind: "list", count: 6 }],
            queued: 3,
        },
        nfs: NfsView {
            sessions: 4,
            slots: 256,
            slots_busy: 3,
            lock_waiters: 1,
            lost_locks: 3,
            flight_bytes: 4_096,
            copies_running: 2,
            copies_unheard: 1,
            reply_cache_bytes: 640,
            grants: vec![GrantView {
                kind: "delegation",
                granted: 9,
                recalls_sent: 5,
                recalls_answered: 4,
                recalls_unanswered: 1,
                revoked: 2,
                contended: 7,
            }],
        },
        third_party: vec![CopyView {
            direction: "pull",
            running: 1,
            started: 14,
            done: 10,
            failed: 2,
            aborted: 1,
            bytes: 7_000,
        }],
        keys: KeysView { generation: 3, age_s: 86_400 },
        gss: GssView { contexts: 2, established: 5, refused: 1 },
        ..Snapshot::default()
    }
}

fn process() -> ProcessView {
    ProcessView {
        cpu_seconds: Some(12.25),
        open_fds: Some(40),
        max_fds: Some(1_048_576),
        resident_bytes: Some(1 << 30),
        virtual_bytes: Some(1 << 40),
        threads: Some(30),
        start_seconds: Some(1_700_000_000.5),
    }
}

fn full() -> Problem {
    Problem { kind: "disk-nearly-full", what: String::new(), advice: String::new() }
}

#[test]
fn a_pool_that_was_taken_off_the_list_has_no_series_any_more() {
    let recorder = Recorder::new().unwrap();
    let mut snapshot = snapshot();
    let host = "forebay_pool_host_state{pool=\"pool-1\",state=\"out\"} 1";
    assert!(recorder.render(&snapshot, &[], &process()).contains(host));
    snapshot.pools.retain(|pool| pool.name != "pool-1");
    snapshot.pool_calls.clear();
    let text = recorder.render(&snapshot, &[], &process());
    for gone in ["pool=\"pool-1\"", "pool=\"pool-3\""] {
        assert!(!text.contains(gone), "{text}");
    }
    assert!(text.contains("forebay_pool_up{pool=\"pool-0\"} 1"), "{text}");
    assert!(text.contains("# TYPE forebay_pool_host_state gauge"), "{text}");
}

#[test]
fn the_label_of_a_pool_is_found_wherever_it_stands() {
    assert_eq!(pool_of("a{pool=\"pool-1\",state=\"out\"} 1\n"), Some("pool-1"));
    assert_eq!(pool_of("a{lane=\"data\",pool=\"pool-2\"} 1\n"), Some("pool-2"));
    assert_eq!(pool_of("a{nopool=\"pool-2\"} 1\n"), None);
    assert_eq!(pool_of("# HELP a pool=\n"), None);
}

#[test]
fn the_text_has_values_types_and_help() {
    let recorder = Recorder::new().unwrap();
    let text = recorder.render(&snapshot(), &[], &process());
    for line in [
        "# HELP forebay_pool_free_bytes Bytes that can still be written to the pool.",
        "# TYPE forebay_pool_free_bytes gauge",
        "# TYPE forebay_pool_read_bytes_total counter",
        "forebay_pool_free_bytes{pool=\"pool-0\"} 5",
        "forebay_pool_read_bytes_total{pool=\"pool-0\"} 11",
        "forebay_pool_up{pool=\"pool-0\"} 1",
        "forebay_pool_up{pool=\"pool-1\"} 0",
        "forebay_pool_drained{pool=\"pool-0\"} 0",
        "forebay_pool_drained{pool=\"pool-1\"} 1",
        "forebay_pool_host_state{pool=\"pool-1\",state=\"out\"} 1",
        "forebay_pool_host_state{pool=\"pool-1\",state=\"ready\"} 0",
        "forebay_pool_host_silent_seconds{pool=\"pool-1\"} 41",
        "forebay_pool_host_lease_seconds{pool=\"pool-1\"} 0.5",
        "forebay_pool_host_missed_fences{pool=\"pool-1\"} 6",
        "forebay_pool_host_connections{pool=\"pool-1\"} 3",
        "forebay_pool_host_reconnects_total{pool=\"pool-1\"} 2",
        "forebay_pool_slow{pool=\"pool-0\"} 1",
        "forebay_pool_slow{pool=\"pool-1\"} 0",
        "forebay_scrub_bad_blocks_total{pool=\"pool-0\"} 3",
        "forebay_pool_verified_bytes_total{pool=\"pool-0\"} 65536",
        "forebay_scrub_last_complete_seconds{pool=\"pool-0\"} 1700000000",
        "forebay_scrub_running{pool=\"pool-1\"} 0",
        "forebay_pool_client_operation_seconds{direction=\"write\",pool=\"pool-0\"} 0.0025",
        "forebay_pool_client_mib_seconds{direction=\"read\",pool=\"pool-0\"} 0.0005",
        "forebay_pool_client_mib_seconds{direction=\"read\",pool=\"pool-1\"} 0",
        "forebay_open_files{door=\"nfs\"} 5",
        "forebay_open_files{door=\"http\"} 0",
        "forebay_operations_total{door=\"nfs\",operation=\"READ\"} 9",
        "forebay_io_reads_total{mode=\"direct\",reason=\"large-write\"} 4",
        "forebay_io_written_bytes_total{mode=\"direct\",reason=\"large-write\"} 2048",
        "# TYPE forebay_io_seconds histogram",
        "forebay_io_seconds_bucket{direction=\"read\",mode=\"direct\",le=\"0.000001\"} 0",
        "forebay_io_seconds_bucket{direction=\"read\",mode=\"direct\",le=\"0.000004\"} 5",
        "forebay_io_seconds_bucket{direction=\"read\",mode=\"direct\",le=\"+Inf\"} 6",
        "forebay_io_seconds_sum{direction=\"read\",mode=\"direct\"} 0.5",
        "forebay_io_seconds_count{direction=\"read\",mode=\"direct\"} 6",
        "forebay_io_waiting_jobs{lane=\"data\",pool=\"pool-0\"} 4",
        "forebay_io_busy_threads{lane=\"data\",pool=\"pool-0\"} 2",
        "# TYPE forebay_io_cpu_seconds_total counter",
        "forebay_io_cpu_seconds_total{direction=\"write\",mode=\"direct\"} 0.125",
        "forebay_io_cpu_bytes_total{direction=\"write\",mode=\"direct\"} 4000",
        "forebay_io_thread_cpu_seconds_total{lane=\"data\",pool=\"pool-0\"} 1.75",
        "forebay_io_residency_bytes_total{pool=\"pool-0\",residency=\"resident\"} 31",
        "forebay_io_residency_bytes_total{pool=\"pool-0\",residency=\"missing\"} 32",
        "forebay_io_residency_bytes_total{pool=\"pool-0\",residency=\"unknown\"} 33",
        "forebay_pool_contended_files{pool=\"pool-0\"} 2",
        "forebay_nfs_delegations_contended_total 7",
        "forebay_journal_records_total{pool=\"pool-0\"} 101",
        "forebay_journal_bytes_total{pool=\"pool-0\"} 102",
        "forebay_journal_syncs_total{pool=\"pool-0\"} 103",
        "forebay_journal_refused_total{pool=\"pool-0\"} 104",
        "forebay_journal_written_back_total{pool=\"pool-0\"} 105",
        "forebay_journal_files{pool=\"pool-0\"} 106",
        "forebay_journal_used_bytes{pool=\"pool-0\"} 107",
        "forebay_journal_room_bytes{pool=\"pool-0\"} 108",
        "forebay_journal_failed{pool=\"pool-0\"} 1",
        "forebay_gathered_writes_total{pool=\"pool-0\"} 201",
        "forebay_gathered_bytes_total{pool=\"pool-0\"} 202",
        "forebay_gathered_extents_total{pool=\"pool-0\"} 203",
        "forebay_gathered_complete_extents_total{pool=\"pool-0\"} 204",
        "forebay_gathered_failures_total{pool=\"pool-0\"} 205",
        "forebay_gathered_no_memory_total{pool=\"pool-0\"} 206",
        "forebay_gathered_memory_bytes{pool=\"pool-0\"} 207",
        "forebay_cluster_calls_total{pool=\"pool-3\",procedure=\"MAKE\"} 12",
        "forebay_io_readahead_bytes_total{outcome=\"used\"} 60",
        "forebay_io_readahead_bytes_total{outcome=\"wasted\"} 5",
        "forebay_io_readahead_bytes_total{outcome=\"dropped\"} 3",
        "forebay_io_readahead_outstanding_bytes 32",
        "forebay_namespace_bytes 1099511627776",
        "forebay_namespace_cache_hits_total{kind=\"inode\"} 8",
        "forebay_namespace_cache_bytes{kind=\"inode\"} 484",
        "forebay_namespace_questions_total{by=\"reader\",kind=\"list\"} 6",
        "forebay_namespace_queue_operations 3",
        "forebay_build_info{version=\"1.2\",site=\"a \\\"site\\\"\"} 1",
        "forebay_healthy 1",
        "forebay_nfs_courtesy_clients 1",
        "forebay_nfs_slots_busy 3",
        "forebay_nfs_lock_waiters 1",
        "forebay_nfs_clients_with_lost_locks 3",
        "forebay_nfs_flight_bytes 4096",
        "forebay_nfs_granted_total{kind=\"delegation\"} 9",
        "forebay_nfs_recalls_total{kind=\"delegation\",outcome=\"unanswered\"} 1",
        "forebay_nfs_revoked_total{kind=\"delegation\"} 2",
        "forebay_nfs_copies{state=\"running\"} 2",
        "forebay_nfs_copies{state=\"unheard\"} 1",
        "forebay_nfs_reply_cache_max_bytes 640",
        "forebay_third_party_copies{direction=\"pull\"} 1",
        "forebay_third_party_copies_started_total{direction=\"pull\"} 14",
        "forebay_third_party_copies_finished_total{direction=\"pull\",result=\"done\"} 10",
        "forebay_third_party_copies_finished_total{direction=\"pull\",result=\"failed\"} 2",
        "forebay_third_party_copies_finished_total{direction=\"pull\",result=\"aborted\"} 1",
        "forebay_third_party_copy_bytes_total{direction=\"pull\"} 7000",
        "forebay_keys_generation 3",
        "forebay_keys_age_seconds 86400",
        "forebay_gss_contexts 2",
        "forebay_gss_contexts_established_total 5",
        "forebay_gss_contexts_refused_total 1",
        "# TYPE process_cpu_seconds_total counter",
        "process_cpu_seconds_total 12.25",
        "process_open_fds 40",
        "process_max_fds 1048576",
        "process_resident_memory_bytes 1073741824",
        "process_start_time_seconds 1700000000.5",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
}

#[test]
fn a_counter_follows_the_instance_and_does_not_add_up() {
    let recorder = Recorder::new().unwrap();
    recorder.render(&snapshot(), &[], &process());
    let text = recorder.render(&snapshot(), &[], &process());
    assert!(text.contains("forebay_operations_total{door=\"nfs\",operation=\"READ\"} 9\n"), "{text}");
}

#[test]
fn a_problem_that_is_over_reads_as_zero() {
    let recorder = Recorder::new().unwrap();
    let text = recorder.render(&snapshot(), &[full(), full()], &process());
    assert!(
        text.contains("forebay_problems{kind=\"disk-nearly-full\"} 2") && text.contains("forebay_healthy 0")
    );
    let text = recorder.render(&snapshot(), &[], &process());
    assert!(
        text.contains("forebay_problems{kind=\"disk-nearly-full\"} 0") && text.contains("forebay_healthy 1")
    );
}

#[test]
fn latencies_are_a_histogram_with_our_buckets() {
    let recorder = Recorder::new().unwrap();
    with_local_recorder(&recorder.recorder, || {
        observe("http", operation_of(&Method::GET), Duration::from_millis(3));
        observe("http", "GET", Duration::from_secs(90));
    });
    recorder.tick();
    let text = recorder.render(&Snapshot::default(), &[], &process());
    for line in [
        "forebay_operation_seconds_bucket{door=\"http\",operation=\"GET\",le=\"0.0025\"} 0",
        "forebay_operation_seconds_bucket{door=\"http\",operation=\"GET\",le=\"0.005\"} 1",
        "forebay_operation_seconds_bucket{door=\"http\",operation=\"GET\",le=\"+Inf\"} 2",
        "forebay_operation_seconds_count{door=\"http\",operation=\"GET\"} 2",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
}

/// The namespace records without knowing of this crate.
#[test]
fn groups_have_buckets_by_their_length() {
    let recorder = Recorder::new().unwrap();
    with_local_recorder(&recorder.recorder, || {
        ::metrics::histogram!(GROUP_OPERATIONS).record(5.0);
        ::metrics::histogram!(COMMIT_SECONDS).record(0.002);
    });
    recorder.tick();
    let text = recorder.render(&Snapshot::default(), &[], &process());
    for line in [
        "forebay_namespace_group_operations_bucket{le=\"4\"} 0",
        "forebay_namespace_group_operations_bucket{le=\"8\"} 1",
        "forebay_namespace_commit_seconds_bucket{le=\"0.0025\"} 1",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\n{text}");
    }
}

#[test]
fn there_is_one_recorder_in_a_process() {
    let recorder = install().unwrap();
    observe("http", "PUT", Duration::from_secs(1));
    assert!(recorder.render(&Snapshot::default(), &[], &process()).contains("operation=\"PUT\""));
    assert!(matches!(install(), Err(MetricsError::Installed)));
}

#[test]
fn a_method_that_nobody_knows_makes_no_series_of_its_own() {
    assert_eq!(operation_of(&Method::from_bytes(b"PROPFIND").unwrap()), "PROPFIND");
    assert_eq!(operation_of(&Method::from_bytes(b"X-RANDOM-1").unwrap()), "other");
}

/// Name, kind, labels and help of each row of the table.
fn documented() -> Vec<[String; 4]> {
    let text = include_str!("../../../../docs/reference/metrics.md");
    let is_of_series = |line: &&str| line.starts_with("| `forebay_") || line.starts_with("| `process_");
    let rows = text.lines().filter(is_of_series);
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        [0, 1, 2, 3].map(|at| cells[at].replace('`', ""))
    })
    .collect()
}

#[test]
fn every_series_is_documented_as_it_is() {
    let known: Vec<[String; 4]> = SERIES
        .iter()
        .map(|series| {
            let kind = format!("{:?}", series.kind).to_lowercase();
            [series.name.to_owned(), kind, series.labels.join(", "), series.help.to_owned()]
        })
        .collect();
    assert_eq!(documented(), known);
}

#[test]
fn every_series_that_is_rendered_is_in_the_table() {
    let recorder = Recorder::new().unwrap();
    let of_head = recorder.render(&snapshot(), &[full()], &process());
    let recorder = Recorder::new().unwrap();
    let host = HostSnapshot { pool: snapshot(), ..HostSnapshot::default() };
    let of_host = recorder.render_host(&host, &[full()], &process());
    let lines = of_head.lines().chain(of_host.lines());
    let rendered: BTreeSet<&str> =
        lines.filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    // A histogram that nobody recorded to is not there.
    let is_there = |series: &&Series| series.kind != Kind::Histogram || series.name == IO_SECONDS;
    let known: BTreeSet<&str> = SERIES.iter().filter(is_there).map(|series| series.name).collect();
    assert_eq!(rendered, known);
}

#[test]
fn figures_that_the_system_does_not_have_of_the_process_are_left_out() {
    assert_eq!(process::text(&ProcessView::default()), "");
    let text = process::text(&ProcessView { open_fds: Some(7), ..ProcessView::default() });
    assert_eq!(
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>(),
        ["process_open_fds 7", ""]
    );
}

#[test]
fn the_dashboard_asks_for_series_that_there_are() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../deploy/grafana/forebay.json")).unwrap();
    assert_known_series(&dashboard.to_string());
}

#[test]
fn alerts_ask_for_series_that_there_are() {
    assert_known_series(include_str!("../../../../deploy/prometheus/forebay.rules.yml"));
}

/// Names of series begin with the name of the program and go on in letters.
fn assert_known_series(text: &str) {
    let word = |at: usize| text[at..].split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
    let named: BTreeSet<&str> = text.match_indices("forebay_").map(|(at, _)| word(at)).collect();
    assert!(named.len() > 5, "{named:?}");
    for name in named {
        let base = ["_bucket", "_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let is_known = SERIES
            .iter()
            .any(|series| series.name == name || series.kind == Kind::Histogram && Some(series.name) == base);
        assert!(is_known, "{name}");
    }
}
