//! Checksums of whole files, by the names that WLCG and RFC 3230 use.

use std::fmt;

use crate::hex::Hex;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChecksumKind {
    Adler32,
    Crc32c,
    Md5,
    Sha256,
}

impl ChecksumKind {
    pub const ALL: [ChecksumKind; 4] =
        [ChecksumKind::Adler32, ChecksumKind::Crc32c, ChecksumKind::Md5, ChecksumKind::Sha256];

    /// As in `Digest` (RFC 3230) and in the namespace's database.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumKind::Adler32 => "adler32",
            ChecksumKind::Crc32c => "crc32c",
            ChecksumKind::Md5 => "md5",
            ChecksumKind::Sha256 => "sha-256",
        }
    }

    /// Case does not matter.
    pub fn by_name(name: &str) -> Option<ChecksumKind> {
        ChecksumKind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name))
    }

    pub fn value_bytes(self) -> usize {
        match self {
            ChecksumKind::Adler32 | ChecksumKind::Crc32c => 4,
            ChecksumKind::Md5 => 16,
            ChecksumKind::Sha256 => 32,
        }
    }
}

/// The value in network order.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum {
    kind: ChecksumKind,
    value: [u8; 32],
}

impl Checksum {
    /// `None` if the length is not the kind's.
    pub fn new(kind: ChecksumKind, value: &[u8]) -> Option<Checksum> {
        if value.len() != kind.value_bytes() {
            return None;
        }
        let mut padded = [0; 32];
        padded[..value.len()].copy_from_slice(value);
        Some(Checksum { kind, value: padded })
    }

    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }

    pub fn value(&self) -> &[u8] {
        &self.value[..self.kind.value_bytes()]
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind.name())?;
        Hex(self.value()).fmt(f)
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_length_is_no_checksum() {
        assert_eq!(Checksum::new(ChecksumKind::Adler32, &[1, 2, 3]), None);
        let sum = Checksum::new(ChecksumKind::Adler32, &[0, 2, 3, 0xff]).unwrap();
        assert_eq!((sum.value(), sum.to_string().as_str()), (&[0, 2, 3, 0xff][..], "adler32:000203ff"));
    }
}
