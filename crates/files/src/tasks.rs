//! Steps that go on to their end when nobody waits for them any more.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
    pub fn to_its_end<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Option<T>> + Send + use<T, W> {
        let (answer, answered) = oneshot::channel();
        self.spawn(async move {
            // The caller may be gone.
            let _ = answer.send(work.await);
        });
        // The caller's future has no part of the work: it is as small as the receiver.
        async move { answered.await.ok() }
    }

    /// As [`Tasks::to_its_end`], for steps that are short and many: the caller itself does the work, and a task is made
    /// only for what is left of it when the caller stops waiting. Nothing is done for a caller that never begins to wait.
    pub fn carry_on<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        self: &Arc<Self>,
        work: W,
    ) -> impl Future<Output = T> + Send + use<T, W> {
        CarriedOn { tasks: Arc::clone(self), work: Some(Box::pin(work)), is_begun: false }
    }

    /// For what is left to do when a caller is dropped: short, and one for each.
    pub fn follow_up(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Without a runtime no caller is left to wait.
        if Handle::try_current().is_ok() {
            self.spawn(work);
        }
    }

    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.is_empty()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn(task.in_current_span());
    }
}

/// Work in the hand of the caller that waits for it.
struct CarriedOn<W: Future<Output: Send> + Send + 'static> {
    tasks: Arc<Tasks>,
    /// `None` when it is done, and while it is polled: work that panics is not gone on with.
    work: Option<Pin<Box<W>>>,
    is_begun: bool,
}

impl<W: Future<Output: Send> + Send + 'static> Future for CarriedOn<W> {
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<W::Output> {
        let mut work = self.work.take().expect("polled until it is done");
        self.is_begun = true;
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<W: Future<Output: Send> + Send + 'static> Drop for CarriedOn<W> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| self.is_begun) {
            self.tasks.follow_up(async move { drop(work.await) });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn work_goes_on_without_its_caller_once_it_is_begun() {
        let tasks = Arc::new(Tasks::default());
        let (go_on, may_go_on) = oneshot::channel();
        let (end, mut ended) = oneshot::channel();
        let work = tasks.carry_on(async move { end.send(may_go_on.await) });
        assert!(work.now_or_never().is_none());
        go_on.send("on").unwrap();
        assert_eq!((&mut ended).await, Ok(Ok("on")));
    }

    #[tokio::test]
    async fn work_that_is_done_or_never_begun_makes_no_task() {
        let tasks = Arc::new(Tasks::default());
        drop(tasks.carry_on(async { panic!("it was not begun") }));
        assert_eq!(tasks.carry_on(async { 7 }).await, 7);
        assert!(tasks.is_idle());
    }

    #[tokio::test]
    async fn work_that_panics_is_not_gone_on_with() {
        let tasks = Arc::new(Tasks::default());
        let shared = Arc::clone(&tasks);
        let failed = tokio::spawn(async move { shared.carry_on(async { panic!("on purpose") }).await }).await;
        assert!(failed.is_err_and(|error| error.is_panic()));
        assert!(tasks.is_idle());
    }
}
