//! Moving a replica to another pool while clients work.
//!
//! The copy is a row in the state *filling* before its first byte is written, and the old replica is one in the state *stale*
//! until it is removed: rows are the durable list of what an interrupted move has left ([`Mover::settle`]). Between the two
//! is one commit, which happens only if nothing was written to the file since the copy began.
//!
//! While a file is moved no client is sent to a pool with it. Tickets to write of before are fenced off first. So whatever
//! changes the file goes through the head, and has its turn at the length (`lengths`). One that has opened the old replica
//! before, and gets its turn behind the move, opens the new one ([`Files::replicas_replaced`]).

mod copying;
mod settling;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{
    ANSWER_TIME, Birth, Grant, Locality, NamespaceError, Pool, PoolError, Presence, Purpose, ReplicaState,
    SelectError, Selection, Ticket, TicketMode,
};
use async_trait::async_trait;
use file_state::{Holder, Modes, Share};
use parking_lot::Mutex;
use thiserror::Error;
use types::{Attributes, Epoch, FileId, PoolId};

use crate::lengths::Alone;
use crate::replicas::{check_birth, lost};
use crate::{Files, FilesError, OpenFile, RegisterError};

use copying::Copying;

/// A writer that keeps its turn longer makes the move wait.
const TURN_TIME: Duration = Duration::from_secs(5);
/// It holds the file, so that nobody frees its replicas, and stands in nobody's way.
const HELD: Share = Share::new(Modes::NONE, Modes::NONE);

/// How fast copies go, and whether they go on.
#[async_trait]
pub trait CopyPace: Send + Sync {
    /// A piece of at most a MiB was read or written in that time. Returns when the next may follow; `false`: nobody wants
    /// the copy any more.
    async fn rest(&self, worked: Duration) -> bool;
}

/// The outcome of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The file is at another pool. The old replica is removed, or will be when nobody reads it.
    Done {
        to: PoolId,
    },
    /// The file is gone, or has no good replica at that pool.
    NothingToDo,
    Waits(MoveWaits),
}

/// Why a file cannot be moved now. It is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveWaits {
    /// Somebody has it open to write, or has a layout or a delegation to write.
    InUse,
    /// It has no name: an upload is under way, or somebody has it open.
    Unnamed,
    /// It was changed while it was copied.
    Changed,
    /// Clients may still write by tickets of a former start of the head.
    Reclaims,
    /// [`CopyPace::rest`] said that nobody wants the copy.
    Unwanted,
}

/// Why a file stays where it is, until somebody does something about it.
#[derive(Debug, Error)]
pub enum MoveError {
    #[error("no other pool has room for it: {0}")]
    NoRoom(SelectError),
    /// The pool could be the one whose replica is right.
    #[error("{0} has a replica of it that the namespace does not know (see `forebay fsck`)")]
    Unknown(PoolId),
    #[error("it cannot be read: {0}")]
    Source(PoolError),
    #[error("it cannot be written to another pool: {0}")]
    Target(PoolError),
    #[error("{pool} gives other bytes than were written there, at offset {offset}")]
    Differs { pool: PoolId, offset: u64 },
    #[error(transparent)]
    Files(#[from] FilesError),
}

impl From<NamespaceError> for MoveError {
    fn from(error: NamespaceError) -> MoveError {
        MoveError::Files(error.into())
    }
}

/// Files that are being moved, and how many were.
#[derive(Default)]
pub(crate) struct Moving {
    /// Leaf lock.
    files: Mutex<BTreeSet<FileId>>,
    replaced: AtomicU64,
}

impl Files {
    /// Moves when a good replica has become one that is not read and written. A caller that finds it as it was when it
    /// opened a replica need not ask where the file is now.
    pub(crate) fn replicas_replaced(&self) -> u64 {
        self.moving.replaced.load(Ordering::Acquire)
    }

    pub(crate) fn is_moving(&self, file: FileId) -> bool {
        self.moving.files.lock().contains(&file)
    }

