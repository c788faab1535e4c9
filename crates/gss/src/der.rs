//! As much of the Distinguished Encoding Rules (X.690) as Kerberos needs: tags of one byte, lengths that are known.
//!
//! The reader borrows what it reads and never goes deeper than its caller asks, so nothing here recurses or allocates by
//! what a peer says.

use thiserror::Error;

use crate::UnixSeconds;

/// A tag with its class and form, as it stands on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag(pub u8);

impl Tag {
    pub const INTEGER: Self = Tag(0x02);
    pub const BIT_STRING: Self = Tag(0x03);
    pub const OCTET_STRING: Self = Tag(0x04);
    pub const OBJECT_IDENTIFIER: Self = Tag(0x06);
    pub const GENERALIZED_TIME: Self = Tag(0x18);
    pub const GENERAL_STRING: Self = Tag(0x1b);
    pub const SEQUENCE: Self = Tag(0x30);

    /// `[APPLICATION n]`, constructed.
    pub const fn application(n: u8) -> Self {
        Tag(0x60 | n)
    }

    /// `[n]`, constructed: Kerberos tags every field explicitly.
    pub const fn context(n: u8) -> Self {
        Tag(0xa0 | n)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DerError {
    #[error("value ends early")]
    Truncated,
    #[error("tag {found:#x} where {wanted:#x} belongs")]
    Tag { wanted: u8, found: u8 },
    #[error("length is not in its shortest form")]
    Length,
    #[error("bytes are left over")]
    Trailing,
    #[error("value is out of range")]
    Range,
}

/// The values inside of one value, in turn.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The content of the next value, which has this tag.
    pub fn value(&mut self, wanted: Tag) -> Result<&'a [u8], DerError> {
        let (&found, after_tag) = self.rest.split_first().ok_or(DerError::Truncated)?;
        if found != wanted.0 {
            return Err(DerError::Tag { wanted: wanted.0, found });
        }
        let (len, after_length) = length(after_tag)?;
        let (content, rest) = after_length.split_at_checked(len).ok_or(DerError::Truncated)?;
        self.rest = rest;
        Ok(content)
    }

    pub fn inside(&mut self, wanted: Tag) -> Result<Reader<'a>, DerError> {
        self.value(wanted).map(Reader::new)
    }

    /// The one value that `[n]` holds.
    pub fn field(&mut self, n: u8, wanted: Tag) -> Result<&'a [u8], DerError> {
        let mut field = self.inside(Tag::context(n))?;
        let value = field.value(wanted)?;
        field.finish()?;
        Ok(value)
    }

    pub fn optional(&mut self, n: u8, wanted: Tag) -> Result<Option<&'a [u8]>, DerError> {
        match self.rest.first() {
            Some(tag) if *tag == Tag::context(n).0 => self.field(n, wanted).map(Some),
            _ => Ok(None),
        }
    }

    pub fn finish(self) -> Result<(), DerError> {
        if self.rest.is_empty() { Ok(()) } else { Err(DerError::Trailing) }
    }
}

fn length(bytes: &[u8]) -> Result<(usize, &[u8]), DerError> {
    let (&first, rest) = bytes.split_first().ok_or(DerError::Truncated)?;
    if first < 0x80 {
        return Ok((usize::from(first), rest));
    }
    let count = usize::from(first & 0x7f);
    if count == 0 || count > 4 {
        return Err(DerError::Length);
    }
    let (digits, rest) = rest.split_at_checked(count).ok_or(DerError::Truncated)?;
    let len = digits.iter().fold(0usize, |len, digit| len << 8 | usize::from(*digit));
    if len < 0x80 || digits[0] == 0 {
        return Err(DerError::Length);
    }
    Ok((len, rest))
}

/// An INTEGER of at most eight bytes.
pub fn integer(content: &[u8]) -> Result<i64, DerError> {
    let (&first, _) = content.split_first().ok_or(DerError::Truncated)?;
    if content.len() > 8 {
        return Err(DerError::Range);
    }
    let sign = if first & 0x80 == 0 { 0 } else { -1 };
    Ok(content.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte)))
}

pub fn int32(content: &[u8]) -> Result<i32, DerError> {
    i32::try_from(integer(content)?).map_err(|_| DerError::Range)
}

