//! An open replica whose calls meet the faults of a schedule.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use api::{
    Advice, IoHandle, OpenReplica, PoolError, RangeKind, ReadData, ReplicaRanges, Source, Stability, Stretch,
    Verifier,
};
use bytes::Bytes;
use futures_channel::oneshot;
use types::ByteRange;

use super::request::Request;
use super::schedule::{Passage, Schedule};

pub struct FaultyReplica {
    replica: Arc<dyn OpenReplica>,
    schedule: Schedule,
}

impl FaultyReplica {
    pub fn new(replica: Arc<dyn OpenReplica>, schedule: &Schedule) -> FaultyReplica {
        FaultyReplica { replica, schedule: schedule.clone() }
    }

    fn pass<T: Send + Unpin + 'static>(
        &self,
        request: Request,
        call: impl FnOnce(&dyn OpenReplica) -> IoHandle<T> + Send + 'static,
    ) -> IoHandle<T> {
        match self.schedule.begin(request) {
            Ok(passage) => self.go(passage, call),
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    fn go<T: Send + Unpin + 'static>(
        &self,
        passage: Passage,
        call: impl FnOnce(&dyn OpenReplica) -> IoHandle<T> + Send + 'static,
    ) -> IoHandle<T> {
        let (gate, finish): (_, Box<dyn FnOnce() -> Result<T, PoolError> + Send>) = match passage {
            Passage::Free => return call(&*self.replica),
            Passage::Unanswered(error) => {
                // Made before the caller hears of it, whatever came of it.
                let _ = wait_for(call(&*self.replica));
                return IoHandle::ready(Err(error));
            }
            Passage::Torn { error, .. } => return IoHandle::ready(Err(error)),
            Passage::Delayed(gate) => {
                let replica = Arc::clone(&self.replica);
                (gate, Box::new(move || wait_for(call(&*replica))))
            }
            Passage::AnsweredLate(gate) => {
                let answer = call(&*self.replica);
                (gate, Box::new(move || wait_for(answer)))
            }
        };
        let (done, answer) = oneshot::channel();
        // The caller may have given up.
        gate.enter(move || _ = done.send(finish()));
        IoHandle::waiting(answer, self.schedule.offline())
    }

    fn pass_range<T: Send + Unpin + 'static>(
        &self,
        call: impl FnOnce(&dyn ReplicaRanges) -> IoHandle<T> + Send + 'static,
    ) -> IoHandle<T> {
        self.pass(Request::Range, move |replica| {
            call(replica.ranges().expect("the replica had ranges when the caller asked for them"))
        })
    }
}

impl OpenReplica for FaultyReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        let request = Request::Read { offset, length: length.into() };
        self.pass(request, move |replica| replica.read_at(offset, length))
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        match self.schedule.begin(Request::Write { offset, length: data.len() as u64 }) {
            Ok(Passage::Torn { bytes, error }) => {
                let torn = data.slice(..bytes.min(data.len()));
                let written = wait_for(self.replica.write_at(offset, torn, Stability::Unstable));
                IoHandle::ready(written.and(Err(error)))
            }
            Ok(passage) => self.go(passage, move |replica| replica.write_at(offset, data, stability)),
            Err(error) => IoHandle::ready(Err(error)),
        }
    }

    fn sync(&self) -> IoHandle<Verifier> {
        self.pass(Request::Sync, |replica| replica.sync())
    }

    fn verifier(&self) -> Verifier {
        self.replica.verifier()
    }

    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        self.replica.ranges().map(|_| self as &dyn ReplicaRanges)
    }
}

impl ReplicaRanges for FaultyReplica {
    fn allocate(&self, range: ByteRange) -> IoHandle<()> {
        self.pass_range(move |ranges| ranges.allocate(range))
    }

    fn deallocate(&self, range: ByteRange) -> IoHandle<()> {
        self.pass_range(move |ranges| ranges.deallocate(range))
    }

    fn extend(&self, length: u64) -> IoHandle<()> {
        self.pass_range(move |ranges| ranges.extend(length))
    }

    fn seek(&self, offset: u64, kind: RangeKind) -> IoHandle<Option<u64>> {
        self.pass_range(move |ranges| ranges.seek(offset, kind))
    }

    fn copy_from(&self, source: Source, stretch: Stretch) -> IoHandle<u64> {
        self.pass_range(move |ranges| ranges.copy_from(source, stretch))
    }

    fn share_from(&self, source: Source, stretch: Stretch) -> IoHandle<bool> {
        self.pass_range(move |ranges| ranges.share_from(source, stretch))
    }

    fn advise(&self, range: ByteRange, advice: Advice) -> IoHandle<()> {
        self.pass_range(move |ranges| ranges.advise(range, advice))
    }
}

/// The answer to an I/O, waited for on this thread: a gate is opened by code that need not be async.
fn wait_for<T: Unpin>(mut handle: IoHandle<T>) -> Result<T, PoolError> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match Pin::new(&mut handle).poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