    /// To move replicas. Once, for it is a door of the conflict table.
    pub fn mover(self: &Arc<Self>) -> Result<Mover, RegisterError> {
        let holder = Holder::of(self.register("moves of replicas")?, 1);
        Ok(Mover { files: Arc::clone(self), holder })
    }
}

/// Moves replicas, and clears up what interrupted moves have left.
#[derive(Clone)]
pub struct Mover {
    files: Arc<Files>,
    holder: Holder,
}

/// A file that is being moved by nobody else while this lives.
struct InMotion {
    files: Arc<Files>,
    file: FileId,
}

impl InMotion {
    fn begin(files: &Arc<Files>, file: FileId) -> Option<InMotion> {
        let is_first = files.moving.files.lock().insert(file);
        is_first.then(|| InMotion { files: Arc::clone(files), file })
    }
}

impl Drop for InMotion {
    fn drop(&mut self) {
        self.files.moving.files.lock().remove(&self.file);
    }
}

/// A move that was begun. Its parts keep the file as it is also when the caller is dropped.
struct Begun {
    /// As of the row of the copy.
    file: Attributes,
    from: Arc<dyn Pool>,
    to: Arc<dyn Pool>,
    /// Of the old replica: it may be longer than its file.
    length: u64,
}

impl Begun {
    /// Also of an empty file: one that was here before would not be made again for a write.
    async fn make(&self) -> Result<(), PoolError> {
        self.to.open(&self.ticket(Presence::Filling)).await?;
        let born = [(self.file.file, Birth::of(self.file.birth))];
        self.to.make(&born, ANSWER_TIME).await.sole()?;
        // Tickets of an earlier stay there have lower epochs. Below that of the old replica, whose label is to be the highest.
        let fence = [(self.file.file, Epoch(self.file.epoch.0.saturating_sub(1)))];
        self.to.fence(&fence, ANSWER_TIME).await.sole()
    }

    /// For the bytes of the copy. One that went meanwhile is not made again.
    fn ticket_to_write(&self) -> Ticket {
        self.ticket(Presence::Made)
    }

    fn ticket(&self, presence: Presence) -> Ticket {
        let ticket = Grant { pool: self.to.id() }.own_ticket(&self.file, TicketMode::ReadWrite);
        Ticket { presence, ..ticket }
    }
}

type Held = Arc<(OpenFile, InMotion)>;

impl Mover {
    /// Moves the file from a pool to one that the manager chooses for it.
    pub async fn move_away(
        &self,
        file: FileId,
        from: PoolId,
        pace: &dyn CopyPace,
    ) -> Result<Moved, MoveError> {
        let files = &self.files;
        let Some(in_motion) = InMotion::begin(files, file) else { return Ok(Moved::Waits(MoveWaits::InUse)) };
        if files.before_denial().is_err() {
            return Ok(Moved::Waits(MoveWaits::Reclaims));
        }
        let seen = files.removals();
        let (found, locality) = match self.look(file).await? {
            Some((found, locality)) if locality.state_at(from) == Some(ReplicaState::Good) => {
                (found, locality)
            }
            _ => return Ok(Moved::NothingToDo),
        };
        if found.nlink == 0 {
            return Ok(Moved::Waits(MoveWaits::Unnamed));
        }
        if self.is_used(file) || !files.has_finished_cuts(file).await {
            return Ok(Moved::Waits(MoveWaits::InUse));
        }
        let held = match files.enter(&found, self.holder, HELD) {
            Ok(open) => Arc::new((open, in_motion)),
            Err(FilesError::Recalled) => return Ok(Moved::Waits(MoveWaits::InUse)),
            Err(error) => return Err(error.into()),
        };
        match files.judge_still_named(&found, seen).await {
            Ok(()) => {}
            Err(FilesError::Namespace(NamespaceError::Stale(_))) => return Ok(Moved::NothingToDo),
            Err(error) => return Err(error.into()),
        }
        let taken = self.without_copies(file, &locality).await;
        let moved = self.move_held(&found, from, taken, &held, pace).await;
        // A file that lost its name meanwhile is the reaper's from here on.
        drop(held);
        if matches!(moved, Ok(Moved::Done { .. })) {
            // The next look tries it again.
            if let Err(error) = self.settle(file).await {
                tracing::debug!(%file, pool = %from, %error, "cannot remove the old replica of a moved file yet");
            }
        }
        moved
    }

