//! GETXATTR, SETXATTR, LISTXATTRS, REMOVEXATTR, and what ACCESS and GETATTR say of extended attributes (RFC 8276).

use api::{XATTR_BYTES_MAX, XATTRS_BYTES_MAX};
use nfs4::attr::number;
use nfs4::{
    ACCESS4_MODIFY, ACCESS4_READ, ACCESS4_XALIST, ACCESS4_XAREAD, ACCESS4_XAWRITE, Component4, CreateType4,
    FileAttributes, GetXattr4Args, ListXattrs4ResOk, NfsArgop4, NfsFh4, NfsStat4, RemoveXattr4Args,
    SetXattrOption4, StateId4,
};
use testkit::body;
use testkit::nfs_client::{ClientOptions, NfsClient, auth_sys, ops};
use types::XattrName;

use crate::server::{Server, directory_of, status_of};

const EITHER: SetXattrOption4 = SetXattrOption4::Either;
const CREATE: SetXattrOption4 = SetXattrOption4::Create;
const REPLACE: SetXattrOption4 = SetXattrOption4::Replace;
/// Cookie, number of names, `eof` (RFC 8276 §8.4.3).
const EMPTY_LEN: u32 = 16;

fn setup(server: &Server) -> (NfsClient, NfsFh4, NfsFh4) {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap().handle;
    (client, root, file)
}

fn user(server: &Server, uid: u32) -> NfsClient {
    let name = format!("of {uid}");
    server.client_by(ClientOptions::named(&name).credential(auth_sys(uid, uid, &[])))
}

fn chmod(client: &mut NfsClient, file: &NfsFh4, mode: u32) {
    let attributes = FileAttributes { mode: Some(mode), ..FileAttributes::default() };
    client.set_attributes(file, StateId4::ANONYMOUS, &attributes).unwrap();
}

#[test]
fn an_extended_attribute_is_set_as_asked_read_listed_and_removed() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    for handle in [&file, &root] {
        assert_eq!(client.attributes(handle, &[number::XATTR_SUPPORT]).unwrap().xattr_support, Some(true));
        assert_eq!(client.xattrs(handle, 4096).unwrap(), Vec::<Vec<u8>>::new());
        assert_eq!(status_of(client.xattr(handle, b"a")), NfsStat4::NoXattr);
        assert_eq!(status_of(client.remove_xattr(handle, b"a")), NfsStat4::NoXattr);
        assert_eq!(status_of(client.set_xattr(handle, b"a", b"0", REPLACE)), NfsStat4::NoXattr);
        client.set_xattr(handle, b"a", b"1", CREATE).unwrap();
        assert_eq!(status_of(client.set_xattr(handle, b"a", b"2", CREATE)), NfsStat4::Exist);
        assert_eq!(client.xattr(handle, b"a").unwrap(), &b"1"[..]);
        client.set_xattr(handle, b"a", b"\0 \xff", REPLACE).unwrap();
        assert_eq!(client.xattr(handle, b"a").unwrap(), &b"\0 \xff"[..]);
        client.set_xattr(handle, b"a", b"", EITHER).unwrap();
        client.set_xattr(handle, b"\xfe/.", b"x", EITHER).unwrap();
        assert_eq!(client.xattr(handle, b"a").unwrap(), &b""[..]);
        assert_eq!(client.xattrs(handle, 4096).unwrap(), [b"a".to_vec(), b"\xfe/.".to_vec()]);
        client.remove_xattr(handle, b"a").unwrap();
        assert_eq!(status_of(client.xattr(handle, b"a")), NfsStat4::NoXattr);
        assert_eq!(client.xattrs(handle, 4096).unwrap(), [b"\xfe/.".to_vec()]);
    }
}

