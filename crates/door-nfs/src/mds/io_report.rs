//! LAYOUTERROR, LAYOUTSTATS and what LAYOUTRETURN tells: how clients fare at the pools (RFC 8435 §9, RFC 7862 §15.6, §15.7).
//!
//! Errors go to the pool manager, which decides where the client is sent next; here is decided what an error says of a
//! pool at all.

use api::{ClientReport, Outcome};
use nfs4::{DeviceError4, FfLayoutReturn4, LayoutError4Args, LayoutStats4Args, NfsStat4};

use super::{Head, device};
use crate::context::Compound;

pub(super) fn error(compound: &Compound<'_>, head: &Head, args: &LayoutError4Args) -> Result<(), NfsStat4> {
    let stateid = compound.resolve(args.stateid)?;
    head.states.lock().judge_layout_stateid(compound.client()?, compound.file()?, stateid)?;
    take_errors(compound, head, &args.errors);
    Ok(())
}

pub(super) fn stats(compound: &Compound<'_>, head: &Head, args: &LayoutStats4Args) -> Result<(), NfsStat4> {
    let stateid = compound.resolve(args.stateid)?;
    head.states.lock().judge_layout_stateid(compound.client()?, compound.file()?, stateid)?;
    head.reports.take_transfer(device::pool(args.deviceid), args.read, args.write);
    Ok(())
}

/// What a LAYOUTRETURN tells, before anything is returned.
pub(super) fn take(compound: &Compound<'_>, head: &Head, report: &FfLayoutReturn4) {
    for stats in &report.iostats_report {
        head.reports.take_transfer(device::pool(stats.deviceid), stats.read, stats.write);
    }
    let mut was_fine = true;
    for failed in &report.ioerr_report {
        was_fine &= !take_errors(compound, head, &failed.errors);
    }
    if was_fine {
        tell(compound, head, Outcome::Fine);
    }
}

/// Whether any of them was a pool's.
fn take_errors(compound: &Compound<'_>, head: &Head, errors: &[DeviceError4]) -> bool {
    let mut is_any = false;
    for error in errors {
        let pool = device::pool(error.deviceid);
        let Some(outcome) = judge(error).filter(|_| head.pools.pool(pool).is_some()) else { continue };
        is_any = true;
        tell(compound, head, outcome);
        if head.reports.take_error(pool, head.clock.monotonic()) {
            tracing::warn!(
                client = compound.client.map(|client| client.0),
                peer = %compound.connection.peer(),
                %pool,
                status = error.status.name(),
                "a client could not use a pool"
            );
        }
    }
    is_any
}

fn tell(compound: &Compound<'_>, head: &Head, outcome: Outcome) {
    let (Some(client), Ok(file)) = (compound.client, compound.file()) else { return };
    // Of a layout that is gone nothing follows for the next one.
    let Some(sent) = head.states.lock().layout_granted(client, file) else { return };
    head.pools.report(&ClientReport { client: client.0, file, outcome, sent });
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
        // What Linux says when the connection fails, whatever the reason.
        NfsStat4::NxIo => Some(Outcome::Unreachable(pool)),
        _ => Some(Outcome::Refused(pool)),
    }
}
