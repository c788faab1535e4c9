//! LAYOUTGET, LAYOUTCOMMIT and LAYOUTRETURN: flex-files layouts (RFC 8435), one for each
//! (client, file), always from the beginning to the end, or as far as quotas let it be written, and returned on close.

use api::TicketMode;
use files::FilesError;
use nfs4::{
    ClientId4, FfLayoutReturn4, LayoutCommit4Args, LayoutCommit4ResOk, LayoutGet4Args, LayoutGet4Res,
    LayoutGet4ResOk, LayoutIomode4, LayoutReturn4, LayoutReturn4Args, LayoutReturn4ResOk, LayoutReturnFile4,
    LayoutType4, NfsStat4, StateId4,
};
use nfs4_state::stateid::{Granted, LayoutMode, LayoutModes, LayoutRequest, Modes};
use types::{Access, Attributes, FileKind, PoolId, Timestamp};
use xdr::to_bytes;

use super::change::make_way;
use super::clients::Clients;
use super::counts::Step;
use super::file_system::FileSystem;
use super::layouts::Layouts;
use super::{io_report, segment, threshold};
use crate::context::Compound;
use crate::exports::ViewPlace;
use crate::status;

pub(super) async fn get(compound: &mut Compound, layouts: &Layouts, args: LayoutGet4Args) -> LayoutGet4Res {
    match try_get(compound, layouts, &args).await {
        Ok(body) => {
            compound.current.stateid = Some(body.stateid);
            LayoutGet4Res::Ok(body)
        }
        Err(status) => nfs4_error(status),
    }
}

/// LAYOUTTRYLATER has a body of its own.
fn nfs4_error(status: NfsStat4) -> LayoutGet4Res {
    match status {
        NfsStat4::LayoutTryLater => LayoutGet4Res::TryLater { will_signal_layout_avail: false },
        status => LayoutGet4Res::Err(status),
    }
}

async fn try_get(
    compound: &Compound,
    layouts: &Layouts,
    args: &LayoutGet4Args,
) -> Result<LayoutGet4ResOk, NfsStat4> {
    let Layouts { clients, grants, drain, .. } = layouts;
    let Clients { fs, sessions, states, .. } = &**clients;
    let client = compound.client()?;
    let mode = judge_arguments(args)?;
    let file = fs.attributes(compound.file()?).await?;
    if file.kind != FileKind::Regular {
        return Err(NfsStat4::LayoutUnavailable);
    }
    let stateid = compound.resolve(args.stateid)?;
    if args.stateid == StateId4::CURRENT && compound.knows_threshold && threshold::is_below(fs.offers, &file)
    {
        // Asked for together with the open and the attribute that says that it needs none.
        return Err(NfsStat4::LayoutUnavailable);
    }
    sessions.reclaims.judge(client, false)?;
    let request = LayoutRequest { client, file: file.file, stateid, mode };
    states.lock().layouts().judge(&request)?;

    let length = writable_length(compound, fs, &file, args).await?;
    let pool = choose_pool(compound, fs, &file, mode).await?;
    let is_made_by_pool = fs.files.is_made_by_pool(&file, pool);
    let layout = segment::of_file(compound, layouts, &file, (pool, is_made_by_pool), (args.iomode, length))
        .ok_or(NfsStat4::LayoutUnavailable)?;
    let body = LayoutGet4ResOk { return_on_close: true, stateid, layout: vec![layout] };
    // Linux allots one page for all of it.
    if to_bytes(&body).len() > args.maxcount as usize {
        return Err(NfsStat4::TooSmall);
    }
    if !is_made_by_pool {
        // So that no ticket that somebody keeps makes the replica of a file that is gone.
        let made = fs.files.make_replica(&file, pool).await;
        made.map_err(|_| NfsStat4::LayoutUnavailable)?;
    }
    if mode == LayoutMode::ReadWrite {
        fs.files.before_write(file.file).await.map_err(status::of_files)?;
    }
    let now = fs.clock.monotonic();
    if drain.is_asked_for_all(client, now) {
        return Err(NfsStat4::RecallConflict);
    }
    sessions.note_grant(compound, file.file);
    let stateid = states.lock().layouts().get(&request, now)?;
    grants.counts.count(Granted::Layout(LayoutModes::only(mode)), Step::Granted);
    drain.judge_granted(pool);
    Ok(LayoutGet4ResOk { stateid, ..body })
}

