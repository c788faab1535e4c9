//! The replica of a file that was never written: it has no bytes, so the file reads as zeros up to its length.

use api::{IoHandle, OpenReplica, PoolError, ReadData, Stability, Verifier};
use bytes::Bytes;

pub(crate) struct Zeros;

impl OpenReplica for Zeros {
    fn read_at(&self, _offset: u64, _length: u32) -> IoHandle<ReadData> {
        IoHandle::ready(Ok(ReadData { data: Bytes::new(), end_of_file: true }))
    }

    fn write_at(&self, _offset: u64, _data: Bytes, _stability: Stability) -> IoHandle<Stability> {
        IoHandle::ready(Err(PoolError::ReadOnlyTicket))
    }

    fn sync(&self) -> IoHandle<Verifier> {
        IoHandle::ready(Ok(self.verifier()))
    }

    fn verifier(&self) -> Verifier {
        Verifier([0; 8])
    }
}
