//! The bytes of one file.

use api::{Account, Limit, NamespaceError, PoolError, Quota, Quotas, RangeKind, Stability};
use bytes::Bytes;
use forebay_files::{ContentMode, FilesError, Segment};
use types::{Attributes, ByteRange};

use crate::scene::{LONG, POOL};
use crate::world::{World, pattern};

const MIB: u64 = 1 << 20;

fn range(from: u64, to: u64) -> ByteRange {
    ByteRange::from_bounds(from, to).unwrap()
}

async fn write(world: &World, file: &Attributes, offset: u64, bytes: &[u8]) -> Result<(), FilesError> {
    let data = (offset, Bytes::copy_from_slice(bytes));
    world.files.write(&world.caller.identity, file, data, Stability::Unstable, None).await.map(drop)
}

pub async fn written_bytes_are_read_back_and_end_where_the_file_ends(world: World) {
    let bytes = pattern(3_000_000);
    let file = world.make("file", POOL, bytes.clone()).await;
    assert_eq!(file.size, 3_000_000);
    assert!(world.read(file.file).await.unwrap() == bytes);
    let content = world.files.content(&file, ContentMode::Read).await.unwrap();
    let read = content.read(2_999_996, 100).await.unwrap();
    assert!(read.data == bytes[2_999_996..] && read.end_of_file);
    let read = content.read(10, 5).await.unwrap();
    assert!(read.data == bytes[10..15] && !read.end_of_file);
    for behind in [3_000_000, u64::MAX] {
        let read = content.read(behind, 5).await.unwrap();
        assert!(read.data.is_empty() && read.end_of_file);
    }
}

/// A client is fenced off in the middle of what the head does for others.
pub async fn a_fence_of_clients_ends_nothing_that_the_head_does(world: World) {
    let file = world.make("file", POOL, b"0123456789".to_vec()).await;
    let content = world.files.content(&file, ContentMode::Write).await.unwrap();
    world.files.pools().fence(file.file).await.unwrap();
    assert_eq!(content.read(0, 10).await.unwrap().data, "0123456789");
    let data = Bytes::from_static(b"new");
    content.write(&world.caller.identity, 0, data, Stability::FileSync).await.unwrap();
    content.sync().await.unwrap();
    // By attributes of before the fence.
    write(&world, &file, 3, b"er").await.unwrap();
    assert_eq!(world.read(file.file).await.unwrap(), b"newer56789");
}

pub async fn a_file_without_a_byte_is_read_as_empty(world: World) {
    let file = world.make_empty("file", POOL).await;
    let content = world.files.content(&file, ContentMode::Read).await.unwrap();
    let read = content.read(0, 10).await.unwrap();
    assert!(read.data.is_empty() && read.end_of_file);
    assert!(content.read_segments(0, 10, 9).await.unwrap().end_of_file);
    let content = world.files.content(&file, ContentMode::Change).await.unwrap();
    content.deallocate(range(0, 10)).await.unwrap();
    assert_eq!(world.read(file.file).await.unwrap(), b"");
    assert_eq!(world.pool.first.pool.status().replicas, 0);
}

/// Each of them makes its bytes and the size visible together.
pub async fn writers_of_disjoint_ranges_are_all_seen(world: World) {
    let file = world.make_empty("file", POOL).await;
    let pieces = [0, 1, 2, 3].map(|piece: u8| (u64::from(piece) * 1_000, [piece + 1; 1_000]));
    let [a, b, c, d] = &pieces;
    let (a, b, c, d) = tokio::join!(
        write(&world, &file, a.0, &a.1),
        write(&world, &file, b.0, &b.1),
        write(&world, &file, c.0, &c.1),
        write(&world, &file, d.0, &d.1),
    );
    for written in [a, b, c, d] {
        written.unwrap();
    }
    assert!(world.read(file.file).await.unwrap() == pieces.map(|(_, bytes)| bytes).concat());
}

