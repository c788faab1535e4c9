//! The head's operation table: the metadata server.
//!
//! One handler per operation, grouped by concern. A handler takes the compound's context and the head and answers a
//! body or a status; no handler encodes. Which pool has what is the matter of `layout`, `segment`, `device`, `drain`,
//! `bulk_recall`, `io_report`, `copy` and, for fencing, `recall`.

mod acl;
mod attributes;
mod bulk_recall;
mod close;
mod copy;
mod counts;
mod courtesy;
mod data;
mod delegated_times;
mod delegation;
mod device;
mod directory;
mod drain;
mod exports;
mod file_handle;
mod homes;
mod io;
mod io_counters;
mod io_report;
mod layout;
mod lock;
mod lock_notice;
mod lost_locks;
mod open;
mod owners;
mod readdir;
mod recall;
mod reports;
mod resize;
mod security;
mod segment;
mod setattr;
mod stateids;
mod threshold;
mod totals;
mod unwritten;
mod xattr;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use access::FileAccess;
use api::{HandleKey, Locations, Namespace, PoolManager, RecoveryRecords, TicketKeys, Xattrs};
use async_trait::async_trait;
use nfs4::{ClientId4, Copy4Res, FsId4, NfsArgop4, NfsResop4, NfsStat4};
use nfs4_state::stateid::{ClientState, holder};
use nfs4_state::{Adaptive, DelegationMode, WriteDelegations};
use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::JoinSet;
use types::{Clock, FileId, Name, PoolId};

use crate::context::Compound;
use crate::exports::{ExportTable, View};
use crate::operation_table::OperationTable;
use crate::owners::OwnerNames;
use crate::session_ops::Sessions;
use crate::status;

pub(crate) use copy::Offloads;
pub(crate) use counts::Counts;
pub use counts::GrantCounts;
pub(crate) use device::Devices;
pub(crate) use drain::{Drain, keep_clients_away};
use exports::Gate;
pub(crate) use homes::Homes;
pub(crate) use lost_locks::{FormerTickets, LostRecords, load_records};
pub(crate) use recall::{ClientRecaller, expire_clients};
pub(crate) use reports::Reports;

/// Housekeeping: runs once in a while, and when a client has departed.
pub(crate) async fn keep_house(head: &Arc<Head>) {
    expire_clients(head).await;
    recall::recall_slots(head);
    recall::repeat_recalls(head);
    recall::expire_recalls(head).await;
    // Of what has just been revoked too.
    lost_locks::keep_records(head).await;
    lock_notice::tell_waiters(head);
    keep_clients_away(head);
}

/// Everything the handlers of the head need.
pub(crate) struct Head {
    pub namespace: Arc<dyn Namespace>,
    pub homes: Homes,
    pub exports: ExportTable,
    pub locations: Arc<dyn Locations>,
    pub xattrs: Arc<dyn Xattrs>,
    pub pools: Arc<dyn PoolManager>,
    pub access: Arc<FileAccess>,
    pub clock: Arc<dyn Clock>,
    pub handle_key: HandleKey,
    pub ticket_keys: TicketKeys,
    pub fsid: FsId4,
    /// Names of users and groups, if clients get names.
    pub owners: Option<Arc<OwnerNames>>,
    /// Changes with every start: part of device ids, so that none is ever reused for another address.
    pub generation: u32,
    pub lease: Duration,
    pub pool_addresses: Vec<(PoolId, SocketAddr)>,
    pub sessions: Arc<Sessions>,
    pub reports: Reports,
    /// Files below go without a layout.
    pub layout_bytes_min: u64,
    /// Stateids, over the conflict table of `access`. Held for one decision at a time, never across an await, and taken
    /// before the table.
    pub states: Arc<Mutex<ClientState>>,
    pub delegation_mode: DelegationMode,
    pub write_delegations: WriteDelegations,
    /// Which files are worth a delegation. Leaf lock.
    pub adaptive: Mutex<Adaptive>,
    /// Recalls that each client is being asked. Leaf lock.
    pub asked: Mutex<BTreeMap<ClientId4, usize>>,
    /// Closed pools. Leaf lock.
    pub drain: Mutex<Drain>,
    /// Which devices clients know. Leaf lock.
    pub devices: Mutex<Devices>,
    /// Copies that are carried on.
    pub offloads: Arc<Offloads>,
    /// A COPY that takes longer may be carried on.
    pub copy_answer: Duration,
    /// Calls to clients and copies under way; ended with the head. Leaf lock.
    pub calls: Mutex<JoinSet<()>>,
    /// Held while departed clients are released.
    pub releasing: AsyncMutex<()>,
    /// A request waits for the state of a departed client.
    pub departures: Notify,
    pub records: Arc<dyn RecoveryRecords>,
    /// Held while records are written, and guards nothing else.
    pub lost_records: AsyncMutex<LostRecords>,
    /// Leaf lock.
    pub former_tickets: Mutex<FormerTickets>,
    pub counts: Counts,
}

