//! Streams over files: each has one of its own, or all share one.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::blocks::{Blocks, Positions};

pub const STREAMS_MAX: i64 = 256;

/// Arguments that say which stream transfers which bytes.
#[derive(Args, Clone, Debug)]
pub struct Spread {
    #[arg(long, value_enum)]
    pub operation: Operation,
    /// Bytes of each file.
    #[arg(long, default_value_t = 1 << 30, value_parser = clap::value_parser!(u64).range(1..))]
    pub file_bytes: u64,
    /// Streams, each with a file; through NFS with a connection and a session too.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=STREAMS_MAX))]
    pub streams: u32,
    /// All streams use the file of the first one. Each has its first block behind that of the stream before it.
    #[arg(long)]
    pub shared: bool,
    /// Each stream of a shared file has a part of it in one piece.
    #[arg(long, requires = "shared")]
    pub segments: bool,
    #[command(flatten)]
    pub blocks: Blocks,
}

/// How durable a write is to be when it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stable {
    Unstable,
    FileSync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Read,
    Write,
}

impl Spread {
    /// The blocks of one stream.
    pub fn positions(&self, number: u64) -> Result<Positions> {
        let (blocks, end) = (&self.blocks, self.file_bytes);
        if !self.shared {
            return blocks.positions(end, number);
        }
        if !self.segments {
            return blocks.after(number * u64::from(blocks.block())).positions(end, number);
        }
        let streams = u64::from(self.streams);
        let segment_bytes = end.saturating_sub(blocks.offset()) / streams;
        let is_last = number + 1 == streams;
        let end = if is_last { end } else { blocks.offset() + (number + 1) * segment_bytes };
        blocks.after(number * segment_bytes).positions(end, number)
    }
}
