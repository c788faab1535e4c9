//! `forebay why io` and `forebay pool iostat`: decisions about modes, and the counts of files.

use nfs4::{CreateType4, LayoutIomode4, NfsFh4, StableHow4, StateId4};
use testkit::nfs_client::{NfsClient, OpenFile};

use crate::server::{Instance, Server, Setup};

/// Each request is decided, whatever the file system of the tests can do.
const DECIDED: Setup =
    Setup { configuration: "[pools]\nio = \"direct\"\n", lease_s: 60, grace_s: 0, pools: 1, arguments: &[] };

/// A server on a new instance, a client of it, and the root of the namespace.
fn start(setup: Setup) -> (Instance, Server, NfsClient, NfsFh4) {
    let (instance, server) = Server::start_with(setup);
    let mut client = server.client("host");
    let root = client.root().unwrap();
    (instance, server, client, root)
}

/// The same after three small stable writes of one file.
fn start_and_write() -> (Instance, Server, NfsClient) {
    let (instance, server, mut client, root) = start(Setup::default());
    let file = client.create(&root, "file").unwrap();
    (0..3).for_each(|_| write(&mut client, &file, 4096));
    (instance, server, client)
}

fn succeed(instance: &Instance, command: &[&str], more: &[&str]) -> String {
    let output = instance.run(&[command, more].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn told(instance: &Instance, more: &[&str]) -> String {
    succeed(instance, &["why", "io"], more)
}

fn iostat(instance: &Instance, more: &[&str]) -> String {
    succeed(instance, &["pool", "iostat"], more)
}

fn refusal(instance: &Instance, more: &[&str]) -> String {
    let output = instance.run(&[&["why", "io"], more].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it succeeds");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

fn write(client: &mut NfsClient, file: &OpenFile, bytes: usize) {
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, &vec![7; bytes]).unwrap();
}

#[test]
fn the_decisions_of_a_file_are_told_and_decided_again_with_other_thresholds() {
    let (instance, _server, mut client, root) = start(DECIDED);
    let dir = client.mkdir(&root, "dir", 0o755).unwrap();
    let file = client.create(&dir, "file").unwrap();
    write(&mut client, &file, 64 << 10);

    let text = told(&instance, &["/dir/file"]);
    assert!(text.starts_with("/dir/file: file "), "{text}");
    assert!(text.contains("\npool-0: pools.io = \"direct\"\n"), "{text}");
    let json = told(&instance, &["dir/file", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let decisions = found["replicas"][0]["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 1, "{json}");
    assert_eq!(decisions[0]["inputs"]["request"]["length_bytes"], 65536, "{json}");
    assert!(decisions[0].get("replayed").is_none(), "{json}");

    let json = told(&instance, &["/dir/file", "--json", "--with-threshold", "policy=buffered"]);
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let replica = &found["replicas"][0];
    assert_eq!(replica["decisions"][0]["replayed"]["mode"], "buffered", "{json}");
    assert_eq!(
        (&replica["thresholds"]["policy"], &replica["with_thresholds"]["policy"]),
        (&"direct".into(), &"buffered".into())
    );
    let text = told(&instance, &["/dir/file", "--with-threshold", "policy=buffered"]);
    assert!(
        text.contains("with other thresholds (policy \"buffered\"), 1 of 1 decision would differ"),
        "{text}"
    );
}

/// A layout from before the change keeps its handle; the next one has the new mode.
#[test]
fn a_client_of_a_data_server_writes_in_the_mode_of_the_directory() {
    let (instance, _server, mut client, root) = start(Setup::default());
    let dir = client.mkdir(&root, "dir", 0o755).unwrap();
    let file = client.create(&dir, "file").unwrap();
    let mut write_at_pool = || {
        let zero = StateId4 { seqid: 0, ..file.stateid };
        let layout = client.layout_get(&file.handle, zero, LayoutIomode4::Rw).unwrap();
        let (mut pool, stateid) = (client.data_server(&layout).unwrap(), layout.data_server().stateid);
        pool.write(layout.ticket(), stateid, 0, StableHow4::Unstable, &[7; 100]).unwrap();
        layout.ticket().clone()
    };
    let before = write_at_pool();
    assert!(told(&instance, &["/dir/file"]).contains("no decision is recorded: "));
    succeed(&instance, &["dir", "set-io"], &["/dir", "buffered", "--recursive"]);
    assert_ne!(write_at_pool(), before);
    let json = told(&instance, &["/dir/file", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&json).unwrap();
    let decision = &found["replicas"][0]["decisions"][0];
    assert_eq!((&decision["reason"], &decision["mode"]), (&"pinned".into(), &"buffered".into()), "{json}");
    assert!(told(&instance, &["/dir/file"]).contains(", pinned to buffered\n"));
    succeed(&instance, &["dir", "set-io"], &["/dir", "auto", "--recursive"]);
    assert_eq!(write_at_pool(), before, "sealed as before");
    // At the head the next request has it, also of a file that is open.
    succeed(&instance, &["dir", "set-io"], &["/dir", "uncached", "--recursive"]);
    write(&mut client, &file, 100);
    assert!(told(&instance, &["/dir/file"]).contains(", pinned to uncached\n"));
}

#[test]
fn a_file_of_which_nothing_is_recorded_is_told_with_the_reason() {
    let (instance, server, mut client, root) = start(Setup::default());
    let file = client.create(&root, "file").unwrap();
    write(&mut client, &file, 100);
    let text = told(&instance, &["/file"]);
    assert!(text.contains("no decision is recorded: "), "{text}");
    assert!(!text.contains("not used since"), "{text}");

    server.terminate();
    let stopped = refusal(&instance, &["/file"]);
    assert!(stopped.contains("no instance runs"), "{stopped}");
    let _server = instance.up();
    let text = told(&instance, &["/file"]);
    assert!(text.contains("was not used since the server was started"), "{text}");
}

#[test]
fn a_path_without_a_replica_is_refused_with_the_reason() {
    let (instance, _server, mut client, root) = start(Setup::default());
    client.mkdir(&root, "dir", 0o755).unwrap();
    client.create(&root, "empty").unwrap();
    let target = bytes::Bytes::from_static(b"empty");
    client.create_object(&root, CreateType4::Lnk(target.into()), "link", 0o777).unwrap();
    for (path, why) in [
        ("/none", "/none does not exist"),
        ("/empty/below", "/empty/below does not exist"),
        ("/dir", "/dir is a directory: name a file in it"),
        ("/", "/ is a directory"),
        ("/link", "/link is a symbolic link: name the file that it leads to"),
        ("/dir/../empty", "path may not have .. in it"),
    ] {
        let said = refusal(&instance, &[path]);
        assert!(said.contains(why), "{path}: {said}");
    }
    let said = refusal(&instance, &["/empty", "--with-threshold", "size=1"]);
    assert!(said.contains("there is no threshold \"size\""), "{said}");
}

#[test]
fn the_files_with_the_most_bytes_are_told_with_their_paths() {
    let (instance, _server, mut client, root) = start(Setup::default());
    for (name, bytes) in [("small", 100), ("large", 64 << 10), ("medium", 4096)] {
        let file = client.create(&root, name).unwrap();
        write(&mut client, &file, bytes);
    }
    let open = client.create(&root, "removed").unwrap();
    write(&mut client, &open, 1 << 20);
    client.remove(&root, "removed").unwrap();

    let run = |more: &[&str]| iostat(&instance, &[&["--by-file"], more].concat());
    let found: serde_json::Value = serde_json::from_str(&run(&["--top", "3", "--json"])).unwrap();
    let files = found["files"].as_array().unwrap();
    let paths: Vec<_> = files.iter().map(|file| file["path"].as_str()).collect();
    assert_eq!(paths, [None, Some("/large"), Some("/medium")], "{found}");
    let counted = serde_json::json!([{"kind": "write", "mode": "buffered", "operations": 1, "bytes": 65536}]);
    assert_eq!(files[1]["counts"], counted);
    let text = run(&["pool-0"]);
    assert_eq!(text.lines().count(), 5, "{text}");
    assert_eq!(run(&["pool-7"]), "no file was read or written\n");
}

#[test]
fn times_of_requests_and_the_load_of_threads_are_told() {
    let (instance, _server, _client) = start_and_write();
    let told: serde_json::Value = serde_json::from_str(&iostat(&instance, &["--json"])).unwrap();
    let pool = &told["pools"][0];
    let timed = pool["latencies"].as_array().unwrap();
    assert_eq!(timed.len(), 1, "{told}");
    let fact = |name: &str| timed[0][name].clone();
    assert_eq!((fact("kind"), fact("mode"), fact("count")), ("write".into(), "buffered".into(), 3.into()));
    let lanes = pool["lanes"].as_array().unwrap();
    let names: Vec<_> = lanes.iter().map(|lane| lane["lane"].as_str().unwrap()).collect();
    assert_eq!(names, ["data", "sync"]);
    // Stable writes run there.
    assert!(lanes[1]["waits"]["count"].as_u64().unwrap() >= 3, "{told}");
    assert!(lanes[1]["cpu_ns"].as_u64().unwrap() > 0, "{told}");
    let cpu = &pool["cpu"].as_array().unwrap()[..];
    assert_eq!((cpu.len(), &cpu[0]["kind"], &cpu[0]["bytes"]), (1, &"write".into(), &(3 * 4096).into()));
    assert!(cpu[0]["cpu_ns"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(pool["residency"]["resident_bytes"], 0, "{told}");
}

#[test]
fn the_write_journal_is_told_with_the_records_of_small_stable_writes() {
    let (instance, _server, _client) = start_and_write();
    let told: serde_json::Value = serde_json::from_str(&iostat(&instance, &["--json"])).unwrap();
    let journal = &told["pools"][0]["journal"];
    let count = |name: &str| journal[name].as_u64().unwrap();
    assert_eq!((count("record_bytes"), count("files"), count("refused")), (3 * 4096, 1, 0), "{told}");
    assert!(count("syncs") > 0 && count("used_bytes") > 3 * 4096 && !journal["failed"].as_bool().unwrap());
    let text = iostat(&instance, &[]);
    assert!(text.contains("\npool-0: write journal: "), "{text}");
}
