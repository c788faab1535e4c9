//! Digests of whole replicas, computed from the blocks that a scrub reads in ascending order.
//!
//! Holes count as zeros. A replica with long holes gets no digests: a client makes them for nothing, and a digest of them
//! costs time.

use api::Sums;
use types::{Checksum, ChecksumKind};

use super::sums::BLOCK_BYTES;

/// Of all holes of a replica: a hole of any length costs no disk, but its zeros are summed.
const HOLE_BYTES_MAX: u64 = 256 << 20;
static ZEROS: [u8; BLOCK_BYTES as usize] = [0; BLOCK_BYTES as usize];

/// Counts of one scrub, in replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DigestCounts {
    pub verified: u64,
    pub made: u64,
}

#[derive(Default)]
pub struct Digesting {
    /// `None`: no digests are wanted, or some bytes cannot be had.
    sums: Option<Sums>,
    next: u64,
    hole_bytes: u64,
}

impl Digesting {
    pub fn new(kinds: &[ChecksumKind]) -> Digesting {
        let sums = (!kinds.is_empty()).then(|| Sums::new(kinds.iter().copied()));
        Digesting { sums, ..Digesting::default() }
    }

    /// `bytes` of a whole block, or of the last one.
    pub fn push(&mut self, block: u64, bytes: &[u8]) {
        let offset = block * BLOCK_BYTES;
        self.skip_hole(offset);
        self.next = offset + bytes.len() as u64;
        if let Some(sums) = &mut self.sums {
            sums.update(bytes);
        }
    }

    /// A block cannot be read.
    pub fn give_up(&mut self) {
        self.sums = None;
    }

    fn skip_hole(&mut self, end: u64) {
        let Some(sums) = &mut self.sums else { return };
        let hole_bytes = end.checked_sub(self.next).map(|hole| self.hole_bytes.saturating_add(hole));
        let Some(hole_bytes) = hole_bytes.filter(|bytes| *bytes <= HOLE_BYTES_MAX) else {
            return self.give_up();
        };
        self.hole_bytes = hole_bytes;
        while self.next < end {
            let length = BLOCK_BYTES.min(end - self.next);
            sums.update(&ZEROS[..length as usize]);
            self.next += length;
        }
    }

    /// Of a replica of `length` bytes; empty if there are no digests of it.
    pub fn finish(mut self, length: u64) -> Vec<Checksum> {
        self.skip_hole(length);
        self.sums.map(Sums::finish).unwrap_or_default()
    }
}

/// Those of both. `found` is of the same bytes as `stored`.
pub fn merged(stored: &[Checksum], found: &[Checksum]) -> Vec<Checksum> {
    let is_new = |sum: &&Checksum| !stored.iter().any(|stored| stored.kind() == sum.kind());
    stored.iter().chain(found.iter().filter(is_new)).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = BLOCK_BYTES as usize;
    const KINDS: [ChecksumKind; 4] = ChecksumKind::ALL;

    fn sums_of(bytes: &[u8]) -> Vec<Checksum> {
        let mut sums = Sums::new(KINDS);
        sums.update(bytes);
        sums.finish()
    }

    #[test]
    fn holes_count_as_zeros_wherever_they_are() {
        let mut whole: Vec<u8> = (0..5 * BLOCK + 100).map(|at| (at / 3 % 253) as u8).collect();
        for hole in [0, 2, 3] {
            whole[hole * BLOCK..(hole + 1) * BLOCK].fill(0);
        }
        whole[5 * BLOCK..].fill(0);
        let mut digesting = Digesting::new(&KINDS);
        for block in [1, 4] {
            digesting.push(block as u64, &whole[block * BLOCK..(block + 1) * BLOCK]);
        }
        assert_eq!(digesting.finish(whole.len() as u64), sums_of(&whole));
    }

    #[test]
    fn a_replica_with_long_holes_or_a_block_that_cannot_be_read_gets_no_digests() {
        let digesting = || Digesting::new(&[ChecksumKind::Adler32]);
        assert_eq!(digesting().finish(HOLE_BYTES_MAX).len(), 1);
        assert_eq!(digesting().finish(HOLE_BYTES_MAX + 1), []);
        assert_eq!(digesting().finish(u64::MAX), []);
        let mut unreadable = digesting();
        unreadable.give_up();
        unreadable.push(0, &[1; BLOCK]);
        assert_eq!(unreadable.finish(BLOCK_BYTES), []);
        let mut twice = digesting();
        twice.push(1, &[1; BLOCK]);
        twice.push(1, &[1; BLOCK]);
        assert_eq!(twice.finish(2 * BLOCK_BYTES), []);
        assert_eq!(Digesting::new(&[]).finish(0), []);
    }

    #[test]
    fn stored_digests_of_other_kinds_stay() {
        let all = sums_of(b"a");
        assert_eq!(merged(&all[..2], &all[1..3]), all[..3]);
    }
}
