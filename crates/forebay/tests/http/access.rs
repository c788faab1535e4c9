//! Permissions of requests: anonymous, by password, by macaroon, by the session of a page.

use std::time::Duration;

use nfs4::{FileAttributes, NfsFh4, StateId4};
use testkit::nfs_client::ops;

use crate::server::{Server, basic, until};
use crate::wire::{Answer, Ask};

/// `/open` and `/dir/file` may be read by everybody, `/secret` by root.
fn with_files() -> (crate::server::Instance, Server) {
    let (instance, server) = Server::start();
    server.put("/open", "data");
    server.put("/secret", "data");
    assert_eq!(server.status_of("MKCOL", "/dir"), 201);
    server.put("/dir/file", "data");
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let secret: NfsFh4 = client.lookup(&root, "secret").unwrap();
    let mode = FileAttributes { mode: Some(0o600), ..FileAttributes::default() };
    client.set_attributes(&secret, StateId4::ANONYMOUS, &mode).unwrap();
    (instance, server)
}

/// Both ways of logging in are offered, first that which every client knows.
fn assert_challenged(answer: &Answer) {
    assert_eq!(answer.status, 401, "{answer:?}");
    let schemes = answer.all("www-authenticate");
    assert!(schemes[0].starts_with("Basic realm=") && schemes[1].starts_with("Bearer"), "{schemes:?}");
}

#[test]
fn without_a_credential_one_reads_what_nobody_may_and_changes_nothing() {
    let (_instance, server) = with_files();
    let ask = |method: &str, target: &str| server.send(&Ask::new(method, target));
    assert_eq!(ask("GET", "/open").body, b"data");
    assert_eq!(ask("PROPFIND", "/dir").status, 207);
    assert_challenged(&ask("GET", "/secret"));
    let to = |method: &str| Ask::new(method, "/open").with("Destination", server.url("/to"));
    for change in [
        Ask::new("PUT", "/open").body("other"),
        Ask::new("PUT", "/new").body("other"),
        Ask::new("DELETE", "/open"),
        Ask::new("MKCOL", "/made"),
        to("COPY"),
        to("MOVE"),
        Ask::new("LOCK", "/open").body(crate::dav::LOCK),
        Ask::new("PROPPATCH", "/open").body(crate::dav::PATCH),
        Ask::new("POST", "/open").with("Content-Type", "application/macaroon-request").body("{}"),
    ] {
        assert_challenged(&server.send(&change));
    }
    assert_eq!(server.read("/open"), b"data");
    assert_eq!(server.status_of("GET", "/new"), 404);
}

#[test]
fn where_strangers_are_refused_they_read_nothing() {
    let (_instance, server) = Server::start_with("anonymous = \"refuse\"");
    server.put("/open", "data");
    assert_challenged(&server.send(&Ask::new("GET", "/open")));
    assert_challenged(&server.send(&Ask::new("PROPFIND", "/")));
    assert_eq!(server.read("/open"), b"data");
}

#[test]
fn a_wrong_credential_is_401_and_never_taken_for_none() {
    let (_instance, server) = with_files();
    for wrong in [
        basic("admin", "wrong"),
        basic("nobody-known", "wrong"),
        "Bearer unknown".to_owned(),
        "Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJ4In0.".to_owned(),
    ] {
        let answer = server.send(&Ask::new("GET", "/open").with("Authorization", &wrong));
        assert_challenged(&answer);
    }
    let malformed = server.send(&Ask::new("GET", "/open").with("Authorization", "Basic !"));
    assert_eq!(malformed.status, 400);
    for unknown in ["Negotiate YII", "Negotiate", "Digest username=\"ann\""] {
        for path in ["/open", "/api/v1/pools"] {
            assert_challenged(&server.send(&Ask::new("GET", path).with("Authorization", unknown)));
        }
    }
    assert_challenged(&server.send(&Ask::new("GET", "/open?authz=unknown")));
}

pub fn macaroon(server: &Server, target: &str, body: &str) -> String {
    let ask = server.ask("POST", target).with("Content-Type", "application/macaroon-request").body(body);
    let answer = server.send(&ask);
    assert_eq!(answer.status, 200, "{answer:?}");
    let json: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    let token = json["macaroon"].as_str().unwrap().to_owned();
    let with = json["uri"]["targetWithMacaroon"].as_str().unwrap();
    assert_eq!(with, format!("{}?authz={token}", server.url(target)));
    token
}