/// By these alone a client knows that its cache of the file is valid.
#[test]
fn each_change_of_an_extended_attribute_tells_the_change_before_and_after_it() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    for handle in [&file, &root] {
        let mut seen = client.attributes(handle, &[number::CHANGE, number::TIME_METADATA]).unwrap();
        for step in 0..3 {
            let told = match step {
                0 => client.set_xattr(handle, b"a", b"1", CREATE),
                1 => client.set_xattr(handle, b"a", b"1", EITHER),
                _ => client.remove_xattr(handle, b"a"),
            };
            let told = told.unwrap();
            let now = client.attributes(handle, &[number::CHANGE, number::TIME_METADATA]).unwrap();
            assert!(told.atomic && told.after > told.before);
            assert_eq!((Some(told.before), Some(told.after)), (seen.change, now.change));
            assert!(now.time_metadata > seen.time_metadata);
            seen = now;
        }
        let before = client.change(handle).unwrap();
        assert_eq!(status_of(client.remove_xattr(handle, b"a")), NfsStat4::NoXattr);
        client.xattrs(handle, 4096).unwrap();
        assert_eq!(client.change(handle).unwrap(), before);
    }
}

#[test]
fn extended_attributes_beyond_their_bounds_have_errors_of_their_own() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let long = [b'n'; XattrName::BYTES_MAX + 1];
    for (name, status) in
        [(&b""[..], NfsStat4::Inval), (b"a\0b", NfsStat4::BadChar), (&long, NfsStat4::NameTooLong)]
    {
        assert_eq!(status_of(client.set_xattr(&file, name, b"1", EITHER)), status);
        assert_eq!(status_of(client.xattr(&file, name)), status);
        assert_eq!(status_of(client.remove_xattr(&file, name)), status);
    }
    client.set_xattr(&file, &long[1..], b"1", EITHER).unwrap();
    client.remove_xattr(&file, &long[1..]).unwrap();

    let mut value: Vec<u8> = (0..=XATTR_BYTES_MAX).map(|at| (at % 251) as u8).collect();
    assert_eq!(status_of(client.set_xattr(&file, b"a", &value, EITHER)), NfsStat4::Xattr2Big);
    value.pop();
    for name in [b"a", b"b", b"c"] {
        client.set_xattr(&file, name, &value, EITHER).unwrap();
    }
    assert!(client.xattr(&file, b"b").unwrap() == value);
    assert_eq!(status_of(client.set_xattr(&file, b"d", &value, EITHER)), NfsStat4::NoSpc);
    let rest = XATTRS_BYTES_MAX - 3 * (1 + XATTR_BYTES_MAX) - 1;
    client.set_xattr(&file, b"d", &value[..rest], EITHER).unwrap();
    assert_eq!(status_of(client.set_xattr(&file, b"e", b"", EITHER)), NfsStat4::NoSpc);
}

#[test]
fn a_listing_of_extended_attributes_comes_in_pages_that_stay_true_while_others_go() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let names: Vec<Vec<u8>> = (0..40_u8).rev().map(|at| vec![b'a' + at % 26; 1 + usize::from(at)]).collect();
    for name in &names {
        client.set_xattr(&file, name, b"", CREATE).unwrap();
    }
    let len_of = |name: &[u8]| 4 + name.len().next_multiple_of(4) as u32;
    let longest = EMPTY_LEN + len_of(&names[0]);
    for maxcount in [longest, longest + 30, 300, 1 << 20, u32::MAX] {
        assert_eq!(client.xattrs(&file, maxcount).unwrap(), names, "{maxcount}");
    }
    for maxcount in [0, EMPTY_LEN - 1, EMPTY_LEN, longest - 1] {
        assert_eq!(status_of(client.xattr_page(&file, 0, maxcount)), NfsStat4::TooSmall, "{maxcount}");
    }
    let page = client.xattr_page(&file, 0, longest + len_of(&names[1]) + 3).unwrap();
    assert!(page.names.len() == 2 && !page.eof);
    // Those that were told go, one that follows goes, and one comes.
    for gone in [0, 1, 2] {
        client.remove_xattr(&file, &names[gone]).unwrap();
    }
    client.set_xattr(&file, b"new", b"", CREATE).unwrap();
    let rest = client.xattr_page(&file, page.cookie, 1 << 20).unwrap();
    let rest_names: Vec<&[u8]> = rest.names.iter().map(Component4::as_bytes).collect();
    let expected: Vec<&[u8]> = names[3..].iter().map(Vec::as_slice).chain([&b"new"[..]]).collect();
    assert!(rest.eof && rest_names == expected);
    let end = client.xattr_page(&file, rest.cookie, 1 << 20).unwrap();
    assert_eq!(end, ListXattrs4ResOk { cookie: rest.cookie, names: Vec::new(), eof: true });
    assert_eq!(status_of(client.xattr_page(&file, u64::MAX, 1 << 20)), NfsStat4::BadCookie);
}

