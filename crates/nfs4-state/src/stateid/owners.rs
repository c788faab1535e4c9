//! Names of open owners and lock owners, and the numbers that the conflict table knows them by.
//!
//! An owner is known while some stateid is its own, or it waits for a lock: each is one use.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use nfs4::ClientId4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OwnerKind {
    Open,
    Lock,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct OwnerName {
    client: ClientId4,
    kind: OwnerKind,
    /// Shared by both maps: there may be an owner for each open.
    name: Arc<[u8]>,
}

#[derive(Debug)]
struct KnownOwner {
    name: OwnerName,
    uses: u32,
}

#[derive(Debug, Default)]
pub(super) struct Owners {
    numbers: BTreeMap<OwnerName, u64>,
    known: BTreeMap<u64, KnownOwner>,
    last: u64,
}

impl Owners {
    /// Nobody: numbers count from one.
    pub const UNKNOWN: u64 = 0;

    pub fn find(&self, client: ClientId4, kind: OwnerKind, name: &Bytes) -> u64 {
        let name = OwnerName { client, kind, name: Arc::from(&name[..]) };
        self.numbers.get(&name).copied().unwrap_or(Owners::UNKNOWN)
    }

    /// Adds a use.
    pub fn acquire(&mut self, client: ClientId4, kind: OwnerKind, name: &Bytes) -> u64 {
        // Copied: the request's bytes would pin the whole request.
        let name = OwnerName { client, kind, name: Arc::from(&name[..]) };
        if let Some(&number) = self.numbers.get(&name) {
            self.hold(number);
            return number;
        }
        self.last += 1;
        self.numbers.insert(name.clone(), self.last);
        self.known.insert(self.last, KnownOwner { name, uses: 1 });
        self.last
    }

    /// One use more of an owner that is known.
    pub fn hold(&mut self, number: u64) {
        let known = self.known.get_mut(&number).expect("who holds an owner has it in use already");
        known.uses += 1;
    }

    pub fn release(&mut self, number: u64) {
        let Some(known) = self.known.get_mut(&number) else { return };
        known.uses -= 1;
        if known.uses == 0
            && let Some(known) = self.known.remove(&number)
        {
            self.numbers.remove(&known.name);
        }
    }

    pub fn name(&self, number: u64) -> Option<Bytes> {
        self.known.get(&number).map(|known| Bytes::copy_from_slice(&known.name.name))
    }

    pub fn remove_client(&mut self, client: ClientId4) {
        let first = OwnerName { client, kind: OwnerKind::Open, name: Arc::from(&[][..]) };
        let of_client = self.numbers.range(first..).take_while(|(name, _)| name.client == client);
        let gone: Vec<_> = of_client.map(|(name, number)| (name.clone(), *number)).collect();
        for (name, number) in gone {
            self.numbers.remove(&name);
            self.known.remove(&number);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty() && self.known.is_empty()
    }
}
