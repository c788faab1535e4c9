//! User extended attributes: named values on files and directories, which nobody here interprets.
//!
//! Implemented by the namespace. Every mutation is on disk when it is answered. They are no properties (`uploads`): those
//! are a door's, for all to read, and neither is seen as the other (decision 0011).

use async_trait::async_trait;
use bytes::Bytes;
use types::{ChangeInfo, FileId, Identity, XattrName};

use crate::{Cookie, NamespaceError};

/// By the rules that Linux has for `user.*` (`xattr_permission`): reading needs read permission, changing needs write
/// permission, and in a sticky directory's own attributes only its owner changes any (`NotPermitted`). A file of any
/// other kind than regular file and directory has none (`NotFound`) and gets none (`NotPermitted`).
#[async_trait]
pub trait Xattrs: Send + Sync {
    /// `NotFound`: the file has no such attribute.
    async fn xattr(&self, who: &Identity, file: FileId, name: &XattrName) -> Result<Bytes, NamespaceError>;

    /// All that lie behind `after`, in the order of their cookies, which is that in which they were made; a new value
    /// leaves the cookie. Names together are bounded ([`XATTR_NAMES_BYTES_MAX`]). Needs read permission. `BadCookie`: it
    /// was never given.
    async fn xattrs(
        &self,
        who: &Identity,
        file: FileId,
        after: Cookie,
    ) -> Result<Vec<ListedXattr>, NamespaceError>;

    /// Moves change and ctime of the file, and says by how much. `Exists`, `NotFound`: as `how` has it. `NoSpace`: what
    /// would be there is beyond [`XATTR_BYTES_MAX`], [`XATTR_NAMES_BYTES_MAX`] or [`XATTRS_BYTES_MAX`].
    async fn set_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: &XattrName,
        value: &Bytes,
        how: SetXattr,
    ) -> Result<ChangeInfo, NamespaceError>;

    /// As [`Xattrs::set_xattr`]. `NotFound`: the file has no such attribute.
    async fn remove_xattr(
        &self,
        who: &Identity,
        file: FileId,
        name: &XattrName,
    ) -> Result<ChangeInfo, NamespaceError>;
}

/// One value: XATTR_SIZE_MAX of Linux.
pub const XATTR_BYTES_MAX: usize = 64 << 10;
/// Names of one file as `listxattr` tells them ([`XattrName::listed_bytes`]): XATTR_LIST_MAX of Linux, which fails where
/// there are more.
pub const XATTR_NAMES_BYTES_MAX: usize = 64 << 10;
/// Names and values of one file. An upload that replaces the file takes all of them over in one transaction.
pub const XATTRS_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetXattr {
    Either,
    /// There must be none of the name.
    Create,
    /// There must be one.
    Replace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedXattr {
    pub name: XattrName,
    pub cookie: Cookie,
}
