//! A client whose lease has ended keeps what it has until somebody needs it (RFC 8881 §8.4.3; Linux since 5.19).

use std::sync::Arc;
use std::time::{Duration, Instant};

use nfs4::{
    FfLayoutReturn4, LayoutIomode4, Lock4Args, Lock4Res, LockT4Args, LockT4Res, LockU4Args, Locker4,
    NfsArgop4, NfsFh4, NfsLockType4, NfsResop4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OPEN4_SHARE_ACCESS_WRITE,
    OPEN4_SHARE_DENY_WRITE, Open4Args, OpenClaim4, OpenDelegation4, OpenDelegationType4, OpenFlag4,
    OpenToLockOwner4, StableHow4, StateId4,
};
use testkit::nfs_client::{ClientOptions, Layout, NfsClient, OpenFile, ops, when_ready};

use crate::server::{Instance, Server, Setup, status_of};

const WAIT: Duration = Duration::from_secs(40);
/// A recall takes far longer than a test, so state that goes at once does not go by a recall.
const SHORT_LEASE: Setup = Setup {
    lease_s: 2,
    grace_s: 60,
    pools: 1,
    configuration: "[nfs.delegations]\nrecall_s = 90",
    arguments: &[],
};

/// A recall takes far longer than the lease.
const LONG_RECALL: Setup =
    Setup { grace_s: 0, configuration: "[nfs.delegations]\nrecall_s = 15", ..SHORT_LEASE };

fn lock_op(file: &OpenFile, owner: &str, reclaim: bool) -> NfsArgop4 {
    let locker = OpenToLockOwner4 {
        open_seqid: 0,
        open_stateid: file.stateid,
        lock_seqid: 0,
        lock_owner: ops::owner(owner),
    };
    let locktype = NfsLockType4::Write;
    NfsArgop4::Lock(Lock4Args { locktype, reclaim, offset: 0, length: 10, locker: Locker4::New(locker) })
}

fn lock(client: &mut NfsClient, file: &OpenFile, reclaim: bool) -> Lock4Res {
    let reply = client.compound(&[ops::put_fh(&file.handle), lock_op(file, "locker", reclaim)]).unwrap();
    match reply.results.last() {
        Some(NfsResop4::Lock(result)) => result.clone(),
        other => panic!("{other:?}"),
    }
}

