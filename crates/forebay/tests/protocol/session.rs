//! Clients, sessions, slots and leases (RFC 8881 §2.10, §18.35–18.51).

use std::time::{Duration, Instant};

use nfs4::attr::number;
use nfs4::{
    BackchannelCtl4Args, BindConnToSession4Args, CREATE_SESSION4_FLAG_CONN_BACK_CHAN, CallbackSecParms4,
    ChannelAttrs4, ChannelDirFromClient4, ChannelDirFromServer4, ClientId4, CreateHow4, CreateType4,
    DestroyClientId4Args, DestroySession4Args, EXCHGID4_FLAG_CONFIRMED_R, EXCHGID4_FLAG_MASK_PNFS,
    EXCHGID4_FLAG_USE_PNFS_DS, EXCHGID4_FLAG_USE_PNFS_MDS, Fattr4, FreeStateId4Args, NfsArgop4, NfsResop4,
    NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_DENY_BOTH, Open4Args, OpenClaim4, OpenFlag4, Renew4Args,
    Res, Sequence4Args, SessionId4, StateId4, StateProtect4A, StateProtectOps4, TestStateId4Args,
    TestStateId4ResOk, op,
};
use testkit::body;
use testkit::nfs_client::{
    BACK_CHANNEL, CALLBACK_PROGRAM, ClientOptions, Connection, FORE_CHANNEL, NfsClient, Reply, Session,
    auth_sys, ops,
};

use crate::server::{Server, Setup, status_of};

/// Flags that Linux accepts in EXCHANGE_ID's reply (`nfs4_check_cl_exchange_flags`).
const EXCHANGE_FLAGS_KNOWN: u32 = 0x8007_0103;

fn connection(server: std::net::SocketAddr) -> Connection {
    Connection::open(server, std::sync::Arc::default()).unwrap()
}

fn send(client: &NfsClient, ops: &[NfsArgop4]) -> Reply {
    let options = &client.options;
    client.connection.call(&options.credential, options.minorversion, ops).unwrap()
}

/// SEQUENCE's own status in an answer to it.
fn sequence_status(client: &NfsClient, sequence: Sequence4Args) -> NfsStat4 {
    send(client, &[NfsArgop4::Sequence(sequence)]).status
}

fn mkdir_ops(name: &str) -> Vec<NfsArgop4> {
    vec![NfsArgop4::PutRootFh, ops::create(CreateType4::Dir, name, 0o755), NfsArgop4::GetFh]
}

#[test]
fn the_head_is_a_metadata_server_and_a_pool_a_data_server() {
    let (_instance, server) = Server::start();
    let head = server.client("host").exchanged;
    assert_eq!(head.flags & EXCHGID4_FLAG_MASK_PNFS, EXCHGID4_FLAG_USE_PNFS_MDS);
    assert_eq!(head.flags & !EXCHANGE_FLAGS_KNOWN, 0);
    let options = ClientOptions::named("host").for_data_server();
    let pool = NfsClient::connect(server.pools[0], options).unwrap().exchanged;
    assert_eq!(pool.flags & EXCHGID4_FLAG_MASK_PNFS, EXCHGID4_FLAG_USE_PNFS_DS);
    assert_eq!(pool.flags & !EXCHANGE_FLAGS_KNOWN, 0);
}

