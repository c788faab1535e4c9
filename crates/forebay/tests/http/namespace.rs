//! The database of names as a whole: moved to another engine and back, saved while it is used, put back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::postgres::Cluster;

use crate::server::{Instance, Server, until};

fn forebay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).output().unwrap()
}

/// What it printed.
fn done(arguments: &[&str]) -> String {
    let output = forebay(arguments);
    let (told, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {told}{complained}");
    told
}

/// What it complained of, in one line.
fn refused(arguments: &[&str]) -> String {
    let output = forebay(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
    let complained = text(&output.stderr);
    complained.lines().last().unwrap().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Where the next start looks for names; nothing: in the data directory.
fn set_database(instance: &Instance, url: Option<&str>) {
    let file = configuration(instance);
    let known = std::fs::read_to_string(&file).unwrap();
    let before = known.split("[namespace]").next().unwrap();
    let section = url.map(|url| format!("[namespace]\ndatabase = \"{url}\"\n"));
    std::fs::write(&file, format!("{before}{}", section.unwrap_or_default())).unwrap();
}

fn configuration(instance: &Instance) -> PathBuf {
    instance.data().parent().unwrap().join("forebay.toml")
}

fn assert_clean(instance: &Instance) {
    done(&["fsck", "--data", &shown(&instance.data()), "--config", &shown(&configuration(instance))]);
}

fn change_of(server: &Server, target: &str) -> String {
    server.call("HEAD", target).told("etag")
}

#[test]
fn a_namespace_moves_to_postgres_and_back_and_files_are_served_from_each() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let (instance, server) = Server::start();
    let data = shown(&instance.data());
    assert_eq!(server.put("/one", "first").status, 201);
    let running = refused(&["namespace", "copy", "--from", &data, "--to", &url]);
    assert!(running.contains("forebay namespace backup"), "{running}");
    server.kill();

    let told = done(&["namespace", "copy", "--from", &data, "--to", &url, "--switch", &data]);
    assert!(told.contains("the check finds nothing wrong"), "{told}");
    assert!(!told.contains(url.split('@').next().unwrap()), "a password is not told: {told}");
    set_database(&instance, Some(&url));
    let server = instance.up();
    assert_eq!(server.read("/one"), b"first");
    assert_eq!(server.put("/two", "second").status, 201);
    server.kill();
    assert_clean(&instance);
    let planned = done(&["namespace", "migrate", "--dry-run", "--at", &url]);
    assert!(planned.contains("nothing is to be done"), "{planned}");

    // What it was moved from is still there: it is not written over.
    let full = refused(&["namespace", "copy", "--from", &data, "--to", &url]);
    assert!(full.contains("give its URL with --from"), "{full}");
    done(&["namespace", "copy", "--from", &url, "--to", &data, "--switch", &data]);
    set_database(&instance, None);
    let server = instance.up();
    assert_eq!((server.read("/one"), server.read("/two")), (b"first".to_vec(), b"second".to_vec()));
    assert_eq!(server.put("/three", "third").status, 201);
    drop(server);
    assert_clean(&instance);
    assert!(instance.data().join("namespace.moved").exists());
}

#[test]
fn a_backup_of_a_running_instance_is_put_back_and_what_came_after_it_is_found_in_the_pool() {
    let (instance, server) = Server::start();
    let data = shown(&instance.data());
    let (early, late) = ("early".repeat(1000), "late".repeat(1000));
    assert_eq!(server.put("/kept", &early).status, 201);
    let file = shown(&instance.data().parent().unwrap().join("saved"));
    let saved = done(&["namespace", "backup", "--data", &data, "--to", &file]);
    assert!(saved.contains("the check finds nothing wrong"), "{saved}");
    assert!(refused(&["namespace", "backup", "--data", &data, "--to", &file]).contains("is not empty"));
    assert_eq!(server.put("/lost", &late).status, 201);
    assert_eq!(server.put("/kept", &late).status, 204);
    let seen = change_of(&server, "/kept");
    assert!(refused(&["namespace", "restore", "--from", &file, "--to", &data]).contains("stopped"));
    server.kill();
    assert!(refused(&["namespace", "restore", "--from", &file, "--to", &data]).contains("not empty"));
    std::fs::rename(instance.data().join("namespace"), instance.data().join("lost")).unwrap();
    done(&["namespace", "restore", "--from", &file, "--to", &data]);

    let server = instance.up();
    assert_eq!(server.status_of("GET", "/lost"), 404);
    assert_ne!(change_of(&server, "/kept"), seen);
    assert_eq!(server.put("/new", "new").status, 201);
    assert_eq!(server.read("/new"), b"new");
    drop(server);
    let checked = forebay(&["fsck", "--data", &data]);
    let problems = text(&checked.stdout);
    assert!(problems.contains("which the namespace does not place there"), "{problems}");
}

/// A ticket of a file whose permission was taken back after the backup must not be one that is refused for good.
#[test]
fn a_file_that_was_not_touched_since_the_backup_is_read_after_a_restore() {
    let (instance, server) = Server::start();
    let data = shown(&instance.data());
    assert_eq!(server.put("/file", "contents").status, 201);
    let file = shown(&instance.data().parent().unwrap().join("saved"));
    done(&["namespace", "backup", "--data", &data, "--to", &file]);
    server.kill();
    std::fs::remove_dir_all(instance.data().join("namespace")).unwrap();
    done(&["namespace", "restore", "--from", &file, "--to", &data]);
    let server = instance.up();
    assert_eq!(server.read("/file"), b"contents");
    assert_eq!(server.put("/file", "changed").status, 204);
    assert_eq!(server.read("/file"), b"changed");
    until("what was replaced is gone", || instance.bytes_in_pool() == 7);
    drop(server);
    assert_clean(&instance);
}

#[test]
fn a_namespace_is_not_copied_to_another_instance() {
    let (instance, server) = Server::start();
    let (other, another_server) = Server::start();
    server.kill();
    another_server.kill();
    std::fs::remove_dir_all(other.data().join("namespace")).unwrap();
    let (from, to) = (shown(&instance.data()), shown(&other.data()));
    let strange = refused(&["namespace", "copy", "--from", &from, "--to", &to]);
    assert!(strange.contains("another instance"), "{strange}");
    assert!(!other.data().join("namespace").exists());
}
