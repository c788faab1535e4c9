//! Delegations to write: grants, the rights of the holder, and the view of other clients meanwhile (RFC 8881 §10.4).

use std::time::{Duration, Instant};

use nfs4::attr::number;
use nfs4::{
    Bitmap4, DelegReturn4Args, FileAttributes, LayoutIomode4, LockT4Args, LockT4Res, NfsArgop4, NfsFh4,
    NfsLockType4, NfsResop4, NfsSpaceLimit4, NfsStat4, NfsTime4, OPEN4_RESULT_NO_OPEN_STATEID,
    OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_ANY_DELEG,
    OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS, OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OPEN4_SHARE_ACCESS_WRITE,
    OpenClaim4, OpenDelegation4, OpenDelegationType4, OpenFlag4, OpenNoneDelegation4, ReadDir4Args,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED, StableHow4, StateId4, Verifier4, WND4_NOT_SUPP_DOWNGRADE,
    WND4_WRITE_DELEG_NOT_SUPP_FTYPE,
};
use testkit::nfs_client::{Answer, ClientOptions, NfsClient, OpenFile, auth_sys, ops, when_ready};

use crate::server::{Instance, Server, Setup, directory_of, status_of};

const WAIT: Duration = Duration::from_secs(20);
const WRITE_WANTED: u32 = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
const READ_WANTED: u32 = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;

fn to_write(opened: &OpenFile) -> Option<StateId4> {
    match &opened.opened.delegation {
        OpenDelegation4::Write(granted) | OpenDelegation4::WriteAttrs(granted) => {
            assert!(!granted.recall);
            assert_eq!(granted.space_limit, NfsSpaceLimit4::Size(0), "nothing is left behind by a close");
            Some(granted.stateid)
        }
        _ => None,
    }
}

fn give_back(client: &mut NfsClient, file: &NfsFh4, stateid: StateId4) -> NfsStat4 {
    let return_it = NfsArgop4::DelegReturn(DelegReturn4Args { deleg_stateid: stateid });
    status_of(client.call(&[ops::put_fh(file), return_it]))
}

fn newest(stateid: StateId4) -> StateId4 {
    StateId4 { seqid: 0, ..stateid }
}

fn time(seconds: i64) -> NfsTime4 {
    NfsTime4 { seconds, nseconds: 0 }
}

/// A writer with a delegation of `file`, of 1,000 bytes, and another client.
struct Scene {
    writer: NfsClient,
    other: NfsClient,
    root: NfsFh4,
    file: OpenFile,
    delegation: StateId4,
    /// As the writer was told it.
    change: u64,
}

impl Scene {
    fn set(server: &Server) -> Scene {
        Scene::set_as(server, WRITE_WANTED)
    }

    fn set_as(server: &Server, access: u32) -> Scene {
        let other = server.client("other");
        let mut writer = server.client("writer");
        let root = writer.root().unwrap();
        let made = writer.create(&root, "file").unwrap();
        writer.write(&made.handle, made.stateid, 0, StableHow4::FileSync, &[7; 1_000]).unwrap();
        writer.close(&made).unwrap();
        let file = writer.open(&root, "file", access).unwrap();
        let delegation = to_write(&file).expect("a requested delegation is granted");
        let change = writer.change(&file.handle).unwrap();
        let scene = Scene { writer, other, root, file, delegation, change };
        scene.says(change, 1_000);
        scene
    }

    /// Sets the writer's answer to CB_GETATTR.
    fn says(&self, change: u64, size: u64) {
        let attributes =
            FileAttributes { change: Some(change), size: Some(size), ..FileAttributes::default() };
        self.writer.callbacks.keep_attributes(attributes);
    }

    /// Size and change, as the other client sees them.
    fn seen(&mut self) -> Result<(u64, u64), NfsStat4> {
        let seen = self.other.attributes(&self.file.handle, &[number::SIZE, number::CHANGE]);
        let seen = seen.map_err(|error| error.status().unwrap())?;
        Ok((seen.size.unwrap(), seen.change.unwrap()))
    }

    fn recalled(&mut self) {
        let recall = self.writer.callbacks.wait_for_recall(WAIT).expect("a recall comes");
        assert_eq!((&recall.fh, recall.stateid), (&self.file.handle, self.delegation));
    }

