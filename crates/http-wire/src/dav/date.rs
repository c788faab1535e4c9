//! `creationdate`, from timestamps that may lie before 1970 or beyond any calendar.

use std::fmt::Write;

use bytes::BytesMut;
use types::Timestamp;

const DAY_S: i64 = 86_400;
/// 0001-01-01 and 9999-12-31T23:59:59: the form has four digits for the year.
const FIRST_S: i64 = -62_135_596_800;
const LAST_S: i64 = 253_402_300_799;

struct Calendar {
    year: i64,
    month: i64,
    day: i64,
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
            second: seconds.rem_euclid(DAY_S),
        }
    }
}

/// RFC 3339 in UTC and without fractions, for `creationdate`.
pub fn internet_date(out: &mut BytesMut, time: Timestamp) {
    let Calendar { year, month, day, second } = Calendar::of(time);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    write!(out, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
        .expect("memory grows, and numbers do not fail to be written");
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    fn written(seconds: i64) -> String {
        let mut out = BytesMut::new();
        internet_date(&mut out, Timestamp::new(seconds, 0).unwrap());
        String::from_utf8(out.to_vec()).unwrap()
    }

    #[test]
    fn known_days_are_written_as_they_are_known() {
        for (seconds, expected) in [
            (784_111_777, "1994-11-06T08:49:37Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (i64::MIN, "0001-01-01T00:00:00Z"),
            (i64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(written(seconds), expected);
        }
    }

    /// `Sun, 06 Nov 1994 08:49:37 GMT` put into the other order.
    fn reordered(http_date: &str) -> String {
        let months = "JanFebMarAprMayJunJulAugSepOctNovDec";
        let month = months.find(&http_date[8..11]).unwrap() / 3 + 1;
        format!("{}-{month:02}-{}T{}Z", &http_date[12..16], &http_date[5..7], &http_date[17..25])
    }

    proptest! {
        #[test]
        fn every_second_is_the_one_that_another_calendar_knows(seconds in 0_u64..253_402_300_799) {
            let expected = reordered(&httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds)));
            prop_assert_eq!(written(i64::try_from(seconds).unwrap()), expected);
        }
    }
}
