//! Time for tests of rules that depend on it.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use types::{Clock, Timestamp};

/// A clock that moves when the test moves it.
pub struct ManualClock(Mutex<Hands>);

struct Hands {
    seconds: i64,
    monotonic: Duration,
}

impl ManualClock {
    /// `seconds` since 1970.
    pub fn new(seconds: i64) -> ManualClock {
        let monotonic = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        ManualClock(Mutex::new(Hands { seconds, monotonic }))
    }

    pub fn seconds(&self) -> i64 {
        self.hands().seconds
    }

    pub fn advance(&self, seconds: u32) {
        let mut hands = self.hands();
        hands.seconds += i64::from(seconds);
        hands.monotonic += Duration::from_secs(seconds.into());
    }

    pub fn pass(&self, time: Duration) {
        let seconds = u32::try_from(time.as_secs()).expect("a test lives no hundred years");
        self.advance(seconds);
    }

    /// Sets the wall clock, as an administrator does; monotonic time goes on.
    pub fn set(&self, seconds: i64) {
        self.hands().seconds = seconds;
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::new(self.seconds(), 0).expect("no nanoseconds are given")
    }

    fn monotonic(&self) -> Duration {
        self.hands().monotonic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_goes_on_when_the_wall_clock_is_set_back() {
        let clock = ManualClock::new(1_000);
        let before = clock.monotonic();
        clock.advance(5);
        assert_eq!((clock.seconds(), clock.monotonic() - before), (1_005, Duration::from_secs(5)));
        clock.set(10);
        assert_eq!(clock.now(), Timestamp::new(10, 0).unwrap());
        assert_eq!(clock.monotonic() - before, Duration::from_secs(5));
    }
}
