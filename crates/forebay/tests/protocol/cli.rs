//! The command line: starting, what stands against it, status, stopping (issue "one command and a real mount").

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use testkit::nfs_client::when_ready;

use crate::server::{FOREBAY, Instance, Server, Setup};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// It failed, and said why in one line that starts with its name.
fn assert_one_line(output: &Output, words: &[&str]) {
    let text = stderr(output);
    assert!(!output.status.success(), "it succeeds: {}", stdout(output));
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    assert!(text.starts_with("forebay: "), "{text}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

fn forebay(arguments: &[&str]) -> Output {
    Command::new(FOREBAY).args(arguments).stdin(Stdio::null()).output().unwrap()
}

#[test]
fn the_banner_tells_where_data_lies_what_listens_how_to_mount_and_how_to_stop() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let banner = &server.banner;
    assert!(banner.contains(&instance.data().canonicalize().unwrap().display().to_string()), "{banner}");
    let mount = format!("mount -t nfs4 -o vers=4.2,port={} 127.0.0.1:/ /mnt", server.head().port());
    assert!(banner.contains(&mount), "{banner}");
    assert!(banner.contains(&format!("kill {}", server.pid())), "{banner}");
    assert_eq!(server.pools.len(), 2);
    assert!(server.head().ip().is_loopback() && server.pools.iter().all(|pool| pool.ip().is_loopback()));
}

#[test]
fn a_second_process_on_the_same_data_is_refused() {
    let (instance, mut server) = Server::start();
    let output = instance.up_command().output().unwrap();
    assert_one_line(&output, &["in use by another forebay process", "--data"]);
    assert!(server.is_running());
    server.client("host").root().unwrap();
}

#[test]
fn a_port_in_use_gets_one_clear_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let instance = Instance::new(Setup::default());
    let data = instance.data().display().to_string();
    let head = forebay(&["up", "--data", &data, "--nfs-port", &port, "--pool-port", "0", "--no-http"]);
    assert_one_line(&head, &[&port, "in use", "--nfs-port"]);
    let pool = forebay(&["up", "--data", &data, "--nfs-port", "0", "--no-http", "--pool-port", &port]);
    assert_one_line(&pool, &[&port, "in use", "--pool-port"]);
}

#[test]
fn a_data_directory_of_a_newer_version_is_refused() {
    let (instance, server) = Server::start();
    server.kill();
    let file = instance.data().join("instance.json");
    let mut known: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    known["version"] = 999.into();
    fs::write(&file, known.to_string()).unwrap();
    let output = instance.up_command().output().unwrap();
    assert_one_line(&output, &["999", "newer"]);
    let kept: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept, known, "nothing was touched");
}

