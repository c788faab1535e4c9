//! Ranges of replicas: reserved, freed, found, copied. A pool whose replicas have none passes these.

use std::sync::Arc;

use api::{
    ANSWER_TIME, Advice, Pool, PoolError, RangeKind, ReplicaRanges, Source, Stability, Stretch, Ticket,
    TicketMode,
};
use bytes::Bytes;
use types::{ByteRange, Epoch, FileId, PoolId};

use super::{PoolUnderTest, open_at, read, reader, ticket, write, writer};

/// Larger than any file system's blocks.
const BLOCK: u64 = 64 << 10;

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length).expect("it is not empty")
}

async fn space_used(pool: &Arc<dyn Pool>, file: u64) -> u64 {
    pool.facts(&[FileId(file)], ANSWER_TIME)
        .await
        .sole()
        .expect("facts are known")
        .expect("it was written")
        .space_used
}

pub async fn space_is_reserved_and_given_back(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    let Some(ranges) = replica.ranges() else { return };
    ranges.deallocate(range(0, BLOCK)).await.expect("there is nothing to free");
    assert_eq!(
        pool.facts(&[FileId(7)], ANSWER_TIME).await.sole().expect("facts are known"),
        None,
        "and nothing was made for it"
    );
    ranges.allocate(range(BLOCK, 2 * BLOCK)).await.expect("there is space");
    replica.sync().await.expect("the disk is well");
    assert!(space_used(&pool, 7).await >= 2 * BLOCK);
    assert_eq!(read(&replica, 3 * BLOCK - 1, 5).await, (vec![0], true));
    write(&replica, 0, &[7; 4 * BLOCK as usize]).await.expect("there is space");
    ranges.allocate(range(0, BLOCK)).await.expect("there is space");
    replica.sync().await.expect("the disk is well");
    let before = space_used(&pool, 7).await;
    ranges.deallocate(range(BLOCK, BLOCK)).await.expect("it can be freed");
    ranges.deallocate(range(10 * BLOCK, BLOCK)).await.expect("there is nothing");
    replica.sync().await.expect("the disk is well");
    assert!(space_used(&pool, 7).await <= before - BLOCK);
    let (data, end) = read(&replica, 0, 5 * BLOCK as u32).await;
    let block = |byte| [byte; BLOCK as usize];
    assert!(end && data == [block(7), block(0), block(7), block(7)].concat());
    for refused in [range(i64::MAX as u64, 1), range(1 << 63, 1), ByteRange::ALL] {
        assert!(matches!(ranges.allocate(refused).await, Err(PoolError::TooLarge)));
    }
    assert!(matches!(ranges.allocate(range(0, 1 << 60)).await, Err(PoolError::NoSpace(_))));
    ranges.deallocate(ByteRange::ALL).await.expect("it can be freed");
    assert!(read(&replica, 0, 5 * BLOCK as u32).await == (vec![0; 4 * BLOCK as usize], true));
}

pub async fn reserved_space_survives_a_restart(mut subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let replica = writer(&pool, 7).await;
    let Some(ranges) = replica.ranges() else { return };
    ranges.allocate(range(0, BLOCK)).await.expect("there is space");
    replica.sync().await.expect("the disk is well");
    drop((replica, pool));
    subject.restart();
    let pool = subject.pool();
    assert_eq!(pool.status().replicas, 1);
    assert!(space_used(&pool, 7).await >= BLOCK);
    assert_eq!(pool.replicas(FileId(0), 10).await.expect("it can be listed")[0].size, BLOCK);
}