    fn is_recalled(&self) -> bool {
        let seen = self.writer.callbacks.seen();
        seen.iter().any(|call| matches!(call.argarray[1], nfs4::NfsCbArgop4::Recall(_)))
    }

    fn return_it(&mut self) {
        assert_eq!(give_back(&mut self.writer, &self.file.handle, self.delegation), NfsStat4::Ok);
    }

    fn open(&mut self, access: u32) -> NfsStat4 {
        status_of(self.other.open(&self.root, "file", access))
    }
}

fn started(configuration: &'static str) -> (Instance, Server) {
    Server::start_with(Setup { configuration, ..Setup::default() })
}

#[test]
fn the_holder_of_a_delegation_to_write_reads_writes_truncates_and_gets_layouts_by_it() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let (handle, held) = (scene.file.handle.clone(), newest(scene.delegation));
    let writer = &mut scene.writer;
    writer.close(&scene.file).unwrap();
    writer.write(&handle, held, 1_000, StableHow4::FileSync, b"more").unwrap();
    assert_eq!(writer.read(&handle, held, 998, 10).unwrap().data.0.as_ref(), b"\x07\x07more");
    writer.set_size(&handle, held, 5).unwrap();
    let layout = writer.layout_get(&handle, held, LayoutIomode4::Rw).unwrap();
    let mut data_server = writer.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    data_server.write(layout.ticket(), stateid, 5, StableHow4::FileSync, b"at a pool").unwrap();
    assert_eq!(writer.size(&handle).unwrap(), 14, "its own look asks the pool and not itself");
    assert!(writer.callbacks.seen().is_empty());
    scene.return_it();
    let written = scene.writer.write(&handle, held, 0, StableHow4::FileSync, b"no");
    assert_eq!(status_of(written), NfsStat4::BadStateId);
}

#[test]
fn nobody_who_did_not_ask_gets_a_delegation_to_write_unless_the_site_says_so() {
    for (configuration, unasked, asked) in [
        ("", false, true),
        ("[nfs.delegations]\nwrite = \"off\"\nmode = \"always\"", false, false),
        ("[nfs.delegations]\nwrite = \"on\"\nmode = \"always\"", true, true),
        ("[nfs.delegations]\nwrite = \"on\"", true, true),
        ("[nfs.delegations]\nwrite = \"on\"\nmode = \"off\"", false, false),
    ] {
        let (_instance, server) = started(configuration);
        let mut client = server.client("client");
        let root = client.root().unwrap();
        let mut opened = client.create(&root, "file").unwrap();
        for _ in 0..2 {
            if let Some(stateid) = to_write(&opened) {
                assert_eq!(give_back(&mut client, &opened.handle, stateid), NfsStat4::Ok);
            }
            client.close(&opened).unwrap();
            opened = client.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH).unwrap();
        }
        assert_eq!(to_write(&opened).is_some(), unasked, "{configuration}");
        let other = client.create(&root, "other").unwrap();
        if let Some(stateid) = to_write(&other) {
            assert_eq!(give_back(&mut client, &other.handle, stateid), NfsStat4::Ok);
        }
        for access in [WRITE_WANTED, OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_ANY_DELEG] {
            let opened = client.open(&root, "other", access).unwrap();
            assert_eq!(to_write(&opened).is_some(), asked, "{configuration}");
            match (to_write(&opened), &opened.opened.delegation) {
                (Some(stateid), _) => {
                    assert_eq!(give_back(&mut client, &opened.handle, stateid), NfsStat4::Ok);
                }
                (None, reason) => assert!(matches!(reason, OpenDelegation4::NoneExt(_)), "{reason:?}"),
            }
        }
    }
}

#[test]
fn a_refused_write_delegation_comes_with_its_reason() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.return_it();
    let why = |opened: OpenFile| match opened.opened.delegation {
        OpenDelegation4::NoneExt(reason) => reason,
        other => panic!("{other:?}"),
    };
    let root = scene.root.clone();
    let reading = scene.other.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let contention = OpenNoneDelegation4::Contention { server_will_push_deleg: false };
    assert_eq!(why(scene.writer.open(&root, "file", WRITE_WANTED).unwrap()), contention, "another reads");
    scene.other.close(&reading).unwrap();
    let reader_wants = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let unsupported = OpenNoneDelegation4::Why(WND4_WRITE_DELEG_NOT_SUPP_FTYPE);
    assert_eq!(why(scene.writer.open(&root, "file", reader_wants).unwrap()), unsupported);
    assert!(to_write(&scene.writer.open(&root, "file", WRITE_WANTED).unwrap()).is_some());
    let downgrade = OpenNoneDelegation4::Why(WND4_NOT_SUPP_DOWNGRADE);
    assert_eq!(why(scene.writer.open(&root, "file", READ_WANTED).unwrap()), downgrade);
}

