//! An export as it is configured: for which hosts, and by which rules they are served there.

use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use types::{Identity, Name, Network};

use crate::security::Flavors;

/// An entry of the configuration: a directory for some hosts.
#[derive(Clone, Debug)]
pub struct Export {
    /// From the root; the root itself is empty.
    pub path: Vec<Name>,
    pub hosts: Vec<Hosts>,
    pub rules: ExportRules,
}

impl Export {
    /// The whole namespace, to read and write, for everybody who can connect, by AUTH_SYS.
    pub fn of_everything(squash: Squash) -> Export {
        let anonymous = (NOBODY, NOBODY);
        let rules = ExportRules { is_read_only: false, squash, anonymous, flavors: Flavors::SYS };
        Export { path: Vec::new(), hosts: vec![Hosts::Any], rules }
    }
}

const NOBODY: u32 = Identity::NOBODY_ID;

#[derive(Clone, Copy, Debug)]
pub enum Hosts {
    Any,
    Network(Network),
}

impl Hosts {
    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        match self {
            Hosts::Any => true,
            Hosts::Network(network) => network.contains(address),
        }
    }

    /// Of two that hold an address the one with more is the narrower; anybody is wider than every network.
    fn narrowness(&self) -> u32 {
        match self {
            Hosts::Any => 0,
            Hosts::Network(network) => 1 + u32::from(network.prefix_bits()),
        }
    }

    pub fn are_same(&self, other: &Hosts) -> bool {
        match (self, other) {
            (Hosts::Any, Hosts::Any) => true,
            (Hosts::Network(one), Hosts::Network(other)) => one.is_same(other),
            _ => false,
        }
    }
}

/// All hosts that something is exported to, for the doors at the pools.
#[derive(Debug, Default)]
pub struct ServedHosts(RwLock<Vec<Hosts>>);

impl ServedHosts {
    pub fn of(exports: &[Export]) -> Arc<ServedHosts> {
        let served = Arc::new(ServedHosts::default());
        served.replace(exports);
        served
    }

    pub(crate) fn replace(&self, exports: &[Export]) {
        *self.0.write() = exports.iter().flat_map(|export| export.hosts.iter().copied()).collect();
    }

    pub(crate) fn contain(&self, address: IpAddr) -> bool {
        self.0.read().iter().any(|hosts| hosts.contain(address))
    }
}

/// How an export is served to some hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportRules {
    pub is_read_only: bool,
    pub squash: Squash,
    /// The uid and gid of squashed callers.
    pub anonymous: (u32, u32),
    /// Callers of other flavors get WRONGSEC.
    pub flavors: Flavors,
}

/// Identities that an export does not accept from any host or ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Squash {
    None,
    /// Root of the client hosts is anonymous, and so is its group.
    Root,
    All,
}

/// Of a pseudo directory: it can only be read.
pub(super) const PSEUDO: ExportRules = ExportRules {
    is_read_only: true,
    squash: Squash::All,
    anonymous: (NOBODY, NOBODY),
    flavors: Flavors::NONE,
};

impl ExportRules {
    pub(super) fn identity(&self, claimed: &Claimed) -> Identity {
        let (uid, gid) = self.anonymous;
        match (claimed, self.squash) {
            (Claimed::Nobody, _) | (_, Squash::All) => Identity::new(uid, gid, &[]),
            (Claimed::User(user), Squash::None) => user.clone(),
            (Claimed::User(user), Squash::Root) => {
                if user.uid != 0 && !user.is_member_of(0) {
                    return user.clone();
                }
                let group = |id: u32| if id == 0 { gid } else { id };
                let groups: Vec<u32> = user.groups.iter().map(|id| group(*id)).collect();
                Identity::new(if user.uid == 0 { uid } else { user.uid }, group(user.gid), &groups)
            }
        }
    }
}

/// The identity that a caller claims, before an export squashes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// AUTH_NONE.
    Nobody,
    /// By AUTH_SYS, or the user of a Kerberos name.
    User(Identity),
}

/// Of the entries of one directory, the narrowest that holds the address.
pub(super) fn narrowest(entries: &[(Hosts, ExportRules)], peer: IpAddr) -> Option<ExportRules> {
    let held = entries.iter().filter(|(hosts, _)| hosts.contain(peer));
    held.max_by_key(|(hosts, _)| hosts.narrowness()).map(|(_, rules)| *rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Claimed {
        Claimed::User(Identity::new(uid, uid, groups))
    }

    fn rules(squash: Squash) -> ExportRules {
        ExportRules { is_read_only: false, squash, anonymous: (99, 98), flavors: Flavors::SYS }
    }

    #[test]
    fn root_becomes_anonymous_with_all_its_groups() {
        let squashed = rules(Squash::Root).identity(&user(0, &[0, 5]));
        assert_eq!(squashed, Identity::new(99, 98, &[98, 5]));
        assert_eq!(rules(Squash::Root).identity(&user(7, &[5])), Identity::new(7, 7, &[5]));
        assert_eq!(rules(Squash::Root).identity(&user(7, &[0])), Identity::new(7, 7, &[98]));
        assert_eq!(rules(Squash::None).identity(&user(0, &[0])), Identity::new(0, 0, &[0]));
    }

    #[test]
    fn everybody_is_anonymous_where_all_are_squashed_and_without_a_credential_everywhere() {
        assert_eq!(rules(Squash::All).identity(&user(7, &[5])), Identity::new(99, 98, &[]));
        assert_eq!(rules(Squash::None).identity(&Claimed::Nobody), Identity::new(99, 98, &[]));
    }
}
