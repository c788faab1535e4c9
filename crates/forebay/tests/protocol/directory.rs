//! LOOKUP, READDIR, CREATE, REMOVE, RENAME, LINK, READLINK, SECINFO and the current file handle
//! (RFC 8881 §16.2.3, §18.4, §18.9, §18.13, §18.14, §18.23–18.26, §18.29, §18.45).

use std::collections::BTreeSet;

use nfs4::attr::number;
use nfs4::{
    AUTH_SYS, CreateType4, FileAttributes, NfsArgop4, NfsFh4, NfsFtype4, NfsStat4, ReadDir4Args, SecInfo4,
    SecInfo4Args, SecInfoNoName4Args, SecInfoStyle4, StableHow4, StateId4, Verifier4,
};
use testkit::body;
use testkit::nfs_client::{ClientOptions, NfsClient, auth_sys, ops};

use crate::server::{Server, directory_of, status_of};

fn setup(server: &Server) -> (NfsClient, NfsFh4) {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    (client, root)
}

fn names(entries: &[nfs4::DirEntry4]) -> BTreeSet<String> {
    entries.iter().map(|entry| String::from_utf8_lossy(entry.name.as_bytes()).into_owned()).collect()
}

#[test]
fn a_listing_in_tiny_pages_names_everything_once() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let expected: BTreeSet<String> = (0..50).map(|n| format!("entry number {n}")).collect();
    for name in &expected {
        client.mkdir(&root, name, 0o755).unwrap();
    }
    for maxcount in [120, 300, 4096, 1 << 20] {
        let entries = client.list(&root, maxcount).unwrap();
        assert_eq!(entries.len(), expected.len(), "maxcount {maxcount}");
        assert_eq!(names(&entries), expected);
        let cookies: BTreeSet<u64> = entries.iter().map(|entry| entry.cookie).collect();
        assert_eq!(cookies.len(), expected.len());
        assert!(cookies.first() > Some(&2), "0, 1 and 2 have meanings of their own");
    }
}

#[test]
fn a_page_is_no_longer_than_asked_for() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    for n in 0..30 {
        client.mkdir(&root, &format!("{n}"), 0o755).unwrap();
    }
    for maxcount in [100, 200, 512, 1000] {
        let page = client.page(&root, 0, maxcount).unwrap();
        assert!(xdr::to_bytes(&page).len() <= maxcount as usize, "{maxcount}");
        assert!(!page.entries.is_empty() && !page.eof);
    }
    assert_eq!(status_of(client.page(&root, 0, 20)), NfsStat4::TooSmall);
}

#[test]
fn a_listing_goes_on_while_what_it_has_named_is_removed() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let expected: BTreeSet<String> = (0..60).map(|n| format!("n{n}")).collect();
    for name in &expected {
        client.mkdir(&root, name, 0o755).unwrap();
    }
    let (mut cookie, mut seen) = (0, BTreeSet::new());
    loop {
        let page = client.page(&root, cookie, 400).unwrap();
        for name in names(&page.entries) {
            client.remove(&root, &name).unwrap();
            assert!(seen.insert(name));
        }
        // The entry of the cookie is gone now, too.
        cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
        if page.eof {
            break;
        }
    }
    assert_eq!(seen, expected);
    assert!(client.page(&root, 0, 4096).unwrap().entries.is_empty());
}

#[test]
fn a_cookie_outlives_a_restart() {
    let (instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    for n in 0..40 {
        client.mkdir(&root, &format!("{n}"), 0o755).unwrap();
    }
    let first = client.page(&root, 0, 600).unwrap();
    let cookie = first.entries.last().unwrap().cookie;
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let rest = client.page(&root, cookie, 1 << 20).unwrap();
    assert_eq!(first.entries.len() + rest.entries.len(), 40);
    assert!(names(&first.entries).is_disjoint(&names(&rest.entries)));
}

#[test]
fn readdir_gives_attributes_with_the_names() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let dir = client.mkdir(&root, "dir", 0o750).unwrap();
    let numbers = [number::TYPE, number::FILEHANDLE, number::FILEID, number::MODE, number::RDATTR_ERROR];
    let reply = client.call(&[ops::put_fh(&root), ops::read_dir(0, 4096, &numbers)]).unwrap();
    let page = body!(reply, ReadDir).unwrap();
    let attributes = FileAttributes::decode(&page.entries[0].attrs).unwrap();
    assert_eq!(attributes.file_type, Some(NfsFtype4::Dir));
    assert_eq!((attributes.filehandle, attributes.mode), (Some(dir), Some(0o750)));
    assert_eq!(attributes.rdattr_error, Some(NfsStat4::Ok));
}

