//! Grants on one file that their holders can be asked to give back: layouts, delegations.
//!
//! A recall names a deadline; it ends when the holder has given back what it has, or by a revocation after the deadline.

use std::time::Duration;

use crate::Holder;
use crate::few::Few;

#[derive(Debug)]
pub(crate) struct Grants<T> {
    holders: Few<Holder, Grant<T>>,
}

#[derive(Debug)]
struct Grant<T> {
    held: T,
    /// The last time something was granted.
    granted: Duration,
    /// Few are under way.
    recall: Option<Box<Recalled>>,
}

#[derive(Debug)]
struct Recalled {
    /// To be revoked then.
    deadline: Duration,
    /// The holder has not been reached.
    is_unheard: bool,
    /// It was found to be due, and is being taken from its holder: whether that let its time pass stays as it was found.
    due: Option<bool>,
}

/// A grant that has gone, with the deadline of the recall that ended by it.
pub(crate) struct Ended {
    pub recall_deadline: Option<Duration>,
}

impl<T> Default for Grants<T> {
    fn default() -> Self {
        Grants::NONE
    }
}

impl<T> Grants<T> {
    pub const NONE: Grants<T> = Grants { holders: Few::EMPTY };
}

impl<T: Copy> Grants<T> {
    /// Of one holder.
    #[cfg(test)]
    pub const ENTRY_BYTES: usize = size_of::<(Holder, Grant<T>)>();

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
            None => _ = self.holders.insert(holder, Grant { held, granted: Duration::ZERO, recall: None }),
        }
    }

    /// Something was granted just now.
    pub fn stamp(&mut self, holder: Holder, now: Duration) {
        if let Some(grant) = self.holders.get_mut(&holder) {
            grant.granted = now;
        }
    }

    pub fn granted(&self, holder: Holder) -> Option<Duration> {
        self.holders.get(&holder).map(|grant| grant.granted)
    }

    pub fn remove(&mut self, holder: Holder) -> Option<Ended> {
        let grant = self.holders.remove(&holder)?;
        Some(Ended { recall_deadline: grant.recall.map(|recall| recall.deadline) })
    }

    /// The grant to ask for, and whether it is asked for once more. `None`: the holder has none, or was asked already.
    pub fn recall(&mut self, holder: Holder, deadline: Duration) -> Option<(T, bool)> {
        let grant = self.holders.get_mut(&holder)?;
        match &mut grant.recall {
            Some(recall) if recall.is_unheard => {
                recall.is_unheard = false;
                Some((grant.held, true))
            }
            Some(_) => None,
            none => {
                *none = Some(Box::new(Recalled { deadline, is_unheard: false, due: None }));
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

    /// Ends a recall that is under way as if it had never been: its deadline. One that was found to be due goes on.
    pub fn forget_recall(&mut self, holder: Holder) -> Option<Duration> {
        let recall = &mut self.holders.get_mut(&holder)?.recall;
        recall.take_if(|recall| recall.due.is_none()).map(|recall| recall.deadline)
    }

    /// Whether the recall of what the holder has is due: from then on it is granted nothing more by that.
    pub fn is_due(&self, holder: Holder) -> bool {
        let recall = self.holders.get(&holder).and_then(|grant| grant.recall.as_ref());
        recall.is_some_and(|recall| recall.due.is_some())
    }

    /// Moves the deadline of a recall that is under way to the beginning of time; what it was.
    pub fn expire(&mut self, holder: Holder) -> Option<Duration> {
        let recall = self.holders.get_mut(&holder)?.recall.as_mut()?;
        Some(std::mem::take(&mut recall.deadline))
    }

    /// Of a recall that is due what is held, and whether the holder has let its time pass; it is due again at `retry_at`.
    pub fn take_due(&mut self, holder: Holder, retry_at: Duration) -> Option<(T, bool)> {
        let grant = self.holders.get_mut(&holder)?;
        let recall = grant.recall.as_mut()?;
        let before = std::mem::replace(&mut recall.deadline, retry_at);
        // One that was expired has no deadline of its own; nor has the next try of it, whatever time that is at.
        let is_overdue = *recall.due.get_or_insert(before > Duration::ZERO);
        Some((grant.held, is_overdue))
    }
}
