//! Whether a stateid allows an I/O.

use files::{FileChangeGuard, Share, Want};
use nfs4::{NfsStat4, StateId4};
use nfs4_state::stateid::Modes;
use types::{Access, FileId};

use super::change::make_way;
use super::clients::Clients;
use super::courtesy;
use crate::context::Compound;

/// `access` is READ or WRITE; CURRENT must have been resolved. Without an open, others' delegations are recalled first;
/// the answered [`FileChangeGuard`] keeps new ones away until it is dropped, after the bytes are written.
pub(super) async fn check_io(
    compound: &Compound,
    clients: &Clients,
    stateid: StateId4,
    file: FileId,
    access: Access,
) -> Result<Option<FileChangeGuard>, NfsStat4> {
    // Without an open the I/O might meet a denial that is still to be reclaimed (RFC 8881 §8.4.2.1).
    if stateid == StateId4::ANONYMOUS && clients.sessions.reclaims.in_grace() {
        return Err(NfsStat4::Grace);
    }
    let modes = if access.contains(Access::WRITE) { Modes::WRITE } else { Modes::READ };
    let client = compound.client()?;
    let changing = if stateid.is_special() {
        Some(make_way(compound, &clients.fs, file, modes, Modes::NONE).await?)
    } else {
        None
    };
    let mut judged = clients.states.lock().check_io(client, file, stateid, modes);
    let want = Want::Share(Share::new(modes, Modes::NONE));
    if judged == Err(NfsStat4::Locked) && courtesy::dislodge(&clients.fs, file, want).await? {
        judged = clients.states.lock().check_io(client, file, stateid, modes);
    }
    judged.map(|()| changing)
}
