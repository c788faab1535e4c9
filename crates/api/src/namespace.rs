//! The namespace seam: names, attributes, and what is visible when. Knows no protocol and moves no file data.
//!
//! Every mutation is on disk when it is answered, unless its `Stability` says otherwise. Permissions are checked here,
//! by `types::permission`, which knows mode and ACL; opening a file is the door's matter (it holds the attributes and the
//! conflict table).

use async_trait::async_trait;
use types::{Acl, Attributes, ChangeInfo, Device, FileId, Identity, Name, PoolId, SymlinkTarget, Timestamp};

use crate::{NamespaceError, Stability};

#[async_trait]
pub trait Namespace: Send + Sync {
    /// Needs search permission on `dir`. `NotDirectory`, whoever asks, if `dir` is something else.
    async fn lookup(&self, who: &Identity, dir: FileId, name: &Name) -> Result<Found, NamespaceError>;

    /// The directory that holds `dir`; the root's parent is `NotFound`. Needs search permission on `dir`.
    async fn parent(&self, who: &Identity, dir: FileId) -> Result<Attributes, NamespaceError>;

    /// No permission needed. `Stale` if there is no such file.
    async fn attributes(&self, file: FileId) -> Result<Attributes, NamespaceError>;

    async fn set_attributes(
        &self,
        who: &Identity,
        file: FileId,
        set: &SetAttributes,
    ) -> Result<Attributes, NamespaceError>;

    async fn create(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        spec: &CreateSpec,
    ) -> Result<Created, NamespaceError>;

    async fn link(
        &self,
        who: &Identity,
        file: FileId,
        dir: FileId,
        name: &Name,
    ) -> Result<Linked, NamespaceError>;

    /// Removes a name of any kind (a directory if empty). A file whose last name went becomes an orphan: it keeps its
    /// attributes and locations until `Locations::forget`. `Moved`: the name stands for another file than the expected.
    async fn unlink(
        &self,
        who: &Identity,
        dir: FileId,
        name: &Name,
        expected: ExpectedFile,
    ) -> Result<Unlinked, NamespaceError>;

    /// `Exists`: `replace` forbids it, asked as soon as both names are looked up. Two names of one file stay both, as
    /// POSIX has it, unless `replace` names that file: then the source's goes. `Moved`, before `replace` is judged: one of
    /// the names does not stand for the expected file.
    async fn rename(
        &self,
        who: &Identity,
        from: (FileId, &Name),
        to: (FileId, &Name),
        replace: Replace,
        expected: ExpectedEnds,
    ) -> Result<Renamed, NamespaceError>;

    /// Up to `limit` entries behind `after`, in the stable order of their cookies. Needs read permission on `dir`.
    async fn list(
        &self,
        who: &Identity,
        dir: FileId,
        after: Cookie,
        limit: usize,
    ) -> Result<Page, NamespaceError>;

    async fn read_link(&self, file: FileId) -> Result<SymlinkTarget, NamespaceError>;

    /// Data was written: makes size, times and change visible together.
    async fn record_write(&self, file: FileId, written: &Written) -> Result<Attributes, NamespaceError>;

    async fn usage(&self) -> Result<Usage, NamespaceError>;
}

/// The answer to a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The file or directory that has the name.
    pub entry: Attributes,
    /// The directory. It may be newer or older than `entry`, for the two are not looked at in one step.
    pub dir: Attributes,
}

/// Whether an operation that gives a name may take it from another file. Judged in the transaction that gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// The name must be free.
    Never,
    Any,
    /// Only this file, in whatever state; a free name is `Exists` too.
    File(FileId),
    /// Only this file with this change attribute (If-Match); a free name is `Exists` too.
    Exactly {
        file: FileId,
        change: u64,
    },
}

/// The file that a caller has found under a name, and for which it has asked permission and recalled grants. Compared
/// in the transaction that changes the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedFile {
    /// Whichever has the name.
    Any,
    /// The name is free.
    Absent,
    Exactly(FileId),
}

impl ExpectedFile {
    pub fn is_met_by(self, found: Option<FileId>) -> bool {
        match self {
            ExpectedFile::Any => true,
            ExpectedFile::Absent => found.is_none(),
            ExpectedFile::Exactly(file) => found == Some(file),
        }
    }
}

