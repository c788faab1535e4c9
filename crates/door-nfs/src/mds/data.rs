//! The operations of NFSv4.2 on the data of one file: SEEK, READ_PLUS, ALLOCATE, DEALLOCATE, IO_ADVISE (RFC 7862 §15).
//!
//! Stateids are judged as those of READ and WRITE. ALLOCATE and DEALLOCATE have no COMMIT, so they are on disk when they
//! are answered.

use std::sync::Arc;

use api::{Advice, RangeKind};
use files::{ContentMode, FileChangeGuard, Segment};
use nfs4::{
    Allocate4Args, Bitmap4, DataContent4, Deallocate4Args, IO_ADVISE4_DONTNEED, IO_ADVISE4_WILLNEED,
    IO_ADVISE4_WILLNEED_OPPORTUNISTIC, IoAdvise4Args, IoAdvise4ResOk, NfsStat4, ReadPlus4Args,
    ReadPlus4ResOk, ReadPlusContent, Seek4Args, Seek4ResOk, StateId4,
};
use types::{Access, Attributes, ByteRange, FileId, Identity};
use xdr::Opaque;

use super::clients::Clients;
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

pub(super) async fn seek(
    compound: &Compound,
    clients: &Clients,
    args: &Seek4Args,
) -> Result<Seek4ResOk, NfsStat4> {
    let (file, _) = authorize_current(compound, clients, args.stateid, Access::READ).await?;
    if args.offset >= file.size {
        return Err(NfsStat4::NxIo);
    }
    let content = clients.fs.content(&file, ContentMode::Read).await?;
    let kind = match args.what {
        DataContent4::Data => RangeKind::Data,
        DataContent4::Hole => RangeKind::Hole,
    };
    let offset = content.seek(args.offset, kind).await.map_err(status::of_files)?;
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
    let count = args.count.min(IO_BYTES_MAX).min(u32::try_from(room).unwrap_or(u32::MAX));
    if count == 0 || args.offset >= file.size {
        return Ok(ReadPlus4ResOk { eof: args.offset >= file.size, contents: Vec::new() });
    }
    let content = clients.fs.content(&file, ContentMode::Read).await?;
    let read = content.read_segments(args.offset, count, SEGMENTS_MAX).await.map_err(status::of_files)?;
    let contents = read.segments.into_iter().map(|segment| match segment {
        Segment::Hole { offset, length } => ReadPlusContent::Hole { offset, length },
        Segment::Data { offset, data } => ReadPlusContent::Data { offset, data: Opaque(data) },
    });
    Ok(ReadPlus4ResOk { eof: read.end_of_file, contents: contents.collect() })
}

pub(super) async fn allocate(
    compound: &Compound,
    clients: &Clients,
    args: &Allocate4Args,
) -> Result<(), NfsStat4> {
    let (file, changing) = authorize_current(compound, clients, args.stateid, Access::WRITE).await?;
    let range = range(args.offset, args.length)?.ok_or(NfsStat4::FBig)?;
    if i64::try_from(range.end()).is_err() {
        return Err(NfsStat4::FBig);
    }
    let content = clients.fs.content(&file, ContentMode::Write).await?.keeping(changing.map(Arc::new));
    content.allocate(&compound.identity, range).await.map_err(status::of_files)
}

pub(super) async fn deallocate(
    compound: &Compound,
    clients: &Clients,
    args: &Deallocate4Args,
) -> Result<(), NfsStat4> {
    let (file, changing) = authorize_current(compound, clients, args.stateid, Access::WRITE).await?;
    let range = range(args.offset, args.length)?.ok_or(NfsStat4::Inval)?;
    let content = clients.fs.content(&file, ContentMode::Change).await?.keeping(changing.map(Arc::new));
    content.deallocate(range).await.map_err(status::of_files)
}

/// `None`: it passes the largest offset.
fn range(offset: u64, length: u64) -> Result<Option<ByteRange>, NfsStat4> {
    if length == 0 {
        return Err(NfsStat4::Inval);
    }
    Ok(offset.checked_add(length).and_then(|end| ByteRange::from_bounds(offset, end)))
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
    let content = clients.fs.content(&file, ContentMode::Read).await?;
    let mut taken = Bitmap4::EMPTY;
    for (hint, advice) in [
        (IO_ADVISE4_WILLNEED, Advice::WillNeed),
        (IO_ADVISE4_WILLNEED_OPPORTUNISTIC, Advice::WillNeed),
        (IO_ADVISE4_DONTNEED, Advice::DontNeed),
    ] {
        if args.hints.contains(hint) && content.advise(range, advice).await {
            taken.insert(hint);
        }
    }
    Ok(IoAdvise4ResOk { hints: taken })
}
