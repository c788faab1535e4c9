//! SETATTR of the size together with others: a refused one cuts nothing off, and one that fails half way reports it.

use forebay_door_nfs::{Export, Squash};
use nfs4::attr::{ModeMasked4, Principal4, number};
use nfs4::{
    Bitmap4, CreateHow4, FileAttributes, LayoutIomode4, NfsAce4, NfsFh4, NfsResop4, NfsStat4, NfsTime4,
    OPEN4_SHARE_ACCESS_BOTH, OpenFlag4, SetAttr4Res, SetTime4, StableHow4, StateId4,
};
use testkit::nfs_client::{NfsClient, OpenFile, auth_sys, ops};
use xdr::Opaque;

use crate::ground::{Ground, client};

const TIME: NfsTime4 = NfsTime4 { seconds: 1_000, nseconds: 5 };

/// `file` with five bytes, root's, that everybody may write.
struct Scene {
    root: NfsClient,
    file: OpenFile,
    door: std::net::SocketAddr,
    _ground: Ground,
}

impl Scene {
    fn set() -> Scene {
        let ground = Ground::new();
        let door = ground.door(vec![Export::of_everything(Squash::None)]);
        let mut root = client(door, "root");
        let dir = root.root().unwrap();
        let file = root.create(&dir, "file").unwrap();
        root.set_attributes(&file.handle, StateId4::ANONYMOUS, &mode(0o666)).unwrap();
        root.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"bytes").unwrap();
        Scene { root, file, door, _ground: ground }
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.root.read(&self.file.handle, self.file.stateid, 0, 100).unwrap().data.to_vec()
    }

    fn told(&mut self) -> FileAttributes {
        let numbers = [number::SIZE, number::MODE, number::TIME_MODIFY];
        self.root.attributes(&self.file.handle, &numbers).unwrap()
    }
}

fn mode(mode: u32) -> FileAttributes {
    FileAttributes { mode: Some(mode), ..FileAttributes::default() }
}

