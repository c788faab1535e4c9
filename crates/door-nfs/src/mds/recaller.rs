//! Recalls that other doors and the conflict table ask for, of grants that clients of this door hold.

use std::sync::Weak;
use std::time::Duration;

use async_trait::async_trait;
use file_state::Holder;
use files::{Recall, Recaller, Told};
use nfs4::ClientId4;
use types::FileId;

use super::recalls::Recalls;
use super::{courtesy, unwritten};

pub(super) struct ClientRecaller(pub Weak<Recalls>);

#[async_trait]
impl Recaller for ClientRecaller {
    async fn ask_writer(&self, file: FileId, writer: Holder, patience: Duration) -> Option<Told> {
        let (recalls, client) = (self.0.upgrade()?, ClientId4(writer.number));
        // A client that is silent for longer than a lease is not asked, and not waited for.
        if courtesy::depart(&recalls.clients, &[client]).contains(&client) {
            return None;
        }
        unwritten::ask(&recalls.clients, file, client, patience).await
    }

    fn recall(&self, recalls: &[Recall]) {
        let Some(sender) = self.0.upgrade() else { return };
        let addressed = sender.clients.states.lock().recalls().address(recalls);
        let clients: Vec<ClientId4> = addressed.iter().map(|recall| recall.client).collect();
        // A client that is silent for longer than a lease is not asked, and not waited for.
        let going = courtesy::depart(&sender.clients, &clients);
        let asked = addressed.into_iter().filter(|recall| !going.contains(&recall.client));
        asked.for_each(|recall| sender.send(recall));
    }

    fn are_missing_shut_out(&self) -> bool {
        self.0.upgrade().is_none_or(|recalls| recalls.grants.fencing.require_former_void().is_ok())
    }

    fn dislodge(&self, holders: &[Holder]) -> bool {
        self.0.upgrade().is_some_and(|recalls| courtesy::is_any_departing(&recalls.clients, holders))
    }
}
