//! Access control lists: permissions on a file beyond those that its mode can express.
//!
//! Implemented by the namespace. They are set and inherited by `Namespace` (`set_attributes`, `create`), together with
//! the mode that they amount to; here they are read, to judge access to a file (`files::Judge`).

use async_trait::async_trait;
use types::{Acl, Attributes};

use crate::NamespaceError;

#[async_trait]
pub trait Acls: Send + Sync {
    /// Of a file with these attributes, as it is now. `None`: by them it has none, and their mode is all there is. No
    /// permission needed.
    async fn acl(&self, file: &Attributes) -> Result<Option<Acl>, NamespaceError>;
}
