//! Moments in UTC as people and protocols write them, in the Gregorian calendar. The `time` library counts the days.

use std::fmt::{self, Display};

use time::{Date, Month, PrimitiveDateTime, Time};

use crate::Timestamp;

/// 0001-01-01T00:00:00Z and 9999-12-31T23:59:59Z: all texts have four digits for the year.
const FIRST_S: i64 = -62_135_596_800;
const LAST_S: i64 = 253_402_300_799;

/// A second in UTC of the years 1 to 9999. Displays as RFC 3339: `1994-11-06T08:49:37Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DateTime(PrimitiveDateTime);

impl DateTime {
    /// Seconds since 1970. A moment outside the years 1 to 9999 becomes the first or the last second of them.
    pub fn of(seconds: i64) -> DateTime {
        let moment = time::UtcDateTime::from_unix_timestamp(seconds.clamp(FIRST_S, LAST_S));
        let moment = moment.expect("the library knows the years 1 to 9999");
        DateTime(PrimitiveDateTime::new(moment.date(), moment.time()))
    }

    /// `[year, month, day]` and `[hour, minute, second]`. `None`: there is no such day or second. Leap seconds are not known.
    pub fn new(date: [u16; 3], time: [u16; 3]) -> Option<DateTime> {
        let [year, month, day] = date;
        let byte = |number: u16| u8::try_from(number).ok();
        let month = Month::try_from(byte(month)?).ok()?;
        let date = Date::from_calendar_date(i32::from(year), month, byte(day)?).ok()?;
        let time = Time::from_hms(byte(time[0])?, byte(time[1])?, byte(time[2])?).ok()?;
        (1..=9999).contains(&year).then_some(DateTime(PrimitiveDateTime::new(date, time)))
    }

    /// Since 1970.
    pub fn seconds(self) -> i64 {
        self.0.assume_utc().unix_timestamp()
    }

    /// Year, month, day.
    pub fn date(self) -> (i32, u8, u8) {
        (self.0.year(), u8::from(self.0.month()), self.0.day())
    }

    /// Hour, minute, second.
    pub fn time(self) -> (u8, u8, u8) {
        self.0.as_hms()
    }
}

impl From<Timestamp> for DateTime {
    fn from(time: Timestamp) -> DateTime {
        DateTime::of(time.seconds)
    }
}

impl Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ((year, month, day), (hour, minute, second)) = (self.date(), self.time());
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn seconds_become_the_date_that_other_calendars_give_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (784_111_777, "1994-11-06T08:49:37Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(DateTime::of(seconds).to_string(), text);
        }
    }

    #[test]
    fn moments_beyond_four_digits_for_the_year_become_the_nearest_within() {
        for (seconds, text) in [(i64::MIN, "0001-01-01T00:00:00Z"), (i64::MAX, "9999-12-31T23:59:59Z")] {
            assert_eq!(DateTime::of(seconds).to_string(), text);
        }
    }

    #[test]
    fn days_and_seconds_that_do_not_exist_are_refused() {
        let midnight = [0, 0, 0];
        assert!(DateTime::new([2000, 2, 29], midnight).is_some());
        for date in [
            [2100, 2, 29],
            [2026, 13, 1],
            [2026, 0, 1],
            [2026, 4, 31],
            [2026, 1, 0],
            [0, 1, 1],
            [2026, 257, 1],
        ] {
            assert_eq!(DateTime::new(date, midnight), None, "{date:?}");
        }
        for time in [[24, 0, 0], [0, 60, 0], [0, 0, 60]] {
            assert_eq!(DateTime::new([2026, 1, 1], time), None, "{time:?}");
        }
    }

    proptest! {
        #[test]
        fn every_second_is_its_date_and_time(seconds in FIRST_S..=LAST_S) {
            let moment = DateTime::of(seconds);
            let ((year, month, day), (hour, minute, second)) = (moment.date(), moment.time());
            let date = [u16::try_from(year).unwrap(), month.into(), day.into()];
            let again = DateTime::new(date, [hour.into(), minute.into(), second.into()]).unwrap();
            prop_assert_eq!(again.seconds(), seconds);
        }
    }
}
