//! PUT: visible when it is complete and agrees with what was promised; anything else leaves nothing (RFC 9110 §9.3.4).

use nfs4::attr::{Principal4, number};
use nfs4::{
    FileAttributes, NfsArgop4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_DENY_WRITE, Open4Args, OpenClaim4,
    StateId4,
};
use testkit::nfs_client::ops;

use crate::conflict::Writer;
use crate::server::{Server, until};
use crate::wire::Ask;

/// Of "new contents", by other programs than ours.
const NEW: &[u8] = b"new contents";
const NEW_ADLER32: &str = "1e8304d9";

fn old_file() -> (crate::server::Instance, Server) {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", "old contents").status, 201);
    (instance, server)
}

#[test]
fn a_reader_sees_the_old_contents_until_the_last_byte_of_a_put_is_there() {
    let (_instance, server) = old_file();
    let mut writer = server.connect();
    writer.begin(&server.ask("PUT", "/file").with("Content-Length", 12));
    for byte in &NEW[..11] {
        writer.write(&[*byte]);
        assert_eq!(server.read("/file"), b"old contents");
    }
    writer.write(&NEW[11..]);
    assert_eq!(writer.answer(false).status, 204);
    assert_eq!(server.read("/file"), NEW);
}

#[test]
fn of_two_puts_at_once_a_reader_sees_the_one_or_the_other_whole() {
    let (_instance, server) = Server::start();
    let (one, two) = (vec![1; 300_000], vec![2; 300_000]);
    assert_eq!(server.put("/file", &one).status, 201);
    std::thread::scope(|scope| {
        let server = &server;
        let rounds = |contents| {
            move || -> Vec<u16> { (0..10).map(|_| server.put("/file", contents).status).collect() }
        };
        let writers = [&one, &two].map(|contents| scope.spawn(rounds(contents)));
        while writers.iter().any(|writer| !writer.is_finished()) {
            let seen = server.read("/file");
            assert!(seen == one || seen == two, "{} bytes, mixed", seen.len());
        }
        for writer in writers {
            assert_eq!(writer.join().unwrap(), [204; 10]);
        }
    });
}

/// The reaper took replicas of files that had got their name since it listed those without one.
#[test]
fn a_file_answered_as_created_exists_however_many_uploads_run_beside_it() {
    const UPLOADERS: usize = 4;
    const UPLOADS: usize = 150;
    let (_instance, server) = Server::start();
    let name = |uploader: usize, upload: usize| format!("/{uploader}-{upload}");
    std::thread::scope(|scope| {
        for uploader in 0..UPLOADERS {
            let server = &server;
            scope.spawn(move || {
                for upload in 0..UPLOADS {
                    let name = name(uploader, upload);
                    assert_eq!(server.put(&name, &name).status, 201);
                }
            });
        }
    });
    for (uploader, upload) in
        (0..UPLOADERS).flat_map(|uploader| (0..UPLOADS).map(move |upload| (uploader, upload)))
    {
        let name = name(uploader, upload);
        assert_eq!(server.read(&name), name.as_bytes());
    }
}

#[test]
fn a_put_that_breaks_off_leaves_the_old_file_or_no_name() {
    let (instance, server) = old_file();
    for name in ["/file", "/new"] {
        let mut writer = server.connect();
        writer.begin(&server.ask("PUT", name).with("Content-Length", 6_000_000));
        writer.write(&[7; 3_000_000]);
        until("the bytes are in the pool", || instance.bytes_in_pool() >= 1_000_000);
        drop(writer);
        // The written data is an orphan, and is removed.
        until("the orphan is gone", || instance.bytes_in_pool() < 1_000);
    }
    assert_eq!(server.read("/file"), b"old contents");
    assert_eq!(server.status_of("GET", "/new"), 404);
}

