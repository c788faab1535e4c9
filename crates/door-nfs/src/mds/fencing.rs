//! Fencing: the epoch of a file is raised, durably, and the pools refuse older tickets.
//!
//! Tickets outlive the head. One that a client got before a restart and did not reclaim anything after is unknown to
//! the head of now, so that it cannot be fenced off when the client's lease ends. Instead the file is fenced off before
//! any client gets a grant that the ticket could break: a lock, a share denied, a delegation.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::NamespaceError;
use nfs4::NfsStat4;
use parking_lot::Mutex;
use types::FileId;

use super::clients::Clients;

/// Files that are remembered as fenced off; beyond it all are forgotten, and fenced off once more.
const FENCED_MAX: usize = 1 << 16;

pub(crate) struct Fencing {
    clients: Arc<Clients>,
    /// Leaf lock.
    former_tickets: Mutex<FormerTickets>,
}

/// Files whose tickets from before the start of this head are void.
#[derive(Debug, Default)]
struct FormerTickets {
    void: BTreeSet<FileId>,
}

impl Fencing {
    pub fn new(clients: Arc<Clients>) -> Fencing {
        Fencing { clients, former_tickets: Mutex::default() }
    }

    /// From here on no pool takes tickets that were given out for the file before.
    pub async fn fence(&self, file: FileId) -> Result<(), NamespaceError> {
        self.clients.fs.files.pools().fence(file).await
    }

    /// Before a client gets a lock of the file, or the like, that it did not have before the start.
    pub async fn fence_former(&self, file: FileId) -> Result<(), NfsStat4> {
        if !self.clients.sessions.reclaims.has_missed() || self.former_tickets.lock().are_void(file) {
            return Ok(());
        }
        if let Err(error) = self.fence(file).await {
            tracing::warn!(%file, %error, "cannot fence off the clients that had the file before the restart");
            return Err(NfsStat4::Delay);
        }
        self.former_tickets.lock().note_void(file);
        Ok(())
    }
}

impl FormerTickets {
    fn are_void(&self, file: FileId) -> bool {
        self.void.contains(&file)
    }

    fn note_void(&mut self, file: FileId) {
        if self.void.len() >= FENCED_MAX {
            self.void.clear();
        }
        self.void.insert(file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_the_bound_a_file_is_fenced_off_once_more() {
        let mut tickets = FormerTickets::default();
        (0..FENCED_MAX as u64).for_each(|file| tickets.note_void(FileId(file)));
        assert!(tickets.are_void(FileId(0)));
        tickets.note_void(FileId(FENCED_MAX as u64));
        assert!(!tickets.are_void(FileId(0)) && tickets.are_void(FileId(FENCED_MAX as u64)));
    }
}