/// Retries on DELAY, as a client does while the server expires the silent client.
fn lock_when_ready(client: &mut NfsClient, file: &OpenFile) -> Lock4Res {
    let since = Instant::now();
    loop {
        match lock(client, file, false) {
            Lock4Res::Err(NfsStat4::Delay) => assert!(since.elapsed() < WAIT, "the lock is never released"),
            outcome => return outcome,
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn test_lock(client: &mut NfsClient, file: &OpenFile) -> LockT4Res {
    let args =
        LockT4Args { locktype: NfsLockType4::Read, offset: 0, length: 1, owner: ops::owner("somebody") };
    let reply = client.compound(&[ops::put_fh(&file.handle), NfsArgop4::LockT(args)]).unwrap();
    match reply.results.last() {
        Some(NfsResop4::LockT(result)) => result.clone(),
        other => panic!("{other:?}"),
    }
}

fn open_denying_writes(name: &str) -> NfsArgop4 {
    NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_BOTH,
        share_deny: OPEN4_SHARE_DENY_WRITE,
        owner: ops::owner("denier"),
        openhow: OpenFlag4::NoCreate,
        claim: OpenClaim4::Null(name.into()),
    })
}

/// A client with an open, a lock and a layout to write, whose lease is over.
struct Scene {
    silent: NfsClient,
    root: NfsFh4,
    file: OpenFile,
    lock: StateId4,
    layout: Layout,
}

fn is_any_lease_over(instance: &Instance) -> bool {
    let told = instance.run(&["status", "--json"]).stdout;
    let status: serde_json::Value = serde_json::from_slice(&told).unwrap();
    status["clients"].as_array().unwrap().iter().any(|client| client["courtesy"] == true)
}

fn wait_for_the_end_of_the_lease(instance: &Instance) {
    let since = Instant::now();
    while !is_any_lease_over(instance) {
        assert!(since.elapsed() < WAIT, "no lease ends");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Writes with the ticket of a layout, by any client.
fn write_at_the_pool(layout: &Layout, by: &mut NfsClient) -> NfsStat4 {
    let mut pool = by.data_server(layout).unwrap();
    let stateid = layout.data_server().stateid;
    status_of(pool.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[7; 10]))
}

impl Scene {
    fn set(instance: &Instance, server: &Server) -> Scene {
        let mut silent = server.client("silent");
        let root = silent.root().unwrap();
        let file = when_ready(|| silent.create(&root, "file")).unwrap();
        let Lock4Res::Ok(locked) = lock(&mut silent, &file, false) else { panic!("nobody else is there") };
        let layout = silent.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
        wait_for_the_end_of_the_lease(instance);
        Scene { silent, root, file, lock: locked.lock_stateid, layout }
    }

    fn write_at_the_pool(&self, by: &mut NfsClient) -> NfsStat4 {
        write_at_the_pool(&self.layout, by)
    }

    fn is_gone(&mut self) -> bool {
        self.silent.compound(&[]).unwrap().status == NfsStat4::BadSession
    }
}

#[test]
fn a_client_that_comes_back_after_its_lease_goes_on_with_all_it_had() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let mut scene = Scene::set(&instance, &server);
    // Others work, and do not need what it has.
    let mut other = server.client("other");
    let opened = when_ready(|| other.create(&scene.root, "file")).unwrap();
    other.write(&opened.handle, opened.stateid, 0, StableHow4::FileSync, b"others").unwrap();
    assert_eq!(scene.write_at_the_pool(&mut other), NfsStat4::Ok);
    let (handle, stateid) = (scene.file.handle.clone(), scene.file.stateid);
    scene.silent.read(&handle, stateid, 0, 10).unwrap();
    let unlock = NfsArgop4::LockU(LockU4Args {
        locktype: NfsLockType4::Write,
        seqid: 0,
        lock_stateid: scene.lock,
        offset: 0,
        length: 10,
    });
    scene.silent.call(&[ops::put_fh(&handle), unlock]).unwrap();
    scene.silent.layout_commit(&handle, scene.layout.stateid, Some(9)).unwrap();
    scene.silent.close(&scene.file).unwrap();
}

#[test]
fn a_client_that_needs_the_lock_of_a_silent_client_gets_it_and_the_silent_one_is_expired() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let mut scene = Scene::set(&instance, &server);
    let mut other = server.client("other");
    let opened = when_ready(|| other.create(&scene.root, "file")).unwrap();
    assert!(matches!(lock_when_ready(&mut other, &opened), Lock4Res::Ok(_)));
    assert!(scene.is_gone());
    assert_eq!(scene.write_at_the_pool(&mut other), NfsStat4::Stale, "it was fenced off before");
}

#[test]
fn a_client_that_lost_its_lock_gets_no_layout_and_no_delegation_until_it_has_closed_the_file() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let scene = Scene::set(&instance, &server);
    let mut other = server.client("other");
    let opened = when_ready(|| other.create(&scene.root, "file")).unwrap();
    assert!(matches!(lock_when_ready(&mut other, &opened), Lock4Res::Ok(_)));
    other.layout_get(&opened.handle, opened.stateid, LayoutIomode4::Rw).unwrap();
    other.close(&opened).unwrap();

    let mut back = server.client("silent");
    let write = back.write(&scene.file.handle, scene.lock, 0, StableHow4::FileSync, b"mine");
    assert_eq!(status_of(write), NfsStat4::BadStateId);
    let wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let file = when_ready(|| back.open(&scene.root, "file", wanted)).unwrap();
    assert!(matches!(file.opened.delegation, OpenDelegation4::NoneExt(_)), "{:?}", file.opened.delegation);
    for mode in [LayoutIomode4::Read, LayoutIomode4::Rw] {
        let layout = back.layout_get(&file.handle, file.stateid, mode);
        assert_eq!(status_of(layout), NfsStat4::LayoutUnavailable);
    }
    back.close(&file).unwrap();
    let file = when_ready(|| back.open(&scene.root, "file", wanted)).unwrap();
    assert!(matches!(file.opened.delegation, OpenDelegation4::Write(_)), "{:?}", file.opened.delegation);
    back.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
}

