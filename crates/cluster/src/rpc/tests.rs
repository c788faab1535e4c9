//! Two connections over a pipe, and one whose other side is bytes of the test.

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use xdr::Opaque;

use super::*;

const ECHO: u32 = 1;
/// Answered when the test lets it.
const SLOW: u32 = 2;
const LONG: Duration = Duration::from_secs(3600);

struct Tester {
    /// Arguments of SLOW in the order in which the calls began.
    begun: Mutex<Vec<u32>>,
    answered: AtomicUsize,
    gate: Semaphore,
}

impl Tester {
    fn new() -> Arc<Tester> {
        let (begun, answered) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Tester { begun, answered, gate: Semaphore::new(0) })
    }
}

#[async_trait]
impl Answerer for Tester {
    async fn answer(&self, procedure: u32, mut arguments: Decoder) -> Result<Encoder, Refused> {
        let mut results = Encoder::new();
        match procedure {
            ECHO => arguments
                .opaque(IO_BYTES_MAX)
                .map_err(|_| Refused::Garbage)
                .map(|data| results.opaque(&data))?,
            SLOW => {
                let number = arguments.u32().map_err(|_| Refused::Garbage)?;
                self.begun.lock().push(number);
                self.gate.acquire().await.expect("it is never closed").forget();
                results.put_u32(number);
            }
            _ => return Err(Refused::NoProcedure),
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        Ok(results)
    }
}

fn pair() -> (Arc<Connection>, Arc<Connection>, Arc<Tester>) {
    let (near, far) = duplex(64 << 10);
    let tester = Tester::new();
    (Connection::start(near, Tester::new()), Connection::start(far, tester.clone()), tester)
}

/// A connection, and the stream of its other side.
fn raw(pipe_bytes: usize) -> (Arc<Connection>, DuplexStream, Arc<Tester>) {
    let (near, far) = duplex(pipe_bytes);
    let tester = Tester::new();
    (Connection::start(near, tester.clone()), far, tester)
}

fn call_record(xid: u32, program: u32, procedure: u32, argument: u32) -> Vec<u8> {
    let (credential, verifier) = (Credential::None, OpaqueAuth::NONE);
    let header = CallHeader { xid, program, version: VERSION, procedure, credential, verifier };
    let mut encoder = Encoder::new();
    header.encode(&mut encoder);
    encoder.put_u32(argument);
    let mut record = oncrpc::record_header(encoder.len()).to_vec();
    record.extend_from_slice(&encoder.into_bytes());
    record
}

async fn reply(stream: &mut DuplexStream) -> (ReplyHeader, Decoder) {
    let length = stream.read_u32().await.unwrap() & !(1 << 31);
    let mut record = vec![0; length as usize];
    stream.read_exact(&mut record).await.unwrap();
    let mut decoder = Decoder::new(record.into());
    (ReplyHeader::decode(&mut decoder).unwrap(), decoder)
}

async fn echo(connection: &Connection, bytes: usize) -> Result<usize, CallError> {
    let data = Opaque::from(vec![7; bytes]);
    let answer: Opaque = connection.call(ECHO, &data, LONG).await?;
    assert_eq!(answer, data);
    Ok(answer.len())
}

#[tokio::test]
async fn both_sides_call() {
    let (near, far, _) = pair();
    for bytes in [0, 1, 511, 512, 70_000, IO_BYTES_MAX] {
        let (there, back) = tokio::join!(echo(&near, bytes), echo(&far, bytes));
        assert_eq!((there, back), (Ok(bytes), Ok(bytes)));
    }
}

#[tokio::test]
async fn an_answer_comes_when_it_is_ready() {
    let (near, _far, tester) = pair();
    let slow = near.call::<u32, u32>(SLOW, &5, LONG);
    let fast = async {
        echo(&near, 9).await.unwrap();
        tester.gate.add_permits(1);
    };
    let (slow, ()) = tokio::join!(slow, fast);
    assert_eq!(slow, Ok(5));
}

#[tokio::test]
async fn calls_begin_in_their_order() {
    let (near, _far, tester) = pair();
    for number in 0..1000u32 {
        let sent = near.begin(SLOW, vec![xdr::to_bytes(&number)], Box::new(|_| {}));
        assert!(sent.is_ok());
    }
    echo(&near, 1).await.unwrap();
    assert_eq!(*tester.begun.lock(), (0..1000).collect::<Vec<_>>());
}

#[test]
fn data_are_not_copied_into_a_message() {
    let data = Bytes::from(vec![1; 100_000]);
    let message = Message::of(|encoder| encoder.put_u32(9), vec![data.clone()]);
    assert!(message.into_segments().iter().any(|segment| segment.as_ptr() == data.as_ptr()));
}

#[tokio::test]
async fn a_refused_call_leaves_the_connection_as_it_is() {
    let (near, _far, _) = pair();
    assert_eq!(near.call::<u32, u32>(77, &5, LONG).await, Err(CallError::Refused));
    assert_eq!(near.call::<u32, u32>(ECHO, &5, LONG).await, Err(CallError::Refused), "garbage");
    assert_eq!(near.call::<Opaque, [u8; 8]>(ECHO, &Opaque::new(), LONG).await, Err(CallError::Refused));
    assert_eq!(echo(&near, 3).await, Ok(3));
}

#[tokio::test]
async fn calls_under_way_have_a_bound_on_both_sides() {
    let (near, _far, tester) = pair();
    let begin = |number: u32| near.begin(SLOW, vec![xdr::to_bytes(&number)], Box::new(|_| {}));
    for number in 0..CALLS_MAX as u32 {
        assert!(begin(number).is_ok());
    }
    assert!(matches!(begin(0), Err((CallError::Busy, _))));
    assert_eq!(near.call::<u32, u32>(SLOW, &1, LONG).await, Err(CallError::Busy));
    tester.gate.add_permits(CALLS_MAX);
    while !near.waiting.lock().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(echo(&near, 3).await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_bound_are_not_read() {
    let (_near, mut far, tester) = raw(1 << 20);
    for xid in 0..2 * CALLS_MAX as u32 {
        far.write_all(&call_record(xid, PROGRAM, SLOW, xid)).await.unwrap();
    }
    sleep(Duration::from_secs(100)).await;
    assert_eq!(tester.begun.lock().len(), CALLS_MAX);
    tester.gate.add_permits(2 * CALLS_MAX);
    for _ in 0..2 * CALLS_MAX {
        assert!(reply(&mut far).await.0.is_success());
    }
}

#[tokio::test]
async fn calls_under_way_end_when_the_connection_breaks() {
    let (near, far, _) = pair();
    let (answer, ()) = tokio::join!(near.call::<u32, u32>(SLOW, &5, LONG), async {
        tokio::task::yield_now().await;
        far.close();
    });
    assert_eq!(answer, Err(CallError::Closed));
    near.closed().await;
    assert!(near.is_closed());
    assert_eq!(echo(&near, 1).await, Err(CallError::Closed));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_too_late_is_dropped() {
    let (near, _far, tester) = pair();
    assert_eq!(near.call::<u32, u32>(SLOW, &5, Duration::from_secs(1)).await, Err(CallError::TimedOut));
    assert!(near.waiting.lock().is_empty(), "its place is free");
    tester.gate.add_permits(1);
    assert_eq!(echo(&near, 3).await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn a_closed_connection_has_ended_when_its_calls_are_answered() {
    let (near, far, tester) = pair();
    let _ = near.begin(SLOW, vec![xdr::to_bytes(&1u32)], Box::new(|_| {}));
    echo(&near, 1).await.unwrap();
    far.close();
    assert!(tokio::time::timeout(Duration::from_secs(9), far.ended()).await.is_err());
    tester.gate.add_permits(1);
    far.ended().await;
    assert_eq!(tester.answered.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_stops_within_a_record_is_cut() {
    for part in [1, 4, 20] {
        let (near, mut far, _) = raw(1 << 10);
        far.write_all(&call_record(1, PROGRAM, ECHO, 0)[..part]).await.unwrap();
        let begun = Instant::now();
        near.closed().await;
        assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < 2 * PATIENCE, "{:?}", begun.elapsed());
    }
    let (near, far, _) = raw(1 << 10);
    sleep(10 * PATIENCE).await;
    assert!(!near.is_closed(), "between records nothing need come");
    drop(far);
    near.closed().await;
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_cut() {
    let (near, _far, _) = raw(1 << 10);
    let begun = Instant::now();
    assert_eq!(echo(&near, 10_000).await, Err(CallError::Closed));
    assert!(begun.elapsed() >= PATIENCE && begun.elapsed() < 2 * PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_take_its_answers_is_not_read() {
    let (near, mut far, tester) = raw(8 << 20);
    let data = Opaque::from(vec![1; IO_BYTES_MAX]);
    let mut sent = 0;
    let mut record = call_record(1, PROGRAM, ECHO, IO_BYTES_MAX as u32);
    let length = oncrpc::record_header(record.len() - 4 + IO_BYTES_MAX);
    record[..4].copy_from_slice(&length);
    while !near.is_closed() {
        let sending = async {
            far.write_all(&record).await?;
            far.write_all(&data).await
        };
        sent += usize::from(matches!(tokio::time::timeout(LONG, sending).await, Ok(Ok(()))));
    }
    let answered = tester.answered.load(Ordering::Relaxed) * IO_BYTES_MAX;
    assert!(answered <= ANSWER_BYTES_MAX + 8 * IO_BYTES_MAX, "{answered} bytes of {sent} calls");
}

#[tokio::test]
async fn a_hostile_peer_is_refused_or_cut() {
    let closed = async |bytes: &[u8]| {
        let (near, mut far, _) = raw(1 << 20);
        far.write_all(bytes).await.unwrap();
        near.closed().await;
    };
    closed(b"\xff\xff\xff\xff").await;
    closed(b"\x7f\xff\xff\xff").await;
    closed(&[0; 4 * 100]).await;
    closed(b"\x80\0\0\x08\0\0\0\x01\0\0\0\x09").await;
    closed(b"\x80\0\0\x04\0\0\0\x01").await;
    closed(b"GET / HTTP/1.1\r\n\r\n").await;
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_passed_over() {
    let (near, mut far, _) = raw(1 << 20);
    for xid in 0..100u32 {
        let message = Message::of(|encoder| ReplyHeader::success(xid).encode(encoder), Vec::new());
        for segment in message.into_segments() {
            far.write_all(&segment).await.unwrap();
        }
    }
    far.write_all(&call_record(7, PROGRAM + 1, ECHO, 0)).await.unwrap();
    assert_eq!(reply(&mut far).await.0, ReplyHeader::prog_unavail(7));
    far.write_all(&call_record(8, PROGRAM, 99, 0)).await.unwrap();
    assert_eq!(reply(&mut far).await.0, ReplyHeader::proc_unavail(8));
    assert!(!near.is_closed());
}

mod bytes_of_any_kind {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn never_make_a_connection_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), is_framed in any::<bool>()) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (near, mut far, tester) = raw(1 << 20);
                tester.gate.add_permits(100);
                if is_framed {
                    far.write_all(&oncrpc::record_header(bytes.len())).await.unwrap();
                }
                far.write_all(&bytes).await.unwrap();
                drop(far);
                near.ended().await;
            });
        }
    }
}
