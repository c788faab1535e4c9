//! Paths for the findings of a check, of a namespace that may be busy or damaged.

use std::sync::Arc;
use std::time::Duration;

use api::{NamespaceError, Paths};
use tokio::time::{Instant, sleep, timeout_at};
use types::{FileId, Name};

use crate::output::counted;

/// Before the same question again.
const PAUSE: Duration = Duration::from_secs(1);
/// For a question about each file by itself.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks for paths, and counts those that it got no answer about.
pub struct PathFinder {
    namespace: Arc<dyn Paths>,
    missing: u64,
    error: Option<NamespaceError>,
}

impl PathFinder {
    pub fn new(namespace: Arc<dyn Paths>) -> PathFinder {
        PathFinder { namespace, missing: 0, error: None }
    }

    /// In the order asked.
    pub async fn find(&mut self, files: &[FileId]) -> Vec<Option<Vec<Name>>> {
        if let Ok(paths) = self.namespace.paths(files).await {
            return paths;
        }
        sleep(PAUSE).await;
        match self.namespace.paths(files).await {
            Ok(paths) => paths,
            Err(_) => self.find_each(files).await,
        }
    }

    /// A remark, if there were questions without an answer.
    pub fn remark(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!("{} missing: {error}", counted(self.missing, "path is", "paths are")))
    }

    /// One damaged file hides the paths of no others.
    async fn find_each(&mut self, files: &[FileId]) -> Vec<Option<Vec<Name>>> {
        let deadline = Instant::now() + PATIENCE;
        let mut found = Vec::new();
        for file in files {
            let answer = timeout_at(deadline, self.namespace.paths(&[*file])).await;
            let path = match answer.unwrap_or(Err(NamespaceError::Busy)) {
                Ok(paths) => paths.into_iter().next().flatten(),
                Err(error) => {
                    self.missing += 1;
                    self.error = Some(error);
                    None
                }
            };
            found.push(path);
        }
        found
    }
}
