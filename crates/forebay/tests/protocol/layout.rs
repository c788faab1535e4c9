//! Flex-files layouts, devices and data servers (RFC 8881 §18.40–18.44, RFC 8435), as Linux needs them.

use std::time::{Duration, Instant};

use nfs4::attr::number;
use nfs4::{
    Bitmap4, CreateType4, DeviceError4, DeviceId4, FfIoErr4, FfLayoutReturn4, LayoutGet4Args, LayoutIomode4,
    LayoutReturn4, LayoutReturn4Args, LayoutType4, LayoutUpdate4, Lock4Args, Lock4Res, Locker4,
    MdsThreshold4, NOTIFY_DEVICEID4_CHANGE, NOTIFY_DEVICEID4_DELETE, NfsArgop4, NfsFh4, NfsLockType4,
    NfsResop4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ, OpenFlag4, OpenToLockOwner4,
    StableHow4, StateId4, TH4_READ_SIZE, TH4_WRITE_SIZE, TestStateId4Args, op,
};
use testkit::nfs_client::{ClientError, ClientOptions, Layout, NfsClient, OpenFile, auth_sys, ops};

use crate::server::{Server, Setup, directory_of, status_of};

/// A client, its root, and a file of its own that is open.
fn with_file(server: &Server) -> (NfsClient, NfsFh4, OpenFile) {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    (client, root, file)
}

/// The open's stateid as Linux sends it with LAYOUTGET and I/O.
fn seqid_zero(stateid: StateId4) -> StateId4 {
    StateId4 { seqid: 0, ..stateid }
}

fn write_layout(client: &mut NfsClient, file: &OpenFile) -> Layout {
    client.layout_get(&file.handle, seqid_zero(file.stateid), LayoutIomode4::Rw).unwrap()
}

/// The status that TEST_STATEID returns.
pub fn state_of(client: &mut NfsClient, stateid: StateId4) -> NfsStat4 {
    let test = NfsArgop4::TestStateId(TestStateId4Args { stateids: vec![stateid] });
    let reply = client.call(&[test]).unwrap();
    testkit::body!(reply, TestStateId).unwrap().status_codes[0]
}

#[test]
fn a_layout_comes_in_the_compound_that_opens_the_file() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    client.set_size(&file.handle, file.stateid, SMALL_BYTES).unwrap();
    let open = ops::open("owner", OPEN4_SHARE_ACCESS_BOTH, ops::unchecked(0o644), "file");
    let reply = client.open_with_layout(&root, open, LayoutIomode4::Rw).unwrap().ok().unwrap();
    let layout = Layout::of(&reply).unwrap();
    let opened = testkit::body!(reply, Open).unwrap();
    assert_ne!(layout.stateid.other, opened.stateid.other);
    assert_eq!(layout.stateid.seqid, 1);
}

/// `nfs.layout_min_kib`, as it is unless set.
const SMALL_BYTES: u64 = 65_536;

/// RFC 8881 §5.12.4. Linux asks for a layout with each OPEN before it could know.
#[test]
fn a_small_file_is_read_and_written_through_the_head_unless_the_client_insists() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    client.set_size(&file.handle, file.stateid, SMALL_BYTES - 1).unwrap();
    let said = client.attributes(&file.handle, &[number::MDSTHRESHOLD]).unwrap().mdsthreshold.unwrap();
    let [hint] = &said.hints[..] else { panic!("{said:?}") };
    assert_eq!(hint.layout_type, LayoutType4::FLEX_FILES);
    assert_eq!(hint.hintset, Bitmap4::of(&[TH4_READ_SIZE, TH4_WRITE_SIZE]));
    assert_eq!(hint.hintlist.0, [SMALL_BYTES.to_be_bytes(), SMALL_BYTES.to_be_bytes()].concat());

    for iomode in [LayoutIomode4::Read, LayoutIomode4::Rw] {
        let open = ops::open("owner", OPEN4_SHARE_ACCESS_BOTH, ops::unchecked(0o644), "file");
        let reply = client.open_with_layout(&root, open, iomode).unwrap();
        assert_eq!(reply.status, NfsStat4::LayoutUnavailable);
    }
    assert_eq!(write_layout(&mut client, &file).segment.iomode, LayoutIomode4::Rw);
    // A client that does not ask for the attribute cannot know the threshold, and gets a layout.
    let open = ops::open("owner", OPEN4_SHARE_ACCESS_BOTH, ops::unchecked(0o644), "file");
    let layout_get = ops::layout_get(StateId4::CURRENT, LayoutIomode4::Rw);
    client.call(&[ops::put_fh(&root), open, layout_get]).unwrap();
    assert_eq!(
        client.attributes(&root, &[number::MDSTHRESHOLD]).unwrap().mdsthreshold,
        Some(MdsThreshold4::default())
    );
}

