//! The locks by path as all requests share them: the table, the changes that wait for each other, and the opens in the
//! conflict table that deny writing to other doors. HTTP is not known here.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use file_state::{Holder, Modes, Owner, Share};
use files::Files;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Notify;
use types::{Attributes, Clock, FileId, FileKind, Name};

use crate::lock_table::{BeginError, Lock, LockError, LockOwner, LockTable, Open, PathChange};

/// The share that a lock has towards other doors.
pub(crate) const DENY_WRITING: Share = Share::new(Modes::READ, Modes::WRITE);

/// A lock cannot deny what an open of another door does already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an NFS client has the file open for writing")]
pub(crate) struct OpenForWriting;

pub(crate) struct PathLocks {
    /// Leaf lock.
    table: Mutex<LockTable>,
    /// A change that locks had to wait for is done.
    changes_ended: Notify,
    /// The holder of locks in the conflict table, apart from that of requests, since locks outlive requests.
    holder: Holder,
    files: Arc<Files>,
    clock: Arc<dyn Clock>,
    /// How long locks and changes wait for changes under way.
    patience: Duration,
}

/// Changes under way; they end when it is dropped. While it lives no lock is given that would have forbidden them.
pub(crate) struct PathChangeGuard {
    locks: Arc<PathLocks>,
    numbers: Range<u64>,
}

impl Drop for PathChangeGuard {
    fn drop(&mut self) {
        self.locks.table.lock().end(self.numbers.clone());
        self.locks.changes_ended.notify_waiters();
    }
}

/// Locks of a name that deny writing to the file that has it and to one that is to get it. When this is dropped it is
/// settled which of them has it in the end.
pub(crate) struct Carried {
    locks: Arc<PathLocks>,
    tokens: Vec<String>,
    /// The file that does not have the name, or not any more.
    without: Option<FileId>,
}

impl Carried {
    pub fn given(&mut self, replaced: Option<FileId>) {
        self.without = replaced;
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        let Some(without) = self.without else { return };
        for token in &self.tokens {
            self.locks.end_denials(token, |file| file == without);
        }
    }
}

impl PathLocks {
    pub fn new(
        locks_max: usize,
        holder: Holder,
        (files, clock): (Arc<Files>, Arc<dyn Clock>),
        patience: Duration,
    ) -> PathLocks {
        let table = Mutex::new(LockTable::new(locks_max));
        PathLocks { table, changes_ended: Notify::new(), holder, files, clock, patience }
    }

    /// Whether locks forbid a change to this owner. For a look ahead, and for what is changed before anything else is
    /// awaited; else see `begin`.
    pub fn judge(&self, owner: &LockOwner, change: &PathChange) -> Result<(), BeginError> {
        match self.table.lock().judge(change, &owner.principal, &owner.tokens) {
            None => Ok(()),
            Some(lock) => Err(BeginError::Locked { root_href: lock.root_href.clone() }),
        }
    }

    /// Asks as `judge` does, and keeps locks that would forbid these changes away until they are done. Waits while what
    /// they change is being moved. Then the resources are to be looked at again: see `Conditions::still_at`.
    pub async fn begin(
        self: &Arc<Self>,
        owner: &LockOwner,
        changes: Vec<PathChange>,
    ) -> Result<PathChangeGuard, BeginError> {
        self.begin_within(owner, changes, self.patience).await
    }

    /// As `begin`, with a time of its own to wait.
    pub async fn begin_within(
        self: &Arc<Self>,
        owner: &LockOwner,
        changes: Vec<PathChange>,
        patience: Duration,
    ) -> Result<PathChangeGuard, BeginError> {
        let begin = || match self.table.lock().begin(changes.clone(), &owner.principal, &owner.tokens) {
            Err(BeginError::Moving) => None,
            begun => Some(begun),
        };
        let begun = self.as_changes_end(patience, begin).await.unwrap_or(Err(BeginError::Moving));
        Ok(PathChangeGuard { locks: Arc::clone(self), numbers: begun? })
    }

