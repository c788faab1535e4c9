//! Sessions over a real socket and a database that may fail.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use nfs4::{NfsArgop4, NfsStat4, ReclaimComplete4Args, SessionId4};

use super::fixture::{Client, LEASE, Server, sequence_op};
use super::*;

const RECLAIM_COMPLETE: NfsArgop4 = NfsArgop4::ReclaimComplete(ReclaimComplete4Args { one_fs: false });

async fn statuses(client: &mut Client, operations: Vec<NfsArgop4>) -> Vec<NfsStat4> {
    client.compound(operations).await.iter().map(NfsResop4::status).collect()
}

#[tokio::test]
async fn a_finished_request_sent_again_gets_the_same_bytes() {
    let server = Server::start().await;
    let (mut client, _, session) = server.mount("a").await;
    let request = |sequence| vec![sequence_op(session, 0, sequence, true), NfsArgop4::PutRootFh];
    let first = client.compound_bytes(request(1)).await;
    assert_eq!(client.compound_bytes(request(1)).await, first);
    let mut other = server.connect().await;
    assert_eq!(other.compound_bytes(request(1)).await, first, "over another connection too");
    assert_ne!(client.compound_bytes(request(2)).await, first);
}

#[tokio::test]
async fn a_request_whose_reply_was_not_kept_is_not_run_again() {
    let server = Server::start().await;
    let (mut client, _, session) = server.mount("a").await;
    let request = || vec![sequence_op(session, 0, 1, false), NfsArgop4::PutRootFh];
    assert_eq!(statuses(&mut client, request()).await, [NfsStat4::Ok, NfsStat4::Ok]);
    assert_eq!(statuses(&mut client, request()).await, [NfsStat4::Ok, NfsStat4::RetryUncachedRep]);
}

#[tokio::test]
async fn another_request_under_the_same_number_is_a_false_retry() {
    let server = Server::start().await;
    let (mut client, _, session) = server.mount("a").await;
    assert_eq!(client.run(session, 1, NfsArgop4::PutRootFh).await, NfsStat4::Ok);
    assert_eq!(client.run(session, 1, NfsArgop4::GetFh).await, NfsStat4::SeqFalseRetry);
}

#[tokio::test]
async fn a_slot_whose_request_was_dropped_can_be_used_on() {
    let server = Server::start().await;
    let (mut client, _, session) = server.mount("a").await;
    let args =
        Sequence4Args { sessionid: session, sequenceid: 1, slotid: 0, highest_slotid: 0, cachethis: true };
    let facts = RequestFacts::new(100, 2, &Principal::sys(0), b"");
    let sessions = &server.engine.sessions;
    let peer = Peer { connection: ConnectionId(99), address: ([127, 0, 0, 1], 1).into() };
    let SequenceVerdict::Execute(ticket) =
        sessions.table.lock().begin(sessions.table.now(), &args, &facts, &peer)
    else {
        panic!("it is new")
    };
    drop(SlotTicket { ticket: Some(ticket), table: Arc::clone(&sessions.table) });
    assert_eq!(client.run(session, 2, NfsArgop4::PutRootFh).await, NfsStat4::Ok);
}

#[tokio::test]
async fn reclaim_complete_is_on_record_before_it_is_answered() {
    let server = Server::start().await;
    let (mut client, id, session) = server.mount("a").await;
    server.records.fails.store(true, Ordering::Relaxed);
    assert_eq!(client.run(session, 1, RECLAIM_COMPLETE).await, NfsStat4::Delay);
    assert_eq!(server.engine.sessions.reclaims.judge(id, false), Err(NfsStat4::Grace));
    server.records.fails.store(false, Ordering::Relaxed);
    assert_eq!(client.run(session, 2, RECLAIM_COMPLETE).await, NfsStat4::Ok);
    assert_eq!(server.records.of("a"), Some(true));
    assert_eq!(server.engine.sessions.reclaims.judge(id, false), Ok(()));
    assert_eq!(client.run(session, 3, RECLAIM_COMPLETE).await, NfsStat4::CompleteAlready);
}

#[tokio::test]
async fn a_silent_client_is_handed_over_once_its_record_is_removed() {
    let server = Server::start().await;
    let (mut client, id, session) = server.mount("a").await;
    client.run(session, 1, RECLAIM_COMPLETE).await;
    server.clock.pass(LEASE + Duration::from_secs(1));
    server.records.fails.store(true, Ordering::Relaxed);
    assert_eq!(server.engine.sessions.expire(&()).await, []);
    assert!(server.engine.sessions.leases.has_departed());
    server.records.fails.store(false, Ordering::Relaxed);
    assert_eq!(server.engine.sessions.expire(&()).await, [id]);
    assert_eq!(server.records.of("a"), None);
    assert_eq!(client.run(session, 2, NfsArgop4::PutRootFh).await, NfsStat4::BadSession);
}

