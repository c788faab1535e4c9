//! Keys from keys: DK of RFC 3961 §5.1 for RFC 3962, the KDF of RFC 8009 §3.

use aws_lc_rs::hmac;

use super::cts::{BLOCK_LEN, BlockCipher};
use super::key::{Enctype, Key, Usage};

/// The last byte of the constant that a key is derived with (RFC 3961 §5.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Checksum = 0x99,
    Encryption = 0xaa,
    Integrity = 0x55,
}

pub fn key(base: &Key, usage: Usage, purpose: Purpose) -> Vec<u8> {
    let mut constant = [0; 5];
    constant[..4].copy_from_slice(&usage.0.to_be_bytes());
    constant[4] = purpose as u8;
    match base.enctype() {
        Enctype::Aes128CtsHmacSha1_96 | Enctype::Aes256CtsHmacSha1_96 => by_encryption(base, &constant),
        Enctype::Aes128CtsHmacSha256_128 => by_hmac(base, &constant, 16),
        // Integrity and checksum keys are as long as half the hash, the encryption key is a key of AES-256.
        Enctype::Aes256CtsHmacSha384_192 => {
            by_hmac(base, &constant, if purpose == Purpose::Encryption { 32 } else { 24 })
        }
    }
}

/// DR: the folded constant, encrypted again and again, until there are bits enough.
fn by_encryption(base: &Key, constant: &[u8]) -> Vec<u8> {
    let cipher = BlockCipher::new(base.as_bytes());
    let mut block = n_fold::<BLOCK_LEN>(constant);
    let mut key = Vec::with_capacity(base.as_bytes().len());
    while key.len() < base.as_bytes().len() {
        cipher.encrypt_blocks(&mut block);
        key.extend_from_slice(&block);
    }
    key
}

/// One round of SP 800-108 in counter mode: every key here is shorter than the hash.
fn by_hmac(base: &Key, label: &[u8], len: usize) -> Vec<u8> {
    let bits = u32::try_from(len * 8).expect("keys are short");
    let mut context = hmac::Context::with_key(&hmac::Key::new(base.enctype().hmac(), base.as_bytes()));
    context.update(&1u32.to_be_bytes());
    context.update(label);
    context.update(&[0]);
    context.update(&bits.to_be_bytes());
    context.sign().as_ref()[..len].to_vec()
}

/// Copies of the input, each turned 13 bits further to the right, are cut into pieces of N bytes and added in
/// ones' complement (RFC 3961 §5.1).
fn n_fold<const N: usize>(input: &[u8]) -> [u8; N] {
    let bits = input.len() * 8;
    let copies = N / greatest_common_divisor(N, input.len());
    let turned = |copy: usize, at: usize| -> u8 {
        (0..8).fold(0, |byte, bit| {
            let from = (at * 8 + bit + bits - (13 * copy) % bits) % bits;
            byte << 1 | (input[from / 8] >> (7 - from % 8) & 1)
        })
    };
    let mut sums = [0u32; N];
    for index in 0..copies * input.len() {
        sums[index % N] += u32::from(turned(index / input.len(), index % input.len()));
    }
    // Carries go to the left, and from the leftmost to the rightmost byte.
    while sums.iter().any(|sum| *sum > 0xff) {
        for index in (0..N).rev() {
            let carry = sums[index] >> 8;
            sums[index] &= 0xff;
            sums[(index + N - 1) % N] += carry;
        }
    }
    sums.map(|sum| u8::try_from(sum).expect("no carry is left"))
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::vectors::hex;

    /// RFC 3961 appendix A.1.
    #[test]
    fn n_fold_gives_what_rfc_3961_gives() {
        assert_eq!(n_fold::<8>(b"012345").to_vec(), hex("be072631276b1955"));
        assert_eq!(n_fold::<7>(b"password").to_vec(), hex("78a07b6caf85fa"));
        assert_eq!(n_fold::<8>(b"Rough Consensus, and Running Code").to_vec(), hex("bb6ed30870b7f0e0"));
        assert_eq!(n_fold::<21>(b"password").to_vec(), hex("59e4a8ca7c0385c3c37b3f6d2000247cb6e6bd5b3e"));
        assert_eq!(
            n_fold::<24>(b"MASSACHVSETTS INSTITVTE OF TECHNOLOGY").to_vec(),
            hex("db3b0d8f0b061e603282b308a50841229ad798fab9540c1b")
        );
        assert_eq!(n_fold::<21>(b"Q").to_vec(), hex("518a54a215a8452a518a54a215a8452a518a54a215"));
        assert_eq!(n_fold::<8>(b"kerberos").to_vec(), hex("6b65726265726f73"));
        assert_eq!(n_fold::<16>(b"kerberos").to_vec(), hex("6b65726265726f737b9b5b2b93132b93"));
    }

    #[test]
    fn derived_keys_are_those_of_the_rfcs() {
        let cases = [
            (
                17,
                "42263c6e89f4fc28b8df68ee09799f15",
                "34280a382bc92769b2da2f9ef066854b",
                "5b14fc4e250e14ddf9dccf1af6674f53",
                "4ed31063621684f09ae8d89991af3e8f",
            ),
            (
                18,
                "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161",
                "bfab388bdcb238e9f9c98d6a878304f04d30c82556375ac507a7a852790f4674",
                "c7cfd9cd75fe793a586a542d87e0d1396f1134a104bb1a9190b8c90ada3ddf37",
                "97151b4c76945063e2eb0529dc067d97d7bba90776d8126d91f34f3101aea8ba",
            ),
            (
                19,
                "3705d96080c17728a0e800eab6e0d23c",
                "b31a018a48f54776f403e9a396325dc3",
                "9b197dd1e8c5609d6e67c3e37c62c72e",
                "9fda0e56ab2d85e1569a688696c26a6c",
            ),
            (
                20,
                "6d404d37faf79f9df0d33568d320669800eb4836472ea8a026d16b7182460c52",
                "ef5718be86cc84963d8bbb5031e9f5c4ba41f28faf69e73d",
                "56ab22bee63d82d7bc5227f6773f8ea7a5eb1c825160c38312980c442e5c7e49",
                "69b16514e3cd8e56b82010d5c73012b622c4d00ffc23ed1f",
            ),
        ];
        for (enctype, base, checksum, encryption, integrity) in cases {
            let base = Key::new(enctype, &hex(base)).unwrap();
            assert_eq!(key(&base, Usage(2), Purpose::Checksum), hex(checksum), "Kc of {enctype}");
            assert_eq!(key(&base, Usage(2), Purpose::Encryption), hex(encryption), "Ke of {enctype}");
            assert_eq!(key(&base, Usage(2), Purpose::Integrity), hex(integrity), "Ki of {enctype}");
        }
    }
}
