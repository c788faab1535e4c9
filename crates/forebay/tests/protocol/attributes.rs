//! GETATTR, SETATTR, VERIFY, NVERIFY, ACCESS (RFC 8881 §5, §18.1, §18.7, §18.30).

use nfs4::attr::{Principal4, number};
use nfs4::{
    ACCESS4_DELETE, ACCESS4_EXECUTE, ACCESS4_EXTEND, ACCESS4_LOOKUP, ACCESS4_MODIFY, ACCESS4_READ, Bitmap4,
    CreateType4, Fattr4, FileAttributes, GetAttr4Args, LayoutType4, NVerify4Args, NfsArgop4, NfsFh4,
    NfsFtype4, NfsResop4, NfsStat4, NfsTime4, OPEN4_SHARE_ACCESS_READ, SetAttr4Args, SetTime4, SpecData4,
    StateId4, Verify4Args,
};
use testkit::body;
use testkit::nfs_client::{ClientOptions, NfsClient, auth_sys, ops};
use xdr::Opaque;

use crate::server::{Server, directory_of, status_of};

/// RFC 8881 §5.6.
const REQUIRED: &[u32] = &[
    number::SUPPORTED_ATTRS,
    number::TYPE,
    number::FH_EXPIRE_TYPE,
    number::CHANGE,
    number::SIZE,
    number::LINK_SUPPORT,
    number::SYMLINK_SUPPORT,
    number::NAMED_ATTR,
    number::FSID,
    number::UNIQUE_HANDLES,
    number::LEASE_TIME,
    number::RDATTR_ERROR,
    number::FILEHANDLE,
    number::SUPPATTR_EXCLCREAT,
];

fn setup(server: &Server) -> (NfsClient, NfsFh4, NfsFh4) {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap().handle;
    (client, root, file)
}

fn all_of(client: &mut NfsClient, file: &NfsFh4) -> FileAttributes {
    let supported = client.attributes(file, &[number::SUPPORTED_ATTRS]).unwrap().supported_attrs.unwrap();
    let readable: Vec<u32> = supported.difference(&FileAttributes::WRITE_ONLY).iter().collect();
    client.attributes(file, &readable).unwrap()
}

fn time(seconds: i64, nseconds: u32) -> NfsTime4 {
    NfsTime4 { seconds, nseconds }
}

fn attrs(change: impl FnOnce(&mut FileAttributes)) -> FileAttributes {
    let mut attributes = FileAttributes::default();
    change(&mut attributes);
    attributes
}

#[test]
fn every_required_attribute_is_there_for_files_and_directories() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    for handle in [&root, &file] {
        let attributes = client.attributes(handle, REQUIRED).unwrap();
        assert_eq!(attributes.mask(), Bitmap4::of(REQUIRED));
        assert_eq!(attributes.filehandle.as_ref(), Some(handle));
        assert_eq!(attributes.rdattr_error, Some(NfsStat4::Ok));
        assert_eq!(attributes.lease_time, Some(60));
        assert_eq!(attributes.fh_expire_type, Some(nfs4::FH4_PERSISTENT));
    }
}

#[test]
fn attributes_announced_as_supported_are_returned() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    for handle in [&root, &file] {
        let attributes = all_of(&mut client, handle);
        let supported = attributes.supported_attrs.unwrap();
        assert_eq!(attributes.mask(), supported.difference(&FileAttributes::WRITE_ONLY));
    }
}

#[test]
fn the_file_system_announces_flex_files_and_nothing_else() {
    let (_instance, server) = Server::start();
    let (mut client, root, _) = setup(&server);
    let attributes = client.attributes(&root, &[number::SUPPORTED_ATTRS, number::FS_LAYOUT_TYPES]).unwrap();
    assert!(
        attributes.supported_attrs.unwrap().contains(number::FS_LAYOUT_TYPES),
        "or Linux does not ask for it"
    );
    assert_eq!(attributes.fs_layout_types, Some(vec![LayoutType4::FLEX_FILES]));
}

#[test]
fn attributes_that_an_exclusive_creation_can_set_are_writable_and_supported() {
    let (_instance, server) = Server::start();
    let (mut client, root, _) = setup(&server);
    let attributes =
        client.attributes(&root, &[number::SUPPORTED_ATTRS, number::SUPPATTR_EXCLCREAT]).unwrap();
    let settable = attributes.suppattr_exclcreat.unwrap();
    assert!(settable.contains(number::MODE));
    assert!(settable.difference(&attributes.supported_attrs.unwrap()).is_empty());
    assert!(settable.difference(&FileAttributes::WRITABLE).is_empty());
}

