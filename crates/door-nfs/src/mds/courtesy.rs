//! Clients whose lease has ended, and which keep their state until another client needs it: as Linux has it since 5.19.
//!
//! A conflicting request ends such a client. The housekeeping voids its record, fences it off at the pools and
//! releases its state. The request waits for that shortly, then gets DELAY.

use std::collections::BTreeSet;

use file_state::Holder;
use files::Want;
use nfs4::{ClientId4, NfsStat4};
use nfs4_state::Holdings;
use nfs4_state::stateid::{ClientState, client_of};
use parking_lot::Mutex;
use types::FileId;

use super::clients::Clients;
use super::file_system::{FileSystem, WAIT};
use crate::status;

/// State that clients hold, to judge whether a client is worth keeping.
pub(super) struct Held<'a>(pub &'a Mutex<ClientState>);

impl Holdings for Held<'_> {
    fn states(&self, client: ClientId4) -> u64 {
        self.0.lock().count(client)
    }

    fn is_waited_for(&self, client: ClientId4) -> bool {
        self.0.lock().is_waited_for(client)
    }
}

/// After a refusal: `true` if lost clients stood in the way and are gone, so that a retry may succeed.
pub(super) async fn dislodge(fs: &FileSystem, file: FileId, want: Want) -> Result<bool, NfsStat4> {
    fs.files.dislodge(file, want, WAIT).await.map_err(status::of_files)
}

/// Those of these clients that are gone, or go now.
pub(super) fn depart(clients: &Clients, these: &[ClientId4]) -> BTreeSet<ClientId4> {
    let going = clients.sessions.leases.dislodge(these);
    // State that cannot be released yet is left to the periodic housekeeping.
    if clients.sessions.leases.has_departed() {
        clients.departures.notify_one();
    }
    going
}

/// As `depart`, of holders of whatever door: whether any of them goes.
pub(super) fn is_any_departing(clients: &Clients, holders: &[Holder]) -> bool {
    let these: Vec<ClientId4> =
        holders.iter().copied().filter_map(|holder| client_of(clients.fs.door, holder)).collect();
    !depart(clients, &these).is_empty()
}
