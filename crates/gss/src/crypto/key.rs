//! Encryption types, their keys, and the usages that these are for.

use aws_lc_rs::hmac;
use thiserror::Error;

const KEY_LEN_MAX: usize = 32;

/// How to encrypt, by its number in RFC 3962 and RFC 8009.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Enctype {
    Aes128CtsHmacSha1_96 = 17,
    Aes256CtsHmacSha1_96 = 18,
    Aes128CtsHmacSha256_128 = 19,
    Aes256CtsHmacSha384_192 = 20,
}

impl Enctype {
    pub fn from_number(number: i32) -> Option<Self> {
        match number {
            17 => Some(Self::Aes128CtsHmacSha1_96),
            18 => Some(Self::Aes256CtsHmacSha1_96),
            19 => Some(Self::Aes128CtsHmacSha256_128),
            20 => Some(Self::Aes256CtsHmacSha384_192),
            _ => None,
        }
    }

    pub fn number(self) -> i32 {
        self as i32
    }

    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128CtsHmacSha1_96 | Self::Aes128CtsHmacSha256_128 => 16,
            Self::Aes256CtsHmacSha1_96 | Self::Aes256CtsHmacSha384_192 => 32,
        }
    }

    /// Bytes of an HMAC that are kept.
    pub(crate) fn tag_len(self) -> usize {
        match self {
            Self::Aes128CtsHmacSha1_96 | Self::Aes256CtsHmacSha1_96 => 12,
            Self::Aes128CtsHmacSha256_128 => 16,
            Self::Aes256CtsHmacSha384_192 => 24,
        }
    }

    pub(crate) fn hmac(self) -> hmac::Algorithm {
        match self {
            Self::Aes128CtsHmacSha1_96 | Self::Aes256CtsHmacSha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Aes128CtsHmacSha256_128 => hmac::HMAC_SHA256,
            Self::Aes256CtsHmacSha384_192 => hmac::HMAC_SHA384,
        }
    }

    /// Whether the HMAC is over the ciphertext (RFC 8009 §5) and not over the plaintext (RFC 3961 §5.3).
    pub(crate) fn authenticates_ciphertext(self) -> bool {
        match self {
            Self::Aes128CtsHmacSha1_96 | Self::Aes256CtsHmacSha1_96 => false,
            Self::Aes128CtsHmacSha256_128 | Self::Aes256CtsHmacSha384_192 => true,
        }
    }
}

/// Key usage numbers (RFC 4120 §7.5.1, RFC 4121 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage(pub u32);

impl Usage {
    pub const TICKET: Self = Usage(2);
    pub const AP_REQ_AUTHENTICATOR: Self = Usage(11);
    pub const AP_REP: Self = Usage(12);
    pub const ACCEPTOR_SEAL: Self = Usage(22);
    pub const ACCEPTOR_SIGN: Self = Usage(23);
    pub const INITIATOR_SEAL: Self = Usage(24);
    pub const INITIATOR_SIGN: Self = Usage(25);
}

/// A key of one of the types above; it does not print.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    enctype: Enctype,
    /// The first `key_len` bytes count, the others are zero.
    bytes: [u8; KEY_LEN_MAX],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    #[error("encryption type {0} is not supported")]
    Enctype(i32),
    #[error("key of {len} bytes does not fit encryption type {enctype}")]
    Length { enctype: i32, len: usize },
}

impl Key {
    pub fn new(enctype: i32, bytes: &[u8]) -> Result<Self, KeyError> {
        let kind = Enctype::from_number(enctype).ok_or(KeyError::Enctype(enctype))?;
        if bytes.len() != kind.key_len() {
            return Err(KeyError::Length { enctype, len: bytes.len() });
        }
        Ok(Self::from_chance(kind, bytes))
    }

    /// Every string of bits is a key of AES (RFC 3962 §3): the first of `bytes`, which are enough.
    pub(crate) fn from_chance(enctype: Enctype, bytes: &[u8]) -> Self {
        let (len, mut key) = (enctype.key_len(), [0; KEY_LEN_MAX]);
        key[..len].copy_from_slice(&bytes[..len]);
        Key { enctype, bytes: key }
    }

    pub fn enctype(&self) -> Enctype {
        self.enctype
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.enctype.key_len()]
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("enctype", &self.enctype).finish_non_exhaustive()
    }
}
