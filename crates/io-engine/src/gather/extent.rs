//! One aligned extent of a file: its memory and the ranges of it that were written.
//!
//! Memory is taken for the whole extent at once, so that a complete extent is one aligned buffer, which direct I/O can
//! write without a copy.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::budget::{Charge, Reserved};
use super::fragments::Fragments;
use super::memory::Memory;
use super::{FlushId, Piece};

/// The state of an extent that does not depend on whether it is open.
pub(super) struct About {
    pub fragments: Fragments,
    pub charge: Charge,
    pub opened: Instant,
    /// The number of the write that opened it.
    pub first_write: u64,
    pub writes: usize,
    /// A flush of it has failed. It is not merged with new writes until a flush has succeeded.
    pub has_failed: bool,
}

/// Takes writes.
pub(super) struct OpenExtent {
    memory: Memory,
    pub about: About,
    /// It has refused a write, for it had too many fragments.
    pub is_crowded: bool,
}

/// Handed out to be written to the file. Its bytes do not change.
pub(super) struct InFlight {
    pub id: FlushId,
    memory: Arc<Memory>,
    /// The same memory.
    data: Bytes,
    pub about: About,
}

impl OpenExtent {
    pub fn new(memory: Memory, charge: Charge, opened: Instant, first_write: u64) -> OpenExtent {
        let fragments = Fragments::default();
        let about = About { fragments, charge, opened, first_write, writes: 0, has_failed: false };
        OpenExtent { memory, about, is_crowded: false }
    }

    pub fn write(&mut self, at: Range<usize>, data: &[u8]) {
        self.memory[at.clone()].copy_from_slice(data);
        self.about.fragments.insert(at);
        self.about.writes += 1;
    }

    pub fn is_complete(&self) -> bool {
        self.about.fragments.bytes() == self.memory.len()
    }

    /// To be flushed without a wait for its age.
    pub fn is_ready(&self) -> bool {
        !self.about.has_failed && (self.is_crowded || self.is_complete())
    }

    /// Forgets the bytes from `end` on, and returns their number.
    pub fn cut(&mut self, end: usize) -> u64 {
        let before = self.about.fragments.bytes();
        self.about.fragments.cut(end);
        self.about.charge.shrink_to(self.about.fragments.len());
        (before - self.about.fragments.bytes()) as u64
    }

    /// Forgets the bytes of a range. `room`: for one more fragment, if there is any; without it, bytes amid a fragment become
    /// zeros. Returns the number of bytes that are forgotten.
    pub fn discard(&mut self, at: Range<usize>, room: Option<Reserved<'_>>) -> u64 {
        let before = self.about.fragments.bytes();
        if self.about.fragments.is_split_by(&at) {
            let Some(mut room) = room else {
                self.memory[at].fill(0);
                return 0;
            };
            room.grow(&mut self.about.charge, 1);
        }
        self.about.fragments.remove(at);
        self.about.charge.shrink_to(self.about.fragments.len());
        (before - self.about.fragments.bytes()) as u64
    }

    /// A byte that was written is zero, as if it had been written so.
    pub fn zero(&mut self, at: usize) {
        self.memory[at] = 0;
    }

    /// The bytes of a range, copied: later writes change the extent.
    pub fn copy(&self, base: u64, range: Range<usize>) -> impl Iterator<Item = Piece> {
        self.about.fragments.within(range).map(move |part| Piece {
            offset: base + part.start as u64,
            data: Bytes::copy_from_slice(&self.memory[part]),
        })
    }

    pub fn take_off(mut self, id: FlushId) -> InFlight {
        self.about.charge.leave_queue();
        let memory = Arc::new(self.memory);
        InFlight { id, data: memory.share(), memory, about: self.about }
    }

    /// This extent failed; `newer` has the bytes that were written to the same extent since it was taken.
    pub fn absorb(&mut self, newer: OpenExtent) {
        for fragment in newer.about.fragments.iter() {
            self.memory[fragment.clone()].copy_from_slice(&newer.memory[fragment.clone()]);
            self.about.fragments.insert(fragment);
        }
        self.about.writes += newer.about.writes;
        self.about.charge.absorb(newer.about.charge);
        self.about.charge.shrink_to(self.about.fragments.len());
    }
}

impl InFlight {
    /// The bytes of a range, shared with the extent.
    pub fn pieces(&self, base: u64, range: Range<usize>) -> impl Iterator<Item = Piece> {
        self.about
            .fragments
            .within(range)
            .map(move |part| Piece { offset: base + part.start as u64, data: self.data.slice(part) })
    }

    /// Its flush has failed. Copies the bytes if the flush still holds them.
    pub fn come_back(mut self) -> OpenExtent {
        self.about.has_failed = true;
        drop(self.data);
        OpenExtent { memory: self.memory.unshare(), about: self.about, is_crowded: false }
    }
}
