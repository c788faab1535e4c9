//! Changes of files: what must be given back before one is made, and those that wait for it.

use std::collections::BTreeSet;
use std::time::Duration;

use types::FileId;

use super::entries::Entries;
use super::recalls::Recalls;
use super::under_way::UnderWay;
use crate::change::Pending;
use crate::{Change, ChangeVerdict, GrantKind, Holder, Recall};

/// Files with a change that waits, by when that ends.
pub(super) type Pendings = BTreeSet<(Duration, FileId)>;

pub struct Changes<'a> {
    pub(super) entries: &'a mut Entries,
    pub(super) under_way: &'a mut UnderWay,
    pub(super) pending: &'a mut Pendings,
}

impl Changes<'_> {
    /// Judges a change of a file by a holder (or by a caller that cannot hold anything). On `Wait` the caller asks
    /// again: grants that are being recalled are not recalled again, and no other holder is granted them anew until
    /// `deadline`. On `Proceed` the caller calls [`Changes::begin`] in the same hold of the table.
    pub fn ask(
        &mut self,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        deadline: Duration,
    ) -> ChangeVerdict {
        let Some(known) = self.entries.get_mut(file) else { return ChangeVerdict::Proceed };
        let is_free = known.in_the_way(by, change).is_empty();
        // If the file is free, the wait of another change stays.
        let before = known.pending.take_if(|pending| !is_free || pending.by == by);
        if let Some(before) = &before {
            self.pending.remove(&(before.until, file));
        }
        if is_free {
            self.entries.drop_if_idle(file);
            return ChangeVerdict::Proceed;
        }
        let others = before.filter(|before| before.by != by);
        let until = others.as_ref().map_or(deadline, |others| others.until.max(deadline));
        let is_of_layouts = change.recalls_layouts() || others.is_some_and(|others| others.is_of_layouts);
        known.pending = Some(Box::new(Pending { by, until, is_of_layouts }));
        self.pending.insert((until, file));
        ChangeVerdict::Wait { recalls: self.recall_for(file, by, change, deadline) }
    }

    /// Ends the wait of a holder that does not ask again: others are granted again what was kept from them for its
    /// change. Recalls under way go on. The holder's other changes of the file lose this, too, until they ask again.
    pub fn withdraw(&mut self, file: FileId, by: Holder) {
        let Some(known) = self.entries.get_mut(file) else { return };
        if let Some(ended) = known.pending.take_if(|pending| pending.by == Some(by)) {
            self.pending.remove(&(ended.until, file));
            self.entries.drop_if_idle(file);
        }
    }

    /// A change that may proceed is about to be made: until it has ended nobody is delegated the file.
    pub fn begin(&mut self, file: FileId) {
        self.entries.enter(file).changing += 1;
    }

    pub fn end(&mut self, file: FileId) {
        let Some(known) = self.entries.get_mut(file) else { return };
        known.changing -= 1;
        self.entries.drop_if_idle(file);
    }

    /// Recalls whatever is in the way of a change that waits, or that was made already.
    pub fn recall_for(
        &mut self,
        file: FileId,
        by: Option<Holder>,
        change: Change,
        deadline: Duration,
    ) -> Vec<Recall> {
        let in_the_way = self.entries.of(file).in_the_way(by, change);
        let mut recalls = self.recalls();
        in_the_way
            .into_iter()
            .filter_map(|(holder, kind)| recalls.begin(file, holder, kind, deadline))
            .collect()
    }

    /// Recalls all layouts of a file: for its pool, and not for what becomes of the file.
    pub fn recall_layouts(&mut self, file: FileId, deadline: Duration) -> Vec<Recall> {
        let holders: Vec<_> = self.entries.of(file).layout_holders().collect();
        let mut recalls = self.recalls();
        let recall = |holder| recalls.begin(file, holder, GrantKind::Layout, deadline);
        holders.into_iter().filter_map(recall).collect()
    }

    /// Ends the waits whose time is over.
    pub(super) fn expire(&mut self, now: Duration) {
        while let Some((until, file)) = self.pending.first().copied().filter(|(until, _)| *until <= now) {
            self.pending.remove(&(until, file));
            if let Some(known) = self.entries.get_mut(file) {
                known.pending = None;
            }
            self.entries.drop_if_idle(file);
        }
    }

    fn recalls(&mut self) -> Recalls<'_> {
        Recalls { entries: &mut *self.entries, under_way: &mut *self.under_way }
    }
}
