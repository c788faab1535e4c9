//! Calls to a client at the other end of a real socket.

use nfs4::{BindConnToSession4Args, CbSequence4ResOk, ChannelDirFromClient4, NfsArgop4, SessionId4};

use super::*;
use crate::session_ops::fixture::{Client, Server};

const PATIENCE: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

fn recall() -> LayoutRecall {
    LayoutRecall {
        is_closed: false,
        file: FileId(1),
        handle: NfsFh4::from(b"file".to_vec()),
        stateid: StateId4 { seqid: 3, other: [1; 12] },
        iomode: LayoutIomode4::Any,
    }
}

async fn call(server: &Server, client: ClientId4, patience: Duration) -> Result<NfsStat4, CallbackError> {
    server.engine.sessions.callbacks.recall_layout(client, recall(), patience).await
}

fn sequence_of(arguments: &CbCompound4Args) -> CbSequence4Args {
    match &arguments.argarray[0] {
        NfsCbArgop4::Sequence(sequence) => sequence.clone(),
        other => panic!("{other:?}"),
    }
}

fn passed(sequence: &CbSequence4Args) -> NfsCbResop4 {
    NfsCbResop4::Sequence(Res::Ok(CbSequence4ResOk {
        sessionid: sequence.sessionid,
        sequenceid: sequence.sequenceid,
        slotid: sequence.slotid,
        highest_slotid: 3,
        target_highest_slotid: 3,
    }))
}

/// Takes one callback, answers it, and returns its CB_SEQUENCE.
async fn answer(client: &mut Client, status: NfsStat4) -> CbSequence4Args {
    let (xid, _, arguments) = client.callback().await;
    let sequence = sequence_of(&arguments);
    client.answer(xid, vec![passed(&sequence), NfsCbResop4::LayoutRecall(status)]).await;
    sequence
}

async fn refuse(client: &mut Client, status: NfsStat4) -> CbSequence4Args {
    let (xid, _, arguments) = client.callback().await;
    client.answer(xid, vec![NfsCbResop4::Sequence(Res::Err(status))]).await;
    sequence_of(&arguments)
}

async fn bind_back(client: &mut Client, sessid: SessionId4) {
    let args = BindConnToSession4Args {
        sessid,
        dir: ChannelDirFromClient4::BackOrBoth,
        use_conn_in_rdma_mode: false,
    };
    let results = client.compound(vec![NfsArgop4::BindConnToSession(args)]).await;
    assert_eq!(results[0].status(), NfsStat4::Ok);
}

#[tokio::test]
async fn a_recall_goes_to_the_client_and_its_answer_comes_back() {
    let server = Server::start().await;
    let (mut client, id, session) = server.mount("a").await;
    let seen = async {
        let (xid, credential, arguments) = client.callback().await;
        let sequence = sequence_of(&arguments);
        let results = vec![passed(&sequence), NfsCbResop4::LayoutRecall(NfsStat4::NoMatchingLayout)];
        client.answer(xid, results).await;
        (credential, arguments)
    };
    let (answer, (credential, arguments)) = tokio::join!(call(&server, id, PATIENCE), seen);
    assert_eq!(answer, Ok(NfsStat4::NoMatchingLayout));
    assert_eq!(arguments.minorversion, 1);
    let sequence = sequence_of(&arguments);
    assert_eq!((sequence.sessionid, sequence.slotid, sequence.sequenceid), (session, 0, 1));
    let Credential::Sys(sys) = credential else { panic!("{credential:?}") };
    assert_eq!(sys.uid, 5, "what the client said that callbacks shall carry");
    let NfsCbArgop4::LayoutRecall(recalled) = &arguments.argarray[1] else { panic!("{arguments:?}") };
    let LayoutRecall4::File(file) = &recalled.recall else { panic!("{recalled:?}") };
    assert_eq!((file.stateid, file.offset, file.length), (recall().stateid, 0, u64::MAX));
}

