//! READ, WRITE and COMMIT through the head, for clients without pNFS and for those that cannot reach a pool.
//!
//! The size in the namespace is the truth; a replica may be longer (see `files`).

use api::{ReadData, Stability, WriteThrough, Written};
use bytes::{Bytes, BytesMut};
use files::FileChangeGuard;
use nfs4::{
    Commit4Args, Commit4ResOk, NfsStat4, Read4Args, Read4ResOk, StateId4, Verifier4, Write4Args, Write4ResOk,
};
use types::{Access, Attributes, FileId, FileKind, Identity};
use xdr::Opaque;

use super::clients::Clients;
use super::permit::check_io;
use crate::context::Compound;
use crate::limits::IO_BYTES_MAX;
use crate::stability::{stability, stable_how, verifier};
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
    let count = u64::from(args.count.min(IO_BYTES_MAX)).min(room as u64);
    let left = file.size.saturating_sub(args.offset);
    let length = count.min(left);
    let data = if length == 0 {
        Bytes::new()
    } else {
        let replica = clients.fs.files.open_with_data(&file).await.map_err(status::of_files)?;
        let read = replica.read_at(args.offset, length as u32).await.map_err(status::of_pool)?;
        fill(read, length as usize)
    };
    Ok(Read4ResOk { eof: args.offset.saturating_add(data.len() as u64) >= file.size, data: Opaque(data) })
}

/// Behind the end of the replica the file reads as zeros.
fn fill(read: ReadData, length: usize) -> Bytes {
    if !read.end_of_file || read.data.len() >= length {
        return read.data;
    }
    let mut filled = BytesMut::with_capacity(length);
    filled.extend_from_slice(&read.data);
    filled.resize(length, 0);
    filled.freeze()
}

pub(super) async fn write(
    compound: &Compound,
    clients: &Clients,
    args: Write4Args,
) -> Result<Write4ResOk, NfsStat4> {
    let (file, _changing) = authorize(compound, clients, args.stateid, Access::WRITE).await?;
    let count = u32::try_from(args.data.len()).map_err(|_| NfsStat4::Inval)?;
    let end = args
        .offset
        .checked_add(count.into())
        .filter(|end| i64::try_from(*end).is_ok())
        .ok_or(NfsStat4::FBig)?;
    if end > file.size {
        let grown = clients.fs.files.require_room(&compound.identity, file.file, end - file.size, 0);
        grown.await.map_err(status::of_files)?;
    }
    let replaces_all = args.offset == 0 && end >= file.size;
    let replica = match replaces_all {
        // Also what a client sends again after a power cut, of whose first bytes only the size has reached the disk.
        true => clients.fs.files.open_for_replacing(&file).await,
        false => clients.fs.files.open_for_writing(&file).await,
    };
    let replica = replica.map_err(status::of_files)?;
    let wanted = stability(args.stable);
    if count == 0 {
        return Ok(Write4ResOk { count, committed: args.stable, writeverf: verifier(&*replica) });
    }
    clients.fs.files.before_write(file.file).await.map_err(status::of_files)?;
    let _steady = clients.fs.files.steady(file.file).await;
    // The bytes are there before the size says so.
    let written = Written { size_at_least: Some(end), mtime: None, space_used: None, stability: wanted };
    let noted = clients.fs.namespace.record_write(file.file, &written);
    if wanted == Stability::Unstable {
        replica.write_at(args.offset, args.data.0, wanted).await.map_err(status::of_pool)?;
        noted.await.map_err(status::of_namespace)?;
    } else {
        // Both go to the disk at once.
        let WriteThrough { written, synced } = replica.write_through(args.offset, args.data.0);
        written.await.map_err(status::of_pool)?;
        let (synced, noted) = tokio::join!(synced, noted);
        synced.map_err(status::of_pool)?;
        noted.map_err(status::of_namespace)?;
    }
    Ok(Write4ResOk { count, committed: stable_how(wanted), writeverf: verifier(&*replica) })
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
    let replica = clients.fs.files.open_for_writing(&file).await.map_err(status::of_files)?;
    let synced = replica.sync().await.map_err(status::of_pool)?;
    let _steady = clients.fs.files.steady(file.file).await;
    let facts = clients.fs.files.replica_facts(&file).await.map_err(status::of_files)?;
    let written = Written {
        size_at_least: None,
        mtime: None,
        space_used: facts.map(|facts| facts.space_used),
        stability: Stability::FileSync,
    };
    clients.fs.namespace.record_write(file.file, &written).await.map_err(status::of_namespace)?;
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

/// As [`authorize`], of any file, for the caller's identity in its export. CURRENT must have been resolved. The caller
/// holds the [`FileChangeGuard`] until its bytes are written: it keeps delegations away from writes without an open.
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
