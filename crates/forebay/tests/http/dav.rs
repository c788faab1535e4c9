//! WebDAV: collections, COPY and MOVE, locks and the If header (RFC 4918).

use nfs4::attr::Principal4;
use nfs4::{
    FileAttributes, NfsArgop4, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_READ, OPEN4_SHARE_DENY_WRITE,
    StateId4,
};
use testkit::nfs_client::{NfsClient, ops};

use crate::server::{Instance, Server, until};
use crate::wire::{Answer, Ask};

pub const LOCK: &str = r#"<?xml version="1.0"?><D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype><D:owner>me</D:owner></D:lockinfo>"#;
pub const PATCH: &str = r#"<D:propertyupdate xmlns:D="DAV:"><D:set><D:prop><colour xmlns="urn:x">red</colour></D:prop></D:set></D:propertyupdate>"#;

/// `/dir/file`, `/dir/sub/deep`, `/dir/sub/other`.
fn tree() -> (Instance, Server) {
    let (instance, server) = Server::start();
    for dir in ["/dir", "/dir/sub"] {
        assert_eq!(server.status_of("MKCOL", dir), 201);
    }
    for file in ["/dir/file", "/dir/sub/deep", "/dir/sub/other"] {
        assert_eq!(server.put(file, file).status, 201);
    }
    (instance, server)
}

/// Locks, and tells the token in its angle brackets.
pub fn lock(server: &Server, target: &str) -> String {
    let answer = server.send(&server.ask("LOCK", target).with("Depth", 0).body(LOCK));
    assert!([200, 201].contains(&answer.status), "{answer:?}");
    answer.told("lock-token")
}

pub fn hrefs(answer: &Answer) -> Vec<String> {
    let text = answer.text();
    let mut found: Vec<String> = text
        .split("href>")
        .skip(1)
        .step_by(2)
        .filter_map(|rest| Some(rest.split_once("</")?.0.to_owned()))
        .collect();
    found.sort();
    found
}

pub fn relocate(server: &Server, method: &str, from: &str, to: &str) -> Ask {
    server.ask(method, from).with("Destination", server.url(to))
}

#[test]
fn a_propfind_reaches_as_deep_as_it_is_told() {
    let (_instance, server) = tree();
    let find = |depth: &str, target: &str| {
        let answer = server.send(&server.ask("PROPFIND", target).with("Depth", depth));
        assert_eq!(answer.status, 207, "{answer:?}");
        hrefs(&answer)
    };
    assert_eq!(find("0", "/dir"), ["/dir/"]);
    assert_eq!(find("0", "/dir/"), ["/dir/"], "with or without a slash");
    assert_eq!(find("1", "/dir"), ["/dir/", "/dir/file", "/dir/sub/"]);
    let all = ["/dir/", "/dir/file", "/dir/sub/", "/dir/sub/deep", "/dir/sub/other"];
    assert_eq!(find("infinity", "/dir"), all);
    assert_eq!(server.status_of("PROPFIND", "/nowhere"), 404);
    let odd = server.send(&server.ask("PROPFIND", "/dir").with("Depth", "2"));
    assert_eq!(odd.status, 400);
}

#[test]
fn a_propfind_of_large_properties_is_sent_as_it_is_taken() {
    const FILES: usize = 20;
    let (_instance, server) = Server::start();
    assert_eq!(server.status_of("MKCOL", "/dir"), 201);
    let patch = PATCH.replace("red", &"x".repeat(60_000));
    for number in 0..FILES {
        let file = format!("/dir/{number}");
        assert_eq!(server.put(&file, "data").status, 201);
        assert_eq!(server.send(&server.ask("PROPPATCH", &file).body(&patch)).status, 207);
    }
    let mut connection = server.connect();
    let answer = connection.ask(&server.ask("PROPFIND", "/dir").with("Depth", 1));
    assert_eq!((answer.status, hrefs(&answer).len()), (207, FILES + 1));
    assert!(answer.body.len() > FILES * 60_000);
    // As much as is gathered, and one resource more.
    assert!(connection.longest_chunk < 200_000, "{}", connection.longest_chunk);
}

