//! Pools whose files are moved to other pools while clients use them.

use std::time::{Duration, Instant};

use nfs4::{LayoutIomode4, StableHow4};
use testkit::nfs_client::{NfsClient, OpenFile};

use crate::server::{Instance, Server, Setup};

const WAIT: Duration = Duration::from_secs(60);
const FILES: u32 = 24;

fn pool_command(instance: &Instance, command: &[&str]) -> String {
    let output = instance.run(&[&["pool"], command].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn state(instance: &Instance) -> serde_json::Value {
    let listed = pool_command(instance, &["list", "--json"]);
    serde_json::from_str::<serde_json::Value>(&listed).unwrap()["pools"][0].clone()
}

fn wait_for(instance: &Instance, fact: impl Fn(&serde_json::Value) -> bool) {
    let deadline = Instant::now() + WAIT;
    while !fact(&state(instance)) {
        assert!(Instant::now() < deadline, "{}", state(instance));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Replicas in the directory of the pool.
fn replicas(instance: &Instance, pool: u32) -> usize {
    fn count(path: &std::path::Path) -> usize {
        let Ok(entries) = std::fs::read_dir(path) else { return 0 };
        entries.map(|entry| entry.unwrap().path()).map(|at| if at.is_dir() { count(&at) } else { 1 }).sum()
    }
    count(&instance.data().join(format!("pools/pool-{pool}/data")))
}

fn bytes(number: u32) -> Vec<u8> {
    (0..(number + 1) * 5000).map(|at| (at % 251 + number) as u8).collect()
}

fn made(client: &mut NfsClient) -> Vec<OpenFile> {
    let root = client.root().unwrap();
    let make = |number| {
        let file = client.create(&root, &format!("file-{number}")).unwrap();
        client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, &bytes(number)).unwrap();
        file
    };
    (0..FILES).map(make).collect()
}

fn check(client: &mut NfsClient) {
    let root = client.root().unwrap();
    for number in 0..FILES {
        let file = client.open(&root, &format!("file-{number}"), 1).unwrap();
        let read = client.read(&file.handle, file.stateid, 0, 1 << 20).unwrap();
        assert!(read.data[..] == bytes(number), "file-{number}");
        client.close(&file).unwrap();
    }
}

#[test]
fn a_drained_pool_is_emptied_and_its_files_are_read_and_written() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let mut client = server.client("holder");
    let files = made(&mut client);
    let before = replicas(&instance, 0);
    assert!(before > 2 && replicas(&instance, 1) > 2, "they are spread");
    assert!(pool_command(&instance, &["drain", "pool-0"]).contains("pool-0  draining, "));
    wait_for(&instance, |pool| pool["moves"]["files_waiting"].as_u64() == Some(before as u64));
    // They are open to write, and can be written.
    client.write(&files[5].handle, files[5].stateid, 0, StableHow4::FileSync, &bytes(5)).unwrap();
    for file in &files {
        client.close(file).unwrap();
    }
    let emptied = pool_command(&instance, &["drain", "pool-0", "--wait"]);
    assert!(emptied.ends_with("pool-0  drained, no file is left\n"), "{emptied}");
    assert_eq!(replicas(&instance, 0), 0);
    let moves = state(&instance)["moves"].clone();
    assert_eq!((&moves["files_left"], &moves["files_failed"]), (&0.into(), &0.into()));
    check(&mut client);
    let root = client.root().unwrap();
    let again = client.open(&root, "file-7", 3).unwrap();
    let layout = client.layout_get(&again.handle, again.stateid, LayoutIomode4::Rw).unwrap();
    assert_eq!(layout.device().0[..4], 1_u32.to_be_bytes(), "clients are sent to the other pool");
    client.close(&again).unwrap();
    let fsck = instance.run(&["fsck"]);
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
    server.kill();
    let server = instance.up();
    check(&mut server.client("holder"));
    wait_for(&instance, |pool| pool["moves"]["is_empty"].as_bool() == Some(true));
}

#[test]
fn a_server_that_is_killed_in_the_middle_goes_on_with_the_drain() {
    let (instance, mut server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let mut client = server.client("holder");
    for file in made(&mut client) {
        client.close(&file).unwrap();
    }
    drop(client);
    pool_command(&instance, &["drain", "pool-0"]);
    for pause_ms in [5, 30, 60] {
        std::thread::sleep(Duration::from_millis(pause_ms));
        server.kill();
        server = instance.up();
    }
    wait_for(&instance, |pool| pool["moves"]["is_empty"].as_bool() == Some(true));
    assert_eq!(replicas(&instance, 0), 0);
    check(&mut server.client("other"));
    server.kill();
    let fsck = instance.run(&["fsck"]);
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
}

#[test]
fn without_room_elsewhere_the_files_stay_and_are_told_and_an_enabled_pool_keeps_them() {
    let (instance, server) = Server::start();
    let mut client = server.client("holder");
    for file in made(&mut client) {
        client.close(&file).unwrap();
    }
    let stuck = instance.run(&["pool", "drain", "pool-0", "--wait"]);
    let told = String::from_utf8_lossy(&stuck.stdout).into_owned();
    assert_eq!(stuck.status.code(), Some(1), "{told}");
    assert!(told.contains("failed: 24 (/file-") && told.contains("no other pool has room for it"), "{told}");
    pool_command(&instance, &["enable", "pool-0"]);
    check(&mut client);
    assert_eq!(pool_command(&instance, &["list"]), "pool    state\npool-0  enabled\n");
}
