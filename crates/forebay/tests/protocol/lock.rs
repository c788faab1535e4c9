//! LOCK, LOCKT, LOCKU: byte ranges (RFC 8881 §9.1–9.6, §18.10–18.12).

use std::time::{Duration, Instant};

use nfs4::{
    ExistLockOwner4, FreeStateId4Args, Lock4Args, Lock4Denied, Lock4Res, LockT4Args, LockT4Res, LockU4Args,
    Locker4, NfsArgop4, NfsFh4, NfsLockType4, NfsResop4, NfsStat4, OPEN4_SHARE_ACCESS_READ, OpenToLockOwner4,
    StableHow4, StateId4,
};
use testkit::body;
use testkit::nfs_client::{ClientOptions, NfsClient, OpenFile, ops};

use crate::server::{Server, Setup, status_of};

use NfsLockType4::{Read, ReadW, Write, WriteW};

fn setup(server: &Server) -> (NfsClient, NfsFh4, OpenFile) {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    (client, root, file)
}

fn first_lock(file: &OpenFile, owner: &str, locktype: NfsLockType4, offset: u64, length: u64) -> NfsArgop4 {
    let locker = OpenToLockOwner4 {
        open_seqid: 0,
        open_stateid: file.stateid,
        lock_seqid: 0,
        lock_owner: ops::owner(owner),
    };
    NfsArgop4::Lock(Lock4Args { locktype, reclaim: false, offset, length, locker: Locker4::New(locker) })
}

fn next_lock(stateid: StateId4, locktype: NfsLockType4, offset: u64, length: u64) -> NfsArgop4 {
    let locker = ExistLockOwner4 { lock_stateid: stateid, lock_seqid: 0 };
    NfsArgop4::Lock(Lock4Args { locktype, reclaim: false, offset, length, locker: Locker4::Exist(locker) })
}

fn unlock(stateid: StateId4, offset: u64, length: u64) -> NfsArgop4 {
    NfsArgop4::LockU(LockU4Args { locktype: Write, seqid: 0, lock_stateid: stateid, offset, length })
}

fn lock(client: &mut NfsClient, file: &OpenFile, op: NfsArgop4) -> Lock4Res {
    let reply = client.compound(&[ops::put_fh(&file.handle), op]).unwrap();
    match reply.results.last() {
        Some(NfsResop4::Lock(result)) => result.clone(),
        other => panic!("{other:?}"),
    }
}

fn granted(client: &mut NfsClient, file: &OpenFile, op: NfsArgop4) -> StateId4 {
    match lock(client, file, op) {
        Lock4Res::Ok(body) => body.lock_stateid,
        other => panic!("{other:?}"),
    }
}

fn denied(client: &mut NfsClient, file: &OpenFile, op: NfsArgop4) -> Lock4Denied {
    match lock(client, file, op) {
        Lock4Res::Denied(holder) => holder,
        other => panic!("{other:?}"),
    }
}

fn test(
    client: &mut NfsClient,
    file: &OpenFile,
    owner: &str,
    locktype: NfsLockType4,
    range: (u64, u64),
) -> LockT4Res {
    let args = LockT4Args { locktype, offset: range.0, length: range.1, owner: ops::owner(owner) };
    let reply = client.compound(&[ops::put_fh(&file.handle), NfsArgop4::LockT(args)]).unwrap();
    match reply.results.last() {
        Some(NfsResop4::LockT(result)) => result.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_write_lock_excludes_others_and_tells_who_holds_it() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    granted(&mut client, &file, first_lock(&file, "ann", Write, 100, 50));
    let mut other = server.client("other");
    let opened = other.create(&root, "file").unwrap();
    let holder = denied(&mut other, &opened, first_lock(&opened, "bob", Read, 120, 1));
    assert_eq!((holder.offset, holder.length, holder.locktype), (100, 50, Write));
    assert_eq!(&holder.owner.owner[..], b"ann");
    assert_eq!(holder.owner.clientid, client.exchanged.clientid);
    granted(&mut other, &opened, first_lock(&opened, "bob", Write, 0, 100));
    // Owners of one client exclude each other too.
    denied(&mut client, &file, first_lock(&file, "second", WriteW, 149, 1));
}

#[test]
fn read_locks_share_and_write_locks_do_not() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    granted(&mut client, &file, first_lock(&file, "ann", Read, 0, 100));
    let mut other = server.client("other");
    let opened = other.create(&root, "file").unwrap();
    let stateid = granted(&mut other, &opened, first_lock(&opened, "bob", ReadW, 50, 100));
    denied(&mut other, &opened, next_lock(stateid, Write, 99, 10));
    let upgraded = granted(&mut other, &opened, next_lock(stateid, Write, 100, 10));
    assert_eq!(upgraded, StateId4 { seqid: stateid.seqid + 1, ..stateid }, "one stateid per owner and file");
}