#[test]
fn a_value_that_does_not_fit_the_session_is_too_big_a_reply() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = setup(&server);
    client.set_xattr(&file, b"a", &[7; 60 << 10], CREATE).unwrap();
    for at in 0..100 {
        client.set_xattr(&file, format!("{at:0200}").as_bytes(), b"", CREATE).unwrap();
    }
    let mut small = ClientOptions::named("small");
    small.fore_channel.maxresponsesize = 4096;
    let mut small = server.client_by(small);
    assert_eq!(status_of(small.xattr(&file, b"a")), NfsStat4::RepTooBig);
    // A listing gives what fits instead.
    assert_eq!(small.xattrs(&file, 1 << 20).unwrap().len(), 101);
    assert_eq!(small.lookup(&root, "file").unwrap(), file);
}

#[test]
fn access_tells_who_may_read_list_and_write_extended_attributes_and_they_may() {
    const ALL: u32 = ACCESS4_XAREAD | ACCESS4_XALIST | ACCESS4_XAWRITE;
    let (_instance, server) = Server::start();
    let dir = directory_of(&mut server.client("root"), "dir", 1000);
    let (mut owner, mut other) = (user(&server, 1000), user(&server, 1001));
    let file = owner.create(&dir, "file").unwrap().handle;
    owner.set_xattr(&file, b"a", b"1", CREATE).unwrap();
    owner.set_xattr(&dir, b"a", b"1", CREATE).unwrap();
    let reading = ACCESS4_XAREAD | ACCESS4_XALIST;
    for (handle, mode, of_owner, of_other) in [
        (&file, 0o604, ALL, reading),
        (&file, 0o602, ALL, ACCESS4_XAWRITE),
        (&file, 0o400, reading, 0),
        // A regular file's sticky bit means nothing.
        (&file, 0o1606, ALL, ALL),
        (&dir, 0o707, ALL, ALL),
        (&dir, 0o1707, ALL, reading),
    ] {
        chmod(&mut owner, handle, mode);
        for (client, granted) in [(&mut owner, of_owner), (&mut other, of_other)] {
            let reply = client.call(&[ops::put_fh(handle), ops::access(ALL)]).unwrap();
            let told = body!(reply, Access).unwrap();
            assert_eq!((told.supported, told.access), (ALL, granted), "{mode:o}");
            let allowed = |status| status == NfsStat4::Ok;
            assert_eq!(allowed(status_of(client.xattr(handle, b"a"))), granted & ACCESS4_XAREAD != 0);
            assert_eq!(allowed(status_of(client.xattrs(handle, 4096))), granted & ACCESS4_XALIST != 0);
            let writes = granted & ACCESS4_XAWRITE != 0;
            assert_eq!(allowed(status_of(client.set_xattr(handle, b"a", b"1", EITHER))), writes);
        }
    }
    assert_eq!(status_of(other.set_xattr(&dir, b"a", b"1", EITHER)), NfsStat4::Perm);
    assert_eq!(status_of(other.remove_xattr(&dir, b"a")), NfsStat4::Perm);
    chmod(&mut owner, &file, 0o600);
    assert_eq!(status_of(other.xattr(&file, b"a")), NfsStat4::Access);
    assert_eq!(status_of(other.remove_xattr(&file, b"a")), NfsStat4::Access);
}