#[test]
fn a_collection_is_made_once_below_one_that_is_there() {
    let (_instance, server) = tree();
    assert_eq!(server.status_of("MKCOL", "/dir"), 405);
    assert_eq!(server.status_of("MKCOL", "/dir/file"), 405);
    assert_eq!(server.status_of("MKCOL", "/nowhere/dir"), 409);
    assert_eq!(server.send(&server.ask("MKCOL", "/new").body("<x/>")).status, 415);
    assert_eq!(server.status_of("GET", "/new"), 404);
    assert_eq!(server.status_of("MKCOL", "/new/"), 201);
}

#[test]
fn a_copy_is_a_tree_of_its_own_and_a_move_leaves_nothing_behind() {
    let (_instance, server) = tree();
    assert_eq!(server.send(&relocate(&server, "COPY", "/dir", "/copy")).status, 201);
    assert_eq!(server.read("/copy/sub/deep"), b"/dir/sub/deep");
    server.put("/copy/sub/deep", "changed");
    assert_eq!(server.read("/dir/sub/deep"), b"/dir/sub/deep");
    assert_eq!(server.send(&relocate(&server, "MOVE", "/dir", "/moved")).status, 201);
    assert_eq!(server.status_of("PROPFIND", "/dir"), 404);
    assert_eq!(server.read("/moved/sub/other"), b"/dir/sub/other");
    let inside = relocate(&server, "MOVE", "/moved", "/moved/sub/itself");
    assert_eq!(server.send(&inside).status, 409);
    assert_eq!(server.send(&relocate(&server, "COPY", "/moved", "/nowhere/copy")).status, 409);
    let elsewhere = server.ask("MOVE", "/moved").with("Destination", "http://192.0.2.1/moved");
    assert_eq!(server.send(&elsewhere).status, 502);
    assert_eq!(server.read("/moved/file"), b"/dir/file");
}

#[test]
fn a_directory_is_moved_and_removed_whole_or_not_at_all() {
    let (_instance, server) = tree();
    for depth in ["0", "1", "1,noroot"] {
        let asked = [relocate(&server, "MOVE", "/dir", "/moved"), server.ask("DELETE", "/dir")];
        for ask in asked.map(|ask| ask.with("Depth", depth)) {
            let refused = server.send(&ask);
            assert_eq!(refused.status, 400, "{ask:?}");
            assert!(refused.text().contains("Depth must be infinity"), "{}", refused.text());
        }
        assert_eq!(server.read("/dir/sub/deep"), b"/dir/sub/deep");
        assert_eq!(server.status_of("PROPFIND", "/moved"), 404);
    }
    let moved = relocate(&server, "MOVE", "/dir", "/moved").with("Depth", "infinity");
    assert_eq!(server.send(&moved).status, 201);
    assert_eq!(server.send(&server.ask("DELETE", "/moved/sub").with("Depth", "Infinity")).status, 204);
    // Of a file it says nothing.
    let file = relocate(&server, "MOVE", "/moved/file", "/file").with("Depth", 0);
    assert_eq!(server.send(&file).status, 201);
    assert_eq!(server.send(&server.ask("DELETE", "/file").with("Depth", 1)).status, 204);
}

#[test]
fn copy_and_move_overwrite_a_file_only_if_the_overwrite_header_allows_it() {
    let (_instance, server) = tree();
    server.put("/other", "other");
    for method in ["COPY", "MOVE"] {
        let ask = relocate(&server, method, "/dir/file", "/other");
        assert_eq!(server.send(&ask.clone().with("Overwrite", "F")).status, 412);
        assert_eq!(server.read("/other"), b"other");
        assert_eq!(server.send(&ask.clone().with("Overwrite", "X")).status, 400);
        assert_eq!(server.send(&ask.with("Overwrite", "T")).status, 204);
        assert_eq!(server.read("/other"), b"/dir/file");
        server.put("/other", "other");
    }
}

