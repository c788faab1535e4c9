//! Dates as HTTP writes them: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7), in whole seconds.

use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use types::{DateTime, Timestamp};

/// The last second of the year 9999, beyond which the format has no digits.
const SECONDS_MAX: i64 = 253_402_300_799;
const SECONDS_OF_DAY: i64 = 86_400;
pub const DATE_BYTES: usize = 29;
/// From 1970-01-01 on, which was a Thursday.
const WEEKDAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
const MONTHS: [&[u8; 3]; 12] =
    [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];

/// Times that the format cannot express (before 1970, which the library declines, and after 9999) become the nearest
/// one that it can.
pub fn header_value(time: Timestamp) -> HeaderValue {
    HeaderValue::from_bytes(&text(time)).expect("a date is printable ASCII")
}

/// Written here: each answer with a file has a date, and the library formats it into a string that grows.
pub fn text(time: Timestamp) -> [u8; DATE_BYTES] {
    let seconds = time.seconds.clamp(0, SECONDS_MAX);
    let at = DateTime::of(seconds);
    let ((year, month, day), (hour, minute, second)) = (at.date(), at.time());
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    text[..3].copy_from_slice(WEEKDAYS[(seconds / SECONDS_OF_DAY % 7) as usize]);
    put_pair(&mut text, 5, day);
    text[8..11].copy_from_slice(MONTHS[usize::from(month) - 1]);
    put_pair(&mut text, 12, (year / 100) as u8);
    put_pair(&mut text, 14, (year % 100) as u8);
    put_pair(&mut text, 17, hour);
    put_pair(&mut text, 20, minute);
    put_pair(&mut text, 23, second);
    text
}

/// A number below 100.
fn put_pair(text: &mut [u8; DATE_BYTES], at: usize, number: u8) {
    text[at] = b'0' + number / 10;
    text[at + 1] = b'0' + number % 10;
}

/// All three formats of RFC 9110 §5.6.7. `None` for anything else, which makes its header void.
pub fn parse(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let time: SystemTime = httpdate::parse_http_date(text.trim_matches([' ', '\t'])).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(Timestamp::from_unix)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::new(seconds, 0).unwrap()
    }

    #[test]
    fn a_date_is_written_in_its_one_format_and_read_in_three() {
        assert_eq!(header_value(at(784_111_777)), "Sun, 06 Nov 1994 08:49:37 GMT");
        for text in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(parse(text.as_bytes()), Some(at(784_111_777)), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_date_gives_none() {
        for text in
            [&b""[..], b"0", b"yesterday", b"Sun, 06 Nov 1994 08:49:37", b"Sun, 31 Feb 1994 08:49:37 GMT"]
        {
            assert_eq!(parse(text), None, "{}", text.escape_ascii());
        }
        assert_eq!(parse(b"\xff"), None);
    }

    #[test]
    fn times_that_cannot_be_written_are_moved_to_the_nearest_end() {
        assert_eq!(header_value(at(-1)), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(header_value(at(i64::MAX)), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    proptest! {
        #[test]
        fn a_date_survives_being_written(seconds in 0..=SECONDS_MAX) {
            prop_assert_eq!(parse(&text(at(seconds))), Some(at(seconds)));
        }

        #[test]
        fn a_time_of_day_is_written_as_the_library_writes_it(seconds in 0..=SECONDS_MAX) {
            let expected = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds as u64));
            prop_assert_eq!(&text(at(seconds))[..], expected.as_bytes());
        }
    }

    #[test]
    fn days_of_four_centuries_are_written_as_the_library_writes_them() {
        // In the calendar all repeats after 146,097 days. Steps of 11 meet each day of a month and of a week.
        for day in (0..146_097 + 366).step_by(11) {
            let seconds = day * SECONDS_OF_DAY + 86_399;
            let expected = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds as u64));
            assert_eq!(&text(at(seconds))[..], expected.as_bytes());
        }
    }
}
