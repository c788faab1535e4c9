//! Ranges of a replica: reserved, freed, found, copied. A change goes as a write does, under its ordering.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use api::{Advice, PoolError, RangeKind, Stretch};
use io_engine::{range, write};
use rustix::io::Errno;
use types::ByteRange;

use super::{Claim, Replica};
use crate::parts::PoolParts;
use crate::store::{Extent, look_at};

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
        let reserved = range::allocate(self.create(shared)?, bytes);
        self.changed(shared);
        reserved.map_err(|errno| shared.write_failure("reserve space", errno))
    }

    pub fn deallocate(&self, shared: &PoolParts, claim: Claim, bytes: ByteRange) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.admit_change(shared, claim)?;
        if self.open_file().is_none() {
            return Ok(());
        }
        let freed = range::deallocate(self.create(shared)?, bytes);
        self.changed(shared);
        freed.map_err(|errno| shared.write_failure("free space", errno))
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
            self.admit_bytes(shared, extent, length - 1, length)?;
        }
        let extended = range::extend(self.create(shared)?, length);
        self.changed(shared);
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
        let lengthened = self.cut(shared, self.create(shared)?, length);
        self.changed(shared);
        lengthened.map_err(|errno| shared.write_failure("extend a replica", errno))
    }

    pub fn copy_from(
        &self,
        shared: &PoolParts,
        claim: Claim,
        source: &OwnedFd,
        stretch: Stretch,
    ) -> Result<u64, PoolError> {
        let _ordering = self.ordering.read();
        let file = self.prepare_target(shared, claim, stretch)?;
        let copied = range::copy(source.as_fd(), file, stretch);
        self.changed(shared);
        let copied = copied.map_err(|errno| shared.write_failure("copy data", errno))?;
        shared.counters.written_bytes.add(copied);
        Ok(copied)
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
        let cloned = range::clone(source.as_fd(), file, stretch);
        self.changed(shared);
        cloned.map_err(|errno| shared.write_failure("share data", errno))
    }

    /// Behind the end of the replica, and where it has no file, all is a hole.
    pub fn seek(&self, shared: &PoolParts, offset: u64, kind: RangeKind) -> Result<Option<u64>, PoolError> {
        match (self.open_file(), kind) {
            (Some(file), _) => {
                range::seek(file, offset, kind).map_err(|errno| shared.failure("find data", errno))
            }
            (None, RangeKind::Hole) => Ok(Some(offset)),
            (None, RangeKind::Data) => Ok(None),
        }
    }

    pub fn advise(&self, shared: &PoolParts, bytes: ByteRange, advice: Advice) -> Result<(), PoolError> {
        let Some(file) = self.open_file() else { return Ok(()) };
        range::advise(file, bytes, advice).map_err(|errno| shared.failure("take advice", errno))
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
        self.admit_bytes(shared, extent, stretch.to, end)?;
        self.create(shared)
    }

    /// Takes the space that `[offset, end)` may need in the file.
    pub(super) fn admit_bytes(
        &self,
        shared: &PoolParts,
        extent: Extent,
        offset: u64,
        end: u64,
    ) -> Result<(), PoolError> {
        let added = shared.store.space_for(extent, offset, end);
        if added == 0 || shared.space.admit_bytes(shared.store.root(), added) {
            return Ok(());
        }
        Err(PoolError::NoSpace(shared.id()))
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
        self.load(shared)?;
        self.check_claim(shared, claim)?;
        self.learn_birth(claim.birth);
        self.check_unbroken(shared)?;
        self.check_present(shared, claim)?;
        let Some(file) = self.open_file() else { return Ok(Extent::NONE) };
        let known = self.known();
        let extent = look_at(file).map_err(|errno| shared.failure("look at a replica", errno))?;
        self.check_linked(shared, extent)?;
        let end = if offset <= extent.size { extent.size.max(end) } else { extent.size };
        self.check_end(shared, known, end)?;
        Ok(extent)
    }

    /// Also after a failure, which may have come half-way.
    fn changed(&self, shared: &PoolParts) {
        self.note_write();
        shared.index.note(self.file);
    }
}
