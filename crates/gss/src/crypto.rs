//! The encryption types of Kerberos that are in use: AES in CTS mode with HMAC-SHA1 (RFC 3962) and HMAC-SHA2 (RFC 8009).
//!
//! A key is never used itself: for each usage an encryption key Ke, an integrity key Ki and a checksum key Kc are derived
//! from it (RFC 3961 §5.3, RFC 8009 §3). AES, CBC and HMAC are the library's; what is Kerberos' own stands here.

mod cts;
mod derive;
mod key;

use aws_lc_rs::{constant_time, hmac};
use bytes::{Buf, BytesMut};
use thiserror::Error;

use self::cts::BlockCipher;
use self::derive::Purpose;
pub(crate) use self::key::Usage;
pub use self::key::{Enctype, Key, KeyError};

/// Bytes of chance before what is encrypted.
pub const CONFOUNDER_LEN: usize = cts::BLOCK_LEN;

/// The data was encrypted or signed with another key or for another usage, or was changed on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("checksum does not match")]
pub(crate) struct BadIntegrity;

/// Encrypts and decrypts for one usage of one key.
pub(crate) struct Sealing {
    enctype: Enctype,
    cipher: BlockCipher,
    integrity: hmac::Key,
}

impl Sealing {
    pub fn new(key: &Key, usage: Usage) -> Self {
        let enctype = key.enctype();
        Sealing {
            enctype,
            cipher: BlockCipher::new(&derive::key(key, usage, Purpose::Encryption)),
            integrity: hmac::Key::new(enctype.hmac(), &derive::key(key, usage, Purpose::Integrity)),
        }
    }

    /// Appends the ciphertext of `parts`, one after the other, to `out`.
    pub fn seal_onto(&self, out: &mut Vec<u8>, confounder: &[u8; CONFOUNDER_LEN], parts: &[&[u8]]) {
        let start = out.len();
        let len: usize = parts.iter().map(|part| part.len()).sum();
        out.reserve(CONFOUNDER_LEN + len + cts::BLOCK_LEN + self.enctype.tag_len());
        out.extend_from_slice(confounder);
        for part in parts {
            out.extend_from_slice(part);
        }
        let mut tag = (!self.enctype.authenticates_ciphertext()).then(|| self.tag(&out[start..]));
        self.cipher.encrypt_from(out, start);
        let tag = tag.get_or_insert_with(|| self.tag(&out[start..]));
        out.extend_from_slice(&tag.as_ref()[..self.enctype.tag_len()]);
    }

    pub fn seal(&self, confounder: &[u8; CONFOUNDER_LEN], plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.seal_onto(&mut out, confounder, &[plain]);
        out
    }

    /// The plaintext without its confounder.
    pub fn open(&self, mut sealed: BytesMut) -> Result<BytesMut, BadIntegrity> {
        let tag_len = self.enctype.tag_len();
        let encrypted = sealed.len().checked_sub(tag_len).ok_or(BadIntegrity)?;
        if encrypted < CONFOUNDER_LEN {
            return Err(BadIntegrity);
        }
        let claimed = sealed.split_off(encrypted);
        let mut tag = self.enctype.authenticates_ciphertext().then(|| self.tag(&sealed));
        if let Some(tag) = &tag {
            constant_time::verify_slices_are_equal(&tag.as_ref()[..tag_len], &claimed)
                .map_err(|_| BadIntegrity)?;
        }
        self.cipher.decrypt(&mut sealed);
        let tag = tag.get_or_insert_with(|| self.tag(&sealed));
        constant_time::verify_slices_are_equal(&tag.as_ref()[..tag_len], &claimed)
            .map_err(|_| BadIntegrity)?;
        sealed.advance(CONFOUNDER_LEN);
        Ok(sealed)
    }

    fn tag(&self, bytes: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.integrity);
        if self.enctype.authenticates_ciphertext() {
            // The cipher state, which is zero for every message here (RFC 8009 §5).
            context.update(&[0; cts::BLOCK_LEN]);
        }
        context.update(bytes);
        context.sign()
    }
}

/// Makes and verifies checksums for one usage of one key.
pub(crate) struct Signing {
    tag_len: usize,
    key: hmac::Key,
}

impl Signing {
    pub fn new(key: &Key, usage: Usage) -> Self {
        let kc = derive::key(key, usage, Purpose::Checksum);
        Signing { tag_len: key.enctype().tag_len(), key: hmac::Key::new(key.enctype().hmac(), &kc) }
    }

    pub fn tag_len(&self) -> usize {
        self.tag_len
    }

    pub fn sign_onto(&self, out: &mut Vec<u8>, parts: &[&[u8]]) {
        out.extend_from_slice(&self.tag(parts).as_ref()[..self.tag_len]);
    }

    pub fn verify(&self, parts: &[&[u8]], claimed: &[u8]) -> Result<(), BadIntegrity> {
        constant_time::verify_slices_are_equal(&self.tag(parts).as_ref()[..self.tag_len], claimed)
            .map_err(|_| BadIntegrity)
    }

    fn tag(&self, parts: &[&[u8]]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(part);
        }
        context.sign()
    }
}

#[cfg(test)]
mod vectors;
