//! Several connections for one session, as with `nconnect` (RFC 8881 §2.10.3, §2.10.5), and how many slots it has
//! (§2.10.6.1).

use std::sync::Arc;
use std::time::{Duration, Instant};

use nfs4::{
    BindConnToSession4Args, ChannelDirFromClient4, ChannelDirFromServer4, CreateType4, NfsArgop4, NfsStat4,
    OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OpenDelegation4,
    OpenFlag4, SEQ4_STATUS_CB_PATH_DOWN, SEQ4_STATUS_CB_PATH_DOWN_SESSION, Sequence4Args, Sequence4ResOk,
    StableHow4,
};
use testkit::body;
use testkit::nfs_client::{Callbacks, ClientOptions, Connection, NfsClient, Reply, Session, ops};

use crate::server::{Server, Setup, status_of};

const WAIT: Duration = Duration::from_secs(20);
const PATH_DOWN: u32 = SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION;

/// A client and further connections, each with its own record of callbacks.
struct Trunk {
    client: NfsClient,
    others: Vec<(Connection, Arc<Callbacks>)>,
}

impl Trunk {
    fn new(server: &Server, others: usize) -> Trunk {
        let client = server.client("host");
        let others = (0..others).map(|_| {
            let callbacks = Arc::new(Callbacks::default());
            (Connection::open(server.head(), Arc::clone(&callbacks)).unwrap(), callbacks)
        });
        Trunk { others: others.collect(), client }
    }

    fn send(&self, over: usize, ops: &[NfsArgop4]) -> Reply {
        let credential = &self.client.options.credential;
        self.others[over].0.call(credential, 2, ops).unwrap()
    }

    fn bind(&self, over: usize, dir: ChannelDirFromClient4) -> ChannelDirFromServer4 {
        let sessid = self.client.session.id;
        let bind = BindConnToSession4Args { sessid, dir, use_conn_in_rdma_mode: false };
        let reply = self.send(over, &[NfsArgop4::BindConnToSession(bind)]).ok().unwrap();
        body!(reply, BindConnToSession).unwrap().dir
    }

    /// One request of the session.
    fn compound(&mut self, over: usize, ops: &[NfsArgop4]) -> Reply {
        let sequence = self.client.session.begin(true).unwrap();
        let reply = self.send(over, &Session::compound(sequence, ops));
        self.client.session.finish(&sequence, &reply.results);
        reply
    }

    fn flags(&mut self, over: usize) -> u32 {
        let reply = self.compound(over, &[]).ok().unwrap();
        body!(reply, Sequence).unwrap().status_flags
    }

