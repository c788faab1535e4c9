//! The transport from outside: what a peer may send, and what it gets.

use nfs4::{Compound4Res, NfsArgop4, NfsResop4, NfsStat4};
use oncrpc::{
    AcceptedStatus, AuthStat, Credential, GssCredential, GssProcedure, GssService, RejectedReply, ReplyBody,
};
use xdr::{Opaque, Xdr};

use super::*;
use crate::session_ops::fixture::{Client, Server, sequence_op};

async fn accepted(client: &mut Client) -> AcceptedStatus {
    match client.reply().await.0.body {
        ReplyBody::Accepted(accepted) => accepted.status,
        denied => panic!("{denied:?}"),
    }
}

async fn results(client: &mut Client) -> Vec<NfsStat4> {
    let (_, mut results) = client.reply().await;
    let results = Compound4Res::decode(&mut results).unwrap();
    results.resarray.iter().map(NfsResop4::status).collect()
}

#[tokio::test]
async fn what_is_no_nfs_is_answered_by_the_rules_of_rpc() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send_call(|header| header.procedure = 0, |_| {}).await;
    assert_eq!(accepted(&mut client).await, AcceptedStatus::Success);
    client.send_call(|header| header.program = 100_005, |_| {}).await;
    assert_eq!(accepted(&mut client).await, AcceptedStatus::ProgUnavail);
    client.send_call(|header| header.version = 3, |_| {}).await;
    assert_eq!(accepted(&mut client).await, AcceptedStatus::ProgMismatch { low: 4, high: 4 });
    client.send_call(|header| header.procedure = 2, |_| {}).await;
    assert_eq!(accepted(&mut client).await, AcceptedStatus::ProcUnavail);
    client.send_call(|_| {}, |e| e.put_u32(u32::MAX)).await;
    assert_eq!(accepted(&mut client).await, AcceptedStatus::GarbageArgs);
}

#[tokio::test]
async fn a_credential_that_is_not_served_is_an_auth_error() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    let gss = GssCredential {
        procedure: GssProcedure::Init,
        sequence: 1,
        service: GssService::None,
        handle: Opaque::new(),
    };
    client.send_call(|header| header.credential = Credential::RpcsecGss(gss), |_| {}).await;
    let (header, _) = client.reply().await;
    assert_eq!(header.body, ReplyBody::Denied(RejectedReply::AuthError(AuthStat::TooWeak)));
}

#[tokio::test]
async fn a_record_that_claims_too_much_cuts_its_connection_and_no_other() {
    let server = Server::start().await;
    let (mut good, mut bad) = (server.connect().await, server.connect().await);
    bad.send_raw(&[0xff; 4]).await;
    assert!(bad.is_cut().await);
    good.send_call(|header| header.procedure = 0, |_| {}).await;
    assert_eq!(accepted(&mut good).await, AcceptedStatus::Success);
}

#[tokio::test]
async fn a_record_that_does_not_get_on_cuts_its_connection() {
    let limits = TransportLimits { patience: Duration::from_millis(20), ..TransportLimits::default() };
    let server = Server::with(limits, &[]).await;
    let mut client = server.connect().await;
    client.send_raw(&[0x80, 0, 0, 8, 1]).await;
    assert!(client.is_cut().await);
}

#[tokio::test]
async fn a_connection_over_the_bound_is_closed_at_once() {
    let server =
        Server::with(TransportLimits { connections_max: 1, ..TransportLimits::default() }, &[]).await;
    let mut first = server.connect().await;
    first.send_call(|header| header.procedure = 0, |_| {}).await;
    accepted(&mut first).await;
    assert!(server.connect().await.is_cut().await);
}

#[tokio::test]
async fn a_slow_call_holds_up_no_other_and_its_retransmission_is_told_to_wait() {
    let server = Server::start().await;
    let (mut client, _, session) = server.mount("a").await;
    let slow = || vec![sequence_op(session, 0, 1, true), NfsArgop4::PutPubFh];
    client.send_compound(slow()).await;
    client.send_compound(slow()).await;
    assert_eq!(results(&mut client).await, [NfsStat4::Delay]);
    client.send_compound(vec![sequence_op(session, 1, 1, true), NfsArgop4::PutRootFh]).await;
    assert_eq!(results(&mut client).await, [NfsStat4::Ok, NfsStat4::Ok]);
    server.face.gate.add_permits(1);
    assert_eq!(results(&mut client).await, [NfsStat4::Ok, NfsStat4::Ok]);
    client.send_compound(slow()).await;
    assert_eq!(
        results(&mut client).await,
        [NfsStat4::Ok, NfsStat4::Ok],
        "from the reply cache: the gate is shut"
    );
}

#[tokio::test]
async fn calls_beyond_the_bound_of_a_connection_are_not_read_until_one_is_done() {
    let server = Server::with(TransportLimits { calls_max: 1, ..TransportLimits::default() }, &[]).await;
    let (mut client, _, session) = server.mount("a").await;
    client.send_compound(vec![sequence_op(session, 0, 1, true), NfsArgop4::PutPubFh]).await;
    client.send_compound(vec![sequence_op(session, 1, 1, true), NfsArgop4::PutRootFh]).await;
    server.face.gate.add_permits(1);
    let first = results(&mut client).await;
    let second = results(&mut client).await;
    assert_eq!((first.len(), second.len()), (2, 2));
}

#[tokio::test]
async fn beyond_the_bytes_in_flight_a_connection_has_one_call_at_a_time_and_others_get_on() {
    let server = Server::in_flight(1).await;
    let (mut slow, _, of_slow) = server.mount("slow").await;
    let (mut other, _, of_other) = server.mount("other").await;
    slow.send_compound(vec![sequence_op(of_slow, 0, 1, true), NfsArgop4::PutPubFh]).await;
    slow.send_compound(vec![sequence_op(of_slow, 1, 1, true), NfsArgop4::PutRootFh]).await;
    for sequence in 1..4 {
        other.send_compound(vec![sequence_op(of_other, 0, sequence, true), NfsArgop4::PutRootFh]).await;
        assert_eq!(results(&mut other).await, [NfsStat4::Ok, NfsStat4::Ok]);
    }
    server.face.gate.add_permits(1);
    let (first, _) = slow.reply().await;
    let (second, _) = slow.reply().await;
    assert!(first.xid < second.xid, "the quick call was not begun before the slow one was done");
}

#[tokio::test]
async fn a_stop_finishes_what_is_under_way() {
    let server = Server::start().await;
    let (mut client, _, session) = server.mount("a").await;
    client.send_compound(vec![sequence_op(session, 0, 1, true), NfsArgop4::PutPubFh]).await;
    // Answered only when the slow call before it has been taken up.
    client.send_compound(vec![sequence_op(session, 1, 1, true), NfsArgop4::PutRootFh]).await;
    results(&mut client).await;
    let face = Arc::clone(&server.face);
    let (_, finished) = tokio::join!(server.stop(), async {
        face.gate.add_permits(1);
        results(&mut client).await
    });
    assert_eq!(finished, [NfsStat4::Ok, NfsStat4::Ok]);
    assert!(client.is_cut().await);
}
