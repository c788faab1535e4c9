//! Bytes as hexadecimal digits.

use std::fmt::{self, Display};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Displays bytes as two lower-case digits each.
#[derive(Clone, Copy)]
pub struct Hex<'a>(pub &'a [u8]);

impl Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| {
            let pair = digits(*byte);
            f.write_str(std::str::from_utf8(&pair).expect("digits are ASCII"))
        })
    }
}

/// The two digits of a byte.
pub fn digits(byte: u8) -> [u8; 2] {
    [digit(byte >> 4), digit(byte)]
}

/// The digit of the low four bits.
pub fn digit(nibble: u8) -> u8 {
    DIGITS[usize::from(nibble & 0xf)]
}

/// The digits of a number, without zeros before them. As `{:x}`, which takes several times as long.
pub fn number(number: u64) -> impl ExactSizeIterator<Item = u8> {
    let count = (u64::BITS - number.leading_zeros()).div_ceil(4).max(1);
    (0..count).rev().map(move |at| digit((number >> (4 * at)) as u8))
}

/// The value of one digit of either case.
pub fn value(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// `None`: not two digits for each byte, of either case.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn digits_of_both_cases_are_read_and_all_else_is_refused() {
        assert_eq!(decode(b"00fFA9"), Some(vec![0, 0xff, 0xa9]));
        assert_eq!(decode(b""), Some(vec![]));
        for bad in [&b"0"[..], b"000", b"0g", b"+1", b" 1", "é".as_bytes()] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn a_number_has_the_digits_that_formatting_gives_it(value: u64, fewer in 0_u32..64) {
            for value in [value, value >> fewer, 0] {
                let digits = number(value);
                let count = digits.len();
                let text: String = digits.map(char::from).collect();
                prop_assert_eq!(count, text.len());
                prop_assert_eq!(text, format!("{value:x}"));
            }
        }

        #[test]
        fn bytes_survive_being_written(bytes: Vec<u8>) {
            prop_assert_eq!(decode(Hex(&bytes).to_string().as_bytes()), Some(bytes));
        }
    }
}
