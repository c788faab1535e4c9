//! `forebay pool scrub` on a disk that loses a bit.

use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use nfs4::{NfsStat4, OPEN4_SHARE_ACCESS_READ};
use serde_json::{Value, json};

use crate::repair::{fsck, told};
use crate::server::{Instance, Server, status_of};

const BLOCK: u64 = 64 << 10;

fn scrub(instance: &Instance, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["pool", "scrub", "pool-0", "--rate", "100000"]).args(options);
    command.arg("--data").arg(instance.data()).stdin(Stdio::null()).output().expect("run forebay")
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", told(output)))
}

fn set_modified(replica: &File, modified: SystemTime) {
    replica.set_times(FileTimes::new().set_modified(modified)).unwrap();
}

/// As if all writes were a while ago.
fn rest(instance: &Instance) {
    for replica in instance.replicas() {
        let replica = File::options().write(true).open(replica).unwrap();
        set_modified(&replica, SystemTime::now() - Duration::from_secs(60));
    }
}

/// As a disk does it: the time of the last write stays.
fn flip(replica: &Path, at: u64) {
    let replica = File::options().read(true).write(true).open(replica).unwrap();
    let modified = replica.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    replica.read_exact_at(&mut byte, at).unwrap();
    replica.write_all_at(&[byte[0] ^ 0x80], at).unwrap();
    set_modified(&replica, modified);
    replica.sync_all().unwrap();
}

#[test]
fn a_bad_block_is_an_error_to_readers_and_told_to_the_operator_with_its_path_until_the_file_is_replaced() {
    let (instance, mut server) = Server::start();
    server.expect_errors(&["differs from its block sums", "a block on the disk differs"]);
    assert_eq!(server.put("/whole", [1; 3000]).status, 201);
    assert_eq!(server.put("/bad", vec![2; 300_000]).status, 201);
    rest(&instance);
    let first = scrub(&instance, &["--json"]);
    assert!(first.status.success(), "{}", told(&first));
    assert_eq!((&report(&first)["summed"], &report(&first)["problems"]), (&json!(2), &json!([])));
    let replica = instance.replicas().into_iter().find(|path| path.metadata().unwrap().len() == 300_000);
    let replica = replica.unwrap();
    flip(&replica, 3 * BLOCK + 7);
    let second = scrub(&instance, &["--json"]);
    assert_eq!(second.status.code(), Some(1), "{}", told(&second));
    let file = replica.file_name().unwrap().to_str().unwrap();
    let expected =
        json!([{ "file": file, "path": "/bad", "state": "damaged", "blocks": 1, "offsets": [3 * BLOCK] }]);
    assert_eq!(report(&second)["problems"], expected);
    assert_eq!(server.status_of("GET", "/bad"), 500);
    assert_eq!(server.read("/whole"), [1; 3000]);
    let mut client = server.nfs("reader");
    let root = client.root().unwrap();
    let opened = client.open(&root, "bad", OPEN4_SHARE_ACCESS_READ).unwrap();
    assert_eq!(status_of(client.read(&opened.handle, opened.stateid, 0, 100)), NfsStat4::Io);
    client.close(&opened).unwrap();
    let health = server.call("GET", "/health");
    assert!(health.status == 503 && health.text().contains("bad-blocks") && health.text().contains(file));
    let metrics = server.call("GET", "/metrics").text();
    for series in ["forebay_scrub_bad_replicas", "forebay_scrub_bad_blocks_total"] {
        assert!(metrics.contains(&format!("{series}{{pool=\"pool-0\"}} 1")), "{metrics}");
    }
    let log = server.log();
    let line = log.lines().find(|line| line.contains("differs from its block sums")).unwrap();
    assert!(["ERROR", "/bad", "pool-0", file, "196608"].iter().all(|word| line.contains(word)), "{line}");
    let checked = fsck(&instance, &[]);
    assert!(!checked.status.success() && told(&checked).contains(": /bad\n"), "{}", told(&checked));
    assert_eq!(server.put("/bad", "restored").status, 204);
    assert_eq!(server.read("/bad"), b"restored");
    crate::server::until("the former replica is removed", || instance.replicas().len() == 2);
    let third = scrub(&instance, &[]);
    assert!(third.status.success(), "{}", told(&third));
    let health = server.call("GET", "/health");
    assert_eq!(health.status, 200, "{}", health.text());
    server.stop();
}