#[test]
fn a_macaroon_allows_its_activities_below_its_path_and_no_more() {
    let (_instance, server) = with_files();
    let token = macaroon(&server, "/dir", r#"{"caveats":["activity:DOWNLOAD,LIST"],"validity":"PT1H"}"#);
    let ask = |method: &str, target: &str| {
        server.send(&Ask::new(method, target).with("Authorization", format!("Bearer {token}")))
    };
    assert_eq!(ask("GET", "/dir/file").body, b"data");
    assert_eq!(ask("PROPFIND", "/dir").status, 207);
    for (method, target) in [
        ("GET", "/secret"),
        ("GET", "/open"),
        ("PUT", "/dir/new"),
        ("DELETE", "/dir/file"),
        ("MKCOL", "/dir/made"),
        ("GET", "/dir/../secret"),
    ] {
        let status = ask(method, target).status;
        assert!([400, 403].contains(&status), "{method} {target}: {status}");
    }
    let by_url = server.send(&Ask::new("GET", &format!("/dir/file?authz={token}")));
    assert_eq!(by_url.body, b"data");
    let forged: String = token.chars().rev().collect();
    assert_challenged(
        &server.send(&Ask::new("GET", "/dir/file").with("Authorization", format!("Bearer {forged}"))),
    );
}

#[test]
fn head_needs_no_more_than_to_see_metadata_and_a_checksum_needs_more() {
    let (_instance, server) = with_files();
    let ask = |caveat: &str, ask: Ask| {
        let token = macaroon(&server, "/dir", &format!(r#"{{"caveats":["activity:{caveat}"]}}"#));
        server.send(&ask.with("Authorization", format!("Bearer {token}")))
    };
    let head = || Ask::new("HEAD", "/dir/file");
    let told = ask("READ_METADATA", head());
    assert_eq!((told.status, told.header("content-length")), (200, Some("4")));
    assert_eq!(ask("READ_METADATA", Ask::new("GET", "/dir/file")).status, 403);
    assert_eq!(ask("READ_METADATA", head().with("Want-Digest", "adler32")).status, 403);
    assert_eq!(ask("UPLOAD", head().with("Want-Digest", "adler32")).status, 403, "it only adds files");
    // A client that uploads for others, as FTS does, may compare checksums of its uploads.
    for caveat in ["UPLOAD,DELETE", "UPLOAD,LIST", "DOWNLOAD"] {
        let summed = ask(caveat, head().with("Want-Digest", "adler32"));
        assert_eq!(summed.told("digest"), "adler32=0400019b", "{caveat}");
    }
}

#[test]
fn properties_are_seen_by_who_sees_metadata_and_checksums_by_who_may_read() {
    let (_instance, server) = with_files();
    let find = r#"<D:propfind xmlns:D="DAV:"><D:prop><colour xmlns="urn:x"/><C:Checksums xmlns:C="http://www.dcache.org/2013/webdav"/><O:checksums xmlns:O="http://owncloud.org/ns"/></D:prop></D:propfind>"#;
    for file in ["/open", "/secret"] {
        assert_eq!(server.send(&server.ask("PROPPATCH", file).body(crate::dav::PATCH)).status, 207);
    }
    let seen = |ask: Ask| {
        let found = server.send(&ask.with("Depth", 0).body(find));
        assert_eq!(found.status, 207);
        (found.text().contains(">red<"), found.text().contains("0400019b"))
    };
    assert_eq!(seen(server.ask("PROPFIND", "/secret")), (true, true));
    assert_eq!(seen(Ask::new("PROPFIND", "/open")), (true, true));
    assert_eq!(seen(Ask::new("PROPFIND", "/secret")), (true, false), "by the mode bits");
    let token = macaroon(&server, "/", r#"{"caveats":["activity:READ_METADATA"]}"#);
    let ask = Ask::new("PROPFIND", "/secret").with("Authorization", format!("Bearer {token}"));
    assert_eq!(seen(ask), (true, false), "by the credential");
}

#[test]
fn a_macaroon_to_upload_makes_files_and_replaces_none() {
    let (_instance, server) = with_files();
    let token = macaroon(&server, "/dir", r#"{"caveats":["activity:UPLOAD"]}"#);
    let put = |target: &str| {
        let ask = Ask::new("PUT", target).with("Authorization", format!("Bearer {token}"));
        server.send(&ask.body("other")).status
    };
    assert_eq!(put("/dir/new"), 201);
    assert_eq!(put("/dir/new"), 403, "replacing needs DELETE");
    assert_eq!(put("/dir/file"), 403);
    assert_eq!(put("/new"), 403);
    assert_eq!(server.read("/dir/file"), b"data");
}

/// It would keep the owner from writing what the credential may not write itself.
#[test]
fn a_macaroon_to_upload_locks_no_file_that_is_there() {
    let (_instance, server) = with_files();
    let lock = |activities: &str, target: &str| {
        let token = macaroon(&server, "/dir", &format!(r#"{{"caveats":["activity:{activities}"]}}"#));
        let ask = Ask::new("LOCK", target).with("Authorization", format!("Bearer {token}"));
        let body = r#"<D:lockinfo xmlns:D="DAV:"><D:lockscope><D:exclusive/></D:lockscope><D:locktype><D:write/></D:locktype></D:lockinfo>"#;
        server.send(&ask.body(body)).status
    };
    assert_eq!(lock("UPLOAD", "/dir/file"), 403);
    assert_eq!(lock("UPLOAD", "/dir/new"), 201);
    assert_eq!(lock("UPLOAD,DELETE", "/dir/file"), 200);
}

#[test]
fn a_macaroon_to_read_neither_renews_nor_ends_a_lock() {
    let (_instance, server) = with_files();
    let lock = crate::dav::lock(&server, "/dir/file");
    let ask = |activities: &str, method: &str| {
        let token = macaroon(&server, "/dir", &format!(r#"{{"caveats":["activity:{activities}"]}}"#));
        let ask = Ask::new(method, "/dir/file").with("Authorization", format!("Bearer {token}"));
        let name = if method == "LOCK" { "If" } else { "Lock-Token" };
        let value = if method == "LOCK" { format!("({lock})") } else { lock.clone() };
        server.send(&ask.with(name, value)).status
    };
    assert_eq!((ask("DOWNLOAD,LIST", "LOCK"), ask("DOWNLOAD,LIST", "UNLOCK")), (403, 403));
    assert_eq!((ask("UPLOAD", "LOCK"), ask("UPLOAD", "UNLOCK")), (200, 204));
}

/// The name is free when the lock is asked for, and not when it is given.
#[test]
fn a_macaroon_to_upload_locks_no_file_that_comes_while_it_waits() {
    let (_instance, server) = with_files();
    let mut client = server.nfs("writer");
    let root = client.root().unwrap();
    let dir = client.lookup(&root, "dir").unwrap();
    let wanted = nfs4::OPEN4_SHARE_ACCESS_BOTH | nfs4::OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let file = client.open(&dir, "file", wanted).unwrap();
    let nfs4::OpenDelegation4::Write(granted) = file.opened.delegation.clone() else {
        panic!("{:?}", file.opened)
    };
    let token = macaroon(&server, "/dir", r#"{"caveats":["activity:UPLOAD"]}"#);
    let lock = Ask::new("LOCK", "/dir/new").with("Authorization", format!("Bearer {token}"));
    let lock = lock.body(crate::dav::LOCK);
    std::thread::scope(|scope| {
        let moved =
            scope.spawn(|| server.send(&crate::dav::relocate(&server, "MOVE", "/dir/file", "/dir/new")));
        client.callbacks.wait_for_recall(Duration::from_secs(20)).expect("a recall comes");
        let mut locker = server.connect();
        locker.begin(&lock);
        locker.write(crate::dav::LOCK.as_bytes());
        // Others go on meanwhile.
        assert_eq!(server.status_of("PROPFIND", "/"), 207);
        let deleg_stateid = granted.stateid;
        let give_back = nfs4::NfsArgop4::DelegReturn(nfs4::DelegReturn4Args { deleg_stateid });
        client.call(&[ops::put_fh(&file.handle), give_back]).unwrap();
        assert_eq!(moved.join().unwrap().status, 201);
        assert_eq!(locker.answer(false).status, 403);
    });
    assert_eq!(server.put("/dir/new", "data").status, 204, "nothing is locked");
}

#[test]
fn a_macaroon_ends_when_it_says() {
    let (_instance, server) = with_files();
    let read = |token: &str| {
        server.send(&Ask::new("GET", "/secret").with("Authorization", format!("Bearer {token}"))).status
    };
    let hour = macaroon(&server, "/secret", r#"{"caveats":["activity:DOWNLOAD"],"validity":"PT1H"}"#);
    let second = macaroon(&server, "/secret", r#"{"caveats":["activity:DOWNLOAD"],"validity":"PT1S"}"#);
    until("the second is over", || read(&second) == 401);
    assert_eq!(read(&hour), 200);
}

#[test]
fn macaroons_end_with_the_password_that_they_come_from() {
    let (instance, server) = with_files();
    let token = macaroon(&server, "/", "{}");
    let session = |server: &Server| {
        server.send(&Ask::new("GET", "/secret").with("Cookie", format!("forebay-session={token}"))).status
    };
    assert_eq!(session(&server), 200);
    instance.forebay(&["user", "set-password", "admin"]);
    until("the session is over", || session(&server) == 401);
}

#[test]
fn a_session_ends_at_the_server_when_its_user_logs_out() {
    let (instance, server) = with_files();
    let link = macaroon(&server, "/", "{}");
    let answer = server.send(&Ask::new("POST", "/ui/login").body(format!("token={link}")));
    let cookie = answer.all("set-cookie")[0].split(';').next().unwrap().to_owned();
    let status =
        |server: &Server| server.send(&Ask::new("GET", "/secret").with("Cookie", cookie.as_str())).status;
    assert_eq!(status(&server), 200);
    let log_out = |origin: &str| {
        let ask = Ask::new("POST", "/ui/logout").with("Cookie", cookie.as_str());
        server.send(&ask.with("Sec-Fetch-Site", origin)).status
    };
    assert_eq!((log_out("cross-site"), status(&server)), (403, 200));
    assert_eq!((log_out("same-origin"), status(&server)), (303, 401));
    let cookie_of_link = Ask::new("POST", "/ui/logout").with("Cookie", format!("forebay-session={link}"));
    let by_link = Ask::new("GET", "/secret").with("Authorization", format!("Bearer {link}"));
    assert_eq!((server.send(&cookie_of_link).status, server.send(&by_link).status), (303, 200));
    server.kill();
    assert_eq!(status(&instance.up()), 401, "after a restart");
}

#[test]
fn macaroons_end_with_the_secret_of_macaroons_and_nothing_else_does() {
    let (instance, server) = with_files();
    let token = macaroon(&server, "/", "{}");
    let bearer = |server: &Server| {
        server.send(&Ask::new("GET", "/secret").with("Authorization", format!("Bearer {token}"))).status
    };
    server.kill();
    let server = instance.up();
    assert_eq!(bearer(&server), 200, "a restart ends nothing");
    server.kill();
    std::fs::remove_file(instance.data().join("macaroon-secret")).unwrap();
    let server = instance.up();
    assert_eq!((bearer(&server), server.status_of("GET", "/secret")), (401, 200));
}

#[test]
fn a_macaroon_may_be_asked_for_with_a_moment_at_which_it_ends() {
    let (_instance, server) = with_files();
    let asked = r#"{"caveats":["activity:DOWNLOAD","before:2100-01-01T00:00:00Z"],"validity":"PT1H"}"#;
    let token = macaroon(&server, "/secret", asked);
    let read = Ask::new("GET", "/secret").with("Authorization", format!("Bearer {token}"));
    assert_eq!(server.send(&read).status, 200);
    for over in ["2020-01-01T00:00:00Z", "2100-01-01T00:00:00", "soon"] {
        let body = format!(r#"{{"caveats":["before:{over}"]}}"#);
        let ask = server.ask("POST", "/secret").with("Content-Type", "application/macaroon-request");
        assert_eq!(server.send(&ask.body(body)).status, 400, "{over}");
    }
}

#[test]
fn a_macaroon_with_a_caveat_that_is_not_understood_is_not_given() {
    let (_instance, server) = with_files();
    for body in
        [r#"{"caveats":["colour:red"]}"#, r#"{"caveats":["activity:READ"]}"#, r#"{"validity":"long"}"#, "{"]
    {
        let ask = server.ask("POST", "/").with("Content-Type", "application/macaroon-request");
        assert_eq!(server.send(&ask.body(body)).status, 400, "{body}");
    }
}

#[test]
fn a_cookie_changes_something_only_beside_the_header_of_a_page_of_ours() {
    let (_instance, server) = with_files();
    let token = macaroon(&server, "/", "{}");
    let by_cookie = |method: &str, target: &str| {
        Ask::new(method, target).with("Cookie", format!("a=b; forebay-session={token}"))
    };
    assert_eq!(server.send(&by_cookie("GET", "/secret")).body, b"data");
    assert_challenged(&server.send(&by_cookie("PUT", "/new").body("data")));
    assert_challenged(&server.send(&by_cookie("DELETE", "/secret")));
    let of_page = by_cookie("PUT", "/new").with("X-Forebay-Page", "1").body("data");
    assert_eq!(server.send(&of_page).status, 201);
}
