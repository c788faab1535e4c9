//! A replica of given bytes, for doors and connections that only read.

use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::{IoHandle, LocalRange, OpenReplica, PoolError, ReadData, Stability, Verifier};
use bytes::{Bytes, BytesMut};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use types::{ByteRange, PoolId};

pub struct FixedReplica {
    content: Content,
    is_mostly_resident: bool,
    reads: AtomicU64,
    resident_reads: AtomicU64,
    sent_bytes: Arc<AtomicU64>,
}

enum Content {
    Memory(Bytes),
    /// Lent for sending.
    File(Arc<OwnedFd>),
}

impl FixedReplica {
    pub fn of(data: impl Into<Bytes>) -> FixedReplica {
        FixedReplica::with(Content::Memory(data.into()))
    }

    /// The bytes of a file, which is lent for sending.
    pub fn of_file(file: File) -> FixedReplica {
        FixedReplica::with(Content::File(Arc::new(file.into())))
    }

    /// The same of a scratch file that has these bytes.
    pub fn in_file(data: &[u8]) -> FixedReplica {
        let mut file = tempfile::tempfile().expect("there is room for a scratch file");
        file.write_all(data).expect("there is room for its bytes");
        FixedReplica::of_file(file)
    }

    /// Memory has the bytes of two reads in three: of those whose offset is no multiple of 3.
    pub fn mostly_resident(self) -> FixedReplica {
        FixedReplica { is_mostly_resident: true, ..self }
    }

    /// Reads so far, with those that memory was asked for.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Reads of which memory had all bytes.
    pub fn resident_reads(&self) -> u64 {
        self.resident_reads.load(Ordering::Relaxed)
    }

    /// Bytes that were sent by way of the file.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }

    fn with(content: Content) -> FixedReplica {
        FixedReplica {
            content,
            is_mostly_resident: false,
            reads: AtomicU64::new(0),
            resident_reads: AtomicU64::new(0),
            sent_bytes: Arc::default(),
        }
    }

    fn read(&self, offset: u64, length: usize) -> Result<ReadData, Errno> {
        match &self.content {
            Content::Memory(data) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
                let end = start.saturating_add(length).min(data.len());
                Ok(ReadData { data: data.slice(start..end), end_of_file: end == data.len() })
            }
            Content::File(file) => {
                let mut data = vec![0; length];
                let mut slices = [IoSliceMut::new(&mut data)];
                let read = preadv2(file, &mut slices, offset, ReadWriteFlags::empty())?;
                data.truncate(read);
                Ok(ReadData { data: Bytes::from(data), end_of_file: read < length })
            }
        }
    }
}

impl OpenReplica for FixedReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let read = self.read(offset, length as usize);
        let failed = |errno: Errno| PoolError::Io {
            pool: PoolId(0),
            operation: "read data",
            reason: errno.to_string(),
        };
        IoHandle::ready(read.map_err(failed))
    }

    fn read_resident(&self, offset: u64, length: u32, into: &mut BytesMut) -> bool {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if !self.is_mostly_resident || offset.is_multiple_of(3) {
            return false;
        }
        let found = self.read(offset, length as usize);
        let Some(found) = found.ok().filter(|found| found.data.len() == length as usize) else {
            return false;
        };
        into.extend_from_slice(&found.data);
        self.resident_reads.fetch_add(1, Ordering::Relaxed);
        true
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

    fn local_range(&self, range: ByteRange) -> Option<Arc<dyn LocalRange>> {
        match &self.content {
            Content::Memory(_) => None,
            Content::File(file) => Some(Arc::new(FixedRange {
                file: Arc::clone(file),
                offset: range.offset(),
                sent_bytes: Arc::clone(&self.sent_bytes),
            })),
        }
    }
}

struct FixedRange {
    file: Arc<OwnedFd>,
    offset: u64,
    sent_bytes: Arc<AtomicU64>,
}

impl LocalRange for FixedRange {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn offset(&self) -> u64 {
        self.offset
    }

    fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
