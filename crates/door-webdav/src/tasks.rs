//! Requests that go on to their end when their clients hang up. The namespace does a change all the same: so the guards
//! that keep locks away must stay until then, and the later steps of the request must follow.

use std::sync::Arc;

use http::StatusCode;
use http_server::Response;
use tokio::sync::Semaphore;

use crate::refusal::Refusal;

pub(crate) struct Tasks {
    permits: Arc<Semaphore>,
    running: files::Tasks,
}

impl Tasks {
    pub fn new(tasks_max: usize) -> Tasks {
        Tasks { permits: Arc::new(Semaphore::new(tasks_max)), running: files::Tasks::default() }
    }

    /// Begins at once and waits for the answer. A request that is dropped does not stop the work.
    pub fn run<F>(&self, work: F) -> impl Future<Output = Result<Response, Refusal>> + Send + use<F>
    where
        F: Future<Output = Result<Response, Refusal>> + Send + 'static,
    {
        let begun = Arc::clone(&self.permits).try_acquire_owned().map(|permit| {
            self.to_its_end(async move {
                let outcome = work.await;
                drop(permit);
                outcome
            })
        });
        async move {
            let begun = begun.map_err(|_| Refusal::busy("too many changes are under way"))?;
            let failed =
                || Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the request did not come to its end");
            begun.await.unwrap_or_else(|| Err(failed()))
        }
    }

    /// As `run`, without a permit: for what has cost too much to be refused now. `None`: it panicked.
    pub fn to_its_end<T: Send + 'static, W: Future<Output = T> + Send + 'static>(
        &self,
        work: W,
    ) -> impl Future<Output = Option<T>> + Send + use<T, W> {
        self.running.to_its_end(work)
    }

    /// For what is left to do when a request is dropped: short, and one for each.
    pub fn follow_up(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.running.follow_up(work);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// Polls once, as who hangs up before the answer is there.
    async fn begin(tasks: &Tasks, work: impl Future<Output = Result<Response, Refusal>> + Send + 'static) {
        let asked = tasks.run(work);
        tokio::pin!(asked);
        tokio::select! {
            biased;
            _ = &mut asked => panic!("it is not done yet"),
            () = std::future::ready(()) => {}
        }
    }

    #[tokio::test]
    async fn a_change_is_done_to_its_end_when_nobody_waits_for_it() {
        let tasks = Tasks::new(1);
        let (go_on, may_go_on) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        begin(&tasks, async move {
            may_go_on.await.unwrap();
            end.send("done").unwrap();
            Ok(Response::new(StatusCode::NO_CONTENT))
        })
        .await;
        go_on.send(()).unwrap();
        assert_eq!(ended.await, Ok("done"));
    }

    #[tokio::test]
    async fn changes_beyond_the_bound_are_asked_to_come_again_also_where_clients_have_gone() {
        let tasks = Tasks::new(2);
        let status = async |tasks: &Tasks| {
            let outcome = tasks.run(async { Ok(Response::new(StatusCode::NO_CONTENT)) }).await;
            outcome.map_or_else(|refusal| refusal.status, |response| response.status)
        };
        let mut held = Vec::new();
        for _ in 0..2 {
            let (go_on, may_go_on) = oneshot::channel::<()>();
            begin(&tasks, async move {
                may_go_on.await.unwrap();
                Ok(Response::new(StatusCode::NO_CONTENT))
            })
            .await;
            held.push(go_on);
        }
        assert_eq!(status(&tasks).await, StatusCode::SERVICE_UNAVAILABLE);
        held.pop().unwrap().send(()).unwrap();
        while tasks.permits.available_permits() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(status(&tasks).await, StatusCode::NO_CONTENT);
    }
}
