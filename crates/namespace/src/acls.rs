//! The seam of ACLs, answered: from the cache, and of a file without one by its inode alone.

use api::{Acls, NamespaceError};
use async_trait::async_trait;
use types::{Access, Acl, Attributes, Identity, permission};

use crate::service::SqlNamespace;

#[async_trait]
impl Acls for SqlNamespace {
    async fn acl(&self, file: &Attributes) -> Result<Option<Acl>, NamespaceError> {
        self.lookups.acl_of(file).await
    }
}

impl SqlNamespace {
    pub(crate) async fn require(
        &self,
        who: &Identity,
        attributes: &Attributes,
        wanted: Access,
    ) -> Result<(), NamespaceError> {
        let acl = self.lookups.acl_of(attributes).await?;
        if permission::allows(who, attributes, acl.as_ref(), wanted) {
            Ok(())
        } else {
            Err(NamespaceError::AccessDenied)
        }
    }
}
