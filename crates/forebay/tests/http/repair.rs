//! `forebay fsck --repair` on an instance whose namespace and pools have come apart.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use nfs4::{LayoutIomode4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, StableHow4};
use serde_json::{Value, json};
use testkit::nfs_client::NfsClient;
use testkit::postgres::Cluster;

use crate::adopt::import;
use crate::dav::hrefs;
use crate::server::{Instance, Server, WITHOUT_JOURNAL, status_of};
use crate::set_back::copy_all;

pub fn fsck(instance: &Instance, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.arg("fsck").args(options).arg("--data").arg(instance.data());
    command.stdin(Stdio::null()).output().expect("run forebay")
}

pub fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn assert_clean(instance: &Instance) {
    let output = fsck(instance, &[]);
    assert!(output.status.success(), "{}", told(&output));
}

/// An instance whose namespace was put back to before `/late` was written; and the replica's name.
fn put_back() -> (Instance, String) {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/early", "early").status, 201);
    server.kill();
    let (names, kept) = (instance.data().join("namespace"), instance.data().join("kept"));
    copy_all(&names, &kept);
    let server = instance.up();
    assert_eq!(server.put("/late", "this came late").status, 201);
    server.kill();
    std::fs::remove_dir_all(&names).unwrap();
    std::fs::rename(&kept, &names).unwrap();
    // An older one is refused until somebody takes it.
    crate::namespace::done(&[
        "namespace",
        "restore",
        "--in-place",
        "--to",
        &instance.data().display().to_string(),
    ]);
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
    assert!(told(&output).contains("replicas of no file: 1"), "{}", told(&output));
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
fn data_that_no_pool_has_any_more_is_given_up_only_with_the_option_for_it() {
    let (instance, server) = Server::start_with(WITHOUT_JOURNAL);
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

/// The status of READ through the head, and at the pool with a layout's ticket.
fn nfs_reads(client: &mut NfsClient, name: &str) -> [NfsStat4; 2] {
    let root = client.root().unwrap();
    let file = client.open(&root, name, OPEN4_SHARE_ACCESS_READ).unwrap();
    let at_head = status_of(client.read(&file.handle, file.stateid, 0, 10_000));
    let layout = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Read).unwrap();
    let mut pool = client.data_server(&layout).unwrap();
    let at_pool = status_of(pool.read(layout.ticket(), layout.data_server().stateid, 0, 10_000));
    client.close(&file).unwrap();
    [at_head, at_pool]
}

/// Closed as it should be, so that the pool's index is believed.
#[test]
fn lost_and_shortened_replicas_are_errors_to_readers_and_problems_to_fsck() {
    let (instance, server) = Server::start();
    let lost = [("/gone", 3000), ("/cut", 2000), ("/link", 1800), ("/fifo", 1700)];
    for (path, length) in lost {
        assert_eq!(server.put(path, vec![1; length]).status, 201);
    }
    assert_eq!(server.put("/whole", [3; 1000]).status, 201);
    server.stop();
    let replicas = instance.replicas();
    std::fs::remove_file(&replicas[0]).unwrap();
    std::fs::File::options().write(true).open(&replicas[1]).unwrap().set_len(700).unwrap();
    let elsewhere = instance.data().join("elsewhere");
    std::fs::rename(&replicas[2], &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &replicas[2]).unwrap();
    std::fs::remove_file(&replicas[3]).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &replicas[3], rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let assert_found = || {
        let output = fsck(&instance, &[]);
        assert!(!output.status.success(), "{}", told(&output));
        for problem in [
            "has 3000 bytes, and pool-0 has no replica",
            "has 2000 bytes, its replica on pool-0 only 700",
            "has 1800 bytes, and pool-0 has no replica",
            "has 1700 bytes, and pool-0 has no replica",
        ] {
            assert!(told(&output).contains(problem), "{}", told(&output));
        }
    };
    assert_found();
    let mut server = instance.up();
    server.expect_errors(&[
        "data of a file is missing",
        "find the data of the file",
        "replica is not what its name says",
        "open a replica",
    ]);
    let mut client = server.nfs("host");
    for (path, _) in lost {
        assert_eq!(server.status_of("GET", path), 500, "{path}");
        let copy = server.send(&server.ask("COPY", path).with("Destination", server.url("/copy")));
        assert!(copy.status >= 400, "{copy:?}");
        let digest = server.send(&server.ask("HEAD", path).with("Want-Digest", "sha-256"));
        assert_eq!(digest.header("digest"), None, "{digest:?}");
        assert_eq!(nfs_reads(&mut client, &path[1..]), [NfsStat4::Io; 2], "{path}");
    }
    assert_eq!(server.read("/whole"), [3; 1000]);
    assert_eq!(nfs_reads(&mut client, "whole"), [NfsStat4::Ok; 2]);
    assert_found();
    for (path, _) in lost {
        assert_eq!(server.put(path, "anew").status, 204);
        assert_eq!(server.read(path), b"anew");
    }
}

/// The pool answers reads of them from what it has open.
#[test]
fn replicas_that_lose_their_names_while_they_are_open_are_problems_to_fsck_of_a_running_server() {
    let (instance, mut server) = Server::start();
    server.expect_errors(&["data of a file is missing", "find the data of the file"]);
    for (path, length) in [("/gone", 3000), ("/other", 2000), ("/link", 1800), ("/moved", 1700)] {
        assert_eq!(server.put(path, vec![1; length]).status, 201);
    }
    let output = fsck(&instance, &[]);
    assert!(output.status.success(), "{}", told(&output));
    let replicas = instance.replicas();
    std::fs::remove_file(&replicas[0]).unwrap();
    let beside = instance.data().join("beside");
    std::fs::write(&beside, [2; 5000]).unwrap();
    std::fs::rename(&beside, &replicas[1]).unwrap();
    std::os::unix::fs::symlink(&replicas[0], &beside).unwrap();
    std::fs::rename(&beside, &replicas[2]).unwrap();
    std::fs::rename(&replicas[3], &beside).unwrap();
    let output = fsck(&instance, &[]);
    assert!(!output.status.success(), "{}", told(&output));
    for length in [3000, 2000, 1800, 1700] {
        let problem = format!("has {length} bytes, and pool-0 has no replica");
        assert!(told(&output).contains(&problem), "{}", told(&output));
    }
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.open(&root, "gone", OPEN4_SHARE_ACCESS_BOTH).unwrap();
    let written = client.write(&file.handle, file.stateid, 10, StableHow4::FileSync, b"to nowhere");
    assert_eq!(status_of(written), NfsStat4::Io);
}

/// As where a database was put back and nothing else has noticed.
fn label_as_of_another_birth(path: &Path) {
    let mut value = [0; 128];
    let length = rustix::fs::getxattr(path, "user.forebay.id", &mut value[..]).unwrap();
    let label = std::str::from_utf8(&value[..length]).unwrap();
    let (all, birth) = label.rsplit_once(' ').unwrap();
    let birth = u64::from_str_radix(birth, 16).unwrap();
    assert!(birth > 1_700_000_000, "{label}");
    let label = format!("{all} {:x}", birth - 5);
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(path, "user.forebay.id", label.as_bytes(), flags).unwrap();
}

#[test]
fn a_replica_of_another_birth_is_an_error_to_readers_and_a_problem_to_fsck() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/other", [1; 3000]).status, 201);
    assert_eq!(server.put("/own", [2; 2000]).status, 201);
    server.stop();
    let path = &instance.replicas()[0];
    label_as_of_another_birth(path);
    let output = fsck(&instance, &[]);
    assert!(
        !output.status.success() && told(&output).contains("is that of another file"),
        "{}",
        told(&output)
    );
    let mut server = instance.up();
    server.expect_errors(&["data of a file is missing", "find the data of the file"]);
    assert_eq!(server.status_of("GET", "/other"), 500);
    assert_eq!(server.read("/own"), [2; 2000]);
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.open(&root, "other", nfs4::OPEN4_SHARE_ACCESS_BOTH).unwrap();
    let is_error = |status| assert_eq!(status, nfs4::NfsStat4::Io);
    is_error(status_of(client.read(&file.handle, file.stateid, 0, 8)));
    is_error(status_of(client.write(&file.handle, file.stateid, 0, nfs4::StableHow4::FileSync, &[9; 3000])));
    for size in [0, 5, 9000] {
        is_error(status_of(client.set_size(&file.handle, file.stateid, size)));
    }
    is_error(status_of(client.layout_commit(&file.handle, file.stateid, None)));
    assert_eq!(std::fs::read(path).unwrap(), [1; 3000], "they are somebody's");
    assert_eq!(server.put("/other", "anew").status, 204);
    assert_eq!(server.read("/other"), b"anew");
}

