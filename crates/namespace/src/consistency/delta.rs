//! A delta: exactly what lies between two states of a directory, or none.

use crate::inode::Inode;
use crate::store::DirDelta;

impl DirDelta {
    /// `None` if there is more between them than a delta can say: a time that was set, an owner, a mode.
    pub fn between(before: &Inode, after: &Inode) -> Option<DirDelta> {
        let (old, new) = (&before.attributes, &after.attributes);
        let time = if new.mtime > old.mtime {
            new.mtime
        } else if new.ctime > old.ctime {
            new.ctime
        } else {
            old.mtime.min(old.ctime)
        };
        let nlink = i64::from(new.nlink) - i64::from(old.nlink);
        let delta = DirDelta { nlink, change: new.change, time };
        (delta.applied_to(before) == *after).then_some(delta)
    }

    pub fn applied_to(&self, before: &Inode) -> Inode {
        let mut after = *before;
        let attributes = &mut after.attributes;
        let nlink = i64::from(attributes.nlink).saturating_add(self.nlink);
        attributes.nlink = u32::try_from(nlink.max(0)).unwrap_or(u32::MAX);
        attributes.change = attributes.change.max(self.change);
        attributes.mtime = attributes.mtime.max(self.time);
        attributes.ctime = attributes.ctime.max(self.time);
        after
    }
}

/// Merges all deltas into their rows, in the SQL that all engines have in common. They are to be removed then, in the same
/// transaction.
pub const FOLD_ALL: &str = "UPDATE inodes AS i SET nlink = i.nlink + d.nlink, \
    change = CASE WHEN d.change > i.change THEN d.change ELSE i.change END, \
    mtime_s = CASE WHEN (d.time_s, d.time_ns) > (i.mtime_s, i.mtime_ns) THEN d.time_s ELSE i.mtime_s END, \
    mtime_ns = CASE WHEN (d.time_s, d.time_ns) > (i.mtime_s, i.mtime_ns) THEN d.time_ns ELSE i.mtime_ns END, \
    ctime_s = CASE WHEN (d.time_s, d.time_ns) > (i.ctime_s, i.ctime_ns) THEN d.time_s ELSE i.ctime_s END, \
    ctime_ns = CASE WHEN (d.time_s, d.time_ns) > (i.ctime_s, i.ctime_ns) THEN d.time_ns ELSE i.ctime_ns END \
    FROM (SELECT s.inode, s.nlink, s.change, s.time_s, max(t.time_ns) AS time_ns \
          FROM (SELECT inode, sum(nlink) AS nlink, max(change) AS change, max(time_s) AS time_s \
                FROM dir_deltas GROUP BY inode) s \
          JOIN dir_deltas t ON t.inode = s.inode AND t.time_s = s.time_s \
          GROUP BY s.inode, s.nlink, s.change, s.time_s) AS d \
    WHERE i.id = d.inode";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::{Instance, new_inode};
    use proptest::prelude::*;
    use types::{FileId, FileKind, Timestamp};

    const INSTANCE: Instance = Instance { start: 1 };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::new(seconds, 0).unwrap()
    }

    fn directory() -> Inode {
        new_inode(FileId(5), FileKind::Directory, at(50), INSTANCE)
    }

    #[test]
    fn a_time_that_was_set_is_no_delta() {
        let before = directory();
        for mtime in [3, 90] {
            let mut after = before;
            after.attributes.mtime = at(mtime);
            after.touch(at(60), INSTANCE);
            assert_eq!(DirDelta::between(&before, &after), None, "{mtime}");
        }
    }

    #[test]
    fn nor_is_anything_else_that_is_not_of_entries() {
        let before = directory();
        let changed: [fn(&mut Inode); 4] = [
            |inode| inode.attributes.mode = 0o700,
            |inode| inode.attributes.uid = 7,
            |inode| inode.parent = FileId(9),
            |inode| inode.attributes.ctime = at(1),
        ];
        for change in changed {
            let mut after = before;
            change(&mut after);
            after.attributes.change += 1;
            assert_eq!(DirDelta::between(&before, &after), None);
        }
    }

    proptest! {
        /// For any earlier times of a directory, and any clock.
        #[test]
        fn row_and_deltas_are_the_truth(
            mtime in 0_i64..100, ctime in 0_i64..100, steps in prop::collection::vec((0_i64..100, -1_i64..2), 1..20)
        ) {
            let mut row = directory();
            (row.attributes.mtime, row.attributes.ctime) = (at(mtime), at(ctime));
            row.attributes.nlink = 40;
            let (mut truth, mut deltas) = (row, Vec::new());
            for (now, links) in steps {
                let before = truth;
                truth.attributes.nlink = truth.attributes.nlink.strict_add_signed(links as i32);
                truth.touch_entries(at(now), INSTANCE);
                // Two different times at once, of which a delta knows one, are written as a row.
                match DirDelta::between(&before, &truth) {
                    Some(delta) => deltas.push(delta),
                    None => {
                        row = truth;
                        deltas.clear();
                    }
                }
            }
            // In any order: a merge is of sums and maxima.
            for order in [deltas.clone(), deltas.into_iter().rev().collect()] {
                prop_assert_eq!(order.iter().fold(row, |row, delta| delta.applied_to(&row)), truth);
            }
        }
    }
}
