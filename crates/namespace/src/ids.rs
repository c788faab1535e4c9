//! Numbers that are never given twice: file ids and listing cookies, reserved in blocks.
//!
//! A block is durable before its first number is used, in either sync mode: a pool keeps data by file id, and a number
//! used twice would show one file's bytes in another. After a crash the rest of a block is skipped.

use std::io;

use crate::store::{NumberEnds, Store, StoreError, StoreResult};

const BLOCK_LEN: u64 = 1024;
/// The root is 1; cookies 0 to 2 mean something in NFS (RFC 8881 §18.23.3).
pub const FIRST: u64 = 3;

pub struct Ids {
    pub files: Block,
    pub cookies: Block,
}

pub struct Block {
    next: u64,
    end: u64,
}

impl Block {
    pub fn take(&mut self) -> Option<u64> {
        let id = (self.next < self.end).then_some(self.next)?;
        self.next += 1;
        Some(id)
    }

    /// None of those at hand is given.
    pub fn skip(&mut self) {
        self.next = self.end;
    }

    /// Every number that was given lies below.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Every number ever given lies below.
    pub fn end(&self) -> u64 {
        self.end
    }

    fn lacks(&self, needed: u64) -> bool {
        self.end - self.next < needed
    }
}

/// Why no number is given of which it could not be noted that it is.
pub fn uncovered(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::NoSpace(error.to_string()),
        io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}

impl Ids {
    /// Behind everything that was reserved before.
    pub fn new(ends: NumberEnds) -> Ids {
        let block = |end| Block { next: end, end };
        Ids { files: block(ends.files), cookies: block(ends.cookies) }
    }

    /// So many are not at hand of either kind.
    pub fn lack(&self, needed: u64) -> bool {
        self.files.lacks(needed) || self.cookies.lacks(needed)
    }

    /// Makes sure that `needed` numbers of each kind are at hand. `cover` notes beside the database up to where file ids are
    /// given.
    pub fn reserve(
        &mut self,
        store: &mut dyn Store,
        needed: u64,
        cover: &dyn Fn(u64) -> io::Result<()>,
    ) -> StoreResult<()> {
        if !self.lack(needed) {
            return Ok(());
        }
        // Of both by as much: from how far file ids have gone it follows how far cookies may have (`timeline::above`).
        let grown = |block: &Block| block.end + BLOCK_LEN.max(needed);
        let ends = NumberEnds { files: grown(&self.files), cookies: grown(&self.cookies) };
        store.reserve(ends)?;
        cover(ends.files).map_err(|error| uncovered(&error))?;
        (self.files.end, self.cookies.end) = (ends.files, ends.cookies);
        Ok(())
    }
}