#[test]
fn a_client_that_may_not_read_gets_no_write_delegation() {
    let (_instance, server) = Server::start();
    let mut root = server.client("root");
    let dir = directory_of(&mut root, "of-user", 1000);
    let made = root.open_as(&dir, "file", "owner", OPEN4_SHARE_ACCESS_BOTH, ops::unchecked(0o622)).unwrap();
    root.close(&made).unwrap();
    let user = ClientOptions::named("user").credential(auth_sys(1000, 1000, &[]));
    let mut user = server.client_by(user);
    let wanted = OPEN4_SHARE_ACCESS_WRITE | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let opened = user.open(&dir, "file", wanted).unwrap();
    assert!(matches!(opened.opened.delegation, OpenDelegation4::NoneExt(_)));
}

#[test]
fn others_see_what_the_writer_has_not_written_yet() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    assert_eq!(scene.seen(), Ok((1_000, scene.change)), "nothing was modified");
    let asked = scene.writer.callbacks.wait_for_get_attr(WAIT).unwrap();
    assert_eq!(asked.fh, scene.file.handle);
    assert_eq!(asked.attr_request, Bitmap4::of(&[number::CHANGE, number::SIZE]));
    scene.says(scene.change + 1, 5_000);
    let (size, first) = scene.seen().unwrap();
    assert!(size == 5_000 && first > scene.change);
    let (size, second) = scene.seen().unwrap();
    assert!(size == 5_000 && second > first, "two contents are never shown under one change attribute");

    let handle = scene.file.handle.clone();
    let same = ops::verify(&FileAttributes { size: Some(5_000), ..FileAttributes::default() });
    assert_eq!(status_of(scene.other.call(&[ops::put_fh(&handle), same])), NfsStat4::Ok);
    let read_dir = NfsArgop4::ReadDir(ReadDir4Args {
        cookie: 0,
        cookieverf: Verifier4::default(),
        dircount: 4_096,
        maxcount: 4_096,
        attr_request: Bitmap4::of(&[number::SIZE]),
    });
    let reply = scene.other.call(&[ops::put_fh(&scene.root), read_dir]).unwrap();
    let listed = testkit::body!(reply, ReadDir).unwrap();
    assert_eq!(FileAttributes::decode(&listed.entries[0].attrs).unwrap().size, Some(5_000));

    // Written at last, by its own stateid: nothing more to say.
    let held = newest(scene.delegation);
    scene.writer.write(&handle, held, 4_999, StableHow4::FileSync, b"x").unwrap();
    scene.says(scene.change, 5_000);
    let (size, written) = scene.seen().unwrap();
    assert!(size == 5_000 && written > second);
    assert_eq!(scene.seen(), Ok((5_000, written)), "and nothing moves any more");
    assert!(!scene.is_recalled());
    scene.return_it();
    assert_eq!(scene.seen(), Ok((5_000, written)));
}

#[test]
fn a_look_at_what_no_writer_changes_asks_nobody() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.other.attributes(&scene.file.handle, &[number::TYPE, number::FILEID, number::MODE]).unwrap();
    assert!(scene.writer.callbacks.seen().is_empty());
}

#[test]
fn a_writer_that_does_not_say_is_recalled_and_the_look_waits_for_it() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.writer.callbacks.answer_once(Answer::Status(NfsStat4::ServerFault));
    assert_eq!(scene.seen(), Err(NfsStat4::Delay));
    scene.recalled();
    assert_eq!(scene.seen(), Err(NfsStat4::Delay), "it is about to say all there is");
    scene.return_it();
    assert_eq!(scene.seen(), Ok((1_000, scene.change)));
}

#[test]
fn a_question_that_overtakes_the_open_is_asked_again() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.writer.callbacks.answer_once(Answer::Status(NfsStat4::BadHandle));
    scene.says(scene.change + 1, 2_000);
    assert_eq!(scene.seen().unwrap().0, 2_000);
    assert!(!scene.is_recalled());
}