#[test]
fn cookies_that_no_server_gives_are_bad() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    client.mkdir(&root, "dir", 0o755).unwrap();
    for cookie in [1, 2] {
        assert_eq!(status_of(client.page(&root, cookie, 4096)), NfsStat4::BadCookie);
    }
    let verified = NfsArgop4::ReadDir(ReadDir4Args {
        cookie: 1000,
        cookieverf: Verifier4([0xee; 8]),
        dircount: 4096,
        maxcount: 4096,
        attr_request: nfs4::Bitmap4::EMPTY,
    });
    assert_eq!(status_of(client.call(&[ops::put_fh(&root), verified])), NfsStat4::NotSame);
}

#[test]
fn only_directories_are_listed_and_looked_into() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap().handle;
    let target = bytes::Bytes::from_static(b"elsewhere");
    let link = client.create_object(&root, CreateType4::Lnk(target.into()), "link", 0o777).unwrap();
    assert_eq!(status_of(client.page(&file, 0, 4096)), NfsStat4::NotDir);
    assert_eq!(status_of(client.lookup(&file, "x")), NfsStat4::NotDir);
    assert_eq!(status_of(client.lookup(&link, "x")), NfsStat4::SymLink, "so that the client follows it");
    assert_eq!(status_of(client.lookup(&root, "nothing")), NfsStat4::NoEnt);
    for (name, status) in [
        ("", NfsStat4::Inval),
        (".", NfsStat4::BadName),
        ("..", NfsStat4::BadName),
        ("a/b", NfsStat4::BadChar),
    ] {
        assert_eq!(status_of(client.lookup(&root, name)), status, "{name:?}");
    }
}

#[test]
fn the_way_up_ends_at_the_root() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let dir = client.mkdir(&root, "dir", 0o755).unwrap();
    let up = |handle: &NfsFh4| [ops::put_fh(handle), NfsArgop4::LookupP, NfsArgop4::GetFh];
    let reply = client.call(&up(&dir)).unwrap();
    assert_eq!(body!(reply, GetFh).unwrap().object, root);
    assert_eq!(status_of(client.call(&up(&root))), NfsStat4::NoEnt);
}

#[test]
fn every_type_is_made_as_what_it_is() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let device = nfs4::SpecData4 { specdata1: 1, specdata2: 3 };
    let target = bytes::Bytes::from_static(b"../some where/else");
    let all = [
        (CreateType4::Dir, NfsFtype4::Dir),
        (CreateType4::Fifo, NfsFtype4::Fifo),
        (CreateType4::Sock, NfsFtype4::Sock),
        (CreateType4::Chr(device), NfsFtype4::Chr),
        (CreateType4::Blk(device), NfsFtype4::Blk),
        (CreateType4::Lnk(target.clone().into()), NfsFtype4::Lnk),
    ];
    for (n, (objtype, file_type)) in all.into_iter().enumerate() {
        let handle = client.create_object(&root, objtype, &format!("{n}"), 0o640).unwrap();
        assert_eq!(client.attributes(&handle, &[number::TYPE]).unwrap().file_type, Some(file_type));
    }
    let link = client.lookup(&root, "5").unwrap();
    let reply = client.call(&[ops::put_fh(&link), NfsArgop4::ReadLink]).unwrap();
    assert_eq!(body!(reply, ReadLink).unwrap().link.as_bytes(), &target[..]);
    assert_eq!(client.size(&link).unwrap(), target.len() as u64);
    let of_directory = client.call(&[ops::put_fh(&root), NfsArgop4::ReadLink]);
    assert!(matches!(status_of(of_directory), NfsStat4::WrongType | NfsStat4::Inval));
    let regular = client.create_object(&root, CreateType4::Other(1), "regular", 0o644);
    assert_eq!(status_of(regular), NfsStat4::BadType, "that is OPEN's");
    assert_eq!(status_of(client.mkdir(&root, "0", 0o755)), NfsStat4::Exist);
}

