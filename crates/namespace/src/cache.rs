//! The authoritative cache: what it holds is the truth, so a hit asks no database.
//!
//! Only two hands write it. The committer publishes a group after its COMMIT and before it answers. A reader fills in
//! what it found in a snapshot, but only where no later group touched the shard of the key: each shard remembers the
//! last group published in it, and each snapshot knows the last group it holds. So a slow reader never puts an old value over a newer one,
//! nor brings a removed one back.
//!
//! Writes that were answered as unstable wait in the shards (`unsettled`), each as a full copy of the inode. Copies of one inode are
//! reconciled by the highest `change` (see `inode`), never combined by readers.
//!
//! Of a directory that was made while this ran the cache knows all names until it evicts one: a name that is not here
//! is absent, and the database need not be asked.
//!
//! Entries are bounded by bytes (`keep`). Nothing depends on whether an entry is kept, also not at 0 bytes.

mod keep;
mod published;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use api::ReplicaRef;
use parking_lot::Mutex;
use types::{Acl, FileId, Name, SymlinkTarget};

use crate::consistency::{DirectoryChange, Pending};
use crate::counts::{CacheKind, Counts, Event, Figures};
use crate::inode::{Inode, Instance};
use crate::store::Wanted;
use crate::unsettled::{Merged, Unsettled};
use crate::written::Delta;

use keep::{DentryKey, Keep};
use published::Published;

const SHARDS: usize = 64;
/// Files with unstable writes in memory; beyond it a write goes through to the database.
pub const UNSETTLED_MAX: usize = 16_384;
/// A written-out entry stays this long for readers whose snapshot is older than the write.
const SETTLED_KEPT: Duration = Duration::from_secs(1);
pub struct Cache {
    keep: Keep,
    pub counts: Arc<Counts>,
    shards: Box<[Mutex<Shard>]>,
    hasher: std::hash::RandomState,
    /// Entries in all shards' `unsettled`, so that the common case takes no lock.
    unsettled_len: AtomicUsize,
    /// Directories whose rows follow their entries later.
    pub pending: Pending,
    pub published: Published,
}

#[derive(Default)]
struct Shard {
    /// The last group that touched a key of this shard.
    published: u64,
    unsettled: HashMap<FileId, Unsettled>,
    /// Nothing more waits here: the committer takes its last look.
    is_closed: bool,
}

/// Entries that a group changed (`None`: removed or absent), and those that it merely read.
#[derive(Default)]
pub struct Changes {
    pub inodes: Vec<(FileId, Option<Inode>)>,
    /// That were made: they have no names but those of `dentries`.
    pub new_directories: Vec<FileId>,
    pub directories: Vec<DirectoryChange>,
    pub dentries: Vec<(DentryKey, Option<FileId>)>,
    pub locations: Vec<(FileId, Option<Arc<[ReplicaRef]>>)>,
    pub targets: Vec<(FileId, SymlinkTarget)>,
    pub acls: Vec<(FileId, Option<Acl>)>,
    pub learned: Learned,
}

/// Found in a snapshot.
#[derive(Default)]
pub struct Learned {
    pub inodes: Vec<Inode>,
    pub dentries: Vec<(DentryKey, Option<FileId>)>,
    pub locations: Vec<(FileId, Arc<[ReplicaRef]>)>,
    pub targets: Vec<(FileId, SymlinkTarget)>,
    pub acls: Vec<(FileId, Acl)>,
}

