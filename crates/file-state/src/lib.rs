//! The one conflict table: the opens, byte-range locks, layouts and delegations of all files.
//!
//! All doors share one [`FileState`], so that an open, a lock or a change through one of them is judged against the
//! state of all others. It knows no protocol, does no I/O and never waits: a call answers a verdict, and what must be
//! done by somebody else (asking a client to give back a layout) is returned as a value. Time is handed in. The owner
//! of the table holds a lock around one call at a time and performs the returned actions after it. State between a door
//! and its clients (tokens, stateids) is that door's matter.

#![forbid(unsafe_code)]

mod change;
mod delegations;
mod few;
mod grants;
mod layouts;
mod limits;
mod locks;
mod share;
mod table;

pub use change::{Change, ChangeVerdict, GrantKind, Granted, Recall, Revoke};
pub use delegations::DelegationKind;
pub use layouts::{LayoutMode, LayoutModes};
pub use limits::Limits;
pub use locks::{Lock, LockKind};
pub use share::{Modes, Share};
pub use table::{
    Changes, Delegations, FileEntry, FileState, Held, Holders, Layouts, LockNotice, RangeLocks, Recalls,
    Waiters, Want,
};

use thiserror::Error;

/// A door by its number, so that clients of different doors are told apart. The owner of the table gives the numbers and
/// knows the names; the protocol of a door does not matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Door(u8);

impl Door {
    pub const fn numbered(number: u8) -> Door {
        Door(number)
    }

    pub const fn number(self) -> u8 {
        self.0
    }
}

/// A client of a door. The door chooses the number; it is not reused while anything is held under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    pub door: Door,
    pub number: u64,
}

impl Holder {
    pub const fn of(door: Door, number: u64) -> Holder {
        Holder { door, number }
    }
}

/// A process or an open file description, which opens or locks on behalf of a holder. Opens and locks of one owner
/// never stand in each other's way. The numbers of open owners and lock owners are apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    pub holder: Holder,
    pub number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FileStateError {
    /// Somebody else's open denies the access, or has the access that was to be denied.
    #[error("another open denies it")]
    ShareDenied,
    #[error("another owner has locked {:?}", .0.range)]
    Locked(Lock),
    /// Others hold what must be given back first, or it is being recalled: see [`Changes::ask`].
    #[error("a recall is under way")]
    RecallConflict,
    /// Others use the file in a way that does not go with what is asked for.
    #[error("others use the file")]
    InUse,
    /// The file has no name and nobody holds it: it may be on its way out.
    #[error("the file is gone")]
    Gone,
    #[error("the bound of {0} is reached")]
    Limit(&'static str),
}
