//! Names as vis(3) and mtree write them: what could be mistaken stands behind a backslash.

/// `None`: an escape that nobody writes.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        if *first == b'\\' {
            let (byte, behind) = escape(behind)?;
            out.push(byte);
            rest = behind;
        } else {
            out.push(*first);
            rest = behind;
        }
    }
    Some(out)
}

/// One byte, and what follows its escape.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    if let [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] = text {
        return Some(((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'), rest));
    }
    match text {
        [b'M', b'-', byte, rest @ ..] => Some((byte | 0x80, rest)),
        [b'M', b'^', byte, rest @ ..] => Some((control(*byte) | 0x80, rest)),
        [b'^', byte, rest @ ..] => Some((control(*byte), rest)),
        [byte, rest @ ..] => Some((plain(*byte)?, rest)),
        [] => None,
    }
}

fn control(byte: u8) -> u8 {
    if byte == b'?' { 0x7f } else { byte & 0x1f }
}

fn plain(byte: u8) -> Option<u8> {
    Some(match byte {
        b'0' => 0,
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        b's' => b' ',
        b'\\' | b'#' | b'"' | b'*' | b'?' | b'[' | b'=' | b'$' => byte,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_every_style_are_bytes_again() {
        assert_eq!(decode(br"a\040b\\c\sd\#\n").unwrap(), b"a b\\c d#\n");
        assert_eq!(decode(br"\303\244\377").unwrap(), b"\xc3\xa4\xff");
        assert_eq!(decode(br"\M-C\M^A\^A\^?").unwrap(), b"\xc3\x81\x01\x7f");
        assert_eq!(decode(b"").unwrap(), b"");
        for wrong in [&br"\"[..], br"\q", br"\M", br"\^", br"\477"] {
            assert_eq!(decode(wrong), None, "{}", wrong.escape_ascii());
        }
    }
}