#[test]
fn a_lock_stands_in_the_way_of_whoever_does_not_name_it() {
    let (_instance, server) = tree();
    let token = lock(&server, "/dir/file");
    let named = |ask: Ask| ask.with("If", format!("({token})"));
    for ask in [
        server.ask("PUT", "/dir/file").body("changed"),
        server.ask("DELETE", "/dir/file"),
        server.ask("PROPPATCH", "/dir/file").body(PATCH),
        server.ask("LOCK", "/dir/file").body(LOCK),
        relocate(&server, "MOVE", "/dir/file", "/moved"),
        relocate(&server, "COPY", "/dir/sub/deep", "/dir/file"),
        relocate(&server, "MOVE", "/dir", "/moved"),
    ] {
        assert_eq!(server.send(&ask).status, 423, "{ask:?}");
    }
    assert_eq!(server.read("/dir/file"), b"/dir/file");
    let put = server.ask("PUT", "/dir/file").body("changed");
    assert_eq!(server.send(&named(put)).status, 204);
    let still = server.ask("PUT", "/dir/file").body("again");
    assert_eq!(server.send(&still).status, 423, "the lock is of the name, whatever file has it");
    let unlock =
        |token: &str| server.send(&server.ask("UNLOCK", "/dir/file").with("Lock-Token", token)).status;
    assert_eq!(unlock("<urn:uuid:00000000-0000-4000-8000-000000000000>"), 409);
    assert_eq!(unlock(&token), 204);
    assert_eq!(server.send(&still).status, 204);
}

#[test]
fn an_if_header_that_does_not_hold_changes_nothing() {
    let (_instance, server) = tree();
    let etag = server.call("HEAD", "/dir/file").told("etag");
    let put = |condition: &str| {
        server.send(&server.ask("PUT", "/dir/file").with("If", condition).body("changed")).status
    };
    assert_eq!(put("([\"other\"])"), 412);
    assert_eq!(put("(<urn:uuid:00000000-0000-4000-8000-000000000000>)"), 412);
    assert_eq!(put(&format!("(Not [{etag}])")), 412);
    assert_eq!(put("nonsense"), 400);
    assert_eq!(server.read("/dir/file"), b"/dir/file");
    assert_eq!(put(&format!("([\"other\"]) ([{etag}])")), 204, "one list is enough");
    assert_eq!(put(&format!("([{etag}])")), 412, "it has another state now");
}

#[test]
fn a_deep_lock_over_a_locked_member_names_the_member() {
    let (_instance, server) = tree();
    let token = lock(&server, "/dir/sub/deep");
    let deep = server.ask("LOCK", "/dir").with("Depth", "infinity").body(LOCK);
    let refused = server.send(&deep);
    assert_eq!((refused.status, hrefs(&refused)), (207, vec!["/dir".to_owned(), "/dir/sub/deep".to_owned()]));
    let text = refused.text();
    let status_of = |href: &str| {
        text.split_once(&format!("{href}</D:href>")).map(|(_, rest)| rest.split_once("</").unwrap().0)
    };
    assert!(status_of("/dir/sub/deep").unwrap().contains(" 423 "), "{text}");
    assert!(status_of("/dir").unwrap().contains(" 424 "), "{text}");
    assert_eq!(server.put("/dir/other", "data").status, 201, "nothing was locked");
    assert_eq!(server.send(&server.ask("UNLOCK", "/dir/sub/deep").with("Lock-Token", token)).status, 204);
    assert_eq!(server.send(&deep).status, 200);
    let inside = server.send(&server.ask("LOCK", "/dir/sub/other").body(LOCK));
    assert_eq!(inside.status, 423);
    assert!(inside.text().contains("no-conflicting-lock") && hrefs(&inside) == ["/dir"], "{}", inside.text());
}