#[test]
fn a_body_shorter_than_its_content_length_is_refused_and_leaves_nothing() {
    let (_instance, server) = Server::start();
    let mut writer = server.connect();
    writer.begin(&server.ask("PUT", "/file").with("Content-Length", 100));
    writer.write(NEW);
    writer.end();
    assert!(writer.answer_or_end().is_none_or(|answer| answer.status == 400));
    assert_eq!(server.status_of("GET", "/file"), 404);
}

#[test]
fn bytes_after_the_content_length_are_not_part_of_the_file() {
    let (_instance, server) = Server::start();
    let mut writer = server.connect();
    writer.begin(&server.ask("PUT", "/file").with("Content-Length", 3));
    writer.write(NEW);
    assert_eq!(writer.answer(false).status, 201);
    assert_eq!(writer.answer(false).status, 400, "the rest is no request");
    assert_eq!(server.read("/file"), b"new");
}

#[test]
fn a_wrong_checksum_is_refused_and_leaves_nothing() {
    let (_instance, server) = old_file();
    for (name, wrong) in [
        ("Digest", "adler32=1e8304da"),
        ("Digest", "md5=AAAAAAAAAAAAAAAAAAAAAA=="),
        ("Repr-Digest", "sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:"),
        ("Content-MD5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("Digest", "adler32=nonsense"),
    ] {
        for target in ["/file", "/new"] {
            let answer = server.send(&server.ask("PUT", target).with(name, wrong).body(NEW));
            assert_eq!(answer.status, 400, "{name}: {wrong}: {answer:?}");
        }
    }
    assert_eq!(server.read("/file"), b"old contents");
    assert_eq!(server.status_of("GET", "/new"), 404);
    let right = server.ask("PUT", "/file").with("Digest", format!("adler32={NEW_ADLER32}")).body(NEW);
    assert_eq!(server.send(&right).status, 204);
}

#[test]
fn a_chunked_body_needs_no_length_and_its_end_is_needed() {
    let (_instance, server) = Server::start();
    let chunked = |target| server.ask("PUT", target).with("Transfer-Encoding", "chunked");
    let mut writer = server.connect();
    writer.begin(&chunked("/file"));
    writer.write(b"4\r\nnew \r\n8;note=x\r\ncontents\r\n0\r\n\r\n");
    assert_eq!(writer.answer(false).status, 201);
    assert_eq!(server.read("/file"), NEW);
    let mut writer = server.connect();
    writer.begin(&chunked("/cut"));
    writer.write(b"4\r\nnew \r\n");
    writer.end();
    assert!(writer.answer_or_end().is_none_or(|answer| answer.status == 400));
    assert_eq!(server.status_of("GET", "/cut"), 404);
}

#[test]
fn a_put_that_waits_is_refused_before_it_sends_its_body() {
    let (_instance, server) = old_file();
    let waiting = |ask: Ask| ask.with("Expect", "100-continue").with("Content-Length", 1u64 << 40);
    for (ask, status) in [
        (Ask::new("PUT", "/file"), 401),
        (server.ask("PUT", "/nowhere/file"), 409),
        (server.ask("PUT", "/file").with("If-None-Match", "*"), 412),
        (server.ask("PUT", "/"), 403),
    ] {
        let mut writer = server.connect();
        writer.begin(&waiting(ask));
        let first = writer.next_answer(false);
        assert_eq!(first.status, status, "{first:?}");
    }
    let mut writer = server.connect();
    writer.begin(&server.ask("PUT", "/file").with("Expect", "100-continue").with("Content-Length", 12));
    assert_eq!(writer.next_answer(false).status, 100);
    writer.write(NEW);
    assert_eq!(writer.answer(false).status, 204);
}

/// `u64::MAX >> 1` bytes are as many as a file can have, and more than a disk has.
#[test]
fn an_upload_that_has_no_room_is_refused_before_its_first_byte() {
    let (instance, server) = Server::start();
    let lengths =
        [(u64::MAX >> 1, 507, "no pool has space for it"), (1 << 63, 413, "larger than files can be")];
    for (length, status, why) in lengths {
        let mut writer = server.connect();
        writer
            .begin(&server.ask("PUT", "/file").with("Expect", "100-continue").with("Content-Length", length));
        let part = server.ask("PUT", "/file").with("Content-Range", format!("bytes 0-0/{length}")).body("x");
        for refused in [writer.next_answer(false), server.send(&part)] {
            assert_eq!(refused.status, status, "{refused:?}");
            assert!(refused.text().contains(why), "{refused:?}");
        }
        let asked = server.ask("PUT", "/file").with("Content-Range", format!("bytes */{length}")).body("");
        assert_eq!(server.send(&asked).header("range"), None, "nothing was begun");
    }
    assert_eq!(instance.bytes_in_pool(), 0);
}

/// The check takes nothing away: both have room, and not together.
#[test]
fn an_announced_length_reserves_no_space_for_its_upload() {
    let (instance, server) = Server::start();
    let status: serde_json::Value = serde_json::from_slice(&instance.output(&["status", "--json"])).unwrap();
    let free = status["pools"][0]["free_bytes"].as_u64().unwrap();
    let begin = |target: &str, length: u64| {
        let mut writer = server.connect();
        writer
            .begin(&server.ask("PUT", target).with("Expect", "100-continue").with("Content-Length", length));
        (writer.next_answer(false).status, writer)
    };
    assert_eq!(begin("/both", free * 2).0, 507);
    let most = free / 10 * 6;
    let (one, _one) = begin("/one", most);
    let part = server.ask("PUT", "/part").with("Content-Range", format!("bytes 0-0/{most}")).body("x");
    let in_parts = server.send(&part).status;
    let (other, _other) = begin("/other", most);
    assert_eq!((one, in_parts, other), (100, 202, 100));
}

#[test]
fn of_many_that_replace_one_state_exactly_one_succeeds() {
    let (_instance, server) = old_file();
    let etag = server.call("HEAD", "/file").told("etag");
    let count = |condition: (&str, &str), target: &str, done: u16| {
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let ask = |number: usize| {
                server.ask("PUT", target).with(condition.0, condition.1).body([number as u8; 9])
            };
            let server = &server;
            let write = |number| {
                let ask = ask(number);
                scope.spawn(move || server.send(&ask).status)
            };
            let writers: Vec<_> = (0..8).map(write).collect();
            writers.into_iter().map(|writer| writer.join().unwrap()).collect()
        });
        assert!(statuses.iter().all(|status| [done, 412].contains(status)), "{statuses:?}");
        statuses.iter().filter(|status| **status == done).count()
    };
    assert_eq!(count(("If-Match", &etag), "/file", 204), 1);
    assert_eq!(count(("If-None-Match", "*"), "/new", 201), 1);
    assert_eq!(server.send(&server.ask("PUT", "/none").with("If-Match", "*").body(NEW)).status, 412);
}

