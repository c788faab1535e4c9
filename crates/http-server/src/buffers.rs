//! Buffers for request bodies, which come back when the last reader of their bytes drops them.
//!
//! A byte lies in memory as it lies in its body, modulo the alignment of direct I/O: a body that becomes a file from its
//! beginning goes to the disk from here without a copy.

use std::sync::Arc;

use aligned::{ALIGNMENT_BYTES_MIN, AlignedBuffer, AlignedBuffers};
use bytes::Bytes;

use crate::budget::{Account, Charge};

/// Every body begins with this much, so that many slow uploads cost little memory; fast ones grow by fours, and are charged
/// for it.
pub(crate) const SIZES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];

pub(crate) struct Buffers {
    memory: Arc<AlignedBuffers>,
}

impl Buffers {
    pub fn new(kept_bytes_max: usize) -> Buffers {
        Buffers { memory: AlignedBuffers::new(ALIGNMENT_BYTES_MIN, kept_bytes_max) }
    }

    /// An empty buffer with room for `SIZES[size]` bytes, or for the least of them where there is no memory for so many. Its
    /// first byte has the place `position` in its body.
    pub fn take(&self, size: usize, account: &Arc<Account>, position: u64) -> Buffer {
        let charge = if size > 0 { account.take_whole(None, SIZES[size]) } else { None };
        let size = if charge.is_some() { size } else { 0 };
        let start = (position % ALIGNMENT_BYTES_MIN as u64) as usize;
        Buffer { memory: self.memory.take(start + SIZES[size]), start, filled: start, charge }
    }
}

pub(crate) struct Buffer {
    memory: AlignedBuffer,
    start: usize,
    /// The end of the bytes that are there.
    filled: usize,
    /// Of a buffer that is larger than the least.
    charge: Option<Charge>,
}

impl Buffer {
    /// Bytes charged for this buffer.
    pub fn size_charged(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

    pub fn len(&self) -> usize {
        self.filled - self.start
    }

    pub fn room(&self) -> usize {
        self.memory.bytes().len() - self.filled
    }

    /// As much of `data` as there is room for.
    pub fn append(&mut self, data: &[u8]) -> usize {
        let part = data.len().min(self.room());
        self.unfilled()[..part].copy_from_slice(&data[..part]);
        self.filled += part;
        part
    }

    /// Its content is arbitrary.
    pub fn unfilled(&mut self) -> &mut [u8] {
        &mut self.memory.bytes_mut()[self.filled..]
    }

    /// So many bytes of `unfilled` are there.
    pub fn advance(&mut self, count: usize) {
        assert!(count <= self.room(), "there was room for what came");
        self.filled += count;
    }

    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.memory.bytes()[self.start..self.filled]
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::budget::Budget;

    fn account(bytes_max: usize) -> Arc<Account> {
        Budget::new(bytes_max, bytes_max).account(IpAddr::from([10, 0, 0, 1]))
    }

    #[test]
    fn a_buffer_is_used_again_when_its_last_slice_is_gone() {
        let (buffers, account) = (Buffers::new(1 << 20), account(0));
        let mut buffer = buffers.take(0, &account, 0);
        assert_eq!(buffer.append(b"secret"), 6);
        let frozen = buffer.freeze();
        let place = frozen.as_ptr();
        let slice = frozen.slice(1..3);
        drop(frozen);
        assert_ne!(buffers.take(0, &account, 0).unfilled().as_ptr(), place);
        drop(slice);
        let mut again: Vec<_> = (0..2).map(|_| buffers.take(0, &account, 0)).collect();
        assert!(again.iter_mut().any(|buffer| buffer.unfilled().as_ptr() == place && buffer.len() == 0));
    }

    #[test]
    fn bytes_lie_in_memory_as_in_their_body() {
        let (buffers, account) = (Buffers::new(1 << 20), account(4 << 20));
        for (size, position) in [(0, 0), (0, 77), (2, 77), (1, 4095), (2, (5 << 30) + 1)] {
            let mut buffer = buffers.take(size, &account, position);
            assert_eq!(buffer.room(), SIZES[size]);
            assert_eq!(buffer.unfilled().as_ptr().addr() as u64 % 4096, position % 4096);
            let data = vec![7; SIZES[size] + 1];
            assert_eq!(buffer.append(&data), SIZES[size], "up to its end");
            assert_eq!((buffer.room(), buffer.len()), (0, SIZES[size]));
            assert_eq!(buffer.freeze(), &data[1..]);
        }
    }

    #[test]
    fn free_body_buffers_are_bounded() {
        let (buffers, account) = (Buffers::new(3 << 20), account(1 << 30));
        drop((0..20).map(|_| buffers.take(2, &account, 0)).collect::<Vec<_>>());
        drop(buffers.take(0, &account, 0));
        let kept = buffers.memory.kept_bytes();
        assert!((2 << 20..=3 << 20).contains(&kept), "{kept}");
    }

    #[test]
    fn where_there_is_no_memory_for_a_large_buffer_it_is_a_small_one() {
        let (buffers, account) = (Buffers::new(0), account(4 << 20));
        let taken: Vec<_> = (0..9).map(|_| buffers.take(2, &account, 0)).collect();
        let large = taken.iter().filter(|buffer| buffer.room() == SIZES[2]).count();
        assert_eq!((large, taken.len()), (2, 9), "of one address, half of what is free");
        assert!(taken[2..].iter().all(|buffer| buffer.room() == SIZES[0]));
        drop(taken);
        assert_eq!(buffers.take(2, &account, 0).room(), SIZES[2]);
    }
}
