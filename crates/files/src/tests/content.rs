//! Reads, writes and holes of one file.

use std::future::poll_fn;
use std::task::Poll;

use api::{Birth, PoolError, RangeKind, Stability};
use bytes::Bytes;
use testkit::faulty::{Call, Fault, Gate, Request};
use types::{Attributes, ByteRange, Identity};

use super::*;

fn who() -> Identity {
    Identity::new(10, 100, &[])
}

/// `FILE` of that size, as the namespace has it from now on.
fn sized(fakes: &Fakes, size: u64) -> Attributes {
    let file = attributes(FILE, size);
    fakes.files.lock().insert(FILE, file);
    file
}

async fn opened(files: &Arc<Files>, file: &Attributes, mode: ContentMode) -> Content {
    files.content(file, mode).await.unwrap()
}

fn is_lost<T>(answer: &Result<T, FilesError>) -> bool {
    matches!(answer, Err(FilesError::Pool(PoolError::Io { .. })))
}

#[tokio::test]
async fn a_read_ends_where_the_file_ends_though_its_replica_is_longer() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth::UNKNOWN, 20, 100);
    let content = opened(&files, &sized(&fakes, 10), ContentMode::Read).await;
    let read = content.read(4, 100).await.unwrap();
    assert!(read.data == vec![7; 6] && read.end_of_file);
    let read = content.read(4, 5).await.unwrap();
    assert!(read.data == vec![7; 5] && !read.end_of_file);
    for behind in [10, 11, u64::MAX] {
        let read = content.read(behind, 5).await.unwrap();
        assert!(read.data.is_empty() && read.end_of_file);
    }
}

#[tokio::test]
async fn a_replica_that_ends_before_the_file_is_an_error_and_no_zeros() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth::UNKNOWN, 6, 100);
    let content = opened(&files, &sized(&fakes, 10), ContentMode::Read).await;
    for (offset, length) in [(0, 10), (4, 3), (6, 1), (9, 100)] {
        assert!(is_lost(&content.read(offset, length).await), "{offset} {length}");
    }
    for (offset, kind) in [(0, RangeKind::Hole), (7, RangeKind::Data), (7, RangeKind::Hole)] {
        assert!(is_lost(&content.seek(offset, kind).await), "{offset} {kind:?}");
    }
    assert!(is_lost(&content.read_segments(0, 10, 9).await));
    let there = content.read(0, 6).await.unwrap();
    assert!(there.data == vec![7; 6] && !there.end_of_file);
    assert_eq!(content.seek(3, RangeKind::Data).await.unwrap(), 3);
}

#[tokio::test]
async fn holes_read_as_zeros_and_are_left_out_of_segments() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth::UNKNOWN, 4, 100);
    let content = opened(&files, &sized(&fakes, 4), ContentMode::Write).await;
    content.write(&who(), 8, Bytes::from_static(b"data"), Stability::Unstable).await.unwrap();
    let content = opened(&files, &sized(&fakes, 12), ContentMode::Read).await;
    assert_eq!(content.read(2, 8).await.unwrap().data, b"\x07\x07\0\0\0\0da"[..]);
    assert_eq!(content.seek(0, RangeKind::Hole).await.unwrap(), 4);
    assert_eq!(content.seek(4, RangeKind::Data).await.unwrap(), 8);
    assert_eq!(content.seek(8, RangeKind::Hole).await.unwrap(), 12, "the hole at the end of every file");
    let Segments { segments, end_of_file } = content.read_segments(1, 100, 9).await.unwrap();
    let told: Vec<_> = segments
        .iter()
        .map(|segment| match segment {
            Segment::Hole { offset, length } => (*offset, None, *length),
            Segment::Data { offset, data } => (*offset, Some(&data[..]), data.len() as u64),
        })
        .collect();
    assert_eq!(told, [(1, Some(&[7; 3][..]), 3), (4, None, 4), (8, Some(&b"data"[..]), 4)]);
    assert!(end_of_file);
    assert!(!content.read_segments(1, 100, 2).await.unwrap().end_of_file, "two segments end before it");
}

#[tokio::test]
async fn a_file_without_a_byte_is_read_as_empty_and_asks_no_pool() {
    let (fakes, files) = Fakes::files();
    let empty = attributes(FileId(8), 0);
    let content = opened(&files, &empty, ContentMode::Read).await;
    assert!(content.read(0, 10).await.unwrap().data.is_empty());
    assert!(content.read_segments(0, 10, 9).await.unwrap().end_of_file);
    let content = opened(&files, &empty, ContentMode::Change).await;
    content.deallocate(ByteRange::from_bounds(0, 10).unwrap()).await.unwrap();
    assert!(fakes.pool.schedule().passed().is_empty());
}

/// The replica is cut first, and the namespace hears of it after.
#[tokio::test]
async fn a_read_beside_a_cut_waits_for_it_and_ends_at_the_new_length() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth::UNKNOWN, 10, 100);
    let file = sized(&fakes, 10);
    let content = opened(&files, &file, ContentMode::Read).await;
    let cut = files.begin_resizing(&file, 4, None, SHORT).await.unwrap();
    cut.set_at_replicas().await.unwrap();
    let read = content.read(2, 8);
    let length_is_set = async {
        tokio::task::yield_now().await;
        sized(&fakes, 4);
        drop(cut);
    };
    let (read, ()) = tokio::join!(read, length_is_set);
    let read = read.unwrap();
    assert!(read.data == vec![7; 2] && read.end_of_file);
    let read = content.read(5, 8).await.unwrap();
    assert!(read.data.is_empty() && read.end_of_file);
    for kind in [RangeKind::Data, RangeKind::Hole] {
        let sought = content.seek(5, kind).await;
        assert!(matches!(sought, Err(FilesError::Shortened)), "the caller looks at the file again");
    }
}

