//! Points in time as ISO 8601 writes them, in seconds since 1970: `2026-11-21T12:00:00Z`.

const DAY_S: i64 = 86_400;

/// With an offset (`Z`, `+01:00`, `-0130`) and an optional fraction, which is cut off: a moment early, never late.
pub fn parse(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't'])?;
    let zone_at = time.find(['Z', 'z', '+', '-'])?;
    let (time, zone) = time.split_at(zone_at);
    let offset_s = parse_zone(zone)?;
    let time = match time.split_once(['.', ',']) {
        Some((time, fraction)) => digits(fraction, 1..=9).and(Some(time))?,
        None => time,
    };
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = fields(time, ':', [2, 2, 2])?;
    if !(1..=12).contains(&month) || day < 1 || day > days_of(year, month) {
        return None;
    }
    // A leap second is the last one of its minute.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds =
        days_since_1970(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second.min(59) - offset_s;
    u64::try_from(seconds).ok()
}

pub fn show(s: u64) -> String {
    // The year 9999 is the last that has four digits.
    let s = i64::try_from(s).unwrap_or(i64::MAX).min(253_402_300_799);
    let (mut year, mut days) = (1970 + s / DAY_S / 366, s / DAY_S);
    while days_since_1970(year + 1, 1, 1) <= days {
        year += 1;
    }
    days -= days_since_1970(year, 1, 1);
    let mut month = 1;
    while days >= days_of(year, month) {
        days -= days_of(year, month);
        month += 1;
    }
    let (hour, minute, second) = (s % DAY_S / 3600, s % 3600 / 60, s % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
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
    let (hours, minutes) = (digits(hours, 2..=2)?, digits(minutes, 2..=2)?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

fn fields(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut values = [0; 3];
    for (value, width) in values.iter_mut().zip(widths) {
        *value = digits(parts.next()?, width..=width)?;
    }
    parts.next().is_none().then_some(values)
}

fn digits(text: &str, widths: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let is_number = widths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Leap days before the year's first of January, counted from the year 0.
    let leap_days = |year: i64| {
        let before = year - 1;
        before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400)
    };
    let years = (year - 1970) * 365 + leap_days(year) - leap_days(1970);
    years + (1..month).map(|month| days_of(year, month)).sum::<i64>() + day - 1
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
