//! Dates as HTTP writes them: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7), in whole seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use types::Timestamp;

/// The last second of the year 9999, beyond which the format has no digits.
const SECONDS_MAX: u64 = 253_402_300_799;

/// Times that the format cannot express (before 1970, which the library declines, and after 9999) become the nearest
/// one that it can.
pub fn header_value(time: Timestamp) -> HeaderValue {
    HeaderValue::try_from(text(time)).expect("a date is printable ASCII")
}

pub fn text(time: Timestamp) -> String {
    let seconds = u64::try_from(time.seconds).unwrap_or(0).min(SECONDS_MAX);
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

/// All three formats of RFC 9110 §5.6.7. `None` for anything else, which makes its header void.
pub fn parse(text: &[u8]) -> Option<Timestamp> {
    let text = std::str::from_utf8(text).ok()?;
    let time: SystemTime = httpdate::parse_http_date(text.trim_matches([' ', '\t'])).ok()?;
    time.duration_since(UNIX_EPOCH).ok().map(Timestamp::from_unix)
}

#[cfg(test)]
mod tests {
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
        fn a_date_survives_being_written(seconds in 0..=SECONDS_MAX as i64) {
            prop_assert_eq!(parse(text(at(seconds)).as_bytes()), Some(at(seconds)));
        }
    }
}
