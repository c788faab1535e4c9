//! Files that get their name when they are complete, and what is kept of a file beside its attributes.
//!
//! Implemented by the namespace. Every mutation is on disk when it is answered.

use async_trait::async_trait;
use bytes::Bytes;
use types::{Attributes, ChangeInfo, Checksum, FileId, Identity, Name, PoolId, Timestamp};

use crate::{NamespaceError, Replace};

#[async_trait]
pub trait Uploads: Send + Sync {
    /// Makes a regular file without a name (`nlink == 0`) that is to become an entry of `dir`. Needs what `create`
    /// needs of `dir`. Until it is published it is an orphan: its maker holds it in the conflict table until `publish`
    /// is answered, or it is taken away (`Locations::orphans`), as it is after a crash.
    ///
    /// Orphans are taken away after another look at `nlink` and the change attribute when nobody holds the file: unlike an
    /// unlinked file, this one may have got a name since it was listed, and lost it.
    async fn create_unnamed(
        &self,
        who: &Identity,
        dir: FileId,
        new: &Unnamed,
    ) -> Result<Attributes, NamespaceError>;

    /// Gives an unnamed file its name, size, times and checksums in one transaction: a reader that sees the name sees
    /// all of it.
    ///
    /// A regular file (or symbolic link) in the way is replaced as by `rename`, if `how.replace` allows it: it loses this
    /// name and keeps others. Replacing also needs write permission on what is replaced. Of a regular file the new one
    /// takes over mode (without the set-id bits, as after a write), owner, group, and the properties unless it has some
    /// of its own; its change attribute is above that of the old one: to its users it is the same file with other
    /// contents. The birth time is its own.
    ///
    /// Checked in this order. `Stale`: the unnamed file is gone, has a name, or had one. `Exists`: `how.replace`
    /// forbids it, also where a directory is in the way. The checks of `rename` on `dir`. `IsDirectory`, `NotRegular`:
    /// that is not replaced. A refused publish changes nothing and may be tried again.
    async fn publish(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
        how: &Publish,
    ) -> Result<Published, NamespaceError>;

    /// For what was made under another name of the same directory: the two names change places in one step. Needs of `dir` what
    /// `rename` needs to take either away. `Exists`: `taken` is the name of another file by now.
    async fn exchange(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        taken: (&Name, FileId),
    ) -> Result<(), NamespaceError>;
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
    /// `None`: now; as is what somebody says of a file that takes over another's owner.
    pub mtime: Option<Timestamp>,
    /// All that are known; the last of a kind counts.
    pub checksums: Vec<Checksum>,
    pub replace: Replace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    pub attributes: Attributes,
    pub parent: ChangeInfo,
    /// The file that had the name before, after it lost it.
    pub replaced: Option<Attributes>,
}

/// Properties that users attach to files, and the known checksums of their data. Reading them needs no permission.
#[async_trait]
pub trait Properties: Send + Sync {
    async fn properties(&self, file: FileId) -> Result<Vec<Property>, NamespaceError>;

    /// All or nothing, in order, on a file of any kind. Needs ownership or write permission, as `set_attributes` of times
    /// does. Moves change and ctime, but with no `changes` nothing. Removing what is not there is fine. `NoSpace` if
    /// what would be left is beyond [`PROPERTIES_BYTES_MAX`], [`PROPERTIES_LEN_MAX`] or [`PROPERTY_NAME_BYTES_MAX`].
    async fn set_properties(
        &self,
        who: &Identity,
        file: FileId,
        changes: &[PropertyChange],
    ) -> Result<Attributes, NamespaceError>;

    /// Of the data as it is now: whatever changes the data (a write, a truncate) forgets them in the same transaction.
    /// Empty if none are known. To be told together with other attributes only if `change` was the same before and after.
    ///
    /// The namespace hears of writes by `Namespace::record_write`, after a pool did them; see `forget_checksums`.
    async fn checksums(&self, file: FileId) -> Result<Vec<Checksum>, NamespaceError>;

    /// Adds checksums that were computed from a regular file while its change attribute was `of_change`; if it has moved
    /// since, nothing is recorded and `false` is answered. Moves no attribute. Not to be called while somebody may write
    /// the file at a pool: his bytes may be there and his `record_write` not.
    async fn record_checksums(
        &self,
        file: FileId,
        of_change: u64,
        checksums: &[Checksum],
    ) -> Result<bool, NamespaceError>;

    /// To be called before somebody may write at a pool (a layout to write, a write through the head): if the process
    /// dies before the `record_write` that would tell of it, no checksum is left that is not of the data. Costs nothing
    /// where none are known; else it moves change, and no time.
    async fn forget_checksums(&self, file: FileId) -> Result<(), NamespaceError>;
}

/// Names and values of all properties of one file, together.
pub const PROPERTIES_BYTES_MAX: usize = 64 << 10;
/// Properties of one file.
pub const PROPERTIES_LEN_MAX: usize = 1000;
pub const PROPERTY_NAME_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// The door's own form; WebDAV's is `{namespace}local`. At most [`PROPERTY_NAME_BYTES_MAX`].
    pub name: String,
    pub value: Bytes,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PropertyChange {
    Set(Property),
    Remove(String),
}