#[test]
fn an_if_header_that_does_not_hold_stops_readers_too() {
    let (_instance, server) = tree();
    let etag = server.call("HEAD", "/dir/file").told("etag");
    let token = lock(&server, "/dir/file");
    for method in ["GET", "HEAD", "PROPFIND"] {
        let status = |condition: &str| {
            server.send(&server.ask(method, "/dir/file").with("Depth", 0).with("If", condition)).status
        };
        assert_eq!(status("([\"other\"])"), 412, "{method}");
        assert_eq!(status(&format!("(Not {token})")), 412, "{method}");
        assert_eq!(status("nonsense"), 400, "{method}");
        let held = status(&format!("({token} [{etag}])"));
        assert_eq!(held, if method == "PROPFIND" { 207 } else { 200 });
    }
    let unlock = server.ask("UNLOCK", "/dir/file").with("Lock-Token", &token);
    assert_eq!(server.send(&unlock.clone().with("If", "([\"other\"])")).status, 412);
    assert_eq!(server.send(&unlock.with("If", format!("([{etag}])"))).status, 204);
}

#[test]
fn a_header_that_says_one_thing_is_not_taken_twice() {
    let (_instance, server) = tree();
    let token = lock(&server, "/dir/file");
    let copy = || relocate(&server, "COPY", "/dir/sub/deep", "/one");
    for (ask, name, value) in [
        (copy(), "Destination", server.url("/two")),
        (copy().with("Overwrite", "T"), "Overwrite", "F".to_owned()),
        (server.ask("PROPFIND", "/dir").with("Depth", 0), "Depth", 1.to_string()),
        (
            server.ask("PUT", "/one").with("Content-Range", "bytes 0-3/4").body("data"),
            "Content-Range",
            "bytes 0-3/8".to_owned(),
        ),
        (
            server.ask("PUT", "/one").with("Content-Range", "bytes */4").with("Upload-Id", 1).body(""),
            "Upload-Id",
            2.to_string(),
        ),
        (
            server.ask("UNLOCK", "/dir/file").with("Lock-Token", &token),
            "Lock-Token",
            "<urn:uuid:0>".to_owned(),
        ),
        (server.ask("LOCK", "/one").with("Timeout", "Second-1").body(LOCK), "Timeout", "Infinite".to_owned()),
    ] {
        assert_eq!(server.send(&ask.with(name, value)).status, 400, "{name}");
    }
    assert_eq!(server.status_of("GET", "/one"), 404);
}

#[test]
fn a_login_in_a_destination_is_passed_over() {
    let (_instance, server) = tree();
    let to = |host: &str| format!("http://admin:secret@{host}/moved");
    let own = server.ask("MOVE", "/dir/file").with("Destination", to(&server.web().to_string()));
    assert_eq!(server.send(&own).status, 201);
    assert_eq!(server.read("/moved"), b"/dir/file");
    let other = server.ask("MOVE", "/moved").with("Destination", to("other.example"));
    assert_eq!(server.send(&other).status, 502);
}

#[test]
fn a_lock_of_a_free_name_makes_an_empty_file() {
    let (_instance, server) = tree();
    let answer = server.send(&server.ask("LOCK", "/new").with("Timeout", "Second-100").body(LOCK));
    assert_eq!(answer.status, 201);
    assert!(answer.text().contains("Second-100"), "{}", answer.text());
    assert_eq!(server.read("/new"), b"");
    let put = server.ask("PUT", "/new").body("data");
    assert_eq!(server.send(&put).status, 423);
    assert_eq!(server.send(&put.with("If", format!("({})", answer.told("lock-token")))).status, 204);
    assert_eq!(server.send(&server.ask("LOCK", "/nowhere/new").body(LOCK)).status, 409);
}

#[test]
fn a_tree_with_a_locked_file_is_not_deleted() {
    let (_instance, server) = tree();
    let token = lock(&server, "/dir/sub/deep");
    let refused = server.call("DELETE", "/dir");
    assert_eq!(refused.status, 423);
    assert!(refused.text().contains("/dir/sub/deep"), "{}", refused.text());
    for file in ["/dir/file", "/dir/sub/deep", "/dir/sub/other"] {
        assert_eq!(server.read(file), file.as_bytes(), "all of it is there");
    }
    let named = server.ask("DELETE", "/dir").with("If", format!("</dir/sub/deep> ({token})"));
    assert_eq!(server.send(&named).status, 204);
    assert_eq!(server.status_of("PROPFIND", "/dir"), 404);
}