impl Cache {
    pub fn new(bytes: u64, published: u64) -> Cache {
        let counts = Arc::new(Counts::new());
        Cache {
            keep: Keep::new(bytes, &counts),
            counts,
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::default())).collect(),
            hasher: std::hash::RandomState::new(),
            unsettled_len: AtomicUsize::new(0),
            pending: Pending::default(),
            published: Published::new(published),
        }
    }

    pub fn inode(&self, file: FileId) -> Option<Inode> {
        self.count(CacheKind::Inode, self.visible(file))
    }

    fn visible(&self, file: FileId) -> Option<Inode> {
        // The cache first: an entry leaves `unsettled` long after it was published in the cache.
        let cached = loop {
            let forgotten = self.pending.last_forgotten();
            let cached = self.keep.inodes.get(&file);
            if let Some(shown) = self.pending.shown(file) {
                return Some(shown);
            }
            // A directory that was forgotten meanwhile may have been folded after the look at the cache.
            if !self.pending.is_forgotten(forgotten) {
                break cached;
            }
        };
        if self.unsettled_len.load(Ordering::Acquire) == 0 {
            return cached;
        }
        newest(self.shard(&file).lock().unsettled.get(&file).map(|entry| entry.visible), cached)
    }

    /// The inode as the last group left it, without waiting writes.
    pub fn stored_inode(&self, file: FileId) -> Option<Inode> {
        self.count(CacheKind::Inode, self.keep.inodes.get(&file))
    }

    /// `found` in a snapshot, or a newer copy of it.
    pub fn newest(&self, found: Inode) -> Inode {
        let pending = self.pending.last_shown(found.id());
        pending.or_else(|| newest(self.visible(found.id()), Some(found))).unwrap_or(found)
    }

    /// As far as it is here, newest or not.
    pub fn peek_inode(&self, file: FileId) -> Option<Inode> {
        self.keep.inodes.peek(&file)
    }

    /// As far as it is here.
    pub fn peek_acl(&self, file: FileId) -> Option<Acl> {
        self.keep.acls.peek(&file)
    }

    pub fn dentry(&self, dir: FileId, name: &Name) -> Option<Option<FileId>> {
        let key = (dir, name.clone());
        let found = self.keep.dentries.get(&key).or_else(|| self.dentry_of_whole(&key));
        self.count(if found == Some(None) { CacheKind::AbsentName } else { CacheKind::Name }, found)
    }

    /// Of a directory that is known whole.
    fn dentry_of_whole(&self, key: &DentryKey) -> Option<Option<FileId>> {
        if !self.keep.is_whole(key.0) {
            return None;
        }
        // Again, and while nobody changes the directory.
        let _shard = self.shard(&key.0).lock();
        self.keep.dentries.get(key).or_else(|| self.keep.is_whole(key.0).then_some(None))
    }

    pub fn locations(&self, file: FileId) -> Option<Arc<[ReplicaRef]>> {
        self.count(CacheKind::Locations, self.keep.locations.get(&file))
    }

    pub fn target(&self, file: FileId) -> Option<SymlinkTarget> {
        self.count(CacheKind::Target, self.keep.targets.get(&file))
    }

    pub fn acl(&self, file: FileId) -> Option<Acl> {
        self.count(CacheKind::Acl, self.keep.acls.get(&file))
    }

    fn count<T>(&self, kept: CacheKind, found: Option<T>) -> Option<T> {
        self.counts.add(if found.is_some() { Event::Hit(kept) } else { Event::Miss(kept) });
        found
    }

    pub fn figures(&self) -> Figures {
        self.keep.figures(&self.counts)
    }

    /// After COMMIT of group `sequence`, before its answers.
    pub fn publish(&self, sequence: u64, changes: Changes, instance: Instance) {
        self.pending.publish(sequence, &changes.directories);
        // Before the inodes that speak of them.
        for (file, acl) in changes.acls {
            let mut shard = self.shard(&file).lock();
            shard.published = sequence;
            match acl {
                Some(acl) => self.keep.acls.insert(file, acl),
                None => drop(self.keep.acls.remove(&file)),
            }
        }
        for (file, locations) in changes.locations {
            let mut shard = self.shard(&file).lock();
            shard.published = sequence;
            match locations {
                Some(locations) => self.keep.locations.insert(file, locations),
                None => drop(self.keep.locations.remove(&file)),
            }
        }
        // Inodes that lost their last name follow after the names: no name leads to a removed file while another file
        // has it already.
        let is_nameless = |inode: &Option<Inode>| inode.as_ref().is_none_or(Inode::is_nameless);
        for (file, inode) in changes.inodes.iter().filter(|(_, inode)| !is_nameless(inode)) {
            self.publish_inode(sequence, *file, *inode, instance);
        }
        for (file, target) in changes.targets {
            self.keep.targets.insert(file, target);
        }
        for dir in changes.new_directories {
            self.keep.begin_whole(dir);
        }
        // New names before gone ones: a file on its way from one name to another is never without.
        let (there, gone): (Vec<_>, Vec<_>) =
            changes.dentries.into_iter().partition(|(_, child)| child.is_some());
        for (key, child) in there.into_iter().chain(gone) {
            let mut shard = self.shard(&key.0).lock();
            shard.published = sequence;
            self.keep.set_name(key, child);
        }
        for (file, inode) in changes.inodes.iter().filter(|(_, inode)| is_nameless(inode)) {
            self.publish_inode(sequence, *file, *inode, instance);
        }
        self.learn(sequence, changes.learned);
        self.published.note(sequence);
    }

    fn publish_inode(&self, sequence: u64, file: FileId, inode: Option<Inode>, instance: Instance) {
        let mut shard = self.shard(&file).lock();
        shard.published = sequence;
        match inode {
            Some(inode) => {
                if let Some(entry) = shard.unsettled.get_mut(&file) {
                    entry.publish(inode, instance);
                }
                self.keep.inodes.insert(file, inode);
            }
            None => {
                if shard.unsettled.remove(&file).is_some() {
                    self.unsettled_len.fetch_sub(1, Ordering::AcqRel);
                }
                self.keep.inodes.remove(&file);
                self.keep.end_whole(file);
            }
        }
    }

    /// Keeps what was found in a snapshot that holds all groups up to `sequence`.
    pub fn learn(&self, sequence: u64, learned: Learned) {
        for inode in learned.inodes {
            let shard = self.shard(&inode.id()).lock();
            if shard.published <= sequence
                && !self.pending.holds(inode.id())
                && self.keep.inodes.peek(&inode.id()).is_none_or(|old| is_newer(&inode, &old))
            {
                self.keep.inodes.insert(inode.id(), inode);
            }
        }
        for (key, child) in learned.dentries {
            let shard = self.shard(&key.0).lock();
            if shard.published <= sequence && !self.keep.is_whole(key.0) {
                self.keep.dentries.insert(key, child);
            }
        }
        for (file, locations) in learned.locations {
            let shard = self.shard(&file).lock();
            if shard.published <= sequence {
                self.keep.locations.insert(file, locations);
            }
        }
        for (file, acl) in learned.acls {
            let shard = self.shard(&file).lock();
            if shard.published <= sequence {
                self.keep.acls.insert(file, acl);
            }
        }
        for (file, target) in learned.targets {
            self.keep.targets.insert(file, target);
        }
    }

    pub fn knows(&self, wanted: &Wanted) -> bool {
        match wanted {
            Wanted::Inode(file) => self.keep.inodes.peek(file).is_some(),
            Wanted::Name(dir, name) => match self.keep.dentries.peek(&(*dir, name.clone())) {
                Some(Some(child)) => self.keep.inodes.peek(&child).is_some(),
                Some(None) => true,
                None => self.keep.is_whole(*dir),
            },
        }
    }

    /// Makes an unstable write visible. `base` is what a snapshot of that group number said of the file.
    pub fn merge(
        &self,
        file: FileId,
        delta: &Delta,
        base: Option<(Inode, u64)>,
        instance: Instance,
    ) -> Merged {
        let mut shard = self.shard(&file).lock();
        if !shard.is_closed
            && let Some(entry) = shard.unsettled.get_mut(&file)
        {
            if forgets_checksums(&entry.visible, delta) {
                return Merged::Refused;
            }
            return Merged::Done { inode: entry.merge(delta, instance), is_first: false };
        }
        let known = base.filter(|(_, sequence)| shard.published <= *sequence).map(|(inode, _)| inode);
        let Some(base) = self.keep.inodes.get(&file).or(known) else { return Merged::NeedsBase };
        let is_full = shard.is_closed || self.unsettled_len.load(Ordering::Acquire) >= UNSETTLED_MAX;
        if is_full || forgets_checksums(&base, delta) {
            return Merged::Refused;
        }
        let entry = Unsettled::new(base, delta, instance);
        let inode = entry.visible;
        shard.unsettled.insert(file, entry);
        let is_first = self.unsettled_len.fetch_add(1, Ordering::AcqRel) == 0;
        Merged::Done { inode, is_first }
    }

    /// For the committer: the visible copy, which it is about to write, with the size that the database has.
    pub fn take_unsettled(&self, file: FileId) -> Option<Unsettled> {
        if self.unsettled_len.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.shard(&file).lock().unsettled.get_mut(&file).map(Unsettled::take)
    }

    /// The group that took these was rolled back: they wait again.
    pub fn untake(&self, files: &[FileId]) {
        for file in files {
            if let Some(entry) = self.shard(file).lock().unsettled.get_mut(file) {
                entry.untake();
            }
        }
    }

    /// Files that wait to be written. Forgets those that were written long enough ago.
    pub fn waiting(&self) -> Vec<FileId> {
        let mut waiting = Vec::new();
        if self.unsettled_len.load(Ordering::Acquire) == 0 {
            return waiting;
        }
        let now = Instant::now();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let before = shard.unsettled.len();
            shard.unsettled.retain(|_, entry| entry.is_needed(now, SETTLED_KEPT));
            self.unsettled_len.fetch_sub(before - shard.unsettled.len(), Ordering::AcqRel);
            waiting.extend(
                shard.unsettled.iter().filter(|(_, entry)| entry.is_waiting()).map(|(file, _)| *file),
            );
        }
        waiting.sort_unstable();
        waiting
    }

    /// From here on no write waits.
    pub fn close(&self) {
        for shard in &self.shards {
            shard.lock().is_closed = true;
        }
    }

    pub fn has_unsettled(&self) -> bool {
        self.unsettled_len.load(Ordering::Acquire) != 0
    }

    fn shard(&self, file: &FileId) -> &Mutex<Shard> {
        let hash = self.hasher.hash_one(file);
        &self.shards[(hash % SHARDS as u64) as usize]
    }
}