/// The files that the two names of a rename are expected to stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedEnds {
    pub source: ExpectedFile,
    pub target: ExpectedFile,
}

impl ExpectedEnds {
    pub const ANY: ExpectedEnds = ExpectedEnds { source: ExpectedFile::Any, target: ExpectedFile::Any };
}

/// Attributes to change; `None` leaves an attribute as is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    pub mode: Option<u32>,
    /// Set after the mode, of which it changes the nine bits to what it amounts to; without it a new mode changes the
    /// ACL that there is (RFC 8881 §6.4.1). For owners and users whom the ACL allows it. A symbolic link gets none.
    pub acl: Option<Acl>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// The caller holds the file open for writing, so `size` needs no write permission now.
    pub size_is_authorized: bool,
    /// `size` leaves the set-id bits as they are: the request that it comes from has set them itself, in a call before. A
    /// `mode` in the same call stands in any case.
    pub keeps_set_id: bool,
    /// Bytes on disk after a truncate, where known.
    pub space_used: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// Now, by the namespace's clock: owner or write permission needed.
    Now,
    /// A given time: only the owner.
    To(Timestamp),
}

#[derive(Clone, Debug)]
pub struct CreateSpec {
    pub kind: CreateKind,
    pub mode: CreateMode,
    pub permissions: u32,
    /// Bits to take from `permissions` where no ACL is inherited; an inherited ACL grants no more than the bits then,
    /// and no less than it says (RFC 8275 §3). `None`: the caller has applied the umask, and an inherited ACL is
    /// brought to the bits as by chmod (RFC 8881 §6.4.3).
    pub umask: Option<u32>,
    /// Further attributes to set at creation (owner needs root; times; size 0 truncates an existing file only where
    /// the door says so by `set_attributes` afterwards: `create` never changes an existing file).
    pub set: SetAttributes,
    /// Where a regular file's data will live, recorded in the same transaction.
    pub location: Option<PoolId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateKind {
    Regular,
    Directory,
    Symlink(SymlinkTarget),
    BlockDevice(Device),
    CharacterDevice(Device),
    Fifo,
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// An existing regular file is as good.
    Unchecked,
    /// An existing entry is an error.
    Guarded,
    /// An existing entry is an error unless it was made by the very same request (EXCLUSIVE4_1): the verifier is kept.
    Exclusive { verifier: [u8; 8] },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created {
    pub attributes: Attributes,
    pub parent: ChangeInfo,
    /// False: an existing file was returned (Unchecked), or a repeated exclusive create found its own file.
    pub is_new: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linked {
    pub attributes: Attributes,
    pub parent: ChangeInfo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unlinked {
    /// After the removal; `nlink == 0` says that the last name went.
    pub attributes: Attributes,
    pub parent: ChangeInfo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renamed {
    pub source: ChangeInfo,
    pub target: ChangeInfo,
    /// The file that was moved, after it.
    pub moved: Attributes,
    /// The file that was at the target before, after it lost that name. `None` also where both names were links to one
    /// file.
    pub replaced: Option<Attributes>,
}

/// Position in a listing: entries have cookies above 2; 0 starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    pub const START: Cookie = Cookie(0);
}

#[derive(Clone, Debug)]
pub struct DirEntry {
    pub name: Name,
    pub cookie: Cookie,
    pub attributes: Attributes,
}

#[derive(Clone, Debug)]
pub struct Page {
    pub entries: Vec<DirEntry>,
    /// Nothing follows the last entry.
    pub is_last: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The file is at least this long now (one past the last byte written). `None`: no byte was written.
    pub size_at_least: Option<u64>,
    /// When the bytes were written; `None`: now. If the attributes were changed since, that change stands: it may have
    /// set the times, or the set-id bits that writing takes away.
    pub mtime: Option<Timestamp>,
    pub space_used: Option<u64>,
    /// `Unstable`: visible at once, on disk with a later group; lost at most together with the unstable data itself.
    pub stability: Stability,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub files: u64,
    pub bytes: u64,
}
