//! With `redirect = "always"`: what the head hands on to the pool's data face, and what that does with a ticket.

use std::net::SocketAddr;

use crate::server::{Instance, Server};
use crate::wire::{Answer, Ask, Connection};

fn redirecting() -> (Instance, Server) {
    Server::start_with("redirect = \"always\"")
}

/// Where a 307 leads: the data face, and what to ask it for.
fn location(answer: &Answer) -> (SocketAddr, String) {
    assert_eq!(answer.status, 307, "{answer:?}");
    let url = answer.told("location");
    let rest = url.strip_prefix("http://").expect("an absolute URL");
    let slash = rest.find('/').unwrap();
    (rest[..slash].parse().expect("an address"), rest[slash..].to_owned())
}

fn waiting(server: &Server, target: &str, length: usize) -> Ask {
    server.ask("PUT", target).with("Expect", "100-continue").with("Content-Length", length)
}

/// The answer to a PUT that waits with its body, which is not sent.
fn sent_elsewhere(server: &Server, ask: &Ask) -> (SocketAddr, String) {
    let mut connection = server.connect();
    connection.begin(ask);
    location(&connection.next_answer(false))
}

#[test]
fn a_get_is_sent_to_the_pool_which_serves_by_the_ticket_alone() {
    let (_instance, server) = redirecting();
    server.put("/a%20file", "0123456789");
    let head = server.call("HEAD", "/a%20file");
    assert_eq!(head.status, 200, "HEAD is answered where it was asked");
    let (pool, target) = location(&server.call("GET", "/a%20file"));
    assert_ne!(pool, server.web());
    let ask = |ask: Ask| ask.send(pool);
    let whole = ask(Ask::new("GET", &target));
    assert_eq!((whole.status, &whole.body[..]), (200, &b"0123456789"[..]));
    assert_eq!(whole.told("etag"), head.told("etag"));
    assert_eq!(whole.told("last-modified"), head.told("last-modified"));
    let part = ask(Ask::new("GET", &target).with("Range", "bytes=2-4"));
    assert_eq!((part.status, &part.body[..]), (206, &b"234"[..]));
    let parts = ask(Ask::new("GET", &target).with("Range", "bytes=0-1,8-9"));
    assert!(parts.status == 206 && parts.told("content-type").starts_with("multipart/byteranges"));
    let known = ask(Ask::new("GET", &target).with("If-None-Match", head.told("etag")));
    assert_eq!(known.status, 304);
    assert_eq!(ask(Ask::new("HEAD", &target)).told("content-length"), "10");
    assert_eq!(ask(Ask::new("GET", &target)).body, b"0123456789", "a ticket serves again");
}

#[test]
fn nobody_is_sent_to_a_drained_pool() {
    let (instance, server) = redirecting();
    server.put("/file", "0123456789");
    location(&server.call("GET", "/file"));
    instance.forebay(&["pool", "drain", "pool-0"]);
    let answer = server.call("GET", "/file");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"0123456789"[..]));
    instance.forebay(&["pool", "enable", "pool-0"]);
    location(&server.call("GET", "/file"));
}

#[test]
fn who_may_not_read_gets_no_ticket() {
    let (_instance, server) = Server::start_with("redirect = \"always\"\nanonymous = \"refuse\"");
    server.put("/file", "data");
    assert_eq!(server.send(&Ask::new("GET", "/file")).status, 401);
}

#[test]
fn a_forged_ticket_is_refused_at_the_pool_and_none_leads_back_to_the_head() {
    let (_instance, server) = redirecting();
    server.put("/file", "data");
    let (pool, target) = location(&server.call("GET", "/file"));
    let (path, ticket) = target.split_once("forebay-ticket=").unwrap();
    for at in 0..ticket.len() {
        let other = if ticket.as_bytes()[at] == b'A' { "B" } else { "A" };
        let forged = format!("{path}forebay-ticket={}{other}{}", &ticket[..at], &ticket[at + 1..]);
        assert_eq!(Ask::new("GET", &forged).send(pool).status, 403, "{forged}");
    }
    assert_eq!(location(&Ask::new("GET", "/file").send(pool)), (server.web(), "/file".to_owned()));
    for method in ["PROPFIND", "DELETE", "MKCOL", "PUT", "MOVE"] {
        let back = Ask::new(method, &target).send(pool);
        assert_eq!(location(&back), (server.web(), "/file".to_owned()), "{method}");
    }
}