#[test]
fn a_reader_waits_until_the_writer_has_written_what_it_has() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    assert_eq!(scene.open(OPEN4_SHARE_ACCESS_READ), NfsStat4::Delay);
    scene.recalled();
    let handle = scene.file.handle.clone();
    let open = ops::open_claiming(
        "another",
        OPEN4_SHARE_ACCESS_BOTH,
        OpenFlag4::NoCreate,
        OpenClaim4::DelegCurFh(scene.delegation),
    );
    let claimed = scene.writer.open_by(&handle, open).unwrap();
    assert_eq!(claimed.opened.delegation, OpenDelegation4::None);
    scene.writer.write(&handle, claimed.stateid, 0, StableHow4::FileSync, b"at last").unwrap();
    assert_eq!(scene.open(OPEN4_SHARE_ACCESS_READ), NfsStat4::Delay);
    scene.return_it();
    let opened = scene.other.open(&scene.root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    assert_eq!(scene.other.read(&handle, opened.stateid, 0, 7).unwrap().data.0.as_ref(), b"at last");
    let again = scene.writer.open(&scene.root, "file", WRITE_WANTED).unwrap();
    assert!(to_write(&again).is_none(), "another has it open, and it was just recalled");
}

#[test]
fn every_access_by_another_client_waits_for_the_writers_delegation() {
    type Step = fn(&mut Scene) -> NfsStat4;
    let steps: [(&str, Step); 8] = [
        ("open to write", |scene| scene.open(OPEN4_SHARE_ACCESS_WRITE)),
        ("remove", |scene| status_of(scene.other.remove(&scene.root, "file"))),
        ("rename", |scene| status_of(scene.other.rename((&scene.root, "file"), (&scene.root, "new")))),
        ("link", |scene| status_of(scene.other.link(&scene.file.handle, &scene.root, "linked"))),
        ("chmod", |scene| {
            let mode = FileAttributes { mode: Some(0o600), ..FileAttributes::default() };
            status_of(scene.other.set_attributes(&scene.file.handle, StateId4::ANONYMOUS, &mode))
        }),
        ("truncate", |scene| status_of(scene.other.set_size(&scene.file.handle, StateId4::ANONYMOUS, 10))),
        ("read without an open", |scene| {
            status_of(scene.other.read(&scene.file.handle, StateId4::ANONYMOUS, 0, 10))
        }),
        ("test a lock", |scene| {
            let test = NfsArgop4::LockT(LockT4Args {
                locktype: NfsLockType4::Read,
                offset: 0,
                length: 1,
                owner: ops::owner("locker"),
            });
            let reply = scene.other.compound(&[ops::put_fh(&scene.file.handle), test]).unwrap();
            match reply.results.last() {
                Some(NfsResop4::LockT(LockT4Res::Err(status))) => *status,
                Some(NfsResop4::LockT(LockT4Res::Ok)) => NfsStat4::Ok,
                other => panic!("{other:?}"),
            }
        }),
    ];
    let (_instance, server) = Server::start();
    for (what, step) in steps {
        let mut scene = Scene::set(&server);
        assert_eq!(step(&mut scene), NfsStat4::Delay, "{what}");
        scene.recalled();
        scene.return_it();
        assert_eq!(step(&mut scene), NfsStat4::Ok, "{what}");
        let (Scene { mut writer, file, .. }, mut other) = (scene, server.client("cleaner"));
        writer.close(&file).unwrap();
        let root = other.root().unwrap();
        for name in ["file", "new", "linked"] {
            _ = when_ready(|| other.remove(&root, name));
        }
    }
}

