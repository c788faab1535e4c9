//! Grants to clients, layouts and delegations: how many there were, and which files are worth a delegation.

use std::sync::Arc;

use nfs4::ClientId4;
use nfs4_state::Adaptive;
use parking_lot::Mutex;
use types::FileId;

use super::clients::Clients;
use super::counts::Counts;
use super::fencing::Fencing;

pub(crate) struct Grants {
    pub clients: Arc<Clients>,
    pub fencing: Fencing,
    /// Which files are worth a delegation. Leaf lock.
    pub adaptive: Mutex<Adaptive>,
    pub counts: Counts,
}

impl Grants {
    /// A delegation of the file is being recalled: none is offered for a while.
    pub(super) fn note_recall(&self, file: FileId) {
        self.adaptive.lock().recalled(file, self.clients.fs.clock.monotonic());
    }

    pub(super) fn forget_client(&self, client: ClientId4) {
        self.adaptive.lock().forget_client(client);
    }
}
