//! Delegations: grants, recalls, and recalls that the client does not answer (RFC 8881 §10.2, §10.4).

use std::time::{Duration, Instant};

use nfs4::{
    BindConnToSession4Args, ChannelDirFromClient4, DelegReturn4Args, FfLayoutReturn4, FileAttributes,
    FreeStateId4Args, LayoutIomode4, NfsArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
    OPEN4_SHARE_ACCESS_WRITE, OpenClaim4, OpenClaimDelegateCur4, OpenDelegation4, OpenDelegationType4,
    OpenFlag4, OpenNoneDelegation4, SEQ4_STATUS_CB_PATH_DOWN, SEQ4_STATUS_RECALLABLE_STATE_REVOKED,
    StableHow4, StateId4, TestStateId4Args,
};
use testkit::nfs_client::{Answer, ClientOptions, NfsClient, OpenFile, auth_sys, ops, when_ready};

use crate::server::{Server, Setup, status_of};

const WAIT: Duration = Duration::from_secs(20);
const READ_WANTED: u32 = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;

fn delegation(opened: &OpenFile) -> Option<StateId4> {
    match &opened.opened.delegation {
        OpenDelegation4::Read(granted) => {
            assert!(!granted.recall);
            Some(granted.stateid)
        }
        OpenDelegation4::Write(_) | OpenDelegation4::ReadAttrs(_) | OpenDelegation4::WriteAttrs(_) => {
            panic!("nobody asked for that")
        }
        OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
    }
}

fn give_back(client: &mut NfsClient, file: &NfsFh4, stateid: StateId4) -> NfsStat4 {
    let return_it = NfsArgop4::DelegReturn(DelegReturn4Args { deleg_stateid: stateid });
    status_of(client.call(&[ops::put_fh(file), return_it]))
}

fn status_flags(client: &mut NfsClient) -> u32 {
    let reply = client.call(&[]).unwrap();
    testkit::body!(reply, Sequence).unwrap().status_flags
}

/// A reader with a delegation of `file`, of 1,000 bytes, and another client.
struct Scene {
    reader: NfsClient,
    other: NfsClient,
    root: NfsFh4,
    file: OpenFile,
    delegation: StateId4,
}

impl Scene {
    fn set(server: &Server) -> Scene {
        let mut other = server.client("other");
        let root = other.root().unwrap();
        let made = other.create(&root, "file").unwrap();
        other.write(&made.handle, made.stateid, 0, StableHow4::FileSync, &[7; 1_000]).unwrap();
        other.close(&made).unwrap();
        let mut reader = server.client("reader");
        let file = reader.open(&root, "file", READ_WANTED).unwrap();
        let delegation = delegation(&file).expect("a requested delegation is granted");
        Scene { reader, other, root, file, delegation }
    }

    fn open_for_writing(&mut self) -> NfsStat4 {
        status_of(self.other.open(&self.root, "file", OPEN4_SHARE_ACCESS_WRITE))
    }

    /// The recall, as it must come.
    fn recalled(&mut self) {
        let recall = self.reader.callbacks.wait_for_recall(WAIT).expect("a recall comes");
        assert_eq!((&recall.fh, recall.stateid), (&self.file.handle, self.delegation));
    }

    fn return_it(&mut self) {
        assert_eq!(give_back(&mut self.reader, &self.file.handle, self.delegation), NfsStat4::Ok);
    }

    fn by_delegation(&mut self, claim: OpenClaim4, start: &NfsFh4) -> Result<OpenFile, NfsStat4> {
        let open = ops::open_claiming("owner", OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate, claim);
        self.reader.open_by(start, open).map_err(|error| error.status().unwrap())
    }
}

#[test]
fn a_file_that_a_client_opens_again_is_delegated_and_one_that_it_opens_once_is_not() {
    let (_instance, server) = Server::start();
    let mut client = server.client("client");
    let root = client.root().unwrap();
    for name in ["often", "once"] {
        let made = client.create(&root, name).unwrap();
        client.close(&made).unwrap();
    }
    let mut open = |name, access| {
        let opened = client.open(&root, name, access).unwrap();
        client.close(&opened).unwrap();
        opened
    };
    assert_eq!(open("often", OPEN4_SHARE_ACCESS_READ).opened.delegation, OpenDelegation4::None);
    assert_eq!(open("once", OPEN4_SHARE_ACCESS_READ).opened.delegation, OpenDelegation4::None);
    let unwanted = open("often", OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    assert!(matches!(unwanted.opened.delegation, OpenDelegation4::NoneExt(OpenNoneDelegation4::Why(0))));
    assert!(delegation(&open("often", OPEN4_SHARE_ACCESS_READ)).is_some());
    assert!(delegation(&open("often", OPEN4_SHARE_ACCESS_READ)).is_none(), "it has one already");
}

#[test]
fn a_delegation_reads_without_an_open() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.reader.close(&scene.file).unwrap();
    let newest = StateId4 { seqid: 0, ..scene.delegation };
    let read = scene.reader.read(&scene.file.handle, newest, 0, 2_000).unwrap();
    assert_eq!(read.data.0.as_ref(), [7; 1_000]);
    let written = scene.reader.write(&scene.file.handle, newest, 0, StableHow4::FileSync, b"no");
    assert_eq!(status_of(written), NfsStat4::OpenMode);
    scene.return_it();
    let read = scene.reader.read(&scene.file.handle, newest, 0, 10);
    assert_eq!(status_of(read), NfsStat4::BadStateId);
}