#[test]
fn unlocking_the_middle_leaves_both_ends() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    let stateid = granted(&mut client, &file, first_lock(&file, "ann", Write, 0, u64::MAX));
    let reply = client.call(&[ops::put_fh(&file.handle), unlock(stateid, 10, 10)]).unwrap();
    let after = body!(reply, LockU).unwrap().lock_stateid;
    assert_eq!(after, StateId4 { seqid: stateid.seqid + 1, ..stateid });
    let mut other = server.client("other");
    let opened = other.create(&root, "file").unwrap();
    assert_eq!(test(&mut other, &opened, "bob", Write, (10, 10)), LockT4Res::Ok);
    assert!(matches!(test(&mut other, &opened, "bob", Write, (9, 1)), LockT4Res::Denied(_)));
    let LockT4Res::Denied(end) = test(&mut other, &opened, "bob", Read, (20, 1)) else {
        panic!("it is locked")
    };
    assert_eq!((end.offset, end.length), (20, u64::MAX), "to the end of the file, wherever that is");
}

#[test]
fn an_owner_never_conflicts_with_itself() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let stateid = granted(&mut client, &file, first_lock(&file, "ann", Write, 0, 10));
    assert_eq!(test(&mut client, &file, "ann", Write, (0, 10)), LockT4Res::Ok);
    let stateid = granted(&mut client, &file, next_lock(stateid, Read, 0, 10));
    granted(&mut client, &file, next_lock(stateid, Write, 5, 100));
}

#[test]
fn ranges_that_are_none_are_invalid() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    for (offset, length) in [(0, 0), (10, u64::MAX - 5)] {
        let op = first_lock(&file, "ann", Write, offset, length);
        assert_eq!(lock(&mut client, &file, op), Lock4Res::Err(NfsStat4::Inval), "{offset} {length}");
        let tested = test(&mut client, &file, "ann", Write, (offset, length));
        assert_eq!(tested, LockT4Res::Err(NfsStat4::Inval));
    }
    let stateid = granted(&mut client, &file, first_lock(&file, "ann", Write, u64::MAX - 1, 1));
    assert_eq!(status_of(client.call(&[ops::put_fh(&file.handle), unlock(stateid, 0, 0)])), NfsStat4::Inval);
}

#[test]
fn a_lock_needs_an_open_that_allows_it() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    client.close(&file).unwrap();
    let reading = client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let op = first_lock(&reading, "ann", Write, 0, 1);
    assert_eq!(lock(&mut client, &reading, op), Lock4Res::Err(NfsStat4::OpenMode));
    granted(&mut client, &reading, first_lock(&reading, "ann", Read, 0, 1));
    let op = first_lock(&file, "ann", Write, 0, 1);
    assert_eq!(lock(&mut client, &file, op), Lock4Res::Err(NfsStat4::BadStateId), "a closed open");
}

#[test]
fn directories_are_not_locked() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    let args = LockT4Args { locktype: Write, offset: 0, length: 1, owner: ops::owner("ann") };
    let reply = client.compound(&[ops::put_fh(&root), NfsArgop4::LockT(args)]).unwrap();
    assert_eq!(reply.status, NfsStat4::IsDir);
    let op = first_lock(&file, "ann", Write, 0, 1);
    let reply = client.compound(&[ops::put_fh(&root), op]).unwrap();
    assert!(matches!(reply.status, NfsStat4::IsDir | NfsStat4::BadStateId), "{}", reply.status);
}

#[test]
fn a_lock_stateid_reads_and_writes() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let stateid = granted(&mut client, &file, first_lock(&file, "ann", Write, 0, 10));
    client.write(&file.handle, stateid, 0, StableHow4::FileSync, b"data").unwrap();
    assert_eq!(&client.read(&file.handle, stateid, 0, 4).unwrap().data[..], b"data");
    // Locks are advisory: an open alone may write as well.
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"DATA").unwrap();
}

