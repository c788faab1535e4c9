//! A change that is about to be made to a file, and the grants that must be given back or revoked for it.

use std::time::Duration;

use types::FileId;

use crate::{DelegationKind, Holder, LayoutModes, Modes, Share};

/// A change that is about to be made to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is opened so, or read or written without an open.
    Access(Share),
    /// To a smaller size: bytes vanish under the layouts of others.
    Truncate,
    /// An upload takes its name: the layouts of others are recalled first.
    Replace,
    /// A name of it is removed, or a rename gives that to another file. As POSIX has it, a holder that has the file open keeps
    /// it, with its layouts.
    Remove,
    Rename,
    /// One more name.
    Link,
    SetAttributes,
}

impl Change {
    /// Changes of names and attributes, and writes of others, do not matter to layouts.
    pub(crate) fn recalls_layouts(self) -> bool {
        matches!(self, Change::Truncate | Change::Replace)
    }

    /// Whether a delegation of another holder must be returned before the change is made.
    pub(crate) fn ends(self, delegation: DelegationKind) -> bool {
        match (delegation, self) {
            (DelegationKind::Read, Change::Access(share)) => {
                share.access.contains(Modes::WRITE) || share.deny.contains(Modes::READ)
            }
            _ => true,
        }
    }

    /// Whether an open at another door that denies writing stands in its way.
    pub fn is_deniable(self) -> bool {
        !matches!(self, Change::SetAttributes | Change::Access(_) | Change::Link)
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

/// A grant of a holder on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Granted {
    Layout(LayoutModes),
    Delegation(DelegationKind),
}

impl Granted {
    pub fn kind(self) -> GrantKind {
        match self {
            Granted::Layout(_) => GrantKind::Layout,
            Granted::Delegation(_) => GrantKind::Delegation,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GrantKind {
    Layout,
    Delegation,
}

/// Ask a holder to give back what it was granted of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    pub file: FileId,
    pub holder: Holder,
    pub granted: Granted,
    /// It was recalled before, and that was not heard: see [`Recalls::note_unheard`](crate::Recalls::note_unheard).
    pub is_repeated: bool,
}

/// A holder did not give back in time: its access is to be fenced off, and then what it was granted forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoke {
    pub file: FileId,
    pub holder: Holder,
    pub granted: Granted,
    /// The holder has let its time pass; else nobody waited for it, see [`Recalls::expire`](crate::Recalls::expire).
    /// The same at every try.
    pub is_overdue: bool,
}

/// A change that had to wait, and until when nobody else is granted what it had to wait for: or a client that takes it
/// anew as soon as it has given it back would keep the change from ever happening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub by: Option<Holder>,
    pub until: Duration,
    /// Layouts too, not delegations only.
    pub is_of_layouts: bool,
}

impl Pending {
    pub fn stops(&self, holder: Holder, now: Duration) -> bool {
        self.by != Some(holder) && now < self.until
    }
}
