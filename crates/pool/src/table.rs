//! The replicas in use, one object each, and the bound on files that are held open.
//!
//! Invariant: while anybody holds a replica there is no second object for the same file, so its epoch, its locks and
//! its failures are known to all. Only replicas that nobody holds and that have nothing left to sync are given up, in
//! the order of a clock: an error of write-back is told to open files only. From half of the bound on, unsynced ones are
//! synced, so that there is room before it is needed. Those whose writes the journal has are left to its write-back.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use types::FileId;

use crate::replica::Replica;

const SHARDS_MAX: usize = 16;
/// Below this a shard would have too few slots for a clock to mean anything.
const SHARD_LEN_MIN: usize = 16;
/// Replicas that one search asks to be synced, so that a later one finds room.
const TO_SETTLE_MAX: usize = 4;
/// Replicas that a new one looks at while there is room.
const LOOKED_AT_MAX: usize = 8;

pub struct Table {
    /// In use, or kept for the next use.
    shard_len_max: usize,
    /// Each locked for one look-up or one search for room.
    shards: Vec<Mutex<Shard>>,
}

#[derive(Default)]
struct Shard {
    by_file: HashMap<FileId, usize>,
    slots: Vec<Slot>,
    hand: usize,
}

struct Slot {
    replica: Arc<Replica>,
    /// Looked up since the hand last passed.
    recent: bool,
}

pub struct Taken {
    pub replica: Arc<Replica>,
    /// Unsynced and used by nobody: the caller has them synced, which makes room for later.
    pub to_settle: Vec<Arc<Replica>>,
}

/// All replicas that there may be are in use or unsynced. Syncing these makes room.
pub struct Full {
    pub to_settle: Vec<Arc<Replica>>,
}

impl Table {
    pub fn new(open_files_max: usize) -> Table {
        let shards = (open_files_max / SHARD_LEN_MIN).clamp(1, SHARDS_MAX);
        let shard_len_max = (open_files_max / shards).max(1);
        Table { shard_len_max, shards: (0..shards).map(|_| Mutex::default()).collect() }
    }

    /// The one object for the file.
    pub fn take(&self, file: FileId) -> Result<Taken, Full> {
        let mut shard = self.shard(file).lock();
        if let Some(slot) = shard.by_file.get(&file).copied() {
            let slot = &mut shard.slots[slot];
            slot.recent = true;
            return Ok(Taken { replica: Arc::clone(&slot.replica), to_settle: Vec::new() });
        }
        let mut to_settle = Vec::new();
        if shard.slots.len() >= self.shard_len_max {
            if !shard.give_up_one(&mut to_settle) {
                return Err(Full { to_settle });
            }
        } else if shard.slots.len() >= self.shard_len_max / 2 {
            shard.find_unsynced(&mut to_settle);
        }
        let replica = Arc::new(Replica::new(file));
        let slot = shard.slots.len();
        shard.slots.push(Slot { replica: Arc::clone(&replica), recent: true });
        shard.by_file.insert(file, slot);
        Ok(Taken { replica, to_settle })
    }

    /// The object for the file, if there is one. It is not kept longer for that.
    pub fn find(&self, file: FileId) -> Option<Arc<Replica>> {
        let shard = self.shard(file).lock();
        shard.by_file.get(&file).map(|slot| Arc::clone(&shard.slots[*slot].replica))
    }

    /// Shows all replicas, a shard at a time, whose lock is held meanwhile.
    pub fn each(&self, look: &mut dyn FnMut(&Replica)) {
        for shard in &self.shards {
            shard.lock().slots.iter().for_each(|slot| look(&slot.replica));
        }
    }

    /// Forgets a replica that is gone; its holders keep it.
    pub fn drop_replica(&self, replica: &Replica) {
        let mut shard = self.shard(replica.id()).lock();
        let slot = shard.by_file.get(&replica.id()).copied();
        if let Some(slot) = slot.filter(|slot| std::ptr::eq(&*shard.slots[*slot].replica, replica)) {
            shard.remove(slot);
        }
    }

    fn shard(&self, file: FileId) -> &Mutex<Shard> {
        // The length of a usize-indexed vector fits u64, and the remainder is below it.
        &self.shards[(file.0 % self.shards.len() as u64) as usize]
    }
}

impl Shard {
    /// Two rounds: the first takes away `recent`, the second may find what the first has passed.
    fn give_up_one(&mut self, to_settle: &mut Vec<Arc<Replica>>) -> bool {
        for _ in 0..2 * self.slots.len() {
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            if std::mem::take(&mut slot.recent) || Arc::strong_count(&slot.replica) > 1 {
                continue;
            }
            if slot.replica.may_be_given_up() {
                self.remove(self.hand);
                return true;
            }
            if to_settle.len() < TO_SETTLE_MAX && slot.replica.has_unsettled() {
                to_settle.push(Arc::clone(&slot.replica));
            }
        }
        false
    }

    /// Of writes that the journal has, write-back takes care: they are of half as many files at most.
    fn find_unsynced(&mut self, to_settle: &mut Vec<Arc<Replica>>) {
        for _ in 0..LOOKED_AT_MAX.min(self.slots.len()) {
            self.hand = (self.hand + 1) % self.slots.len();
            let replica = &self.slots[self.hand].replica;
            if to_settle.len() < TO_SETTLE_MAX && Arc::strong_count(replica) == 1 && !replica.is_stable() {
                to_settle.push(Arc::clone(replica));
            }
        }
    }

