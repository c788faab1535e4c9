//! Parts of replicas as bodies: within the kernel and by reading, whole and torn.

use std::sync::Arc;
use std::time::Duration;

use api::{OpenReplica, PoolError};
use forebay_http_server::{Limits, Piece, Response, ResponseBody, Service};
use http::StatusCode;
use testkit::faulty::{Call, Fault, FaultyReplica, Schedule};
use testkit::fixed_replica::FixedReplica;
use types::{ByteRange, PoolId};

use super::support::{Server, pattern, service};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn serving(replica: Arc<dyn OpenReplica>, ranges: Vec<(u64, u64)>) -> Arc<dyn Service> {
    service(move |_| {
        let length = ranges.iter().map(|(_, length)| length).sum();
        let (replica, ranges) = (Arc::clone(&replica), ranges.clone());
        let pieces = ranges.into_iter().map(move |(offset, length)| Piece::Replica {
            replica: replica.clone(),
            offset,
            length,
        });
        async move {
            Response::new(StatusCode::OK).with_body(ResponseBody::Pieces { length, pieces: Box::new(pieces) })
        }
    })
}

fn expected(data: &[u8], ranges: &[(u64, u64)]) -> Vec<u8> {
    let range = |(offset, length): &(u64, u64)| data[*offset as usize..(offset + length) as usize].to_vec();
    ranges.iter().flat_map(range).collect()
}

/// Of 4 MiB: large and small, in any order, up to the end.
fn ranges() -> Vec<(u64, u64)> {
    let mut ranges = vec![
        (0, 3 << 20),
        (5, 100),
        (1, 64 << 10),
        (1 << 20, 70_000),
        (0, 1),
        ((4 << 20) - 300_000, 300_000),
    ];
    ranges.extend((0..2000).map(|n| (n * 1001, 99)));
    ranges.extend([((4 << 20) - 200, 200), (9, 200_000), (7, 7)]);
    ranges
}

/// By pipes, by `sendfile` where there are none, and through memory where there is no file.
#[tokio::test]
async fn all_ranges_arrive_whether_sent_or_read() {
    let data = pattern(4 << 20);
    let expected = expected(&data, &ranges());
    for pipes_max in [0, 1] {
        for replica in [FixedReplica::of(data.clone()), FixedReplica::in_file(&data)] {
            let replica = Arc::new(replica);
            let limits = Limits { pipes_max, ..Limits::default() };
            let server = Server::with(serving(replica.clone(), ranges()), limits, None).await;
            let mut client = server.client().await;
            for _ in 0..2 {
                client.send(GET).await;
                client.head().await;
                assert!(client.exactly(expected.len()).await == expected);
            }
            assert_eq!(replica.sent_bytes() > 0, replica.local_range(ByteRange::ALL).is_some());
        }
    }
}

