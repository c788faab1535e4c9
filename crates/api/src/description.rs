//! Descriptions of files that a pool keeps beside their bytes, so that a lost namespace can be rebuilt.

use types::{Epoch, FileId, FileKind, Name, SymlinkTarget, Timestamp};

use crate::ReplicaRef;

/// A file as it was when a pool was last told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub file: FileId,
    pub kind: FileKind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub mtime: Timestamp,
    pub change: u64,
    pub epoch: Epoch,
    /// Each with the directory that it is in.
    pub names: Vec<(FileId, Name)>,
    pub target: Option<SymlinkTarget>,
    /// Of a regular file, as the namespace noted them: a rebuild takes none for good that was not.
    pub replicas: Vec<ReplicaRef>,
}