fn set(client: &mut NfsClient, file: &NfsFh4, attributes: &FileAttributes) -> SetAttr4Res {
    let reply =
        client.compound(&[ops::put_fh(file), ops::set_attr(StateId4::ANONYMOUS, attributes)]).unwrap();
    match reply.results.last() {
        Some(NfsResop4::SetAttr(result)) => result.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_setattr_of_size_and_others_that_is_refused_cuts_nothing_off() {
    let mut scene = Scene::set();
    let mut writer = client(scene.door, "writer");
    writer.options.credential = auth_sys(10, 10, &[]);
    let everyone = NfsAce4 { ace_type: 0, flag: 0, access_mask: 0x3, who: Opaque::from_static(b"EVERYONE@") };
    let nothing = FileAttributes { size: Some(0), ..FileAttributes::default() };
    for refused in [
        FileAttributes { owner: Some(Principal4::numeric(10)), ..nothing.clone() },
        FileAttributes { owner_group: Some(Principal4::numeric(10)), ..nothing.clone() },
        FileAttributes { mode: Some(0o777), ..nothing.clone() },
        FileAttributes { acl: Some(vec![everyone.clone()]), ..nothing.clone() },
        FileAttributes { time_modify_set: Some(SetTime4::ClientTime(TIME)), ..nothing.clone() },
    ] {
        let told = set(&mut writer, &scene.file.handle, &refused);
        assert_eq!(told, SetAttr4Res { status: NfsStat4::Perm, attrsset: Bitmap4::EMPTY }, "{refused:?}");
        assert_eq!((scene.told().size, &scene.bytes()[..]), (Some(5), &b"bytes"[..]), "{refused:?}");
    }
    // A SETATTR that the writer is allowed succeeds, with the present time too.
    let may = FileAttributes { size: Some(2), time_modify_set: Some(SetTime4::ServerTime), ..nothing };
    assert_eq!(set(&mut writer, &scene.file.handle, &may).status, NfsStat4::Ok);
    assert_eq!(scene.bytes(), b"by");
}

#[test]
fn a_setattr_of_size_and_others_sets_all_of_them() {
    let mut scene = Scene::set();
    let all = FileAttributes {
        size: Some(2),
        mode: Some(0o604),
        time_modify_set: Some(SetTime4::ClientTime(TIME)),
        ..FileAttributes::default()
    };
    let told = set(&mut scene.root, &scene.file.handle, &all);
    assert_eq!(told, SetAttr4Res { status: NfsStat4::Ok, attrsset: all.mask() });
    let found = scene.told();
    assert_eq!((found.size, found.mode, found.time_modify), (Some(2), Some(0o604), Some(TIME)));
    assert_eq!(scene.bytes(), b"by");
}

#[test]
fn a_mode_that_comes_with_a_length_keeps_the_set_id_bits_that_it_names() {
    let mut scene = Scene::set();
    let given = FileAttributes {
        owner: Some(Principal4::numeric(10)),
        owner_group: Some(Principal4::numeric(10)),
        ..FileAttributes::default()
    };
    assert_eq!(set(&mut scene.root, &scene.file.handle, &given).status, NfsStat4::Ok);
    let mut owner = client(scene.door, "owner");
    owner.options.credential = auth_sys(10, 10, &[]);

    let length = |size| FileAttributes { size: Some(size), ..FileAttributes::default() };
    let masked = |mask_bits| Some(ModeMasked4 { value_to_set: 0o6711, mask_bits });
    for (asked, mode_after) in [
        (FileAttributes { mode: Some(0o6755), ..length(4) }, 0o6755),
        (FileAttributes { mode: Some(0o4755), ..length(9) }, 0o4755),
        // Of those that were there before nothing is said.
        (length(3), 0o755),
        (FileAttributes { mode_set_masked: masked(0o7777), ..length(2) }, 0o6711),
        (FileAttributes { mode_set_masked: masked(0o011), ..length(1) }, 0o711),
        (FileAttributes { mode_set_masked: masked(0o4000), ..length(2) }, 0o4711),
        (FileAttributes { mode_set_masked: masked(0o2000), ..length(3) }, 0o2711),
    ] {
        let told = set(&mut owner, &scene.file.handle, &asked);
        assert_eq!(told, SetAttr4Res { status: NfsStat4::Ok, attrsset: asked.mask() }, "{asked:?}");
        let found = scene.told();
        assert_eq!((found.size, found.mode), (asked.size, Some(mode_after)), "{asked:?}");
    }
}

#[test]
fn a_file_that_is_made_with_a_length_keeps_the_set_id_bits_that_it_is_made_with() {
    let mut scene = Scene::set();
    let dir = scene.root.root().unwrap();
    scene.root.set_attributes(&dir, StateId4::ANONYMOUS, &mode(0o777)).unwrap();
    let mut maker = client(scene.door, "maker");
    maker.options.credential = auth_sys(10, 10, &[]);
    let given = FileAttributes { size: Some(9), ..mode(0o4755) };
    let how = OpenFlag4::Create(CreateHow4::Unchecked(given.encode_all()));
    let made = maker.open_as(&dir, "program", "maker", OPEN4_SHARE_ACCESS_BOTH, how).unwrap();
    let found = maker.attributes(&made.handle, &[number::SIZE, number::MODE]).unwrap();
    assert_eq!((found.size, found.mode), (Some(9), Some(0o4755)));
}

#[test]
fn a_setattr_that_fails_half_way_answers_with_the_attributes_set() {
    let mut scene = Scene::set();
    let too_long = FileAttributes { size: Some(1 << 63), ..mode(0o600) };
    let told = set(&mut scene.root, &scene.file.handle, &too_long);
    assert_eq!(told, SetAttr4Res { status: NfsStat4::FBig, attrsset: Bitmap4::of(&[number::MODE]) });
    assert_eq!((scene.told().mode, scene.told().size), (Some(0o600), Some(5)));
}

#[test]
fn a_setattr_that_waits_for_layouts_sets_nothing_before_they_are_back() {
    let mut scene = Scene::set();
    let mut holder = client(scene.door, "holder");
    let dir = holder.root().unwrap();
    let held = holder.open(&dir, "file", nfs4::OPEN4_SHARE_ACCESS_BOTH).unwrap();
    holder.layout_get(&held.handle, held.stateid, LayoutIomode4::Rw).unwrap();
    let shut = FileAttributes { size: Some(0), ..mode(0) };
    let told = set(&mut scene.root, &scene.file.handle, &shut);
    assert_eq!(told, SetAttr4Res { status: NfsStat4::Delay, attrsset: Bitmap4::EMPTY });
    assert_eq!((scene.told().mode, scene.bytes()), (Some(0o666), b"bytes".to_vec()));
}