#[test]
fn removing_and_what_stands_against_it() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let dir = client.mkdir(&root, "dir", 0o755).unwrap();
    client.mkdir(&dir, "inside", 0o755).unwrap();
    assert_eq!(status_of(client.remove(&root, "nothing")), NfsStat4::NoEnt);
    assert_eq!(status_of(client.remove(&root, "dir")), NfsStat4::NotEmpty);
    client.remove(&dir, "inside").unwrap();
    let reply = client.call(&[ops::put_fh(&root), ops::remove("dir")]).unwrap();
    let cinfo = body!(reply, Remove).unwrap().cinfo;
    assert!(cinfo.after > cinfo.before);
    assert_eq!(cinfo.after, client.change(&root).unwrap());
    assert_eq!(status_of(client.attributes(&dir, &[number::TYPE])), NfsStat4::Stale);
}

#[test]
fn links_share_one_file() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let dir = client.mkdir(&root, "dir", 0o755).unwrap();
    let file = client.create(&root, "file").unwrap();
    client.link(&file.handle, &dir, "second").unwrap();
    assert_eq!(client.lookup(&dir, "second").unwrap(), file.handle);
    assert_eq!(client.attributes(&file.handle, &[number::NUMLINKS]).unwrap().numlinks, Some(2));
    assert_eq!(status_of(client.link(&file.handle, &dir, "second")), NfsStat4::Exist);
    assert_eq!(status_of(client.link(&dir, &root, "directory")), NfsStat4::IsDir);
    assert_eq!(status_of(client.link(&file.handle, &file.handle, "x")), NfsStat4::NotDir);
    client.remove(&root, "file").unwrap();
    assert_eq!(client.attributes(&file.handle, &[number::NUMLINKS]).unwrap().numlinks, Some(1));
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"alive").unwrap();
}

#[test]
fn renaming_replaces_its_like_and_nothing_else() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let (full, empty) =
        (client.mkdir(&root, "full", 0o755).unwrap(), client.mkdir(&root, "empty", 0o755).unwrap());
    client.mkdir(&full, "inside", 0o755).unwrap();
    let file = client.create(&root, "file").unwrap().handle;
    client.create(&root, "other").unwrap();
    let mut rename = |from: &str, to: &str| status_of(client.rename((&root, from), (&root, to)));
    assert_eq!(rename("nothing", "x"), NfsStat4::NoEnt);
    assert_eq!(rename("file", "full"), NfsStat4::Exist);
    assert_eq!(rename("empty", "file"), NfsStat4::Exist);
    assert!(matches!(rename("empty", "full"), NfsStat4::Exist | NfsStat4::NotEmpty));
    assert_eq!(rename("file", "other"), NfsStat4::Ok);
    assert_eq!(rename("full", "empty"), NfsStat4::Ok);
    assert_eq!(client.lookup(&root, "other").unwrap(), file);
    assert_eq!(client.lookup(&root, "empty").unwrap(), full);
    assert_eq!(status_of(client.attributes(&empty, &[number::TYPE])), NfsStat4::Stale, "it was replaced");
    let below = client.lookup(&full, "inside").unwrap();
    assert_eq!(status_of(client.rename((&root, "empty"), (&below, "x"))), NfsStat4::Inval, "a cycle");
    client.rename((&full, "inside"), (&root, "moved")).unwrap();
    let up = client.call(&[ops::put_fh(&below), NfsArgop4::LookupP, NfsArgop4::GetFh]).unwrap();
    assert_eq!(body!(up, GetFh).unwrap().object, root);
}

#[test]
fn renaming_one_link_onto_another_of_the_same_file_does_nothing() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "one").unwrap().handle;
    client.link(&file, &root, "two").unwrap();
    client.rename((&root, "one"), (&root, "two")).unwrap();
    assert_eq!(names(&client.list(&root, 4096).unwrap()).len(), 2);
}

