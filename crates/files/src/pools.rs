//! The pools, as far as doors deal with them: where clients are sent, how they fared there, how much room there is, and
//! keeping clients away.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use api::{
    ANSWER_TIME, ClientReport, Face, NamespaceError, PoolManager, PoolStatus, ReplicaState, TransferReport,
};
use types::{FileId, PoolId};

use crate::Files;

/// A view of the pools. Nothing of it is to be kept: pools come and go.
pub struct Pools<'a> {
    files: &'a Files,
    manager: &'a dyn PoolManager,
}

impl Files {
    pub fn pools(&self) -> Pools<'_> {
        Pools { files: self, manager: &*self.services.pools }
    }
}

impl Pools<'_> {
    pub fn contains(&self, pool: PoolId) -> bool {
        self.manager.pool(pool).is_some()
    }

    pub fn states(&self) -> Vec<PoolStatus> {
        self.manager.pools()
    }

    /// As [`PoolManager::address`].
    pub fn address(&self, pool: PoolId, door: &str) -> Option<SocketAddr> {
        self.manager.address(pool, door)
    }

    /// As [`PoolManager::face`].
    pub fn face(&self, pool: PoolId, door: &str) -> Option<Face> {
        self.manager.face(pool, door)
    }

    /// Whether no client is to be sent there.
    pub fn is_closed(&self, pool: PoolId) -> bool {
        self.manager.is_closed(pool)
    }

    /// Whether a pool that has the file is closed to clients; `false` also where that cannot be learned.
    pub async fn is_any_closed(&self, file: FileId) -> bool {
        let pools = self.of_file(file).await.unwrap_or_default();
        pools.into_iter().any(|pool| self.is_closed(pool))
    }

    pub fn closed(&self) -> BTreeSet<PoolId> {
        self.manager.closed()
    }

    /// Whether writers of the file contend for the same pages at a pool now, as far as the pools have told.
    pub fn is_contended(&self, file: FileId) -> bool {
        self.states().iter().any(|state| state.contended.contains(&file))
    }

    /// The alignment of clones that suits every pool; 0: no pool can clone.
    pub fn clone_granularity_max(&self) -> u32 {
        let of_pool = |id| self.manager.pool(id).and_then(|pool| pool.clone_granularity());
        self.states().iter().filter_map(|state| of_pool(state.id)).max().unwrap_or(0)
    }

    pub fn report(&self, report: &ClientReport) {
        self.manager.report(report);
    }

    pub fn report_transfers(&self, report: &TransferReport) {
        self.manager.report_transfers(report);
    }

    pub fn forget_client(&self, client: u64) {
        self.manager.forget_client(client);
    }

    /// Those where the file is read and written.
    pub async fn of_file(&self, file: FileId) -> Result<Vec<PoolId>, NamespaceError> {
        Ok(self.files.services.locations.locality(file).await?.good_pools().collect())
    }

    /// From here on no pool takes tickets that were given out for the file before.
    pub async fn fence(&self, file: FileId) -> Result<(), NamespaceError> {
        let epoch = match self.files.services.locations.raise_epoch(file).await {
            Ok(epoch) => epoch,
            // The file is gone, and its replicas with it.
            Err(NamespaceError::Stale(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let locality = self.files.services.locations.locality(file).await?;
        // Nobody has a ticket to one that is being made.
        let fenced = locality.replicas().iter().filter(|replica| replica.state != ReplicaState::Filling);
        for location in fenced.map(|replica| replica.pool) {
            let Some(pool) = self.manager.pool(location) else { continue };
            pool.fence(&[(file, epoch)], ANSWER_TIME)
                .await
                .sole()
                .map_err(|error| NamespaceError::Database(format!("{location} cannot fence: {error}")))?;
        }
        Ok(())
    }
}
