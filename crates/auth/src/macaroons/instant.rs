//! Points in time as ISO 8601 writes them, in seconds since 1970: `2026-11-21T12:00:00Z`.

use types::DateTime;

/// With an offset (`Z`, `+01:00`, `-0130`) and an optional fraction, which is cut off: a moment early, never late.
pub fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't'])?;
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone_at);
    let offset_s = parse_zone(zone)?;
    let time = match time.split_once(['.', ',']) {
        Some((time, fraction)) => are_digits(fraction, 1..=9).then_some(time)?,
        None => time,
    };
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = fields(time, ':', [2, 2, 2])?;
    // A leap second is the last one of its minute.
    let second = if second == 60 { 59 } else { second };
    let moment = DateTime::new([year, month, day], [hour, minute, second])?;
    u64::try_from(moment.seconds() - offset_s).ok()
}

/// The year 9999 is the last that has four digits.
pub fn show(s: u64) -> String {
    DateTime::of(i64::try_from(s).unwrap_or(i64::MAX)).to_string()
}

fn parse_zone(zone: &str) -> Option<i64> {
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(0),
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest.len() {
        2 => (rest, "00"),
        4 => rest.split_at_checked(2)?,
        _ => rest.split_once(':')?,
    };
    let (hours, minutes) = (i64::from(digits(hours, 2)?), i64::from(digits(minutes, 2)?));
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

fn fields(text: &str, separator: char, widths: [usize; 3]) -> Option<[u16; 3]> {
    let mut parts = text.split(separator);
    let mut values = [0; 3];
    for (value, width) in values.iter_mut().zip(widths) {
        *value = digits(parts.next()?, width)?;
    }
    parts.next().is_none().then_some(values)
}

fn digits(text: &str, width: usize) -> Option<u16> {
    are_digits(text, width..=width).then(|| text.parse().ok())?
}

fn are_digits(text: &str, widths: std::ops::RangeInclusive<usize>) -> bool {
    widths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_moments_are_read() {
        for (text, s) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799),
            ("2026-11-21T12:51:53Z", 1_795_265_513),
            ("2026-11-21T12:51:53.999Z", 1_795_265_513),
            ("2026-11-21T13:51:53+01:00", 1_795_265_513),
            ("2026-11-21T11:21:53-0130", 1_795_265_513),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("9999-12-31T23:59:59Z", 253_402_300_799),
        ] {
            assert_eq!(parse(text), Some(s), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_time_is_refused() {
        for bad in [
            "",
            "2026-11-21",
            "2026-11-21T12:00:00",
            "2026-02-29T12:00:00Z",
            "2100-02-29T12:00:00Z",
            "2026-13-01T12:00:00Z",
            "2026-1-1T12:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T12:00Z",
            "2026-11-21T12:00:00ZZ",
            "2026-11-21T12:00:00+1",
            "2026-11-21T12:00:00.Z",
            "1969-12-31T23:59:59Z",
            "+026-11-21T12:00:00Z",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_second_survives_being_written(s in 0u64..=253_402_300_799) {
            prop_assert_eq!(parse(&show(s)), Some(s));
        }
    }
}
