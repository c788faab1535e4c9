//! Ranges of a replica: reserved, freed, found, copied. What changes it goes as a write does, under its ordering.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use api::{Advice, Content, PoolError, Stretch};
use io_engine::{range, write};
use types::{ByteRange, Epoch};

use super::Replica;
use crate::shared::Shared;
use crate::store::look_at;

impl Replica {
    pub fn allocate(&self, shared: &Shared, epoch: Epoch, bytes: ByteRange) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.admit_change(shared, epoch)?;
        if bytes.end() > write::OFFSET_MAX {
            return Err(PoolError::TooLarge);
        }
        // Some of it may be there already: which, the file system does not say.
        if !shared.space.admit_bytes(shared.store.root(), bytes.end() - bytes.offset()) {
            return Err(PoolError::NoSpace(shared.id()));
        }
        let reserved = range::allocate(self.create(shared)?, bytes);
        self.changed(shared);
        reserved.map_err(|errno| shared.failure("reserve space", errno))
    }

    pub fn deallocate(&self, shared: &Shared, epoch: Epoch, bytes: ByteRange) -> Result<(), PoolError> {
        let _ordering = self.ordering.read();
        self.admit_change(shared, epoch)?;
        let Some(file) = self.open_file() else { return Ok(()) };
        let freed = range::deallocate(file, bytes);
        self.changed(shared);
        freed.map_err(|errno| shared.failure("free space", errno))
    }

    pub fn copy_from(
        &self,
        shared: &Shared,
        epoch: Epoch,
        source: &OwnedFd,
        stretch: Stretch,
    ) -> Result<u64, PoolError> {
        let _ordering = self.ordering.read();
        let file = self.prepare_target(shared, epoch, stretch)?;
        let copied = range::copy(source.as_fd(), file, stretch);
        self.changed(shared);
        let copied = copied.map_err(|errno| shared.failure("copy data", errno))?;
        shared.counters.written_bytes.add(copied);
        Ok(copied)
    }

    pub fn share_from(
        &self,
        shared: &Shared,
        epoch: Epoch,
        source: &OwnedFd,
        stretch: Stretch,
    ) -> Result<bool, PoolError> {
        let _ordering = self.ordering.read();
        let file = self.prepare_target(shared, epoch, stretch)?;
        let cloned = range::clone(source.as_fd(), file, stretch);
        self.changed(shared);
        cloned.map_err(|errno| shared.failure("share data", errno))
    }

    /// Behind the end of the replica, and where it has no file, all is a hole.
    pub fn seek(&self, shared: &Shared, offset: u64, content: Content) -> Result<Option<u64>, PoolError> {
        match (self.open_file(), content) {
            (Some(file), _) => {
                range::seek(file, offset, content).map_err(|errno| shared.failure("find data", errno))
            }
            (None, Content::Hole) => Ok(Some(offset)),
            (None, Content::Data) => Ok(None),
        }
    }

    pub fn advise(&self, shared: &Shared, bytes: ByteRange, advice: Advice) -> Result<(), PoolError> {
        let Some(file) = self.open_file() else { return Ok(()) };
        range::advise(file, bytes, advice).map_err(|errno| shared.failure("take advice", errno))
    }

    /// The file to copy to, if there is room for what may be added to it in one go.
    fn prepare_target(
        &self,
        shared: &Shared,
        epoch: Epoch,
        stretch: Stretch,
    ) -> Result<BorrowedFd<'_>, PoolError> {
        self.admit_change(shared, epoch)?;
        let end = stretch.to.checked_add(stretch.length).filter(|end| *end <= write::OFFSET_MAX);
        let end = end.ok_or(PoolError::TooLarge)?;
        let size = match self.open_file() {
            Some(file) => look_at(file).map_err(|errno| shared.failure("copy data", errno))?.size,
            None => 0,
        };
        let added = end.saturating_sub(size.max(stretch.to)).min(range::COPY_BYTES_MAX);
        if added > 0 && !shared.space.admit_bytes(shared.store.root(), added) {
            return Err(PoolError::NoSpace(shared.id()));
        }
        self.create(shared)
    }

    fn admit_change(&self, shared: &Shared, epoch: Epoch) -> Result<(), PoolError> {
        self.load(shared)?;
        self.check_epoch(epoch)?;
        self.check_unbroken(shared)
    }

    /// Also after a failure, which may have come half-way.
    fn changed(&self, shared: &Shared) {
        self.note_write();
        shared.index.note(self.file);
    }
}
