//! COPY and CLONE (RFC 7862 §15.2, §15.13): data moves within the server, in one pool and between two.

use std::time::Duration;

use nfs4::attr::number;
use nfs4::{
    Clone4Args, Copy4Args, Copy4ResOk, CreateType4, LayoutIomode4, NetLoc4, NfsArgop4, NfsFh4, NfsStat4,
    OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE, OffloadInfo4, OpenFlag4,
    StableHow4, StateId4, WriteResponse4,
};
use testkit::nfs_client::{ClientOptions, NfsClient, OpenFile, auth_sys, ops, when_ready};

use crate::server::{Server, Setup, directory_of, status_of};

/// Larger than any file system's blocks.
const BLOCK: u64 = 64 << 10;

struct Two {
    client: NfsClient,
    root: NfsFh4,
    source: OpenFile,
    target: OpenFile,
    /// Of the target.
    name: String,
}

/// Two files, on the same pool or not; the source has `size` bytes, all different from their neighbours.
fn two_files(server: &Server, on_one_pool: bool, size: u64) -> Two {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let source = client.create(&root, "source").unwrap();
    write(&mut client, &source, 0, &bytes(0, size));
    let place = pool_of(&mut client, &source);
    for attempt in 0..64 {
        let name = format!("target-{attempt}");
        let target = client.create(&root, &name).unwrap();
        if (pool_of(&mut client, &target) == place) == on_one_pool {
            return Two { client, root, source, target, name };
        }
    }
    panic!("new files go to all pools");
}

/// As a layout tells it.
fn pool_of(client: &mut NfsClient, file: &OpenFile) -> Vec<u8> {
    let zero = StateId4 { seqid: 0, ..file.stateid };
    let layout = client.layout_get(&file.handle, zero, LayoutIomode4::Read).unwrap();
    layout.device().0.to_vec()
}

fn bytes(offset: u64, length: u64) -> Vec<u8> {
    (offset..offset + length).map(|at| (at % 251) as u8).collect()
}

fn write(client: &mut NfsClient, file: &OpenFile, offset: u64, data: &[u8]) {
    for (at, piece) in data.chunks(1 << 20).enumerate() {
        let offset = offset + ((at as u64) << 20);
        client.write(&file.handle, file.stateid, offset, StableHow4::FileSync, piece).unwrap();
    }
}

fn content(client: &mut NfsClient, file: &OpenFile) -> Vec<u8> {
    let mut data = Vec::new();
    loop {
        let read = client.read(&file.handle, file.stateid, data.len() as u64, 1 << 20).unwrap();
        data.extend_from_slice(&read.data);
        if read.eof {
            return data;
        }
    }
}

/// For callbacks, on however busy a machine.
const LONG: Duration = Duration::from_secs(60);

/// The result of a COPY, from its reply or from CB_OFFLOAD.
fn outcome(two: &Two, copied: Copy4ResOk) -> WriteResponse4 {
    let Some(stateid) = copied.response.callback_id else { return copied.response };
    let told = two.client.callbacks.wait_for_offload(LONG).expect("the end is told");
    assert_eq!((told.stateid, &told.fh), (stateid, &two.target.handle));
    match told.offload_info {
        OffloadInfo4::Ok(response) => response,
        OffloadInfo4::Err { status, .. } => panic!("{status}"),
    }
}

/// Asks until all is copied, as Linux does.
fn copy_all(two: &mut Two, from: u64, to: u64, count: u64) {
    let mut done = 0;
    while done < count {
        let copied = two.client.copy((&two.source, from + done), (&two.target, to + done), count - done);
        let copied = outcome(two, copied.unwrap()).count;
        assert!(copied > 0 && copied <= count - done);
        done += copied;
    }
}

