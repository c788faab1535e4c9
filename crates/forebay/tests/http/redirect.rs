//! With `redirect = "always"`: what the head hands on to the pool's data face, and what that does with a ticket.

use std::net::SocketAddr;

use nfs4::{FileAttributes, NfsFh4, StableHow4, StateId4};
use testkit::nfs_client::NfsClient;

use crate::access::macaroon;
use crate::server::{Instance, Server, until};
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

pub fn waiting(server: &Server, target: &str, length: usize) -> Ask {
    server.ask("PUT", target).with("Expect", "100-continue").with("Content-Length", length)
}

/// The answer to a PUT that waits with its body, which is not sent.
pub fn sent_elsewhere(server: &Server, ask: &Ask) -> (SocketAddr, String) {
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
    instance.forebay(&["pool", "drain", "pool-0", "--keep-files"]);
    let answer = server.call("GET", "/file");
    assert_eq!((answer.status, &answer.body[..]), (200, &b"0123456789"[..]));
    instance.forebay(&["pool", "enable", "pool-0"]);
    location(&server.call("GET", "/file"));
}

#[test]
fn a_client_that_may_not_read_gets_no_ticket() {
    let (_instance, server) = Server::start_with("redirect = \"always\"\nanonymous = \"refuse\"");
    server.put("/file", "data");
    assert_eq!(server.send(&Ask::new("GET", "/file")).status, 401);
}

#[test]
fn a_forged_ticket_is_refused_at_the_pool_or_left_behind_on_the_way_to_the_head() {
    let (_instance, server) = redirecting();
    server.put("/file", "data");
    let (pool, target) = location(&server.call("GET", "/file"));
    let (path, ticket) = target.split_once("forebay-ticket=").unwrap();
    for at in 0..ticket.len() {
        let other = if ticket.as_bytes()[at] == b'A' { "B" } else { "A" };
        let forged = format!("{path}forebay-ticket={}{other}{}", &ticket[..at], &ticket[at + 1..]);
        let answer = Ask::new("GET", &forged).send(pool);
        // Bytes 4 to 8 are the pool's number, bytes 36 to 40 the generation of keys: of a ticket to another pool, or with keys
        // that the pool does not have, it cannot be told here whether it is forged.
        if (5..10).contains(&at) || (48..53).contains(&at) {
            assert_eq!(location(&answer), (server.web(), "/file".to_owned()), "{forged}");
        } else {
            assert_eq!(answer.status, 403, "{forged}");
        }
    }
    assert_eq!(location(&Ask::new("GET", "/file").send(pool)), (server.web(), "/file".to_owned()));
    for method in ["PROPFIND", "DELETE", "MKCOL", "PUT", "MOVE"] {
        let back = Ask::new(method, &target).send(pool);
        assert_eq!(location(&back), (server.web(), "/file".to_owned()), "{method}");
    }
}

