//! A replica that is open at the other end of the channel.

use std::sync::Arc;

use api::{
    Advice, IoHandle, OpenReplica, RangeKind, ReadData, ReplicaRanges, Source, Stability, Stretch, Verifier,
};
use bytes::Bytes;
use types::ByteRange;
use xdr::{Opaque, Xdr};

use super::link::Link;
use super::wire::{self, Call, Op, Reply};

pub(super) struct ChannelReplica {
    pub link: Arc<Link>,
    pub replica: u64,
    pub verifier: Verifier,
    pub has_ranges: bool,
}

impl ChannelReplica {
    fn start<W: Xdr + 'static, T: Send + 'static>(
        &self,
        op: Op,
        understand: impl FnOnce(W) -> T + Send + 'static,
    ) -> IoHandle<T> {
        let call = Call::Io { replica: self.replica, op };
        self.link.start(call, move |reply: Reply<W>| reply.into_result().map(understand))
    }
}

impl Drop for ChannelReplica {
    fn drop(&mut self) {
        self.link.close(self.replica);
    }
}

impl OpenReplica for ChannelReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        self.start(Op::Read { offset, length }, |(data, end_of_file): (Opaque, bool)| ReadData {
            data: data.into_bytes(),
            end_of_file,
        })
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        let stability = wire::Stability::of(stability);
        self.start(Op::Write { offset, data: Opaque(data), stability }, wire::Stability::into_stability)
    }

    fn sync(&self) -> IoHandle<Verifier> {
        self.start(Op::Sync, Verifier)
    }

    fn verifier(&self) -> Verifier {
        self.verifier
    }

    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        self.has_ranges.then_some(self as &dyn ReplicaRanges)
    }
}

impl ReplicaRanges for ChannelReplica {
    fn allocate(&self, range: ByteRange) -> IoHandle<()> {
        self.start(Op::Allocate(wire::Range::of(range)), |()| ())
    }

    fn deallocate(&self, range: ByteRange) -> IoHandle<()> {
        self.start(Op::Deallocate(wire::Range::of(range)), |()| ())
    }

    fn extend(&self, length: u64) -> IoHandle<()> {
        self.start(Op::Extend(length), |()| ())
    }

    fn seek(&self, offset: u64, kind: RangeKind) -> IoHandle<Option<u64>> {
        self.start(Op::Seek { offset, is_data: kind == RangeKind::Data }, |found: Option<u64>| found)
    }

    fn copy_from(&self, source: Source, stretch: Stretch) -> IoHandle<u64> {
        let (source, stretch) = (wire::Source::of(source), wire::Stretch::of(stretch));
        self.start(Op::Copy { source, stretch }, |copied: u64| copied)
    }

    fn share_from(&self, source: Source, stretch: Stretch) -> IoHandle<bool> {
        let (source, stretch) = (wire::Source::of(source), wire::Stretch::of(stretch));
        self.start(Op::Share { source, stretch }, |is_shared: bool| is_shared)
    }

    fn advise(&self, range: ByteRange, advice: Advice) -> IoHandle<()> {
        let is_needed = advice == Advice::WillNeed;
        self.start(Op::Advise { range: wire::Range::of(range), is_needed }, |()| ())
    }
}