#[test]
fn a_writer_waits_for_the_readers_delegation_and_proceeds_when_it_is_back() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    assert_eq!(scene.open_for_writing(), NfsStat4::Delay, "it is not back yet");
    scene.recalled();
    // Before the client returns the delegation, it claims its local opens at the server (RFC 8881 §10.4.4).
    let handle = scene.file.handle.clone();
    let claimed = scene.by_delegation(OpenClaim4::DelegCurFh(scene.delegation), &handle).unwrap();
    assert_eq!(claimed.opened.delegation, OpenDelegation4::None, "Linux calls another one a broken server");
    scene.return_it();
    assert_eq!(scene.open_for_writing(), NfsStat4::Ok);
    assert!(scene.reader.read(&handle, claimed.stateid, 0, 10).is_ok());
    let by_none = scene.by_delegation(OpenClaim4::DelegCurFh(scene.delegation), &handle);
    assert_eq!(by_none.map(drop), Err(NfsStat4::BadStateId), "never INVAL: Linux would not give up");
}

#[test]
fn a_return_while_the_writer_waits_lets_it_through_at_once() {
    let (_instance, server) = Server::start();
    let scene = Scene::set(&server);
    let Scene { mut reader, mut other, root, file, delegation } = scene;
    std::thread::scope(|scope| {
        let writer =
            scope.spawn(move || when_ready(|| other.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH)).is_ok());
        assert!(reader.callbacks.wait_for_recall(WAIT).is_some());
        assert_eq!(give_back(&mut reader, &file.handle, delegation), NfsStat4::Ok);
        assert!(writer.join().unwrap());
    });
    assert_eq!(reader.callbacks.seen().len(), 1, "one recall is enough");
}

#[test]
fn a_file_is_claimed_by_its_name_too() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let (root, delegate_stateid) = (scene.root.clone(), scene.delegation);
    let claim =
        |file: &str| OpenClaim4::DelegateCur(OpenClaimDelegateCur4 { delegate_stateid, file: file.into() });
    assert!(scene.by_delegation(claim("file"), &root).is_ok());
    scene.other.create(&root, "another").unwrap();
    assert_eq!(scene.by_delegation(claim("another"), &root).map(drop), Err(NfsStat4::BadStateId));
    let handle = scene.file.handle.clone();
    let purged = scene.by_delegation(OpenClaim4::DelegPrevFh, &handle).map(drop);
    assert_eq!(purged, Err(NfsStat4::NotSupp), "nothing outlives the client's own restart");
}

#[test]
fn every_change_by_another_client_waits_for_the_delegation() {
    type Step = fn(&mut Scene) -> NfsStat4;
    let changes: [(&str, Step); 7] = [
        ("remove", |scene| status_of(scene.other.remove(&scene.root, "file"))),
        ("rename", |scene| status_of(scene.other.rename((&scene.root, "file"), (&scene.root, "new")))),
        ("replace", |scene| status_of(scene.other.rename((&scene.root, "spare"), (&scene.root, "file")))),
        ("link", |scene| status_of(scene.other.link(&scene.file.handle, &scene.root, "linked"))),
        ("chmod", |scene| {
            let mode = FileAttributes { mode: Some(0o600), ..FileAttributes::default() };
            status_of(scene.other.set_attributes(&scene.file.handle, StateId4::ANONYMOUS, &mode))
        }),
        ("truncate", |scene| status_of(scene.other.set_size(&scene.file.handle, StateId4::ANONYMOUS, 10))),
        ("write without an open", |scene| {
            let (stateid, how) = (StateId4::ANONYMOUS, StableHow4::FileSync);
            status_of(scene.other.write(&scene.file.handle, stateid, 0, how, b"new"))
        }),
    ];
    let (_instance, server) = Server::start();
    for (number, (what, change)) in changes.into_iter().enumerate() {
        let mut other = server.client(&format!("other {number}"));
        let top = other.root().unwrap();
        let root = other.mkdir(&top, &format!("{number}"), 0o755).unwrap();
        for name in ["file", "spare"] {
            let made = other.create(&root, name).unwrap();
            other.write(&made.handle, made.stateid, 0, StableHow4::FileSync, &[7; 1_000]).unwrap();
            other.close(&made).unwrap();
        }
        let mut reader = server.client(&format!("reader {number}"));
        let file = reader.open(&root, "file", READ_WANTED).unwrap();
        let delegation = delegation(&file).unwrap();
        let mut scene = Scene { reader, other, root, file, delegation };
        assert_eq!(change(&mut scene), NfsStat4::Delay, "{what}");
        scene.recalled();
        scene.return_it();
        assert_eq!(change(&mut scene), NfsStat4::Ok, "{what}");
        assert!(scene.other.callbacks.seen().is_empty(), "{what}");
    }
}

