//! Turns of callers when more items wait than one group takes.
//!
//! Callers take turns, and within a caller its directories, one item at a time; items of one caller for one directory
//! keep their order. So a caller with one item waits for one item of each other caller, not for all items of one. An
//! item with `Order::Behind` is taken after all items before it. Each step costs the same however many items wait, and
//! nothing is kept of a caller without items.

use std::collections::{HashMap, VecDeque};

use types::FileId;

/// On whose account something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Caller {
    User(u32),
    /// The instance itself: no user waits for the item.
    Instance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In turn with others; in order within caller and directory.
    Turn { caller: Caller, dir: FileId },
    /// Behind everything that was handed in before.
    Behind,
}

impl Order {
    /// Of the instance's own, in order among themselves.
    pub const BY_INSTANCE: Order = Order::Turn { caller: Caller::Instance, dir: FileId(0) };

    pub fn caller(self) -> Caller {
        match self {
            Order::Turn { caller, .. } => caller,
            Order::Behind => Caller::Instance,
        }
    }
}

pub struct Turns<T> {
    callers: Ring<Caller, Ring<FileId, VecDeque<Item<T>>>>,
    /// Stretches of arrivals, each ended by what has to wait for its end, the last one open.
    stretches: VecDeque<Stretch<T>>,
    /// The number of the first one.
    first: u64,
}

struct Item<T> {
    stretch: u64,
    value: T,
}

struct Stretch<T> {
    /// Of its items, those that were not taken.
    left: usize,
    end: Option<T>,
}

impl<T> Default for Turns<T> {
    fn default() -> Turns<T> {
        Turns { callers: Ring::default(), stretches: VecDeque::new(), first: 0 }
    }
}

impl<T> Turns<T> {
    pub fn is_empty(&self) -> bool {
        self.stretches.is_empty()
    }

    pub fn add(&mut self, order: Order, value: T) {
        if self.stretches.back().is_none_or(|last| last.end.is_some()) {
            self.stretches.push_back(Stretch { left: 0, end: None });
        }
        let number = self.first + self.stretches.len() as u64 - 1;
        let Some(last) = self.stretches.back_mut() else { return };
        match order {
            Order::Behind => last.end = Some(value),
            Order::Turn { caller, dir } => {
                last.left += 1;
                self.callers.at(caller).at(dir).push_back(Item { stretch: number, value });
            }
        }
    }

    pub fn take(&mut self) -> Option<(Caller, T)> {
        if let Some(first) = self.stretches.front_mut()
            && first.left == 0
        {
            let end = first.end.take();
            self.end_first();
            return end.map(|value| (Caller::Instance, value));
        }
        let (caller, item) = self.callers.turn(|dirs| {
            let item = dirs.turn(|items| (items.pop_front(), items.is_empty())).and_then(|(_, item)| item);
            (item, dirs.is_empty())
        })?;
        let item = item?;
        if let Some(stretch) = self.stretches.get_mut((item.stretch - self.first) as usize) {
            stretch.left -= 1;
        }
        if self.stretches.front().is_some_and(|first| first.left == 0 && first.end.is_none()) {
            self.end_first();
        }
        Some((caller, item.value))
    }

    fn end_first(&mut self) {
        self.stretches.pop_front();
        self.first += 1;
    }
}

/// Each key that has something, in the order of their turns.
struct Ring<K, V> {
    turns: VecDeque<K>,
    values: HashMap<K, V>,
}

impl<K: Copy + Eq + std::hash::Hash, V: Default> Ring<K, V> {
    fn at(&mut self, key: K) -> &mut V {
        self.values.entry(key).or_insert_with(|| {
            self.turns.push_back(key);
            V::default()
        })
    }

    /// Takes from the one whose turn it is, which comes last then, or goes if `take` says that nothing is left.
    fn turn<R>(&mut self, take: impl FnOnce(&mut V) -> (R, bool)) -> Option<(K, R)> {
        let key = self.turns.pop_front()?;
        let (taken, is_over) = take(self.values.get_mut(&key)?);
        if is_over {
            self.values.remove(&key);
        } else {
            self.turns.push_back(key);
        }
        Some((key, taken))
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

// Derived, it would ask for defaults of keys and values.
impl<K, V> Default for Ring<K, V> {
    fn default() -> Ring<K, V> {
        Ring { turns: VecDeque::new(), values: HashMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn turn(user: u32, dir: u64) -> Order {
        Order::Turn { caller: Caller::User(user), dir: FileId(dir) }
    }

    fn all<T>(turns: &mut Turns<T>) -> Vec<T> {
        std::iter::from_fn(|| turns.take()).map(|(_, value)| value).collect()
    }

    #[test]
    fn one_item_waits_for_one_of_each_caller_not_for_all_of_one() {
        let mut turns = Turns::default();
        for number in 0..10_000 {
            // Many directories do not make a caller more than one.
            turns.add(turn(1, number % 100), (1, number));
        }
        turns.add(turn(2, 1), (2, 0));
        let at = all(&mut turns).iter().position(|(user, _)| *user == 2);
        assert_eq!(at, Some(1));
        assert!(turns.is_empty() && turns.callers.values.is_empty());
    }

    #[test]
    fn one_item_for_one_directory_waits_for_one_of_each_directory() {
        let mut turns = Turns::default();
        for number in 0..1000 {
            turns.add(turn(1, 5), (5, number));
        }
        turns.add(turn(1, 6), (6, 0));
        assert_eq!(all(&mut turns).iter().position(|(dir, _)| *dir == 6), Some(1));
    }

    #[test]
    fn an_item_behind_waits_for_all_earlier_items_and_lets_later_items_pass() {
        let mut turns = Turns::default();
        for value in ["a", "b", "c"] {
            turns.add(turn(1, 1), value);
        }
        turns.add(Order::Behind, "behind");
        turns.add(Order::Behind, "and behind that");
        turns.add(turn(2, 1), "later");
        assert_eq!(all(&mut turns), ["a", "later", "b", "c", "behind", "and behind that"]);
        assert!(turns.is_empty());
        turns.add(Order::Behind, "alone");
        assert_eq!(all(&mut turns), ["alone"]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_every_order_is_kept(
            steps in prop::collection::vec(prop_oneof![
                4 => (0_u32..3, 0_u64..3).prop_map(|(user, dir)| Some(turn(user, dir))),
                1 => Just(Some(Order::Behind)),
                3 => Just(None),
            ], 0..200)
        ) {
            let (mut turns, mut added, mut taken) = (Turns::default(), Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Some(order) => {
                        turns.add(order, added.len());
                        added.push(order);
                    }
                    None => taken.extend(turns.take().map(|(_, number)| number)),
                }
            }
            taken.extend(all(&mut turns));
            prop_assert!(turns.is_empty() && turns.stretches.is_empty());
            prop_assert_eq!(taken.len(), added.len());
            for (at, later) in taken.iter().enumerate() {
                for earlier in &taken[at + 1..] {
                    let is_free = later < earlier
                        || (added[*later] != added[*earlier] && added[*later] != Order::Behind);
                    prop_assert!(is_free, "{later} was taken before {earlier}");
                }
            }
        }
    }
}
