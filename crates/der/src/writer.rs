//! Writes elements with the shortest lengths.

use types::DateTime;

use crate::Tag;

/// A value with its tag and length.
pub fn tagged(tag: Tag, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(len + 6);
    out.push(tag.0);
    match len {
        0..=0x7f => out.push(len as u8),
        _ => {
            let digits = u32::try_from(len).expect("tokens are short").to_be_bytes();
            let skipped = digits.iter().take_while(|digit| **digit == 0).count();
            out.push(0x80 | (digits.len() - skipped) as u8);
            out.extend_from_slice(&digits[skipped..]);
        }
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

/// `[n]` around a value.
pub fn field(n: u8, value: &[u8]) -> Vec<u8> {
    tagged(Tag::context(n), &[value])
}

pub fn put_integer(value: i64) -> Vec<u8> {
    let bytes = value.to_be_bytes();
    let repeats = |at: usize| {
        let sign = if bytes[at + 1] & 0x80 == 0 { 0 } else { 0xff };
        bytes[at] == sign
    };
    let from = (0..7).find(|at| !repeats(*at)).unwrap_or(7);
    tagged(Tag::INTEGER, &[&bytes[from..]])
}

/// GeneralizedTime of seconds since 1970.
pub fn put_time(seconds: i64) -> Vec<u8> {
    let moment = DateTime::of(seconds);
    let ((year, month, day), (hour, minute, second)) = (moment.date(), moment.time());
    let text = format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}Z");
    tagged(Tag::GENERALIZED_TIME, &[text.as_bytes()])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Reader, integer, time};

    proptest! {
        #[test]
        fn values_written_as_der_are_read_back(number in any::<i64>(), at in 0i64..250_000_000_000, len in 0usize..70_000) {
            let number_text = put_integer(number);
            prop_assert_eq!(integer(Reader::new(&number_text).value(Tag::INTEGER).unwrap()), Ok(number));
            let time_text = put_time(at);
            prop_assert_eq!(time(Reader::new(&time_text).value(Tag::GENERALIZED_TIME).unwrap()), Ok(at));
            let content = vec![7; len];
            let string = tagged(Tag::OCTET_STRING, &[&content]);
            prop_assert_eq!(Reader::new(&string).value(Tag::OCTET_STRING), Ok(&content[..]));
        }
    }
}
