//! The data path: what a ticket's holder may do with a replica.

mod ranges;
mod recorded;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use crate::gathering::Gathering;
use crate::parts::PoolParts;
use crate::replica::{Claim, KnownLength, Replica};
use crate::replicas::Replicas;
use api::{
    IoHandle, LocalRange, OpenReplica, PoolError, ReadData, ReplicaRanges, Stability, TicketMode, Verifier,
    WriteThrough,
};
use bytes::{Bytes, BytesMut};
use io_engine::{FileIo, Readable, SyncGate, Syncable, Work, Writable};
use types::ByteRange;

#[derive(Clone)]
pub struct Handle {
    pub shared: Arc<PoolParts>,
    pub replicas: Arc<Replicas>,
    pub replica: Arc<Replica>,
    pub claim: Claim,
    pub mode: TicketMode,
}

impl OpenReplica for Handle {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        if self.replica.needs_gathered(offset, length.into()) {
            return self.read_gathered(offset, length);
        }
        self.shared.engine.read(self, offset, length)
    }

    fn read_resident(&self, offset: u64, length: u32, into: &mut BytesMut) -> bool {
        let is_open = self.check().is_ok() && self.replica.file().open().is_some();
        if !is_open
            || !self.is_loaded(length)
            || self.replica.needs_gathered(offset, length.into())
            || !self.shared.engine.read_resident(self, offset, length as usize, into)
        {
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
        if stability != Stability::Unstable {
            self.shared.counters.syncs.add(1);
            if self.shared.journal.takes(data.len()) {
                return self.write_recorded(offset, data);
            }
        }
        self.shared.engine.write(self.clone(), offset, data, stability)
    }

    fn write_through(&self, offset: u64, data: Bytes) -> WriteThrough {
        if let Err(error) = self.check_write() {
            return WriteThrough::refused(error);
        }
        self.shared.counters.writes.add(1);
        self.shared.counters.syncs.add(1);
        if self.shared.journal.takes(data.len()) {
            return self.write_through_recorded(offset, data);
        }
        self.shared.engine.write_through(self.clone(), offset, data)
    }

    fn sync(&self) -> IoHandle<Verifier> {
        let verifier = self.shared.verifier;
        if !self.replica.file().is_loaded() {
            // Nothing was written, but a broken replica says so.
            let this = self.clone();
            return self.shared.engine.run(Work::Open, move || {
                this.replica.file().load(&this.shared)?;
                this.check_sync().map(|()| verifier)
            });
        }
        if let Err(error) = self.check_sync() {
            return IoHandle::ready(Err(error));
        }
        self.shared.counters.syncs.add(1);
        if self.replica.is_stable() {
            // Nothing was written past the journal since the pool was opened; what an earlier process wrote, the verifier tells of.
            return IoHandle::ready(Ok(verifier));
        }
        if self.replica.is_to_record(&self.shared) {
            return self.commit_recorded();
        }
        self.shared.engine.sync(self)
    }

    fn verifier(&self) -> Verifier {
        self.shared.verifier
    }

    fn local_range(&self, range: ByteRange) -> Option<Arc<dyn LocalRange>> {
        self.check().ok()?;
        if self.replica.needs_gathered(range.offset(), range.length()) {
            return None;
        }
        let file = self.replica.file().descriptors().lend()?;
        if !self.shared.engine.path().suits_page_cache(file.as_fd(), self.replica.io(), range) {
            return None;
        }
        // The caller that sends from it cannot tell lost bytes from a hole.
        self.replica.file().check_whole(&self.shared).ok()?;
        let (shared, replica) = (Arc::clone(&self.shared), Arc::clone(&self.replica));
        Some(Arc::new(LentRange { shared, replica, file, offset: range.offset() }))
    }

    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        Some(self)
    }
}

/// Bytes of a replica's file, which is not closed meanwhile.
struct LentRange {
    shared: Arc<PoolParts>,
    replica: Arc<Replica>,
    file: Arc<OwnedFd>,
    offset: u64,
}

