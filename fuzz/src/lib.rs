//! Checks that every target makes besides not crashing: a message makes the decoder allocate no more than a small
//! multiple of its own length, and a decoded value survives being encoded.

pub mod peer;
pub mod program;
pub mod world;

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use xdr::{Bytes, Decoder, Encoder, Xdr, XdrError};

/// The largest value in memory per four bytes of message, with room for a vector that doubles.
const BYTES_PER_MESSAGE_BYTE: usize = 1024;
const BYTES_FREE: usize = 64 * 1024;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counters are beside it.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn grow(size: usize) {
    let live = LIVE.fetch_add(size, Ordering::Relaxed) + size;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

/// Bytes that are allocated now.
pub fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

/// Runs `decode`, which was given `message_len` bytes, and checks what it allocated at its peak.
pub fn bounded<T>(message_len: usize, decode: impl FnOnce() -> T) -> T {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let outcome = decode();
    let allocated = PEAK.load(Ordering::Relaxed) - before;
    let limit = BYTES_FREE + BYTES_PER_MESSAGE_BYTE * message_len;
    assert!(allocated <= limit, "{message_len} bytes of message allocated {allocated}");
    outcome
}

/// Decodes one value from the front of a message; what decodes must come back from its own encoding.
pub fn survives<T: Xdr + PartialEq + Debug>(message: &Bytes) -> Option<T> {
    let decode = |message: Bytes| -> Result<(T, usize), XdrError> {
        let mut d = Decoder::new(message);
        let value = T::decode(&mut d)?;
        assert_eq!(d.position() + d.remaining(), d.position() + d.rest().len());
        Ok((value, d.position()))
    };
    let (value, taken) = bounded(message.len(), || decode(message.clone())).ok()?;
    let mut e = Encoder::new();
    value.encode(&mut e);
    let wire = e.into_bytes();
    assert_eq!(wire.len() % 4, 0, "XDR is made of words");
    assert!(wire.len() <= taken, "an encoding is not longer than what it was decoded from");
    let (again, len) = decode(wire.clone()).expect("what was encoded decodes");
    assert_eq!(len, wire.len());
    assert_eq!(again, value);
    Some(value)
}