/// Each client has so much.
struct Holds(u64);

impl Holdings for Holds {
    fn states(&self, _: ClientId4) -> u64 {
        self.0
    }

    fn is_waited_for(&self, _: ClientId4) -> bool {
        false
    }
}

#[tokio::test]
async fn that_a_client_is_not_fenced_off_yet_is_on_record() {
    let server = Server::start().await;
    let (mut client, id, session) = server.mount("a").await;
    client.run(session, 1, RECLAIM_COMPLETE).await;
    let (sessions, records) = (&server.engine.sessions, &server.records);
    server.clock.pass(LEASE + Duration::from_secs(1));
    assert_eq!(sessions.expire(&Holds(1)).await, [id]);
    assert_eq!(records.of("a"), Some(false), "what it had at the pools is there");
    records.fails.store(true, Ordering::Relaxed);
    sessions.leases.released(id).await;
    records.fails.store(false, Ordering::Relaxed);
    assert_eq!(records.of("a"), Some(false));
    assert_eq!(sessions.expire(&Holds(0)).await, [id], "it is handed over once more");
    assert_eq!(records.of("a"), None);
}

#[tokio::test]
async fn the_state_of_a_displaced_client_is_released_when_the_next_needs_it() {
    let limits = SessionLimits { clients_max: 1, ..SessionLimits::default() };
    let server = Server::bounded(limits).await;
    let (_client, id, _) = server.mount("a").await;
    let sessions = &server.engine.sessions;
    server.clock.pass(LEASE + Duration::from_secs(1));
    server.connect().await.exchange_id("b", 1).await.unwrap();
    assert!(sessions.leases.has_departed(), "the next client need not wait for a lease");
    assert_eq!(sessions.leases.dislodge(&[id]), BTreeSet::from([id]));
    assert_eq!(sessions.expire(&()).await, [id]);
}

#[tokio::test]
async fn a_departed_client_is_a_stranger_once_it_was_handed_over() {
    let server = Server::start().await;
    let (_client, gone, _) = server.mount("a").await;
    server.clock.pass(LEASE + Duration::from_secs(1));
    let (_client, known, _) = server.mount("b").await;
    let (sessions, never) = (&server.engine.sessions, ClientId4(u64::MAX));
    let strangers = || sessions.leases.strangers(vec![gone, known, never]);
    server.records.fails.store(true, Ordering::Relaxed);
    assert_eq!(sessions.expire(&()).await, []);
    assert_eq!(strangers(), [never]);
    server.records.fails.store(false, Ordering::Relaxed);
    assert_eq!(sessions.expire(&()).await, [gone]);
    assert_eq!(strangers(), [gone, never]);
}

#[tokio::test]
async fn a_client_whose_state_was_revoked_may_not_reclaim_until_it_knows() {
    let server = Server::start().await;
    let (mut client, id, session) = server.mount("a").await;
    client.run(session, 1, RECLAIM_COMPLETE).await;
    let sessions = &server.engine.sessions;
    server.records.fails.store(true, Ordering::Relaxed);
    assert!(sessions.reclaims.forbid(id).await.is_err());
    server.records.fails.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        sessions.reclaims.forbid(id).await.unwrap();
        assert_eq!(server.records.of("a"), Some(false), "on record before anything is taken");
        sessions.reclaims.allow(|_| false).await;
    }
    server.records.fails.store(true, Ordering::Relaxed);
    sessions.reclaims.allow(|_| true).await;
    server.records.fails.store(false, Ordering::Relaxed);
    assert_eq!(server.records.of("a"), Some(false));
    sessions.reclaims.allow(|_| true).await;
    assert_eq!(server.records.of("a"), Some(true));
    // A client that is gone has no record that could be changed.
    sessions.reclaims.forbid(id).await.unwrap();
    server.clock.pass(LEASE + Duration::from_secs(1));
    assert_eq!(sessions.expire(&()).await, [id]);
    sessions.reclaims.allow(|_| true).await;
    assert_eq!(server.records.of("a"), None);
    assert!(sessions.reclaims.robbed.lock().is_empty());
}

#[tokio::test]
async fn a_late_removal_does_not_undo_the_record_of_a_client_that_came_back() {
    let server = Server::start().await;
    let (mut client, id, session) = server.mount("a").await;
    client.run(session, 1, RECLAIM_COMPLETE).await;
    server.clock.pass(LEASE + Duration::from_secs(1));
    server.records.fails.store(true, Ordering::Relaxed);
    server.engine.sessions.expire(&()).await;
    server.records.fails.store(false, Ordering::Relaxed);
    let (mut client, _, session) = server.mount("a").await;
    client.run(session, 1, RECLAIM_COMPLETE).await;
    assert_eq!(server.engine.sessions.expire(&()).await, [id]);
    assert_eq!(server.records.of("a"), Some(true));
}

