//! Effect of a data write on an inode; merged when several wait to be written.

use api::Written;
use types::Timestamp;
use types::permission::without_privileges;

use crate::inode::{Inode, Instance};

/// A `Written` with its time taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    size_at_least: Option<u64>,
    /// `None`: no byte was written and no time was given.
    mtime: Option<Timestamp>,
    now: Timestamp,
    space_used: Option<u64>,
}

impl Delta {
    pub fn new(written: &Written, now: Timestamp) -> Delta {
        let mtime = written.mtime.or(written.size_at_least.map(|_| now));
        Delta { size_at_least: written.size_at_least, mtime, now, space_used: written.space_used }
    }

    /// It would change nothing.
    pub fn is_empty(&self) -> bool {
        self.mtime.is_none() && self.space_used.is_none()
    }

    /// Bytes were written.
    pub fn is_of_data(&self) -> bool {
        self.size_at_least.is_some()
    }

    pub fn apply(&self, inode: &mut Inode, instance: Instance) {
        let attributes = &mut inode.attributes;
        if let Some(space_used) = self.space_used {
            attributes.space_used = space_used;
        }
        let Some(mtime) = self.mtime else { return };
        // A layout is committed long after its bytes were written: what was set in between must stand.
        let is_news = mtime >= attributes.ctime;
        if let Some(size) = self.size_at_least {
            attributes.size = attributes.size.max(size);
            if is_news {
                attributes.mode = without_privileges(attributes.mode);
            }
        }
        if is_news {
            attributes.mtime = mtime;
        }
        if self.is_of_data() {
            inode.extras.has_checksums = false;
            inode.judge_placement();
        }
        inode.touch(self.now, instance);
    }

    /// `self`, then `later`.
    pub fn merge(&self, later: &Delta) -> Delta {
        Delta {
            size_at_least: self.size_at_least.max(later.size_at_least),
            mtime: self.mtime.max(later.mtime),
            now: self.now.max(later.now),
            space_used: later.space_used.or(self.space_used),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::new_inode;
    use api::Stability;
    use types::{FileId, FileKind};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::new(seconds, 0).unwrap()
    }

    fn written(size: Option<u64>) -> Written {
        Written { size_at_least: size, mtime: None, space_used: None, stability: Stability::Unstable }
    }

    #[test]
    fn merged_writes_do_what_they_do_one_by_one() {
        let instance = Instance { start: 1 };
        let (a, b) = (Delta::new(&written(Some(9)), at(5)), Delta::new(&written(Some(4)), at(6)));
        let mut one_by_one = new_inode(FileId(2), FileKind::Regular, at(1), instance);
        let mut merged = one_by_one;
        a.apply(&mut one_by_one, instance);
        b.apply(&mut one_by_one, instance);
        a.merge(&b).apply(&mut merged, instance);
        assert_eq!(merged.attributes.size, 9);
        merged.attributes.change = one_by_one.attributes.change;
        assert_eq!(merged, one_by_one);
    }

    #[test]
    fn a_write_without_bytes_changes_nothing() {
        let instance = Instance { start: 1 };
        let mut inode = new_inode(FileId(2), FileKind::Regular, at(1), instance);
        let before = inode;
        let delta = Delta::new(&written(None), at(5));
        assert!(delta.is_empty());
        delta.apply(&mut inode, instance);
        assert_eq!(inode, before);
    }

    /// `tar` writes, sets times and mode, and closes: the layout is committed last, with bytes written first.
    #[test]
    fn bytes_written_before_the_attributes_were_set_leave_times_and_mode() {
        let instance = Instance { start: 1 };
        let mut inode = new_inode(FileId(2), FileKind::Regular, at(1), instance);
        (inode.attributes.mode, inode.attributes.mtime, inode.attributes.ctime) = (0o4755, at(-9), at(5));
        let change = inode.attributes.change;
        let late = Written { mtime: Some(at(4)), ..written(Some(7)) };
        Delta::new(&late, at(6)).apply(&mut inode, instance);
        assert_eq!(
            (inode.attributes.mode, inode.attributes.mtime, inode.attributes.size),
            (0o4755, at(-9), 7)
        );
        assert!(inode.attributes.change > change);
        let later = Written { mtime: Some(at(8)), ..written(Some(7)) };
        Delta::new(&later, at(9)).apply(&mut inode, instance);
        assert_eq!((inode.attributes.mode, inode.attributes.mtime), (0o755, at(8)));
    }

    #[test]
    fn writing_takes_set_uid_and_executable_set_gid_away() {
        assert_eq!(without_privileges(0o6755), 0o755);
        assert_eq!(without_privileges(0o6745), 0o2745);
    }
}
