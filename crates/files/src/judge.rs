//! Decides whether a user may access a file, by its mode and its access control list.

use api::{Acls, NamespaceError};
use types::{Access, Acl, Attributes, Identity, permission};

pub struct Judge<'a>(pub(crate) &'a dyn Acls);

impl Judge<'_> {
    /// The ACL of a file whose attributes are known. One without is not asked for.
    pub async fn acl(&self, file: &Attributes) -> Result<Option<Acl>, NamespaceError> {
        if file.has_acl { self.0.acl(file).await } else { Ok(None) }
    }

    /// The accesses to the file that `who` has ([`permission::granted`]).
    pub async fn granted(&self, who: &Identity, file: &Attributes) -> Result<Access, NamespaceError> {
        Ok(permission::granted(who, file, self.acl(file).await?.as_ref()))
    }

    pub async fn allows(
        &self,
        who: &Identity,
        file: &Attributes,
        wanted: Access,
    ) -> Result<bool, NamespaceError> {
        Ok(self.granted(who, file).await?.contains(wanted))
    }

    /// Whether `who` may take `entry` out of `dir` ([`permission::judge_removal`]).
    pub async fn judge_removal(
        &self,
        who: &Identity,
        dir: &Attributes,
        entry: &Attributes,
    ) -> Result<permission::Removal, NamespaceError> {
        let (above, below) = (self.acl(dir).await?, self.acl(entry).await?);
        Ok(permission::judge_removal(who, (dir, above.as_ref()), (entry, below.as_ref())))
    }
}
