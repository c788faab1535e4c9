//! Many files.

use clap::Parser;
use serde_json::Value;

use super::super::files;
use super::server::{Behaviour, Servers};
use super::{Result, assert_clean};
use crate::contents;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: files::Arguments,
}

/// Three files of each of two streams.
fn run_with(servers: &Servers, more: &str) -> Result<Value> {
    let mut argv =
        vec!["files", "--server", servers.head(), "--path", "/dir/a", "--streams", "2", "--files", "3"];
    argv.extend(["--file-bytes", "3091,500", "--block", "1000,4000"]);
    argv.extend(more.split_whitespace());
    Ok(serde_json::to_value(files::run(&Cli::try_parse_from(argv)?.arguments)?)?)
}

#[test]
fn each_stream_writes_reads_and_removes_its_files_in_two_sessions() {
    let servers = Servers::start(Behaviour::default());
    let report = run_with(&servers, "--operation write --verify").unwrap();
    assert_clean(&report);
    // The first stream has 4 + 1 + 4 blocks, the second one each file in one.
    assert_eq!((&report["files"], &report["bytes"]), (&6.into(), &(2 * (3091 + 500 + 3091)).into()));
    assert_eq!((&report["operations"], &report["commits"]), (&12.into(), &6.into()));
    servers.with_state(|state| {
        let lengths: Vec<_> = state.files.iter().map(|(name, bytes)| (name.as_str(), bytes.len())).collect();
        let expected =
            [("a", 3091), ("a-1", 500), ("a-2", 3091), ("a.1", 3091), ("a.1-1", 500), ("a.1-2", 3091)];
        assert_eq!(lengths, expected);
        assert_eq!((state.opens, state.layouts, state.sessions, state.sessions_made()), (0, 0, 0, 4));
        assert!(state.files.values().all(|bytes| contents::are_at(0, bytes)));
    });

    let report = run_with(&servers, "--operation read --verify").unwrap();
    assert_clean(&report);
    assert_eq!((&report["operations"], &report["commits"]), (&12.into(), &0.into()));

    let report = run_with(&servers, "--operation remove").unwrap();
    assert_clean(&report);
    assert_eq!((&report["files"], &report["bytes"]), (&6.into(), &0.into()));
    servers.with_state(|state| assert!(state.files.is_empty(), "{state:?}"));
}

#[test]
fn stable_files_are_not_committed() {
    let servers = Servers::start(Behaviour::default());
    let report = run_with(&servers, "--operation write --stable file-sync").unwrap();
    assert_clean(&report);
    assert_eq!(report["commits"], 0);
}

#[test]
fn a_file_that_is_missing_ends_the_run() {
    let servers = Servers::start(Behaviour::default());
    let error = run_with(&servers, "--operation remove").unwrap_err();
    assert!(format!("{error:#}").contains("REMOVE answers NFS4ERR_NOENT"), "{error:#}");
}