#[test]
fn a_put_that_waits_is_sent_to_the_pool_and_published_at_its_end() {
    let (_instance, server) = redirecting();
    let (pool, target) = sent_elsewhere(&server, &waiting(&server, "/file", 8));
    assert_eq!(server.status_of("HEAD", "/file"), 404);
    let mut connection = Connection::open(pool);
    connection.begin(&Ask::new("PUT", &target).with("Content-Length", 8));
    connection.write(b"cont");
    assert_eq!(server.status_of("HEAD", "/file"), 404);
    connection.write(b"ents");
    let done = connection.answer(false);
    assert_eq!(done.status, 201);
    assert_eq!(server.call("HEAD", "/file").told("etag"), done.told("etag"));
    let (pool, reading) = location(&server.call("GET", "/file"));
    assert_eq!(Ask::new("GET", &reading).send(pool).body, b"contents");
    let again = Ask::new("PUT", &target).body("twice").send(pool);
    assert_eq!(again.status, 410, "a ticket to upload is good for one upload");
}

#[test]
fn a_redirected_put_that_breaks_off_or_is_wrong_leaves_the_old_file() {
    let (_instance, server) = redirecting();
    server.put("/file", "old");
    let (pool, target) = sent_elsewhere(&server, &waiting(&server, "/file", 8));
    let mut connection = Connection::open(pool);
    connection.begin(&Ask::new("PUT", &target).with("Content-Length", 8));
    connection.write(b"cont");
    connection.end();
    assert!(connection.answer_or_end().is_none_or(|answer| answer.status == 400));
    let promised = waiting(&server, "/file", 8).with("Digest", "adler32=00000001");
    let (pool, target) = sent_elsewhere(&server, &promised);
    assert_eq!(Ask::new("PUT", &target).body("contents").send(pool).status, 400);
    let head = server.call("HEAD", "/file");
    assert_eq!(head.told("content-length"), "3");
}

#[test]
fn a_redirected_put_that_has_only_to_wait_for_its_name_is_asked_for_again() {
    let (_instance, server) = redirecting();
    server.put("/file", "old");
    let (pool, target) = sent_elsewhere(&server, &waiting(&server, "/file", 8));
    let token = crate::dav::lock(&server, "/file");
    let put = |body: &str| Ask::new("PUT", &target).body(body).send(pool).status;
    assert_eq!(put("contents"), 423);
    assert_eq!(put("contents"), 423);
    let unlock = server.ask("UNLOCK", "/file").with("Lock-Token", token);
    assert_eq!(server.send(&unlock).status, 204);
    assert_eq!(put("CONTENTS"), 409, "it is the upload that was, or none");
    let mut connection = Connection::open(pool);
    connection.begin(&Ask::new("PUT", &target).with("Content-Length", 8));
    connection.write(b"cont");
    connection.end();
    assert!(connection.answer_or_end().is_none_or(|answer| answer.status == 400));
    crate::server::until("the upload is found again", || match put("contents") {
        204 => true,
        status => {
            assert_eq!(status, 410, "another request has it");
            false
        }
    });
    let (pool, reading) = location(&server.call("GET", "/file"));
    assert_eq!(Ask::new("GET", &reading).send(pool).body, b"contents");
    assert_eq!(put("contents"), 410);
}

#[test]
fn a_redirected_put_that_is_tried_again_is_compared_although_no_checksums_are_kept() {
    let (_instance, server) = Server::start_with("redirect = \"always\"\nchecksums = []");
    server.put("/file", "old");
    let (pool, target) = sent_elsewhere(&server, &waiting(&server, "/file", 8));
    let token = crate::dav::lock(&server, "/file");
    let put = |body: &str| Ask::new("PUT", &target).body(body).send(pool).status;
    assert_eq!(put("contents"), 423);
    assert_eq!(server.send(&server.ask("UNLOCK", "/file").with("Lock-Token", token)).status, 204);
    assert_eq!(put("CONTENTS"), 409);
    assert_eq!(put("contents"), 204);
}

#[test]
fn a_put_that_does_not_wait_is_served_by_the_head() {
    let (_instance, server) = redirecting();
    assert_eq!(server.put("/file", "contents").status, 201);
    let known = server.ask("GET", "/file").with("User-Agent", "litmus/0.13 neon/0.32");
    assert_eq!(server.send(&known).body, b"contents", "a client known not to follow is not sent away");
}