#[test]
fn attributes_of_4_2_are_for_4_2() {
    let (_instance, server) = Server::start();
    let (mut client, root, _) = setup(&server);
    let mut old = server.client_by(ClientOptions::named("old").minorversion(1));
    let asked = [number::SUPPORTED_ATTRS, number::CHANGE_ATTR_TYPE, number::XATTR_SUPPORT];
    let of_old = old.attributes(&root, &asked).unwrap();
    assert_eq!((of_old.change_attr_type, of_old.xattr_support), (None, None));
    assert!(!of_old.supported_attrs.unwrap().contains(number::MODE_UMASK));
    let of_new = client.attributes(&root, &asked).unwrap();
    assert!(of_new.change_attr_type.is_some());
    assert!(
        of_new.supported_attrs.unwrap().contains(number::MODE_UMASK),
        "or umask and ACLs do not go together"
    );
}

#[test]
fn an_unsupported_attribute_is_left_out_and_a_write_only_one_is_invalid() {
    let (_instance, server) = Server::start();
    let (mut client, root, _) = setup(&server);
    let mut ask = |numbers: &[u32]| {
        let attr_request = Bitmap4::of(numbers);
        client.compound(&[ops::put_fh(&root), NfsArgop4::GetAttr(GetAttr4Args { attr_request })]).unwrap()
    };
    let reply = ask(&[number::TYPE, number::SACL, 200]);
    assert_eq!(body!(reply, GetAttr).unwrap().obj_attributes.attrmask, Bitmap4::of(&[number::TYPE]));
    assert_eq!(ask(&[number::TIME_MODIFY_SET]).status, NfsStat4::Inval);
}

#[test]
fn a_file_tells_who_what_and_when() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    let attributes = all_of(&mut client, &file);
    assert_eq!(attributes.file_type, Some(NfsFtype4::Reg));
    assert_eq!((attributes.mode, attributes.size, attributes.numlinks), (Some(0o644), Some(0), Some(1)));
    assert_eq!(attributes.owner, Some(Principal4::numeric(0)));
    assert_eq!(attributes.owner_group, Some(Principal4::numeric(0)));
    assert_eq!(attributes.fileid, attributes.mounted_on_fileid);
    let time = attributes.time_modify.unwrap();
    assert!(time.seconds > 1_700_000_000 && time.nseconds < 1_000_000_000);
    assert_eq!(attributes.maxread, Some(1 << 20));
    assert_eq!(attributes.maxwrite, Some(1 << 20));
    assert_eq!(attributes.maxname, Some(255));
    let of_root = all_of(&mut client, &root);
    assert_eq!(of_root.file_type, Some(NfsFtype4::Dir));
    assert_ne!(of_root.fileid, attributes.fileid);
    assert_eq!(of_root.fsid, attributes.fsid);
    assert!(of_root.space_total >= of_root.space_free && of_root.space_free >= of_root.space_avail);
    assert!(of_root.space_avail > Some(0) && of_root.files_total >= of_root.files_free);
}

#[test]
fn devices_tell_their_numbers() {
    let (_instance, server) = Server::start();
    let (mut client, root, _) = setup(&server);
    let device = SpecData4 { specdata1: 8, specdata2: 17 };
    let handle = client.create_object(&root, CreateType4::Blk(device), "disk", 0o600).unwrap();
    let attributes = client.attributes(&handle, &[number::TYPE, number::RAWDEV]).unwrap();
    assert_eq!((attributes.file_type, attributes.rawdev), (Some(NfsFtype4::Blk), Some(device)));
}

#[test]
fn mode_owner_and_times_are_set_and_told_to_the_nanosecond() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let before = client.change(&file).unwrap();
    let wanted = attrs(|a| {
        a.mode = Some(0o751);
        a.owner = Some(Principal4::numeric(1234));
        a.owner_group = Some(Principal4::numeric(4321));
        a.time_access_set = Some(SetTime4::ClientTime(time(-5, 999_999_999)));
        a.time_modify_set = Some(SetTime4::ClientTime(time(5_000_000_000, 1)));
    });
    let reply = client.call(&[ops::put_fh(&file), ops::set_attr(StateId4::ANONYMOUS, &wanted)]).unwrap();
    let Some(NfsResop4::SetAttr(result)) = reply.results.last() else { panic!("{:?}", reply.results) };
    assert_eq!(result.attrsset, wanted.mask());
    let told = all_of(&mut client, &file);
    assert_eq!(told.mode, Some(0o751));
    assert_eq!(told.owner, Some(Principal4::numeric(1234)));
    assert_eq!(told.owner_group, Some(Principal4::numeric(4321)));
    assert_eq!(told.time_access, Some(time(-5, 999_999_999)));
    assert_eq!(told.time_modify, Some(time(5_000_000_000, 1)));
    assert!(told.change > Some(before));
    assert!(told.time_metadata > Some(time(1_700_000_000, 0)), "ctime is the server's");
}

