//! Requests without end, without sense or without hurry: the server stays up, small, and available to other clients.

use std::time::Duration;

use nfs4::{NfsArgop4, NfsStat4, StateId4, TestStateId4Args};
use oncrpc::Credential;
use testkit::nfs_client::{
    ClientOptions, Connection, NfsClient, Reply, Session, auth_sys, call_record, framed, ops,
};
use xdr::{Encoder, Xdr};

use crate::server::{Server, Setup, status_of};

const TIMEOUT: Duration = Duration::from_secs(20);
/// Growth that would mean that an announced length was believed.
const GROWTH_KIB_MAX: u64 = 64 << 10;

fn connection(server: &Server) -> Connection {
    Connection::open(server.head(), std::sync::Arc::default()).unwrap()
}

/// The server answers somebody else, and has not grown.
fn is_well(server: &mut Server, resident_before: u64) {
    assert!(server.is_running());
    let mut client = server.client("well-behaved");
    client.root().unwrap();
    let resident = server.resident_kib();
    assert!(resident < resident_before + GROWTH_KIB_MAX, "{resident_before} KiB have become {resident} KiB");
}

#[test]
fn a_record_that_announces_two_gibibytes_ends_its_connection() {
    let (_instance, mut server) = Server::start();
    let before = server.resident_kib();
    for _ in 0..20 {
        let connection = connection(&server);
        connection.send_raw(&0xffff_ffff_u32.to_be_bytes()).unwrap();
        assert!(connection.is_closed_within(TIMEOUT));
    }
    is_well(&mut server, before);
}

#[test]
fn fragments_without_end_end_their_connection() {
    let (_instance, mut server) = Server::start();
    let before = server.resident_kib();
    let connection = connection(&server);
    for _ in 0..1_000_000 {
        // Empty, and never the last.
        if connection.send_raw(&[0; 4096]).is_err() || connection.is_closed_within(Duration::ZERO) {
            break;
        }
    }
    assert!(connection.is_closed_within(TIMEOUT));
    is_well(&mut server, before);
}

#[test]
fn garbage_is_answered_or_cut_and_never_believed() {
    let (_instance, mut server) = Server::start();
    let before = server.resident_kib();
    // A generator with a fixed seed: the same garbage every time.
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..50 {
        let connection = connection(&server);
        for _ in 0..20 {
            let length = (random() % 600) as usize;
            let message: Vec<u8> = (0..length).map(|_| random() as u8).collect();
            if connection.send_raw(&framed(&message)).is_err() {
                break;
            }
        }
    }
    is_well(&mut server, before);
}

#[test]
fn spoiled_requests_are_answered_or_cut() {
    let (_instance, mut server) = Server::start();
    let before = server.resident_kib();
    let options = ClientOptions::named("spoiled");
    let sound = call_record(7, &options.credential, 1, |encoder| {
        let argarray = vec![options.exchange_id()];
        nfs4::Compound4Args { tag: xdr::Opaque::new(), minorversion: 1, argarray }.encode(encoder);
    });
    for at in (4..sound.len()).step_by(3) {
        let mut spoiled = sound.to_vec();
        spoiled[at] ^= 0xff;
        let connection = connection(&server);
        connection.send_raw(&spoiled).unwrap();
    }
    is_well(&mut server, before);
}

/// A COMPOUND in a session whose operations are written by hand behind a count of the caller's.
fn hand_written(client: &mut NfsClient, count: u32, operations: impl FnOnce(&mut Encoder)) -> Reply {
    let sequence = client.session.sequence(0, true);
    let xid = client.connection.xid();
    let record = call_record(xid, &client.options.credential, 1, |encoder| {
        encoder.put_u32(0);
        encoder.put_u32(2);
        encoder.put_u32(count);
        NfsArgop4::Sequence(sequence).encode(encoder);
        operations(encoder);
    });
    client.connection.send_raw(&record).unwrap();
    let reply = Reply::decode(client.connection.wait_raw(xid, TIMEOUT).unwrap()).unwrap();
    client.session.finish(&sequence, &reply.results);
    reply
}