/// Contents of the files of the pool in `/lost+found`.
fn set_aside(server: &Server) -> Vec<Vec<u8>> {
    let listed = server.send(&server.ask("PROPFIND", "/lost+found/pool-0").with("Depth", 1));
    hrefs(&listed).iter().filter(|href| !href.ends_with('/')).map(|href| server.read(href)).collect()
}

/// It was left, and the check never became clean again.
#[test]
fn a_replica_of_another_birth_goes_to_lost_and_found_and_its_file_stays_an_error() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/other", [1; 3000]).status, 201);
    assert_eq!(server.put("/own", [2; 2000]).status, 201);
    server.stop();
    label_as_of_another_birth(&instance.replicas()[0]);
    let output = fsck(&instance, &["--repair", "--yes", "--delete-unknown-replicas"]);
    let left = told(&output);
    assert!(!output.status.success() && left.contains(": 1 problem\n"), "{left}");
    assert!(left.contains("has 3000 bytes, and pool-0 has no replica"), "{left}");
    let errors = &["data of a file is missing", "find the data of the file"];
    let mut server = instance.up();
    server.expect_errors(errors);
    assert_eq!(server.status_of("GET", "/other"), 500);
    assert_eq!(server.read("/own"), [2; 2000]);
    assert_eq!(set_aside(&server), [vec![1; 3000]]);
    server.kill();
    let output = fsck(&instance, &["--repair", "--yes", "--give-up-lost-data"]);
    assert!(output.status.success(), "{}", told(&output));
    let mut server = instance.up();
    server.expect_errors(errors);
    assert_eq!((server.read("/other"), set_aside(&server)), (vec![], vec![vec![1; 3000]]));
}