#[test]
fn the_size_is_set_both_ways_and_new_bytes_are_zeros() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, nfs4::StableHow4::FileSync, b"0123456789").unwrap();
    client.set_size(&file.handle, file.stateid, 4).unwrap();
    assert_eq!(client.size(&file.handle).unwrap(), 4);
    client.set_size(&file.handle, StateId4::ANONYMOUS, 8).unwrap();
    let read = client.read(&file.handle, file.stateid, 0, 100).unwrap();
    assert_eq!(&read.data[..], b"0123\0\0\0\0");
    assert!(read.eof);
    let beyond = client.set_size(&file.handle, file.stateid, 1 << 63);
    assert_eq!(status_of(beyond), NfsStat4::FBig);
}

#[test]
fn setattr_refuses_what_cannot_be_set_each_in_its_way() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    let mut set = |handle: &NfsFh4, obj_attributes: Fattr4| {
        let args = SetAttr4Args { stateid: StateId4::ANONYMOUS, obj_attributes };
        let reply = client.compound(&[ops::put_fh(handle), NfsArgop4::SetAttr(args)]).unwrap();
        let Some(NfsResop4::SetAttr(result)) = reply.results.last() else { panic!("{:?}", reply.results) };
        assert_eq!(result.attrsset, Bitmap4::EMPTY, "nothing is set in part");
        result.status
    };
    let sacl = Fattr4 { attrmask: Bitmap4::of(&[number::SACL]), attr_vals: Opaque::from(&[0; 4]) };
    assert_eq!(set(&file, sacl), NfsStat4::AttrNotSupp);
    assert_eq!(set(&file, attrs(|a| a.fileid = Some(7)).encode_all()), NfsStat4::Inval, "it is read-only");
    assert_eq!(set(&root, attrs(|a| a.size = Some(0)).encode_all()), NfsStat4::IsDir);
    assert_eq!(set(&file, attrs(|a| a.mode = Some(0o100_644)).encode_all()), NfsStat4::Inval);
    let owner = attrs(|a| a.owner = Some(Principal4(Opaque::from("nobody in particular"))));
    assert_eq!(set(&file, owner.encode_all()), NfsStat4::BadOwner);
    let late = attrs(|a| a.time_modify_set = Some(SetTime4::ClientTime(time(1, 1_000_000_000))));
    assert_eq!(set(&file, late.encode_all()), NfsStat4::Inval);
    let mut short = attrs(|a| a.mode = Some(0o600)).encode_all();
    short.attr_vals = Opaque::from(&[0; 2]);
    assert_eq!(set(&file, short), NfsStat4::BadXdr);
    let mut long = attrs(|a| a.mode = Some(0o600)).encode_all();
    long.attr_vals = Opaque::from(&[0; 8]);
    assert_eq!(set(&file, long), NfsStat4::BadXdr);
}

#[test]
fn only_who_may_changes_attributes() {
    let (_instance, server) = Server::start();
    let mut root_user = server.client("host");
    let dir = directory_of(&mut root_user, "home", 1000);
    let mut ann = server.client_by(ClientOptions::named("ann").credential(auth_sys(1000, 1000, &[2000])));
    let mut bob = server.client_by(ClientOptions::named("bob").credential(auth_sys(1001, 1001, &[])));
    let file = ann.create(&dir, "file").unwrap().handle;
    let set = |client: &mut NfsClient, attributes: FileAttributes| {
        status_of(client.set_attributes(&file, StateId4::ANONYMOUS, &attributes))
    };
    assert_eq!(set(&mut bob, attrs(|a| a.mode = Some(0o777))), NfsStat4::Perm);
    assert_eq!(set(&mut bob, attrs(|a| a.size = Some(5))), NfsStat4::Access);
    assert_eq!(set(&mut bob, attrs(|a| a.time_modify_set = Some(SetTime4::ServerTime))), NfsStat4::Access);
    let given = SetTime4::ClientTime(time(1, 1));
    assert_eq!(set(&mut bob, attrs(|a| a.time_modify_set = Some(given))), NfsStat4::Perm);
    assert_eq!(set(&mut ann, attrs(|a| a.owner = Some(Principal4::numeric(1001)))), NfsStat4::Perm);
    assert_eq!(set(&mut ann, attrs(|a| a.owner_group = Some(Principal4::numeric(3000)))), NfsStat4::Perm);
    assert_eq!(set(&mut ann, attrs(|a| a.owner_group = Some(Principal4::numeric(2000)))), NfsStat4::Ok);
    assert_eq!(set(&mut ann, attrs(|a| a.mode = Some(0o600))), NfsStat4::Ok);
    assert_eq!(set(&mut root_user, attrs(|a| a.owner = Some(Principal4::numeric(1001)))), NfsStat4::Ok);
}

