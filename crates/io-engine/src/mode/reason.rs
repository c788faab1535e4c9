//! The rule that chose a mode, as counters and recorded decisions name it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// In the order of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The operator's choice for the directory.
    Pinned,
    /// The policy allows one mode only.
    Forced,
    /// Direct I/O was wanted, and the file system cannot do it.
    DirectUnavailable,
    /// Uncached I/O was wanted, and the kernel or the file system cannot do it.
    UncachedUnavailable,
    /// Direct I/O was wanted, and the range has no whole block.
    BelowOneBlock,
    /// The page cache has the range.
    HotRead,
    /// Shorter than any size at which the page cache is worth avoiding.
    Small,
    /// A bypass would first write the dirty pages of the range.
    DirtyPages,
    /// The range has dirty pages, but holders conflict and the request is large.
    DirtyContended,
    Contended,
    MemoryTight,
    /// A buffered write would wait for write-back.
    DirtyHeadroomLow,
    /// The written bytes will be read soon.
    ReadAfterWrite,
    /// The bytes are read more than once.
    Reused,
    /// Nothing tells whether the page cache has the range.
    ResidencyUnknown,
    /// Nothing tells whether the bytes are read once only.
    ReuseUnknown,
    /// A large write that must be on disk when it is answered.
    StableLarge,
    LargeWrite,
    /// A large read of a sequential stream.
    StreamingRead,
    /// A large read without an order that read-ahead would follow.
    RandomRead,
    /// A read or write of medium size whose bytes are used once (the paper's rule).
    UsedOnce,
    /// At least the size that is always direct (the rules of the paper and of BeeGFS).
    Large,
    /// Large enough for direct I/O were the range or the memory aligned.
    Unaligned,
    /// No mode is known to cost less than buffered at this size.
    BelowCrossover,
    /// A door sends a stretch from the page cache by itself; it asked first.
    Sent,
}

impl Reason {
    pub const ALL: [Reason; 25] = [
        Reason::Pinned,
        Reason::Forced,
        Reason::DirectUnavailable,
        Reason::UncachedUnavailable,
        Reason::BelowOneBlock,
        Reason::HotRead,
        Reason::Small,
        Reason::DirtyPages,
        Reason::DirtyContended,
        Reason::Contended,
        Reason::MemoryTight,
        Reason::DirtyHeadroomLow,
        Reason::ReadAfterWrite,
        Reason::Reused,
        Reason::ResidencyUnknown,
        Reason::ReuseUnknown,
        Reason::StableLarge,
        Reason::LargeWrite,
        Reason::StreamingRead,
        Reason::RandomRead,
        Reason::UsedOnce,
        Reason::Large,
        Reason::Unaligned,
        Reason::BelowCrossover,
        Reason::Sent,
    ];

    /// Stable: metrics and recorded decisions carry it.
    pub fn label(self) -> &'static str {
        match self {
            Reason::Pinned => "pinned",
            Reason::Forced => "forced",
            Reason::DirectUnavailable => "direct-unavailable",
            Reason::UncachedUnavailable => "uncached-unavailable",
            Reason::BelowOneBlock => "below-one-block",
            Reason::HotRead => "hot-read",
            Reason::Small => "small",
            Reason::DirtyPages => "dirty-pages",
            Reason::DirtyContended => "dirty-contended",
            Reason::Contended => "contended",
            Reason::MemoryTight => "memory-tight",
            Reason::DirtyHeadroomLow => "dirty-headroom-low",
            Reason::ReadAfterWrite => "read-after-write",
            Reason::Reused => "reused",
            Reason::ResidencyUnknown => "residency-unknown",
            Reason::ReuseUnknown => "reuse-unknown",
            Reason::StableLarge => "stable-large",
            Reason::LargeWrite => "large-write",
            Reason::StreamingRead => "streaming-read",
            Reason::RandomRead => "random-read",
            Reason::UsedOnce => "used-once",
            Reason::Large => "large",
            Reason::Unaligned => "unaligned",
            Reason::BelowCrossover => "below-crossover",
            Reason::Sent => "sent",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_the_serialised_name_and_the_list_is_in_order() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("{:?}", reason.label()));
        }
    }
}