#[test]
fn counts_that_lie_allocate_nothing() {
    let (_instance, mut server) = Server::start();
    let mut client = server.client("liar");
    let before = server.resident_kib();
    // Four billion operations.
    let reply = hand_written(&mut client, u32::MAX, |_| {});
    assert!(matches!(reply.status, NfsStat4::TooManyOps | NfsStat4::BadXdr), "{}", reply.status);
    // Four billion stateids in TEST_STATEID.
    let reply = hand_written(&mut client, 2, |encoder| {
        encoder.put_u32(nfs4::op::TEST_STATEID);
        encoder.put_u32(u32::MAX);
    });
    assert_eq!(reply.status, NfsStat4::BadXdr);
    // A name, a WRITE and a bitmap of almost that many bytes.
    for (opnum, words) in [
        (nfs4::op::LOOKUP, vec![0xffff_fff0]),
        (nfs4::op::WRITE, vec![0, 0, 0, 0, 0, 0, 2, 0x7fff_ffff]),
        (nfs4::op::GETATTR, vec![0x1000_0000]),
        (nfs4::op::LAYOUTRETURN, vec![0, 4, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0x7fff_ffff]),
    ] {
        let reply = hand_written(&mut client, 3, |encoder| {
            NfsArgop4::PutRootFh.encode(encoder);
            encoder.put_u32(opnum);
            words.iter().for_each(|word| encoder.put_u32(*word));
        });
        assert_eq!((reply.status, reply.results.len()), (NfsStat4::BadXdr, 3), "operation {opnum}");
    }
    is_well(&mut server, before);
}

#[test]
fn operations_before_a_malformed_one_are_executed() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let reply = hand_written(&mut client, 4, |encoder| {
        NfsArgop4::PutRootFh.encode(encoder);
        ops::create(nfs4::CreateType4::Dir, "made", 0o755).encode(encoder);
        encoder.put_u32(nfs4::op::LOOKUP);
        encoder.put_u32(1 << 30);
    });
    assert_eq!((reply.status, reply.results.len()), (NfsStat4::BadXdr, 4));
    let root = client.root().unwrap();
    assert!(client.lookup(&root, "made").is_ok());
}

#[test]
fn a_thousand_operations_are_too_many() {
    let (_instance, mut server) = Server::start();
    let mut client = server.client("host");
    let before = server.resident_kib();
    let many = vec![NfsArgop4::PutRootFh; 1000];
    assert_eq!(client.compound(&many).unwrap().status, NfsStat4::TooManyOps);
    is_well(&mut server, before);
}

#[test]
fn a_list_of_stateids_is_bounded_by_the_reply() {
    let (_instance, mut server) = Server::start();
    let mut client = server.client("host");
    let before = server.resident_kib();
    let stateids = vec![StateId4 { seqid: 1, other: [1; 12] }; 60_000];
    let reply = client.compound(&[NfsArgop4::TestStateId(TestStateId4Args { stateids })]).unwrap();
    let refused =
        matches!(reply.status, NfsStat4::RepTooBigToCache | NfsStat4::RepTooBig | NfsStat4::ReqTooBig);
    assert!(refused || reply.status == NfsStat4::Ok, "{}", reply.status);
    is_well(&mut server, before);
}

#[test]
fn clients_without_sessions_have_a_bound() {
    let setup = Setup { configuration: "clients_max = 50", ..Setup::default() };
    let (_instance, mut server) = Server::start_with(setup);
    let before = server.resident_kib();
    let connection = connection(&server);
    for n in 0..500 {
        let options = ClientOptions::named(&format!("client {n}"));
        let reply = connection.call(&options.credential, 1, &[options.exchange_id()]).unwrap();
        assert!(
            matches!(reply.status, NfsStat4::Ok | NfsStat4::Delay | NfsStat4::Resource),
            "{}",
            reply.status
        );
    }
    is_well(&mut server, before);
}

#[test]
fn connections_have_a_bound_and_idle_ones_hold_nobody_up() {
    let setup = Setup { configuration: "connections_max = 40", ..Setup::default() };
    let (_instance, server) = Server::start_with(setup);
    // One address gets a half.
    let idle: Vec<Connection> = (0..10).map(|_| connection(&server)).collect();
    let mut client = server.client("host");
    client.root().unwrap();
    let beyond: Vec<_> =
        (0..30).map(|_| Connection::open(server.head(), std::sync::Arc::default())).collect();
    let refused = beyond
        .iter()
        .filter(|outcome| match outcome {
            Ok(connection) => connection.is_closed_within(Duration::from_millis(200)),
            Err(_) => true,
        })
        .count();
    assert!(refused >= 15, "{refused} of 30 were refused");
    client.root().unwrap();
    drop((idle, beyond));
}

