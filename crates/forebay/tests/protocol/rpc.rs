//! ONC RPC under NFS: programs, versions, procedures, credentials, records (RFC 5531).

use std::time::Duration;

use nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_NULL, NfsArgop4, NfsStat4};
use oncrpc::{
    AcceptedStatus, AuthFlavor, AuthStat, CallHeader, Credential, OpaqueAuth, RejectedReply, ReplyBody,
    ReplyHeader,
};
use testkit::nfs_client::{ClientOptions, Connection, call_record, compound_record, framed};
use xdr::{Decoder, Encoder, Opaque, Xdr};

use crate::server::{Server, status_of};

const TIMEOUT: Duration = Duration::from_secs(20);

fn connection(server: &Server) -> Connection {
    Connection::open(server.head(), std::sync::Arc::default()).unwrap()
}

fn answer(connection: &Connection, xid: u32, record: &[u8]) -> ReplyBody {
    connection.send_raw(record).unwrap();
    let message = connection.wait_raw(xid, TIMEOUT).unwrap();
    ReplyHeader::decode(&mut Decoder::new(message)).unwrap().body
}

fn accepted(connection: &Connection, program: u32, version: u32, procedure: u32) -> AcceptedStatus {
    let xid = connection.xid();
    let mut encoder = Encoder::new();
    let verifier = OpaqueAuth::NONE;
    CallHeader { xid, program, version, procedure, credential: Credential::None, verifier }
        .encode(&mut encoder);
    match answer(connection, xid, &framed(&encoder.into_bytes())) {
        ReplyBody::Accepted(reply) => reply.status,
        denied => panic!("{denied:?}"),
    }
}

#[test]
fn null_is_answered_and_what_is_not_served_is_told() {
    let (_instance, server) = Server::start();
    for address in [server.head(), server.pools[0]] {
        let connection = Connection::open(address, std::sync::Arc::default()).unwrap();
        assert_eq!(accepted(&connection, NFS4_PROGRAM, NFS_V4, NFSPROC4_NULL), AcceptedStatus::Success);
        assert_eq!(accepted(&connection, 100_005, 3, 0), AcceptedStatus::ProgUnavail, "there is no mountd");
        let mismatch = AcceptedStatus::ProgMismatch { low: 4, high: 4 };
        assert_eq!(accepted(&connection, NFS4_PROGRAM, 3, 0), mismatch);
        assert_eq!(accepted(&connection, NFS4_PROGRAM, NFS_V4, 2), AcceptedStatus::ProcUnavail);
    }
}

#[test]
fn another_version_of_rpc_is_denied() {
    let (_instance, server) = Server::start();
    let connection = connection(&server);
    let xid = connection.xid();
    let mut record = compound_record(xid, &Credential::None, 1, &[NfsArgop4::PutRootFh]).to_vec();
    record[15] = 3;
    let denied = ReplyBody::Denied(RejectedReply::RpcMismatch { low: 2, high: 2 });
    assert_eq!(answer(&connection, xid, &record), denied);
}

#[test]
fn a_malformed_credential_is_denied_and_the_connection_goes_on() {
    let (_instance, server) = Server::start();
    let connection = connection(&server);
    let xid = connection.xid();
    let malformed = OpaqueAuth { flavor: AuthFlavor(77), body: Opaque::from(&[0xff; 12]) };
    let mut record = call_record(xid, &Credential::Other(malformed), 1, |_| {}).to_vec();
    // AUTH_SYS in place of a flavor that nobody looks into.
    record[31] = 1;
    let denied = ReplyBody::Denied(RejectedReply::AuthError(AuthStat::BadCred));
    assert_eq!(answer(&connection, xid, &record), denied);
    assert_eq!(accepted(&connection, NFS4_PROGRAM, NFS_V4, NFSPROC4_NULL), AcceptedStatus::Success);
}

#[test]
fn arguments_that_are_no_compound_are_garbage() {
    let (_instance, server) = Server::start();
    let connection = connection(&server);
    let xid = connection.xid();
    let record = call_record(xid, &Credential::None, 1, |encoder| encoder.put_u32(0xffff_fff0));
    let ReplyBody::Accepted(reply) = answer(&connection, xid, &record) else { panic!("denied") };
    assert_eq!(reply.status, AcceptedStatus::GarbageArgs);
}

#[test]
fn a_record_in_many_fragments_is_one_request() {
    let (_instance, server) = Server::start();
    let connection = connection(&server);
    let xid = connection.xid();
    let options = ClientOptions::named("host");
    let record = compound_record(xid, &options.credential, 1, &[options.exchange_id()]);
    let message = &record[4..];
    let chunks: Vec<&[u8]> = message.chunks(7).collect();
    for (n, chunk) in chunks.iter().enumerate() {
        let last = if n + 1 == chunks.len() { 1 << 31 } else { 0 };
        connection.send_raw(&(chunk.len() as u32 | last).to_be_bytes()).unwrap();
        connection.send_raw(chunk).unwrap();
    }
    assert_eq!(connection.wait(xid).unwrap().status, NfsStat4::Ok);
}

#[test]
fn many_requests_on_one_connection_are_answered_each_under_its_xid() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let slots = client.session.fore.maxrequests.min(32);
    let mut under_way = Vec::new();
    for n in 0..slots {
        let sequence = client.session.begin(true).unwrap();
        let create = testkit::nfs_client::ops::create(nfs4::CreateType4::Dir, &format!("{n}"), 0o755);
        let ops = testkit::nfs_client::Session::compound(sequence, &[NfsArgop4::PutRootFh, create]);
        under_way.push((sequence, client.connection.send(&client.options.credential, 2, &ops).unwrap()));
    }
    for (sequence, xid) in under_way.into_iter().rev() {
        let reply = client.connection.wait(xid).unwrap();
        assert_eq!(reply.status, NfsStat4::Ok);
        client.session.finish(&sequence, &reply.results);
    }
    let root = client.root().unwrap();
    assert_eq!(client.list(&root, 4096).unwrap().len(), slots as usize);
}

#[test]
fn the_tag_comes_back() {
    let (_instance, server) = Server::start();
    let connection = connection(&server);
    let xid = connection.xid();
    let tag = Opaque::from("mount on a rainy day");
    let args = nfs4::Compound4Args { tag: tag.clone(), minorversion: 0, argarray: Vec::new() };
    let record = call_record(xid, &Credential::None, 1, |encoder| args.encode(encoder));
    connection.send_raw(&record).unwrap();
    let reply = connection.wait(xid).unwrap();
    let whole: nfs4::Compound4Res = xdr::from_bytes(reply.body).unwrap();
    assert_eq!((whole.status, whole.tag), (NfsStat4::MinorVersMismatch, tag));
}

#[test]
fn nobody_in_particular_may_do_what_everybody_may() {
    let (_instance, server) = Server::start();
    let mut client = server.client_by(ClientOptions::named("anonymous").credential(Credential::None));
    let root = client.root().unwrap();
    assert!(client.list(&root, 4096).is_ok());
    assert_eq!(status_of(client.mkdir(&root, "dir", 0o755)), NfsStat4::Access);
}
