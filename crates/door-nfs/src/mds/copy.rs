//! COPY and CLONE: data from the saved file to the current one, without passing the client (RFC 7862 §4, §15.2, §15.13).
//!
//! A COPY is answered soon: with all of it, or, where the client would rather wait for a callback, with a stateid under
//! which it is carried on (`offload`), or else with what there is, and the client asks for the rest, as it must be able to.
//! It is UNSTABLE, and COMMIT covers it; a CLONE has no COMMIT and is on disk when it is answered.
//!
//! Absent: copies between servers (COPY_NOTIFY), for which another server would have to be let in with this client's
//! rights.

mod offload;

use std::sync::Arc;
use std::time::Duration;

use api::{PoolError, Stretch};
use files::{ContentMode, FileChangeGuard, Files, FilesError};
use nfs4::{
    Clone4Args, Copy4Args, Copy4ResOk, CopyRequirements4, NfsStat4, StableHow4, StateId4, Verifier4,
    WriteResponse4,
};
use types::{Access, Attributes, ByteRange};

use super::clients::Clients;
use super::data;
use crate::context::Compound;
use crate::status;

pub(crate) use offload::{Copies, Offloads};
pub(super) use offload::{cancel, progress};

/// After this long a COPY that is not carried on answers with what is done.
const COPY_TIME_MAX: Duration = Duration::from_millis(500);

/// Arguments that both operations have.
struct Request {
    source_stateid: StateId4,
    target_stateid: StateId4,
    from: u64,
    to: u64,
    /// 0: up to the end of the source.
    count: u64,
}

/// A request that may be done.
struct Judged {
    source: Attributes,
    target: Attributes,
    stretch: Stretch,
    /// Keeps delegations of the target away until the bytes are there.
    changing: Option<Arc<FileChangeGuard>>,
}

/// The bytes copied in one go.
#[derive(Clone, Copy, Debug)]
struct Copied {
    count: u64,
    /// As it was before the first byte: COMMIT detects bytes lost since.
    verifier: Verifier4,
}

pub(super) async fn copy(
    compound: &Compound,
    copies: &Copies,
    args: &Copy4Args,
) -> Result<Copy4ResOk, NfsStat4> {
    let clients = &*copies.clients;
    let Clients { fs, sessions, .. } = clients;
    if !args.source_server.is_empty() {
        // The client falls back to reading and writing, and goes on asking for copies within this server.
        return Err(NfsStat4::OffloadDenied);
    }
    let request = Request {
        source_stateid: args.src_stateid,
        target_stateid: args.dst_stateid,
        from: args.src_offset,
        to: args.dst_offset,
        count: args.count,
    };
    let judged = judge(compound, clients, &request).await?;
    let client = compound.client()?;
    // Without a way to tell that it is done, or room for one more, it is answered with what there is.
    let may_go_on = !args.synchronous && sessions.callbacks.is_reachable(client);
    let offload = may_go_on.then(|| copies.offloads.begin(client, judged.target.file)).flatten();
    let patience = if offload.is_some() { copies.answer_within } else { COPY_TIME_MAX };
    let deadline = fs.clock.monotonic() + patience;
    let ends = (&judged.source, &judged.target);
    let is_over = |_| fs.clock.monotonic() >= deadline;
    let moved = copy_stretch(&fs.files, ends, judged.changing.as_ref(), judged.stretch, is_over).await?;
    let mut response = WriteResponse4 {
        callback_id: None,
        count: moved.count,
        committed: StableHow4::Unstable,
        writeverf: moved.verifier,
    };
    if let Some(offload) = offload.filter(|_| moved.count < judged.stretch.length) {
        response.callback_id = offload::carry_on(compound, clients, judged, offload, moved).await;
    }
    let synchronous = response.callback_id.is_none();
    Ok(Copy4ResOk { response, requirements: CopyRequirements4 { consecutive: true, synchronous } })
}