#[test]
fn an_old_lock_stateid_is_told_so() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let old = granted(&mut client, &file, first_lock(&file, "ann", Write, 0, 10));
    let new = granted(&mut client, &file, next_lock(old, Write, 10, 10));
    assert_eq!(lock(&mut client, &file, next_lock(old, Write, 20, 10)), Lock4Res::Err(NfsStat4::OldStateId));
    granted(&mut client, &file, next_lock(StateId4 { seqid: 0, ..new }, Write, 20, 10));
}

#[test]
fn a_lock_owner_that_has_a_stateid_is_recognized_by_a_further_open_to_lock() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let first = granted(&mut client, &file, first_lock(&file, "ann", Write, 0, 10));
    let second = granted(&mut client, &file, first_lock(&file, "ann", Write, 10, 10));
    assert_eq!(second.other, first.other);
}

#[test]
fn a_stateid_with_locks_cannot_be_freed_and_a_closed_file_holds_no_locks() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    let stateid = granted(&mut client, &file, first_lock(&file, "ann", Write, 0, 10));
    let free = |stateid| [NfsArgop4::FreeStateId(FreeStateId4Args { stateid })];
    assert_eq!(status_of(client.call(&free(stateid))), NfsStat4::LocksHeld);
    let mut other = server.client("other");
    let opened = other.create(&root, "file").unwrap();
    denied(&mut other, &opened, first_lock(&opened, "bob", Write, 0, 10));
    // RFC 8881 §18.2.3: the server may free the locks or refuse with LOCKS_HELD; then the client unlocks.
    if status_of(client.close(&file)) == NfsStat4::LocksHeld {
        client.call(&[ops::put_fh(&file.handle), unlock(stateid, 0, u64::MAX)]).unwrap();
        client.close(&file).unwrap();
    }
    granted(&mut other, &opened, first_lock(&opened, "bob", Write, 0, 10));
}

#[test]
fn an_unlocked_lock_stateid_can_be_freed() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let stateid = granted(&mut client, &file, first_lock(&file, "ann", Write, 0, 10));
    let reply = client.call(&[ops::put_fh(&file.handle), unlock(stateid, 0, u64::MAX)]).unwrap();
    let stateid = body!(reply, LockU).unwrap().lock_stateid;
    client.call(&[NfsArgop4::FreeStateId(FreeStateId4Args { stateid })]).unwrap();
    let freed = lock(&mut client, &file, next_lock(stateid, Write, 0, 1));
    assert_eq!(freed, Lock4Res::Err(NfsStat4::BadStateId));
}

#[test]
fn without_grace_no_lock_is_reclaimed() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let NfsArgop4::Lock(mut args) = first_lock(&file, "ann", Write, 0, 1) else { unreachable!("it is LOCK") };
    args.reclaim = true;
    assert_eq!(lock(&mut client, &file, NfsArgop4::Lock(args)), Lock4Res::Err(NfsStat4::NoGrace));
}

#[test]
fn one_of_many_that_want_the_same_range_gets_it() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    client.close(&file).unwrap();
    let won: Vec<bool> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..6)
            .map(|n| {
                let (root, head) = (&root, server.head());
                scope.spawn(move || {
                    let options = ClientOptions::named(&format!("racer{n}"));
                    let mut racer = NfsClient::connect(head, options).unwrap();
                    let file = racer.create(root, "file").unwrap();
                    let op = first_lock(&file, "owner", Write, 0, 1);
                    matches!(lock(&mut racer, &file, op), Lock4Res::Ok(_))
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
}

#[test]
fn the_locks_of_a_silent_client_are_free_after_its_lease() {
    let (_instance, server) = Server::start_with(Setup { lease_s: 2, ..Setup::default() });
    let (mut silent, root, file) = setup(&server);
    granted(&mut silent, &file, first_lock(&file, "ann", Write, 0, 10));
    let mut other = server.client("other");
    let opened = other.create(&root, "file").unwrap();
    let deadline = Instant::now() + Duration::from_secs(40);
    while matches!(lock(&mut other, &opened, first_lock(&opened, "bob", Write, 0, 10)), Lock4Res::Denied(_)) {
        assert!(Instant::now() < deadline, "the lock outlives its lease");
        std::thread::sleep(Duration::from_millis(50));
    }
}
