//! OPEN in its claims and create modes, share reservations, OPEN_DOWNGRADE, CLOSE, and I/O through the head
//! (RFC 8881 §9.7, §18.2, §18.16–18.18, §18.22, §18.32).

use nfs4::attr::number;
use nfs4::{
    Bitmap4, Component4, CreatVerfAttr, CreateHow4, CreateType4, FileAttributes, NfsArgop4, NfsFh4, NfsStat4,
    OPEN4_RESULT_LOCKTYPE_POSIX, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_BOTH,
    OPEN4_SHARE_DENY_NONE, OPEN4_SHARE_DENY_READ, OPEN4_SHARE_DENY_WRITE, Open4Args, OpenClaim4,
    OpenClaimDelegateCur4, OpenDelegation4, OpenDelegationType4, OpenDowngrade4Args, OpenFlag4, StableHow4,
    StateId4, Verifier4,
};
use testkit::body;
use testkit::nfs_client::{ClientOptions, NfsClient, auth_sys, ops, when_ready};

use crate::server::{Server, directory_of, status_of};

fn setup(server: &Server) -> (NfsClient, NfsFh4) {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    (client, root)
}

fn with_mode(mode: u32) -> FileAttributes {
    FileAttributes { mode: Some(mode), ..FileAttributes::default() }
}

fn open_denying(owner: &str, access: u32, deny: u32, name: &str) -> NfsArgop4 {
    NfsArgop4::Open(Open4Args {
        seqid: 0,
        share_access: access,
        share_deny: deny,
        owner: ops::owner(owner),
        openhow: OpenFlag4::NoCreate,
        claim: OpenClaim4::Null(name.into()),
    })
}

fn exclusive(verifier: u64, attributes: &FileAttributes) -> OpenFlag4 {
    OpenFlag4::Create(CreateHow4::Exclusive41(CreatVerfAttr {
        verf: Verifier4(verifier.to_be_bytes()),
        attrs: attributes.encode_all(),
    }))
}

const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;

#[test]
fn unchecked_creates_once_and_opens_afterwards() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let first = client.open_as(&root, "file", "owner", BOTH, ops::unchecked(0o640)).unwrap();
    assert_eq!(first.opened.attrset, Bitmap4::of(&[number::MODE]));
    assert!(first.opened.cinfo.after > first.opened.cinfo.before);
    assert_ne!(first.opened.rflags & OPEN4_RESULT_LOCKTYPE_POSIX, 0);
    assert_eq!(first.opened.delegation, OpenDelegation4::None);
    let mut other = server.client("other");
    let second = other.open_as(&root, "file", "owner", BOTH, ops::unchecked(0o777)).unwrap();
    assert_eq!(second.handle, first.handle);
    assert_eq!(second.opened.attrset, Bitmap4::EMPTY, "attributes are for the creation");
    assert_eq!(client.attributes(&first.handle, &[number::MODE]).unwrap().mode, Some(0o640));
}

#[test]
fn unchecked_with_size_zero_truncates_what_is_there() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"old content").unwrap();
    let empty = FileAttributes { size: Some(0), ..with_mode(0o600) };
    let how = OpenFlag4::Create(CreateHow4::Unchecked(empty.encode_all()));
    let again = client.open_as(&root, "file", "owner", BOTH, how).unwrap();
    assert_eq!(again.opened.attrset, Bitmap4::of(&[number::SIZE]));
    assert_eq!(client.size(&again.handle).unwrap(), 0);
    assert!(client.read(&again.handle, again.stateid, 0, 10).unwrap().data.is_empty());
    assert_eq!(client.attributes(&file.handle, &[number::MODE]).unwrap().mode, Some(0o644));
}

#[test]
fn guarded_creates_or_says_exist() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    client.open_as(&root, "file", "owner", BOTH, ops::guarded(0o600)).unwrap();
    let again = client.open_as(&root, "file", "owner", BOTH, ops::guarded(0o600));
    assert_eq!(status_of(again), NfsStat4::Exist);
}

#[test]
fn an_exclusive_creation_is_recognized_when_it_comes_again() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let first = client.open_as(&root, "file", "owner", BOTH, exclusive(7, &with_mode(0o620))).unwrap();
    assert!(first.opened.attrset.contains(number::MODE));
    assert_eq!(client.attributes(&first.handle, &[number::MODE]).unwrap().mode, Some(0o620));
    // As after a lost reply and a new session: not a retransmission on the slot.
    let again = client.open_as(&root, "file", "owner", BOTH, exclusive(7, &with_mode(0o620))).unwrap();
    assert_eq!(again.handle, first.handle);
    let foreign = client.open_as(&root, "file", "owner", BOTH, exclusive(8, &with_mode(0o620)));
    assert_eq!(status_of(foreign), NfsStat4::Exist);
}

