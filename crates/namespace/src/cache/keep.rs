//! Entries of the cache: a store for each kind, each within its share of the bytes.
//!
//! An entry weighs what it takes: its slot, the slot's part in the index and in the slots of keys that were let go and
//! are remembered for a while, and its text or list on the heap. The test `an_entry_weighs_what_it_takes` measures it.

use std::hash::Hash;
use std::sync::Arc;

use api::ReplicaRef;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use types::{Ace, Acl, FileId, Name, SymlinkTarget};

use crate::counts::{CacheKind, Counts, Event, Figures};
use crate::inode::Inode;

pub type DentryKey = (FileId, Name);
type Store<K, V, L = CountEvicted> = Cache<K, V, Weigh, DefaultHashBuilder, L>;

/// Of the bytes each kind has so many parts: about as many inodes as names.
const INODES: u64 = 16;
const NAMES: u64 = 10;
const LOCATIONS: u64 = 4;
const TARGETS: u64 = 1;
const ACLS: u64 = 2;
const WHOLE: u64 = 1;
const PARTS: u64 = INODES + NAMES + LOCATIONS + TARGETS + ACLS + WHOLE;

/// Keys that were let go and are remembered, to every one that is kept: what is asked for again soon then stays longer.
const REMEMBERED: f64 = 0.25;
/// Of a slot besides key and value: links, state, and its place in the index.
const SLOT_BYTES: u64 = 34;
/// Of a reference-counted slice besides its bytes: two counts, and on average the allocator's rounding and own word.
const SLICE_BYTES: u64 = 16 + 16;

pub struct Keep {
    pub inodes: Store<FileId, Inode>,
    pub dentries: Store<DentryKey, Option<FileId>, NoMoreWhole>,
    pub locations: Store<FileId, Arc<[ReplicaRef]>>,
    pub targets: Store<FileId, SymlinkTarget>,
    pub acls: Store<FileId, Acl>,
    /// Directories of which `dentries` has every name.
    whole: Arc<Store<FileId, ()>>,
}

impl Keep {
    pub fn new(bytes: u64, counts: &Arc<Counts>) -> Keep {
        let count = |kept| CountEvicted { kept, counts: Arc::clone(counts) };
        let part = |parts| bytes / PARTS * parts;
        let whole = store(part(WHOLE), slot::<FileId, ()>(), count(CacheKind::WholeDirectory));
        let whole = Arc::new(whole);
        let no_more_whole = NoMoreWhole { whole: Arc::clone(&whole), count: count(CacheKind::Name) };
        Keep {
            inodes: store(part(INODES), slot::<FileId, Inode>(), count(CacheKind::Inode)),
            dentries: store(part(NAMES), 150, no_more_whole),
            locations: store(part(LOCATIONS), 140, count(CacheKind::Locations)),
            targets: store(part(TARGETS), 150, count(CacheKind::Target)),
            acls: store(part(ACLS), 200, count(CacheKind::Acl)),
            whole,
        }
    }

    /// A directory that was just made has no names but those that are published from now on.
    pub fn begin_whole(&self, dir: FileId) {
        self.whole.insert(dir, ());
    }

    pub fn is_whole(&self, dir: FileId) -> bool {
        self.whole.get(&dir).is_some()
    }

    /// Of a directory that changes or goes; nobody else changes its names meanwhile.
    pub fn set_name(&self, key: DentryKey, child: Option<FileId>) {
        if child.is_none() && self.is_whole(key.0) {
            // That it is absent is known without an entry.
            self.dentries.remove(&key);
        } else {
            self.dentries.insert(key, child);
        }
    }

    pub fn end_whole(&self, dir: FileId) {
        self.whole.remove(&dir);
    }

