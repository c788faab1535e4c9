//! `forebay namespace rebuild`: the names are lost, and come back from the pools.

use std::process::Command;

use crate::server::{Instance, Server, status_of, until};

fn rebuild(instance: &Instance) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let ended = command.args(["namespace", "rebuild", "--data"]).arg(instance.data()).output().unwrap();
    let told =
        [ended.stdout, ended.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (ended.status.success(), told)
}

#[test]
fn a_lost_namespace_is_built_anew_from_the_pools() {
    let (instance, server) = Server::start();
    for target in ["/a", "/a/b", "/a/empty"] {
        assert_eq!(server.status_of("MKCOL", target), 201, "{target}");
    }
    for number in 0..40 {
        assert_eq!(server.put(&format!("/a/b/{number}"), number.to_string()).status, 201);
    }
    assert_eq!(server.put("/a/gone", "gone").status, 201);
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let dir = client.lookup(&root, "a").unwrap();
    let dir = client.lookup(&dir, "b").unwrap();
    let file = client.lookup(&dir, "7").unwrap();
    client.link(&file, &root, "second name").unwrap();
    instance.forebay(&["namespace", "describe"]);
    // After the pools were told: an old name is as good as it gets, and a file without one is there all the same.
    let moved = server.ask("MOVE", "/a/b/1").with("Destination", server.url("/a/b/moved"));
    assert_eq!(server.send(&moved).status, 201);
    assert_eq!(server.put("/a/b/2", "written again, and longer").status, 204);
    assert_eq!(server.put("/a/late", "late").status, 201);
    assert_eq!(server.status_of("DELETE", "/a/gone"), 204);
    until("the replica is gone", || instance.replicas().len() == 41);
    // A kill before the removal is synced would bring the replica back from the write journal.
    until("no start brings it back", || {
        let metrics = server.call("GET", "/metrics").text();
        let files =
            metrics.lines().find_map(|line| line.strip_prefix("forebay_journal_files{pool=\"pool-0\"} "));
        files.expect("the pool has a journal").parse::<u32>().unwrap() <= 41
    });
    drop(client);
    server.kill();

    let (is_done, told) = rebuild(&instance);
    assert!(!is_done && told.contains("move it away"), "{told}");
    std::fs::rename(instance.data().join("namespace"), instance.data().join("namespace.lost")).unwrap();
    let (is_done, told) = rebuild(&instance);
    assert!(is_done, "{told}");
    assert!(told.contains("of them nobody had described"), "{told}");
    instance.forebay(&["fsck"]);

    let server = instance.up();
    for number in (0..40).filter(|number| *number != 2) {
        assert_eq!(server.read(&format!("/a/b/{number}")), number.to_string().as_bytes());
    }
    assert_eq!(server.read("/second%20name"), b"7");
    assert_eq!(server.status_of("GET", "/a/gone"), 404);
    let mut client = server.nfs("another host");
    let root = client.root().unwrap();
    assert_eq!(status_of(client.lookup(&root, "lost+found")), nfs4::NfsStat4::Ok);
    let found = client.lookup(&root, "lost+found").unwrap();
    // A file that was written again is another file than the described one.
    let mut contents: Vec<Vec<u8>> = client
        .list(&found, 65_536)
        .unwrap()
        .iter()
        .map(|entry| server.read(&format!("/lost+found/{}", String::from_utf8_lossy(entry.name.as_bytes()))))
        .collect();
    contents.sort();
    assert_eq!(contents, [b"late".to_vec(), b"written again, and longer".to_vec()]);
    assert_eq!(server.put("/a/new", "new").status, 201);
    assert_eq!(server.read("/a/new"), b"new");
    instance.forebay(&["fsck"]);
}

#[test]
fn without_a_word_about_names_the_files_are_in_lost_and_found() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", "contents").status, 201);
    server.kill();
    std::fs::remove_dir_all(instance.data().join("namespace")).unwrap();
    let (is_done, told) = rebuild(&instance);
    assert!(is_done && told.contains("was never told"), "{told}");
    let server = instance.up();
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let found = client.lookup(&root, "lost+found").unwrap();
    let entries = client.list(&found, 65_536).unwrap();
    assert_eq!(entries.len(), 1);
    let name = String::from_utf8_lossy(entries[0].name.as_bytes()).into_owned();
    assert_eq!(server.read(&format!("/lost+found/{name}")), b"contents");
}

#[test]
fn unreadable_descriptions_of_a_pool_are_a_remark() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", "contents").status, 201);
    instance.forebay(&["namespace", "describe"]);
    server.kill();
    std::fs::remove_dir_all(instance.data().join("namespace")).unwrap();
    let pool = instance.data().join("pools/pool-0");
    for end in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(pool.join(format!("descriptions.db{end}")));
    }
    std::fs::write(pool.join("descriptions.db"), [7; 8192]).unwrap();
    let (is_done, told) = rebuild(&instance);
    assert!(is_done && told.contains("what pool-0 was told of its files is lost"), "{told}");
    instance.forebay(&["fsck"]);
}

#[test]
fn a_namespace_that_is_noted_in_a_database_is_not_built_beside_it() {
    let (instance, server) = Server::start();
    server.kill();
    std::fs::remove_dir_all(instance.data().join("namespace")).unwrap();
    std::fs::write(instance.data().join("namespace.database"), "localhost/names\n").unwrap();
    let (is_done, told) = rebuild(&instance);
    assert!(!is_done && told.contains("is in localhost/names: give its URL with --namespace"), "{told}");
    assert!(!instance.data().join("namespace").exists());
}