#[tokio::test]
async fn a_client_that_came_back_empty_handed_may_not_reclaim_what_it_lost() {
    let server = Server::start().await;
    let (mut client, _, session) = server.mount("a").await;
    client.run(session, 1, RECLAIM_COMPLETE).await;
    server.clock.pass(LEASE + Duration::from_secs(1));
    server.records.fails.store(true, Ordering::Relaxed);
    server.engine.sessions.expire(&()).await;
    server.records.fails.store(false, Ordering::Relaxed);
    server.mount("a").await;
    server.engine.sessions.expire(&()).await;
    assert_eq!(server.records.of("a"), Some(false));
}

#[tokio::test]
async fn a_restarted_client_is_handed_over_at_once() {
    let server = Server::start().await;
    let (mut client, old, session) = server.mount("a").await;
    client.run(session, 1, RECLAIM_COMPLETE).await;
    let new = client.exchange_id("a", 2).await.unwrap();
    server.records.fails.store(true, Ordering::Relaxed);
    assert_eq!(client.create_session(new, 1).await, Err(NfsStat4::Delay), "not before it is on record");
    server.records.fails.store(false, Ordering::Relaxed);
    client.create_session(new, 1).await.unwrap();
    assert_eq!(server.engine.sessions.expire(&()).await, [old]);
    assert_eq!(server.records.of("a"), Some(false));
}

#[tokio::test]
async fn grace_ends_when_the_records_of_the_missing_entitle_to_nothing() {
    let server = Server::restarted(&["a", "gone"]).await;
    let (mut client, id, session) = server.mount("a").await;
    let sessions = &server.engine.sessions;
    assert_eq!(sessions.reclaims.judge(id, true), Ok(()));
    assert_eq!(sessions.reclaims.grace_left(), LEASE);
    client.run(session, 1, RECLAIM_COMPLETE).await;
    server.clock.pass(LEASE);
    server.records.fails.store(true, Ordering::Relaxed);
    sessions.expire(&()).await;
    assert!(sessions.reclaims.in_grace(), "the missing could reclaim yet");
    server.records.fails.store(false, Ordering::Relaxed);
    sessions.expire(&()).await;
    assert!(!sessions.reclaims.in_grace());
    assert_eq!((server.records.of("a"), server.records.of("gone")), (Some(true), Some(false)));
    assert_eq!(server.former_tickets.voided.load(Ordering::Relaxed), 1, "once");
    assert_eq!(sessions.reclaims.judge(id, false), Ok(()));
}

#[tokio::test]
async fn grace_ends_only_when_no_pool_takes_tickets_to_write_of_before() {
    let server = Server::restarted(&["gone"]).await;
    let reclaims = &server.engine.sessions.reclaims;
    assert!(reclaims.are_awaited() && !reclaims.are_former_tickets_void());
    server.former_tickets.fails.store(true, Ordering::Relaxed);
    server.clock.pass(LEASE);
    for _ in 0..2 {
        server.engine.sessions.expire(&()).await;
        assert!(reclaims.in_grace() && !reclaims.are_former_tickets_void());
        assert_eq!(server.records.of("gone"), Some(true), "the tickets end first");
    }
    server.former_tickets.fails.store(false, Ordering::Relaxed);
    server.engine.sessions.expire(&()).await;
    assert!(!reclaims.in_grace() && reclaims.are_former_tickets_void());
    assert_eq!(server.records.of("gone"), Some(false));
}

#[tokio::test]
async fn without_a_grace_period_former_tickets_end_all_the_same() {
    let server = Server::start().await;
    assert!(!server.engine.sessions.reclaims.are_former_tickets_void());
    server.engine.sessions.expire(&()).await;
    assert!(server.engine.sessions.reclaims.are_former_tickets_void());
}

#[tokio::test]
async fn status_names_the_clients() {
    let server = Server::start().await;
    let (_client, id, _) = server.mount("Linux NFSv4.1 node7").await;
    server.clock.pass(Duration::from_secs(7));
    let clients = server.engine.sessions.clients();
    let summary = &clients[0];
    assert_eq!((summary.id, summary.name.as_str(), summary.sessions), (id, "Linux NFSv4.1 node7", 1));
    assert_eq!((summary.address.as_str(), summary.idle), ("127.0.0.1", Duration::from_secs(7)));
}

#[tokio::test]
async fn an_unknown_session_is_told_so() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    assert_eq!(client.run(SessionId4([7; 16]), 1, NfsArgop4::PutRootFh).await, NfsStat4::BadSession);
}
