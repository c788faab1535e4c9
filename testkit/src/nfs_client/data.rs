//! The operations of NFSv4.2 on data.

use nfs4::{
    Allocate4Args, Bitmap4, Clone4Args, Copy4Args, Copy4Res, Copy4ResOk, DataContent4, Deallocate4Args,
    IoAdvise4Args, NfsArgop4, NfsFh4, NfsResop4, OffloadCancel4Args, OffloadStatus4Args, OffloadStatus4ResOk,
    ReadPlus4Args, ReadPlus4ResOk, Seek4Args, Seek4ResOk, StateId4,
};

use super::{ClientError, NfsClient, OpenFile, ops};

impl NfsClient {
    pub fn seek(
        &mut self,
        file: &OpenFile,
        offset: u64,
        what: DataContent4,
    ) -> Result<Seek4ResOk, ClientError> {
        let seek = NfsArgop4::Seek(Seek4Args { stateid: file.stateid, offset, what });
        let reply = self.call(&[ops::put_fh(&file.handle), seek])?;
        crate::body!(reply, Seek).ok_or(ClientError::Missing("SEEK"))
    }

    pub fn read_plus(
        &mut self,
        file: &OpenFile,
        offset: u64,
        count: u32,
    ) -> Result<ReadPlus4ResOk, ClientError> {
        let read = NfsArgop4::ReadPlus(ReadPlus4Args { stateid: file.stateid, offset, count });
        let reply = self.call(&[ops::put_fh(&file.handle), read])?;
        crate::body!(reply, ReadPlus).ok_or(ClientError::Missing("READ_PLUS"))
    }

    pub fn allocate(
        &mut self,
        handle: &NfsFh4,
        stateid: StateId4,
        offset: u64,
        length: u64,
    ) -> Result<(), ClientError> {
        let allocate = NfsArgop4::Allocate(Allocate4Args { stateid, offset, length });
        self.call(&[ops::put_fh(handle), allocate]).map(drop)
    }

    pub fn deallocate(
        &mut self,
        handle: &NfsFh4,
        stateid: StateId4,
        offset: u64,
        length: u64,
    ) -> Result<(), ClientError> {
        let deallocate = NfsArgop4::Deallocate(Deallocate4Args { stateid, offset, length });
        self.call(&[ops::put_fh(handle), deallocate]).map(drop)
    }

    /// The hints that were taken.
    pub fn advise(
        &mut self,
        file: &OpenFile,
        offset: u64,
        count: u64,
        hints: &[u32],
    ) -> Result<Bitmap4, ClientError> {
        let hints = Bitmap4::of(hints);
        let advise = NfsArgop4::IoAdvise(IoAdvise4Args { stateid: file.stateid, offset, count, hints });
        let reply = self.call(&[ops::put_fh(&file.handle), advise])?;
        Ok(crate::body!(reply, IoAdvise).ok_or(ClientError::Missing("IO_ADVISE"))?.hints)
    }

    /// As Linux asks: asynchronous would do. One call, which may copy less than `count`.
    pub fn copy(
        &mut self,
        source: (&OpenFile, u64),
        target: (&OpenFile, u64),
        count: u64,
    ) -> Result<Copy4ResOk, ClientError> {
        let copy = NfsArgop4::Copy(Copy4Args {
            src_stateid: source.0.stateid,
            dst_stateid: target.0.stateid,
            src_offset: source.1,
            dst_offset: target.1,
            count,
            consecutive: true,
            synchronous: false,
            source_server: Vec::new(),
        });
        self.copy_by(source.0, target.0, copy)
    }

    /// Any COPY between two files.
    pub fn copy_by(
        &mut self,
        source: &OpenFile,
        target: &OpenFile,
        copy: NfsArgop4,
    ) -> Result<Copy4ResOk, ClientError> {
        let (from, to) = (ops::put_fh(&source.handle), ops::put_fh(&target.handle));
        let reply = self.call(&[from, NfsArgop4::SaveFh, to, copy])?;
        match reply.results.into_iter().last() {
            Some(NfsResop4::Copy(Copy4Res::Ok(copied))) => Ok(copied),
            _ => Err(ClientError::Missing("COPY")),
        }
    }

    /// How far a copy to `handle` is that goes on in the background.
    pub fn offload_status(
        &mut self,
        handle: &NfsFh4,
        stateid: StateId4,
    ) -> Result<OffloadStatus4ResOk, ClientError> {
        let status = NfsArgop4::OffloadStatus(OffloadStatus4Args { stateid });
        let reply = self.call(&[ops::put_fh(handle), status])?;
        crate::body!(reply, OffloadStatus).ok_or(ClientError::Missing("OFFLOAD_STATUS"))
    }

    pub fn offload_cancel(&mut self, handle: &NfsFh4, stateid: StateId4) -> Result<(), ClientError> {
        let cancel = NfsArgop4::OffloadCancel(OffloadCancel4Args { stateid });
        self.call(&[ops::put_fh(handle), cancel]).map(drop)
    }

    pub fn clone_range(
        &mut self,
        source: (&OpenFile, u64),
        target: (&OpenFile, u64),
        count: u64,
    ) -> Result<(), ClientError> {
        let clone = NfsArgop4::Clone(Clone4Args {
            src_stateid: source.0.stateid,
            dst_stateid: target.0.stateid,
            src_offset: source.1,
            dst_offset: target.1,
            count,
        });
        let (from, to) = (ops::put_fh(&source.0.handle), ops::put_fh(&target.0.handle));
        self.call(&[from, NfsArgop4::SaveFh, to, clone]).map(drop)
    }
}