    pub fn figures(&self, counts: &Counts) -> Figures {
        let cache = counts.kept().map(|(kept, mut figures)| {
            let (entries, bytes, bytes_max) = match kept {
                CacheKind::Inode => sizes(&self.inodes),
                CacheKind::Name => sizes(&self.dentries),
                CacheKind::Locations => sizes(&self.locations),
                CacheKind::Target => sizes(&self.targets),
                CacheKind::Acl => sizes(&self.acls),
                CacheKind::WholeDirectory => sizes(&self.whole),
                // Counted with the other names.
                CacheKind::AbsentName => (0, 0, 0),
            };
            (figures.entries, figures.bytes, figures.bytes_max) = (entries, bytes, bytes_max);
            figures
        });
        Figures { cache: cache.collect(), questions: counts.questions(), queued: 0 }
    }
}

/// `typical`: what an entry weighs mostly; only the number of shards and of remembered keys follow from it.
fn store<K: Eq + Hash, V: Clone, L: Lifecycle<K, V> + Clone>(
    bytes: u64,
    typical: u64,
    evicted: L,
) -> Store<K, V, L>
where
    Weigh: Weighter<K, V>,
{
    let options = OptionsBuilder::new()
        .weight_capacity(bytes)
        .estimated_items_capacity((bytes / typical) as usize)
        .ghost_allocation(REMEMBERED)
        .build()
        .expect("both capacities are given");
    Cache::with_options(options, Weigh, DefaultHashBuilder::default(), evicted)
}

fn sizes<K: Eq + Hash, V: Clone, L: Lifecycle<K, V> + Clone>(store: &Store<K, V, L>) -> (u64, u64, u64)
where
    Weigh: Weighter<K, V>,
{
    (store.len() as u64, store.weight(), store.capacity())
}

#[derive(Clone)]
pub struct Weigh;

const fn slot<K, V>() -> u64 {
    let used = (size_of::<K>() + size_of::<V>()) as u64 + SLOT_BYTES;
    used + used / 4
}

impl Weighter<FileId, Inode> for Weigh {
    fn weight(&self, _: &FileId, _: &Inode) -> u64 {
        slot::<FileId, Inode>()
    }
}

impl Weighter<FileId, ()> for Weigh {
    fn weight(&self, _: &FileId, (): &()) -> u64 {
        slot::<FileId, ()>()
    }
}

impl Weighter<DentryKey, Option<FileId>> for Weigh {
    fn weight(&self, (_, name): &DentryKey, _: &Option<FileId>) -> u64 {
        slot::<DentryKey, Option<FileId>>() + SLICE_BYTES + name.as_bytes().len() as u64
    }
}

impl Weighter<FileId, Arc<[ReplicaRef]>> for Weigh {
    fn weight(&self, _: &FileId, replicas: &Arc<[ReplicaRef]>) -> u64 {
        slot::<FileId, Arc<[ReplicaRef]>>() + SLICE_BYTES + size_of_val::<[ReplicaRef]>(replicas) as u64
    }
}

impl Weighter<FileId, Acl> for Weigh {
    fn weight(&self, _: &FileId, acl: &Acl) -> u64 {
        slot::<FileId, Acl>() + SLICE_BYTES + size_of_val::<[Ace]>(acl.aces()) as u64
    }
}

impl Weighter<FileId, SymlinkTarget> for Weigh {
    fn weight(&self, _: &FileId, target: &SymlinkTarget) -> u64 {
        slot::<FileId, SymlinkTarget>() + SLICE_BYTES + target.as_bytes().len() as u64
    }
}

#[derive(Clone)]
pub struct CountEvicted {
    kept: CacheKind,
    counts: Arc<Counts>,
}

/// Counts in `before_evict`, since `on_evict` is called for replaced entries, too.
impl<K, V> Lifecycle<K, V> for CountEvicted {
    type RequestState = ();

    fn before_evict(&self, (): &mut (), _: &K, _: &mut V) {
        self.counts.add(Event::Evicted(self.kept));
    }
}

/// Called before the name is evicted, or not taken: a reader that misses it finds the directory not whole.
#[derive(Clone)]
pub struct NoMoreWhole {
    whole: Arc<Store<FileId, ()>>,
    count: CountEvicted,
}

