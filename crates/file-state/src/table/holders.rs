//! The holders, with counts of what each has and the files that it has it of.

use std::collections::{BTreeMap, BTreeSet};

use types::FileId;

use crate::Holder;

/// Counts of what a holder has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub opens: usize,
    pub locks: usize,
    /// Files of which it has a layout.
    pub layouts: usize,
    pub delegations: usize,
}

/// The holders that have any state. A holder's counts are the sums over its files.
#[derive(Debug, Default)]
pub struct Holders {
    records: BTreeMap<Holder, HolderRecord>,
    /// Delegations of all holders.
    pub(super) delegations: usize,
}

#[derive(Debug, Default)]
struct HolderRecord {
    files: BTreeSet<FileId>,
    held: Held,
}

impl Holders {
    pub fn held(&self, holder: Holder) -> Held {
        self.records.get(&holder).map_or(Held::default(), |record| record.held)
    }

    /// Counts over all holders.
    pub fn total(&self) -> Held {
        self.records.values().fold(Held::default(), |sum, record| Held {
            opens: sum.opens + record.held.opens,
            locks: sum.locks + record.held.locks,
            layouts: sum.layouts + record.held.layouts,
            delegations: sum.delegations + record.held.delegations,
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = Holder> {
        self.records.keys().copied()
    }

    /// Files of which the holder has anything.
    pub fn files_of(&self, holder: Holder) -> impl Iterator<Item = FileId> {
        self.records.get(&holder).into_iter().flat_map(|record| record.files.iter().copied())
    }

    /// Whether anybody but `by` has a delegation of any file. If not, a caller that changes a name need not find out
    /// for which file it stands.
    pub fn has_delegations_of_others(&self, by: Option<Holder>) -> bool {
        self.delegations > by.map_or(0, |holder| self.held(holder).delegations)
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.delegations == 0
    }

    /// The files among these of which the holder has anything.
    pub(super) fn files_among<'a>(
        &'a self,
        holder: Holder,
        files: &'a BTreeSet<FileId>,
    ) -> impl Iterator<Item = FileId> {
        let record = self.records.get(&holder).into_iter();
        record.flat_map(|record| record.files.intersection(files).copied())
    }

    /// The counts of a holder that gets something of the file, or gives something of it up.
    pub(super) fn enter(&mut self, holder: Holder, file: FileId) -> &mut Held {
        let record = self.records.entry(holder).or_default();
        record.files.insert(file);
        &mut record.held
    }

    pub(super) fn add_delegation(&mut self, holder: Holder, file: FileId) {
        self.enter(holder, file).delegations += 1;
        self.delegations += 1;
    }

    pub(super) fn remove_delegation(&mut self, holder: Holder, file: FileId) {
        self.enter(holder, file).delegations -= 1;
        self.delegations -= 1;
    }

    /// The holder has nothing of the file any more.
    pub(super) fn leave(&mut self, holder: Holder, file: FileId) {
        let Some(record) = self.records.get_mut(&holder) else { return };
        record.files.remove(&file);
        if record.files.is_empty() {
            self.records.remove(&holder);
        }
    }
}