/// Two nodes that were booted from one image at the same time: Linux counts ticks since boot and thread ids.
#[test]
fn of_two_clients_with_the_same_verifier_one_makes_the_file() {
    let (instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let how = || exclusive(7, &with_mode(0o620));
    let made = client.open_as(&root, "file", "owner", BOTH, how()).unwrap();
    let mut other = server.client("other");
    assert_eq!(status_of(other.open_as(&root, "file", "owner", BOTH, how())), NfsStat4::Exist);
    server.kill();
    let server = instance.up();
    let options = ClientOptions::named("host");
    let mut rebooted = server.client_by(options.clone().verifier(*b"boot 002"));
    let again = when_ready(|| rebooted.open_as(&root, "file", "owner", BOTH, how()));
    assert_eq!(status_of(again), NfsStat4::Exist, "another boot of the client");
    let mut client = server.client_by(options);
    let again = when_ready(|| client.open_as(&root, "file", "owner", BOTH, how()));
    assert_eq!(again.unwrap().handle, made.handle, "the client that has made it, over a restart");
}

#[test]
fn the_exclusive_creation_of_4_0_works_too() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let how = |n: u8| OpenFlag4::Create(CreateHow4::Exclusive(Verifier4([n; 8])));
    let first = client.open_as(&root, "file", "owner", BOTH, how(1)).unwrap();
    assert_eq!(client.open_as(&root, "file", "owner", BOTH, how(1)).unwrap().handle, first.handle);
    assert_eq!(status_of(client.open_as(&root, "file", "owner", BOTH, how(2))), NfsStat4::Exist);
}

#[test]
fn an_exclusive_creation_survives_a_restart_of_the_server() {
    let (instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let first = client.open_as(&root, "file", "owner", BOTH, exclusive(7, &with_mode(0o600))).unwrap();
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let mut create = |verifier| {
        let how = || exclusive(verifier, &with_mode(0o600));
        when_ready(|| client.open_as(&root, "file", "owner", BOTH, how()))
    };
    assert_eq!(create(7).unwrap().handle, first.handle);
    assert_eq!(status_of(create(8)), NfsStat4::Exist);
}

#[test]
fn the_creator_of_a_file_may_write_it_whatever_its_mode() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let dir = directory_of(&mut client, "home", 1000);
    let mut ann = server.client_by(ClientOptions::named("ann").credential(auth_sys(1000, 1000, &[])));
    let file = ann.open_as(&dir, "file", "owner", BOTH, ops::guarded(0o444)).unwrap();
    ann.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"by its maker").unwrap();
    ann.close(&file).unwrap();
    let again = ann.open(&dir, "file", BOTH);
    assert_eq!(status_of(again), NfsStat4::Access, "the next open goes by the mode");
    assert!(ann.open(&dir, "file", OPEN4_SHARE_ACCESS_READ).is_ok());
}

#[test]
fn the_mode_decides_who_opens() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let dir = directory_of(&mut client, "home", 1000);
    let mut ann = server.client_by(ClientOptions::named("ann").credential(auth_sys(1000, 1000, &[])));
    let mut bob = server.client_by(ClientOptions::named("bob").credential(auth_sys(1001, 1001, &[])));
    ann.open_as(&dir, "readable", "owner", BOTH, ops::guarded(0o644)).unwrap();
    ann.open_as(&dir, "private", "owner", BOTH, ops::guarded(0o600)).unwrap();
    assert!(bob.open(&dir, "readable", OPEN4_SHARE_ACCESS_READ).is_ok());
    assert_eq!(status_of(bob.open(&dir, "readable", OPEN4_SHARE_ACCESS_WRITE)), NfsStat4::Access);
    assert_eq!(status_of(bob.open(&dir, "private", OPEN4_SHARE_ACCESS_READ)), NfsStat4::Access);
    assert_eq!(status_of(bob.create(&dir, "new")), NfsStat4::Access);
}

