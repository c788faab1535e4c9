//! The operations of NFSv4.2 on data (RFC 7862 §15): SEEK, READ_PLUS, ALLOCATE, DEALLOCATE, IO_ADVISE.

use nfs4::attr::number;
use nfs4::{
    Allocate4Args, CreateType4, DataContent4, Deallocate4Args, IO_ADVISE4_DONTNEED, IO_ADVISE4_READ,
    IO_ADVISE4_SEQUENTIAL, IO_ADVISE4_WILLNEED, LayoutIomode4, NfsArgop4, NfsFh4, NfsStat4,
    OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WRITE, ReadPlus4Args, ReadPlusContent, Seek4Args, Seek4ResOk,
    StableHow4, StateId4,
};
use testkit::nfs_client::{ClientOptions, NfsClient, OpenFile, auth_sys, ops};

use crate::server::{Server, directory_of, status_of};

/// Larger than any file system's blocks.
const BLOCK: u64 = 64 << 10;

fn with_file(server: &Server) -> (NfsClient, NfsFh4, OpenFile) {
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.create(&root, "file").unwrap();
    (client, root, file)
}

fn write(client: &mut NfsClient, file: &OpenFile, offset: u64, data: &[u8]) {
    client.write(&file.handle, file.stateid, offset, StableHow4::FileSync, data).unwrap();
}

/// A hole, a block of sevens, a hole, to the end of the file.
fn with_sparse_file(server: &Server) -> (NfsClient, NfsFh4, OpenFile) {
    let (mut client, root, file) = with_file(server);
    write(&mut client, &file, 2 * BLOCK, &[7; BLOCK as usize]);
    client.set_size(&file.handle, file.stateid, 6 * BLOCK).unwrap();
    (client, root, file)
}

fn found(offset: u64) -> Seek4ResOk {
    Seek4ResOk { eof: false, offset }
}

#[test]
fn seek_finds_data_and_holes_and_the_hole_at_the_end() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_sparse_file(&server);
    let mut seek = |offset, what| client.seek(&file, offset, what).unwrap();
    let end = Seek4ResOk { eof: true, offset: 6 * BLOCK };
    assert_eq!(seek(0, DataContent4::Data), found(2 * BLOCK));
    assert_eq!(seek(2 * BLOCK + 9, DataContent4::Data), found(2 * BLOCK + 9));
    assert_eq!(seek(3 * BLOCK, DataContent4::Data), end);
    assert_eq!(seek(5, DataContent4::Hole), found(5));
    assert_eq!(seek(2 * BLOCK, DataContent4::Hole), found(3 * BLOCK));
    for offset in [6 * BLOCK, 6 * BLOCK + 1, u64::MAX] {
        for what in [DataContent4::Data, DataContent4::Hole] {
            assert_eq!(status_of(client.seek(&file, offset, what)), NfsStat4::NxIo);
        }
    }
    // RFC 7862 §15.11.3: every file has a virtual hole at its end.
    let root = client.root().unwrap();
    let dense = client.create(&root, "dense").unwrap();
    write(&mut client, &dense, 0, b"all data");
    let end = Seek4ResOk { eof: true, offset: 8 };
    assert_eq!(client.seek(&dense, 3, DataContent4::Hole).unwrap(), end);
}

#[test]
fn a_file_that_was_never_written_is_one_hole() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    assert_eq!(status_of(client.seek(&file, 0, DataContent4::Hole)), NfsStat4::NxIo);
    client.set_size(&file.handle, file.stateid, 100).unwrap();
    assert_eq!(client.seek(&file, 7, DataContent4::Hole).unwrap(), found(7));
    assert_eq!(client.seek(&file, 7, DataContent4::Data).unwrap(), Seek4ResOk { eof: true, offset: 100 });
}

/// The size in the namespace counts, whatever a client has left at the pool.
#[test]
fn seek_answers_by_the_size_of_the_file_and_not_of_its_replica() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_file(&server);
    write(&mut client, &file, 0, &[7; BLOCK as usize]);
    let zero = StateId4 { seqid: 0, ..file.stateid };
    let layout = client.layout_get(&file.handle, zero, LayoutIomode4::Rw).unwrap();
    let mut pool = client.data_server(&layout).unwrap();
    let stateid = layout.data_server().stateid;
    pool.write(layout.ticket(), stateid, 4 * BLOCK, StableHow4::FileSync, &[7; 5]).unwrap();
    // With a layout out, the head asks the pool.
    let mut other = server.client("other");
    let reading = other.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    assert_eq!(other.seek(&reading, BLOCK, DataContent4::Data).unwrap(), found(4 * BLOCK));
    let end = Seek4ResOk { eof: true, offset: 4 * BLOCK + 5 };
    assert_eq!(other.seek(&reading, 4 * BLOCK, DataContent4::Hole).unwrap(), end);
}