#[test]
fn a_sticky_directory_protects_the_names_of_others() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let shared = client.mkdir(&root, "tmp", 0o1777).unwrap();
    let mut ann = server.client_by(ClientOptions::named("ann").credential(auth_sys(1000, 1000, &[])));
    let mut bob = server.client_by(ClientOptions::named("bob").credential(auth_sys(1001, 1001, &[])));
    ann.create(&shared, "file").unwrap();
    let refused = status_of(bob.remove(&shared, "file"));
    assert!(matches!(refused, NfsStat4::Perm | NfsStat4::Access), "{refused}");
    let refused = status_of(bob.rename((&shared, "file"), (&shared, "mine")));
    assert!(matches!(refused, NfsStat4::Perm | NfsStat4::Access), "{refused}");
    ann.remove(&shared, "file").unwrap();
}

#[test]
fn a_directory_without_permission_is_neither_changed_nor_searched_nor_listed() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let home = directory_of(&mut client, "home", 1000);
    let mut ann = server.client_by(ClientOptions::named("ann").credential(auth_sys(1000, 1000, &[])));
    let mut bob = server.client_by(ClientOptions::named("bob").credential(auth_sys(1001, 1001, &[])));
    ann.create(&home, "file").unwrap();
    assert_eq!(status_of(bob.remove(&home, "file")), NfsStat4::Access);
    assert_eq!(status_of(bob.mkdir(&home, "dir", 0o755)), NfsStat4::Access);
    let private = FileAttributes { mode: Some(0o700), ..FileAttributes::default() };
    ann.set_attributes(&home, StateId4::ANONYMOUS, &private).unwrap();
    assert_eq!(status_of(bob.lookup(&home, "file")), NfsStat4::Access);
    assert_eq!(status_of(bob.page(&home, 0, 4096)), NfsStat4::Access);
}

#[test]
fn a_setgid_directory_hands_its_group_on() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let dir = client.mkdir(&root, "dir", 0o2777).unwrap();
    let group = FileAttributes {
        owner_group: Some(nfs4::attr::Principal4::numeric(500)),
        mode: Some(0o2777),
        ..FileAttributes::default()
    };
    client.set_attributes(&dir, StateId4::ANONYMOUS, &group).unwrap();
    let mut ann = server.client_by(ClientOptions::named("ann").credential(auth_sys(1000, 1000, &[500])));
    let file = ann.create(&dir, "file").unwrap().handle;
    let below = ann.mkdir(&dir, "below", 0o755).unwrap();
    let of = |client: &mut NfsClient, handle: &NfsFh4| {
        client.attributes(handle, &[number::OWNER_GROUP, number::MODE]).unwrap()
    };
    assert_eq!(of(&mut ann, &file).owner_group, group.owner_group);
    let below = of(&mut ann, &below);
    assert_eq!((below.owner_group, below.mode), (group.owner_group, Some(0o2755)));
}

#[test]
fn file_handles_are_put_saved_and_restored() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let dir = client.mkdir(&root, "dir", 0o755).unwrap();
    let reply = client
        .call(&[
            ops::put_fh(&dir),
            NfsArgop4::SaveFh,
            NfsArgop4::PutPubFh,
            NfsArgop4::RestoreFh,
            NfsArgop4::GetFh,
        ])
        .unwrap();
    assert_eq!(body!(reply, GetFh).unwrap().object, dir);
    assert_eq!(client.compound(&[NfsArgop4::GetFh]).unwrap().status, NfsStat4::NoFileHandle);
    let restore = client.compound(&[NfsArgop4::PutRootFh, NfsArgop4::RestoreFh]).unwrap();
    assert!(matches!(restore.status, NfsStat4::RestoreFh | NfsStat4::NoFileHandle), "{}", restore.status);
    for foreign in [vec![], vec![0; 16], vec![0xff; 128], root.as_bytes()[1..].to_vec()] {
        let put = client.call(&[ops::put_fh(&NfsFh4::from(foreign))]);
        assert_eq!(status_of(put), NfsStat4::BadHandle);
    }
}

