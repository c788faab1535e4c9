//! ACLs on the wire and in force: GETATTR, SETATTR, creation, ACCESS, OPEN, REMOVE (RFC 8881 §6).

use bytes::Bytes;
use nfs4::attr::number;
use nfs4::{
    ACCESS4_DELETE, ACCESS4_EXTEND, ACCESS4_LOOKUP, ACCESS4_MODIFY, ACCESS4_READ, Bitmap4, CreateHow4,
    CreateType4, Fattr4, FileAttributes, NfsAce4, NfsArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WRITE, OpenFlag4, SetAttr4Args, StateId4,
};
use testkit::body;
use testkit::nfs_client::{ClientOptions, NfsClient, auth_sys, ops};
use xdr::Opaque;

use crate::server::{Server, directory_of, status_of};

const ALLOW: u32 = 0;
const DENY: u32 = 1;
const READ: u32 = 0x1;
/// WRITE_DATA and APPEND_DATA.
const WRITE: u32 = 0x6;
const SEARCH: u32 = 0x20;
const READ_ACL: u32 = 0x2_0000;
const WRITE_ACL: u32 = 0x4_0000;
const DELETE: u32 = 0x1_0000;
/// FILE_INHERIT and DIRECTORY_INHERIT.
const TO_ALL: u32 = 0x3;

fn ace(ace_type: u32, flag: u32, access_mask: u32, who: &'static str) -> NfsAce4 {
    NfsAce4 { ace_type, flag, access_mask, who: Opaque::from_static(who.as_bytes()) }
}

fn with(acl: &[NfsAce4]) -> FileAttributes {
    FileAttributes { acl: Some(acl.to_vec()), ..FileAttributes::default() }
}

fn user(server: &Server, uid: u32) -> NfsClient {
    let name = format!("of {uid}");
    server.client_by(ClientOptions::named(&name).credential(auth_sys(uid, uid, &[])))
}

fn set(client: &mut NfsClient, file: &NfsFh4, acl: &[NfsAce4]) -> NfsStat4 {
    status_of(client.set_attributes(file, StateId4::ANONYMOUS, &with(acl)))
}

fn acl_and_mode(client: &mut NfsClient, file: &NfsFh4) -> (Vec<NfsAce4>, u32) {
    let found = client.attributes(file, &[number::ACL, number::MODE]).unwrap();
    (found.acl.unwrap(), found.mode.unwrap())
}

/// The access bits that the server grants.
fn access(client: &mut NfsClient, file: &NfsFh4) -> u32 {
    let reply = client.call(&[ops::put_fh(file), ops::access(0x3f)]).unwrap();
    body!(reply, Access).unwrap().access
}

fn setup(server: &Server) -> (NfsClient, NfsFh4, NfsFh4) {
    let mut root = server.client("host");
    let dir = directory_of(&mut root, "ann", 1000);
    let mut ann = user(server, 1000);
    let file = ann.create(&dir, "file").unwrap().handle;
    (ann, dir, file)
}

#[test]
fn acls_are_announced_and_a_file_without_one_tells_what_its_mode_says() {
    let (_instance, server) = Server::start();
    let (mut ann, dir, file) = setup(&server);
    let wanted = [number::SUPPORTED_ATTRS, number::ACLSUPPORT];
    let found = ann.attributes(&file, &wanted).unwrap();
    let supported = found.supported_attrs.unwrap();
    assert_eq!(found.aclsupport, Some(nfs4::ACL4_SUPPORT_ALLOW_ACL | nfs4::ACL4_SUPPORT_DENY_ACL));
    assert!(supported.contains(number::ACL));
    assert!(!supported.contains(number::DACL) && !supported.contains(number::SACL));
    let known = 0x12_0080;
    let expected = [
        ace(ALLOW, 0, READ | WRITE | known | WRITE_ACL | 0x100, "OWNER@"),
        ace(ALLOW, 0, READ | known, "GROUP@"),
        ace(ALLOW, 0, READ | known, "EVERYONE@"),
    ];
    assert_eq!(acl_and_mode(&mut ann, &file), (expected.to_vec(), 0o644));
    // The same set as an ACL is the same file as before.
    assert_eq!(set(&mut ann, &file, &expected), NfsStat4::Ok);
    assert_eq!(acl_and_mode(&mut ann, &file), (expected.to_vec(), 0o644));
    let reply = ann.call(&[ops::put_fh(&dir), ops::read_dir(0, 8192, &[number::ACL])]).unwrap();
    let entry = &body!(reply, ReadDir).unwrap().entries[0];
    assert_eq!(FileAttributes::decode(&entry.attrs).unwrap().acl, Some(expected.to_vec()));
}

