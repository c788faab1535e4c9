//! A service without a connection, over a pool in memory.

use std::time::Duration;

use api::{ANSWER_TIME, Birth, Presence, TicketMode};
use testkit::faulty::{Call, Fault, Faulty, Gate};
use testkit::memory_pool::MemoryPool;
use types::PoolId;

use super::*;
use crate::wire::On;

const POOL: PoolId = PoolId(3);
const FILE: FileId = FileId(7);

struct Scene {
    pool: Arc<Faulty<MemoryPool>>,
    service: Arc<PoolService>,
}

fn ticket(file: FileId) -> Ticket {
    let (birth, pool, mode) = (Birth(5), POOL, TicketMode::ReadWrite);
    let (epoch, presence, io) = (Epoch(1), Presence::Unmade, types::IoMode::Auto);
    Ticket(api::Ticket { file, birth, pool, mode, epoch, presence, io })
}

impl Scene {
    fn new(open_max: usize) -> Scene {
        let pool = Arc::new(Faulty::new(MemoryPool::new(POOL)));
        let service = Arc::new(PoolService::with_open_max(pool.clone(), open_max));
        Scene { pool, service }
    }

    async fn ask<A: Xdr>(&self, procedure: u32, arguments: &A) -> Result<Decoder, Refused> {
        let answer = self.service.answer(procedure, Decoder::new(xdr::to_bytes(arguments))).await;
        answer.map(|results| Decoder::new(results.into_bytes()))
    }

    async fn write(&self, file: FileId, data: &'static [u8]) -> Result<(), PoolError> {
        let stability = wire::Stability(api::Stability::Unstable);
        let what = wire::Write { offset: 0, stability, data: xdr::Opaque::from_static(data) };
        let arguments = On { ticket: ticket(file), what };
        let mut answer = self.ask(procedure::WRITE, &arguments).await.unwrap();
        Reply::<wire::Stability>::decode(&mut answer).unwrap().into_result(POOL).map(drop)
    }

    async fn read(&self, file: FileId) -> Result<Vec<u8>, PoolError> {
        let arguments = On { ticket: ticket(file), what: wire::Read { offset: 0, length: 100 } };
        let mut answer = self.ask(procedure::READ, &arguments).await.unwrap();
        let bytes = Reply::<wire::Bytes>::decode(&mut answer).unwrap().into_result(POOL)?;
        Ok(bytes.data.to_vec())
    }

    fn opened(&self) -> u64 {
        self.pool.schedule().count(Call::Open)
    }
}

#[tokio::test]
async fn io_begins_in_its_order_while_the_replica_is_opened() {
    let (scene, gate) = (Scene::new(9), Gate::shut());
    scene.pool.schedule().on(Call::Open, 0..1, Fault::Delay(gate.clone()));
    let (first, second, third, read, ()) = tokio::join!(
        scene.write(FILE, b"first"),
        scene.write(FILE, b"second"),
        scene.write(FILE, b"third!"),
        scene.read(FILE),
        async { gate.let_all_pass() },
    );
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    assert_eq!((read.unwrap(), scene.opened()), (b"third!".to_vec(), 1));
    assert_eq!(scene.read(FILE).await.unwrap(), b"third!");
}

#[tokio::test]
async fn a_replica_that_cannot_be_opened_fails_all_that_wait_for_it() {
    let (scene, gate) = (Scene::new(9), Gate::shut());
    scene.pool.schedule().on(Call::Open, 0..1, Fault::DelayAnswer(gate.clone()));
    scene.pool.fence(&[(FILE, Epoch(2))], ANSWER_TIME).await.sole().unwrap();
    let (first, second, ()) =
        tokio::join!(scene.write(FILE, b"x"), scene.read(FILE), async { gate.let_all_pass() });
    assert!(matches!((first, second), (Err(PoolError::Fenced), Err(PoolError::Fenced))));
    assert!(scene.write(FileId(8), b"x").await.is_ok());
}

