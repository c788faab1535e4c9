//! A crash of the server: an acknowledged PUT is there, an unfinished one leaves nothing.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use nfs4::StableHow4;

use crate::namespace::{done, shown};
use crate::repair::{assert_clean, fsck, told};
use crate::server::{Server, WITHOUT_JOURNAL, until};

#[test]
fn a_put_in_the_middle_of_a_crash_leaves_nothing_and_what_was_published_stays_with_its_checksums() {
    let (instance, server) = Server::start();
    let contents = vec![5; 300_000];
    assert_eq!(server.put("/file", &contents).status, 201);
    let digest = |server: &Server| {
        server.send(&server.ask("HEAD", "/file").with("Want-Digest", "adler32")).told("digest")
    };
    let before = digest(&server);
    let writers: Vec<_> = ["/file", "/new"]
        .map(|target| {
            let mut writer = server.connect();
            writer.begin(&server.ask("PUT", target).with("Content-Length", 8_000_000));
            writer.write(&[9; 4_000_000]);
            writer
        })
        .into();
    let mut parts = server.connect();
    let part = server.ask("PUT", "/parts").with("Content-Range", "bytes 0-9/20").body([1; 10]);
    assert_eq!(parts.ask(&part).status, 202);
    until("bytes are in the pool", || instance.bytes_in_pool() > 5_000_000);
    server.kill();
    drop(writers);
    let server = instance.up();
    assert!(server.read("/file") == contents);
    assert_eq!(digest(&server), before);
    for name in ["/new", "/parts"] {
        assert_eq!(server.status_of("GET", name), 404, "{name}");
    }
    until("the orphans are gone", || instance.bytes_in_pool() < 400_000);
}

#[test]
fn every_put_that_was_answered_before_a_crash_is_there() {
    let (instance, server) = Server::start();
    let web = server.web();
    let asks: Vec<_> =
        (0..2_000).map(|number| server.ask("PUT", &format!("/{number}")).body(number.to_string())).collect();
    let answered = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = crate::wire::Connection::open(web);
            for ask in &asks {
                match connection.ask_or_end(ask) {
                    Some(answer) => assert_eq!(answer.status, 201),
                    None => return,
                }
                answered.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        });
        until("some are answered", || answered.load(std::sync::atomic::Ordering::SeqCst) >= 50);
        server.kill();
    });
    let server = instance.up();
    for number in 0..answered.into_inner() {
        assert_eq!(server.read(&format!("/{number}")), number.to_string().as_bytes());
    }
}

/// As a server leaves it that is killed after it cut the replica and before it changed the namespace.
fn cut(replica: &Path, size: u64) {
    let mut label = [0; 128];
    let length = rustix::fs::getxattr(replica, "user.forebay.id", &mut label[..]).unwrap();
    let label = std::str::from_utf8(&label[..length]).unwrap();
    let (kept, birth) = label.rsplit_once(' ').expect("the birth comes last");
    let (kept, _) = kept.rsplit_once(' ').expect("the length comes before it");
    let label = format!("{kept} {size:x} {birth}");
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(replica, "user.forebay.id", label.as_bytes(), flags).unwrap();
    std::fs::File::options().write(true).open(replica).unwrap().set_len(size).unwrap();
}

/// As a server leaves it that is killed between the bytes of a write and the size that they give the file.
#[test]
fn a_write_past_the_end_that_a_kill_interrupted_shows_only_when_the_file_is_extended() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", [1; 1000]).status, 201);
    server.kill();
    let mut replica = std::fs::File::options().append(true).open(&instance.replicas()[0]).unwrap();
    replica.write_all(&[2; 500]).unwrap();

    let server = instance.up();
    assert_clean(&instance);
    assert_eq!(server.read("/file"), [1; 1000], "the file has the old size");
    let mut client = server.nfs("client");
    let root = client.root().unwrap();
    let file = client.open(&root, "file", nfs4::OPEN4_SHARE_ACCESS_BOTH).unwrap();
    client.set_size(&file.handle, file.stateid, 2000).unwrap();
    let extended = |bytes: u8| [vec![1; 1000], vec![bytes; 500], vec![0; 500]].concat();
    assert_eq!(server.read("/file"), extended(2));
    // The client, which had no answer, repeats the write.
    client.write(&file.handle, file.stateid, 1000, StableHow4::FileSync, &[3; 500]).unwrap();
    assert_eq!(server.read("/file"), extended(3));
    assert_clean(&instance);
}

#[test]
fn a_cut_that_a_kill_interrupted_is_finished_at_the_next_start() {
    for starts_with_fsck in [false, true] {
        let (instance, server) = Server::start_with(WITHOUT_JOURNAL);
        assert_eq!(server.put("/cut", [1; 3000]).status, 201);
        assert_eq!(server.put("/empty", [2; 2000]).status, 201);
        assert_eq!(server.put("/whole", [3; 1000]).status, 201);
        let head = |server: &Server| server.send(&server.ask("HEAD", "/cut").with("Want-Digest", "adler32"));
        let before = head(&server);
        server.kill();
        let replicas = instance.replicas();
        cut(&replicas[0], 700);
        cut(&replicas[1], 0);
        if starts_with_fsck {
            assert_clean(&instance);
        }
        let server = instance.up();
        assert_clean(&instance);
        assert_eq!(server.read("/cut"), [1; 700]);
        assert_eq!(server.read("/empty"), b"");
        assert_eq!(server.read("/whole"), [3; 1000]);
        let after = head(&server);
        assert_eq!(after.header("content-length"), Some("700"));
        for name in ["etag", "digest"] {
            assert_ne!(after.header(name), before.header(name), "{name}");
        }
        server.stop();
        assert_clean(&instance);
    }
}

