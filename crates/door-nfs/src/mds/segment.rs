//! The one segment of a layout: the file from its beginning, on one pool, reached by its ticket (RFC 8435 §5).
//!
//! Several replicas will be several mirrors: Linux reads from the most efficient and writes to all.

use api::{Conditions, Grant, TicketMode};
use bytes::Bytes;
use nfs4::attr::Principal4;
use nfs4::{FfDataServer4, FfLayout4, FfMirror4, Layout4, LayoutIomode4, NfsFh4, StateId4};
use types::{Attributes, PoolId};

use super::layouts::Layouts;
use crate::context::Compound;

/// The only mirror is as good as any.
const EFFICIENCY: u32 = 1;

/// Time between the reports of a file's I/O (LAYOUTSTATS). For 0 Linux takes 60 s, and other clients might report
/// nothing. The last report comes with the layout's return.
const STATISTICS_S: u32 = 60;

/// Tightly coupled data servers ignore user and group (RFC 8435 §2.1), and ours obey tickets only. They are set as for
/// loosely coupled ones all the same: the owner for a client that may write, another user of the group for one that may
/// only read (§2.2). Linux refuses a layout in which they are no decimal numbers.
const NOBODY: u32 = 65_534;

/// `None`: the pool has no address that this client could use.
pub(super) fn of_file(
    compound: &Compound,
    layouts: &Layouts,
    file: &Attributes,
    (pool, is_made_by_pool): (PoolId, bool),
    (iomode, length): (LayoutIomode4, u64),
) -> Option<Layout4> {
    let address = layouts.devices.address(&compound.caller.connection, pool)?;
    let mode = if iomode == LayoutIomode4::Read { TicketMode::Read } else { TicketMode::ReadWrite };
    // The pool knows no exports: the ticket carries the flavors that this one admits.
    let demand = compound.caller.view.rules(compound.current.place).flavors.demand();
    let conditions = Conditions { is_made_by_pool, ..Conditions::of_sole_replica(demand) };
    let handle = layouts.ticket_keys.seal(&Grant { pool }.ticket(file, mode), conditions);
    let data_server = FfDataServer4 {
        deviceid: layouts.devices.id(pool, address),
        efficiency: EFFICIENCY,
        stateid: layout_stateid(&handle),
        fh_vers: vec![NfsFh4::from(Bytes::copy_from_slice(&handle))],
        user: Principal4::numeric(if iomode == LayoutIomode4::Read { NOBODY } else { file.uid }).0,
        group: Principal4::numeric(file.gid).0,
    };
    let body = FfLayout4 {
        stripe_unit: 0,
        mirrors: vec![FfMirror4 { data_servers: vec![data_server] }],
        // LAYOUTCOMMIT is wanted, and I/O through the head is always a way out.
        flags: 0,
        stats_collect_hint: STATISTICS_S,
    };
    // The whole file, if it may be: anything less costs a LAYOUTGET for each range.
    Some(Layout4 { offset: 0, length, iomode, content: body.to_content() })
}

/// The stateid that layouts carry for a replica: the same as long as the handle is the same, since the client keeps that
/// of the first layout it got (`ff_layout_add_mirror`).
fn layout_stateid(handle: &[u8]) -> StateId4 {
    let mut other = [0; 12];
    // The end of a sealed ticket is its MAC.
    other.copy_from_slice(&handle[handle.len() - 12..]);
    StateId4 { seqid: 0, other }
}
