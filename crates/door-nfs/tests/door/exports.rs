//! Exports as clients meet them: files outside of them do not exist, whatever handles the clients hold.

use std::net::SocketAddr;

use api::CreateKind;
use forebay_door_nfs::{Export, ExportRules, Flavors, Hosts, Squash};
use nfs4::attr::{Principal4, number};
use nfs4::{
    ACCESS4_MODIFY, ACCESS4_READ, CreateType4, FileAttributes, LayoutIomode4, NfsArgop4, NfsFh4, NfsStat4,
    OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, StableHow4, StateId4,
};
use oncrpc::{AuthStat, RejectedReply, ReplyBody};
use testkit::body;
use testkit::nfs_client::{ClientError, ClientOptions, NfsClient, OpenFile, ops};
use types::FileId;

use crate::ground::{Ground, client, name, status_of};

const ROOT: FileId = FileId::ROOT;

fn export(path: &[&str], hosts: Hosts, rules: ExportRules) -> Export {
    Export { path: path.iter().map(|text| name(text)).collect(), hosts: vec![hosts], rules }
}

fn rules(is_read_only: bool, squash: Squash) -> ExportRules {
    ExportRules { is_read_only, squash, anonymous: (77, 78), flavors: Flavors::SYS }
}

/// `/a` (0700), `/a/secret`, `/a/b`, `/a/b/file`, `/a/b/dir`, `/other`.
struct Scene {
    ground: Ground,
    /// A client that has everything.
    all: NfsClient,
    root: NfsFh4,
    a: NfsFh4,
    b: NfsFh4,
}

impl Scene {
    fn set() -> Scene {
        let ground = Ground::new();
        let a = ground.make(ROOT, "a", CreateKind::Directory, 0o700);
        ground.make(a, "secret", CreateKind::Regular, 0o644);
        let b = ground.make(a, "b", CreateKind::Directory, 0o777);
        ground.make(b, "file", CreateKind::Regular, 0o666);
        ground.make(b, "dir", CreateKind::Directory, 0o755);
        ground.make(ROOT, "other", CreateKind::Directory, 0o755);
        let mut all = client(ground.door(vec![Export::of_everything(Squash::None)]), "all");
        let root = all.root().unwrap();
        let a = all.lookup(&root, "a").unwrap();
        let b = all.lookup(&a, "b").unwrap();
        Scene { ground, all, root, a, b }
    }

    fn door(&self, exports: Vec<Export>) -> SocketAddr {
        self.ground.door(exports)
    }

    /// A client that has `/a/b` alone.
    fn below(&self, rules: ExportRules) -> NfsClient {
        client(self.door(vec![export(&["a", "b"], Hosts::Any, rules)]), "below")
    }

    fn open(&mut self, dir: &NfsFh4, name: &str) -> OpenFile {
        self.all.create(dir, name).unwrap()
    }
}

fn names(client: &mut NfsClient, dir: &NfsFh4) -> Vec<String> {
    let entries = client.list(dir, 4096).unwrap();
    entries.iter().map(|entry| String::from_utf8_lossy(entry.name.as_bytes()).into_owned()).collect()
}

fn reaches(client: &mut NfsClient, handle: &NfsFh4) -> NfsStat4 {
    status_of(client.attributes(handle, &[number::TYPE]))
}

fn owner(client: &mut NfsClient, handle: &NfsFh4) -> Option<u32> {
    client.attributes(handle, &[number::OWNER]).unwrap().owner.and_then(|owner| owner.as_numeric())
}