#[test]
fn the_acl_that_a_new_mode_makes_of_the_largest_inheritable_acl_can_be_set_again() {
    let (_instance, server) = Server::start();
    let (mut ann, dir, _) = setup(&server);
    let largest = vec![ace(ALLOW, TO_ALL, READ | WRITE | 0x80, "1001"); 1_024];
    assert_eq!(set(&mut ann, &dir, &largest), NfsStat4::Ok);
    let mode = FileAttributes { mode: Some(0o750), ..FileAttributes::default() };
    ann.set_attributes(&dir, StateId4::ANONYMOUS, &mode).unwrap();
    let (told, mode) = acl_and_mode(&mut ann, &dir);
    assert!(told.len() > 2 * largest.len(), "{}", told.len());
    assert_eq!(set(&mut ann, &dir, &told), NfsStat4::Ok);
    assert_eq!(acl_and_mode(&mut ann, &dir), (told, mode));
}

#[test]
fn an_acl_is_told_as_it_was_set_and_changes_the_mode_and_the_change_attribute() {
    let (_instance, server) = Server::start();
    let (mut ann, _, file) = setup(&server);
    let before = ann.change(&file).unwrap();
    let acl = [
        ace(DENY, 0, WRITE, "1001"),
        ace(ALLOW, 0x40, READ | 0x80, "100"),
        ace(ALLOW, 0, READ | WRITE, "OWNER@"),
        ace(ALLOW, 0, SEARCH, "EVERYONE@"),
    ];
    assert_eq!(set(&mut ann, &file, &acl), NfsStat4::Ok);
    assert_eq!(acl_and_mode(&mut ann, &file), (acl.to_vec(), 0o711));
    assert!(ann.change(&file).unwrap() > before, "or clients go on by what they have cached");
    let mode = FileAttributes { mode: Some(0o640), ..FileAttributes::default() };
    ann.set_attributes(&file, StateId4::ANONYMOUS, &mode).unwrap();
    let (after, mode) = acl_and_mode(&mut ann, &file);
    assert_eq!(mode, 0o640);
    assert!(after.contains(&acl[0]) && after.contains(&acl[1]), "{after:?}");
}

#[test]
fn an_acl_that_cannot_be_kept_is_refused_and_changes_nothing() {
    let (_instance, server) = Server::start();
    let (mut ann, dir, file) = setup(&server);
    let before = acl_and_mode(&mut ann, &file);
    for (refused, status) in [
        (ace(2, 0, READ, "EVERYONE@"), NfsStat4::AttrNotSupp),
        (ace(3, 0, READ, "EVERYONE@"), NfsStat4::AttrNotSupp),
        (ace(ALLOW, 0x1, READ, "EVERYONE@"), NfsStat4::Inval),
        (ace(ALLOW, 0, 1 << 31, "EVERYONE@"), NfsStat4::Inval),
        (ace(ALLOW, 0, READ, "no such name"), NfsStat4::BadOwner),
        (ace(ALLOW, 0, READ, "ANONYMOUS@"), NfsStat4::BadOwner),
    ] {
        assert_eq!(set(&mut ann, &file, &[ace(ALLOW, 0, READ, "OWNER@"), refused]), status);
    }
    let many = vec![ace(ALLOW, 0, READ, "1001"); 2_049];
    assert_eq!(set(&mut ann, &file, &many), NfsStat4::NoSpc);
    let short = Fattr4 { attrmask: Bitmap4::of(&[number::ACL]), attr_vals: Opaque(vec![0xff; 4].into()) };
    let args = SetAttr4Args { stateid: StateId4::ANONYMOUS, obj_attributes: short };
    let reply = ann.call(&[ops::put_fh(&file), NfsArgop4::SetAttr(args)]);
    assert_eq!(status_of(reply), NfsStat4::BadXdr);
    assert_eq!(acl_and_mode(&mut ann, &file), before);
    assert_eq!(set(&mut ann, &file, &many[1..]), NfsStat4::Ok);
    assert_eq!(acl_and_mode(&mut ann, &file).0.len(), 2_048);
    let link = ann.create_object(
        &dir,
        CreateType4::Lnk(nfs4::LinkText4::from(Bytes::from_static(b"file"))),
        "link",
        0o777,
    );
    assert_eq!(set(&mut ann, &link.unwrap(), &many[..1]), NfsStat4::AttrNotSupp);
}

