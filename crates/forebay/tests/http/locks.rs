//! Changes between a request and its execution: a name that gets another file, a lock that is taken during a change,
//! and one resource under several paths.

use std::sync::atomic::{AtomicBool, Ordering};

use nfs4::{
    CreateType4, LayoutIomode4, NfsArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_WRITE, StableHow4,
};
use testkit::nfs_client::{NfsClient, ops, when_ready};

use crate::conflict::Reader;
use crate::dav::{LOCK, PATCH, lock, relocate};
use crate::server::{Instance, Server, status_of};

/// Makes a file and holds it open as one that nobody else may write.
fn create_denying(client: &mut NfsClient, root: &NfsFh4, name: &str) {
    let mut open = ops::open("denier", OPEN4_SHARE_ACCESS_READ, ops::guarded(0o644), name);
    if let NfsArgop4::Open(args) = &mut open {
        args.share_deny = OPEN4_SHARE_DENY_WRITE;
    }
    client.open_by(root, open).unwrap();
}

/// The status of a MOVE of `/other` to `/file`, which an NFS client renames while its delegation is waited for; `take` gives
/// the name to another.
fn move_while_the_name_is_taken(server: &Server, take: impl FnOnce(&mut NfsClient, &NfsFh4)) -> u16 {
    server.put("/other", "other");
    let mut reader = Reader::of(server);
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let ask = relocate(server, "MOVE", "/other", "/file");
    std::thread::scope(|scope| {
        let moved = scope.spawn(|| server.send(&ask).status);
        reader.gives_back_after(|reader| {
            reader.rename((&root, "file"), (&root, "away")).unwrap();
            take(&mut client, &root);
        });
        moved.join().unwrap()
    })
}

#[test]
fn a_lock_finds_tickets_from_before_a_restart_void() {
    let (instance, server) = Server::start();
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let layout = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
    let mut pool = client.data_server(&layout).unwrap();
    pool.write(layout.ticket(), layout.data_server().stateid, 0, StableHow4::FileSync, b"mine").unwrap();
    server.kill();
    let server = instance.up();
    // The pool is there under another device id.
    let mut other = server.nfs("other");
    let way = when_ready(|| other.create(&root, "way")).unwrap();
    let now = other.layout_get(&way.handle, way.stateid, LayoutIomode4::Rw).unwrap();
    let mut pool = other.data_server(&now).unwrap();
    let mut write = || {
        let stateid = layout.data_server().stateid;
        status_of(pool.write(layout.ticket(), stateid, 0, StableHow4::FileSync, b"late"))
    };
    lock(&server, "/file");
    assert_eq!(write(), NfsStat4::Stale);
}

#[test]
fn a_move_does_not_replace_a_file_that_got_the_name_since_it_was_asked_for() {
    let (_instance, server) = Server::start();
    let status = move_while_the_name_is_taken(&server, |client, root| create_denying(client, root, "file"));
    assert_eq!(status, 423, "asked again, of the file that is there now");
    assert_eq!(server.read("/other"), b"other");
    assert_eq!(server.read("/file"), b"");
    assert_eq!(server.status_of("HEAD", "/away"), 200);
}

#[test]
fn a_move_replaces_the_file_that_got_the_name_if_that_may_be() {
    let (_instance, server) = Server::start();
    let status = move_while_the_name_is_taken(&server, |_, _| _ = server.put("/file", "new"));
    assert_eq!(status, 204);
    assert_eq!(server.read("/file"), b"other");
    assert_eq!(server.status_of("GET", "/other"), 404);
}

#[test]
fn a_move_onto_another_name_of_the_file_leaves_that_one() {
    let (_instance, server) = Server::start();
    server.put("/one", "data");
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.lookup(&root, "one").unwrap();
    client.link(&file, &root, "two").unwrap();
    assert_eq!(server.send(&relocate(&server, "MOVE", "/one", "/two")).status, 204);
    assert_eq!(server.read("/two"), b"data");
    assert_eq!(server.status_of("GET", "/one"), 404);
}

#[test]
fn a_file_is_not_copied_or_moved_to_a_name_of_a_directory_that_is_not_there() {
    let (_instance, server) = Server::start();
    server.put("/file", "data");
    server.put("/other", "other");
    assert_eq!(server.status_of("MKCOL", "/dir"), 201);
    for method in ["COPY", "MOVE"] {
        for to in ["/new/", "/other/"] {
            assert_eq!(server.send(&relocate(&server, method, "/file", to)).status, 409, "{to}");
        }
    }
    assert_eq!(server.read("/file"), b"data");
    assert_eq!(server.read("/other"), b"other");
    assert_eq!(server.send(&relocate(&server, "COPY", "/dir", "/new/")).status, 201);
    assert_eq!(server.send(&relocate(&server, "COPY", "/file", "/dir/")).status, 204, "overwritten");
    assert_eq!(server.read("/dir"), b"data");
}