#[test]
fn without_a_least_size_every_file_has_layouts() {
    let setup = Setup { configuration: "layout_min_kib = 0", ..Setup::default() };
    let (_instance, server) = Server::start_with(setup);
    let (mut client, root, file) = with_file(&server);
    let said = client.attributes(&file.handle, &[number::MDSTHRESHOLD]).unwrap().mdsthreshold;
    assert_eq!(said, Some(MdsThreshold4::default()));
    let open = ops::open("owner", OPEN4_SHARE_ACCESS_BOTH, ops::unchecked(0o644), "file");
    client.open_with_layout(&root, open, LayoutIomode4::Rw).unwrap().ok().unwrap();
}

#[test]
fn an_open_stateid_with_seqid_zero_gets_a_layout() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    assert_eq!(write_layout(&mut client, &file).segment.iomode, LayoutIomode4::Rw);
}

#[test]
fn a_lock_stateid_gets_a_layout() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let lock = NfsArgop4::Lock(Lock4Args {
        locktype: NfsLockType4::Write,
        reclaim: false,
        offset: 0,
        length: 10,
        locker: Locker4::New(OpenToLockOwner4 {
            open_seqid: 0,
            open_stateid: file.stateid,
            lock_seqid: 0,
            lock_owner: ops::owner("locker"),
        }),
    });
    let reply = client.call(&[ops::put_fh(&file.handle), lock]).unwrap();
    let Some(NfsResop4::Lock(Lock4Res::Ok(locked))) = reply.results.last() else {
        panic!("{:?}", reply.results)
    };
    let stateid = seqid_zero(locked.lock_stateid);
    assert!(client.layout_get(&file.handle, stateid, LayoutIomode4::Rw).is_ok());
}

#[test]
fn a_layout_is_what_linux_can_use() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let segment = &layout.segment;
    assert_eq!(layout.granted.layout.len(), 1, "only the first is used");
    assert_eq!((segment.offset, segment.length), (0, u64::MAX), "anything less costs a LAYOUTGET a range");
    assert!(layout.granted.return_on_close);
    assert_eq!(segment.content.layout_type, LayoutType4::FLEX_FILES);
    assert!(segment.content.body.len() < 4096, "PNFS_LAYOUT_MAXSIZE");
    assert_eq!(segment.content.body.0, xdr::to_bytes(&layout.body), "the RFC's length, to the byte");
    assert_eq!(layout.body.mirrors.len(), 1);
    assert_eq!(layout.body.mirrors[0].data_servers.len(), 1, "striping within a mirror is refused");
    let data_server = layout.data_server();
    assert_eq!(data_server.fh_vers.len(), 1, "as many as the device has versions");
    for principal in [&data_server.user, &data_server.group] {
        let digits = std::str::from_utf8(principal).unwrap();
        assert!(!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()), "{digits:?}");
    }
    assert_eq!(layout.body.flags & !1, 0, "no NO_IO_THRU_MDS, no NO_READ_IO, no WRITE_ONE_MIRROR");
}

#[test]
fn every_layoutget_counts_the_stateid_up_by_one() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let first = write_layout(&mut client, &file);
    let second = client.layout_get(&file.handle, first.stateid, LayoutIomode4::Rw).unwrap();
    let third = client.layout_get(&file.handle, second.stateid, LayoutIomode4::Read).unwrap();
    assert_eq!(second.stateid, StateId4 { seqid: first.stateid.seqid + 1, ..first.stateid });
    assert_eq!(third.stateid, StateId4 { seqid: first.stateid.seqid + 2, ..first.stateid });
    // With the open stateid again, as after a CLOSE and OPEN in a race: still the one layout stateid.
    let fourth = write_layout(&mut client, &file);
    assert_eq!(fourth.stateid, StateId4 { seqid: first.stateid.seqid + 3, ..first.stateid });
}