#[tokio::test]
async fn a_client_that_says_delay_is_asked_again() {
    let server = Server::start().await;
    let (mut client, id, _) = server.mount("a").await;
    let seen = async {
        let first = refuse(&mut client, NfsStat4::Delay).await;
        let second = answer(&mut client, NfsStat4::Delay).await;
        let third = answer(&mut client, NfsStat4::Ok).await;
        [first.sequenceid, second.sequenceid, third.sequenceid]
    };
    let (answer, seen) = tokio::join!(call(&server, id, PATIENCE), seen);
    assert_eq!(answer, Ok(NfsStat4::Ok));
    assert_eq!(seen, [1, 1, 2], "a refused CB_SEQUENCE uses no number up");
}

#[tokio::test]
async fn a_client_that_has_given_a_layout_back_is_not_asked_for_it_again() {
    let server = Server::start().await;
    let (mut client, id, _) = server.mount("a").await;
    let is_wanted = std::sync::atomic::AtomicBool::new(true);
    let is_wanted = || is_wanted.swap(false, std::sync::atomic::Ordering::Relaxed);
    let sessions = &server.engine.sessions;
    let seen = async {
        answer(&mut client, NfsStat4::Delay).await;
        answer(&mut client, NfsStat4::Delay).await;
    };
    let (answered, ()) = tokio::join!(sessions.callbacks.recall_all_layouts(id, &is_wanted, PATIENCE), seen);
    assert_eq!(answered, Ok(NfsStat4::Delay), "though it would have been asked as long as it has patience");
}

#[tokio::test]
async fn silence_ends_with_the_patience_and_the_next_call_finds_its_number() {
    let server = Server::start().await;
    let (mut client, id, _) = server.mount("a").await;
    // As many as there are slots, so that the next call comes to a slot in doubt.
    for _ in 0..4 {
        let (answer, _) = tokio::join!(call(&server, id, SHORT), client.callback());
        assert_eq!(answer, Err(CallbackError::TimedOut));
    }
    let seen = async {
        let first = refuse(&mut client, NfsStat4::SeqMisordered).await;
        let second = answer(&mut client, NfsStat4::Ok).await;
        [(first.slotid, first.sequenceid), (second.slotid, second.sequenceid)]
    };
    let (answer, seen) = tokio::join!(call(&server, id, PATIENCE), seen);
    assert_eq!(answer, Ok(NfsStat4::Ok));
    assert_eq!(seen, [(0, 2), (0, 1)]);
}

#[tokio::test]
async fn a_call_moves_to_the_connection_that_the_client_binds_next() {
    let server = Server::start().await;
    let (client, id, session) = server.mount("a").await;
    drop(client);
    let mut client = server.connect().await;
    bind_back(&mut client, session).await;
    let (answer, _) = tokio::join!(call(&server, id, PATIENCE), answer(&mut client, NfsStat4::Ok));
    assert_eq!(answer, Ok(NfsStat4::Ok));
}

#[tokio::test]
async fn one_client_that_answers_nothing_does_not_take_the_calls_of_others() {
    let server = Server::start().await;
    let (_silent, id, _) = server.mount("a").await;
    let (mut client, other, _) = server.mount("b").await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..CALLS_PER_CLIENT_MAX {
        let engine = Arc::clone(&server.engine);
        calls.spawn(async move { engine.sessions.callbacks.recall_layout(id, recall(), PATIENCE).await });
    }
    let sessions = &server.engine.sessions;
    while sessions.callbacks.called.lock().get(&id) != Some(&CALLS_PER_CLIENT_MAX) {
        tokio::task::yield_now().await;
    }
    assert_eq!(call(&server, id, PATIENCE).await, Err(CallbackError::Busy));
    let (answered, _) = tokio::join!(call(&server, other, PATIENCE), answer(&mut client, NfsStat4::Ok));
    assert_eq!(answered, Ok(NfsStat4::Ok));
    calls.shutdown().await;
    assert!(sessions.callbacks.called.lock().is_empty(), "a call that is not waited for takes no place");
}

#[tokio::test]
async fn a_client_without_a_back_channel_cannot_be_called() {
    let server = Server::start().await;
    assert_eq!(call(&server, ClientId4(1), SHORT).await, Err(CallbackError::UnknownClient));
    let (client, id, _) = server.mount("a").await;
    drop(client);
    let outcome = call(&server, id, PATIENCE).await;
    assert_eq!(outcome, Err(CallbackError::NoPath));
}