/// They were told as what cannot be looked at, and left.
#[test]
fn exchanged_replicas_go_where_they_belong_and_copies_to_lost_and_found() {
    let (instance, server) = Server::start();
    for (path, length) in [("/one", 3000), ("/other", 2000), ("/copied", 1500), ("/under", 1000)] {
        assert_eq!(server.put(path, vec![7; length]).status, 201);
    }
    server.stop();
    let replicas = instance.replicas();
    let away = instance.data().join("away");
    std::fs::rename(&replicas[0], &away).unwrap();
    std::fs::rename(&replicas[1], &replicas[0]).unwrap();
    std::fs::rename(&away, &replicas[1]).unwrap();
    let mut copying = Command::new("cp");
    copying.arg("--preserve=all").args(&replicas[2..]);
    assert!(copying.status().unwrap().success());
    let output = fsck(&instance, &[]);
    assert!(told(&output).matches("lies the replica of").count() == 3, "{}", told(&output));
    let output = fsck(&instance, &["--repair", "--yes"]);
    let left = told(&output);
    assert!(left.contains(": 1 problem\n") && left.contains("has 1000 bytes, and pool-0 has no"), "{left}");
    let mut server = instance.up();
    server.expect_errors(&["data of a file is missing", "find the data of the file"]);
    for (path, length) in [("/one", 3000), ("/other", 2000), ("/copied", 1500)] {
        assert_eq!(server.read(path), vec![7; length]);
    }
    assert_eq!(server.status_of("GET", "/under"), 500);
    assert_eq!(set_aside(&server), [vec![7; 1500]]);
}

/// The output of `fsck` with these options, and the lines of the list that it writes.
fn listed(instance: &Instance, options: &[&str]) -> (String, Vec<String>) {
    let list = instance.data().with_file_name("list of problems");
    let output = fsck(instance, &[&["--list", list.to_str().unwrap()], options].concat());
    assert!(!output.status.success(), "{}", told(&output));
    let lines = std::fs::read_to_string(&list).unwrap().lines().map(str::to_owned).collect();
    std::fs::remove_file(list).unwrap();
    (String::from_utf8(output.stdout).unwrap(), lines)
}

