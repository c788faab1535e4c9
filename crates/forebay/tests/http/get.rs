//! GET and HEAD: ranges, conditions, checksums, links, and what is not a file (RFC 9110 §13, §14).

use std::fmt::Write as _;

use nfs4::{CreateType4, StableHow4};

use crate::server::Server;

/// No two neighbourhoods are alike, so that bytes of a wrong place show.
fn contents() -> Vec<u8> {
    (0..200_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn with_file() -> (crate::server::Instance, Server, Vec<u8>) {
    let (instance, server) = Server::start();
    assert_eq!(server.put("/file", contents()).status, 201);
    (instance, server, contents())
}

#[test]
fn a_range_gets_these_bytes_and_a_suffix_the_last_ones() {
    let (_instance, server, contents) = with_file();
    let ask = |range: &str| server.send(&server.ask("GET", "/file").with("Range", range));
    for (range, from, to) in [
        ("bytes=0-0", 0, 0),
        ("bytes=100-299", 100, 299),
        ("bytes=199999-", 199_999, 199_999),
        ("bytes=-5", 199_995, 199_999),
        ("bytes=199990-300000", 199_990, 199_999),
    ] {
        let answer = ask(range);
        assert_eq!(answer.status, 206, "{range}");
        assert_eq!(answer.told("content-range"), format!("bytes {from}-{to}/200000"));
        assert!(answer.body == contents[from..=to], "{range}");
    }
    let beyond = ask("bytes=200000-");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */200000")));
    for ignored in ["lines=1-2", "bytes=9-8", "bytes=a-b"] {
        assert_eq!(ask(ignored).status, 200, "{ignored}");
    }
}

#[test]
fn each_answer_with_a_file_has_the_same_headers_for_browsers_and_caches() {
    let (_instance, server, _) = with_file();
    let asked = [
        server.ask("GET", "/file"),
        server.ask("HEAD", "/file"),
        server.ask("GET", "/file").with("Range", "bytes=1-2"),
    ];
    for ask in asked {
        let answer = server.send(&ask);
        for (name, value) in [
            ("accept-ranges", "bytes"),
            ("cache-control", "private, no-cache"),
            ("content-type", "application/octet-stream"),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "sandbox"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{} {name}", answer.status);
        }
        for name in ["etag", "last-modified", "date"] {
            assert!(answer.header(name).is_some_and(|value| !value.is_empty()), "{} {name}", answer.status);
        }
    }
}

/// The parts of multipart/byteranges, each with where it says it is from.
fn parts(content_type: &str, body: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let boundary = content_type.split_once("boundary=").expect("a boundary").1.trim_matches('"');
    let (mut parts, mut at) = (Vec::new(), 0);
    loop {
        let head_end =
            at + body[at..].windows(4).position(|window| window == b"\r\n\r\n").unwrap_or(body.len() - at);
        let head = String::from_utf8_lossy(&body[at..head_end]).into_owned();
        let head = head.trim_start().strip_prefix(&format!("--{boundary}")).expect("a part begins");
        if head.starts_with("--") {
            return parts;
        }
        let range = head.to_ascii_lowercase();
        let range = range.split_once("content-range: bytes ").expect("each part says its range").1;
        let (from, to) = range.split_once('/').unwrap().0.split_once('-').unwrap();
        let (from, to): (usize, usize) = (from.parse().unwrap(), to.parse().unwrap());
        let data = head_end + 4;
        parts.push((from, body[data..data + to - from + 1].to_vec()));
        at = data + to - from + 1;
    }
}

#[test]
fn ten_thousand_ranges_in_one_request_are_the_bytes_of_the_file() {
    let (_instance, server, contents) = with_file();
    // Far apart and out of order, so that none can be joined with another.
    let starts: Vec<usize> = (0..10_000).map(|number| number * 7_919 % 10_000 * 20).collect();
    let mut range = "bytes=".to_owned();
    for from in &starts {
        write!(range, "{from}-{},", from + 9).unwrap();
    }
    let answer = server.send(&server.ask("GET", "/file").with("Range", range.trim_end_matches(',')));
    assert_eq!(answer.status, 206, "{:?}", answer.headers);
    let parts = parts(&answer.told("content-type"), &answer.body);
    assert_eq!(parts.len(), starts.len());
    for (from, data) in parts {
        assert!(data == contents[from..from + 10], "{from}");
    }
}

#[test]
fn a_client_that_has_the_file_is_told_so() {
    let (_instance, server, contents) = with_file();
    let head = server.call("HEAD", "/file");
    let (etag, modified) = (head.told("etag"), head.told("last-modified"));
    let ask = |method: &str, name: &str, value: &str| {
        let answer = server.send(&server.ask(method, "/file").with(name, value));
        assert!(answer.status != 304 || answer.body.is_empty() && answer.told("etag") == etag);
        answer.status
    };
    for method in ["GET", "HEAD"] {
        assert_eq!(ask(method, "If-None-Match", &etag), 304);
        assert_eq!(ask(method, "If-None-Match", &format!("\"other\", W/{etag}")), 304);
        assert_eq!(ask(method, "If-None-Match", "\"other\""), 200);
        assert_eq!(ask(method, "If-Modified-Since", &modified), 304);
        assert_eq!(ask(method, "If-Match", "\"other\""), 412);
        assert_eq!(ask(method, "If-Match", &etag), 200);
        assert_eq!(ask(method, "If-Unmodified-Since", "Sun, 09 Sep 2001 01:46:40 GMT"), 412);
    }
    let if_range = |condition: &str| {
        server.send(&server.ask("GET", "/file").with("Range", "bytes=5-6").with("If-Range", condition))
    };
    assert_eq!(if_range(&etag).body, contents[5..7]);
    let other = if_range("\"other\"");
    assert_eq!((other.status, other.body.len()), (200, contents.len()), "the file was changed: all of it");
}

#[test]
fn head_answers_with_the_headers_of_get() {
    let (_instance, server, _) = with_file();
    let headers = |method: &str| {
        let ask = server.ask(method, "/file").with("Want-Digest", "adler32");
        let mut headers = server.send(&ask).headers;
        headers.retain(|(name, _)| name != "date");
        headers
    };
    assert_eq!(headers("HEAD"), headers("GET"));
    assert!(headers("HEAD").contains(&("content-length".to_owned(), "200000".to_owned())));
}

/// Kind, value of "new contents", value of "new contents" and what NFS wrote behind it; by other programs than ours.
const SUMS: &[(&str, &str, &str)] = &[
    ("adler32", "1e8304d9", "484406db"),
    ("crc32c", "/S00NA==", "x6s15A=="),
    ("md5", "6xWmh0ziZeLD6xtIkVZ7qw==", "aN0UvfDkHbMQj0lLd8EcEQ=="),
    (
        "sha-256",
        "al9jQkoMh487I7eoXdRTUjYFdi5z9Tb5aPh05X9WXX4=",
        "5XdIwdFme0tjbNFFOY5h5RwK/s3pDQ6GqJfSW4mtJSY=",
    ),
];

#[test]
fn checksums_are_right_and_are_computed_anew_after_a_write_by_nfs() {
    let (_instance, server) = Server::start();
    server.put("/file", "new contents");
    let sum = |kind: &str| {
        let answer = server.send(&server.ask("HEAD", "/file").with("Want-Digest", kind));
        answer.told("digest")
    };
    for (kind, before, _) in SUMS {
        assert_eq!(sum(kind), format!("{kind}={before}"));
    }
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 12, StableHow4::FileSync, b" by NFS").unwrap();
    for (kind, _, after) in SUMS {
        assert_eq!(sum(kind), format!("{kind}={after}"), "while it is open for writing");
    }
    client.close(&file).unwrap();
    for (kind, _, after) in SUMS {
        assert_eq!(sum(kind), format!("{kind}={after}"));
    }
    let answer = server.send(&server.ask("GET", "/file").with("Want-Repr-Digest", "sha-256=5, md5=3"));
    assert_eq!(answer.told("repr-digest"), format!("sha-256=:{}:", SUMS[3].2));
}

#[test]
fn a_hole_at_the_end_reads_as_zeros() {
    let (_instance, server) = Server::start();
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"data").unwrap();
    client.set_size(&file.handle, file.stateid, 100_000).unwrap();
    let never_written = client.create(&root, "empty").unwrap();
    client.set_size(&never_written.handle, never_written.stateid, 1_000).unwrap();
    let whole = server.read("/file");
    assert!(whole.len() == 100_000 && whole.starts_with(b"data") && whole[4..].iter().all(|byte| *byte == 0));
    assert_eq!(server.read("/empty"), [0; 1_000]);
    let part = server.send(&server.ask("GET", "/file").with("Range", "bytes=2-5,99998-"));
    let parts = parts(&part.told("content-type"), &part.body);
    assert_eq!(parts, [(2, b"ta\0\0".to_vec()), (99_998, b"\0\0".to_vec())]);
}

