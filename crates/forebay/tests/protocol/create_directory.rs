//! `forebay dir create`, and the banner that names it.

use std::process::Output;

use nfs4::attr::{Principal4, number};
use nfs4::{FileAttributes, NfsFh4, NfsStat4};
use testkit::nfs_client::{ClientOptions, NfsClient, auth_sys};

use crate::server::{Instance, Server, Setup, status_of};

const UID: u32 = 1234;
const GID: u32 = 5678;
const OF_USER: [&str; 6] = ["--owner", "1234", "--group", "5678", "--mode", "2775"];

fn create(instance: &Instance, path: &str, more: &[&str]) -> Output {
    instance.run(&[&["dir", "create", path], more].concat())
}

fn created(instance: &Instance, path: &str, more: &[&str]) -> String {
    let output = create(instance, path, more);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn refusal(instance: &Instance, path: &str, more: &[&str]) -> String {
    let output = create(instance, path, more);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it succeeds");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    said
}

fn about(client: &mut NfsClient, dir: &NfsFh4) -> (u32, u32, u32) {
    let wanted = [number::OWNER, number::OWNER_GROUP, number::MODE];
    let FileAttributes { owner, owner_group, mode, .. } = client.attributes(dir, &wanted).unwrap();
    let id = |principal: Option<Principal4>| principal.unwrap().as_numeric().unwrap();
    (id(owner), id(owner_group), mode.unwrap())
}

#[test]
fn on_a_running_server_clients_see_the_new_directory_and_its_owner_writes_there() {
    let (instance, server) = Server::start();
    let options = ClientOptions::named("user").credential(auth_sys(UID, GID, &[]));
    let mut client = server.client_by(options);
    let root = client.root().unwrap();
    assert_eq!(status_of(client.lookup(&root, "scratch")), NfsStat4::NoEnt);
    let change = |client: &mut NfsClient| client.attributes(&root, &[number::CHANGE]).unwrap().change;
    let before = change(&mut client);

    let said = created(&instance, "/scratch", &OF_USER);
    assert_eq!(said, "created /scratch: owner 1234, group 5678, mode 2775\n");
    assert!(change(&mut client) > before, "a client that has the root in its cache looks again");
    let scratch = client.lookup(&root, "scratch").unwrap();
    assert_eq!(about(&mut client, &scratch), (UID, GID, 0o2775));
    client.create(&scratch, "file").unwrap();
    let below = client.mkdir(&scratch, "below", 0o755).unwrap();
    assert_eq!(about(&mut client, &below).2, 0o2755, "set-gid is inherited");
}

#[test]
fn on_a_stopped_server_the_directory_is_there_at_the_next_start() {
    let (instance, server) = Server::start();
    server.terminate();
    created(&instance, "scratch/", &["--owner", "1234", "--group", "5678"]);
    let server = instance.up();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let scratch = client.lookup(&root, "scratch").unwrap();
    assert_eq!(about(&mut client, &scratch), (UID, GID, 0o755));
    assert!(instance.run(&["fsck"]).status.success());
}

#[test]
fn directories_above_are_created_on_demand_and_belong_to_the_owner_of_the_one_they_are_in() {
    let (instance, server) = Server::start();
    created(&instance, "/project", &["--owner", "7", "--group", "8", "--mode", "0700"]);
    let json = created(&instance, "/project/a/b/c", &[&OF_USER[..], &["--parents", "--json"]].concat());
    let told: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(told["parents"], serde_json::json!(["/project/a", "/project/a/b"]));
    assert_eq!((&told["path"], &told["mode"]), (&"/project/a/b/c".into(), &"2775".into()));
    let mut client = server.client("host");
    let mut at = client.root().unwrap();
    for (name, expected) in
        [("project", (7, 8, 0o700)), ("a", (7, 8, 0o755)), ("b", (7, 8, 0o755)), ("c", (UID, GID, 0o2775))]
    {
        at = client.lookup(&at, name).unwrap();
        assert_eq!(about(&mut client, &at), expected, "{name}");
    }
}

#[test]
fn a_directory_that_cannot_be_created_is_reported_in_one_line() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    client.create(&root, "file").unwrap();
    created(&instance, "/scratch", &OF_USER);
    let user = |owner: &'static str| ["--owner", owner, "--group", "1"];
    for (path, arguments, says) in [
        ("/scratch", user("1"), "cannot create /scratch: it exists already"),
        ("/file", user("1"), "cannot create /file: it exists already"),
        ("/", user("1"), "cannot create /: it is the root, which exists already"),
        ("/a/b", user("1"), "/a does not exist (create it first, or add --parents)"),
        ("/file/b", user("1"), "cannot create /file/b: /file is not a directory"),
        ("/a/../b", user("1"), "cannot create /a/../b: path may not have .. in it"),
        ("/x", user("nobody-has-this-name"), "user \"nobody-has-this-name\" is not known on this host"),
    ] {
        let said = refusal(&instance, path, &arguments);
        assert!(said.contains(says), "{path}: {said}");
    }
    let alone = refusal(&instance, "/x", &["--owner", "3999999999"]);
    assert!(alone.contains("knows no primary group of user \"3999999999\"; add --group"), "{alone}");
    for mode in ["999", "17777", "+755", "", "rwx"] {
        let output = create(&instance, "/x", &["--owner", "1", "--group", "1", "--mode", mode]);
        assert_eq!(output.status.code(), Some(2), "{mode}: a mistake in the arguments");
    }
    assert_eq!(status_of(client.lookup(&root, "x")), NfsStat4::NoEnt);
}

