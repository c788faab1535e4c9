//! Bad input: a clear status, nothing done, and the server goes on.

use std::fmt::Write as _;

use crate::server::Server;
use crate::wire::Ask;

/// The answer to bytes as they are.
fn raw(server: &Server, bytes: &[u8]) -> u16 {
    let mut connection = server.connect();
    connection.write(bytes);
    connection.answer(false).status
}

#[test]
fn a_request_whose_end_could_be_read_in_two_ways_is_refused() {
    let (_instance, server) = Server::start();
    let credential = &server.credential;
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 4\r\nContent-Length: 5",
        "Content-Length: 4, 5",
        "Content-Length: +4",
        "Content-Length: -1",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        let head = format!(
            "PUT /file HTTP/1.1\r\nHost: localhost\r\nAuthorization: {credential}\r\n{framing}\r\n\r\n"
        );
        let status =
            raw(&server, format!("{head}0\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        assert!([400, 501].contains(&status), "{framing}: {status}");
    }
    assert_eq!(server.status_of("GET", "/file"), 404);
}

#[test]
fn a_path_that_plays_tricks_is_refused() {
    let (_instance, server) = Server::start();
    server.put("/file", "data");
    for path in [
        "/../file",
        "/dir/../file",
        "/%2e%2e/file",
        "/.%2E/file",
        "/file%00",
        "/dir%2ffile",
        "/%2F",
        "/fi%zzle",
        "/./file",
    ] {
        assert_eq!(server.status_of("GET", path), 400, "{path}");
        assert_eq!(server.put(path, "other").status, 400, "{path}");
    }
    let long = format!("/{}", "n".repeat(256));
    assert!([400, 414].contains(&server.status_of("GET", &long)));
    assert_eq!(server.put(&format!("/{}", "n".repeat(255)), "x").status, 201);
    assert_eq!(raw(&server, b"GET file HTTP/1.1\r\nHost: localhost\r\n\r\n"), 400);
    assert_eq!(raw(&server, b"GET / HTTP/1.1\r\n\r\n"), 400, "HTTP/1.1 needs Host");
    assert_eq!(raw(&server, b"nonsense\r\n\r\n"), 400);
    let outside = server.ask("MOVE", "/file").with("Destination", "/a/../../b");
    assert_eq!(server.send(&outside).status, 400);
    assert_eq!(server.read("/file"), b"data");
}

#[test]
fn a_name_of_the_server_is_no_file_however_it_is_spelled() {
    let (_instance, server) = Server::start();
    server.put("/file", "data");
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let dir = client.mkdir(&root, "ui", 0o755).unwrap();
    client.mkdir(&root, "metrics", 0o755).unwrap();
    client.create(&dir, "file").unwrap();
    for path in ["/%75i/file", "//ui/file", "/u%69/", "//metrics/", "/%61pi/x", "/healt%68"] {
        for method in ["GET", "PROPFIND", "DELETE", "MKCOL", "LOCK"] {
            assert_eq!(server.status_of(method, path), 403, "{method} {path}");
        }
        assert_eq!(server.put(path, "other").status, 403, "{path}");
        let to =
            server.ask("COPY", "/file").with("Destination", path.replace("//", "/%2f").replace("%2f", ""));
        assert_eq!(server.send(&to).status, 403, "{path}");
    }
    for target in ["/api", "/ui/other", "/metrics/x"] {
        let to = server.ask("MOVE", "/file").with("Destination", server.url(target));
        assert_eq!(server.send(&to).status, 403, "{target}");
    }
    assert_eq!(server.status_of("PROPFIND", "/metrics/"), 404);
    assert_eq!(server.read("/file"), b"data");
}

#[test]
fn a_body_with_a_content_encoding_is_refused_before_it_is_sent() {
    let (_instance, server) = Server::start();
    let waiting = server.ask("PUT", "/file").with("Expect", "100-continue").with("Content-Length", 4);
    let mut connection = server.connect();
    connection.begin(&waiting.with("Content-Encoding", "gzip"));
    let refused = connection.next_answer(false);
    assert_eq!((refused.status, refused.header("accept-encoding")), (415, Some("identity")));
    for method in ["PUT", "POST", "PROPFIND", "PROPPATCH", "LOCK"] {
        let ask = server.ask(method, "/file").with("Content-Encoding", "identity, br").body("data");
        assert_eq!(server.send(&ask).status, 415, "{method}");
    }
    assert_eq!(server.status_of("GET", "/file"), 404);
    let plain = server.ask("PUT", "/file").with("Content-Encoding", "Identity").body("data");
    assert_eq!(server.send(&plain).status, 201);
}

#[test]
fn a_head_of_a_mebibyte_is_refused_before_it_is_kept() {
    let (_instance, server) = Server::start();
    let one = Ask::new("GET", "/").with("X-Long", "x".repeat(1 << 20));
    assert_eq!(server.send(&one).status, 431);
    let mut many = Ask::new("GET", "/");
    for number in 0..10_000 {
        many = many.with(&format!("X-{number}"), "x");
    }
    assert_eq!(server.send(&many).status, 431);
    let target = format!("/{}", "long/".repeat(200_000));
    assert!([414, 431].contains(&server.status_of("GET", &target)));
}

#[test]
fn a_hundred_thousand_ranges_are_refused() {
    let (_instance, server) = Server::start();
    server.put("/file", vec![1; 200_000]);
    let ask = |count: usize| {
        let mut range = "bytes=".to_owned();
        for number in 0..count {
            write!(range, "{number}-{number},").unwrap();
        }
        server.send(&server.ask("GET", "/file").with("Range", range.trim_end_matches(',')))
    };
    let refused = ask(100_000);
    assert!([416, 431].contains(&refused.status), "{}", refused.status);
    let whole_again_and_again = format!("bytes={}", ["0-"; 1_000].join(","));
    let refused = server.send(&server.ask("GET", "/file").with("Range", whole_again_and_again));
    assert_eq!(refused.status, 416, "{} bytes", refused.body.len());
}

#[test]
fn a_body_that_is_no_file_has_a_bound() {
    let (_instance, server) = Server::start();
    let long =
        format!("<D:propfind xmlns:D=\"DAV:\"><D:prop>{}</D:prop></D:propfind>", "<a/>".repeat(1 << 20));
    for method in ["PROPFIND", "PROPPATCH", "LOCK"] {
        let status = server.send(&server.ask(method, "/").body(&long)).status;
        assert!([400, 413].contains(&status), "{method}: {status}");
    }
    let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><D:propfind xmlns:D=\"DAV:\"><D:prop>&b;</D:prop></D:propfind>";
    assert_eq!(server.send(&server.ask("PROPFIND", "/").body(bomb)).status, 400);
    let deep = format!("<D:propfind xmlns:D=\"DAV:\">{}", "<a>".repeat(10_000));
    assert_eq!(server.send(&server.ask("PROPFIND", "/").body(deep)).status, 400);
    assert_eq!(server.send(&server.ask("PROPFIND", "/").body("<D:propfind/>")).status, 400);
}

#[test]
fn a_method_that_is_not_known_is_501_and_a_server_that_was_annoyed_serves_on() {
    let (_instance, server) = Server::start();
    assert_eq!(server.status_of("BREW", "/"), 501);
    for garbage in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"\0\0\0\0", b"GET"] {
        let mut connection = server.connect();
        connection.write(garbage);
        connection.end();
        assert!(connection.answer_or_end().is_none_or(|answer| answer.status == 400));
    }
    assert_eq!(server.put("/file", "data").status, 201);
}

/// DNS rebinding: a page's own name is made to resolve to our address. A page can choose its User-Agent.
#[test]
fn a_page_whose_name_stands_for_our_address_is_told_nothing() {
    let (_instance, server) = Server::start();
    assert_eq!(server.put("/secret", "text").status, 201);
    let ask = |target: &str, more: &str| {
        let credential = &server.credential;
        let head = format!("GET {target} HTTP/1.1\r\nAuthorization: {credential}\r\n{more}\r\n\r\n");
        raw(&server, head.as_bytes())
    };
    for agent in ["Mozilla/5.0", "curl/8.0", "x"] {
        for target in ["/secret", "/api/v1/status", "/ui/", "/health", "/metrics"] {
            let rebound = format!("Host: rebound.example.com:8080\r\nUser-Agent: {agent}");
            assert_eq!(ask(target, &rebound), 421, "{target} {agent}");
        }
    }
    assert_eq!(ask("/secret", "Host: localhost"), 200);
    assert_eq!(
        ask("/secret", "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors"),
        403
    );
    let link = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document";
    assert_eq!(ask("/secret", link), 200);
}