#[test]
fn a_lock_waits_for_what_is_under_way_and_is_of_what_is_there_then() {
    let (_instance, server) = Server::start();
    let mut reader = Reader::of(&server);
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| server.status_of("DELETE", "/file"));
        let mut locker = server.connect();
        reader.gives_back_after(|_| {
            locker.begin(&server.ask("LOCK", "/file").body(LOCK));
            locker.write(LOCK.as_bytes());
            // Others go on meanwhile.
            lock(&server, "/other");
            assert_eq!(server.status_of("PROPFIND", "/"), 207);
        });
        assert_eq!(removed.join().unwrap(), 204);
        let locked = locker.answer(false);
        assert_eq!(locked.status, 201, "{locked:?}");
        assert_eq!(server.send(&server.ask("PUT", "/file").body("x")).status, 423);
    });
    assert_eq!(server.read("/file"), b"");
}

#[test]
fn a_locked_name_is_at_no_moment_open_to_nfs_writers() {
    let (_instance, server) = Server::start();
    server.put("/file", "data");
    let token = lock(&server, "/file");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let mut client = server.nfs("host");
            let root = client.root().unwrap();
            let mut answers = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let open = client.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE);
                answers.push(status_of(open));
            }
            answers
        });
        let put = server.ask("PUT", "/file").with("If", format!("({token})")).body("new");
        let statuses: Vec<u16> = (0..100).map(|_| server.send(&put).status).collect();
        is_over.store(true, Ordering::Relaxed);
        // Stale: the name went to the next file between the two steps of the open.
        let refused = [NfsStat4::ShareDenied, NfsStat4::Stale];
        assert!(writing.join().unwrap().iter().all(|status| refused.contains(status)));
        assert_eq!(statuses, [204; 100]);
    });
}

#[test]
fn a_change_whose_client_hangs_up_keeps_locks_away_until_it_is_done() {
    let (_instance, server) = Server::start();
    let mut reader = Reader::of(&server);
    let mut locker = server.connect();
    let mut remover = server.connect();
    remover.begin(&server.ask("DELETE", "/file"));
    reader.gives_back_after(|_| {
        remover.end();
        assert_eq!(remover.answer_or_end(), None, "nobody is told any more");
        locker.begin(&server.ask("LOCK", "/file").body(LOCK));
        locker.write(LOCK.as_bytes());
        assert_eq!(server.status_of("PROPFIND", "/"), 207);
    });
    let locked = locker.answer(false);
    assert_eq!(locked.status, 201, "of a new file, for the other one was removed: {locked:?}");
    assert_eq!(server.read("/file"), b"");
}

#[test]
fn a_request_for_a_path_is_not_applied_to_a_directory_that_was_moved_from_there() {
    let (_instance, server) = Server::start();
    assert_eq!(server.status_of("MKCOL", "/dir"), 201);
    server.put("/dir/one", "data");
    let mut reader = Reader::of(&server);
    let ask = relocate(&server, "MOVE", "/dir", "/file");
    std::thread::scope(|scope| {
        let moved = scope.spawn(|| server.send(&ask).status);
        let mut others: Vec<_> = (0..3).map(|_| server.connect()).collect();
        reader.gives_back_after(|_| {
            others[0].begin(&server.ask("MKCOL", "/dir/sub"));
            others[1].begin(&server.ask("DELETE", "/dir/one"));
            others[2].begin(&server.ask("PROPPATCH", "/dir").body(PATCH));
            others[2].write(PATCH.as_bytes());
            assert_eq!(server.status_of("PROPFIND", "/"), 207);
            lock(&server, "/other");
        });
        assert_eq!(moved.join().unwrap(), 204);
        let statuses: Vec<u16> = others.iter_mut().map(|other| other.answer(false).status).collect();
        assert_eq!(statuses, [409, 404, 404]);
    });
    assert_eq!(server.read("/file/one"), b"data");
    assert_eq!(server.status_of("PROPFIND", "/file/sub"), 404);
}

#[test]
fn a_tree_in_which_something_is_under_way_is_moved_when_that_is_done() {
    let (_instance, server) = Server::start();
    assert_eq!(server.status_of("MKCOL", "/dir"), 201);
    let mut reader = Reader::of(&server);
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let dir = client.lookup(&root, "dir").unwrap();
    reader.client.rename((&root, "file"), (&dir, "file")).unwrap();
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| server.status_of("DELETE", "/dir/file"));
        let mut mover = server.connect();
        reader.gives_back_after(|_| {
            mover.begin(&relocate(&server, "MOVE", "/dir", "/away"));
            lock(&server, "/other");
            assert_eq!(server.status_of("PROPFIND", "/dir/"), 207, "still there");
        });
        assert_eq!(removed.join().unwrap(), 204);
        assert_eq!(mover.answer(false).status, 201);
    });
    assert_eq!(server.status_of("HEAD", "/away/file"), 404);
    assert_eq!(server.status_of("PROPFIND", "/away"), 207);
}

