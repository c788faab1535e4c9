//! The head's operation table: one handler per operation.
//!
//! A handler is given the compound's context and those parts of the MDS that it needs, and answers a body or a status;
//! no handler encodes, and none knows this table.

use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use nfs4::{ClientId4, Copy4Res, NfsArgop4, NfsResop4, NfsStat4};

use super::gate::{self, Gate};
use super::{
    Mds, attributes, close, copy, data, delegation, device, directory, file_handle, io, io_report, layout,
    lock, open, readdir, security, setattr, stateids, xattr,
};
use crate::context::Compound;
use crate::exports::View;
use crate::operation_table::OperationTable;

#[async_trait]
impl OperationTable for Mds {
    fn admit(&self, peer: IpAddr) -> Option<Arc<View>> {
        self.exports.table.view(peer)
    }

    fn exports_version(&self) -> u64 {
        self.exports.table.version()
    }

    fn holds_state(&self, client: ClientId4) -> bool {
        self.clients.states.lock().holds(client)
    }

    async fn release_departed(&self) {
        self.departures.release().await;
    }

    async fn execute(&self, compound: &mut Compound, operation: NfsArgop4) -> NfsResop4 {
        if let Err(status) = security::before(compound, &operation) {
            return NfsResop4::error(operation.opnum(), status);
        }
        let from = compound.current.place;
        let result = match gate::judge(compound, &self.clients.fs, operation).await {
            Gate::Open(operation) => self.perform(compound, operation).await,
            Gate::Closed(result) => result,
        };
        security::after(compound, from, result)
    }
}

impl Mds {
    /// Large futures of single operations are boxed: the others do not carry their room.
    async fn perform(&self, compound: &mut Compound, operation: NfsArgop4) -> NfsResop4 {
        use NfsArgop4 as A;
        use NfsResop4 as R;
        let number = operation.opnum();
        let Mds { clients, exports, lost_locks, opening, layouts, copies, .. } = self;
        let fs = &*clients.fs;
        match operation {
            A::PutRootFh => R::PutRootFh(file_handle::put_root(compound)),
            A::PutPubFh => R::PutPubFh(file_handle::put_root(compound)),
            A::PutFh(args) => R::PutFh(file_handle::put(compound, exports, &args).await),
            A::GetFh => R::GetFh(file_handle::get(compound, fs).into()),
            A::SaveFh => R::SaveFh(file_handle::save(compound)),
            A::RestoreFh => R::RestoreFh(file_handle::restore(compound)),
            A::Lookup(args) => R::Lookup(outcome(directory::lookup(compound, fs, &args).await)),
            A::LookupP => R::LookupP(outcome(directory::lookup_parent(compound, exports).await)),
            A::Access(args) => R::Access(attributes::access(compound, fs, &args).await.into()),
            A::GetAttr(args) => R::GetAttr(attributes::get(compound, fs, &args).await.into()),
            A::Verify(args) => R::Verify(attributes::verify(compound, fs, &args.obj_attributes).await),
            A::NVerify(args) => R::NVerify(attributes::nverify(compound, fs, &args.obj_attributes).await),
            A::SetAttr(args) => R::SetAttr(setattr::set(compound, clients, &args).await),
            A::ReadDir(args) => R::ReadDir(readdir::read(compound, fs, &args).await.into()),
            A::ReadLink => R::ReadLink(directory::read_link(compound, fs).await.into()),
            A::Create(args) => R::Create(directory::create(compound, fs, &args).await.into()),
            A::Remove(args) => R::Remove(directory::remove(compound, fs, &args).await.into()),
            A::Rename(args) => R::Rename(Box::pin(directory::rename(compound, fs, &args)).await.into()),
            A::Link(args) => R::Link(directory::link(compound, fs, &args).await.into()),
            A::SecInfo(args) => R::SecInfo(security::by_name(compound, fs, &args).await.into()),
            A::SecInfoNoName(args) => {
                R::SecInfoNoName(security::no_name(compound, exports, &args).await.into())
            }
            A::Read(args) => R::Read(io::read(compound, clients, &args).await.into()),
            A::Write(args) => R::Write(io::write(compound, clients, args).await.into()),
            A::Commit(args) => R::Commit(io::commit(compound, clients, &args).await.into()),
            A::Seek(args) => R::Seek(data::seek(compound, clients, &args).await.into()),
            A::ReadPlus(args) => R::ReadPlus(data::read_plus(compound, clients, &args).await.into()),
            A::Allocate(args) => R::Allocate(outcome(data::allocate(compound, clients, &args).await)),
            A::Deallocate(args) => R::Deallocate(outcome(data::deallocate(compound, clients, &args).await)),
            A::IoAdvise(args) => R::IoAdvise(data::advise(compound, clients, &args).await.into()),
            A::Clone(args) => R::Clone(outcome(copy::clone(compound, clients, &args).await)),
            A::Copy(args) => match copy::copy(compound, copies, &args).await {
                Ok(copied) => R::Copy(Copy4Res::Ok(copied)),
                Err(status) => NfsResop4::error(number, status),
            },
            A::OffloadStatus(args) => R::OffloadStatus(copy::progress(compound, copies, &args).into()),
            A::OffloadCancel(args) => R::OffloadCancel(outcome(copy::cancel(compound, copies, &args).await)),
            A::Open(args) => R::Open(Box::pin(open::open(compound, opening, args)).await.into()),
            A::OpenDowngrade(args) => R::OpenDowngrade(close::downgrade(compound, clients, &args).into()),
            A::Close(args) => R::Close(close::close(compound, &layouts.grants, &args).await.into()),
            A::Lock(args) => R::Lock(lock::lock(compound, lost_locks, args).await),
            A::LockT(args) => R::LockT(lock::test(compound, clients, args).await),
            A::LockU(args) => R::LockU(lock::unlock(compound, clients, &args).into()),
            A::TestStateId(args) => R::TestStateId(stateids::test(compound, copies, &args).into()),
            A::FreeStateId(args) => R::FreeStateId(outcome(stateids::free(compound, clients, &args))),
            A::LayoutGet(args) => R::LayoutGet(layout::get(compound, layouts, args).await),
            A::LayoutCommit(args) => R::LayoutCommit(layout::commit(compound, clients, args).await.into()),
            A::LayoutReturn(args) => R::LayoutReturn(layout::give_back(compound, layouts, args).await.into()),
            A::LayoutError(args) => R::LayoutError(outcome(io_report::error(compound, layouts, &args))),
            A::LayoutStats(args) => R::LayoutStats(outcome(io_report::stats(compound, layouts, &args))),
            A::GetXattr(args) => R::GetXattr(xattr::get(compound, fs, &args).await.into()),
            A::SetXattr(args) => R::SetXattr(xattr::set(compound, fs, &args).await.into()),
            A::ListXattrs(args) => R::ListXattrs(xattr::list(compound, fs, &args).await.into()),
            A::RemoveXattr(args) => R::RemoveXattr(xattr::remove(compound, fs, &args).await.into()),
            A::GetDeviceInfo(args) => R::GetDeviceInfo(device::info(compound, &layouts.devices, &args)),
            A::DelegReturn(args) => {
                R::DelegReturn(outcome(delegation::give_back(compound, &layouts.grants, &args).await))
            }
            _ => NfsResop4::error(number, NfsStat4::NotSupp),
        }
    }
}

/// For results that are a bare status.
fn outcome(result: Result<(), NfsStat4>) -> NfsStat4 {
    result.err().unwrap_or(NfsStat4::Ok)
}
