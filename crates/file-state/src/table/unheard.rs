//! Recalls under way whose holder could not be told, and whose turn it is to be told again.
//!
//! One holder may have very many of them and never hear any. So holders take turns, and of each come first those behind the
//! last that was taken: nobody's wait is longer than it takes to go round.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use types::FileId;

use crate::{Door, GrantKind, Holder};

#[derive(Debug, Default)]
pub(super) struct Unheard {
    holders: BTreeMap<Holder, OfHolder>,
    /// The one that was asked last.
    turn: Option<Holder>,
}

/// Never empty.
#[derive(Debug, Default)]
struct OfHolder {
    recalls: BTreeSet<(FileId, GrantKind)>,
    /// The one that was taken last.
    turn: Option<(FileId, GrantKind)>,
}

impl Unheard {
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub fn insert(&mut self, file: FileId, holder: Holder, kind: GrantKind) {
        self.holders.entry(holder).or_default().recalls.insert((file, kind));
    }

    pub fn remove(&mut self, file: FileId, holder: Holder, kind: GrantKind) {
        let Some(of_holder) = self.holders.get_mut(&holder) else { return };
        of_holder.recalls.remove(&(file, kind));
        if of_holder.recalls.is_empty() {
            self.holders.remove(&holder);
        }
    }

    /// The recalls whose turn it is for a door: at most `each` of a holder and `max` in all. They stay.
    pub fn next(&mut self, door: Door, each: usize, max: usize) -> Vec<(FileId, Holder, GrantKind)> {
        let behind = (self.turn.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let round = self.holders.range(behind).chain(&self.holders).take(self.holders.len());
        let of_door: Vec<Holder> =
            round.map(|(holder, _)| *holder).filter(|holder| holder.door == door).collect();
        let mut taken = Vec::new();
        for holder in of_door {
            let room = max - taken.len();
            let Some(of_holder) = self.holders.get_mut(&holder).filter(|_| room > 0) else { break };
            taken.extend(of_holder.next(each.min(room)).into_iter().map(|(file, kind)| (file, holder, kind)));
            self.turn = Some(holder);
        }
        taken
    }
}

impl OfHolder {
    fn next(&mut self, max: usize) -> Vec<(FileId, GrantKind)> {
        let behind = (self.turn.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let round = self.recalls.range(behind).chain(&self.recalls);
        let taken: Vec<_> = round.take(max.min(self.recalls.len())).copied().collect();
        self.turn = taken.last().copied().or(self.turn);
        taken
    }
}
