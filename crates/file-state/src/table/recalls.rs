//! Recalls: grants that their holders are asked to give back, until they have or their time is over.

use std::collections::BTreeSet;
use std::time::Duration;

use types::FileId;

use super::entries::Entries;
use super::under_way::UnderWay;
use crate::{Door, GrantKind, Granted, Holder, Recall, Revoke};

pub struct Recalls<'a> {
    pub(super) entries: &'a mut Entries,
    pub(super) under_way: &'a mut UnderWay,
}

impl Recalls<'_> {
    /// Recalls what a holder has of a file. `None` if that is nothing, or was recalled already. A repeated recall keeps
    /// its first deadline.
    pub fn begin(
        &mut self,
        file: FileId,
        holder: Holder,
        kind: GrantKind,
        deadline: Duration,
    ) -> Option<Recall> {
        let known = self.entries.get_mut(file)?;
        let (granted, is_repeated) = match kind {
            GrantKind::Layout => {
                let (modes, is_repeated) = known.layouts.recall(holder, deadline)?;
                (Granted::Layout(modes), is_repeated)
            }
            GrantKind::Delegation => {
                let (kind, is_repeated) = known.delegations.recall(holder, deadline)?;
                (Granted::Delegation(kind), is_repeated)
            }
        };
        if is_repeated {
            self.under_way.unheard.remove(file, holder, kind);
        } else {
            self.under_way.deadlines.insert((deadline, file, holder, kind));
        }
        Some(Recall { file, holder, granted, is_repeated })
    }

    /// A recall did not reach the holder: the next change sends it again, or [`Recalls::repeat_unheard`] does.
    pub fn note_unheard(&mut self, file: FileId, holder: Holder, kind: GrantKind) {
        let Some(known) = self.entries.get_mut(file) else { return };
        let is_under_way = match kind {
            GrantKind::Layout => known.layouts.recall_unheard(holder),
            GrantKind::Delegation => known.delegations.recall_unheard(holder),
        };
        if is_under_way {
            self.under_way.unheard.insert(file, holder, kind);
        }
    }

    /// Recalls of clients of a door that are to be sent again, at most `each` of a client and `max` in all. The others
    /// come first the next time.
    pub fn repeat_unheard(&mut self, door: Door, each: usize, max: usize) -> Vec<Recall> {
        let again = self.under_way.unheard.next(door, each, max);
        // Their first deadlines stand.
        let tell = |(file, holder, kind)| self.begin(file, holder, kind, Duration::ZERO);
        again.into_iter().filter_map(tell).collect()
    }

    /// A recall that nobody will answer: it is due at once.
    pub fn expire(&mut self, file: FileId, holder: Holder, kind: GrantKind) {
        let Some(known) = self.entries.get_mut(file) else { return };
        let before = match kind {
            GrantKind::Layout => known.layouts.expire(holder),
            GrantKind::Delegation => known.delegations.expire(holder),
        };
        if let Some(before) = before {
            self.under_way.postpone(file, holder, kind, before, Duration::ZERO);
        }
    }

    /// Those whose deadline has passed; see [`FileState::expired_recalls`](crate::FileState::expired_recalls).
    pub(super) fn take_due(&mut self, now: Duration, retry_at: Duration) -> Vec<Revoke> {
        let due: Vec<_> =
            self.under_way.deadlines.iter().take_while(|(deadline, ..)| *deadline <= now).copied().collect();
        due.into_iter()
            .filter_map(|(deadline, file, holder, kind)| {
                let known = self.entries.get_mut(file)?;
                let (granted, is_overdue) = match kind {
                    GrantKind::Layout => {
                        let (modes, is_overdue) = known.layouts.take_due(holder, retry_at)?;
                        // Those that were asked for with it have the same deadline; a fence may be long in coming.
                        self.under_way.at_once.came_back(file, holder);
                        (Granted::Layout(modes), is_overdue)
                    }
                    GrantKind::Delegation => {
                        let (kind, is_overdue) = known.delegations.take_due(holder, retry_at)?;
                        (Granted::Delegation(kind), is_overdue)
                    }
                };
                self.under_way.postpone(file, holder, kind, deadline, retry_at);
                Some(Revoke { file, holder, granted, is_overdue })
            })
            .collect()
    }

    // By one question.

    /// Recalls the layouts that the holder has of these files, to be asked for by one question for all that it has.
    /// Returns how many: 0 while a recall of any of its layouts is under way, for the two could not be told apart.
    pub fn begin_at_once(&mut self, holder: Holder, files: &[FileId], deadline: Duration) -> usize {
        let is_recalled = |file| self.entries.of(file).is_recalled(holder, GrantKind::Layout);
        if self.entries.holders.files_of(holder).any(is_recalled) {
            return 0;
        }
        let is_recalled = |file: &FileId| self.begin(*file, holder, GrantKind::Layout, deadline).is_some();
        let recalled: BTreeSet<FileId> = files.iter().copied().filter(is_recalled).collect();
        let count = recalled.len();
        if count > 0 {
            self.under_way.at_once.insert(holder, recalled);
        }
        count
    }

    /// The holder says that it has no layouts: those recalls are due at once, and the holder is to be fenced off.
    pub fn expire_at_once(&mut self, holder: Holder) {
        for file in self.under_way.at_once.remove(holder) {
            self.expire(file, holder, GrantKind::Layout);
        }
    }

    /// The holder does not understand the question: its recalls are forgotten, and a change that still wants a layout
    /// back recalls it alone. A layout whose revocation has begun is revoked all the same.
    pub fn forget_at_once(&mut self, holder: Holder) {
        for file in self.under_way.at_once.remove(holder) {
            let Some(known) = self.entries.get_mut(file) else { continue };
            if let Some(deadline) = known.layouts.forget_recall(holder) {
                self.under_way.end(file, holder, GrantKind::Layout, Some(deadline));
            }
        }
    }
}
