//! The database behind the pools is an older one than was there last: an older copy, another server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::postgres::Cluster;

use crate::namespace::{configuration, done, refused, set_database, shown};
use crate::server::{Instance, Server};

/// With what SQLite keeps beside it.
pub fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn put_back(copy: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap();
    copy_all(copy, to);
}

/// The complaint of `up` about an instance that it does not serve.
fn refused_up(instance: &Instance) -> String {
    let (data, file) = (shown(&instance.data()), shown(&configuration(instance)));
    let ports = ["--nfs-port", "0", "--http-port", "0", "--pool-port", "0"];
    refused(&[&["up", "--data", &data, "--config", &file][..], &ports].concat())
}

fn put_many(server: &Server, group: &str, count: usize) {
    for number in 0..count {
        let target = format!("/{group}-{number}");
        assert_eq!(server.put(&target, &target).status, 201);
    }
}

fn require_many(server: &Server, group: &str, count: usize) {
    for number in 0..count {
        let target = format!("/{group}-{number}");
        assert_eq!(server.read(&target), target.as_bytes());
    }
}

fn replicas(instance: &Instance) -> BTreeMap<PathBuf, Vec<u8>> {
    instance.replicas().into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// All earlier replicas are unchanged, since no id was given twice; `more` were added.
fn require_untouched(instance: &Instance, before: &BTreeMap<PathBuf, Vec<u8>>, more: usize) {
    let after = replicas(instance);
    assert!(before.iter().all(|(path, bytes)| after.get(path) == Some(bytes)));
    assert_eq!(after.len(), before.len() + more);
}

/// An instance with five files that its namespace was copied with and forty that came since, and now the copy is there; and
/// where its data are.
fn set_back() -> (Instance, String) {
    let (instance, server) = Server::start();
    let (data, namespace) = (shown(&instance.data()), instance.data().join("namespace"));
    let copy = instance.data().parent().unwrap().join("copy");
    put_many(&server, "kept", 5);
    server.kill();
    copy_all(&namespace, &copy);
    let server = instance.up();
    put_many(&server, "lost", 40);
    server.kill();
    put_back(&copy, &namespace);
    (instance, data)
}

#[test]
fn a_copy_of_the_namespace_that_is_put_back_is_refused_until_it_is_restored() {
    let (instance, data) = set_back();

    let told = refused(&["fsck", "--data", &data]);
    assert!(told.contains("is behind"), "{told}");
    let told = refused_up(&instance);
    assert!(told.contains("is behind") && told.contains("forebay namespace restore"), "{told}");

    // Also by what a pool knows, if the data directory's own note is lost.
    fs::remove_file(instance.data().join("timeline.json")).unwrap();
    let told = refused_up(&instance);
    assert!(told.contains("is behind pool-0"), "{told}");

    let before = replicas(&instance);
    done(&["namespace", "restore", "--in-place", "--to", &data]);
    let server = instance.up();
    put_many(&server, "new", 50);
    require_many(&server, "kept", 5);
    require_many(&server, "new", 50);
    assert_eq!(server.status_of("GET", "/lost-0"), 404);
    server.kill();
    require_untouched(&instance, &before, 50);
    drop(instance.up());
}

/// They opened whatever was there, and a namespace that was just restored was refused afterwards.
#[test]
fn a_command_on_a_stopped_instance_takes_a_database_as_a_start_does() {
    let (instance, data) = set_back();

    let set = ["quota", "set", "--data", &data, "--user", "7", "--files-hard", "9"];
    let commands: [&[&str]; 4] = [
        &["quota", "list", "--data", &data],
        &set,
        &["du", "--data", &data, "/"],
        &["dir", "show", "--data", &data, "/"],
    ];
    for command in commands {
        let told = refused(command);
        assert!(
            told.contains("is behind") && told.contains("forebay namespace restore"),
            "{command:?}: {told}"
        );
    }
    done(&["namespace", "restore", "--in-place", "--to", &data]);
    for command in commands {
        done(command);
    }
    let server = instance.up();
    require_many(&server, "kept", 5);
    server.kill();
    drop(instance.up());
}

/// It took up what was restored, and the next start found fewer groups than the data directory knew of.
#[test]
fn a_restored_namespace_is_served_though_its_first_start_came_to_nothing() {
    let (instance, data) = set_back();
    done(&["namespace", "restore", "--in-place", "--to", &data]);
    let (pool, away) = (instance.data().join("pools/pool-0"), instance.data().join("away"));
    fs::rename(&pool, &away).unwrap();
    let told = refused_up(&instance);
    assert!(told.contains("is its disk mounted"), "{told}");
    fs::rename(&away, &pool).unwrap();
    let server = instance.up();
    require_many(&server, "kept", 5);
}

/// A copy of the namespace of a running server, and the groups of changes that it has.
fn backup(instance: &Instance) -> (PathBuf, i64) {
    let (copy, saved) = (instance.path("copy"), instance.path("saved"));
    done(&["namespace", "backup", "--data", &shown(&instance.data()), "--to", &shown(&saved)]);
    fs::create_dir(&copy).unwrap();
    fs::copy(&saved, copy.join("namespace.db")).unwrap();
    let database = rusqlite::Connection::open(&saved).unwrap();
    let groups = database.query_row("SELECT groups FROM progress", [], |row| row.get(0)).unwrap();
    (copy, groups)
}

/// The groups of changes that the data directory knows of.
fn noted_groups(instance: &Instance) -> i64 {
    let note = fs::read(instance.data().join("timeline.json")).unwrap();
    let note: serde_json::Value = serde_json::from_slice(&note).unwrap();
    note["groups"].as_i64().unwrap()
}

/// Taken and put back within one start: the number of changes tells them apart.
#[test]
fn a_copy_from_the_same_start_is_refused_and_no_id_comes_twice() {
    let (instance, server) = Server::start();
    let from = shown(&instance.data());
    put_many(&server, "kept", 5);
    let (copy, _) = backup(&instance);
    put_many(&server, "lost", 2_000);
    server.kill();
    let before = replicas(&instance);
    put_back(&copy, &instance.data().join("namespace"));
    let told = refused(&["fsck", "--data", &from]);
    assert!(told.contains("groups of changes"), "{told}");
    done(&["namespace", "restore", "--in-place", "--to", &from]);
    let server = instance.up();
    put_many(&server, "new", 100);
    require_many(&server, "new", 100);
    server.kill();
    require_untouched(&instance, &before, 100);
}

/// They are noted once a second. Where that comes between the changes and the kill, the copy lacks what was noted.
#[test]
fn a_copy_that_lacks_only_changes_that_were_not_noted_yet_is_opened_without_these() {
    for _ in 0..10 {
        let (instance, server) = Server::start();
        put_many(&server, "kept", 5);
        let (copy, groups) = backup(&instance);
        put_many(&server, "lost", 3);
        server.kill();
        if noted_groups(&instance) > groups {
            continue;
        }
        put_back(&copy, &instance.data().join("namespace"));
        let server = instance.up();
        require_many(&server, "kept", 5);
        for number in 0..3 {
            assert_eq!(server.status_of("GET", &format!("/lost-{number}")), 404);
        }
        put_many(&server, "new", 5);
        require_many(&server, "new", 5);
        return;
    }
    panic!("changes are noted as soon as they are made");
}

#[test]
fn an_older_dump_that_is_put_back_is_refused_until_it_is_taken_in_place() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let instance = Instance::new("");
    set_database(&instance, Some(&url));
    let server = instance.up();
    put_many(&server, "kept", 5);
    cluster.dump(&url, "older.dump").unwrap();
    put_many(&server, "lost", 20);
    server.stop();
    cluster.restore(&url, "older.dump").unwrap();
    let told = refused_up(&instance);
    assert!(told.contains("is behind") && told.contains("forebay namespace restore"), "{told}");
    let before = replicas(&instance);
    done(&["namespace", "restore", "--in-place", "--to", &url]);
    let server = instance.up();
    put_many(&server, "new", 30);
    require_many(&server, "kept", 5);
    require_many(&server, "new", 30);
    assert_eq!(server.status_of("GET", "/lost-0"), 404);
    server.kill();
    require_untouched(&instance, &before, 30);
}

