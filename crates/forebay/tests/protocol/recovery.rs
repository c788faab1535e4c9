//! Data after a kill of the server, and how clients reclaim their state (RFC 8881 §8.4.2, §9.11).

use std::time::{Duration, Instant};

use nfs4::{
    CreateType4, FfLayoutReturn4, LayoutIomode4, Lock4Args, Lock4Res, Locker4, NfsArgop4, NfsFh4,
    NfsLockType4, NfsResop4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OPEN4_SHARE_DENY_BOTH, Open4Args, OpenClaim4, OpenDelegation4,
    OpenDelegationType4, OpenFlag4, OpenToLockOwner4, StableHow4, StateId4,
};
use testkit::nfs_client::{ClientOptions, Layout, NfsClient, OpenFile, ops, when_ready};

use crate::server::{Instance, Server, Setup, status_of};

/// A grace period that no test waits for to pass: it ends when everybody has reclaimed.
const GRACE: Setup = Setup { lease_s: 60, grace_s: 60, pools: 1, configuration: "", arguments: &[] };

fn reclaim_open() -> NfsArgop4 {
    let previous = OpenClaim4::Previous(OpenDelegationType4::None);
    ops::open_claiming("owner", OPEN4_SHARE_ACCESS_BOTH, OpenFlag4::NoCreate, previous)
}

fn lock_op(file: &OpenFile, reclaim: bool) -> NfsArgop4 {
    NfsArgop4::Lock(Lock4Args {
        locktype: NfsLockType4::Write,
        reclaim,
        offset: 0,
        length: 10,
        locker: Locker4::New(OpenToLockOwner4 {
            open_seqid: 0,
            open_stateid: file.stateid,
            lock_seqid: 0,
            lock_owner: ops::owner("locker"),
        }),
    })
}

fn lock(client: &mut NfsClient, file: &OpenFile, reclaim: bool) -> Lock4Res {
    let reply = client.compound(&[ops::put_fh(&file.handle), lock_op(file, reclaim)]).unwrap();
    match reply.results.last() {
        Some(NfsResop4::Lock(result)) => result.clone(),
        other => panic!("{other:?}"),
    }
}

/// An instance whose client "host" had a file open when the server was killed, and its successor.
fn after_a_crash(setup: Setup) -> (Instance, Server, NfsFh4, OpenFile) {
    let (instance, server) = Server::start_with(setup);
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = when_ready(|| client.create(&root, "file")).unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"acknowledged").unwrap();
    server.kill();
    let server = instance.up();
    (instance, server, root, file)
}

#[test]
fn a_new_instance_has_no_grace_period_since_nobody_has_anything_to_reclaim() {
    let (_instance, server) = Server::start_with(GRACE);
    let mut client = server.client("host");
    let root = client.root().unwrap();
    assert_eq!(status_of(client.create(&root, "file")), NfsStat4::Ok);
}

#[test]
fn a_session_of_before_is_unknown_after_a_restart() {
    let (instance, server) = Server::start();
    let before = server.client("host");
    server.kill();
    let server = instance.up();
    let after = server.client("host");
    assert_ne!(after.exchanged.clientid, before.exchanged.clientid);
    let old = NfsArgop4::Sequence(before.session.sequence(0, false));
    let reply = after.connection.call(&after.options.credential, 2, &[old]).unwrap();
    assert_eq!(reply.status, NfsStat4::BadSession);
    assert_eq!(after.exchanged.server_owner, before.exchanged.server_owner);
}

#[test]
fn in_grace_what_was_open_is_reclaimed_and_new_opens_wait() {
    let (_instance, server, root, file) = after_a_crash(GRACE);
    let mut client = server.client_by(ClientOptions::named("host").reclaiming());
    assert_eq!(status_of(client.create(&root, "new")), NfsStat4::Grace);
    let mut stranger = server.client("stranger");
    assert_eq!(status_of(stranger.create(&root, "new")), NfsStat4::Grace);
    let again = client.open_by(&file.handle, reclaim_open()).unwrap();
    assert_eq!(&client.read(&again.handle, again.stateid, 0, 100).unwrap().data[..], b"acknowledged");
    client.reclaim_complete().unwrap();
    // Everybody known has reclaimed: the grace period is over long before its time.
    when_ready(|| client.create(&root, "new")).unwrap();
    when_ready(|| stranger.create(&root, "new")).unwrap();
}

