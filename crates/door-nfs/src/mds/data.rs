//! The operations of NFSv4.2 on the data of one file: SEEK, READ_PLUS, ALLOCATE, DEALLOCATE, IO_ADVISE (RFC 7862 §15).
//!
//! Stateids are judged as those of READ and WRITE. The size in the namespace is the truth: behind the end of a shorter
//! replica there is a hole, and what a longer one has behind the size is not there. ALLOCATE and DEALLOCATE have no
//! COMMIT, so they are on disk when they are answered.

use std::sync::Arc;

use api::{Advice, Content, OpenReplica, Stability, TicketMode, Written};
use files::FileChangeGuard;
use nfs4::{
    Allocate4Args, Bitmap4, DataContent4, Deallocate4Args, IO_ADVISE4_DONTNEED, IO_ADVISE4_WILLNEED,
    IO_ADVISE4_WILLNEED_OPPORTUNISTIC, IoAdvise4Args, IoAdvise4ResOk, NfsStat4, ReadPlus4Args,
    ReadPlus4ResOk, ReadPlusContent, Seek4Args, Seek4ResOk, StateId4,
};
use types::{Access, Attributes, ByteRange, FileId, Identity};
use xdr::Opaque;

use super::clients::Clients;
use super::file_system::FileSystem;
use super::io;
use crate::context::Compound;
use crate::limits::IO_BYTES_MAX;
use crate::status;

/// Segments of one READ_PLUS; the client asks for the rest.
const SEGMENTS_MAX: usize = 64;
/// Operation number, status, eof and count; then kind, offset, length and padding of each segment.
const READ_PLUS_OVERHEAD_BYTES: usize = 16 + SEGMENTS_MAX * 20;

/// As for READ and WRITE, but a file that is not regular is WRONG_TYPE (RFC 7862 §15.1.3, §15.2.3 and others).
pub(super) async fn authorize(
    compound: &Compound,
    clients: &Clients,
    who: &Identity,
    (file, stateid): (FileId, StateId4),
    access: Access,
) -> Result<(Attributes, Option<FileChangeGuard>), NfsStat4> {
    io::authorize_file(compound, clients, who, (file, stateid), access).await.map_err(wrong_type)
}

fn wrong_type(status: NfsStat4) -> NfsStat4 {
    match status {
        NfsStat4::IsDir | NfsStat4::SymLink => NfsStat4::WrongType,
        status => status,
    }
}

async fn authorize_current(
    compound: &Compound,
    clients: &Clients,
    stateid: StateId4,
    access: Access,
) -> Result<(Attributes, Option<FileChangeGuard>), NfsStat4> {
    io::authorize(compound, clients, stateid, access).await.map_err(wrong_type)
}

/// Of a file that is not empty.
async fn open(fs: &FileSystem, file: &Attributes) -> Result<Arc<dyn OpenReplica>, NfsStat4> {
    fs.files.open_with_data(file).await.map_err(status::of_files)
}

/// Where `content` next begins; the size where it does not. A pool that cannot tell has data only.
async fn find(replica: &dyn OpenReplica, offset: u64, content: Content, size: u64) -> Result<u64, NfsStat4> {
    let found = match (replica.ranges(), content) {
        (Some(ranges), _) => ranges.seek(offset, content).await.map_err(status::of_pool)?,
        (None, Content::Data) => Some(offset),
        (None, Content::Hole) => None,
    };
    Ok(found.unwrap_or(size).min(size))
}

pub(super) async fn seek(
    compound: &Compound,
    clients: &Clients,
    args: &Seek4Args,
) -> Result<Seek4ResOk, NfsStat4> {
    let (file, _) = authorize_current(compound, clients, args.stateid, Access::READ).await?;
    if args.offset >= file.size {
        return Err(NfsStat4::NxIo);
    }
    let replica = open(&clients.fs, &file).await?;
    let content = match args.what {
        DataContent4::Data => Content::Data,
        DataContent4::Hole => Content::Hole,
    };
    let offset = find(&*replica, args.offset, content, file.size).await?;
    // Every file has a hole at its end (RFC 7862 §15.11.3).
    Ok(Seek4ResOk { eof: offset == file.size, offset })
}

pub(super) async fn read_plus(
    compound: &Compound,
    clients: &Clients,
    args: &ReadPlus4Args,
) -> Result<ReadPlus4ResOk, NfsStat4> {
    let (file, _) = authorize_current(compound, clients, args.stateid, Access::READ).await?;
    let room = compound.reply_room.saturating_sub(READ_PLUS_OVERHEAD_BYTES);
    let count = u64::from(args.count.min(IO_BYTES_MAX)).min(room as u64);
    let end = args.offset.saturating_add(count).min(file.size);
    let mut at = args.offset;
    let mut contents = Vec::new();
    if at >= end {
        return Ok(ReadPlus4ResOk { eof: at >= file.size, contents });
    }
    let replica = open(&clients.fs, &file).await?;
    while at < end && contents.len() < SEGMENTS_MAX {
        let data_at = find(&*replica, at, Content::Data, end).await?;
        if data_at > at {
            contents.push(ReadPlusContent::Hole { offset: at, length: data_at - at });
            at = data_at;
            continue;
        }
        let hole_at = find(&*replica, at, Content::Hole, end).await?.max(at + 1);
        // At most IO_BYTES_MAX, so it fits.
        let data = replica.read_at(at, (hole_at - at) as u32).await.map_err(status::of_pool)?.data;
        if data.is_empty() {
            // The replica has become shorter since it was asked.
            contents.push(ReadPlusContent::Hole { offset: at, length: end - at });
            at = end;
            continue;
        }
        let length = data.len() as u64;
        contents.push(ReadPlusContent::Data { offset: at, data: Opaque(data) });
        at += length;
    }
    Ok(ReadPlus4ResOk { eof: at >= file.size, contents })
}

