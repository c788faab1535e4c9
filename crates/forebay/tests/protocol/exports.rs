//! Exports by the configuration file; what follows from them is tested at the door.

use std::time::{Duration, Instant};

use nfs4::attr::{Principal4, number};
use nfs4::{FfLayoutReturn4, LayoutIomode4, LayoutReturn4, NfsStat4};
use testkit::nfs_client::ops;

use crate::server::{Instance, Server, Setup, status_of};

fn with(configuration: &'static str) -> Setup {
    Setup { configuration, ..Setup::default() }
}

/// Anew, with this at the end of its configuration.
fn restarted_with(instance: &Instance, server: Server, configuration: &str) -> Server {
    server.terminate();
    let file = instance.path().join("forebay.toml");
    let text = std::fs::read_to_string(&file).unwrap() + configuration;
    std::fs::write(&file, text).unwrap();
    instance.up()
}

#[test]
fn an_export_that_is_not_there_is_warned_of_and_is_one_as_soon_as_it_is_made() {
    let configuration = "[[nfs.export]]\npath = \"/\"\nclients = [\"*\"]\naccess = \"rw\"\n\
                         [[nfs.export]]\npath = \"/later\"\nclients = [\"*\"]\naccess = \"ro\"\n";
    let instance = Instance::new(with(configuration));
    let server = instance.up();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    assert_eq!(status_of(client.lookup(&root, "later")), NfsStat4::NoEnt);
    let later = client.mkdir(&root, "later", 0o777).unwrap();
    let begun = Instant::now();
    let mut names = 0..;
    while status_of(client.mkdir(&later, &format!("{:?}", names.next()), 0o755)) != NfsStat4::RoFs {
        assert!(begun.elapsed() < Duration::from_secs(30), "it is never found");
        std::thread::sleep(Duration::from_millis(50));
    }
    let said = server.log();
    assert!(said.contains("export /later does not exist"), "{said}");
}

#[test]
fn after_a_restart_with_another_configuration_everybody_is_somebody_else() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    client.mkdir(&root, "open", 0o777).unwrap();
    let everybody_is_seven = "[[nfs.export]]\npath = \"/open\"\nclients = [\"127.0.0.0/8\"]\naccess = \"rw\"\n\
         squash = \"all\"\nanonymous_uid = 7\nanonymous_gid = 8\n\
         [[nfs.export]]\npath = \"/open\"\nclients = [\"*\"]\n";
    let server = restarted_with(&instance, server, everybody_is_seven);
    let mut client = server.client("host");
    let root = client.root().unwrap();
    assert_eq!(status_of(client.mkdir(&root, "dir", 0o755)), NfsStat4::RoFs, "it leads to the export only");
    let open = client.lookup(&root, "open").unwrap();
    let dir = client.mkdir(&open, "dir", 0o755).unwrap();
    let made = client.attributes(&dir, &[number::OWNER, number::OWNER_GROUP]).unwrap();
    assert_eq!(made.owner, Some(Principal4::numeric(7)));
    assert_eq!(made.owner_group, Some(Principal4::numeric(8)));
}

#[test]
fn a_return_of_the_layouts_of_the_pseudo_file_system_spares_those_of_the_exports() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    client.mkdir(&root, "open", 0o777).unwrap();
    let export = "[[nfs.export]]\npath = \"/open\"\nclients = [\"*\"]\naccess = \"rw\"\n";
    let server = restarted_with(&instance, server, export);
    let mut client = server.client("host");
    let pseudo = client.root().unwrap();
    let open = client.lookup(&pseudo, "open").unwrap();
    let file = client.create(&open, "file").unwrap();
    let held = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap().stateid;
    let of_file_system = |handle| [ops::put_fh(handle), ops::layout_return_many(LayoutReturn4::FsId)];
    client.call(&of_file_system(&pseudo)).unwrap();
    client.layout_return(&file.handle, held, &FfLayoutReturn4::default()).unwrap();
    let held = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap().stateid;
    client.call(&of_file_system(&open)).unwrap();
    let again = client.layout_return(&file.handle, held, &FfLayoutReturn4::default());
    assert_eq!(status_of(again), NfsStat4::BadStateId);
}

#[test]
fn an_export_is_read_only_unless_it_is_configured_as_writable() {
    let (_instance, server) = Server::start_with(with(
        "[[nfs.export]]\npath = \"/\"\nclients = [\"localhost\"]\nsquash = \"none\"\n",
    ));
    let mut client = server.client("host");
    let root = client.root().unwrap();
    assert_eq!(status_of(client.mkdir(&root, "dir", 0o755)), NfsStat4::RoFs);
}