#[test]
fn a_layout_stateid_that_is_old_or_from_the_future_is_refused() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let first = write_layout(&mut client, &file);
    let future = StateId4 { seqid: first.stateid.seqid + 5, ..first.stateid };
    let outcome = client.layout_get(&file.handle, future, LayoutIomode4::Rw);
    assert_eq!(status_of(outcome), NfsStat4::BadStateId);
    let unknown = StateId4 { seqid: 1, other: [5; 12] };
    let outcome = client.layout_get(&file.handle, unknown, LayoutIomode4::Rw);
    assert_eq!(status_of(outcome), NfsStat4::BadStateId);
    let outcome = client.layout_get(&file.handle, StateId4::ANONYMOUS, LayoutIomode4::Rw);
    assert_eq!(status_of(outcome), NfsStat4::BadStateId);
}

#[test]
fn handle_and_stateid_of_the_data_server_stay_the_same_from_layout_to_layout() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    let first = write_layout(&mut client, &file);
    client.layout_return(&file.handle, first.stateid, &FfLayoutReturn4::default()).unwrap();
    client.close(&file).unwrap();
    let again = client.create(&root, "file").unwrap();
    let second = write_layout(&mut client, &again);
    assert_eq!(
        second.data_server(),
        first.data_server(),
        "Linux keeps the stateid of the first (ff_mirror_match_fh)"
    );
    let mut other = server.client("other");
    let opened = other.create(&root, "file").unwrap();
    assert_eq!(write_layout(&mut other, &opened).data_server(), first.data_server());
}

#[test]
fn a_read_layout_has_a_ticket_of_its_own() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let write = write_layout(&mut client, &file);
    let read = client.layout_get(&file.handle, write.stateid, LayoutIomode4::Read).unwrap();
    assert_eq!(read.segment.iomode, LayoutIomode4::Read);
    assert_ne!(read.ticket(), write.ticket());
    assert_eq!(read.device(), write.device());
    // As loosely coupled data servers would tell them apart (RFC 8435 §2.2).
    let (reader, writer) = (read.data_server(), write.data_server());
    assert_ne!(reader.user, writer.user);
    assert_eq!(reader.group, writer.group);
}

#[test]
fn the_device_tells_one_address_and_one_version_that_linux_uses() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let (device, found) = client.device_info(layout.device()).unwrap();
    assert_eq!(found.notification, Bitmap4::of(&[NOTIFY_DEVICEID4_CHANGE, NOTIFY_DEVICEID4_DELETE]));
    assert_eq!(found.device_addr.addr_body.0, xdr::to_bytes(&device), "the RFC's length, to the byte");
    let pool = server.pools[0];
    let address = format!("127.0.0.1.{}.{}", pool.port() >> 8, pool.port() & 0xff);
    assert_eq!(device.netaddrs.len(), 1);
    assert_eq!(
        (device.netaddrs[0].netid.as_str(), device.netaddrs[0].addr.as_str()),
        ("tcp", address.as_str())
    );
    let version = &device.versions[0];
    assert_eq!((version.version, version.minorversion, version.tightly_coupled), (4, 1, true));
    assert_eq!((version.rsize, version.wsize), (1 << 20, 1 << 20));
}

#[test]
fn a_device_that_does_not_fit_or_exist_is_told_so() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let device = write_layout(&mut client, &file).device();
    let small = client.call(&[ops::get_device_info(device, 8)]);
    assert_eq!(status_of(small), NfsStat4::TooSmall);
    let unknown = client.call(&[ops::get_device_info(DeviceId4([9; 16]), 4096)]);
    assert_eq!(status_of(unknown), NfsStat4::NoEnt);
}

#[test]
fn the_ticket_reads_and_writes_at_the_data_server() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let (ticket, stateid) = (layout.ticket().clone(), layout.data_server().stateid);
    let data: Vec<u8> = (0..100_000_u32).map(|n| (n % 251) as u8).collect();
    let written = data_server.write(&ticket, stateid, 0, StableHow4::Unstable, &data).unwrap();
    assert_eq!(written.count as usize, data.len());
    let committed = data_server.commit(&ticket).unwrap();
    assert_eq!(committed.writeverf, written.writeverf);
    let read = data_server.read(&ticket, stateid, 0, 200_000).unwrap();
    assert!(read.eof && read.data[..] == data[..]);
    let read = data_server.read(&ticket, stateid, 1000, 10).unwrap();
    assert!(!read.eof && read.data[..] == data[1000..1010]);
    let synced = data_server.write(&ticket, stateid, 5, StableHow4::FileSync, b"synced").unwrap();
    assert_eq!(synced.committed, StableHow4::FileSync);
    // After LAYOUTCOMMIT the head tells the same bytes.
    client.layout_commit(&file.handle, layout.stateid, Some(99_999)).unwrap();
    let through_head = client.read(&file.handle, file.stateid, 5, 6).unwrap();
    assert_eq!(&through_head.data[..], b"synced");
}