/// At the head and at the pool, at any offset, up to any end.
#[test]
fn long_reads_have_the_bytes_the_length_and_the_end_of_short_ones() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let content: Vec<u8> = (0..3 * (1 << 20) + 12_345_u32).map(|at| (at / 7) as u8 ^ at as u8).collect();
    for (number, part) in content.chunks(1 << 20).enumerate() {
        write(&mut client, &file, (number as u64) << 20, part);
    }
    let layout = client.layout_get(&file.handle, file.stateid, LayoutIomode4::Rw).unwrap();
    let mut pool = client.data_server(&layout).unwrap();
    let (ticket, of_layout) = (layout.ticket().clone(), layout.data_server().stateid);
    let end = content.len() as u64;
    for count in [1 << 10, BLOCK as u32, BLOCK as u32 + 1, 300_001, 1 << 20] {
        for offset in [0, 1, 4096, 70_003, 1 << 20, end - u64::from(count), end - 100_001, end - 5, end] {
            let expected = &content[offset as usize..(offset + u64::from(count)).min(end) as usize];
            for read in [
                client.read(&file.handle, file.stateid, offset, count).unwrap(),
                pool.read(&ticket, of_layout, offset, count).unwrap(),
            ] {
                let is_end = offset + expected.len() as u64 == end;
                assert!(read.data[..] == *expected, "{count} bytes at {offset}: {} came", read.data.len());
                assert_eq!(read.eof, is_end, "{count} bytes at {offset}");
            }
        }
    }
}

#[test]
fn read_plus_tells_data_and_holes() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_sparse_file(&server);
    let data = |offset, length: u64| ReadPlusContent::Data {
        offset,
        data: xdr::Opaque(bytes::Bytes::from(vec![7; length as usize])),
    };
    let hole = |offset, length| ReadPlusContent::Hole { offset, length };
    let mut read = |offset, count: u64| {
        let read = client.read_plus(&file, offset, count as u32).unwrap();
        (read.contents, read.eof)
    };
    assert_eq!(
        read(0, 6 * BLOCK),
        (vec![hole(0, 2 * BLOCK), data(2 * BLOCK, BLOCK), hole(3 * BLOCK, 3 * BLOCK)], true)
    );
    assert_eq!(read(BLOCK, 2 * BLOCK), (vec![hole(BLOCK, BLOCK), data(2 * BLOCK, BLOCK)], false));
    assert_eq!(read(2 * BLOCK + 5, 10), (vec![data(2 * BLOCK + 5, 10)], false));
    assert_eq!(read(5 * BLOCK, 5 * BLOCK), (vec![hole(5 * BLOCK, BLOCK)], true));
    assert_eq!(read(6 * BLOCK, 1), (vec![], true));
    assert_eq!(read(u64::MAX, 1), (vec![], true));
    assert_eq!(read(0, 0), (vec![], false));
}

/// RFC 8881 §2.10.6.4: the client asks again for data that does not fit into the reply.
#[test]
fn read_plus_answers_within_the_session_and_in_a_bounded_number_of_segments() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    for piece in 0..70 {
        write(&mut client, &file, piece * 2 * 4096, &[7; 4096]);
    }
    let size = client.size(&file.handle).unwrap();
    let (mut at, mut sum) = (0, 0_u64);
    while at < size {
        let read = client.read_plus(&file, at, u32::MAX).unwrap();
        assert!(!read.contents.is_empty() && read.contents.len() <= 64);
        for content in &read.contents {
            match content {
                ReadPlusContent::Data { offset, data } => {
                    assert_eq!(*offset, at);
                    at += data.len() as u64;
                    sum += data.iter().map(|byte| u64::from(*byte)).sum::<u64>();
                }
                ReadPlusContent::Hole { offset, length } => {
                    assert_eq!(*offset, at);
                    at += length;
                }
                ReadPlusContent::Other(_) => panic!("{content:?}"),
            }
        }
        assert_eq!(read.eof, at == size);
    }
    assert_eq!(sum, 70 * 4096 * 7);
}