#[test]
fn a_new_file_is_201_and_a_replaced_one_204_with_another_etag() {
    let (_instance, server) = Server::start();
    let first = server.put("/file", "one");
    let second = server.put("/file", "two");
    assert_eq!((first.status, second.status), (201, 204));
    assert_ne!(first.told("etag"), second.told("etag"));
    assert_eq!(server.call("HEAD", "/file").told("etag"), second.told("etag"));
}

#[test]
fn a_put_over_a_file_keeps_its_mode_owner_and_properties() {
    let (_instance, server) = old_file();
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.lookup(&root, "file").unwrap();
    let attributes = FileAttributes {
        mode: Some(0o640),
        owner: Some(Principal4::numeric(1000)),
        owner_group: Some(Principal4::numeric(1001)),
        ..FileAttributes::default()
    };
    client.set_attributes(&file, StateId4::ANONYMOUS, &attributes).unwrap();
    let set = r#"<D:propertyupdate xmlns:D="DAV:"><D:set><D:prop><k xmlns="urn:x">kept</k></D:prop></D:set></D:propertyupdate>"#;
    assert_eq!(server.send(&server.ask("PROPPATCH", "/file").body(set)).status, 207);
    assert_eq!(server.put("/file", NEW).status, 204);
    let new = client.lookup(&root, "file").unwrap();
    assert_ne!(new, file, "it is another file");
    let kept = client.attributes(&new, &[number::MODE, number::OWNER, number::OWNER_GROUP]).unwrap();
    assert_eq!(
        (kept.mode, kept.owner, kept.owner_group),
        (attributes.mode, attributes.owner, attributes.owner_group)
    );
    let find = r#"<D:propfind xmlns:D="DAV:"><D:prop><k xmlns="urn:x"/></D:prop></D:propfind>"#;
    let found = server.send(&server.ask("PROPFIND", "/file").with("Depth", 0).body(find));
    assert!(found.text().contains(">kept<"), "{}", found.text());
}

