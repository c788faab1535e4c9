//! AES in CBC mode with ciphertext stealing, the last two blocks always swapped, from a zero vector (RFC 3962 §5).

use aws_lc_rs::cipher::{
    AES_128, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;

pub const BLOCK_LEN: usize = 16;

/// AES with one key.
pub struct BlockCipher {
    encrypting: EncryptingKey,
    decrypting: DecryptingKey,
}

impl BlockCipher {
    /// A key of 16 or 32 bytes.
    pub fn new(key: &[u8]) -> Self {
        let algorithm = if key.len() == 16 { &AES_128 } else { &AES_256 };
        let unbound =
            || UnboundCipherKey::new(algorithm, key).expect("derived keys have the cipher's length");
        BlockCipher {
            encrypting: EncryptingKey::cbc(unbound()).expect("the library has AES-CBC"),
            decrypting: DecryptingKey::cbc(unbound()).expect("the library has AES-CBC"),
        }
    }

    /// Encrypts the bytes of `buffer` from `start` on, of which there is at least one block.
    pub fn encrypt_from(&self, buffer: &mut Vec<u8>, start: usize) {
        let len = buffer.len() - start;
        assert!(len >= BLOCK_LEN, "a confounder precedes everything");
        buffer.resize(start + len.next_multiple_of(BLOCK_LEN), 0);
        let text = &mut buffer[start..];
        self.encrypt_blocks(text);
        if len > BLOCK_LEN {
            let last = text.len() - BLOCK_LEN;
            let (before, last) = text.split_at_mut(last);
            let penultimate = before.len() - BLOCK_LEN;
            before[penultimate..].swap_with_slice(last);
        }
        buffer.truncate(start + len);
    }

    /// Decrypts at least one block in place.
    pub fn decrypt(&self, text: &mut [u8]) {
        assert!(text.len() >= BLOCK_LEN, "the caller has checked the length");
        if text.len() == BLOCK_LEN {
            return self.decrypt_blocks(text);
        }
        let tail_len = (text.len() - 1) % BLOCK_LEN + 1;
        let (head, tail) = text.split_at_mut(text.len() - BLOCK_LEN - tail_len);
        // `tail` is the last block's ciphertext, then what was not stolen of the one before it.
        let mut blocks = [0; 2 * BLOCK_LEN];
        let (stolen_from, last) = blocks.split_at_mut(BLOCK_LEN);
        last.copy_from_slice(&tail[..BLOCK_LEN]);
        stolen_from.copy_from_slice(last);
        self.decrypt_blocks(stolen_from);
        stolen_from[..tail_len].copy_from_slice(&tail[BLOCK_LEN..]);
        let previous = head.last_chunk::<BLOCK_LEN>().copied().unwrap_or_default();
        if !head.is_empty() {
            self.decrypt_blocks(head);
        }
        self.decrypt_blocks_from(previous, &mut blocks);
        tail.copy_from_slice(&blocks[..BLOCK_LEN + tail_len]);
    }

    /// Whole blocks, chained.
    pub fn encrypt_blocks(&self, blocks: &mut [u8]) {
        let zero = EncryptionContext::Iv128(FixedLength::from([0; BLOCK_LEN]));
        self.encrypting.less_safe_encrypt(blocks, zero).expect("whole blocks encrypt");
    }

    fn decrypt_blocks(&self, blocks: &mut [u8]) {
        self.decrypt_blocks_from([0; BLOCK_LEN], blocks);
    }

    fn decrypt_blocks_from(&self, vector: [u8; BLOCK_LEN], blocks: &mut [u8]) {
        let vector = DecryptionContext::Iv128(FixedLength::from(vector));
        self.decrypting.decrypt(blocks, vector).expect("whole blocks decrypt");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::vectors::hex;

    /// RFC 3962 appendix B: every edge of the stealing.
    #[test]
    fn cts_gives_what_rfc_3962_gives() {
        let cipher = BlockCipher::new(b"chicken teriyaki");
        let plain = b"I would like the General Gau's Chicken, please, and wonton soup.";
        let cases = [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
            (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
            (
                47,
                "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e39312523a78662d5be7fcbcc98ebf5",
            ),
            (
                48,
                "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd839312523a78662d5be7fcbcc98ebf5a8",
            ),
            (
                64,
                "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a84807efe836ee89a526730dbc2f7bc840\
                 9dad8bbb96c4cdc03bc103e1a194bbd8",
            ),
        ];
        for (len, expected) in cases {
            let mut buffer = [b"before", &plain[..len]].concat();
            cipher.encrypt_from(&mut buffer, 6);
            assert_eq!(buffer[6..], hex(expected), "{len} bytes");
            assert_eq!(buffer[..6], *b"before");
            cipher.decrypt(&mut buffer[6..]);
            assert_eq!(buffer[6..], plain[..len], "{len} bytes back");
        }
    }

    #[test]
    fn one_block_is_one_block() {
        let cipher = BlockCipher::new(&[7; 32]);
        let mut buffer = b"exactly sixteen!".to_vec();
        cipher.encrypt_from(&mut buffer, 0);
        let mut block = b"exactly sixteen!".to_vec();
        cipher.encrypt_blocks(&mut block);
        assert_eq!(buffer, block);
        cipher.decrypt(&mut buffer);
        assert_eq!(buffer, b"exactly sixteen!");
    }
}