#[test]
fn a_file_that_got_the_name_while_delegations_were_waited_for_is_judged_before_it_is_removed() {
    let (_instance, server) = Server::start();
    let mut reader = Reader::of(&server);
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    std::thread::scope(|scope| {
        let removed = scope.spawn(|| server.call("DELETE", "/file"));
        reader.gives_back_after(|reader| {
            reader.rename((&root, "file"), (&root, "away")).unwrap();
            create_denying(&mut client, &root, "file");
        });
        let removed = removed.join().unwrap();
        assert_eq!(removed.status, 423, "a client denies others to write what has the name now");
    });
    assert_eq!(server.read("/file"), b"");
    assert_eq!(server.status_of("HEAD", "/away"), 200);
}

/// `/dir/file`, and `/link` that leads to `/dir`.
fn with_link() -> (Instance, Server) {
    let (instance, server) = Server::start();
    let made = server.call("MKCOL", "/dir");
    assert_eq!(made.status, 201, "{made:?} {}", made.text());
    server.put("/dir/file", "data");
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let target = bytes::Bytes::from_static(b"dir");
    client.create_object(&root, CreateType4::Lnk(target.into()), "link", 0o777).unwrap();
    (instance, server)
}

#[test]
fn a_lock_is_seen_and_named_by_whatever_path_the_file_is_reached() {
    let (_instance, server) = with_link();
    let token = lock(&server, "/link/file");
    let bare = token.trim_matches(['<', '>']);
    for (target, depth) in [("/dir/file", 0), ("/link/file", 0), ("/dir/", 1), ("/link/", 1)] {
        let found = server.send(&server.ask("PROPFIND", target).with("Depth", depth));
        assert!(found.text().contains(bare), "{target}: {}", found.text());
    }
    for named in ["/dir/file", "/link/file"] {
        for asked in ["/dir/file", "/link/file"] {
            let put = server.ask("PUT", asked).body("changed");
            assert_eq!(server.send(&put).status, 423);
            let tagged = put.with("If", format!("<{}> ({token})", server.url(named)));
            assert_eq!(server.send(&tagged).status, 204, "{asked} by {named}");
        }
    }
    let unlock = server.ask("UNLOCK", "/dir/file").with("Lock-Token", &token);
    assert_eq!(server.send(&unlock).status, 204);
}

#[test]
fn an_if_header_may_speak_of_the_state_of_another_resource() {
    let (_instance, server) = with_link();
    server.put("/other", "other");
    let etag = server.call("HEAD", "/dir/file").told("etag");
    let put = |condition: String| {
        server.send(&server.ask("PUT", "/other").with("If", condition).body("changed")).status
    };
    assert_eq!(put(format!("</dir/file> ([{etag}])")), 204);
    assert_eq!(put(format!("</link/file> ([{etag}])")), 204);
    assert_eq!(put(format!("</other> ([{etag}])")), 412);
    assert_eq!(put(format!("</nowhere/at/all> (Not [{etag}])")), 204);
    server.put("/dir/file", "another state");
    assert_eq!(put(format!("</dir/file> ([{etag}])")), 412);
}

#[test]
fn a_tree_with_more_directories_than_a_page_is_copied_and_removed_whole() {
    let (_instance, server) = Server::start();
    assert_eq!(server.status_of("MKCOL", "/tree"), 201);
    for number in 0..530 {
        assert_eq!(server.status_of("MKCOL", &format!("/tree/{number}")), 201);
        if number % 100 == 0 {
            server.put(&format!("/tree/{number}-file"), "data");
            server.put(&format!("/tree/{number}/file"), "data");
            assert_eq!(server.status_of("MKCOL", &format!("/tree/{number}/below")), 201);
        }
    }
    let names = |top: &str| {
        let found = server.send(&server.ask("PROPFIND", top).with("Depth", "infinity"));
        let text = found.text();
        let hrefs = text.split("href>").skip(1).step_by(2);
        let mut names: Vec<String> =
            hrefs.map(|rest| rest.split_once("</").unwrap().0.trim_start_matches(top).to_owned()).collect();
        names.sort();
        names
    };
    let before = names("/tree");
    assert_eq!(before.len(), 1 + 530 + 3 * 6);
    assert_eq!(server.send(&relocate(&server, "COPY", "/tree", "/copy")).status, 201);
    assert_eq!(names("/copy"), before);
    assert_eq!(server.status_of("DELETE", "/tree"), 204);
    assert_eq!(server.status_of("PROPFIND", "/tree"), 404);
    assert_eq!(names("/copy"), before);
}
