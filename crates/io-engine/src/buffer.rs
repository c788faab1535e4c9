//! Read buffers that come back: a fresh megabyte costs 256 page faults, about as much as filling it.
//!
//! Large buffers are kept by size class when the last reader of their bytes drops them, up to a bound; small ones are
//! left to the allocator, which is good at them.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Below this the allocator serves from memory that it already has.
const SMALLEST_KEPT: usize = 64 << 10;
const CLASSES: usize = 7;
pub const LARGEST_KEPT: usize = SMALLEST_KEPT << (CLASSES - 1);

pub struct Buffers {
    /// Free buffers per class and class.
    kept_max: [usize; CLASSES],
    /// Locked for a push or a pop only.
    free: [Mutex<Vec<Vec<u8>>>; CLASSES],
}

impl Buffers {
    /// Keeps at most about `kept_bytes_max` of free buffers, the same share for each size.
    pub fn new(kept_bytes_max: usize) -> Arc<Buffers> {
        let kept_max = std::array::from_fn(|class| kept_bytes_max / CLASSES / (SMALLEST_KEPT << class));
        Arc::new(Buffers { kept_max, free: std::array::from_fn(|_| Mutex::new(Vec::new())) })
    }

    /// An empty buffer with room for `capacity` bytes.
    pub fn take(self: &Arc<Buffers>, capacity: usize) -> Buffer {
        let Some(class) = class_of(capacity) else {
            return Buffer { bytes: Vec::with_capacity(capacity), home: None };
        };
        let bytes = self.free[class].lock().pop();
        let bytes = bytes.unwrap_or_else(|| Vec::with_capacity(SMALLEST_KEPT << class));
        Buffer { bytes, home: Some((Arc::clone(self), class)) }
    }

    #[cfg(test)]
    fn free_bytes(&self) -> usize {
        self.free.iter().flat_map(|free| free.lock().iter().map(Vec::capacity).collect::<Vec<_>>()).sum()
    }
}

fn class_of(capacity: usize) -> Option<usize> {
    (SMALLEST_KEPT..=LARGEST_KEPT)
        .contains(&capacity)
        .then(|| (capacity.next_power_of_two() / SMALLEST_KEPT).trailing_zeros() as usize)
}

pub struct Buffer {
    pub bytes: Vec<u8>,
    home: Option<(Arc<Buffers>, usize)>,
}

impl Buffer {
    pub fn freeze(mut self) -> Bytes {
        match self.home {
            None => Bytes::from(std::mem::take(&mut self.bytes)),
            Some(_) => Bytes::from_owner(self),
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some((home, class)) = &self.home {
            let mut free = home.free[*class].lock();
            if free.len() < home.kept_max[*class] {
                self.bytes.clear();
                free.push(std::mem::take(&mut self.bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_buffer_is_used_again_and_starts_empty() {
        let buffers = Buffers::new(64 << 20);
        let mut first = buffers.take(1 << 20);
        first.bytes.extend_from_slice(b"secret");
        let address = first.bytes.as_ptr();
        let frozen = first.freeze();
        assert_eq!(&frozen[..], b"secret");
        let slice = frozen.slice(1..3);
        drop(frozen);
        assert_eq!(buffers.free_bytes(), 0, "a slice of it is still held");
        drop(slice);
        let again = buffers.take(1 << 20);
        assert_eq!(again.bytes.as_ptr(), address);
        assert!(again.bytes.is_empty());
    }

    #[test]
    fn free_buffers_are_bounded() {
        let buffers = Buffers::new(7 << 20);
        let many: Vec<_> = (0..20).map(|_| buffers.take(512 << 10)).collect();
        drop(many);
        assert_eq!(buffers.free_bytes(), 1 << 20);
        drop(buffers.take(LARGEST_KEPT + 1));
        drop(buffers.take(100));
        assert_eq!(buffers.free_bytes(), 1 << 20);
    }

    #[test]
    fn every_size_fits_its_class() {
        for capacity in [0, 1, SMALLEST_KEPT, SMALLEST_KEPT + 1, 1 << 20, LARGEST_KEPT, LARGEST_KEPT + 1] {
            assert!(Buffers::new(0).take(capacity).bytes.capacity() >= capacity);
        }
    }
}
