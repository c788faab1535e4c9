//! Memory that the assembled server takes for the state of 100,000 opens that clients hold.

use nfs4::{
    ChannelAttrs4, LayoutIomode4, NfsArgop4, NfsFh4, OPEN4_SHARE_ACCESS_BOTH, OpenClaim4, OpenFlag4, StateId4,
};
use testkit::nfs_client::{ClientOptions, FORE_CHANNEL, NfsClient, ops};

use crate::server::{Server, Setup};

/// Of all that belongs to one open: its owner, its stateid, and its places in all tables.
const BYTES_PER_OPEN_MAX: u64 = 1_024;
/// Of COMPOUNDs, so that a round trip is not paid for each. The reply to so many LAYOUTGETs can still be kept.
const BATCH: usize = 8;

/// State that the client holds of each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Each by an owner of its own, as by so many processes: the dearest.
    OwnerEach,
    OneOwner,
    WithLayout,
}

struct Measured {
    opens: u64,
    before_kib: u64,
    after_kib: u64,
}

impl Measured {
    fn bytes_per_open(&self) -> u64 {
        self.after_kib.saturating_sub(self.before_kib) * 1_024 / self.opens
    }
}

fn client(server: &Server) -> NfsClient {
    let fore_channel = ChannelAttrs4 { maxoperations: 64, ..FORE_CHANNEL };
    server.client_by(ClientOptions { fore_channel, ..ClientOptions::named("holder") })
}

fn open(owner: &str, name: &str, how: OpenFlag4) -> NfsArgop4 {
    ops::open_claiming(owner, OPEN4_SHARE_ACCESS_BOTH, how, OpenClaim4::Null(name.into()))
}

fn in_batches(
    client: &mut NfsClient,
    dir: &NfsFh4,
    names: &[String],
    each: impl Fn(usize, &str) -> Vec<NfsArgop4>,
) {
    let names: Vec<(usize, &String)> = names.iter().enumerate().collect();
    for batch in names.chunks(BATCH) {
        let mut operations = Vec::new();
        for (number, name) in batch {
            operations.push(ops::put_fh(dir));
            operations.extend(each(*number, name));
        }
        client.call(&operations).unwrap();
    }
}

fn measure(opens: usize, held: Held) -> Measured {
    // No more than these may be cached of names, whatever is open.
    let configuration = "layout_min_kib = 0\n[namespace]\ncache_mib = 256\nsync = \"interval\"";
    let (_instance, server) = Server::start_with(Setup { configuration, ..Setup::default() });
    let mut client = client(&server);
    let root = client.root().unwrap();
    let names: Vec<String> = (0..opens).map(|number| format!("file {number}")).collect();
    let make =
        |_, name: &str| vec![open("maker", name, ops::unchecked(0o644)), ops::close(StateId4::CURRENT)];
    in_batches(&mut client, &root, &names, make);
    // Names and attributes are in the cache when it begins.
    in_batches(&mut client, &root, &names, |_, name| vec![ops::lookup(name), ops::get_attr(&[4])]);
    let before_kib = server.resident_kib();
    in_batches(&mut client, &root, &names, |number, name| {
        let owner = match held {
            Held::OwnerEach => format!("open owner {number:020}"),
            Held::OneOwner | Held::WithLayout => "owner".to_owned(),
        };
        let mut operations = vec![open(&owner, name, OpenFlag4::NoCreate)];
        if held == Held::WithLayout {
            operations.push(ops::layout_get(StateId4::CURRENT, LayoutIomode4::Rw));
        }
        operations
    });
    Measured { opens: opens as u64, before_kib, after_kib: server.resident_kib() }
}

#[test]
fn an_open_costs_at_most_a_kibibyte() {
    // The dearest kind, and enough of it that nothing else matters.
    let bytes = measure(5_000, Held::OwnerEach).bytes_per_open();
    assert!(bytes <= BYTES_PER_OPEN_MAX, "{bytes} bytes");
    println!("{bytes} bytes an open");
}

/// For `bench/state`, which reads the lines; each is JSON.
#[test]
#[ignore = "a measurement of minutes; bench/state runs it with the release binary"]
fn the_state_of_a_hundred_thousand_opens() {
    for held in [Held::OwnerEach, Held::OneOwner, Held::WithLayout] {
        let measured = measure(100_000, held);
        let Measured { opens, before_kib, after_kib } = measured;
        let bytes = measured.bytes_per_open();
        println!(
            "{{\"held\": \"{held:?}\", \"opens\": {opens}, \"resident_before_kib\": {before_kib}, \
             \"resident_after_kib\": {after_kib}, \"bytes_per_open\": {bytes}}}"
        );
        assert!(bytes <= BYTES_PER_OPEN_MAX, "{held:?}: {bytes} bytes");
    }
}
