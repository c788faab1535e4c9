//! A reader of DER for the few structures that the X.509 library does not know: proxy information, attribute
//! certificates, names as they are compared.
//!
//! It borrows, never recurses by itself and accepts only what DER writes: low tag numbers, definite and shortest
//! lengths. Errors are one word, for the caller knows what it was reading.

use thiserror::Error;

pub const BOOLEAN: u8 = 0x01;
pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OID: u8 = 0x06;
pub const UTF8_STRING: u8 = 0x0c;
pub const PRINTABLE_STRING: u8 = 0x13;
pub const T61_STRING: u8 = 0x14;
pub const IA5_STRING: u8 = 0x16;
pub const GENERALIZED_TIME: u8 = 0x18;
pub const VISIBLE_STRING: u8 = 0x1a;
pub const UNIVERSAL_STRING: u8 = 0x1c;
pub const BMP_STRING: u8 = 0x1e;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// `[n]` over a primitive value.
pub const fn tagged(n: u8) -> u8 {
    0x80 | n
}

/// `[n]` over a constructed value, or an explicit tag.
pub const fn tagged_constructed(n: u8) -> u8 {
    0xa0 | n
}

#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("not the DER that was expected")]
pub struct NotDer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element<'a> {
    pub tag: u8,
    pub body: &'a [u8],
    /// With tag and length, as it is signed.
    pub whole: &'a [u8],
}

impl<'a> Element<'a> {
    pub fn reader(&self) -> Reader<'a> {
        Reader::new(self.body)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn next(&mut self) -> Result<Element<'a>, NotDer> {
        let all = self.rest;
        let (&[tag, first], _) = all.split_first_chunk::<2>().ok_or(NotDer)?;
        if tag & 0x1f == 0x1f {
            return Err(NotDer);
        }
        let (length, header) = match first {
            0..=0x7f => (usize::from(first), 2),
            0x81..=0x83 => {
                let count = usize::from(first & 0x7f);
                let digits = all.get(2..2 + count).ok_or(NotDer)?;
                let length = digits.iter().fold(0usize, |sum, digit| sum << 8 | usize::from(*digit));
                let shortest = if count == 1 { length > 0x7f } else { digits[0] != 0 };
                if !shortest {
                    return Err(NotDer);
                }
                (length, 2 + count)
            }
            _ => return Err(NotDer),
        };
        let body = all.get(header..header + length).ok_or(NotDer)?;
        let (whole, rest) = all.split_at(header + length);
        self.rest = rest;
        Ok(Element { tag, body, whole })
    }

    pub fn expect(&mut self, tag: u8) -> Result<Element<'a>, NotDer> {
        self.next_if(tag)?.ok_or(NotDer)
    }

    /// `None`, and nothing is consumed, when another element or none follows.
    pub fn next_if(&mut self, tag: u8) -> Result<Option<Element<'a>>, NotDer> {
        if self.rest.first() != Some(&tag) { Ok(None) } else { self.next().map(Some) }
    }

    pub fn end(&self) -> Result<(), NotDer> {
        if self.rest.is_empty() { Ok(()) } else { Err(NotDer) }
    }
}

/// The one element that `bytes` are.
pub fn only(bytes: &[u8], tag: u8) -> Result<Element<'_>, NotDer> {
    let mut reader = Reader::new(bytes);
    let element = reader.expect(tag)?;
    reader.end()?;
    Ok(element)
}

/// The bytes of a BIT STRING of whole octets.
pub fn octets_of_bits(body: &[u8]) -> Result<&[u8], NotDer> {
    match body {
        [0, octets @ ..] => Ok(octets),
        _ => Err(NotDer),
    }
}

pub fn small_unsigned(body: &[u8]) -> Result<u32, NotDer> {
    let digits = match body {
        [] => return Err(NotDer),
        [0, more @ ..] if !more.is_empty() => more,
        all => all,
    };
    if body[0] & 0x80 != 0 || digits.len() > 4 {
        return Err(NotDer);
    }
    Ok(digits.iter().fold(0, |sum, digit| sum << 8 | u32::from(*digit)))
}

/// Dotted, for messages and for names whose attribute has no short one.
pub fn dotted(oid: &[u8]) -> String {
    let mut out = String::new();
    let mut arc: u64 = 0;
    for byte in oid {
        arc = arc.saturating_mul(128).saturating_add(u64::from(byte & 0x7f));
        if byte & 0x80 == 0 {
            if out.is_empty() {
                let first = (arc / 40).min(2);
                out = format!("{first}.{}", arc - first * 40);
            } else {
                out.push('.');
                out.push_str(&arc.to_string());
            }
            arc = 0;
        }
    }
    out
}

/// Seconds since 1970 of `YYYYMMDDHHMMSSZ`, the only form that RFC 5280 §4.1.2.5.2 allows.
pub fn generalized_time(body: &[u8]) -> Result<i64, NotDer> {
    let (b'Z', digits) = body.split_last().ok_or(NotDer)? else { return Err(NotDer) };
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NotDer);
    }
    let number = |range: std::ops::Range<usize>| {
        digits[range].iter().fold(0i64, |sum, d| sum * 10 + i64::from(d - b'0'))
    };
    let (year, month, day) = (number(0..4), number(4..6), number(6..8));
    let (hour, minute, second) = (number(8..10), number(10..12), number(12..14));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return Err(NotDer);
    }
    // Days of the proleptic Gregorian calendar, counted in years that begin in March.
    let year = if month <= 2 { year - 1 } else { year };
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = year.div_euclid(400) * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100
        + day_of_year;
    Ok((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_could_be_shorter_is_refused() {
        assert!(only(&[0x04, 0x81, 0x01, 0xff], OCTET_STRING).is_err());
        assert!(only(&[0x04, 0x82, 0x00, 0x80], OCTET_STRING).is_err());
        assert!(only(&[0x04, 0x01, 0xff], OCTET_STRING).is_ok());
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        assert!(only(&[0x04, 0x83, 0xff, 0xff, 0xff, 0x00], OCTET_STRING).is_err());
        assert!(only(&[0x04, 0x84, 0x00, 0x00, 0x00, 0x01, 0x00], OCTET_STRING).is_err());
        assert!(only(&[0x04, 0x80, 0x00, 0x00], OCTET_STRING).is_err(), "indefinite lengths are BER");
        assert!(only(&[0x04], OCTET_STRING).is_err());
    }

    #[test]
    fn times_are_counted_as_the_calendar_does() {
        assert_eq!(generalized_time(b"19700101000000Z"), Ok(0));
        assert_eq!(generalized_time(b"20000229235959Z"), Ok(951_868_799));
        assert_eq!(generalized_time(b"20361118125654Z"), Ok(2_110_625_814));
        for bad in
            [&b"20361118125654"[..], b"2036111812565Z", b"20361318125654Z", b"20361118125654+0000", b"Z", b""]
        {
            assert_eq!(generalized_time(bad), Err(NotDer), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn object_identifiers_are_written_with_dots() {
        assert_eq!(dotted(&[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 5]), "1.3.6.1.4.1.8005.100.100.5");
        assert_eq!(dotted(&[0x55, 4, 3]), "2.5.4.3");
    }
}