#[test]
fn an_upload_may_say_when_its_file_was_modified() {
    let (_instance, server) = Server::start();
    let ask = server.ask("PUT", "/file").with("X-OC-Mtime", "1000000000.5").body(NEW);
    assert_eq!(server.send(&ask).status, 201);
    assert_eq!(server.call("HEAD", "/file").told("last-modified"), "Sun, 09 Sep 2001 01:46:40 GMT");
}

#[test]
fn zero_bytes_are_a_file() {
    let (_instance, server) = Server::start();
    assert_eq!(server.put("/file", "").status, 201);
    let answer = server.call("GET", "/file");
    assert_eq!((answer.status, answer.header("content-length")), (200, Some("0")));
    let summed = server.send(&server.ask("HEAD", "/file").with("Want-Digest", "adler32"));
    assert_eq!(summed.told("digest"), "adler32=00000001");
}

#[test]
fn a_put_needs_a_directory_above_and_none_of_its_name() {
    let (_instance, server) = Server::start();
    assert_eq!(server.put("/nowhere/file", NEW).status, 409);
    assert_eq!(server.status_of("MKCOL", "/dir"), 201);
    assert_eq!(server.put("/dir", NEW).status, 405);
    assert_eq!(server.put("/dir/", NEW).status, 405);
    assert_eq!(server.put("/new/", NEW).status, 409, "a slash at the end is a directory's");
}

#[test]
fn an_upload_in_parts_goes_on_where_it_ended() {
    let (_instance, server) = old_file();
    let part = |range: &str, body: &[u8]| {
        server.send(&server.ask("PUT", "/file").with("Content-Range", range).body(body))
    };
    let first = part("bytes 0-3/12", &NEW[..4]);
    assert_eq!((first.status, first.header("range")), (202, Some("bytes=0-3")));
    assert_eq!(server.read("/file"), b"old contents");
    let asked = part("bytes */12", b"");
    assert_eq!((asked.status, asked.header("range")), (308, Some("bytes=0-3")));
    let wrong = part("bytes 6-11/12", &NEW[6..]);
    assert_eq!((wrong.status, wrong.header("range")), (416, Some("bytes=0-3")));
    assert_eq!(part("bytes 4-7/12", b"toolong").status, 400);
    assert_eq!(part("bytes 4-11/*", &NEW[4..]).status, 400, "the whole length is needed");
    assert_eq!(part("bytes 4-11/12", &NEW[4..]).status, 204);
    assert_eq!(server.read("/file"), NEW);
    let over = part("bytes */12", b"");
    assert_eq!((over.status, over.header("range")), (308, None), "nothing is under way any more");
}

/// An upload in parts of one client: the id that it was told, and what it asks with it.
struct Parts<'a> {
    server: &'a Server,
    id: Option<String>,
}

