//! Variable-length opaque data as a value.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// Bytes that the protocol carries without looking inside, shared with the message they came from.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opaque(pub Bytes);

impl Opaque {
    pub const fn new() -> Self {
        Opaque(Bytes::new())
    }

    pub const fn from_static(bytes: &'static [u8]) -> Self {
        Opaque(Bytes::from_static(bytes))
    }

    pub fn copy_from_slice(bytes: &[u8]) -> Self {
        Opaque(Bytes::copy_from_slice(bytes))
    }

    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl Deref for Opaque {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Opaque {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Bytes> for Opaque {
    fn from(bytes: Bytes) -> Self {
        Opaque(bytes)
    }
}

impl From<Opaque> for Bytes {
    fn from(opaque: Opaque) -> Self {
        opaque.0
    }
}

impl From<Vec<u8>> for Opaque {
    fn from(bytes: Vec<u8>) -> Self {
        Opaque(bytes.into())
    }
}

impl From<&[u8]> for Opaque {
    fn from(bytes: &[u8]) -> Self {
        Self::copy_from_slice(bytes)
    }
}

impl<const N: usize> From<&[u8; N]> for Opaque {
    fn from(bytes: &[u8; N]) -> Self {
        Self::copy_from_slice(bytes)
    }
}

impl From<&str> for Opaque {
    fn from(text: &str) -> Self {
        Self::copy_from_slice(text.as_bytes())
    }
}