#[test]
fn a_write_of_one_mebibyte_goes_through_at_once() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let (ticket, stateid) = (layout.ticket().clone(), layout.data_server().stateid);
    let data = vec![0xa5; 1 << 20];
    let written = data_server.write(&ticket, stateid, 0, StableHow4::Unstable, &data).unwrap();
    assert_eq!(written.count, 1 << 20);
    let read = data_server.read(&ticket, stateid, 0, 1 << 20).unwrap();
    assert_eq!(read.data.len(), 1 << 20);
}

#[test]
fn a_read_ticket_cannot_write() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    write_layout(&mut client, &file);
    let layout = client.layout_get(&file.handle, seqid_zero(file.stateid), LayoutIomode4::Read).unwrap();
    let mut data_server = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    let outcome = data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, b"no");
    assert_eq!(status_of(outcome), NfsStat4::Stale, "the status that makes Linux drop the layout");
}

#[test]
fn a_forged_ticket_and_one_for_another_pool_are_refused() {
    let (_instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    let mut forged = layout.ticket().as_bytes().to_vec();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let outcome = data_server.read(&NfsFh4::from(forged), stateid, 0, 1);
    assert_eq!(status_of(outcome), NfsStat4::BadHandle);
    let outcome = data_server.read(&file.handle, stateid, 0, 1);
    assert_eq!(status_of(outcome), NfsStat4::BadHandle, "a handle of the head is none here");
    let outcome = client.read(layout.ticket(), stateid, 0, 1);
    assert_eq!(status_of(outcome), NfsStat4::BadHandle, "nor a ticket at the head");

    let own = server.pools.iter().position(|pool| *pool == data_server.server()).unwrap();
    let options = client.options.clone().for_data_server();
    let mut elsewhere = NfsClient::connect(server.pools[1 - own], options).unwrap();
    assert_eq!(status_of(elsewhere.read(layout.ticket(), stateid, 0, 1)), NfsStat4::Stale);
}

#[test]
fn a_data_server_does_nothing_but_io() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    assert_eq!(status_of(data_server.root()), NfsStat4::NotSupp);
    let attributes = data_server.attributes(layout.ticket(), &[number::SIZE]);
    assert_eq!(status_of(attributes), NfsStat4::NotSupp);
}

/// Linux sends no LAYOUTCOMMIT when it gives back a lock, and takes a size that is behind its own for the truth.
#[test]
fn data_written_under_a_layout_is_seen_before_its_layoutcommit() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    let mut other = server.client("other");
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    let before = other.attributes(&file.handle, ops::COMMON).unwrap();
    data_server.write(layout.ticket(), stateid, 0, StableHow4::Unstable, &[1; 1000]).unwrap();
    let grown = other.attributes(&file.handle, ops::COMMON).unwrap();
    assert_eq!(grown.size, Some(1000));
    assert!(grown.change > before.change);
    let listing = other.call(&[ops::put_fh(&root), ops::read_dir(0, 8192, &[number::SIZE])]).unwrap();
    let listing = testkit::body!(listing, ReadDir).unwrap();
    let size = nfs4::FileAttributes::decode(&listing.entries[0].attrs).unwrap().size;
    assert_eq!(size, Some(1000));
}

/// `tar` writes, sets the times, and closes: LAYOUTCOMMIT comes last.
#[test]
fn times_set_after_the_bytes_were_written_outlive_the_layoutcommit() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[1; 10]).unwrap();
    let then = nfs4::NfsTime4 { seconds: 1_000_000_000, nseconds: 7 };
    let times = nfs4::FileAttributes {
        time_modify_set: Some(nfs4::SetTime4::ClientTime(then)),
        ..Default::default()
    };
    client.set_attributes(&file.handle, StateId4::ANONYMOUS, &times).unwrap();
    client.layout_commit(&file.handle, layout.stateid, Some(9)).unwrap();
    let after = client.attributes(&file.handle, ops::COMMON).unwrap();
    assert_eq!((after.size, after.time_modify), (Some(10), Some(then)));
}