pub(super) async fn clone(compound: &Compound, clients: &Clients, args: &Clone4Args) -> Result<(), NfsStat4> {
    let fs = &*clients.fs;
    let request = Request {
        source_stateid: args.src_stateid,
        target_stateid: args.dst_stateid,
        from: args.src_offset,
        to: args.dst_offset,
        count: args.count,
    };
    // Linux asks no more where it is told so once.
    if fs.files.pools().clone_granularity_max() == 0 {
        return Err(NfsStat4::NotSupp);
    }
    let judged = judge(compound, clients, &request).await?;
    if judged.stretch.length == 0 {
        return Ok(());
    }
    let source = fs.content(&judged.source, ContentMode::Read).await?;
    let target = fs.content(&judged.target, ContentMode::Write).await?.keeping(judged.changing);
    let block = u64::from(target.shared_block(&source).ok_or(NfsStat4::XDev)?);
    let Stretch { from, to, length } = judged.stretch;
    let is_whole = length.is_multiple_of(block) || from + length == judged.source.size;
    if !from.is_multiple_of(block) || !to.is_multiple_of(block) || !is_whole {
        return Err(NfsStat4::Inval);
    }
    match target.share_from(&source, judged.stretch).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(NfsStat4::Inval),
        // Without a replica there are no blocks to share.
        Err(FilesError::Pool(PoolError::NoReplica(_))) => Err(NfsStat4::XDev),
        Err(error) => Err(status::of_files(error)),
    }
}

/// Copies the beginning of the stretch, until `is_over` says so of the bytes that are done.
async fn copy_stretch(
    files: &Arc<Files>,
    (source, target): (&Attributes, &Attributes),
    changing: Option<&Arc<FileChangeGuard>>,
    stretch: Stretch,
    is_over: impl Fn(u64) -> bool,
) -> Result<Copied, NfsStat4> {
    let moved = async {
        let target = files.content(target, ContentMode::Write).await?.keeping(changing.cloned());
        let verifier = Verifier4(target.verifier()?.0);
        if stretch.length == 0 {
            return Ok(Copied { count: 0, verifier });
        }
        let source = files.content(source, ContentMode::Read).await?;
        let count = files.copy(&source, &target, stretch, is_over).await?;
        Ok(Copied { count, verifier })
    };
    moved.await.map_err(status::of_files)
}

async fn judge(compound: &Compound, clients: &Clients, request: &Request) -> Result<Judged, NfsStat4> {
    let source_stateid = compound.resolve_saved(request.source_stateid)?;
    let target_stateid = compound.resolve(request.target_stateid)?;
    let (source, target) = (compound.saved_file()?, compound.file()?);
    // Each file is judged for the caller's identity in its own export.
    let reader = compound.caller.view.identity(compound.saved.place, &compound.caller.claimed);
    let (source, _) =
        data::authorize(compound, clients, &reader, (source, source_stateid), Access::READ).await?;
    let writer = &compound.identity;
    let (target, changing) =
        data::authorize(compound, clients, writer, (target, target_stateid), Access::WRITE).await?;
    let left = source.size.checked_sub(request.from).ok_or(NfsStat4::Inval)?;
    let length = if request.count == 0 { left } else { request.count };
    if length > left {
        return Err(NfsStat4::Inval);
    }
    let end = request.to.checked_add(length).filter(|end| i64::try_from(*end).is_ok());
    let end = end.ok_or(NfsStat4::FBig)?;
    let stretch = Stretch { from: request.from, to: request.to, length };
    if source.file == target.file
        && let Some(read) = ByteRange::from_bounds(stretch.from, stretch.from + length)
        && ByteRange::from_bounds(stretch.to, end).is_some_and(|written| written.overlaps(read))
    {
        return Err(NfsStat4::Inval);
    }
    if end > target.size {
        let grown = clients.fs.files.require_room(&compound.identity, target.file, end - target.size, 0);
        grown.await.map_err(status::of_files)?;
    }
    Ok(Judged { source, target, stretch, changing: changing.map(Arc::new) })
}