fn url_of_both(url: &str, one: &Cluster, other: &Cluster) -> String {
    let (start, host) = url.split_once('@').unwrap();
    let (_, database) = host.split_once('/').unwrap();
    format!("{start}@127.0.0.1:{},127.0.0.1:{}/{database}", one.port(), other.port())
}

#[test]
fn an_old_primary_that_is_back_and_an_older_server_are_refused_until_they_are_restored() {
    let Some(mut primary) = testkit::postgres::unless_missing(Cluster::start()) else { return };
    let url = primary.create_database().unwrap();
    let mut standby = primary.standby().unwrap();
    let both = url_of_both(&url, &primary, &standby);
    let instance = Instance::new("");
    set_database(&instance, Some(&both));
    let server = instance.up();
    put_many(&server, "kept", 5);
    server.kill();
    let sent = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn = pg_current_wal_lsn()";
    crate::server::until("the standby has it", || primary.query(&url, sent).unwrap().trim() == "1");
    primary.kill_9().unwrap();
    standby.promote().unwrap();
    let server = instance.up();
    put_many(&server, "lost", 40);
    server.kill();

    standby.stop().unwrap();
    primary.start_again().unwrap();
    let data = shown(&instance.data());
    let told = refused(&["fsck", "--data", &data, "--namespace", &both]);
    assert!(told.contains("is behind"), "{told}");
    let told = refused_up(&instance);
    assert!(told.contains("is behind") && told.contains("forebay namespace restore"), "{told}");
    let before = replicas(&instance);
    done(&["namespace", "restore", "--in-place", "--to", &both]);
    let server = instance.up();
    put_many(&server, "new", 50);
    require_many(&server, "kept", 5);
    require_many(&server, "new", 50);
    server.kill();
    require_untouched(&instance, &before, 50);

    // And now the one that was taken for the newer before.
    primary.stop().unwrap();
    standby.start_again().unwrap();
    let told = refused_up(&instance);
    assert!(told.contains("is behind") && told.contains("forebay namespace restore"), "{told}");
    done(&["namespace", "restore", "--in-place", "--to", &both]);
    // It looks before it opens anything, which would be taken for the first start after the restore.
    let told = refused(&["namespace", "rebuild", "--data", &data, "--namespace", &both]);
    assert!(told.contains("has a namespace of"), "{told}");
    require_many(&instance.up(), "kept", 5);
}