    /// Puts the lock into the table. Changes that were let through before it are waited for, so that none is done to
    /// what is locked after the client was told that it is.
    pub async fn add(&self, lock: &mut Lock) -> Result<(), LockError> {
        let add = || {
            self.end_expired();
            lock.expires = self.clock.monotonic() + lock.timeout;
            let added = self.table.lock().add(lock.clone());
            (added != Err(LockError::Changing)).then_some(added)
        };
        self.as_changes_end(self.patience, add).await.unwrap_or(Err(LockError::Changing))
    }

    /// Of the lock with this token, if it covers the path.
    pub fn find(&self, token: &str, path: &[Name]) -> Option<Lock> {
        let table = self.table.lock();
        table.find(token).filter(|_| table.covers(token, path)).cloned()
    }

    pub fn covering(&self, path: &[Name]) -> Vec<Lock> {
        self.table.lock().covering(path).cloned().collect()
    }

    /// The owner's lock of the path that it has submitted the token of, which lasts so long from now.
    pub fn refresh(&self, owner: &LockOwner, path: &[Name], timeout: Duration) -> Option<Lock> {
        let now = self.clock.monotonic();
        let mut table = self.table.lock();
        let token = owner.tokens.iter().find(|token| {
            table.covers(token, path)
                && table.find(token).is_some_and(|lock| lock.principal == owner.principal)
        })?;
        table.refresh(token, timeout, now).cloned()
    }

    /// `false`: it has gone already.
    pub fn remove(&self, token: &str) -> bool {
        let gone = self.table.lock().remove(token);
        gone.inspect(|lock| self.close(&lock.opens)).is_some()
    }

    /// The locks of what was removed or moved away.
    pub fn forget_tree(&self, path: &[Name]) {
        let gone = self.table.lock().remove_tree(path);
        gone.iter().for_each(|lock| self.close(&lock.opens));
    }

    /// The locks of what was in a directory that is replaced.
    pub fn forget_members(&self, path: &[Name]) {
        let gone = self.table.lock().remove_members(path);
        gone.iter().for_each(|lock| self.close(&lock.opens));
    }

    pub fn end_expired(&self) {
        let now = self.clock.monotonic();
        let over = self.table.lock().expire(now);
        over.iter().for_each(|lock| self.close(&lock.opens));
    }

    /// For a file that is about to get the name: what denies writing to other doors is there before it can be opened.
    pub fn carry(self: &Arc<Self>, path: &[Name], file: &Attributes) -> Result<Carried, OpenForWriting> {
        let tokens = self.table.lock().tokens_at(path);
        let carried = Carried { locks: Arc::clone(self), tokens, without: Some(file.file) };
        carried.tokens.iter().try_for_each(|token| self.deny_writing(token, file))?;
        Ok(carried)
    }

    /// To other doors, for as long as there is the lock.
    pub fn deny_writing(&self, token: &str, file: &Attributes) -> Result<(), OpenForWriting> {
        let is_denied = |lock: &Lock| lock.opens.iter().any(|(denied, _)| *denied == file.file);
        if file.kind != FileKind::Regular || self.table.lock().find(token).is_some_and(is_denied) {
            return Ok(());
        }
        let owner = self.files.owner(self.holder);
        if self.files.table().open(file.file, owner, DENY_WRITING).is_err() {
            return Err(OpenForWriting);
        }
        let open = (file.file, owner.number);
        if !self.table.lock().hold(token, open) {
            self.close(&[open]);
        }
        Ok(())
    }

    /// Other doors may write such files again, whatever has become of the lock.
    pub fn end_denials(&self, token: &str, is_over: impl Fn(FileId) -> bool) {
        let over = self.table.lock().take_opens(token, is_over);
        self.close(&over);
    }

    fn close(&self, opens: &[Open]) {
        let mut table = self.files.table();
        for (file, number) in opens {
            table.close(*file, Owner { holder: self.holder, number: *number });
        }
    }

    /// Tries again whenever a change has ended.
    async fn as_changes_end<T>(
        &self,
        patience: Duration,
        mut attempt: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let done = async {
            loop {
                let ended = self.changes_ended.notified();
                tokio::pin!(ended);
                // Registered before looking, or an end in between would be missed.
                ended.as_mut().enable();
                if let Some(done) = attempt() {
                    return done;
                }
                ended.await;
            }
        };
        tokio::time::timeout(patience, done).await.ok()
    }
}