#[test]
fn the_holder_itself_changes_what_it_likes_and_reading_disturbs_nobody() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let (root, handle) = (scene.root.clone(), scene.file.handle.clone());
    let read = scene.other.open(&root, "file", READ_WANTED).unwrap();
    assert!(delegation(&read).is_some(), "readers share");
    assert!(scene.other.read(&handle, StateId4::ANONYMOUS, 0, 10).is_ok());
    assert_eq!(give_back(&mut scene.other, &handle, delegation(&read).unwrap()), NfsStat4::Ok);
    let mode = FileAttributes { mode: Some(0o600), ..FileAttributes::default() };
    scene.reader.set_attributes(&handle, StateId4::ANONYMOUS, &mode).unwrap();
    scene.reader.rename((&root, "file"), (&root, "mine")).unwrap();
    scene.reader.remove(&root, "mine").unwrap();
    assert!(scene.reader.callbacks.seen().is_empty());
    let newest = StateId4 { seqid: 0, ..scene.delegation };
    scene.reader.close(&scene.file).unwrap();
    assert!(scene.reader.read(&handle, newest, 0, 10).is_ok(), "without a name, and still its own");
}

#[test]
fn nobody_is_offered_what_somebody_writes_or_was_just_recalled() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.open_for_writing();
    scene.recalled();
    scene.return_it();
    let writing = scene.other.open(&scene.root, "file", OPEN4_SHARE_ACCESS_WRITE).unwrap();
    let refused = scene.reader.open(&scene.root, "file", READ_WANTED).unwrap();
    assert!(delegation(&refused).is_none());
    scene.other.close(&writing).unwrap();
    let refused = scene.reader.open(&scene.root, "file", READ_WANTED).unwrap();
    assert!(delegation(&refused).is_none(), "it would be recalled again and again");
}

#[test]
fn a_client_that_cannot_be_asked_gets_no_delegation() {
    let (_instance, server) = Server::start();
    let mut options = ClientOptions::named("without");
    options.has_back_channel = false;
    let mut client = server.client_by(options);
    let root = client.root().unwrap();
    client.create(&root, "file").unwrap();
    let mut reader = server.client("with");
    for _ in 0..3 {
        let opened = client.open_as(&root, "file", "another", READ_WANTED, OpenFlag4::NoCreate).unwrap();
        assert!(delegation(&opened).is_none());
    }
    let written = reader.open(&root, "file", READ_WANTED).unwrap();
    assert!(delegation(&written).is_none(), "it is still open for writing");
}

#[test]
fn with_delegations_off_nobody_gets_one() {
    let setup = Setup { configuration: "[nfs.delegations]\nmode = \"off\"", ..Setup::default() };
    let (_instance, server) = Server::start_with(setup);
    let mut client = server.client("client");
    let root = client.root().unwrap();
    let made = client.create(&root, "file").unwrap();
    client.close(&made).unwrap();
    for _ in 0..3 {
        let opened = client.open(&root, "file", READ_WANTED).unwrap();
        assert!(delegation(&opened).is_none());
    }
}

#[test]
fn a_layout_stays_over_the_close_while_a_delegation_covers_it() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let newest = StateId4 { seqid: 0, ..scene.delegation };
    let handle = scene.file.handle.clone();
    let layout = scene.reader.layout_get(&handle, newest, LayoutIomode4::Read).unwrap();
    scene.reader.close(&scene.file).unwrap();
    let mut data_server = scene.reader.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    assert!(data_server.read(layout.ticket(), stateid, 0, 10).is_ok());
    let again = scene.reader.layout_get(&handle, layout.stateid, LayoutIomode4::Read).unwrap();
    assert_eq!(again.stateid.other, layout.stateid.other, "it is the same layout still");
    scene.return_it();
    let returned = scene.reader.layout_return(&handle, again.stateid, &FfLayoutReturn4::default());
    assert_eq!(status_of(returned), NfsStat4::BadStateId, "it went with the delegation");
}

