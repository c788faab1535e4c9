//! Recalls of what clients were granted, with their stateids, and revocation.

use std::time::Duration;

use file_state::{GrantKind, Granted, LayoutModes, Recall};
use nfs4::{ClientId4, StateId4};
use types::FileId;

use super::delegations::Delegations;
use super::door_table::DoorTable;
use super::layouts::Layouts;
use super::lost::LostLocks;
use super::table::StateTable;

/// A recall to send: the stateid is as the callback has to carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressedRecall {
    pub client: ClientId4,
    pub file: FileId,
    pub stateid: StateId4,
    pub granted: Granted,
}

/// A grant that was not given back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revoked {
    pub client: ClientId4,
    pub file: FileId,
    pub granted: Granted,
    /// The client could go on at the pools: it is to be fenced off first.
    pub is_at_pools: bool,
    /// Worth a word to an operator; a client that says it has no such thing is not.
    pub is_overdue: bool,
}

/// Grants that clients are asked to give back.
pub struct Recalls<'a> {
    pub(super) table: &'a DoorTable,
    pub(super) states: &'a mut StateTable,
    pub(super) lost: &'a mut LostLocks,
}

impl Recalls<'_> {
    /// Puts the stateid to each recall of the table that is still under way. Grants that have come back since, or are
    /// another door's, are left out.
    pub fn address(&mut self, recalls: &[Recall]) -> Vec<AddressedRecall> {
        let with_stateid = recalls.iter().filter_map(|recall| {
            let client = self.table.client_of(recall.holder)?;
            let (file, granted) = (recall.file, recall.granted);
            let key = match granted.kind() {
                GrantKind::Layout => self.states.layout_of(client, file)?,
                GrantKind::Delegation => self.states.delegation_of(client, file)?,
            };
            if !self.table.lock().file(file).is_recalled(recall.holder, granted.kind()) {
                return None;
            }
            // The recall of a layout is a change of its state (RFC 8881 §12.5.3), that of a delegation is not.
            let is_counted = granted.kind() == GrantKind::Layout && !recall.is_repeated;
            let stateid = if is_counted { self.states.bump(key) } else { self.states.stateid(key) };
            Some(AddressedRecall { client, file, stateid, granted })
        });
        with_stateid.collect()
    }

    /// The recall did not reach the client: it is sent again, with the same stateid, by
    /// [`Recalls::repeat_unheard`] or by the next change.
    pub fn note_unheard(&mut self, recall: &AddressedRecall) {
        let kind = recall.granted.kind();
        self.table.lock().recalls().note_unheard(recall.file, self.table.holder(recall.client), kind);
    }

    /// The client cannot be reached, or says that it has no such grant: the recall is over, and the client is to be
    /// fenced off.
    pub fn expire(&mut self, recall: &AddressedRecall) {
        let kind = recall.granted.kind();
        self.table.lock().recalls().expire(recall.file, self.table.holder(recall.client), kind);
    }

    /// Whether the recall still waits for the client.
    pub fn is_recalled(&self, recall: &AddressedRecall) -> bool {
        let kind = recall.granted.kind();
        self.table.lock().file(recall.file).is_recalled(self.table.holder(recall.client), kind)
    }

    /// The grants to revoke. Each comes again after `retry_at` until [`Recalls::revoke`] says that it is done.
    pub fn expired(&mut self, now: Duration, retry_at: Duration) -> Vec<Revoked> {
        let mut files = self.table.lock();
        let due = files.expired_recalls(now, retry_at);
        let of_clients = due.into_iter().filter_map(|revoke| {
            let client = self.table.client_of(revoke.holder)?;
            let layouts = files.file(revoke.file).layout_of(revoke.holder);
            // A client that loses its delegation must not read by an old ticket either.
            let is_at_pools = match revoke.granted {
                Granted::Layout(modes) => modes.read_write,
                Granted::Delegation(_) => !layouts.is_empty(),
            };
            Some(Revoked {
                client,
                file: revoke.file,
                granted: revoke.granted,
                is_at_pools,
                is_overdue: revoke.is_overdue,
            })
        });
        of_clients.collect()
    }

    /// It is fenced off and forgotten: `false` if it has come back meanwhile, and perhaps was granted and even recalled anew. The stateid of
    /// a layout is a bad one from now on; that of a delegation says that it was revoked, unless its client has said that it
    /// has none and so would never free it.
    pub fn revoke(&mut self, revoked: &Revoked) -> bool {
        let Revoked { client, file, granted, is_overdue, .. } = *revoked;
        if !self.table.lock().file(file).is_due(self.table.holder(client), granted.kind()) {
            return false;
        }
        if granted.kind() == GrantKind::Delegation {
            if is_overdue {
                self.lost.note_delegation(self.table, client, file);
            }
            self.delegations().revoke(client, file, is_overdue);
        }
        let mut layouts = Layouts { table: self.table, states: &mut *self.states, lost: &*self.lost };
        layouts.drop(client, file, LayoutModes::ALL);
        true
    }

    // All layouts of a client at once: the callback carries no stateid, and no stateid changes by it.

    /// Recalls those that the client has of these files, to be asked for by LAYOUTRECALL4_ALL. Of how many: none while
    /// one of its layouts is being recalled, for then the server must not ask (RFC 8881 §12.5.5.2.1.5).
    pub fn begin_at_once(&mut self, client: ClientId4, files: &[FileId], deadline: Duration) -> usize {
        self.table.lock().recalls().begin_at_once(self.table.holder(client), files, deadline)
    }

    /// The client says that it has none: what it might still do at the pools is to be fenced off.
    pub fn expire_at_once(&mut self, client: ClientId4) {
        self.table.lock().recalls().expire_at_once(self.table.holder(client));
    }

    /// The client does not do that: it is to be asked for each of them.
    pub fn forget_at_once(&mut self, client: ClientId4) {
        self.table.lock().recalls().forget_at_once(self.table.holder(client));
    }

    /// Recalls that could not be told yet, so many of each client at most and so many in all.
    pub fn repeat_unheard(&mut self, each: usize, max: usize) -> Vec<AddressedRecall> {
        let again = self.table.lock().recalls().repeat_unheard(self.table.door, each, max);
        self.address(&again)
    }

    fn delegations(&mut self) -> Delegations<'_> {
        Delegations { table: self.table, states: &mut *self.states, lost: &mut *self.lost }
    }
}
