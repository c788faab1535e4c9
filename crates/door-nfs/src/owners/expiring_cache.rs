//! A bounded cache with an expiry time per entry: of two halves the older is dropped when the younger is full.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ExpiringCache<K, V> {
    half_len_max: usize,
    young: HashMap<K, (V, Duration)>,
    old: HashMap<K, (V, Duration)>,
}

impl<K: Eq + Hash + Clone, V: Clone> ExpiringCache<K, V> {
    pub fn new(len_max: usize) -> ExpiringCache<K, V> {
        ExpiringCache { half_len_max: len_max / 2, young: HashMap::new(), old: HashMap::new() }
    }

    /// A lookup moves its entry to the younger half.
    pub fn find(&mut self, key: &K, now: Duration) -> Option<V> {
        if let Some((value, until)) = self.young.get(key) {
            return (*until > now).then(|| value.clone());
        }
        let (value, until) = self.old.remove(key)?;
        if until <= now {
            return None;
        }
        self.insert(key.clone(), value.clone(), until);
        Some(value)
    }

    pub fn insert(&mut self, key: K, value: V, until: Duration) {
        if self.young.len() >= self.half_len_max && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.old.remove(&key);
        self.young.insert(key, (value, until));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const LATER: Duration = Duration::from_secs(2000);

    #[test]
    fn it_is_bounded_and_keeps_what_is_asked_for() {
        let mut kept = ExpiringCache::new(100);
        kept.insert(0, "first", LATER);
        for n in 1..10_000 {
            kept.insert(n, "other", LATER);
            assert_eq!(kept.find(&0, NOW), Some("first"));
            assert!(kept.young.len() + kept.old.len() <= 100);
        }
        assert_eq!(kept.find(&1, NOW), None);
        assert_eq!(kept.find(&9_999, NOW), Some("other"));
    }

    #[test]
    fn an_expired_entry_is_not_found_in_either_half() {
        let mut kept = ExpiringCache::new(2);
        kept.insert(1, "one", NOW);
        assert_eq!(kept.find(&1, NOW), None);
        kept.insert(2, "two", LATER);
        assert_eq!((kept.find(&1, NOW), kept.find(&2, NOW)), (None, Some("two")));
    }
}