#[test]
fn a_recall_that_overtakes_the_open_is_sent_again() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    for status in [NfsStat4::BadStateId, NfsStat4::BadHandle] {
        scene.reader.callbacks.answer_once(Answer::Status(status));
    }
    assert_eq!(scene.open_for_writing(), NfsStat4::Delay);
    for _ in 0..3 {
        scene.recalled();
    }
    scene.return_it();
    assert_eq!(scene.open_for_writing(), NfsStat4::Ok);
    assert_eq!(status_flags(&mut scene.reader) & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
}

/// Opens for writing until it is let through, while the reader renews its lease.
fn outwait(scene: &mut Scene) {
    let since = Instant::now();
    while scene.open_for_writing() == NfsStat4::Delay {
        assert!(since.elapsed() < WAIT, "the writer never gets through");
        scene.reader.call(&[]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_reader_that_never_gives_back_is_revoked_and_reads_nothing_more_at_a_pool() {
    let setup = Setup { configuration: "[nfs.delegations]\nrecall_s = 1", ..Setup::default() };
    let (_instance, server) = Server::start_with(setup);
    let mut scene = Scene::set(&server);
    let (handle, held) = (scene.file.handle.clone(), scene.delegation);
    let layout = scene.reader.layout_get(&handle, held, LayoutIomode4::Read).unwrap();
    let mut data_server = scene.reader.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    assert!(data_server.read(layout.ticket(), stateid, 0, 10).is_ok());
    scene.reader.callbacks.answer_always(Answer::Silence);
    outwait(&mut scene);
    assert_eq!(status_of(data_server.read(layout.ticket(), stateid, 0, 10)), NfsStat4::Stale, "fenced off");
    assert_ne!(status_flags(&mut scene.reader) & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
    let test = NfsArgop4::TestStateId(TestStateId4Args { stateids: vec![held] });
    let reply = scene.reader.call(&[test]).unwrap();
    assert_eq!(testkit::body!(reply, TestStateId).unwrap().status_codes, [NfsStat4::DelegRevoked]);
    assert_eq!(status_of(scene.reader.read(&handle, held, 0, 10)), NfsStat4::DelegRevoked);
    assert_eq!(give_back(&mut scene.reader, &handle, held), NfsStat4::DelegRevoked);
    let free = NfsArgop4::FreeStateId(FreeStateId4Args { stateid: held });
    assert_eq!(status_of(scene.reader.call(&[free])), NfsStat4::Ok);
    assert_eq!(status_flags(&mut scene.reader) & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
    // The open itself was never in the way.
    assert!(scene.reader.read(&handle, scene.file.stateid, 0, 10).is_ok());
}

#[test]
fn a_reader_that_cannot_heed_a_recall_has_its_time_and_hears_that_its_delegation_was_revoked() {
    for status in [NfsStat4::Delay, NfsStat4::ServerFault] {
        let setup = Setup { configuration: "[nfs.delegations]\nrecall_s = 1", ..Setup::default() };
        let (_instance, server) = Server::start_with(setup);
        let mut scene = Scene::set(&server);
        scene.reader.callbacks.answer_always(Answer::Status(status));
        outwait(&mut scene);
        let returned = give_back(&mut scene.reader, &scene.file.handle, scene.delegation);
        assert_eq!(returned, NfsStat4::DelegRevoked, "{status}");
        assert_ne!(status_flags(&mut scene.reader) & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
    }
}

#[test]
fn a_reader_that_says_it_has_none_is_not_waited_for_long() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.reader.callbacks.answer_always(Answer::Status(NfsStat4::BadStateId));
    outwait(&mut scene);
    let returned = give_back(&mut scene.reader, &scene.file.handle, scene.delegation);
    assert_eq!(returned, NfsStat4::BadStateId, "nothing is left that it would never free");
    assert_eq!(status_flags(&mut scene.reader) & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
}

#[test]
fn the_delegations_of_an_expired_client_go_with_it() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 2, ..Setup::default() });
    let mut scene = Scene::set(&server);
    scene.reader.callbacks.answer_always(Answer::Silence);
    let since = Instant::now();
    while scene.open_for_writing() == NfsStat4::Delay {
        assert!(since.elapsed() < WAIT, "a lost client holds up a writer");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_delegation_is_reclaimed_after_a_restart_and_recalled_again() {
    let (instance, server) = Server::start_with(Setup { grace_s: 30, lease_s: 30, ..Setup::default() });
    let scene = Scene::set(&server);
    let handle = scene.file.handle.clone();
    server.kill();
    let server = instance.up();
    let mut reader = server.client_by(ClientOptions::named("reader").reclaiming());
    let claim = OpenClaim4::Previous(OpenDelegationType4::Read);
    let open = ops::open_claiming("owner", OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate, claim);
    let file = reader.open_by(&handle, open).unwrap();
    let held = delegation(&file).expect("the delegation that it had before");
    reader.reclaim_complete().unwrap();
    let mut other = server.client("other");
    let root = when_ready(|| other.root()).unwrap();
    let scene = Scene { reader, other, root, file, delegation: held };
    let Scene { mut reader, mut other, root, .. } = scene;
    std::thread::scope(|scope| {
        let writer =
            scope.spawn(move || when_ready(|| other.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH)).is_ok());
        assert!(reader.callbacks.wait_for_recall(WAIT).is_some());
        assert_eq!(give_back(&mut reader, &handle, held), NfsStat4::Ok);
        assert!(writer.join().unwrap());
    });
}

#[test]
fn a_reader_that_has_not_heard_of_a_revocation_reclaims_nothing_after_a_restart() {
    let setup = Setup {
        grace_s: 30,
        lease_s: 30,
        configuration: "[nfs.delegations]\nrecall_s = 1",
        ..Setup::default()
    };
    let (instance, server) = Server::start_with(setup);
    let mut scene = Scene::set(&server);
    scene.reader.callbacks.answer_always(Answer::Silence);
    outwait(&mut scene);
    server.kill();
    let server = instance.up();
    let mut reader = server.client_by(ClientOptions::named("reader").reclaiming());
    let claim = OpenClaim4::Previous(OpenDelegationType4::Read);
    let open = ops::open_claiming("owner", OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate, claim);
    let reclaimed = reader.open_by(&scene.file.handle, open);
    assert_eq!(
        status_of(reclaimed),
        NfsStat4::NoGrace,
        "another client changed the data that this one has in its cache"
    );
}

#[test]
fn a_reader_whose_connection_is_lost_is_asked_when_it_is_back_and_not_revoked() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    // A connection without the back channel; the one that carried it ends.
    scene.reader.connection = std::sync::Arc::new(scene.reader.second_connection().unwrap());
    let since = Instant::now();
    while status_flags(&mut scene.reader) & SEQ4_STATUS_CB_PATH_DOWN == 0 {
        assert!(since.elapsed() < WAIT, "nobody says that the path is down");
        std::thread::sleep(Duration::from_millis(20));
    }
    for _ in 0..10 {
        assert_eq!(scene.open_for_writing(), NfsStat4::Delay, "its cache may still be believed");
    }
    let bind = NfsArgop4::BindConnToSession(BindConnToSession4Args {
        sessid: scene.reader.session.id,
        dir: ChannelDirFromClient4::BackOrBoth,
        use_conn_in_rdma_mode: false,
    });
    let credential = scene.reader.options.credential.clone();
    scene.reader.connection.call(&credential, 2, &[bind]).unwrap().ok().unwrap();
    // Nobody asks again: the server tells it by itself.
    scene.recalled();
    scene.return_it();
    assert_eq!(scene.open_for_writing(), NfsStat4::Ok);
}

#[test]
fn a_client_that_may_not_write_recalls_nothing() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let stranger = ClientOptions::named("stranger").credential(auth_sys(1000, 1000, &[]));
    scene.other = server.client_by(stranger);
    let (handle, root) = (scene.file.handle.clone(), scene.root.clone());
    let (free, how) = (StateId4::ANONYMOUS, StableHow4::FileSync);
    let mode = FileAttributes { mode: Some(0o600), ..FileAttributes::default() };
    let refused = [
        status_of(scene.other.write(&handle, free, 0, how, b"no")),
        status_of(scene.other.set_size(&handle, free, 0)),
        status_of(scene.other.set_attributes(&handle, free, &mode)),
        status_of(scene.other.remove(&root, "file")),
        status_of(scene.other.rename((&root, "file"), (&root, "mine"))),
        status_of(scene.other.link(&handle, &root, "mine")),
        status_of(scene.other.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE)),
    ];
    assert!(refused.iter().all(|status| matches!(status, NfsStat4::Access | NfsStat4::Perm)), "{refused:?}");
    assert!(scene.reader.callbacks.seen().is_empty());
}