#[test]
fn a_client_that_has_lost_a_lock_gets_no_layout_after_a_restart_until_it_has_closed_the_file() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let scene = Scene::set(&instance, &server);
    let mut other = server.client("other");
    let opened = when_ready(|| other.create(&scene.root, "file")).unwrap();
    assert!(matches!(lock_when_ready(&mut other, &opened), Lock4Res::Ok(_)));
    let mut back = server.client("silent");
    when_ready(|| back.open(&scene.root, "file", OPEN4_SHARE_ACCESS_BOTH)).unwrap();
    let untouched = back.create(&scene.root, "untouched").unwrap();
    server.kill();

    let server = instance.up();
    let mut other = server.client_by(ClientOptions::named("other").reclaiming());
    let mut back = server.client_by(ClientOptions::named("silent").reclaiming());
    let others = reclaim(&mut other, &scene.file).unwrap();
    let file = reclaim(&mut back, &scene.file).unwrap();
    other.reclaim_complete().unwrap();
    back.reclaim_complete().unwrap();
    when_ready(|| other.layout_get(&others.handle, others.stateid, LayoutIomode4::Rw)).unwrap();
    let layout = back.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw);
    assert_eq!(status_of(layout), NfsStat4::LayoutUnavailable);
    back.close(&file).unwrap();
    for name in ["file", "untouched"] {
        let file = when_ready(|| back.open(&scene.root, name, OPEN4_SHARE_ACCESS_BOTH)).unwrap();
        assert!(name == "file" || file.handle == untouched.handle);
        back.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
    }
}

#[test]
fn a_client_that_lost_a_delegation_to_write_gets_no_layout_until_it_has_closed_the_file() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let mut silent = server.client("silent");
    let root = silent.root().unwrap();
    let made = silent.create(&root, "file").unwrap();
    silent.close(&made).unwrap();
    let wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let opened = silent.open(&root, "file", wanted).unwrap();
    assert!(matches!(opened.opened.delegation, OpenDelegation4::Write(_)));
    wait_for_the_end_of_the_lease(&instance);
    let mut other = server.client("other");
    let opened = when_ready(|| other.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE)).unwrap();
    other.close(&opened).unwrap();

    let mut back = server.client("silent");
    let file = when_ready(|| back.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH)).unwrap();
    let layout = back.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw);
    assert_eq!(status_of(layout), NfsStat4::LayoutUnavailable);
    back.close(&file).unwrap();
    let file = when_ready(|| back.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH)).unwrap();
    back.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
}

#[test]
fn a_question_for_locks_sees_none_of_a_silent_client() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let mut scene = Scene::set(&instance, &server);
    let mut other = server.client("other");
    let opened = when_ready(|| other.create(&scene.root, "file")).unwrap();
    let since = Instant::now();
    while test_lock(&mut other, &opened) != LockT4Res::Ok {
        assert!(since.elapsed() < WAIT);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(scene.is_gone());
}

#[test]
fn an_open_that_a_silent_client_stands_in_the_way_of_goes_through() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let mut scene = Scene::set(&instance, &server);
    let mut other = server.client("other");
    when_ready(|| other.open_by(&scene.root, open_denying_writes("file"))).unwrap();
    assert!(scene.is_gone());
    assert_eq!(scene.write_at_the_pool(&mut other), NfsStat4::Stale);
}