impl LocalRange for LentRange {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn sent(&self, bytes: u64) {
        self.shared.counters.reads.add(1);
        self.shared.counters.read_bytes.add(bytes);
        self.shared.engine.path().note_sent(self.replica.io(), bytes);
    }
}

impl Handle {
    /// A removed replica that is open goes on until it is let go, as POSIX has it; one without a file is just gone.
    fn check(&self) -> Result<(), PoolError> {
        self.shared.check_open()?;
        self.replica.file().record().check_claim(&self.shared, self.claim)?;
        if self.replica.file().is_removed() && self.replica.file().open().is_none() {
            return Err(PoolError::NoReplica(self.shared.id()));
        }
        Ok(())
    }

    fn check_write(&self) -> Result<(), PoolError> {
        match self.mode {
            TicketMode::Read => Err(PoolError::ReadOnlyTicket),
            TicketMode::ReadWrite => {
                self.shared.check_changeable()?;
                self.check()
            }
        }
    }

    /// In a thread, for part of it is not in the file.
    fn read_gathered(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        if let Err(error) = self.check() {
            return IoHandle::ready(Err(error));
        }
        self.shared.counters.reads.add(1);
        let this = self.clone();
        let read = move || this.replica.read_gathered(&this.shared, offset, length);
        self.shared.engine.run(Work::Read, read)
    }

    /// Of a replica that was looked for.
    fn check_sync(&self) -> Result<(), PoolError> {
        self.check()?;
        self.replica.file().check_unbroken(&self.shared)?;
        self.replica.file().check_present(&self.shared, self.claim)
    }
}

impl Readable for Handle {
    type KnownBefore = KnownLength;

    fn is_loaded(&self, length: u32) -> bool {
        self.replica.file().is_loaded() && !self.replica.needs_sums(&self.shared, length.into())
    }

    fn load(&self, length: u32) -> Result<(), PoolError> {
        self.replica.file().load(&self.shared)?;
        if self.replica.needs_sums(&self.shared, length.into()) {
            self.replica.load_sums(&self.shared);
        }
        Ok(())
    }

    fn known(&self) -> KnownLength {
        self.replica.file().record().known_length()
    }

    fn open(&self) -> Result<Option<BorrowedFd<'_>>, PoolError> {
        self.check()?;
        self.shared.counters.reads.add(1);
        let fault = self.shared.store.faults.of_read(self.replica.id());
        fault.map_err(|errno| self.shared.failure("read data", errno))?;
        let file = self.replica.file().open();
        if file.is_none() {
            self.replica.file().check_present(&self.shared, self.claim)?;
        }
        Ok(file)
    }

    fn opened(&self) -> BorrowedFd<'_> {
        self.replica.file().open().expect("a read was started on it, and it is never closed")
    }

    fn io(&self) -> &FileIo {
        self.replica.io()
    }

    fn agrees(&self, data: &[u8], offset: u64) -> bool {
        self.replica.agrees(&self.shared, data, offset)
    }

    fn reread(&self, read: ReadData, offset: u64) -> Result<ReadData, PoolError> {
        self.replica.reread(&self.shared, read, offset)
    }

    /// `known` from before the read: a file that ends sooner has lost something.
    fn judge(&self, read: ReadData, offset: u64, known: KnownLength) -> Result<ReadData, PoolError> {
        let bytes = read.data.len() as u64;
        if read.end_of_file {
            self.replica.file().record().check_end(&self.shared, known, offset.saturating_add(bytes))?;
        }
        self.shared.counters.read_bytes.add(bytes);
        Ok(read)
    }
}

impl Syncable for Handle {
    fn gate(&self) -> &SyncGate {
        self.replica.unsynced().gate()
    }

    fn sync(&self) -> Result<(), PoolError> {
        self.replica.settle(&self.shared)
    }

    fn verifier(&self) -> Verifier {
        self.shared.verifier
    }
}

impl Writable for Handle {
    fn write(&self, offset: u64, data: &[u8], stability: Stability) -> Result<(), PoolError> {
        let written = self.replica.write(&self.shared, self.claim, offset, data, stability);
        if self.shared.gathering.is_full() {
            Gathering::flush_due(&self.shared);
        }
        written
    }
}