impl Head {
    /// The attributes of a file that a handle names: STALE if it is gone.
    pub async fn attributes(&self, file: FileId) -> Result<types::Attributes, NfsStat4> {
        self.access.attributes(file).await.map_err(status::of_access)
    }

    /// Of the directories on the way to exports: a file system of its own, as RFC 8881 §7.3 wants it.
    pub fn pseudo_fsid(&self) -> FsId4 {
        FsId4 { major: self.fsid.major ^ 2, ..self.fsid }
    }

    /// Calls a client, or does what ends in a call, until the head ends.
    pub fn spawn_call(&self, call: impl Future<Output = ()> + Send + 'static) {
        let mut calls = self.calls.lock();
        while calls.try_join_next().is_some() {}
        calls.spawn(call);
    }

    /// A delegation of the file is being recalled: none is offered for a while.
    pub fn note_recall(&self, file: FileId) {
        self.adaptive.lock().recalled(file, self.clock.monotonic());
    }

    /// As [`Head::attributes`], with what the pools and other clients know better.
    pub async fn attributes_for(
        &self,
        compound: &Compound,
        file: FileId,
    ) -> Result<types::Attributes, NfsStat4> {
        let (found, by) = (self.attributes(file).await?, compound.client.map(holder));
        self.access.seen_by(found, by, recall::WAIT).await.map_err(status::of_access)
    }

    /// As [`Head::attributes`], with what the pools know better.
    pub async fn fresh_attributes(&self, file: FileId) -> Result<types::Attributes, NfsStat4> {
        self.access.fresh_attributes(file).await.map_err(status::of_access)
    }
}

pub(crate) fn name(component: &nfs4::Component4) -> Result<Name, NfsStat4> {
    Name::new(component.as_bytes()).map_err(status::of_name)
}

#[async_trait]
impl OperationTable for Head {
    fn admit(&self, peer: IpAddr) -> Option<Arc<View>> {
        self.exports.view(peer)
    }

    fn exports_version(&self) -> u64 {
        self.exports.version()
    }

    fn holds_state(&self, client: ClientId4) -> bool {
        self.states.lock().holds(client)
    }

    async fn release_departed(&self) {
        expire_clients(self).await;
    }

    async fn execute(&self, compound: &mut Compound, operation: NfsArgop4) -> NfsResop4 {
        if let Err(status) = security::before(compound, &operation) {
            return NfsResop4::error(operation.opnum(), status);
        }
        let from = compound.current.place;
        let result = self.perform(compound, operation).await;
        security::after(compound, from, result)
    }
}

