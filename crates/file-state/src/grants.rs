//! What holders were granted of one file and can be asked to give back: layouts, delegations.
//!
//! A recall names a deadline; it ends when the holder has given back what it has, or by a revocation after the deadline.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Holder;

#[derive(Debug)]
pub(crate) struct Grants<T> {
    holders: BTreeMap<Holder, Grant<T>>,
}

#[derive(Debug)]
struct Grant<T> {
    held: T,
    recall: Option<Recalled>,
}

#[derive(Clone, Copy, Debug)]
struct Recalled {
    /// To be revoked then.
    deadline: Duration,
    /// The holder has not been reached.
    is_unheard: bool,
}

/// A grant that has gone, with the deadline of the recall that ended by it.
pub(crate) struct Ended {
    pub recall_deadline: Option<Duration>,
}

impl<T> Default for Grants<T> {
    fn default() -> Self {
        Grants { holders: BTreeMap::new() }
    }
}

impl<T: Copy> Grants<T> {
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub fn of(&self, holder: Holder) -> Option<T> {
        self.holders.get(&holder).map(|grant| grant.held)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Holder, T)> {
        self.holders.iter().map(|(holder, grant)| (*holder, grant.held))
    }

    /// Those of others than `by`; nobody has any grant of its own.
    pub fn of_others(&self, by: Option<Holder>) -> impl Iterator<Item = (Holder, T)> {
        self.iter().filter(move |(holder, _)| Some(*holder) != by)
    }

    /// A recall under way goes on.
    pub fn put(&mut self, holder: Holder, held: T) {
        match self.holders.get_mut(&holder) {
            Some(grant) => grant.held = held,
            None => _ = self.holders.insert(holder, Grant { held, recall: None }),
        }
    }

    pub fn remove(&mut self, holder: Holder) -> Option<Ended> {
        let grant = self.holders.remove(&holder)?;
        Some(Ended { recall_deadline: grant.recall.map(|recall| recall.deadline) })
    }

    /// What to ask for: `None` if the holder has nothing or was asked already; and whether it is asked once more.
    pub fn recall(&mut self, holder: Holder, deadline: Duration) -> Option<(T, bool)> {
        let grant = self.holders.get_mut(&holder)?;
        match &mut grant.recall {
            Some(recall) if recall.is_unheard => {
                recall.is_unheard = false;
                Some((grant.held, true))
            }
            Some(_) => None,
            none => {
                *none = Some(Recalled { deadline, is_unheard: false });
                Some((grant.held, false))
            }
        }
    }

    pub fn is_recalled(&self, holder: Holder) -> bool {
        self.holders.get(&holder).is_some_and(|grant| grant.recall.is_some())
    }

    pub fn is_any_recalled(&self) -> bool {
        self.holders.values().any(|grant| grant.recall.is_some())
    }

    /// Whether a recall of the holder's is under way.
    pub fn recall_unheard(&mut self, holder: Holder) -> bool {
        let recall = self.holders.get_mut(&holder).and_then(|grant| grant.recall.as_mut());
        recall.is_some_and(|recall| {
            recall.is_unheard = true;
            true
        })
    }

    /// Moves the deadline of a recall that is under way; what it was, and what is held.
    pub fn set_deadline(&mut self, holder: Holder, deadline: Duration) -> Option<(Duration, T)> {
        let grant = self.holders.get_mut(&holder)?;
        let recall = grant.recall.as_mut()?;
        let before = std::mem::replace(&mut recall.deadline, deadline);
        Some((before, grant.held))
    }
}