fn is_newer(a: &Inode, b: &Inode) -> bool {
    a.attributes.change > b.attributes.change
}

/// Such a write does not wait in memory: a crash would bring the checksums back over bytes that a pool may have kept.
fn forgets_checksums(inode: &Inode, delta: &Delta) -> bool {
    inode.extras.has_checksums && delta.is_of_data()
}

/// The one with the highest change; `first` of equals.
fn newest(first: Option<Inode>, second: Option<Inode>) -> Option<Inode> {
    match (first, second) {
        (Some(first), Some(second)) => Some(if is_newer(&second, &first) { second } else { first }),
        (first, second) => first.or(second),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::new_inode;
    use api::{Consistency, Stability, Written};
    use types::{FileKind, Timestamp};

    const INSTANCE: Instance = Instance { start: 1 };

    fn inode(id: u64, change: u64) -> Inode {
        let mut inode = new_inode(FileId(id), FileKind::Regular, Timestamp::EPOCH, INSTANCE);
        inode.attributes.change = change;
        inode
    }

    fn delta(size: u64) -> Delta {
        let written = Written {
            size_at_least: Some(size),
            mtime: None,
            space_used: None,
            stability: Stability::Unstable,
        };
        Delta::new(&written, Timestamp::EPOCH)
    }

    fn key() -> DentryKey {
        (FileId(1), Name::new(b"a").unwrap())
    }

    fn named(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn named_in(dir: u64, names: impl IntoIterator<Item = (String, Option<FileId>)>) -> Changes {
        let of_name = |(text, child): (String, _)| ((FileId(dir), named(&text)), child);
        Changes { dentries: names.into_iter().map(of_name).collect(), ..Changes::default() }
    }

    /// Folds and forgets come as close to the reader's two looks as threads allow.
    #[test]
    fn a_directory_that_is_folded_and_forgotten_between_two_looks_is_not_shown_as_before() {
        const CHANGES: u64 = 20_000;
        let cache = Cache::new(100_000, 0);
        let dir = |change: u64| {
            let mut dir = new_inode(FileId(7), FileKind::Directory, Timestamp::EPOCH, INSTANCE);
            dir.extras.consistency = Some(Consistency::Soft);
            dir.attributes.change = change;
            dir
        };
        let publish = |sequence: u64, before: u64, after: u64, is_delta: bool| {
            let (before, after) = (dir(before), dir(after));
            let change =
                DirectoryChange { dir: FileId(7), before: Some(before), after: Some(after), is_delta };
            let inodes = if is_delta { Vec::new() } else { vec![(FileId(7), Some(after))] };
            let changes = Changes { inodes, directories: vec![change], ..Changes::default() };
            cache.publish(sequence, changes, INSTANCE);
        };
        publish(1, 0, 0, false);
        let acknowledged = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for change in 1..=CHANGES {
                    publish(2 * change, change - 1, change, true);
                    acknowledged.store(change as usize, Ordering::SeqCst);
                    publish(2 * change + 1, change, change, false);
                    cache.pending.forget_all();
                }
            });
            loop {
                let known = acknowledged.load(Ordering::SeqCst) as u64;
                let shown = cache.inode(FileId(7)).unwrap().attributes.change;
                assert!(shown >= known, "{shown} after {known}");
                if known == CHANGES {
                    break;
                }
            }
        });
    }

    #[test]
    fn a_directory_that_was_just_made_has_only_the_names_it_was_given() {
        let cache = Cache::new(100_000, 0);
        let (made, other) = (FileId(7), FileId(8));
        let names = named_in(7, [("a".to_owned(), Some(other))]);
        cache.publish(1, Changes { new_directories: vec![made], ..names }, INSTANCE);
        assert_eq!(cache.dentry(made, &named("a")), Some(Some(other)));
        assert_eq!(cache.dentry(made, &named("b")), Some(None));
        assert_eq!(cache.dentry(other, &named("b")), None, "of another directory nothing is known");
        cache.publish(2, named_in(7, [("a".to_owned(), None), ("b".to_owned(), Some(other))]), INSTANCE);
        assert_eq!(cache.dentry(made, &named("a")), Some(None));
        assert_eq!(cache.dentry(made, &named("b")), Some(Some(other)));
        // A reader that looked before says nothing new.
        let learned = Learned { dentries: vec![((made, named("b")), None)], ..Learned::default() };
        cache.learn(2, learned);
        assert_eq!(cache.dentry(made, &named("b")), Some(Some(other)));
        assert!(
            cache.knows(&Wanted::Name(made, named("c"))) && !cache.knows(&Wanted::Name(other, named("c")))
        );
        let gone = Changes { inodes: vec![(made, None)], ..Changes::default() };
        cache.publish(3, gone, INSTANCE);
        assert_eq!(cache.dentry(made, &named("c")), None);
    }

    /// The inode went first, and a reader who looked the name up again at once found the gone file again and again.
    #[test]
    fn a_name_that_is_given_to_another_file_never_leads_to_one_that_is_gone() {
        let cache = Cache::new(100_000, 0);
        let replace = |sequence: u64| {
            let (new, mut old) = (inode(sequence + 1, sequence), inode(sequence, sequence));
            old.attributes.nlink = 0;
            let inodes = vec![(old.id(), Some(old)), (new.id(), Some(new))];
            let dentries = vec![(key(), Some(new.id()))];
            cache.publish(sequence, Changes { inodes, dentries, ..Changes::default() }, INSTANCE);
        };
        replace(1);
        std::thread::scope(|scope| {
            let replacing = scope.spawn(|| (2..20_000).for_each(replace));
            while !replacing.is_finished() {
                let found = cache.dentry(key().0, &key().1).flatten().unwrap();
                if cache.inode(found).is_some_and(|inode| inode.is_nameless()) {
                    assert_ne!(cache.dentry(key().0, &key().1).flatten(), Some(found));
                }
            }
        });
    }

    #[test]
    fn a_directory_of_which_a_name_was_let_go_is_asked_again() {
        for bytes in [0, 10_000, 40_000] {
            let cache = Cache::new(bytes, 0);
            let made = Changes { new_directories: vec![FileId(7)], ..Changes::default() };
            cache.publish(1, made, INSTANCE);
            for number in 0..2000 {
                cache.publish(2 + number, named_in(7, [(format!("n{number}"), Some(FileId(9)))]), INSTANCE);
            }
            let known: Vec<_> =
                (0..2000).map(|n| cache.dentry(FileId(7), &named(&format!("n{n}")))).collect();
            assert!(known.iter().all(|known| *known != Some(None)), "{bytes} bytes: a name that is there");
            assert!(known.contains(&None), "{bytes} bytes hold them all");
            assert_eq!(cache.dentry(FileId(7), &named("absent")), None);
        }
    }

    #[test]
    fn a_replaced_entry_is_not_counted_as_an_eviction() {
        let cache = Cache::new(1_000_000, 0);
        for change in 1..100 {
            let inodes = vec![(FileId(5), Some(inode(5, change)))];
            let changes = Changes { inodes, ..named_in(1, [("a".to_owned(), Some(FileId(change)))]) };
            cache.publish(change, changes, INSTANCE);
        }
        assert!(cache.figures().cache.iter().all(|figures| figures.evictions == 0));
    }

    #[test]
    fn a_slow_reader_brings_nothing_removed_back() {
        let cache = Cache::new(100_000, 0);
        let changes = |inode, child| Changes {
            inodes: vec![(FileId(5), inode)],
            dentries: vec![(key(), child)],
            ..Changes::default()
        };
        let learned = || Learned {
            inodes: vec![inode(5, 10)],
            dentries: vec![(key(), Some(FileId(5)))],
            ..Learned::default()
        };
        cache.publish(1, changes(Some(inode(5, 10)), Some(FileId(5))), INSTANCE);
        cache.publish(2, changes(None, None), INSTANCE);
        cache.learn(1, learned());
        assert_eq!(cache.inode(FileId(5)), None);
        assert_eq!(cache.dentry(FileId(1), &key().1), Some(None));
        cache.learn(2, learned());
        assert_eq!(cache.inode(FileId(5)), Some(inode(5, 10)));
    }

    #[test]
    fn an_older_copy_is_not_put_over_a_newer_one() {
        let cache = Cache::new(100_000, 0);
        cache.learn(0, Learned { inodes: vec![inode(5, 11)], ..Learned::default() });
        cache.learn(0, Learned { inodes: vec![inode(5, 10)], ..Learned::default() });
        assert_eq!(cache.inode(FileId(5)), Some(inode(5, 11)));
        assert_eq!(cache.newest(inode(5, 10)), inode(5, 11));
        assert_eq!(cache.newest(inode(5, 12)), inode(5, 12));
    }

    #[test]
    fn too_many_unstable_files_write_through() {
        let cache = Cache::new(100_000, 0);
        for number in 0..UNSETTLED_MAX as u64 {
            let merged =
                cache.merge(FileId(number + 5), &delta(1), Some((inode(number + 5, 1), 0)), INSTANCE);
            assert!(matches!(merged, Merged::Done { is_first, .. } if is_first == (number == 0)));
        }
        let more = FileId(u64::MAX / 2);
        assert!(matches!(
            cache.merge(more, &delta(1), Some((inode(more.0, 1), 0)), INSTANCE),
            Merged::Refused
        ));
        // One that waits already may go on.
        assert!(matches!(cache.merge(FileId(5), &delta(2), None, INSTANCE), Merged::Done { .. }));
        assert_eq!(cache.waiting().len(), UNSETTLED_MAX);
    }

    #[test]
    fn a_write_over_checksums_does_not_wait_in_memory() {
        let cache = Cache::new(100_000, 0);
        let mut summed = inode(5, 1);
        summed.extras.has_checksums = true;
        assert!(matches!(cache.merge(FileId(5), &delta(1), Some((summed, 0)), INSTANCE), Merged::Refused));
        let idle =
            Written { size_at_least: None, mtime: None, space_used: Some(1), stability: Stability::Unstable };
        let idle = Delta::new(&idle, Timestamp::EPOCH);
        let merged = cache.merge(FileId(5), &idle, Some((summed, 0)), INSTANCE);
        assert!(matches!(merged, Merged::Done { inode, .. } if inode.extras.has_checksums));
        // Nor on top of what waits already.
        assert!(matches!(cache.merge(FileId(5), &delta(1), None, INSTANCE), Merged::Refused));
    }

    #[test]
    fn an_unstable_write_is_not_based_on_what_a_later_group_changed() {
        let cache = Cache::new(100_000, 0);
        let changes = Changes { inodes: vec![(FileId(5), None)], ..Changes::default() };
        cache.publish(3, changes, INSTANCE);
        let old = Some((inode(5, 1), 2));
        assert!(matches!(cache.merge(FileId(5), &delta(1), old, INSTANCE), Merged::NeedsBase));
    }
}