impl Parts<'_> {
    fn of(server: &Server) -> Parts<'_> {
        Parts { server, id: None }
    }

    /// Without a body.
    fn head(&self, range: &str) -> crate::wire::Ask {
        let ask = self.server.ask("PUT", "/file").with("Content-Range", range);
        match &self.id {
            Some(id) => ask.with("Upload-Id", id),
            None => ask,
        }
    }

    fn send(&mut self, range: &str, body: &[u8]) -> u16 {
        let answer = self.server.send(&self.head(range).body(body));
        if let Some(id) = answer.header("upload-id") {
            self.id = Some(id.to_owned());
        }
        answer.status
    }
}

/// The part there may be from a client that gave up: its beginning is not joined with the end of another upload.
#[test]
fn a_part_that_starts_at_the_beginning_starts_a_new_upload() {
    let (_instance, server) = Server::start();
    let mut part = Parts::of(&server);
    assert_eq!(part.send("bytes 0-5/12", b"oldold"), 202);
    assert_eq!(part.send("bytes 0-3/12", &NEW[..4]), 202);
    assert_eq!(part.send("bytes 4-11/12", &NEW[4..]), 201);
    assert_eq!(server.read("/file"), NEW);
}

/// Two uploads with the same login and path: the file was half of each.
#[test]
fn parts_of_a_superseded_upload_are_refused() {
    let (_instance, server) = Server::start();
    let (mut first, mut second) = (Parts::of(&server), Parts::of(&server));
    let range = ["bytes 0-499/1000", "bytes 500-999/1000", "bytes */1000"];
    assert_eq!(first.send(range[0], &[b'x'; 500]), 202);
    assert_eq!(second.send(range[0], &[b'y'; 500]), 202);
    assert_ne!(first.id, second.id);
    let mut nameless = Parts::of(&server);
    assert_eq!(nameless.send(range[1], &[b'x'; 500]), 409, "whose it is cannot be told");
    assert_eq!(nameless.send(range[2], b""), 409, "nor whose is asked about");
    assert_eq!((first.send(range[1], &[b'x'; 500]), first.send(range[2], b"")), (409, 409));
    assert_eq!(server.status_of("GET", "/file"), 404);
    assert_eq!(second.send(range[2], b""), 308);
    assert_eq!(second.send(range[1], &[b'y'; 500]), 201);
    assert!(server.read("/file") == [b'y'; 1_000]);
    // Nor is it mixed with an upload that begins when the other one is complete.
    let mut third = Parts::of(&server);
    assert_eq!(third.send(range[0], &[b'z'; 500]), 202);
    assert_eq!(nameless.send(range[1], &[b'x'; 500]), 409);
    assert_eq!(first.send(range[1], &[b'x'; 500]), 409);
    assert_eq!(third.send(range[1], &[b'z'; 500]), 204);
    assert!(server.read("/file") == [b'z'; 1_000]);
}

/// "The next byte is number 0", it was told, and began a second upload of the name.
#[test]
fn an_upload_whose_part_is_being_received_is_told_to_come_again() {
    let (instance, server) = Server::start();
    let (mut part, whole) = (Parts::of(&server), vec![7; 4_000_000]);
    assert_eq!(part.send("bytes 0-9/4000000", &whole[..10]), 202);
    let mut hanging = server.connect();
    hanging.begin(&part.head("bytes 10-3999999/4000000").with("Content-Length", 3_999_990));
    hanging.write(&whole[10..3_000_000]);
    until("the bytes are in the pool", || instance.bytes_in_pool() >= 1_000_000);
    for (range, body) in [("bytes */4000000", &whole[..0]), ("bytes 10-19/4000000", &whole[10..20])] {
        let answer = server.send(&part.head(range).body(body));
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{range}");
    }
    hanging.write(&whole[3_000_000..]);
    assert_eq!(hanging.answer(false).status, 201);
    assert!(server.read("/file") == whole);
}

