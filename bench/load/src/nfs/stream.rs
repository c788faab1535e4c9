//! READ or WRITE through NFS: for each stream a connection with a session, slots that are all in use, and mostly a file.
//!
//! `target` opens the file and finds the way to its bytes: at the mounted server, or at the pool that a layout names.
//! `transfer` is the loop that is measured, a thread for each stream. `replies` cuts the stream of replies into heads and
//! data without joining them: the data of READ is thrown away out of the buffer it was received in.

mod contents;
mod replies;
mod session;
mod target;
mod transfer;

use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use clap::{Args, ValueEnum};
use nfs4::StableHow4;
use serde::Serialize;

use super::client::SLOT_BITS;
use super::{components, nonce};
use crate::blocks::Blocks;
use crate::report::{Summary, cpu_time, rounded};
use crate::throughput::{Measured, Throughput};
use target::{Caller, Target};
use transfer::{Transfer, Work};

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Address of the server that would be mounted.
    #[arg(long, default_value = "127.0.0.1:2049")]
    server: String,
    /// The file of the first stream, below a directory that is there; the others have PATH.1, PATH.2, ...
    #[arg(long)]
    path: String,
    #[arg(long, value_enum)]
    operation: Operation,
    /// Where READ and WRITE are sent.
    #[arg(long, value_enum, default_value_t = Through::Pool)]
    through: Through,
    /// Bytes of each file.
    #[arg(long, default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1..))]
    file_bytes: u64,
    /// Files, each with a connection and a session of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    streams: u32,
    /// Requests of each stream that are under way at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << SLOT_BITS))]
    slots: u32,
    /// All streams use the file of the first one. Each has its first block behind that of the stream before it.
    #[arg(long)]
    shared: bool,
    #[command(flatten)]
    blocks: Blocks,
    /// How durable WRITE is to be when it is answered.
    #[arg(long, value_enum, default_value_t = Stable::Unstable)]
    stable: Stable,
    /// Whether COMMIT ends each pass of unstable writes over the file. It belongs to the measured time.
    #[arg(long, value_enum, default_value_t = Commit::Yes)]
    commit: Commit,
    /// Empties the files before the first WRITE.
    #[arg(long)]
    truncate: bool,
    /// WRITE bytes that tell where they stand; READ compares them. Costs CPU.
    #[arg(long)]
    verify: bool,
    /// Minor version of NFSv4 at the mounted server; pools are told 1.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=2))]
    minor_version: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Read,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Through {
    /// The mounted server itself.
    Head,
    /// The data server of a flex-files layout.
    Pool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stable {
    Unstable,
    FileSync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Commit {
    Yes,
    No,
}

#[derive(Debug, Serialize)]
pub struct Report {
    operation: Operation,
    through: Through,
    /// Granted to each stream.
    slots: usize,
    #[serde(flatten)]
    throughput: Throughput,
    commits: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit_us: Option<Summary>,
    /// CPU of this process for 10^9 bytes.
    cpu_s_per_gb: f64,
}

pub fn run(arguments: &Arguments) -> Result<Report> {
    let mut targets = open_all(arguments)?;
    let slots = targets.iter().map(Target::slots).min().unwrap_or_default();
    if slots < arguments.slots as usize {
        eprintln!("the server grants {slots} slots and not {}", arguments.slots);
    }
    let (cpu, began) = (cpu_time(), Instant::now());
    let mut measured = Vec::new();
    thread::scope(|scope| {
        let streams: Vec<_> = targets
            .iter_mut()
            .enumerate()
            .map(|(number, target)| scope.spawn(move || stream(arguments, number, target, began)))
            .collect();
        for stream in streams {
            measured.push(stream.join().map_err(|_| anyhow!("a stream has panicked"))??);
        }
        anyhow::Ok(())
    })?;
    let cpu = cpu_time() - cpu;
    targets.into_iter().try_for_each(Target::close)?;
    let (throughput, commits) = Throughput::of(&arguments.blocks, measured, cpu);
    Ok(Report {
        operation: arguments.operation,
        through: arguments.through,
        slots,
        cpu_s_per_gb: rounded(cpu.as_secs_f64() * 1e9 / throughput.bytes.max(1) as f64),
        throughput,
        commits: commits.len(),
        commit_us: (commits.len() > 0).then(|| commits.summary()),
    })
}

fn open_all(arguments: &Arguments) -> Result<Vec<Target>> {
    let mut directory = components(&arguments.path);
    let Some(name) = directory.pop() else { bail!("--path {} names no file", arguments.path) };
    let first = nonce()?;
    let mut targets = Vec::new();
    for number in 0..arguments.streams {
        let is_first = number == 0 || arguments.shared;
        let name = if is_first { name.clone() } else { format!("{name}.{number}") };
        let caller = Caller { nonce: first.wrapping_add(u64::from(number)), slots: arguments.slots };
        targets.push(Target::open(arguments, &caller, &directory, &name)?);
    }
    Ok(targets)
}

fn stream(arguments: &Arguments, number: usize, target: &mut Target, began: Instant) -> Result<Measured> {
    let before = if arguments.shared { number as u64 * u64::from(arguments.blocks.block()) } else { 0 };
    let positions = arguments.blocks.after(before).positions(arguments.file_bytes, number as u64)?;
    let stable = match arguments.stable {
        Stable::Unstable => StableHow4::Unstable,
        Stable::FileSync => StableHow4::FileSync,
    };
    let work = Work {
        limit: arguments.blocks.limit(&positions)?,
        positions,
        operation: arguments.operation,
        stable,
        commits: stable == StableHow4::Unstable && arguments.commit == Commit::Yes,
        verifies: arguments.verify,
        block: arguments.blocks.block(),
    };
    Transfer::new(target, work).run(began)
}

#[cfg(test)]
mod tests;
