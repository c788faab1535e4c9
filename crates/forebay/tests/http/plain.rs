//! `http.plain_networks`: HTTP without TLS where the server has a certificate.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::server::{Instance, Server};
use crate::wire::{Ask, Connection};

/// A server with a certificate, and with networks whose clients need none.
fn start(networks: &str, more: &str) -> (TempDir, Instance, Server) {
    let dir = tempfile::tempdir().unwrap();
    let mut making = Command::new(env!("CARGO_BIN_EXE_forebay"));
    making.args(["cert", "self-signed", "--host", "127.0.0.1", "--out"]).arg(dir.path());
    assert!(making.output().unwrap().status.success());
    let instance = Instance::new(&configuration(dir.path(), networks, more));
    let server = instance.up();
    (dir, instance, server)
}

fn configuration(dir: &Path, networks: &str, more: &str) -> String {
    let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
    format!("certificate = {certificate:?}\nkey = {key:?}\nplain_networks = [{networks}]\n{more}\n")
}

#[test]
fn a_client_of_a_plain_network_logs_in_without_tls_and_another_is_told_to_use_it() {
    let (_dir, instance, server) = start("\"127.0.0.2\"", "");
    let ask = |source: [u8; 4]| {
        let put = server.ask("PUT", "/file").body("data");
        Connection::open_from(source.into(), server.web()).ask(&put)
    };
    assert_eq!(ask([127, 0, 0, 2]).status, 201);
    let refused = ask([127, 0, 0, 1]);
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("https://"), "{}", refused.text());
    let status = String::from_utf8(instance.output(&["status"])).unwrap();
    let line = format!("http       https://{}/, without TLS for 127.0.0.2/32\n", server.web());
    assert!(status.contains(&line), "{status}");
}

#[test]
fn a_plain_client_is_redirected_to_the_pool_and_back_without_tls() {
    let (_dir, _instance, server) = start("\"127.0.0.0/8\"", "redirect = \"always\"");
    assert_eq!(server.put("/file", "data").status, 201);
    let there = server.call("GET", "/file").told("location");
    let (pool, target) = split(&there);
    assert_ne!(pool, server.web());
    let at_pool = |method: &str| Ask::new(method, target).send(pool);
    assert_eq!(at_pool("GET").body, b"data");
    let back = at_pool("PROPFIND").told("location");
    assert_eq!(split(&back).0, server.web());
}

/// Address and target of a URL without TLS.
fn split(url: &str) -> (SocketAddr, &str) {
    let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("{url} is another scheme"));
    let slash = rest.find('/').unwrap();
    (rest[..slash].parse().unwrap(), &rest[slash..])
}

/// DNS rebinding, as on loopback.
#[test]
fn a_plain_request_by_a_name_that_is_not_ours_is_refused() {
    let (_dir, _instance, server) = start("\"127.0.0.0/8\"", "");
    assert_eq!(server.put("/file", "data").status, 201);
    let mut connection = server.connect();
    let credential = &server.credential;
    let head =
        format!("GET /file HTTP/1.1\r\nHost: rebound.example.com\r\nAuthorization: {credential}\r\n\r\n");
    connection.write(head.as_bytes());
    assert_eq!(connection.answer(false).status, 421);
}
