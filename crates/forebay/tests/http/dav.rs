//! WebDAV: collections, COPY and MOVE, locks and the If header (RFC 4918).

use crate::server::{Instance, Server};
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

fn hrefs(answer: &Answer) -> Vec<String> {
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
fn what_must_not_be_overwritten_is_not() {
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
