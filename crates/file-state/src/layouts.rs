//! Layouts of one file: who may read and write it at the pools without asking (RFC 8881 §12.5), and their recall.
//!
//! A layout is of the whole file. A recall names a deadline; it ends when the holder has given back what it has, or by
//! a revocation after the deadline. While one is under way nobody gets a layout of the file.

use std::collections::BTreeMap;
use std::time::Duration;

use types::FileId;

use crate::{FileStateError, Holder};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutMode {
    Read,
    ReadWrite,
}

/// The layouts that a holder has of one file: one of each mode at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayoutModes {
    pub read: bool,
    pub read_write: bool,
}

impl LayoutModes {
    pub const NONE: LayoutModes = LayoutModes { read: false, read_write: false };
    pub const ALL: LayoutModes = LayoutModes { read: true, read_write: true };

    pub fn only(mode: LayoutMode) -> LayoutModes {
        LayoutModes { read: mode == LayoutMode::Read, read_write: mode == LayoutMode::ReadWrite }
    }

    pub fn is_empty(self) -> bool {
        self == LayoutModes::NONE
    }

    pub(crate) fn with(self, mode: LayoutMode) -> LayoutModes {
        let more = LayoutModes::only(mode);
        LayoutModes { read: self.read || more.read, read_write: self.read_write || more.read_write }
    }

    pub(crate) fn without(self, other: LayoutModes) -> LayoutModes {
        LayoutModes { read: self.read && !other.read, read_write: self.read_write && !other.read_write }
    }
}

/// What is about to be done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// To a smaller size: bytes vanish under the layouts of others.
    Truncate,
    /// Its last name goes, or comes to stand for another file, through a door whose users do not keep files open: what
    /// others still write at the pools is to come home first.
    Replace,
    /// As POSIX has it: who has the file open keeps it.
    Remove,
    Rename,
    SetAttributes,
}

impl Change {
    /// Names and attributes do not matter to layouts; they will to delegations.
    fn recalls_layouts(self) -> bool {
        matches!(self, Change::Truncate | Change::Replace)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum ChangeVerdict {
    Proceed,
    /// Others must give back what they hold first. `recalls` are those to send now; one that is already on its way is
    /// not in it, so it may be empty.
    Wait {
        recalls: Vec<Recall>,
    },
}

/// Ask a holder to give back its layouts of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    pub file: FileId,
    pub holder: Holder,
    pub modes: LayoutModes,
    /// It was recalled before, and that was not heard: see [`FileState::recall_unheard`](crate::FileState::recall_unheard).
    pub is_repeated: bool,
}

/// A holder did not give back in time: its access is to be fenced off, and then the layouts forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoke {
    pub file: FileId,
    pub holder: Holder,
    pub modes: LayoutModes,
    /// The holder has let its time pass; else nobody waited for it, see [`FileState::expire_recall`](crate::FileState::expire_recall).
    pub is_overdue: bool,
}

#[derive(Debug)]
struct Layout {
    held: LayoutModes,
    recall: Option<Recalled>,
}

#[derive(Clone, Copy, Debug)]
struct Recalled {
    /// To be revoked then.
    deadline: Duration,
    /// The holder has not been reached.
    is_unheard: bool,
}

/// A change that had to wait, and until when nobody else gets a layout: or a client that takes a new layout as soon as
/// it has given back the old one would keep the change from ever happening.
#[derive(Clone, Copy, Debug)]
struct Pending {
    by: Option<Holder>,
    until: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Layouts {
    holders: BTreeMap<Holder, Layout>,
    pending: Option<Pending>,
}

impl Layouts {
    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    /// Whether nothing would be forgotten with the file's entry.
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.pending.is_none()
    }

    pub fn of(&self, holder: Holder) -> LayoutModes {
        self.holders.get(&holder).map_or(LayoutModes::NONE, |layout| layout.held)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Holder, LayoutModes)> {
        self.holders.iter().map(|(holder, layout)| (*holder, layout.held))
    }

    pub fn judge(&self, holder: Holder, now: Duration) -> Result<(), FileStateError> {
        let is_recalled = self.holders.values().any(|layout| layout.recall.is_some());
        let is_pending =
            self.pending.is_some_and(|pending| pending.by != Some(holder) && now < pending.until);
        if is_recalled || is_pending { Err(FileStateError::RecallConflict) } else { Ok(()) }
    }

    pub fn grant(&mut self, holder: Holder, mode: LayoutMode) {
        let layout = self.holders.entry(holder).or_insert(Layout { held: LayoutModes::NONE, recall: None });
        layout.held = layout.held.with(mode);
    }

    /// What is left; and the deadline of a recall that has ended by this.
    pub fn give_back(&mut self, holder: Holder, modes: LayoutModes) -> (LayoutModes, Option<Duration>) {
        let Some(layout) = self.holders.get_mut(&holder) else { return (LayoutModes::NONE, None) };
        layout.held = layout.held.without(modes);
        let left = layout.held;
        if !left.is_empty() {
            return (left, None);
        }
        let recall = self.holders.remove(&holder).and_then(|layout| layout.recall);
        (left, recall.map(|recall| recall.deadline))
    }

    /// What to ask for: `None` if the holder has nothing or was asked already; and whether it is asked once more.
    pub fn recall(&mut self, holder: Holder, deadline: Duration) -> Option<(LayoutModes, bool)> {
        let layout = self.holders.get_mut(&holder)?;
        match &mut layout.recall {
            Some(recall) if recall.is_unheard => {
                recall.is_unheard = false;
                Some((layout.held, true))
            }
            Some(_) => None,
            none => {
                *none = Some(Recalled { deadline, is_unheard: false });
                Some((layout.held, false))
            }
        }
    }

    pub fn is_recalled(&self, holder: Holder) -> bool {
        self.holders.get(&holder).is_some_and(|layout| layout.recall.is_some())
    }

    pub fn recall_unheard(&mut self, holder: Holder) {
        if let Some(recall) = self.holders.get_mut(&holder).and_then(|layout| layout.recall.as_mut()) {
            recall.is_unheard = true;
        }
    }

    /// Moves the deadline of a recall that is under way; what it was, and what is held.
    pub fn set_deadline(&mut self, holder: Holder, deadline: Duration) -> Option<(Duration, LayoutModes)> {
        let layout = self.holders.get_mut(&holder)?;
        let recall = layout.recall.as_mut()?;
        let before = std::mem::replace(&mut recall.deadline, deadline);
        Some((before, layout.held))
    }

    /// Whom a change has to wait for.
    pub fn in_the_way(&self, by: Option<Holder>, change: Change) -> Vec<Holder> {
        if !change.recalls_layouts() {
            return Vec::new();
        }
        self.holders.keys().copied().filter(|holder| Some(*holder) != by).collect()
    }

    pub fn set_pending(&mut self, by: Option<Holder>, until: Duration) {
        self.pending = Some(Pending { by, until });
    }

    pub fn clear_pending(&mut self) {
        self.pending = None;
    }

    pub fn pending_until(&self) -> Option<Duration> {
        self.pending.map(|pending| pending.until)
    }
}