#[test]
fn layoutcommit_sets_size_and_change_and_never_shrinks() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    let before = client.attributes(&file.handle, ops::COMMON).unwrap();
    data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[1; 1000]).unwrap();
    assert_eq!(client.layout_commit(&file.handle, layout.stateid, Some(999)).unwrap(), Some(1000));
    let after = client.attributes(&file.handle, ops::COMMON).unwrap();
    assert_eq!(after.size, Some(1000));
    assert!(after.change > before.change);
    assert!(after.time_modify >= before.time_modify);
    assert!(after.space_used >= Some(1000));
    data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[2; 10]).unwrap();
    client.layout_commit(&file.handle, layout.stateid, Some(9)).unwrap();
    let rewritten = client.attributes(&file.handle, ops::COMMON).unwrap();
    assert_eq!(rewritten.size, Some(1000), "max(size, last write + 1)");
    assert!(rewritten.change > after.change, "readers elsewhere must see that data has changed");
}

#[test]
fn layoutcommit_needs_a_layout_or_the_right_to_write() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let dir = directory_of(&mut client, "home", 1000);
    let mut ann = server.client_by(ClientOptions::named("ann").credential(auth_sys(1000, 1000, &[])));
    let file = ann.create(&dir, "file").unwrap();
    ann.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"data").unwrap();
    let mut bob = server.client_by(ClientOptions::named("bob").credential(auth_sys(1001, 1001, &[])));
    let reading = bob.open(&dir, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let layout = bob.layout_get(&reading.handle, reading.stateid, LayoutIomode4::Read).unwrap();
    let unknown = StateId4 { seqid: 1, other: [5; 12] };
    for stateid in [unknown, layout.stateid] {
        let outcome = bob.layout_commit(&reading.handle, stateid, Some(9));
        assert_ne!(status_of(outcome), NfsStat4::Ok, "{stateid:?}");
    }
    // Linux drops its commit on BADLAYOUT, so a client that may write commits also after a restart.
    ann.layout_commit(&file.handle, unknown, Some(3)).unwrap();
}

#[test]
fn layoutcommit_makes_no_size_without_bytes() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"data").unwrap();
    let layout = write_layout(&mut client, &file);
    client.layout_commit(&file.handle, layout.stateid, Some(1 << 40)).unwrap();
    assert_eq!(client.size(&file.handle).unwrap(), 4);
    let outcome = client.layout_commit(&file.handle, layout.stateid, Some(u64::MAX - 1));
    assert!(matches!(status_of(outcome), NfsStat4::Inval | NfsStat4::FBig));
}

#[test]
fn the_compound_that_closes_returns_the_layout_and_tells_the_final_size() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[1; 77]).unwrap();
    client.layout_commit(&file.handle, layout.stateid, Some(76)).unwrap();
    let reply = client
        .call(&[
            ops::put_fh(&file.handle),
            ops::layout_return(layout.stateid, &FfLayoutReturn4::default()),
            ops::get_attr(&[number::CHANGE, number::SIZE, number::SPACE_USED, number::TIME_MODIFY]),
            ops::close(seqid_zero(file.stateid)),
        ])
        .unwrap();
    let returned = testkit::body!(reply, LayoutReturn).unwrap();
    assert_eq!(returned.stateid, None, "nothing is held any more");
    assert_eq!(testkit::nfs_client::files::attributes(&reply).unwrap().size, Some(77));
}

#[test]
fn layouts_do_not_outlive_the_last_close() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    assert_eq!(state_of(&mut client, layout.stateid), NfsStat4::Ok);
    client.close(&file).unwrap();
    assert_eq!(state_of(&mut client, layout.stateid), NfsStat4::BadStateId, "return_on_close was said");
}

#[test]
fn the_layouts_of_a_file_system_or_all_are_returned_at_once_and_not_reclaimed_so() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    let other = client.create(&root, "other").unwrap();
    for (handle, layoutreturn) in [(Some(&root), LayoutReturn4::FsId), (None, LayoutReturn4::All)] {
        let layouts = [write_layout(&mut client, &file), write_layout(&mut client, &other)];
        let args = ops::layout_return_many(layoutreturn.clone());
        let NfsArgop4::LayoutReturn(plain) = args.clone() else { panic!("{args:?}") };
        let reclaiming = NfsArgop4::LayoutReturn(LayoutReturn4Args { reclaim: true, ..plain });
        let put_fh = handle.map(ops::put_fh);
        let refused = client.call(&put_fh.iter().cloned().chain([reclaiming]).collect::<Vec<_>>());
        assert_eq!(status_of(refused), NfsStat4::Inval, "{layoutreturn:?}");
        assert!(layouts.each_ref().map(|layout| state_of(&mut client, layout.stateid)) == [NfsStat4::Ok; 2]);
        let reply = client.call(&put_fh.into_iter().chain([args]).collect::<Vec<_>>()).unwrap();
        assert_eq!(testkit::body!(reply, LayoutReturn).unwrap().stateid, None);
        for layout in &layouts {
            assert_eq!(state_of(&mut client, layout.stateid), NfsStat4::BadStateId, "{layoutreturn:?}");
        }
    }
    let of_nothing = client.call(&[ops::layout_return_many(LayoutReturn4::FsId)]);
    assert_eq!(status_of(of_nothing), NfsStat4::NoFileHandle, "of which file system?");
}

