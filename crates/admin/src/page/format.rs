//! Numbers and times for people.

use std::fmt::{self, Display};

use types::Timestamp;

/// A size in binary units with two or three digits that count: `512 B`, `1.4 MiB`, `930 GiB`.
#[derive(Clone, Copy)]
pub(crate) struct Size(pub u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        // Tenths of the unit, so that no float rounds 1023.99 up to "1024 KiB".
        let mut tenths = u128::from(self.0) * 10 / 1024;
        let mut unit = 0;
        while tenths >= 10_240 {
            tenths /= 1024;
            unit += 1;
        }
        if tenths < 1000 {
            write!(f, "{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
        } else {
            write!(f, "{} {}", tenths / 10, UNITS[unit])
        }
    }
}

/// With narrow spaces between groups of three: `1 234 567`.
#[derive(Clone, Copy)]
pub(crate) struct Grouped(pub u64);

impl Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                f.write_str("\u{202f}")?;
            }
            write!(f, "{digit}")?;
        }
        Ok(())
    }
}

/// `1 entry`, `2 entries`.
pub(crate) struct Count(pub u64, pub &'static str, pub &'static str);

impl Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Grouped(self.0), if self.0 == 1 { self.1 } else { self.2 })
    }
}

/// The two largest units: `3 d 4 h`, `12 s`.
#[derive(Clone, Copy)]
pub(crate) struct Duration(pub u64);

impl Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, hours, minutes, seconds) =
            (self.0 / 86_400, self.0 / 3_600 % 24, self.0 / 60 % 60, self.0 % 60);
        match (days, hours, minutes) {
            (0, 0, 0) => write!(f, "{seconds} s"),
            (0, 0, _) => write!(f, "{minutes} min {seconds} s"),
            (0, _, _) => write!(f, "{hours} h {minutes} min"),
            _ => write!(f, "{days} d {hours} h"),
        }
    }
}

/// `2026-11-21 13:05`, in UTC; the script turns it into the reader's zone, of the same width.
#[derive(Clone, Copy)]
pub(crate) struct Minute(pub Timestamp);

impl Display for Minute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0.seconds.div_euclid(86_400));
        let second = self.0.seconds.rem_euclid(86_400);
        write!(f, "{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
    }
}

/// For `<time datetime>`: RFC 3339 with seconds.
#[derive(Clone, Copy)]
pub(crate) struct Instant(pub Timestamp);

impl Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0.seconds.div_euclid(86_400));
        let second = self.0.seconds.rem_euclid(86_400);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
///
/// Years are counted from March, so that the leap day is the last of its year; eras of 400 years repeat.
fn date(days: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097;
    let from_march_0000 = days.saturating_add(719_468);
    let era = from_march_0000.div_euclid(ERA_DAYS);
    let day_of_era = from_march_0000.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// `drwxr-xr-x`, as `ls` writes the permissions, without the kind.
pub(crate) struct Mode(pub u32);

impl Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, special, set, plain) in
            [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')]
        {
            let class = self.0 >> shift;
            let execute = match (class & 1 != 0, self.0 & special != 0) {
                (true, true) => set,
                (false, true) => plain,
                (true, false) => 'x',
                (false, false) => '-',
            };
            let read = if class & 4 != 0 { 'r' } else { '-' };
            let write = if class & 2 != 0 { 'w' } else { '-' };
            write!(f, "{read}{write}{execute}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_two_or_three_digits_and_never_1024_of_a_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (102_400, "100 KiB"),
            (1_048_575, "1023 KiB"),
            (1_048_576, "1.0 MiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(Grouped(999).to_string(), "999");
        assert_eq!(Grouped(1_234_567).to_string(), "1\u{202f}234\u{202f}567");
        assert_eq!(Count(1, "entry", "entries").to_string(), "1 entry");
        assert_eq!(Count(0, "entry", "entries").to_string(), "0 entries");
    }

    #[test]
    fn dates_are_right_around_leap_days_and_before_1970() {
        let shown = |seconds| Instant(Timestamp::new(seconds, 0).unwrap()).to_string();
        assert_eq!(shown(0), "1970-01-01T00:00:00Z");
        assert_eq!(shown(-1), "1969-12-31T23:59:59Z");
        assert_eq!(shown(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(shown(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(shown(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(shown(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(Minute(Timestamp::new(1_795_266_300, 0).unwrap()).to_string(), "2026-11-21 13:05");
        // A file may say any time: it is shown, whatever it is.
        let _ = (shown(i64::MAX), shown(i64::MIN));
    }

    #[test]
    fn durations_and_modes_read_as_people_write_them() {
        assert_eq!(Duration(59).to_string(), "59 s");
        assert_eq!(Duration(3_661).to_string(), "1 h 1 min");
        assert_eq!(Duration(90_000).to_string(), "1 d 1 h");
        assert_eq!(Mode(0o1755).to_string(), "rwxr-xr-t");
        assert_eq!(Mode(0o4640).to_string(), "rwSr-----");
    }
}
