//! Heads as bytes: RFC sentences, smuggling shapes, and heads cut anywhere.

use http::StatusCode;
use proptest::prelude::*;

use super::*;

fn read(bytes: &[u8]) -> Result<Option<RequestHead>, HeadError> {
    parse_request(&mut BytesMut::from(bytes), &HeadLimits::default())
}

fn head(bytes: &[u8]) -> RequestHead {
    read(bytes).unwrap_or_else(|error| panic!("{error}: {}", bytes.escape_ascii())).unwrap()
}

fn status(bytes: &[u8]) -> u16 {
    read(bytes).map(|_| StatusCode::OK).unwrap_or_else(|error| error.status()).as_u16()
}

/// A request for `/` with these header lines and a `Host`.
fn with(lines: &str) -> Vec<u8> {
    format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n").into_bytes()
}

#[test]
fn a_plain_get_is_read_and_cut_off_its_buffer() {
    let mut buffer =
        BytesMut::from(&b"GET /a%20b?c=d HTTP/1.1\r\nHost: h:8080\r\nX-Odd:  \tv w \t\r\n\r\nGET"[..]);
    let head = parse_request(&mut buffer, &HeadLimits::default()).unwrap().unwrap();
    assert_eq!((head.method, head.version), (Method::GET, Version::HTTP_11));
    assert_eq!((head.uri.path(), head.uri.query()), ("/a%20b", Some("c=d")));
    assert_eq!(head.authority.unwrap().as_str(), "h:8080");
    assert_eq!(head.headers["x-odd"], "v w");
    assert_eq!(head.framing, BodyFraming::None);
    assert!(head.keep_alive && !head.expects_continue);
    assert_eq!(&buffer[..], b"GET");
}

#[test]
fn values_share_the_buffer_that_they_came_in() {
    let mut buffer = BytesMut::from(&b"PROPFIND /x HTTP/1.1\r\nHost: h\r\nDepth: 1\r\n\r\n"[..]);
    let whole = buffer.as_ptr() as usize..buffer.as_ptr() as usize + buffer.len();
    let head = parse_request(&mut buffer, &HeadLimits::default()).unwrap().unwrap();
    assert!(whole.contains(&(head.headers["depth"].as_bytes().as_ptr() as usize)));
    assert!(whole.contains(&(head.uri.path().as_ptr() as usize)));
}

#[test]
fn the_body_is_framed_by_one_header_read_strictly() {
    assert_eq!(head(&with("Content-Length: 17")).framing, BodyFraming::Length(17));
    assert_eq!(head(&with("Transfer-Encoding: Chunked")).framing, BodyFraming::Chunked);
    assert_eq!(head(&with("CONTENT-length: 17")).framing, BodyFraming::Length(17), "names have no case");
    assert_eq!(head(&with("transfer-ENCODING: chunked")).framing, BodyFraming::Chunked);
    for lines in [
        "Content-Length: 1\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 1",
        "Content-Length: 1\r\nContent-Length: 2",
        "Content-Length: 1\r\nContent-Length: 1",
        "Content-Length: 1, 1",
        "Content-Length: +1",
        "Content-Length: -1",
        "Content-Length: 1 1",
        "Content-Length: 0x1",
        "Content-Length:",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding:",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: \x0bchunked",
    ] {
        assert_eq!(status(&with(lines)), 400, "{lines}");
    }
    assert_eq!(status(&with("Transfer-Encoding: gzip, chunked")), 501);
    assert_eq!(status(b"PUT / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
}

#[test]
fn lines_end_with_cr_lf_and_fields_do_not_fold() {
    for bytes in [
        &b"GET / HTTP/1.1\nHost: a\n\n"[..],
        b"GET / HTTP/1.1\r\nHost: a\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
        b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX y: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x01c\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: b\x7fc\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n",
        b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /  HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / http/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
        b"GET /\r\n\r\n",
        b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01",
        b" GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(status(bytes), 400, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_few_empty_lines_before_a_request_are_skipped() {
    assert_eq!(head(b"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").method, Method::GET);
    assert_eq!(status(&b"\r\n".repeat(5)), 400);
}

#[test]
fn a_version_that_is_not_ours_is_told_so() {
    assert_eq!(status(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
    assert_eq!(status(b"GET / HTTP/3.0\r\nHost: a\r\n\r\n"), 505);
    assert_eq!(status(b"GET / HTTP/11\r\nHost: a\r\n\r\n"), 400);
    assert_eq!(head(b"GET / HTTP/1.0\r\n\r\n").authority, None);
}

#[test]
fn http_1_1_names_one_host() {
    assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status(b"GET http://a/ HTTP/1.1\r\n\r\n"), 400);
    for lines in ["Host: a", "Host: b"] {
        assert_eq!(status(&with(lines)), 400, "two hosts, {lines}");
    }
    for host in ["", "a b", "a/b", "u@a", "a:b", "a:99999", "a,b", ":80", "a:80:80", "[::1", "[::1]x"] {
        assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()), 400, "{host}");
    }
    for host in ["a", "a:", "a.b:80", "[::1]", "[::1]:80", "127.0.0.1:8080", "xn--a_b"] {
        assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()), 200, "{host}");
    }
}

