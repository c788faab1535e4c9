//! Replicas, as the head itself reaches them: where they are, opening them, setting their length.
//!
//! The size in the namespace is the truth: a replica may be longer (bytes written by a pNFS client that has not
//! committed its layout yet) or shorter (a hole at the end that was never written).

use std::sync::Arc;
use std::time::Duration;

use api::{Grant, OpenReplica, PoolError, Purpose, SelectError, Selection, TicketMode};
use file_state::{Change, Holder};
use types::{Attributes, FileId, PoolId};

use crate::{AccessError, Changing, FileAccess};

/// An open replica and the pool that has it.
pub struct Located {
    pub pool: PoolId,
    pub replica: Arc<dyn OpenReplica>,
}

impl FileAccess {
    /// A pool for a new file. `client` as in [`Selection`].
    pub fn choose(&self, client: Option<u64>) -> Result<PoolId, AccessError> {
        let want = Selection { purpose: Purpose::Create, locations: &[], file: None, client };
        Ok(self.services.pools.select(&want)?.pool)
    }

    /// Where the data of a file without any location shall live: one pool, whoever asks at the same time. Files get
    /// theirs when they are created; this is for the few that could not.
    pub async fn place(&self, file: FileId, client: Option<u64>) -> Result<PoolId, AccessError> {
        let _turn = self.placing.lock().await;
        let locations = self.services.locations.locations(file).await?;
        if let Some(placed) = locations.first() {
            return Ok(*placed);
        }
        let pool = self.choose(client)?;
        self.services.locations.add_location(file, pool).await?;
        Ok(pool)
    }

    /// The pool to read or write the file at. `None`: it has no replica anywhere, and so only zeros.
    pub async fn locate(
        &self,
        file: FileId,
        mode: TicketMode,
        client: Option<u64>,
    ) -> Result<Option<Grant>, AccessError> {
        let locations = self.services.locations.locations(file).await?;
        if locations.is_empty() {
            return Ok(None);
        }
        let purpose = if mode == TicketMode::Read { Purpose::Read } else { Purpose::Write };
        let want = Selection { purpose, locations: &locations, file: Some(file), client };
        Ok(Some(self.services.pools.select(&want)?))
    }

    /// `None`: the file has no replica anywhere, and so only zeros.
    pub async fn open_replica(
        &self,
        file: &Attributes,
        mode: TicketMode,
    ) -> Result<Option<Arc<dyn OpenReplica>>, AccessError> {
        Ok(self.open_located(file, mode).await?.map(|located| located.replica))
    }

    /// As [`FileAccess::open_replica`], with where it is.
    pub async fn open_located(
        &self,
        file: &Attributes,
        mode: TicketMode,
    ) -> Result<Option<Located>, AccessError> {
        let Some(grant) = self.locate(file.file, mode, None).await? else { return Ok(None) };
        let pool = self.services.pools.pool(grant.pool).ok_or(PoolError::Offline(grant.pool))?;
        let replica = pool.open(&grant.ticket(file.file, mode, file.epoch)).await?;
        Ok(Some(Located { pool: grant.pool, replica }))
    }

    /// The replica to write at, placed if the file has none.
    pub async fn open_for_writing(&self, file: &Attributes) -> Result<Arc<dyn OpenReplica>, AccessError> {
        Ok(self.open_located_for_writing(file).await?.replica)
    }

    /// As [`FileAccess::open_for_writing`], with where it is.
    pub async fn open_located_for_writing(&self, file: &Attributes) -> Result<Located, AccessError> {
        if let Some(located) = self.open_located(file, TicketMode::ReadWrite).await? {
            return Ok(located);
        }
        self.place(file.file, None).await?;
        let placed = self.open_located(file, TicketMode::ReadWrite).await?;
        placed.ok_or(AccessError::Select(SelectError::NoLocation))
    }

    /// Sets the length of the replicas, before the namespace says so: a crash in between leaves a size that nobody was
    /// promised, and never old bytes behind a new end. Returns the space used. Layouts and delegations of others are
    /// waited for up to `patience`, as [`FileAccess::before_change`] does; what is answered beside is kept until the
    /// namespace says the new size too.
    pub async fn truncate(
        self: &Arc<Self>,
        file: &Attributes,
        size: u64,
        by: Option<Holder>,
        patience: Duration,
    ) -> Result<(u64, Changing), AccessError> {
        if i64::try_from(size).is_err() {
            return Err(AccessError::TooLarge);
        }
        // Layouts do not mind a file that grows.
        let change = if size <= file.size { Change::Truncate } else { Change::SetAttributes };
        let changing = self.before_change(file.file, by, change, patience).await?;
        let mut locations = self.services.locations.locations(file.file).await?;
        if locations.is_empty() {
            if size == 0 {
                return Ok((0, changing));
            }
            locations.push(self.place(file.file, None).await?);
        }
        let mut space_used = 0;
        for location in locations {
            let pool = self.services.pools.pool(location).ok_or(PoolError::Offline(location))?;
            space_used = pool.truncate(file.file, size).await?.space_used;
        }
        Ok((space_used, changing))
    }
}