#[test]
fn opens_and_reads_are_judged_by_the_acl_and_follow_it_when_it_changes() {
    let (_instance, server) = Server::start();
    let (mut ann, dir, file) = setup(&server);
    let (mut bob, mut eve) = (user(&server, 1001), user(&server, 1002));
    let open = |client: &mut NfsClient, how| status_of(client.open(&dir, "file", how).map(drop));
    let owner = ace(ALLOW, 0, READ | WRITE, "OWNER@");
    let denies = [ace(DENY, 0, READ, "1001"), owner.clone(), ace(ALLOW, 0, READ, "EVERYONE@")];
    assert_eq!(open(&mut bob, OPEN4_SHARE_ACCESS_READ), NfsStat4::Ok);
    assert_eq!(set(&mut ann, &file, &denies), NfsStat4::Ok);
    assert_eq!(open(&mut bob, OPEN4_SHARE_ACCESS_READ), NfsStat4::Access);
    assert_eq!(status_of(bob.read(&file, StateId4::ANONYMOUS, 0, 1)), NfsStat4::Access);
    assert_eq!(access(&mut bob, &file) & (ACCESS4_READ | ACCESS4_MODIFY), 0);
    assert_eq!(open(&mut eve, OPEN4_SHARE_ACCESS_READ), NfsStat4::Ok);
    assert_eq!(access(&mut eve, &file) & (ACCESS4_READ | ACCESS4_MODIFY), ACCESS4_READ);
    let allows = [owner, ace(ALLOW, 0, READ | WRITE, "1001")];
    assert_eq!(set(&mut ann, &file, &allows), NfsStat4::Ok);
    assert_eq!(open(&mut bob, OPEN4_SHARE_ACCESS_WRITE), NfsStat4::Ok);
    assert_eq!(open(&mut eve, OPEN4_SHARE_ACCESS_READ), NfsStat4::Access);
    let write = ACCESS4_READ | ACCESS4_MODIFY | ACCESS4_EXTEND;
    assert_eq!((access(&mut bob, &file) & write, access(&mut eve, &file) & write), (write, 0));
}

#[test]
fn an_acl_decides_which_users_read_and_write_it() {
    let (_instance, server) = Server::start();
    let (mut ann, dir, file) = setup(&server);
    let mut bob = user(&server, 1001);
    let acl_of = |client: &mut NfsClient| status_of(client.attributes(&file, &[number::ACL]));
    let mine = [ace(ALLOW, 0, READ | READ_ACL, "1001")];
    assert_eq!(set(&mut bob, &file, &mine), NfsStat4::Perm);
    assert_eq!(set(&mut ann, &file, &[ace(ALLOW, 0, READ, "EVERYONE@")]), NfsStat4::Ok);
    assert_eq!(acl_of(&mut bob), NfsStat4::Access);
    assert_eq!(acl_of(&mut ann), NfsStat4::Ok, "owners see theirs");
    // Other attributes are told, and of a listing the entry's error where it is asked for.
    bob.attributes(&file, &[number::MODE]).unwrap();
    let list = |numbers: &[u32]| [ops::put_fh(&dir), ops::read_dir(0, 8192, numbers)];
    assert_eq!(status_of(bob.call(&list(&[number::ACL]))), NfsStat4::Access);
    let reply = bob.call(&list(&[number::RDATTR_ERROR, number::ACL, number::MODE])).unwrap();
    let entry = FileAttributes::decode(&body!(reply, ReadDir).unwrap().entries[0].attrs).unwrap();
    assert_eq!((entry.rdattr_error, entry.mode), (Some(NfsStat4::Access), None));
    assert_eq!(set(&mut ann, &file, &[ace(ALLOW, 0, READ_ACL | WRITE_ACL, "1001")]), NfsStat4::Ok);
    assert_eq!(set(&mut bob, &file, &mine), NfsStat4::Ok);
    assert_eq!(acl_of(&mut bob), NfsStat4::Ok);
}