#[test]
fn a_size_is_not_set_through_an_open_for_reading() {
    let (_instance, server) = Server::start();
    let (mut client, root, _) = setup(&server);
    let mut other = server.client("other");
    let reading = other.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let outcome = other.set_size(&reading.handle, reading.stateid, 0);
    assert_eq!(status_of(outcome), NfsStat4::OpenMode);
    let unknown = StateId4 { seqid: 1, other: [3; 12] };
    assert_eq!(status_of(client.set_size(&reading.handle, unknown, 0)), NfsStat4::BadStateId);
}

#[test]
fn verify_goes_on_when_attributes_are_the_same_and_nverify_when_not() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let told = client.attributes(&file, &[number::CHANGE, number::SIZE, number::MODE]).unwrap();
    let other = FileAttributes { size: Some(99), ..told.clone() };
    let mut ask = |op: NfsArgop4| client.compound(&[ops::put_fh(&file), op]).unwrap().status;
    let verify = |a: &FileAttributes| NfsArgop4::Verify(Verify4Args { obj_attributes: a.encode_all() });
    let nverify = |a: &FileAttributes| NfsArgop4::NVerify(NVerify4Args { obj_attributes: a.encode_all() });
    assert_eq!(ask(verify(&told)), NfsStat4::Ok);
    assert_eq!(ask(verify(&other)), NfsStat4::NotSame);
    assert_eq!(ask(nverify(&told)), NfsStat4::Same);
    assert_eq!(ask(nverify(&other)), NfsStat4::Ok);
    let write_only = attrs(|a| a.time_modify_set = Some(SetTime4::ServerTime));
    assert_eq!(ask(verify(&write_only)), NfsStat4::Inval);
    let error = attrs(|a| a.rdattr_error = Some(NfsStat4::Ok));
    assert_eq!(ask(verify(&error)), NfsStat4::Inval);
    let sacl = Fattr4 { attrmask: Bitmap4::of(&[number::SACL]), attr_vals: Opaque::from(&[0; 4]) };
    assert_eq!(ask(NfsArgop4::Verify(Verify4Args { obj_attributes: sacl })), NfsStat4::AttrNotSupp);
}

#[test]
fn the_change_attribute_grows_with_every_change() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    let mut last = client.change(&root).unwrap();
    let mut grows = |client: &mut NfsClient, what: &str| {
        let now = client.change(&root).unwrap();
        assert!(now > last, "{what}");
        last = now;
    };
    client.mkdir(&root, "dir", 0o755).unwrap();
    grows(&mut client, "mkdir");
    client.link(&file, &root, "second").unwrap();
    grows(&mut client, "link");
    client.rename((&root, "second"), (&root, "third")).unwrap();
    grows(&mut client, "rename");
    client.remove(&root, "third").unwrap();
    grows(&mut client, "remove");
    client.create(&root, "new").unwrap();
    grows(&mut client, "open");
    let before = client.change(&file).unwrap();
    client.link(&file, &root, "again").unwrap();
    assert!(client.change(&file).unwrap() > before, "the link count is an attribute of the file");
}

#[test]
fn access_is_told_by_owner_group_and_others() {
    let (_instance, server) = Server::start();
    let mut root_user = server.client("host");
    let dir = directory_of(&mut root_user, "home", 1000);
    let mut ann = server.client_by(ClientOptions::named("ann").credential(auth_sys(1000, 1000, &[])));
    let file = ann.create(&dir, "file").unwrap().handle;
    ann.set_attributes(&file, StateId4::ANONYMOUS, &attrs(|a| a.mode = Some(0o640))).unwrap();
    let everything =
        ACCESS4_READ | ACCESS4_LOOKUP | ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE | ACCESS4_EXECUTE;
    let mut may = |uid: u32, gids: &[u32], handle: &NfsFh4| {
        let ops = [ops::put_fh(handle), ops::access(everything)];
        let reply = ann.call_as(auth_sys(uid, uid, gids), &ops).unwrap();
        let told = body!(reply, Access).unwrap();
        assert_eq!(told.access & !told.supported, 0);
        told.access
    };
    assert_eq!(may(1000, &[], &file), ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND);
    assert_eq!(may(1001, &[1000], &file), ACCESS4_READ, "by a supplementary group");
    assert_eq!(may(1002, &[], &file), 0);
    assert_eq!(
        may(0, &[], &file),
        ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND,
        "root executes nothing here"
    );
    assert_eq!(may(1002, &[], &dir), ACCESS4_READ | ACCESS4_LOOKUP);
    assert_eq!(
        may(1000, &[], &dir),
        ACCESS4_READ | ACCESS4_LOOKUP | ACCESS4_MODIFY | ACCESS4_EXTEND | ACCESS4_DELETE
    );
}
