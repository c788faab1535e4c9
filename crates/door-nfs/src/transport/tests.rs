//! The transport from outside: calls of a peer, and the answers to them.

use nfs4::{Compound4Res, NfsArgop4, NfsResop4, NfsStat4, Read4Args, StateId4};
use oncrpc::{
    AcceptedStatus, AuthStat, Credential, GssCredential, GssProcedure, GssService, RejectedReply, ReplyBody,
};
use xdr::{Encoder, Opaque, Xdr};

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
async fn a_call_that_is_not_nfs_is_answered_by_the_rules_of_rpc() {
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
async fn a_record_that_comes_byte_by_byte_cuts_its_connection() {
    let limits = TransportLimits { patience: Duration::from_millis(50), ..TransportLimits::default() };
    let server = Server::with(limits, &[]).await;
    let mut client = server.connect().await;
    client.send_raw(&[0x80, 0x10, 0, 0]).await;
    // Each byte comes well within the patience; all of them together do not.
    let mut drip = tokio::time::interval(Duration::from_millis(5));
    loop {
        tokio::select! {
            is_cut = client.is_cut() => return assert!(is_cut),
            _ = drip.tick() => {}
        }
        if client.try_send_raw(&[0]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_silent_connection_is_cut_unless_a_session_uses_it() {
    let limits = TransportLimits { silence: Duration::from_millis(20), ..TransportLimits::default() };
    let server = Server::with(limits, &[]).await;
    let (mut used, _, session) = server.mount("a").await;
    for sequence in 1..4 {
        let mut silent = server.connect().await;
        let mut after_a_call = server.connect().await;
        after_a_call.send_call(|header| header.procedure = 0, |_| {}).await;
        accepted(&mut after_a_call).await;
        assert!(silent.is_cut().await && after_a_call.is_cut().await);
        used.send_compound(vec![sequence_op(session, 0, sequence, true), NfsArgop4::PutRootFh]).await;
        assert_eq!(results(&mut used).await, [NfsStat4::Ok, NfsStat4::Ok]);
    }
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
    server.table.gate.add_permits(1);
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
    server.table.gate.add_permits(1);
    let first = results(&mut client).await;
    let second = results(&mut client).await;
    assert_eq!((first.len(), second.len()), (2, 2));
}

#[tokio::test]
async fn a_record_that_waits_for_others_has_its_time_when_its_turn_comes() {
    const PATIENCE: Duration = Duration::from_millis(50);
    let limits = TransportLimits { calls_max: 1, patience: PATIENCE, ..TransportLimits::default() };
    let server = Server::in_flight_with(limits, 1 << 20).await;
    let (mut slow, _, session) = server.mount("slow").await;
    let mut waiting = server.connect().await;
    let long = |e: &mut Encoder| e.put_raw_segments(vec![Bytes::from(vec![0; 900 << 10])]);
    // It keeps the room of the second for as long as the first takes.
    slow.send_compound(vec![sequence_op(session, 0, 1, true), NfsArgop4::PutPubFh]).await;
    slow.send_call(|header| header.procedure = 0, long).await;
    // By then it has been read.
    for _ in 0..10 {
        waiting.send_call(|header| header.procedure = 0, |_| {}).await;
        accepted(&mut waiting).await;
    }
    waiting.send_call(|header| header.procedure = 0, long).await;
    let is_cut = tokio::time::timeout(PATIENCE * 4, waiting.is_cut()).await;
    assert!(is_cut.is_err(), "its own time has not begun");
    server.table.gate.add_permits(1);
    assert_eq!(accepted(&mut waiting).await, AcceptedStatus::Success);
}

#[tokio::test]
async fn beyond_the_bytes_in_flight_a_host_has_one_call_at_a_time_and_others_get_on() {
    let server = Server::in_flight(1).await;
    let (mut slow, _, of_slow) = server.mount("slow").await;
    let (mut other, _, of_other) = server.mount_from([127, 0, 0, 2], "other").await;
    slow.send_compound(vec![sequence_op(of_slow, 0, 1, true), NfsArgop4::PutPubFh]).await;
    slow.send_compound(vec![sequence_op(of_slow, 1, 1, true), NfsArgop4::PutRootFh]).await;
    for sequence in 1..4 {
        other.send_compound(vec![sequence_op(of_other, 0, sequence, true), NfsArgop4::PutRootFh]).await;
        assert_eq!(results(&mut other).await, [NfsStat4::Ok, NfsStat4::Ok]);
    }
    server.table.gate.add_permits(1);
    let (first, _) = slow.reply().await;
    let (second, _) = slow.reply().await;
    assert!(first.xid < second.xid, "the quick call was not begun before the slow one was done");
}

fn read_op(count: u32) -> NfsArgop4 {
    NfsArgop4::Read(Read4Args { stateid: StateId4::ANONYMOUS, offset: 0, count })
}

#[tokio::test]
async fn a_call_of_many_short_reads_waits_as_one_of_a_long_read_does() {
    let server = Server::in_flight(64 << 10).await;
    let (mut slow, _, of_slow) = server.mount("slow").await;
    let (mut other, _, of_other) = server.mount_from([127, 0, 0, 2], "other").await;
    let (mut quick, _, of_quick) = server.mount_from([127, 0, 0, 3], "quick").await;
    let call = |session, sequence, operations: &[NfsArgop4]| {
        let first = vec![sequence_op(session, 0, sequence, false), NfsArgop4::PutRootFh];
        first.into_iter().chain(operations.iter().cloned()).collect()
    };
    // Until the gate is open it has more than a half of the room for replies.
    slow.send_compound(call(of_slow, 1, &[read_op(17 << 10), read_op(16 << 10), NfsArgop4::PutPubFh])).await;
    while server.flight.bytes() < 33 << 10 {
        tokio::task::yield_now().await;
    }
    other.send_compound(call(of_other, 1, &vec![read_op(10 << 10); 5])).await;
    for sequence in 1..10 {
        quick.send_compound(call(of_quick, sequence, &[])).await;
        assert_eq!(results(&mut quick).await, [NfsStat4::Ok; 2]);
    }
    let mut reply = Box::pin(results(&mut other));
    assert!(tokio::time::timeout(Duration::ZERO, reply.as_mut()).await.is_err(), "there is no room for it");
    server.table.gate.add_permits(1);
    assert_eq!(reply.await, [NfsStat4::Ok; 7]);
    assert_eq!(results(&mut slow).await, [NfsStat4::Ok; 5]);
}

#[tokio::test]
async fn a_peer_that_hangs_up_while_its_record_waits_for_room_is_noticed() {
    let server = Server::in_flight(1).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    // Of 96 KiB; one at a time has room.
    let begun = [&[0x80, 1, 0x80, 0][..], &[7; 100]].concat();
    first.send_raw(&begun).await;
    while server.flight.incoming_bytes() == 0 {
        tokio::task::yield_now().await;
    }
    second.send_raw(&begun).await;
    second.hang_up().await;
    assert!(second.is_cut().await);
    assert!(server.flight.incoming_bytes() > 0, "the first still has its room");
}

#[tokio::test]
async fn room_for_a_reply_that_nobody_waits_for_is_not_that_of_the_next_record() {
    let server = Server::in_flight(4 << 20).await;
    let mut client = server.connect().await;
    // A message of type REPLY, of 68 KiB.
    let reply = [&[0x80, 1, 0x10, 0, 0, 0, 0, 9, 0, 0, 0, 1][..], &[0; (68 << 10) - 8]].concat();
    client.send_raw(&reply).await;
    // A MiB that does not come whole.
    client.send_raw(&[&[0x80, 0x10, 0, 0][..], &[7; 100]].concat()).await;
    while server.flight.incoming_bytes() < 1 << 20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_stop_finishes_what_is_under_way() {
    let server = Server::start().await;
    let (mut client, _, session) = server.mount("a").await;
    client.send_compound(vec![sequence_op(session, 0, 1, true), NfsArgop4::PutPubFh]).await;
    // Answered only when the slow call before it has been taken up.
    client.send_compound(vec![sequence_op(session, 1, 1, true), NfsArgop4::PutRootFh]).await;
    results(&mut client).await;
    let table = Arc::clone(&server.table);
    let (_, finished) = tokio::join!(server.stop(), async {
        table.gate.add_permits(1);
        results(&mut client).await
    });
    assert_eq!(finished, [NfsStat4::Ok, NfsStat4::Ok]);
    assert!(client.is_cut().await);
}
