//! Requirements on every implementation of `api::Pool`, as one suite: `pool_suite!(MyPool)`.
//!
//! Each test is a function over a `PoolUnderTest`; the macro makes `#[tokio::test]`s of them in the crate that has the
//! implementation (which needs tokio as a dev-dependency).

mod ranges;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use api::{
    ANSWER_TIME, LocalRange, OpenReplica, Pool, PoolError, Stability, Ticket, TicketMode, WriteThrough,
};
use bytes::Bytes;
use types::{ByteRange, Epoch, FileId, PoolId};

pub use ranges::*;

/// A pool with a place of its own, which is gone when this is dropped.
pub trait PoolUnderTest {
    fn start() -> Self;
    /// Replicas are files that it lends for sending.
    fn lends_files(&self) -> bool {
        true
    }
    fn pool(&self) -> Arc<dyn Pool>;
    /// Ends the pool as a shutdown does and starts another on what it left.
    fn restart(&mut self);
}

/// Makes the tests of the suite for a `PoolUnderTest`.
#[macro_export]
macro_rules! pool_suite {
    ($subject:ty) => {
        $crate::pool_suite!(@ $subject:
            written_data_is_read_back
            the_end_of_file_is_told_exactly
            a_replica_that_was_never_written_reads_as_empty
            holes_read_as_zeros_and_take_no_space
            a_read_ticket_does_not_write
            a_write_says_how_stable_it_became
            the_verifier_is_the_same_until_a_restart
            synced_data_survives_a_restart
            truncation_shrinks_grows_and_makes
            a_size_that_no_file_can_have_is_too_large
            a_removed_replica_does_not_come_back
            a_removed_replica_is_made_again_to_be_filled
            removals_are_not_synced_while_a_replica_is_there
            an_open_replica_outlives_its_removal
            a_local_range_reads_what_was_written
            a_local_range_stays_open_while_it_is_held
            a_fence_gives_no_more_local_ranges
            a_write_through_reports_when_its_data_can_be_read_and_when_it_is_on_disk
            a_fence_stops_older_tickets_and_open_handles
            a_fence_survives_a_restart_with_and_without_a_replica
            a_fence_is_never_lowered
            a_ticket_of_another_pool_is_refused
            replicas_are_listed_by_id_and_in_pages
            status_counts_what_was_done
            writers_of_disjoint_ranges_do_not_disturb_each_other
            space_is_reserved_and_given_back
            reserved_space_survives_a_restart
            data_and_holes_are_found
            bytes_are_copied_from_another_replica_and_from_another_place
            a_source_is_copied_by_its_ticket_and_refused_where_the_pool_does_not_reach_it
            a_clone_is_the_same_bytes_where_blocks_can_be_shared
            ranges_are_changed_by_write_tickets_of_this_epoch_only
            advice_is_taken_of_any_replica
        );
    };
    (@ $subject:ty: $($name:ident)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let subject = <$subject as $crate::pool_suite::PoolUnderTest>::start();
                $crate::pool_suite::$name(subject).await;
            }
        )*
    };
}

fn ticket(pool: PoolId, file: u64, mode: TicketMode, epoch: u32) -> Ticket {
    Ticket {
        file: FileId(file),
        birth: api::Birth::UNKNOWN,
        pool,
        mode,
        epoch: Epoch(epoch),
        presence: api::Presence::Unmade,
        io: types::IoMode::Auto,
    }
}

async fn open_at(pool: &Arc<dyn Pool>, file: u64, mode: TicketMode, epoch: u32) -> Arc<dyn OpenReplica> {
    pool.open(&ticket(pool.id(), file, mode, epoch)).await.expect("the ticket is good")
}

async fn writer(pool: &Arc<dyn Pool>, file: u64) -> Arc<dyn OpenReplica> {
    open_at(pool, file, TicketMode::ReadWrite, 0).await
}

async fn reader(pool: &Arc<dyn Pool>, file: u64) -> Arc<dyn OpenReplica> {
    open_at(pool, file, TicketMode::Read, 0).await
}

