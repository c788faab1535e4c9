//! Where a replica lies below the pool's directory: `data/ab/cd/<file id>`.
//!
//! Two levels of 64 directories. 4,096 leaves hold ten million replicas with 2,500 in each; 65,536 would mostly be
//! made for one file each, and each costs a directory block and its own place on the disk. 64 consecutive ids share
//! a leaf, so that files made together lie together; the runs are spread by a mixing function.

use types::FileId;

pub const DATA: &str = "data";
/// The block sums of replicas, in directories as those of the replicas.
pub const SUMS: &str = "sums";
pub const FAN_OUT: usize = 64;
const RUN_BITS: u32 = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaPlace {
    file: FileId,
    outer: u8,
    inner: u8,
}

impl ReplicaPlace {
    pub fn of(file: FileId) -> ReplicaPlace {
        let mixed = mix(file.0 >> RUN_BITS);
        ReplicaPlace { file, outer: (mixed >> 58) as u8, inner: (mixed >> 52 & 0x3f) as u8 }
    }

    pub fn outer_directory(self) -> String {
        format!("{DATA}/{:02x}", self.outer)
    }

    pub fn directory(self) -> String {
        format!("{DATA}/{:02x}/{:02x}", self.outer, self.inner)
    }

    pub fn path(self) -> String {
        format!("{DATA}/{:02x}/{:02x}/{}", self.outer, self.inner, self.file)
    }

    /// Of its block sums: the directories from the outer one on, and the file.
    pub fn sums_paths(self) -> [String; 3] {
        let outer = format!("{SUMS}/{:02x}", self.outer);
        let inner = format!("{outer}/{:02x}", self.inner);
        let path = format!("{inner}/{}", self.file);
        [outer, inner, path]
    }

    pub fn outer_index(self) -> usize {
        usize::from(self.outer)
    }

    pub fn directory_index(self) -> usize {
        usize::from(self.outer) * FAN_OUT + usize::from(self.inner)
    }
}

/// Whether a directory of this name belongs to the layout.
pub fn is_level(name: &str) -> bool {
    name.len() == 2
        && u8::from_str_radix(name, 16).is_ok_and(|level| format!("{level:02x}") == name && level < 64)
}

/// The finaliser of SplitMix64: neighbours come out unrelated.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// These paths are on disks: a change needs a new version of the pool.
    #[test]
    fn the_paths_are_as_they_always_were() {
        assert_eq!(ReplicaPlace::of(FileId(1)).path(), "data/38/22/0000000000000001");
        assert_eq!(ReplicaPlace::of(FileId(64)).path(), "data/24/10/0000000000000040");
        assert_eq!(ReplicaPlace::of(FileId(64)).sums_paths()[2], "sums/24/10/0000000000000040");
        assert_eq!(ReplicaPlace::of(FileId(u64::MAX)).path(), "data/35/29/ffffffffffffffff");
    }

    #[test]
    fn consecutive_ids_share_directories_and_runs_spread_evenly() {
        assert_eq!(ReplicaPlace::of(FileId(128)).directory(), ReplicaPlace::of(FileId(191)).directory());
        let mut replicas: HashMap<String, usize> = HashMap::new();
        for file in 0..4096 * 64 * 10 {
            *replicas.entry(ReplicaPlace::of(FileId(file)).directory()).or_default() += 1;
        }
        assert!(replicas.len() > 4090, "{} directories", replicas.len());
        assert!(replicas.values().all(|count| *count < 64 * 40), "one directory is crowded");
    }

    #[test]
    fn every_directory_of_the_layout_is_recognised_and_no_other() {
        for file in 0..10_000_u64 {
            let directory = ReplicaPlace::of(FileId(file << 6)).directory();
            assert!(directory.split('/').skip(1).all(is_level));
        }
        for wrong in ["", "0", "40", "ff", "0A", "+1", "000"] {
            assert!(!is_level(wrong), "{wrong}");
        }
    }
}