    /// Until SEQUENCE over that connection says so of its flags.
    fn until_flags(&mut self, over: usize, expected: u32) {
        let deadline = Instant::now() + WAIT;
        while self.flags(over) & PATH_DOWN != expected {
            assert!(Instant::now() < deadline, "the flags stay {:#x}", self.flags(over));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The first connection ends, over which the session was made.
    fn lose_first(&mut self) {
        let (last, callbacks) = self.others.pop().unwrap();
        self.client.connection = Arc::new(last);
        self.client.callbacks = callbacks;
    }
}

/// Something of the client's that only a callback brings home.
fn be_recalled(server: &Server, client: &mut NfsClient) -> NfsStat4 {
    let root = client.root().unwrap();
    let mut other = server.client("other");
    let made = other.create(&root, "recalled").unwrap();
    other.write(&made.handle, made.stateid, 0, StableHow4::FileSync, &[7; 1000]).unwrap();
    other.close(&made).unwrap();
    let wanted = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
    let opened = client.open(&root, "recalled", wanted).unwrap();
    assert!(matches!(opened.opened.delegation, OpenDelegation4::Read(_)));
    status_of(other.open_as(&root, "recalled", "o", OPEN4_SHARE_ACCESS_BOTH, OpenFlag4::NoCreate))
}

fn mkdir(name: &str) -> Vec<NfsArgop4> {
    vec![NfsArgop4::PutRootFh, ops::create(CreateType4::Dir, name, 0o755), NfsArgop4::GetFh]
}

#[test]
fn every_address_of_the_head_and_every_connection_is_one_server_to_its_clients() {
    let (_instance, server) = Server::start();
    let trunk = Trunk::new(&server, 3);
    for over in 0..3 {
        let reply = trunk.send(over, &[trunk.client.options.exchange_id()]).ok().unwrap();
        let again = body!(reply, ExchangeId).unwrap();
        assert_eq!(again.clientid, trunk.client.exchanged.clientid);
        assert_eq!(again.server_owner, trunk.client.exchanged.server_owner);
        assert_eq!(again.server_scope, trunk.client.exchanged.server_scope);
    }
    // A data server too.
    let options = ClientOptions::named("host").for_data_server();
    let first = NfsClient::connect(server.pools[0], options.clone()).unwrap();
    let second = first.second_connection().unwrap();
    let reply = second.call(&options.credential, 1, &[options.exchange_id()]).unwrap().ok().unwrap();
    let again = body!(reply, ExchangeId).unwrap();
    assert_eq!(again.clientid, first.exchanged.clientid);
    assert_eq!(again.server_owner, first.exchanged.server_owner);
}

#[test]
fn requests_of_one_session_come_over_all_its_connections_at_once() {
    let (_instance, server) = Server::start();
    let mut trunk = Trunk::new(&server, 3);
    let credential = trunk.client.options.credential.clone();
    let sent: Vec<_> = (0..30)
        .map(|at| {
            let sequence = trunk.client.session.begin(true).unwrap();
            let ops = Session::compound(sequence, &mkdir(&format!("dir{at}")));
            (at % 3, trunk.others[at % 3].0.send(&credential, 2, &ops).unwrap(), sequence)
        })
        .collect();
    for (over, xid, sequence) in sent {
        let reply = trunk.others[over].0.wait(xid).unwrap();
        assert_eq!(reply.status, NfsStat4::Ok);
        trunk.client.session.finish(&sequence, &reply.results);
    }
    let root = trunk.client.root().unwrap();
    assert_eq!(trunk.client.list(&root, 8192).unwrap().len(), 30);
}

/// The reply was lost with its connection: the client asks over another one.
#[test]
fn a_request_whose_connection_was_lost_is_repeated_over_another_and_runs_once() {
    let (_instance, server) = Server::start();
    let mut trunk = Trunk::new(&server, 3);
    let credential = trunk.client.options.credential.clone();
    for round in 0..20 {
        let sequence = trunk.client.session.begin(true).unwrap();
        let ops = Session::compound(sequence, &mkdir(&format!("dir{round}")));
        // A connection of its own, which ends when the request is on its way.
        let doomed = trunk.client.second_connection().unwrap();
        doomed.send(&credential, 2, &ops).unwrap();
        drop(doomed);
        let mut replies = (0..).map(|at| trunk.send(at % 3, &ops));
        let reply = replies.find(|reply| reply.status != NfsStat4::Delay).unwrap();
        assert_eq!(reply.status, NfsStat4::Ok, "a second run would be EXIST");
        assert_eq!(trunk.send(1, &ops).body, reply.body);
        trunk.client.session.finish(&sequence, &reply.results);
    }
}

#[test]
fn a_connection_is_bound_to_the_channels_it_asks_for() {
    use ChannelDirFromClient4 as Asked;
    use ChannelDirFromServer4 as Got;
    let (_instance, server) = Server::start();
    let trunk = Trunk::new(&server, 4);
    for (over, asked, got) in [
        (0, Asked::Fore, Got::Fore),
        (1, Asked::Back, Got::Back),
        (2, Asked::ForeOrBoth, Got::Both),
        (3, Asked::BackOrBoth, Got::Both),
    ] {
        assert_eq!(trunk.bind(over, asked), got);
    }
}

#[test]
fn callbacks_go_over_another_bound_connection_when_one_is_lost() {
    for dir in [ChannelDirFromClient4::Back, ChannelDirFromClient4::BackOrBoth] {
        let (_instance, server) = Server::start();
        let mut trunk = Trunk::new(&server, 3);
        trunk.bind(0, dir);
        trunk.bind(1, ChannelDirFromClient4::Fore);
        // The one over which the session was made, and with it a back channel.
        trunk.lose_first();
        trunk.until_flags(1, 0);
        assert_eq!(be_recalled(&server, &mut trunk.client), NfsStat4::Delay);
        assert!(trunk.others[0].1.wait_for_recall(WAIT).is_some());
        assert!(trunk.others[1].1.seen().is_empty(), "it is for requests only");
    }
}

#[test]
fn the_loss_of_a_connection_for_requests_only_is_no_loss_of_the_back_channel() {
    let (_instance, server) = Server::start();
    let mut trunk = Trunk::new(&server, 2);
    trunk.bind(0, ChannelDirFromClient4::Fore);
    assert_eq!(trunk.flags(0) & PATH_DOWN, 0);
    trunk.others.remove(0);
    assert_eq!(trunk.flags(0) & PATH_DOWN, 0);
    assert_eq!(be_recalled(&server, &mut trunk.client), NfsStat4::Delay);
    assert!(trunk.client.callbacks.wait_for_recall(WAIT).is_some());
}

#[test]
fn a_client_without_a_bound_connection_left_is_told_so_until_it_binds_one() {
    let (_instance, server) = Server::start();
    let mut trunk = Trunk::new(&server, 3);
    trunk.bind(0, ChannelDirFromClient4::Fore);
    trunk.lose_first();
    trunk.until_flags(0, PATH_DOWN);
    assert_eq!(trunk.bind(1, ChannelDirFromClient4::BackOrBoth), ChannelDirFromServer4::Both);
    assert_eq!(trunk.flags(0) & PATH_DOWN, 0);
    assert_eq!(be_recalled(&server, &mut trunk.client), NfsStat4::Delay);
    assert!(trunk.others[1].1.wait_for_recall(WAIT).is_some());
}

#[test]
fn state_and_lease_are_the_clients_whichever_connection_and_session_it_uses() {
    let setup = Setup { lease_s: 2, configuration: "courtesy_s = 0", ..Setup::default() };
    let (_instance, server) = Server::start_with(setup);
    let mut trunk = Trunk::new(&server, 2);
    let root = trunk.client.root().unwrap();
    let file = trunk.client.create(&root, "file").unwrap();
    // Nothing comes over the first connection any more; the lease is renewed over the others.
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        assert_eq!(trunk.flags(0) & PATH_DOWN, 0);
        std::thread::sleep(Duration::from_millis(200));
    }
    let write = ops::write(file.stateid, 0, StableHow4::FileSync, b"bytes");
    assert_eq!(trunk.compound(1, &[ops::put_fh(&file.handle), write]).status, NfsStat4::Ok);
    // A second session of the same client knows the open.
    let options = trunk.client.options.clone();
    let mut second = server.client_by(options);
    assert_eq!(second.exchanged.clientid, trunk.client.exchanged.clientid);
    assert_ne!(second.session.id, trunk.client.session.id);
    assert_eq!(second.read(&file.handle, file.stateid, 0, 10).unwrap().data[..], b"bytes"[..]);
}

fn sequence(client: &NfsClient, slotid: u32, sequenceid: u32) -> Result<Sequence4ResOk, NfsStat4> {
    let sessionid = client.session.id;
    let args = Sequence4Args { sessionid, sequenceid, slotid, highest_slotid: slotid, cachethis: false };
    let credential = &client.options.credential;
    let reply = client.connection.call(credential, 2, &[NfsArgop4::Sequence(args)]).unwrap();
    if reply.status != NfsStat4::Ok {
        return Err(reply.status);
    }
    Ok(body!(reply, Sequence).unwrap())
}

#[test]
fn a_session_that_uses_its_last_slot_is_offered_more_and_may_use_them() {
    let (_instance, server) =
        Server::start_with(Setup { configuration: "slots_max = 90", ..Setup::default() });
    let client = server.client("host");
    let slots = client.session.fore.maxrequests;
    assert_eq!(slots, 64, "as was asked");
    assert_eq!(sequence(&client, slots, 1), Err(NfsStat4::BadSlot));
    assert_eq!(sequence(&client, slots - 2, 1).unwrap().target_highest_slotid, slots - 1);
    let told = sequence(&client, slots - 1, 1).unwrap();
    assert_eq!((told.highest_slotid, told.target_highest_slotid), (79, 79));
    assert_eq!(sequence(&client, 79, 1).unwrap().target_highest_slotid, 89, "the bound");
    assert_eq!(sequence(&client, 89, 1).unwrap().target_highest_slotid, 89);
    assert_eq!(sequence(&client, 90, 1), Err(NfsStat4::BadSlot));
}

/// A lease later the server asks for unused slots back. When the client has seen the lower target, they are gone.
#[test]
fn a_session_that_was_busy_and_is_idle_gives_slots_back() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 1, ..Setup::default() });
    let client = server.client("host");
    assert_eq!(sequence(&client, 63, 1).unwrap().target_highest_slotid, 79);
    let deadline = Instant::now() + WAIT;
    let asked = |at| sequence(&client, 0, at).unwrap();
    // The client has a slot 0 that its first requests used.
    let mut at = (1..10).find(|at| sequence(&client, 0, *at).is_ok()).unwrap();
    loop {
        at += 1;
        let told = asked(at);
        if (told.highest_slotid, told.target_highest_slotid) == (63, 63) {
            break;
        }
        assert!(Instant::now() < deadline, "{told:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(sequence(&client, 79, 1), Err(NfsStat4::BadSlot));
}