#[test]
fn a_read_of_a_bad_block_is_an_error_to_the_client_and_told_to_the_operator() {
    let (instance, mut server) = Server::start();
    server.expect_errors(&["differs from its block sums", "a block on the disk differs"]);
    assert_eq!(server.put("/bad", vec![2; 300_000]).status, 201);
    rest(&instance);
    assert!(scrub(&instance, &[]).status.success());
    let mut client = server.nfs("reader");
    let root = client.root().unwrap();
    let opened = client.open(&root, "bad", OPEN4_SHARE_ACCESS_READ).unwrap();
    let good = client.read(&opened.handle, opened.stateid, 0, BLOCK as u32).unwrap();
    assert_eq!(good.data.len() as u64, BLOCK);
    let replica = instance.replicas().remove(0);
    flip(&replica, 3 * BLOCK + 7);
    let read = client.read(&opened.handle, opened.stateid, 3 * BLOCK, BLOCK as u32);
    assert_eq!(status_of(read), NfsStat4::Io);
    client.close(&opened).unwrap();
    assert_eq!(server.status_of("GET", "/bad"), 500);
    let health = server.call("GET", "/health");
    assert!(health.status == 503 && health.text().contains("bad-blocks"), "{}", health.text());
    let metrics = server.call("GET", "/metrics").text();
    let verified = format!("forebay_pool_verified_bytes_total{{pool=\"pool-0\"}} {BLOCK}");
    assert!(metrics.contains(&verified), "{metrics}");
    let log = server.log();
    let line = log.lines().find(|line| line.contains("that was read differs")).unwrap();
    assert!(["ERROR", "pool-0", "196608"].iter().all(|word| line.contains(word)), "{line}");
    let after = scrub(&instance, &["--json"]);
    assert_eq!(report(&after)["problems"][0]["path"], json!("/bad"));
    assert_eq!(server.put("/bad", "restored").status, 204);
    crate::server::until("the former replica is removed", || instance.replicas().len() == 1);
    assert!(scrub(&instance, &[]).status.success());
    assert_eq!(server.call("GET", "/health").status, 200);
    server.stop();
}

#[test]
fn a_scrub_starts_by_itself_when_the_last_one_is_long_ago_and_the_status_shows_it() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", vec![3; 100_000]).status, 201);
    let status = || report(&scrub_status(&instance));
    crate::server::until("the first look is written down", || status()["due_s"].is_u64());
    assert_eq!((&status()["last"], &status()["running"]), (&Value::Null, &json!(false)));
    server.stop();
    // As if the first start were in 1970.
    let record = instance.data().join("pools/pool-0/scrub.json");
    let mut kept: Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    kept["watched_s"] = json!(1);
    std::fs::write(&record, kept.to_string()).unwrap();
    let server = instance.up();
    crate::server::until("a scrub is complete", || status()["last"]["totals"]["replicas"] == 1);
    let after = status();
    let days = (after["due_s"].as_u64().unwrap() - after["last"]["ended_s"].as_u64().unwrap()) / 86_400;
    assert_eq!((days, &after["bad_replicas"]), (30, &json!(0)));
    server.stop();
}

fn scrub_status(instance: &Instance) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["pool", "scrub", "pool-0", "--status", "--json", "--data"]).arg(instance.data());
    command.stdin(Stdio::null()).output().expect("run forebay")
}

#[test]
fn a_pool_that_does_not_exist_or_does_not_run_is_refused_in_a_line() {
    let (instance, server) = Server::start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["pool", "scrub", "7", "--data"]).arg(instance.data());
    let missing = command.output().unwrap();
    assert!(!missing.status.success() && told(&missing).contains("there is no pool-7"), "{}", told(&missing));
    server.stop();
    let stopped = scrub(&instance, &[]);
    assert!(!stopped.status.success() && told(&stopped).contains("no instance runs"), "{}", told(&stopped));
}

#[test]
fn a_scrub_of_a_server_that_was_killed_continues_and_leaves_no_half_sums() {
    let (instance, server) = Server::start();
    for name in ["/a", "/b", "/c"] {
        assert_eq!(server.put(name, vec![3; 3 << 20]).status, 201);
    }
    rest(&instance);
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.args(["pool", "scrub", "pool-0", "--rate", "1", "--data"]).arg(instance.data());
    let mut slow = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let sums = || files_below(&instance.data().join("pools/pool-0/sums"));
    // At this rate the sums of a file take seconds.
    crate::server::until("sums are being made", || sums().iter().any(|name| name.ends_with(".new")));
    server.kill();
    assert!(!slow.wait().unwrap().success(), "the command says that it is not complete");
    let server = instance.up();
    let done = scrub(&instance, &["--json"]);
    assert!(done.status.success(), "{}", told(&done));
    let done = report(&done);
    assert_eq!((&done["replicas"], &done["summed"], &done["problems"]), (&json!(3), &json!(3), &json!([])));
    let sums = sums();
    assert!(sums.len() == 3 && sums.iter().all(|name| !name.ends_with(".new")), "{sums:?}");
    let again = report(&scrub(&instance, &["--json"]));
    assert_eq!((&again["verified"], &again["problems"]), (&json!(3), &json!([])));
    server.stop();
}

fn files_below(dir: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(files_below(&entry.path()));
        } else {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names
}
