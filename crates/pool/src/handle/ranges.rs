//! Range operations of a ticket's holder on a replica.

use api::{Advice, IoHandle, PoolError, RangeKind, ReplicaRanges, Source, Stretch};
use io_engine::Work;
use types::ByteRange;

use super::Handle;

impl ReplicaRanges for Handle {
    fn allocate(&self, range: ByteRange) -> IoHandle<()> {
        self.change(Work::Allocate, move |this| this.replica.allocate(&this.shared, this.claim, range))
    }

    fn deallocate(&self, range: ByteRange) -> IoHandle<()> {
        self.change(Work::Deallocate, move |this| this.replica.deallocate(&this.shared, this.claim, range))
    }

    fn extend(&self, length: u64) -> IoHandle<()> {
        self.change(Work::Extend, move |this| this.replica.extend(&this.shared, this.claim, length))
    }

    fn seek(&self, offset: u64, kind: RangeKind) -> IoHandle<Option<u64>> {
        self.look(Work::Seek, move |this| this.replica.seek(&this.shared, offset, kind))
    }

    fn copy_from(&self, source: Source, stretch: Stretch) -> IoHandle<u64> {
        if stretch.length == 0 {
            return IoHandle::ready(Ok(0));
        }
        self.change(Work::Copy, move |this| {
            let source = this.replicas.source_to_copy(source)?;
            this.replica.check_change(&this.shared, this.claim)?;
            source.replica.compare_to_copy(&this.shared, stretch)?;
            this.replica.copy_from(&this.shared, this.claim, &source, stretch)
        })
    }

    fn share_from(&self, source: Source, stretch: Stretch) -> IoHandle<bool> {
        self.change(Work::Share, move |this| {
            let source = this.replicas.source_to_copy(source)?;
            // Blocks are shared past the replica.
            source.replica.flush(&this.shared)?;
            this.replica.share_from(&this.shared, this.claim, &source.file, stretch)
        })
    }

    fn advise(&self, range: ByteRange, advice: Advice) -> IoHandle<()> {
        self.look(Work::Advise, move |this| this.replica.advise(&this.shared, range, advice))
    }
}

impl Handle {
    fn change<T: Send + 'static>(
        &self,
        work: Work,
        change: impl FnOnce(&Handle) -> Result<T, PoolError> + Send + 'static,
    ) -> IoHandle<T> {
        if let Err(error) = self.check_write() {
            return IoHandle::ready(Err(error));
        }
        self.shared.counters.writes.add(1);
        let this = self.clone();
        self.shared.engine.run(work, move || change(&this))
    }

    fn look<T: Send + 'static>(
        &self,
        work: Work,
        look: impl FnOnce(&Handle) -> Result<T, PoolError> + Send + 'static,
    ) -> IoHandle<T> {
        if let Err(error) = self.check() {
            return IoHandle::ready(Err(error));
        }
        let this = self.clone();
        self.shared.engine.run(work, move || {
            this.replica.file().load(&this.shared)?;
            this.check()?;
            look(&this)
        })
    }
}
