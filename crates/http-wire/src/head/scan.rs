//! Finds the end of a head while it arrives, and refuses one that grows too long, before anything is parsed.
//!
//! Every refusal belongs to a position in the stream, so it does not depend on how the stream was cut.

use bytes::{Buf, BytesMut};

use super::{HeadError, HeadLimits};

/// RFC 9112 §2.2 asks to skip one; old clients send one after each POST.
const BLANK_LINES_MAX: u8 = 4;
const RANGE: &[u8] = b"range:";

/// How far a buffer has been looked through.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// No LF stands in the current line before here.
    at: usize,
    line_start: usize,
    blank_lines: u8,
    /// Bytes of complete lines, those of `Range` apart.
    plain_bytes: usize,
    range_bytes: usize,
}

/// The bound against which a line is counted.
#[derive(Clone, Copy)]
enum Class {
    Request,
    Range,
    Plain,
}

impl Scan {
    /// The length of the head with its empty line, once that is there.
    pub(super) fn end_of_head(
        &mut self,
        buffer: &mut BytesMut,
        limits: &HeadLimits,
    ) -> Result<Option<usize>, HeadError> {
        loop {
            let line = &buffer[self.line_start..];
            let Some(class) = self.class(line)? else { return self.wait(line.len(), limits) };
            let (budget, excess) = self.budget(class, limits);
            let seen = self.at - self.line_start;
            let window = &line[..line.len().min(budget)];
            let Some(found) = window.get(seen..).and_then(line_feed) else {
                if line.len() > budget {
                    return Err(excess);
                }
                self.at = buffer.len();
                return Ok(None);
            };
            let lf = seen + found;
            if lf == 0 || line[lf - 1] != b'\r' {
                return Err(HeadError::LineEnd);
            }
            let len = lf + 1;
            if len == 2 && matches!(class, Class::Request) {
                self.skip_blank_line(buffer)?;
                continue;
            }
            self.line_start += len;
            self.at = self.line_start;
            match class {
                Class::Range => self.range_bytes += len,
                Class::Plain if len == 2 => return Ok(Some(self.line_start)),
                Class::Plain | Class::Request => self.plain_bytes += len,
            }
        }
    }

    /// `None` while too little of the line is there. The first byte of a request line is looked at as soon as it is
    /// there, so that TLS on a plain port gets its answer at once.
    fn class(&self, line: &[u8]) -> Result<Option<Class>, HeadError> {
        let Some(first) = line.first() else { return Ok(None) };
        if self.line_start == 0 {
            let plausible = first.is_ascii_graphic() || matches!(first, b'\r' | b'\n');
            return if plausible { Ok(Some(Class::Request)) } else { Err(HeadError::RequestLine) };
        }
        let len = line.len().min(RANGE.len());
        let alike = line[..len].eq_ignore_ascii_case(&RANGE[..len]);
        Ok(match (alike, len == RANGE.len()) {
            (true, true) => Some(Class::Range),
            (true, false) => None,
            (false, _) => Some(Class::Plain),
        })
    }

    /// For the rest of a line that may yet be of either class; it must have room in one of them.
    fn wait(&self, len: usize, limits: &HeadLimits) -> Result<Option<usize>, HeadError> {
        let (plain, excess) = self.budget(Class::Plain, limits);
        let (range, _) = self.budget(Class::Range, limits);
        if len > plain.max(range) { Err(excess) } else { Ok(None) }
    }

    /// How long the current line may be, and what is wrong if it is longer.
    fn budget(&self, class: Class, limits: &HeadLimits) -> (usize, HeadError) {
        let plain = limits.head_bytes_max.saturating_sub(self.plain_bytes);
        match class {
            Class::Request => (limits.request_line_bytes_max.min(plain), HeadError::RequestLineTooLong),
            Class::Range => (limits.range_bytes_max.saturating_sub(self.range_bytes), HeadError::TooLong),
            Class::Plain => (plain, HeadError::TooLong),
        }
    }

    fn skip_blank_line(&mut self, buffer: &mut BytesMut) -> Result<(), HeadError> {
        buffer.advance(2);
        self.at = 0;
        self.blank_lines += 1;
        if self.blank_lines > BLANK_LINES_MAX { Err(HeadError::RequestLine) } else { Ok(()) }
    }
}

/// Where the first LF is. Sixteen bytes at a time, which the compiler looks at together.
fn line_feed(bytes: &[u8]) -> Option<usize> {
    let is_lf = |byte: &u8| *byte == b'\n';
    let (blocks, _) = bytes.as_chunks::<16>();
    let has_lf = |block: &[u8; 16]| block.iter().fold(false, |found, byte| found | is_lf(byte));
    let begin = 16 * blocks.iter().position(has_lf).unwrap_or(blocks.len());
    bytes[begin..].iter().position(is_lf).map(|at| begin + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_feed_is_found_wherever_it_stands() {
        for len in 0..70 {
            let mut bytes = vec![b'\r'; len];
            assert_eq!(line_feed(&bytes), None);
            for at in (0..len).rev() {
                bytes[at] = b'\n';
                assert_eq!(line_feed(&bytes), Some(at), "of {len}");
            }
        }
    }
}
