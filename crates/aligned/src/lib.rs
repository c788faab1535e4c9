//! Buffers that direct I/O may use: they begin at a multiple of the alignment, and come back when they are dropped. A fresh
//! megabyte costs 256 page faults, about as much as filling it from a socket.
//!
//! Every byte of a buffer is initialised when its memory is first taken, so the kernel and safe code may fill it. A
//! buffer that comes back keeps its old bytes: the owner gives out only those that it has filled.
//!
//! Invariant: free buffers hold at most `kept_bytes_max`. If that is reached, the buffer that nobody has wanted for the
//! longest time is freed, whatever its size.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Every buffer begins at a multiple of this.
pub const ALIGNMENT_BYTES_MIN: usize = 4096;
/// A buffer of the smallest class holds so much, and the blocks around an unaligned range.
const SMALLEST_BYTES: usize = 16 << 10;
const CLASSES: usize = 9;
/// More than this and the blocks around it is not kept.
pub const LARGEST_BYTES: usize = SMALLEST_BYTES << (CLASSES - 1);

pub struct AlignedBuffers {
    alignment_bytes: usize,
    kept_bytes_max: usize,
    /// Locked for a push or a pop only; memory is taken and freed outside.
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Per class, the one that came back last at the end.
    classes: [VecDeque<KeptBuffer>; CLASSES],
    kept_bytes: usize,
    /// Returns so far.
    returned: u64,
}

struct KeptBuffer {
    memory: Box<[u8]>,
    returned: u64,
}

impl AlignedBuffers {
    /// `alignment_bytes` is a power of two. Buffers are aligned to [`ALIGNMENT_BYTES_MIN`] at least.
    pub fn new(alignment_bytes: usize, kept_bytes_max: usize) -> Arc<AlignedBuffers> {
        assert!(alignment_bytes.is_power_of_two(), "an alignment is a power of two");
        let alignment_bytes = alignment_bytes.max(ALIGNMENT_BYTES_MIN);
        Arc::new(AlignedBuffers { alignment_bytes, kept_bytes_max, free: Mutex::default() })
    }

    pub fn alignment_bytes(&self) -> usize {
        self.alignment_bytes
    }

    /// Memory that a buffer of `length` bytes takes.
    pub fn memory_of(&self, length: usize) -> usize {
        self.class_of(length).map_or(length, |class| self.room_of(class)) + self.alignment_bytes
    }

    /// A buffer of `length` bytes. Its content is arbitrary.
    pub fn take(self: &Arc<AlignedBuffers>, length: usize) -> AlignedBuffer {
        let class = self.class_of(length);
        let kept = class.and_then(|class| self.free.lock().pop(class));
        let memory = kept.unwrap_or_else(|| vec![0; self.memory_of(length)].into_boxed_slice());
        let past = memory.as_ptr().addr() % self.alignment_bytes;
        let start = if past == 0 { 0 } else { self.alignment_bytes - past };
        AlignedBuffer {
            memory,
            used: start..start + length,
            home: class.map(|class| (Arc::clone(self), class)),
        }
    }

    /// Two blocks more than the class is named for: an unaligned range reaches into one at each end.
    fn room_of(&self, class: usize) -> usize {
        (SMALLEST_BYTES << class) + 2 * self.alignment_bytes
    }

    fn class_of(&self, length: usize) -> Option<usize> {
        (0..CLASSES).find(|class| length <= self.room_of(*class))
    }

    fn keep(&self, class: usize, memory: Box<[u8]>) {
        if memory.len() > self.kept_bytes_max {
            return;
        }
        let mut freed = Vec::new();
        let mut free = self.free.lock();
        while free.kept_bytes + memory.len() > self.kept_bytes_max {
            freed.push(free.pop_oldest());
        }
        free.push(class, memory);
        drop(free);
    }

    /// Of buffers that nobody uses.
    pub fn kept_bytes(&self) -> usize {
        self.free.lock().kept_bytes
    }
}

impl Free {
    fn push(&mut self, class: usize, memory: Box<[u8]>) {
        self.returned += 1;
        self.kept_bytes += memory.len();
        self.classes[class].push_back(KeptBuffer { memory, returned: self.returned });
    }

    fn pop(&mut self, class: usize) -> Option<Box<[u8]>> {
        let kept = self.classes[class].pop_back()?;
        self.kept_bytes -= kept.memory.len();
        Some(kept.memory)
    }