fn on_one_pool_and_on_two(test: impl Fn(&Server, bool)) {
    for on_one_pool in [true, false] {
        let (_instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
        test(&server, on_one_pool);
    }
}

#[test]
fn a_copy_is_the_same_bytes_within_a_pool_and_between_two() {
    on_one_pool_and_on_two(|server, on_one_pool| {
        let size = (3 << 20) + 5;
        let mut two = two_files(server, on_one_pool, size);
        let before = two.client.change(&two.target.handle).unwrap();
        copy_all(&mut two, 0, 0, size);
        assert!(content(&mut two.client, &two.target) == bytes(0, size));
        assert!(two.client.change(&two.target.handle).unwrap() > before);
        // Into the middle, and over the end.
        copy_all(&mut two, 100, BLOCK + 1, 1000);
        copy_all(&mut two, 7, size - 3, 10);
        let mut expected = bytes(0, size);
        expected[BLOCK as usize + 1..BLOCK as usize + 1001].copy_from_slice(&bytes(100, 1000));
        expected.truncate(size as usize - 3);
        expected.extend(bytes(7, 10));
        assert!(content(&mut two.client, &two.target) == expected);
    });
}

#[test]
fn no_count_copies_to_the_end_and_at_the_end_there_is_nothing() {
    on_one_pool_and_on_two(|server, on_one_pool| {
        let mut two = two_files(server, on_one_pool, 1000);
        let copied = two.client.copy((&two.source, 400), (&two.target, 10), 0).unwrap();
        assert_eq!(copied.response.count, 600);
        assert_eq!(content(&mut two.client, &two.target), [vec![0; 10], bytes(400, 600)].concat());
        let nothing = two.client.copy((&two.source, 1000), (&two.target, 5000), 0).unwrap();
        assert_eq!(nothing.response.count, 0);
        assert_eq!(two.client.size(&two.target.handle).unwrap(), 610);
    });
}

/// It is answered at once, whatever was asked for, and COMMIT tells whether it is still there.
#[test]
fn a_copy_is_synchronous_and_its_verifier_is_that_of_commit() {
    on_one_pool_and_on_two(|server, on_one_pool| {
        let mut two = two_files(server, on_one_pool, 1000);
        let copied = two.client.copy((&two.source, 0), (&two.target, 0), 1000).unwrap();
        assert!(copied.requirements.synchronous && copied.requirements.consecutive);
        assert_eq!(copied.response.callback_id, None);
        assert_eq!(copied.response.committed, StableHow4::Unstable);
        let committed = two.client.commit(&two.target.handle).unwrap();
        assert_eq!(committed.writeverf, copied.response.writeverf);
    });
}

#[test]
fn a_committed_copy_survives_a_crash() {
    let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let mut two = two_files(&server, false, 1 << 20);
    copy_all(&mut two, 0, 0, 1 << 20);
    two.client.commit(&two.target.handle).unwrap();
    let name = two.target.handle.clone();
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let again = OpenFile { handle: name, stateid: StateId4::ANONYMOUS, opened: two.target.opened };
    assert!(content(&mut client, &again) == bytes(0, 1 << 20));
}

/// If a COPY is answered after its first piece, CB_OFFLOAD reports the end with the whole count.
#[test]
fn a_copy_that_goes_on_ends_with_one_callback_and_its_verifier_is_that_of_commit() {
    for on_one_pool in [true, false] {
        let configuration = "copy_answer_ms = 0";
        let (_instance, server) = Server::start_with(Setup { pools: 2, configuration, ..Setup::default() });
        let size = (20 << 20) + 5;
        let mut two = two_files(&server, on_one_pool, size);
        let copied = two.client.copy((&two.source, 0), (&two.target, 0), size).unwrap();
        assert!(!copied.requirements.synchronous);
        let stateid = copied.response.callback_id.expect("it is more than a piece");
        let told = outcome(&two, copied);
        assert_eq!((told.count, told.committed), (size, StableHow4::Unstable));
        let committed = two.client.commit(&two.target.handle).unwrap();
        assert_eq!(committed.writeverf, told.writeverf);
        assert!(content(&mut two.client, &two.target) == bytes(0, size));
        assert_eq!(two.client.callbacks.seen().len(), 1);
        // Of no use to another client, at any time.
        let stranger = server.client("stranger").offload_status(&two.target.handle, stateid);
        assert_eq!(status_of(stranger), NfsStat4::BadStateId);
    }
}

/// Nothing of a copy outlives the server but its bytes: the client reclaims and copies anew.
#[test]
fn a_server_that_is_killed_in_a_copy_knows_nothing_of_it_and_copies_anew() {
    let setup = Setup { pools: 2, configuration: "copy_answer_ms = 0", ..Setup::default() };
    let (instance, server) = Server::start_with(setup);
    let size = 32 << 20;
    let mut two = two_files(&server, false, size);
    let copied = two.client.copy((&two.source, 0), (&two.target, 0), size).unwrap();
    let stateid = copied.response.callback_id.expect("it is more than a piece");
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let status = status_of(client.offload_status(&two.target.handle, stateid));
    assert_eq!(status, NfsStat4::BadStateId);
    assert_eq!(status_of(client.offload_cancel(&two.target.handle, stateid)), NfsStat4::BadStateId);
    let root = client.root().unwrap();
    let mut open = |name: &str| when_ready(|| client.open(&root, name, OPEN4_SHARE_ACCESS_BOTH)).unwrap();
    let name = two.name.clone();
    (two.source, two.target) = (open("source"), open(&name));
    two.client = client;
    copy_all(&mut two, 0, 0, size);
    assert!(content(&mut two.client, &two.target) == bytes(0, size));
}

/// Holes stay holes, and clear what was there.
#[test]
fn a_copy_keeps_holes() {
    on_one_pool_and_on_two(|server, on_one_pool| {
        let mut two = two_files(server, on_one_pool, BLOCK);
        let size = 1 << 30;
        two.client.set_size(&two.source.handle, two.source.stateid, size).unwrap();
        write(&mut two.client, &two.source, size / 2, b"in the middle");
        write(&mut two.client, &two.target, 0, &vec![9; 4 * BLOCK as usize]);
        copy_all(&mut two, 0, 0, size);
        two.client.commit(&two.target.handle).unwrap();
        let wanted = [number::SIZE, number::SPACE_USED];
        let told = two.client.attributes(&two.target.handle, &wanted).unwrap();
        assert_eq!(told.size, Some(size));
        assert!(told.space_used < Some(16 * BLOCK), "{told:?}");
        let mut read = |offset, count| {
            two.client.read(&two.target.handle, two.target.stateid, offset, count).unwrap().data.to_vec()
        };
        assert!(read(0, 5 * BLOCK as u32) == [bytes(0, BLOCK), vec![0; 4 * BLOCK as usize]].concat());
        assert_eq!(read(size / 2, 14), b"in the middle\0");
    });
}

#[test]
fn a_source_without_a_byte_on_disk_is_zeros() {
    on_one_pool_and_on_two(|server, on_one_pool| {
        let mut two = two_files(server, on_one_pool, 0);
        two.client.set_size(&two.source.handle, two.source.stateid, 100).unwrap();
        write(&mut two.client, &two.target, 0, &[9; 200]);
        copy_all(&mut two, 0, 50, 100);
        let expected = [vec![9; 50], vec![0; 100], vec![9; 50]].concat();
        assert_eq!(content(&mut two.client, &two.target), expected);
    });
}

#[test]
fn a_hole_that_is_copied_behind_the_end_leaves_a_replica_as_long_as_the_file() {
    for on_one_pool in [true, false] {
        let (instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
        let mut two = two_files(&server, on_one_pool, 0);
        two.client.set_size(&two.source.handle, two.source.stateid, 1 << 20).unwrap();
        write(&mut two.client, &two.target, 0, &[9; 1000]);
        copy_all(&mut two, 4096, 6_000_000, 100_000);
        two.client.commit(&two.target.handle).unwrap();
        assert_eq!(two.client.size(&two.target.handle).unwrap(), 6_100_000);
        let fsck = instance.run(&["fsck"]);
        assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stdout));
    }
}