#[tokio::test]
async fn a_call_that_is_gone_while_it_opens_a_replica_does_not_hold_up_others() {
    let (scene, gate) = (Scene::new(9), Gate::shut());
    scene.pool.schedule().on(Call::Open, 0..1, Fault::Delay(gate.clone()));
    {
        let first = scene.write(FILE, b"x");
        let second = scene.write(FILE, b"y");
        tokio::pin!(first, second);
        for _ in 0..3 {
            let both = tokio::time::timeout(Duration::ZERO, async { tokio::join!(&mut first, &mut second) });
            assert!(both.await.is_err());
        }
    }
    assert!(scene.write(FILE, b"z").await.is_ok());
    assert_eq!(scene.read(FILE).await.unwrap(), b"z");
}

#[tokio::test]
async fn an_open_replica_does_not_hide_a_fence() {
    let scene = Scene::new(9);
    scene.write(FILE, b"x").await.unwrap();
    let fence = Batch { files: vec![(FILE.0, 2u32)], within_ms: 9 };
    let mut answer = scene.ask(procedure::FENCE, &fence).await.unwrap();
    assert!(matches!(&*Replies::<()>::decode(&mut answer).unwrap().answers, [Reply::Ok(())]));
    assert!(matches!(scene.write(FILE, b"y").await, Err(PoolError::Fenced)));
    assert!(matches!(scene.read(FILE).await, Err(PoolError::Fenced)));
}

#[tokio::test(start_paused = true)]
async fn few_replicas_stay_open_and_not_for_long() {
    let scene = Scene::new(2);
    for file in 1..=5 {
        scene.write(FileId(file), b"x").await.unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert_eq!(scene.opened(), 5);
    scene.read(FileId(5)).await.unwrap();
    assert_eq!(scene.opened(), 5, "it is open");
    scene.read(FileId(1)).await.unwrap();
    assert_eq!(scene.opened(), 6, "it was closed for others");
    tokio::time::advance(Duration::from_secs(11)).await;
    scene.service.sweep();
    scene.read(FileId(1)).await.unwrap();
    assert_eq!(scene.opened(), 7, "it was not used");
}

#[tokio::test(start_paused = true)]
async fn a_removed_replica_is_closed_soon() {
    let scene = Scene::new(9);
    scene.write(FILE, b"x").await.unwrap();
    let removal = Batch { files: vec![FILE.0], within_ms: 9 };
    scene.ask(procedure::REMOVE, &removal).await.unwrap();
    assert_eq!(scene.read(FILE).await.unwrap(), b"x", "it is in use");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(matches!(scene.read(FILE).await, Err(PoolError::NoReplica(POOL))));
}

#[tokio::test]
async fn ranges_of_a_pool_that_has_none_are_unsupported() {
    let pool = Arc::new(MemoryPool::without_ranges(POOL));
    let service = PoolService::new(pool);
    let arguments = xdr::to_bytes(&On { ticket: ticket(FILE), what: 9u64 });
    let answer = service.answer(procedure::EXTEND, Decoder::new(arguments)).await.unwrap();
    let answer: Reply<()> = xdr::from_bytes(answer.into_bytes()).unwrap();
    assert!(matches!(answer.into_result(POOL), Err(PoolError::Unsupported(POOL))));
}

#[tokio::test]
async fn unknown_procedures_and_garbage_are_refused() {
    let scene = Scene::new(9);
    for number in [0, 9, 29, 30, 39, 40, u32::MAX] {
        assert!(matches!(scene.ask(number, &ticket(FILE)).await, Err(Refused::NoProcedure)), "{number}");
    }
    for number in procedure::OPEN..=procedure::DESCRIBE {
        assert!(matches!(scene.ask(number, &()).await, Err(Refused::Garbage)), "{number}");
    }
    let long = On { ticket: ticket(FILE), what: wire::Read { offset: 0, length: u32::MAX } };
    assert!(matches!(scene.ask(procedure::READ, &long).await, Err(Refused::Garbage)));
}

mod calls_of_any_bytes {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn are_answered_or_refused(
            number in procedure::OPEN..=39,
            words in prop::collection::vec(prop_oneof![4 => 0..4u32, 1 => any::<u32>()], 0..60),
        ) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let scene = Scene::new(2);
                for _ in 0..2 {
                    let _ = scene.service.answer(number, Decoder::new(bytes.clone().into())).await;
                }
            });
        }
    }
}