impl Lifecycle<DentryKey, Option<FileId>> for NoMoreWhole {
    type RequestState = ();

    fn before_evict(&self, (): &mut (), key: &DentryKey, child: &mut Option<FileId>) {
        self.whole.remove(&key.0);
        self.count.before_evict(&mut (), key, child);
    }
}

#[cfg(test)]
mod tests {
    use types::{FileKind, PoolId, Timestamp};

    use super::*;
    use crate::inode::{Instance, new_inode};

    const MIB: u64 = 1 << 20;

    fn keep(bytes: u64) -> (Keep, Arc<Counts>) {
        let counts = Arc::new(Counts::new());
        (Keep::new(bytes, &counts), counts)
    }

    fn inode(id: u64) -> Inode {
        new_inode(FileId(id), FileKind::Regular, Timestamp::EPOCH, Instance { start: 1 })
    }

    /// As files of an experiment are called, half of them with a location.
    fn fill(keep: &Keep, ids: std::ops::Range<u64>) {
        for id in ids {
            keep.inodes.insert(FileId(id), inode(id));
            let name = Name::new(format!("run-{id:08}.root").as_bytes()).unwrap();
            keep.dentries.insert((FileId(1), name), Some(FileId(id)));
            keep.locations.insert(FileId(id), vec![ReplicaRef::good(PoolId(1), Timestamp::EPOCH)].into());
        }
    }

    #[test]
    fn all_kinds_stay_within_their_bytes_and_evictions_are_counted() {
        let (keep, counts) = keep(MIB);
        fill(&keep, 1..20_000);
        for figures in keep.figures(&counts).cache {
            assert!(figures.bytes <= figures.bytes_max, "{figures:?}");
            if ["inode", "name", "locations"].contains(&figures.kind) {
                assert!(figures.bytes > figures.bytes_max / 10 * 8, "{figures:?}");
                assert_eq!(figures.entries + figures.evictions, 19_999, "{figures:?}");
            }
        }
    }

    #[test]
    fn long_names_and_targets_weigh_more() {
        let (keep, _) = keep(MIB);
        for id in 0..10_000 {
            let text = format!("{id:0>250}");
            keep.dentries.insert((FileId(1), Name::new(text.as_bytes()).unwrap()), None);
            keep.targets.insert(FileId(id), SymlinkTarget::new(text.repeat(10).as_bytes()).unwrap());
        }
        assert!(keep.dentries.len() < 1000 && keep.targets.len() < 40);
    }

    #[test]
    fn without_any_bytes_nothing_is_kept_and_nothing_old_stays() {
        let (keep, _) = keep(0);
        fill(&keep, 1..100);
        assert_eq!((keep.inodes.len(), keep.dentries.len(), keep.locations.len()), (0, 0, 0));
    }

    /// `cargo test -p forebay-namespace --release -- --ignored --nocapture an_entry_weighs`
    #[test]
    #[ignore = "measures the memory of the process, so it has to run alone"]
    fn an_entry_weighs_what_it_takes() {
        let resident = || -> u64 {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        for (what, ids) in [("filled once", 1..1_000_000), ("filled many times over", 1..6_000_000)] {
            let before = resident();
            let (keep, counts) = keep(256 * MIB);
            fill(&keep, ids);
            let taken = resident() - before;
            let figures = keep.figures(&counts).cache;
            let weight: u64 = figures.iter().map(|figures| figures.bytes).sum();
            println!("{what}: {} MiB resident, {} MiB by weight", taken / MIB, weight / MIB);
            for figures in figures.iter().filter(|figures| figures.entries > 0) {
                println!(
                    "  {}: {} entries of {} bytes",
                    figures.kind,
                    figures.entries,
                    figures.bytes / figures.entries
                );
            }
            assert!((taken as f64 / weight as f64 - 1.0).abs() < 0.25);
        }
    }
}
