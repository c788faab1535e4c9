//! SECINFO and SECINFO_NO_NAME: the flavors of the configuration, for every file. Both consume the current file handle (RFC 8881 §18.29.3).

use nfs4::{NfsStat4, SecInfo4Args, SecInfo4ResOk, SecInfoNoName4Args, SecInfoStyle4};

use super::{Head, directory, name};
use crate::context::Compound;
use crate::status;

pub(super) async fn by_name(
    compound: &mut Compound<'_>,
    head: &Head,
    args: &SecInfo4Args,
) -> Result<SecInfo4ResOk, NfsStat4> {
    let dir = directory::plain_directory(head, compound.file()?).await?;
    let name = name(&args.name)?;
    head.namespace.lookup(&compound.identity, dir, &name).await.map_err(status::of_namespace)?;
    Ok(consume(compound, head))
}

pub(super) async fn no_name(
    compound: &mut Compound<'_>,
    head: &Head,
    args: &SecInfoNoName4Args,
) -> Result<SecInfo4ResOk, NfsStat4> {
    let file = compound.file()?;
    if args.style == SecInfoStyle4::Parent {
        let dir = directory::plain_directory(head, file).await?;
        head.namespace.parent(&compound.climber(), dir).await.map_err(status::of_namespace)?;
    }
    Ok(consume(compound, head))
}

pub(super) fn consume(compound: &mut Compound<'_>, head: &Head) -> SecInfo4ResOk {
    compound.current = None;
    compound.current_stateid = None;
    SecInfo4ResOk { flavors: head.security.infos() }
}
