//! The answers to a write that may be gathered.

/// Whether the bytes of a write were gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of the bytes are in memory.
    Gathered {
        /// An extent has all of its bytes: `Gather::extents_ready` names it.
        completes: bool,
    },
    /// None of the bytes are. The caller flushes the extents of the write's range, and then writes to the file.
    Bypassed(Bypass),
}

/// A reason not to gather a write, in the order in which the reasons are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Bypass {
    /// It would pass the largest offset of a file. The write to the file gives the error.
    TooFar,
    /// It is long enough to be written alone.
    Large,
    /// An earlier flush has failed, and its bytes are still in memory.
    Failed,
    /// The host is short of memory.
    Tight,
    /// The writes of the file come in the order of their offsets: the page cache merges them.
    InOrder,
    /// It is too short to open an extent.
    Tiny,
    /// The file has as many open extents as its earlier ones have earned.
    Unearned,
    /// The extent has too many separate ranges.
    Fragmented,
    /// The memory of the pool is used up.
    NoMemory,
    /// The separate ranges of the pool are used up.
    NoFragments,
}

impl Bypass {
    pub const ALL: [Bypass; 10] = [
        Bypass::TooFar,
        Bypass::Large,
        Bypass::Failed,
        Bypass::Tight,
        Bypass::InOrder,
        Bypass::Tiny,
        Bypass::Unearned,
        Bypass::Fragmented,
        Bypass::NoMemory,
        Bypass::NoFragments,
    ];

    /// The name in metrics. Does not change.
    pub fn label(self) -> &'static str {
        match self {
            Bypass::TooFar => "too-far",
            Bypass::Large => "large",
            Bypass::Failed => "failed",
            Bypass::Tight => "tight",
            Bypass::InOrder => "in-order",
            Bypass::Tiny => "tiny",
            Bypass::Unearned => "unearned",
            Bypass::Fragmented => "fragmented",
            Bypass::NoMemory => "no-memory",
            Bypass::NoFragments => "no-fragments",
        }
    }
}
