//! Steps that go on to their end when nobody waits for them any more.

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::Instrument;

/// Owns the tasks: they end with it.
#[derive(Default)]
pub struct Tasks {
    /// Locked only to add a task and to take finished ones out.
    running: Mutex<JoinSet<()>>,
}

impl Tasks {
    /// Begins at once and waits for the answer. A caller that stops waiting does not stop the work. `None`: it panicked.
    pub async fn to_its_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // The caller may be gone.
            let _ = answer.send(work.await);
        });
        answered.await.ok()
    }

    /// For what is left to do when a caller is dropped: short, and one for each.
    pub fn follow_up(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime no caller is left to wait.
        if Handle::try_current().is_ok() {
            self.spawn(work);
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(task.in_current_span());
    }
}
