//! The pool's I/O engine alone: streams of reads or writes of replicas in this process, without a server and a network.
//!
//! The pool is the one that a server opens: it has a write journal, a calibration and the replicas, and it keeps them for
//! the next run. The time and the CPU time contain the sync that ends a stream of writes, and not the opening and the
//! closing of the pool. Kernel threads write buffered data back, so the CPU time of the whole machine is reported too.
//!
//! `transfer` is the loop that is measured, a thread for each stream.

mod transfer;

use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use api::{ANSWER_TIME, Birth, OpenReplica, Pool, Presence, Stability, Ticket, TicketMode};
use clap::{Args, ValueEnum};
use pool::mode::Thresholds;
use pool::{Cancel, Config, GatherPolicy, IoPolicy, IoSizes, JournalPlace, LocalPool};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use types::{ChecksumKind, Epoch, FileId, IoMode, PoolId, Random};

use crate::blocks::Pattern;
use crate::report::{Summary, cpu_time, machine_cpu_time, rounded};
use crate::spread::{Operation, Spread, Stable};
use crate::throughput::{Measured, Throughput};
use transfer::{Transfer, Work};

const POOL: PoolId = PoolId(0);

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Directory of the pool; an empty or missing one becomes a pool.
    #[arg(long)]
    directory: PathBuf,
    /// How the engine chooses between buffered, uncached and direct I/O.
    #[arg(long, value_enum, default_value_t = Mode::Calibrated)]
    mode: Mode,
    /// The replica of the first stream. The next streams have the next numbers.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..1 << 62))]
    replica: u64,
    #[command(flatten)]
    spread: Spread,
    /// Requests of each stream that are under way at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    slots: u32,
    /// How durable a write is to be when it is answered. A sync ends each stream of unstable writes.
    #[arg(long, value_enum, default_value_t = Stable::Unstable)]
    stable: Stable,
    /// Empties the replicas before the first write.
    #[arg(long)]
    truncate: bool,
    /// Writes bytes that tell where they stand; reads compare them. Costs CPU.
    #[arg(long)]
    verify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By all facts. A pool that has no calibration is calibrated first, and keeps that.
    Calibrated,
    Buffered,
    Uncached,
    Direct,
    Paper,
    #[value(name = "beegfs")]
    BeeGfs,
}

#[derive(Debug, Serialize)]
pub struct Report {
    operation: Operation,
    mode: Mode,
    slots: u32,
    block: u32,
    pattern: Pattern,
    #[serde(flatten)]
    throughput: Throughput,
    /// Syncs, named as through NFS.
    commits: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit_us: Option<Summary>,
    /// CPU of this process, threads of the engine included, for 10^9 bytes.
    cpu_s_per_gb: f64,
    /// User and system time of everything that ran on the machine meanwhile, in ticks of mostly 10 ms.
    machine_cpu_s: f64,
    machine_cpu_s_per_gb: f64,
    /// Requests by kind, mode and reason, those with the most bytes first.
    decisions: Vec<Value>,
    /// The sizes in bytes from which requests leave the page cache. `None` unless the pool is calibrated.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<Value>,
}

pub fn run(arguments: &Arguments) -> Result<Report> {
    let runtime = runtime()?;
    std::fs::create_dir_all(&arguments.directory)
        .with_context(|| format!("make {}", arguments.directory.display()))?;
    let pool = LocalPool::open(config(arguments))?;
    let report = measure(arguments, &runtime, &pool);
    pool.close();
    report
}

fn measure(arguments: &Arguments, runtime: &Runtime, pool: &LocalPool) -> Result<Report> {
    if needs_calibration(arguments.mode, pool) {
        pool.calibrate(&Cancel::default())
            .map_err(|stopped| anyhow!("cannot calibrate the pool: {stopped}"))?;
    }
    let replicas = runtime.block_on(open_all(arguments, pool))?;
    let (machine, cpu, began) = (machine_cpu_time()?, cpu_time(), Instant::now());
    let measured = transfer_all(arguments, &replicas, began)?;
    let (cpu, machine) = (cpu_time() - cpu, machine_cpu_time()?.saturating_sub(machine));
    let (throughput, commits) = Throughput::of(measured, cpu);
    let per_gb = |seconds: f64| rounded(seconds * 1e9 / throughput.bytes.max(1) as f64);
    Ok(Report {
        operation: arguments.spread.operation,
        mode: arguments.mode,
        slots: arguments.slots,
        block: arguments.spread.blocks.block(),
        pattern: arguments.spread.blocks.pattern(),
        cpu_s_per_gb: per_gb(cpu.as_secs_f64()),
        machine_cpu_s: rounded(machine.as_secs_f64()),
        machine_cpu_s_per_gb: per_gb(machine.as_secs_f64()),
        decisions: decisions(pool),
        sizes: (arguments.mode == Mode::Calibrated).then(|| sizes(pool)),
        throughput,
        commits: commits.len(),
        commit_us: (commits.len() > 0).then(|| commits.summary()),
    })
}

