//! The Date header, formatted once a second; and deadlines of what is mostly ready at once.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use types::Timestamp;

const DATE_BYTES: usize = 29;

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

fn text_of(now: SystemTime) -> [u8; DATE_BYTES] {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let text = http_wire::date::text(Timestamp::from_unix(since));
    text.as_bytes().try_into().expect("a date has 29 bytes")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
