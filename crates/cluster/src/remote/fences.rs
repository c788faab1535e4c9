//! Fences of a pool on another host: told, waited for, and delivered later if they were missed.

use std::time::Duration;

use api::{ANSWER_TIME, Answers, BATCH_LEN_MAX, PoolError};
use cluster_state::PoolAtHead;
use tokio::time::{sleep, timeout};
use types::{Epoch, FileId};

use super::RemotePool;
use crate::wire::{Batch, Replies, procedure};

type Fence = (FileId, Epoch);

impl RemotePool {
    pub(super) async fn fence_files(&self, files: &[Fence], within: Duration) -> Answers<()> {
        // From here on the pool gets no lease before it has confirmed them.
        let noted = self.state.lock().rules.fence(files, self.clock.monotonic());
        if noted.is_err() {
            return Answers::alike(files.len(), &PoolError::Busy(self.id));
        }
        let is_fenced = |pool: &PoolAtHead, now| pool.is_fenced(files, now);
        let told = async {
            match self.tell_fences(files, within).await {
                Some(answers) => answers,
                // It may have them or not.
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answers = told => answers.into_iter().collect(),
            () = self.until_lease_is_over_or(is_fenced) => files.iter().map(|_| Ok(())).collect(),
        }
    }

    /// Tells the pool and notes what it confirms. `None`: there is no answer.
    async fn tell_fences(&self, files: &[Fence], within: Duration) -> Option<Vec<Result<(), PoolError>>> {
        let batch = Batch::of(files, within, |(file, epoch)| (file.0, epoch.0));
        let Replies { answers } = self.ask::<_, Replies<()>>(procedure::FENCE, &batch, false).await.ok()?;
        if answers.len() != files.len() {
            return None;
        }
        let answers: Vec<_> = answers.into_iter().map(|reply| reply.into_result(self.id)).collect();
        let confirmed = files.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
        let confirmed: Vec<Fence> = confirmed.map(|(fence, _)| *fence).collect();
        self.state.lock().rules.confirm(&confirmed);
        self.changed.notify_waiters();
        Some(answers)
    }

    /// Has a task deliver what the pool has missed, unless one does.
    pub(super) fn deliver_fences(&self) {
        let Some(pool) = self.myself.upgrade() else { return };
        if !std::mem::replace(&mut self.state.lock().is_delivering, true) {
            self.tasks.spawn(async move {
                pool.deliver().await;
                pool.state.lock().is_delivering = false;
            });
        }
    }

    /// All that are missed, once each: the next request for a lease has it begin again with those that were not confirmed.
    async fn deliver(&self) {
        let (mut after, mut refused) = (None, 0);
        loop {
            let missed = self.state.lock().rules.lease().missed(after, BATCH_LEN_MAX);
            let Some((last, _)) = missed.last() else { break };
            after = Some(*last);
            let told = timeout(ANSWER_TIME, self.tell_fences(&missed, ANSWER_TIME)).await;
            let Some(answers) = told.ok().flatten() else { return };
            let confirmed = answers.iter().filter(|answer| answer.is_ok()).count();
            refused += answers.len() - confirmed;
            tracing::info!(pool = %self.id, files = confirmed, "delivered fences that the pool missed");
        }
        if refused > 0 {
            tracing::warn!(pool = %self.id, files = refused, "pool does not confirm fences, and gets no lease");
        }
    }

    /// Returns when the lease is over, or something else is so of it.
    pub(super) async fn until_lease_is_over_or(&self, is_so: impl Fn(&PoolAtHead, Duration) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before looking, or a change in between would be missed.
            changed.as_mut().enable();
            let left = {
                let state = self.state.lock();
                let now = self.clock.monotonic();
                let lease = state.rules.lease();
                if lease.is_over(now) || is_so(&state.rules, now) {
                    return;
                }
                lease.until().saturating_sub(now)
            };
            tokio::select! {
                biased;
                () = changed => {}
                // The clock need not be the one of the runtime to the last bit.
                () = sleep(left.max(Duration::from_millis(1))) => {}
            }
        }
    }
}
