//! Streams against a head and a pool of a few lines, over loopback.

mod many;
mod server;

use clap::Parser;
use serde_json::Value;

use super::*;
use crate::contents;
use server::{Behaviour, Role, Servers};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
}

/// Blocks of 1000 bytes of a file of 10,500, four at a time.
fn run_with(servers: &Servers, more: &str) -> Result<Value> {
    let mut argv = vec!["stream", "--server", servers.head(), "--path", "/dir/file", "--file-bytes", "10500"];
    argv.extend(["--block", "1000", "--slots", "4"]);
    argv.extend(more.split_whitespace());
    Ok(serde_json::to_value(run(&Cli::try_parse_from(argv)?.arguments)?)?)
}

fn assert_clean(report: &Value) {
    assert_eq!(report["errors"], serde_json::json!({}), "{report}");
}

#[test]
fn a_file_is_written_and_read_at_the_pool_as_the_user_of_the_layout() {
    let servers = Servers::start(Behaviour::default());
    let report = run_with(&servers, "--operation write --verify").unwrap();
    assert_clean(&report);
    assert_eq!((&report["bytes"], &report["operations"]), (&10_500.into(), &11.into()));
    assert_eq!((&report["commits"], &report["slots"]), (&1.into(), &4.into()));
    let mut expected = vec![0; 10_500];
    contents::fill(0, &mut expected);
    assert_eq!(servers.content("file"), expected);

    let report = run_with(&servers, "--operation read --verify --pattern random").unwrap();
    assert_clean(&report);
    assert!(report["bytes"].as_u64().unwrap() >= 10_500);
    servers.with_state(|state| {
        assert!(state.transfers.iter().all(|transfer| *transfer == (Role::Pool, 1, 4711)), "{state:?}");
        assert_eq!((state.committed_end, state.opens, state.layouts, state.sessions), (10_500, 0, 0, 0));
    });
}

#[test]
fn the_head_serves_a_client_without_layouts() {
    let servers = Servers::start(Behaviour { gives_layouts: false, ..Behaviour::default() });
    let error = run_with(&servers, "--operation write").unwrap_err();
    assert!(format!("{error:#}").contains("--through head"), "{error:#}");
    let report = run_with(&servers, "--operation write --through head --minor-version 1").unwrap();
    assert_clean(&report);
    servers.with_state(|state| {
        assert!(
            state.transfers.iter().all(|(role, minor, _)| (*role, *minor) == (Role::Head, 1)),
            "{state:?}"
        );
    });
}

#[test]
fn each_stream_has_a_file_of_its_own_and_commits_each_pass() {
    let servers = Servers::start(Behaviour::default());
    let report = run_with(&servers, "--operation write --streams 3 --bytes 21000 --verify").unwrap();
    assert_clean(&report);
    assert_eq!(
        (&report["bytes"], &report["commits"], &report["streams"]),
        (&63_000.into(), &6.into(), &3.into())
    );
    for name in ["file", "file.1", "file.2"] {
        assert_eq!(servers.content(name).len(), 10_500, "{name}");
    }
}

#[test]
fn strided_streams_of_one_file_fill_it_together() {
    let servers = Servers::start(Behaviour::default());
    let options = "--operation write --verify --streams 3 --shared --pattern strided --stride 3000";
    let report = run_with(&servers, options).unwrap();
    assert_clean(&report);
    assert_eq!((&report["bytes"], &report["operations"]), (&10_500.into(), &11.into()));
    let mut expected = vec![0; 10_500];
    contents::fill(0, &mut expected);
    assert_eq!(servers.content("file"), expected);
    servers.with_state(|state| assert_eq!(state.files.len(), 1, "{state:?}"));
}

#[test]
fn segments_of_a_shared_file_fill_it_behind_the_offset() {
    let servers = Servers::start(Behaviour::default());
    let report =
        run_with(&servers, "--operation write --verify --streams 3 --shared --segments --offset 104")
            .unwrap();
    assert_clean(&report);
    // Each of the first two has 3465 bytes, the last one has a byte more.
    assert_eq!((&report["bytes"], &report["operations"]), (&10_396.into(), &12.into()));
    let mut expected = vec![0; 10_500];
    contents::fill(0, &mut expected);
    assert_eq!(servers.content("file")[104..], expected[104..]);
}