/// Over NFS, as root.
fn give(server: &Server, path: &str, uid: u32, mode: u32) {
    let mut client = server.nfs("host");
    let mut here = client.root().unwrap();
    for name in path.split('/').skip(1) {
        here = client.lookup(&here, name).unwrap();
    }
    let owned = FileAttributes {
        mode: Some(mode),
        owner: Some(Principal4::numeric(uid)),
        ..FileAttributes::default()
    };
    client.set_attributes(&here, StateId4::ANONYMOUS, &owned).unwrap();
}

#[test]
fn a_directory_whose_name_may_not_go_keeps_its_contents() {
    let (instance, server) = Server::start();
    let anna = instance.user("anna", 1001);
    for dir in
        ["/closed", "/closed/mine", "/sticky", "/sticky/others", "/hers", "/hers/top", "/hers/top/below"]
    {
        assert_eq!(server.status_of("MKCOL", dir), 201);
    }
    for file in ["/closed/mine/a", "/sticky/others/a", "/hers/top/below/a", "/hers/top/b"] {
        assert_eq!(server.put(file, "data").status, 201);
    }
    give(&server, "/closed/mine", 1001, 0o755);
    give(&server, "/sticky", 0, 0o1777);
    give(&server, "/sticky/others", 1002, 0o777);
    for (directory, mode) in [("/hers", 0o755), ("/hers/top", 0o755), ("/hers/top/below", 0o555)] {
        give(&server, directory, 1001, mode);
    }
    let ask = |target: &str| server.send(&Ask::new("DELETE", target).with("Authorization", &anna));
    until("anna may log in", || ask("/nowhere").status == 404);
    assert_eq!(ask("/closed/mine").status, 403);
    assert_eq!(ask("/sticky/others").status, 403);
    // A directory below whose own contents may not go keeps them, and what is above it stays for it.
    assert_eq!(ask("/hers/top").status, 207);
    for file in ["/closed/mine/a", "/sticky/others/a", "/hers/top/below/a"] {
        assert_eq!(server.read(file), b"data", "{file}");
    }
    assert_eq!(server.status_of("GET", "/hers/top/b"), 404);
}

#[test]
fn a_copy_that_would_leave_something_out_leaves_the_tree_that_it_would_replace() {
    let (instance, server) = tree();
    let anna = instance.user("anna", 1001);
    assert_eq!(server.status_of("MKCOL", "/hers"), 201);
    assert_eq!(server.status_of("MKCOL", "/hers/old"), 201);
    assert_eq!(server.put("/hers/old/kept", "kept").status, 201);
    for path in ["/hers", "/hers/old", "/hers/old/kept"] {
        give(&server, path, 1001, 0o755);
    }
    give(&server, "/dir/sub/deep", 0, 0o600);
    let as_her = |method: &str, target: &str| Ask::new(method, target).with("Authorization", &anna);
    let copy = || as_her("COPY", "/dir").with("Destination", server.url("/hers/old"));
    until("anna may log in", || server.send(&as_her("GET", "/dir/file")).status == 200);
    let refused = server.send(&copy());
    assert_eq!(refused.status, 207, "{refused:?}");
    assert!(refused.text().contains("/dir/sub/deep"), "{}", refused.text());
    assert_eq!(server.read("/hers/old/kept"), b"kept");
    give(&server, "/dir/sub/deep", 0, 0o644);
    assert_eq!(server.send(&copy()).status, 204);
    assert_eq!(server.read("/hers/old/sub/deep"), b"/dir/sub/deep");
    assert_eq!(server.status_of("GET", "/hers/old/kept"), 404);
}

/// Opens a file by NFS so that others are denied what `deny` says, for as long as the client lives.
fn deny(server: &Server, (dir, name): (&str, &str), deny: u32) -> NfsClient {
    let mut client = server.nfs("denier");
    let mut here = client.root().unwrap();
    for name in dir.split('/').skip(1) {
        here = client.lookup(&here, name).unwrap();
    }
    let mut open = ops::open("denier", OPEN4_SHARE_ACCESS_READ, nfs4::OpenFlag4::NoCreate, name);
    if let NfsArgop4::Open(args) = &mut open {
        args.share_deny = deny;
    }
    client.open_by(&here, open).unwrap();
    client
}

