//! The guard of changes whose request may be dropped.

use std::sync::Arc;

use files::Files;

use crate::path_locks::PathChangeGuard;
use crate::tasks::Tasks;

/// Changes that may be dropped while the namespace still has one of them to do: they end when it has.
pub(super) struct UntilSeen {
    files: Arc<Files>,
    tasks: Arc<Tasks>,
    changing: Option<PathChangeGuard>,
}

impl UntilSeen {
    pub fn new(files: &Arc<Files>, tasks: &Arc<Tasks>, changing: PathChangeGuard) -> UntilSeen {
        UntilSeen { files: Arc::clone(files), tasks: Arc::clone(tasks), changing: Some(changing) }
    }

    /// All that was asked for is answered.
    pub fn end(self) {
        drop(self.into_changing());
    }

    /// For a task that goes on to its end.
    pub fn into_changing(mut self) -> Option<PathChangeGuard> {
        self.changing.take()
    }
}

impl Drop for UntilSeen {
    fn drop(&mut self) {
        let Some(changing) = self.changing.take() else { return };
        let files = Arc::clone(&self.files);
        self.tasks.follow_up(async move {
            files.all_seen().await;
            drop(changing);
        });
    }
}
