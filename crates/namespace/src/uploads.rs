//! The seams of uploads and properties, answered.
//!
//! The cached inode says whether a file has properties or checksums; only then a reader is asked.

use api::{NamespaceError, Properties, Property, PropertyChange, Publish, Published, Unnamed, Uploads};
use async_trait::async_trait;
use types::{Attributes, Checksum, FileId, Identity, Name};

use crate::counts::Question;
use crate::lookups::turn;
use crate::ops;
use crate::service::SqlNamespace;
use crate::store::Wanted;

#[async_trait]
impl Uploads for SqlNamespace {
    async fn create_unnamed(
        &self,
        who: &Identity,
        dir: FileId,
        new: &Unnamed,
    ) -> Result<Attributes, NamespaceError> {
        let (who, new) = (who.clone(), *new);
        self.shared
            .submit_for(turn(&who, dir), [Wanted::Inode(dir)], move |group| {
                ops::publish::create_unnamed(group, &who, dir, &new)
            })
            .await
    }

    async fn exchange(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        (taken, file): (&Name, FileId),
    ) -> Result<(), NamespaceError> {
        let (who, name, taken) = (who.clone(), name.clone(), taken.clone());
        let wanted = [Wanted::Inode(dir), Wanted::Name(dir, name.clone()), Wanted::Name(dir, taken.clone())];
        self.shared
            .submit_for(turn(&who, dir), wanted, move |group| {
                ops::rename::exchange(group, &who, dir, &name, (&taken, file))
            })
            .await
    }

    async fn publish(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
        how: &Publish,
    ) -> Result<Published, NamespaceError> {
        let (who, name, how) = (who.clone(), name.clone(), how.clone());
        let wanted = [Wanted::Inode(file), Wanted::Inode(dir), Wanted::Name(dir, name.clone())];
        self.shared
            .submit_for(turn(&who, dir), wanted, move |group| {
                ops::publish::publish(group, &who, file, (dir, &name), &how)
            })
            .await
    }
}

#[async_trait]
impl Properties for SqlNamespace {
    async fn properties(&self, file: FileId) -> Result<Vec<Property>, NamespaceError> {
        if !self.lookups.inode(file).await?.extras.has_properties {
            return Ok(Vec::new());
        }
        Ok(self.lookups.cold(Question::Properties, self.reads.properties(file)).await?.value)
    }

    async fn set_properties(
        &self,
        who: &Identity,
        file: FileId,
        changes: &[PropertyChange],
    ) -> Result<Attributes, NamespaceError> {
        let (who, changes) = (who.clone(), changes.to_vec());
        self.shared
            .submit_for(self.lookups.turn_at(&who, file), [Wanted::Inode(file)], move |group| {
                ops::properties::set_properties(group, &who, file, &changes)
            })
            .await
    }

    async fn checksums(&self, file: FileId) -> Result<Vec<Checksum>, NamespaceError> {
        if !self.lookups.inode(file).await?.extras.has_checksums {
            return Ok(Vec::new());
        }
        let found = self.lookups.cold(Question::Checksums, self.reads.checksums(file)).await?.value;
        // They were true when this began; data that changed while the reader looked is not to be vouched for.
        if self.lookups.inode(file).await?.extras.has_checksums { Ok(found) } else { Ok(Vec::new()) }
    }

    async fn record_checksums(
        &self,
        file: FileId,
        of_change: u64,
        checksums: &[Checksum],
    ) -> Result<bool, NamespaceError> {
        let checksums = checksums.to_vec();
        self.shared
            .submit_for(self.lookups.turn_of(file), [Wanted::Inode(file)], move |group| {
                ops::properties::record_checksums(group, file, of_change, &checksums)
            })
            .await
    }

    async fn forget_checksums(&self, file: FileId) -> Result<(), NamespaceError> {
        if !self.lookups.inode(file).await?.extras.has_checksums {
            return Ok(());
        }
        self.shared
            .submit_for(self.lookups.turn_of(file), [Wanted::Inode(file)], move |group| {
                ops::properties::forget_checksums(group, file)
            })
            .await
    }
}