fn transfer_all(
    arguments: &Arguments,
    replicas: &[Arc<dyn OpenReplica>],
    began: Instant,
) -> Result<Vec<Measured>> {
    thread::scope(|scope| {
        let stream = |(number, replica)| scope.spawn(move || stream(arguments, number, replica, began));
        let streams: Vec<_> = replicas.iter().enumerate().map(stream).collect();
        let joined =
            streams.into_iter().map(|stream| stream.join().map_err(|_| anyhow!("a stream panicked"))?);
        joined.collect()
    })
}

fn stream(
    arguments: &Arguments,
    number: usize,
    replica: &Arc<dyn OpenReplica>,
    began: Instant,
) -> Result<Measured> {
    let positions = arguments.spread.positions(number as u64)?;
    let work = Work {
        limit: arguments.spread.blocks.limit(&positions)?,
        operation: arguments.spread.operation,
        stable: arguments.stable.stability(),
        verifies: arguments.verify,
        slots: arguments.slots,
        positions,
    };
    runtime()?.block_on(Transfer::new(&**replica, work).run(began))
}

/// A handle for each stream.
async fn open_all(arguments: &Arguments, pool: &LocalPool) -> Result<Vec<Arc<dyn OpenReplica>>> {
    let Spread { operation, streams, shared, .. } = arguments.spread;
    let file = |number: u32| FileId(arguments.replica + if shared { 0 } else { u64::from(number) });
    if arguments.truncate && operation == Operation::Write {
        // A pool makes no replica of a file that it has removed.
        let files: Vec<_> = (0..if shared { 1 } else { streams }).map(|number| (file(number), 0)).collect();
        for answer in pool.truncate(&files, ANSWER_TIME).await {
            answer.context("empty a replica")?;
        }
    }
    let mut replicas = Vec::new();
    for number in 0..streams {
        let ticket = ticket(file(number), operation);
        replicas.push(pool.open(&ticket).await.with_context(|| format!("open replica {}", ticket.file))?);
    }
    Ok(replicas)
}

fn ticket(file: FileId, operation: Operation) -> Ticket {
    let (mode, presence) = match operation {
        Operation::Read => (TicketMode::Read, Presence::Written),
        Operation::Write => (TicketMode::ReadWrite, Presence::Unmade),
    };
    Ticket { file, birth: Birth::UNKNOWN, pool: POOL, mode, epoch: Epoch(0), presence, io: IoMode::Auto }
}

/// As a server has it by default.
fn config(arguments: &Arguments) -> Config {
    Config {
        id: POOL,
        dir: arguments.directory.clone(),
        instance: [0; 16],
        reserve_bytes: 64 << 20,
        reserve_files: 1024,
        open_files_max: 1024,
        queue_len_max: 4096,
        threads: 0,
        io: arguments.mode.policy(),
        journal: JournalPlace::Pool,
        gather: GatherPolicy::Auto,
        digests: vec![ChecksumKind::Adler32],
        contention: pool::ContentionThresholds::default(),
        random: Arc::new(SystemRandom),
    }
}

/// Thresholds that a pool measured differ from those without a measurement in more than the sizes.
fn needs_calibration(mode: Mode, pool: &LocalPool) -> bool {
    mode == Mode::Calibrated && pool.thresholds() == Thresholds::uncalibrated()
}

fn decisions(pool: &LocalPool) -> Vec<Value> {
    let mut counts = pool.io().decisions;
    counts.retain(|count| count.operations > 0);
    counts.sort_by_key(|count| std::cmp::Reverse(count.bytes));
    let row = |count: &pool::DecisionCount| {
        json!({"kind": count.kind.label(), "mode": count.mode, "reason": count.reason,
            "operations": count.operations, "bytes": count.bytes})
    };
    counts.iter().map(row).collect()
}

fn sizes(pool: &LocalPool) -> Value {
    let IoSizes { write, read_sequential, read_random } = pool.thresholds().into();
    json!({"write": write, "read_sequential": read_sequential, "read_random": read_random})
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("start tokio")
}

impl Mode {
    fn policy(self) -> IoPolicy {
        match self {
            Mode::Calibrated => IoPolicy::Auto,
            Mode::Buffered => IoPolicy::Buffered,
            Mode::Uncached => IoPolicy::Uncached,
            Mode::Direct => IoPolicy::Direct,
            Mode::Paper => IoPolicy::Paper,
            Mode::BeeGfs => IoPolicy::BeeGfs,
        }
    }
}

impl Stable {
    fn stability(self) -> Stability {
        match self {
            Stable::Unstable => Stability::Unstable,
            Stable::FileSync => Stability::FileSync,
        }
    }
}

/// `getrandom(2)`.
struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match getrandom(&mut *rest, GetRandomFlags::empty()) {
                Ok(count) => rest = &mut rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no randomness: {error}"),
            }
        }
    }
}

#[cfg(test)]
mod tests;