#[test]
fn stable_writes_and_writes_without_commit_are_not_committed() {
    let servers = Servers::start(Behaviour::default());
    for options in ["--stable file-sync", "--commit no"] {
        let report = run_with(&servers, &format!("--operation write {options}")).unwrap();
        assert_clean(&report);
        assert_eq!((&report["commits"], &report["commit_us"]), (&0.into(), &Value::Null), "{options}");
    }
}

#[test]
fn truncation_empties_a_file_before_it_is_written() {
    let servers = Servers::start(Behaviour::default());
    run_with(&servers, "--operation write").unwrap();
    run_with(&servers, "--operation write --bytes 1000").unwrap();
    assert_eq!(servers.content("file").len(), 10_500);
    run_with(&servers, "--operation write --bytes 1000 --truncate").unwrap();
    assert_eq!(servers.content("file").len(), 1000);
    servers.with_state(|state| assert_eq!(state.committed_end, 1000, "{state:?}"));
}

#[test]
fn a_file_that_is_too_short_is_not_read() {
    let servers = Servers::start(Behaviour::default());
    run_with(&servers, "--operation write --bytes 1000").unwrap();
    let error = run_with(&servers, "--operation read").unwrap_err();
    assert!(error.to_string().contains("file has 1000 of 10500 bytes"), "{error:#}");
}

#[test]
fn other_bytes_than_were_written_are_errors() {
    let servers = Servers::start(Behaviour::default());
    run_with(&servers, "--operation write --verify").unwrap();
    servers.with_state(|state| state.files.get_mut("file").unwrap()[3500] ^= 1);
    let report = run_with(&servers, "--operation read --verify").unwrap();
    assert_eq!(report["errors"], serde_json::json!({"READ returns other bytes than --verify writes": 1}));
    assert_eq!(report["operations"], 10);
    assert_clean(&run_with(&servers, "--operation read").unwrap());
}

#[test]
fn a_server_that_loses_unstable_writes_is_noticed_by_its_verifier() {
    let servers = Servers::start(Behaviour { restarts_before_commit: true, ..Behaviour::default() });
    let report = run_with(&servers, "--operation write").unwrap();
    assert_eq!(report["errors"], serde_json::json!({"the write verifier has changed": 1}));
}

#[test]
fn a_write_that_is_less_stable_than_asked_for_is_an_error() {
    let servers = Servers::start(Behaviour { ignores_stability: true, ..Behaviour::default() });
    let report = run_with(&servers, "--operation write --stable file-sync").unwrap();
    assert_eq!(report["errors"], serde_json::json!({"WRITE is less stable than was asked for": 11}));
    assert_eq!(report["bytes"], 0);
}

#[test]
fn failed_requests_are_counted_by_their_status() {
    let servers = Servers::start(Behaviour { is_full: true, ..Behaviour::default() });
    let report = run_with(&servers, "--operation write").unwrap();
    assert_eq!(report["errors"], serde_json::json!({"WRITE answers NFS4ERR_NOSPC": 11}));
    assert_eq!((&report["bytes"], &report["operations"]), (&0.into(), &0.into()));
}

#[test]
fn an_open_in_the_grace_period_is_repeated() {
    let servers = Servers::start(Behaviour { graces: 2, ..Behaviour::default() });
    assert_clean(&run_with(&servers, "--operation write").unwrap());
}

#[test]
fn fewer_slots_than_asked_for_are_enough() {
    let servers = Servers::start(Behaviour { slots_max: 2, ..Behaviour::default() });
    let report = run_with(&servers, "--operation write").unwrap();
    assert_clean(&report);
    assert_eq!((&report["slots"], &report["bytes"]), (&2.into(), &10_500.into()));
}