/// The low 32 bits: peers disagree whether a sequence number with its top bit set is negative.
pub fn uint32(content: &[u8]) -> Result<u32, DerError> {
    let value = integer(content)?;
    let in_range = (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&value);
    if in_range { Ok(value as u32) } else { Err(DerError::Range) }
}

/// The first 32 bits of KerberosFlags, of which there are at least 32 (RFC 4120 §5.2.8); bit 0 is the highest.
pub fn flags(content: &[u8]) -> Result<u32, DerError> {
    match content {
        [0..=7, a, b, c, d, ..] => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => Err(DerError::Range),
    }
}

/// `YYYYMMDDHHMMSSZ` (RFC 4120 §5.2.3).
pub fn time(content: &[u8]) -> Result<UnixSeconds, DerError> {
    let Some((b'Z', digits)) = content.split_last() else { return Err(DerError::Range) };
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DerError::Range);
    }
    let number =
        |from: usize, to: usize| digits[from..to].iter().fold(0, |n, d| n * 10 + i64::from(d - b'0'));
    let (year, month, day) = (number(0, 4), number(4, 6), number(6, 8));
    let (hour, minute, second) = (number(8, 10), number(10, 12), number(12, 14));
    let in_range = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        // A leap second is the second after it.
        && second <= 60;
    if !in_range {
        return Err(DerError::Range);
    }
    Ok(days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Days of the Gregorian calendar; years begin in March here, so that the leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let before_this_year = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    before_this_year + (153 * month + 2) / 5 + day - 1 - 719_468
}

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

pub fn put_time(at: UnixSeconds) -> Vec<u8> {
    let (days, second) = (at.div_euclid(86_400), at.rem_euclid(86_400));
    // The inverse of the above: 400 years, 100 years, 4 years, a year, each but the last of its kind as long as the others.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    let text =
        format!("{year:04}{month:02}{day:02}{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60);
    tagged(Tag::GENERALIZED_TIME, &[text.as_bytes()])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lengths_are_in_their_shortest_form() {
        let of = |bytes: &[u8]| Reader::new(bytes).value(Tag::OCTET_STRING).map(<[u8]>::len);
        assert_eq!(of(&[4, 2, 1, 2]), Ok(2));
        assert_eq!(of(&[4, 0x81, 2, 1, 2]), Err(DerError::Length));
        assert_eq!(of(&[4, 0x82, 0, 0x80]), Err(DerError::Length));
        assert_eq!(of(&[4, 0x80, 0, 0]), Err(DerError::Length), "no indefinite lengths");
        assert_eq!(of(&[4, 0x85, 1, 1, 1, 1, 1]), Err(DerError::Length));
        assert_eq!(of(&[4, 0x84, 0xff, 0xff, 0xff, 0xff]), Err(DerError::Truncated));
        assert_eq!(of(&[4]), Err(DerError::Truncated));
        assert_eq!(of(&[]), Err(DerError::Truncated));
        assert_eq!(of(&[2, 1, 1]), Err(DerError::Tag { wanted: 4, found: 2 }));
    }

    #[test]
    fn integers_are_signed_and_bounded() {
        assert_eq!(integer(&[0xff]), Ok(-1));
        assert_eq!(integer(&[0x7f]), Ok(127));
        assert_eq!(integer(&[0, 0xff]), Ok(255));
        assert_eq!(integer(&[]), Err(DerError::Truncated));
        assert_eq!(integer(&[1; 9]), Err(DerError::Range));
        assert_eq!(uint32(&[0, 0xff, 0xff, 0xff, 0xff]), Ok(u32::MAX));
        assert_eq!(uint32(&[0xff, 0xff, 0xff, 0xff]), Ok(u32::MAX));
        assert_eq!(uint32(&[1, 0, 0, 0, 0]), Err(DerError::Range));
        assert_eq!(int32(&[0, 0xff, 0xff, 0xff, 0xff]), Err(DerError::Range));
    }

    #[test]
    fn times_are_of_the_gregorian_calendar() {
        assert_eq!(time(b"19700101000000Z"), Ok(0));
        assert_eq!(time(b"20000229235960Z"), Ok(951_868_800));
        assert_eq!(time(b"20380119031408Z"), Ok(1 << 31));
        for wrong in
            ["20001301000000Z", "20000100000000Z", "2000010100000Z", "20000101000000", "2000010100000aZ"]
        {
            assert_eq!(time(wrong.as_bytes()), Err(DerError::Range), "{wrong}");
        }
    }

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
