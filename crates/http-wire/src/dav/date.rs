//! Dates as properties write them, from timestamps that may lie before 1970 or beyond any calendar.

use std::fmt::Write;

use bytes::BytesMut;
use types::Timestamp;

const DAY_S: i64 = 86_400;
/// 0001-01-01 and 9999-12-31T23:59:59: both forms have four digits for the year.
const FIRST_S: i64 = -62_135_596_800;
const LAST_S: i64 = 253_402_300_799;

const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

struct Calendar {
    year: i64,
    month: i64,
    day: i64,
    /// 0 is the day of the week of 1970-01-01.
    weekday: i64,
    second: i64,
}

impl Calendar {
    fn of(time: Timestamp) -> Calendar {
        let seconds = time.seconds.clamp(FIRST_S, LAST_S);
        let days = seconds.div_euclid(DAY_S);
        // Years are counted from a first of March, so that a leap day is the last of its year; 146,097 days make 400
        // years of the Gregorian calendar, and 719,468 days lie between 0000-03-01 and 1970-01-01.
        let since_march = days + 719_468;
        let (era, of_era) = (since_march.div_euclid(146_097), since_march.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Calendar {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: of_year - (153 * month_from_march + 2) / 5 + 1,
            weekday: days.rem_euclid(7),
            second: seconds.rem_euclid(DAY_S),
        }
    }

    fn clock(&self) -> (i64, i64, i64) {
        (self.second / 3600, self.second / 60 % 60, self.second % 60)
    }
}

fn name<'a>(names: &[&'a str], at: i64) -> &'a str {
    usize::try_from(at).ok().and_then(|at| names.get(at)).expect("a remainder is within its table")
}

/// IMF-fixdate (RFC 9110 §5.6.7), for `getlastmodified`.
pub fn http_date(out: &mut BytesMut, time: Timestamp) {
    let date = Calendar::of(time);
    let (hour, minute, second) = date.clock();
    let (weekday, month) = (name(&WEEKDAYS, date.weekday), name(&MONTHS, date.month - 1));
    // Writing to memory that grows cannot fail.
    let _ = write!(
        out,
        "{weekday}, {:02} {month} {:04} {hour:02}:{minute:02}:{second:02} GMT",
        date.day, date.year
    );
}

/// RFC 3339 in UTC and without fractions, for `creationdate`.
pub fn internet_date(out: &mut BytesMut, time: Timestamp) {
    let date = Calendar::of(time);
    let (hour, minute, second) = date.clock();
    let _ =
        write!(out, "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", date.year, date.month, date.day);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    fn both(seconds: i64) -> (String, String) {
        let (mut http, mut internet) = (BytesMut::new(), BytesMut::new());
        let time = Timestamp::new(seconds, 0).unwrap();
        http_date(&mut http, time);
        internet_date(&mut internet, time);
        (String::from_utf8(http.to_vec()).unwrap(), String::from_utf8(internet.to_vec()).unwrap())
    }

    #[test]
    fn known_days_are_written_as_they_are_known() {
        for (seconds, http, internet) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37Z"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT", "2000-02-29T00:00:00Z"),
            (-1, "Wed, 31 Dec 1969 23:59:59 GMT", "1969-12-31T23:59:59Z"),
            (i64::MIN, "Mon, 01 Jan 0001 00:00:00 GMT", "0001-01-01T00:00:00Z"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(both(seconds), (http.to_owned(), internet.to_owned()));
        }
    }

    proptest! {
        #[test]
        fn every_second_is_written_as_another_implementation_does(seconds in 0_u64..253_402_300_799) {
            let expected = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
            prop_assert_eq!(both(i64::try_from(seconds).unwrap()).0, expected);
        }
    }
}
