//! Copies that go on when COPY is answered (RFC 7862 §4.8, §15.2, §15.8, §15.9, §16.1).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use files::Files;
use forebay_door_nfs::{Export, Squash};
use nfs4::{
    BindConnToSession4Args, ChannelDirFromClient4, Copy4Args, Copy4ResOk, LayoutIomode4, NfsArgop4,
    NfsCbArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_WRITE, OffloadInfo4, Open4Args,
    OpenFlag4, ReferringCall4, ReferringCallList4, StableHow4, StateId4, TestStateId4Args,
};
use testkit::body;
use testkit::faulty::{Call, Crash, Fault, Faulty, Gate};
use testkit::memory_pool::MemoryPool;
use testkit::nfs_client::{Answer, ClientOptions, NfsClient, OpenFile, ops};

use crate::ground::{Ground, LONG, POOL, client, status_of};

/// Bytes that are read and written at a time.
const PIECE: u64 = 1 << 20;
const PIECES: u64 = 4;
const SIZE: u64 = PIECES * PIECE;

struct Scene {
    /// It goes with the scene.
    _ground: Ground,
    pool: Arc<Faulty<MemoryPool>>,
    /// At the pool.
    writes: Gate,
    files: Arc<Files>,
    door: SocketAddr,
    client: NfsClient,
    root: NfsFh4,
    source: OpenFile,
    target: OpenFile,
}

impl Scene {
    fn set() -> Scene {
        Scene::with(ClientOptions::named("host"))
    }

    fn with(options: ClientOptions) -> Scene {
        let ground = Ground::new();
        // The head moves the pieces, so that the gate holds them.
        let pool = Arc::new(Faulty::new(MemoryPool::without_ranges(POOL)));
        let writes = Gate::open();
        pool.schedule().on(Call::Write, .., Fault::Delay(writes.clone()));
        let exports = vec![Export::of_everything(Squash::None)];
        let (door, files) = ground.door_over(pool.clone(), exports);
        let mut client = NfsClient::connect(door, options).unwrap();
        let root = client.root().unwrap();
        let source = client.create(&root, "source").unwrap();
        let target = client.create(&root, "target").unwrap();
        for at in 0..PIECES {
            let data = piece(at);
            client.write(&source.handle, source.stateid, at * PIECE, StableHow4::FileSync, &data).unwrap();
        }
        Scene { _ground: ground, pool, writes, files, door, client, root, source, target }
    }

    /// COPY of the whole source, of which so many pieces are written.
    fn copy_some(&mut self, pieces: u64) -> Copy4ResOk {
        self.writes.let_pass(pieces);
        self.client.copy((&self.source, 0), (&self.target, 0), SIZE).unwrap()
    }

    /// A copy that goes on behind its first piece.
    fn begin(&mut self) -> StateId4 {
        let stateid = self.copy_some(1).response.callback_id.expect("it goes on");
        until(|| self.writes.waiting() == 1);
        stateid
    }

    /// Waits for the one callback there is.
    fn count_told(&self, stateid: StateId4) -> u64 {
        let told = self.client.callbacks.wait_for_offload(LONG).expect("a callback comes");
        assert_eq!(told.stateid, stateid);
        match told.offload_info {
            OffloadInfo4::Ok(response) => response.count,
            OffloadInfo4::Err { status, .. } => panic!("{status}"),
        }
    }

    fn progress(&mut self, stateid: StateId4) -> Result<(u64, Option<NfsStat4>), NfsStat4> {
        match self.client.offload_status(&self.target.handle, stateid) {
            Ok(told) => Ok((told.count, told.complete)),
            Err(error) => Err(error.status().unwrap()),
        }
    }

    /// Another client wants the target for itself.
    fn deny_writing(&self, other: &mut NfsClient) -> NfsStat4 {
        let NfsArgop4::Open(open) = ops::open("o", OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate, "target")
        else {
            unreachable!("it is OPEN")
        };
        let open = Open4Args { share_deny: OPEN4_SHARE_DENY_WRITE, ..open };
        status_of(other.call(&[ops::put_fh(&self.root), NfsArgop4::Open(open)]))
    }
}

fn piece(at: u64) -> Vec<u8> {
    vec![b'a' + at as u8; PIECE as usize]
}