/// RFC 7862 §15.2.3.
#[test]
fn a_copy_refuses_what_cannot_be() {
    let (_instance, server) = Server::start();
    let mut two = two_files(&server, true, 1000);
    let mut copy =
        |from, to, count| status_of(two.client.copy((&two.source, from), (&two.target, to), count));
    assert_eq!(copy(1001, 0, 0), NfsStat4::Inval, "behind the end of the source");
    assert_eq!(copy(0, 0, 1001), NfsStat4::Inval, "over the end of the source");
    assert_eq!(copy(10, 0, u64::MAX), NfsStat4::Inval);
    assert_eq!(copy(0, u64::MAX, 5), NfsStat4::FBig);
    assert_eq!(copy(0, i64::MAX as u64, 5), NfsStat4::FBig);
    assert_eq!(two.client.size(&two.target.handle).unwrap(), 0);
    // One file: ranges that overlap are refused, others not.
    let source = &two.source;
    assert_eq!(status_of(two.client.copy((source, 0), (source, 999), 1000)), NfsStat4::Inval);
    assert_eq!(status_of(two.client.copy((source, 500), (source, 0), 501)), NfsStat4::Inval);
    assert_eq!(two.client.copy((source, 500), (source, 0), 500).unwrap().response.count, 500);
    assert_eq!(content(&mut two.client, source), [bytes(500, 500), bytes(500, 500)].concat());
}

