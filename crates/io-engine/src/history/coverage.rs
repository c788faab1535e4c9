//! How often the bytes of a file are read, and how soon after they were written.
//!
//! The file is divided into 32 chunks, whose size doubles as the file grows. A chunk of which more bytes were read than
//! it has was read again. So a part that is read twice shows once its chunk was read as a whole; until then the answer
//! is that nothing is known.

use std::time::{Duration, Instant};

use crate::mode::{Kind, Reuse};

const CHUNKS: usize = 32;
/// 256 KiB.
const CHUNK_BITS_MIN: u32 = 18;
const SECTOR_BITS: u32 = 9;
/// Bytes read that tell, if none was read again, that bytes are used once.
const ONCE_SECTORS_MIN: u64 = (4 << 20) >> SECTOR_BITS;
/// A read so long after the write of its chunk is soon.
const SOON: Duration = Duration::from_secs(30);
/// Sums are halved at this size, so that what a file did lately counts most.
const SUM_SECTORS_MAX: u64 = (1 << 30) >> SECTOR_BITS;

pub(super) struct Coverage {
    chunk_bits: u32,
    chunks: [Chunk; CHUNKS],
    epoch: Option<Instant>,
    read: Share,
    written: Share,
}

#[derive(Clone, Copy, Default)]
struct Chunk {
    read_sectors: u32,
    /// Seconds since the epoch, and one; 0 is never.
    written_at_s: u32,
}

/// How much of a sum has a property: of the bytes read, those read again; of those written, those read soon.
#[derive(Clone, Copy, Default)]
struct Share {
    all_sectors: u64,
    part_sectors: u64,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage {
            chunk_bits: CHUNK_BITS_MIN,
            chunks: [Chunk::default(); CHUNKS],
            epoch: None,
            read: Share::default(),
            written: Share::default(),
        }
    }
}

impl Coverage {
    pub(super) fn record(&mut self, kind: Kind, offset: u64, end: u64, now: Instant) {
        while (end - 1) >> self.chunk_bits >= CHUNKS as u64 {
            self.double_chunks();
        }
        let epoch = *self.epoch.get_or_insert(now);
        let second =
            u32::try_from(now.saturating_duration_since(epoch).as_secs()).unwrap_or(u32::MAX - 1) + 1;
        let chunk_sectors = 1 << (self.chunk_bits - SECTOR_BITS);
        let mut start = offset;
        while start < end {
            let place = start >> self.chunk_bits;
            // The last chunk of all offsets has no end among them.
            let behind = (place + 1).saturating_mul(1 << self.chunk_bits).min(end);
            let sectors = (behind - start) >> SECTOR_BITS;
            let chunk = &mut self.chunks[place as usize];
            match kind {
                Kind::Read => {
                    let again = chunk.read(sectors, chunk_sectors);
                    self.read.add(sectors, again);
                    if chunk.is_written_since(second, SOON) {
                        self.written.add(0, sectors);
                    }
                }
                Kind::Write => {
                    chunk.written_at_s = second;
                    self.written.add(sectors, 0);
                }
            }
            start = behind;
        }
    }

    /// An eighth of the bytes read again is reuse.
    pub(super) fn reuse(&self) -> Reuse {
        if self.read.is_at_least(8) {
            Reuse::Reused
        } else if self.read.all_sectors >= ONCE_SECTORS_MIN {
            Reuse::Once
        } else {
            Reuse::Unknown
        }
    }

    /// A quarter of the bytes written was read soon.
    pub(super) fn is_read_after_write_expected(&self) -> bool {
        self.written.is_at_least(4)
    }

    fn double_chunks(&mut self) {
        let merged = |at: usize| match self.chunks.get(2 * at..2 * at + 2) {
            Some([first, second]) => first.merge(*second),
            _ => Chunk::default(),
        };
        self.chunks = std::array::from_fn(merged);
        self.chunk_bits += 1;
    }
}

impl Chunk {
    /// Counts a read, and tells how much of it was read before.
    fn read(&mut self, sectors: u64, chunk_sectors: u64) -> u64 {
        let before = u64::from(self.read_sectors);
        let after = before.saturating_add(sectors);
        // No more than the chunk has: what was read again must not count for its neighbour when the two merge. Chunks of
        // more than 2 TiB stay below their size, so they tell nothing.
        self.read_sectors = u32::try_from(after.min(chunk_sectors)).unwrap_or(u32::MAX);
        if chunk_sectors > u64::from(u32::MAX) { 0 } else { after.saturating_sub(chunk_sectors) }
    }

    fn is_written_since(self, second: u32, ago: Duration) -> bool {
        self.written_at_s > 0 && u64::from(second.saturating_sub(self.written_at_s)) <= ago.as_secs()
    }

    fn merge(self, other: Chunk) -> Chunk {
        Chunk {
            read_sectors: self.read_sectors.saturating_add(other.read_sectors),
            written_at_s: self.written_at_s.max(other.written_at_s),
        }
    }
}

impl Share {
    fn add(&mut self, all_sectors: u64, part_sectors: u64) {
        self.all_sectors = self.all_sectors.saturating_add(all_sectors);
        self.part_sectors = self.part_sectors.saturating_add(part_sectors);
        if self.all_sectors.max(self.part_sectors) >= SUM_SECTORS_MAX {
            self.all_sectors /= 2;
            self.part_sectors /= 2;
        }
    }

    /// Whether the part is that fraction of all.
    fn is_at_least(self, fraction: u64) -> bool {
        self.part_sectors > 0 && self.part_sectors.saturating_mul(fraction) >= self.all_sectors
    }
}