pub async fn holes_read_as_zeros_and_are_found(world: World) {
    let file = world.make("file", POOL, pattern(MIB as usize)).await;
    write(&world, &file, 3 * MIB, b"data").await.unwrap();
    let file = world.attributes(file.file).await;
    assert_eq!(file.size, 3 * MIB + 4);
    let content = world.files.content(&file, ContentMode::Read).await.unwrap();
    let read = content.read(3 * MIB - 2, 100).await.unwrap();
    assert!(read.data == b"\0\0data"[..] && read.end_of_file);
    assert_eq!(content.seek(0, RangeKind::Hole).await.unwrap(), MIB);
    assert_eq!(content.seek(MIB, RangeKind::Data).await.unwrap(), 3 * MIB);
    assert_eq!(content.seek(3 * MIB, RangeKind::Hole).await.unwrap(), file.size, "at the end of every file");
    let segments = content.read_segments(MIB - 1, 4 * MIB as u32, 9).await.unwrap();
    let told = segments.segments.iter().map(|segment| match segment {
        Segment::Hole { offset, length } => (*offset, *length, true),
        Segment::Data { offset, data } => (*offset, data.len() as u64, false),
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told, [(MIB - 1, 1, false), (MIB, 2 * MIB, true), (3 * MIB, 4, false)]);
    assert!(segments.end_of_file);
}

pub async fn space_is_reserved_for_a_range_and_given_back(world: World) {
    let file = world.make("file", POOL, pattern(MIB as usize)).await;
    let content = world.files.content(&file, ContentMode::Write).await.unwrap();
    content.allocate(&world.caller.identity, range(MIB / 2, 4 * MIB)).await.unwrap();
    let grown = world.attributes(file.file).await;
    assert!(grown.size == 4 * MIB && grown.change > file.change && grown.space_used >= 4 * MIB, "{grown:?}");
    let mut bytes = pattern(MIB as usize);
    bytes.resize(4 * MIB as usize, 0);
    assert!(world.read(file.file).await.unwrap() == bytes);
    content.deallocate(range(0, 2 * MIB)).await.unwrap();
    let freed = world.attributes(file.file).await;
    assert!(freed.size == 4 * MIB && freed.change > grown.change, "{freed:?}");
    assert!(freed.space_used <= grown.space_used - 2 * MIB, "{freed:?}");
    assert!(world.read(file.file).await.unwrap() == vec![0; 4 * MIB as usize]);
    world.judge("space is reserved and given back").await;
}

pub async fn a_file_that_is_cut_and_grows_shows_none_of_its_old_bytes(world: World) {
    let file = world.make("file", POOL, "0123456789").await;
    let file = world.files.set_length(world.by(), &file, 4, false).await.unwrap();
    assert_eq!((file.size, &world.read(file.file).await.unwrap()[..]), (4, &b"0123"[..]));
    let file = world.files.set_length(world.by(), &file, 8, false).await.unwrap();
    assert_eq!((file.size, &world.read(file.file).await.unwrap()[..]), (8, &b"0123\0\0\0\0"[..]));
    let file = world.files.set_length(world.by(), &file, 0, false).await.unwrap();
    assert_eq!(world.read(file.file).await.unwrap(), b"");
    write(&world, &file, 2, b"data").await.unwrap();
    assert_eq!(world.read(file.file).await.unwrap(), b"\0\0data");
    world.judge("the length was set").await;
}

pub async fn a_file_without_a_replica_that_grows_reads_as_zeros(world: World) {
    let file = world.make_empty("file", POOL).await;
    let file = world.files.set_length(world.by(), &file, 6, false).await.unwrap();
    assert_eq!(world.read(file.file).await.unwrap(), [0; 6]);
    write(&world, &file, 1, b"data").await.unwrap();
    assert_eq!(world.read(file.file).await.unwrap(), b"\0data\0");
}

pub async fn a_write_without_room_or_behind_the_largest_length_changes_nothing(world: World) {
    let file = world.make("file", POOL, "0123456789").await;
    let bytes = Limit { hard: Some(12), ..Limit::default() };
    let quota = Quota { bytes, files: Limit::default() };
    world.namespace.set_quota(Account::user(10), Some(quota)).await.unwrap();
    let refused = write(&world, &file, 9, b"data").await;
    assert!(matches!(refused, Err(FilesError::Namespace(NamespaceError::QuotaExceeded))), "{refused:?}");
    let refused = world.files.set_length(world.by(), &file, 13, false).await;
    assert!(matches!(refused, Err(FilesError::Namespace(NamespaceError::QuotaExceeded))), "{refused:?}");
    for offset in [u64::MAX, i64::MAX as u64 - 1] {
        assert!(matches!(write(&world, &file, offset, b"data").await, Err(FilesError::TooLarge)));
    }
    for size in [u64::MAX, 1 << 63] {
        let set = world.files.set_length(world.by(), &file, size, false).await;
        assert!(matches!(set, Err(FilesError::TooLarge)), "{set:?}");
    }
    assert_eq!(world.read(file.file).await.unwrap(), b"0123456789");
    write(&world, &file, 8, b"data").await.expect("two more");
    assert_eq!(world.read(file.file).await.unwrap(), b"01234567data");
}

/// The bytes of a file that a pool has lost are an error, and no zeros.
pub async fn a_replica_that_ends_before_the_file_is_an_error(world: World) {
    let file = world.make("file", POOL, "0123456789").await;
    world.pool.first.pool.truncate(&[(file.file, 6)], LONG).await.sole().unwrap();
    let content = world.files.content(&file, ContentMode::Change).await;
    let is_lost = |error: &FilesError| matches!(error, FilesError::Pool(PoolError::Io { .. }));
    // A pool may refuse the open.
    if let Ok(content) = content {
        assert!(content.read(4, 6).await.is_err_and(|error| is_lost(&error)));
        assert!(content.seek(0, RangeKind::Hole).await.is_err_and(|error| is_lost(&error)));
    }
    assert!(world.read(file.file).await.is_err_and(|error| is_lost(&error)));
    assert_eq!(world.attributes(file.file).await.size, 10);
}

pub async fn a_sync_answers_the_verifier_of_the_writes_that_it_covers(world: World) {
    let file = world.make_empty("file", POOL).await;
    let data = (0, Bytes::from_static(b"data"));
    let who = &world.caller.identity;
    let written = world.files.write(who, &file, data, Stability::Unstable, None).await.unwrap();
    let file = world.attributes(file.file).await;
    let content = world.files.content(&file, ContentMode::Change).await.unwrap();
    assert_eq!(content.sync().await.unwrap(), written);
    assert_eq!(content.verifier().unwrap(), written);
    assert!(world.attributes(file.file).await.space_used > 0);
}
