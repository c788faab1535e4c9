//! Pools in directories of their own.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
}

fn arguments(dir: &tempfile::TempDir, more: &str) -> Arguments {
    let mut argv = vec!["engine", "--directory", dir.path().to_str().unwrap(), "--slots", "4"];
    argv.extend(more.split_whitespace());
    Cli::try_parse_from(argv).unwrap().arguments
}

fn run_in(dir: &tempfile::TempDir, more: &str) -> Result<Value> {
    Ok(serde_json::to_value(run(&arguments(dir, more))?)?)
}

fn assert_clean(report: &Value) {
    assert_eq!(report["errors"], json!({}), "{report}");
}

/// The names of the replicas' files and their lengths.
fn replicas(dir: &tempfile::TempDir) -> Vec<(String, u64)> {
    let entries = |path: PathBuf| std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let inner = entries(dir.path().join("data")).flat_map(|outer| entries(outer.path()));
    let files = inner.flat_map(|inner| entries(inner.path()));
    let mut found: Vec<_> =
        files.map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().len())).collect();
    found.sort();
    found
}

const FILE: &str = "--file-bytes 300000 --block 50000 --verify";

#[test]
fn bytes_that_one_run_writes_are_those_that_the_next_one_reads() {
    let dir = tempfile::tempdir().unwrap();
    let written = run_in(&dir, &format!("--mode buffered --operation write --streams 2 {FILE}")).unwrap();
    assert_clean(&written);
    assert_eq!((&written["bytes"], &written["operations"]), (&600_000.into(), &12.into()));
    assert_eq!((&written["commits"], &written["streams"]), (&2.into(), &2.into()));
    let two = [("0000000000000001".to_owned(), 300_000), ("0000000000000002".to_owned(), 300_000)];
    assert_eq!(replicas(&dir), two);
    let read = run_in(&dir, &format!("--mode buffered --operation read --streams 2 {FILE}")).unwrap();
    assert_clean(&read);
    assert_eq!((&read["bytes"], &read["commits"]), (&600_000.into(), &0.into()));
}

#[test]
fn unaligned_writers_of_one_file_fill_it_together_in_every_fixed_mode() {
    for mode in ["buffered", "uncached", "direct", "paper", "beegfs"] {
        let dir = tempfile::tempdir().unwrap();
        let shape =
            "--streams 4 --shared --segments --offset 2104 --file-bytes 402104 --block 32768 --verify";
        let written = run_in(&dir, &format!("--mode {mode} --operation write {shape}")).unwrap();
        assert_clean(&written);
        assert_eq!((&written["bytes"], &written["commits"]), (&400_000.into(), &4.into()), "{mode}");
        assert_eq!(replicas(&dir), [("0000000000000001".to_owned(), 402_104)], "{mode}");
        assert_clean(&run_in(&dir, &format!("--mode {mode} --operation read {shape}")).unwrap());
    }
}

#[test]
fn a_mode_is_counted_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let written = run_in(&dir, &format!("--mode buffered --operation write {FILE}")).unwrap();
    let rows = written["decisions"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["kind"], &rows[0]["mode"]), (&"write".into(), &"buffered".into()));
    assert_eq!((&rows[0]["operations"], &rows[0]["bytes"]), (&6.into(), &300_000.into()));
    let pool = LocalPool::open(config(&arguments(&dir, "--operation read"))).unwrap();
    let is_possible = pool.io().is_direct_possible;
    pool.close();
    drop(pool);
    if !is_possible {
        println!("skipped: no direct I/O here");
        return;
    }
    let written = run_in(&dir, &format!("--mode direct --operation write {FILE}")).unwrap();
    assert_eq!(written["decisions"][0]["mode"], "direct", "{written}");
    assert_eq!(written["decisions"][0]["reason"], "forced", "{written}");
}

#[test]
fn truncate_drops_the_bytes_of_earlier_runs() {
    let dir = tempfile::tempdir().unwrap();
    run_in(&dir, &format!("--mode buffered --operation write {FILE}")).unwrap();
    let shorter = "--mode buffered --operation write --file-bytes 1000 --block 1000";
    run_in(&dir, shorter).unwrap();
    assert_eq!(replicas(&dir)[0].1, 300_000);
    run_in(&dir, &format!("{shorter} --truncate")).unwrap();
    assert_eq!(replicas(&dir)[0].1, 1000);
}

#[test]
fn stable_writes_need_no_sync() {
    let dir = tempfile::tempdir().unwrap();
    let written =
        run_in(&dir, &format!("--mode buffered --operation write --stable file-sync {FILE}")).unwrap();
    assert_clean(&written);
    assert_eq!((&written["operations"], &written["commits"]), (&6.into(), &0.into()));
}

#[test]
fn bytes_that_are_missing_or_wrong_are_errors() {
    let dir = tempfile::tempdir().unwrap();
    let read = format!("--mode buffered --operation read {FILE}");
    assert!(run_in(&dir, &read).is_err() || run_in(&dir, &read).unwrap()["errors"] != json!({}));
    run_in(&dir, "--mode buffered --operation write --file-bytes 299999 --block 50000 --verify").unwrap();
    let report = run_in(&dir, &read).unwrap();
    assert_eq!(report["errors"], json!({"a read returns fewer bytes than were asked for": 1}));
    // Each write has the bytes of the beginning of a file.
    run_in(&dir, "--mode buffered --operation write --file-bytes 300000 --block 50000").unwrap();
    let report = run_in(&dir, &read).unwrap();
    let errors: Vec<_> = report["errors"].as_object().unwrap().keys().collect();
    assert_eq!(errors, ["a read returns other bytes than --verify writes"]);
}

#[test]
fn a_calibration_is_wanted_by_its_mode_alone() {
    let dir = tempfile::tempdir().unwrap();
    let pool = LocalPool::open(config(&arguments(&dir, "--operation read"))).unwrap();
    assert!(needs_calibration(Mode::Calibrated, &pool));
    assert!(!needs_calibration(Mode::Buffered, &pool));
    pool.close();
}
