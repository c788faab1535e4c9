//! Two doors at one conflict table: this one, spoken to as a client might, and another that is played by the test.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use api::{ExpectedEnds, Namespace, Replace};
use file_state::{Door, Holder};
use files::{Change, Files, FilesError, Modes, OpenFile, Share};
use forebay_door_nfs::{Export, Squash};
use nfs4::{
    FfLayoutReturn4, LayoutIomode4, NfsArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OPEN4_SHARE_DENY_WRITE, Open4Args,
    OpenClaim4, OpenFlag4,
};
use testkit::nfs_client::{Answer, NfsClient, ops};
use types::{FileId, Identity};

use crate::ground::{Ground, LONG, client, name, status_of};

/// A client of the door that is registered behind the door under test.
const FOREIGN: Holder = Holder::of(Door::numbered(1), 1);
const SHORT: Duration = Duration::from_millis(50);
const READING: Share = Share { access: Modes::READ, deny: Modes::NONE };

struct Scene {
    files: Arc<Files>,
    client: NfsClient,
    root: NfsFh4,
    ground: Ground,
}

impl Scene {
    fn set() -> Scene {
        let ground = Ground::new();
        let (door, files) = ground.door_and_table(vec![Export::of_everything(Squash::None)]);
        assert_eq!(files.register("another"), Ok(FOREIGN.door));
        let mut client = client(door, "host");
        let root = client.root().unwrap();
        Scene { files, client, root, ground }
    }

    fn file(&mut self, name: &str) -> (testkit::nfs_client::OpenFile, FileId) {
        let file = self.client.create(&self.root, name).unwrap();
        let id = self.client.attributes(&file.handle, &[nfs4::attr::number::FILEID]).unwrap().fileid;
        (file, FileId(id.unwrap()))
    }

    fn replace(&self, file: FileId, patience: Duration) -> Result<(), FilesError> {
        let change = self.files.before_change(file, Some(FOREIGN), Change::Replace, patience);
        self.ground.runtime.block_on(change).map(drop)
    }

    /// As a WebDAV lock does.
    fn lock(&self, file: FileId) -> OpenFile {
        let share = Share::new(Modes::NONE, Modes::WRITE);
        let (lock, _) = self.ground.runtime.block_on(self.files.open(file, FOREIGN, share)).unwrap();
        lock
    }
}

#[test]
fn nothing_is_denied_to_others_while_pools_take_tickets_to_write_of_before() {
    let ground = Ground::new();
    ground.former_tickets.fails.store(true, Ordering::Relaxed);
    let (door, files) = ground.door_and_table(vec![Export::of_everything(Squash::None)]);
    let mut client = client(door, "host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    let denying = |owner: &str| {
        NfsArgop4::Open(Open4Args {
            seqid: 0,
            share_access: OPEN4_SHARE_ACCESS_READ,
            share_deny: OPEN4_SHARE_DENY_WRITE,
            owner: ops::owner(owner),
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::Fh,
        })
    };
    client.close(&file).unwrap();
    assert_eq!(status_of(client.open_by(&file.handle, denying("first"))), NfsStat4::Delay);
    assert!(matches!(files.before_denial(), Err(FilesError::Recalled)), "of another door");
    client.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH).unwrap();
    ground.former_tickets.fails.store(false, Ordering::Relaxed);
    let deadline = Instant::now() + LONG;
    while files.before_denial().is_err() {
        assert!(Instant::now() < deadline, "it is not tried again");
        std::thread::sleep(SHORT);
    }
    assert_eq!(ground.former_tickets.voided.load(Ordering::Relaxed), 1);
}

#[test]
fn another_door_replaces_a_file_when_the_layouts_of_it_have_come_back() {
    let mut scene = Scene::set();
    let (file, id) = scene.file("file");
    let layout = scene.client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
    assert!(matches!(scene.replace(id, SHORT), Err(FilesError::Recalled)));
    let recall = scene.client.callbacks.wait_for_layout_recall(LONG).expect("a recall comes");
    let nfs4::LayoutRecall4::File(recalled) = recall.recall else { panic!("{recall:?}") };
    assert_eq!(recalled.fh, file.handle);
    assert_eq!(recalled.stateid.other, layout.stateid.other);
    assert_eq!(recalled.stateid.seqid, layout.stateid.seqid + 1, "as for a change by another client");
    let report = FfLayoutReturn4::default();
    scene.client.layout_return(&file.handle, recalled.stateid, &report).unwrap();
    scene.replace(id, LONG).unwrap();
}

