//! The way back from a file to a path, for people who look at what is going on.

use async_trait::async_trait;
use types::{FileId, Name};

use crate::NamespaceError;

#[async_trait]
pub trait Paths: Send + Sync {
    /// A path of each file, all as of one moment, in the order asked. Of a file with several names it is one of them;
    /// `None`: it has no name, or is none any more. Asks for no permission: not for users, and for a hundred files or
    /// so at once.
    async fn paths(&self, files: &[FileId]) -> Result<Vec<Option<Vec<Name>>>, NamespaceError>;
}