/// As far as quotas allow the file to grow: pools do not check quotas. Behind that the client writes through the
/// head, which judges each byte.
async fn writable_length(
    compound: &Compound,
    fs: &FileSystem,
    file: &Attributes,
    args: &LayoutGet4Args,
) -> Result<u64, NfsStat4> {
    if args.iomode == LayoutIomode4::Read {
        return Ok(u64::MAX);
    }
    if fs.files.writable_end(&compound.identity, file).await.map_err(status::of_files)?.is_none() {
        return Ok(u64::MAX);
    }
    // Bytes already at the pools are counted first, or their room would be granted again.
    let file = fs.files.freshen(*file).await.map_err(status::of_files)?;
    let end = fs.files.writable_end(&compound.identity, &file).await.map_err(status::of_files)?;
    match end {
        None => Ok(u64::MAX),
        Some(end) if args.offset.checked_add(args.minlength.max(1)).is_some_and(|wanted| wanted <= end) => {
            Ok(end)
        }
        Some(_) => Err(NfsStat4::LayoutUnavailable),
    }
}

/// RFC 8881 §18.43.3.
fn judge_arguments(args: &LayoutGet4Args) -> Result<LayoutMode, NfsStat4> {
    if args.layout_type != LayoutType4::FLEX_FILES {
        return Err(NfsStat4::UnknownLayoutType);
    }
    let is_open_ended = args.length == u64::MAX;
    if args.length == 0
        || args.length < args.minlength
        || (!is_open_ended && args.offset.checked_add(args.length).is_none())
        || (args.minlength != u64::MAX && args.offset.checked_add(args.minlength).is_none())
    {
        return Err(NfsStat4::Inval);
    }
    match args.iomode {
        LayoutIomode4::Read => Ok(LayoutMode::Read),
        LayoutIomode4::Rw => Ok(LayoutMode::ReadWrite),
        LayoutIomode4::Any => Err(NfsStat4::BadIoMode),
    }
}

/// A pool that holds the file and that the client can use: without one its I/O goes through the head.
async fn choose_pool(
    compound: &Compound,
    fs: &FileSystem,
    file: &Attributes,
    mode: LayoutMode,
) -> Result<PoolId, NfsStat4> {
    let client = compound.client.map(|client| client.0);
    let mode = if mode == LayoutMode::Read { TicketMode::Read } else { TicketMode::ReadWrite };
    let refusal = |error| match error {
        FilesError::Namespace(error) => status::of_namespace(error),
        _ => NfsStat4::LayoutUnavailable,
    };
    let located = fs.files.locate(file, mode, client).await.map_err(refusal)?;
    if let Some(grant) = located {
        return Ok(grant.pool);
    }
    // There is nothing to read.
    if mode == TicketMode::Read {
        return Err(NfsStat4::LayoutUnavailable);
    }
    fs.files.place(file.file, client).await.map_err(|_| NfsStat4::LayoutUnavailable)?;
    let placed = fs.files.locate(file, mode, client).await.map_err(refusal)?;
    placed.map(|grant| grant.pool).ok_or(NfsStat4::LayoutUnavailable)
}

/// Makes what a client wrote at a pool visible: the size, the times, the change attribute.
///
/// Linux takes GRACE and BADLAYOUT for success here and forgets what it wanted to commit (`nfs4_layoutcommit_done`), so
/// neither is ever answered: a client whose layout is from before a restart commits by its open, or by its permission.
pub(super) async fn commit(
    compound: &Compound,
    clients: &Clients,
    args: LayoutCommit4Args,
) -> Result<LayoutCommit4ResOk, NfsStat4> {
    let fs = &*clients.fs;
    let client = compound.client()?;
    let file = fs.attributes(compound.file()?).await?;
    if file.kind != FileKind::Regular {
        return Err(NfsStat4::BadLayout);
    }
    if args.layoutupdate.layout_type != LayoutType4::FLEX_FILES {
        return Err(NfsStat4::UnknownLayoutType);
    }
    let stateid = compound.resolve(args.stateid)?;
    let changing = if authorize_commit(compound, clients, &file, stateid, args.reclaim).await? {
        None
    } else {
        // As a write without an open.
        Some(make_way(compound, fs, file.file, Modes::WRITE, Modes::NONE).await?)
    };
    if let Some(last) = args.last_write_offset {
        last.checked_add(1).filter(|end| i64::try_from(*end).is_ok()).ok_or(NfsStat4::Inval)?;
    }
    let told = match args.time_modify {
        Some(time) => Some(Timestamp::new(time.seconds, time.nseconds).ok_or(NfsStat4::Inval)?),
        None => None,
    };
    // Linux sends no time.
    let after = fs.files.commit_written(&file, told, changing).await.map_err(status::of_files)?;
    tracing::trace!(client = client.0, file = %file.file, size = after.size, "layout committed");
    Ok(LayoutCommit4ResOk { newsize: (after.size != file.size).then_some(after.size) })
}

