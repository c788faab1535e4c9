//! Directories with deltas, in memory: what they are, what readers are shown, and which are folded next.
//!
//! Only the committer changes anything here. Readers take an inode that is shown here in place of any other copy. An
//! entry outlives its fold for a while, for readers whose snapshot is older; a reader that comes later still finds by
//! `is_forgotten` that it has to look again.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::Consistency;
use parking_lot::{Mutex, RwLock};
use types::FileId;

use super::heat::Heat;
use super::modes::Modes;
use crate::inode::Inode;
use crate::store::DirDelta;

const SHARDS: u64 = 64;
/// Directories in memory; beyond it a directory is written with its entries, as if it were strong.
pub const PENDING_MAX: usize = 16_384;
/// Of one directory; the next change writes the row.
const DELTAS_MAX: u32 = 256;
/// Folded with one group: directories, and about as many rows of theirs.
pub const FOLDED_MAX: usize = 128;
const FOLDED_ROWS_MAX: u32 = 2048;
/// After its fold, for readers whose snapshot is older.
const FOLDED_KEPT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
struct Pinned {
    truth: Inode,
    shown: Inode,
    /// Rows in the database, of groups that are published.
    deltas: u32,
    is_queued: bool,
    /// Removed, and here only for readers with an older snapshot.
    is_gone: bool,
    /// While there are no deltas: the group that folded them, and when.
    folded: Option<(u64, Instant)>,
}

/// Change of a directory by a group.
pub struct DirectoryChange {
    pub dir: FileId,
    pub before: Option<Inode>,
    /// `None`: removed.
    pub after: Option<Inode>,
    /// It wrote a delta, not the row.
    pub is_delta: bool,
}

#[derive(Default)]
struct Order {
    /// Directories with deltas, oldest first.
    waiting: VecDeque<FileId>,
    /// So many of them have waited long enough.
    due: usize,
}

pub struct Pending {
    shards: Box<[RwLock<HashMap<FileId, Pinned>>]>,
    /// In all shards, so that the common case takes no lock.
    len: AtomicUsize,
    /// The last fold of those that were dropped.
    forgotten: AtomicU64,
    pub modes: Modes,
    /// The committer's. Taken before a shard.
    order: Mutex<Order>,
    /// The committer's. Leaf lock.
    heat: Mutex<Heat>,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            len: AtomicUsize::new(0),
            forgotten: AtomicU64::new(0),
            modes: Modes::default(),
            order: Mutex::default(),
            heat: Mutex::default(),
        }
    }
}

/// For readers.
impl Pending {
    pub fn shown(&self, dir: FileId) -> Option<Inode> {
        self.pinned(dir).filter(|pinned| !pinned.is_gone).map(|pinned| pinned.shown)
    }

    /// Also of a removed one, for a reader that found it in a snapshot.
    pub fn last_shown(&self, dir: FileId) -> Option<Inode> {
        self.pinned(dir).map(|pinned| pinned.shown)
    }

    pub fn holds(&self, dir: FileId) -> bool {
        !self.is_empty() && self.shard(dir).read().contains_key(&dir)
    }

    /// The last fold of the directories that were forgotten.
    pub fn last_forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Acquire)
    }

    /// A snapshot that ends with group `sequence` may show a directory as it was before what everybody has seen since, and
    /// nobody here knows any more.
    pub fn is_forgotten(&self, sequence: u64) -> bool {
        self.last_forgotten() > sequence
    }
}

/// For groups.
impl Pending {
    pub fn begin_group(&self) {
        self.heat.lock().begin_group();
    }

    pub fn truth(&self, dir: FileId) -> Option<Inode> {
        self.pinned(dir).filter(|pinned| !pinned.is_gone).map(|pinned| pinned.truth)
    }

    /// There are deltas in the database.
    pub fn is_waiting(&self, dir: FileId) -> bool {
        self.pinned(dir).is_some_and(|pinned| pinned.deltas > 0)
    }

