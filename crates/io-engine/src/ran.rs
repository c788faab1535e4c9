//! The way that a request has really taken.

/// A way that the file system refuses falls back on `Buffered`, and says so by this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// Through the page cache.
    Buffered,
    /// Through the page cache, which drops the pages afterwards (`RWF_DONTCACHE`).
    Uncached,
    /// Past the page cache (O_DIRECT). The edges of an unaligned write go through it even then.
    Direct,
}