#[tokio::test]
async fn a_write_is_visible_after_its_bytes_are_there_and_a_failed_one_is_not() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth::UNKNOWN, 10, 100);
    let file = sized(&fakes, 10);
    let schedule = fakes.pool.schedule();
    let full = || Fault::Tear { bytes: 2, error: PoolError::NoSpace(fakes::POOL) };
    schedule.on(Call::Write, 0..2, full());
    for stability in [Stability::Unstable, Stability::FileSync] {
        let torn = files.write(&who(), &file, (8, Bytes::from_static(b"torn")), stability, None).await;
        assert!(matches!(torn, Err(FilesError::Pool(PoolError::NoSpace(_)))));
    }
    assert!(fakes.recorded_writes.lock().is_empty());
    let gate = Gate::shut();
    schedule.on(Call::Write, 0..1, Fault::Delay(gate.clone()));
    let who = who();
    let write = files.write(&who, &file, (8, Bytes::from_static(b"data")), Stability::Unstable, None);
    let release = async {
        assert_eq!(gate.waiting(), 1);
        assert!(fakes.recorded_writes.lock().is_empty(), "the size says nothing that the replica has not");
        gate.let_waiting_pass();
    };
    let (written, ()) = tokio::join!(write, release);
    written.unwrap();
    assert_eq!(fakes.files.lock()[&FILE].size, 12);
}

#[tokio::test]
async fn a_write_without_room_or_behind_the_largest_length_changes_nothing() {
    let (fakes, files) = Fakes::files();
    fakes.put_replica(Birth::UNKNOWN, 10, 100);
    let file = sized(&fakes, 10);
    let write = async |offset| {
        let data = (offset, Bytes::from_static(b"data"));
        files.write(&who(), &file, data, Stability::Unstable, None).await
    };
    *fakes.room.lock() = Some(3);
    assert!(matches!(write(10).await, Err(FilesError::Namespace(api::NamespaceError::QuotaExceeded))));
    assert!(write(9).await.is_ok(), "three more");
    *fakes.room.lock() = None;
    for offset in [u64::MAX, i64::MAX as u64 - 1] {
        assert!(matches!(write(offset).await, Err(FilesError::TooLarge)));
    }
    let is_write = |request: &Request| matches!(request, Request::Write { .. });
    assert_eq!(fakes.pool.schedule().passed().iter().filter(|request| is_write(request)).count(), 1);
}

/// A client sends its bytes again after a power cut that took them and left their size.
#[tokio::test]
async fn a_write_of_all_bytes_makes_a_lost_replica_anew_and_one_of_some_does_not() {
    let (fakes, files) = Fakes::files();
    let file = sized(&fakes, 4);
    let write = async |offset, data| {
        files.write(&who(), &file, (offset, Bytes::from_static(data)), Stability::FileSync, None).await
    };
    assert!(is_lost(&write(1, b"ata").await));
    write(0, b"data").await.unwrap();
    let content = opened(&files, &file, ContentMode::Read).await;
    assert_eq!(content.read(0, 9).await.unwrap().data, b"data"[..]);
}

/// Of a request whose connection went while it waited for a pool.
#[tokio::test]
async fn an_operation_that_is_dropped_at_any_await_leaves_no_turn_at_the_length() {
    for operation in 0..5 {
        for polls in 0.. {
            let (fakes, files) = Fakes::files();
            fakes.put_replica(Birth::UNKNOWN, 10, 100);
            let file = sized(&fakes, 10);
            let content = opened(&files, &file, ContentMode::Write).await;
            // Every call at the pool takes one more poll.
            let gate = Gate::shut();
            for call in [Call::Read, Call::Write, Call::Sync, Call::Range, Call::Facts] {
                fakes.pool.schedule().on(call, .., Fault::Delay(gate.clone()));
            }
            let mut run = Box::pin(async {
                let range = ByteRange::from_bounds(2, 20).unwrap();
                let data = Bytes::from_static(b"data");
                match operation {
                    0 => drop(content.read(0, 10).await.unwrap()),
                    1 => content.write(&who(), 8, data, Stability::FileSync).await.unwrap(),
                    2 => content.allocate(&who(), range).await.unwrap(),
                    3 => content.deallocate(range).await.unwrap(),
                    _ => drop(content.sync().await.unwrap()),
                }
            });
            let mut is_done = false;
            for _ in 0..polls {
                is_done = poll_fn(|context| Poll::Ready(run.as_mut().poll(context).is_ready())).await;
                if is_done {
                    break;
                }
                gate.let_waiting_pass();
            }
            drop(run);
            gate.let_all_pass();
            let cut = files.begin_resizing(&attributes(FILE, 10), 1, None, LONG).await;
            assert!(cut.is_ok(), "operation {operation} was dropped after {polls} polls");
            if is_done {
                assert!(polls > 1, "the pool was waited for");
                break;
            }
        }
    }
}
