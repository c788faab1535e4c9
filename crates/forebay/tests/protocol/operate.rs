//! Operating a pool host: its control socket, its manager, and commands that belong to the head.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, Host, WAIT, error_of, return_recalled};
use crate::server::FOREBAY;

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command on the directory of a pool host.
fn on(host: &Host, arguments: &[&str]) -> Output {
    let mut command = Command::new(FOREBAY);
    command.args(arguments).arg("--data").arg(host.data()).stdin(Stdio::null()).output().unwrap()
}

fn json_on(host: &Host, arguments: &[&str]) -> serde_json::Value {
    let output = on(host, &[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn text_on(host: &Host, arguments: &[&str]) -> String {
    let output = on(host, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn status_when(host: &Host, is_so: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let deadline = Instant::now() + WAIT;
    loop {
        let status = json_on(host, &["status"]);
        if is_so(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_pool_host_tells_its_head_its_lease_and_why_it_is_not_connected() {
    let mut cluster = Cluster::start(1);
    let _written = cluster.written();
    let host = &cluster.hosts[0];
    let status = status_when(host, |status| status["lease_s"].as_f64() > Some(0.0));
    assert_eq!((&status["pool"], &status["head"]["connected"]), (&"pool-1".into(), &true.into()), "{status}");
    assert_eq!(status["problems"].as_array().map(Vec::len), Some(0), "{status}");
    assert_eq!(status["nfs"]["clients"], 1, "{status}");
    assert!(status["term"].as_u64() > Some(0), "{status}");
    let text = text_on(host, &["status"]);
    assert!(text.contains("pool       pool-1 of cluster ") && text.contains(", connected for "), "{text}");
    cluster.server.take().unwrap().kill();
    let host = &cluster.hosts[0];
    let status = status_when(host, |status| status["head"]["connected"] == false && status["lease_s"] == 0.0);
    assert_eq!(status["problems"][0]["kind"], "head-away", "{status}");
    assert!(status["head"]["trouble"].as_str().is_some_and(|why| why.contains("127.0.0.1:")), "{status}");
    cluster.server = Some(cluster.head.up());
    let status = status_when(&cluster.hosts[0], |status| status["head"]["connected"] == true);
    assert_eq!(status["head"]["reconnects"], 1, "{status}");
    cluster.wait_for(|standings| standings == ["ready"]);
}

#[test]
fn commands_about_pools_work_on_the_directory_of_a_pool_host() {
    let mut cluster = Cluster::start(1);
    let _written = cluster.written();
    let host = &cluster.hosts[0];
    let listed = json_on(host, &["pool", "list"]);
    assert_eq!((&listed["pools"][0]["name"], &listed["pools"][0]["drained"]), (&"pool-1".into(), &().into()));
    let io = json_on(host, &["pool", "iostat"]);
    assert_eq!(io["pools"][0]["name"], "pool-1");
    let written: u64 =
        io["pools"][0]["decisions"].as_array().unwrap().iter().filter_map(|d| d["bytes"].as_u64()).sum();
    assert!(written > 0, "{io}");
    let busiest = json_on(host, &["pool", "iostat", "--by-file"]);
    assert_eq!((&busiest["files"][0]["pool"], &busiest["files"][0]["path"]), (&"pool-1".into(), &().into()));
    let scrub = json_on(host, &["pool", "scrub", "pool-1"]);
    assert_eq!((&scrub["name"], &scrub["replicas"]), (&"pool-1".into(), &1.into()), "{scrub}");
    assert!(text_on(host, &["pool", "scrub", "pool-1", "--status"]).contains("last complete scrub: 2"));
    let wrong = error_of(&on(host, &["pool", "scrub", "pool-0"]));
    assert!(wrong.contains("this host has no pool-0, it has pool-1 only"), "{wrong}");
    let (status, _) = cluster.hosts[0].server.take().unwrap().terminate();
    assert!(status.success());
    let host = &cluster.hosts[0];
    assert!(text_on(host, &["pool", "list"]).contains("pool-1  its process does not run"));
    for command in [&["pool", "iostat"][..], &["pool", "scrub", "pool-1"], &["pool", "calibrate", "pool-1"]] {
        let error = error_of(&on(host, command));
        assert!(error.contains("no instance runs on"), "{error}");
    }
    let error = error_of(&on(host, &["status"]));
    assert!(error.contains("forebay pool up --data"), "{error}");
}

/// Each made no sense there, and some made an instance of the directory.
#[test]
fn commands_that_need_a_namespace_name_the_head_and_touch_nothing() {
    let mut cluster = Cluster::start(1);
    let dump = cluster.head.path().join("dump").display().to_string();
    let commands: &[&[&str]] = &[
        &["fsck"],
        &["fsck", "--repair", "--yes"],
        &["dir", "create", "/d", "--owner", "1"],
        &["dir", "show", "/"],
        &["dir", "set-io", "/", "direct"],
        &["why", "io", "/f"],
        &["keys", "renew"],
        &["quota", "list"],
        &["quota", "set", "--user", "1", "--bytes-hard", "1G"],
        &["du", "/"],
        &["user", "list"],
        &["user", "add", "ann", "--uid", "1", "--gid", "1"],
        &["cluster", "token"],
        &["cluster", "status"],
        &["pool", "drain", "pool-1"],
        &["pool", "enable", "pool-1"],
        &["namespace", "describe"],
        &["namespace", "rebuild"],
        &["namespace", "backup", "--to", &dump],
    ];
    for is_running in [true, false] {
        if !is_running {
            cluster.hosts[0].server.take().unwrap().terminate();
        }
        let host = &cluster.hosts[0];
        let before = names_in(host);
        for command in commands {
            let error = error_of(&on(host, command));
            assert!(error.contains("is the data directory of a pool host (pool-1)"), "{command:?}: {error}");
            assert!(error.contains("ask its head, 127.0.0.1:"), "{command:?}: {error}");
        }
        let up = error_of(&on(host, &["up", "--no-http"]));
        assert!(up.contains("forebay pool up --data"), "{up}");
        assert_eq!(names_in(host), before);
    }
    let mut strange = Command::new(FOREBAY);
    strange.args(["pool", "up", "--data"]).arg(cluster.head.data());
    let error = error_of(&strange.output().unwrap());
    assert!(error.contains("is the data directory of a head: start it with `forebay up"), "{error}");
}

/// Its key is there, and nothing else yet.
#[test]
fn a_host_that_could_not_join_is_no_place_for_a_head() {
    let host = Host::new();
    fs::create_dir(host.data()).unwrap();
    fs::write(host.data().join("member.key"), "").unwrap();
    let error = error_of(&on(&host, &["up", "--no-http"]));
    assert!(error.contains("data directory of a pool host"), "{error}");
    let error = error_of(&on(&host, &["pool", "list"]));
    assert!(error.contains("has not joined a cluster"), "{error}");
    let error = error_of(&on(&host, &["user", "list"]));
    assert!(error.contains("of a pool host, which has no namespace: ask its head"), "{error}");
    assert_eq!(names_in(&host), ["member.key"]);
}

fn names_in(host: &Host) -> Vec<String> {
    let entries = fs::read_dir(host.data()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_token_comes_by_standard_input_or_by_a_file_that_is_removed() {
    let cluster = Cluster::start(0);
    let (mut by_input, mut by_file) = (Host::new(), Host::new());
    let mut joining = by_input.command(&["--join", "-"]);
    let mut joined = Killed(joining.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    // It is not closed: the token is a line.
    let mut stdin = joined.0.stdin.take().unwrap();
    writeln!(stdin, "{}", cluster.token()).unwrap();
    cluster.wait_for(|standings| standings == ["ready"]);
    drop(joined);
    by_input.up(&[]);

    let file = by_file.data().with_file_name("join-token");
    let path = file.display().to_string();
    let write = |text: &str, mode: u32| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    };
    let refused = |host: &Host| error_of(&host.command(&["--join-file", &path]).output().unwrap());
    assert!(refused(&by_file).contains("has not joined"), "there is no file yet");
    write("fb1.x", 0o644);
    assert!(refused(&by_file).contains("chmod 600"), "{}", refused(&by_file));
    write("fb1.x", 0o600);
    assert!(refused(&by_file).contains("--join-file"), "{}", refused(&by_file));
    write(&format!("{}\n", cluster.token()), 0o600);
    by_file.up(&["--join-file", &path]);
    assert!(!file.exists(), "it is of no use any more");
    assert!(by_file.server().banner.contains("pool-2 of cluster"), "{}", by_file.server().banner);
    by_file.server.take().unwrap().terminate();
    by_file.up(&["--join-file", &path]);
}

#[test]
fn a_service_manager_hears_of_a_pool_host_also_while_its_head_is_away() {
    let mut cluster = Cluster::start(1);
    cluster.hosts[0].server.take().unwrap().terminate();
    cluster.server.take().unwrap().terminate();
    let host = &cluster.hosts[0];
    let path = host.data().with_file_name("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(WAIT)).unwrap();
    let mut command = host.command(&[]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "400000").env_remove("WATCHDOG_PID");
    let mut child = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    let heard_until = |wanted: &str| {
        let mut buffer = [0; 4096];
        loop {
            let length = manager.recv(&mut buffer).unwrap_or_else(|error| panic!("no {wanted}: {error}"));
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.contains(wanted) {
                return text;
            }
        }
    };
    let ready = heard_until("READY=1");
    assert!(ready.contains("STATUS=pool-1, 0 clients"), "{ready}");
    heard_until("not connected to the head");
    heard_until("WATCHDOG=1");
    cluster.server = Some(cluster.head.up());
    heard_until("connected to 127.0.0.1:");
    heard_until("WATCHDOG=1");
    let sent = Command::new("kill").args(["-TERM", &child.0.id().to_string()]).status().unwrap();
    assert!(sent.success());
    heard_until("STOPPING=1");
    assert!(child.0.wait().unwrap().success());
}

#[test]
fn the_head_tells_since_when_a_pool_host_is_silent_and_what_it_missed() {
    let mut cluster = Cluster::start(1);
    let mut written = cluster.written();
    let report = cluster.json(&["cluster", "status"]);
    let pool = &report["pools"][0];
    assert_eq!((&pool["connections"], &pool["missed_fences"]), (&3.into(), &0.into()), "{report}");
    assert_eq!(pool["version"], env!("CARGO_PKG_VERSION"), "{report}");
    let listed = cluster.json(&["pool", "list"]);
    assert_eq!(listed["pools"][0]["host"], serde_json::Value::Null, "it is one of the head: {listed}");
    assert_eq!(listed["pools"][1]["host"]["standing"], "ready", "{listed}");
    cluster.hosts[0].kill();
    // The layout that comes back ends at the pool, which does not hear of it.
    return_recalled(&mut written.client, &written.file);
    cluster.wait_for(|standings| standings == ["out"]);
    let deadline = Instant::now() + WAIT;
    loop {
        let report = cluster.json(&["cluster", "status"]);
        let pool = &report["pools"][0];
        if pool["missed_fences"] == 1 && pool["silent_s"].as_u64() > Some(0) {
            assert_eq!((&pool["connections"], &pool["lease_s"]), (&0.into(), &0.0.into()), "{report}");
            break;
        }
        assert!(Instant::now() < deadline, "{report}");
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = String::from_utf8(cluster.head.run(&["pool", "list"]).stdout).unwrap();
    assert!(text.contains("fences missed: 1"), "{text}");
    cluster.hosts[0].up(&[]);
    cluster.wait_for(|standings| standings == ["ready"]);
    let report = cluster.json(&["cluster", "status"]);
    let pool = &report["pools"][0];
    assert_eq!((&pool["missed_fences"], &pool["reconnects"]), (&0.into(), &1.into()), "{report}");
}