fn until(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < deadline, "it never comes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_copy_that_takes_long_goes_on_under_a_stateid_until_a_callback_tells_its_end() {
    let mut scene = Scene::set();
    let sequence = scene.client.session.sequence(0, true);
    let copied = scene.copy_some(1);
    assert!(!copied.requirements.synchronous && copied.requirements.consecutive);
    assert_eq!(copied.response.committed, StableHow4::Unstable);
    let stateid = copied.response.callback_id.expect("it goes on");
    assert_ne!(stateid.seqid, 0, "RFC 7862 §4.8");
    assert_eq!(scene.progress(stateid), Ok((PIECE, None)));
    let test = NfsArgop4::TestStateId(TestStateId4Args { stateids: vec![stateid] });
    let reply = scene.client.call(&[test]).unwrap();
    assert_eq!(body!(reply, TestStateId).unwrap().status_codes, [NfsStat4::Ok]);
    assert!(scene.client.callbacks.seen().is_empty());

    scene.writes.let_all_pass();
    let told = scene.client.callbacks.wait_for_offload(LONG).expect("a callback comes");
    assert_eq!((told.stateid, &told.fh), (stateid, &scene.target.handle));
    let OffloadInfo4::Ok(response) = told.offload_info else { panic!("{told:?}") };
    assert_eq!((response.count, response.committed), (SIZE, StableHow4::Unstable));
    let committed = scene.client.commit(&scene.target.handle).unwrap();
    assert_eq!(response.writeverf, committed.writeverf);
    for at in 0..PIECES {
        let (handle, stateid) = (&scene.target.handle, scene.target.stateid);
        let read = scene.client.read(handle, stateid, at * PIECE, PIECE as u32).unwrap();
        assert!(read.data[..] == piece(at)[..]);
    }
    let seen = &scene.client.callbacks.seen()[0].argarray[0];
    let NfsCbArgop4::Sequence(seen) = seen else { panic!("{seen:?}") };
    let call = ReferringCall4 { sequenceid: sequence.sequenceid, slotid: sequence.slotid };
    let behind = ReferringCallList4 { sessionid: sequence.sessionid, referring_calls: vec![call] };
    assert_eq!(seen.referring_call_lists, [behind], "it must not overtake the reply to COPY");
    until(|| scene.progress(stateid) == Err(NfsStat4::BadStateId));
}

#[test]
fn layouts_that_a_copy_keeps_over_the_last_close_go_with_the_copy() {
    let mut scene = Scene::set();
    let stateid = scene.begin();
    scene.client.layout_get(&scene.target.handle, scene.target.stateid, LayoutIomode4::Rw).unwrap();
    scene.client.close(&scene.target).unwrap();
    scene.writes.let_all_pass();
    assert_eq!(scene.count_told(stateid), SIZE);
    assert_eq!(scene.files.table().all_layouts().count(), 0);
}

#[test]
fn a_synchronous_copy_or_one_without_a_back_channel_answers_with_the_bytes_done() {
    let mut deaf = Scene::with(ClientOptions { has_back_channel: false, ..ClientOptions::named("deaf") });
    let copied = deaf.client.copy((&deaf.source, 0), (&deaf.target, 0), SIZE).unwrap();
    assert_eq!((copied.requirements.synchronous, copied.response.callback_id), (true, None));
    assert!(copied.response.count >= PIECE);

    let mut scene = Scene::set();
    let copy = NfsArgop4::Copy(Copy4Args {
        src_stateid: scene.source.stateid,
        dst_stateid: scene.target.stateid,
        src_offset: 0,
        dst_offset: 0,
        count: SIZE,
        consecutive: true,
        synchronous: true,
        source_server: Vec::new(),
    });
    let copied = scene.client.copy_by(&scene.source, &scene.target, copy).unwrap();
    assert_eq!((copied.requirements.synchronous, copied.response.callback_id), (true, None));
}

#[test]
fn a_copy_of_one_piece_is_answered_at_once() {
    let mut scene = Scene::set();
    let copied = scene.client.copy((&scene.source, 0), (&scene.target, 0), PIECE).unwrap();
    assert_eq!((copied.response.count, copied.response.callback_id), (PIECE, None));
    assert!(copied.requirements.synchronous);
}

#[test]
fn a_cancelled_copy_writes_nothing_more_and_sends_no_callback() {
    let mut scene = Scene::set();
    let stateid = scene.begin();
    let (handle, other) = (scene.target.handle.clone(), scene.source.handle.clone());
    assert_eq!(status_of(scene.client.offload_cancel(&other, stateid)), NfsStat4::BadStateId);
    // A piece that is under way ends first; a retry may find that nothing is left to cancel.
    assert_eq!(status_of(scene.client.offload_cancel(&handle, stateid)), NfsStat4::Delay);
    scene.writes.let_pass(1);
    let again = status_of(scene.client.offload_cancel(&handle, stateid));
    assert!(matches!(again, NfsStat4::Ok | NfsStat4::BadStateId), "{again}");
    scene.writes.let_all_pass();
    assert_eq!(scene.progress(stateid), Err(NfsStat4::BadStateId));
    assert_eq!(status_of(scene.client.offload_cancel(&handle, stateid)), NfsStat4::BadStateId);
    assert_eq!(scene.writes.passed(), PIECES + 2);
    assert!(scene.client.callbacks.seen().is_empty());
}