/// Each with a stateid for the source and one for the target.
fn both(source: StateId4, target: StateId4) -> [NfsArgop4; 2] {
    [
        NfsArgop4::Copy(Copy4Args {
            src_stateid: source,
            dst_stateid: target,
            src_offset: 0,
            dst_offset: 0,
            count: 5,
            consecutive: true,
            synchronous: true,
            source_server: Vec::new(),
        }),
        NfsArgop4::Clone(Clone4Args {
            src_stateid: source,
            dst_stateid: target,
            src_offset: 0,
            dst_offset: 0,
            count: 0,
        }),
    ]
}

/// Where the file system of temporary files cannot share blocks, CLONE says so before anything else.
fn can_clone(two: &mut Two) -> bool {
    two.client.attributes(&two.root, &[number::CLONE_BLKSIZE]).unwrap().clone_blksize != Some(0)
}

#[test]
fn both_stateids_are_judged() {
    let (_instance, server) = Server::start();
    let mut two = two_files(&server, true, 1000);
    let can_clone = can_clone(&mut two);
    let (source, target) = (two.source.clone(), two.target.clone());
    let mut open = |name: &str, owner: &str, access| {
        two.client.open_as(&two.root, name, owner, access, OpenFlag4::NoCreate).unwrap().stateid
    };
    let write_only_source = open("source", "w", OPEN4_SHARE_ACCESS_WRITE);
    let read_only_target = open("target-0", "r", OPEN4_SHARE_ACCESS_READ);
    for (src, dst, expected) in [
        (write_only_source, target.stateid, NfsStat4::OpenMode),
        (source.stateid, read_only_target, NfsStat4::OpenMode),
        (target.stateid, target.stateid, NfsStat4::BadStateId),
        (source.stateid, source.stateid, NfsStat4::BadStateId),
        (source.stateid, target.stateid, NfsStat4::Ok),
        (StateId4::ANONYMOUS, StateId4::ANONYMOUS, NfsStat4::Ok),
    ] {
        for op in both(src, dst) {
            let is_clone = matches!(op, NfsArgop4::Clone(_));
            let (from, to) = (ops::put_fh(&source.handle), ops::put_fh(&target.handle));
            let status = status_of(two.client.call(&[from, NfsArgop4::SaveFh, to, op.clone()]));
            let expected = if is_clone && !can_clone { NfsStat4::NotSupp } else { expected };
            assert_eq!(status, expected, "{op:?}");
        }
    }
    // The stateid of an OPEN in the same COMPOUND goes with its file handle (RFC 8881 §16.2.3.1.2).
    let open = |name: &str, access| ops::open("c", access, OpenFlag4::NoCreate, name);
    let reply = two.client.call(&[
        ops::put_fh(&two.root),
        open("source", OPEN4_SHARE_ACCESS_READ),
        NfsArgop4::SaveFh,
        ops::put_fh(&two.root),
        open("target-0", OPEN4_SHARE_ACCESS_WRITE),
        both(StateId4::CURRENT, StateId4::CURRENT)[0].clone(),
    ]);
    assert_eq!(status_of(reply), NfsStat4::Ok);
}

#[test]
fn only_regular_files_are_sources_and_targets_of_copy_and_clone() {
    let (_instance, server) = Server::start();
    let mut two = two_files(&server, true, 1000);
    let can_clone = can_clone(&mut two);
    let (source, target, root) = (two.source.handle.clone(), two.target.handle.clone(), two.root.clone());
    let link = CreateType4::Lnk(nfs4::LinkText4::from(bytes::Bytes::from("source")));
    let link = two.client.create_object(&root, link, "link", 0o777).unwrap();
    for (from, to) in [(&root, &target), (&source, &root), (&link, &target), (&source, &link)] {
        for op in both(StateId4::ANONYMOUS, StateId4::ANONYMOUS) {
            let is_clone = matches!(op, NfsArgop4::Clone(_));
            let status =
                status_of(two.client.call(&[ops::put_fh(from), NfsArgop4::SaveFh, ops::put_fh(to), op]));
            let not_supported = is_clone && !can_clone;
            assert_eq!(status, if not_supported { NfsStat4::NotSupp } else { NfsStat4::WrongType });
        }
    }
    let [copy, _] = both(StateId4::ANONYMOUS, StateId4::ANONYMOUS);
    assert_eq!(status_of(two.client.call(&[ops::put_fh(&target), copy])), NfsStat4::NoFileHandle);
}

