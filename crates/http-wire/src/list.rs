//! Elements of many header fields: comma-separated lists, parameters, decimal numbers (RFC 9110 §5.6).

use bytes::BytesMut;

/// Spaces and tabs at both ends removed.
pub fn trim(text: &[u8]) -> &[u8] {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len());
    let end = text.iter().rposition(|byte| !is_space(byte)).map_or(start, |last| last + 1);
    &text[start..end]
}

/// The elements of a list whose elements have no quoted strings; empty ones are skipped (RFC 9110 §5.6.1.2).
pub fn items(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b',').map(trim).filter(|item| !item.is_empty())
}

/// `a=b` cut at the first `=`, both sides trimmed.
pub fn pair(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b'=')?;
    Some((trim(&text[..at]), trim(&text[at + 1..])))
}

/// Digits and nothing else: `parse` of the standard library would take a sign as well. `None` beyond 64 bits.
pub fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Appends a number as it is read by [`decimal`].
pub fn put_decimal(out: &mut BytesMut, number: u64) {
    let mut digits = [0; 20];
    let (mut start, mut left) = (digits.len(), number);
    loop {
        start -= 1;
        digits[start] = b"0123456789"[(left % 10) as usize];
        left /= 10;
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// How many digits [`put_decimal`] appends.
pub fn decimal_len(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

/// A weight from 0 to 1 with up to three decimals, in thousandths (RFC 9110 §12.4.2).
pub fn weight(text: &[u8]) -> Option<u16> {
    let (whole, rest) = text.split_first()?;
    let fraction = match rest {
        [] => &[][..],
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let thousandths = fraction
        .iter()
        .chain(b"000")
        .take(3)
        .try_fold(0_u16, |sum, byte| byte.is_ascii_digit().then(|| sum * 10 + u16::from(byte - b'0')))?;
    match whole {
        b'0' => Some(thousandths),
        b'1' if thousandths == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_may_have_spaces_and_empty_elements() {
        let found: Vec<&[u8]> = items(b" a ,,\tb,c\t, ").collect();
        assert_eq!(found, [b"a", b"b", b"c"]);
        assert_eq!(items(b"").count(), 0);
        assert_eq!(pair(b" q = 1"), Some((&b"q"[..], &b"1"[..])));
        assert_eq!(pair(b"q"), None);
    }

    #[test]
    fn a_number_is_digits_and_fits() {
        assert_eq!(decimal(b"0018"), Some(18));
        assert_eq!(decimal(b"18446744073709551615"), Some(u64::MAX));
        for bad in [&b""[..], b"+1", b"-1", b" 1", b"1 ", b"0x1", b"1,1", b"18446744073709551616"] {
            assert_eq!(decimal(bad), None, "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn a_number_is_written_as_long_as_foretold() {
        for number in [0, 9, 10, 99, 100, 1 << 40, u64::MAX] {
            let mut out = BytesMut::new();
            put_decimal(&mut out, number);
            assert_eq!(out, number.to_string());
            assert_eq!(decimal_len(number), out.len() as u64);
        }
    }

    #[test]
    fn a_weight_is_between_0_and_1() {
        assert_eq!(weight(b"1"), Some(1000));
        assert_eq!(weight(b"0.5"), Some(500));
        assert_eq!(weight(b"0.005"), Some(5));
        assert_eq!(weight(b"0."), Some(0));
        for bad in [&b""[..], b"2", b"1.1", b"0.1234", b".5", b"-1", b"0.x"] {
            assert_eq!(weight(bad), None, "{}", bad.escape_ascii());
        }
    }
}
