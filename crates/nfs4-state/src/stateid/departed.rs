//! Clients that are gone, and the state that they leave.
//!
//! A lost client may still be writing at the pools. It is fenced off from its files there before its locks go to
//! anybody else; a file whose pool cannot be told keeps its state, and is tried again, while all others are freed.

use std::collections::BTreeSet;

use nfs4::ClientId4;
use types::FileId;

use super::ClientState;

impl ClientState {
    /// Clients that have any state.
    pub fn clients(&self) -> Vec<ClientId4> {
        self.table.lock().holders().iter().filter_map(|holder| self.table.client_of(holder)).collect()
    }

    /// The client is gone: its state waits to be released.
    pub fn depart(&mut self, client: ClientId4) {
        self.departed.gone.insert(client);
    }

    /// Clients with state that the session table does not know now. A request that was running when its client went may
    /// have opened something after the release; a client that is found twice is gone.
    pub fn note_strays(&mut self, strays: impl IntoIterator<Item = ClientId4>) {
        let strays: BTreeSet<_> = strays.into_iter().collect();
        let twice = strays.intersection(&self.departed.strays).copied();
        self.departed.gone.extend(twice);
        self.departed.strays = strays;
    }

    /// Clients whose state is to be released.
    pub fn departed(&self) -> Vec<ClientId4> {
        self.departed.gone.iter().copied().collect()
    }

    /// Releases a departed client, but for files that could not be fenced off: those stay for another time.
    pub fn release(&mut self, client: ClientId4, unfenced: &[FileId]) {
        self.lost.note_all(&self.table, client, unfenced);
        let holder = self.table.holder(client);
        let mut files = self.table.lock();
        if unfenced.is_empty() {
            files.release_holder(holder);
            self.states.remove_client(client);
            self.owners.remove_client(client);
            self.departed.gone.remove(&client);
            drop(files);
            self.lost.leave(client);
            self.waiters().release_forgotten();
            return;
        }
        let fenced = files.holders().files_of(holder).filter(|file| !unfenced.contains(file));
        for file in fenced.collect::<Vec<_>>() {
            // Stateids and owners go with the last file: nobody can use them meanwhile.
            files.release(file, holder);
        }
    }
}
