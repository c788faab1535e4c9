//! Names of user extended attributes: bytes with the few rules that Linux has.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// 1 to 250 bytes without NUL, and without the `user.` that Linux puts before it (RFC 8276 §5). Not necessarily UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct XattrName(Arc<[u8]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum XattrNameError {
    #[error("name of an extended attribute is empty")]
    Empty,
    #[error("name of an extended attribute is longer than {} bytes", XattrName::BYTES_MAX)]
    TooLong,
    #[error("name of an extended attribute contains a NUL byte")]
    Nul,
}

impl XattrName {
    /// Linux puts it before the name, in programs and in its own bounds.
    pub const PREFIX: &str = "user.";
    /// XATTR_NAME_MAX of Linux counts the prefix. A longer name, set by another client, would make every listing of the
    /// file fail at Linux ones (`decode_listxattrs`).
    pub const BYTES_MAX: usize = 255 - XattrName::PREFIX.len();

    pub fn new(bytes: &[u8]) -> Result<XattrName, XattrNameError> {
        if bytes.is_empty() {
            return Err(XattrNameError::Empty);
        }
        if bytes.len() > XattrName::BYTES_MAX {
            return Err(XattrNameError::TooLong);
        }
        if bytes.contains(&0) {
            return Err(XattrNameError::Nul);
        }
        Ok(XattrName(bytes.into()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Of the name as `listxattr` tells it: with the prefix and a NUL.
    pub fn listed_bytes(&self) -> usize {
        XattrName::PREFIX.len() + self.0.len() + 1
    }
}

impl fmt::Debug for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_extended_attributes_keep_the_rules_of_linux() {
        assert_eq!(XattrName::new(b""), Err(XattrNameError::Empty));
        assert_eq!(XattrName::new(b"a\0b"), Err(XattrNameError::Nul));
        assert_eq!(XattrName::new(&[b'x'; 251]), Err(XattrNameError::TooLong));
        assert_eq!(XattrName::new(&[b'x'; 250]).unwrap().listed_bytes(), 256);
        for name in [&b"."[..], b"..", b"a/b", b"\xff\xfe not utf-8"] {
            assert_eq!(XattrName::new(name).unwrap().as_bytes(), name);
        }
    }
}
