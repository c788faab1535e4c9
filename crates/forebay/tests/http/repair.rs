//! `forebay fsck --repair` on an instance whose namespace and pools have come apart.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::server::{Instance, Server};

fn fsck(instance: &Instance, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("fsck").args(options).arg("--data").arg(instance.data());
    command.stdin(Stdio::null()).output().expect("run forebay")
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn assert_clean(instance: &Instance) {
    let output = fsck(instance, &[]);
    assert!(output.status.success(), "{}", told(&output));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// An instance whose namespace was put back to before `/late` was written; and the replica's name.
fn put_back() -> (Instance, String) {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/early", "early").status, 201);
    server.kill();
    let (names, kept) = (instance.data().join("namespace"), instance.data().join("kept"));
    copy(&names, &kept);
    let server = instance.up();
    assert_eq!(server.put("/late", "this came late").status, 201);
    server.kill();
    std::fs::remove_dir_all(&names).unwrap();
    std::fs::rename(&kept, &names).unwrap();
    let late = instance.replicas().swap_remove(0);
    (instance, late.file_name().unwrap().to_str().unwrap().to_owned())
}

#[test]
fn replicas_that_a_restored_namespace_does_not_know_come_back_in_lost_and_found() {
    let (instance, late) = put_back();
    let output = fsck(&instance, &[]);
    assert!(!output.status.success() && told(&output).contains("does not place there"), "{}", told(&output));
    let output = fsck(&instance, &["--repair", "--yes"]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(told(&output).contains("1 replicas of no file"), "{}", told(&output));
    let log = std::fs::read_to_string(instance.data().join("fsck.log")).unwrap();
    assert!(log.contains(&format!("it is /lost+found/pool-0/{late}")), "{log}");
    assert_clean(&instance);
    let server = instance.up();
    assert_eq!(server.read(&format!("/lost+found/pool-0/{late}")), b"this came late");
    assert_eq!(server.read("/early"), b"early");
    assert_eq!(server.put("/new", "new").status, 201);
    assert_eq!(server.read("/new"), b"new");
}

#[test]
fn replicas_of_no_file_are_deleted_only_where_that_was_asked_for() {
    let (instance, _) = put_back();
    let output = fsck(&instance, &["--repair", "--yes", "--delete-unknown-replicas"]);
    assert!(output.status.success(), "{}", told(&output));
    assert_eq!(instance.replicas().len(), 1);
    let log = std::fs::read_to_string(instance.data().join("fsck.log")).unwrap();
    assert!(log.contains("14 bytes") && log.contains("deleted"), "{log}");
}

#[test]
fn what_no_pool_has_any_more_is_given_up_only_where_that_was_asked_for() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/gone", [1; 3000]).status, 201);
    assert_eq!(server.put("/cut", [2; 2000]).status, 201);
    assert_eq!(server.put("/whole", [3; 1000]).status, 201);
    server.kill();
    let replicas = instance.replicas();
    std::fs::remove_file(&replicas[0]).unwrap();
    std::fs::File::options().write(true).open(&replicas[1]).unwrap().set_len(700).unwrap();
    let output = fsck(&instance, &["--repair", "--yes"]);
    assert!(!output.status.success(), "{}", told(&output));
    for left in
        ["has 3000 bytes, and pool-0 has no replica", "has 2000 bytes, its replica on pool-0 only 700"]
    {
        assert!(told(&output).contains(left), "{}", told(&output));
    }
    let output = fsck(&instance, &["--repair", "--yes", "--give-up-lost-data"]);
    assert!(output.status.success(), "{}", told(&output));
    let server = instance.up();
    assert_eq!(server.read("/gone"), b"");
    assert_eq!(server.read("/cut"), [2; 700]);
    assert_eq!(server.read("/whole"), [3; 1000]);
}

#[test]
fn a_running_instance_is_not_repaired_and_nobody_is_taken_for_yes() {
    let (instance, server) = Server::start();
    let output = fsck(&instance, &["--repair", "--yes"]);
    assert!(!output.status.success() && told(&output).contains("stop that forebay"), "{}", told(&output));
    server.kill();
    let output = fsck(&instance, &["--repair"]);
    assert!(!output.status.success() && told(&output).contains("with --yes"), "{}", told(&output));
    let output = fsck(&instance, &["--repair", "--yes"]);
    assert!(output.status.success(), "{}", told(&output));
}

/// A file that bears no label of a pool lies where a replica should.
#[test]
fn a_replica_that_cannot_be_looked_at_is_told_and_does_not_end_the_check() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/damaged", [1; 3000]).status, 201);
    assert_eq!(server.put("/cut", [2; 2000]).status, 201);
    server.kill();
    let replicas = instance.replicas();
    std::fs::remove_file(&replicas[0]).unwrap();
    std::fs::write(&replicas[0], [9; 3000]).unwrap();
    std::fs::File::options().write(true).open(&replicas[1]).unwrap().set_len(700).unwrap();
    let output = fsck(&instance, &["--repair", "--yes", "--give-up-lost-data"]);
    assert!(told(&output).contains("looked at again"), "{}", told(&output));
    let server = instance.up();
    assert_eq!(server.read("/cut"), [2; 700]);
    server.kill();
    assert_eq!(std::fs::read(&replicas[0]).unwrap(), [9; 3000]);
}
