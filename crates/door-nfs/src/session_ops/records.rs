//! The records of clients in the database, which say what a client may reclaim after a restart.
//!
//! Invariant: records of one owner are written in the order of what happened.

use std::sync::Arc;

use api::{ClientRecord, NamespaceError, RecoveryRecords};
use bytes::Bytes;
use nfs4_state::Action;
use tokio::sync::Mutex;

use super::timed_table::TimedTable;

pub(crate) struct Records {
    table: Arc<TimedTable>,
    /// Pools have none.
    store: Option<Arc<dyn RecoveryRecords>>,
    /// Held while a record is written, so that writes of one owner keep their order.
    recording: Mutex<()>,
}

impl Records {
    pub fn new(table: Arc<TimedTable>, store: Option<Arc<dyn RecoveryRecords>>) -> Records {
        Records { table, store, recording: Mutex::new(()) }
    }

    /// Makes the record of an owner say what it must say now.
    pub async fn record_standing(&self, owner: &Bytes) -> Result<(), NamespaceError> {
        let Some(records) = &self.store else { return Ok(()) };
        let _in_order = self.recording.lock().await;
        let standing = self.table.lock().clients().standing(owner);
        let Some(reclaim_complete) = standing else { return Ok(()) };
        records.put(&ClientRecord { owner: owner.to_vec(), reclaim_complete }).await
    }

    /// Makes an action durable.
    pub async fn record(&self, action: Option<&Action>) -> Result<(), NamespaceError> {
        let (Some(action), Some(records)) = (action, &self.store) else { return Ok(()) };
        let _in_order = self.recording.lock().await;
        let put = async |owner: &Bytes, reclaim_complete| {
            records.put(&ClientRecord { owner: owner.to_vec(), reclaim_complete }).await
        };
        match action {
            Action::PutRecord { owner, reclaim_complete } => put(owner, *reclaim_complete).await,
            Action::VoidRecord { owner } => {
                let standing = self.table.lock().clients().standing(owner);
                if standing == Some(true) { Ok(()) } else { put(owner, false).await }
            }
            Action::RemoveRecord { owner } => {
                let standing = self.table.lock().clients().standing(owner);
                match standing {
                    None => records.remove(owner).await,
                    // The client is back, with nothing of what it had.
                    Some(false) => put(owner, false).await,
                    Some(true) => Ok(()),
                }
            }
        }
    }
}