#[test]
fn head_and_pools_have_major_ids_and_client_ids_of_their_own() {
    let (_instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let options = ClientOptions::named("host").for_data_server();
    let all = [
        server.client("host").exchanged,
        NfsClient::connect(server.pools[0], options.clone()).unwrap().exchanged,
        NfsClient::connect(server.pools[1], options).unwrap().exchanged,
    ];
    for (n, one) in all.iter().enumerate() {
        for other in &all[n + 1..] {
            assert_ne!(one.server_owner.major_id, other.server_owner.major_id);
            assert_ne!(one.clientid, other.clientid);
        }
    }
}

#[test]
fn every_path_to_one_server_tells_the_same_owner_scope_and_client() {
    let (_instance, server) = Server::start();
    let client = server.client("host");
    let options = &client.options;
    let reply = connection(server.head()).call(&options.credential, 2, &[options.exchange_id()]).unwrap();
    let again = body!(reply, ExchangeId).unwrap();
    assert_eq!(again.clientid, client.exchanged.clientid);
    assert_eq!(again.server_owner, client.exchanged.server_owner);
    assert_eq!(again.server_scope, client.exchanged.server_scope);
    assert_ne!(again.flags & EXCHGID4_FLAG_CONFIRMED_R, 0, "the client is known and confirmed");
}

#[test]
fn a_rebooted_client_replaces_its_former_self() {
    let (_instance, server) = Server::start();
    let mut before = server.client("host");
    let root = before.root().unwrap();
    before.create(&root, "file").unwrap();
    let after = server.client_by(ClientOptions::named("host").verifier(*b"boot 002"));
    assert_ne!(after.exchanged.clientid, before.exchanged.clientid);
    assert_eq!(before.compound(&[]).unwrap().status, NfsStat4::BadSession);
}

#[test]
fn another_principal_cannot_take_a_client_name_that_is_in_use() {
    let (_instance, server) = Server::start();
    let mut owner = server.client_by(ClientOptions::named("host").credential(auth_sys(1000, 1000, &[])));
    let root = owner.root().unwrap();
    let dir_of_owner = owner.call(&[ops::put_fh(&root), ops::get_attr(&[number::OWNER])]);
    assert!(dir_of_owner.is_ok());
    let thief = ClientOptions::named("host").credential(auth_sys(1001, 1001, &[])).verifier(*b"boot 666");
    let reply = connection(server.head()).call(&thief.credential, 2, &[thief.exchange_id()]).unwrap();
    // Without state of the owner the name is free; with a session alone it is not (RFC 8881 §18.35.4, case 3).
    assert!(matches!(reply.status, NfsStat4::ClidInUse | NfsStat4::Ok), "{}", reply.status);
    assert_eq!(owner.compound(&[]).unwrap().status, NfsStat4::Ok, "the owner goes on");
}

#[test]
fn protection_that_is_not_offered_is_refused() {
    let (_instance, server) = Server::start();
    let options = ClientOptions::named("host");
    let NfsArgop4::ExchangeId(mut exchange) = options.exchange_id() else {
        unreachable!("it is EXCHANGE_ID")
    };
    exchange.state_protect = StateProtect4A::MachCred(StateProtectOps4::default());
    let ops = [NfsArgop4::ExchangeId(exchange)];
    let reply = connection(server.head()).call(&options.credential, 1, &ops).unwrap();
    assert_ne!(reply.status, NfsStat4::Ok);
}

#[test]
fn a_session_grants_what_linux_needs_and_no_more_than_was_asked() {
    let (_instance, server) = Server::start();
    let created = server.client("host").created;
    let (fore, back) = (created.fore_chan_attrs, created.back_chan_attrs);
    assert!(fore.maxoperations >= 8, "a mount fails below NFS4_MAX_OPS: {fore:?}");
    for (granted, asked) in [(fore, FORE_CHANNEL), (back, BACK_CHANNEL)] {
        assert!(granted.maxrequestsize <= asked.maxrequestsize, "{granted:?}");
        assert!(granted.maxresponsesize <= asked.maxresponsesize, "{granted:?}");
        assert!(granted.maxresponsesize_cached <= asked.maxresponsesize_cached, "{granted:?}");
        assert!(granted.maxoperations <= asked.maxoperations, "{granted:?}");
        assert!(granted.maxrequests <= asked.maxrequests && granted.maxrequests > 0, "{granted:?}");
    }
    assert!(
        fore.maxrequestsize >= 1 << 20 && fore.maxresponsesize >= 1 << 20,
        "reads and writes of 1 MiB fit"
    );
    assert_eq!(created.flags, CREATE_SESSION4_FLAG_CONN_BACK_CHAN, "the back channel is accepted");
}

#[test]
fn create_session_is_repeated_and_not_run_twice() {
    let (_instance, server) = Server::start();
    let options = ClientOptions::named("host");
    let connection = connection(server.head());
    let reply = connection.call(&options.credential, 2, &[options.exchange_id()]).unwrap();
    let exchanged = body!(reply, ExchangeId).unwrap();
    let create = [options.create_session(&exchanged)];
    let first = connection.call(&options.credential, 2, &create).unwrap();
    let second = connection.call(&options.credential, 2, &create).unwrap();
    assert_eq!(first.status, NfsStat4::Ok);
    assert_eq!(first.body, second.body);
    let NfsArgop4::CreateSession(mut misordered) = create[0].clone() else {
        unreachable!("it is CREATE_SESSION")
    };
    misordered.sequence += 7;
    let reply = connection.call(&options.credential, 2, &[NfsArgop4::CreateSession(misordered)]).unwrap();
    assert_eq!(reply.status, NfsStat4::SeqMisordered);
}

#[test]
fn a_session_for_an_unknown_client_is_refused() {
    let (_instance, server) = Server::start();
    let client = server.client("host");
    let mut unknown = client.exchanged.clone();
    unknown.clientid = ClientId4(unknown.clientid.0 ^ 1 << 40);
    let reply = send(&client, &[client.options.create_session(&unknown)]);
    assert_eq!(reply.status, NfsStat4::StaleClientId);
}

#[test]
fn a_finished_request_is_repeated_with_identical_bytes() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let sequence = client.session.sequence(0, true);
    let first = client.compound_as(sequence, &mkdir_ops("once")).unwrap();
    assert_eq!(first.status, NfsStat4::Ok);
    let change = client.session.sequence(1, false);
    let change_of = |client: &mut NfsClient, sequence| {
        let reply =
            client.compound_as(sequence, &[ops::put_fh(&root), ops::get_attr(&[number::CHANGE])]).unwrap();
        body!(reply, GetAttr).unwrap().obj_attributes
    };
    let before = change_of(&mut client, change);
    let again = send(&client, &Session::compound(sequence, &mkdir_ops("once")));
    assert_eq!(again.body, first.body, "not EXIST, as if it had run again");
    let change = client.session.sequence(1, false);
    assert_eq!(change_of(&mut client, change), before);
}

