//! The seam of extended attributes, answered.
//!
//! The cached inode says whether a file has any; only then a reader is asked. Their values are not cached: clients do.

use std::sync::atomic::Ordering;

use api::{Cookie, ListedXattr, NamespaceError, SetXattr, Xattrs};
use async_trait::async_trait;
use bytes::Bytes;
use types::{Access, ChangeInfo, FileId, Identity, XattrName};

use crate::counts::Question;
use crate::inode::Inode;
use crate::ops::xattrs;
use crate::service::SqlNamespace;
use crate::store::Wanted;

#[async_trait]
impl Xattrs for SqlNamespace {
    async fn xattr(&self, who: &Identity, file: FileId, name: &XattrName) -> Result<Bytes, NamespaceError> {
        if !self.may_read_xattrs(who, &self.lookups.inode(file).await?).await? {
            return Err(NamespaceError::NotFound);
        }
        let found = self.lookups.cold(Question::Xattr, self.reads.xattr(file, name)).await?;
        found.value.ok_or(NamespaceError::NotFound)
    }

    async fn xattrs(
        &self,
        who: &Identity,
        file: FileId,
        after: Cookie,
    ) -> Result<Vec<ListedXattr>, NamespaceError> {
        let has_any = self.may_read_xattrs(who, &self.lookups.inode(file).await?).await?;
        if after != Cookie::START && after.0 >= self.shared.progress.cookies_end.load(Ordering::Acquire) {
            return Err(NamespaceError::BadCookie);
        }
        if !has_any {
            return Ok(Vec::new());
        }
        let found = self.lookups.cold(Question::Xattrs, self.reads.xattrs(file)).await?.value;
        let behind = found.into_iter().filter(|(_, entry)| entry.cookie > after.0);
        // They come by their cookies.
        Ok(behind.map(|(name, entry)| ListedXattr { name, cookie: Cookie(entry.cookie) }).collect())
    }

    async fn set_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: &XattrName,
        value: &Bytes,
        how: SetXattr,
    ) -> Result<ChangeInfo, NamespaceError> {
        let (who, name, value) = (who.clone(), name.clone(), value.clone());
        self.shared
            .submit_for(self.lookups.turn_at(&who, file), [Wanted::Inode(file)], move |group| {
                xattrs::set(group, &who, file, (&name, &value), how)
            })
            .await
    }

    async fn remove_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: &XattrName,
    ) -> Result<ChangeInfo, NamespaceError> {
        let (who, name) = (who.clone(), name.clone());
        self.shared
            .submit_for(self.lookups.turn_at(&who, file), [Wanted::Inode(file)], move |group| {
                xattrs::remove(group, &who, file, &name)
            })
            .await
    }
}

impl SqlNamespace {
    /// Whether there may be any to be read.
    async fn may_read_xattrs(&self, who: &Identity, inode: &Inode) -> Result<bool, NamespaceError> {
        if !xattrs::has_any(inode) {
            return Ok(false);
        }
        self.require(who, &inode.attributes, Access::READ).await?;
        Ok(inode.extras.has_xattrs)
    }
}
