//! Sizes, durations and text for people.

use std::fmt::{self, Display};

/// A size in binary units with two to four digits that count: `512 B`, `1.4 MiB`, `930 GiB`.
#[derive(Clone, Copy)]
pub struct Size(pub u64);

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match in_units(self.0) {
            (tenths, "") => write!(f, "{} B", tenths / 10),
            (tenths, unit) if tenths < 1000 => write!(f, "{}.{} {unit}iB", tenths / 10, tenths % 10),
            (tenths, unit) => write!(f, "{} {unit}iB", tenths / 10),
        }
    }
}

/// A size for tables of quotas, in binary units of one letter: `512`, `1.4M`, `930G`. Has a decimal where that tells more.
#[derive(Clone, Copy)]
pub struct ShortSize(pub u64);

impl Display for ShortSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tenths, unit) = in_units(self.0);
        let text = match tenths % 10 {
            0 => format!("{}{unit}", tenths / 10),
            decimal => format!("{}.{decimal}{unit}", tenths / 10),
        };
        f.pad(&text)
    }
}

/// Tenths of the largest binary unit that the size has, cut off: a float would round 1023.99 up to "1024 KiB".
fn in_units(bytes: u64) -> (u128, &'static str) {
    const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let power = bytes.checked_ilog2().unwrap_or(0) / 10;
    ((u128::from(bytes) * 10) >> (10 * power), UNITS[power as usize])
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

/// Control characters, and those that turn the direction of text or cannot be seen.
pub fn is_odd(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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
    fn the_last_size_before_a_unit_is_1023_and_the_next_is_one() {
        let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        for (power, pair) in (1..).zip(units.windows(2)) {
            let unit = 1_u64 << (10 * power);
            assert_eq!(Size(unit - 1).to_string(), format!("1023 {}", pair[0]));
            assert_eq!(Size(unit).to_string(), format!("1.0 {}", pair[1]));
        }
    }

    #[test]
    fn short_sizes_have_a_decimal_where_it_tells_more() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (1536, "1.5K"),
            (10 << 30, "10G"),
            ((150 << 30) + (1 << 29), "150.5G"),
            (u64::MAX, "15.9E"),
        ] {
            assert_eq!(ShortSize(bytes).to_string(), text);
        }
        assert_eq!(format!("{:>6}|", ShortSize(1536)), "  1.5K|");
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
