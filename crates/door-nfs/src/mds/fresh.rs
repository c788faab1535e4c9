//! Attributes of files that are being written at the pools.
//!
//! The namespace learns of such writes by LAYOUTCOMMIT only, and Linux sends none when it gives back a lock
//! (`nfs_wb_all` syncs data only): who takes the lock next must see the bytes all the same. Told a size that is behind
//! its own writes, Linux takes the file to be that short (`nfs_update_inode`) and appends in the wrong place. So while
//! a layout to write is out, the pool is asked, and what it has is made visible, like an UNSTABLE write.

use api::{ReplicaFacts, Stability, Written};
use nfs4::NfsStat4;
use types::{Attributes, FileId};

use super::Head;
use crate::status;

impl Head {
    /// As [`Head::attributes`], with what the pools know better.
    pub async fn fresh_attributes(&self, file: FileId) -> Result<Attributes, NfsStat4> {
        let attributes = self.attributes(file).await?;
        self.freshen(attributes).await
    }

    pub async fn freshen(&self, attributes: Attributes) -> Result<Attributes, NfsStat4> {
        if !attributes.kind.is_regular() || !self.states.lock().is_written_at_pools(attributes.file) {
            return Ok(attributes);
        }
        let facts = match self.replica_facts(attributes.file).await {
            Ok(Some(facts)) if facts.size > attributes.size || facts.modified > Some(attributes.ctime) => {
                facts
            }
            // A pool that does not answer is no reason to know nothing of the file.
            Ok(_) | Err(_) => return Ok(attributes),
        };
        let written = Written {
            size_at_least: Some(facts.size),
            mtime: facts.modified,
            space_used: Some(facts.space_used),
            stability: Stability::Unstable,
        };
        self.namespace.commit(attributes.file, &written).await.map_err(status::of_namespace)
    }

    /// What a pool that holds the file says of its replica; `None` if nothing was ever written.
    pub async fn replica_facts(&self, file: FileId) -> Result<Option<ReplicaFacts>, NfsStat4> {
        let locations = self.locations.locations(file).await.map_err(status::of_namespace)?;
        for location in locations {
            let Some(pool) = self.pools.pool(location) else { continue };
            if let Some(facts) = pool.facts(file).await.map_err(status::of_pool)? {
                return Ok(Some(facts));
            }
        }
        Ok(None)
    }
}