#[test]
fn an_object_that_is_no_regular_file_is_not_opened() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    client.create_object(&root, CreateType4::Dir, "dir", 0o755).unwrap();
    client.create_object(&root, CreateType4::Fifo, "fifo", 0o644).unwrap();
    let target = bytes::Bytes::from_static(b"dir");
    client.create_object(&root, CreateType4::Lnk(target.into()), "link", 0o777).unwrap();
    let mut open = |name: &str| status_of(client.open(&root, name, OPEN4_SHARE_ACCESS_READ));
    assert_eq!(open("dir"), NfsStat4::IsDir);
    assert_eq!(open("link"), NfsStat4::SymLink);
    assert_eq!(open("fifo"), NfsStat4::WrongType);
    assert_eq!(open("nothing"), NfsStat4::NoEnt);
}

#[test]
fn names_that_are_none_are_refused() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let mut create = |name: &str| status_of(client.create(&root, name));
    assert_eq!(create(""), NfsStat4::Inval);
    assert_eq!(create("."), NfsStat4::BadName);
    assert_eq!(create("a/b"), NfsStat4::BadChar);
    assert_eq!(create(&"n".repeat(256)), NfsStat4::NameTooLong);
    assert_eq!(create(&"n".repeat(255)), NfsStat4::Ok);
}

#[test]
fn share_bits_that_mean_nothing_are_invalid() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    client.create(&root, "file").unwrap();
    for (access, deny) in [(0, 0), (OPEN4_SHARE_ACCESS_READ, 4), (0x40, 0)] {
        let outcome = client.open_by(&root, open_denying("owner", access, deny, "file"));
        assert_eq!(status_of(outcome), NfsStat4::Inval, "access {access:#x} deny {deny:#x}");
    }
}

#[test]
fn shares_that_conflict_are_denied() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap();
    client.close(&file).unwrap();
    let reading = open_denying("a", OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_WRITE, "file");
    let held = client.open_by(&root, reading).unwrap();
    let mut other = server.client("other");
    let mut open =
        |access: u32, deny: u32| status_of(other.open_by(&root, open_denying("b", access, deny, "file")));
    assert_eq!(open(OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_NONE), NfsStat4::ShareDenied);
    assert_eq!(open(OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_READ), NfsStat4::ShareDenied);
    assert_eq!(open(OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_WRITE), NfsStat4::Ok);
    let same_client = client.open_by(&root, open_denying("c", OPEN4_SHARE_ACCESS_WRITE, 0, "file"));
    assert_eq!(status_of(same_client), NfsStat4::ShareDenied, "owners of one client conflict as well");
    let anonymous = client.write(&held.handle, StateId4::ANONYMOUS, 0, StableHow4::FileSync, b"x");
    assert_eq!(status_of(anonymous), NfsStat4::Locked, "a denial counts for who holds no open, too");
}

#[test]
fn a_second_open_of_an_owner_widens_the_first_and_keeps_its_stateid() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    client.create(&root, "file").map(|file| client.close(&file).unwrap()).unwrap();
    let first = client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let outcome = client.write(&first.handle, first.stateid, 0, StableHow4::FileSync, b"x");
    assert_eq!(status_of(outcome), NfsStat4::OpenMode);
    let second = client.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE).unwrap();
    assert_eq!(second.stateid, StateId4 { seqid: first.stateid.seqid + 1, ..first.stateid });
    client.write(&second.handle, second.stateid, 0, StableHow4::FileSync, b"x").unwrap();
    client.read(&second.handle, second.stateid, 0, 1).unwrap();
    let old = client.read(&first.handle, first.stateid, 0, 1);
    assert_eq!(status_of(old), NfsStat4::OldStateId);
    let current = StateId4 { seqid: 0, ..first.stateid };
    assert!(client.read(&first.handle, current, 0, 1).is_ok(), "seqid 0 is whatever it is now");
    let future = StateId4 { seqid: 9, ..first.stateid };
    assert_eq!(status_of(client.read(&first.handle, future, 0, 1)), NfsStat4::BadStateId);
}