#[test]
fn the_files_stay_open_while_they_are_copied_whatever_their_client_does() {
    let mut scene = Scene::set();
    let mut other = client(scene.door, "other");
    let stateid = scene.begin();
    let (source, target) = (scene.source.clone(), scene.target.clone());
    scene.client.close(&source).unwrap();
    scene.client.close(&target).unwrap();
    scene.client.remove(&scene.root, "source").unwrap();
    assert_eq!(scene.deny_writing(&mut other), NfsStat4::ShareDenied);
    scene.writes.let_all_pass();
    assert_eq!(scene.count_told(stateid), SIZE);
    assert_eq!(scene.deny_writing(&mut other), NfsStat4::Ok);
}

#[test]
fn a_client_is_told_until_it_has_heard() {
    let mut scene = Scene::set();
    scene.client.callbacks.answer_once(Answer::Status(NfsStat4::Delay));
    let stateid = scene.begin();
    scene.writes.let_all_pass();
    assert_eq!(scene.count_told(stateid), SIZE);
    assert_eq!(scene.count_told(stateid), SIZE, "again");
    until(|| scene.progress(stateid) == Err(NfsStat4::BadStateId));
    assert_eq!(scene.client.callbacks.seen().len(), 2);
}

#[test]
fn a_client_whose_back_channel_was_lost_is_told_over_the_next() {
    let mut scene = Scene::set();
    let stateid = scene.begin();
    // The session's connection ends, and the next one is for calls of the client only.
    scene.client.connection = Arc::new(scene.client.second_connection().unwrap());
    scene.client.call(&[]).unwrap();
    scene.writes.let_all_pass();
    until(|| scene.progress(stateid) == Ok((SIZE, Some(NfsStat4::Ok))));
    assert!(scene.client.callbacks.seen().is_empty());
    let bind = BindConnToSession4Args {
        sessid: scene.client.session.id,
        dir: ChannelDirFromClient4::BackOrBoth,
        use_conn_in_rdma_mode: false,
    };
    let credential = scene.client.options.credential.clone();
    let bound = scene.client.connection.call(&credential, 2, &[NfsArgop4::BindConnToSession(bind)]);
    bound.unwrap().ok().unwrap();
    assert_eq!(scene.count_told(stateid), SIZE);
}

#[test]
fn a_copy_ends_with_its_client() {
    let mut scene = Scene::set();
    let stateid = scene.begin();
    let mut other = client(scene.door, "other");
    // The same host after a reboot: its former state goes, when the piece under way is done.
    let options = ClientOptions::named("host").verifier(*b"boot 002");
    let mut again = NfsClient::connect(scene.door, options).unwrap();
    assert_eq!(status_of(again.offload_status(&scene.target.handle, stateid)), NfsStat4::BadStateId);
    assert_eq!(scene.deny_writing(&mut other), NfsStat4::Delay, "not before");
    scene.writes.let_all_pass();
    until(|| scene.deny_writing(&mut other) == NfsStat4::Ok);
    assert_eq!(scene.writes.passed(), PIECES + 2);
    assert!(scene.client.callbacks.seen().is_empty());
}

/// The verifier must hold for the first bytes too: COMMIT answers another one, and the client copies anew.
#[test]
fn a_copy_over_a_restart_of_its_pool_is_told_with_the_verifier_of_before() {
    let mut scene = Scene::set();
    let copied = scene.copy_some(1);
    let stateid = copied.response.callback_id.unwrap();
    // The replica has its name on the disk, and the bytes that come next have not.
    scene.client.commit(&scene.target.handle).unwrap();
    scene.writes.let_pass(1);
    scene.pool.pool().crash();
    scene.writes.let_all_pass();
    let told = scene.client.callbacks.wait_for_offload(LONG).unwrap();
    let OffloadInfo4::Ok(response) = told.offload_info else { panic!("{told:?}") };
    assert_eq!((told.stateid, response.writeverf), (stateid, copied.response.writeverf));
    let committed = scene.client.commit(&scene.target.handle).unwrap();
    assert_ne!(committed.writeverf, response.writeverf);
}
