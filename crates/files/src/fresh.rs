//! Attributes of files that are being written at the pools.
//!
//! The namespace learns of such writes by LAYOUTCOMMIT only, and Linux sends none when it gives back a lock
//! (`nfs_wb_all` syncs data only). A client that takes the lock next, or reads through another door, must see the bytes
//! all the same. Told a size that is behind its own writes, Linux takes the file to be that short (`nfs_update_inode`)
//! and appends in the wrong place. So while a layout to write is out, the pool is asked, and the length it has is made
//! visible, like an UNSTABLE write.

use std::sync::Arc;

use api::{ANSWER_TIME, PoolError, ReplicaFacts, Stability, Written};
use types::{Attributes, FileId, Timestamp};

use crate::replicas::check_birth;
use crate::{FileChangeGuard, Files, FilesError};

impl Files {
    /// As the namespace has them.
    pub async fn attributes(&self, file: FileId) -> Result<Attributes, FilesError> {
        Ok(self.services.namespace.attributes(file).await?)
    }

    /// As [`Files::attributes`], with what the pools know better.
    pub async fn fresh_attributes(&self, file: FileId) -> Result<Attributes, FilesError> {
        let attributes = self.attributes(file).await?;
        self.freshen(attributes).await
    }

    /// As [`Files::fresh_attributes`], for a client that has just opened the file.
    pub(crate) async fn opened_attributes(&self, file: FileId) -> Result<Attributes, FilesError> {
        let attributes = self.attributes_once_cut(self.attributes(file).await?).await?;
        match self.may_be_behind(&attributes) {
            true => Box::pin(self.ask_pools_for_user(attributes)).await,
            false => Ok(attributes),
        }
    }

    pub async fn freshen(&self, attributes: Attributes) -> Result<Attributes, FilesError> {
        let attributes = self.attributes_once_cut(attributes).await?;
        match self.may_be_behind(&attributes) {
            true => Box::pin(self.ask_pools(attributes)).await,
            false => Ok(attributes),
        }
    }

    fn may_be_behind(&self, attributes: &Attributes) -> bool {
        attributes.kind.is_regular() && self.table().file(attributes.file).is_written_at_pools()
    }

    /// Of a file of which a layout to write is out. A pool that does not answer is no reason to know nothing of the file.
    pub(crate) async fn ask_pools(&self, attributes: Attributes) -> Result<Attributes, FilesError> {
        match self.ask_pools_for_user(attributes).await {
            Err(FilesError::Pool(PoolError::Unknown(_))) => Ok(attributes),
            told => told,
        }
    }

    /// As [`Files::ask_pools`], for a client that has the file open: it is not told a size that is behind its own writes, or
    /// those of one that had a lock before it, and comes again where the pool does not answer.
    pub(crate) async fn ask_pools_for_user(&self, attributes: Attributes) -> Result<Attributes, FilesError> {
        let _steady = self.steady(attributes.file).await;
        let facts = match self.replica_facts(&attributes).await {
            Ok(Some(facts)) if facts.size > attributes.size || facts.modified > Some(attributes.ctime) => {
                facts
            }
            Err(error @ FilesError::Pool(PoolError::Unknown(_))) => return Err(error),
            Ok(_) | Err(_) => return Ok(attributes),
        };
        let written = Written {
            size_at_least: Some(facts.size),
            mtime: facts.modified,
            space_used: Some(facts.space_used),
            stability: Stability::Unstable,
        };
        Ok(self.services.namespace.record_write(attributes.file, &written).await?)
    }

    /// Makes visible what clients have written at the pools; on disk when it is answered. `modified`: when they say it was
    /// written. Until the namespace has heard of it, `changing` is kept.
    pub async fn commit_written(
        self: &Arc<Self>,
        file: &Attributes,
        modified: Option<Timestamp>,
        changing: Option<FileChangeGuard>,
    ) -> Result<Attributes, FilesError> {
        let (files, file, steady) = (Arc::clone(self), *file, self.steady(file.file).await);
        let commit = async move {
            let (_changing, _steady) = (changing, steady);
            let facts = files.replica_facts(&file).await?;
            let written = Written {
                // The pool's size, not the client's: no size without the bytes, and no size that is behind other writes
                // of the same client, or the client would take the file to be that short.
                size_at_least: facts.map(|facts| facts.size),
                // The bytes may have been written before the times were set by another request.
                mtime: modified.or(facts.and_then(|facts| facts.modified)),
                space_used: facts.map(|facts| facts.space_used),
                stability: Stability::FileSync,
            };
            Ok(files.services.namespace.record_write(file.file, &written).await?)
        };
        self.tasks.carry_on(commit).await
    }

    /// Whether a client may be changing the bytes right now, at the pools or through the head. If so, size and
    /// checksums may be out of date.
    pub fn is_being_written(&self, file: FileId) -> bool {
        let table = self.table();
        table.file(file).is_written_at_pools() || table.file(file).is_open_for_writing()
    }

    /// Called before bytes of a file are written where the namespace hears of it only afterwards: forgets the checksums
    /// of the bytes before. Costs nothing where no checksum is known.
    pub async fn before_write(&self, file: FileId) -> Result<(), FilesError> {
        Ok(self.services.properties.forget_checksums(file).await?)
    }

    /// Asks a pool that holds the file for the facts of its replica; `None` if nothing was ever written.
    pub async fn replica_facts(&self, file: &Attributes) -> Result<Option<ReplicaFacts>, FilesError> {
        for location in self.services.locations.locality(file.file).await?.good_pools() {
            let Some(pool) = self.services.pools.pool(location) else { continue };
            if let Some(facts) = pool.facts(&[file.file], ANSWER_TIME).await.sole()? {
                check_birth(file, location, &facts)?;
                return Ok(Some(facts));
            }
        }
        Ok(None)
    }
}
