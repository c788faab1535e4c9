//! A client that has lost a lock writes nothing over the data of the next holder: it gets no layout, no delegation (`nfs4_state`),
//! and no ticket from before a restart of the head.
//!
//! That a client has lost locks on some file is on record, so that a restart does not end it. Of which file is not: after
//! a restart each open that such a client reclaims is one of a file on which it may have lost locks.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::{ClientRecord, HandleKey, NamespaceError, RecoveryRecords};
use futures_util::{StreamExt, TryStreamExt, stream};
use nfs4::{ClientId4, NfsStat4};
use nfs4_state::stateid::ClientState;

use super::clients::Clients;
use super::grants::Grants;
use super::revocation;
use crate::context::Compound;

/// Clients that have not come back since a restart, beyond which one record stands for all of them.
const MISSED_MAX: usize = 1 << 12;

/// Owner of the record that does.
const MISSED: &[u8] = b"\0missed reclaims\0";

/// They share commits.
const REMOVED_AT_ONCE: usize = 64;

/// Before the tag of an owner in a record that is none of a client.
const RECORD_PREFIX: &[u8] = b"\0lost locks\0";

/// Stands for an owner, whose name may be as long as a record's may.
type Tag = [u8; 16];

/// Owners that have lost locks, as they are on record.
#[derive(Debug, Default)]
pub(crate) struct LostRecords {
    recorded: BTreeSet<Tag>,
    /// Those that were on record at the start, until the grace period is over.
    former: BTreeSet<Tag>,
    /// It was said that there are too many to remember.
    has_forgotten: bool,
}

impl LostRecords {
    /// Takes its own out of all records.
    fn take(records: &mut Vec<ClientRecord>) -> LostRecords {
        let tag = |record: &ClientRecord| -> Option<Tag> {
            record.owner.strip_prefix(RECORD_PREFIX)?.try_into().ok()
        };
        let former: BTreeSet<Tag> = records.iter().filter_map(tag).collect();
        records.retain(|record| tag(record).is_none());
        LostRecords { recorded: former.clone(), former, has_forgotten: false }
    }
}

fn tag(key: &HandleKey, owner: &[u8]) -> Tag {
    key.authenticate(&[RECORD_PREFIX, owner].concat())
}

/// Clients that have lost locks, and what is on record of them.
pub(crate) struct LostLocks {
    pub clients: Arc<Clients>,
    pub grants: Arc<Grants>,
    pub records: Arc<dyn RecoveryRecords>,
    /// Held while records are written, and guards nothing else.
    pub written: tokio::sync::Mutex<LostRecords>,
}

/// Records of clients, and beside them of those that have lost locks.
pub(crate) async fn load_records(
    records: &dyn RecoveryRecords,
) -> Result<(Vec<ClientRecord>, LostRecords), NamespaceError> {
    let mut known = records.load().await?;
    let lost = LostRecords::take(&mut known);
    fold_missed(records, &mut known).await?;
    Ok((known, lost))
}

/// Keeps records of clients that have not come back, which only say that there are some, from becoming more with each restart.
async fn fold_missed(
    records: &dyn RecoveryRecords,
    known: &mut Vec<ClientRecord>,
) -> Result<(), NamespaceError> {
    let (mut kept, missed): (Vec<_>, Vec<_>) = known.drain(..).partition(|record| record.reclaim_complete);
    if missed.len() <= MISSED_MAX {
        kept.extend(missed);
    } else {
        let one = ClientRecord { owner: MISSED.to_vec(), reclaim_complete: false };
        records.put(&one).await?;
        let others = missed.iter().filter(|record| record.owner != MISSED);
        let removals = stream::iter(others.map(|record| records.remove(&record.owner)));
        removals.buffer_unordered(REMOVED_AT_ONCE).try_collect::<()>().await?;
        kept.push(one);
    }
    *known = kept;
    Ok(())
}

impl LostLocks {
    /// Updates the records of owners that have lost locks.
    pub async fn keep_records(&self) {
        let mut records = self.written.lock().await;
        if !self.clients.sessions.reclaims.in_grace() {
            records.former.clear();
        }
        let (owners, (_, has_forgotten)) = {
            let mut states = self.clients.states.lock();
            (states.lost().owners(), states.lost().count())
        };
        if has_forgotten && !std::mem::replace(&mut records.has_forgotten, true) {
            tracing::warn!(
                "too many departed clients have lost locks; new clients get no layout until they have closed a file"
            );
        }
        let mut wanted: BTreeSet<Tag> =
            owners.iter().map(|owner| tag(&self.clients.fs.handle_key, owner)).collect();
        wanted.extend(&records.former);
        for tag in wanted.symmetric_difference(&records.recorded.clone()) {
            if let Err(error) = self.record(tag, wanted.contains(tag)).await {
                tracing::warn!(%error, "cannot record that a client has lost locks, will try again");
                return;
            }
            if !records.recorded.remove(tag) {
                records.recorded.insert(*tag);
            }
        }
    }

