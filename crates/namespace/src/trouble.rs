//! Why changes are refused, and so what an operator is to do: for health.

use crate::store::StoreError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub kind: TroubleKind,
    /// For people.
    pub why: String,
}

/// Cause of a trouble. All but the last three end by themselves once the cause is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleKind {
    /// The disk of the database has no room.
    Full,
    /// The disk of the database, or a right of its user, allows no writing.
    ReadOnly,
    /// The disk, or the database, fails a request.
    Failed,
    /// The database does not answer.
    Away,
    /// The database gives no connection, as it has no more of them.
    TooManyConnections,
    /// Another head has the namespace.
    TakenOver,
    /// The database lacks what this head has acknowledged.
    SetBack,
    /// Memory cannot be brought to agree with the disk.
    NeedsRestart,
}

impl From<&StoreError> for Trouble {
    fn from(error: &StoreError) -> Trouble {
        let kind = match error {
            StoreError::NoSpace(_) => TroubleKind::Full,
            StoreError::ReadOnly(_) => TroubleKind::ReadOnly,
            StoreError::Busy(_) | StoreError::Failed(_) => TroubleKind::Failed,
            StoreError::NeedsRestart(_) => TroubleKind::NeedsRestart,
        };
        Trouble { kind, why: error.to_string() }
    }
}

/// Troubles that the committer has found.
#[derive(Debug, Default)]
pub struct Troubles {
    /// Why the last group is not on disk.
    pub changes: Option<Trouble>,
    /// Why changes are refused that need more room, while all others are taken.
    pub growth: Option<Trouble>,
}

impl Troubles {
    pub fn is_any(&self) -> bool {
        self.changes.is_some() || self.growth.is_some()
    }
}