/// A disk that was lost had more files than the check told, and their names had to be searched by a walk over a mount.
fn assert_list_has_all(instance: &Instance, files: &[String]) {
    let list = instance.data().with_file_name("list of problems");
    let (text, mut lines) = listed(instance, &[]);
    let path = |line: &String| line.split_once("lies on no pool: ").expect(line).1.to_owned();
    lines.sort_unstable_by_key(path);
    assert!(lines[0].starts_with("problem: file 00"), "{}", lines[0]);
    assert_eq!(lines.iter().map(path).collect::<Vec<_>>(), files);
    let (shown, last) = text.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(shown.matches("problem: file").count(), 1000);
    assert!(shown.ends_with("\nand 501 more problems"), "{shown}");
    assert!(last.ends_with(&format!("1501 problems; the whole list is in {}", list.display())), "{last}");

    let (text, lines) = listed(instance, &["--json"]);
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let mut objects: Vec<Value> = lines.iter().map(|line| parsed(line)).collect();
    objects.sort_unstable_by_key(|found| found["path"].to_string());
    assert_eq!(objects.iter().map(|found| found["path"].as_str().unwrap()).collect::<Vec<_>>(), files);
    let first = &objects[0];
    let problem = format!("file {} has 4 bytes and lies on no pool", first["file"].as_str().unwrap());
    assert_eq!(first["problem"], problem);
    let report = parsed(&text);
    assert_eq!((&report["problems_found"], &report["list"]), (&json!(1501), &json!(list)));
    assert_eq!(report["problems"].as_array().unwrap().len(), 1000);

    let output = fsck(instance, &[]);
    let end = "1501 problems; `forebay fsck --list FILE` writes the whole list to FILE\n";
    assert!(told(&output).ends_with(end), "{}", told(&output));
}

#[test]
fn a_list_has_every_problem_with_its_path_on_a_stopped_and_on_a_running_instance() {
    let instance = Instance::new("");
    let tree = instance.data().with_file_name("tree");
    std::fs::create_dir_all(tree.join("run 7")).unwrap();
    let mut files: Vec<String> = (0..1500).map(|number| format!("/run 7/{number:04}")).collect();
    for file in &files {
        std::fs::write(tree.join(&file[1..]), "data").unwrap();
    }
    std::fs::write(tree.join(OsStr::from_bytes(b"run 7/odd\n\xff")), "data").unwrap();
    files.push(r"/run 7/odd\x0a\xff".to_owned());
    assert!(import(&instance, &tree).status.success());
    assert_list_has_all(&instance, &files);
    let server = instance.up();
    assert_list_has_all(&instance, &files);
    drop(server);
}

#[test]
fn a_running_instance_is_not_repaired_and_nobody_is_taken_for_yes() {
    let (instance, server) = Server::start();
    let output = fsck(&instance, &["--repair", "--yes"]);
    assert!(
        !output.status.success() && told(&output).contains("in use by a running server"),
        "{}",
        told(&output)
    );
    server.kill();
    let output = fsck(&instance, &["--repair"]);
    assert!(!output.status.success() && told(&output).contains("add --yes"), "{}", told(&output));
    let output = fsck(&instance, &["--repair", "--yes"]);
    assert!(output.status.success(), "{}", told(&output));
}

