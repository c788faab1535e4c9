//! Buffers for request bodies that come back when the last reader of their bytes drops them: a fresh megabyte costs
//! 256 page faults, about as much as filling it from a socket.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::budget::{Account, Charge};

/// Every body begins with this much, so that many slow uploads cost little memory; fast ones grow by fours, and are charged
/// for it.
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

    /// An empty buffer with room for `SIZES[size]` bytes, or for the least of them where there is no memory for so many.
    pub fn take(self: &Arc<Buffers>, size: usize, account: &Arc<Account>) -> Buffer {
        let charge = if size > 0 { account.take_whole(None, SIZES[size]) } else { None };
        let size = if charge.is_some() { size } else { 0 };
        let bytes = {
            let mut free = self.free.lock();
            let bytes = free.by_size[size].pop();
            free.bytes -= bytes.as_ref().map_or(0, |_| SIZES[size]);
            bytes
        };
        let bytes = bytes.unwrap_or_else(|| Vec::with_capacity(SIZES[size]));
        Buffer { bytes, size, home: Arc::clone(self), charge }
    }
}

pub(crate) struct Buffer {
    pub bytes: Vec<u8>,
    size: usize,
    home: Arc<Buffers>,
    /// Of a buffer that is larger than the least.
    charge: Option<Charge>,
}

impl Buffer {
    /// Bytes charged for this buffer.
    pub fn size_charged(&self) -> usize {
        self.charge.as_ref().map_or(0, Charge::bytes)
    }

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
    use std::net::IpAddr;

    use super::*;
    use crate::budget::Budget;

    fn account(bytes_max: usize) -> Arc<Account> {
        Budget::new(bytes_max, bytes_max).account(IpAddr::from([10, 0, 0, 1]))
    }

    #[test]
    fn a_buffer_is_used_again_when_its_last_slice_is_gone() {
        let (buffers, account) = (Buffers::new(1 << 20), account(0));
        let mut buffer = buffers.take(0, &account);
        buffer.bytes.extend_from_slice(b"secret");
        let place = buffer.bytes.as_ptr();
        let frozen = buffer.freeze();
        let slice = frozen.slice(1..3);
        drop(frozen);
        assert_ne!(buffers.take(0, &account).bytes.as_ptr(), place);
        drop(slice);
        let again: Vec<_> = (0..2).map(|_| buffers.take(0, &account)).collect();
        assert!(again.iter().any(|buffer| buffer.bytes.as_ptr() == place && buffer.bytes.is_empty()));
    }

    #[test]
    fn free_body_buffers_are_bounded() {
        let (buffers, account) = (Buffers::new(3 << 20), account(1 << 30));
        drop((0..20).map(|_| buffers.take(2, &account)).collect::<Vec<_>>());
        drop(buffers.take(0, &account));
        assert_eq!(buffers.free.lock().bytes, 3 << 20);
        drop(buffers.take(2, &account));
        assert_eq!(buffers.free.lock().bytes, 3 << 20);
    }

    #[test]
    fn where_there_is_no_memory_for_a_large_buffer_it_is_a_small_one() {
        let (buffers, account) = (Buffers::new(0), account(4 << 20));
        let taken: Vec<_> = (0..9).map(|_| buffers.take(2, &account)).collect();
        let large = taken.iter().filter(|buffer| buffer.room() == SIZES[2]).count();
        assert_eq!((large, taken.len()), (2, 9), "of one address, half of what is free");
        assert!(taken[2..].iter().all(|buffer| buffer.room() == SIZES[0]));
        drop(taken);
        assert_eq!(buffers.take(2, &account).room(), SIZES[2]);
    }
}