    fn remove(&mut self, slot: usize) {
        let removed = self.slots.swap_remove(slot);
        self.by_file.remove(&removed.replica.id());
        if let Some(moved) = self.slots.get(slot) {
            self.by_file.insert(moved.replica.id(), slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(table: &Table) -> usize {
        table.shards.iter().map(|shard| shard.lock().slots.len()).sum()
    }

    #[test]
    fn a_look_at_a_replica_neither_makes_one_nor_keeps_one() {
        let table = Table::new(2);
        assert!(table.find(FileId(1)).is_none());
        assert_eq!(len(&table), 0);
        let taken = table.take(FileId(1)).ok().unwrap().replica;
        assert!(Arc::ptr_eq(&taken, &table.find(FileId(1)).unwrap()));
        drop(taken);
        for file in 2..100 {
            // Were it kept for the next use, it would outlive some of these.
            table.find(FileId(1));
            table.take(FileId(file)).ok().unwrap();
        }
        assert!(table.find(FileId(1)).is_none());
    }

    #[test]
    fn all_callers_share_a_replica_that_is_held() {
        let table = Table::new(2);
        let held = table.take(FileId(1)).ok().unwrap().replica;
        for file in 2..100 {
            table.take(FileId(file)).ok().unwrap();
        }
        assert!(Arc::ptr_eq(&held, &table.take(FileId(1)).ok().unwrap().replica));
        assert_eq!(len(&table), 2);
    }

    #[test]
    fn as_many_replicas_as_the_bound_says_are_in_use_or_kept_and_no_more() {
        let table = Table::new(6);
        let held: Vec<_> = (0..6).map(|file| table.take(FileId(file)).ok().unwrap()).collect();
        assert!(table.take(FileId(6)).is_err());
        assert!(table.take(FileId(5)).is_ok());
        drop(held);
        for file in 10..20 {
            assert!(table.take(FileId(file)).is_ok());
        }
        assert_eq!(len(&table), 6);
    }

    #[test]
    fn as_many_files_as_the_bound_says_are_read_in_turn_without_giving_one_up() {
        let table = Table::new(64);
        let taken = |file| table.take(FileId(file)).ok().unwrap().replica;
        let first: Vec<_> = (0..64).map(|file| Arc::downgrade(&taken(file))).collect();
        for file in 0..64 {
            taken(file);
        }
        assert!(first.iter().all(|replica| replica.upgrade().is_some()));
    }

    #[test]
    fn from_half_of_the_bound_on_what_nobody_syncs_is_synced() {
        let table = Table::new(8);
        let mut asked = 0;
        for file in 0..8 {
            let taken = table.take(FileId(file)).ok().unwrap();
            taken.replica.unsynced().note_write();
            taken.replica.unsynced().note_past();
            assert!(taken.to_settle.len() <= TO_SETTLE_MAX && (file >= 4 || taken.to_settle.is_empty()));
            asked += taken.to_settle.len();
        }
        assert!(asked > 0);
    }

    /// With hundreds of new files, each of which asked for syncs of four others, a COMMIT found no place in the queue.
    #[test]
    fn files_whose_writes_the_journal_has_are_left_to_write_back() {
        let table = Table::new(8);
        for file in 0..8 {
            let taken = table.take(FileId(file)).ok().unwrap();
            taken.replica.unsynced().note_write();
            assert!(taken.to_settle.is_empty());
        }
        assert!(
            !table.take(FileId(8)).err().unwrap().to_settle.is_empty(),
            "there is no room without a sync"
        );
    }

    #[test]
    fn the_replica_used_lately_stays() {
        let table = Table::new(4);
        let first = Arc::downgrade(&table.take(FileId(0)).ok().unwrap().replica);
        for file in 1..50 {
            table.take(FileId(file)).ok().unwrap();
            table.take(FileId(0)).ok().unwrap();
        }
        assert!(first.upgrade().is_some());
    }

    #[test]
    fn a_replica_with_unsynced_data_is_not_given_up_but_synced() {
        let table = Table::new(2);
        let unsynced = {
            let replica = table.take(FileId(1)).ok().unwrap().replica;
            replica.unsynced().note_write();
            replica.unsynced().note_past();
            Arc::downgrade(&replica)
        };
        let taken = table.take(FileId(2)).ok().unwrap();
        assert_eq!(taken.to_settle.len(), 1);
        drop(taken);
        assert!(table.take(FileId(3)).is_ok());
        assert!(table.take(FileId(1)).is_ok());
        assert!(unsynced.upgrade().is_some());
    }

    #[test]
    fn a_replica_whose_file_is_lent_is_not_given_up() {
        let table = Table::new(2);
        let (replica, lent) = {
            let replica = table.take(FileId(1)).ok().unwrap().replica;
            replica.file().descriptors().keep(std::fs::File::open("/dev/null").unwrap().into());
            (Arc::downgrade(&replica), replica.file().descriptors().lend())
        };
        for file in 2..9 {
            table.take(FileId(file)).ok().unwrap();
        }
        assert!(replica.upgrade().is_some());
        drop(lent);
        for file in 9..12 {
            table.take(FileId(file)).ok().unwrap();
        }
        assert!(replica.upgrade().is_none());
    }

    #[test]
    fn a_dropped_replica_is_a_new_one_next_time() {
        let table = Table::new(8);
        let old = table.take(FileId(1)).ok().unwrap().replica;
        table.take(FileId(2)).ok().unwrap();
        table.drop_replica(&old);
        assert!(!Arc::ptr_eq(&old, &table.take(FileId(1)).ok().unwrap().replica));
        assert!(table.take(FileId(2)).is_ok());
    }
}