#[test]
fn symbolic_links_are_followed_inside_the_namespace_and_loops_are_refused() {
    let (_instance, server) = Server::start();
    assert_eq!(server.status_of("MKCOL", "/dir"), 201);
    server.put("/dir/file", "data");
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let dir = client.lookup(&root, "dir").unwrap();
    let mut link = |dir: &nfs4::NfsFh4, name: &str, target: &str| {
        client
            .create_object(
                dir,
                CreateType4::Lnk(bytes::Bytes::copy_from_slice(target.as_bytes()).into()),
                name,
                0o777,
            )
            .unwrap();
    };
    link(&root, "relative", "dir/file");
    link(&dir, "absolute", "/dir/file");
    link(&dir, "above", "../../../dir/./file");
    link(&root, "to-dir", "dir");
    link(&root, "loop", "loop");
    link(&root, "nowhere", "missing/file");
    link(&root, "outside", "../../../../etc/passwd");
    for name in ["/relative", "/dir/absolute", "/dir/above", "/to-dir/file", "/to-dir/absolute"] {
        assert_eq!(server.read(name), b"data", "{name}");
    }
    assert_eq!(server.put("/relative", "changed").status, 204, "PUT follows too");
    assert_eq!(server.read("/dir/file"), b"changed");
    for name in ["/loop", "/loop/file", "/nowhere", "/outside"] {
        assert_eq!(server.status_of("GET", name), 404, "{name}");
    }
}

#[test]
fn a_device_and_a_fifo_are_not_read() {
    let (_instance, server) = Server::start();
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let null = nfs4::SpecData4 { specdata1: 1, specdata2: 3 };
    client.create_object(&root, CreateType4::Chr(null), "null", 0o666).unwrap();
    client.create_object(&root, CreateType4::Fifo, "fifo", 0o666).unwrap();
    assert_eq!(server.status_of("GET", "/null"), 403);
    assert_eq!(server.status_of("GET", "/fifo"), 403);
}