impl Head {
    async fn perform(&self, compound: &mut Compound, operation: NfsArgop4) -> NfsResop4 {
        use NfsArgop4 as A;
        use NfsResop4 as R;
        let number = operation.opnum();
        let operation = match exports::judge(compound, self, operation).await {
            Gate::Open(operation) => operation,
            Gate::Closed(result) => return result,
        };
        match operation {
            A::PutRootFh => R::PutRootFh(file_handle::put_root(compound)),
            A::PutPubFh => R::PutPubFh(file_handle::put_root(compound)),
            A::PutFh(args) => R::PutFh(file_handle::put(compound, self, &args).await),
            A::GetFh => R::GetFh(file_handle::get(compound, self).into()),
            A::SaveFh => R::SaveFh(file_handle::save(compound)),
            A::RestoreFh => R::RestoreFh(file_handle::restore(compound)),
            A::Lookup(args) => R::Lookup(outcome(directory::lookup(compound, self, &args).await)),
            A::LookupP => R::LookupP(outcome(directory::lookup_parent(compound, self).await)),
            A::Access(args) => R::Access(attributes::access(compound, self, &args).await.into()),
            A::GetAttr(args) => R::GetAttr(attributes::get(compound, self, &args).await.into()),
            A::Verify(args) => R::Verify(attributes::verify(compound, self, &args.obj_attributes).await),
            A::NVerify(args) => R::NVerify(attributes::nverify(compound, self, &args.obj_attributes).await),
            A::SetAttr(args) => R::SetAttr(setattr::set(compound, self, &args).await),
            A::ReadDir(args) => R::ReadDir(readdir::read(compound, self, &args).await.into()),
            A::ReadLink => R::ReadLink(directory::read_link(compound, self).await.into()),
            A::Create(args) => R::Create(directory::create(compound, self, &args).await.into()),
            A::Remove(args) => R::Remove(directory::remove(compound, self, &args).await.into()),
            A::Rename(args) => R::Rename(directory::rename(compound, self, &args).await.into()),
            A::Link(args) => R::Link(directory::link(compound, self, &args).await.into()),
            A::SecInfo(args) => R::SecInfo(security::by_name(compound, self, &args).await.into()),
            A::SecInfoNoName(args) => R::SecInfoNoName(security::no_name(compound, self, &args).await.into()),
            A::Read(args) => R::Read(io::read(compound, self, &args).await.into()),
            A::Write(args) => R::Write(io::write(compound, self, args).await.into()),
            A::Commit(args) => R::Commit(io::commit(compound, self, &args).await.into()),
            A::Seek(args) => R::Seek(data::seek(compound, self, &args).await.into()),
            A::ReadPlus(args) => R::ReadPlus(data::read_plus(compound, self, &args).await.into()),
            A::Allocate(args) => R::Allocate(outcome(data::allocate(compound, self, &args).await)),
            A::Deallocate(args) => R::Deallocate(outcome(data::deallocate(compound, self, &args).await)),
            A::IoAdvise(args) => R::IoAdvise(data::advise(compound, self, &args).await.into()),
            A::Clone(args) => R::Clone(outcome(copy::clone(compound, self, &args).await)),
            A::Copy(args) => match copy::copy(compound, self, &args).await {
                Ok(copied) => R::Copy(Copy4Res::Ok(copied)),
                Err(status) => NfsResop4::error(number, status),
            },
            A::OffloadStatus(args) => R::OffloadStatus(copy::progress(compound, self, &args).into()),
            A::OffloadCancel(args) => R::OffloadCancel(outcome(copy::cancel(compound, self, &args).await)),
            A::Open(args) => R::Open(open::open(compound, self, args).await.into()),
            A::OpenDowngrade(args) => R::OpenDowngrade(close::downgrade(compound, self, &args).into()),
            A::Close(args) => R::Close(close::close(compound, self, &args).into()),
            A::Lock(args) => R::Lock(lock::lock(compound, self, args).await),
            A::LockT(args) => R::LockT(lock::test(compound, self, args).await),
            A::LockU(args) => R::LockU(lock::unlock(compound, self, &args).into()),
            A::TestStateId(args) => R::TestStateId(stateids::test(compound, self, &args).into()),
            A::FreeStateId(args) => R::FreeStateId(outcome(stateids::free(compound, self, &args))),
            A::LayoutGet(args) => R::LayoutGet(layout::get(compound, self, args).await),
            A::LayoutCommit(args) => R::LayoutCommit(layout::commit(compound, self, args).await.into()),
            A::LayoutReturn(args) => R::LayoutReturn(layout::give_back(compound, self, args).await.into()),
            A::LayoutError(args) => R::LayoutError(outcome(io_report::error(compound, self, &args))),
            A::LayoutStats(args) => R::LayoutStats(outcome(io_report::stats(compound, self, &args))),
            A::GetXattr(args) => R::GetXattr(xattr::get(compound, self, &args).await.into()),
            A::SetXattr(args) => R::SetXattr(xattr::set(compound, self, &args).await.into()),
            A::ListXattrs(args) => R::ListXattrs(xattr::list(compound, self, &args).await.into()),
            A::RemoveXattr(args) => R::RemoveXattr(xattr::remove(compound, self, &args).await.into()),
            A::GetDeviceInfo(args) => R::GetDeviceInfo(device::info(compound, self, &args)),
            A::DelegReturn(args) => R::DelegReturn(outcome(delegation::give_back(compound, self, &args))),
            _ => NfsResop4::error(number, NfsStat4::NotSupp),
        }
    }
}

/// For results that are a bare status.
fn outcome(result: Result<(), NfsStat4>) -> NfsStat4 {
    result.err().unwrap_or(NfsStat4::Ok)
}
