//! The blocks of a file that are read or written, and their order.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

/// READ and WRITE of more are refused by servers; Linux splits what programs ask for in the same way.
const BLOCK_BYTES_MAX: i64 = 1 << 20;

/// Arguments that say which bytes are transferred.
#[derive(Args, Clone, Debug)]
pub struct Blocks {
    /// Bytes of one request.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=BLOCK_BYTES_MAX))]
    block: u32,
    /// The order of the blocks.
    #[arg(long, value_enum, default_value_t = Pattern::Sequential)]
    pattern: Pattern,
    /// Distance between the beginnings of two blocks of a strided pattern.
    #[arg(long, required_if_eq("pattern", "strided"))]
    stride: Option<u64>,
    /// Where the first block begins.
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// How long to transfer, pass after pass.
    #[arg(long, conflicts_with = "bytes")]
    seconds: Option<f64>,
    /// Bytes to transfer of each file; without this and --seconds it is one pass.
    #[arg(long)]
    bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    Sequential,
    /// Any of the blocks, each as likely as any other, again and again.
    Random,
    /// Blocks at equal distances.
    Strided,
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    Bytes(u64),
    Time(Duration),
}

/// A range of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub len: u32,
}

impl Blocks {
    pub fn block(&self) -> u32 {
        self.block
    }

    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// The same with the first block so many bytes further on.
    pub fn after(&self, bytes: u64) -> Blocks {
        Blocks { offset: self.offset.saturating_add(bytes), ..self.clone() }
    }

    /// The blocks of a file that ends at `end`; files with different `seed`s get different random orders.
    pub fn positions(&self, end: u64, seed: u64) -> Result<Positions> {
        let stride = match self.pattern {
            Pattern::Strided => self.stride.unwrap_or_default(),
            Pattern::Sequential | Pattern::Random => u64::from(self.block),
        };
        if stride == 0 {
            bail!("--stride 0 would stay at one block");
        }
        if self.offset >= end {
            bail!("--offset {} is not before the end of the file at {end}", self.offset);
        }
        let count = (end - self.offset).div_ceil(stride);
        let Blocks { block, offset, .. } = *self;
        let is_random = self.pattern == Pattern::Random;
        Ok(Positions { block, offset, end, stride, count, is_random, next: 0, random: seed })
    }

    /// For the blocks of one file.
    pub fn limit(&self, positions: &Positions) -> Result<Limit> {
        Ok(match (self.seconds, self.bytes) {
            (Some(seconds), _) if !seconds.is_finite() || seconds <= 0.0 => {
                bail!("--seconds {seconds} is no length of time")
            }
            (Some(seconds), _) => Limit::Time(Duration::from_secs_f64(seconds)),
            (None, Some(0)) => bail!("--bytes 0 is nothing to transfer"),
            (None, Some(bytes)) => Limit::Bytes(bytes),
            (None, None) => Limit::Bytes(positions.pass_bytes()),
        })
    }
}

/// The blocks of one file in their order. A pass has each block of the file once, or as many random ones.
#[derive(Clone, Debug)]
pub struct Positions {
    block: u32,
    offset: u64,
    end: u64,
    stride: u64,
    count: u64,
    is_random: bool,
    /// Number of the next block in this pass.
    next: u64,
    random: u64,
}

impl Positions {
    /// The next block of this pass.
    pub fn next_in_pass(&mut self) -> Option<Extent> {
        if self.next == self.count {
            return None;
        }
        let number = if self.is_random { self.draw() % self.count } else { self.next };
        self.next += 1;
        Some(self.extent(number))
    }

    /// Begins the next pass.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    /// Bytes of a pass in order.
    fn pass_bytes(&self) -> u64 {
        let last = self.extent(self.count - 1);
        (self.count - 1) * u64::from(self.block) + u64::from(last.len)
    }

    /// The last block ends with the file.
    fn extent(&self, number: u64) -> Extent {
        let offset = self.offset + number * self.stride;
        let len = u64::from(self.block).min(self.end - offset);
        Extent { offset, len: len as u32 }
    }

    /// SplitMix64: the same order in every run.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn blocks(pattern: Pattern) -> Blocks {
        Blocks { block: 10, pattern, stride: None, offset: 0, seconds: None, bytes: None }
    }

    fn pass(positions: &mut Positions) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| positions.next_in_pass()).map(|extent| (extent.offset, extent.len)).collect()
    }

    #[test]
    fn a_sequential_pass_covers_the_file_and_the_last_block_is_short() {
        let sequential = blocks(Pattern::Sequential);
        let mut positions = sequential.positions(25, 0).unwrap();
        assert_eq!(pass(&mut positions), [(0, 10), (10, 10), (20, 5)]);
        assert_eq!(positions.next_in_pass(), None);
        positions.rewind();
        assert_eq!(pass(&mut positions).len(), 3);
        assert_eq!(sequential.limit(&positions).unwrap(), Limit::Bytes(25));
    }

    #[test]
    fn a_strided_pass_begins_at_the_offset_and_leaves_gaps() {
        let strided = Blocks { stride: Some(30), offset: 7, ..blocks(Pattern::Strided) };
        let mut positions = strided.positions(70, 0).unwrap();
        assert_eq!(pass(&mut positions), [(7, 10), (37, 10), (67, 3)]);
        assert_eq!(strided.limit(&positions).unwrap(), Limit::Bytes(23));
    }

    #[test]
    fn a_random_pass_stays_on_blocks_of_the_file_and_differs_by_seed() {
        let random = blocks(Pattern::Random);
        let of = |seed| pass(&mut random.positions(1000, seed).unwrap());
        let first = of(1);
        assert_eq!(first.len(), 100);
        assert!(first.iter().all(|(offset, len)| offset % 10 == 0 && *offset < 1000 && *len == 10));
        let distinct: BTreeSet<_> = first.iter().collect();
        assert!((50..80).contains(&distinct.len()), "{} of 100 blocks", distinct.len());
        assert_eq!(of(1), first);
        assert_ne!(of(2), first);
    }

    #[test]
    fn nothing_to_transfer_is_refused() {
        let positions = blocks(Pattern::Sequential).positions(25, 0).unwrap();
        assert!(Blocks { offset: 25, ..blocks(Pattern::Sequential) }.positions(25, 0).is_err());
        assert!(Blocks { stride: Some(0), ..blocks(Pattern::Strided) }.positions(25, 0).is_err());
        for seconds in [0.0, -1.0, f64::NAN] {
            let timed = Blocks { seconds: Some(seconds), ..blocks(Pattern::Sequential) };
            assert!(timed.limit(&positions).is_err(), "{seconds}");
        }
        assert!(Blocks { bytes: Some(0), ..blocks(Pattern::Sequential) }.limit(&positions).is_err());
    }
}
