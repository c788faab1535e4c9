//! The length of a file stands at the pool and in the namespace: after concurrent changes both agree.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use api::Pool;
use forebay_door_nfs::{Export, Squash};
use nfs4::attr::number;
use nfs4::{NfsFh4, NfsStat4, OPEN4_SHARE_ACCESS_BOTH, StableHow4, StateId4};
use testkit::dice::Dice;
use testkit::faulty::{Call, Fault, Faulty, Gate};
use testkit::memory_pool::MemoryPool;
use testkit::nfs_client::{ClientError, NfsClient, OpenFile};
use types::FileId;

use crate::ground::{Ground, POOL, client};

const FILES: [&str; 2] = ["one", "other"];
const CLIENTS: u64 = 3;
const ROUNDS: usize = 300;
/// Few, for what comes next may put right what went wrong.
const STEPS: usize = 2;
const LENGTH_MAX: u64 = 100;
/// Time that the pool takes to answer, so that other steps come between a step at the pool and what follows from it.
const ANSWER_TIME: Duration = Duration::from_millis(1);

const COPY_TIME_MAX: Duration = Duration::from_secs(30);

/// A client that changes both files.
struct Worker {
    client: NfsClient,
    files: [OpenFile; 2],
    dice: Dice,
    /// Copies whose source was cut while it was read, so that they go on behind their answer.
    copies: Vec<(NfsFh4, StateId4)>,
}

impl Worker {
    fn new(door: SocketAddr, seed: u64) -> Worker {
        let mut client = client(door, &format!("host-{seed}"));
        let root = client.root().unwrap();
        let files = FILES.map(|name| client.open(&root, name, OPEN4_SHARE_ACCESS_BOTH).unwrap());
        Worker { client, files, dice: Dice::seeded(seed), copies: Vec::new() }
    }

    fn step(&mut self) {
        let Worker { client, files, dice, copies } = self;
        let (at, length) = (dice.below(LENGTH_MAX), dice.below(LENGTH_MAX) + 1);
        let (from, to) = dice.of(&[(0, 1), (1, 0)]);
        let (from, to) = (&files[from], &files[to]);
        let done = match dice.below(4) {
            0 => client.set_size(&to.handle, to.stateid, dice.of(&[0, at])),
            1 => client.layout_commit(&to.handle, to.stateid, None).map(drop),
            2 => {
                let stable = dice.of(&[StableHow4::Unstable, StableHow4::FileSync]);
                let bytes = vec![7; length as usize];
                client.write(&to.handle, to.stateid, at, stable, &bytes).map(drop)
            }
            _ => client.copy((from, 0), (to, at), 0).map(|copied| {
                copies.extend(copied.response.callback_id.map(|stateid| (to.handle.clone(), stateid)));
            }),
        };
        match done {
            // A busy server may ask for patience (RFC 8881 §15.1.1.3). The client goes on with another step.
            Err(ClientError::Status { status: NfsStat4::Delay, .. }) => {}
            done => done.unwrap(),
        }
    }

    fn await_copies(&mut self) {
        let deadline = Instant::now() + COPY_TIME_MAX;
        for (target, stateid) in self.copies.drain(..) {
            // The stateid is good until the callback was answered, with which the copy is over.
            while self.client.offload_status(&target, stateid).is_ok_and(|told| told.complete.is_none()) {
                assert!(Instant::now() < deadline, "the copy never ends");
            }
        }
    }
}

/// Lets answers of the pool pass some time after the pool has given them.
struct Answers {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answers {
    fn of(pool: &Faulty<MemoryPool>) -> Answers {
        let (gate, is_over) = (Gate::shut(), Arc::new(AtomicBool::new(false)));
        for call in [Call::Truncate, Call::Facts] {
            pool.schedule().on(call, .., Fault::DelayAnswer(gate.clone()));
        }
        let over = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let given = gate.waiting();
                thread::sleep(ANSWER_TIME);
                gate.let_pass(given);
            }
        });
        Answers { is_over, thread: Some(thread) }
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn sizes_agree_with_replicas_after_writes_copies_and_truncations_at_the_same_time() {
    let pool = Arc::new(Faulty::new(MemoryPool::without_ranges(POOL)));
    let ground = Ground::new();
    let (door, _) = ground.door_over(pool.clone(), vec![Export::of_everything(Squash::None)]);
    let _answers = Answers::of(&pool);
    let mut keeper = client(door, "keeper");
    let root = keeper.root().unwrap();
    let files = FILES.map(|name| keeper.create(&root, name).unwrap());
    let mut workers: Vec<_> = (1..=CLIENTS).map(|seed| Worker::new(door, seed)).collect();
    for round in 0..ROUNDS {
        std::thread::scope(|scope| {
            for worker in &mut workers {
                scope.spawn(|| {
                    (0..STEPS).for_each(|_| worker.step());
                    worker.await_copies();
                });
            }
        });
        for file in &files {
            let told = keeper.attributes(&file.handle, &[number::SIZE, number::FILEID]).unwrap();
            let facts = ground
                .runtime
                .block_on(pool.pool().facts(&[FileId(told.fileid.unwrap())], api::ANSWER_TIME))
                .sole()
                .unwrap();
            assert_eq!(told.size.unwrap(), facts.map_or(0, |facts| facts.size), "round {round}");
        }
    }
}
