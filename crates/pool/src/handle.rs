//! The data path: what a ticket's holder may do with a replica.

mod ranges;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use api::{
    IoHandle, OpenReplica, PoolError, ReadData, ReplicaRanges, Stability, TicketMode, Verifier, WriteThrough,
};
use bytes::{Bytes, BytesMut};
use io_engine::Lane;
use io_engine::read::{Started, Unfinished};
use types::Epoch;

use crate::replica::Replica;
use crate::shared::Shared;

#[derive(Clone)]
pub struct Handle {
    pub shared: Arc<Shared>,
    pub replica: Arc<Replica>,
    pub epoch: Epoch,
    pub mode: TicketMode,
}

impl OpenReplica for Handle {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        if !self.replica.is_loaded() {
            let (this, shared) = (self.clone(), Arc::clone(&self.shared));
            return shared.engine.submit(Lane::Data, move || {
                this.replica.load(&this.shared)?;
                match this.start_read(offset, length)? {
                    Started::Done(read) => Ok(this.count_read(read)),
                    Started::Rest(rest) => this.finish_read(rest),
                }
            });
        }
        match self.start_read(offset, length) {
            Err(error) => IoHandle::ready(Err(error)),
            Ok(Started::Done(read)) => IoHandle::ready(Ok(self.count_read(read))),
            Ok(Started::Rest(rest)) => {
                let this = self.clone();
                self.shared.engine.submit(Lane::Data, move || this.finish_read(rest))
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
        if stability == Stability::Unstable {
            self.shared.counters.writes.add(1);
            let this = self.clone();
            return self.shared.engine.submit(Lane::Data, move || {
                let written = this.replica.write(&this.shared, this.epoch, offset, &data);
                // Before the answer: the bytes may be a slice of much more, and the caller may want the file closed.
                drop((data, this));
                written.map(|()| Stability::Unstable)
            });
        }
        // On Linux fdatasync(2) covers size and extents, and a replica has no other attributes to speak of.
        let (answer, handle) = self.shared.engine.answer();
        let tell = move |synced: Result<Verifier, PoolError>| {
            let _ = answer.send(synced.map(|_| Stability::FileSync));
        };
        match self.enqueue_through(offset, data, |_| {}, tell) {
            Ok(()) => handle,
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    fn write_through(&self, offset: u64, data: Bytes) -> WriteThrough {
        let (of_written, written) = self.shared.engine.answer();
        let (of_synced, synced) = self.shared.engine.answer();
        let tell_written = move |result: Result<(), PoolError>| {
            let _ = of_written.send(result.map(|()| Stability::Unstable));
        };
        let tell_synced = move |result: Result<Verifier, PoolError>| {
            let _ = of_synced.send(result);
        };
        let begun =
            self.check_write().and_then(|()| self.enqueue_through(offset, data, tell_written, tell_synced));
        match begun {
            Ok(()) => WriteThrough { written, synced },
            Err(error) => WriteThrough {
                written: IoHandle::ready(Err(error.clone())),
                synced: IoHandle::ready(Err(error)),
            },
        }
    }

    fn sync(&self) -> IoHandle<Verifier> {
        let verifier = self.shared.verifier;
        if !self.replica.is_loaded() {
            // Nothing was written, but a broken replica says so.
            let this = self.clone();
            return self.shared.engine.submit(Lane::Data, move || {
                this.replica.load(&this.shared)?;
                this.check_sync().map(|()| verifier)
            });
        }
        if let Err(error) = self.check_sync() {
            return IoHandle::ready(Err(error));
        }
        self.shared.counters.syncs.add(1);
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

    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        Some(self)
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

    fn check_sync(&self) -> Result<(), PoolError> {
        self.check().and_then(|()| self.replica.check_unbroken(&self.shared))
    }

    /// In one thread, for every hand-over costs as much as a small write. A sync is what it waits for, so it goes with
    /// those.
    fn enqueue_through(
        &self,
        offset: u64,
        data: Bytes,
        tell_written: impl FnOnce(Result<(), PoolError>) + Send + 'static,
        tell_synced: impl FnOnce(Result<Verifier, PoolError>) + Send + 'static,
    ) -> Result<(), PoolError> {
        self.shared.counters.writes.add(1);
        self.shared.counters.syncs.add(1);
        let this = self.clone();
        let job = move || {
            let Handle { shared, replica, epoch, .. } = this;
            let written = replica.write(&shared, epoch, offset, &data);
            // As above.
            drop(data);
            tell_written(written.clone());
            let verifier = shared.verifier;
            match written {
                Ok(()) => {
                    shared
                        .settle_here(replica, Box::new(move |synced| tell_synced(synced.map(|()| verifier))));
                }
                Err(error) => {
                    drop(replica);
                    tell_synced(Err(error));
                }
            }
        };
        self.shared.engine.enqueue(Lane::Sync, Box::new(job))
    }

    fn count_read(&self, read: ReadData) -> ReadData {
        self.shared.counters.read_bytes.add(read.data.len() as u64);
        read
    }

    fn finish_read(&self, rest: Unfinished) -> Result<ReadData, PoolError> {
        let file = self.replica.open_file().expect("a read was started on it, and it is never closed");
        let read = rest.finish(file).map_err(|errno| self.shared.failure("read data", errno))?;
        Ok(self.count_read(read))
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
