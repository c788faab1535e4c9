//! Asking the system's name service, which may be far away and slow: in threads made for waiting, few at a time, and for a
//! bounded time. While it does not answer it is left alone, so that nobody waits for it in vain.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::Semaphore;
use types::Clock;

/// Threads that wait for the name service.
const ASKING_MAX: usize = 4;
/// After it did not answer in time it is left alone for so long.
pub(crate) const PAUSE: Duration = Duration::from_secs(10);

/// The name service failed or cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the name service does not answer")]
pub struct NamesUnavailable;

/// Questions of one kind to the name service.
pub(crate) struct Asking {
    clock: Arc<dyn Clock>,
    places: Arc<Semaphore>,
    patience: Duration,
    /// The consequence of a missing answer, for the log.
    meanwhile: &'static str,
    /// Leaf lock.
    service: Arc<Mutex<Service>>,
}

#[derive(Default)]
struct Service {
    /// It is not asked until then.
    paused_until: Duration,
    answered: Option<Duration>,
}

impl Asking {
    pub fn new(clock: Arc<dyn Clock>, patience: Duration, meanwhile: &'static str) -> Asking {
        Asking {
            clock,
            places: Arc::new(Semaphore::new(ASKING_MAX)),
            patience,
            meanwhile,
            service: Arc::default(),
        }
    }

    /// Runs the question in a thread that may wait, and waits for the answer up to `patience`. After a timeout the
    /// thread goes on; the question may cache a late answer for the next caller.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce() -> Result<T, NamesUnavailable> + Send + 'static,
    ) -> Result<T, NamesUnavailable> {
        let began = self.clock.monotonic();
        if began < self.service.lock().paused_until {
            return Err(NamesUnavailable);
        }
        let (places, service, clock) =
            (Arc::clone(&self.places), Arc::clone(&self.service), Arc::clone(&self.clock));
        let answered = tokio::time::timeout(self.patience, async move {
            let place = places.acquire_owned().await.expect("the semaphore is never closed");
            tokio::task::spawn_blocking(move || {
                let answer = question();
                if answer.is_ok() {
                    service.lock().answered = Some(clock.monotonic());
                }
                drop(place);
                answer
            })
            .await
        });
        match answered.await {
            Ok(Ok(Ok(answer))) => Ok(answer),
            // The runtime stops.
            Ok(Err(_)) => Err(NamesUnavailable),
            Ok(Ok(Err(_))) => Err(self.pause()),
            // Others got answers meanwhile: it is busy, and not away.
            Err(_) if self.service.lock().answered.is_some_and(|at| at > began) => Err(NamesUnavailable),
            Err(_) => Err(self.pause()),
        }
    }

    fn pause(&self) -> NamesUnavailable {
        self.service.lock().paused_until = self.clock.monotonic() + PAUSE;
        tracing::warn!("the name service does not answer: {}", self.meanwhile);
        NamesUnavailable
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use testkit::clock::ManualClock;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(2);

    /// Asks what is answered when somebody speaks, and in the middle of that perhaps another thing, till patience ends.
    async fn wait_in_vain(asking: &Asking, clock: &ManualClock, is_busy: bool) {
        let (speak, spoken) = mpsc::channel::<()>();
        let slow = asking.ask(move || spoken.recv().map_err(|_| NamesUnavailable));
        tokio::pin!(slow);
        tokio::select! {
            biased;
            _ = &mut slow => panic!("nobody has spoken"),
            () = std::future::ready(()) => {}
        }
        clock.advance(1);
        if is_busy {
            assert_eq!(asking.ask(|| Ok(5)).await, Ok(5));
        }
        tokio::time::advance(PATIENCE).await;
        assert_eq!(slow.await, Err(NamesUnavailable));
        drop(speak);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_is_away_is_left_alone_and_one_that_is_busy_is_not() {
        let clock = Arc::new(ManualClock::new(0));
        let asking = Asking::new(clock.clone(), PATIENCE, "this is a test");
        wait_in_vain(&asking, &clock, true).await;
        assert_eq!(asking.ask(|| Ok(6)).await, Ok(6), "it has answered others");
        clock.advance(1);
        wait_in_vain(&asking, &clock, false).await;
        assert_eq!(
            asking.ask(|| -> Result<(), _> { panic!("it is left alone") }).await,
            Err(NamesUnavailable)
        );
        clock.pass(PAUSE);
        assert_eq!(asking.ask(|| Ok(7)).await, Ok(7));
    }
}