#[test]
fn in_grace_namespace_and_reading_go_on_where_they_can() {
    let (_instance, server, root, file) = after_a_crash(GRACE);
    let mut stranger = server.client("stranger");
    assert_eq!(stranger.lookup(&root, "file").unwrap(), file.handle);
    assert_eq!(stranger.size(&file.handle).unwrap(), 12);
    assert_eq!(stranger.list(&root, 4096).unwrap().len(), 1);
}

#[test]
fn a_client_without_earlier_state_or_after_reclaim_complete_cannot_reclaim() {
    let (_instance, server, _, file) = after_a_crash(GRACE);
    let mut stranger = server.client_by(ClientOptions::named("stranger").reclaiming());
    let outcome = stranger.open_by(&file.handle, reclaim_open());
    assert!(matches!(status_of(outcome), NfsStat4::NoGrace | NfsStat4::ReclaimBad));
    let mut client = server.client_by(ClientOptions::named("host").reclaiming());
    client.reclaim_complete().unwrap();
    assert_eq!(status_of(client.open_by(&file.handle, reclaim_open())), NfsStat4::NoGrace);
}

#[test]
fn the_grace_period_ends_by_time_if_a_client_does_not_come_back() {
    let (_instance, server, root, _) = after_a_crash(Setup { lease_s: 1, grace_s: 2, ..GRACE });
    let mut stranger = server.client("stranger");
    when_ready(|| stranger.create(&root, "new")).unwrap();
    let mut late = server.client_by(ClientOptions::named("host").reclaiming());
    let file = late.lookup(&root, "file").unwrap();
    assert_eq!(status_of(late.open_by(&file, reclaim_open())), NfsStat4::NoGrace);
}

#[test]
fn a_client_that_is_back_after_the_grace_period_writes_nothing_over_the_next_holder() {
    let (instance, server) = Server::start_with(Setup { lease_s: 1, grace_s: 2, ..GRACE });
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    assert!(matches!(lock(&mut client, &file, false), Lock4Res::Ok(_)));
    let layout = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
    server.kill();
    let server = instance.up();
    let mut other = server.client("other");
    let opened = when_ready(|| other.create(&root, "file")).unwrap();
    let now = other.layout_get(&opened.handle, opened.stateid, LayoutIomode4::Rw).unwrap();
    let mut pool = other.data_server(&now).unwrap();
    let mut write_by_old_ticket = || {
        let stateid = layout.data_server().stateid;
        status_of(pool.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[7; 10]))
    };
    assert_eq!(write_by_old_ticket(), NfsStat4::Stale);
    assert!(matches!(lock(&mut other, &opened, false), Lock4Res::Ok(_)));
    other.layout_get(&opened.handle, opened.stateid, LayoutIomode4::Rw).unwrap();

    let mut late = server.client_by(ClientOptions::named("host").reclaiming());
    assert_eq!(status_of(late.open_by(&file.handle, reclaim_open())), NfsStat4::NoGrace);
    late.reclaim_complete().unwrap();
    let again = late.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH).unwrap();
    assert!(matches!(lock(&mut late, &again, false), Lock4Res::Denied(_)));
    let refused = late.layout_get(&again.handle, again.stateid, LayoutIomode4::Rw);
    assert_eq!(status_of(refused), NfsStat4::LayoutUnavailable);
    late.close(&again).unwrap();
    let again = late.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH).unwrap();
    late.layout_get(&again.handle, again.stateid, LayoutIomode4::Rw).unwrap();
    // A lock that is not there any more is asked for too late.
    assert_eq!(lock(&mut late, &again, true), Lock4Res::Err(NfsStat4::NoGrace));
    let refused = late.layout_get(&again.handle, again.stateid, LayoutIomode4::Rw);
    assert_eq!(status_of(refused), NfsStat4::LayoutUnavailable);
}

/// A client with two locked files and a ticket to write one of them is cut off, and the grace period passes without it.
struct CutOff {
    instance: Instance,
    server: Server,
    root: NfsFh4,
    files: [OpenFile; 2],
    layout: Layout,
}

impl CutOff {
    fn new() -> CutOff {
        let (instance, server) = Server::start_with(Setup { lease_s: 1, grace_s: 2, ..GRACE });
        let mut client = server.client("host");
        let root = client.root().unwrap();
        let files = ["file", "another"].map(|name| client.create(&root, name).unwrap());
        for file in &files {
            assert!(matches!(lock(&mut client, file, false), Lock4Res::Ok(_)));
        }
        let layout = client.layout_get(&files[0].handle, files[0].stateid, LayoutIomode4::Rw).unwrap();
        CutOff { server, instance, root, files, layout }.restarted()
    }

