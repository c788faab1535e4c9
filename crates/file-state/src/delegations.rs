//! Delegations of one file: whose cache may be believed without asking (RFC 8881 §10.4).
//!
//! A read delegation goes with those of others, and with nobody who changes the file; one to write goes with nobody.
//! What a holder does itself never stands against its own delegation.

use crate::{Change, Modes};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DelegationKind {
    Read,
    Write,
}

impl DelegationKind {
    /// What its holder may open by itself.
    pub fn access(self) -> Modes {
        match self {
            DelegationKind::Read => Modes::READ,
            DelegationKind::Write => Modes::BOTH,
        }
    }

    /// Whether it must come home before somebody else does this.
    pub(crate) fn is_in_the_way_of(self, change: Change) -> bool {
        match (self, change) {
            (DelegationKind::Read, Change::Access(share)) => {
                share.access.contains(Modes::WRITE) || share.deny.contains(Modes::READ)
            }
            _ => true,
        }
    }
}
