//! What all connections of a listener share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::buffers::Buffers;
use crate::clock::DateClock;
use crate::{Limits, Service};

pub(crate) struct Shared {
    pub service: Arc<dyn Service>,
    pub limits: Limits,
    pub buffers: Arc<Buffers>,
    pub file_senders: Semaphore,
    pub clock: DateClock,
}

impl Shared {
    pub fn new(service: Arc<dyn Service>, limits: Limits) -> Arc<Shared> {
        Arc::new(Shared {
            service,
            limits,
            buffers: Buffers::new(limits.buffers_bytes_max),
            file_senders: Semaphore::new(limits.file_senders_max),
            clock: DateClock::default(),
        })
    }
}
