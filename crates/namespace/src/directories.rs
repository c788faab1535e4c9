//! The seam of directories, answered.

use api::{Consistency, Directories, NamespaceError};
use async_trait::async_trait;
use types::FileId;

use crate::service::SqlNamespace;
use crate::store::Wanted;

impl SqlNamespace {
    /// Of directories for which none is set. Takes effect with the next group.
    pub fn set_default_consistency(&self, mode: Consistency) {
        self.shared.cache.pending.modes.set_default(mode);
    }
}

#[async_trait]
impl Directories for SqlNamespace {
    async fn consistency(&self, dir: FileId) -> Result<Option<Consistency>, NamespaceError> {
        let inode = self.lookups.inode(dir).await?;
        if inode.is_directory() { Ok(inode.extras.consistency) } else { Err(NamespaceError::NotDirectory) }
    }

    async fn set_consistency(&self, dir: FileId, mode: Option<Consistency>) -> Result<(), NamespaceError> {
        self.shared
            .submit_for(self.lookups.turn_of(dir), [Wanted::Inode(dir)], move |group| {
                let mut inode = group.directory(dir)?;
                if inode.extras.consistency != mode {
                    inode.extras.consistency = mode;
                    inode.touch(group.now(), group.instance);
                    group.put(inode);
                }
                Ok(())
            })
            .await
    }

    fn default_consistency(&self) -> Consistency {
        self.shared.cache.pending.modes.default_mode()
    }
}