async fn write(replica: &Arc<dyn OpenReplica>, offset: u64, data: &[u8]) -> Result<Stability, PoolError> {
    replica.write_at(offset, Bytes::copy_from_slice(data), Stability::Unstable).await
}

async fn read(replica: &Arc<dyn OpenReplica>, offset: u64, length: u32) -> (Vec<u8>, bool) {
    let read = replica.read_at(offset, length).await.expect("the replica can be read");
    (read.data.to_vec(), read.end_of_file)
}

pub async fn written_data_is_read_back(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let (one, other) = (writer(&pool, 7).await, reader(&pool, 7).await);
    let large: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    write(&one, 0, &large).await.expect("there is space");
    write(&one, 10, b"overwritten").await.expect("there is space");
    let mut expected = large;
    expected[10..21].copy_from_slice(b"overwritten");
    let mut found = Vec::new();
    loop {
        let (part, end) = read(&other, found.len() as u64, 1 << 20).await;
        found.extend(part);
        if end {
            break;
        }
    }
    assert!(found == expected, "what is read differs from what was written");
}

pub async fn the_end_of_file_is_told_exactly(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    write(&replica, 0, b"0123456789").await.expect("there is space");
    assert_eq!(read(&replica, 0, 9).await, (b"012345678".to_vec(), false));
    assert_eq!(read(&replica, 0, 10).await, (b"0123456789".to_vec(), true));
    assert_eq!(read(&replica, 5, 100).await, (b"56789".to_vec(), true));
    assert_eq!(read(&replica, 10, 1).await, (Vec::new(), true));
    assert_eq!(read(&replica, u64::MAX, 1).await, (Vec::new(), true));
}

pub async fn a_replica_that_was_never_written_reads_as_empty(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    for replica in [reader(&pool, 7).await, writer(&pool, 7).await] {
        assert_eq!(read(&replica, 0, 100).await, (Vec::new(), true));
        assert_eq!(read(&replica, 100, 1).await, (Vec::new(), true));
        replica.sync().await.expect("nothing is to be synced");
    }
    assert_eq!(pool.facts(&[FileId(7)], ANSWER_TIME).await.sole().expect("facts are known"), None);
    assert_eq!(pool.status().replicas, 0);
}

pub async fn holes_read_as_zeros_and_take_no_space(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    write(&replica, 1 << 30, b"end").await.expect("there is space");
    assert_eq!(read(&replica, 1 << 20, 4).await, (vec![0; 4], false));
    assert_eq!(read(&replica, (1 << 30) - 1, 100).await, (b"\0end".to_vec(), true));
    replica.sync().await.expect("the disk is well");
    let facts =
        pool.facts(&[FileId(7)], ANSWER_TIME).await.sole().expect("facts are known").expect("it was written");
    assert_eq!(facts.size, (1 << 30) + 3);
    assert!(facts.space_used < 1 << 20, "{} bytes used", facts.space_used);
}

pub async fn a_read_ticket_does_not_write(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = reader(&pool, 7).await;
    assert!(matches!(write(&replica, 0, b"x").await, Err(PoolError::ReadOnlyTicket)));
    assert_eq!(pool.facts(&[FileId(7)], ANSWER_TIME).await.sole().expect("facts are known"), None);
}

pub async fn a_write_says_how_stable_it_became(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    for asked in [Stability::Unstable, Stability::DataSync, Stability::FileSync] {
        for data in ["some bytes", ""] {
            let became = replica.write_at(3, Bytes::from(data), asked).await.expect("there is space");
            assert!(became >= asked, "{became:?} for {asked:?}");
        }
    }
}

pub async fn the_verifier_is_the_same_until_a_restart(mut subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let (one, other) = (writer(&pool, 7).await, writer(&pool, 8).await);
    write(&one, 0, b"x").await.expect("there is space");
    let verifier = one.sync().await.expect("the disk is well");
    assert_eq!((verifier, verifier), (one.verifier(), other.verifier()));
    drop((one, other, pool));
    subject.restart();
    assert_ne!(writer(&subject.pool(), 7).await.verifier(), verifier);
}