#[test]
fn a_writer_that_never_gives_back_is_revoked_and_writes_nothing_more_at_a_pool() {
    let (_instance, server) = started("[nfs.delegations]\nrecall_s = 1");
    let mut scene = Scene::set(&server);
    let (handle, held) = (scene.file.handle.clone(), scene.delegation);
    scene.writer.close(&scene.file).unwrap();
    let layout = scene.writer.layout_get(&handle, held, LayoutIomode4::Rw).unwrap();
    let mut data_server = scene.writer.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    scene.writer.callbacks.answer_always(Answer::Silence);
    let since = Instant::now();
    while scene.open(OPEN4_SHARE_ACCESS_READ) == NfsStat4::Delay {
        assert!(since.elapsed() < WAIT, "the reader never gets through");
        scene.writer.call(&[]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let written = data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, b"late");
    assert_eq!(status_of(written), NfsStat4::Stale, "fenced off");
    let written = scene.writer.write(&handle, held, 0, StableHow4::FileSync, b"late");
    assert_eq!(status_of(written), NfsStat4::DelegRevoked);
    let reply = scene.writer.call(&[]).unwrap();
    let flags = testkit::body!(reply, Sequence).unwrap().status_flags;
    assert_ne!(flags & SEQ4_STATUS_RECALLABLE_STATE_REVOKED, 0);
    assert_eq!(scene.seen().unwrap().0, 1_000);
}

#[test]
fn the_delegation_to_write_of_a_lost_client_goes_with_it() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 2, ..Setup::default() });
    let mut scene = Scene::set(&server);
    scene.says(scene.change + 1, 9_000);
    let (size, shown) = scene.seen().unwrap();
    assert_eq!(size, 9_000);
    scene.writer.callbacks.answer_always(Answer::Silence);
    let since = Instant::now();
    let (size, change) = loop {
        match scene.seen() {
            Ok(seen) => break seen,
            Err(status) => assert_eq!(status, NfsStat4::Delay),
        }
        assert!(since.elapsed() < WAIT, "a lost client holds up a look");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(
        size == 1_000 && change > shown,
        "what it had is lost, and nobody takes the file for what it was"
    );
}

#[test]
fn a_delegation_to_write_is_reclaimed_after_a_restart_and_what_its_client_had_counts_as_modified() {
    let (instance, server) = Server::start_with(Setup { grace_s: 30, lease_s: 30, ..Setup::default() });
    let scene = Scene::set(&server);
    let (handle, change) = (scene.file.handle.clone(), scene.change);
    server.kill();
    let server = instance.up();
    let mut writer = server.client_by(ClientOptions::named("writer").reclaiming());
    let claim = OpenClaim4::Previous(OpenDelegationType4::Write);
    let open = ops::open_claiming("owner", OPEN4_SHARE_ACCESS_BOTH, OpenFlag4::NoCreate, claim);
    let file = writer.open_by(&handle, open).unwrap();
    let delegation = to_write(&file).expect("the delegation that it had before");
    writer.reclaim_complete().unwrap();
    let mut other = server.client("other");
    let root = when_ready(|| other.root()).unwrap();
    let mut scene = Scene { writer, other, root, file, delegation, change };
    scene.says(change, 3_000);
    let (size, first) = scene.seen().unwrap();
    assert!(size == 3_000 && scene.seen().unwrap().1 > first);
    while scene.open(OPEN4_SHARE_ACCESS_READ) == NfsStat4::Grace {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(scene.open(OPEN4_SHARE_ACCESS_READ), NfsStat4::Delay);
    scene.recalled();
    scene.return_it();
    assert_eq!(scene.open(OPEN4_SHARE_ACCESS_READ), NfsStat4::Ok);
}

#[test]
fn a_read_delegation_becomes_one_to_write_with_the_same_stateid() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.return_it();
    scene.writer.close(&scene.file).unwrap();
    let reading = scene.writer.open(&scene.root, "file", READ_WANTED).unwrap();
    let OpenDelegation4::Read(read) = &reading.opened.delegation else { panic!("{reading:?}") };
    let writing = scene.writer.open(&scene.root, "file", WRITE_WANTED).unwrap();
    assert_eq!(to_write(&writing), Some(StateId4 { seqid: 2, ..read.stateid }));
    let newest = newest(read.stateid);
    scene.writer.write(&scene.file.handle, newest, 0, StableHow4::FileSync, b"new").unwrap();
    assert_eq!(scene.open(OPEN4_SHARE_ACCESS_READ), NfsStat4::Delay);
    let recall = scene.writer.callbacks.wait_for_recall(WAIT).unwrap();
    assert_eq!(recall.stateid.seqid, 2);
    assert_eq!(give_back(&mut scene.writer, &scene.file.handle, recall.stateid), NfsStat4::Ok);
    assert_eq!(scene.open(OPEN4_SHARE_ACCESS_READ), NfsStat4::Ok);
}