#[test]
fn a_downgrade_takes_access_away_and_cannot_add_any() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    client.create(&root, "file").map(|file| client.close(&file).unwrap()).unwrap();
    client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let file = client.open(&root, "file", OPEN4_SHARE_ACCESS_WRITE).unwrap();
    let downgrade = |stateid, share_access| {
        let args = OpenDowngrade4Args { open_stateid: stateid, seqid: 0, share_access, share_deny: 0 };
        [ops::put_fh(&file.handle), NfsArgop4::OpenDowngrade(args)]
    };
    let reply = client.call(&downgrade(file.stateid, OPEN4_SHARE_ACCESS_READ)).unwrap();
    let stateid = body!(reply, OpenDowngrade).unwrap().open_stateid;
    assert_eq!(stateid, StateId4 { seqid: file.stateid.seqid + 1, ..file.stateid });
    let outcome = client.write(&file.handle, stateid, 0, StableHow4::FileSync, b"x");
    assert_eq!(status_of(outcome), NfsStat4::OpenMode);
    assert_eq!(status_of(client.call(&downgrade(stateid, BOTH))), NfsStat4::Inval);
    let mut other = server.client("other");
    let denying = open_denying("b", OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_DENY_WRITE, "file");
    assert!(other.open_by(&root, denying).is_ok(), "nobody writes any more");
}

#[test]
fn a_closed_stateid_is_worth_nothing() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap();
    client.close(&file).unwrap();
    assert_eq!(status_of(client.close(&file)), NfsStat4::BadStateId);
    assert_eq!(status_of(client.read(&file.handle, file.stateid, 0, 1)), NfsStat4::BadStateId);
    let again = client.create(&root, "file").unwrap();
    assert_ne!(again.stateid, file.stateid);
}

#[test]
fn a_stateid_serves_its_own_file_and_client_only() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let (one, two) = (client.create(&root, "one").unwrap(), client.create(&root, "two").unwrap());
    assert_eq!(status_of(client.read(&two.handle, one.stateid, 0, 1)), NfsStat4::BadStateId);
    let mut other = server.client("other");
    assert_eq!(status_of(other.read(&one.handle, one.stateid, 0, 1)), NfsStat4::BadStateId);
    assert_eq!(
        status_of(other.call(&[ops::put_fh(&one.handle), ops::close(one.stateid)])),
        NfsStat4::BadStateId
    );
}

#[test]
fn an_open_by_handle_needs_no_name() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap();
    client.close(&file).unwrap();
    let claim = ops::open_claiming("owner", OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate, OpenClaim4::Fh);
    let opened = client.open_by(&file.handle, claim).unwrap();
    assert_eq!(opened.handle, file.handle);
    let of_directory =
        ops::open_claiming("owner", OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate, OpenClaim4::Fh);
    assert_eq!(status_of(client.open_by(&root, of_directory)), NfsStat4::IsDir);
}

#[test]
fn delegations_that_nobody_has_cannot_be_claimed() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap();
    let stateid = StateId4 { seqid: 1, other: [4; 12] };
    let by_name = OpenClaimDelegateCur4 { delegate_stateid: stateid, file: Component4::from("file") };
    let mut claim = |start: &NfsFh4, claim: OpenClaim4| {
        let open = ops::open_claiming("owner", OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate, claim);
        status_of(client.open_by(start, open))
    };
    assert_eq!(claim(&root, OpenClaim4::DelegateCur(by_name)), NfsStat4::BadStateId);
    assert_eq!(claim(&file.handle, OpenClaim4::DelegCurFh(stateid)), NfsStat4::BadStateId);
    for previous in [OpenClaim4::DelegatePrev("file".into()), OpenClaim4::DelegPrevFh] {
        let start = if previous == OpenClaim4::DelegPrevFh { &file.handle } else { &root };
        assert!(matches!(
            claim(start, previous),
            NfsStat4::NotSupp | NfsStat4::ReclaimBad | NfsStat4::NoGrace
        ));
    }
}

#[test]
fn without_grace_nothing_is_reclaimed() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap();
    let previous = OpenClaim4::Previous(OpenDelegationType4::None);
    let reclaim = ops::open_claiming("owner", BOTH, OpenFlag4::NoCreate, previous);
    assert_eq!(status_of(client.open_by(&file.handle, reclaim)), NfsStat4::NoGrace);
}

#[test]
fn an_open_that_wants_a_delegation_and_gets_none_is_answered_with_none_ext() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let access = BOTH | OPEN4_SHARE_ACCESS_WANT_READ_DELEG;
    let file = client.open_as(&root, "file", "owner", access, ops::unchecked(0o644)).unwrap();
    assert!(matches!(file.opened.delegation, OpenDelegation4::NoneExt(_)), "{:?}", file.opened.delegation);
}

