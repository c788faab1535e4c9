//! Times that a client keeps under a delegation and sets by its stateid (RFC 9754 §5).
//!
//! The delegation is the right to set them: its holder need not own the file. They are the times of what it did itself,
//! between the delegation and now; what it has written meanwhile has moved the file's own times to later ones.

use api::{SetAttributes, SetTime};
use nfs4::{NfsStat4, NfsTime4, StateId4};
use nfs4_state::stateid::{DelegatedTimes, DelegationKind};
use types::{Identity, Timestamp};

use super::clients::Clients;
use crate::context::Compound;
use crate::status;

/// As they came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    pub accessed: Option<Timestamp>,
    pub modified: Option<Timestamp>,
}

impl Given {
    pub fn parse(accessed: Option<NfsTime4>, modified: Option<NfsTime4>) -> Result<Given, NfsStat4> {
        let time = |given: NfsTime4| Timestamp::new(given.seconds, given.nseconds).ok_or(NfsStat4::Inval);
        Ok(Given { accessed: accessed.map(time).transpose()?, modified: modified.map(time).transpose()? })
    }

    pub fn is_empty(&self) -> bool {
        *self == Given::default()
    }
}

pub(super) async fn set(
    compound: &Compound,
    clients: &Clients,
    stateid: StateId4,
    given: Given,
) -> Result<(), NfsStat4> {
    let (client, file) = (compound.client()?, compound.file()?);
    let stateid = compound.resolve(stateid)?;
    let (kind, original) = clients.states.lock().delegations().judge_times(client, file, stateid)?;
    if given.modified.is_some() && kind == DelegationKind::Read {
        return Err(NfsStat4::Inval);
    }
    let now = clients.fs.clock.now();
    let vet = |original, given: Option<Timestamp>| {
        given.and_then(|given| DelegatedTimes::vet(original, given, now)).map(SetTime::To)
    };
    let change = SetAttributes {
        atime: vet(original.accessed, given.accessed),
        mtime: vet(original.modified, given.modified),
        ..SetAttributes::default()
    };
    if change.atime.is_none() && change.mtime.is_none() {
        return Ok(());
    }
    clients
        .fs
        .namespace
        .set_attributes(&Identity::root(), file, &change)
        .await
        .map(drop)
        .map_err(status::of_namespace)
}