    /// The pools that have the file, once the copies are removed that interrupted moves have left, as far as their pools
    /// answer.
    async fn without_copies(&self, file: FileId, locality: &Locality) -> Vec<PoolId> {
        let mut taken = Vec::new();
        for replica in locality.replicas() {
            let is_removed =
                replica.state == ReplicaState::Filling && self.discard(file, replica.pool).await.is_ok();
            if !is_removed {
                taken.push(replica.pool);
            }
        }
        taken
    }

    /// To one pool after the other, until one has room.
    async fn move_held(
        &self,
        found: &Attributes,
        from: PoolId,
        mut tried: Vec<PoolId>,
        held: &Held,
        pace: &dyn CopyPace,
    ) -> Result<Moved, MoveError> {
        loop {
            let to = self.choose(found, from, &mut tried).await?;
            let moved = self.move_to(found.file, from, to, held, pace).await;
            if matches!(moved, Ok(Moved::Done { .. })) {
                return moved;
            }
            // Where that fails, the row stays, and with it what is to be done.
            if let Err(error) = self.discard(found.file, to).await {
                tracing::debug!(file = %found.file, pool = %to, %error, "cannot remove an incomplete replica yet");
            }
            match moved {
                Err(MoveError::Target(PoolError::NoSpace(_))) => {
                    tracing::debug!(file = %found.file, pool = %to, "pool has become full under a copy");
                }
                moved => return moved,
            }
        }
    }

    async fn look(&self, file: FileId) -> Result<Option<(Attributes, Locality)>, MoveError> {
        let services = &self.files.services;
        match services.namespace.attributes(file).await {
            Err(NamespaceError::Stale(_)) => Ok(None),
            found => Ok(Some((found?, services.locations.locality(file).await?))),
        }
    }

    fn is_used(&self, file: FileId) -> bool {
        let table = self.files.table();
        let entry = table.file(file);
        entry.is_open_for_writing() || entry.layout_holders().next().is_some()
    }

    /// A pool with room that has nothing of the file. All that were looked at are `tried` from then on.
    async fn choose(
        &self,
        found: &Attributes,
        from: PoolId,
        tried: &mut Vec<PoolId>,
    ) -> Result<PoolId, MoveError> {
        let facts =
            self.pool(from)?.facts(&[found.file], ANSWER_TIME).await.sole().map_err(MoveError::Source)?;
        // A sparse file needs less than it is long.
        let bytes = facts.map_or(found.size, |facts| facts.space_used.min(facts.size));
        let mut unknown = None;
        loop {
            let want = Selection {
                file: Some(found.file),
                owner: Some((found.uid, found.gid)),
                bytes,
                tried: &*tried,
                ..Selection::new(Purpose::Create)
            };
            let to = match self.files.choose(&want) {
                Ok(to) => to,
                Err(FilesError::Select(error)) => {
                    return Err(unknown.map_or(MoveError::NoRoom(error), MoveError::Unknown));
                }
                Err(error) => return Err(error.into()),
            };
            tried.push(to);
            match self.pool(to)?.facts(&[found.file], ANSWER_TIME).await.sole() {
                Ok(None) => return Ok(to),
                Ok(Some(_)) => unknown = Some(to),
                Err(error) => tracing::debug!(pool = %to, %error, "pool is not chosen for a copy"),
            }
        }
    }

    async fn move_to(
        &self,
        file: FileId,
        from: PoolId,
        to: PoolId,
        held: &Held,
        pace: &dyn CopyPace,
    ) -> Result<Moved, MoveError> {
        let (from, to) = (self.pool(from)?, self.pool(to)?);
        let begun = match self.files.services.locations.begin_filling(file, to.id()).await {
            Ok(begun) => begun,
            Err(NamespaceError::Stale(_)) => return Ok(Moved::NothingToDo),
            Err(NamespaceError::Moved) => return Ok(Moved::Waits(MoveWaits::Changed)),
            Err(error) => return Err(error.into()),
        };
        // From here on clients write nothing there: what comes late would be missed.
        let fenced = from.fence(&[(file, begun.epoch)], ANSWER_TIME).await.sole();
        fenced.map_err(MoveError::Source)?;
        // A pool whose lease is over counts as fenced, and may still do a write that began before.
        if !from.status().is_writable() {
            return Err(MoveError::Source(PoolError::Unknown(from.id())));
        }
        // The row of the copy: one without a row would be a foreign replica.
        self.files.services.locations.settle().await?;
        let length = self.source_length(&begun, &*from).await?;
        let begun = Arc::new(Begun { file: begun, from, to, length });
        begun.make().await.map_err(MoveError::Target)?;
        match Copying::new(&begun, &*self.files.services.clock, pace).run().await {
            Ok(true) => {}
            Ok(false) => return Ok(Moved::Waits(MoveWaits::Unwanted)),
            // It may have been cut while it was read.
            Err(MoveError::Source(_)) if self.has_changed(&begun.file).await => {
                return Ok(Moved::Waits(MoveWaits::Changed));
            }
            Err(error) => return Err(error),
        }
        self.put_in_place(begun, held).await
    }