    async fn record(&self, tag: &Tag, is_lost: bool) -> Result<(), NamespaceError> {
        let owner = [RECORD_PREFIX, tag].concat();
        if !is_lost {
            return self.records.remove(&owner).await;
        }
        // Of no client: it entitles nobody to a reclaim.
        self.records.put(&ClientRecord { owner, reclaim_complete: false }).await
    }

    /// Before the client opens anything: its owner identifies it when it is back with another client id.
    pub(super) async fn introduce(&self, client: ClientId4, is_reclaim: bool) {
        let is_introduced = |states: &mut ClientState| {
            if !is_reclaim {
                states.lost().obtains(client);
            }
            states.lost().is_introduced(client)
        };
        if is_introduced(&mut self.clients.states.lock()) {
            return;
        }
        if let Some(incarnation) = self.clients.sessions.incarnation(client) {
            {
                let mut states = self.clients.states.lock();
                states.lost().introduce(client, incarnation);
                is_introduced(&mut states);
            }
            self.keep_records().await;
        }
    }

    /// Before an open of the current file is reclaimed: before the restart its client may have lost locks there.
    pub(super) async fn note_reclaim(&self, compound: &Compound) {
        let (Ok(client), Ok(file)) = (compound.client(), compound.file()) else { return };
        let Some(incarnation) = self.clients.sessions.incarnation(client) else { return };
        if self.written.lock().await.former.contains(&tag(&self.clients.fs.handle_key, &incarnation.owner)) {
            self.clients.states.lock().lost().reclaim_refused(client, file);
        }
    }

    /// A reclaim of state of the current file was refused for good.
    pub(super) async fn note_refused(&self, compound: &Compound, status: NfsStat4) {
        let is_for_good = !matches!(status, NfsStat4::Delay | NfsStat4::Grace | NfsStat4::StaleClientId);
        if let (true, Ok(client), Ok(file)) = (is_for_good, compound.client(), compound.file()) {
            tracing::debug!(client = client.0, %file, status = status.name(), "refused a reclaim");
            self.introduce(client, true).await;
            if status == NfsStat4::NoGrace {
                self.clients.states.lock().lost().reclaims_refused(client, file);
            } else {
                self.clients.states.lock().lost().reclaim_refused(client, file);
            }
            // Layouts that it got meanwhile.
            revocation::expire_recalls(&self.grants).await;
            self.keep_records().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_ops::fixture::TestRecords;

    #[test]
    fn records_of_lost_locks_are_not_taken_for_records_of_clients() {
        let key = HandleKey::new(&[7; 32]);
        let client = ClientRecord { owner: b"host".to_vec(), reclaim_complete: true };
        let tagged = [RECORD_PREFIX, &tag(&key, b"host")].concat();
        let mut records =
            vec![client.clone(), ClientRecord { owner: tagged.clone(), reclaim_complete: false }];
        let taken = LostRecords::take(&mut records);
        assert_eq!(records, [client]);
        assert!(taken.former.contains(&tag(&key, b"host")) && !taken.former.contains(&tag(&key, b"other")));
        assert_eq!(taken.recorded, taken.former);
    }

    #[tokio::test]
    async fn beyond_the_bound_one_record_stands_for_all_clients_that_have_not_come_back() {
        let records = TestRecords::default();
        let record = |number: usize, reclaim_complete| ClientRecord {
            owner: number.to_be_bytes().to_vec(),
            reclaim_complete,
        };
        records.put(&record(0, true)).await.unwrap();
        for number in 1..=MISSED_MAX {
            records.records.lock().push(record(number, false));
        }
        let mut known = records.load().await.unwrap();
        fold_missed(&records, &mut known).await.unwrap();
        assert_eq!(known.len(), MISSED_MAX + 1);
        for last in [MISSED_MAX + 1, 2 * MISSED_MAX + 1] {
            records.records.lock().extend((last..last + MISSED_MAX).map(|number| record(number, false)));
            let mut known = records.load().await.unwrap();
            fold_missed(&records, &mut known).await.unwrap();
            assert_eq!(
                known,
                [record(0, true), ClientRecord { owner: MISSED.to_vec(), reclaim_complete: false }]
            );
            assert_eq!(records.load().await.unwrap(), known);
        }
    }
}
