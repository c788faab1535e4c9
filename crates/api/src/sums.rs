//! Checksums of bytes as they pass.

use std::collections::BTreeSet;

use md5::{Digest as _, Md5};
use sha2::Sha256;
use types::{Checksum, ChecksumKind};

/// Running checksums over consecutive bytes.
pub struct Sums {
    running: Vec<Running>,
}

enum Running {
    Adler32(simd_adler32::Adler32),
    Crc32c(crc_fast::Digest),
    Md5(Md5),
    Sha256(Sha256),
}

impl Sums {
    /// Each kind once, whatever the order and repetitions.
    pub fn new(kinds: impl IntoIterator<Item = ChecksumKind>) -> Sums {
        let wanted: BTreeSet<_> = kinds.into_iter().collect();
        let running = wanted.into_iter().map(|kind| match kind {
            ChecksumKind::Adler32 => Running::Adler32(simd_adler32::Adler32::new()),
            ChecksumKind::Crc32c => {
                Running::Crc32c(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
            }
            ChecksumKind::Md5 => Running::Md5(Md5::new()),
            ChecksumKind::Sha256 => Running::Sha256(Sha256::new()),
        });
        Sums { running: running.collect() }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        for running in &mut self.running {
            match running {
                Running::Adler32(sum) => sum.write(bytes),
                Running::Crc32c(sum) => sum.update(bytes),
                Running::Md5(sum) => sum.update(bytes),
                Running::Sha256(sum) => sum.update(bytes),
            }
        }
    }

    pub fn finish(self) -> Vec<Checksum> {
        let sum =
            |kind, value: &[u8]| Checksum::new(kind, value).expect("each sum has the length of its kind");
        let finish = |running| match running {
            Running::Adler32(running) => sum(ChecksumKind::Adler32, &running.finish().to_be_bytes()),
            Running::Crc32c(running) => {
                let value = u32::try_from(running.finalize()).expect("CRC-32C has 32 bits");
                sum(ChecksumKind::Crc32c, &value.to_be_bytes())
            }
            Running::Md5(running) => sum(ChecksumKind::Md5, &running.finalize()),
            Running::Sha256(running) => sum(ChecksumKind::Sha256, &running.finalize()),
        };
        self.running.into_iter().map(finish).collect()
    }
}

/// The first of `promised` that `found` has another value for.
pub fn mismatch(promised: &[Checksum], found: &[Checksum]) -> Option<(Checksum, Checksum)> {
    promised.iter().find_map(|promise| {
        let other = found.iter().find(|sum| sum.kind() == promise.kind() && *sum != promise)?;
        Some((*promise, *other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sums_of_nine_digits_are_the_published_check_values() {
        let mut sums = Sums::new(ChecksumKind::ALL);
        sums.update(b"1234");
        sums.update(b"56789");
        let text: Vec<String> = sums.finish().iter().map(Checksum::to_string).collect();
        assert_eq!(
            text,
            [
                "adler32:091e01de",
                "crc32c:e3069283",
                "md5:25f9e794323b453885f5181f1b624d0b",
                "sha-256:15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
            ]
        );
    }

    #[test]
    fn the_adler32_of_nothing_is_one() {
        let sums = Sums::new([ChecksumKind::Adler32, ChecksumKind::Adler32]).finish();
        assert_eq!(sums.iter().map(Checksum::to_string).collect::<Vec<_>>(), ["adler32:00000001"]);
    }

    #[test]
    fn only_a_different_value_of_the_same_kind_is_a_mismatch() {
        let sums = |bytes: &[u8], kinds: &[ChecksumKind]| {
            let mut sums = Sums::new(kinds.iter().copied());
            sums.update(bytes);
            sums.finish()
        };
        let promised = sums(b"a", &[ChecksumKind::Md5]);
        assert_eq!(mismatch(&promised, &sums(b"a", &ChecksumKind::ALL)), None);
        assert_eq!(mismatch(&promised, &sums(b"b", &[ChecksumKind::Adler32])), None);
        assert!(mismatch(&promised, &sums(b"b", &ChecksumKind::ALL)).is_some());
    }
}