pub async fn synced_data_survives_a_restart(mut subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    write(&replica, 0, b"first").await.expect("there is space");
    replica.sync().await.expect("the disk is well");
    replica.write_at(5, Bytes::from(", then"), Stability::FileSync).await.expect("there is space");
    drop((replica, pool));
    subject.restart();
    let pool = subject.pool();
    assert_eq!(read(&reader(&pool, 7).await, 0, 100).await, (b"first, then".to_vec(), true));
    assert_eq!(pool.status().replicas, 1);
    assert_eq!(pool.replicas(FileId(0), 10).await.expect("it can be listed")[0].size, 11);
}

pub async fn truncation_shrinks_grows_and_makes(mut subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let sizes = async |pool: &Arc<dyn Pool>, file, size| {
        let facts = pool.truncate(&[(FileId(file), size)], ANSWER_TIME).await.sole().expect("there is space");
        assert_eq!((facts.file, facts.size), (FileId(file), size));
    };
    sizes(&pool, 7, 0).await;
    assert_eq!(
        pool.facts(&[FileId(7)], ANSWER_TIME).await.sole().expect("facts are known"),
        None,
        "nothing to be made"
    );
    sizes(&pool, 7, 5).await;
    let replica = writer(&pool, 7).await;
    assert_eq!(read(&replica, 0, 10).await, (vec![0; 5], true));
    write(&replica, 0, b"0123456789").await.expect("there is space");
    sizes(&pool, 7, 4).await;
    sizes(&pool, 7, 6).await;
    assert_eq!(read(&replica, 0, 10).await, (b"0123\0\0".to_vec(), true), "what was cut off is gone");
    sizes(&pool, 7, 6).await;
    drop((replica, pool));
    subject.restart();
    let pool = subject.pool();
    assert_eq!(read(&reader(&pool, 7).await, 0, 10).await, (b"0123\0\0".to_vec(), true));
}

pub async fn a_size_that_no_file_can_have_is_too_large(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    for offset in [i64::MAX as u64, 1 << 63, u64::MAX - 1] {
        let written = write(&replica, offset, b"xx").await;
        assert!(matches!(written, Err(PoolError::TooLarge)), "{written:?} at {offset}");
        let truncated = pool.truncate(&[(FileId(8), offset + 1)], ANSWER_TIME).await.sole();
        assert!(matches!(truncated, Err(PoolError::TooLarge)), "{truncated:?} to {offset}");
    }
    assert_eq!(read(&replica, 0, 1).await, (Vec::new(), true));
}

pub async fn a_removed_replica_does_not_come_back(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    write(&replica, 0, b"x").await.expect("there is space");
    let never_written = writer(&pool, 8).await;
    for file in [7, 8, 9] {
        for _ in 0..2 {
            pool.remove(&[FileId(file)], ANSWER_TIME).await.sole().expect("removal is idempotent");
        }
        for mode in [TicketMode::Read, TicketMode::ReadWrite] {
            let opened = pool.open(&ticket(pool.id(), file, mode, 5)).await;
            assert!(matches!(opened.map(|_| ()), Err(PoolError::NoReplica(_))));
        }
        assert!(matches!(
            pool.truncate(&[(FileId(file), 9)], ANSWER_TIME).await.sole(),
            Err(PoolError::NoReplica(_))
        ));
        assert_eq!(pool.facts(&[FileId(file)], ANSWER_TIME).await.sole().expect("facts are known"), None);
    }
    assert!(matches!(write(&never_written, 0, b"x").await, Err(PoolError::NoReplica(_))));
    assert_eq!(pool.replicas(FileId(0), 10).await.expect("it can be listed"), []);
    assert_eq!(pool.status().replicas, 0);
}