/// Data missing in such a copy was lost, and its labels do not show that. The note of a command made the next start
/// overlook the loss.
#[test]
fn a_file_is_not_cut_to_the_replica_of_a_pool_that_was_put_back_from_a_copy() {
    for is_stopped in [false, true] {
        let (instance, server) = Server::start();
        let append = |server: &Server, offset: u64| {
            let mut client = server.nfs("client");
            let root = client.root().unwrap();
            let file = client.open(&root, "file", nfs4::OPEN4_SHARE_ACCESS_BOTH).unwrap();
            client.write(&file.handle, file.stateid, offset, StableHow4::FileSync, &[7; 1000]).unwrap();
            // The namespace has the length on disk, and not the pool alone.
            client.commit(&file.handle).unwrap();
        };
        let end = |server: Server| if is_stopped { server.stop() } else { server.kill() };
        assert_eq!(server.put("/file", [7; 1000]).status, 201);
        end(server);
        let (pool, copy) = (instance.data().join("pools/pool-0"), instance.data().join("copy"));
        let copy_all = |from: &Path, to: &Path| {
            assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
        };
        copy_all(&pool, &copy);
        let server = instance.up();
        append(&server, 1000);
        end(server);
        std::fs::remove_dir_all(&pool).unwrap();
        copy_all(&copy, &pool);
        done(&["quota", "list", "--data", &shown(&instance.data())]);
        let mut server = instance.up();
        server.expect_errors(&["data of a file is missing", "find the data of the file"]);
        let output = fsck(&instance, &[]);
        assert!(!output.status.success() && told(&output).contains("1000"), "{}", told(&output));
        assert_eq!(server.status_of("GET", "/file"), 500);
        // Also by the next start, which finds no pool behind.
        end(server);
        let mut server = instance.up();
        server.expect_errors(&["data of a file is missing", "find the data of the file"]);
        assert_eq!(server.status_of("GET", "/file"), 500);
        assert_eq!(server.put("/file", "anew").status, 204);
        assert_clean(&instance);
    }
}

/// The head had cut the replica when the database refused the new length, and was then stopped in order.
#[test]
fn a_cut_that_the_database_refused_is_finished_at_the_next_start() {
    let (instance, mut server) = Server::start();
    server.expect_errors(&["refused for the test"]);
    assert_eq!(server.put("/cut", [1; 3000]).status, 201);
    let mut client = server.nfs("client");
    let root = client.root().unwrap();
    let file = client.open(&root, "cut", nfs4::OPEN4_SHARE_ACCESS_BOTH).unwrap();
    let database = rusqlite::Connection::open(instance.data().join("namespace/namespace.db")).unwrap();
    database
        .execute_batch(
            "CREATE TRIGGER refuses BEFORE UPDATE ON progress BEGIN SELECT RAISE(ABORT, 'refused for the test'); END",
        )
        .unwrap();
    client.set_size(&file.handle, file.stateid, 700).unwrap_err();
    database.execute_batch("DROP TRIGGER refuses").unwrap();
    drop(database);
    assert_eq!(instance.replicas()[0].metadata().unwrap().len(), 700);
    drop(client);
    server.stop();
    let mut server = instance.up();
    server.expect_errors(&["refused for the test"]);
    assert_eq!(server.read("/cut"), [1; 700]);
    assert_clean(&instance);
}

#[test]
fn a_length_that_was_acknowledged_is_kept_over_a_kill() {
    let (instance, server) = Server::start();
    let mut client = server.nfs("client");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    for (size, longest) in [(4000, 4000), (10, 10), (3000, 3000)] {
        client.set_size(&file.handle, file.stateid, size).unwrap();
        assert_eq!(instance.replicas()[0].metadata().unwrap().len(), longest);
    }
    server.kill();
    let server = instance.up();
    assert_eq!(server.read("/file"), [0; 3000]);
    assert_clean(&instance);
}

#[test]
fn a_replica_that_lost_bytes_is_not_taken_for_one_that_was_cut() {
    let (instance, server) = Server::start_with(WITHOUT_JOURNAL);
    assert_eq!(server.put("/lost", [1; 3000]).status, 201);
    server.kill();
    std::fs::File::options().write(true).open(&instance.replicas()[0]).unwrap().set_len(700).unwrap();
    let mut server = instance.up();
    server.expect_errors(&["data of a file is missing", "find the data of the file"]);
    assert_eq!(server.status_of("GET", "/lost"), 500);
    let output = fsck(&instance, &[]);
    assert!(told(&output).contains("has 3000 bytes, its replica on pool-0 only 700"), "{}", told(&output));
}

/// The new pool is compared, as it was never closed in order, and the other is not.
#[test]
fn a_start_with_one_more_pool_compares_only_that() {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", [7; 1000]).status, 201);
    server.stop();
    let mut command = instance.up_command();
    command.env("FOREBAY_POOLS_COUNT", "2");
    let server = instance.up_by(command);
    assert_eq!(server.call("GET", "/file").body, [7; 1000]);
    assert_eq!(server.put("/file", "anew").status, 204);
}