    /// `None` if nothing is kept.
    fn pop_oldest(&mut self) -> Option<Box<[u8]>> {
        let age = |class: &VecDeque<KeptBuffer>| class.front().map_or(u64::MAX, |kept| kept.returned);
        let oldest = self.classes.iter_mut().min_by_key(|class| age(class))?.pop_front()?;
        self.kept_bytes -= oldest.memory.len();
        Some(oldest.memory)
    }
}

pub struct AlignedBuffer {
    memory: Box<[u8]>,
    used: Range<usize>,
    home: Option<(Arc<AlignedBuffers>, usize)>,
}

impl AlignedBuffer {
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.used.clone()]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.used.clone()]
    }

    /// The bytes of `range`, without a copy. The memory comes back when the last clone of them is dropped.
    pub fn freeze(self, range: Range<usize>) -> Bytes {
        if range.is_empty() {
            return Bytes::new();
        }
        Bytes::from_owner(self).slice(range)
    }
}

impl AsRef<[u8]> for AlignedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some((home, class)) = &self.home {
            home.keep(*class, std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_aligned(buffer: &AlignedBuffer, alignment_bytes: usize) -> bool {
        buffer.bytes().as_ptr().addr().is_multiple_of(alignment_bytes)
    }

    #[test]
    fn a_buffer_of_any_size_is_aligned_and_as_long_as_asked_for() {
        for alignment_bytes in [512, 4096, 16 << 10] {
            let buffers = AlignedBuffers::new(alignment_bytes, 64 << 20);
            for length in [0, 1, 511, 4096, SMALLEST_BYTES + 8193, LARGEST_BYTES + 8192, LARGEST_BYTES << 1] {
                let buffer = buffers.take(length);
                assert_eq!(buffer.bytes().len(), length);
                assert!(is_aligned(&buffer, alignment_bytes.max(4096)), "{length}");
            }
        }
    }

    #[test]
    fn frozen_bytes_give_the_memory_back_when_the_last_slice_is_dropped() {
        let buffers = AlignedBuffers::new(4096, 64 << 20);
        let mut first = buffers.take(1 << 20);
        first.bytes_mut()[7..10].copy_from_slice(b"abc");
        let address = first.bytes().as_ptr();
        let frozen = first.freeze(7..10);
        assert_eq!(&frozen[..], b"abc");
        let slice = frozen.slice(1..);
        drop(frozen);
        assert_eq!(buffers.kept_bytes(), 0, "a slice is still held");
        drop(slice);
        assert!(buffers.kept_bytes() > 1 << 20);
        assert_eq!(buffers.take(1 << 20).bytes().as_ptr(), address, "the memory is used again");
    }

    #[test]
    fn a_full_store_frees_the_memory_that_was_not_wanted_for_longest() {
        let buffers = AlignedBuffers::new(4096, 5 << 20);
        let large = buffers.take(4 << 20);
        drop(large);
        let kept = buffers.kept_bytes();
        assert!(kept > 4 << 20);
        drop(buffers.take(1 << 20));
        assert!(buffers.kept_bytes() < 2 << 20, "the large one had to go");
        drop(buffers.take(LARGEST_BYTES << 1));
        assert!(buffers.kept_bytes() < 2 << 20, "more than the largest class is not kept");
    }

    proptest! {
        #[test]
        fn kept_memory_never_exceeds_its_bound(
            lengths in proptest::collection::vec((0_usize..LARGEST_BYTES + (1 << 20), any::<bool>()), 1..60),
            kept_bytes_max in 0_usize..12 << 20,
        ) {
            let buffers = AlignedBuffers::new(4096, kept_bytes_max);
            let mut held = Vec::new();
            for (length, hold) in lengths {
                let buffer = buffers.take(length);
                prop_assert!(is_aligned(&buffer, 4096));
                prop_assert_eq!(buffer.bytes().len(), length);
                if hold { held.push(buffer) } else { drop(buffer) }
                let counted: usize = buffers.free.lock().classes.iter().flatten().map(|kept| kept.memory.len()).sum();
                prop_assert_eq!(counted, buffers.kept_bytes());
                prop_assert!(counted <= kept_bytes_max);
            }
            drop(held);
            prop_assert!(buffers.kept_bytes() <= kept_bytes_max);
        }
    }
}