#[test]
fn a_failed_request_is_repeated_too() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let sequence = client.session.sequence(0, true);
    let ops = [ops::put_fh(&root), ops::remove("later")];
    let first = client.compound_as(sequence, &ops).unwrap();
    assert_eq!(first.status, NfsStat4::NoEnt);
    // On another slot the name appears; the retransmission must not see it.
    let other = client.session.sequence(1, true);
    client.compound_as(other, &mkdir_ops("later")).unwrap().ok().unwrap();
    assert_eq!(send(&client, &Session::compound(sequence, &ops)).body, first.body);
    assert!(client.lookup(&root, "later").is_ok());
}

#[test]
fn a_retransmission_gets_the_same_reply_or_is_told_to_wait_and_never_runs_twice() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    for round in 0..30 {
        let sequence = client.session.sequence(0, true);
        let ops = Session::compound(sequence, &mkdir_ops(&format!("dir{round}")));
        let credential = client.options.credential.clone();
        let xids: Vec<u32> = (0..3).map(|_| client.connection.send(&credential, 2, &ops).unwrap()).collect();
        let replies: Vec<Reply> = xids.into_iter().map(|xid| client.connection.wait(xid).unwrap()).collect();
        let run = replies.iter().find(|reply| reply.status != NfsStat4::Delay).expect("one copy runs");
        assert_eq!(run.status, NfsStat4::Ok, "a second run would be EXIST");
        for reply in &replies {
            let waits = reply.status == NfsStat4::Delay && reply.results.len() == 1;
            assert!(waits || reply.body == run.body, "{:?}", reply.results);
        }
        client.session.finish(&sequence, &run.results);
    }
    let root = client.root().unwrap();
    assert_eq!(client.list(&root, 8192).unwrap().len(), 30);
}

#[test]
fn sequence_ids_out_of_order_are_misordered() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    client.root().unwrap();
    let next = client.session.sequence(0, true);
    for wrong in [next.sequenceid + 1, next.sequenceid.wrapping_sub(2), next.sequenceid + 1000] {
        let sequence = Sequence4Args { sequenceid: wrong, ..next };
        assert_eq!(sequence_status(&client, sequence), NfsStat4::SeqMisordered, "{wrong} for {next:?}");
    }
    assert_eq!(client.compound(&[]).unwrap().status, NfsStat4::Ok, "the slot is where it was");
}

#[test]
fn slots_and_sessions_that_do_not_exist_are_refused() {
    let (_instance, server) = Server::start();
    let client = server.client("host");
    let slots = client.session.fore.maxrequests;
    let next = client.session.sequence(0, true);
    let beyond = Sequence4Args { slotid: slots, highest_slotid: slots, sequenceid: 1, ..next };
    assert_eq!(sequence_status(&client, beyond), NfsStat4::BadSlot);
    let high = Sequence4Args { highest_slotid: slots, ..next };
    assert_eq!(sequence_status(&client, high), NfsStat4::BadHighSlot);
    let unknown = Sequence4Args { sessionid: SessionId4([7; 16]), ..next };
    assert_eq!(sequence_status(&client, unknown), NfsStat4::BadSession);
}

