//! The Date header, formatted once a second; and deadlines of what is mostly ready at once.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_wire::date::DATE_BYTES;
use parking_lot::Mutex;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use types::Timestamp;

#[derive(Default)]
pub(crate) struct DateClock {
    /// Seconds since 1970 and what they read as. Held for a copy.
    last: Mutex<(u64, [u8; DATE_BYTES])>,
}

impl DateClock {
    pub fn now(&self) -> [u8; DATE_BYTES] {
        self.at(SystemTime::now())
    }

    fn at(&self, now: SystemTime) -> [u8; DATE_BYTES] {
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut last = self.last.lock();
        if last.0 != second || last.1[0] == 0 {
            *last = (second, text_of(now));
        }
        last.1
    }
}

/// As `timeout`, but sets no timer for what is ready at once.
pub(crate) async fn within<F: Future>(patience: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    if let Poll::Ready(done) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
        return Ok(done);
    }
    timeout(patience, future).await
}

/// Deadlines of waits that follow each other, with one timer for all. A wait that ends early leaves the timer as it is, and a
/// later one sets it only if its own deadline comes sooner, or when the timer fires too early for it.
#[derive(Default)]
pub(crate) struct Patience {
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// `None`: the future was not ready in time.
    pub async fn within<F: Future>(&mut self, patience: Duration, future: F) -> Option<F::Output> {
        let (mut future, mut deadline) = (pin!(future), None);
        poll_fn(|context| {
            if let Poll::Ready(done) = future.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + patience);
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
            if deadline < timer.deadline() {
                timer.as_mut().reset(deadline);
            }
            loop {
                ready!(timer.as_mut().poll(context));
                if timer.deadline() >= deadline {
                    return Poll::Ready(None);
                }
                timer.as_mut().reset(deadline);
            }
        })
        .await
    }
}

fn text_of(now: SystemTime) -> [u8; DATE_BYTES] {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    http_wire::date::text(Timestamp::from_unix(since))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{advance, sleep};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn each_wait_has_its_whole_time_however_long_ago_the_first_began() {
        let (mut patience, start) = (Patience::default(), Instant::now());
        for _ in 0..3 {
            let ready = patience.within(PATIENCE, sleep(PATIENCE * 2 / 3)).await;
            assert_eq!(ready, Some(()));
        }
        let begun = Instant::now();
        assert_eq!(patience.within(PATIENCE, std::future::pending::<()>()).await, None);
        assert!(begun.elapsed() >= PATIENCE && start.elapsed() < PATIENCE * 4, "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_with_less_time_than_the_one_before_ends_sooner() {
        let mut patience = Patience::default();
        assert_eq!(patience.within(PATIENCE, sleep(Duration::from_secs(1))).await, Some(()));
        advance(Duration::from_secs(1)).await;
        let begun = Instant::now();
        assert_eq!(patience.within(PATIENCE / 5, std::future::pending::<()>()).await, None);
        assert!(begun.elapsed() >= PATIENCE / 5 && begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_date_is_imf_fixdate_and_moves_on() {
        let clock = DateClock::default();
        let at = |s| clock.at(UNIX_EPOCH + Duration::from_millis(s));
        assert_eq!(&at(784_111_777_000), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&at(784_111_777_999), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(&at(784_111_778_000), b"Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(&at(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
    }
}