/// As the parts of a `multipart/byteranges`, with text in between: what memory has is copied together with it, around
/// what has to be read or is sent as a file.
#[tokio::test]
async fn short_parts_and_the_text_between_them_arrive_in_their_order() {
    let data = pattern(4 << 20);
    for replica in [FixedReplica::of(data.clone()), FixedReplica::in_file(&data)] {
        let replica = Arc::new(replica.mostly_resident());
        let parts = ranges();
        let text = |number: usize| vec![number as u8; if number % 500 == 7 { 5000 } else { number % 150 }];
        let mut expected = Vec::new();
        for (number, range) in parts.iter().enumerate() {
            expected.extend(text(number));
            expected.extend(self::expected(&data, &[*range]));
        }
        let (length, served) = (expected.len() as u64, Arc::clone(&replica));
        let server = Server::start(service(move |_| {
            let replica = Arc::clone(&served);
            let pieces = parts.clone().into_iter().enumerate().flat_map(move |(number, (offset, length))| {
                [
                    Piece::Bytes(text(number).into()),
                    Piece::Replica { replica: replica.clone(), offset, length },
                ]
            });
            async move {
                Response::new(StatusCode::OK)
                    .with_body(ResponseBody::Pieces { length, pieces: Box::new(pieces) })
            }
        }))
        .await;
        let mut client = server.client().await;
        client.send(GET).await;
        client.head().await;
        assert!(client.exactly(expected.len()).await == expected);
        assert!(replica.resident_reads() > 1000);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_megabytes_reach_a_slow_reader_unharmed() {
    let length = 100 << 20;
    let data = pattern(length);
    for pipes_max in [0, 1] {
        let replica = Arc::new(FixedReplica::in_file(&data));
        let limits = Limits { pipes_max, ..Limits::default() };
        let server = Server::with(serving(replica.clone(), vec![(0, length as u64)]), limits, None).await;
        let mut client = server.client().await;
        client.send(GET).await;
        client.head().await;
        let mut at = 0;
        for step in [1, 1 << 20, 3, 10 << 20].into_iter().cycle() {
            let step = step.min(length - at);
            assert!(client.exactly(step).await == data[at..at + step], "differs behind {at}");
            at += step;
            if at == length {
                break;
            }
            // The sender finds the socket full, and room in it again.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(replica.sent_bytes(), length as u64);
    }
}

/// Its pages are dropped, so that a thread sends it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_in_memory_arrives_as_well() {
    let length = 24 << 20;
    let data = pattern(length);
    let replica = Arc::new(FixedReplica::in_file(&data));
    for pipes_max in [0, 1] {
        let range = replica.local_range(ByteRange::ALL).unwrap();
        rustix::fs::fsync(range.file()).unwrap();
        rustix::fs::fadvise(range.file(), 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let limits = Limits { pipes_max, ..Limits::default() };
        let server = Server::with(serving(replica.clone(), vec![(0, length as u64)]), limits, None).await;
        let mut client = server.client().await;
        client.send(GET).await;
        client.head().await;
        assert!(client.exactly(length).await == data);
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_given_up() {
    let limits = Limits { write_time: Duration::from_millis(50), ..Limits::default() };
    let length = 64 << 20;
    for replica in [FixedReplica::of(pattern(length)), FixedReplica::in_file(&pattern(length))] {
        let replica = Arc::new(replica);
        let server = Server::with(serving(replica.clone(), vec![(0, length as u64)]), limits, None).await;
        let mut client = server.client().await;
        client.send(GET).await;
        client.head().await;
        // The server's side of the replica is held by the connection until it gives up.
        let given_up = async {
            while Arc::strong_count(&replica) > 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(super::support::PATIENCE, given_up).await.unwrap();
        assert!(client.is_reset().await);
    }
}

#[tokio::test]
async fn a_pool_that_is_busy_is_asked_again_and_one_that_fails_resets() {
    let data = pattern(1 << 20);
    let faulty = |schedule: &Schedule| {
        let replica = Arc::new(FixedReplica::of(data.clone()));
        Arc::new(FaultyReplica::new(replica, schedule))
    };
    let busy = Schedule::default();
    busy.on(Call::Read, 0..3, Fault::Fail(PoolError::Busy(PoolId(1))));
    let server = Server::start(serving(faulty(&busy), vec![(0, 1 << 20)])).await;
    let mut client = server.client().await;
    client.send(GET).await;
    client.head().await;
    assert!(client.exactly(1 << 20).await == data);
    assert!(busy.count(Call::Read) > 3);

    let failing = Schedule::default();
    failing.on(Call::Read, 2.., Fault::Fail(PoolError::Fenced));
    let server = Server::start(serving(faulty(&failing), vec![(0, 1 << 20)])).await;
    let mut client = server.client().await;
    client.send(GET).await;
    assert!(client.is_reset().await);
    assert!(failing.count(Call::Read) > 2);
}

#[tokio::test]
async fn a_replica_that_ends_early_breaks_the_response_off_and_no_zeros_are_sent() {
    let data = pattern(1 << 20);
    for ranges in [vec![(0, 2 << 20)], vec![(0, 1 << 20), (2 << 20, 100)], vec![(2 << 20, 200_000)]] {
        for replica in [FixedReplica::of(data.clone()), FixedReplica::in_file(&data)] {
            let server = Server::start(serving(Arc::new(replica), ranges.clone())).await;
            let mut client = server.client().await;
            client.send(GET).await;
            let received = client.until_reset().await;
            let head_end = received.windows(4).position(|four| four == b"\r\n\r\n");
            let body = head_end.map_or(&[][..], |at| &received[at + 4..]);
            assert!(data.starts_with(body), "{ranges:?}: {} bytes", body.len());
        }
    }
}