#[test]
fn a_directory_lets_in_and_loses_names_as_the_acls_say() {
    let (_instance, server) = Server::start();
    let (mut ann, dir, file) = setup(&server);
    let mut bob = user(&server, 1001);
    let owner = ace(ALLOW, 0, READ | WRITE | SEARCH, "OWNER@");
    assert_eq!(set(&mut ann, &dir, &[owner.clone(), ace(ALLOW, 0, READ, "EVERYONE@")]), NfsStat4::Ok);
    assert_eq!(status_of(bob.lookup(&dir, "file")), NfsStat4::Access);
    assert_eq!(access(&mut bob, &dir) & (ACCESS4_LOOKUP | ACCESS4_DELETE), 0);
    let search = ace(ALLOW, 0, READ | SEARCH, "EVERYONE@");
    assert_eq!(set(&mut ann, &dir, &[owner.clone(), search.clone()]), NfsStat4::Ok);
    bob.lookup(&dir, "file").unwrap();
    assert_eq!(status_of(bob.remove(&dir, "file")), NfsStat4::Access);
    assert_eq!(set(&mut ann, &file, &[ace(ALLOW, 0, DELETE, "1001")]), NfsStat4::Ok);
    bob.remove(&dir, "file").unwrap();
    ann.create(&dir, "file").unwrap();
    // ADD_SUBDIRECTORY alone.
    assert_eq!(
        set(&mut ann, &dir, &[owner.clone(), search.clone(), ace(ALLOW, 0, 0x4, "1001")]),
        NfsStat4::Ok
    );
    assert_eq!(status_of(bob.create(&dir, "new")), NfsStat4::Access);
    bob.mkdir(&dir, "new", 0o755).unwrap();
    assert_eq!(access(&mut bob, &dir) & (ACCESS4_MODIFY | ACCESS4_EXTEND), ACCESS4_EXTEND);
    // DELETE_CHILD alone.
    assert_eq!(set(&mut ann, &dir, &[owner, search, ace(ALLOW, 0, 0x40, "1001")]), NfsStat4::Ok);
    assert_eq!(access(&mut bob, &dir) & ACCESS4_DELETE, ACCESS4_DELETE);
    bob.remove(&dir, "file").unwrap();
}

#[test]
fn new_files_inherit_or_get_the_acl_that_they_are_created_with() {
    let (_instance, server) = Server::start();
    let (mut ann, dir, _) = setup(&server);
    let bob = |flag, mask| ace(ALLOW, flag, mask, "1001");
    let inherited = [ace(ALLOW, 0, READ | WRITE | SEARCH, "OWNER@"), bob(TO_ALL, READ | WRITE | SEARCH)];
    assert_eq!(set(&mut ann, &dir, &inherited), NfsStat4::Ok);
    let mut make = |name: &str, attributes: FileAttributes| {
        let how = OpenFlag4::Create(CreateHow4::Guarded(attributes.encode_all()));
        let made = ann.open_as(&dir, name, "owner", OPEN4_SHARE_ACCESS_READ, how).unwrap();
        (acl_and_mode(&mut ann, &made.handle), made.opened.attrset)
    };
    let umasked = nfs4::attr::ModeUmask4 { mode: 0o666, umask: 0o077 };
    let umasked = FileAttributes { mode_umask: Some(umasked), ..FileAttributes::default() };
    let ((acl, _), attrset) = make("umasked", umasked);
    let of_owner = ace(ALLOW, 0, READ | WRITE, "OWNER@");
    assert_eq!(acl, [bob(0, READ | WRITE), of_owner], "the umask does not count (RFC 8275)");
    assert_eq!(attrset, Bitmap4::of(&[number::MODE]));
    let ((acl, mode), _) = make("moded", FileAttributes { mode: Some(0o640), ..FileAttributes::default() });
    assert!(acl.contains(&bob(0, READ)) && mode == 0o640, "{acl:?}");
    let own = [ace(ALLOW, 0, READ, "OWNER@")];
    let ((acl, mode), attrset) = make("own", with(&own));
    assert_eq!((acl, mode, attrset), (own.to_vec(), 0o400, Bitmap4::of(&[number::ACL])));
    let below = ann.mkdir(&dir, "below", 0o750).unwrap();
    let (acl, mode) = acl_and_mode(&mut ann, &below);
    assert!(acl.contains(&bob(TO_ALL | 0x8, READ | WRITE | SEARCH)), "what goes on stays whole: {acl:?}");
    assert!(acl.contains(&bob(0, READ | SEARCH)) && mode == 0o750, "{acl:?}");
}

#[test]
fn acls_outlive_a_killed_server() {
    let (instance, server) = Server::start();
    let (mut ann, _, file) = setup(&server);
    let acl = [ace(DENY, 0, READ, "1001"), ace(ALLOW, 0, READ, "EVERYONE@")];
    assert_eq!(set(&mut ann, &file, &acl), NfsStat4::Ok);
    server.kill();
    let server = instance.up();
    let mut bob = user(&server, 1001);
    assert_eq!(acl_and_mode(&mut user(&server, 1000), &file), (acl.to_vec(), 0o444));
    assert_eq!(access(&mut bob, &file) & ACCESS4_READ, 0);
}
