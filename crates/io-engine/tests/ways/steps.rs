//! The operations that the models run on a file, and random ones.

use forebay_io_engine::Ran;

/// Numbers that follow from a seed (xorshift64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Files of the models are no longer.
pub const SIZE_MAX: u64 = 300_000;

#[derive(Clone, Copy, Debug)]
pub enum Step {
    Write {
        way: Ran,
        offset: u64,
        length: usize,
        stamp: u8,
        /// Of the source in memory, from a multiple of 4096.
        memory_offset: usize,
    },
    Read {
        way: Ran,
        offset: u64,
        length: u32,
    },
    Truncate(u64),
    /// Blocks without data behind them.
    Allocate {
        offset: u64,
        end: u64,
    },
    Deallocate {
        offset: u64,
        end: u64,
    },
    Sync,
    /// Clean pages leave the memory.
    Drop,
}

fn way(word: u64) -> Ran {
    [Ran::Buffered, Ran::Uncached, Ran::Direct, Ran::Direct][word as usize % 4]
}

/// Often on or near an edge of a sector or a page, and often in the first pages.
fn position(word: u64, max: u64) -> u64 {
    let unit = [1, 512, 4096, 4096, 32 << 10][word as usize % 5];
    let limit = if word >> 8 & 3 == 0 { 20_000.min(max) } else { max };
    let near = (word >> 16) % (limit + 1) / unit * unit;
    let edge = [0, 0, 0, 1, u64::MAX][(word >> 12) as usize % 5];
    near.wrapping_add(edge).min(max)
}

/// Offset and end; at least one byte apart.
pub fn range(words: [u64; 2]) -> (u64, u64) {
    let (a, b) = (position(words[0], SIZE_MAX - 1), position(words[1], SIZE_MAX - 1));
    let end = if words[1] >> 3 & 1 == 0 { a + 1 + b % 9000 } else { a.max(b) + 1 };
    (a.min(b).min(end - 1), end.min(SIZE_MAX))
}

impl Step {
    pub fn of(words: [u64; 3]) -> Step {
        let (offset, end) = range([words[1], words[2]]);
        let way = way(words[0] >> 8);
        match words[0] % 32 {
            0..14 => Step::Write {
                way,
                offset,
                length: (end - offset) as usize,
                stamp: (words[0] >> 16) as u8,
                memory_offset: [0, 0, 512, 1, 2048 + 3][(words[0] >> 24) as usize % 5],
            },
            14..26 => Step::Read { way, offset, length: (end - offset) as u32 },
            26 | 27 => Step::Truncate(end),
            28 => Step::Allocate { offset, end },
            29 => Step::Deallocate { offset, end },
            30 => Step::Sync,
            _ => Step::Drop,
        }
    }
}
