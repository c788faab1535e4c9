//! Waiting for changes whose answers nobody waited for.

use std::time::Duration;

use api::NamespaceError;

use crate::Files;

/// A namespace that has too much to do is asked again, so often at most.
const ASKED_MAX: usize = 100;
const ASKED_AGAIN: Duration = Duration::from_millis(50);

impl Files {
    /// Behind this all that was asked of the namespace before can be seen.
    pub async fn all_seen(&self) {
        let locations = &self.services.locations;
        let mut seen = locations.forget(&[]).await;
        for _ in 0..ASKED_MAX {
            let Err(NamespaceError::Busy) = seen else { break };
            tokio::time::sleep(ASKED_AGAIN).await;
            seen = locations.forget(&[]).await;
        }
        if let Err(error) = seen {
            tracing::debug!(%error, "changes were given up while the namespace takes no more");
        }
    }
}
