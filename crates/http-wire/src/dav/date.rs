//! `creationdate`, from timestamps that may lie before 1970 or beyond any calendar.

use std::fmt::Write;

use bytes::BytesMut;
use types::{DateTime, Timestamp};

/// RFC 3339 in UTC and without fractions, for `creationdate`.
pub fn internet_date(out: &mut BytesMut, time: Timestamp) {
    write!(out, "{}", DateTime::from(time)).expect("memory grows, and numbers do not fail to be written");
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
