//! READ or WRITE through NFS: for each stream a connection with a session, slots that are all in use, and mostly a file.
//!
//! `mount` holds the sessions of a stream. `target` opens a file and finds the way to its bytes: at the mounted server, or
//! at the pool that a layout names. `files` does the same for many files, one after the other.
//! `transfer` is the loop that is measured, a thread for each stream. `replies` cuts the stream of replies into heads and
//! data without joining them: the data of READ is thrown away out of the buffer it was received in.

pub mod files;
mod mount;
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
use crate::blocks::Pattern;
use crate::report::{Summary, cpu_time, rounded};
use crate::spread::{Operation, Spread, Stable};
use crate::throughput::{Measured, Throughput};
use mount::Mount;
use target::{Opening, Target};
use transfer::{Transfer, Work};

/// Arguments about the server and each request, of `stream` and of `files`.
#[derive(Args, Clone, Debug)]
pub struct Way {
    /// Address of the server that would be mounted.
    #[arg(long, default_value = "127.0.0.1:2049")]
    server: String,
    /// Where READ and WRITE are sent.
    #[arg(long, value_enum, default_value_t = Through::Pool)]
    through: Through,
    /// Minor version of NFSv4 at the mounted server; pools are told 1.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=2))]
    minor_version: u32,
    /// Requests of each stream that are under way at the same time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1 << SLOT_BITS))]
    slots: u32,
    /// How durable WRITE is to be when it is answered.
    #[arg(long, value_enum, default_value_t = Stable::Unstable)]
    stable: Stable,
    /// Whether COMMIT ends each pass of unstable writes over the file. It belongs to the measured time.
    #[arg(long, value_enum, default_value_t = Commit::Yes)]
    commit: Commit,
    /// WRITE bytes that tell where they stand; READ compares them. Costs CPU.
    #[arg(long)]
    verify: bool,
}

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    way: Way,
    /// The file of the first stream, below a directory that is there; the others have PATH.1, PATH.2, ...
    #[arg(long)]
    path: String,
    #[command(flatten)]
    spread: Spread,
    /// Empties the files before the first WRITE.
    #[arg(long)]
    truncate: bool,
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
    block: u32,
    pattern: Pattern,
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
    let slots = targets.iter_mut().map(Target::slots).min().unwrap_or_default();
    if slots < arguments.way.slots as usize {
        eprintln!("the server grants {slots} slots and not {}", arguments.way.slots);
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
    targets.into_iter().try_for_each(|target| target.close()?.close())?;
    let (throughput, commits) = Throughput::of(measured, cpu);
    Ok(Report {
        operation: arguments.spread.operation,
        through: arguments.way.through,
        slots,
        block: arguments.spread.blocks.block(),
        pattern: arguments.spread.blocks.pattern(),
        cpu_s_per_gb: rounded(cpu.as_secs_f64() * 1e9 / throughput.bytes.max(1) as f64),
        throughput,
        commits: commits.len(),
        commit_us: (commits.len() > 0).then(|| commits.summary()),
    })
}

fn open_all(arguments: &Arguments) -> Result<Vec<Target>> {
    let (directory, name) = directory_and_name(&arguments.path)?;
    let (operation, truncate, file_bytes) =
        (arguments.spread.operation, arguments.truncate, arguments.spread.file_bytes);
    let opening = Opening { operation, truncate, file_bytes };
    let first = nonce()?;
    let mut targets = Vec::new();
    for number in 0..arguments.spread.streams {
        let name = if arguments.spread.shared { name.clone() } else { name_of_stream(&name, number) };
        let mount = Mount::open(&arguments.way, first.wrapping_add(u64::from(number)), &directory)?;
        targets.push(Target::open(mount, &opening, &name)?);
    }
    Ok(targets)
}

fn name_of_stream(first: &str, number: u32) -> String {
    if number == 0 { first.to_owned() } else { format!("{first}.{number}") }
}

fn directory_and_name(path: &str) -> Result<(Vec<String>, String)> {
    let mut directory = components(path);
    let Some(name) = directory.pop() else { bail!("--path {path} names no file") };
    Ok((directory, name))
}

fn stream(arguments: &Arguments, number: usize, target: &mut Target, began: Instant) -> Result<Measured> {
    let positions = arguments.spread.positions(number as u64)?;
    let work = Work {
        limit: arguments.spread.blocks.limit(&positions)?,
        operation: arguments.spread.operation,
        stable: arguments.way.stable.how(),
        commits: arguments.way.commits(),
        verifies: arguments.way.verify,
        request_bytes_max: positions.request_bytes_max(),
        positions,
    };
    Transfer::new(target, work).run(began)
}

impl Stable {
    fn how(self) -> StableHow4 {
        match self {
            Stable::Unstable => StableHow4::Unstable,
            Stable::FileSync => StableHow4::FileSync,
        }
    }
}

impl Way {
    /// Whether COMMIT ends each pass.
    fn commits(&self) -> bool {
        self.stable == Stable::Unstable && self.commit == Commit::Yes
    }
}

#[cfg(test)]
mod tests;
