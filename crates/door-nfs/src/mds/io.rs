//! READ, WRITE and COMMIT through the head, for clients without pNFS and for those that cannot reach a pool.

use api::ReadData;
use bytes::Bytes;
use files::{ContentMode, FileChangeGuard};
use nfs4::{
    Commit4Args, Commit4ResOk, NfsStat4, Read4Args, Read4ResOk, StateId4, Verifier4, Write4Args, Write4ResOk,
};
use types::{Access, Attributes, FileId, FileKind, Identity};
use xdr::Opaque;

use super::clients::Clients;
use super::permit::check_io;
use crate::context::Compound;
use crate::limits::IO_BYTES_MAX;
use crate::stability::stability;
use crate::status;

/// Operation number, status, eof, length and padding around the bytes of a READ.
const READ_OVERHEAD_BYTES: usize = 24;

pub(super) async fn read(
    compound: &Compound,
    clients: &Clients,
    args: &Read4Args,
) -> Result<Read4ResOk, NfsStat4> {
    let (file, _) = authorize(compound, clients, args.stateid, Access::READ).await?;
    let room = compound.reply_room.saturating_sub(READ_OVERHEAD_BYTES);
    let count = args.count.min(IO_BYTES_MAX).min(u32::try_from(room).unwrap_or(u32::MAX));
    if args.offset >= file.size {
        return Ok(Read4ResOk { eof: true, data: Opaque(Bytes::new()) });
    }
    if count == 0 {
        return Ok(Read4ResOk { eof: false, data: Opaque(Bytes::new()) });
    }
    let content = clients.fs.content(&file, ContentMode::Read).await?;
    let ReadData { data, end_of_file } = content.read(args.offset, count).await.map_err(status::of_files)?;
    Ok(Read4ResOk { eof: end_of_file, data: Opaque(data) })
}

pub(super) async fn write(
    compound: &Compound,
    clients: &Clients,
    args: Write4Args,
) -> Result<Write4ResOk, NfsStat4> {
    let (file, changing) = authorize(compound, clients, args.stateid, Access::WRITE).await?;
    let count = u32::try_from(args.data.len()).map_err(|_| NfsStat4::Inval)?;
    compound.caller.has_written(&args.data.0, args.offset);
    let data = (args.offset, args.data.0);
    let (who, stability) = (&compound.identity, stability(args.stable));
    let written = clients.fs.files.write(who, &file, data, stability, changing).await;
    let writeverf = Verifier4(written.map_err(status::of_files)?.0);
    Ok(Write4ResOk { count, committed: args.stable, writeverf })
}

pub(super) async fn commit(
    compound: &Compound,
    clients: &Clients,
    args: &Commit4Args,
) -> Result<Commit4ResOk, NfsStat4> {
    if args.offset.checked_add(args.count.into()).is_none() {
        return Err(NfsStat4::Inval);
    }
    let file = clients.fs.attributes(compound.file()?).await?;
    regular(&file)?;
    let content = clients.fs.content(&file, ContentMode::Write).await?;
    let synced = content.sync().await.map_err(status::of_files)?;
    Ok(Commit4ResOk { writeverf: Verifier4(synced.0) })
}

/// The open behind the stateid says what may be done; without one (special stateids) the mode bits do.
pub(super) async fn authorize(
    compound: &Compound,
    clients: &Clients,
    stateid: StateId4,
    access: Access,
) -> Result<(Attributes, Option<FileChangeGuard>), NfsStat4> {
    let (file, stateid) = (compound.file()?, compound.resolve(stateid)?);
    authorize_file(compound, clients, &compound.identity, (file, stateid), access).await
}

/// As [`authorize`], of any file, for the caller's identity in its export. CURRENT must have been resolved. The
/// [`FileChangeGuard`] goes with the bytes until they are written: it keeps delegations away from writes without an open.
pub(super) async fn authorize_file(
    compound: &Compound,
    clients: &Clients,
    who: &Identity,
    (file, stateid): (FileId, StateId4),
    access: Access,
) -> Result<(Attributes, Option<FileChangeGuard>), NfsStat4> {
    let found = clients.fs.attributes(file).await?;
    regular(&found)?;
    if stateid.is_special() && !clients.fs.allows(who, &found, access).await? {
        return Err(NfsStat4::Access);
    }
    let changing = check_io(compound, clients, stateid, file, access).await?;
    Ok((clients.fs.files.freshen(found).await.map_err(status::of_files)?, changing))
}

fn regular(file: &Attributes) -> Result<(), NfsStat4> {
    match file.kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(NfsStat4::IsDir),
        FileKind::Symlink => Err(NfsStat4::SymLink),
        _ => Err(NfsStat4::WrongType),
    }
}