#[test]
fn a_host_that_has_nothing_is_refused_before_it_has_a_client_id() {
    let scene = Scene::set();
    let elsewhere = Hosts::Network("192.0.2.1".parse().unwrap());
    let door = scene.door(vec![export(&[], elsewhere, rules(false, Squash::None))]);
    match NfsClient::connect(door, ClientOptions::named("stranger")).map(|_| ()) {
        Err(ClientError::Rpc(body)) => {
            assert_eq!(body, ReplyBody::Denied(RejectedReply::AuthError(AuthStat::TooWeak)));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pseudo_root_leads_to_the_export_and_shows_nothing_else() {
    let scene = Scene::set();
    let mut below = scene.below(rules(false, Squash::Root));
    let root = below.root().unwrap();
    assert_eq!(names(&mut below, &root), ["a"]);
    assert_eq!(status_of(below.lookup(&root, "other")), NfsStat4::NoEnt);
    let a = below.lookup(&root, "a").unwrap();
    assert_eq!(names(&mut below, &a), ["b"]);
    assert_eq!(status_of(below.lookup(&a, "secret")), NfsStat4::NoEnt);
    let mode = below.attributes(&a, &[number::MODE]).unwrap().mode;
    assert_eq!(mode, Some(0o555), "whatever the mode of what lies there");
    let b = below.lookup(&a, "b").unwrap();
    assert_eq!(names(&mut below, &b), ["file", "dir"]);
    assert_eq!(b, scene.b, "one file, one handle");

    for dir in [&root, &a] {
        assert_eq!(status_of(below.mkdir(dir, "new", 0o755)), NfsStat4::RoFs);
        assert_eq!(status_of(below.create(dir, "new")), NfsStat4::RoFs);
        assert_eq!(status_of(below.remove(dir, "b")), NfsStat4::RoFs);
    }
    assert_eq!(status_of(below.open(&a, "secret", OPEN4_SHARE_ACCESS_READ)), NfsStat4::NoEnt);
    assert_eq!(status_of(below.open(&a, "b", OPEN4_SHARE_ACCESS_READ)), NfsStat4::IsDir);
    assert_eq!(status_of(below.open(&a, "b", OPEN4_SHARE_ACCESS_BOTH)), NfsStat4::IsDir);
    assert_eq!(status_of(below.create(&a, "b")), NfsStat4::IsDir);
    let up = |from: &NfsFh4| [ops::put_fh(from), NfsArgop4::LookupP, NfsArgop4::GetFh];
    let reply = below.call(&up(&b)).unwrap();
    assert_eq!(body!(reply, GetFh).unwrap().object, a);
    let reply = below.call(&up(&a)).unwrap();
    assert_eq!(body!(reply, GetFh).unwrap().object, root);
}

#[test]
fn a_pseudo_directory_is_listed_in_pages_without_names_that_are_gone() {
    let mut scene = Scene::set();
    let open = rules(false, Squash::None);
    let ways: [&[&str]; 3] = [&["a", "b"], &["other"], &["third"]];
    scene.ground.make(ROOT, "third", CreateKind::Directory, 0o755);
    let exports = ways.map(|path| export(path, Hosts::Any, open)).into();
    let mut ways = client(scene.door(exports), "ways");
    let root = ways.root().unwrap();
    let mut page = |cookie| {
        let wanted = [ops::put_fh(&root), ops::read_dir(cookie, 80, &[number::FILEID])];
        let listed = body!(ways.call(&wanted).unwrap(), ReadDir).unwrap();
        let names = listed.entries.iter().map(|entry| (entry.name.as_bytes().to_vec(), entry.cookie));
        (names.collect::<Vec<_>>(), listed.eof)
    };
    assert_eq!(page(0), (vec![(b"a".to_vec(), 3)], false));
    assert_eq!(page(3), (vec![(b"other".to_vec(), 4)], false));
    assert_eq!(page(4), (vec![(b"third".to_vec(), 5)], true));
    assert_eq!(page(5), (vec![], true));
    scene.all.remove(&scene.root.clone(), "other").unwrap();
    assert_eq!(names(&mut ways, &root), ["a", "third"]);
}

#[test]
fn the_way_to_an_export_is_a_file_system_of_its_own() {
    let scene = Scene::set();
    let mut below = scene.below(rules(false, Squash::Root));
    let mut fsid = |handle: &NfsFh4| below.attributes(handle, &[number::FSID]).unwrap().fsid.unwrap();
    let (root, a, b) = (fsid(&scene.root), fsid(&scene.a), fsid(&scene.b));
    assert_eq!(root, a);
    assert_ne!(a, b, "Linux sees a mount point here");
    let mut all = client(scene.door(vec![Export::of_everything(Squash::None)]), "all of it");
    let whole = all.attributes(&scene.root, &[number::FSID]).unwrap().fsid.unwrap();
    assert_eq!(whole, b, "a file is in the same file system, whatever leads to it");
    // As the entry of a pseudo directory too.
    let mut of_entry = |dir: &NfsFh4| {
        let wanted = [ops::put_fh(dir), ops::read_dir(0, 4096, &[number::FSID])];
        let entries = body!(below.call(&wanted).unwrap(), ReadDir).unwrap().entries;
        FileAttributes::decode(&entries[0].attrs).unwrap().fsid.unwrap()
    };
    assert_eq!((of_entry(&scene.root), of_entry(&scene.a)), (a, b));
}

#[test]
fn a_handle_from_elsewhere_opens_nothing_outside_of_the_exports() {
    let mut scene = Scene::set();
    let (root, a, b) = (scene.root.clone(), scene.a.clone(), scene.b.clone());
    let secret = scene.all.lookup(&a, "secret").unwrap();
    let other = scene.all.lookup(&root, "other").unwrap();
    let file = scene.all.lookup(&b, "file").unwrap();
    let dir = scene.all.lookup(&b, "dir").unwrap();
    let mut below = scene.below(rules(false, Squash::None));
    assert_eq!(reaches(&mut below, &secret), NfsStat4::Stale);
    assert_eq!(reaches(&mut below, &other), NfsStat4::Stale);
    assert_eq!(reaches(&mut below, &file), NfsStat4::Ok);
    assert_eq!(reaches(&mut below, &dir), NfsStat4::Ok);
    // A directory moved out of the export is unreachable at once, and so is all below it.
    let inner = scene.all.mkdir(&dir, "inner", 0o755).unwrap();
    assert_eq!(reaches(&mut below, &inner), NfsStat4::Ok);
    scene.all.rename((&b, "dir"), (&other, "dir")).unwrap();
    assert_eq!(reaches(&mut below, &inner), NfsStat4::Stale);
    scene.all.rename((&a, "secret"), (&b, "told")).unwrap();
    assert_eq!(reaches(&mut below, &secret), NfsStat4::Ok);
}

#[test]
fn a_file_of_several_names_is_reached_where_any_of_them_is() {
    let mut scene = Scene::set();
    let (a, b) = (scene.a.clone(), scene.b.clone());
    let secret = scene.all.lookup(&a, "secret").unwrap();
    scene.all.link(&secret, &b, "link").unwrap();
    let mut below = scene.below(rules(false, Squash::None));
    assert_eq!(below.lookup(&b, "link").unwrap(), secret);
    assert_eq!(reaches(&mut below, &secret), NfsStat4::Ok);
    scene.all.remove(&b, "link").unwrap();
    assert_eq!(reaches(&mut below, &secret), NfsStat4::Stale);
}

#[test]
fn a_file_that_lost_its_last_name_stays_for_a_client_that_has_it_open() {
    let mut scene = Scene::set();
    let b = scene.b.clone();
    let door = scene.door(vec![export(&["a", "b"], Hosts::Any, rules(false, Squash::None))]);
    let (mut holder, mut other) = (client(door, "holder"), client(door, "other"));
    let open = holder.create(&b, "file").unwrap();
    scene.all.remove(&b, "file").unwrap();
    assert_eq!(reaches(&mut holder, &open.handle), NfsStat4::Ok);
    assert_eq!(reaches(&mut other, &open.handle), NfsStat4::Stale);
    holder.close(&open).unwrap();
    assert_eq!(reaches(&mut holder, &open.handle), NfsStat4::Stale);
}

#[test]
fn a_file_without_a_name_is_judged_by_the_strictest_export_unless_it_is_open_to_write() {
    let mut scene = Scene::set();
    let b = scene.b.clone();
    let exports = vec![
        export(&["other"], Hosts::Any, rules(false, Squash::None)),
        export(&["a", "b"], Hosts::Any, rules(true, Squash::None)),
    ];
    let mut host = client(scene.door(exports), "host");
    let root = scene.root.clone();
    let other = scene.all.lookup(&root, "other").unwrap();
    scene.all.create(&other, "mine").unwrap();
    let mode = FileAttributes { mode: Some(0o600), ..FileAttributes::default() };
    let any = StateId4::ANONYMOUS;

    let read = host.open(&b, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    scene.all.remove(&b, "file").unwrap();
    assert_eq!(reaches(&mut host, &read.handle), NfsStat4::Ok);
    assert_eq!(status_of(host.set_attributes(&read.handle, any, &mode)), NfsStat4::RoFs);

    let written = host.open(&other, "mine", OPEN4_SHARE_ACCESS_BOTH).unwrap();
    scene.all.remove(&other, "mine").unwrap();
    assert_eq!(status_of(host.set_attributes(&written.handle, any, &mode)), NfsStat4::Ok);
}

#[test]
fn a_commit_in_a_read_only_export_is_refused_and_changes_nothing() {
    let scene = Scene::set();
    let b = scene.b.clone();
    let mut reader = scene.below(rules(true, Squash::None));
    let file = reader.lookup(&b, "file").unwrap();
    let before = reader.attributes(&file, &[number::CHANGE]).unwrap();
    assert_eq!(status_of(reader.commit(&file)), NfsStat4::RoFs);
    assert_eq!(reader.attributes(&file, &[number::CHANGE]).unwrap().change, before.change);
}

#[test]
fn a_read_only_export_refuses_every_change() {
    let mut scene = Scene::set();
    let b = scene.b.clone();
    let written = scene.open(&b, "file");
    let door = scene.door(vec![export(&[], Hosts::Any, rules(true, Squash::None))]);
    let mut reader = client(door, "reader");
    let file = written.handle.clone();
    let mode = FileAttributes { mode: Some(0o600), ..FileAttributes::default() };
    let any = StateId4::ANONYMOUS;
    for (what, outcome) in [
        ("OPEN", status_of(reader.open(&b, "file", OPEN4_SHARE_ACCESS_BOTH))),
        ("OPEN to create", status_of(reader.create(&b, "new"))),
        ("CREATE", status_of(reader.mkdir(&b, "new", 0o755))),
        ("CREATE of a fifo", status_of(reader.create_object(&b, CreateType4::Fifo, "new", 0o755))),
        ("REMOVE", status_of(reader.remove(&b, "file"))),
        ("RENAME", status_of(reader.rename((&b, "file"), (&b, "new")))),
        ("LINK", status_of(reader.link(&file, &b, "new"))),
        ("SETATTR", status_of(reader.set_attributes(&file, any, &mode))),
        ("SETATTR of the size", status_of(reader.set_size(&file, any, 0))),
        ("WRITE", status_of(reader.write(&file, any, 0, StableHow4::FileSync, b"x"))),
        ("LAYOUTCOMMIT", status_of(reader.layout_commit(&file, any, Some(0)))),
    ] {
        assert_eq!(outcome, NfsStat4::RoFs, "{what}");
    }
    let reply = reader.call(&[ops::put_fh(&file), ops::access(ACCESS4_READ | ACCESS4_MODIFY)]).unwrap();
    let access = body!(reply, Access).unwrap();
    assert_eq!((access.supported, access.access), (ACCESS4_READ | ACCESS4_MODIFY, ACCESS4_READ));
    let open = reader.open(&b, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let layout = reader.layout_get(&file, open.stateid, LayoutIomode4::Rw).map(|_| ());
    assert_eq!(status_of(layout), NfsStat4::LayoutUnavailable);
}

#[test]
fn opening_to_create_what_is_there_only_reads_in_a_read_only_export() {
    let scene = Scene::set();
    let b = scene.b.clone();
    let mut reader = scene.below(rules(true, Squash::None));
    let mut open =
        |name, how| status_of(reader.open_as(&b, name, "owner", OPEN4_SHARE_ACCESS_READ, how).map(|_| ()));
    assert_eq!(open("file", ops::unchecked(0o644)), NfsStat4::Ok);
    assert_eq!(open("new", ops::unchecked(0o644)), NfsStat4::RoFs);
    assert_eq!(open("new", ops::guarded(0o644)), NfsStat4::RoFs);
}

#[test]
fn the_callers_identity_follows_from_the_export_of_the_file_handle() {
    let scene = Scene::set();
    let (root, b) = (scene.root.clone(), scene.b.clone());
    let exports = vec![
        export(&[], Hosts::Any, rules(false, Squash::None)),
        export(&["a", "b"], Hosts::Any, rules(false, Squash::All)),
    ];
    let mut host = client(scene.door(exports), "host");
    // Both in one COMPOUND, in and out and in again.
    let make = |name| ops::create(CreateType4::Dir, name, 0o755);
    let into_b = [NfsArgop4::PutRootFh, NfsArgop4::SaveFh, ops::lookup("a"), ops::lookup("b")];
    host.call(&[&into_b[..], &[make("inside"), NfsArgop4::RestoreFh, make("outside")]].concat()).unwrap();
    let inside = host.lookup(&b, "inside").unwrap();
    let outside = host.lookup(&root, "outside").unwrap();
    assert_eq!(owner(&mut host, &inside), Some(77));
    assert_eq!(owner(&mut host, &outside), Some(0));
    // The way up leads out of the inner export.
    let up = [ops::put_fh(&b), NfsArgop4::LookupP, make("beside")];
    host.call(&up).unwrap();
    let beside = host.lookup(&scene.a, "beside").unwrap();
    assert_eq!(owner(&mut host, &beside), Some(0));
    // By its handle too.
    let give_away = FileAttributes { owner: Some(Principal4::numeric(5)), ..FileAttributes::default() };
    let any = StateId4::ANONYMOUS;
    assert_eq!(status_of(host.set_attributes(&inside, any, &give_away)), NfsStat4::Perm);
    assert_eq!(status_of(host.set_attributes(&outside, any, &give_away)), NfsStat4::Ok);
}

#[test]
fn names_are_not_moved_from_one_export_into_another() {
    let scene = Scene::set();
    let (root, b) = (scene.root.clone(), scene.b.clone());
    let exports = vec![
        export(&[], Hosts::Any, rules(false, Squash::None)),
        export(&["a", "b"], Hosts::Any, rules(false, Squash::None)),
    ];
    let mut host = client(scene.door(exports), "host");
    let file = host.lookup(&b, "file").unwrap();
    assert_eq!(status_of(host.rename((&b, "file"), (&root, "file"))), NfsStat4::XDev);
    assert_eq!(status_of(host.link(&file, &root, "file")), NfsStat4::XDev);
    assert_eq!(status_of(host.rename((&b, "file"), (&b, "renamed"))), NfsStat4::Ok);
}
