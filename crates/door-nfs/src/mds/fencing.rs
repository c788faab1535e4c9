//! Fencing: the epoch of a file is raised, durably, and the pools refuse older tickets.
//!
//! Tickets outlive the head. One that a client got before a restart and did not reclaim anything after is unknown to
//! the head of now, so that it cannot be fenced off when the client's lease ends. So all tickets to write from before a
//! restart end with the grace period (`session_ops::reclaims`).

use std::sync::Arc;
use std::time::Duration;

use api::NamespaceError;
use futures_util::{StreamExt, stream};
use nfs4::{ClientId4, NfsStat4};
use types::FileId;

use super::clients::Clients;
use super::revocation::FENCED_AT_ONCE;

/// A client that returns a layout waits for the fence so long at most.
const RETURN_TIME: Duration = Duration::from_secs(2);

pub(crate) struct Fencing {
    clients: Arc<Clients>,
}

impl Fencing {
    pub fn new(clients: Arc<Clients>) -> Fencing {
        Fencing { clients }
    }

    /// From here on no pool takes tickets that were given out for the file before.
    pub async fn fence(&self, file: FileId) -> Result<(), NamespaceError> {
        self.clients.fs.files.pools().fence(file).await
    }

    /// Before a client gives a layout of the file back, by LAYOUTRETURN or by closing the file.
    pub async fn before_return(&self, client: ClientId4, file: FileId) {
        if self.clients.states.lock().layouts().is_recalled_to_write(client, file) {
            self.fence_returned(client, vec![file]).await;
        }
    }

    /// Of layouts that were recalled: a WRITE that the client has given up may still come to the pool after the return, and
    /// behind the change that the recall was for. A pool that does not answer soon holds nobody up: it is told of, and
    /// the layouts are back all the same.
    pub async fn fence_returned(&self, client: ClientId4, files: Vec<FileId>) {
        let count = files.len();
        let fenced = stream::iter(files).for_each_concurrent(FENCED_AT_ONCE, |file| async move {
            if let Err(error) = self.fence(file).await {
                tracing::warn!(client = client.0, %file, %error, "cannot fence off a client that returned a layout");
            }
        });
        if tokio::time::timeout(RETURN_TIME, fenced).await.is_err() {
            tracing::warn!(
                client = client.0,
                files = count,
                "pools did not fence off in time a client that returned layouts"
            );
        }
    }

    /// Before a client gets a lock, or the like, that it did not have before the start. DELAY: others may still write by
    /// tickets of before.
    pub fn require_former_void(&self) -> Result<(), NfsStat4> {
        if self.clients.sessions.reclaims.are_former_tickets_void() { Ok(()) } else { Err(NfsStat4::Delay) }
    }
}
