//! Sizes and durations for people.

use std::fmt::{self, Display};

/// A size in binary units with two to four digits that count: `512 B`, `1.4 MiB`, `930 GiB`.
#[derive(Clone, Copy)]
pub struct Size(pub u64);

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

/// Seconds in their two largest units: `3 d 4 h`, `12 s`.
#[derive(Clone, Copy)]
pub struct Seconds(pub u64);

impl Display for Seconds {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_to_four_digits_and_are_never_1024_of_a_unit() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_536, "1.5 KiB"),
            (102_400, "100 KiB"),
            (1_048_575, "1023 KiB"),
            (1_048_576, "1.0 MiB"),
            (3 << 29, "1.5 GiB"),
            (5 << 40, "5.0 TiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn durations_have_their_two_largest_units() {
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3_700, "1 h 1 min"), (90_061, "1 d 1 h")]
        {
            assert_eq!(Seconds(seconds).to_string(), text);
        }
    }
}
