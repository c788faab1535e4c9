//! Byte-range locks over all files, within the bounds of a file and of a holder.

use types::{ByteRange, FileId};

use super::entries::Entries;
use crate::limits::Limits;
use crate::locks::Changed;
use crate::{FileStateError, Holder, LockKind, Owner};

pub struct RangeLocks<'a> {
    pub(super) limits: &'a Limits,
    pub(super) entries: &'a mut Entries,
}

impl RangeLocks<'_> {
    pub fn lock(
        &mut self,
        file: FileId,
        owner: Owner,
        range: ByteRange,
        kind: LockKind,
    ) -> Result<(), FileStateError> {
        if let Some(lock) = self.entries.of(file).test_lock(Some(owner), range, kind) {
            return Err(FileStateError::Locked(lock));
        }
        self.set_range(file, owner, range, Some(kind))?;
        // The waits of the owner that this lock fulfils.
        self.entries.forget_waiters(file, |waiter| {
            waiter.owner == owner
                && range.contains(waiter.range)
                && (kind == LockKind::Write || waiter.kind == LockKind::Read)
        });
        Ok(())
    }

    /// Unlocking what is not locked is fine. Splitting a lock makes one more, and may so meet the bound.
    pub fn unlock(&mut self, file: FileId, owner: Owner, range: ByteRange) -> Result<(), FileStateError> {
        if self.entries.of(file).locks_of(owner) == 0 {
            return Ok(());
        }
        self.set_range(file, owner, range, None)
    }

    /// All locks of an owner.
    pub fn release(&mut self, file: FileId, owner: Owner) {
        let Some(known) = self.entries.get_mut(file) else { return };
        let released = known.locks.release(owner);
        self.entries.stir(file);
        self.entries.holders.enter(owner.holder, file).locks -= released;
        self.entries.settle(file, owner.holder);
    }

    fn set_range(
        &mut self,
        file: FileId,
        owner: Owner,
        range: ByteRange,
        kind: Option<LockKind>,
    ) -> Result<(), FileStateError> {
        let changed = self.entries.of(file).locks.change(owner, range, kind);
        self.judge_bounds(file, owner.holder, &changed)?;
        let delta = changed.delta;
        self.entries.enter(file).locks.apply(changed);
        if kind != Some(LockKind::Write) {
            self.entries.stir(file);
        }
        let held = self.entries.holders.enter(owner.holder, file);
        held.locks =
            held.locks.checked_add_signed(delta).expect("a holder's locks are the sum over its files");
        self.entries.settle(file, owner.holder);
        Ok(())
    }

    fn judge_bounds(&self, file: FileId, holder: Holder, changed: &Changed) -> Result<(), FileStateError> {
        let Ok(more) = usize::try_from(changed.delta) else { return Ok(()) };
        if more == 0 {
            return Ok(());
        }
        if self.entries.of(file).locks.count() + more > self.limits.locks_per_file {
            return Err(FileStateError::Limit("locks of a file"));
        }
        if self.entries.holders.held(holder).locks + more > self.limits.locks_per_holder {
            return Err(FileStateError::Limit("locks of a client"));
        }
        Ok(())
    }
}