fn report(layout: &Layout, status: NfsStat4, opnum: u32) -> FfLayoutReturn4 {
    let errors = vec![DeviceError4 { deviceid: layout.device(), status, opnum }];
    let stateid = layout.data_server().stateid;
    let error = FfIoErr4 { offset: 0, length: u64::MAX, stateid, errors };
    FfLayoutReturn4 { ioerr_report: vec![error], iostats_report: Vec::new() }
}

/// Takes a layout, fails with it, and takes the next: what the last LAYOUTGET answered.
fn fail_with(
    client: &mut NfsClient,
    file: &OpenFile,
    status: NfsStat4,
    times: u32,
) -> Result<Layout, ClientError> {
    let mut granted = client.layout_get(&file.handle, seqid_zero(file.stateid), LayoutIomode4::Rw);
    for _ in 0..times {
        let layout = granted?;
        client.layout_return(&file.handle, layout.stateid, &report(&layout, status, op::WRITE)).unwrap();
        granted = client.layout_get(&file.handle, seqid_zero(file.stateid), LayoutIomode4::Rw);
    }
    granted
}

/// Linux asks again at once after each error, with one replica for the same data server.
#[test]
fn a_client_that_fails_at_a_data_server_again_and_again_goes_through_the_head() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    let (mut bystander, other) = (server.client("bystander"), client.create(&root, "other").unwrap());
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"before").unwrap();
    let layout = fail_with(&mut client, &file, NfsStat4::Io, 2).unwrap();
    client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
    let refused = fail_with(&mut client, &file, NfsStat4::Io, 3);
    assert_eq!(status_of(refused), NfsStat4::LayoutUnavailable, "no other data server to give");
    let written = client.write(&file.handle, file.stateid, 6, StableHow4::FileSync, b" after").unwrap();
    assert_eq!(written.count, 6);
    let read = client.read(&file.handle, file.stateid, 0, 100).unwrap();
    assert_eq!(&read.data[..], b"before after");

    write_layout(&mut client, &other);
    let opened = bystander.create(&root, "file").unwrap();
    write_layout(&mut bystander, &opened);
}

#[test]
fn a_data_server_that_a_client_cannot_reach_is_avoided_for_all_files() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    let other = client.create(&root, "other").unwrap();
    assert_eq!(status_of(fail_with(&mut client, &file, NfsStat4::NxIo, 3)), NfsStat4::LayoutUnavailable);
    assert_eq!(status_of(fail_with(&mut client, &other, NfsStat4::NxIo, 0)), NfsStat4::LayoutUnavailable);
}

#[test]
fn a_client_that_fails_at_one_of_two_data_servers_creates_its_files_at_the_other() {
    let (_instance, server) = Server::start_with(Setup { pools: 2, ..Setup::default() });
    let (mut client, root, file) = with_file(&server);
    let failed = write_layout(&mut client, &file).device();
    assert_eq!(status_of(fail_with(&mut client, &file, NfsStat4::NxIo, 3)), NfsStat4::LayoutUnavailable);
    for number in 0..8 {
        let file = client.create(&root, &format!("new-{number}")).unwrap();
        assert_ne!(write_layout(&mut client, &file).device(), failed);
    }
}

/// A fence and a file that is too large say nothing about the data server.
#[test]
fn errors_that_are_not_the_data_servers_do_not_count() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    for status in [NfsStat4::Stale, NfsStat4::FBig, NfsStat4::Delay, NfsStat4::PnfsNoLayout] {
        fail_with(&mut client, &file, status, 20).unwrap();
    }
}

