//! The questions that operations ask the namespace, and an OPEN that a removal overtakes.

use std::sync::Arc;

use api::{ExpectedFile, Namespace};
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