#[test]
fn links_and_special_files_have_no_extended_attributes() {
    let (_instance, server) = Server::start();
    let (mut client, root, _) = setup(&server);
    let link = CreateType4::Lnk(nfs4::LinkText4::from(bytes::Bytes::from_static(b"file")));
    for (kind, name) in [(CreateType4::Fifo, "fifo"), (link, "link")] {
        let handle = client.create_object(&root, kind, name, 0o777).unwrap();
        assert_eq!(status_of(client.set_xattr(&handle, b"a", b"1", EITHER)), NfsStat4::Perm);
        assert_eq!(status_of(client.remove_xattr(&handle, b"a")), NfsStat4::Perm);
        assert_eq!(status_of(client.xattr(&handle, b"a")), NfsStat4::NoXattr);
        assert_eq!(client.xattrs(&handle, 4096).unwrap(), Vec::<Vec<u8>>::new());
        let asked = ops::access(ACCESS4_READ | ACCESS4_XAREAD | ACCESS4_XAWRITE | ACCESS4_XALIST);
        let reply = client.call(&[ops::put_fh(&handle), asked]).unwrap();
        assert_eq!(body!(reply, Access).unwrap().supported, ACCESS4_READ);
    }
}

#[test]
fn extended_attributes_are_of_4_2() {
    let (_instance, server) = Server::start();
    let (_, _, file) = setup(&server);
    let mut old = server.client_by(ClientOptions::named("old").minorversion(1));
    let name = Component4::from("a");
    for op in [
        NfsArgop4::GetXattr(GetXattr4Args { name: name.clone() }),
        NfsArgop4::RemoveXattr(RemoveXattr4Args { name }),
    ] {
        assert_eq!(status_of(old.call(&[ops::put_fh(&file), op])), NfsStat4::OpIllegal);
    }
    let reply = old.call(&[ops::put_fh(&file), ops::access(ACCESS4_MODIFY | ACCESS4_XAWRITE)]).unwrap();
    assert_eq!(body!(reply, Access).unwrap().supported, ACCESS4_MODIFY);
}

#[test]
fn extended_attributes_outlive_a_crash_of_the_server_and_cookies_go_on() {
    let (instance, server) = Server::start();
    let (mut client, _, file) = setup(&server);
    let value: Vec<u8> = (0..60 << 10).map(|at| (at % 253) as u8).collect();
    client.set_xattr(&file, b"large", &value, CREATE).unwrap();
    client.set_xattr(&file, b"gone", b"1", CREATE).unwrap();
    client.set_xattr(&file, b"small", b"1", CREATE).unwrap();
    client.set_xattr(&file, b"small", b"2", REPLACE).unwrap();
    client.remove_xattr(&file, b"gone").unwrap();
    let first = client.xattr_page(&file, 0, EMPTY_LEN + 12).unwrap();
    let change = client.change(&file).unwrap();
    server.kill();
    let server = instance.up();
    let mut client = server.client("host again");
    assert!(client.change(&file).unwrap() >= change);
    assert_eq!(client.xattrs(&file, 4096).unwrap(), [b"large".to_vec(), b"small".to_vec()]);
    assert!(client.xattr(&file, b"large").unwrap() == value);
    assert_eq!(client.xattr(&file, b"small").unwrap(), &b"2"[..]);
    assert_eq!(client.xattrs(&file, EMPTY_LEN + 12).unwrap().len(), 2);
    client.set_xattr(&file, b"new", b"", CREATE).unwrap();
    let rest = client.xattr_page(&file, first.cookie, 4096).unwrap();
    let rest: Vec<&[u8]> = rest.names.iter().map(Component4::as_bytes).collect();
    assert_eq!(rest, [&b"small"[..], b"new"]);
}