#[test]
fn another_request_under_a_used_number_is_a_false_retry() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let sequence = client.session.sequence(0, true);
    client.compound_as(sequence, &mkdir_ops("one")).unwrap().ok().unwrap();
    let reply = send(&client, &Session::compound(sequence, &mkdir_ops("two")));
    assert_eq!((reply.status, reply.results.len()), (NfsStat4::SeqFalseRetry, 1));
}

#[test]
fn a_reply_that_was_not_to_be_kept_is_not_made_up() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let sequence = client.session.sequence(0, false);
    let ops = [NfsArgop4::PutRootFh, ops::get_attr(&[number::CHANGE])];
    client.compound_as(sequence, &ops).unwrap().ok().unwrap();
    let again = send(&client, &Session::compound(sequence, &ops));
    assert_eq!(again.status, NfsStat4::RetryUncachedRep);
    assert_eq!(again.status_at(0), Some(NfsStat4::Ok), "SEQUENCE itself succeeds (RFC 8881 §2.10.6.1.3)");
    assert_eq!(again.results.len(), 2);
}

#[test]
fn sequence_stands_first_and_only_there() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    assert_eq!(send(&client, &[NfsArgop4::PutRootFh]).status, NfsStat4::OpNotInSession);
    let second = NfsArgop4::Sequence(client.session.sequence(1, false));
    let reply = client.compound(&[NfsArgop4::PutRootFh, second]).unwrap();
    assert_eq!((reply.status, reply.results.len()), (NfsStat4::SequencePos, 3));
    let exchange = client.options.exchange_id();
    assert_eq!(send(&client, &[exchange, NfsArgop4::PutRootFh]).status, NfsStat4::NotOnlyOp);
}

#[test]
fn minor_versions_that_are_not_served_are_told_so() {
    let (_instance, server) = Server::start();
    let client = server.client("host");
    for minorversion in [0, 3, u32::MAX] {
        let reply = client
            .connection
            .call(&client.options.credential, minorversion, &[NfsArgop4::PutRootFh])
            .unwrap();
        assert_eq!((reply.status, reply.results.len()), (NfsStat4::MinorVersMismatch, 0));
    }
}

#[test]
fn operations_of_no_version_of_another_and_of_none_yet_differ() {
    let (_instance, server) = Server::start();
    let mut old = server.client_by(ClientOptions::named("old").minorversion(1));
    let mut new = server.client("new");
    let unknown = [NfsArgop4::Illegal(9999)];
    let reply = new.compound(&unknown).unwrap();
    assert_eq!(reply.results.last().map(NfsResop4::opnum), Some(op::ILLEGAL));
    assert_eq!(reply.status, NfsStat4::OpIllegal);
    let root = old.root().unwrap();
    let seek = nfs4::Seek4Args { stateid: StateId4::ANONYMOUS, offset: 0, what: nfs4::DataContent4::Data };
    let ops = [ops::put_fh(&root), NfsArgop4::Seek(seek)];
    assert_eq!(old.compound(&ops).unwrap().status, NfsStat4::OpIllegal, "4.1 has no SEEK");
    assert_eq!(new.compound(&ops).unwrap().status, NfsStat4::WrongType, "4.2 has it, of regular files");
    let notify = nfs4::CopyNotify4Args {
        src_stateid: StateId4::ANONYMOUS,
        destination_server: nfs4::NetLoc4::Name("elsewhere".into()),
    };
    let ops = [ops::put_fh(&root), NfsArgop4::CopyNotify(notify)];
    assert_eq!(new.compound(&ops).unwrap().status, NfsStat4::NotSupp, "4.2 has it, this server not");
    let renew = [NfsArgop4::Renew(Renew4Args { clientid: new.exchanged.clientid })];
    assert_eq!(new.compound(&renew).unwrap().status, NfsStat4::NotSupp, "4.0's operations are gone");
}