#[test]
fn a_layoutreturn_with_a_body_that_is_none_is_refused_or_ignored_but_never_breaks() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let NfsArgop4::LayoutReturn(mut garbage) =
        ops::layout_return(layout.stateid, &FfLayoutReturn4::default())
    else {
        unreachable!("it is LAYOUTRETURN")
    };
    let LayoutReturn4::File(of_file) = &mut garbage.layoutreturn else { unreachable!("of a file") };
    of_file.body = xdr::Opaque::from(&[0xff; 40]);
    let outcome = client.call(&[ops::put_fh(&file.handle), NfsArgop4::LayoutReturn(garbage)]);
    assert!(matches!(status_of(outcome), NfsStat4::Ok | NfsStat4::BadXdr | NfsStat4::Inval));
    assert!(client.size(&file.handle).is_ok());
}

#[test]
fn all_layouts_are_returned_at_once() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    let other = client.create(&root, "other").unwrap();
    let layouts = [write_layout(&mut client, &file), write_layout(&mut client, &other)];
    let all = NfsArgop4::LayoutReturn(LayoutReturn4Args {
        reclaim: false,
        layout_type: LayoutType4::FLEX_FILES,
        iomode: LayoutIomode4::Any,
        layoutreturn: LayoutReturn4::All,
    });
    client.call(&[all]).unwrap();
    for layout in layouts {
        assert_eq!(state_of(&mut client, layout.stateid), NfsStat4::BadStateId);
    }
}

#[test]
fn layouts_that_cannot_be_are_refused_each_in_its_way() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    let mut ask = |handle: &NfsFh4, change: &dyn Fn(&mut LayoutGet4Args)| {
        let NfsArgop4::LayoutGet(mut args) = ops::layout_get(seqid_zero(file.stateid), LayoutIomode4::Rw)
        else {
            unreachable!("it is LAYOUTGET")
        };
        change(&mut args);
        status_of(client.call(&[ops::put_fh(handle), NfsArgop4::LayoutGet(args)]))
    };
    let of_files = |args: &mut LayoutGet4Args| args.layout_type = LayoutType4::NFSV4_1_FILES;
    assert_eq!(ask(&file.handle, &of_files), NfsStat4::UnknownLayoutType);
    assert_eq!(ask(&file.handle, &|args| args.iomode = LayoutIomode4::Any), NfsStat4::BadIoMode);
    assert_eq!(ask(&file.handle, &|args| args.maxcount = 16), NfsStat4::TooSmall);
    assert_eq!(ask(&file.handle, &|args| (args.offset, args.length) = (10, u64::MAX - 5)), NfsStat4::Inval);
    assert_eq!(ask(&file.handle, &|args| (args.length, args.minlength) = (10, 20)), NfsStat4::Inval);
    let of_directory = ask(&root, &|_| {});
    assert!(matches!(of_directory, NfsStat4::BadStateId | NfsStat4::LayoutUnavailable | NfsStat4::Inval));
    assert_eq!(ask(&file.handle, &|_| {}), NfsStat4::Ok);
}

#[test]
fn an_open_for_reading_gets_no_layout_for_writing() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"data").unwrap();
    client.close(&file).unwrap();
    let reading = client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    let outcome = client.layout_get(&reading.handle, seqid_zero(reading.stateid), LayoutIomode4::Rw);
    assert_eq!(status_of(outcome), NfsStat4::OpenMode);
    let layout =
        client.layout_get(&reading.handle, seqid_zero(reading.stateid), LayoutIomode4::Read).unwrap();
    let mut data_server = client.data_server(&layout).unwrap();
    let read = data_server.read(layout.ticket(), layout.data_server().stateid, 0, 100).unwrap();
    assert_eq!(&read.data[..], b"data");
}

#[test]
fn a_refused_open_leaves_no_layout() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    client.create_object(&root, CreateType4::Dir, "dir", 0o755).unwrap();
    let open = ops::open("owner", OPEN4_SHARE_ACCESS_READ, OpenFlag4::NoCreate, "dir");
    let reply = client.open_with_layout(&root, open, LayoutIomode4::Read).unwrap();
    assert_eq!((reply.status, reply.results.len()), (NfsStat4::IsDir, 3));
}

