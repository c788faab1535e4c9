//! The exports in force: the configured directories that exist; missing ones are looked up again while the server runs.
//! Others can be configured meanwhile.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::Namespace;
use parking_lot::RwLock;

use super::found::FoundExports;
use super::resolve::{Configured, ExportError};
use super::rules::Export;
use super::view::View;

pub(crate) struct ExportTable {
    /// Held while the directories are looked up: two look-ups at once would leave either's result.
    configured: tokio::sync::Mutex<Vec<Configured>>,
    /// Leaf lock.
    found: RwLock<Arc<FoundExports>>,
    version: AtomicU64,
}

impl ExportTable {
    /// A missing path is logged, and its clients find no such name until it exists.
    pub async fn new(namespace: &dyn Namespace, exports: &[Export]) -> Result<ExportTable, ExportError> {
        let configured = Configured::gather(exports)?;
        let (found, errors) = FoundExports::look_up(namespace, &configured, &FoundExports::default()).await;
        allow_missing(errors)?;
        Ok(ExportTable {
            configured: tokio::sync::Mutex::new(configured),
            found: RwLock::new(Arc::new(found)),
            version: AtomicU64::new(0),
        })
    }

    /// Puts these in the place of all exports. After an error those of before stay.
    pub async fn replace(&self, namespace: &dyn Namespace, exports: &[Export]) -> Result<(), ExportError> {
        let fresh = Configured::gather(exports)?;
        let mut configured = self.configured.lock().await;
        let (found, errors) = FoundExports::look_up(namespace, &fresh, &self.found()).await;
        allow_missing(errors)?;
        *configured = fresh;
        *self.found.write() = Arc::new(found);
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The view of a client; `None`: it sees nothing at all.
    pub fn view(&self, peer: IpAddr) -> Option<Arc<View>> {
        self.found().view(peer)
    }

    /// Changes as soon as clients may see something else.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Looks for directories that were created, removed or made anew since.
    pub async fn look_again(&self, namespace: &dyn Namespace) {
        let configured = self.configured.lock().await;
        let before = self.found();
        let (found, _) = FoundExports::look_up(namespace, &configured, &before).await;
        let roots =
            |exports: &FoundExports| exports.directories.iter().map(|dir| dir.root).collect::<Vec<_>>();
        if roots(&found) == roots(&before) {
            return;
        }
        let (directories, missing) = (found.directories.len(), found.missing.len());
        *self.found.write() = Arc::new(found);
        self.version.fetch_add(1, Ordering::Release);
        tracing::info!(directories, missing, "exported directories have come or gone");
    }

    pub(super) fn found(&self) -> Arc<FoundExports> {
        Arc::clone(&self.found.read())
    }
}

/// A path that is missing is told of. Any other error is one of the configuration.
fn allow_missing(errors: Vec<ExportError>) -> Result<(), ExportError> {
    for error in errors {
        let ExportError::NotFound(_) = error else { return Err(error) };
        tracing::warn!(%error, "exported directory is missing; clients can use it when it exists");
    }
    Ok(())
}
