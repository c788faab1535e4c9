//! The seam of ACLs, answered: from the cache, and of a file without one by its inode alone.

use api::{Acls, NamespaceError};
use async_trait::async_trait;
use types::{Access, Acl, Attributes, Identity, permission};

use crate::cache::Learned;
use crate::counts::Question;
use crate::service::SqlNamespace;

#[async_trait]
impl Acls for SqlNamespace {
    async fn acl(&self, file: &Attributes) -> Result<Option<Acl>, NamespaceError> {
        self.acl_of(file).await
    }
}

impl SqlNamespace {
    /// The current ACL, also if it was changed since the attributes were read. If it was removed since, the ACL that
    /// stands for the current mode. Access is never judged by a mode whose ACL is missing.
    pub(crate) async fn acl_of(&self, attributes: &Attributes) -> Result<Option<Acl>, NamespaceError> {
        if !attributes.has_acl {
            return Ok(None);
        }
        self.shared.require_certain().await?;
        let file = attributes.file;
        if let Some(acl) = self.shared.cache.acl(file) {
            return Ok(Some(acl));
        }
        let found = self.cold(Question::Acl, self.reads.acl(file)).await?;
        let acls = found.value.iter().map(|acl| (file, acl.clone())).collect();
        self.shared.cache.learn(found.sequence, Learned { acls, ..Learned::default() });
        // A change that was published since is in the cache.
        if let Some(acl) = self.shared.cache.peek_acl(file).or(found.value) {
            return Ok(Some(acl));
        }
        let now = self.inode(file).await?.attributes;
        Ok(Some(if now.has_acl { Acl::default() } else { Acl::of_mode(now.mode) }))
    }

    pub(crate) async fn require(
        &self,
        who: &Identity,
        attributes: &Attributes,
        wanted: Access,
    ) -> Result<(), NamespaceError> {
        let acl = self.acl_of(attributes).await?;
        if permission::allows(who, attributes, acl.as_ref(), wanted) {
            Ok(())
        } else {
            Err(NamespaceError::AccessDenied)
        }
    }
}