/// Its file was moved away, and comes back.
pub async fn a_removed_replica_is_made_again_to_be_filled(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let before = writer(&pool, 7).await;
    write(&before, 0, b"before").await.expect("there is space");
    pool.remove(&[FileId(7)], ANSWER_TIME).await.sole().expect("it can be removed");
    pool.sync_removals(&[FileId(7)], ANSWER_TIME).await.expect("it is gone");
    assert_eq!(pool.facts(&[FileId(7)], ANSWER_TIME).await.sole().expect("facts are known"), None);
    let to_fill = Ticket {
        presence: api::Presence::Filling,
        birth: api::Birth(9),
        ..ticket(pool.id(), 7, TicketMode::ReadWrite, 0)
    };
    let filled = pool.open(&to_fill).await.expect("it may be here again");
    pool.make(&[(FileId(7), api::Birth(9))], ANSWER_TIME).await.sole().expect("it is made");
    write(&filled, 0, b"now").await.expect("there is space");
    filled.sync().await.expect("the disk is well");
    assert_eq!(read(&reader(&pool, 7).await, 0, 10).await, (b"now".to_vec(), true));
    assert_eq!(read(&before, 0, 10).await, (b"before".to_vec(), true), "whoever has it open goes on");
    let facts = pool.facts(&[FileId(7)], ANSWER_TIME).await.sole().expect("facts are known");
    assert_eq!(facts.map(|facts| (facts.birth, facts.size)), Some((api::Birth(9), 3)));
    pool.remove(&[FileId(7)], ANSWER_TIME).await.sole().expect("it can be removed");
    let late = pool.open(&ticket(pool.id(), 7, TicketMode::ReadWrite, 5)).await;
    assert!(matches!(late.map(|_| ()), Err(PoolError::NoReplica(_))));
}

pub async fn removals_are_not_synced_while_a_replica_is_there(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    write(&writer(&pool, 7).await, 0, b"x").await.expect("there is space");
    assert!(pool.sync_removals(&[FileId(9), FileId(7)], ANSWER_TIME).await.is_err());
    pool.remove(&[FileId(7)], ANSWER_TIME).await.sole().expect("it can be removed");
    pool.sync_removals(&[FileId(9), FileId(7)], ANSWER_TIME).await.expect("neither is there");
}

pub async fn an_open_replica_outlives_its_removal(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    write(&replica, 0, b"kept").await.expect("there is space");
    pool.remove(&[FileId(7)], ANSWER_TIME).await.sole().expect("it can be removed");
    assert_eq!(read(&replica, 0, 10).await, (b"kept".to_vec(), true));
    write(&replica, 4, b" on").await.expect("an open file goes on");
    replica.sync().await.expect("the disk is well");
    assert_eq!(read(&replica, 0, 10).await, (b"kept on".to_vec(), true));
    assert_eq!(pool.replicas(FileId(0), 10).await.expect("it can be listed"), []);
}

fn lent(replica: &Arc<dyn OpenReplica>, offset: u64) -> Option<Arc<dyn LocalRange>> {
    replica.local_range(ByteRange::new(offset, 100).expect("it is not empty"))
}

/// Bytes that `sendfile` would send.
fn sent_by(range: &Arc<dyn LocalRange>) -> Vec<u8> {
    let file = File::from(range.file().try_clone_to_owned().expect("there are descriptors left"));
    let mut data = vec![0; 1 << 10];
    let length = file.read_at(&mut data, range.offset()).expect("it is open for reading");
    data.truncate(length);
    data
}

pub async fn a_local_range_reads_what_was_written(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let (one, other) = (writer(&pool, 7).await, reader(&pool, 7).await);
    assert!(lent(&other, 0).is_none(), "there is no byte to send yet");
    write(&one, 0, b"0123456789").await.expect("there is space");
    let before = pool.status();
    let range = lent(&other, 4);
    assert_eq!(range.is_some(), subject.lends_files());
    let Some(range) = range else { return };
    assert_eq!(sent_by(&range), b"456789");
    // A write that came after it was lent is seen; so it is with two reads.
    write(&one, 10, b", more").await.expect("there is space");
    assert_eq!(sent_by(&range), b"456789, more");
    range.sent(14);
    let after = pool.status();
    assert_eq!((after.reads - before.reads, after.read_bytes - before.read_bytes), (1, 14));
}