/// `tree`, and `/source` with two files, one of them large.
fn two_trees() -> (Instance, Server) {
    let (instance, server) = tree();
    assert_eq!(server.status_of("MKCOL", "/source"), 201);
    server.put("/source/small", "data");
    server.put("/source/large", vec![7; 100_000]);
    (instance, server)
}

fn assert_unchanged(server: &Server) {
    for file in ["/dir/file", "/dir/sub/deep", "/dir/sub/other"] {
        assert_eq!(server.read(file), file.as_bytes());
    }
}

#[test]
fn a_tree_stays_if_one_of_its_members_cannot_make_way() {
    let (_instance, server) = two_trees();
    let _denier = deny(&server, ("/dir/sub", "other"), OPEN4_SHARE_DENY_WRITE);
    for method in ["COPY", "MOVE"] {
        let refused = server.send(&relocate(&server, method, "/source", "/dir"));
        assert_eq!((refused.status, hrefs(&refused)), (207, vec!["/dir/sub/other".to_owned()]), "{method}");
        assert_unchanged(&server);
    }
    assert_eq!(server.read("/source/small"), b"data");
}

#[test]
fn a_tree_stays_if_a_member_of_its_replacement_may_not_be_read_now() {
    let (_instance, server) = two_trees();
    let _denier = deny(&server, ("/source", "small"), OPEN4_SHARE_DENY_READ);
    let refused = server.send(&relocate(&server, "COPY", "/source", "/dir"));
    assert_eq!((refused.status, hrefs(&refused)), (207, vec!["/source/small".to_owned()]));
    assert_unchanged(&server);
}

/// `two_trees`, with a member of the source that takes long to copy and one behind it.
fn slow_copy() -> (Instance, Server) {
    let (instance, server) = two_trees();
    for file in ["/source/slow", "/source/then"] {
        assert_eq!(server.put(file, "data").status, 201);
    }
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let source = client.lookup(&root, "source").unwrap();
    let slow = client.open(&source, "slow", nfs4::OPEN4_SHARE_ACCESS_BOTH).unwrap();
    client.set_size(&slow.handle, slow.stateid, 256 << 20).unwrap();
    client.close(&slow).unwrap();
    (instance, server)
}

/// Waits until what `slow_copy` has is being copied. `before`: what was in the pool then.
fn until_copied(instance: &Instance, before: u64) {
    until("the slow one is being copied", || instance.bytes_in_pool() > before + (1 << 20));
}

fn top(server: &Server) -> Vec<String> {
    hrefs(&server.send(&server.ask("PROPFIND", "/").with("Depth", 1)))
}

/// The tree was removed first, and what failed in the middle left a part of the copy in its place.
#[test]
fn a_tree_stays_if_its_replacement_fails_in_the_middle() {
    let (instance, server) = slow_copy();
    let anna = instance.user("anna", 1001);
    give(&server, "", 0, 0o777);
    let ask = |method: &str, target: &str| Ask::new(method, target).with("Authorization", &anna);
    until("anna may log in", || server.send(&ask("GET", "/dir/file")).status == 200);
    for path in ["/dir", "/dir/sub"] {
        give(&server, path, 1001, 0o755);
    }
    let copy = ask("COPY", "/source").with("Destination", server.url("/dir"));
    let before = instance.bytes_in_pool();
    let refused = std::thread::scope(|scope| {
        let copying = scope.spawn(|| server.send(&copy));
        until_copied(&instance, before);
        give(&server, "/source/then", 0, 0o600);
        copying.join().unwrap()
    });
    assert_eq!((refused.status, hrefs(&refused)), (207, vec!["/dir/then".to_owned()]));
    assert_unchanged(&server);
    assert_eq!(top(&server), ["/", "/dir/", "/source/"], "nothing is left of the copy");
    give(&server, "/source/then", 0, 0o644);
    assert_eq!(server.put("/source/slow", "fast").status, 204);
    assert_eq!(server.send(&copy).status, 204);
    assert_eq!((server.read("/dir/then"), server.status_of("GET", "/dir/sub")), (b"data".to_vec(), 404));
    assert_eq!(top(&server), ["/", "/dir/", "/source/"], "nor of the tree");
}

