//! The bounds of gathering, the same for all files of a pool.

use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatherLimits {
    /// The length of an extent, and its alignment in the file. A power of two.
    pub extent_bytes: usize,
    /// A write of this length or longer is not gathered: the copy would cost more than the merge gains.
    pub write_bytes_max: usize,
    /// A shorter write joins an open extent, but does not open one: its memory would be nearly empty.
    pub opening_bytes_min: usize,
    /// Separate ranges of one extent. A write that would make one more bypasses, and the extent is flushed.
    pub extent_fragments_max: usize,
    /// Open extents of one file, however much it has earned.
    pub file_extents_max: usize,
    /// A file whose extents did not pay may open one more after this many writes.
    pub trial_writes: u32,
    /// Memory of all extents of the pool, open, in flight or failed. A whole extent is charged from its first byte on.
    pub pool_bytes_max: usize,
    /// Separate ranges in all extents of the pool.
    pub pool_fragments_max: usize,
    /// An extent is due this long after its first write.
    pub age_max: Duration,
}

impl GatherLimits {
    /// For a pool that may use `pool_bytes_max` of memory. Not measured: these are starting points, and follow from the
    /// extent of 1 MiB that the autoIO paper (Qian et al., FAST '24) flushes.
    pub fn for_memory(pool_bytes_max: usize) -> GatherLimits {
        let extent_bytes = 1 << 20;
        let extents = pool_bytes_max / extent_bytes;
        GatherLimits {
            extent_bytes,
            write_bytes_max: extent_bytes / 2,
            opening_bytes_min: 4 << 10,
            extent_fragments_max: 128,
            file_extents_max: (extents / 2).max(1),
            trial_writes: 256,
            pool_bytes_max,
            pool_fragments_max: 32 * extents,
            age_max: Duration::from_secs(1),
        }
    }

    pub(super) fn check(&self) {
        assert!(self.extent_bytes.is_power_of_two(), "extents are aligned to their length");
        assert!(
            self.write_bytes_max <= self.extent_bytes,
            "a gathered write reaches into two extents at most"
        );
        assert!(self.extent_fragments_max > 0 && self.file_extents_max > 0, "an extent can be opened");
    }
}
