//! Buffers for request bodies that come back when the last reader of their bytes drops them: a fresh megabyte costs
//! 256 page faults, about as much as filling it from a socket.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

/// Every body begins with this much, so that many slow uploads cost little memory; fast ones grow by fours.
pub(crate) const SIZES: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];

pub(crate) struct Buffers {
    kept_bytes_max: usize,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    bytes: usize,
    by_size: [Vec<Vec<u8>>; SIZES.len()],
}

impl Buffers {
    pub fn new(kept_bytes_max: usize) -> Arc<Buffers> {
        Arc::new(Buffers { kept_bytes_max, free: Mutex::default() })
    }

    /// An empty buffer with room for `SIZES[size]` bytes.
    pub fn take(self: &Arc<Buffers>, size: usize) -> Buffer {
        let bytes = {
            let mut free = self.free.lock();
            let bytes = free.by_size[size].pop();
            free.bytes -= bytes.as_ref().map_or(0, |_| SIZES[size]);
            bytes
        };
        let bytes = bytes.unwrap_or_else(|| Vec::with_capacity(SIZES[size]));
        Buffer { bytes, size, home: Arc::clone(self) }
    }
}

pub(crate) struct Buffer {
    pub bytes: Vec<u8>,
    size: usize,
    home: Arc<Buffers>,
}

impl Buffer {
    pub fn room(&self) -> usize {
        SIZES[self.size] - self.bytes.len()
    }

    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.home.free.lock();
        if free.bytes + SIZES[self.size] <= self.home.kept_bytes_max {
            self.bytes.clear();
            free.bytes += SIZES[self.size];
            free.by_size[self.size].push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_its_last_slice_is_gone() {
        let buffers = Buffers::new(1 << 20);
        let mut buffer = buffers.take(0);
        buffer.bytes.extend_from_slice(b"secret");
        let place = buffer.bytes.as_ptr();
        let frozen = buffer.freeze();
        let slice = frozen.slice(1..3);
        drop(frozen);
        assert_ne!(buffers.take(0).bytes.as_ptr(), place);
        drop(slice);
        let again: Vec<_> = (0..2).map(|_| buffers.take(0)).collect();
        assert!(again.iter().any(|buffer| buffer.bytes.as_ptr() == place && buffer.bytes.is_empty()));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffers = Buffers::new(3 << 20);
        drop((0..20).map(|_| buffers.take(2)).collect::<Vec<_>>());
        drop(buffers.take(0));
        assert_eq!(buffers.free.lock().bytes, 3 << 20);
        drop(buffers.take(2));
        assert_eq!(buffers.free.lock().bytes, 3 << 20);
    }
}
