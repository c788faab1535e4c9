//! The other seam to an engine: what a cold read asks. Each answer is of one state of the database, and says of which.

use api::{ClientRecord, NamespaceError, Property, ReplicaRef};
use async_trait::async_trait;
use bytes::Bytes;
use types::{Acl, Checksum, ChecksumKind, FileId, Name, SymlinkTarget, XattrName};

use crate::inode::Inode;
use crate::session::{Purpose, Session};
use crate::store::XattrEntry;

/// Directories above a file. Deeper ones, and circles of a damaged database, have no path here.
pub const DEPTH_MAX: usize = 1024;
/// A longer path is not returned: a caller that asks for many must not get a megabyte for each (Linux: `PATH_MAX`).
pub const PATH_BYTES_MAX: usize = 4096;
/// Names that one call looks for in the database; what would need more has no path here.
pub const LOOKUPS_MAX: usize = 16 << 10;

/// An answer with the number of the last group that it shows.
#[derive(Clone, Copy, Debug)]
pub struct AsOf<T> {
    pub value: T,
    pub sequence: u64,
}

pub type Answer<T> = Result<AsOf<T>, NamespaceError>;

/// A directory, and what has the name in it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    pub dir: Inode,
    pub child: Option<Inode>,
}

/// A row of a listing.
#[derive(Clone, Debug)]
pub struct Listed {
    pub name: Name,
    pub cookie: u64,
    pub inode: Inode,
}

/// Which files a listing has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    /// Those without a name.
    Orphans,
    /// Those with a replica that is not good.
    Unsettled,
}

/// As all databases keep it; an error says what is damaged.
pub fn decode_checksum(kind: &str, value: &[u8]) -> Result<Checksum, &'static str> {
    let kind = ChecksumKind::by_name(kind).ok_or("kind of a checksum is not known")?;
    Checksum::new(kind, value).ok_or("checksum does not have the length of its kind")
}

/// Of extended attributes.
#[async_trait]
pub trait XattrReads: Send + Sync {
    /// Without their values.
    async fn xattrs(&self, file: FileId) -> Answer<Vec<(XattrName, XattrEntry)>>;
    async fn xattr(&self, file: FileId, name: &XattrName) -> Answer<Option<Bytes>>;
}

#[async_trait]
pub trait AclReads: Send + Sync {
    async fn acl(&self, file: FileId) -> Answer<Option<Acl>>;
}

#[async_trait]
pub trait Reads: AclReads + XattrReads {
    async fn inode(&self, file: FileId) -> Answer<Option<Inode>>;
    /// `None`: there is no such directory.
    async fn entry(&self, dir: FileId, name: &Name) -> Answer<Option<Entry>>;
    /// Entries in the order of their cookies.
    async fn list(&self, dir: FileId, after: u64, limit: usize) -> Answer<Vec<Listed>>;
    async fn target(&self, file: FileId) -> Answer<Option<SymlinkTarget>>;
    /// In the order of their pools.
    async fn locations(&self, file: FileId) -> Answer<Vec<ReplicaRef>>;
    /// Regular files by id behind `after`, with their replicas.
    async fn files(&self, after: FileId, limit: usize, which: Which)
    -> Answer<Vec<(Inode, Vec<ReplicaRef>)>>;
    /// In the order of their names.
    async fn properties(&self, file: FileId) -> Answer<Vec<Property>>;
    async fn checksums(&self, file: FileId) -> Answer<Vec<Checksum>>;
    /// Where each file is, if it has a name and the way to it is no longer than `paths` allows.
    async fn paths(&self, files: &[FileId]) -> Answer<Vec<Option<Vec<Name>>>>;
    async fn clients(&self) -> Answer<Vec<ClientRecord>>;

    /// For checks and repairs of the whole namespace; also when this is closed. Blocks.
    fn session(&self, purpose: Purpose) -> Result<Box<dyn Session>, NamespaceError>;

    /// Reads queued before are answered.
    fn close(&self);
}
