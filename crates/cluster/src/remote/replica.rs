//! A replica that is open at a pool on another host.

use std::sync::Arc;

use api::{
    Advice, IoHandle, OpenReplica, PoolError, RangeKind, ReadData, ReplicaRanges, Source, Stability, Stretch,
    Ticket, Verifier,
};
use bytes::Bytes;
use types::ByteRange;
use xdr::{Opaque, Xdr};

use super::links::{Lane, Links};
use crate::rpc::IO_BYTES_MAX;
use crate::wire::{self, On, Opened, Reply, procedure};

pub(super) struct RemoteReplica {
    links: Arc<Links>,
    ticket: Ticket,
    /// Of the pool when it was opened: what was written since is lost if a later sync tells another.
    verifier: Verifier,
    has_ranges: bool,
}

impl RemoteReplica {
    pub fn new(links: Arc<Links>, ticket: Ticket, opened: &Opened) -> RemoteReplica {
        RemoteReplica { links, ticket, verifier: Verifier(opened.verifier), has_ranges: opened.has_ranges }
    }

    fn start<A: Xdr, W: Xdr + 'static, T: Send + 'static>(
        &self,
        procedure: u32,
        what: A,
        repeats: bool,
        understand: impl FnOnce(W) -> Result<T, PoolError> + Send + 'static,
    ) -> IoHandle<T> {
        let pool = self.links.pool();
        let arguments = On { ticket: wire::Ticket(self.ticket), what };
        let understand = move |reply: Reply<W>| reply.into_result(pool).and_then(understand);
        self.links.start(Lane::Data(self.ticket.file), procedure, &arguments, repeats, understand)
    }

    /// A change, which is not made twice: between the two another one may have been made.
    fn change<A: Xdr, W: Xdr + Send + 'static>(&self, procedure: u32, what: A) -> IoHandle<W> {
        self.start(procedure, what, false, Ok)
    }
}

impl OpenReplica for RemoteReplica {
    /// At most [`IO_BYTES_MAX`].
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        let length = length.min(IO_BYTES_MAX as u32);
        let pool = self.links.pool();
        self.start(procedure::READ, wire::Read { offset, length }, true, move |bytes: wire::Bytes| {
            if bytes.data.len() > length as usize {
                return Err(PoolError::Unknown(pool));
            }
            Ok(ReadData { data: bytes.data.into_bytes(), end_of_file: bytes.end_of_file })
        })
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        if data.len() > IO_BYTES_MAX {
            let reason = format!("{} bytes are too many for one message", data.len());
            let pool = self.links.pool();
            return IoHandle::ready(Err(PoolError::Io { pool, operation: "write data", reason }));
        }
        let write = wire::Write { offset, stability: wire::Stability(stability), data: Opaque(data) };
        self.start(procedure::WRITE, write, false, |stability: wire::Stability| Ok(stability.0))
    }

    fn sync(&self) -> IoHandle<Verifier> {
        self.start(procedure::SYNC, (), true, |verifier| Ok(Verifier(verifier)))
    }

    fn verifier(&self) -> Verifier {
        self.verifier
    }

    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        self.has_ranges.then_some(self as &dyn ReplicaRanges)
    }
}

impl ReplicaRanges for RemoteReplica {
    fn allocate(&self, range: ByteRange) -> IoHandle<()> {
        self.change(procedure::ALLOCATE, wire::Range(range))
    }

    fn deallocate(&self, range: ByteRange) -> IoHandle<()> {
        self.change(procedure::DEALLOCATE, wire::Range(range))
    }

    fn extend(&self, length: u64) -> IoHandle<()> {
        self.change(procedure::EXTEND, length)
    }

    fn seek(&self, offset: u64, kind: RangeKind) -> IoHandle<Option<u64>> {
        let seek = wire::Seek { offset, is_data: kind == RangeKind::Data };
        self.start(procedure::SEEK, seek, true, Ok)
    }

    fn copy_from(&self, source: Source, stretch: Stretch) -> IoHandle<u64> {
        let pool = self.links.pool();
        let copy = wire::Copy { source: wire::Source(source), stretch: wire::Stretch(stretch) };
        self.start(procedure::COPY, copy, false, move |copied: u64| {
            if copied > stretch.length { Err(PoolError::Unknown(pool)) } else { Ok(copied) }
        })
    }

    fn share_from(&self, source: Source, stretch: Stretch) -> IoHandle<bool> {
        let copy = wire::Copy { source: wire::Source(source), stretch: wire::Stretch(stretch) };
        self.change(procedure::SHARE, copy)
    }

    fn advise(&self, range: ByteRange, advice: Advice) -> IoHandle<()> {
        let advise = wire::Advise { range: wire::Range(range), is_needed: advice == Advice::WillNeed };
        self.change(procedure::ADVISE, advise)
    }
}