#[test]
fn a_directory_that_cannot_be_written_gets_one_clear_line() {
    // sysfs refuses even root.
    let output =
        forebay(&["up", "--data", "/sys/forebay", "--nfs-port", "0", "--no-http", "--pool-port", "0"]);
    assert_one_line(&output, &["/sys/forebay", "--data"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let output = forebay(&[
        "up",
        "--data",
        &file.display().to_string(),
        "--nfs-port",
        "0",
        "--no-http",
        "--pool-port",
        "0",
    ]);
    assert_one_line(&output, &[&file.display().to_string()]);
}

#[test]
fn an_address_that_is_not_ours_gets_one_clear_line() {
    let instance = Instance::new(Setup::default());
    let output = instance.up_command().args(["--listen", "192.0.2.1"]).output().unwrap();
    assert_one_line(&output, &["192.0.2.1", "--listen"]);
}

#[test]
fn data_and_secret_are_for_the_owner_alone() {
    let (instance, _server) = Server::start();
    let mode = |name: &str| fs::metadata(instance.data().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("."), 0o700);
    assert_eq!(mode("secret"), 0o600);
}

#[test]
fn status_tells_people_and_programs_how_it_is() {
    let (instance, server) = Server::start();
    let mut client = server.client("host of the status test");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.layout_get(&file.handle, file.stateid, nfs4::LayoutIomode4::Rw).unwrap();
    let text = stdout(&instance.run(&["status"]));
    for word in
        ["up ", "clients", "mounts 1", "opens 1", "pool-0", "free", "operations", "host of the status test"]
    {
        assert!(text.contains(word), "no {word:?} in:\n{text}");
    }
    let json = instance.run(&["status", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(report["pid"], server.pid());
    assert_eq!(report["sync"], "always");
    assert_eq!((&report["opens"], &report["layouts"], &report["locks"]), (&1.into(), &1.into(), &0.into()));
    assert_eq!(report["clients"][0]["name"], "host of the status test");
    assert_eq!(report["clients"][0]["sessions"], 1);
    assert_eq!(report["pools"][0]["address"], server.pools[0].to_string());
    assert!(report["pools"][0]["free_bytes"].as_u64().unwrap() > 0);
    assert!(report["operations"]["OPEN"].as_u64().unwrap() >= 1, "{report}");
    assert!(report["uptime_s"].is_u64() && report["operations_per_s"].is_number());
}

#[test]
fn status_without_a_server_says_how_to_start_one() {
    let (instance, server) = Server::start();
    server.kill();
    assert_one_line(&instance.run(&["status"]), &["no forebay is running", "forebay up"]);
    let nowhere = instance.path().join("nowhere").display().to_string();
    let output = forebay(&["status", "--data", &nowhere]);
    assert_one_line(&output, &[&nowhere]);
}

#[test]
fn sigterm_stops_within_five_seconds_also_with_clients_connected() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, nfs4::StableHow4::Unstable, &[1; 100_000]).unwrap();
    let idle = client.second_connection().unwrap();
    let (status, took) = server.terminate();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    drop((client, idle));
    // After an orderly stop all data is there, UNSTABLE or not.
    let server = instance.up();
    let mut client = server.client("host");
    assert_eq!(client.size(&file.handle).unwrap(), 100_000);
}

#[test]
fn sigint_stops_as_well() {
    let (_instance, server) = Server::start();
    let pid = server.pid().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut server = server;
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    while server.is_running() {
        assert!(std::time::Instant::now() < deadline, "it goes on");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_second_start_continues_what_the_first_had() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let mut client = server.client("host");
    let root = client.root().unwrap();
    for n in 0..10 {
        let file = client.create(&root, &format!("file{n}")).unwrap();
        client
            .write(&file.handle, file.stateid, 0, nfs4::StableHow4::FileSync, format!("{n}").as_bytes())
            .unwrap();
        client.close(&file).unwrap();
    }
    let (status, _) = server.terminate();
    assert!(status.success());
    let server = instance.up();
    assert_eq!(server.pools.len(), 2);
    let mut client = server.client("host");
    assert_eq!(client.list(&root, 1 << 16).unwrap().len(), 10);
    for n in 0..10 {
        let file = client.lookup(&root, &format!("file{n}")).unwrap();
        let read = when_ready(|| client.read(&file, nfs4::StateId4::ANONYMOUS, 0, 10)).unwrap();
        assert_eq!(&read.data[..], format!("{n}").as_bytes());
    }
}

#[test]
fn pools_become_more_and_never_fewer() {
    let instance = Instance::new(Setup { pools: 2, ..Setup::default() });
    instance.up().kill();
    let data = instance.data().display().to_string();
    let fewer =
        forebay(&["up", "--data", &data, "--nfs-port", "0", "--no-http", "--pool-port", "0", "--pools", "1"]);
    assert_one_line(&fewer, &["pools"]);
}

#[test]
fn fsck_of_a_stopped_instance_tells_of_small_files_that_are_damaged() {
    let (instance, server) = Server::start();
    server.terminate();
    for name in ["drained-pools.json", "keys.json"] {
        let file = instance.data().join(name);
        let before = fs::read(&file).ok();
        fs::write(&file, "{").unwrap();
        let fsck = instance.run(&["fsck"]);
        let told = stderr(&fsck);
        assert!(!fsck.status.success() && told.contains(&format!("{name} is damaged")), "{told}");
        match before {
            Some(before) => fs::write(&file, before).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
    }
    assert!(instance.run(&["fsck"]).status.success());
}

#[test]
fn fsck_says_clean_on_a_running_and_on_a_stopped_instance() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, nfs4::StableHow4::FileSync, b"data").unwrap();
    let running = instance.run(&["fsck"]);
    assert!(running.status.success() && stdout(&running).contains("clean"), "{}", stdout(&running));
    let (status, _) = server.terminate();
    assert!(status.success());
    let stopped = instance.run(&["fsck", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&stopped.stdout).unwrap();
    assert!(stopped.status.success() && report["problems"].as_array().unwrap().is_empty(), "{report}");
}

/// Commands in an order in which each succeeds, with a member that their answer has.
const WITH_JSON: [(&str, &str); 19] = [
    ("fsck", "problems"),
    ("dir set-consistency / soft --recursive", "changed"),
    ("dir set-io / direct --recursive", "io"),
    ("dir show /", "consistency"),
    ("pool drain pool-0", "pools"),
    ("pool enable pool-0", "pools"),
    ("pool list", "pools"),
    ("keys renew", "generation"),
    ("quota set --user 5 --files-hard 9", "files_limits"),
    ("quota show --user 5", "bytes_limits"),
    ("quota list", "quotas"),
    ("quota remove --user 5", "scope"),
    ("du /", "usage"),
    ("user add json --uid 5 --gid 6 --groups 7,8", "password"),
    ("user set-password json", "name"),
    ("user list", "users"),
    ("user remove json", ""),
    ("namespace describe", "files"),
    ("namespace migrate --dry-run", "steps"),
];

#[test]
fn json_is_one_object_on_a_running_and_on_a_stopped_instance() {
    let (instance, server) = Server::start();
    let objects = || {
        for (command, member) in WITH_JSON {
            let mut words: Vec<&str> = command.split(' ').collect();
            words.extend((!member.is_empty()).then_some("--json"));
            let output = instance.run(&words);
            assert!(output.status.success(), "{command}: {}", stderr(&output));
            assert_eq!(stderr(&output), "", "{command}");
            if !member.is_empty() {
                let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
                assert!(object.get(member).is_some(), "{command}: {object}");
            }
        }
    };
    objects();
    drop(server);
    objects();

    let path = |name: &str| instance.path().join(name).display().to_string();
    let json = |arguments: &[&str]| {
        let output = forebay(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let (data, saved, copy) = (instance.data().display().to_string(), path("saved"), path("copy"));
    let backup = json(&["namespace", "backup", "--data", &data, "--to", &saved, "--json"]);
    assert!(backup["bytes"].as_u64() > Some(0) && backup["problems"] == serde_json::json!([]), "{backup}");
    let restored =
        json(&["namespace", "restore", "--from", &saved, "--to", &format!("sqlite:{copy}"), "--json"]);
    assert_eq!(restored["verified"], true, "{restored}");
    let certificate = json(&["cert", "self-signed", "--host", "localhost", "--out", &path("tls"), "--json"]);
    assert!(fs::exists(certificate["key"].as_str().unwrap()).unwrap(), "{certificate}");
    let keys = json(&["config", "reference", "--json"]);
    assert!(keys["keys"].as_array().unwrap().iter().any(|key| key["name"] == "nfs.lease_s"), "{keys}");
    assert_eq!(json(&["config", "check", &path("forebay.toml"), "--json"])["valid"], true);
}

#[test]
fn progress_is_printed_to_standard_error_on_demand() {
    let (instance, server) = Server::start();
    let last_step = |command: &[&str]| {
        let output = instance.run(command);
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output).lines().last().and_then(|line| line.split(':').next()).map(str::to_owned)
    };
    let commands: [(&[&str], &str); 2] = [
        (&["fsck", "--json", "--progress"], "comparing files"),
        (&["namespace", "describe", "--progress"], "describing files"),
    ];
    for (command, step) in commands {
        assert_eq!(last_step(command).as_deref(), Some(step), "of a running instance");
    }
    assert_eq!(last_step(&["fsck"]), None, "standard error is no terminal");
    drop(server);
    for (command, step) in commands {
        assert_eq!(last_step(command).as_deref(), Some(step), "of a stopped instance");
    }
    assert_eq!(last_step(&["fsck"]), None);
}

#[test]
fn a_wrong_command_line_exits_with_2_and_a_failure_with_1() {
    let (instance, server) = Server::start();
    assert_eq!(forebay(&["quota", "show"]).status.code(), Some(2));
    assert_eq!(instance.run(&["dir", "show", "/nowhere"]).status.code(), Some(1));
    assert_eq!(instance.run(&["dir", "show", "/"]).status.code(), Some(0));
    drop(server);
    assert_eq!(instance.run(&["status"]).status.code(), Some(1));
}

#[test]
fn the_reference_is_a_configuration_that_checks() {
    let reference = forebay(&["config", "reference"]);
    assert!(reference.status.success());
    let text = stdout(&reference);
    for key in ["lease_s", "grace_s", "root_squash", "reserve_mib", "sync_interval_ms", "level"] {
        assert!(text.contains(key), "no {key} in:\n{text}");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("forebay.toml");
    fs::write(&file, &text).unwrap();
    let check = forebay(&["config", "check", &file.display().to_string()]);
    assert!(check.status.success(), "{}", stderr(&check));
}

#[test]
fn a_wrong_configuration_is_told_by_line_and_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("forebay.toml");
    let path = file.display().to_string();
    for (text, words) in [
        ("[nfs]\nlease_s = 10\nleese_s = 10\n", [":3", "leese_s"]),
        ("[nfs]\nlease_s = 0\n", ["nfs.lease_s", "1 to 3600"]),
        ("[pools]\nport = \"many\"\n", [":2", "u16"]),
        ("[nfs\n", [":1", "forebay.toml"]),
    ] {
        fs::write(&file, text).unwrap();
        assert_one_line(&forebay(&["config", "check", &path]), &words);
    }
    assert_one_line(&forebay(&["config", "check", "/nonexistent.toml"]), &["/nonexistent.toml"]);
}

#[test]
fn beyond_loopback_one_line_warns_and_root_is_squashed() {
    let setup = Setup { arguments: &["--listen", "0.0.0.0"], ..Setup::default() };
    let (_instance, server) = Server::start_with(setup);
    assert!(server.banner.contains("data"), "{}", server.banner);
    let head = std::net::SocketAddr::from(([127, 0, 0, 1], server.head().port()));
    let options = testkit::nfs_client::ClientOptions::named("host");
    let mut client = testkit::nfs_client::NfsClient::connect(head, options).unwrap();
    let root = client.root().unwrap();
    let outcome = client.mkdir(&root, "by root", 0o755);
    assert_eq!(crate::server::status_of(outcome), nfs4::NfsStat4::Access, "root is nobody here");
}

#[test]
fn root_is_root_beyond_loopback_when_asked_for() {
    let setup = Setup { arguments: &["--listen", "0.0.0.0", "--no-root-squash"], ..Setup::default() };
    let (_instance, server) = Server::start_with(setup);
    let head = std::net::SocketAddr::from(([127, 0, 0, 1], server.head().port()));
    let options = testkit::nfs_client::ClientOptions::named("host");
    let mut client = testkit::nfs_client::NfsClient::connect(head, options).unwrap();
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    // The data server is named by the address that the client came to, not by 0.0.0.0.
    let layout = client.layout_get(&file.handle, file.stateid, nfs4::LayoutIomode4::Rw).unwrap();
    assert_eq!(client.data_server(&layout).unwrap().server().ip(), head.ip());
}