    fn restarted(self) -> CutOff {
        self.server.kill();
        let server = self.instance.up();
        let mut stranger = server.client("stranger");
        let opened = when_ready(|| stranger.create(&self.root, "of the stranger")).unwrap();
        stranger.close(&opened).unwrap();
        CutOff { server, ..self }
    }

    fn write_by_the_old_ticket(&self, by: &mut NfsClient) -> NfsStat4 {
        // The pool is there under another device id.
        let way = when_ready(|| by.create(&self.root, "way")).unwrap();
        let layout = by.layout_get(&way.handle, way.stateid, LayoutIomode4::Rw).unwrap();
        let mut pool = by.data_server(&layout).unwrap();
        let stateid = self.layout.data_server().stateid;
        status_of(pool.write(self.layout.ticket(), stateid, 0, StableHow4::FileSync, &[7; 10]))
    }
}

#[test]
fn a_client_that_may_reclaim_nothing_gets_no_layout_of_a_file_until_it_has_closed_it() {
    let CutOff { server, root, files, instance: _instance, .. } = CutOff::new();
    let mut other = server.client("other");
    let locked = when_ready(|| other.create(&root, "another")).unwrap();
    assert!(matches!(lock(&mut other, &locked, false), Lock4Res::Ok(_)));

    let mut late = server.client_by(ClientOptions::named("host").reclaiming());
    // As Linux does: after the first refusal it opens its files anew, and asks for no further reclaim.
    assert_eq!(status_of(late.open_by(&files[0].handle, reclaim_open())), NfsStat4::NoGrace);
    late.reclaim_complete().unwrap();
    let anew = || ops::open_claiming("owner", OPEN4_SHARE_ACCESS_BOTH, OpenFlag4::NoCreate, OpenClaim4::Fh);
    let [one, another] = files.map(|file| late.open_by(&file.handle, anew()).unwrap());
    let new = late.create(&root, "new").unwrap();
    late.layout_get(&new.handle, new.stateid, LayoutIomode4::Rw).unwrap();
    let mut layout =
        |file: &OpenFile| status_of(late.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw));
    assert_eq!([&one, &another].map(&mut layout), [NfsStat4::LayoutUnavailable; 2]);
    late.close(&another).unwrap();
    let another = late.open_by(&another.handle, anew()).unwrap();
    let mut layout =
        |file: &OpenFile| status_of(late.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw));
    assert_eq!([&one, &another].map(&mut layout), [NfsStat4::LayoutUnavailable, NfsStat4::Ok]);
}

#[test]
fn a_client_that_is_away_over_two_restarts_writes_nothing_over_the_next_holder() {
    let cut_off = CutOff::new().restarted();
    let mut other = cut_off.server.client("other");
    let opened = when_ready(|| other.create(&cut_off.root, "file")).unwrap();
    assert_eq!(cut_off.write_by_the_old_ticket(&mut other), NfsStat4::Stale);
    assert!(matches!(lock(&mut other, &opened, false), Lock4Res::Ok(_)));
    assert_eq!(cut_off.write_by_the_old_ticket(&mut other), NfsStat4::Stale);
}

/// A client that never says a word to the head again.
#[test]
fn a_client_that_stays_away_over_a_restart_writes_until_the_time_to_reclaim_is_over_and_never_again() {
    let (instance, server) = Server::start_with(Setup { lease_s: 2, grace_s: 4, ..GRACE });
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"before").unwrap();
    let layouts = [LayoutIomode4::Rw, LayoutIomode4::Read]
        .map(|mode| client.layout_get(&file.handle, file.stateid, mode).unwrap());
    server.kill();
    let server = instance.up();
    let [to_write, to_read] = &layouts;
    let write = |server: &Server| {
        let (mut pool, stateid) = (server.client_of_pool("host"), to_write.data_server().stateid);
        status_of(pool.write(to_write.ticket(), stateid, 0, StableHow4::FileSync, b"late!!"))
    };
    assert_eq!(write(&server), NfsStat4::Ok, "it may be about to reclaim");
    let mut stranger = server.client("stranger");
    let opened = when_ready(|| stranger.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH)).unwrap();
    stranger.write(&opened.handle, opened.stateid, 0, StableHow4::FileSync, b"newer!").unwrap();
    assert_eq!(write(&server), NfsStat4::Stale);
    server.kill();
    let server = instance.up();
    assert_eq!(write(&server), NfsStat4::Stale, "also in the grace period of the next start");
    let mut pool = server.client_of_pool("host");
    let read = pool.read(to_read.ticket(), to_read.data_server().stateid, 0, 6).unwrap();
    assert_eq!(&read.data[..], b"newer!", "to read is harmless");
}

