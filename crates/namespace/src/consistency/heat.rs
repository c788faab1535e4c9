//! Which directories are hot: the entries of many operations in most of the recent groups.

use std::collections::HashMap;

use types::FileId;

use crate::config::GROUP_LEN_MAX;

/// Changes of its entries in one group, from which on the group is busy. A client creates one file at a time in a directory,
/// so these are of many clients, and no untar. In smaller groups a delta cost more than the row that it stands for; in
/// groups of this size no difference was measured (docs/decisions/0008-directory-consistency.md).
const BUSY_OPERATIONS: u32 = 64;
const _: () =
    assert!(BUSY_OPERATIONS <= GROUP_LEN_MAX / 2, "no group of an instance that sets nothing would be busy");
/// Groups that are looked back on.
const RECENT: u32 = u32::BITS;
/// Busy ones among them from which on a directory is hot, and down to which it stays so.
const HOT_GROUPS: u32 = 24;
const WARM_GROUPS: u32 = 8;
/// Directories known; any further one is not hot.
const TRACKED_MAX: usize = 4096;

/// The recent groups as one directory has seen them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Busy groups, the last one lowest.
    busy: u32,
    is_hot: bool,
}

impl History {
    /// After `quiet` groups that did not touch the directory, and one that did.
    pub fn after(self, quiet: u64, operations: u32) -> History {
        let shift = u32::try_from(quiet).unwrap_or(u32::MAX).saturating_add(1);
        let busy = self.busy.checked_shl(shift).unwrap_or(0) | u32::from(operations >= BUSY_OPERATIONS);
        let groups = busy.count_ones();
        History { busy, is_hot: groups >= HOT_GROUPS || (self.is_hot && groups >= WARM_GROUPS) }
    }

    pub fn is_hot(self) -> bool {
        self.is_hot
    }
}

#[derive(Default)]
pub struct Heat {
    /// Groups observed.
    groups: u64,
    /// With the last group that touched each.
    directories: HashMap<FileId, (u64, History)>,
    /// When those were last looked through for what is cold.
    purged: u64,
}

impl Heat {
    pub fn begin_group(&mut self) {
        self.groups += 1;
    }

    #[cfg(test)]
    pub fn groups(&self) -> u64 {
        self.groups
    }

    /// Whether it is hot, now that the group did so much in it.
    pub fn observe(&mut self, dir: FileId, operations: u32) -> bool {
        let group = self.groups;
        let (last, history) = match self.directories.get(&dir) {
            Some(known) => *known,
            // One creates now and then in most directories; those are not worth a place.
            None if operations < BUSY_OPERATIONS => return false,
            None => (group - 1, History::default()),
        };
        if self.directories.len() >= TRACKED_MAX && !self.directories.contains_key(&dir) {
            if group - self.purged >= u64::from(RECENT) {
                self.purged = group;
                self.directories.retain(|_, (last, _)| group - *last < u64::from(RECENT));
            }
            if self.directories.len() >= TRACKED_MAX {
                return false;
            }
        }
        let history = history.after(group.saturating_sub(last + 1), operations);
        self.directories.insert(dir, (group, history));
        history.is_hot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn busy(groups: u32) -> History {
        (0..groups).fold(History::default(), |history, _| history.after(0, BUSY_OPERATIONS))
    }

    #[test]
    fn a_directory_is_hot_after_many_busy_groups_and_cold_after_a_pause() {
        assert!(!busy(HOT_GROUPS - 1).is_hot());
        assert!(busy(HOT_GROUPS).is_hot());
        assert!(!busy(HOT_GROUPS).after(u64::MAX, BUSY_OPERATIONS).is_hot());
        assert!(
            !(0..1000).fold(History::default(), |history, _| history.after(0, BUSY_OPERATIONS - 1)).is_hot()
        );
    }

    #[test]
    fn a_hot_directory_stays_hot_through_a_lull() {
        let lull = (0..RECENT / 2).fold(busy(RECENT), |history, _| history.after(0, 1));
        assert!(lull.is_hot());
        let end = (0..RECENT).fold(lull, |history, _| history.after(0, 1));
        assert!(!end.is_hot());
    }

    #[test]
    fn no_more_directories_are_known_than_there_are_places() {
        let mut heat = Heat::default();
        for _ in 0..RECENT {
            heat.begin_group();
            for dir in 0..2 * TRACKED_MAX as u64 {
                heat.observe(FileId(dir), BUSY_OPERATIONS);
            }
            assert!(heat.directories.len() <= TRACKED_MAX);
        }
        for _ in 0..=RECENT {
            heat.begin_group();
        }
        heat.observe(FileId(u64::MAX), BUSY_OPERATIONS);
        assert_eq!(heat.directories.len(), 1);
    }

    proptest! {
        /// Between two changes of its mind lie as many groups as the two bounds are apart.
        #[test]
        fn it_does_not_flutter(groups in prop::collection::vec((0_u64..4, 0_u32..2 * BUSY_OPERATIONS), 1..400)) {
            let (mut history, mut since) = (History::default(), u64::from(RECENT));
            for (quiet, operations) in groups {
                let before = history.is_hot();
                history = history.after(quiet, operations);
                since += quiet + 1;
                if history.is_hot() != before {
                    prop_assert!(since >= u64::from(HOT_GROUPS - WARM_GROUPS), "{since}");
                    since = 0;
                }
            }
        }
    }
}