pub async fn data_and_holes_are_found(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let writer = writer(&pool, 7).await;
    for replica in [Arc::clone(&writer), reader(&pool, 7).await] {
        let Some(ranges) = replica.ranges() else { return };
        assert_eq!(ranges.seek(5, RangeKind::Data).await.expect("it can be asked"), None);
        assert_eq!(ranges.seek(5, RangeKind::Hole).await.expect("it can be asked"), Some(5));
    }
    write(&writer, 2 * BLOCK, &[7; BLOCK as usize]).await.expect("there is space");
    pool.truncate(&[(FileId(7), 4 * BLOCK)], ANSWER_TIME).await.sole().expect("there is space");
    let reader = reader(&pool, 7).await;
    let ranges = reader.ranges().expect("the other had some");
    let find = async |offset, content| ranges.seek(offset, content).await.expect("it can be asked");
    assert_eq!(find(0, RangeKind::Data).await, Some(2 * BLOCK));
    assert_eq!(find(0, RangeKind::Hole).await, Some(0));
    assert_eq!(find(2 * BLOCK + 1, RangeKind::Data).await, Some(2 * BLOCK + 1));
    assert_eq!(find(2 * BLOCK + 1, RangeKind::Hole).await, Some(3 * BLOCK));
    assert_eq!(find(3 * BLOCK, RangeKind::Data).await, None);
    assert_eq!(find(u64::MAX, RangeKind::Hole).await, Some(u64::MAX));
    assert_eq!(find(u64::MAX, RangeKind::Data).await, None);
}

async fn copy_all(target: &dyn ReplicaRanges, source: Source, mut stretch: Stretch) -> Result<(), PoolError> {
    while stretch.length > 0 {
        let copied = target.copy_from(source, stretch).await?;
        assert!(copied > 0 && copied <= stretch.length);
        stretch = stretch.behind(copied);
    }
    Ok(())
}

pub async fn bytes_are_copied_from_another_replica_and_from_another_place(mut subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let (source, target) = (writer(&pool, 7).await, writer(&pool, 8).await);
    let Some(ranges) = target.ranges() else { return };
    let [from_source, from_target] = [7, 8].map(|file| Source::Local(pool.id(), FileId(file)));
    let large: Vec<u8> = (0..20 * BLOCK).map(|at| (at % 251) as u8).collect();
    write(&source, 0, &large).await.expect("there is space");
    write(&target, 0, &[9; 10]).await.expect("there is space");
    let stretch = |from, to, length| Stretch { from, to, length };
    copy_all(ranges, from_source, stretch(5, 3, 20 * BLOCK - 5)).await.expect("there is space");
    let mut expected = [&[9; 3], &large[5..]].concat();
    copy_all(ranges, from_target, stretch(0, BLOCK, BLOCK)).await.expect("there is space");
    expected.copy_within(0..BLOCK as usize, BLOCK as usize);
    // Behind the end of the source there are zeros.
    copy_all(ranges, from_source, stretch(20 * BLOCK - 1, 0, 3)).await.expect("there is space");
    expected[0] = large[20 * BLOCK as usize - 1];
    expected[1..3].fill(0);
    let too_far = copy_all(ranges, from_source, stretch(0, i64::MAX as u64, 5)).await;
    assert!(matches!(too_far, Err(PoolError::TooLarge)));
    target.sync().await.expect("the disk is well");
    drop((source, target, pool));
    subject.restart();
    let (data, end) = read(&reader(&subject.pool(), 8).await, 0, 30 * BLOCK as u32).await;
    assert!(end && data == expected, "what was copied differs");
}

pub async fn a_source_is_copied_by_its_ticket_and_refused_where_the_pool_does_not_reach_it(
    subject: impl PoolUnderTest,
) {
    let pool = subject.pool();
    let (source, target) = (writer(&pool, 7).await, writer(&pool, 8).await);
    let Some(ranges) = target.ranges() else { return };
    write(&source, 0, b"data").await.expect("there is space");
    let stretch = Stretch { from: 0, to: 0, length: 4 };
    let ticket = ticket(pool.id(), 7, TicketMode::Read, 0);
    copy_all(ranges, Source::Ticket(ticket), stretch).await.expect("there is space");
    assert_eq!(read(&target, 0, 9).await, (b"data".to_vec(), true));
    let refused = async |source| ranges.copy_from(source, stretch).await.expect_err("it is refused");
    let other = PoolId(pool.id().0 + 1);
    for elsewhere in [Source::Local(other, FileId(7)), Source::Ticket(Ticket { pool: other, ..ticket })] {
        assert!(matches!(refused(elsewhere).await, PoolError::Unsupported(_)));
        assert!(matches!(ranges.share_from(elsewhere, stretch).await, Err(PoolError::Unsupported(_))));
    }
    for gone in [Source::Local(pool.id(), FileId(9)), Source::Ticket(Ticket { file: FileId(9), ..ticket })] {
        assert!(matches!(refused(gone).await, PoolError::NoReplica(_)));
    }
    pool.fence(&[(FileId(7), Epoch(1))], ANSWER_TIME).await.sole().expect("it can be fenced");
    assert!(matches!(refused(Source::Ticket(ticket)).await, PoolError::Fenced));
    let new = Ticket { epoch: Epoch(1), ..ticket };
    copy_all(ranges, Source::Ticket(new), stretch).await.expect("the ticket is new");
}