#[test]
fn the_current_stateid_stands_for_the_open_before() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let reply = client
        .call(&[
            ops::put_fh(&root),
            ops::open("owner", BOTH, ops::unchecked(0o644), "file"),
            ops::write(StateId4::CURRENT, 0, StableHow4::FileSync, b"in one go"),
            ops::read(StateId4::CURRENT, 3, 3),
            ops::close(StateId4::CURRENT),
        ])
        .unwrap();
    assert_eq!(&body!(reply, Read).unwrap().data[..], b"one");
    let after_putfh = client.compound(&[ops::put_fh(&root), ops::close(StateId4::CURRENT)]).unwrap();
    assert_eq!(after_putfh.status, NfsStat4::BadStateId, "a new file handle has no stateid yet");
}

#[test]
fn data_written_through_the_head_is_read_back() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap();
    let data: Vec<u8> = (0..300_000_u32).map(|n| (n % 253) as u8).collect();
    let written = client.write(&file.handle, file.stateid, 0, StableHow4::Unstable, &data).unwrap();
    assert_eq!(written.count, 300_000);
    assert_eq!(client.commit(&file.handle).unwrap().writeverf, written.writeverf);
    assert_eq!(client.size(&file.handle).unwrap(), 300_000);
    let read = client.read(&file.handle, file.stateid, 0, 1 << 20).unwrap();
    assert!(read.eof && read.data[..] == data[..]);
    let at_end = client.read(&file.handle, file.stateid, 300_000, 10).unwrap();
    assert!(at_end.eof && at_end.data.is_empty());
    let hole = client.write(&file.handle, file.stateid, 1_000_000, StableHow4::FileSync, b"end").unwrap();
    assert_eq!(hole.committed, StableHow4::FileSync);
    let zeros = client.read(&file.handle, file.stateid, 300_000, 100).unwrap();
    assert!(!zeros.eof && zeros.data[..] == [0; 100]);
}

#[test]
fn io_on_what_has_no_data_is_refused() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let fifo = client.create_object(&root, CreateType4::Fifo, "fifo", 0o644).unwrap();
    let target = bytes::Bytes::from_static(b"x");
    let link = client.create_object(&root, CreateType4::Lnk(target.into()), "link", 0o777).unwrap();
    let anonymous = StateId4::ANONYMOUS;
    assert_eq!(status_of(client.read(&root, anonymous, 0, 1)), NfsStat4::IsDir);
    assert!(matches!(status_of(client.read(&fifo, anonymous, 0, 1)), NfsStat4::Inval | NfsStat4::WrongType));
    assert!(matches!(
        status_of(client.read(&link, anonymous, 0, 1)),
        NfsStat4::SymLink | NfsStat4::WrongType
    ));
    let write = client.write(&root, anonymous, 0, StableHow4::FileSync, b"x");
    assert_eq!(status_of(write), NfsStat4::IsDir);
    assert_eq!(status_of(client.commit(&root)), NfsStat4::IsDir);
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let file = client.create(&root, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"still here").unwrap();
    client.remove(&root, "file").unwrap();
    assert_eq!(status_of(client.lookup(&root, "file")), NfsStat4::NoEnt);
    let read = client.read(&file.handle, file.stateid, 0, 100).unwrap();
    assert_eq!(&read.data[..], b"still here");
    assert_eq!(client.attributes(&file.handle, &[number::NUMLINKS]).unwrap().numlinks, Some(0));
    client.close(&file).unwrap();
}

#[test]
fn an_empty_file_opened_for_denial_of_all_excludes_everybody_else() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    client.create(&root, "file").map(|file| client.close(&file).unwrap()).unwrap();
    let held = client.open_by(&root, open_denying("a", BOTH, OPEN4_SHARE_DENY_BOTH, "file")).unwrap();
    let mut other = server.client("other");
    assert_eq!(status_of(other.open(&root, "file", OPEN4_SHARE_ACCESS_READ)), NfsStat4::ShareDenied);
    client.close(&held).unwrap();
    assert!(other.open(&root, "file", OPEN4_SHARE_ACCESS_READ).is_ok());
}

#[test]
fn a_new_file_may_be_made_with_a_length() {
    let (_instance, server) = Server::start();
    let (mut client, root) = setup(&server);
    let long = FileAttributes { size: Some(5000), ..with_mode(0o644) };
    let how = OpenFlag4::Create(CreateHow4::Guarded(long.encode_all()));
    let file = client.open_as(&root, "file", "owner", BOTH, how).unwrap();
    assert_eq!(client.size(&file.handle).unwrap(), 5000);
    let read = client.read(&file.handle, file.stateid, 0, 10_000).unwrap();
    assert!(read.eof && read.data[..] == [0; 5000]);
}
