//! The questions that operations ask the namespace, and an OPEN that a removal overtakes.

use std::sync::Arc;
use std::time::Duration;

use api::{CreateKind, ExpectedEnds, ExpectedFile, Namespace, Replace};
use file_state::{DelegationKind, Holder};
use files::{Change, Files};
use forebay_door_nfs::{Export, Squash};
use nfs4::{
    NfsArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OpenClaim4, OpenFlag4,
};
use testkit::nfs_client::{NfsClient, ops};
use types::{FileId, Identity};

use crate::ground::{Ground, client, name, status_of};

const READING: u32 = OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
const EVERYTHING: u32 = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;

struct Scene {
    ground: Ground,
    files: Arc<Files>,
    client: NfsClient,
    root: NfsFh4,
}

impl Scene {
    fn set() -> Scene {
        let ground = Ground::new();
        let (door, files) = ground.door_and_table(vec![Export::of_everything(Squash::None)]);
        let mut client = client(door, "host");
        let root = client.root().unwrap();
        Scene { ground, files, client, root }
    }

    /// The questions of an operation on `start`, behind that of PUTFH.
    fn asked(&mut self, start: &NfsFh4, operation: NfsArgop4) -> (NfsStat4, Vec<&'static str>) {
        self.ground.names.take_asked();
        self.client.call(&[ops::put_fh(start)]).unwrap();
        let of_handle = self.ground.names.take_asked();
        let status = status_of(self.client.call(&[ops::put_fh(start), operation]));
        let mut asked = self.ground.names.take_asked();
        assert_eq!(asked.drain(..of_handle.len()).collect::<Vec<_>>(), of_handle);
        (status, asked)
    }

    fn open(&mut self, how: OpenFlag4, text: &str) -> (NfsStat4, Vec<&'static str>) {
        let root = self.root.clone();
        self.asked(&root, ops::open("owner", READING, how, text))
    }
}

#[test]
fn an_open_asks_the_namespace_once() {
    let mut scene = Scene::set();
    let file = scene.client.create(&scene.root, "file").unwrap().handle;
    assert_eq!(scene.open(OpenFlag4::NoCreate, "file"), (NfsStat4::Ok, vec!["lookup"]));
    assert_eq!(scene.open(OpenFlag4::NoCreate, "none"), (NfsStat4::NoEnt, vec!["lookup"]));
    assert_eq!(scene.open(ops::unchecked(0o644), "file"), (NfsStat4::Ok, vec!["create"]));
    assert_eq!(scene.open(ops::guarded(0o644), "new"), (NfsStat4::Ok, vec!["create"]));
    let by_handle = ops::open_claiming("owner", EVERYTHING, OpenFlag4::NoCreate, OpenClaim4::Fh);
    assert_eq!(scene.asked(&file, by_handle), (NfsStat4::Ok, vec!["attributes"]));
}

#[test]
fn a_lookup_asks_the_namespace_once() {
    let mut scene = Scene::set();
    let root = scene.root.clone();
    scene.client.create(&root, "file").unwrap();
    assert_eq!(scene.asked(&root, ops::lookup("file")), (NfsStat4::Ok, vec!["lookup"]));
    assert_eq!(scene.asked(&root, ops::lookup("none")), (NfsStat4::NoEnt, vec!["lookup"]));
}

#[test]
fn a_handle_of_no_directory_goes_before_all_that_is_wrong_with_an_open() {
    let mut scene = Scene::set();
    let root = scene.root.clone();
    let file = scene.client.create(&root, "file").unwrap().handle;
    let link = nfs4::CreateType4::Lnk(nfs4::LinkText4::from(bytes::Bytes::from_static(b"file")));
    let link = scene.client.create_object(&root, link, "link", 0o777).unwrap();
    for (start, status) in [(&file, NfsStat4::NotDir), (&link, NfsStat4::SymLink)] {
        for text in ["a", "", ".."] {
            for how in [OpenFlag4::NoCreate, ops::unchecked(0o644), ops::guarded(0o644)] {
                let open = ops::open("owner", READING, how.clone(), text);
                assert_eq!(scene.asked(start, open).0, status, "{text:?} {how:?}");
            }
            assert_eq!(scene.asked(start, ops::lookup(text)).0, status, "{text:?}");
        }
    }
}

#[test]
fn a_file_that_is_freed_while_it_is_opened_is_stale_and_not_open() {
    let mut scene = Scene::set();
    let file = scene.client.create(&scene.root, "file").unwrap();
    let id = scene.client.attributes(&file.handle, &[nfs4::attr::number::FILEID]).unwrap().fileid;
    let id = FileId(id.unwrap());
    scene.client.close(&file).unwrap();
    let (namespace, files) = (Arc::clone(&scene.ground.namespace), Arc::clone(&scene.files));
    scene.ground.names.behind_next("lookup", async move {
        namespace.unlink(&Identity::root(), FileId::ROOT, &name("file"), ExpectedFile::Any).await.unwrap();
        assert!(files.begin_freeing([id]).contains(&id));
    });
    assert_eq!(scene.open(OpenFlag4::NoCreate, "file"), (NfsStat4::Stale, vec!["lookup", "attributes"]));
    assert!(!scene.files.is_in_use(id));
}

