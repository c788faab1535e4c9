//! Groups that were answered and may not be on the server's disk yet, to be sent again when it lost them.
//!
//! With `namespace.sync = "interval"` commits are answered before they are on disk, with `"names"` those of attributes. A
//! crash of the server then loses the last of them, while the head, which answered, lives. One group in a while waits for
//! the disk, and with it all before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use types::Acl;

use super::change::Change;
use crate::store::Batch;

/// How long no group waits for the disk.
const KEPT_TIME: Duration = Duration::from_secs(1);
const KEPT_BYTES: usize = 32 << 20;

#[derive(Default)]
pub struct UnsyncedGroups {
    groups: VecDeque<Group>,
    bytes: usize,
    /// The first of them.
    since: Option<Instant>,
}

pub struct Group {
    pub sequence: u64,
    pub changes: Vec<Change>,
}

impl UnsyncedGroups {
    /// The next group waits for the disk, and nothing has to be kept any more.
    pub fn is_full(&self, now: Instant) -> bool {
        self.bytes > KEPT_BYTES || self.since.is_some_and(|since| now.duration_since(since) > KEPT_TIME)
    }

    pub fn push(&mut self, batch: &Batch, changes: Vec<Change>, now: Instant) {
        self.bytes += weight(batch);
        self.since.get_or_insert(now);
        self.groups.push_back(Group { sequence: batch.sequence, changes });
    }

    /// All of them are on disk.
    pub fn clear(&mut self) {
        *self = UnsyncedGroups::default();
    }

    /// Groups that a database with all groups up to `held` lacks; `None`: some of them are not here.
    pub fn behind(&self, held: u64, last: u64) -> Option<impl ExactSizeIterator<Item = &Group>> {
        let first = self.groups.front()?.sequence;
        let is_whole = first <= held + 1 && held < last && self.groups.back()?.sequence == last;
        is_whole.then(|| self.groups.range((held + 1 - first) as usize..))
    }
}

/// About the bytes in memory.
fn weight(batch: &Batch) -> usize {
    const ROW: usize = 64;
    const INODE: usize = 256;
    let names: usize = batch.names.keys().map(|(_, name)| ROW + name.as_bytes().len()).sum();
    let properties: usize = batch
        .properties
        .rows()
        .map(|(_, name, value)| ROW + name.len() + value.map_or(0, |value| value.len()))
        .sum();
    let xattrs: usize = batch
        .xattrs
        .rows()
        .map(|(_, name, row)| ROW + name.as_bytes().len() + row.map_or(0, |row| row.value.len()))
        .sum();
    let acl_bytes = |acl: &Acl| size_of_val(acl.aces());
    let acls: usize = batch.acls.values().map(|acl| ROW + acl.as_ref().map_or(0, acl_bytes)).sum();
    let targets: usize = batch.targets.values().flatten().map(|target| target.as_bytes().len()).sum();
    let clients: usize = batch.clients.keys().map(Vec::len).sum();
    let rows = batch.locations.rows().count() + batch.checksums.rows().count() * 2 + batch.targets.len();
    let more = batch.clients.len() + batch.dir_deltas.len() + batch.usage.len() + batch.quotas.len();
    let journal = batch.journal.as_ref().map_or(0, Vec::len);
    INODE * batch.inodes.len()
        + names
        + properties
        + xattrs
        + acls
        + targets
        + clients
        + journal
        + ROW * (rows + more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(groups: std::ops::RangeInclusive<u64>, now: Instant) -> UnsyncedGroups {
        let mut kept = UnsyncedGroups::default();
        for sequence in groups {
            kept.push(&Batch { sequence, ..Batch::default() }, Vec::new(), now);
        }
        kept
    }

    #[test]
    fn groups_that_a_database_lacks_are_sent_again_if_all_of_them_are_kept() {
        let kept = kept(5..=8, Instant::now());
        let behind = |held, last| {
            kept.behind(held, last).map(|groups| groups.map(|group| group.sequence).collect::<Vec<_>>())
        };
        assert_eq!(behind(4, 8), Some(vec![5, 6, 7, 8]));
        assert_eq!(behind(7, 8), Some(vec![8]));
        for (held, last) in [(3, 8), (8, 8), (9, 8), (6, 9)] {
            assert_eq!(behind(held, last), None, "{held} {last}");
        }
        assert!(UnsyncedGroups::default().behind(0, 1).is_none());
    }

    #[test]
    fn a_group_waits_for_the_disk_when_the_first_that_did_not_is_old() {
        let start = Instant::now();
        let mut kept = kept(1..=2, start);
        assert!(!kept.is_full(start));
        assert!(kept.is_full(start + KEPT_TIME * 2));
        kept.clear();
        assert!(!kept.is_full(start + KEPT_TIME * 2));
    }

    #[test]
    fn a_group_waits_for_the_disk_when_many_bytes_are_kept() {
        let (mut kept, start) = (UnsyncedGroups::default(), Instant::now());
        let mut batch = Batch::default();
        let value = bytes::Bytes::from(vec![0; 1 << 20]);
        batch.properties.put(types::FileId(9), "large".to_owned(), value);
        for _ in 0..32 {
            assert!(!kept.is_full(start));
            batch.sequence += 1;
            kept.push(&batch, Vec::new(), start);
        }
        assert!(kept.is_full(start));
    }
}