/// Whether the client has a layout or an open to write; without, its permission counts.
async fn authorize_commit(
    compound: &Compound,
    clients: &Clients,
    file: &Attributes,
    stateid: StateId4,
    reclaim: bool,
) -> Result<bool, NfsStat4> {
    let client = compound.client()?;
    let (judged, has_open) = {
        let mut states = clients.states.lock();
        let judged = states.layouts().judge_commit(client, file.file, stateid);
        (judged, states.has_open_for_writing(client, file.file))
    };
    match judged {
        Ok(()) => Ok(true),
        Err(_) if reclaim => clients.sessions.reclaims.judge(client, true).map(|()| true),
        Err(NfsStat4::BadStateId | NfsStat4::StaleStateId) if has_open => Ok(true),
        Err(status @ (NfsStat4::BadStateId | NfsStat4::StaleStateId)) => {
            if clients.fs.allows(&compound.identity, file, Access::WRITE).await? {
                Ok(false)
            } else {
                Err(status)
            }
        }
        Err(status) => Err(status),
    }
}

pub(super) async fn give_back(
    compound: &mut Compound,
    layouts: &Layouts,
    args: LayoutReturn4Args,
) -> Result<LayoutReturn4ResOk, NfsStat4> {
    let Clients { fs, sessions, .. } = &*layouts.clients;
    let client = compound.client()?;
    if args.layout_type != LayoutType4::FLEX_FILES {
        return Err(NfsStat4::UnknownLayoutType);
    }
    let modes = match args.iomode {
        LayoutIomode4::Read => LayoutModes { read: true, read_write: false },
        LayoutIomode4::Rw => LayoutModes { read: false, read_write: true },
        LayoutIomode4::Any => LayoutModes { read: true, read_write: true },
    };
    let mut told = Vec::new();
    if let LayoutReturn4::File(LayoutReturnFile4 { body, .. }) = &args.layoutreturn {
        // A report that cannot be decoded is no reason to keep the layout.
        match FfLayoutReturn4::from_body(body) {
            Ok(report) => told = io_report::take(compound, layouts, &report),
            Err(error) => {
                tracing::debug!(client = client.0, %error, "layout return has a body that is no report")
            }
        }
    }
    if args.reclaim {
        // There is no reclaim but of one file (RFC 8881 §18.44.3).
        if !matches!(args.layoutreturn, LayoutReturn4::File(_)) {
            return Err(NfsStat4::Inval);
        }
        // Of a former start: there is nothing to return, only errors to tell (RFC 8881 §18.44.3).
        sessions.reclaims.judge(client, true)?;
        return Ok(LayoutReturn4ResOk { stateid: None });
    }
    let stateid = match args.layoutreturn {
        LayoutReturn4::File(returned) => return_file(compound, layouts, &returned, modes).await?,
        // All files lie in one file system; a pseudo directory lies in another, where there are no layouts.
        LayoutReturn4::FsId => {
            compound.file()?;
            if compound.current.place != ViewPlace::Pseudo {
                return_all(layouts, client, modes).await;
            }
            None
        }
        LayoutReturn4::All => {
            return_all(layouts, client, modes).await;
            None
        }
    };
    fs.files.returned();
    if stateid.is_some() {
        compound.current.stateid = stateid;
    } else {
        told.into_iter().for_each(|counters| layouts.reports.forget_counters(counters));
    }
    Ok(LayoutReturn4ResOk { stateid })
}

/// The stateid is answered while something is held.
async fn return_file(
    compound: &Compound,
    layouts: &Layouts,
    returned: &LayoutReturnFile4,
    modes: LayoutModes,
) -> Result<Option<StateId4>, NfsStat4> {
    let (client, file, states) = (compound.client()?, compound.file()?, &layouts.clients.states);
    let is_whole = returned.offset == 0 && returned.length == u64::MAX;
    let modes = if is_whole { modes } else { LayoutModes { read: false, read_write: false } };
    let stateid = compound.resolve(returned.stateid)?;
    if modes.read_write {
        layouts.grants.fencing.before_return(client, file).await;
    }
    states.lock().layouts().give_back(client, file, stateid, modes)
}

async fn return_all(layouts: &Layouts, client: ClientId4, modes: LayoutModes) {
    let Layouts { clients, grants, drain, .. } = layouts;
    let (held, recalled) = {
        let mut states = clients.states.lock();
        let layouts = states.layouts();
        // Of a client that was asked for all it is not known which of its calls it has given up.
        let recalled = match drain.is_asked_for_all(client, clients.fs.clock.monotonic()) {
            true => layouts.writable(client),
            false => layouts.recalled_to_write(client),
        };
        (layouts.held(client), recalled)
    };
    if modes.read_write {
        grants.fencing.fence_returned(client, recalled).await;
    }
    clients.states.lock().layouts().give_back_all(client, modes, &held);
    if modes == LayoutModes::ALL {
        drain.has_returned_all(client);
    }
}