#[test]
fn half_a_record_holds_nobody_up() {
    let (_instance, server) = Server::start();
    let slow: Vec<Connection> = (0..10)
        .map(|_| {
            let connection = connection(&server);
            connection.send_raw(&(1 << 31 | 1_000_000_u32).to_be_bytes()).unwrap();
            connection.send_raw(&[0; 100]).unwrap();
            connection
        })
        .collect();
    let mut client = server.client("host");
    client.root().unwrap();
    drop(slow);
}

#[test]
fn a_peer_that_reads_no_replies_holds_nobody_up() {
    use std::io::Write;
    let (_instance, mut server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, nfs4::StableHow4::FileSync, &vec![7; 1 << 20]).unwrap();
    let before = server.resident_kib();
    // A session of its own, on a socket that nobody reads from.
    let greedy = server.client("greedy");
    let mut socket = std::net::TcpStream::connect(server.head()).unwrap();
    socket.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let credential = auth_sys(0, 0, &[]);
    for slot in 0..greedy.session.fore.maxrequests {
        let sequence = nfs4::Sequence4Args {
            slotid: slot,
            highest_slotid: slot,
            ..greedy.session.sequence(slot, false)
        };
        let read = [ops::put_fh(&file.handle), ops::read(StateId4::ANONYMOUS, 0, 1 << 20)];
        let record = testkit::nfs_client::compound_record(
            slot + 1,
            &credential,
            2,
            &Session::compound(sequence, &read),
        );
        if socket.write_all(&record).is_err() {
            break;
        }
    }
    assert_eq!(client.read(&file.handle, file.stateid, 0, 10).unwrap().data.len(), 10);
    drop(socket);
    let resident = server.resident_kib();
    assert!(resident < before + 3 * GROWTH_KIB_MAX, "{before} KiB have become {resident} KiB");
    assert!(server.is_running());
}

#[test]
fn opens_of_one_client_have_a_bound_or_room_for_thousands() {
    let (_instance, mut server) = Server::start();
    let mut client = server.client("host");
    let before = server.resident_kib();
    let root = client.root().unwrap();
    client.create(&root, "file").unwrap();
    for n in 0..3_000 {
        let opened = client.open_as(
            &root,
            "file",
            &format!("owner {n}"),
            nfs4::OPEN4_SHARE_ACCESS_READ,
            nfs4::OpenFlag4::NoCreate,
        );
        let status = status_of(opened);
        assert!(matches!(status, NfsStat4::Ok | NfsStat4::Resource | NfsStat4::Delay), "{status}");
    }
    is_well(&mut server, before);
}

#[test]
fn a_symlink_or_name_of_any_length_is_judged() {
    let (_instance, mut server) = Server::start();
    let mut client = server.client("host");
    let before = server.resident_kib();
    let root = client.root().unwrap();
    let long = bytes::Bytes::from(vec![b'x'; 60_000]);
    let outcome = client.create_object(&root, nfs4::CreateType4::Lnk(long.into()), "link", 0o777);
    assert_eq!(status_of(outcome), NfsStat4::NameTooLong);
    assert_eq!(status_of(client.lookup(&root, &"n".repeat(4000))), NfsStat4::NameTooLong);
    assert_eq!(status_of(client.lookup(&root, &"n".repeat(10_000))), NfsStat4::BadXdr);
    is_well(&mut server, before);
}

#[test]
fn the_same_bounds_hold_at_a_pool() {
    let (_instance, mut server) = Server::start();
    let before = server.resident_kib();
    let connection = Connection::open(server.pools[0], std::sync::Arc::default()).unwrap();
    connection.send_raw(&0xffff_ffff_u32.to_be_bytes()).unwrap();
    assert!(connection.is_closed_within(TIMEOUT));
    let options = ClientOptions::named("host").for_data_server();
    let mut client = NfsClient::connect(server.pools[0], options).unwrap();
    assert_eq!(client.compound(&vec![NfsArgop4::GetFh; 1000]).unwrap().status, NfsStat4::TooManyOps);
    let reply = hand_written(&mut client, 2, |encoder| {
        encoder.put_u32(nfs4::op::PUTFH);
        encoder.put_u32(0x7fff_ffff);
    });
    // Minor version 2 on a session is as good as 1.
    assert_eq!(reply.status, NfsStat4::BadXdr);
    let anonymous = Connection::open(server.pools[0], std::sync::Arc::default()).unwrap();
    let reply = anonymous.call(&Credential::None, 1, &[NfsArgop4::PutRootFh]).unwrap();
    assert_eq!(reply.status, NfsStat4::OpNotInSession);
    is_well(&mut server, before);
}