/// The part that hangs ends after another upload has begun: it neither takes its place nor is told that it goes on.
#[test]
fn a_part_whose_upload_is_superseded_while_it_is_received_is_refused() {
    let (instance, server) = Server::start();
    let (first, whole) = (Parts::of(&server), vec![7; 4_000_000]);
    let mut hanging = server.connect();
    hanging.begin(&first.head("bytes 0-3999999/8000000").with("Content-Length", 4_000_000));
    hanging.write(&whole[..3_000_000]);
    until("the bytes are in the pool", || instance.bytes_in_pool() >= 1_000_000);
    let mut second = Parts::of(&server);
    assert_eq!(second.send("bytes 0-3/8000000", b"anew"), 202);
    hanging.write(&whole[3_000_000..]);
    assert_eq!(hanging.answer(false).status, 409);
    let asked = server.send(&second.head("bytes */8000000").body(""));
    assert_eq!((asked.status, asked.header("range")), (308, Some("bytes=0-3")));
}

#[test]
fn a_request_with_another_length_ends_no_upload_in_parts() {
    let (_instance, server) = Server::start();
    let part = |range: &str, body: &[u8]| {
        let answer = server.send(&server.ask("PUT", "/file").with("Content-Range", range).body(body));
        (answer.status, answer.header("range").map(str::to_owned))
    };
    let so_far = Some("bytes=0-3".to_owned());
    assert_eq!(part("bytes 0-3/12", &NEW[..4]), (202, so_far.clone()));
    assert_eq!(part("bytes */13", b""), (308, None), "there is none of that length");
    assert_eq!(part("bytes 4-12/13", b"123456789"), (416, None));
    assert_eq!(part("bytes */12", b""), (308, so_far));
    assert_eq!(part("bytes 4-11/12", &NEW[4..]), (201, None));
}

/// A PUT that is let through to its body, which is not sent yet.
fn begun(server: &Server, target: &str) -> crate::wire::Connection {
    let mut writer = server.connect();
    let ask = server.ask("PUT", target).with("Expect", "100-continue").with("Content-Length", NEW.len());
    writer.begin(&ask);
    assert_eq!(writer.next_answer(false).status, 100);
    writer
}

/// It was judged as a change of the file that was there, and made a new member of a directory that somebody had locked.
#[test]
fn a_put_whose_file_is_moved_away_while_it_waits_for_a_layout_is_judged_as_one_of_a_free_name() {
    let (_instance, server) = Server::start();
    let mut put = begun(&server, "/file");
    // Only now, so that the recall is of an upload that has all its bytes.
    let mut holder = Writer::of(&server);
    put.write(NEW);
    holder.gives_back_after(|| {
        let token = crate::dav::lock(&server, "/");
        let to = server.url("/moved");
        let condition = format!("<{}> ({token})", server.url("/"));
        let moved = server.ask("MOVE", "/file").with("Destination", to).with("If", condition);
        assert_eq!(server.send(&moved).status, 201);
    });
    assert_eq!(put.answer(false).status, 423);
    assert_eq!(server.status_of("HEAD", "/file"), 404);
    assert_eq!(server.status_of("HEAD", "/moved"), 200);
}

/// An NFS client denies writes to it.
#[test]
fn a_put_whose_name_another_file_gets_while_it_waits_for_a_layout_is_judged_as_one_of_that_file() {
    let (_instance, server) = Server::start();
    let mut put = begun(&server, "/file");
    let mut holder = Writer::of(&server);
    put.write(NEW);
    let mut other = server.nfs("other");
    let root = other.root().unwrap();
    holder.gives_back_after(|| {
        other.rename((&root, "file"), (&root, "moved")).unwrap();
        let open = NfsArgop4::Open(Open4Args {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_BOTH,
            share_deny: OPEN4_SHARE_DENY_WRITE,
            owner: ops::owner("denier"),
            openhow: ops::guarded(0o644),
            claim: OpenClaim4::Null("file".into()),
        });
        other.open_by(&root, open).unwrap();
    });
    assert_eq!(put.answer(false).status, 423);
    assert_eq!(server.read("/file"), b"");
    assert_eq!(server.status_of("HEAD", "/moved"), 200);
}

