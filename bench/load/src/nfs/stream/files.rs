//! Many files through NFS: each stream writes, reads or removes one file after the other, in one directory for all.
//!
//! Opening, layout and closing of each file belong to the measured time.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::super::nonce;
use super::mount::Mount;
use super::target::{Opening, Target};
use super::transfer::{Transfer, Work};
use super::{Through, Way, directory_and_name, name_of_stream};
use crate::blocks::Blocks;
use crate::report::{Latencies, Summary, cpu_time, rounded};
use crate::spread::{Operation, STREAMS_MAX};
use crate::throughput::{Measured, Throughput};

#[derive(Args, Clone, Debug)]
pub struct Arguments {
    #[command(flatten)]
    way: Way,
    /// The first file of the first stream, below a directory that is there. The first file of stream S has PATH.S, as for
    /// `stream`, and file K of a stream has -K behind that name.
    #[arg(long)]
    path: String,
    #[arg(long, value_enum)]
    operation: Action,
    /// Streams, each with a connection and a session of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=STREAMS_MAX))]
    streams: u32,
    /// Files of each stream.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    files: u32,
    /// Bytes of a file. Of several lengths, each stream takes one after the other, again and again.
    #[arg(long, value_delimiter = ',', required = true, value_parser = clap::value_parser!(u64).range(1..))]
    file_bytes: Vec<u64>,
    /// Bytes of a block. Of several lengths, the first stream takes the first one, and so on, again and again.
    #[arg(long, value_delimiter = ',', default_value = "1048576", value_parser = clap::value_parser!(u32).range(1..))]
    block: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    Write,
    Read,
    Remove,
}

#[derive(Debug, Serialize)]
pub struct Report {
    operation: Action,
    through: Through,
    files: usize,
    files_s: f64,
    /// From OPEN to the reply to CLOSE.
    file_us: Summary,
    #[serde(flatten)]
    throughput: Throughput,
    commits: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit_us: Option<Summary>,
}

pub fn run(arguments: &Arguments) -> Result<Report> {
    let (directory, name) = directory_and_name(&arguments.path)?;
    let first = nonce()?;
    let mut streams = Vec::new();
    for number in 0..arguments.streams {
        let mount = Mount::open(&arguments.way, first.wrapping_add(u64::from(number)), &directory)?;
        streams.push(Stream { arguments, name: name_of_stream(&name, number), number, mount });
    }
    let (cpu, began) = (cpu_time(), Instant::now());
    let (mut measured, mut files) = (Vec::new(), Latencies::default());
    thread::scope(|scope| {
        let running: Vec<_> =
            streams.into_iter().map(|stream| scope.spawn(move || stream.run(began))).collect();
        for stream in running {
            let (each, times) = stream.join().map_err(|_| anyhow!("a stream has panicked"))??;
            measured.push(each);
            files.append(times);
        }
        anyhow::Ok(())
    })?;
    let (throughput, commits) = Throughput::of(measured, cpu_time() - cpu);
    Ok(Report {
        operation: arguments.operation,
        through: arguments.way.through,
        files: files.len(),
        files_s: rounded(files.len() as f64 / throughput.seconds.max(1e-9)),
        file_us: files.summary(),
        throughput,
        commits: commits.len(),
        commit_us: (commits.len() > 0).then(|| commits.summary()),
    })
}

struct Stream<'a> {
    arguments: &'a Arguments,
    /// Of its first file.
    name: String,
    number: u32,
    mount: Mount,
}

impl Stream<'_> {
    /// All files; the sessions end after the measured time. Answers how long each file took as well.
    fn run(self, began: Instant) -> Result<(Measured, Latencies)> {
        let Stream { arguments, name, number, mut mount } = self;
        let blocks = &arguments.block;
        let block = blocks[number as usize % blocks.len()];
        let (mut all, mut files) = (Measured::default(), Latencies::default());
        for file in 0..arguments.files {
            let file_bytes = arguments.file_bytes[file as usize % arguments.file_bytes.len()];
            let name = if file == 0 { name.clone() } else { format!("{name}-{file}") };
            let at = Instant::now();
            match arguments.operation.of_bytes() {
                None => mount.remove(&name)?,
                Some(operation) => {
                    let opening = Opening { operation, truncate: true, file_bytes };
                    let (left, measured) = transfer(mount, &arguments.way, &opening, block, &name)
                        .with_context(|| format!("file {name}"))?;
                    mount = left;
                    all.add(measured);
                }
            }
            files.add(at.elapsed());
        }
        all.elapsed = began.elapsed();
        mount.close()?;
        Ok((all, files))
    }
}

impl Action {
    fn of_bytes(self) -> Option<Operation> {
        match self {
            Action::Write => Some(Operation::Write),
            Action::Read => Some(Operation::Read),
            Action::Remove => None,
        }
    }
}

/// One file.
fn transfer(mount: Mount, way: &Way, opening: &Opening, block: u32, name: &str) -> Result<(Mount, Measured)> {
    let mut target = Target::open(mount, opening, name)?;
    let blocks = Blocks::of(block);
    let positions = blocks.positions(opening.file_bytes, 0)?;
    let work = Work {
        limit: blocks.limit(&positions)?,
        operation: opening.operation,
        stable: way.stable.how(),
        commits: way.commits(),
        verifies: way.verify,
        request_bytes_max: positions.request_bytes_max(),
        positions,
    };
    let measured = Transfer::new(&mut target, work).run(Instant::now())?;
    Ok((target.close()?, measured))
}