#[test]
fn offsets_and_lengths_beyond_any_file_are_refused_or_read_as_nothing() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let layout = client.layout_get(&file.handle, file.stateid, nfs4::LayoutIomode4::Rw).unwrap();
    let mut pool = client.data_server(&layout).unwrap();
    let at_head = (file.handle.clone(), file.stateid);
    let at_pool = (layout.ticket().clone(), layout.data_server().stateid);
    for (client, (handle, stateid)) in [(&mut client, at_head), (&mut pool, at_pool)] {
        for offset in [u64::MAX, u64::MAX - 2, 1 << 63, (1 << 63) - 2] {
            let write = client.write(&handle, stateid, offset, nfs4::StableHow4::FileSync, b"12345");
            let status = status_of(write);
            assert!(matches!(status, NfsStat4::FBig | NfsStat4::Inval), "write at {offset:#x}: {status}");
            match client.read(&handle, stateid, offset, 5) {
                Ok(read) => assert!(read.eof && read.data.is_empty()),
                outcome => assert!(matches!(status_of(outcome), NfsStat4::Inval | NfsStat4::FBig)),
            }
        }
        client.write(&handle, stateid, 0, nfs4::StableHow4::FileSync, b"12345").unwrap();
        client.write(&handle, stateid, 0, nfs4::StableHow4::FileSync, b"").unwrap();
        assert_eq!(client.read(&handle, stateid, 0, u32::MAX).unwrap().data.len(), 5);
        assert!(client.read(&handle, stateid, 0, 0).unwrap().data.is_empty());
        let commit = nfs4::Commit4Args { offset: u64::MAX, count: u32::MAX };
        let outcome = client.call(&[ops::put_fh(&handle), NfsArgop4::Commit(commit)]);
        assert!(matches!(status_of(outcome), NfsStat4::Inval | NfsStat4::Ok));
    }
    assert_eq!(client.size(&file.handle).unwrap(), 5);
}

#[test]
fn strange_clients_and_channels_are_judged_and_do_no_harm() {
    let (_instance, mut server) = Server::start();
    let before = server.resident_kib();
    let of = |fore_channel, name: &str| ClientOptions { fore_channel, ..ClientOptions::named(name) };
    let huge = nfs4::ChannelAttrs4 {
        headerpadsize: u32::MAX,
        maxrequestsize: u32::MAX,
        maxresponsesize: u32::MAX,
        maxresponsesize_cached: u32::MAX,
        maxoperations: u32::MAX,
        maxrequests: u32::MAX,
        rdma_ird: None,
    };
    let mut client = server.client_by(of(huge, "huge"));
    assert!(client.session.fore.maxrequests <= 1024 && client.session.fore.maxresponsesize <= 2 << 20);
    client.root().unwrap();
    let none = nfs4::ChannelAttrs4 { maxrequests: 0, maxoperations: 0, ..huge };
    match NfsClient::connect(server.head(), of(none, "none")) {
        Ok(client) => assert!(client.session.fore.maxrequests >= 1),
        outcome => assert!(matches!(status_of(outcome), NfsStat4::Inval | NfsStat4::TooSmall)),
    }
    let long = "n".repeat(1024);
    server.client(&long).root().unwrap();
    let too_long = ClientOptions::named(&"n".repeat(1025));
    let reply = connection(&server).call(&too_long.credential, 1, &[too_long.exchange_id()]).unwrap();
    assert_eq!(reply.status, NfsStat4::BadXdr);
    let flags = ClientOptions { exchange_flags: 0x0800_0000, ..ClientOptions::named("flags") };
    let reply = connection(&server).call(&flags.credential, 1, &[flags.exchange_id()]).unwrap();
    assert_eq!(reply.status, NfsStat4::Inval, "flags that no version defines (RFC 8881 §18.35.3)");
    is_well(&mut server, before);
}

#[test]
fn slots_at_the_edge_of_numbers_are_refused() {
    let (_instance, server) = Server::start();
    let client = server.client("host");
    let next = client.session.sequence(0, true);
    for (slotid, highest_slotid, status) in [
        (u32::MAX, u32::MAX, NfsStat4::BadSlot),
        (0, u32::MAX, NfsStat4::BadHighSlot),
        (u32::MAX, 0, NfsStat4::BadSlot),
    ] {
        let sequence = nfs4::Sequence4Args { slotid, highest_slotid, ..next };
        let reply =
            client.connection.call(&client.options.credential, 2, &[NfsArgop4::Sequence(sequence)]).unwrap();
        assert_eq!(reply.status, status, "{slotid:#x} {highest_slotid:#x}");
    }
}