/// A file that bears no label of a pool lies where a replica should.
#[test]
fn a_replica_that_cannot_be_looked_at_is_told_and_does_not_end_the_check() {
    let (instance, server) = Server::start_with(WITHOUT_JOURNAL);
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

/// SQL on the namespace of a stopped instance, past everything.
fn damage(instance: &Instance, sql: &str) {
    let database = rusqlite::Connection::open(instance.data().join("namespace/namespace.db")).unwrap();
    database.execute_batch(sql).unwrap();
}

/// A row that became another kind's, beside another problem. `options`: where the database is, of which `damage` is.
fn assert_changed_kinds_are_told_and_mended(instance: &Instance, options: &[&str], damage: impl Fn(&str)) {
    for (kind, name) in [(1, "directory"), (2, "symbolic link"), (5, "FIFO")] {
        let server = instance.up();
        assert_eq!(server.put(&format!("/changed-{kind}"), [kind; 3000]).status, 201);
        assert_eq!(server.put(&format!("/other-{kind}"), [2; 2000]).status, 201);
        server.stop();
        damage(&format!(
            "UPDATE inodes SET kind = {kind} WHERE id = (SELECT max(id) FROM inodes WHERE kind = 0 AND size = 3000); \
             UPDATE inodes SET nlink = 7 WHERE size = 2000"
        ));
        let output = fsck(instance, options);
        for problem in [&format!("which is a {name}"), "has link count 7", "is no regular file"] {
            assert!(told(&output).contains(problem), "{problem}: {}", told(&output));
        }
        let output = fsck(instance, &[options, &["--repair", "--yes"]].concat());
        assert!(output.status.success(), "{}", told(&output));
        let log = std::fs::read_to_string(instance.data().join("fsck.log")).unwrap();
        let (_, made) = log.rsplit_once("it is /lost+found/pool-0/").expect("its data are kept");
        let path = format!("/lost+found/pool-0/{}", made.split('"').next().unwrap());
        let server = instance.up();
        assert_eq!(server.read(&path), [kind; 3000]);
        assert_eq!(server.put("/new", [kind; 10]).status / 100, 2);
        server.stop();
    }
}

#[test]
fn a_row_that_is_not_what_its_replica_says_is_told_and_mended_and_does_not_end_the_check() {
    let (instance, server) = Server::start();
    server.stop();
    assert_changed_kinds_are_told_and_mended(&instance, &[], |sql| damage(&instance, sql));
}

#[test]
fn a_row_on_postgresql_that_is_not_what_its_replica_says_is_told_and_mended() {
    let Some(cluster) = Cluster::shared() else { return };
    let url = cluster.create_database().unwrap();
    let instance = Instance::new(&format!("[namespace]\ndatabase = \"{url}\"\n"));
    let damage = |sql: &str| _ = cluster.query(&url, &format!("SET search_path = forebay; {sql}")).unwrap();
    assert_changed_kinds_are_told_and_mended(&instance, &["--namespace", &url], damage);
}

#[test]
fn replicas_of_what_is_no_file_are_deleted_only_where_that_was_asked_for() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/changed", [1; 3000]).status, 201);
    server.stop();
    damage(&instance, "UPDATE inodes SET kind = 1 WHERE size = 3000");
    let output = fsck(&instance, &["--repair", "--yes", "--delete-unknown-replicas"]);
    assert!(output.status.success(), "{}", told(&output));
    assert!(instance.replicas().is_empty());
}

#[test]
fn a_replica_of_another_birth_is_not_noted_as_that_of_a_file_that_lies_nowhere() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", [1; 3000]).status, 201);
    server.stop();
    label_as_of_another_birth(&instance.replicas()[0]);
    damage(&instance, "DELETE FROM locations");
    let output = fsck(&instance, &["--repair", "--yes", "--delete-unknown-replicas"]);
    assert!(told(&output).contains("has 3000 bytes and lies on no pool"), "{}", told(&output));
    let mut server = instance.up();
    server.expect_errors(&["file has no good replica"]);
    assert_eq!(server.status_of("GET", "/file"), 500);
    assert_eq!(set_aside(&server), [[1; 3000]]);
}

#[test]
fn the_check_reads_the_pools_files_and_not_their_index() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/orphan", [1; 3000]).status, 201);
    assert_eq!(server.put("/broken", [2; 2000]).status, 201);
    server.stop();
    damage(
        &instance,
        "DELETE FROM locations; INSERT INTO locations (inode, pool) SELECT id, 0 FROM inodes WHERE size = 2000",
    );
    let index = rusqlite::Connection::open(instance.data().join("pools/pool-0/index.db")).unwrap();
    index.execute_batch("DELETE FROM replicas").unwrap();
    drop(index);
    let flags = rustix::fs::XattrFlags::empty();
    let state = "user.forebay.state";
    rustix::fs::setxattr(&instance.replicas()[1], state, b"broken-writeback", flags).unwrap();
    let output = fsck(&instance, &[]);
    for line in
        ["problem: pool-0 has a replica of", "remark: pool-0: the replica of", "2 replicas: 3 problems"]
    {
        assert!(told(&output).contains(line), "{line}: {}", told(&output));
    }
}

/// As after damage to the pool's file system.
#[test]
fn replicas_in_a_damaged_directory_are_told_and_do_not_end_the_check() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/damaged", [1; 3000]).status, 201);
    let above = instance.replicas()[0].parent().unwrap().to_owned();
    std::fs::rename(&above, above.with_file_name("damaged")).unwrap();
    std::fs::write(&above, "").unwrap();
    let assert_told = |options: &[&str]| {
        let output = fsck(&instance, options);
        assert!(!output.status.success() && told(&output).contains("looked at again"), "{}", told(&output));
    };
    assert_told(&[]);
    server.kill();
    assert_told(&["--repair", "--yes"]);
}
