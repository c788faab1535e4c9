//! The memory of extents: aligned, and used again.
//!
//! Fresh pages cost a fault each, which takes several times as long as the copy into them. So the memory of a written
//! extent is kept for the next one.
//!
//! Memory that is used again still has the bytes of another file. Nothing may leave it but what was written to it since:
//! `Fragments` says what that is.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Suits direct I/O on devices with blocks of 4 KiB.
const ALIGNMENT: usize = 4096;

/// Makes memory, and keeps some that is free.
pub struct Memories {
    extent_bytes: usize,
    kept_max: usize,
    total_max: usize,
    stock: Mutex<Stock>,
}

#[derive(Default)]
struct Stock {
    free: Vec<Allocation>,
    /// Of both the free ones and those in use. A reader may hold one longer than its extent, so it is not bounded by
    /// charges alone.
    total: usize,
}

struct Allocation {
    bytes: Vec<u8>,
    /// Before the first aligned byte.
    padding: usize,
}

/// As long as an extent. Dropping it gives it back.
pub struct Memory {
    home: Arc<Memories>,
    /// Empty only while it is dropped.
    allocation: Option<Allocation>,
}

impl Memories {
    /// Keeps a quarter of `bytes_max` for the next extents, and none if there is more in use and kept than that.
    pub fn new(extent_bytes: usize, bytes_max: usize) -> Arc<Memories> {
        let total_max = bytes_max / extent_bytes;
        let stock = Mutex::default();
        Arc::new(Memories { extent_bytes, kept_max: total_max.div_ceil(4), total_max, stock })
    }

    pub fn take(self: &Arc<Self>) -> Memory {
        let free = {
            let mut stock = self.stock.lock();
            let free = stock.free.pop();
            stock.total += usize::from(free.is_none());
            free
        };
        let allocation = free.unwrap_or_else(|| Allocation::new(self.extent_bytes));
        Memory { home: Arc::clone(self), allocation: Some(allocation) }
    }

    /// Gives back to the system what is not in use.
    pub fn free_kept(&self) {
        let free = {
            let mut stock = self.stock.lock();
            stock.total -= stock.free.len();
            std::mem::take(&mut stock.free)
        };
        drop(free);
    }

    fn give_back(&self, allocation: Allocation) {
        let mut stock = self.stock.lock();
        if stock.free.len() < self.kept_max && stock.total <= self.total_max {
            stock.free.push(allocation);
        } else {
            stock.total -= 1;
        }
    }
}

impl Allocation {
    fn new(bytes: usize) -> Allocation {
        let bytes = vec![0; bytes + ALIGNMENT];
        let unaligned = bytes.as_ptr().addr() % ALIGNMENT;
        Allocation { padding: (ALIGNMENT - unaligned) % ALIGNMENT, bytes }
    }
}

impl Memory {
    /// The same memory as bytes that nobody changes.
    pub fn share(self: &Arc<Self>) -> Bytes {
        Bytes::from_owner(SharedMemory(Arc::clone(self)))
    }

    /// Copies it if it is still shared.
    pub fn unshare(self: Arc<Self>) -> Memory {
        Arc::try_unwrap(self).unwrap_or_else(|shared| {
            let mut copy = shared.home.take();
            copy.copy_from_slice(&shared);
            copy
        })
    }

    fn allocation(&self) -> &Allocation {
        self.allocation.as_ref().expect("it is not being dropped")
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let Allocation { bytes, padding } = self.allocation();
        &bytes[*padding..padding + self.home.extent_bytes]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        let Allocation { bytes, padding } = self.allocation.as_mut().expect("it is not being dropped");
        &mut bytes[*padding..*padding + self.home.extent_bytes]
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(allocation) = self.allocation.take() {
            self.home.give_back(allocation);
        }
    }
}

struct SharedMemory(Arc<Memory>);

impl AsRef<[u8]> for SharedMemory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
impl Memories {
    /// The free ones, and all.
    pub fn stock_for_test(&self) -> (usize, usize) {
        let stock = self.stock.lock();
        (stock.free.len(), stock.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_an_extent_is_aligned() {
        for bytes in [64, 4096, 1 << 20] {
            let memory = Arc::new(Memories::new(bytes, bytes).take());
            assert_eq!(memory.len(), bytes);
            let shared = memory.share();
            assert_eq!((shared.len(), shared.as_ptr().addr() % ALIGNMENT), (bytes, 0));
        }
    }

    #[test]
    fn a_part_of_the_free_memory_is_kept_and_used_again() {
        let memories = Memories::new(64, 8 * 64);
        let taken: Vec<Memory> = (0..8).map(|_| memories.take()).collect();
        assert_eq!(memories.stock_for_test(), (0, 8));
        drop(taken);
        assert_eq!(memories.stock_for_test(), (2, 2));
        let again = memories.take();
        assert_eq!(memories.stock_for_test(), (1, 2));
        memories.free_kept();
        assert_eq!(memories.stock_for_test(), (0, 1));
        drop(again);
        let over: Vec<Memory> = (0..9).map(|_| memories.take()).collect();
        assert_eq!(memories.stock_for_test(), (0, 9));
        let mut over = over.into_iter();
        drop(over.next());
        assert_eq!(memories.stock_for_test(), (0, 8), "more than the bound is not kept");
        drop(over.next());
        assert_eq!(memories.stock_for_test(), (1, 8));
    }

    #[test]
    fn memory_that_is_still_shared_is_copied_before_it_changes() {
        let memories = Memories::new(64, 8 * 64);
        let mut memory = memories.take();
        memory.fill(1);
        let memory = Arc::new(memory);
        let shared = memory.share();
        let mut own = memory.unshare();
        own.fill(2);
        assert!(shared.iter().all(|byte| *byte == 1));
        let memory = Arc::new(own);
        drop(memory.share());
        let place = memory.as_ptr();
        assert_eq!(memory.unshare().as_ptr(), place, "not shared any more");
    }
}