    /// Further directories that may wait.
    pub fn room(&self) -> usize {
        PENDING_MAX.saturating_sub(self.len.load(Ordering::Acquire))
    }

    /// The delta to write of a directory of which only entries changed, so many times; `None`: write its row.
    pub fn delta(
        &self,
        before: &Inode,
        after: &Inode,
        operations: u32,
        room: &mut usize,
    ) -> Option<DirDelta> {
        let dir = after.id();
        let may_wait = match self.modes.of(before) {
            Consistency::Strong => false,
            Consistency::Weak | Consistency::Soft => true,
            Consistency::Auto => self.heat.lock().observe(dir, operations),
        };
        let pinned = if may_wait { self.pinned(dir) } else { return None };
        if pinned.is_some_and(|pinned| pinned.deltas >= DELTAS_MAX) || (pinned.is_none() && *room == 0) {
            return None;
        }
        let delta = DirDelta::between(before, after)?;
        *room -= usize::from(pinned.is_none());
        Some(delta)
    }

    /// After COMMIT of group `sequence`, and before any cache is told.
    pub fn publish(&self, sequence: u64, changes: &[DirectoryChange]) {
        for change in changes {
            match (change.before, change.after) {
                (Some(before), Some(after)) if change.is_delta => self.pin(&before, &after),
                _ if self.is_empty() => {}
                (_, after) => self.settle(sequence, change.dir, after),
            }
        }
    }

    fn pin(&self, before: &Inode, after: &Inode) {
        let dir = after.id();
        let is_weak = self.modes.of(after) == Consistency::Weak;
        let mut order = self.order.lock();
        let mut shard = self.shard(dir).write();
        let pinned = shard.entry(dir).or_insert_with(|| {
            self.len.fetch_add(1, Ordering::AcqRel);
            let (truth, shown) = (*before, *before);
            Pinned { truth, shown, deltas: 0, is_queued: false, is_gone: false, folded: None }
        });
        pinned.truth = *after;
        if !is_weak {
            pinned.shown = *after;
        }
        pinned.deltas += 1;
        pinned.folded = None;
        if !pinned.is_queued {
            pinned.is_queued = true;
            order.waiting.push_back(dir);
        }
    }

    /// Its row holds the truth, or is gone.
    fn settle(&self, sequence: u64, dir: FileId, after: Option<Inode>) {
        if let Some(pinned) = self.shard(dir).write().get_mut(&dir) {
            (pinned.deltas, pinned.is_gone) = (0, after.is_none());
            if let Some(after) = after {
                (pinned.truth, pinned.shown) = (after, after);
            }
            pinned.folded = Some((sequence, Instant::now()));
        }
    }
}

/// For the committer.
impl Pending {
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// All that wait now are due, however long.
    pub fn fall_due(&self) {
        let mut order = self.order.lock();
        order.due = order.waiting.len();
    }

    pub fn has_due(&self) -> bool {
        self.order.lock().due > 0
    }

    /// Those that a group is to fold, the oldest first.
    pub fn take_due(&self) -> Vec<FileId> {
        let mut order = self.order.lock();
        let (mut taken, mut rows) = (Vec::new(), 0);
        while order.due > 0 && taken.len() < FOLDED_MAX && rows < FOLDED_ROWS_MAX {
            order.due -= 1;
            let Some(dir) = order.waiting.pop_front() else { break };
            if let Some(pinned) = self.shard(dir).write().get_mut(&dir) {
                pinned.is_queued = false;
                if pinned.deltas > 0 {
                    taken.push(dir);
                    rows += pinned.deltas;
                }
            }
        }
        taken
    }

    /// The group that was to fold these was rolled back. They are due with the next flush.
    pub fn put_back(&self, dirs: &[FileId]) {
        let mut order = self.order.lock();
        for dir in dirs.iter().rev() {
            if let Some(pinned) = self.shard(*dir).write().get_mut(dir)
                && !pinned.is_queued
            {
                pinned.is_queued = true;
                order.waiting.push_front(*dir);
            }
        }
        order.due = 0;
    }

