//! Points in time as files carry them: seconds and nanoseconds since 1970, also before it.

use std::time::Duration;

/// A wall-clock time. `nanoseconds` is always below 10⁹ and counts forward, also before 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp {
    pub seconds: i64,
    nanoseconds: u32,
}

pub const NANOSECONDS_PER_SECOND: u32 = 1_000_000_000;

impl Timestamp {
    pub const EPOCH: Timestamp = Timestamp { seconds: 0, nanoseconds: 0 };

    /// `None` if `nanoseconds` is a second or more.
    pub fn new(seconds: i64, nanoseconds: u32) -> Option<Timestamp> {
        (nanoseconds < NANOSECONDS_PER_SECOND).then_some(Timestamp { seconds, nanoseconds })
    }

    pub const fn from_seconds(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    pub fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    pub fn from_unix(since: Duration) -> Timestamp {
        Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        }
    }

    /// Nanoseconds since 1970 in 128 bits: the one number that orders all timestamps and that databases may keep in two columns.
    pub fn total_nanoseconds(self) -> i128 {
        i128::from(self.seconds) * i128::from(NANOSECONDS_PER_SECOND) + i128::from(self.nanoseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_second_of_nanoseconds_is_refused() {
        assert_eq!(Timestamp::new(1, NANOSECONDS_PER_SECOND), None);
        assert!(Timestamp::new(-1, NANOSECONDS_PER_SECOND - 1).is_some());
    }

    #[test]
    fn times_before_1970_order_before_it() {
        let before = Timestamp::new(-1, 999_999_999).unwrap();
        assert!(before < Timestamp::EPOCH);
        assert_eq!(before.total_nanoseconds(), -1);
    }
}
