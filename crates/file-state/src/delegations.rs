//! Delegations of one file: the cache of their holder may be believed without asking (RFC 8881 §10.4).
//!
//! A read delegation goes with read delegations of others, and with no other holder that changes the file; a write
//! delegation goes with no other holder. A holder's own changes never conflict with its own delegation.

use crate::Modes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DelegationKind {
    Read,
    Write,
}

impl DelegationKind {
    /// The accesses that its holder may open by itself.
    pub fn access(self) -> Modes {
        match self {
            DelegationKind::Read => Modes::READ,
            DelegationKind::Write => Modes::BOTH,
        }
    }
}
