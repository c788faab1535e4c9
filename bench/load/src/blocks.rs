//! The blocks of a file that are read or written, and their order.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

/// READ and WRITE of more are refused by servers. Longer blocks are split, as Linux splits the requests of programs.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
const BLOCK_BYTES_MAX: i64 = 64 << 20;

/// Arguments that say which bytes are transferred.
#[derive(Args, Clone, Debug)]
pub struct Blocks {
    /// Bytes of a block. A block of more than 1 MiB is sent as requests of 1 MiB.
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=BLOCK_BYTES_MAX))]
    block: u32,
    /// The order of the blocks.
    #[arg(long, value_enum, default_value_t = Pattern::Sequential)]
    pattern: Pattern,
    /// Distance between the beginnings of two blocks of a strided pattern.
    #[arg(long, required_if_eq("pattern", "strided"))]
    stride: Option<u64>,
    /// Lengths of the blocks of a mixed pattern and the weight of each, as BYTES:WEIGHT,BYTES:WEIGHT.
    #[arg(long, value_delimiter = ',', required_if_eq("pattern", "mixed"))]
    mixture: Vec<Share>,
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
    /// Blocks of different lengths, one after the other.
    Mixed,
}

/// A length of blocks, and how often it is drawn in proportion to the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    bytes: u32,
    weight: u32,
}

impl FromStr for Share {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Share> {
        let (bytes, weight) = text.split_once(':').context("not BYTES:WEIGHT")?;
        let share = Share { bytes: bytes.parse()?, weight: weight.parse()? };
        if share.bytes == 0 || i64::from(share.bytes) > BLOCK_BYTES_MAX || share.weight == 0 {
            bail!("a length is from 1 to {BLOCK_BYTES_MAX} bytes, a weight at least 1");
        }
        Ok(share)
    }
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
    /// Of a file in order.
    pub fn of(block: u32) -> Blocks {
        let pattern = Pattern::Sequential;
        Blocks { block, pattern, stride: None, mixture: Vec::new(), offset: 0, seconds: None, bytes: None }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

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
            Pattern::Sequential | Pattern::Random | Pattern::Mixed => u64::from(self.block),
        };
        if stride == 0 {
            bail!("--stride 0 would stay at one block");
        }
        if self.offset >= end {
            bail!("--offset {} is not before the end of the file at {end}", self.offset);
        }
        let count = (end - self.offset).div_ceil(stride);
        let Blocks { block, offset, .. } = *self;
        let mixture = if self.pattern == Pattern::Mixed { self.mixture.clone() } else { Vec::new() };
        let is_random = self.pattern == Pattern::Random;
        let (at, rest) = (offset, Extent::default());
        Ok(Positions {
            block,
            offset,
            end,
            stride,
            count,
            is_random,
            mixture,
            next: 0,
            at,
            rest,
            random: seed,
        })
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
    /// Empty unless the blocks differ in length.
    mixture: Vec<Share>,
    /// Number of the next block in this pass.
    next: u64,
    /// Where the next block of a mixture begins.
    at: u64,
    /// The part of a long block that is not requested yet.
    rest: Extent,
    random: u64,
}

impl Positions {
    /// The next request of this pass: a block, or a part of a long one.
    pub fn next_in_pass(&mut self) -> Option<Extent> {
        if self.rest.len == 0 {
            self.rest = if self.mixture.is_empty() { self.next_block()? } else { self.next_of_mixture()? };
        }
        let request = Extent { len: self.rest.len.min(REQUEST_BYTES_MAX), ..self.rest };
        self.rest.offset += u64::from(request.len);
        self.rest.len -= request.len;
        Some(request)
    }

    fn next_block(&mut self) -> Option<Extent> {
        if self.next == self.count {
            return None;
        }
        let number = if self.is_random { self.draw() % self.count } else { self.next };
        self.next += 1;
        Some(self.extent(number))
    }

    fn next_of_mixture(&mut self) -> Option<Extent> {
        if self.at >= self.end {
            return None;
        }
        let weights: u64 = self.mixture.iter().map(|share| u64::from(share.weight)).sum();
        let mut drawn = self.draw() % weights;
        let share = self.mixture.iter().find(|share| match drawn.checked_sub(u64::from(share.weight)) {
            Some(left) => {
                drawn = left;
                false
            }
            None => true,
        })?;
        let len = u64::from(share.bytes).min(self.end - self.at);
        let block = Extent { offset: self.at, len: len as u32 };
        self.at += len;
        Some(block)
    }

    /// Begins the next pass.
    pub fn rewind(&mut self) {
        (self.next, self.at, self.rest) = (0, self.offset, Extent::default());
    }

    /// Bytes of the longest request.
    pub fn request_bytes_max(&self) -> u32 {
        let longest = self.mixture.iter().map(|share| share.bytes).max().unwrap_or(self.block);
        longest.min(REQUEST_BYTES_MAX)
    }

    /// Bytes of a pass in order.
    fn pass_bytes(&self) -> u64 {
        if !self.mixture.is_empty() {
            return self.end - self.offset;
        }
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
        Blocks { pattern, ..Blocks::of(10) }
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
    fn a_long_block_is_requested_in_parts_and_stays_together() {
        let long = Blocks { pattern: Pattern::Random, ..Blocks::of(5 << 19) };
        let found = pass(&mut long.positions(10 << 20, 3).unwrap());
        assert_eq!(found.len(), 12);
        for block in found.chunks(3) {
            let first = block[0].0;
            assert_eq!(first % (5 << 19), 0);
            assert_eq!(block, [(first, 1 << 20), (first + (1 << 20), 1 << 20), (first + (2 << 20), 1 << 19)]);
        }
    }

    #[test]
    fn a_mixture_covers_the_file_without_gaps_by_its_weights() {
        let mixture = vec!["10:3".parse().unwrap(), "40:1".parse().unwrap()];
        let mixed = Blocks { pattern: Pattern::Mixed, mixture, offset: 7, ..Blocks::of(10) };
        let mut positions = mixed.positions(10_000, 1).unwrap();
        assert_eq!(
            (mixed.limit(&positions).unwrap(), positions.request_bytes_max()),
            (Limit::Bytes(9_993), 40)
        );
        let found = pass(&mut positions);
        assert_eq!(found[0].0, 7);
        assert!(found.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1) == pair[1].0));
        assert_eq!(found.last().map(|(offset, len)| offset + u64::from(*len)), Some(10_000));
        let long = found.iter().filter(|(_, len)| *len == 40).count();
        let short = found.iter().filter(|(_, len)| *len == 10).count();
        assert!((short as f64 / long as f64 - 3.0).abs() < 1.0, "{short} short and {long} long blocks");
        positions.rewind();
        assert_eq!(positions.next_in_pass().map(|extent| extent.offset), Some(7));
    }

    #[test]
    fn a_share_of_a_mixture_has_a_length_and_a_weight() {
        assert_eq!("4096:3".parse::<Share>().unwrap(), Share { bytes: 4096, weight: 3 });
        for wrong in ["4096", "0:1", "1:0", "67108865:1", "a:1"] {
            assert!(wrong.parse::<Share>().is_err(), "{wrong}");
        }
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
