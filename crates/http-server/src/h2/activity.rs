//! Activity of a connection of many streams, so that an idle connection can be ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

pub(super) struct Activity {
    /// Held for a look. As many entries as there are streams.
    state: Mutex<State>,
}

struct State {
    /// By number: `Some` since when the client could take more of the response and does not.
    requests: HashMap<u64, Option<Instant>>,
    next: u64,
    idle_since: Instant,
}

/// A request, from its head to the end of its response.
pub(super) struct Running {
    activity: Arc<Activity>,
    number: u64,
}

impl Activity {
    pub fn new() -> Arc<Activity> {
        let state = State { requests: HashMap::new(), next: 0, idle_since: Instant::now() };
        Arc::new(Activity { state: Mutex::new(state) })
    }

    /// Ready when there was no request for so long.
    pub async fn idle(&self, limit: Duration) {
        loop {
            let deadline = {
                let state = self.state.lock();
                let since = if state.requests.is_empty() { state.idle_since } else { Instant::now() };
                since + limit
            };
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }

    /// Ready when a client took nothing of some response for so long.
    pub async fn stalled(&self, limit: Duration) {
        loop {
            let oldest = self.state.lock().requests.values().filter_map(|waiting| *waiting).min();
            let deadline = oldest.unwrap_or_else(Instant::now) + limit;
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }
}

impl Running {
    pub fn new(activity: Arc<Activity>) -> Running {
        let number = {
            let mut state = activity.state.lock();
            state.next += 1;
            let number = state.next;
            state.requests.insert(number, None);
            number
        };
        Running { activity, number }
    }

    /// The client has the word now, or we have.
    pub fn waits_for_client(&self, waits: bool) {
        self.activity.state.lock().requests.insert(self.number, waits.then(Instant::now));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.activity.state.lock();
        state.requests.remove(&self.number);
        state.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_requests() {
        let activity = Activity::new();
        let running = Running::new(Arc::clone(&activity));
        assert!(tokio::time::timeout(LIMIT * 3, activity.idle(LIMIT)).await.is_err());
        let start = Instant::now();
        drop(running);
        activity.idle(LIMIT).await;
        assert!(start.elapsed() >= LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_handler_is_no_stalled_client() {
        let activity = Activity::new();
        let running = Running::new(Arc::clone(&activity));
        assert!(tokio::time::timeout(LIMIT * 3, activity.stalled(LIMIT)).await.is_err());
        running.waits_for_client(true);
        activity.stalled(LIMIT).await;
    }
}
