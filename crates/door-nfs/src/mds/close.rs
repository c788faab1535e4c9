//! OPEN_DOWNGRADE and CLOSE.

use nfs4::{
    Close4Args, Close4ResOk, NfsStat4, OPEN4_SHARE_ACCESS_WANT_DELEG_MASK, OpenDowngrade4Args,
    OpenDowngrade4ResOk, StateId4,
};

use super::clients::Clients;
use super::grants::Grants;
use super::lock_notice;
use crate::context::Compound;

pub(super) fn downgrade(
    compound: &mut Compound,
    clients: &Clients,
    args: &OpenDowngrade4Args,
) -> Result<OpenDowngrade4ResOk, NfsStat4> {
    let (client, file) = (compound.client()?, compound.file()?);
    let stateid = compound.resolve(args.open_stateid)?;
    // Wants of delegations may ride along, and mean nothing here.
    let access = args.share_access & !OPEN4_SHARE_ACCESS_WANT_DELEG_MASK;
    let open_stateid =
        clients.states.lock().opens().downgrade(client, file, stateid, access, args.share_deny)?;
    compound.current.stateid = Some(open_stateid);
    Ok(OpenDowngrade4ResOk { open_stateid })
}

pub(super) async fn close(
    compound: &mut Compound,
    grants: &Grants,
    args: &Close4Args,
) -> Result<Close4ResOk, NfsStat4> {
    let clients = &*grants.clients;
    let (client, file) = (compound.client()?, compound.file()?);
    let stateid = compound.resolve(args.open_stateid)?;
    // With the last open the file's layouts go.
    grants.fencing.before_return(client, file).await;
    clients.states.lock().opens().close(client, file, stateid)?;
    // Layouts went with it: requests may wait for that.
    clients.fs.files.returned();
    lock_notice::tell_waiters(clients);
    // RFC 8881 §18.2.4: no state is left; a stateid that is always refused says so.
    compound.current.stateid = Some(StateId4::INVALID);
    Ok(Close4ResOk { open_stateid: StateId4::INVALID })
}