#[test]
fn times_that_were_delegated_are_set_by_the_delegation_within_their_bounds() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set_as(&server, WRITE_WANTED | OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS);
    assert!(matches!(scene.file.opened.delegation, OpenDelegation4::WriteAttrs(_)));
    let (handle, held) = (scene.file.handle.clone(), newest(scene.delegation));
    let times = [number::TIME_ACCESS, number::TIME_MODIFY];
    let original = scene.writer.attributes(&handle, &times).unwrap();
    let modified = |at| FileAttributes { time_deleg_modify: Some(at), ..FileAttributes::default() };
    scene.writer.set_attributes(&handle, held, &modified(time(1))).unwrap();
    let unchanged = scene.writer.attributes(&handle, &times).unwrap();
    assert_eq!(unchanged, original, "from before the delegation");
    let far = time(i64::MAX / 2);
    let both = FileAttributes { time_deleg_access: Some(far), ..modified(far) };
    scene.writer.set_attributes(&handle, held, &both).unwrap();
    let clamped = scene.writer.attributes(&handle, &times).unwrap();
    let (before, after) = (original.time_modify.unwrap(), clamped.time_modify.unwrap());
    assert!(after.seconds >= before.seconds && after != before && after.seconds < far.seconds);
    assert_eq!(clamped.time_access, clamped.time_modify, "both are now");
    // Other clients see the times that the writer keeps.
    let told = FileAttributes { change: Some(scene.change), size: Some(1_000), ..both };
    scene.writer.callbacks.keep_attributes(told);
    let seen = scene.other.attributes(&handle, &times).unwrap();
    assert!(seen.time_modify.unwrap().seconds >= after.seconds);
    let asked = scene.writer.callbacks.wait_for_get_attr(WAIT).unwrap().attr_request;
    assert!(asked.contains(number::TIME_DELEG_MODIFY) && asked.contains(number::TIME_DELEG_ACCESS));

    let by_open = scene.writer.set_attributes(&handle, scene.file.stateid, &modified(far));
    assert_eq!(status_of(by_open), NfsStat4::BadStateId);
    let read = scene.writer.attributes(&handle, &[number::TIME_DELEG_MODIFY]);
    assert_eq!(status_of(read), NfsStat4::Inval);
    scene.return_it();
    let late = scene.writer.set_attributes(&handle, held, &modified(far));
    assert_eq!(status_of(late), NfsStat4::BadStateId);
}

#[test]
fn times_that_were_not_delegated_are_not_set_by_a_delegation() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    let handle = scene.file.handle.clone();
    let modified = FileAttributes { time_deleg_modify: Some(time(9)), ..FileAttributes::default() };
    let refused = scene.writer.set_attributes(&handle, scene.delegation, &modified);
    assert_eq!(status_of(refused), NfsStat4::Inval);
    let mut older = server.client_by(ClientOptions::named("older").minorversion(1));
    let refused = older.set_attributes(&handle, scene.delegation, &modified);
    assert_eq!(status_of(refused), NfsStat4::AttrNotSupp, "of NFSv4.2");
}

#[test]
fn a_reader_that_asks_for_it_keeps_the_time_of_access_and_no_other() {
    let (_instance, server) = Server::start();
    let mut scene = Scene::set(&server);
    scene.return_it();
    scene.writer.close(&scene.file).unwrap();
    let unasked = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS;
    for _ in 0..2 {
        let opened = scene.other.open(&scene.root, "file", unasked).unwrap();
        assert!(matches!(opened.opened.delegation, OpenDelegation4::None | OpenDelegation4::Read(_)));
    }
    let wanted = READ_WANTED | OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS;
    let opened = scene.writer.open(&scene.root, "file", wanted).unwrap();
    let OpenDelegation4::ReadAttrs(read) = &opened.opened.delegation else { panic!("{opened:?}") };
    let handle = scene.file.handle.clone();
    let modified = FileAttributes { time_deleg_modify: Some(time(9)), ..FileAttributes::default() };
    assert_eq!(status_of(scene.writer.set_attributes(&handle, read.stateid, &modified)), NfsStat4::Inval);
    let far = FileAttributes { time_deleg_access: Some(time(i64::MAX / 2)), ..FileAttributes::default() };
    let before = scene.writer.attributes(&handle, &[number::TIME_ACCESS]).unwrap();
    scene.writer.set_attributes(&handle, read.stateid, &far).unwrap();
    assert_ne!(scene.writer.attributes(&handle, &[number::TIME_ACCESS]).unwrap(), before);
    assert!(scene.other.callbacks.seen().is_empty(), "other readers keep what they have");
}

