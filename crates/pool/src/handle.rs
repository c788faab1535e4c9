//! The data path: what a ticket's holder may do with a replica.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use api::{IoHandle, OpenReplica, PoolError, ReadData, Stability, TicketMode, Verifier};
use bytes::{Bytes, BytesMut};
use io_engine::Lane;
use io_engine::read::Started;
use types::Epoch;

use crate::replica::Replica;
use crate::shared::Shared;

pub struct Handle {
    pub shared: Arc<Shared>,
    pub replica: Arc<Replica>,
    pub epoch: Epoch,
    pub mode: TicketMode,
}

impl OpenReplica for Handle {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        match self.start_read(offset, length) {
            Err(error) => IoHandle::ready(Err(error)),
            Ok(Started::Done(read)) => {
                self.shared.counters.read_bytes.add(read.data.len() as u64);
                IoHandle::ready(Ok(read))
            }
            Ok(Started::Rest(rest)) => {
                let (shared, replica) = (Arc::clone(&self.shared), Arc::clone(&self.replica));
                self.shared.engine.submit(Lane::Data, move || {
                    let file = replica.open_file().expect("a read was started on it, and it is never closed");
                    let read = rest.finish(file).map_err(|errno| shared.failure("read data", errno))?;
                    shared.counters.read_bytes.add(read.data.len() as u64);
                    Ok(read)
                })
            }
        }
    }

    fn read_resident(&self, offset: u64, length: u32, into: &mut BytesMut) -> bool {
        let Some(file) = self.check().ok().and_then(|()| self.replica.open_file()) else { return false };
        if !self.shared.engine.reader().append_resident(file, offset, length as usize, into) {
            return false;
        }
        self.shared.counters.reads.add(1);
        self.shared.counters.read_bytes.add(u64::from(length));
        true
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        if let Err(error) = self.check_write() {
            return IoHandle::ready(Err(error));
        }
        if data.is_empty() {
            return IoHandle::ready(Ok(stability));
        }
        self.shared.counters.writes.add(1);
        let (shared, replica, epoch) = (Arc::clone(&self.shared), Arc::clone(&self.replica), self.epoch);
        let (answer, handle) = self.shared.engine.answer();
        let write = Box::new(move || {
            let written = replica.write(&shared, epoch, offset, &data);
            // Before the answer: the bytes may be a slice of much more, and the caller may want the file closed.
            drop(data);
            match (written, stability) {
                (Err(error), _) => {
                    drop(replica);
                    let _ = answer.send(Err(error));
                }
                (Ok(()), Stability::Unstable) => {
                    drop(replica);
                    let _ = answer.send(Ok(Stability::Unstable));
                }
                // On Linux fdatasync(2) covers size and extents, and a replica has no other attributes to speak of.
                (Ok(()), Stability::DataSync | Stability::FileSync) => {
                    let tell = move |synced: Result<(), PoolError>| {
                        let _ = answer.send(synced.map(|()| Stability::FileSync));
                    };
                    shared.settle(&replica, Box::new(tell));
                }
            }
        });
        match self.shared.engine.enqueue(Lane::Data, write) {
            Ok(()) => handle,
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    fn sync(&self) -> IoHandle<Verifier> {
        let checked = self.check().and_then(|()| self.replica.check_unbroken(&self.shared));
        if let Err(error) = checked {
            return IoHandle::ready(Err(error));
        }
        self.shared.counters.syncs.add(1);
        let verifier = self.shared.verifier;
        if !self.replica.has_unsynced() {
            // Nothing was written since the pool was opened; what an earlier process wrote, the verifier tells of.
            return IoHandle::ready(Ok(verifier));
        }
        let (answer, handle) = self.shared.engine.answer();
        let tell = move |synced: Result<(), PoolError>| {
            let _ = answer.send(synced.map(|()| verifier));
        };
        self.shared.settle(&self.replica, Box::new(tell));
        handle
    }

    fn verifier(&self) -> Verifier {
        self.shared.verifier
    }

    fn descriptor(&self) -> Option<Arc<OwnedFd>> {
        self.check().ok()?;
        let file = self.replica.lend_file()?;
        self.shared.counters.reads.add(1);
        Some(file)
    }

    fn sent(&self, bytes: u64) {
        self.shared.counters.read_bytes.add(bytes);
    }
}

impl Handle {
    /// A removed replica that is open goes on until it is let go, as POSIX has it; one without a file is just gone.
    fn check(&self) -> Result<(), PoolError> {
        self.shared.check_open()?;
        self.replica.check_epoch(self.epoch)?;
        if self.replica.is_removed() && self.replica.open_file().is_none() {
            return Err(PoolError::NoReplica(self.shared.id()));
        }
        Ok(())
    }

    fn check_write(&self) -> Result<(), PoolError> {
        match self.mode {
            TicketMode::Read => Err(PoolError::ReadOnlyTicket),
            TicketMode::ReadWrite => self.check(),
        }
    }

    fn start_read(&self, offset: u64, length: u32) -> Result<Started, PoolError> {
        self.check()?;
        self.shared.counters.reads.add(1);
        let Some(file) = self.replica.open_file() else {
            return Ok(Started::Done(ReadData { data: Bytes::new(), end_of_file: true }));
        };
        let started = self.shared.engine.reader().start(file, offset, length);
        started.map_err(|errno| self.shared.failure("read data", errno))
    }
}