#[test]
fn allocate_reserves_space_and_makes_the_file_longer_and_changes_no_byte() {
    let (instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    write(&mut client, &file, 0, b"head");
    let before = client.change(&file.handle).unwrap();
    client.allocate(&file.handle, file.stateid, 2, 10 * BLOCK).unwrap();
    let wanted = [number::SIZE, number::SPACE_USED];
    let told = client.attributes(&file.handle, &wanted).unwrap();
    assert_eq!(told.size, Some(10 * BLOCK + 2));
    assert!(told.space_used >= Some(10 * BLOCK), "{told:?}");
    assert!(client.change(&file.handle).unwrap() > before);
    let read = client.read(&file.handle, file.stateid, 0, 10).unwrap();
    assert_eq!(&read.data[..], b"head\0\0\0\0\0\0");
    // Within the file nothing becomes longer.
    client.allocate(&file.handle, file.stateid, BLOCK, BLOCK).unwrap();
    assert_eq!(client.size(&file.handle).unwrap(), 10 * BLOCK + 2);
    // It has no COMMIT: it is on disk when it is answered.
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.lookup(&root, "file").unwrap();
    assert_eq!(client.attributes(&file, &wanted).unwrap().size, Some(10 * BLOCK + 2));
}

#[test]
fn allocate_refuses_what_cannot_be() {
    let (instance, server) = Server::start();
    let dir = directory_of(&mut server.client("root"), "dir", 1234);
    let mut client = server.client_by(ClientOptions::named("user").credential(auth_sys(1234, 1234, &[])));
    let file = client.create(&dir, "f").unwrap();
    let mut allocate =
        |offset, length| status_of(client.allocate(&file.handle, file.stateid, offset, length));
    assert_eq!(allocate(0, 0), NfsStat4::Inval);
    assert_eq!(allocate(i64::MAX as u64, 1), NfsStat4::FBig);
    assert_eq!(allocate(u64::MAX, 5), NfsStat4::FBig);
    assert_eq!(allocate(0, 1 << 60), NfsStat4::NoSpc);
    assert_eq!(client.size(&file.handle).unwrap(), 0, "a refused operation leaves the file as it was");
    let set = instance.run(&["quota", "set", "--user", "1234", "--bytes-hard", "100000"]);
    assert!(set.status.success());
    let status = status_of(client.allocate(&file.handle, file.stateid, 0, 100_001));
    assert_eq!(status, NfsStat4::DQuot);
    client.allocate(&file.handle, file.stateid, 0, 100_000).unwrap();
}

#[test]
fn deallocate_makes_zeros_gives_space_back_and_keeps_the_size() {
    let (instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    for block in 0..8 {
        write(&mut client, &file, block * BLOCK, &[7; BLOCK as usize]);
    }
    client.commit(&file.handle).unwrap();
    let wanted = [number::SIZE, number::SPACE_USED];
    let before = client.attributes(&file.handle, &wanted).unwrap();
    let change = client.change(&file.handle).unwrap();
    client.deallocate(&file.handle, file.stateid, BLOCK + 5, 4 * BLOCK).unwrap();
    let after = client.attributes(&file.handle, &wanted).unwrap();
    assert_eq!(after.size, Some(8 * BLOCK));
    let freed = before.space_used.unwrap() - after.space_used.unwrap();
    assert!(freed >= 3 * BLOCK, "{freed} bytes came back");
    assert!(client.change(&file.handle).unwrap() > change);
    let mut expected = vec![7; 8 * BLOCK as usize];
    expected[BLOCK as usize + 5..5 * BLOCK as usize + 5].fill(0);
    let read = client.read(&file.handle, file.stateid, 0, 8 * BLOCK as u32).unwrap();
    assert!(read.data[..] == expected);
    // Beyond the end, and over it.
    client.deallocate(&file.handle, file.stateid, 7 * BLOCK, 5 * BLOCK).unwrap();
    client.deallocate(&file.handle, file.stateid, 20 * BLOCK, BLOCK).unwrap();
    assert_eq!(client.size(&file.handle).unwrap(), 8 * BLOCK);
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let file = client.open(&root, "file", OPEN4_SHARE_ACCESS_READ).unwrap();
    expected[7 * BLOCK as usize..].fill(0);
    let read = client.read(&file.handle, file.stateid, 0, 8 * BLOCK as u32).unwrap();
    assert!(read.data[..] == expected);
}

#[test]
fn deallocate_refuses_what_cannot_be_and_takes_a_file_without_bytes() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    let mut deallocate =
        |offset, length| status_of(client.deallocate(&file.handle, file.stateid, offset, length));
    assert_eq!(deallocate(0, 0), NfsStat4::Inval);
    assert_eq!(deallocate(5, u64::MAX), NfsStat4::Inval);
    assert_eq!(deallocate(0, BLOCK), NfsStat4::Ok);
    assert_eq!(client.size(&file.handle).unwrap(), 0);
}

/// A client can announce its I/O. The reply has only the hints that the server takes.
#[test]
fn io_advise_answers_the_hints_that_are_taken() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_sparse_file(&server);
    let hints = [IO_ADVISE4_SEQUENTIAL, IO_ADVISE4_WILLNEED, IO_ADVISE4_DONTNEED, IO_ADVISE4_READ];
    let taken = nfs4::Bitmap4::of(&[IO_ADVISE4_WILLNEED, IO_ADVISE4_DONTNEED]);
    for (offset, count) in [(0, 0), (5, 100), (BLOCK, u64::MAX), (1 << 50, 1)] {
        assert_eq!(client.advise(&file, offset, count, &hints).unwrap(), taken);
    }
    assert_eq!(client.advise(&file, 0, 0, &[IO_ADVISE4_SEQUENTIAL]).unwrap(), nfs4::Bitmap4::EMPTY);
    // RFC 7862 §15.5 has no OPENMODE.
    let writing =
        client.open_as(&root, "file", "w", OPEN4_SHARE_ACCESS_WRITE, ops::unchecked(0o644)).unwrap();
    assert_eq!(client.advise(&writing, 0, 0, &hints).unwrap(), taken);
    let nothing = OpenFile { stateid: StateId4::INVALID, ..file };
    assert_eq!(status_of(client.advise(&nothing, 0, 0, &hints)), NfsStat4::BadStateId);
}

