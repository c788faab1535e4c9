//! The database of names as a whole: moved to another engine and back, saved while it is used, put back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::postgres::Cluster;

use crate::server::{Instance, Server, until};

pub fn forebay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).output().unwrap()
}

/// Runs forebay, which must succeed, and returns its output.
pub fn done(arguments: &[&str]) -> String {
    let output = forebay(arguments);
    let (told, complained) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {told}{complained}");
    told
}

/// Runs forebay, which must fail, and returns the last line of its complaint.
pub fn refused(arguments: &[&str]) -> String {
    let output = forebay(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", text(&output.stdout));
    let complained = text(&output.stderr);
    complained.lines().last().unwrap().to_owned()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Where the next start looks for names; nothing: in the data directory.
pub fn set_database(instance: &Instance, url: Option<&str>) {
    let file = configuration(instance);
    let known = std::fs::read_to_string(&file).unwrap();
    let before = known.split("[namespace]").next().unwrap();
    let section = url.map(|url| format!("[namespace]\ndatabase = \"{url}\"\n"));
    std::fs::write(&file, format!("{before}{}", section.unwrap_or_default())).unwrap();
}

pub fn configuration(instance: &Instance) -> PathBuf {
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
    assert!(told.contains("the check found no problems"), "{told}");
    assert!(!told.contains(url.split('@').next().unwrap()), "a password is not told: {told}");
    set_database(&instance, Some(&url));
    let server = instance.up();
    assert_eq!(server.read("/one"), b"first");
    assert_eq!(server.put("/two", "second").status, 201);
    server.kill();
    assert_clean(&instance);
    let planned = done(&["namespace", "migrate", "--dry-run", "--at", &url]);
    assert!(planned.contains("nothing to do"), "{planned}");

    // The old database still exists: a copy does not overwrite it.
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
    assert!(saved.contains("the check found no problems"), "{saved}");
    assert!(refused(&["namespace", "backup", "--data", &data, "--to", &file]).contains("is not empty"));
    assert_eq!(server.put("/lost", &late).status, 201);
    assert_eq!(server.put("/kept", &late).status, 204);
    let seen = change_of(&server, "/kept");
    until("the replaced replica is gone", || instance.bytes_in_pool() == 2 * late.len() as u64);
    assert!(refused(&["namespace", "restore", "--from", &file, "--to", &data]).contains("stopped"));
    server.kill();
    assert!(refused(&["namespace", "restore", "--from", &file, "--to", &data]).contains("not empty"));
    std::fs::rename(instance.data().join("namespace"), instance.data().join("lost")).unwrap();
    done(&["namespace", "restore", "--from", &file, "--to", &data]);

    let mut server = instance.up();
    server.expect_errors(&["data of a file is missing", "find the data of the file"]);
    assert_eq!(server.status_of("GET", "/lost"), 404);
    // The name is again that of the file that was replaced, whose bytes are gone.
    assert_eq!(server.status_of("GET", "/kept"), 500);
    assert_eq!(server.put("/kept", "again").status, 204);
    assert_eq!(server.read("/kept"), b"again");
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
    until("the replaced replica is gone", || instance.bytes_in_pool() == 7);
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

#[test]
fn a_backup_that_is_interrupted_leaves_nothing() {
    interrupt_backup("TERM", false);
}

/// It died of the signal, and its file stayed.
#[test]
fn a_backup_whose_terminal_is_closed_leaves_nothing_unless_it_was_told_to_go_on() {
    interrupt_backup("HUP", false);
    interrupt_backup("HUP", true);
}

/// `outlives`: it was started by nohup, and so ends only with what it waits for.
fn interrupt_backup(signal: &str, outlives: bool) {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let (instance, server) = Server::start();
    server.kill();
    done(&["namespace", "copy", "--from", &shown(&instance.data()), "--to", &url]);
    let dir = tempfile::tempdir().unwrap();
    let (to, part) = (dir.path().join("saved"), dir.path().join("saved.part"));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let ends = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE datname = current_database() AND query LIKE '%pg_sleep%' AND pid != pg_backend_pid()";
    std::thread::scope(|scope| {
        let hold = "BEGIN; LOCK TABLE forebay.dentries; SELECT pg_sleep(600)";
        let holder = scope.spawn(|| cluster.query(&url, hold));
        let held = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                    AND wait_event = 'PgSleep'";
        until("the table is locked", || cluster.query(&url, held).unwrap().trim() == "1");
        let program = env!("CARGO_BIN_EXE_forebay");
        let mut command = if outlives { Command::new("nohup") } else { Command::new(program) };
        if outlives {
            command.arg(program);
        }
        let mut saving =
            command.args(["namespace", "backup", "--from", &url, "--to", &shown(&to)]).spawn().unwrap();
        until("it waits", || cluster.query(&url, waits).unwrap().trim() == "1");
        assert!(part.exists());
        let told = Command::new("kill").args(["-s", signal, &saving.id().to_string()]).status().unwrap();
        assert!(told.success());
        if !outlives {
            assert!(!saving.wait().unwrap().success());
        }
        cluster.query(&url, ends).unwrap();
        // It was ended.
        assert!(holder.join().unwrap().is_err());
        assert_eq!(saving.wait().unwrap().success(), outlives);
    });
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, if outlives { vec![to] } else { Vec::new() });
}
