//! Numbers and times for people.

use std::fmt::{self, Display};

use types::{DateTime, Timestamp};

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

/// Seconds with two or three digits that count: `83 µs`, `2.1 ms`, `0 s`.
pub(crate) struct Took(pub f64);

impl Display for Took {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0.0 => return f.write_str("0 s"),
            s if s < 1e-3 => (s * 1e6, "µs"),
            s if s < 1.0 => (s * 1e3, "ms"),
            s => (s, "s"),
        };
        if value < 10.0 { write!(f, "{value:.1} {unit}") } else { write!(f, "{value:.0} {unit}") }
    }
}

/// The part of a whole: `45 %`. Only all of it is `100 %`.
pub(crate) struct Percent(pub u64, pub u64);

impl Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = u128::from(self.0) * 100 / u128::from(self.1.max(1));
        write!(f, "{percent} %")
    }
}

/// `2026-11-21 13:05`, in UTC; the script turns it into the reader's zone, of the same width.
#[derive(Clone, Copy)]
pub(crate) struct Minute(pub Timestamp);

impl Display for Minute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = DateTime::from(self.0);
        let ((year, month, day), (hour, minute, _)) = (moment.date(), moment.time());
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
    }
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
    fn numbers_are_grouped_by_thousands() {
        assert_eq!(Grouped(999).to_string(), "999");
        assert_eq!(Grouped(1_234_567).to_string(), "1\u{202f}234\u{202f}567");
        assert_eq!(Count(1, "entry", "entries").to_string(), "1 entry");
        assert_eq!(Count(0, "entry", "entries").to_string(), "0 entries");
    }

    #[test]
    fn times_and_shares_have_few_digits() {
        let took = [0.0, 0.000_083, 0.002_14, 0.25, 7.04, 83.0].map(|seconds| Took(seconds).to_string());
        assert_eq!(took, ["0 s", "83 µs", "2.1 ms", "250 ms", "7.0 s", "83 s"]);
        let shares = [(0, 0), (999, 1000), (7, 7), (u64::MAX, u64::MAX)];
        assert_eq!(
            shares.map(|(part, whole)| Percent(part, whole).to_string()),
            ["0 %", "99 %", "100 %", "100 %"]
        );
    }

    #[test]
    fn a_minute_has_no_seconds_and_any_time_is_shown() {
        let shown = |seconds| Minute(Timestamp::new(seconds, 0).unwrap()).to_string();
        assert_eq!(shown(1_795_266_300), "2026-11-21 13:05");
        assert_eq!(shown(i64::MAX), "9999-12-31 23:59");
        assert_eq!(shown(i64::MIN), "0001-01-01 00:00");
    }

    #[test]
    fn modes_read_as_ls_writes_them() {
        assert_eq!(Mode(0o1755).to_string(), "rwxr-xr-t");
        assert_eq!(Mode(0o4640).to_string(), "rwSr-----");
    }
}