#[test]
fn more_operations_than_granted_are_too_many() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let most = client.session.fore.maxoperations as usize;
    let fits = vec![NfsArgop4::PutRootFh; most - 1];
    assert_eq!(client.compound(&fits).unwrap().status, NfsStat4::Ok);
    let beyond = vec![NfsArgop4::PutRootFh; most];
    assert_eq!(client.compound(&beyond).unwrap().status, NfsStat4::TooManyOps);
    assert_eq!(client.compound(&fits).unwrap().status, NfsStat4::Ok, "the session goes on");
}

#[test]
fn requests_and_replies_beyond_what_was_granted_are_too_big() {
    let (_instance, server) = Server::start();
    let small = ChannelAttrs4 {
        maxrequestsize: 4096,
        maxresponsesize: 4096,
        maxresponsesize_cached: 512,
        ..FORE_CHANNEL
    };
    let options = ClientOptions { fore_channel: small, ..ClientOptions::named("host") };
    let mut client = server.client_by(options);
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, nfs4::StableHow4::FileSync, &[7; 2000]).unwrap();
    client.write(&file.handle, file.stateid, 2000, nfs4::StableHow4::FileSync, &[7; 2000]).unwrap();

    let large = client.write(&file.handle, file.stateid, 0, nfs4::StableHow4::FileSync, &[7; 8000]);
    assert_eq!(status_of(large), NfsStat4::ReqTooBig);
    // READ may be short instead: the reply has to fit either way.
    let sequence = client.session.begin(false).unwrap();
    let ops = [ops::put_fh(&file.handle), ops::read(file.stateid, 0, 4000), ops::read(file.stateid, 0, 4000)];
    let reply = client.compound_as(sequence, &ops).unwrap();
    assert!(reply.body.len() <= 4096, "{} bytes", reply.body.len());
    assert!(matches!(reply.status, NfsStat4::RepTooBig | NfsStat4::Ok), "{}", reply.status);
    // To be cached, and too long for that.
    let sequence = client.session.begin(true).unwrap();
    let ops = [ops::put_fh(&file.handle), ops::read(file.stateid, 0, 2000)];
    let reply = client.compound_as(sequence, &ops).unwrap();
    let fits = reply.body.len() <= 512;
    assert!(reply.status == NfsStat4::RepTooBigToCache || fits, "{} {}", reply.status, reply.body.len());
}

#[test]
fn channels_too_small_for_anything_are_refused() {
    let (_instance, server) = Server::start();
    let tiny = ChannelAttrs4 { maxrequestsize: 20, maxresponsesize: 20, ..FORE_CHANNEL };
    let options = ClientOptions { fore_channel: tiny, ..ClientOptions::named("host") };
    let outcome = NfsClient::connect(server.head(), options);
    assert_eq!(status_of(outcome), NfsStat4::TooSmall);
}

#[test]
fn a_second_connection_serves_the_same_session() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let second = client.second_connection().unwrap();
    let bind = NfsArgop4::BindConnToSession(BindConnToSession4Args {
        sessid: client.session.id,
        dir: ChannelDirFromClient4::BackOrBoth,
        use_conn_in_rdma_mode: false,
    });
    let reply = second.call(&client.options.credential, 2, &[bind]).unwrap();
    assert_eq!(body!(reply, BindConnToSession).unwrap().dir, ChannelDirFromServer4::Both);
    let sequence = client.session.begin(true).unwrap();
    let ops = Session::compound(sequence, &mkdir_ops("over the second"));
    let first = second.call(&client.options.credential, 2, &ops).unwrap();
    assert_eq!(first.status, NfsStat4::Ok);
    // A retransmission comes over any connection of the session.
    assert_eq!(send(&client, &ops).body, first.body);
}

#[test]
fn a_connection_that_was_never_bound_serves_its_session_too() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let second = client.second_connection().unwrap();
    let sequence = client.session.begin(true).unwrap();
    let ops = Session::compound(sequence, &mkdir_ops("unbound"));
    assert_eq!(second.call(&client.options.credential, 2, &ops).unwrap().status, NfsStat4::Ok);
}

#[test]
fn the_back_channel_takes_new_parameters() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let sec_parms = vec![CallbackSecParms4::None];
    let control = BackchannelCtl4Args { cb_program: CALLBACK_PROGRAM + 1, sec_parms };
    client.call(&[NfsArgop4::BackchannelCtl(control)]).unwrap();
}

