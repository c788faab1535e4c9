//! Directories whose own rows follow their entries later.
//!
//! A group writes its changes of such a directory as a row of their own (`DirDelta`), with the entries; the directory's
//! truth is its row with all deltas. The head is the only writer, so it keeps that truth in memory (`pending`) and does
//! not merge on reading. An offline reader merges, and the next start folds the deltas that a killed process left.
//! Folding writes the truth as the row and removes the deltas, a few directories with a group: nobody waits for it.

mod delta;
mod heat;
mod pending;
#[cfg(test)]
mod tests;

use api::{Consistency, Directories, NamespaceError};
use async_trait::async_trait;
use types::FileId;

use crate::service::SqlNamespace;
use crate::store::Wanted;

pub use delta::FOLD_ALL;
pub use pending::{DirectoryChange, Pending};

impl SqlNamespace {
    /// Of directories for which none is set. Takes effect with the next group.
    pub fn set_default_consistency(&self, mode: Consistency) {
        self.shared.cache.pending.set_default(mode);
    }
}

#[async_trait]
impl Directories for SqlNamespace {
    async fn consistency(&self, dir: FileId) -> Result<Option<Consistency>, NamespaceError> {
        let inode = self.inode(dir).await?;
        if inode.is_directory() { Ok(inode.extras.consistency) } else { Err(NamespaceError::NotDirectory) }
    }

    async fn set_consistency(&self, dir: FileId, mode: Option<Consistency>) -> Result<(), NamespaceError> {
        self.shared
            .submit_for(self.turn_of(dir), [Wanted::Inode(dir)], move |group| {
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
        self.shared.cache.pending.default_mode()
    }
}