#[test]
fn a_change_that_waits_goes_on_with_the_return() {
    let mut scene = Scene::set();
    let (file, id) = scene.file("file");
    scene.client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
    let files = Arc::clone(&scene.files);
    let change = scene
        .ground
        .runtime
        .spawn(async move { files.before_change(id, Some(FOREIGN), Change::Replace, LONG).await });
    scene.client.callbacks.wait_for_layout_recall(LONG).expect("a recall comes");
    // The last close returns it too.
    scene.client.close(&file).unwrap();
    drop(scene.ground.runtime.block_on(change).unwrap().unwrap());
}

#[test]
fn another_door_sees_the_size_that_a_client_has_not_written_yet() {
    let mut scene = Scene::set();
    let wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let how = testkit::nfs_client::ops::unchecked(0o644);
    let file = scene.client.open_as(&scene.root, "file", "owner", wanted, how).unwrap();
    let nfs4::OpenDelegation4::Write(granted) = &file.opened.delegation else { panic!("{file:?}") };
    let known = [nfs4::attr::number::FILEID, nfs4::attr::number::CHANGE];
    let known = scene.client.attributes(&file.handle, &known).unwrap();
    let id = FileId(known.fileid.unwrap());
    let (size, change) = (Some(9_000), known.change.map(|change| change + 1));
    scene.client.callbacks.keep_attributes(nfs4::FileAttributes { size, change, ..Default::default() });
    let look = || {
        let found = scene.ground.runtime.block_on(scene.files.attributes(id)).unwrap();
        let mut patience = files::Patience::default();
        scene.ground.runtime.block_on(scene.files.listed_for(found, None, &mut patience)).unwrap()
    };
    let (first, second) = (look(), look());
    assert_eq!((first.size, second.size), (9_000, 9_000));
    assert!(Some(first.change) > known.change && second.change > first.change);
    // A request that is about to read waits for the bytes.
    let way = scene.files.before_change(id, Some(FOREIGN), Change::Access(READING), SHORT);
    assert!(matches!(scene.ground.runtime.block_on(way).map(drop), Err(FilesError::Recalled)));
    assert_eq!(scene.client.callbacks.wait_for_recall(LONG).unwrap().stateid, granted.stateid);
}

#[test]
fn a_writer_is_asked_only_for_attributes_that_its_writes_may_have_changed() {
    let mut scene = Scene::set();
    let wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG;
    let how = testkit::nfs_client::ops::unchecked(0o644);
    let file = scene.client.open_as(&scene.root, "file", "owner", wanted, how).unwrap();
    assert!(matches!(file.opened.delegation, nfs4::OpenDelegation4::Write(_)), "{file:?}");
    let change = scene.client.change(&file.handle).unwrap();
    let (size, change) = (Some(9_000), Some(change + 1));
    scene.client.callbacks.keep_attributes(nfs4::FileAttributes { size, change, ..Default::default() });
    let mut other = client(scene.client.server(), "other");
    let list = |other: &mut NfsClient, numbers: &[u32]| {
        let list = testkit::nfs_client::ops::read_dir(0, 4096, numbers);
        let reply = other.call(&[testkit::nfs_client::ops::put_fh(&scene.root), list]).unwrap();
        let listed = testkit::body!(reply, ReadDir).unwrap();
        nfs4::FileAttributes::decode(&listed.entries[0].attrs).unwrap()
    };
    use nfs4::attr::number;
    assert!(list(&mut other, &[number::FILEID, number::TYPE, number::MODE]).fileid.is_some());
    assert!(other.attributes(&file.handle, &[number::MODE]).unwrap().mode.is_some());
    assert!(scene.client.callbacks.seen().is_empty());
    assert_eq!(list(&mut other, &[number::SIZE]).size, size);
    assert_eq!(scene.client.callbacks.seen().len(), 1);
}

#[test]
fn a_client_that_knows_of_no_layout_is_not_waited_for() {
    let mut scene = Scene::set();
    let (file, id) = scene.file("file");
    scene.client.layout_get(&file.handle, file.stateid, LayoutIomode4::Read).unwrap();
    scene.client.callbacks.answer_always(Answer::Status(NfsStat4::NoMatchingLayout));
    scene.replace(id, LONG).unwrap();
}

/// Of the file that had the name first nobody has anything.
#[test]
fn a_locked_file_that_gets_a_name_while_that_is_removed_or_moved_keeps_it() {
    for is_rename in [false, true] {
        let mut scene = Scene::set();
        let root = scene.root.clone();
        let (first, _) = scene.file("file");
        scene.client.close(&first).unwrap();
        let (other, id) = scene.file("other");
        scene.client.close(&other).unwrap();
        let _lock = scene.lock(id);
        let namespace = Arc::clone(&scene.ground.namespace);
        scene.ground.names.behind_next("lookup", async move {
            for (from, to) in [("file", "away"), ("other", "file")] {
                let (who, from, to) = (Identity::root(), name(from), name(to));
                let ends = ((FileId::ROOT, &from), (FileId::ROOT, &to));
                namespace.rename(&who, ends.0, ends.1, Replace::Never, ExpectedEnds::ANY).await.unwrap();
            }
        });
        let refused = match is_rename {
            true => status_of(scene.client.rename((&root, "file"), (&root, "new"))),
            false => status_of(scene.client.remove(&root, "file")),
        };
        assert_eq!(refused, NfsStat4::FileOpen);
        assert!(!scene.ground.names.cancel(), "the name went meanwhile");
        assert_eq!(scene.client.lookup(&root, "file").unwrap(), other.handle);
    }
}