/// Without an open the mode bits decide; a quota counts copied bytes as written ones.
#[test]
fn a_copy_needs_the_right_to_read_and_to_write_and_room() {
    let (instance, server) = Server::start();
    let dir = directory_of(&mut server.client("root"), "dir", 1234);
    let mut client = server.client_by(ClientOptions::named("user").credential(auth_sys(1234, 1234, &[])));
    let source = client.create(&dir, "source").unwrap();
    write(&mut client, &source, 0, &bytes(0, 1000));
    let target = client.create(&dir, "target").unwrap();
    let [copy, _] = both(StateId4::ANONYMOUS, StateId4::ANONYMOUS);
    let compound = [ops::put_fh(&source.handle), NfsArgop4::SaveFh, ops::put_fh(&target.handle), copy];
    assert_eq!(status_of(client.call_as(auth_sys(7, 7, &[]), &compound)), NfsStat4::Access);
    assert_eq!(status_of(client.call(&compound)), NfsStat4::Ok);
    let set = instance.run(&["quota", "set", "--user", "1234", "--bytes-hard", "1500"]);
    assert!(set.status.success());
    assert_eq!(status_of(client.copy((&source, 0), (&target, 0), 501)), NfsStat4::DQuot);
    assert_eq!(client.copy((&source, 0), (&target, 0), 500).unwrap().response.count, 500);
}

/// The client falls back, and goes on asking for copies within this server.
#[test]
fn a_copy_from_another_server_is_denied() {
    let (_instance, server) = Server::start();
    let mut two = two_files(&server, true, 1000);
    let copy = NfsArgop4::Copy(Copy4Args {
        src_stateid: two.source.stateid,
        dst_stateid: two.target.stateid,
        src_offset: 0,
        dst_offset: 0,
        count: 5,
        consecutive: true,
        synchronous: true,
        source_server: vec![NetLoc4::Name("elsewhere".into())],
    });
    let denied = two.client.copy_by(&two.source, &two.target, copy);
    assert_eq!(status_of(denied), NfsStat4::OffloadDenied);
}

#[test]
fn a_clone_is_the_same_bytes_or_not_supported() {
    let (instance, server) = Server::start();
    let mut two = two_files(&server, true, 4 * BLOCK);
    let cloned = status_of(two.client.clone_range((&two.source, BLOCK), (&two.target, 0), 2 * BLOCK));
    if !can_clone(&mut two) {
        assert_eq!(cloned, NfsStat4::NotSupp);
        return;
    }
    assert_eq!(cloned, NfsStat4::Ok);
    assert!(content(&mut two.client, &two.target) == bytes(BLOCK, 2 * BLOCK));
    let mut clone =
        |from, to, count| status_of(two.client.clone_range((&two.source, from), (&two.target, to), count));
    assert_eq!(clone(1, 0, BLOCK), NfsStat4::Inval, "not where a block begins");
    assert_eq!(clone(0, 1, BLOCK), NfsStat4::Inval);
    assert_eq!(clone(0, 0, BLOCK + 1), NfsStat4::Inval, "not where a block ends");
    assert_eq!(clone(BLOCK, 0, 4 * BLOCK), NfsStat4::Inval, "over the end of the source");
    assert_eq!(clone(0, 2 * BLOCK, 0), NfsStat4::Ok);
    let source = &two.source;
    assert_eq!(status_of(two.client.clone_range((source, 0), (source, BLOCK), 2 * BLOCK)), NfsStat4::Inval);
    // It has no COMMIT: it is on disk when it is answered.
    let again = OpenFile { stateid: StateId4::ANONYMOUS, ..two.target.clone() };
    server.kill();
    let server = instance.up();
    let data = content(&mut server.client("host"), &again);
    assert!(data == [bytes(BLOCK, 2 * BLOCK), bytes(0, 4 * BLOCK)].concat());
}

#[test]
fn files_of_two_pools_share_no_blocks() {
    let (_instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let mut two = two_files(&server, false, BLOCK);
    let expected = if can_clone(&mut two) { NfsStat4::XDev } else { NfsStat4::NotSupp };
    let cloned = two.client.clone_range((&two.source, 0), (&two.target, 0), BLOCK);
    assert_eq!(status_of(cloned), expected);
}