#[test]
fn an_absolute_target_overrides_the_host() {
    let head = head(b"GET https://x:1/p?q HTTP/1.1\r\nHost: y\r\n\r\n");
    assert_eq!((head.uri.path(), head.authority.unwrap().as_str()), ("/p", "x:1"));
}

#[test]
fn targets_of_other_forms_are_refused() {
    assert_eq!(head(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").uri.path(), "*");
    for (line, expected) in [
        ("GET *", 400),
        ("CONNECT a:443", 501),
        ("CONNECT /", 501),
        ("GET a:443", 400),
        ("GET a", 400),
        ("GET /a#b", 400),
        ("GET ftp://a/b", 400),
        ("GET http://u:p@a/b", 400),
        ("GET http:///b", 400),
        ("GET http://", 400),
        ("GET /\u{7f}", 400),
        ("GET /\u{e4}", 200),
        ("AVERYLONGMETHODTHATNOBODYREGISTEREDYET /", 501),
    ] {
        assert_eq!(status(format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()), expected, "{line}");
    }
    assert_eq!(status(b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
}

#[test]
fn a_long_request_line_is_414_before_it_ends() {
    let line = format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status(line.as_bytes()), 414);
    assert_eq!(status(&line.as_bytes()[..17_000]), 414);
    assert!(read(&line.as_bytes()[..16_000]).unwrap().is_none());
}

#[test]
fn a_head_of_a_mebibyte_is_431_after_64_kib() {
    let long = with(&format!("X: {}", "x".repeat(1 << 20)));
    assert_eq!(status(&long), 431);
    assert_eq!(status(&long[..(64 << 10) + 1]), 431);
    let many = with(&"X: y\r\n".repeat(200));
    assert_eq!(status(&many), 431);
    let endless = with(&"X: y\r\n".repeat(1 << 16));
    assert_eq!(status(&endless[..(64 << 10) + 1]), 431);
    assert_eq!(status(&with(["X: y"; 99].join("\r\n").as_str())), 200);
    assert_eq!(status(&with(["X: y"; 100].join("\r\n").as_str())), 431);
}

#[test]
fn a_vector_read_of_ten_thousand_ranges_has_room_and_one_of_a_hundred_thousand_has_not() {
    let ranges = |count: u64| {
        let list: Vec<String> = (0..count)
            .map(|i| format!("{}-{}", 100_000_000_000 + i * 9000, 100_000_001_000 + i * 9000))
            .collect();
        with(&format!("rAnGe: bytes={}", list.join(",")))
    };
    let bytes = ranges(10_000);
    assert!(bytes.len() > 200_000);
    assert_eq!(head(&bytes).headers["range"].as_bytes().iter().filter(|byte| **byte == b',').count(), 9_999);
    assert_eq!(status(&ranges(100_000)), 431);
    let twice = with(&format!("Range: {0}\r\nRange: {0}", "x".repeat(300 << 10)));
    assert_eq!(status(&twice), 431);
}

#[test]
fn a_line_that_may_yet_become_a_range_needs_room_as_well() {
    let limits =
        HeadLimits { request_line_bytes_max: 40, head_bytes_max: 20, range_bytes_max: 10, headers_max: 9 };
    let bytes = b"GET / HTTP/1.1\r\nX:\r\nRange: x\r\nran";
    let mut reader = HeadReader::new(limits);
    assert!(matches!(reader.feed(&mut BytesMut::from(&bytes[..30])), Ok(None)));
    assert_eq!(reader.feed(&mut BytesMut::from(&bytes[..])).unwrap_err(), HeadError::TooLong);
}

#[test]
fn each_head_of_a_connection_names_its_own_host() {
    let mut reader = HeadReader::new(HeadLimits::default());
    let mut host = |value: &str| {
        let mut buffer = BytesMut::from(format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n").as_bytes());
        reader.feed(&mut buffer).map(|head| head.unwrap().authority.unwrap().to_string())
    };
    for value in ["a", "a", "b:80", "a", "A"] {
        assert_eq!(host(value).unwrap(), value);
    }
    let long = "a".repeat(HOST_KEPT_BYTES + 1);
    assert_eq!(host(&long).unwrap(), long);
    assert_eq!(host("a b").unwrap_err(), HeadError::Host);
    assert_eq!(host("user@a").unwrap_err(), HeadError::Host);
    assert_eq!(host("user@a").unwrap_err(), HeadError::Host);
    assert_eq!(reader.host.unwrap(), "A", "neither a long nor a wrong one is remembered");
}

#[test]
fn only_100_continue_is_expected_and_only_for_a_body_in_http_1_1() {
    assert!(head(&with("Content-Length: 1\r\nExpect: 100-Continue")).expects_continue);
    assert!(head(&with("Transfer-Encoding: chunked\r\nExpect: 100-continue")).expects_continue);
    assert!(!head(&with("Content-Length: 0\r\nExpect: 100-continue")).expects_continue);
    assert!(!head(b"PUT / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n").expects_continue);
    assert!(head(&with("content-length: 1\r\neXPECT: 100-continue")).expects_continue);
    assert_eq!(status(&with("Expect: the-impossible")), 417);
}

#[test]
fn a_connection_stays_unless_told_otherwise() {
    assert!(!head(&with("Connection: TE, Close")).keep_alive);
    assert!(!head(&with("CONNECTION: close")).keep_alive);
    assert!(head(&with("Connection: upgrade")).keep_alive);
    assert!(!head(b"GET / HTTP/1.0\r\n\r\n").keep_alive);
    assert!(head(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n").keep_alive);
}

/// Reads bytes that arrive in pieces: each head in short, and the error that ended it or the bytes left over.
fn outcome(pieces: &[&[u8]], limits: HeadLimits) -> (Vec<String>, Option<HeadError>, Vec<u8>) {
    let (mut reader, mut buffer, mut heads) = (HeadReader::new(limits), BytesMut::new(), Vec::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            match reader.feed(&mut buffer) {
                Ok(Some(head)) => heads.push(format!("{head:?}")),
                Ok(None) => break,
                Err(error) => return (heads, Some(error), Vec::new()),
            }
        }
    }
    (heads, None, buffer.to_vec())
}

fn piece_of_head() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("GET /a HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()),
        2 => Just("PUT /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nRange: bytes=0-1\r\n\r\n".to_owned()),
        1 => Just("\r\n".to_owned()),
        1 => Just("\n".to_owned()),
        1 => Just("\r".to_owned()),
        1 => Just("Range: bytes=".to_owned()),
        1 => Just("ran".to_owned()),
        1 => Just(" HTTP/1.1".to_owned()),
        2 => "[ -~\r\n]{0,40}",
        1 => "[x]{60,200}",
    ]
}

proptest! {
    #[test]
    fn a_head_is_the_same_wherever_it_is_cut(
        pieces in prop::collection::vec(piece_of_head(), 1..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let bytes = pieces.concat().into_bytes();
        let limits = HeadLimits {
            request_line_bytes_max: 60, head_bytes_max: 120, range_bytes_max: 50, headers_max: 4,
        };
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let cut: Vec<&[u8]> = at.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        let whole = outcome(&[&bytes], limits);
        prop_assert_eq!(&outcome(&cut, limits), &whole);
        prop_assert_eq!(&outcome(&single, limits), &whole);
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read(&bytes);
    }
}