#[test]
fn share_denials_of_a_silent_client_stop_no_other_client() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let mut silent = server.client("silent");
    let root = silent.root().unwrap();
    let made = silent.create(&root, "file").unwrap();
    silent.open_by(&root, open_denying_writes("file")).map(|_| ()).unwrap_err();
    silent.close(&made).unwrap();
    silent.open_by(&root, open_denying_writes("file")).unwrap();
    wait_for_the_end_of_the_lease(&instance);
    let mut other = server.client("other");
    let how = StableHow4::FileSync;
    when_ready(|| other.write(&made.handle, StateId4::ANONYMOUS, 0, how, b"now")).unwrap();
    when_ready(|| other.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE)).unwrap();
    assert_eq!(silent.compound(&[]).unwrap().status, NfsStat4::BadSession);
}

#[test]
fn the_layout_of_a_silent_client_is_not_recalled_but_taken() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let mut scene = Scene::set(&instance, &server);
    let mut other = server.client("other");
    let opened = when_ready(|| other.create(&scene.root, "file")).unwrap();
    when_ready(|| other.set_size(&opened.handle, opened.stateid, 0)).unwrap();
    assert!(scene.silent.callbacks.seen().is_empty(), "nobody asks who is not there");
    assert_eq!(scene.write_at_the_pool(&mut other), NfsStat4::Stale);
    assert!(scene.is_gone());
}

#[test]
fn the_delegation_of_a_silent_client_is_not_recalled_but_taken() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let (mut silent, root, ..) = with_delegation(&server, "file");
    wait_for_the_end_of_the_lease(&instance);
    let mut other = server.client("other");
    when_ready(|| other.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE)).unwrap();
    assert!(silent.callbacks.seen().is_empty());
    assert_eq!(silent.compound(&[]).unwrap().status, NfsStat4::BadSession);
}

/// A client with a delegation to read `name`, which is empty.
fn with_delegation(server: &Server, name: &str) -> (NfsClient, NfsFh4, OpenFile, StateId4) {
    let mut client = server.client("silent");
    let root = client.root().unwrap();
    let made = when_ready(|| client.create(&root, name)).unwrap();
    client.close(&made).unwrap();
    let wanted = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
    let opened = client.open(&root, name, wanted).unwrap();
    let OpenDelegation4::Read(granted) = &opened.opened.delegation else { panic!("{:?}", opened.opened) };
    let delegation = granted.stateid;
    (client, root, opened, delegation)
}

#[test]
fn a_recall_that_was_accepted_before_the_lease_ended_goes_on_and_takes_nothing_else() {
    let (instance, server) = Server::start_with(LONG_RECALL);
    let (mut silent, root, cached, delegation) = with_delegation(&server, "cached");
    let [(file, layout), (kept, kept_layout)] = ["file", "kept"].map(|name| {
        let file = silent.create(&root, name).unwrap();
        let layout = silent.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
        (file, layout)
    });
    assert!(matches!(lock(&mut silent, &kept, false), Lock4Res::Ok(_)));

    let mut other = server.client("other");
    let opened = other.create(&root, "file").unwrap();
    let change = |other: &mut NfsClient| {
        let truncated = other.set_size(&opened.handle, opened.stateid, 0);
        [status_of(truncated), status_of(other.open(&root, "cached", OPEN4_SHARE_ACCESS_WRITE))]
    };
    // The other client asks again and again, and so its own lease goes on.
    while !is_any_lease_over(&instance) {
        assert_eq!(change(&mut other), [NfsStat4::Delay; 2]);
    }
    assert_eq!(silent.callbacks.seen().len(), 2, "each is recalled once");
    assert_eq!(change(&mut other), [NfsStat4::Delay; 2], "they are waited for after the lease, too");
    let since = Instant::now();
    while change(&mut other) != [NfsStat4::Ok; 2] {
        assert!(since.elapsed() < WAIT, "the recalls never end");
    }
    assert_eq!(write_at_the_pool(&layout, &mut other), NfsStat4::Stale, "fenced off");
    assert_eq!(write_at_the_pool(&kept_layout, &mut other), NfsStat4::Ok);

    let lost = silent.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default());
    assert_eq!(status_of(lost), NfsStat4::BadStateId);
    assert_eq!(status_of(silent.read(&cached.handle, delegation, 0, 10)), NfsStat4::DelegRevoked);
    silent.layout_commit(&kept.handle, kept_layout.stateid, Some(9)).unwrap();
    for file in [&cached, &file, &kept] {
        silent.read(&file.handle, file.stateid, 0, 10).unwrap();
    }
    let opened = other.create(&root, "kept").unwrap();
    assert!(matches!(lock(&mut other, &opened, false), Lock4Res::Denied(_)), "it has its lock");
}