/// Though nobody holds the replica, it is removed, and far more files are in use than may be open.
pub async fn a_local_range_stays_open_while_it_is_held(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    write(&writer(&pool, 7).await, 0, b"lent").await.expect("there is space");
    let Some(range) = lent(&reader(&pool, 7).await, 0) else {
        assert!(!subject.lends_files());
        return;
    };
    for round in 0..2 {
        for file in 100..200 {
            let replica = writer(&pool, file).await;
            replica.write_at(0, Bytes::from("other"), Stability::FileSync).await.expect("there is space");
        }
        assert_eq!(sent_by(&range), b"lent", "round {round}");
        pool.remove(&[FileId(7)], ANSWER_TIME).await.sole().expect("it can be removed");
    }
    assert_eq!(sent_by(&range), b"lent");
}

pub async fn a_write_through_reports_when_its_data_can_be_read_and_when_it_is_on_disk(
    subject: impl PoolUnderTest,
) {
    let pool = subject.pool();
    let writer = writer(&pool, 7).await;
    let WriteThrough { written, synced, .. } = writer.write_through(2, Bytes::from("data"));
    written.await.expect("there is space");
    assert_eq!(read(&writer, 0, 10).await, (b"\0\0data".to_vec(), true));
    assert_eq!(synced.await.expect("the disk is well").verifier, writer.verifier());
    let reader = open_at(&pool, 7, TicketMode::Read, 0).await;
    let refused = reader.write_through(0, Bytes::from("no")).written.await;
    assert!(matches!(refused, Err(PoolError::ReadOnlyTicket)));
    pool.fence(&[(FileId(7), Epoch(1))], ANSWER_TIME).await.sole().expect("it can be fenced");
    let refused = writer.write_through(0, Bytes::from("no")).written.await;
    assert!(matches!(refused, Err(PoolError::Fenced)));
}

pub async fn a_fence_gives_no_more_local_ranges(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let old = writer(&pool, 7).await;
    write(&old, 0, b"data").await.expect("there is space");
    assert_eq!(lent(&old, 0).is_some(), subject.lends_files());
    pool.fence(&[(FileId(7), Epoch(1))], ANSWER_TIME).await.sole().expect("it can be fenced");
    assert!(lent(&old, 0).is_none());
    assert!(matches!(old.read_at(0, 1).await, Err(PoolError::Fenced)), "which says why");
    let new = open_at(&pool, 7, TicketMode::Read, 1).await;
    assert_eq!(lent(&new, 0).is_some(), subject.lends_files());
}

pub async fn a_fence_stops_older_tickets_and_open_handles(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let old = writer(&pool, 7).await;
    write(&old, 0, b"before").await.expect("there is space");
    pool.fence(&[(FileId(7), Epoch(2))], ANSWER_TIME).await.sole().expect("it can be fenced");
    assert!(matches!(write(&old, 0, b"after!").await, Err(PoolError::Fenced)));
    assert!(matches!(old.read_at(0, 1).await, Err(PoolError::Fenced)));
    for epoch in [0, 1] {
        let opened = pool.open(&ticket(pool.id(), 7, TicketMode::Read, epoch)).await;
        assert!(matches!(opened.map(|_| ()), Err(PoolError::Fenced)));
    }
    for epoch in [2, 3] {
        let new = open_at(&pool, 7, TicketMode::ReadWrite, epoch).await;
        assert_eq!(read(&new, 0, 10).await, (b"before".to_vec(), true));
        write(&new, 0, b"before").await.expect("the ticket is new");
    }
    writer(&pool, 8).await;
}

pub async fn a_fence_survives_a_restart_with_and_without_a_replica(mut subject: impl PoolUnderTest) {
    let pool = subject.pool();
    write(&writer(&pool, 7).await, 0, b"x").await.expect("there is space");
    for file in [7, 8] {
        pool.fence(&[(FileId(file), Epoch(3))], ANSWER_TIME).await.sole().expect("it can be fenced");
    }
    drop(pool);
    for round in 0..3 {
        subject.restart();
        let pool = subject.pool();
        for file in [7, 8] {
            // A pool may refuse the old ticket at the open or at the write.
            let written = match pool.open(&ticket(pool.id(), file, TicketMode::ReadWrite, 2)).await {
                Ok(old) => write(&old, 0, b"old").await,
                Err(error) => Err(error),
            };
            assert!(matches!(written, Err(PoolError::Fenced)), "file {file}, start {round}");
            let opened = pool.open(&ticket(pool.id(), file, TicketMode::Read, 2)).await;
            assert!(matches!(opened.map(|_| ()), Err(PoolError::Fenced)), "file {file}, start {round}");
            let new = open_at(&pool, file, TicketMode::ReadWrite, 3).await;
            // In the later rounds both have a replica that was made under the fence.
            write(&new, 0, b"y").await.expect("the ticket is new");
        }
    }
}

