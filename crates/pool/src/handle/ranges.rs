//! What a ticket's holder may do with ranges of a replica.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use api::{Advice, Content, IoHandle, PoolError, ReplicaRanges, Stretch};
use io_engine::Lane;
use types::ByteRange;

use super::Handle;

impl ReplicaRanges for Handle {
    /// Finding blocks takes as long as it takes, so it goes with what is long.
    fn allocate(&self, range: ByteRange) -> IoHandle<()> {
        self.change(Lane::Sync, move |this| this.replica.allocate(&this.shared, this.epoch, range))
    }

    fn deallocate(&self, range: ByteRange) -> IoHandle<()> {
        self.change(Lane::Sync, move |this| this.replica.deallocate(&this.shared, this.epoch, range))
    }

    fn seek(&self, offset: u64, content: Content) -> IoHandle<Option<u64>> {
        self.look(move |this| this.replica.seek(&this.shared, offset, content))
    }

    fn copy_from(&self, source: Arc<OwnedFd>, stretch: Stretch) -> IoHandle<u64> {
        if stretch.length == 0 {
            return IoHandle::ready(Ok(0));
        }
        self.change(Lane::Data, move |this| {
            this.replica.copy_from(&this.shared, this.epoch, &source, stretch)
        })
    }

    /// The source's unwritten pages go to the disk first.
    fn share_from(&self, source: Arc<OwnedFd>, stretch: Stretch) -> IoHandle<bool> {
        self.change(Lane::Sync, move |this| {
            this.replica.share_from(&this.shared, this.epoch, &source, stretch)
        })
    }

    fn advise(&self, range: ByteRange, advice: Advice) -> IoHandle<()> {
        self.look(move |this| this.replica.advise(&this.shared, range, advice))
    }
}

impl Handle {
    fn change<T: Send + 'static>(
        &self,
        lane: Lane,
        change: impl FnOnce(&Handle) -> Result<T, PoolError> + Send + 'static,
    ) -> IoHandle<T> {
        if let Err(error) = self.check_write() {
            return IoHandle::ready(Err(error));
        }
        self.shared.counters.writes.add(1);
        let this = self.clone();
        self.shared.engine.submit(lane, move || change(&this))
    }

    fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Handle) -> Result<T, PoolError> + Send + 'static,
    ) -> IoHandle<T> {
        if let Err(error) = self.check() {
            return IoHandle::ready(Err(error));
        }
        let this = self.clone();
        self.shared.engine.submit(Lane::Data, move || {
            this.replica.load(&this.shared)?;
            this.check()?;
            look(&this)
        })
    }
}
