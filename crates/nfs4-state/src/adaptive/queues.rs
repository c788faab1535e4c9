//! Queues in the order of last use, and the two of one client.

use std::collections::BTreeMap;
use std::time::Duration;

use types::FileId;

use super::rules::DelegationRules;

/// When something was used last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// Larger is later; no two uses have the same.
    pub turn: u64,
    pub at: Duration,
}

impl Use {
    pub fn age(self, now: Duration) -> Duration {
        now.saturating_sub(self.at)
    }
}

/// Keys in the order of their last use. A key from another queue takes its place by its last use, not by its arrival.
#[derive(Debug)]
pub(super) struct Queue<K> {
    uses: BTreeMap<K, Use>,
    order: BTreeMap<u64, K>,
}

impl<K> Default for Queue<K> {
    fn default() -> Queue<K> {
        Queue { uses: BTreeMap::new(), order: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Queue<K> {
    /// Takes the key in, or gives it a new place.
    pub fn put(&mut self, key: K, last: Use) {
        self.remove(key);
        self.uses.insert(key, last);
        self.order.insert(last.turn, key);
    }

    pub fn remove(&mut self, key: K) -> Option<Use> {
        let last = self.uses.remove(&key)?;
        self.order.remove(&last.turn);
        Some(last)
    }

    pub fn last_use(&self, key: K) -> Option<Use> {
        self.uses.get(&key).copied()
    }

    pub fn oldest(&self) -> Option<(K, Use)> {
        let (_, key) = self.order.first_key_value()?;
        Some((*key, self.uses[key]))
    }

    pub fn pop_oldest(&mut self) -> Option<(K, Use)> {
        let (key, last) = self.oldest()?;
        self.remove(key);
        Some((key, last))
    }

    pub fn len(&self) -> usize {
        self.uses.len()
    }
}

/// A file is in one of the two, or in none.
#[derive(Debug, Default)]
pub(super) struct ClientQueues {
    pub eviction: Queue<FileId>,
    pub active: Queue<FileId>,
}

impl ClientQueues {
    /// Whether the file is active after this access.
    pub fn access(&mut self, file: FileId, access: Use, rules: &DelegationRules) -> bool {
        while self.active.oldest().is_some_and(|(_, last)| last.age(access.at) > rules.idle) {
            self.demote();
        }
        let waited = self.eviction.remove(file);
        let soon_again = waited.is_some_and(|last| last.age(access.at) <= rules.window);
        if soon_again || self.active.last_use(file).is_some() {
            self.active.put(file, access);
        } else {
            self.eviction.put(file, access);
        }
        while self.active.len() > rules.active_max {
            self.demote();
        }
        while self.eviction.len() > rules.eviction_max {
            self.eviction.pop_oldest();
        }
        self.active.last_use(file).is_some()
    }

    /// The oldest in eviction, and where there is none the oldest in active.
    pub fn forget_one(&mut self) {
        self.eviction.pop_oldest().or_else(|| self.active.pop_oldest());
    }

    pub fn len(&self) -> usize {
        self.eviction.len() + self.active.len()
    }

    fn demote(&mut self) {
        if let Some((file, last)) = self.active.pop_oldest() {
            self.eviction.put(file, last);
        }
    }
}
