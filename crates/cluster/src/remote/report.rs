//! A pool on another host as operators see it.

use std::time::Duration;

use super::RemotePool;
use cluster_state::Standing;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteReport {
    pub standing: Standing,
    /// Since the pool was heard last, or since it is known here if it never was.
    pub silence: Duration,
    /// As the head counts it. Zero: it is over.
    pub lease_left: Duration,
    /// Files of which the pool has not confirmed a fence.
    pub missed_fences: usize,
    /// Of the session, the control connection included.
    pub connections: usize,
    /// Times that it has connected again since it is known here.
    pub reconnects: u64,
}

impl RemotePool {
    pub fn report(&self) -> RemoteReport {
        let (now, connections) = (self.clock.monotonic(), self.links.connections());
        let state = self.state.lock();
        let heard = state.rules.lease().heard().unwrap_or(state.known_since);
        RemoteReport {
            standing: state.rules.standing(now),
            silence: now.saturating_sub(heard),
            lease_left: state.rules.lease().until().saturating_sub(now),
            missed_fences: state.rules.lease().missed_count(),
            connections,
            reconnects: state.sessions.saturating_sub(1),
        }
    }
}
