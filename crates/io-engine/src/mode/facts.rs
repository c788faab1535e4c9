//! The facts that a decision rests on: of the request, of its file and of its pool.

use serde::{Deserialize, Serialize};

use super::Mode;
use crate::capabilities::DirectAlignment;

/// All that `decide` looks at, thresholds aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inputs {
    pub request: Request,
    pub file: FileFacts,
    pub pool: PoolFacts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Read,
    Write,
}

impl Kind {
    pub const ALL: [Kind; 2] = [Kind::Read, Kind::Write];

    pub fn label(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub kind: Kind,
    pub offset: u64,
    pub length_bytes: u64,
    /// A write that is answered once it is on disk (DATA_SYNC4, FILE_SYNC4).
    pub is_stable: bool,
    pub pattern: Pattern,
    /// The power of two that the address of the buffer is a multiple of. `None`: the engine brings an aligned buffer.
    pub memory_alignment_bytes: Option<u64>,
}

/// How the requests of a stream follow each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Too few requests to tell.
    #[default]
    Unknown,
    /// Each begins where the last one ended.
    Sequential,
    /// Each begins at the same distance behind the last one.
    Strided,
    /// Each ends where the last one began, or begins at the same distance before it.
    Backward,
    Random,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    pub size_bytes: u64,
    /// The length that the writer announced, for example by `Content-Length` or ALLOCATE.
    pub final_size_bytes: Option<u64>,
    pub residency: Residency,
    /// Pages of the range wait for write-back.
    pub is_dirty: bool,
    pub reuse: Reuse,
    /// Holders conflict about ranges of this file: see `contention`.
    pub is_contended: bool,
    pub is_read_after_write_expected: bool,
    /// The mode that an operator chose for the directory of the file.
    pub pinned: Option<Mode>,
}

/// How much of the range of a request the page cache has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Residency {
    #[default]
    Unknown,
    None,
    Part {
        resident_bytes: u64,
    },
    All,
}

/// Whether the same bytes of a file are read more than once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    #[default]
    Unknown,
    Once,
    Reused,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFacts {
    pub capabilities: ModeCapabilities,
    /// The kernel stalls for memory, or the control group is at its limit.
    pub is_memory_tight: bool,
    /// Bytes that may become dirty before the kernel makes writers wait.
    pub dirty_headroom_bytes: Option<u64>,
}

/// The modes beside buffered that the kernel and the file system of a pool can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModeCapabilities {
    pub is_uncached_possible: bool,
    /// `None`: the file system refuses `O_DIRECT`.
    pub direct: Option<DirectAlignment>,
}