/// Every operation on a handle with a stateid.
fn each(stateid: StateId4) -> [(NfsArgop4, bool); 4] {
    let what = DataContent4::Data;
    [
        (NfsArgop4::Seek(Seek4Args { stateid, offset: 0, what }), false),
        (NfsArgop4::ReadPlus(ReadPlus4Args { stateid, offset: 0, count: 5 }), false),
        (NfsArgop4::Allocate(Allocate4Args { stateid, offset: 0, length: 5 }), true),
        (NfsArgop4::Deallocate(Deallocate4Args { stateid, offset: 0, length: 5 }), true),
    ]
}

#[test]
fn stateids_are_judged_as_those_of_read_and_write() {
    let (_instance, server) = Server::start();
    let (mut client, root, file) = with_sparse_file(&server);
    let open = |client: &mut NfsClient, owner, access| {
        client.open_as(&root, "file", owner, access, nfs4::OpenFlag4::NoCreate).unwrap().stateid
    };
    let reading = open(&mut client, "r", OPEN4_SHARE_ACCESS_READ);
    let writing = open(&mut client, "w", OPEN4_SHARE_ACCESS_WRITE);
    let other = client.create(&root, "other").unwrap();
    let mut run =
        |handle: &NfsFh4, op: &NfsArgop4| status_of(client.call(&[ops::put_fh(handle), op.clone()]));
    for (stateid, on_read, on_write) in [
        (file.stateid, NfsStat4::Ok, NfsStat4::Ok),
        (reading, NfsStat4::Ok, NfsStat4::OpenMode),
        (writing, NfsStat4::OpenMode, NfsStat4::Ok),
        (StateId4::ANONYMOUS, NfsStat4::Ok, NfsStat4::Ok),
        (other.stateid, NfsStat4::BadStateId, NfsStat4::BadStateId),
        (StateId4 { seqid: 9, ..file.stateid }, NfsStat4::BadStateId, NfsStat4::BadStateId),
    ] {
        for (op, writes) in each(stateid) {
            let expected = if writes { on_write } else { on_read };
            assert_eq!(run(&file.handle, &op), expected, "{op:?}");
        }
    }
}

/// Without an open the mode bits decide, and so do others' denials.
#[test]
fn without_an_open_the_mode_bits_decide() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_sparse_file(&server);
    for (op, writes) in each(StateId4::ANONYMOUS) {
        let stranger = auth_sys(7, 7, &[]);
        let status = status_of(client.call_as(stranger, &[ops::put_fh(&file.handle), op.clone()]));
        assert_eq!(status, if writes { NfsStat4::Access } else { NfsStat4::Ok }, "{op:?}");
    }
}