#[test]
fn nobody_writes_by_an_old_ticket_what_a_reader_has_by_a_delegation() {
    let cut_off = CutOff::new();
    let mut reader = cut_off.server.client("reader");
    let wanted = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
    let opened = when_ready(|| reader.open(&cut_off.root, "file", wanted)).unwrap();
    assert!(matches!(opened.opened.delegation, OpenDelegation4::Read(_)), "{:?}", opened.opened.delegation);
    assert_eq!(cut_off.write_by_the_old_ticket(&mut reader), NfsStat4::Stale);
}

#[test]
fn locks_are_reclaimed_before_anybody_else_gets_them() {
    let (instance, server) = Server::start_with(GRACE);
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    assert!(matches!(lock(&mut client, &file, false), Lock4Res::Ok(_)));
    server.kill();
    let server = instance.up();
    let mut stranger = server.client("stranger");
    let mut client = server.client_by(ClientOptions::named("host").reclaiming());
    let again = client.open_by(&file.handle, reclaim_open()).unwrap();
    assert_eq!(lock(&mut client, &again, false), Lock4Res::Err(NfsStat4::Grace));
    assert!(matches!(lock(&mut client, &again, true), Lock4Res::Ok(_)));
    client.reclaim_complete().unwrap();
    let opened = when_ready(|| stranger.create(&root, "file")).unwrap();
    assert!(matches!(lock(&mut stranger, &opened, false), Lock4Res::Denied(_)));
}

#[test]
fn share_reservations_are_reclaimed() {
    let (instance, server) = Server::start_with(GRACE);
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    server.kill();
    let server = instance.up();
    let mut client = server.client_by(ClientOptions::named("host").reclaiming());
    let reclaim = NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: OPEN4_SHARE_DENY_BOTH,
        owner: ops::owner("owner"),
        openhow: OpenFlag4::NoCreate,
        claim: OpenClaim4::Previous(OpenDelegationType4::None),
    });
    client.open_by(&file.handle, reclaim).unwrap();
    client.reclaim_complete().unwrap();
    let mut stranger = server.client("stranger");
    let outcome = when_ready(|| stranger.create(&root, "file"));
    assert_eq!(status_of(outcome), NfsStat4::ShareDenied);
}

#[test]
fn stateids_of_before_the_restart_are_not_taken() {
    let (_instance, server, _, file) = after_a_crash(Setup::default());
    let mut client = server.client("host");
    let read = status_of(client.read(&file.handle, file.stateid, 0, 1));
    assert!(matches!(read, NfsStat4::BadStateId | NfsStat4::StaleStateId), "{read}");
    let layout = when_ready(|| client.layout_get(&file.handle, file.stateid, nfs4::LayoutIomode4::Read));
    assert!(matches!(status_of(layout), NfsStat4::BadStateId | NfsStat4::StaleStateId));
}

#[test]
fn a_restart_changes_the_write_verifiers_and_devices() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let through_head = client.write(&file.handle, file.stateid, 0, StableHow4::Unstable, b"data").unwrap();
    let layout = client.layout_get(&file.handle, file.stateid, nfs4::LayoutIomode4::Rw).unwrap();
    let mut pool = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    let at_pool = pool.write(layout.ticket(), stateid, 0, StableHow4::Unstable, b"data").unwrap();
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let file = when_ready(|| client.create(&root, "file")).unwrap();
    let committed = client.commit(&file.handle).unwrap();
    assert_ne!(committed.writeverf, through_head.writeverf);
    let again = client.layout_get(&file.handle, file.stateid, nfs4::LayoutIomode4::Rw).unwrap();
    let mut pool = client.data_server(&again).unwrap();
    assert_ne!(pool.commit(again.ticket()).unwrap().writeverf, at_pool.writeverf);
    assert_ne!(again.device(), layout.device(), "an address may have changed: no device id is used twice");
}