#[test]
fn a_layoutget_that_fails_leaves_the_open_standing() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let open = ops::open("owner", OPEN4_SHARE_ACCESS_BOTH, ops::unchecked(0o644), "file");
    let unknown = LayoutGet4Args {
        signal_layout_avail: false,
        layout_type: LayoutType4::SCSI,
        iomode: LayoutIomode4::Rw,
        offset: 0,
        length: u64::MAX,
        minlength: 0,
        stateid: StateId4::CURRENT,
        maxcount: 4096,
    };
    let ops = [ops::put_fh(&root), open, NfsArgop4::GetFh, NfsArgop4::LayoutGet(unknown)];
    let reply = client.compound(&ops).unwrap();
    assert_eq!(reply.status, NfsStat4::UnknownLayoutType);
    let opened = testkit::body!(reply, Open).unwrap();
    let handle = testkit::nfs_client::files::handle(&reply).unwrap();
    client.write(&handle, opened.stateid, 0, StableHow4::FileSync, b"through the head").unwrap();
}

#[test]
fn files_spread_over_the_pools() {
    let (_instance, server) = Server::start_with(Setup { pools: 3, ..Setup::default() });
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let mut devices: Vec<DeviceId4> = Vec::new();
    for n in 0..40 {
        let file = client.create(&root, &format!("file{n}")).unwrap();
        let device = write_layout(&mut client, &file).device();
        if !devices.contains(&device) {
            devices.push(device);
        }
        client.close(&file).unwrap();
    }
    assert_eq!(devices.len(), 3);
    let mut addresses: Vec<String> = devices
        .iter()
        .map(|device| client.device_info(*device).unwrap().0.netaddrs[0].addr.clone())
        .collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 3);
}

#[test]
fn io_through_the_head_and_io_at_the_pool_are_of_one_file() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    client.write(&file.handle, file.stateid, 0, StableHow4::FileSync, b"head head head").unwrap();
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    assert_eq!(&data_server.read(layout.ticket(), stateid, 0, 100).unwrap().data[..], b"head head head");
    data_server.write(layout.ticket(), stateid, 5, StableHow4::FileSync, b"pool").unwrap();
    assert_eq!(&client.read(&file.handle, file.stateid, 0, 100).unwrap().data[..], b"head pool head");
}

#[test]
fn statistics_and_errors_of_nfs_4_2_are_taken() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let errors = vec![DeviceError4 { deviceid: layout.device(), status: NfsStat4::Io, opnum: op::READ }];
    let error = nfs4::LayoutError4Args { offset: 0, length: u64::MAX, stateid: layout.stateid, errors };
    client.call(&[ops::put_fh(&file.handle), NfsArgop4::LayoutError(error)]).unwrap();
    let stats = nfs4::LayoutStats4Args {
        offset: 0,
        length: u64::MAX,
        stateid: layout.stateid,
        read: nfs4::IoInfo4 { count: 1, bytes: 100 },
        write: nfs4::IoInfo4 { count: 2, bytes: 200 },
        deviceid: layout.device(),
        layoutupdate: LayoutUpdate4 {
            layout_type: LayoutType4::FLEX_FILES,
            body: nfs4::encode_body(&nfs4::FfLayoutUpdate4 {
                addr: nfs4::NetAddr4 { netid: "tcp".into(), addr: "127.0.0.1.8.1".into() },
                fhandle: layout.ticket().clone(),
                read: nfs4::FfIoLatency4::default(),
                write: nfs4::FfIoLatency4::default(),
                duration: nfs4::NfsTime4::default(),
                local: false,
            }),
        },
    };
    client.call(&[ops::put_fh(&file.handle), NfsArgop4::LayoutStats(stats)]).unwrap();
}

#[test]
fn a_removed_file_is_reached_by_its_ticket_until_the_close_and_freed_then() {
    let (instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    let layout = write_layout(&mut client, &file);
    let mut data_server = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    data_server.write(layout.ticket(), stateid, 0, StableHow4::FileSync, &[3; 10_000]).unwrap();
    server.client("other").remove(&root, "file").unwrap();
    let replicas = || {
        let status = instance.run(&["status", "--json"]).stdout;
        let report: serde_json::Value = serde_json::from_slice(&status).unwrap();
        report["pools"][0]["replicas"].as_u64().unwrap()
    };
    assert_eq!(replicas(), 1);
    data_server.write(layout.ticket(), stateid, 10_000, StableHow4::FileSync, b"still").unwrap();
    assert_eq!(&data_server.read(layout.ticket(), stateid, 10_000, 5).unwrap().data[..], b"still");
    client.layout_return(&file.handle, layout.stateid, &FfLayoutReturn4::default()).unwrap();
    client.close(&file).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while replicas() > 0 {
        assert!(Instant::now() < deadline, "the space is never freed");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(status_of(data_server.read(layout.ticket(), stateid, 0, 5)), NfsStat4::Stale);
}