#[test]
fn a_file_that_another_client_removes_while_it_is_opened_is_stale() {
    let mut scene = Scene::set();
    let file = scene.client.create(&scene.root, "file").unwrap();
    scene.client.close(&file).unwrap();
    let (namespace, files) = (Arc::clone(&scene.ground.namespace), Arc::clone(&scene.files));
    scene.ground.names.behind_next("lookup", async move {
        let removed = namespace
            .unlink(&Identity::root(), FileId::ROOT, &name("file"), ExpectedFile::Any)
            .await
            .unwrap();
        files.call_back(removed.attributes.file, None, Change::Remove);
    });
    assert_eq!(scene.open(OpenFlag4::NoCreate, "file").0, NfsStat4::Stale);
}

impl Scene {
    /// A file of its own, which another door's client has delegated: names have to be looked up before they change.
    fn delegate_another(&mut self) {
        let kind = CreateKind::Regular;
        let another = self.ground.make(FileId::ROOT, "another", kind, 0o644);
        let holder = Holder::of(self.files.register("another").unwrap(), 1);
        self.files
            .table()
            .delegations()
            .grant(another, holder, DelegationKind::Read, Duration::ZERO)
            .unwrap();
    }

    fn at(&self, text: &str) -> Option<FileId> {
        let (root, text) = (Identity::root(), name(text));
        let found = self.ground.namespace.lookup(&root, FileId::ROOT, &text);
        self.ground.runtime.block_on(found).ok().map(|found| found.entry.file)
    }
}

#[test]
fn a_removal_and_a_rename_ask_for_the_change_only_while_nobody_is_in_the_way() {
    let mut scene = Scene::set();
    let root = scene.root.clone();
    scene.ground.make(FileId::ROOT, "file", CreateKind::Regular, 0o644);
    scene.ground.names.take_asked();
    scene.client.rename((&root, "file"), (&root, "new")).unwrap();
    let asked = scene.ground.names.take_asked();
    assert_eq!(asked.iter().filter(|question| **question != "attributes").collect::<Vec<_>>(), [&"rename"]);
    let (status, asked) = scene.asked(&root, ops::remove("new"));
    assert_eq!((status, asked.last()), (NfsStat4::Ok, Some(&"unlink")));
    assert!(!asked.contains(&"lookup"), "{asked:?}");
}

#[test]
fn a_name_that_goes_to_another_file_before_it_is_removed_is_looked_up_again() {
    let mut scene = Scene::set();
    let root = scene.root.clone();
    let file = scene.ground.make(FileId::ROOT, "file", CreateKind::Regular, 0o644);
    scene.ground.make(FileId::ROOT, "other", CreateKind::Regular, 0o644);
    scene.delegate_another();
    let namespace = Arc::clone(&scene.ground.namespace);
    scene.ground.names.behind_next("lookup", async move {
        for (from, to) in [("file", "first"), ("other", "file")] {
            let (from, to) = (name(from), name(to));
            let ends = ((FileId::ROOT, &from), (FileId::ROOT, &to));
            let root = Identity::root();
            namespace.rename(&root, ends.0, ends.1, Replace::Never, ExpectedEnds::ANY).await.unwrap();
        }
    });
    let (status, asked) = scene.asked(&root, ops::remove("file"));
    assert_eq!(status, NfsStat4::Ok);
    let changes: Vec<_> = asked.iter().filter(|question| **question != "attributes").collect();
    assert_eq!(changes, [&"lookup", &"unlink", &"lookup", &"unlink"]);
    assert_eq!((scene.at("file"), scene.at("other"), scene.at("first")), (None, None, Some(file)));
}

#[test]
fn errors_of_a_removal_and_a_rename_are_the_same_whether_names_are_looked_up_or_not() {
    for is_looked_up in [false, true] {
        let mut scene = Scene::set();
        let root = scene.root.clone();
        scene.ground.make(FileId::ROOT, "file", CreateKind::Regular, 0o644);
        let full = scene.ground.make(FileId::ROOT, "full", CreateKind::Directory, 0o755);
        scene.ground.make(full, "member", CreateKind::Regular, 0o644);
        if is_looked_up {
            scene.delegate_another();
        }
        let client = &mut scene.client;
        assert_eq!(status_of(client.remove(&root, "none")), NfsStat4::NoEnt);
        assert_eq!(status_of(client.remove(&root, "full")), NfsStat4::NotEmpty);
        let mut rename = |from, to| status_of(client.rename((&root, from), (&root, to)));
        assert_eq!(rename("none", "file"), NfsStat4::NoEnt);
        assert_eq!(rename("file", "full"), NfsStat4::Exist);
        assert_eq!(rename("full", "file"), NfsStat4::Exist);
        assert_eq!(rename("file", "file"), NfsStat4::Ok);
    }
}
