//! CB_NOTIFY_LOCK as clients meet it (RFC 8881 §20.11): a client that waits for a lock is notified of its release.

use std::net::SocketAddr;
use std::time::Duration;

use forebay_door_nfs::{Export, Squash};
use nfs4::{
    CbNotifyLock4Args, Lock4Args, Lock4Res, LockU4Args, Locker4, NfsArgop4, NfsCbArgop4, NfsFh4,
    NfsLockType4, NfsResop4, NfsStat4, OPEN4_RESULT_MAY_NOTIFY_LOCK, OpenToLockOwner4, StateId4,
};
use testkit::nfs_client::{Answer, ClientOptions, NfsClient, OpenFile, ops};

use crate::ground::{Ground, client};

/// For what comes at once or after a moment, on however busy a machine.
const LONG: Duration = Duration::from_secs(60);

/// A client with the file open.
struct Host {
    client: NfsClient,
    file: OpenFile,
}

impl Host {
    fn new(door: SocketAddr, name: &str) -> Host {
        Host::of(client(door, name))
    }

    fn of(mut client: NfsClient) -> Host {
        let root: NfsFh4 = client.root().unwrap();
        let file = client.create(&root, "file").unwrap();
        Host { client, file }
    }

    /// The stateid of the lock; `None`: it was refused.
    fn lock(&mut self, owner: &str, locktype: NfsLockType4) -> Option<StateId4> {
        let locker = Locker4::New(OpenToLockOwner4 {
            open_seqid: 0,
            open_stateid: self.file.stateid,
            lock_seqid: 0,
            lock_owner: ops::owner(owner),
        });
        let lock = Lock4Args { locktype, reclaim: false, offset: 0, length: 10, locker };
        let put = ops::put_fh(&self.file.handle);
        let reply = self.client.compound(&[put, NfsArgop4::Lock(lock)]).unwrap();
        match reply.results.last() {
            Some(NfsResop4::Lock(Lock4Res::Ok(granted))) => Some(granted.lock_stateid),
            Some(NfsResop4::Lock(Lock4Res::Denied(_))) => None,
            other => panic!("{other:?}"),
        }
    }

    fn unlock(&mut self, lock_stateid: StateId4) {
        let locktype = NfsLockType4::Write;
        let unlock = LockU4Args { locktype, seqid: 0, lock_stateid, offset: 0, length: 10 };
        self.client.call(&[ops::put_fh(&self.file.handle), NfsArgop4::LockU(unlock)]).unwrap();
    }

    /// The next callback, which is of a lock.
    fn notice(&self) -> CbNotifyLock4Args {
        let compound = self.client.callbacks.wait(LONG).expect("a callback comes");
        match compound.argarray.into_iter().next_back() {
            Some(NfsCbArgop4::NotifyLock(notice)) => notice,
            other => panic!("{other:?}"),
        }
    }
}

struct Scene {
    /// It goes with the scene.
    _ground: Ground,
    door: SocketAddr,
    holder: Host,
    held: StateId4,
}

impl Scene {
    fn set() -> Scene {
        let ground = Ground::new();
        let door = ground.door(vec![Export::of_everything(Squash::None)]);
        let mut holder = Host::new(door, "holder");
        let held = holder.lock("ann", NfsLockType4::Write).unwrap();
        Scene { _ground: ground, door, holder, held }
    }
}

use NfsLockType4::{Write, WriteW};

#[test]
fn a_client_that_waits_for_a_lock_is_notified_when_it_is_released() {
    let mut scene = Scene::set();
    let mut waiter = Host::new(scene.door, "waiter");
    assert_ne!(waiter.file.opened.rflags & OPEN4_RESULT_MAY_NOTIFY_LOCK, 0, "it may rely on it");
    assert_eq!(waiter.lock("bob", WriteW), None);
    scene.holder.unlock(scene.held);
    let notice = waiter.notice();
    assert_eq!(notice.fh, waiter.file.handle);
    assert_eq!(notice.lock_owner.clientid, waiter.client.exchanged.clientid);
    assert_eq!(&notice.lock_owner.owner[..], b"bob", "Linux finds the sleeper by these bytes");
    assert!(waiter.lock("bob", WriteW).is_some());
    assert!(scene.holder.client.callbacks.seen().is_empty());
}

#[test]
fn the_end_of_an_open_and_of_a_client_tell_too() {
    let scene = Scene::set();
    let mut holder = scene.holder;
    let mut waiter = Host::new(scene.door, "waiter");
    assert_eq!(waiter.lock("bob", WriteW), None);
    holder.client.close(&holder.file).unwrap();
    waiter.notice();
    assert!(waiter.lock("bob", WriteW).is_some());

    let mut last = Host::new(scene.door, "last");
    assert_eq!(last.lock("cid", WriteW), None);
    // Another boot of the same host: its former state is gone.
    let options = ClientOptions::named("waiter").verifier(*b"boot 002");
    Host::of(NfsClient::connect(scene.door, options).unwrap());
    last.notice();
    assert!(last.lock("cid", WriteW).is_some());
}

#[test]
fn a_client_that_cannot_be_called_is_promised_nothing() {
    let scene = Scene::set();
    let options = ClientOptions { has_back_channel: false, ..ClientOptions::named("deaf") };
    let deaf = Host::of(NfsClient::connect(scene.door, options).unwrap());
    assert_eq!(deaf.file.opened.rflags & OPEN4_RESULT_MAY_NOTIFY_LOCK, 0);
}

#[test]
fn the_first_waiter_is_notified_first_and_a_client_that_only_tries_is_not() {
    let mut scene = Scene::set();
    let [mut first, mut second, mut trier] =
        ["first", "second", "trier"].map(|name| Host::new(scene.door, name));
    assert_eq!(trier.lock("dan", Write), None);
    assert_eq!(first.lock("bob", WriteW), None);
    assert_eq!(second.lock("cid", WriteW), None);
    scene.holder.unlock(scene.held);
    first.notice();
    let held = first.lock("bob", WriteW).unwrap();
    assert!(second.client.callbacks.seen().is_empty(), "it would come in vain");
    first.unlock(held);
    second.notice();
    assert!(trier.client.callbacks.seen().is_empty());
}

#[test]
fn a_waiter_that_does_not_answer_loses_its_turn_to_the_next() {
    let mut scene = Scene::set();
    let [mut gone, mut silent, mut next] = ["gone", "silent", "next"].map(|name| Host::new(scene.door, name));
    assert_eq!(gone.lock("bob", WriteW), None);
    assert_eq!(silent.lock("cid", WriteW), None);
    assert_eq!(next.lock("dan", WriteW), None);
    gone.client.callbacks.answer_always(Answer::Status(NfsStat4::BadHandle));
    silent.client.callbacks.answer_always(Answer::Silence);
    scene.holder.unlock(scene.held);
    next.notice();
    assert!(next.lock("dan", WriteW).is_some());
}
