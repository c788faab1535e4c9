//! Files that get their name when they are complete, and what is kept of a file beside its attributes.
//!
//! Implemented by the namespace. Every mutation is on disk when it is answered.

use async_trait::async_trait;
use bytes::Bytes;
use types::{Attributes, ChangeInfo, Checksum, FileId, Identity, Name, PoolId, Timestamp};

use crate::NamespaceError;

#[async_trait]
pub trait Uploads: Send + Sync {
    /// Makes a regular file without a name (`nlink == 0`) that is to become an entry of `dir`. Needs what `create`
    /// needs of `dir`. Until it is published it is an orphan: whoever makes it holds it in the conflict table, or it is
    /// taken away (`Locations::orphans`), as it is after a crash.
    async fn create_unnamed(
        &self,
        who: &Identity,
        dir: FileId,
        new: &Unnamed,
    ) -> Result<Attributes, NamespaceError>;

    /// Gives an unnamed file its name, size, times and checksums in one transaction: who sees the name sees all of it.
    ///
    /// A regular file (or symbolic link) in the way is replaced as by `rename`, if `how.replace` allows it. Replacing
    /// also needs write permission on what is replaced, whose mode, owner, group and properties the new file takes over:
    /// to its users it is the same file with other contents. `Exists`: the rule forbids it; `IsDirectory`: a directory is
    /// in the way; `Stale`: the unnamed file is gone or has a name.
    async fn publish(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
        how: &Publish,
    ) -> Result<Published, NamespaceError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Permission bits if nothing is replaced.
    pub permissions: u32,
    pub location: PoolId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publish {
    pub size: u64,
    pub space_used: u64,
    /// `None`: now.
    pub mtime: Option<Timestamp>,
    pub checksums: Vec<Checksum>,
    pub replace: Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// The name must be free.
    Never,
    Any,
    /// Only this file with this change attribute (If-Match); a free name or any other state is `Exists`.
    Exactly {
        file: FileId,
        change: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub attributes: Attributes,
    pub parent: ChangeInfo,
    /// What had the name before, after it lost it.
    pub replaced: Option<Attributes>,
}

/// What users attach to files, and the checksums that are known of their data. No permission is needed to read them.
#[async_trait]
pub trait Properties: Send + Sync {
    async fn properties(&self, file: FileId) -> Result<Vec<Property>, NamespaceError>;

    /// All or nothing, in order. Needs ownership or write permission, as `set_attributes` of times does. Moves change
    /// and ctime. Removing what is not there is fine. `NoSpace` beyond [`PROPERTIES_BYTES_MAX`].
    async fn set_properties(
        &self,
        who: &Identity,
        file: FileId,
        changes: &[PropertyChange],
    ) -> Result<Attributes, NamespaceError>;

    /// Of the data as it is now: whatever changes the data (a write, a truncate) forgets them in the same transaction.
    async fn checksums(&self, file: FileId) -> Result<Vec<Checksum>, NamespaceError>;

    /// Adds checksums that were computed from the file while its change attribute was `of_change`; if it has moved
    /// since, nothing is recorded and `false` is answered. Moves no attribute.
    async fn record_checksums(
        &self,
        file: FileId,
        of_change: u64,
        checksums: &[Checksum],
    ) -> Result<bool, NamespaceError>;
}

/// Names and values of all properties of one file, together.
pub const PROPERTIES_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The door's own form; WebDAV's is `{namespace}local`. At most 1,024 bytes.
    pub name: String,
    pub value: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyChange {
    Set(Property),
    Remove(String),
}
