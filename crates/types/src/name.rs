//! Names of directory entries and targets of symbolic links: bytes with the few rules that POSIX has.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// One component of a path: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`. Not necessarily UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    #[error("name is empty")]
    Empty,
    #[error("name is longer than {} bytes", Name::BYTES_MAX)]
    TooLong,
    #[error("name contains a slash or a NUL byte")]
    BadCharacter,
    #[error("name is . or ..")]
    Dot,
}

impl Name {
    /// NAME_MAX of Linux.
    pub const BYTES_MAX: usize = 255;

    pub fn new(bytes: &[u8]) -> Result<Name, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > Name::BYTES_MAX {
            return Err(NameError::TooLong);
        }
        if bytes == b"." || bytes == b".." {
            return Err(NameError::Dot);
        }
        if bytes.iter().any(|b| matches!(b, 0 | b'/')) {
            return Err(NameError::BadCharacter);
        }
        Ok(Name(bytes.into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// The text of a symbolic link: 1 to 4095 bytes without NUL (PATH_MAX counts the NUL).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SymlinkTarget(Arc<[u8]>);

impl SymlinkTarget {
    pub const BYTES_MAX: usize = 4095;

    pub fn new(bytes: &[u8]) -> Result<SymlinkTarget, NameError> {
        if bytes.is_empty() {
            return Err(NameError::Empty);
        }
        if bytes.len() > SymlinkTarget::BYTES_MAX {
            return Err(NameError::TooLong);
        }
        if bytes.contains(&0) {
            return Err(NameError::BadCharacter);
        }
        Ok(SymlinkTarget(bytes.into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SymlinkTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_the_rules_of_posix() {
        assert_eq!(Name::new(b""), Err(NameError::Empty));
        assert_eq!(Name::new(b".."), Err(NameError::Dot));
        assert_eq!(Name::new(b"a/b"), Err(NameError::BadCharacter));
        assert_eq!(Name::new(b"a\0b"), Err(NameError::BadCharacter));
        assert_eq!(Name::new(&[b'x'; 256]), Err(NameError::TooLong));
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert!(Name::new(b"\xff\xfe not utf-8").is_ok());
        assert!(Name::new(b"...").is_ok());
    }
}