#[test]
fn a_change_that_is_repeated_over_a_restart_is_told_that_it_is_done_already() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    for name in ["removed", "old"] {
        when_ready(|| client.create(&root, name)).unwrap();
    }
    let changes = |root: &NfsFh4| {
        [
            vec![ops::put_fh(root), ops::remove("removed")],
            vec![ops::put_fh(root), NfsArgop4::SaveFh, ops::put_fh(root), ops::rename("old", "new")],
            vec![ops::put_fh(root), ops::create(CreateType4::Dir, "made", 0o755)],
        ]
    };
    for change in changes(&root) {
        client.call(&change).unwrap();
    }
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let again = changes(&root).map(|change| status_of(when_ready(|| client.call(&change))));
    assert_eq!(again, [NfsStat4::NoEnt, NfsStat4::NoEnt, NfsStat4::Exist]);
}

#[test]
fn everything_acknowledged_is_there_after_a_kill() {
    let (instance, mut server) = Server::start();
    let mut expected = 0;
    for round in 0..3 {
        let mut client = server.client(&format!("host{round}"));
        let root = client.root().unwrap();
        for n in 0..20 {
            let name = format!("r{round}n{n}");
            let file = when_ready(|| client.create(&root, &name)).unwrap();
            let content = format!("content {round} {n}");
            client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, content.as_bytes()).unwrap();
            expected += 1;
        }
        // Something on its way when the server dies.
        let unfinished = client.session.begin(true).unwrap();
        let ops = testkit::nfs_client::Session::compound(
            unfinished,
            &[ops::put_fh(&root), ops::create(CreateType4::Dir, &format!("d{round}"), 0o755)],
        );
        client.connection.send(&client.options.credential, 2, &ops).unwrap();
        server.kill();
        server = instance.up();
    }
    let mut client = server.client("reader");
    let root = client.root().unwrap();
    let found = client.list(&root, 1 << 16).unwrap();
    let files = found.iter().filter(|entry| entry.name.as_bytes().starts_with(b"r")).count();
    assert_eq!(files, expected);
    for round in 0..3 {
        for n in 0..20 {
            let file = client.lookup(&root, &format!("r{round}n{n}")).unwrap();
            let read = when_ready(|| client.read(&file, StateId4::ANONYMOUS, 0, 100)).unwrap();
            assert_eq!(&read.data[..], format!("content {round} {n}").as_bytes());
        }
    }
    drop(client);
    let fsck = instance.run(&["fsck"]);
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
}

#[test]
fn a_committed_layout_survives_a_kill() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let layout = client.layout_get(&file.handle, file.stateid, nfs4::LayoutIomode4::Rw).unwrap();
    let mut pool = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    pool.write(layout.ticket(), stateid, 0, StableHow4::Unstable, &[5; 50_000]).unwrap();
    pool.commit(layout.ticket()).unwrap();
    client.layout_commit(&file.handle, layout.stateid, Some(49_999)).unwrap();
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    assert_eq!(client.size(&file.handle).unwrap(), 50_000);
    let read = when_ready(|| client.read(&file.handle, StateId4::ANONYMOUS, 0, 60_000)).unwrap();
    assert!(read.eof && read.data[..] == [5; 50_000]);
}

/// The pool remembers no removal over a restart, and a ticket is good for as long as somebody keeps it.
#[test]
fn a_ticket_from_before_a_restart_makes_no_replica_of_a_file_that_was_removed() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let layout = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
    let replicas = || {
        let status = instance.run(&["status", "--json"]).stdout;
        let report: serde_json::Value = serde_json::from_slice(&status).unwrap();
        report["pools"][0]["replicas"].as_u64().unwrap()
    };
    assert_eq!(replicas(), 1, "it is made before the client is sent there");
    client.remove(&root, "file").unwrap();
    client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
    client.close(&file).unwrap();
    until_gone(replicas);
    server.kill();

    let server = instance.up();
    let mut client = server.client("host");
    let other = when_ready(|| client.create(&root, "other")).unwrap();
    let place = client.layout_get(&other.handle, other.stateid, LayoutIomode4::Rw).unwrap();
    let mut pool = client.data_server(&place).unwrap();
    let stateid = layout.data_server().stateid;
    for stable in [StableHow4::Unstable, StableHow4::FileSync] {
        let late = pool.write(layout.ticket(), stateid, 0, stable, b"late");
        assert_eq!(status_of(late), NfsStat4::Stale);
    }
    assert_eq!(replicas(), 1, "the other file's");
    pool.write(place.ticket(), place.data_server().stateid, 0, StableHow4::FileSync, b"well").unwrap();
}

fn until_gone(replicas: impl Fn() -> u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while replicas() > 0 {
        assert!(Instant::now() < deadline, "the replica is never removed");
        std::thread::sleep(Duration::from_millis(50));
    }
}
