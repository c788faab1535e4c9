//! The last group whose changes the cache holds.

use std::time::Duration;

use tokio::sync::watch;

/// A group is published within microseconds of being visible in the database; longer means the committer died.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

pub struct Published {
    sequence: watch::Sender<u64>,
}

impl Published {
    pub fn new(sequence: u64) -> Published {
        Published { sequence: watch::Sender::new(sequence) }
    }

    pub fn note(&self, sequence: u64) {
        self.sequence.send_replace(sequence);
    }

    /// Waits until all that a snapshot of group `sequence` shows is published, so that no two readers disagree.
    pub async fn wait_for(&self, sequence: u64) -> bool {
        if *self.sequence.borrow() >= sequence {
            return true;
        }
        let mut published = self.sequence.subscribe();
        let waited = tokio::time::timeout(PUBLISH_TIMEOUT, published.wait_for(|known| *known >= sequence));
        matches!(waited.await, Ok(Ok(_)))
    }
}
