//! Keys of tickets that are renewed while clients have layouts.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use nfs4::{FfLayoutReturn4, LayoutIomode4, NfsStat4, StableHow4};
use testkit::nfs_client::{Layout, NfsClient, OpenFile};

use crate::server::{Instance, Server, Setup, status_of};

const WAIT: Duration = Duration::from_secs(30);

/// The line that the command prints.
fn renew(instance: &Instance) -> Option<String> {
    let output = instance.run(&["keys", "renew"]);
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
}

fn generation_in(line: &str) -> u64 {
    let digits = line.strip_prefix("generation ").and_then(|rest| rest.split_once(','));
    digits.expect("the generation comes first").0.parse().unwrap()
}

/// As the status tells it.
fn generation(instance: &Instance) -> u64 {
    let json = instance.run(&["status", "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_slice(&json).unwrap();
    report["keys"]["generation"].as_u64().unwrap()
}

fn with_file(server: &Server) -> (NfsClient, OpenFile) {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"bytes").unwrap();
    (client, file)
}

fn layout_of(client: &mut NfsClient, file: &OpenFile) -> Layout {
    client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap()
}

/// The answer of the pool to a READ with the ticket of the layout.
fn read(data_server: &mut NfsClient, layout: &Layout) -> NfsStat4 {
    let outcome = data_server.read(layout.ticket(), layout.data_server().stateid, 0, 5);
    if let Ok(read) = &outcome {
        assert_eq!(&read.data[..], b"bytes");
    }
    status_of(outcome)
}

#[test]
fn a_client_reads_on_with_its_ticket_and_gets_a_new_one_when_that_is_of_older_keys() {
    let (instance, server) = Server::start();
    let (mut client, file) = with_file(&server);
    let first = layout_of(&mut client, &file);
    let mut data_server = client.data_server(&first).unwrap();
    assert_eq!(read(&mut data_server, &first), NfsStat4::Ok);
    let line = renew(&instance).unwrap();
    assert_eq!(line, "generation 1, 0 s old; tickets of generation 0 for 1 d 0 h more");
    assert_eq!(read(&mut data_server, &first), NfsStat4::Ok, "the same ticket, session and connection");
    let second = layout_of(&mut client, &file);
    assert_ne!(second.ticket(), first.ticket());
    assert_eq!(read(&mut data_server, &second), NfsStat4::Ok);

    renew(&instance).unwrap();
    assert_eq!(
        read(&mut data_server, &first),
        NfsStat4::Stale,
        "the status that makes Linux drop the layout"
    );
    assert_eq!(read(&mut data_server, &second), NfsStat4::Ok);
    client.layout_return(&file.handle, second.stateid, &FfLayoutReturn4::default()).unwrap();
    let third = layout_of(&mut client, &file);
    assert_eq!(read(&mut data_server, &third), NfsStat4::Ok);
    let stateid = third.data_server().stateid;
    data_server.write(third.ticket(), stateid, 0, StableHow4::FileSync, b"BYTES").unwrap();
    assert_eq!(&client.read(&file.handle, file.stateid, 0, 5).unwrap().data[..], b"BYTES");

    server.kill();
    let server = instance.up();
    assert_eq!(generation(&instance), 2);
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let layout = layout_of(&mut client, &file);
    assert_ne!(layout.ticket(), third.ticket(), "sealed in another term");
    let mut data_server = client.data_server(&layout).unwrap();
    let mut status =
        |layout: &Layout| status_of(data_server.read(layout.ticket(), layout.data_server().stateid, 0, 5));
    assert_eq!(
        [status(&first), status(&second), status(&third), status(&layout)],
        [NfsStat4::Stale, NfsStat4::Stale, NfsStat4::Stale, NfsStat4::Ok],
        "those to write are of a former term"
    );
}

#[test]
fn after_the_overlap_a_ticket_of_the_former_keys_is_refused() {
    let setup = Setup { configuration: "[keys]\noverlap_s = 1", ..Setup::default() };
    let (instance, server) = Server::start_with(setup);
    let (mut client, file) = with_file(&server);
    let former = layout_of(&mut client, &file);
    let mut data_server = client.data_server(&former).unwrap();
    renew(&instance).unwrap();
    let deadline = Instant::now() + WAIT;
    while read(&mut data_server, &former) == NfsStat4::Ok {
        assert!(Instant::now() < deadline, "the former keys are never dropped");
    }
    assert_eq!((read(&mut data_server, &former), generation(&instance)), (NfsStat4::Stale, 1));
    let newest = layout_of(&mut client, &file);
    assert_eq!(read(&mut data_server, &newest), NfsStat4::Ok);
}

#[test]
fn keys_of_a_certain_age_are_renewed_by_the_server() {
    let setup = Setup { configuration: "[keys]\nrenew_after_s = 1\noverlap_s = 1", ..Setup::default() };
    let (instance, server) = Server::start_with(setup);
    let (mut client, file) = with_file(&server);
    let deadline = Instant::now() + WAIT;
    while generation(&instance) < 3 {
        assert!(Instant::now() < deadline, "the keys are never renewed");
    }
    let layout = layout_of(&mut client, &file);
    assert_eq!(read(&mut client.data_server(&layout).unwrap(), &layout), NfsStat4::Ok);
}

#[test]
fn keys_are_renewed_on_a_stopped_instance() {
    let (instance, server) = Server::start();
    server.kill();
    assert_eq!(generation_in(&renew(&instance).unwrap()), 1);
    let server = instance.up();
    assert_eq!(generation(&instance), 1);
    let (mut client, file) = with_file(&server);
    let layout = layout_of(&mut client, &file);
    assert_eq!(read(&mut client.data_server(&layout).unwrap(), &layout), NfsStat4::Ok);
}

#[test]
fn a_kill_in_the_middle_of_renewals_takes_none_back_that_was_reported() {
    let (instance, server) = Server::start();
    let (told, reports) = mpsc::channel();
    let last = std::thread::scope(|scope| {
        let instance = &instance;
        // Each by the running server; the first that meets none is on the stopped instance, and the last.
        let renewing = scope.spawn(move || {
            let mut last = 0;
            for _ in 0..8 {
                let Some(line) = renew(instance) else { continue };
                assert!(generation_in(&line) > last, "{line} after {last}");
                last = generation_in(&line);
                // The other side listens to the first ones only.
                let _ = told.send(());
            }
            last
        });
        (0..3).for_each(|_| reports.recv_timeout(WAIT).unwrap());
        server.kill();
        renewing.join().unwrap()
    });
    let _server = instance.up();
    // One that was killed before it could tell is a renewal all the same.
    assert!((last..=last + 1).contains(&generation(&instance)), "{last}, {}", generation(&instance));
}