#[test]
fn the_group_is_the_primary_group_of_the_owner_by_default() {
    let (instance, _server) = Server::start();
    for (path, owner) in [("/by-name", "root"), ("/by-number", "0")] {
        let said = created(&instance, path, &["--owner", owner, "--mode", "700"]);
        assert_eq!(said, format!("created {path}: owner 0, group 0, mode 0700\n"));
    }
}

#[test]
fn the_banner_names_the_command_until_users_have_a_directory() {
    let squashed = Setup { configuration: "root_squash = true\n", ..Setup::default() };
    let (instance, server) = Server::start_with(squashed);
    // The root belongs to whoever runs the server, who writes there by NFS unless it is root.
    let is_needed = rustix::process::geteuid().is_root();
    let command = "forebay dir create /NAME --owner USER --group GROUP --mode 2775 --data";
    assert_eq!(server.banner.contains(command), is_needed, "{}", server.banner);
    created(&instance, "/scratch", &OF_USER);
    server.terminate();
    let server = instance.up();
    assert!(!server.banner.contains("dir create"), "{}", server.banner);
}

#[test]
fn an_export_can_be_mounted_as_soon_as_the_command_that_creates_it_returns() {
    let configuration = "[[nfs.export]]\npath = \"/first\"\nclients = [\"*\"]\n\
                         [[nfs.export]]\npath = \"/second\"\nclients = [\"*\"]\n\
                         [[nfs.export]]\npath = \"/third\"\nclients = [\"*\"]\n";
    let (instance, server) = Server::start_with(Setup { configuration, ..Setup::default() });
    let mut client = server.client("host");
    let root = client.root().unwrap();
    for path in ["first", "second", "third"] {
        assert_eq!(status_of(client.lookup(&root, path)), NfsStat4::NoEnt);
        created(&instance, &format!("/{path}"), &OF_USER);
        assert_eq!(status_of(client.lookup(&root, path)), NfsStat4::Ok, "{path}");
    }
}

#[test]
fn the_banner_names_an_export_that_does_not_exist() {
    let exported = Setup {
        configuration: "root_squash = true\n[[nfs.export]]\npath = \"/later\"\nclients = [\"*\"]\naccess = \"rw\"\n",
        ..Setup::default()
    };
    let (instance, server) = Server::start_with(exported);
    assert!(server.banner.contains("forebay dir create /later --owner"), "{}", server.banner);
    created(&instance, "/later", &OF_USER);
    server.terminate();
    let server = instance.up();
    assert!(!server.banner.contains("dir create"), "{}", server.banner);
}