pub async fn a_clone_is_the_same_bytes_where_blocks_can_be_shared(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let (source, target) = (writer(&pool, 7).await, writer(&pool, 8).await);
    let Some(ranges) = target.ranges() else { return };
    write(&source, 0, &[7; 2 * BLOCK as usize]).await.expect("there is space");
    let from = Source::Local(pool.id(), FileId(7));
    let stretch = Stretch { from: BLOCK, to: BLOCK, length: BLOCK };
    let cloned = ranges.share_from(from, stretch).await;
    let Some(granularity) = pool.clone_granularity() else {
        assert!(matches!(cloned, Err(PoolError::Unsupported(_))), "{cloned:?}");
        return;
    };
    assert!(cloned.expect("blocks can be shared") && u64::from(granularity) <= BLOCK);
    let odd = Stretch { from: 1, ..stretch };
    assert!(!ranges.share_from(from, odd).await.expect("it can be asked"));
    write(&source, BLOCK, b"changed").await.expect("there is space");
    let (data, end) = read(&target, 0, 3 * BLOCK as u32).await;
    assert!(end && data == [[0; BLOCK as usize], [7; BLOCK as usize]].concat());
}

pub async fn ranges_are_changed_by_write_tickets_of_this_epoch_only(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let (old, reading) = (writer(&pool, 7).await, reader(&pool, 7).await);
    old.write_at(0, Bytes::from("data"), Stability::FileSync).await.expect("there is space");
    let (Some(by_reader), Some(by_old)) = (reading.ranges(), old.ranges()) else { return };
    let refused = |result: Result<(), PoolError>| assert!(matches!(result, Err(PoolError::ReadOnlyTicket)));
    refused(by_reader.allocate(range(0, 9)).await);
    refused(by_reader.deallocate(range(0, 9)).await);
    let stretch = Stretch { from: 0, to: 4, length: 4 };
    let source = Source::Local(pool.id(), FileId(7));
    refused(by_reader.copy_from(source, stretch).await.map(drop));
    refused(by_reader.share_from(source, stretch).await.map(drop));
    pool.fence(&[(FileId(7), Epoch(1))], ANSWER_TIME).await.sole().expect("it can be fenced");
    let fenced = |result: Result<(), PoolError>| assert!(matches!(result, Err(PoolError::Fenced)));
    fenced(by_old.allocate(range(0, 9)).await);
    fenced(by_old.deallocate(range(0, 9)).await);
    fenced(by_old.seek(0, RangeKind::Data).await.map(drop));
    fenced(by_old.advise(range(0, 9), Advice::WillNeed).await);
    fenced(by_old.copy_from(source, stretch).await.map(drop));
    fenced(by_old.share_from(source, stretch).await.map(drop));
    let new = open_at(&pool, 7, TicketMode::Read, 1).await;
    assert_eq!(read(&new, 0, 10).await, (b"data".to_vec(), true));
}

pub async fn advice_is_taken_of_any_replica(subject: impl PoolUnderTest) {
    let pool = subject.pool();
    let writer = writer(&pool, 7).await;
    let Some(ranges) = writer.ranges() else { return };
    ranges.advise(ByteRange::ALL, Advice::WillNeed).await.expect("there is nothing");
    write(&writer, 0, b"data").await.expect("there is space");
    for advice in [Advice::WillNeed, Advice::DontNeed] {
        for bytes in [ByteRange::ALL, range(2, 1), range(1 << 40, 5)] {
            ranges.advise(bytes, advice).await.expect("it can be taken");
        }
    }
    assert_eq!(read(&writer, 0, 9).await, (b"data".to_vec(), true));
}