pub(super) async fn allocate(
    compound: &Compound,
    clients: &Clients,
    args: &Allocate4Args,
) -> Result<(), NfsStat4> {
    let (file, _changing) = authorize_current(compound, clients, args.stateid, Access::WRITE).await?;
    let range = range(args.offset, args.length)?.ok_or(NfsStat4::FBig)?;
    if i64::try_from(range.end()).is_err() {
        return Err(NfsStat4::FBig);
    }
    if range.end() > file.size {
        let grown = clients.fs.files.require_room(&compound.identity, file.file, range.end() - file.size, 0);
        grown.await.map_err(status::of_files)?;
    }
    let replica = clients.fs.files.open_for_writing(&file).await.map_err(status::of_files)?;
    let ranges = replica.ranges().ok_or(NfsStat4::NotSupp)?;
    clients.fs.files.before_write(file.file).await.map_err(status::of_files)?;
    let _steady = clients.fs.files.steady(file.file).await;
    ranges.allocate(range).await.map_err(status::of_pool)?;
    settle(&clients.fs, &file, &*replica, range.end()).await
}

pub(super) async fn deallocate(
    compound: &Compound,
    clients: &Clients,
    args: &Deallocate4Args,
) -> Result<(), NfsStat4> {
    let (file, _changing) = authorize_current(compound, clients, args.stateid, Access::WRITE).await?;
    let range = range(args.offset, args.length)?.ok_or(NfsStat4::Inval)?;
    let opened =
        clients.fs.files.open_replica(&file, TicketMode::ReadWrite).await.map_err(status::of_files)?;
    // Where nothing was ever written, nothing is to be freed.
    let Some(replica) = opened else { return Ok(()) };
    let ranges = replica.ranges().ok_or(NfsStat4::NotSupp)?;
    clients.fs.files.before_write(file.file).await.map_err(status::of_files)?;
    let _steady = clients.fs.files.steady(file.file).await;
    ranges.deallocate(range).await.map_err(status::of_pool)?;
    // Written, but not longer for it.
    settle(&clients.fs, &file, &*replica, 0).await
}

/// `None`: it passes the largest offset.
fn range(offset: u64, length: u64) -> Result<Option<ByteRange>, NfsStat4> {
    if length == 0 {
        return Err(NfsStat4::Inval);
    }
    Ok(offset.checked_add(length).and_then(|end| ByteRange::from_bounds(offset, end)))
}

/// Brings a change to the disk and makes it visible, in this order: the bytes are there before the size says so. The
/// caller keeps the length steady from before the change.
pub(super) async fn settle(
    fs: &FileSystem,
    file: &Attributes,
    replica: &dyn OpenReplica,
    size_at_least: u64,
) -> Result<(), NfsStat4> {
    replica.sync().await.map_err(status::of_pool)?;
    let facts = fs.files.replica_facts(file).await.map_err(status::of_files)?;
    let written = Written {
        size_at_least: Some(size_at_least),
        mtime: None,
        space_used: facts.map(|facts| facts.space_used),
        stability: Stability::FileSync,
    };
    fs.namespace.record_write(file.file, &written).await.map(drop).map_err(status::of_namespace)
}

/// Hints that say something of a range are passed on. Those that set how a file is read ahead (SEQUENTIAL, RANDOM and
/// others) would do so for every client, and are not taken.
pub(super) async fn advise(
    compound: &Compound,
    clients: &Clients,
    args: &IoAdvise4Args,
) -> Result<IoAdvise4ResOk, NfsStat4> {
    let (file, _) = match authorize_current(compound, clients, args.stateid, Access::READ).await {
        // IO_ADVISE has no OPENMODE (RFC 7862 §15.5): a stateid to write suffices, too.
        Err(NfsStat4::OpenMode) => authorize_current(compound, clients, args.stateid, Access::WRITE).await?,
        judged => judged?,
    };
    // RFC 7862 §15.5.3: no count stands for up to the end.
    let length = if args.count == 0 { u64::MAX } else { args.count };
    let end = args.offset.saturating_add(length);
    let Some(range) = ByteRange::from_bounds(args.offset, end) else {
        return Ok(IoAdvise4ResOk { hints: Bitmap4::EMPTY });
    };
    let replica = clients.fs.files.open_replica(&file, TicketMode::Read).await.map_err(status::of_files)?;
    let mut taken = Bitmap4::EMPTY;
    let Some(ranges) = replica.as_deref().and_then(OpenReplica::ranges) else {
        return Ok(IoAdvise4ResOk { hints: taken });
    };
    for (hint, advice) in [
        (IO_ADVISE4_WILLNEED, Advice::WillNeed),
        (IO_ADVISE4_WILLNEED_OPPORTUNISTIC, Advice::WillNeed),
        (IO_ADVISE4_DONTNEED, Advice::DontNeed),
    ] {
        // A hint that comes to nothing is no error.
        if args.hints.contains(hint) && ranges.advise(range, advice).await.is_ok() {
            taken.insert(hint);
        }
    }
    Ok(IoAdvise4ResOk { hints: taken })
}