#[test]
fn a_tree_stays_if_the_client_hangs_up_while_its_replacement_is_copied() {
    let (instance, server) = slow_copy();
    let before = instance.bytes_in_pool();
    let mut connection = server.connect();
    connection.begin(&relocate(&server, "COPY", "/source", "/dir"));
    until_copied(&instance, before);
    drop(connection);
    until("nothing is left of the copy", || top(&server) == ["/", "/dir/", "/source/"]);
    assert_unchanged(&server);
}

#[test]
fn a_tree_stays_if_the_server_is_killed_while_its_replacement_is_copied() {
    let (instance, server) = slow_copy();
    let before = instance.bytes_in_pool();
    let mut connection = server.connect();
    connection.begin(&relocate(&server, "COPY", "/source", "/dir"));
    until_copied(&instance, before);
    server.kill();
    let server = instance.up();
    assert_unchanged(&server);
    let top = top(&server);
    assert!(top.len() == 4 && top[1].starts_with("/.forebay-copy-"), "{top:?}");
    assert_eq!(server.status_of("DELETE", &top[1]), 204);
}

#[test]
fn a_copy_takes_the_place_of_a_tree_whatever_either_is() {
    let (_instance, server) = two_trees();
    let copy = |from: &str, to: &str, depth: &str| {
        server.send(&relocate(&server, "COPY", from, to).with("Depth", depth)).status
    };
    let token = lock(&server, "/dir/file");
    let locked = relocate(&server, "COPY", "/source", "/dir");
    assert_eq!(server.send(&locked).status, 423);
    let named = format!("</dir/file> ({token})");
    assert_eq!(server.send(&locked.with("If", named)).status, 204, "a tree by another");
    // The lock went with its file (RFC 4918 §9.6), and so does not keep others from the name.
    assert_eq!(server.put("/dir/file", "new").status, 201);
    assert_eq!(server.read("/dir/large"), vec![7; 100_000]);
    assert_eq!(server.status_of("GET", "/dir/sub/deep"), 404);
    assert_eq!(copy("/source/small", "/dir", "infinity"), 204, "a tree by a file");
    assert_eq!(server.read("/dir"), b"data");
    assert_eq!(copy("/source", "/dir", "infinity"), 204, "a file by a tree");
    assert_eq!(server.read("/dir/small"), b"data");
    assert_eq!(copy("/source", "/dir", "0"), 204, "a tree by a directory alone");
    assert_eq!(server.status_of("GET", "/dir/small"), 404);
    assert_eq!(top(&server), ["/", "/dir/", "/source/"]);
}

/// The tree had gone aside before the copy got its name, and a client that makes directories that are missing took it.
#[test]
fn nobody_takes_the_name_of_a_tree_while_a_copy_takes_its_place() {
    let (_instance, server) = two_trees();
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut connection = server.connect();
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(connection.ask(&server.ask("MKCOL", "/dir")).status, 405);
                }
            });
        }
        for _ in 0..40 {
            assert_eq!(server.send(&relocate(&server, "COPY", "/source", "/dir")).status, 204);
        }
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(top(&server), ["/", "/dir/", "/source/"]);
}

#[test]
fn a_tree_stays_if_the_data_of_its_replacement_is_lost() {
    let (instance, server) = two_trees();
    server.stop();
    std::fs::remove_file(&instance.replicas()[0]).unwrap();
    let mut server = instance.up();
    server.expect_errors(&["pool failed", "data of a file is missing"]);
    let refused = server.send(&relocate(&server, "COPY", "/source", "/dir"));
    assert_eq!((refused.status, hrefs(&refused)), (207, vec!["/source/large".to_owned()]));
    assert_unchanged(&server);
}