/// It got its name where its directory had been moved to, past the locks that hold there.
#[test]
fn an_upload_whose_directory_is_moved_meanwhile_is_given_up() {
    let (_instance, server) = Server::start();
    assert_eq!(server.status_of("MKCOL", "/from"), 201);
    let mut put = begun(&server, "/from/file");
    let moved = server.ask("MOVE", "/from").with("Destination", server.url("/to"));
    assert_eq!(server.send(&moved).status, 201);
    let lock = server.ask("LOCK", "/to").with("Depth", "infinity").body(crate::dav::LOCK);
    assert_eq!(server.send(&lock).status, 200);
    // Another directory of that name is not the one that was meant.
    assert_eq!(server.status_of("MKCOL", "/from"), 201);
    put.write(NEW);
    assert_eq!(put.answer(false).status, 409);
    assert_eq!(server.status_of("HEAD", "/to/file"), 404);
    assert_eq!(server.status_of("HEAD", "/from/file"), 404);
}

#[test]
fn a_part_that_breaks_off_keeps_what_came_of_it() {
    let (instance, server) = Server::start();
    let whole: Vec<u8> = (0..4_000_000u32).map(|at| (at / 1_000) as u8).collect();
    let part = |first: usize| {
        let range = format!("bytes {first}-3999999/4000000");
        server.ask("PUT", "/file").with("Content-Range", range)
    };
    let mut writer = server.connect();
    writer.begin(&part(0).with("Content-Length", 4_000_000));
    writer.write(&whole[..3_000_000]);
    until("the bytes are in the pool", || instance.bytes_in_pool() >= 1_000_000);
    drop(writer);
    let arrived = || {
        let ask = server.ask("PUT", "/file").with("Content-Range", "bytes */4000000").body("");
        let answer = server.send(&ask);
        let last: Option<usize> =
            answer.header("range").map(|told| told["bytes=0-".len()..].parse().unwrap());
        last.map_or(0, |last| last + 1)
    };
    until("the part is kept", || arrived() >= 1_000_000);
    let first = arrived();
    assert!(first <= 3_000_000);
    assert_eq!(server.status_of("GET", "/file"), 404);
    assert_eq!(server.send(&part(first).body(&whole[first..])).status, 201);
    assert!(server.read("/file") == whole);
}

#[test]
fn a_wrong_checksum_of_the_whole_ends_an_upload_in_parts() {
    let (_instance, server) = Server::start();
    let part = |range: &str| server.ask("PUT", "/file").with("Content-Range", range);
    assert_eq!(server.send(&part("bytes 0-4/12").body(&NEW[..5])).status, 202);
    let wrong = part("bytes 5-11/12").with("Digest", "adler32=00000001").body(&NEW[5..]);
    assert_eq!(server.send(&wrong).status, 400);
    assert_eq!(server.send(&part("bytes */12").body("")).header("range"), None);
    assert_eq!(server.status_of("GET", "/file"), 404);
}

#[test]
fn parts_that_are_all_there_wait_for_their_name() {
    let (instance, server) = old_file();
    let part = |range: &str, body: &[u8]| {
        server.send(&server.ask("PUT", "/file").with("Content-Range", range).body(body))
    };
    let whole = vec![7; 4_000_000];
    let mut writer = server.connect();
    let all = server.ask("PUT", "/file").with("Content-Range", "bytes 0-3999999/4000000");
    writer.begin(&all.clone().with("Content-Length", 4_000_000));
    writer.write(&whole[..3_000_000]);
    until("the bytes are in the pool", || instance.bytes_in_pool() >= 1_000_000);
    let token = crate::dav::lock(&server, "/file");
    writer.write(&whole[3_000_000..]);
    assert_eq!(writer.answer(false).status, 423);
    assert_eq!(server.read("/file"), b"old contents");
    let unlock = server.ask("UNLOCK", "/file").with("Lock-Token", token);
    assert_eq!(server.send(&unlock).status, 204);
    assert_eq!(part("bytes */4000000", b"").status, 204);
    assert!(server.read("/file") == whole);
    assert_eq!(part("bytes */4000000", b"").header("range"), None, "it is over");
}

