//! Open files: despite their own mode, truncation by others, removal and a restart.

use nfs4::{
    LayoutIomode4, NfsArgop4, NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ,
    OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_BOTH, OPEN4_SHARE_DENY_NONE, OPEN4_SHARE_DENY_WRITE,
    Open4Args, OpenClaim4, OpenDelegationType4, OpenFlag4, StableHow4,
};
use testkit::nfs_client::{ClientOptions, NfsClient, auth_sys, ops, when_ready};

use crate::server::{Server, Setup, directory_of, status_of};

fn open_op(access: u32, deny: u32, openhow: OpenFlag4, claim: OpenClaim4) -> NfsArgop4 {
    let owner = ops::owner("owner");
    NfsArgop4::Open(Open4Args { seqid: 0, share_access: access, share_deny: deny, owner, openhow, claim })
}

/// `open(name, O_TRUNC | …)`.
fn truncating(access: u32, deny: u32, name: &str) -> NfsArgop4 {
    let attributes = nfs4::FileAttributes { size: Some(0), ..nfs4::FileAttributes::default() };
    let how = nfs4::CreateHow4::Unchecked(attributes.encode_all());
    open_op(access, deny, OpenFlag4::Create(how), OpenClaim4::Null(name.into()))
}

fn file_with_data(client: &mut NfsClient, dir: &NfsFh4) -> testkit::nfs_client::OpenFile {
    let file = client.create(dir, "file").unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"data").unwrap();
    file
}

/// Until a file that was removed later is gone altogether.
fn wait_for_the_reaper(client: &mut NfsClient, root: &NfsFh4) {
    let marker = when_ready(|| client.create(root, "marker")).unwrap();
    client.close(&marker).unwrap();
    client.remove(root, "marker").unwrap();
    while status_of(client.size(&marker.handle)) != NfsStat4::Stale {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn the_owner_opens_by_handle_no_more_than_its_mode_allows() {
    let (_instance, server) = Server::start();
    let mut root = server.client("root");
    let dir = directory_of(&mut root, "of-user", 1000);
    let mut user = server.client_by(ClientOptions::named("user").credential(auth_sys(1000, 1000, &[])));
    let made = user.open_as(&dir, "file", "owner", OPEN4_SHARE_ACCESS_BOTH, ops::unchecked(0o444)).unwrap();
    let written = user.write(&made.handle, made.stateid, 0, StableHow4::FileSync, b"data");
    assert_eq!(status_of(written), NfsStat4::Ok, "the creator of a file may write it, whatever its mode");
    user.close(&made).unwrap();
    let mut by_handle = |access| {
        let open = open_op(access, OPEN4_SHARE_DENY_NONE, OpenFlag4::NoCreate, OpenClaim4::Fh);
        status_of(user.open_by(&made.handle, open))
    };
    assert_eq!(by_handle(OPEN4_SHARE_ACCESS_WRITE), NfsStat4::Access, "Linux opens so for open(2)");
    assert_eq!(by_handle(OPEN4_SHARE_ACCESS_READ), NfsStat4::Ok);
}

#[test]
fn an_open_that_is_denied_truncates_nothing() {
    let (_instance, server) = Server::start();
    let (mut client, mut other) = (server.client("host"), server.client("other"));
    let root = client.root().unwrap();
    let file = file_with_data(&mut client, &root);
    let denying = open_op(
        OPEN4_SHARE_ACCESS_READ,
        OPEN4_SHARE_DENY_WRITE,
        OpenFlag4::NoCreate,
        OpenClaim4::Null("file".into()),
    );
    client.open_by(&root, denying).unwrap();
    let refused = other.open_by(&root, truncating(OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_NONE, "file"));
    assert_eq!(status_of(refused), NfsStat4::ShareDenied);
    assert_eq!(client.size(&file.handle).unwrap(), 4);
}

#[test]
fn an_open_whose_truncation_must_wait_holds_nothing_meanwhile() {
    let (_instance, server) = Server::start();
    let (mut holder, mut other, mut third) =
        (server.client("holder"), server.client("other"), server.client("third"));
    let root = holder.root().unwrap();
    let file = file_with_data(&mut holder, &root);
    holder.layout_get(&file.handle, file.stateid, LayoutIomode4::Read).unwrap();
    let waiting = truncating(OPEN4_SHARE_ACCESS_WRITE, OPEN4_SHARE_DENY_NONE, "file");
    assert_eq!(status_of(other.open_by(&root, waiting)), NfsStat4::Delay);
    let exclusive = open_op(
        OPEN4_SHARE_ACCESS_READ,
        OPEN4_SHARE_DENY_WRITE,
        OpenFlag4::NoCreate,
        OpenClaim4::Null("file".into()),
    );
    assert_eq!(
        status_of(third.open_by(&root, exclusive.clone())),
        NfsStat4::ShareDenied,
        "the holder writes"
    );
    holder.close(&file).unwrap();
    assert_eq!(status_of(third.open_by(&root, exclusive)), NfsStat4::Ok, "nobody writes any more");
    assert_eq!(third.size(&file.handle).unwrap(), 4);
}

#[test]
fn an_unlinked_file_that_was_open_can_be_reclaimed_with_its_data() {
    let setup = Setup { grace_s: 60, ..Setup::default() };
    let (instance, server) = Server::start_with(setup);
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = when_ready(|| client.create(&root, "file")).unwrap();
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"data").unwrap();
    client.remove(&root, "file").unwrap();
    server.kill();
    let server = instance.up();
    let mut client = server.client_by(ClientOptions::named("host").reclaiming());
    let previous = OpenClaim4::Previous(OpenDelegationType4::None);
    let reclaim = open_op(OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_DENY_NONE, OpenFlag4::NoCreate, previous);
    let again = client.open_by(&file.handle, reclaim).unwrap();
    client.reclaim_complete().unwrap();
    wait_for_the_reaper(&mut client, &root);
    assert_eq!(&client.read(&again.handle, again.stateid, 0, 100).unwrap().data[..], b"data");
    client.close(&again).unwrap();
}

#[test]
fn a_reclaim_that_meets_another_one_is_told_so() {
    let setup = Setup { grace_s: 60, ..Setup::default() };
    let (instance, server) = Server::start_with(setup);
    let (mut one, mut two) = (server.client("one"), server.client("two"));
    let root = one.root().unwrap();
    let file = when_ready(|| one.create(&root, "file")).unwrap();
    when_ready(|| two.create(&root, "another")).unwrap();
    server.kill();
    let server = instance.up();
    let mut one = server.client_by(ClientOptions::named("one").reclaiming());
    let mut two = server.client_by(ClientOptions::named("two").reclaiming());
    let reclaim = || {
        let previous = OpenClaim4::Previous(OpenDelegationType4::None);
        open_op(OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_DENY_BOTH, OpenFlag4::NoCreate, previous)
    };
    one.open_by(&file.handle, reclaim()).unwrap();
    assert_eq!(status_of(two.open_by(&file.handle, reclaim())), NfsStat4::ReclaimConflict);
}

#[test]
fn a_downgrade_ignores_wants_of_delegations() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    client.create(&root, "file").unwrap();
    let file = client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let downgrade = NfsArgop4::OpenDowngrade(nfs4::OpenDowngrade4Args {
        open_stateid: file.stateid,
        seqid: 0,
        share_access: OPEN4_SHARE_ACCESS_READ | nfs4::OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: OPEN4_SHARE_DENY_NONE,
    });
    assert_eq!(status_of(client.call(&[ops::put_fh(&file.handle), downgrade])), NfsStat4::Ok);
}
