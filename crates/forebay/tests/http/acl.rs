//! ACLs that NFS clients set are asked by the HTTP door too.

use nfs4::{FileAttributes, NfsAce4, NfsFh4, StateId4};
use testkit::nfs_client::NfsClient;
use xdr::Opaque;

use crate::server::{Instance, Server, until};
use crate::wire::Ask;

const READ: u32 = 0x1;
const WRITE: u32 = 0x6;
const SEARCH: u32 = 0x20;
/// FILE_INHERIT and DIRECTORY_INHERIT.
const TO_ALL: u32 = 0x3;

fn allow(access_mask: u32, who: &'static str) -> NfsAce4 {
    NfsAce4 { ace_type: 0, flag: 0, access_mask, who: Opaque::from_static(who.as_bytes()) }
}

fn deny(access_mask: u32, who: &'static str) -> NfsAce4 {
    NfsAce4 { ace_type: 1, ..allow(access_mask, who) }
}

fn set(client: &mut NfsClient, file: &NfsFh4, acl: &[NfsAce4]) {
    let attributes = FileAttributes { acl: Some(acl.to_vec()), ..FileAttributes::default() };
    client.set_attributes(file, StateId4::ANONYMOUS, &attributes).unwrap();
}

/// `/dir/file`, which the modes open to everybody; Bob is 1001 and Eve 1002.
fn with_users() -> (Instance, Server, NfsClient, [String; 2]) {
    let (instance, server) = Server::start();
    let mut client = server.nfs("host");
    let root = client.root().unwrap();
    let dir = client.mkdir(&root, "dir", 0o777).unwrap();
    server.put("/dir/file", "data");
    let file = client.lookup(&dir, "file").unwrap();
    let mode = FileAttributes { mode: Some(0o666), ..FileAttributes::default() };
    client.set_attributes(&file, StateId4::ANONYMOUS, &mode).unwrap();
    let users = [instance.user("bob", 1001), instance.user("eve", 1002)];
    for user in &users {
        let ask = Ask::new("GET", "/dir/file").with("Authorization", user);
        until("the user is known", || server.send(&ask).status == 200);
    }
    (instance, server, client, users)
}

fn lookup(client: &mut NfsClient, path: &[&str]) -> NfsFh4 {
    let root = client.root().unwrap();
    path.iter().fold(root, |dir, name| client.lookup(&dir, name).unwrap())
}

#[test]
fn a_user_denied_by_an_acl_neither_reads_nor_writes_by_http() {
    let (_instance, server, mut client, [bob, eve]) = with_users();
    let ask = |user: &str, method: &str, target: &str| {
        server.send(&Ask::new(method, target).with("Authorization", user).body("new")).status
    };
    let file = lookup(&mut client, &["dir", "file"]);
    set(&mut client, &file, &[deny(READ | WRITE, "1001"), allow(READ | WRITE, "EVERYONE@")]);
    assert_eq!(ask(&bob, "GET", "/dir/file"), 403);
    assert_eq!(ask(&bob, "PUT", "/dir/file"), 403);
    assert_eq!(ask(&eve, "GET", "/dir/file"), 200);
    assert_eq!(ask(&eve, "PUT", "/dir/file"), 204);
    // Eve's PUT made a new file under the name: it keeps the entry that denies Bob.
    assert_eq!(ask(&bob, "GET", "/dir/file"), 403);
    let file = lookup(&mut client, &["dir", "file"]);
    set(&mut client, &file, &[allow(READ, "1001")]);
    assert_eq!((ask(&bob, "GET", "/dir/file"), ask(&eve, "GET", "/dir/file")), (200, 403));
}

#[test]
fn directories_are_entered_and_changed_by_http_as_their_acls_say() {
    let (_instance, server, mut client, [bob, eve]) = with_users();
    let ask = |user: &str, method: &str, target: &str| {
        server.send(&Ask::new(method, target).with("Authorization", user)).status
    };
    let dir = lookup(&mut client, &["dir"]);
    set(&mut client, &dir, &[deny(SEARCH, "1001"), allow(READ | WRITE | SEARCH, "EVERYONE@")]);
    assert_eq!((ask(&bob, "GET", "/dir/file"), ask(&eve, "GET", "/dir/file")), (403, 200));
    // DELETE_CHILD is denied to the one, and to the other what is not said goes by ADD_FILE.
    set(&mut client, &dir, &[deny(0x40, "1001"), allow(READ | WRITE | SEARCH, "EVERYONE@")]);
    assert_eq!((ask(&bob, "DELETE", "/dir/file"), ask(&bob, "MKCOL", "/dir/new")), (403, 201));
    assert_eq!((ask(&eve, "DELETE", "/dir/file"), ask(&eve, "GET", "/dir/file")), (204, 404));
}

#[test]
fn uploads_and_directories_made_by_http_inherit() {
    let (_instance, server, mut client, [bob, eve]) = with_users();
    let dir = lookup(&mut client, &["dir"]);
    let inherited = NfsAce4 { flag: TO_ALL, ..allow(READ | WRITE | SEARCH, "1001") };
    set(&mut client, &dir, &[inherited, allow(READ | WRITE | SEARCH, "EVERYONE@")]);
    let ask = |user: &str, method: &str, target: &str| {
        server.send(&Ask::new(method, target).with("Authorization", user)).status
    };
    assert_eq!(ask(&eve, "MKCOL", "/dir/below"), 201);
    assert_eq!(ask(&bob, "PUT", "/dir/below/file"), 201);
    assert_eq!((ask(&bob, "GET", "/dir/below/file"), ask(&eve, "GET", "/dir/below/file")), (200, 403));
}
