//! Byte ranges of files, half open, where a range may reach to the end of the file whatever it is.

/// `offset..end`; `end == u64::MAX` means to the end of the file. Never empty, never wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    offset: u64,
    end: u64,
}

impl ByteRange {
    /// The whole file.
    pub const ALL: ByteRange = ByteRange { offset: 0, end: u64::MAX };

    /// `length == u64::MAX` reaches to the end of the file (RFC 8881 §18.10.3). `None` for an empty range and for one
    /// that would pass the largest offset.
    pub fn new(offset: u64, length: u64) -> Option<ByteRange> {
        if length == 0 {
            return None;
        }
        if length == u64::MAX {
            return (offset < u64::MAX).then_some(ByteRange { offset, end: u64::MAX });
        }
        offset.checked_add(length).map(|end| ByteRange { offset, end })
    }

    /// From `offset` up to, not including, `end`.
    pub fn from_bounds(offset: u64, end: u64) -> Option<ByteRange> {
        (offset < end).then_some(ByteRange { offset, end })
    }

    pub fn offset(self) -> u64 {
        self.offset
    }

    pub fn end(self) -> u64 {
        self.end
    }

    /// As the wire has it: `u64::MAX` for a range to the end of the file.
    pub fn length(self) -> u64 {
        if self.end == u64::MAX { u64::MAX } else { self.end - self.offset }
    }

    pub fn overlaps(self, other: ByteRange) -> bool {
        self.offset < other.end && other.offset < self.end
    }

    pub fn contains(self, other: ByteRange) -> bool {
        self.offset <= other.offset && other.end <= self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_neither_is_empty_nor_wraps() {
        assert_eq!(ByteRange::new(5, 0), None);
        assert_eq!(ByteRange::new(u64::MAX - 1, 2), None);
        assert_eq!(ByteRange::new(3, u64::MAX).unwrap().end(), u64::MAX);
        assert_eq!(ByteRange::new(3, u64::MAX).unwrap().length(), u64::MAX);
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let a = ByteRange::new(0, 10).unwrap();
        let b = ByteRange::new(10, 10).unwrap();
        assert!(!a.overlaps(b));
        assert!(a.overlaps(ByteRange::new(9, 1).unwrap()));
        assert!(ByteRange::ALL.contains(b));
    }
}
