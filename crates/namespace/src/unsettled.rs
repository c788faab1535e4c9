//! A file with writes that were answered as unstable: visible, and not yet in the database.
//!
//! The entry holds the whole visible inode. The committer may change the same inode meanwhile, from an older copy; the
//! writes that it did not see are kept as a `Delta` and put on top of what it published.

use std::time::{Duration, Instant};

use crate::inode::{Inode, Instance};
use crate::written::Delta;

#[derive(Clone, Copy)]
pub struct Unsettled {
    pub visible: Inode,
    /// The inode in the database, which the totals count.
    pub stored: Inode,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    /// Waits for the committer, which has seen nothing of `delta`.
    Waiting { delta: Delta },
    /// A group is writing `taken`; `fresh` came after it looked.
    InFlight { taken: Delta, fresh: Option<Delta> },
    /// Written; kept for readers with an older snapshot.
    Settled { since: Instant },
}

pub enum Merged {
    Done {
        inode: Inode,
        /// Nothing was in memory before: the committer may sleep without a limit.
        is_first: bool,
    },
    /// The file is not cached: read it and come again.
    NeedsBase,
    /// Too many files wait, or the file has checksums: write this one through.
    Refused,
}

impl Unsettled {
    pub fn new(base: Inode, delta: &Delta, instance: Instance) -> Unsettled {
        let mut visible = base;
        delta.apply(&mut visible, instance);
        Unsettled { visible, stored: base, state: State::Waiting { delta: *delta } }
    }

    pub fn merge(&mut self, delta: &Delta, instance: Instance) -> Inode {
        delta.apply(&mut self.visible, instance);
        self.state = match self.state {
            State::Waiting { delta: earlier } => State::Waiting { delta: earlier.merge(delta) },
            State::InFlight { taken, fresh } => {
                State::InFlight { taken, fresh: Some(fresh.map_or(*delta, |fresh| fresh.merge(delta))) }
            }
            State::Settled { .. } => State::Waiting { delta: *delta },
        };
        self.visible
    }

    /// A copy for the group that will write it.
    pub fn take(&mut self) -> Unsettled {
        let copy = *self;
        if let State::Waiting { delta } = self.state {
            self.state = State::InFlight { taken: delta, fresh: None };
        }
        copy
    }

    pub fn untake(&mut self) {
        if let State::InFlight { taken, fresh } = self.state {
            self.state = State::Waiting { delta: fresh.map_or(taken, |fresh| taken.merge(&fresh)) };
        }
    }

    /// A group wrote `inode`, having seen all but what came after it looked.
    pub fn publish(&mut self, inode: Inode, instance: Instance) {
        let shown = self.visible.attributes.change;
        self.visible = inode;
        self.stored = inode;
        let unseen = match self.state {
            State::Waiting { delta } => Some(delta),
            State::InFlight { fresh, .. } => fresh,
            State::Settled { .. } => None,
        };
        self.state = match unseen {
            Some(delta) => {
                // Above both what was shown and what was written: this is a third state.
                self.visible.attributes.change = shown.max(inode.attributes.change);
                delta.apply(&mut self.visible, instance);
                State::Waiting { delta }
            }
            None => State::Settled { since: Instant::now() },
        };
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    pub fn is_needed(&self, now: Instant, kept: Duration) -> bool {
        match self.state {
            State::Settled { since } => now.duration_since(since) < kept,
            State::Waiting { .. } | State::InFlight { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::new_inode;
    use api::{Stability, Written};
    use types::{FileId, FileKind, Timestamp};

    const INSTANCE: Instance = Instance { start: 1 };

    fn file() -> Inode {
        new_inode(FileId(9), FileKind::Regular, Timestamp::EPOCH, INSTANCE)
    }

    fn write(size: u64) -> Delta {
        let written = Written {
            size_at_least: Some(size),
            mtime: None,
            space_used: None,
            stability: Stability::Unstable,
        };
        Delta::new(&written, Timestamp::EPOCH)
    }

    #[test]
    fn a_write_that_the_group_did_not_see_is_put_on_top_of_what_it_published() {
        let mut entry = Unsettled::new(file(), &write(10), INSTANCE);
        let mut group = entry.take().visible;
        group.attributes.mode = 0o600;
        group.touch(Timestamp::EPOCH, INSTANCE);
        let shown = entry.merge(&write(20), INSTANCE);
        entry.publish(group, INSTANCE);
        assert!(entry.is_waiting());
        assert_eq!((entry.visible.attributes.size, entry.visible.attributes.mode), (20, 0o600));
        assert!(entry.visible.attributes.change > shown.attributes.change);
        assert!(entry.visible.attributes.change > group.attributes.change);
    }

    #[test]
    fn a_group_that_looked_before_the_first_write_does_not_lose_it() {
        let mut group = file();
        let mut entry = Unsettled::new(file(), &write(10), INSTANCE);
        group.touch(Timestamp::EPOCH, INSTANCE);
        entry.publish(group, INSTANCE);
        assert_eq!(entry.visible.attributes.size, 10);
        assert!(entry.visible.attributes.change > group.attributes.change);
    }

    /// Checksums were recorded while a write came that the group did not see.
    #[test]
    fn checksums_are_not_shown_over_a_write_that_the_group_did_not_see() {
        let mut entry = Unsettled::new(file(), &write(10), INSTANCE);
        let mut group = entry.take().visible;
        group.extras.has_checksums = true;
        entry.merge(&write(5), INSTANCE);
        entry.publish(group, INSTANCE);
        assert!(!entry.visible.extras.has_checksums);
        assert!(entry.stored.extras.has_checksums, "whose rows the next group has to remove");
    }

    #[test]
    fn a_group_that_was_rolled_back_leaves_its_files_waiting() {
        let mut entry = Unsettled::new(file(), &write(10), INSTANCE);
        entry.take();
        assert!(!entry.is_waiting());
        entry.untake();
        assert!(entry.is_waiting());
        assert_eq!(entry.visible.attributes.size, 10);
    }
}
