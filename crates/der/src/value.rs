//! Reads numbers, flags, times and identifiers from the contents of elements.

use types::DateTime;

use crate::DerError;

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

/// The low 32 bits: Kerberos peers disagree whether a sequence number with its top bit set is negative.
pub fn uint32(content: &[u8]) -> Result<u32, DerError> {
    let value = integer(content)?;
    let in_range = (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&value);
    if in_range { Ok(value as u32) } else { Err(DerError::Range) }
}

/// A number that is not negative.
pub fn unsigned(content: &[u8]) -> Result<u32, DerError> {
    u32::try_from(integer(content)?).map_err(|_| DerError::Range)
}

/// The first 32 bits of KerberosFlags, of which there are at least 32 (RFC 4120 §5.2.8); bit 0 is the highest.
pub fn flags(content: &[u8]) -> Result<u32, DerError> {
    match content {
        [0..=7, a, b, c, d, ..] => Ok(u32::from_be_bytes([*a, *b, *c, *d])),
        _ => Err(DerError::Range),
    }
}

/// The bytes of a BIT STRING of whole octets.
pub fn octets_of_bits(content: &[u8]) -> Result<&[u8], DerError> {
    match content {
        [0, octets @ ..] => Ok(octets),
        _ => Err(DerError::Range),
    }
}

/// An object identifier with dots, for messages and for names whose attribute has no short one.
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

/// Seconds since 1970 of `YYYYMMDDHHMMSSZ`, the only form of GeneralizedTime that RFC 4120 §5.2.3 and RFC 5280 §4.1.2.5.2
/// allow. A leap second is the second after it.
pub fn time(content: &[u8]) -> Result<i64, DerError> {
    let Some((b'Z', digits)) = content.split_last() else { return Err(DerError::Range) };
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(DerError::Range);
    }
    let number = |range: std::ops::Range<usize>| {
        digits[range].iter().fold(0_u16, |number, digit| number * 10 + u16::from(digit - b'0'))
    };
    let second = number(12..14);
    let leap = u16::from(second == 60);
    let date = [number(0..4), number(4..6), number(6..8)];
    let moment = DateTime::new(date, [number(8..10), number(10..12), second - leap]);
    Ok(moment.ok_or(DerError::Range)?.seconds() + i64::from(leap))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(unsigned(&[0, 0xff, 0xff, 0xff, 0xff]), Ok(u32::MAX));
        assert_eq!(unsigned(&[0xff]), Err(DerError::Range));
    }

    #[test]
    fn times_are_of_the_gregorian_calendar() {
        assert_eq!(time(b"19700101000000Z"), Ok(0));
        assert_eq!(time(b"20000229235959Z"), Ok(951_868_799));
        assert_eq!(time(b"20000229235960Z"), Ok(951_868_800));
        assert_eq!(time(b"20380119031408Z"), Ok(1 << 31));
        for bad in [
            &b"20001301000000Z"[..],
            b"20000100000000Z",
            b"21000229000000Z",
            b"2000010100000Z",
            b"20000101000000",
            b"2000010100000aZ",
            b"20000101000000+0000",
            b"Z",
            b"",
        ] {
            assert_eq!(time(bad), Err(DerError::Range), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn object_identifiers_are_written_with_dots() {
        assert_eq!(dotted(&[0x2b, 6, 1, 4, 1, 0xbe, 0x45, 0x64, 0x64, 5]), "1.3.6.1.4.1.8005.100.100.5");
        assert_eq!(dotted(&[0x55, 4, 3]), "2.5.4.3");
    }
}