#[test]
fn handles_outlive_a_restart_and_a_removed_file_is_stale() {
    let (instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let kept = client.mkdir(&root, "kept", 0o755).unwrap();
    let gone = client.mkdir(&root, "gone", 0o755).unwrap();
    client.remove(&root, "gone").unwrap();
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    assert_eq!(client.root().unwrap(), root);
    assert!(client.attributes(&kept, &[number::TYPE]).is_ok());
    assert_eq!(status_of(client.attributes(&gone, &[number::TYPE])), NfsStat4::Stale);
}

#[test]
fn the_server_tells_that_it_speaks_auth_sys() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    client.mkdir(&root, "dir", 0o755).unwrap();
    let by_name = NfsArgop4::SecInfo(SecInfo4Args { name: "dir".into() });
    let reply = client.call(&[ops::put_fh(&root), by_name.clone()]).unwrap();
    assert!(body!(reply, SecInfo).unwrap().flavors.contains(&SecInfo4::Flavor(AUTH_SYS)));
    let no_name = NfsArgop4::SecInfoNoName(SecInfoNoName4Args { style: SecInfoStyle4::CurrentFh });
    let reply = client.call(&[ops::put_fh(&root), no_name]).unwrap();
    assert!(body!(reply, SecInfoNoName).unwrap().flavors.contains(&SecInfo4::Flavor(AUTH_SYS)));
    // RFC 8881 §2.6.3.1.1.8: both consume the current file handle.
    let after = client.compound(&[ops::put_fh(&root), by_name, NfsArgop4::GetFh]).unwrap();
    assert_eq!(after.status, NfsStat4::NoFileHandle);
}

#[test]
fn a_creation_by_many_at_once_has_one_winner() {
    let (_instance, server) = Server::start();
    let (_client, root) = setup(&server);
    let statuses: Vec<NfsStat4> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..6)
            .map(|n| {
                let (root, head) = (&root, server.head());
                scope.spawn(move || {
                    let options = ClientOptions::named(&format!("racer{n}"));
                    let mut racer = NfsClient::connect(head, options).unwrap();
                    let how = ops::guarded(0o644);
                    status_of(racer.open_as(root, "file", "owner", nfs4::OPEN4_SHARE_ACCESS_BOTH, how))
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == NfsStat4::Ok).count(), 1);
    assert!(statuses.iter().all(|status| matches!(status, NfsStat4::Ok | NfsStat4::Exist)), "{statuses:?}");
}

#[test]
fn names_are_bytes_and_only_few_of_them_are_refused() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let make = |name: &[u8]| {
        NfsArgop4::Create(nfs4::Create4Args {
            objtype: CreateType4::Dir,
            objname: name.into(),
            createattrs: nfs4::Fattr4::default(),
        })
    };
    let mut create = |name: &[u8]| status_of(client.call(&[ops::put_fh(&root), make(name)]));
    assert_eq!(create(b"nul\0inside"), NfsStat4::BadChar);
    assert_eq!(create(b"not \xff utf-8"), NfsStat4::Ok);
    assert_eq!(create("\u{fc}mlaut".as_bytes()), NfsStat4::Ok);
    assert_eq!(create("u\u{308}mlaut".as_bytes()), NfsStat4::Ok, "nothing is normalised");
    assert_eq!(create(b" "), NfsStat4::Ok);
    assert_eq!(create(b"..."), NfsStat4::Ok);
    assert_eq!(client.list(&root, 4096).unwrap().len(), 5);
    let empty = client.create_object(&root, CreateType4::Lnk(bytes::Bytes::new().into()), "link", 0o777);
    assert_eq!(status_of(empty), NfsStat4::Inval);
}

#[test]
fn renaming_onto_itself_does_nothing() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let dir = client.mkdir(&root, "dir", 0o755).unwrap();
    client.rename((&root, "dir"), (&root, "dir")).unwrap();
    assert_eq!(client.lookup(&root, "dir").unwrap(), dir);
    assert_eq!(status_of(client.rename((&root, "."), (&root, "x"))), NfsStat4::BadName);
    assert_eq!(status_of(client.remove(&root, "..")), NfsStat4::BadName);
}
