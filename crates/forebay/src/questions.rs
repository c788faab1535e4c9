//! Questions of the control socket that have parts.

use serde::{Deserialize, Serialize};

use crate::cli::{ConsistencyArgument, IoArgument};

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct FsckQuestion {
    /// All problems and remarks are sent, one by one, before the answer.
    pub list: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectoryQuestion {
    pub path: String,
    /// `None`: the setting is only reported.
    pub set: Option<DirectorySetting>,
    pub recursive: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectorySetting {
    Consistency(ConsistencyArgument),
    Io(IoArgument),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateDirectoryQuestion {
    pub path: String,
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
    /// Missing directories above are created, too.
    pub parents: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PoolQuestion {
    List,
    Drain {
        pool: u32,
        /// Its files stay there.
        keeps_files: bool,
    },
    Enable(u32),
    /// Answered when no file is left at the pool, or none that can be moved.
    AwaitEmpty(u32),
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ScrubQuestion {
    pub pool: u32,
    pub rate_mib_s: u64,
    pub start_over: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QuotaQuestion {
    Set(Whose, Limits),
    Remove(Whose),
    Show(Whose),
    List,
    Usage { path: String, depth: u32 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    User(u32),
    Group(u32),
    Tree(String),
}

/// Those that are given are set, and those that are zero taken away.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Limits {
    pub bytes_soft: Option<u64>,
    pub bytes_hard: Option<u64>,
    pub files_soft: Option<u64>,
    pub files_hard: Option<u64>,
}

/// About the members of a cluster.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberQuestion {
    RotateKeys,
    EndOverlap,
    ShutOut(u32),
    /// A token that is valid for so many hours.
    Readmit {
        pool: u32,
        hours: u32,
    },
    Remove(u32),
    /// Paths of the files that have a replica there, as a list.
    Files(u32),
}
