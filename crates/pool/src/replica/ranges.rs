//! Ranges of a replica: reserved, freed, found, copied. A change goes as a write does, under its ordering.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use api::{Advice, PoolError, RangeKind, Stretch};
use io_engine::range_lock::RangeGuard;
use io_engine::{range, write};
use rustix::io::Errno;
use types::ByteRange;

use super::gathered::CopyPart;
use super::{Claim, Replica};
use crate::parts::PoolParts;
use crate::store::{Extent, look_at};

/// The replica that is copied from, and its file.
pub struct CopySource {
    pub replica: Arc<Replica>,
    pub file: Arc<OwnedFd>,
}

impl Replica {
    pub fn allocate(&self, shared: &PoolParts, claim: Claim, bytes: ByteRange) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.admit_change(shared, claim)?;
        if bytes.end() > write::OFFSET_MAX {
            return Err(PoolError::TooLarge);
        }
        // Some of it may be there already: which, the file system does not say.
        if !shared.space.admit_bytes(shared.store.root(), bytes.end() - bytes.offset()) {
            return Err(PoolError::NoSpace(shared.id()));
        }
        let _range = self.lock(shared, bytes.offset(), bytes.length())?;
        let reserved = range::allocate(self.file.create(shared)?, bytes);
        if reserved.is_ok() {
            self.file.record().claim_length(bytes.end());
        }
        self.note_change(shared);
        reserved.map_err(|errno| shared.write_failure("reserve space", errno))
    }

    pub fn deallocate(&self, shared: &PoolParts, claim: Claim, bytes: ByteRange) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.admit_change(shared, claim)?;
        if self.file.open().is_none() {
            return Ok(());
        }
        let failed = |errno| shared.write_failure("free space", errno);
        let file = self.file.create(shared)?;
        // No flush of these bytes runs either.
        let _range = self.lock(shared, bytes.offset(), bytes.length())?;
        let size = look_at(file).map_err(failed)?.size;
        let freed = range::deallocate(file, bytes);
        self.note_change(shared);
        freed.map_err(failed)?;
        // In memory, as a truncation does: a full disk has no room for a flush. The file has not become shorter.
        self.discard_gathered(bytes, size);
        Ok(())
    }

    pub fn extend(&self, shared: &PoolParts, claim: Claim, length: u64) -> Result<(), PoolError> {
        let ordering = self.ordering.read();
        let extent = self.admit_change(shared, claim)?;
        if length > write::OFFSET_MAX {
            return Err(PoolError::TooLarge);
        }
        if length == 0 {
            return Ok(());
        }
        // Its last byte gets a block, if it is to become longer.
        if length > extent.size {
            shared.admit_bytes(extent, length - 1, length)?;
        }
        let extended = {
            let _range = self.lock(shared, length - 1, 1)?;
            range::extend(self.file.create(shared)?, length)
        };
        if extended.is_ok() {
            self.file.record().claim_length(length);
        }
        self.note_change(shared);
        if extended == Err(Errno::OPNOTSUPP) {
            drop(ordering);
            return self.lengthen(shared, claim, length);
        }
        extended.map_err(|errno| shared.write_failure("extend a replica", errno))
    }

    /// As [`Replica::extend`] where blocks cannot be reserved. Nothing is written, which might go over a byte that has come
    /// meanwhile; and it goes alone, for a length that is set cuts off what was written behind it.
    pub fn lengthen(&self, shared: &PoolParts, claim: Claim, length: u64) -> Result<(), PoolError> {
        let _ordering = self.ordering.write();
        if length <= self.admit_change(shared, claim)?.size {
            return Ok(());
        }
        let lengthened = self.file.record().cut(shared, self.file.create(shared)?, length);
        self.note_change(shared);
        lengthened.map_err(|errno| shared.write_failure("extend a replica", errno))
    }

    pub fn copy_from(
        &self,
        shared: &PoolParts,
        claim: Claim,
        source: &CopySource,
        stretch: Stretch,
    ) -> Result<u64, PoolError> {
        let _ordering = self.ordering.read();
        let file = self.prepare_target(shared, claim, stretch)?;
        let stretch = self.limit_to_flush(stretch);
        let _range = self.lock_flushed(shared, stretch.to, stretch.length)?;
        let copied = self.copy_merged(shared, file, source, stretch);
        if let Ok(copied) = copied {
            self.file.record().claim_length(stretch.to + copied);
        }
        self.note_change(shared);
        let copied = copied.map_err(|errno| shared.write_failure("copy data", errno))?;
        shared.counters.written_bytes.add(copied);
        Ok(copied)
    }

    /// Pieces of the source in turn, from its memory and from its file.
    fn copy_merged(
        &self,
        shared: &PoolParts,
        file: BorrowedFd<'_>,
        source: &CopySource,
        stretch: Stretch,
    ) -> Result<u64, Errno> {
        let mut done = 0;
        while done < stretch.length.min(range::COPY_BYTES_MAX) {
            let rest = stretch.behind(done);
            // The first part may be a hole of any length.
            let length_max = if done == 0 { u64::MAX } else { range::COPY_BYTES_MAX - done };
            let rest = Stretch { length: rest.length.min(length_max), ..rest };
            let part = source.replica.part_to_copy(rest.from, rest.length);
            let copied = match &part {
                CopyPart::Gathered(data) => {
                    let size = look_at(file)?.size;
                    let written =
                        shared.engine.path().write_locked(file, &self.io, size, rest.to, data, false);
                    written.map(|_| data.len() as u64)
                }
                CopyPart::InFile { length } => {
                    range::copy(source.file.as_fd(), file, Stretch { length: *length, ..rest })
                }
            };
            match copied {
                Ok(copied) => done += copied,
                Err(errno) if done == 0 => return Err(errno),
                // The next call meets it again.
                Err(_) => break,
            }
            if matches!(part, CopyPart::InFile { length } if length == rest.length) {
                break;
            }
        }
        Ok(done)
    }

    pub fn share_from(
        &self,
        shared: &PoolParts,
        claim: Claim,
        source: &OwnedFd,
        stretch: Stretch,
    ) -> Result<bool, PoolError> {
        let _ordering = self.ordering.read();
        let file = self.prepare_target(shared, claim, stretch)?;
        let _range = self.lock_flushed(shared, stretch.to, stretch.length)?;
        let cloned = range::clone(source.as_fd(), file, stretch);
        if cloned.is_ok() {
            self.file.record().claim_length(stretch.to + stretch.length);
        }
        self.note_change(shared);
        cloned.map_err(|errno| shared.write_failure("share data", errno))
    }

    /// Behind the end of the replica, and where it has no file, all is a hole.
    pub fn seek(&self, shared: &PoolParts, offset: u64, kind: RangeKind) -> Result<Option<u64>, PoolError> {
        let Some(file) = self.file.open() else {
            return Ok(match kind {
                RangeKind::Hole => Some(offset),
                RangeKind::Data => None,
            });
        };
        let in_file = |offset, kind| range::seek(file, offset, kind);
        let found = if self.has_gathered() {
            // A truncation cuts the file and then the memory.
            let _ordering = self.ordering.read();
            self.gathered_runs().seek(offset, kind, in_file)
        } else {
            in_file(offset, kind)
        };
        found.map_err(|errno| shared.failure("find data", errno))
    }

    pub fn advise(&self, shared: &PoolParts, bytes: ByteRange, advice: Advice) -> Result<(), PoolError> {
        let Some(file) = self.file.open() else { return Ok(()) };
        range::advise(file, bytes, advice).map_err(|errno| shared.failure("take advice", errno))
    }

    /// Before work for a change that its holder may not make.
    pub fn check_change(&self, shared: &PoolParts, claim: Claim) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.admit_change(shared, claim).map(drop)
    }

    /// Against writes of the same pages that run at once.
    pub(super) fn lock(
        &self,
        shared: &PoolParts,
        offset: u64,
        length: u64,
    ) -> Result<RangeGuard<'_>, PoolError> {
        let thresholds = || shared.engine.path().thresholds().contention;
        let locked = self.io().lock(offset, length, Instant::now(), thresholds);
        locked.map_err(|_| PoolError::Busy(shared.id()))
    }

    /// The file to copy to, if there is room for what may be added to it in one go.
    fn prepare_target(
        &self,
        shared: &PoolParts,
        claim: Claim,
        stretch: Stretch,
    ) -> Result<BorrowedFd<'_>, PoolError> {
        let extent = self.admit_change(shared, claim)?;
        let end = stretch.to.checked_add(stretch.length).filter(|end| *end <= write::OFFSET_MAX);
        let end = end.ok_or(PoolError::TooLarge)?.min(stretch.to + range::COPY_BYTES_MAX);
        shared.admit_bytes(extent, stretch.to, end)?;
        self.file.create(shared)
    }

    /// The file as it is, if its holder may change it.
    fn admit_change(&self, shared: &PoolParts, claim: Claim) -> Result<Extent, PoolError> {
        self.admit_write(shared, claim, 0, 0)
    }

    /// The same of a write of `[offset, end)`, which may bring back all that is missing at the file's end.
    pub(super) fn admit_write(
        &self,
        shared: &PoolParts,
        claim: Claim,
        offset: u64,
        end: u64,
    ) -> Result<Extent, PoolError> {
        let record = self.file.record();
        self.file.load(shared)?;
        record.check_claim(shared, claim)?;
        record.learn_birth(claim.birth);
        self.file.check_unbroken(shared)?;
        self.file.check_present(shared, claim)?;
        let Some(file) = self.file.open() else { return Ok(Extent::NONE) };
        let known = record.known_length();
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        self.file.check_linked(shared, extent)?;
        let end = if offset <= extent.size { extent.size.max(end) } else { extent.size };
        record.check_end(shared, known, end)?;
        Ok(extent)
    }
}