    /// Those that were folded long ago.
    pub fn forget(&self) {
        self.forget_folded_before(Instant::now().checked_sub(FOLDED_KEPT));
    }

    #[cfg(test)]
    pub fn forget_all(&self) {
        self.forget_folded_before(Some(Instant::now()));
    }

    /// Groups written, and directories that wait.
    #[cfg(test)]
    pub fn groups_and_waiting(&self) -> (u64, usize) {
        let waiting = self.order.lock().waiting.len();
        (self.heat.lock().groups(), waiting)
    }

    fn forget_folded_before(&self, end: Option<Instant>) {
        let (false, Some(end)) = (self.is_empty(), end) else { return };
        for shard in &self.shards {
            shard.write().retain(|_, pinned| match pinned.folded {
                Some((sequence, at)) if at < end => {
                    // Before the entry is removed: a reader that misses the entry looks at `forgotten`.
                    self.forgotten.fetch_max(sequence, Ordering::AcqRel);
                    self.len.fetch_sub(1, Ordering::AcqRel);
                    false
                }
                _ => true,
            });
        }
    }

    fn pinned(&self, dir: FileId) -> Option<Pinned> {
        if self.is_empty() {
            return None;
        }
        self.shard(dir).read().get(&dir).copied()
    }

    fn shard(&self, dir: FileId) -> &RwLock<HashMap<FileId, Pinned>> {
        &self.shards[(dir.0 % SHARDS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::{Instance, new_inode};
    use types::{FileKind, Timestamp};

    const INSTANCE: Instance = Instance { start: 1 };

    fn directory(id: u64, mode: Consistency) -> Inode {
        let mut dir = new_inode(FileId(id), FileKind::Directory, Timestamp::EPOCH, INSTANCE);
        dir.extras.consistency = Some(mode);
        dir
    }

    fn touched(dir: &Inode) -> Inode {
        let mut dir = *dir;
        dir.touch_entries(Timestamp::EPOCH, INSTANCE);
        dir
    }

    fn change(before: &Inode, after: &Inode, is_delta: bool) -> DirectoryChange {
        DirectoryChange { dir: before.id(), before: Some(*before), after: Some(*after), is_delta }
    }

    fn touch(pending: &Pending, sequence: u64, dir: &Inode) -> Inode {
        let after = touched(dir);
        let mut room = pending.room();
        let is_delta = pending.delta(dir, &after, 1, &mut room).is_some();
        pending.publish(sequence, &[change(dir, &after, is_delta)]);
        after
    }

    #[test]
    fn a_weak_directory_shows_what_it_was_until_it_is_folded() {
        let pending = Pending::default();
        for (id, mode) in [(5, Consistency::Weak), (6, Consistency::Soft)] {
            let before = directory(id, mode);
            let after = touch(&pending, 1, &before);
            assert_eq!(pending.truth(before.id()), Some(after));
            let shown = if mode == Consistency::Weak { before } else { after };
            assert_eq!(pending.shown(before.id()), Some(shown));
            pending.publish(2, &[change(&after, &after, false)]);
            assert_eq!(pending.shown(before.id()), Some(after));
            assert!(!pending.is_waiting(before.id()));
        }
        let strong = directory(7, Consistency::Strong);
        touch(&pending, 3, &strong);
        assert_eq!(pending.shown(strong.id()), None);
    }

    #[test]
    fn one_that_is_gone_is_known_to_who_found_it_before() {
        let pending = Pending::default();
        let after = touch(&pending, 1, &directory(5, Consistency::Soft));
        let gone = DirectoryChange { dir: after.id(), before: Some(after), after: None, is_delta: false };
        pending.publish(2, &[gone]);
        assert_eq!((pending.shown(after.id()), pending.truth(after.id())), (None, None));
        assert_eq!(pending.last_shown(after.id()), Some(after));
        pending.fall_due();
        assert_eq!(pending.take_due(), []);
    }

    #[test]
    fn many_directories_are_folded_a_few_at_a_time_and_in_their_order() {
        let pending = Pending::default();
        let dirs: Vec<_> = (0..10_000).map(|id| directory(id, Consistency::Soft)).collect();
        let after: Vec<_> = dirs.iter().map(|dir| touch(&pending, 1, dir)).collect();
        assert_eq!(pending.take_due(), [], "nothing has waited long enough");
        pending.fall_due();
        let mut folded = Vec::new();
        while pending.has_due() {
            let due = pending.take_due();
            assert!(due.len() <= FOLDED_MAX);
            // A directory that changes meanwhile waits for the next flush.
            touch(&pending, 2, &directory(20_000 + folded.len() as u64, Consistency::Soft));
            folded.extend(due);
        }
        assert_eq!(folded, dirs.iter().map(Inode::id).collect::<Vec<_>>());
        assert_eq!(pending.truth(FileId(9_999)), Some(after[9_999]));
    }

    #[test]
    fn one_with_many_deltas_counts_as_many() {
        let pending = Pending::default();
        for id in 0..100 {
            (0..DELTAS_MAX).fold(directory(id, Consistency::Soft), |dir, _| touch(&pending, 1, &dir));
        }
        pending.fall_due();
        assert_eq!(pending.take_due().len(), (FOLDED_ROWS_MAX / DELTAS_MAX) as usize);
    }

    #[test]
    fn directories_that_are_put_back_come_first_in_the_next_flush() {
        let pending = Pending::default();
        for id in 0..3 {
            touch(&pending, 1, &directory(id, Consistency::Soft));
        }
        pending.fall_due();
        let due = pending.take_due();
        pending.put_back(&due);
        assert!(!pending.has_due());
        pending.fall_due();
        assert_eq!(pending.take_due(), due);
    }

    #[test]
    fn beyond_its_places_a_directory_is_written_as_it_is() {
        let pending = Pending::default();
        for id in 0..PENDING_MAX as u64 {
            touch(&pending, 1, &directory(id, Consistency::Soft));
        }
        let more = directory(u64::MAX, Consistency::Weak);
        touch(&pending, 1, &more);
        assert_eq!(pending.shown(more.id()), None);
        let known = directory(0, Consistency::Soft);
        assert_eq!(pending.shown(FileId(0)), Some(touch(&pending, 2, &known)));
    }

    #[test]
    fn so_is_one_with_too_many_deltas() {
        let pending = Pending::default();
        let mut dir = directory(5, Consistency::Soft);
        for _ in 0..DELTAS_MAX {
            dir = touch(&pending, 1, &dir);
            assert!(pending.is_waiting(dir.id()));
        }
        dir = touch(&pending, 2, &dir);
        assert!(!pending.is_waiting(dir.id()));
        assert_eq!(pending.shown(dir.id()), Some(dir));
    }

    #[test]
    fn a_reader_that_comes_too_late_for_what_was_dropped_is_told_so() {
        let pending = Pending::default();
        let before = directory(5, Consistency::Soft);
        let after = touch(&pending, 7, &before);
        pending.forget_folded_before(Some(Instant::now()));
        assert!(pending.holds(before.id()), "it waits");
        pending.publish(9, &[change(&after, &after, false)]);
        pending.forget_folded_before(Instant::now().checked_sub(Duration::from_secs(60)));
        assert!(pending.holds(before.id()), "somebody may have looked before");
        assert!(!pending.is_forgotten(8));
        while pending.holds(before.id()) {
            pending.forget_folded_before(Some(Instant::now()));
        }
        assert!(pending.is_forgotten(8) && !pending.is_forgotten(9));
        assert!(pending.is_empty());
    }
}
