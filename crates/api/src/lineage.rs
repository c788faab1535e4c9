//! The way up from a file, for a door with exports, which judges a file by its place.

use async_trait::async_trait;
use types::FileId;

use crate::NamespaceError;

#[async_trait]
pub trait Lineage: Send + Sync {
    /// The directory that holds a directory; of anything else one that has a name of it. `None`: it is the root, or has
    /// no name. Asks for no permission; warm, it costs what looking at the attributes does.
    async fn home(&self, file: FileId) -> Result<Option<FileId>, NamespaceError>;

    /// All directories that have a name of it, in the order of their numbers, at most `limit`. Asks the database each
    /// time: for files of several names whose home alone does not tell.
    async fn homes(&self, file: FileId, limit: usize) -> Result<Vec<FileId>, NamespaceError>;
}