#[test]
fn a_destroyed_session_is_gone_and_a_client_without_sessions_can_go() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let destroy_client =
        [NfsArgop4::DestroyClientId(DestroyClientId4Args { clientid: client.exchanged.clientid })];
    assert_eq!(send(&client, &destroy_client).status, NfsStat4::ClientIdBusy);
    let destroy = NfsArgop4::DestroySession(DestroySession4Args { sessionid: client.session.id });
    client.call(std::slice::from_ref(&destroy)).unwrap();
    assert_eq!(client.compound(&[]).unwrap().status, NfsStat4::BadSession);
    assert_eq!(send(&client, &[destroy]).status, NfsStat4::BadSession);
    assert_eq!(send(&client, &destroy_client).status, NfsStat4::Ok);
    assert_eq!(send(&client, &destroy_client).status, NfsStat4::StaleClientId);
}

#[test]
fn reclaiming_is_complete_only_once() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    assert_eq!(status_of(client.reclaim_complete()), NfsStat4::CompleteAlready);
}

#[test]
fn nothing_is_wrong_with_an_idle_session() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let reply = client.call(&[]).unwrap();
    let sequence = body!(reply, Sequence).unwrap();
    assert_eq!(sequence.status_flags, 0);
    assert_eq!(sequence.sessionid, client.session.id);
    assert!(sequence.target_highest_slotid < client.session.fore.maxrequests);
}

#[test]
fn stateids_can_be_tested_and_freed() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let unknown = StateId4 { seqid: 1, other: [9; 12] };
    let test = TestStateId4Args { stateids: vec![file.stateid, unknown] };
    let reply = client.call(&[NfsArgop4::TestStateId(test)]).unwrap();
    let Some(TestStateId4ResOk { status_codes }) = body!(reply, TestStateId) else { panic!("no result") };
    assert_eq!(status_codes, [NfsStat4::Ok, NfsStat4::BadStateId]);
    let free = |stateid| [NfsArgop4::FreeStateId(FreeStateId4Args { stateid })];
    assert_eq!(status_of(client.call(&free(file.stateid))), NfsStat4::LocksHeld, "an open is in use");
    assert_eq!(status_of(client.call(&free(unknown))), NfsStat4::BadStateId);
}

fn open_denying_all(name: &str) -> NfsArgop4 {
    NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: OPEN4_SHARE_DENY_BOTH,
        owner: ops::owner("owner"),
        openhow: OpenFlag4::Create(CreateHow4::Unchecked(Fattr4::default())),
        claim: OpenClaim4::Null(name.into()),
    })
}

#[test]
fn a_silent_client_loses_its_opens_after_the_lease_and_not_before() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 2, ..Setup::default() });
    let mut silent = server.client("silent");
    let root = silent.root().unwrap();
    let since = Instant::now();
    let held = silent.open_by(&root, open_denying_all("file")).unwrap();
    let mut other = server.client("other");
    assert_eq!(status_of(other.open_by(&root, open_denying_all("file"))), NfsStat4::ShareDenied);
    let deadline = since + Duration::from_secs(40);
    while status_of(other.open_by(&root, open_denying_all("file"))) == NfsStat4::ShareDenied {
        assert!(Instant::now() < deadline, "the open outlives its lease");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(since.elapsed() >= Duration::from_secs(2), "a lease is kept for its whole time");
    let late = silent.compound(&[ops::put_fh(&held.handle), ops::read(held.stateid, 0, 1)]).unwrap();
    assert_ne!(late.status, NfsStat4::Ok, "the lost state is told");
}

#[test]
fn sequence_alone_renews_the_lease() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 2, ..Setup::default() });
    let mut renewing = server.client("renewing");
    let root = renewing.root().unwrap();
    let held = renewing.open_by(&root, open_denying_all("file")).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        assert_eq!(renewing.compound(&[]).unwrap().status, NfsStat4::Ok);
        std::thread::sleep(Duration::from_millis(200));
    }
    // Of a client whose lease is over it would be taken.
    let mut other = server.client("other");
    assert_eq!(status_of(other.open_by(&root, open_denying_all("file"))), NfsStat4::ShareDenied);
    renewing.close(&held).unwrap();
}

#[test]
fn results_of_sequence_name_slot_and_number() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let sequence = client.session.sequence(5, true);
    let reply = client.compound_as(sequence, &[]).unwrap();
    let NfsResop4::Sequence(Res::Ok(result)) = &reply.results[0] else { panic!("{:?}", reply.results) };
    assert_eq!((result.slotid, result.sequenceid), (5, 1));
}