/// Two users, and a directory where everybody may write.
fn with_users(http: &str) -> (crate::server::Instance, Server, [String; 2]) {
    let (instance, server) = Server::start_with(http);
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    client.mkdir(&root, "free", 0o777).unwrap();
    let users = [instance.user("anna", 1001), instance.user("bert", 1002)];
    for user in &users {
        let ask = Ask::new("PROPFIND", "/free").with("Depth", 0).with("Authorization", user);
        until("the user is known", || server.send(&ask).status == 207);
    }
    (instance, server, users)
}

#[test]
fn one_caller_cannot_have_all_uploads_that_may_be_under_way() {
    let (_instance, server, [anna, bert]) = with_users("uploads_per_caller_max = 1");
    let part = |user: &str, target: &str, range: &str| {
        let ask = Ask::new("PUT", target).with("Authorization", user).with("Content-Range", range);
        server.send(&ask.body("abcd"))
    };
    assert_eq!(part(&anna, "/free/one", "bytes 0-3/8").status, 202);
    let refused = part(&anna, "/free/two", "bytes 0-3/8");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(part(&bert, "/free/two", "bytes 0-3/8").status, 202, "others have theirs");
    assert_eq!(part(&anna, "/free/one", "bytes 4-7/8").status, 201);
    assert_eq!(part(&anna, "/free/three", "bytes 0-3/8").status, 202);
}

#[test]
fn a_user_who_begins_uploads_anew_keeps_no_other_from_that() {
    let (_instance, server, [anna, bert]) = with_users("uploads_max = 2\nuploads_per_caller_max = 2");
    let part = |user: &str, target: &str, range: &str, id: &str| {
        let ask = Ask::new("PUT", target).with("Authorization", user).with("Content-Range", range);
        server.send(&if id.is_empty() { ask.body("abcd") } else { ask.with("Upload-Id", id).body("abcd") })
    };
    let begin_anew = |user: &str, target: &str| {
        assert_eq!(part(user, target, "bytes 0-3/8", "").status, 202);
        let begun = part(user, target, "bytes 0-3/8", "");
        assert_eq!(begun.status, 202, "{target}: {begun:?}");
        let id = begun.told("upload-id");
        assert_eq!(part(user, target, "bytes 4-7/8", "").status, 409, "of which of them?");
        assert_eq!(part(user, target, "bytes 4-7/8", &id).status, 201);
    };
    for target in ["/free/a", "/free/b", "/free/c"] {
        begin_anew(&anna, target);
    }
    begin_anew(&bert, "/free/d");
}

#[test]
fn a_put_over_the_file_of_another_user_does_not_set_its_modification_time() {
    let (_instance, server, [anna, bert]) = with_users("");
    let put = |user: &str| {
        let ask = Ask::new("PUT", "/free/file").with("Authorization", user).with("X-OC-Mtime", 1_000_000_000);
        assert!([201, 204].contains(&server.send(&ask.body(NEW)).status));
        server.call("HEAD", "/free/file").told("last-modified")
    };
    let told = "Sun, 09 Sep 2001 01:46:40 GMT";
    assert_eq!(put(&anna), told);
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let free = client.lookup(&root, "free").unwrap();
    let file = client.lookup(&free, "file").unwrap();
    let mode = FileAttributes { mode: Some(0o666), ..FileAttributes::default() };
    client.set_attributes(&file, StateId4::ANONYMOUS, &mode).unwrap();
    assert_ne!(put(&bert), told);
    assert_eq!(put(&anna), told, "it is still hers");
}