#[test]
fn only_regular_files_have_data() {
    let (_instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let link = CreateType4::Lnk(nfs4::LinkText4::from(bytes::Bytes::from("target")));
    let link = client.create_object(&root, link, "link", 0o777).unwrap();
    let fifo = client.create_object(&root, CreateType4::Fifo, "fifo", 0o644).unwrap();
    for handle in [&root, &link, &fifo] {
        for (op, _) in each(StateId4::ANONYMOUS) {
            let status = status_of(client.call(&[ops::put_fh(handle), op.clone()]));
            assert_eq!(status, NfsStat4::WrongType, "{op:?}");
        }
    }
    for (op, _) in each(StateId4::ANONYMOUS) {
        assert_eq!(status_of(client.call(&[op])), NfsStat4::NoFileHandle);
    }
}

/// An operation that is not implemented is NOTSUPP. Operations of NFSv4.2 are OP_ILLEGAL for a client of NFSv4.1.
#[test]
fn operations_that_are_not_served_are_notsupp_and_those_of_4_2_are_illegal_in_4_1() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_sparse_file(&server);
    let stateid = file.stateid;
    for op in [
        NfsArgop4::CopyNotify(nfs4::CopyNotify4Args {
            src_stateid: stateid,
            destination_server: nfs4::NetLoc4::Name("elsewhere".into()),
        }),
        NfsArgop4::WriteSame(nfs4::WriteSame4Args {
            stateid,
            stable: StableHow4::FileSync,
            adb: nfs4::AppDataBlock4 {
                offset: 0,
                block_size: 512,
                block_count: 2,
                reloff_blocknum: 0,
                block_num: 0,
                reloff_pattern: 0,
                pattern: "x".into(),
            },
        }),
    ] {
        assert_eq!(status_of(client.call(&[ops::put_fh(&file.handle), op])), NfsStat4::NotSupp);
    }
    let mut old = server.client_by(ClientOptions::named("old").minorversion(1));
    for (op, _) in each(StateId4::ANONYMOUS) {
        assert_eq!(status_of(old.call(&[ops::put_fh(&file.handle), op])), NfsStat4::OpIllegal);
    }
}

#[test]
fn a_write_uses_the_space_that_was_allocated_for_it() {
    let (_instance, server) = Server::start();
    let (mut client, _, file) = with_file(&server);
    client.allocate(&file.handle, file.stateid, 0, 4 * BLOCK).unwrap();
    write(&mut client, &file, BLOCK, &[7; BLOCK as usize]);
    client.commit(&file.handle).unwrap();
    let used = client.attributes(&file.handle, &[number::SPACE_USED]).unwrap().space_used.unwrap();
    assert!((4 * BLOCK..5 * BLOCK).contains(&used), "{used}: the bytes go where the space is");
}

/// The pool's journal keeps the lengths of small stable writes, and the namespace learns them half a second later.
#[test]
fn lengths_of_stable_writes_outlive_a_kill_in_their_order() {
    let (instance, server) = Server::start();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("file{number}")).collect();
    let files: Vec<_> = names.iter().map(|name| client.create(&root, name).unwrap()).collect();
    for file in &files {
        write(&mut client, file, 0, b"first");
        write(&mut client, file, 5, b", second");
    }
    client.set_size(&files[1].handle, files[1].stateid, 3).unwrap();
    client.set_size(&files[2].handle, files[2].stateid, 3).unwrap();
    write(&mut client, &files[2], 3, b"again");
    let change = client.change(&files[0].handle).unwrap();
    server.kill();
    let server = instance.up();
    let mut client = server.client("host");
    let root = client.root().unwrap();
    for (number, name) in names.iter().enumerate() {
        let file = client.open(&root, name, OPEN4_SHARE_ACCESS_READ).unwrap();
        let read = client.read(&file.handle, file.stateid, 0, 100).unwrap();
        let expected: &[u8] = match number {
            1 => b"fir",
            2 => b"firagain",
            _ => b"first, second",
        };
        assert_eq!(&read.data[..], expected, "{name}");
    }
    let first = client.lookup(&root, "file0").unwrap();
    assert!(client.change(&first).unwrap() > change, "caches of before the kill are not taken for current");
}
