//! Remains of moves: copies that were not completed, and old replicas that are not needed any more.

use std::time::Duration;

use api::{ANSWER_TIME, FileLocations, Grant, Locality, NamespaceError, PoolError, ReplicaState, TicketMode};
use types::{Attributes, FileId, PoolId, Timestamp};

use super::{InMotion, MoveError, Mover, require_whole};
use crate::FilesError;
use crate::replicas::lost;

/// Somebody who has the file open may be reading the old replica, and has so long to come to its end.
const READING_TIME: Duration = Duration::from_secs(600);

impl Mover {
    /// Files with replicas that are not good, by id behind `after`.
    pub async fn unsettled(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, FilesError> {
        Ok(self.files.services.locations.unsettled(after, limit).await?)
    }

    /// Removes the copy that an interrupted move has left, and the old replica of one that was completed. One that somebody
    /// may be reading stays for a time.
    pub async fn settle(&self, file: FileId) -> Result<(), MoveError> {
        let Some(_in_motion) = InMotion::begin(&self.files, file) else { return Ok(()) };
        // The reaper has all replicas of a file without a name.
        let Some((found, locality)) = self.look(file).await?.filter(|(found, _)| found.nlink > 0) else {
            return Ok(());
        };
        for replica in locality.replicas() {
            match replica.state {
                ReplicaState::Filling => self.discard(file, replica.pool).await?,
                ReplicaState::Stale if self.may_be_read(file, replica.since) => {}
                ReplicaState::Stale => self.remove_stale(&found, &locality, replica.pool).await?,
                ReplicaState::Good | ReplicaState::Broken | ReplicaState::Missing => {}
            }
        }
        Ok(())
    }

    fn may_be_read(&self, file: FileId, since: Timestamp) -> bool {
        let age = self.files.services.clock.now().seconds.saturating_sub(since.seconds);
        self.files.is_in_use(file) && (0..READING_TIME.as_secs() as i64).contains(&age)
    }

    /// Removes a copy that is being made, unless it is good by now. The caller has the file in motion.
    pub(super) async fn discard(&self, file: FileId, pool: PoolId) -> Result<(), MoveError> {
        let locality = match self.files.services.locations.locality(file).await {
            Err(NamespaceError::Stale(_)) => return Ok(()),
            found => found?,
        };
        if locality.state_at(pool) != Some(ReplicaState::Filling) {
            return Ok(());
        }
        // The row is as it is believed to be, and another replica is good, on disk: this is asked of the database and not of
        // what is in memory, and of the other pool. A namespace that was put back may take the only replica for a copy.
        let found = match self.files.services.locations.begin_filling(file, pool).await {
            Err(NamespaceError::Moved | NamespaceError::Stale(_)) => return Ok(()),
            found => found?,
        };
        let good = locality.good_pools().next();
        let good = good.ok_or(MoveError::Target(lost(pool, "may be the last one")))?;
        self.require_on_disk(&found, good).await.map_err(MoveError::Source)?;
        self.files.services.locations.settle().await?;
        self.remove(file, pool).await
    }

    /// A replica is removed after another one was looked at just then (docs/decisions/0031-moving-replicas.md).
    async fn remove_stale(
        &self,
        found: &Attributes,
        locality: &Locality,
        pool: PoolId,
    ) -> Result<(), MoveError> {
        let good = locality.good_pools().next();
        let good = good.ok_or(MoveError::Target(lost(pool, "is the last one")))?;
        self.require_on_disk(found, good).await.map_err(MoveError::Target)?;
        // Of the move, if it was not done then: tickets of an earlier stay there end.
        let fence = [(found.file, found.epoch)];
        self.pool(good)?.fence(&fence, ANSWER_TIME).await.sole().map_err(MoveError::Target)?;
        // A power cut must not bring back the row by which the one that is removed is the good one.
        self.files.services.locations.settle().await?;
        self.remove(found.file, pool).await
    }

    async fn require_on_disk(&self, file: &Attributes, pool: PoolId) -> Result<(), PoolError> {
        let at = self.files.services.pools.pool(pool).ok_or(PoolError::Offline(pool))?;
        require_whole(file, &*at, file.size).await?;
        if file.size > 0 {
            let ticket = Grant { pool }.own_ticket(file, TicketMode::ReadWrite);
            at.open(&ticket).await?.sync().await?;
        }
        Ok(())
    }

    /// Its row goes when the removal is on disk.
    async fn remove(&self, file: FileId, pool: PoolId) -> Result<(), MoveError> {
        let at = self.pool(pool)?;
        at.remove(&[file], ANSWER_TIME).await.sole().map_err(MoveError::Target)?;
        at.sync_removals(&[file], ANSWER_TIME).await.map_err(MoveError::Target)?;
        Ok(self.files.services.locations.drop_location(file, pool).await?)
    }
}
