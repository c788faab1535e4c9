//! The clock and the randomness of the real system.

use std::time::{Duration, Instant, SystemTime};

use types::{Clock, Random, Timestamp};

pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub fn new() -> SystemClock {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        wall_time()
    }

    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }
}

fn wall_time() -> Timestamp {
    Timestamp::from_unix(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// A clock that goes on while the host sleeps, for promises to other hosts.
pub struct SleeplessClock;

impl Clock for SleeplessClock {
    fn now(&self) -> Timestamp {
        wall_time()
    }

    fn monotonic(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(time).unwrap_or_default()
    }
}

/// `getrandom(2)`.
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => rest = &mut rest[count..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no randomness: {error}"),
            }
        }
    }
}
