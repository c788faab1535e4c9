//! LAYOUTERROR, LAYOUTSTATS and the report in LAYOUTRETURN: clients' I/O at the pools (RFC 8435 §9, RFC 7862 §15.6,
//! §15.7).
//!
//! The pool manager gets both: errors, which decide where the client is sent next, and the duration of I/O, over all
//! clients. This module decides which errors count against a pool, and which part of the counters is new.

use api::{ClientReport, Outcome, TransferReport};
use nfs4::{
    DeviceError4, DeviceId4, FfLayoutReturn4, FfLayoutUpdate4, LayoutError4Args, LayoutStats4Args,
    LayoutType4, NfsStat4,
};

use super::device;
use super::io_counters::Source;
use super::layouts::Layouts;
use crate::context::Compound;

pub(super) fn error(compound: &Compound, layouts: &Layouts, args: &LayoutError4Args) -> Result<(), NfsStat4> {
    let stateid = compound.resolve(args.stateid)?;
    layouts.clients.states.lock().layouts().judge_stateid(compound.client()?, compound.file()?, stateid)?;
    take_errors(compound, layouts, &args.errors);
    Ok(())
}

pub(super) fn stats(compound: &Compound, layouts: &Layouts, args: &LayoutStats4Args) -> Result<(), NfsStat4> {
    if args.layoutupdate.layout_type != LayoutType4::FLEX_FILES {
        return Err(NfsStat4::UnknownLayoutType);
    }
    let stateid = compound.resolve(args.stateid)?;
    let client = compound.client()?;
    layouts.clients.states.lock().layouts().judge_stateid(client, compound.file()?, stateid)?;
    // A body that cannot be decoded is ignored, as in a layout return.
    match nfs4::decode_body::<FfLayoutUpdate4>(&args.layoutupdate.body) {
        Ok(update) => _ = take_update(compound, layouts, args.deviceid, &update),
        Err(error) => {
            tracing::debug!(client = client.0, %error, "layout statistics have a body that is none")
        }
    }
    Ok(())
}

/// Takes the report in a LAYOUTRETURN, before any layout is returned. Answers the sources of its counters: they end
/// with the layout.
pub(super) fn take(compound: &Compound, layouts: &Layouts, report: &FfLayoutReturn4) -> Vec<Source> {
    let stats = report.iostats_report.iter();
    let told = stats.filter_map(|stats| take_update(compound, layouts, stats.deviceid, &stats.layoutupdate));
    let told = told.collect();
    let mut was_fine = true;
    for failed in &report.ioerr_report {
        was_fine &= !take_errors(compound, layouts, &failed.errors);
    }
    if was_fine {
        tell(compound, layouts, Outcome::Fine);
    }
    told
}

/// Counters of a layout that the client has, at a pool that there is.
fn take_update(
    compound: &Compound,
    layouts: &Layouts,
    device: DeviceId4,
    update: &FfLayoutUpdate4,
) -> Option<Source> {
    let (client, file, pool) = (compound.client?, compound.file().ok()?, device::pool(device));
    let pools = layouts.clients.fs.files.pools();
    if !pools.contains(pool) {
        return None;
    }
    layouts.clients.states.lock().layouts().granted(client, file)?;
    let source = Source { client: client.0, file, pool };
    let (reads, writes) =
        layouts.reports.take_counters(source, update, layouts.clients.fs.clock.monotonic())?;
    pools.report_transfers(&TransferReport { client: client.0, pool, reads, writes });
    Some(source)
}

/// Whether any of them was a pool's.
fn take_errors(compound: &Compound, layouts: &Layouts, errors: &[DeviceError4]) -> bool {
    let mut is_any = false;
    for error in errors {
        let pool = device::pool(error.deviceid);
        let Some(outcome) = judge(error).filter(|_| layouts.clients.fs.files.pools().contains(pool)) else {
            continue;
        };
        is_any = true;
        tell(compound, layouts, outcome);
        if layouts.reports.take_error(pool, layouts.clients.fs.clock.monotonic()) {
            tracing::warn!(
                client = compound.client.map(|client| client.0),
                peer = %compound.caller.connection.peer(),
                %pool,
                status = error.status.name(),
                "a client could not use a pool"
            );
        }
    }
    is_any
}

fn tell(compound: &Compound, layouts: &Layouts, outcome: Outcome) {
    let (Some(client), Ok(file)) = (compound.client, compound.file()) else { return };
    // A report about a layout that is gone says nothing about the next one.
    let Some(sent) = layouts.clients.states.lock().layouts().granted(client, file) else { return };
    layouts.clients.fs.files.pools().report(&ClientReport { client: client.0, file, outcome, sent });
}

/// `None`: fencing, forgetting and files that are too large are what I/O may meet; they say nothing about the pool.
fn judge(error: &DeviceError4) -> Option<Outcome> {
    let pool = device::pool(error.deviceid);
    match error.status {
        NfsStat4::Ok
        | NfsStat4::Stale
        | NfsStat4::BadHandle
        | NfsStat4::FhExpired
        | NfsStat4::PnfsNoLayout
        | NfsStat4::Delay
        | NfsStat4::Grace
        | NfsStat4::FBig
        // The client was away for longer than a lease, and starts a new session by itself.
        | NfsStat4::BadSession
        | NfsStat4::DeadSession
        | NfsStat4::BadSlot
        | NfsStat4::SeqMisordered
        | NfsStat4::StaleClientId
        | NfsStat4::ConnNotBoundToSession => None,
        // Linux reports this when the connection fails, whatever the reason.
        NfsStat4::NxIo => Some(Outcome::Unreachable(pool)),
        _ => Some(Outcome::Refused(pool)),
    }
}