    async fn has_changed(&self, file: &Attributes) -> bool {
        let now = self.files.services.namespace.attributes(file.file).await;
        !now.is_ok_and(|now| now.change == file.change)
    }

    /// Bytes behind the end of the file may be those of a client that has not told of them yet: they are copied too.
    async fn source_length(&self, file: &Attributes, from: &dyn Pool) -> Result<u64, MoveError> {
        let facts = from.facts(&[file.file], ANSWER_TIME).await.sole().map_err(MoveError::Source)?;
        match facts {
            None if file.size == 0 => Ok(0),
            None => Err(MoveError::Source(lost(from.id(), "is gone"))),
            Some(facts) => {
                check_birth(file, from.id(), &facts).map_err(MoveError::Source)?;
                match facts.size >= file.size {
                    true => Ok(facts.size),
                    false => Err(MoveError::Source(lost(from.id(), "ends before the length of the file"))),
                }
            }
        }
    }

    /// The last step, while nobody writes. It is completed also when the caller is dropped: a writer that has its turn behind
    /// it must learn of the new place.
    async fn put_in_place(&self, begun: Arc<Begun>, held: &Held) -> Result<Moved, MoveError> {
        let alone = tokio::time::timeout(TURN_TIME, self.files.lengths.alone(begun.file.file)).await;
        let Ok(alone) = alone else { return Ok(Moved::Waits(MoveWaits::InUse)) };
        let (files, held) = (Arc::clone(&self.files), Arc::clone(held));
        let step = async move {
            let _held = held;
            replace(&files, &begun, alone).await
        };
        self.files.tasks.carry_on(step).await
    }

    fn pool(&self, id: PoolId) -> Result<Arc<dyn Pool>, MoveError> {
        let pool = self.files.services.pools.pool(id);
        pool.ok_or(MoveError::Files(PoolError::Offline(id).into()))
    }
}

async fn replace(files: &Files, begun: &Begun, _alone: Alone) -> Result<Moved, MoveError> {
    let Begun { file, from, to, length } = begun;
    require_whole(file, &**to, *length).await.map_err(MoveError::Target)?;
    let locations = &files.services.locations;
    let replaced = locations.replace_location(file.file, from.id(), to.id(), file.change).await;
    // Also where it is not known whether it was done.
    files.moving.replaced.fetch_add(1, Ordering::AcqRel);
    let after = match replaced {
        Ok(after) => after,
        Err(NamespaceError::Moved) => return Ok(Moved::Waits(MoveWaits::Changed)),
        Err(NamespaceError::Stale(_)) => return Ok(Moved::NothingToDo),
        Err(error) => return Err(error.into()),
    };
    // Before anybody writes there: a power cut would make an incomplete copy of it again.
    locations.settle().await?;
    // The label with the highest epoch is that of the replica to believe, if the namespace is lost.
    if let Err(error) = to.fence(&[(file.file, after.epoch)], ANSWER_TIME).await.sole() {
        tracing::warn!(file = %file.file, pool = %to.id(), %error, "cannot write the epoch of a moved file to its label");
    }
    Ok(Moved::Done { to: to.id() })
}

/// The pool says just now that it has so many bytes of the file.
async fn require_whole(file: &Attributes, pool: &dyn Pool, length: u64) -> Result<(), PoolError> {
    if length == 0 {
        return Ok(());
    }
    match pool.facts(&[file.file], ANSWER_TIME).await.sole()? {
        None => Err(lost(pool.id(), "is gone")),
        Some(facts) => {
            check_birth(file, pool.id(), &facts)?;
            if facts.size >= length {
                Ok(())
            } else {
                Err(lost(pool.id(), "ends before the length of the file"))
            }
        }
    }
}