pub async fn a_fence_is_never_lowered(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    for epoch in [5, 3, 5] {
        pool.fence(&[(FileId(7), Epoch(epoch))], ANSWER_TIME).await.sole().expect("it can be fenced");
    }
    let opened = pool.open(&ticket(pool.id(), 7, TicketMode::Read, 4)).await;
    assert!(matches!(opened.map(|_| ()), Err(PoolError::Fenced)));
    pool.remove(&[FileId(7)], ANSWER_TIME).await.sole().expect("it can be removed");
    pool.fence(&[(FileId(7), Epoch(6))], ANSWER_TIME).await.sole().expect("there is nothing to fence");
}

pub async fn a_ticket_of_another_pool_is_refused(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let other = PoolId(pool.id().0 + 1);
    let opened = pool.open(&ticket(other, 7, TicketMode::ReadWrite, 0)).await;
    assert!(matches!(opened.map(|_| ()), Err(PoolError::NoReplica(_))));
}

pub async fn replicas_are_listed_by_id_and_in_pages(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let files = [1, 63, 64, 65, 4096, 1 << 40];
    for file in files.iter().rev() {
        write(&writer(&pool, *file).await, 0, &[7; 100]).await.expect("there is space");
    }
    let mut listed = Vec::new();
    let mut after = FileId(0);
    loop {
        let page = pool.replicas(after, 4).await.expect("it can be listed");
        assert!(page.len() <= 4);
        let Some(last) = page.last() else { break };
        after = last.file;
        listed.extend(page.iter().map(|facts| (facts.file.0, facts.size)));
    }
    assert_eq!(listed, files.map(|file| (file, 100)));
    write(&writer(&pool, 64).await, 100, &[7; 100]).await.expect("there is space");
    pool.remove(&[FileId(65)], ANSWER_TIME).await.sole().expect("it can be removed");
    let page = pool.replicas(FileId(63), 2).await.expect("it can be listed");
    let page: Vec<_> = page.iter().map(|facts| (facts.file.0, facts.size)).collect();
    assert_eq!(page, [(64, 200), (4096, 100)]);
}

pub async fn status_counts_what_was_done(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let before = pool.status();
    assert_eq!((before.id, before.offline), (pool.id(), None));
    assert!(before.total_bytes >= before.free_bytes && before.total_files >= before.free_files);
    let replica = writer(&pool, 7).await;
    write(&replica, 0, b"12345").await.expect("there is space");
    read(&replica, 1, 3).await;
    replica.sync().await.expect("the disk is well");
    let after = pool.status();
    assert_eq!((after.replicas, after.writes, after.written_bytes), (1, 1, 5));
    assert_eq!((after.reads, after.read_bytes, after.syncs), (1, 3, 1));
}

/// All are in flight together, syncs between them.
pub async fn writers_of_disjoint_ranges_do_not_disturb_each_other(subject: impl PoolUnderTest) {
    const PIECE: usize = 8 << 10;
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    let mut writes = Vec::new();
    let mut syncs = Vec::new();
    for piece in (0..64_u8).rev() {
        let stability = if piece % 16 == 0 { Stability::FileSync } else { Stability::Unstable };
        let data = Bytes::from(vec![piece; PIECE]);
        writes.push(replica.write_at(u64::from(piece) * PIECE as u64, data, stability));
        syncs.push(replica.sync());
    }
    for write in writes {
        write.await.expect("there is space");
    }
    for sync in syncs {
        sync.await.expect("the disk is well");
    }
    for piece in 0..64_u8 {
        let (data, end) = read(&replica, u64::from(piece) * PIECE as u64, PIECE as u32).await;
        assert!(data == vec![piece; PIECE], "piece {piece}");
        assert_eq!(end, piece == 63);
    }
}