#[test]
fn a_delegation_instead_of_an_open_leaves_nothing_to_close() {
    let (_instance, server) = Server::start();
    let mut client = server.client("client");
    let root = client.root().unwrap();
    for (name, wanted, iomode) in
        [("read", READ_WANTED, LayoutIomode4::Read), ("write", WRITE_WANTED, LayoutIomode4::Rw)]
    {
        let made = client.create(&root, name).unwrap();
        client.write(&made.handle, made.stateid, 0, StableHow4::FileSync, &[7; 100_000]).unwrap();
        client.close(&made).unwrap();
        let xor = wanted | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
        // As Linux asks, with the layout in the same COMPOUND.
        let open = ops::open("owner", xor, OpenFlag4::NoCreate, name);
        let reply = client.open_with_layout(&root, open, iomode).unwrap();
        let opened = testkit::body!(reply, Open).unwrap();
        assert_eq!(opened.stateid, StateId4::ANONYMOUS);
        assert_ne!(opened.rflags & OPEN4_RESULT_NO_OPEN_STATEID, 0);
        assert!(testkit::nfs_client::Layout::of(&reply).is_ok(), "by the stateid of the delegation");
        let (OpenDelegation4::Read(_) | OpenDelegation4::Write(_)) = opened.delegation else {
            panic!("{:?}", opened.delegation)
        };
        // A second owner has an open of its own, for there is no second delegation.
        let again = client.open_as(&root, name, "second", xor, OpenFlag4::NoCreate).unwrap();
        assert_eq!(again.opened.rflags & OPEN4_RESULT_NO_OPEN_STATEID, 0);
        client.close(&again).unwrap();
    }
    let mut other = server.client("other");
    assert_eq!(status_of(other.open(&root, "write", OPEN4_SHARE_ACCESS_READ)), NfsStat4::Delay);
}

#[test]
fn an_open_that_was_there_before_stays_beside_the_delegation() {
    let (_instance, server) = Server::start();
    let mut client = server.client("client");
    let root = client.root().unwrap();
    let made = client.create(&root, "file").unwrap();
    let xor = WRITE_WANTED | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
    let opened = client.open(&root, "file", xor).unwrap();
    assert!(to_write(&opened).is_some());
    assert_eq!(opened.opened.rflags & OPEN4_RESULT_NO_OPEN_STATEID, 0);
    assert_eq!(opened.stateid, StateId4 { seqid: 2, ..made.stateid });
    client.close(&opened).unwrap();
}

#[test]
fn the_open_arguments_attribute_is_returned_from_4_2_on() {
    for (configuration, is_named) in [
        ("", false),
        ("[nfs.delegations]\nwrite = \"on\"", true),
        ("[nfs.delegations]\nmode = \"off\"", false),
    ] {
        let (_instance, server) = started(configuration);
        let mut client = server.client("client");
        let root = client.root().unwrap();
        let told = client.attributes(&root, &[number::OPEN_ARGUMENTS]).unwrap().open_arguments.unwrap();
        let wants = told.share_access_want;
        // Linux would keep times to itself that were set to before the delegation, and be ignored when it gives them.
        assert_eq!([20, 21].map(|want| wants.contains(want)), [false, is_named], "{configuration}");
        assert_eq!(wants.contains(3), !configuration.contains("off"), "{configuration}");
    }
    let (_instance, server) = Server::start();
    let mut client = server.client("client");
    let root = client.root().unwrap();
    let told = client.attributes(&root, &[number::SUPPORTED_ATTRS, number::OPEN_ARGUMENTS]).unwrap();
    assert!(told.open_arguments.is_some());
    let supported = told.supported_attrs.unwrap();
    assert!([84, 85, 86].iter().all(|attribute| supported.contains(*attribute)));
    let mut older = server.client_by(ClientOptions::named("older").minorversion(1));
    let told = older.attributes(&root, &[number::SUPPORTED_ATTRS, number::OPEN_ARGUMENTS]).unwrap();
    assert_eq!(told.open_arguments, None);
    assert!([84, 85, 86].iter().all(|attribute| !told.supported_attrs.unwrap().contains(*attribute)));
}