/// The recall would take far longer.
#[test]
fn a_client_that_no_recall_has_reached_goes_with_its_lease() {
    let (_instance, server) = Server::start_with(SHORT_LEASE);
    let (mut silent, root, ..) = with_delegation(&server, "file");
    // A connection without a back channel; the one that had it ends.
    silent.connection = Arc::new(silent.second_connection().unwrap());
    let mut other = server.client("other");
    when_ready(|| other.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE)).unwrap();
    assert!(silent.callbacks.seen().is_empty());
    assert_eq!(silent.compound(&[]).unwrap().status, NfsStat4::BadSession);
}

#[test]
fn a_silent_client_that_has_started_anew_does_not_meet_its_own_locks() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let mut scene = Scene::set(&instance, &server);
    let mut again = server.client_by(ClientOptions::named("silent").verifier(*b"boot 002"));
    let opened = when_ready(|| again.create(&scene.root, "file")).unwrap();
    assert!(matches!(lock(&mut again, &opened, false), Lock4Res::Ok(_)));
    assert!(scene.is_gone());
}

#[test]
fn without_courtesy_a_client_is_gone_with_its_lease() {
    let configuration = "courtesy_s = 0";
    let setup = Setup { lease_s: 2, configuration, ..Setup::default() };
    let (_instance, server) = Server::start_with(setup);
    let mut silent = server.client("silent");
    let root = silent.root().unwrap();
    let file = silent.create(&root, "file").unwrap();
    let layout = silent.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
    let since = Instant::now();
    let mut pool = silent.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    let mut write = || status_of(pool.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[7; 10]));
    while write() == NfsStat4::Ok {
        assert!(since.elapsed() < WAIT, "the ticket outlives the client");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(write(), NfsStat4::Stale);
}

fn reclaim(client: &mut NfsClient, file: &OpenFile) -> Result<OpenFile, NfsStat4> {
    let previous = OpenClaim4::Previous(OpenDelegationType4::None);
    let open = ops::open_claiming("owner", OPEN4_SHARE_ACCESS_BOTH, OpenFlag4::NoCreate, previous);
    client.open_by(&file.handle, open).map_err(|error| error.status().unwrap())
}

#[test]
fn a_silent_client_reclaims_after_a_restart_what_nobody_needed() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let scene = Scene::set(&instance, &server);
    server.kill();
    let server = instance.up();
    let mut silent = server.client_by(ClientOptions::named("silent").reclaiming());
    let file = reclaim(&mut silent, &scene.file).unwrap();
    assert!(matches!(lock(&mut silent, &file, true), Lock4Res::Ok(_)));
    silent.reclaim_complete().unwrap();
}

#[test]
fn a_silent_client_whose_lock_went_to_another_reclaims_nothing_after_a_restart() {
    let (instance, server) = Server::start_with(SHORT_LEASE);
    let scene = Scene::set(&instance, &server);
    let mut other = server.client("other");
    let opened = when_ready(|| other.create(&scene.root, "file")).unwrap();
    assert!(matches!(lock_when_ready(&mut other, &opened), Lock4Res::Ok(_)));
    // Given back: nothing but the record says that the lock was another's meanwhile (RFC 8881 §8.4.2.1).
    other.close(&opened).unwrap();
    server.kill();
    let server = instance.up();
    let mut silent = server.client_by(ClientOptions::named("silent").reclaiming());
    assert_eq!(reclaim(&mut silent, &scene.file).map(drop), Err(NfsStat4::NoGrace));
}
