//! Clients that are gone and whose state is still to be released.

use std::collections::BTreeSet;

use nfs4::ClientId4;

#[derive(Debug, Default)]
pub(super) struct Departures {
    pub gone: BTreeSet<ClientId4>,
    pub strays: BTreeSet<ClientId4>,
}

impl Departures {
    pub fn is_empty(&self) -> bool {
        self.gone.is_empty() && self.strays.is_empty()
    }
}
