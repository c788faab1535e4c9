//! Quotas by HTTP: 507, and what a collection has and may have (RFC 4331).

use crate::server::{Instance, Server, until};
use crate::wire::Ask;

const UID: &str = "1234";

/// A server, and a user of it who owns `/dir`.
fn with_user() -> (Instance, Server, String) {
    let (instance, server) = Server::start();
    let alice = instance.user("alice", 1234);
    let mut root = server.nfs("root");
    let top = root.root().unwrap();
    let dir = root.mkdir(&top, "dir", 0o755).unwrap();
    let attributes = nfs4::FileAttributes {
        owner: Some(nfs4::attr::Principal4::numeric(1234)),
        ..nfs4::FileAttributes::default()
    };
    root.set_attributes(&dir, nfs4::StateId4::ANONYMOUS, &attributes).unwrap();
    until("the user is known", || {
        server.send(&asked(&alice, "PROPFIND", "/dir").with("Depth", 0)).status == 207
    });
    (instance, server, alice)
}

fn asked(credential: &str, method: &str, target: &str) -> Ask {
    Ask::new(method, target).with("Authorization", credential)
}

#[test]
fn a_put_beyond_the_quota_is_507_and_leaves_what_was_there() {
    let (instance, server, alice) = with_user();
    let put =
        |target: &str, length: usize| server.send(&asked(&alice, "PUT", target).body(vec![7; length])).status;
    assert_eq!(put("/dir/f", 600), 201);
    instance.forebay(&["quota", "set", "--user", UID, "--bytes-hard", "1000"]);
    assert_eq!(put("/dir/g", 401), 507);
    let part = asked(&alice, "PUT", "/dir/g").with("Content-Range", "bytes 0-0/401").body("x");
    assert_eq!(server.send(&part).status, 507, "the whole counts");
    assert_eq!(put("/dir/g", 400), 201);
    // A replaced file gives up its space.
    assert_eq!(put("/dir/f", 600), 204);
    let refused = server.send(&asked(&alice, "PUT", "/dir/f").body([8; 601]));
    assert_eq!(refused.status, 507);
    assert!(refused.text().contains("quota-not-exceeded"), "{refused:?}");
    assert_eq!(server.read("/dir/f"), vec![7; 600]);

    // Without a length, a PUT is checked against the quota when its whole body has arrived.
    let mut chunked = server.connect();
    let ask = asked(&alice, "PUT", "/dir/g").with("Transfer-Encoding", "chunked");
    chunked.begin(&ask);
    for _ in 0..2 {
        chunked.write(format!("190\r\n{}\r\n", "x".repeat(400)).as_bytes());
    }
    chunked.write(b"0\r\n\r\n");
    assert_eq!(chunked.answer(false).status, 507);
    assert_eq!(server.read("/dir/g"), vec![7; 400]);
    // The administrator is root here, and is not bounded; whose file it is, stays.
    assert_eq!(server.put("/dir/g", [1; 900]).status, 204);
}

#[test]
fn a_tree_that_would_be_replaced_by_more_than_a_quota_has_room_for_stays() {
    let (instance, server, alice) = with_user();
    let send = |ask: Ask| server.send(&ask).status;
    for dir in ["/dir/source", "/dir/old", "/dir/bounded", "/dir/bounded/old"] {
        assert_eq!(send(asked(&alice, "MKCOL", dir)), 201);
    }
    for (target, length) in [("/dir/source/f", 600), ("/dir/old/f", 100), ("/dir/bounded/old/f", 100)] {
        assert_eq!(send(asked(&alice, "PUT", target).body(vec![7; length])), 201);
    }
    let copy = || send(asked(&alice, "COPY", "/dir/source").with("Destination", server.url("/dir/old")));
    instance.forebay(&["quota", "set", "--user", UID, "--bytes-hard", "1399"]);
    assert_eq!(copy(), 507);
    assert_eq!(server.read("/dir/old/f"), [7; 100]);
    instance.forebay(&["quota", "set", "--user", UID, "--bytes-hard", "1400"]);
    assert_eq!(copy(), 204);

    let to = server.url("/dir/bounded/old");
    let move_over = || send(asked(&alice, "MOVE", "/dir/source").with("Destination", &to));
    instance.forebay(&["quota", "set", "--tree", "/dir/bounded", "--bytes-hard", "599"]);
    assert_eq!(move_over(), 507);
    assert_eq!(server.read("/dir/bounded/old/f"), [7; 100]);
    instance.forebay(&["quota", "set", "--tree", "/dir/bounded", "--bytes-hard", "600"]);
    assert_eq!(move_over(), 204);
    assert_eq!(server.read("/dir/bounded/old/f"), [7; 600]);
}

#[test]
fn a_collection_tells_what_is_used_and_what_is_left_of_its_tree() {
    let (instance, server, alice) = with_user();
    assert_eq!(server.send(&asked(&alice, "PUT", "/dir/f").body([7; 300])).status, 201);
    instance.forebay(&["quota", "set", "--tree", "/dir", "--bytes-hard", "1000"]);
    let body = "<D:propfind xmlns:D=\"DAV:\"><D:prop><D:quota-available-bytes/><D:quota-used-bytes/></D:prop></D:propfind>";
    let told =
        |target: &str| server.send(&asked(&alice, "PROPFIND", target).with("Depth", 0).body(body)).text();
    let within = told("/dir");
    assert!(within.contains("<D:quota-available-bytes>700</D:quota-available-bytes>"), "{within}");
    assert!(within.contains("<D:quota-used-bytes>300</D:quota-used-bytes>"), "{within}");
    assert!(!told("/").contains("<D:quota-available-bytes>700<"));
    let moved = asked(&alice, "MKCOL", "/dir/below");
    assert_eq!(server.send(&moved).status, 201);
}
