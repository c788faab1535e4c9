//! A map by an order of its keys that mostly has one entry: most open files have one holder.
//!
//! A node of a `BTreeMap` has room for eleven entries from the first on. Up to a few, entries are kept in a vector of just
//! their length.

use std::collections::BTreeMap;

/// Beyond it entries go into a tree, so that a step costs no more than its logarithm however many there are.
const FEW: usize = 16;

#[derive(Debug)]
pub(crate) enum Few<K, V> {
    /// Ascending.
    Sorted(Vec<(K, V)>),
    #[expect(clippy::box_collection, reason = "so all of it is no larger than a vector")]
    Tree(Box<BTreeMap<K, V>>),
}

impl<K, V> Default for Few<K, V> {
    fn default() -> Self {
        Few::EMPTY
    }
}

impl<K, V> Few<K, V> {
    pub const EMPTY: Few<K, V> = Few::Sorted(Vec::new());
}

impl<K: Ord + Copy, V> Few<K, V> {
    pub fn is_empty(&self) -> bool {
        match self {
            Few::Sorted(entries) => entries.is_empty(),
            Few::Tree(tree) => tree.is_empty(),
        }
    }

    pub fn get(&self, key: &K) -> Option<&V> {
        match self {
            Few::Sorted(entries) => place(entries, key).ok().map(|at| &entries[at].1),
            Few::Tree(tree) => tree.get(key),
        }
    }

    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            Few::Sorted(entries) => place(entries, key).ok().map(|at| &mut entries[at].1),
            Few::Tree(tree) => tree.get_mut(key),
        }
    }

    /// Returns the value that was there before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            Few::Sorted(entries) => match place(entries, &key) {
                Ok(at) => Some(std::mem::replace(&mut entries[at].1, value)),
                Err(at) if entries.len() < FEW => {
                    entries.reserve_exact(1);
                    entries.insert(at, (key, value));
                    None
                }
                Err(_) => {
                    let mut tree: BTreeMap<K, V> = std::mem::take(entries).into_iter().collect();
                    tree.insert(key, value);
                    *self = Few::Tree(Box::new(tree));
                    None
                }
            },
            Few::Tree(tree) => tree.insert(key, value),
        }
    }

    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            Few::Sorted(entries) => place(entries, key).ok().map(|at| entries.remove(at).1),
            Few::Tree(tree) => {
                let removed = tree.remove(key);
                if tree.is_empty() {
                    *self = Few::default();
                }
                removed
            }
        }
    }

    /// In the order of the keys, from the first that is not below.
    pub fn from(&self, first: K) -> impl Iterator<Item = (&K, &V)> {
        let (sorted, tree) = match self {
            Few::Sorted(entries) => {
                let at = entries.partition_point(|(key, _)| *key < first);
                (Some(entries[at..].iter().map(|(key, value)| (key, value))), None)
            }
            Few::Tree(tree) => (None, Some(tree.range(first..))),
        };
        sorted.into_iter().flatten().chain(tree.into_iter().flatten())
    }

    /// In the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let (sorted, tree) = match self {
            Few::Sorted(entries) => (Some(entries.iter().map(|(key, value)| (key, value))), None),
            Few::Tree(tree) => (None, Some(tree.iter())),
        };
        sorted.into_iter().flatten().chain(tree.into_iter().flatten())
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

fn place<K: Ord, V>(entries: &[(K, V)], key: &K) -> Result<usize, usize> {
    entries.binary_search_by(|(known, _)| known.cmp(key))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn few_entries_and_many_are_what_a_map_has(
            steps in proptest::collection::vec((0u8..40, any::<bool>(), any::<u16>()), 0..200),
        ) {
            let (mut few, mut map) = (Few::default(), BTreeMap::new());
            for (key, is_put, value) in steps {
                if is_put {
                    prop_assert_eq!(few.insert(key, value), map.insert(key, value));
                } else {
                    prop_assert_eq!(few.remove(&key), map.remove(&key));
                }
                prop_assert_eq!(few.get(&key), map.get(&key));
                prop_assert_eq!(few.get_mut(&key), map.get_mut(&key));
                prop_assert_eq!(few.is_empty(), map.is_empty());
                prop_assert!(few.iter().eq(map.iter()) && few.values().eq(map.values()));
                prop_assert!(few.from(key).eq(map.range(key..)));
            }
        }
    }

    #[test]
    fn one_entry_takes_no_more_than_its_own_memory() {
        assert_eq!(size_of::<Few<u64, u64>>(), size_of::<Vec<u8>>());
        let mut few = Few::default();
        few.insert(1_u64, 2_u64);
        assert!(matches!(&few, Few::Sorted(entries) if entries.capacity() == 1));
    }
}