#[test]
fn a_redirect_from_before_the_keys_were_replaced_is_asked_for_again() {
    let (instance, server) = redirecting();
    server.put("/file", "0123456789");
    let (pool, target) = location(&server.call("GET", "/file"));
    let (_, upload) = sent_elsewhere(&server, &waiting(&server, "/new", 8));
    let (_, running) = sent_elsewhere(&server, &waiting(&server, "/running", 8));
    let mut connection = Connection::open(pool);
    connection.begin(&Ask::new("PUT", &running).with("Content-Length", 8));
    connection.write(b"cont");
    instance.forebay(&["keys", "renew"]);
    assert_eq!(Ask::new("GET", &target).send(pool).body, b"0123456789", "the former keys are accepted");
    instance.forebay(&["keys", "renew"]);
    let back = Ask::new("GET", &target).send(pool);
    assert_eq!(location(&back), (server.web(), "/file".to_owned()));
    let (pool, renewed) = location(&server.call("GET", "/file"));
    assert_ne!(renewed, target);
    assert_eq!(Ask::new("GET", &renewed).send(pool).body, b"0123456789");
    let back = Ask::new("PUT", &upload).body("contents").send(pool);
    assert_eq!(location(&back), (server.web(), "/new".to_owned()));
    assert_eq!(server.send(&server.ask("PUT", "/new").body("contents")).status, 201);
    connection.write(b"ents");
    assert_eq!(connection.answer(false).status, 201, "an upload that has begun goes on");
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
    until("the upload is found again", || match put("contents") {
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

/// A file of ten bytes and where a reader was sent for it, with a client that changes it by NFS.
struct Sent {
    pool: SocketAddr,
    target: String,
    client: NfsClient,
    root: NfsFh4,
}

impl Sent {
    fn of(server: &Server) -> Sent {
        server.put("/file", "0123456789");
        let (pool, target) = location(&server.call("GET", "/file"));
        let mut client = server.nfs("host");
        let root = client.root().unwrap();
        Sent { pool, target, client, root }
    }

    fn get(&self) -> Answer {
        Ask::new("GET", &self.target).send(self.pool)
    }

    fn set(&mut self, attributes: &FileAttributes) {
        let file = self.client.lookup(&self.root, "file").unwrap();
        self.client.set_attributes(&file, StateId4::ANONYMOUS, attributes).unwrap();
    }

    /// The answer to a reader that follows the redirect to the head, and from there to a pool.
    fn follow(&self, server: &Server) -> Answer {
        assert_eq!(location(&self.get()), (server.web(), "/file".to_owned()));
        let (pool, target) = location(&server.call("GET", "/file"));
        Ask::new("GET", &target).send(pool)
    }
}

#[test]
fn a_ticket_of_a_file_that_was_overwritten_in_place_leads_back_to_the_head() {
    let (_instance, server) = redirecting();
    let mut sent = Sent::of(&server);
    let etag = sent.get().told("etag");
    let file = sent.client.open(&sent.root, "file", nfs4::OPEN4_SHARE_ACCESS_BOTH).unwrap();
    let by_head = server.call("GET", "/file");
    assert_eq!(by_head.status, 200, "while it is being written, nobody is sent away");
    sent.client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"abc").unwrap();
    assert_eq!(sent.get().status, 307);
    sent.client.close(&file).unwrap();
    let known = Ask::new("GET", &sent.target).with("If-None-Match", &etag).send(sent.pool);
    assert_eq!(known.status, 307, "it is not what that client has");
    let new = sent.follow(&server);
    assert_eq!((new.status, &new.body[..]), (200, &b"abc3456789"[..]));
    assert_ne!(new.told("etag"), etag);
}

#[test]
fn a_ticket_of_a_file_that_was_cut_short_leads_back_to_the_head() {
    let (_instance, server) = redirecting();
    let mut sent = Sent::of(&server);
    sent.set(&FileAttributes { size: Some(4), ..FileAttributes::default() });
    assert_eq!(sent.follow(&server).body, b"0123");
}

#[test]
fn a_ticket_of_a_file_that_was_replaced_leads_back_to_the_head() {
    let (_instance, server) = redirecting();
    let sent = Sent::of(&server);
    server.put("/file", "of another");
    assert_eq!(sent.follow(&server).body, b"of another");
}

#[test]
fn a_ticket_of_a_file_that_was_removed_leads_back_to_the_head() {
    let (_instance, server) = redirecting();
    let sent = Sent::of(&server);
    assert_eq!(server.status_of("DELETE", "/file"), 204);
    assert_eq!(location(&sent.get()), (server.web(), "/file".to_owned()));
    assert_eq!(server.status_of("GET", "/file"), 404);
}

#[test]
fn a_user_who_may_not_read_any_more_reads_nothing_by_an_older_ticket() {
    let (instance, server) = redirecting();
    let ann = instance.user("ann", 1_000);
    let mut sent = Sent::of(&server);
    let get = || server.send(&Ask::new("GET", "/file").with("Authorization", &ann));
    until("ann is known", || get().status != 401);
    (sent.pool, sent.target) = location(&get());
    sent.set(&FileAttributes { mode: Some(0), ..FileAttributes::default() });
    assert_eq!(location(&sent.get()), (server.web(), "/file".to_owned()));
    assert_eq!(get().status, 403);
}

#[test]
fn a_download_by_a_ticket_goes_on_while_its_file_is_replaced() {
    let (_instance, server) = redirecting();
    let contents: Vec<u8> = (0..32 << 20).map(|at: u32| (at % 251) as u8).collect();
    server.put("/file", &contents);
    let (pool, target) = location(&server.call("GET", "/file"));
    let mut reader = Connection::open(pool);
    reader.begin(&Ask::new("GET", &target));
    reader.wait_for_its_begin();
    server.put("/file", "of another");
    assert!(reader.answer(false).body == contents);
    assert_eq!(Ask::new("GET", &target).send(pool).status, 307);
}

#[test]
fn a_share_link_is_still_one_on_the_way_back_from_the_pool() {
    let (_instance, server) = Server::start_with("redirect = \"always\"\nanonymous = \"refuse\"");
    server.put("/file", "0123456789");
    let token = macaroon(&server, "/file", r#"{"caveats":["activity:DOWNLOAD"]}"#);
    let (pool, target) = location(&server.send(&Ask::new("GET", &format!("/file?authz={token}"))));
    assert_eq!(Ask::new("GET", &target).send(pool).body, b"0123456789");
    server.put("/file", "of another");
    let (head, target) = location(&Ask::new("GET", &target).send(pool));
    assert_eq!(head, server.web());
    let (pool, target) = location(&Ask::new("GET", &target).send(head));
    assert_eq!(Ask::new("GET", &target).send(pool).body, b"of another");
}

#[test]
fn a_ticket_ends_with_the_token_that_it_was_given_to() {
    let (_instance, server) = redirecting();
    server.put("/file", "0123456789");
    let token = macaroon(&server, "/file", r#"{"caveats":["activity:DOWNLOAD"],"validity":"PT5S"}"#);
    let ask = Ask::new("GET", "/file").with("Authorization", format!("Bearer {token}"));
    let (pool, target) = location(&server.send(&ask));
    until("the ticket is over", || Ask::new("GET", &target).send(pool).status == 307);
}

#[test]
fn a_credential_that_is_bound_to_addresses_is_not_exchanged_for_a_ticket() {
    let (_instance, server) = redirecting();
    server.put("/file", "0123456789");
    let token = macaroon(&server, "/", r#"{"caveats":["ip:127.0.0.0/8"]}"#);
    let bearer = format!("Bearer {token}");
    let got = server.send(&Ask::new("GET", "/file").with("Authorization", &bearer));
    assert_eq!((got.status, &got.body[..]), (200, &b"0123456789"[..]));
    let put = Ask::new("PUT", "/new").with("Authorization", &bearer);
    let mut connection = server.connect();
    connection.begin(&put.with("Expect", "100-continue").with("Content-Length", 4));
    assert_eq!(connection.next_answer(false).status, 100);
}

#[test]
fn a_put_that_does_not_wait_is_served_by_the_head() {
    let (_instance, server) = redirecting();
    assert_eq!(server.put("/file", "contents").status, 201);
    let known = server.ask("GET", "/file").with("User-Agent", "litmus/0.13 neon/0.32");
    assert_eq!(server.send(&known).body, b"contents", "a client known not to follow is not sent away");
}
