//! State that all connections of a listener share.

use std::sync::Arc;

use splice::Pipes;
use tokio::sync::Semaphore;

use crate::admission::Admission;
use crate::budget::Budget;
use crate::clock::DateClock;
use crate::intake::Intake;
use crate::{ExchangeLog, Limits, Service};

pub(crate) struct ListenerState {
    pub service: Arc<dyn Service>,
    pub exchange_log: Option<Arc<dyn ExchangeLog>>,
    pub limits: Limits,
    pub intake: Arc<Intake>,
    /// For responses on their way.
    pub budget: Arc<Budget>,
    /// For large heads, bodies that are collected, and large parts of others.
    pub requests: Arc<Budget>,
    /// For answers that their handlers make in memory: see [`crate::Memory`].
    pub documents: Arc<Budget>,
    /// For what streams are themselves: however many, they leave room for data.
    pub streams: Arc<Budget>,
    /// For bodies that HTTP/2 has received and no handler has read.
    pub windows: Arc<Budget>,
    pub h2_connections: Arc<Admission>,
    pub file_senders: Arc<Semaphore>,
    /// Of files on their way to plain connections.
    pub pipes: Arc<Pipes>,
    pub clock: DateClock,
}

impl ListenerState {
    pub fn new(service: Arc<dyn Service>, limits: Limits) -> Arc<ListenerState> {
        Arc::new(ListenerState {
            exchange_log: service.exchange_log(),
            service,
            limits,
            intake: Intake::new(limits),
            budget: Budget::new(limits.memory_bytes_max, limits.connection_bytes_max),
            requests: Budget::new(limits.memory_bytes_max / 2, limits.connection_bytes_max),
            documents: Budget::new(limits.memory_bytes_max / 2, limits.connection_bytes_max),
            streams: Budget::new(limits.memory_bytes_max / 4, limits.connection_bytes_max),
            windows: Budget::new(limits.memory_bytes_max / 2, limits.connection_bytes_max),
            h2_connections: Admission::new(limits.h2_connections_max),
            file_senders: Arc::new(Semaphore::new(limits.file_senders_max)),
            pipes: Pipes::new(limits.pipes_max),
            clock: DateClock::default(),
        })
    }
}
