//! The tasks of this crate, and the host that they belong to.
//!
//! Every task is begun here. In the product a process is one host, and nothing else is known of it. The simulator runs several
//! hosts in one runtime, stops them and ends them, so that it has to know the tasks of each.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// One of several hosts in this process.
pub trait Host: Send + Sync {
    /// Ready while the host runs. While it stands still, no task of it is polled.
    fn poll_runs(&self, context: &mut Context<'_>) -> Poll<()>;

    /// A task has begun, which ends with the host.
    fn has_begun(&self, task: AbortHandle);
}

tokio::task_local! {
    static HOST: Arc<dyn Host>;
}

/// Begins the tasks of one host.
#[derive(Clone)]
pub struct Tasks {
    runtime: Handle,
    host: Option<Arc<dyn Host>>,
}

impl Tasks {
    /// Of the host whose task calls this. Called in a runtime.
    pub fn of_caller() -> Tasks {
        Tasks { runtime: Handle::current(), host: HOST.try_with(Arc::clone).ok() }
    }

    pub fn of_host(host: Arc<dyn Host>) -> Tasks {
        Tasks { runtime: Handle::current(), host: Some(host) }
    }

    /// Tasks that begin in `act` belong to the host.
    pub fn enter<T>(&self, act: impl FnOnce() -> T) -> T {
        match &self.host {
            Some(host) => HOST.sync_scope(Arc::clone(host), act),
            None => act(),
        }
    }

    /// A task that belongs to nobody else.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task = self.runtime.spawn(OfHost { task: Box::pin(task), host: self.host.clone() });
        if let Some(host) = &self.host {
            host.has_begun(task.abort_handle());
        }
    }
}

pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    Tasks::of_caller().spawn(task);
}

/// For a task that is begun by its owner, who ends it.
pub(crate) fn of_caller<F: Future + Unpin>(task: F) -> OfHost<F> {
    OfHost { task, host: HOST.try_with(Arc::clone).ok() }
}

pub(crate) struct OfHost<F> {
    task: F,
    host: Option<Arc<dyn Host>>,
}

impl<F: Future + Unpin> Future for OfHost<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let OfHost { task, host } = self.get_mut();
        let Some(host) = host else { return Pin::new(task).poll(context) };
        ready!(host.poll_runs(context));
        HOST.sync_scope(Arc::clone(host), || Pin::new(task).poll(context))
    }
}

#[cfg(test)]
mod tests {
    //! Two hosts in one runtime, of which one stands still and ends.

    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::Waker;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::task::JoinSet;
    use tokio::time::sleep;

    use super::*;

    #[derive(Default)]
    struct TestHost {
        stands_still: AtomicBool,
        waiting: Mutex<Vec<Waker>>,
        begun: Mutex<Vec<AbortHandle>>,
    }

    impl Host for TestHost {
        fn poll_runs(&self, context: &mut Context<'_>) -> Poll<()> {
            if !self.stands_still.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            self.waiting.lock().push(context.waker().clone());
            Poll::Pending
        }

        fn has_begun(&self, task: AbortHandle) {
            self.begun.lock().push(task);
        }
    }

    /// A task that begins one of each kind; all three count.
    async fn count_thrice(count: Arc<AtomicUsize>) {
        let counting = |count: Arc<AtomicUsize>| async move {
            loop {
                count.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_secs(1)).await;
            }
        };
        spawn(counting(Arc::clone(&count)));
        let mut owned = JoinSet::new();
        owned.spawn(of_caller(Box::pin(counting(Arc::clone(&count)))));
        counting(count).await;
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_a_host_and_those_that_they_begin_stand_still_and_end_together() {
        let hosts = [(); 2].map(|()| Arc::new(TestHost::default()));
        let counts = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        for (host, count) in hosts.iter().zip(&counts) {
            Tasks::of_host(Arc::clone(host) as _).spawn(count_thrice(Arc::clone(count)));
        }
        let counted = || [0, 1].map(|host: usize| counts[host].load(Ordering::Relaxed));
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(counted(), [6, 6]);
        hosts[0].stands_still.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(counted(), [6, 21]);
        hosts[0].stands_still.store(false, Ordering::Relaxed);
        std::mem::take(&mut *hosts[0].waiting.lock()).into_iter().for_each(Waker::wake);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(counted(), [9, 21]);
        assert_eq!(hosts[0].begun.lock().len(), 2, "the third has an owner");
        hosts[0].begun.lock().iter().for_each(AbortHandle::abort);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(counted(), [9, 36]);
    }
}