#[test]
fn names_and_bytes_of_a_file_that_another_door_has_locked_stay() {
    let mut scene = Scene::set();
    let root = scene.root.clone();
    let (file, id) = scene.file("file");
    scene.client.close(&file).unwrap();
    let (other, _) = scene.file("other");
    scene.client.close(&other).unwrap();
    let lock = scene.lock(id);
    let client = &mut scene.client;
    assert_eq!(status_of(client.remove(&root, "file")), NfsStat4::FileOpen);
    assert_eq!(status_of(client.rename((&root, "file"), (&root, "elsewhere"))), NfsStat4::FileOpen);
    assert_eq!(status_of(client.rename((&root, "other"), (&root, "file"))), NfsStat4::FileOpen);
    let for_writing = client.open(&root, "file", OPEN4_SHARE_ACCESS_BOTH);
    assert_eq!(status_of(for_writing), NfsStat4::ShareDenied);
    let size = client.set_size(&file.handle, nfs4::StateId4::ANONYMOUS, 0);
    assert_eq!(status_of(size), NfsStat4::Locked);
    assert!(client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).is_ok(), "reading is not denied");
    assert_eq!(status_of(client.rename((&root, "other"), (&root, "third"))), NfsStat4::Ok);
    assert_eq!(status_of(client.remove(&root, "missing")), NfsStat4::NoEnt);
    drop(lock);
    assert_eq!(status_of(client.rename((&root, "third"), (&root, "file"))), NfsStat4::Ok);
    assert_eq!(status_of(client.remove(&root, "file")), NfsStat4::Ok);
}

#[test]
fn another_door_hears_that_a_directory_has_moved_and_that_nothing_has() {
    let mut scene = Scene::set();
    let root = scene.root.clone();
    scene.client.mkdir(&root, "dir", 0o755).unwrap();
    let before = scene.files.moves();
    assert_eq!(status_of(scene.client.rename((&root, "missing"), (&root, "moved"))), NfsStat4::NoEnt);
    assert_eq!(scene.files.moves(), before);
    scene.client.rename((&root, "dir"), (&root, "moved")).unwrap();
    assert_ne!(scene.files.moves(), before);
}

#[test]
fn a_file_that_a_client_has_open_for_writing_is_not_locked_by_another_door() {
    let mut scene = Scene::set();
    let (file, id) = scene.file("file");
    let share = Share::new(Modes::NONE, Modes::WRITE);
    let refused = scene.ground.runtime.block_on(scene.files.open(id, FOREIGN, share)).map(|_| ());
    assert!(matches!(refused, Err(FilesError::Denied)));
    assert!(scene.files.table().file(id).is_open_for_writing());
    scene.client.close(&file).unwrap();
    drop(scene.lock(id));
}

#[test]
fn a_file_that_only_another_door_still_holds_can_be_opened_by_its_handle_until_that_ends() {
    let mut scene = Scene::set();
    let root = scene.root.clone();
    let (file, id) = scene.file("file");
    scene.client.close(&file).unwrap();
    let share = Share::new(Modes::READ, Modes::NONE);
    let (held, _) = scene.ground.runtime.block_on(scene.files.open(id, FOREIGN, share)).unwrap();
    scene.client.remove(&root, "file").unwrap();
    let by_handle = || {
        let claim = nfs4::OpenClaim4::Fh;
        let how = nfs4::OpenFlag4::NoCreate;
        testkit::nfs_client::ops::open_claiming("owner", OPEN4_SHARE_ACCESS_READ, how, claim)
    };
    let opened = scene.client.open_by(&file.handle, by_handle()).unwrap();
    scene.client.close(&opened).unwrap();
    drop(held);
    assert_eq!(status_of(scene.client.open_by(&file.handle, by_handle())), NfsStat4::Stale);
}

#[test]
fn a_grace_period_without_length_is_over_before_anybody_asks() {
    let mut scene = Scene::set();
    // The client is on record from here on: the next door over the same namespace knows it.
    scene.file("file");
    let (door, _) = scene.ground.door_and_table(vec![Export::of_everything(Squash::None)]);
    let mut next = client(door, "another host");
    let root = next.root().unwrap();
    assert_eq!(status_of(next.open(&root, "file", OPEN4_SHARE_ACCESS_READ)), NfsStat4::Ok);
}
