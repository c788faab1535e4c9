//! Checksums of two sides: which to ask for, how parts make a whole, and what to conclude.

use files::mismatch;
use http::header::HeaderValue;
use types::{Checksum, ChecksumKind};

/// `Want-Digest`, the first kind wanted most. `None` for no kind.
pub(super) fn want_digest(kinds: &[ChecksumKind]) -> Option<HeaderValue> {
    let wanted: Vec<String> = kinds
        .iter()
        .zip((1..=10).rev())
        .map(|(kind, tenths)| match tenths {
            10 => format!("{};q=1", kind.name()),
            tenths => format!("{};q=0.{tenths}", kind.name()),
        })
        .collect();
    if wanted.is_empty() { None } else { HeaderValue::try_from(wanted.join(", ")).ok() }
}

/// Kinds whose value over a whole follows from the values over its parts.
pub(super) fn is_combinable(kind: ChecksumKind) -> bool {
    match kind {
        ChecksumKind::Adler32 | ChecksumKind::Crc32c => true,
        ChecksumKind::Md5 | ChecksumKind::Sha256 => false,
    }
}

/// The checksums of two consecutive stretches together, of the kinds that can be combined and that both have.
pub(super) fn combine(first: &[Checksum], second: &[Checksum], second_bytes: u64) -> Vec<Checksum> {
    first
        .iter()
        .filter_map(|one| {
            let other = second.iter().find(|other| other.kind() == one.kind())?;
            let (a, b) = (word(one)?, word(other)?);
            let whole = match one.kind() {
                ChecksumKind::Adler32 => adler32_of_both(a, b, second_bytes),
                ChecksumKind::Crc32c => {
                    let algorithm = crc_fast::CrcAlgorithm::Crc32Iscsi;
                    let whole = crc_fast::checksum_combine(algorithm, a.into(), b.into(), second_bytes);
                    u32::try_from(whole).ok()?
                }
                ChecksumKind::Md5 | ChecksumKind::Sha256 => return None,
            };
            Checksum::new(one.kind(), &whole.to_be_bytes())
        })
        .collect()
}

fn word(sum: &Checksum) -> Option<u32> {
    sum.value().try_into().ok().map(u32::from_be_bytes)
}

/// Adler-32 is two sums modulo a prime (RFC 1950 §8.2): of the bytes, and of the first sum after each byte.
fn adler32_of_both(first: u32, second: u32, second_bytes: u64) -> u32 {
    const PRIME: u64 = 65_521;
    let halves = |sum: u32| (u64::from(sum & 0xffff), u64::from(sum >> 16));
    let ((a1, b1), (a2, b2)) = (halves(first), halves(second));
    // Both begin with 1, which must count once.
    let a = (a1 + a2 + PRIME - 1) % PRIME;
    let b = (b1 + b2 + (second_bytes % PRIME) * (a1 + PRIME - 1)) % PRIME;
    u32::try_from(b << 16 | a).expect("both halves are below 2^16")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// At least one kind is known on both sides, and none of those differs.
    Agree,
    /// Nothing can be compared.
    Unknown,
    Differ {
        theirs: Checksum,
        ours: Checksum,
    },
}

pub(super) fn verdict(theirs: &[Checksum], ours: &[Checksum]) -> Verdict {
    if let Some((theirs, ours)) = mismatch(theirs, ours) {
        return Verdict::Differ { theirs, ours };
    }
    match theirs.iter().any(|sum| ours.contains(sum)) {
        true => Verdict::Agree,
        false => Verdict::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::Sums;

    fn sums(bytes: &[u8]) -> Vec<Checksum> {
        let mut sums = Sums::new(ChecksumKind::ALL);
        sums.update(bytes);
        sums.finish()
    }

    #[test]
    fn parts_combine_to_the_checksum_of_the_whole_wherever_they_are_cut() {
        let bytes: Vec<u8> = (0u32..200_000).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let whole = sums(&bytes);
        for cut in [0, 1, 5551, 65_520, 65_521, 65_522, 131_042, 199_999, 200_000] {
            let (first, second) = bytes.split_at(cut);
            let combined = combine(&sums(first), &sums(second), second.len() as u64);
            assert_eq!(combined.len(), 2, "cut at {cut}");
            assert!(combined.iter().all(|sum| whole.contains(sum)), "cut at {cut}: {combined:?}");
        }
        // Nothing but 0xff carries most.
        let (first, second) = (vec![0xff; 70_000], vec![0xff; 140_001]);
        let whole = sums(&[&first[..], &second[..]].concat());
        assert!(combine(&sums(&first), &sums(&second), 140_001).iter().all(|sum| whole.contains(sum)));
    }

    #[test]
    fn a_verdict_needs_a_kind_that_both_have() {
        let ours = sums(b"a");
        let theirs = sums(b"a");
        assert_eq!(verdict(&theirs[..1], &ours), Verdict::Agree);
        assert_eq!(verdict(&theirs[2..3], &ours[..2]), Verdict::Unknown);
        assert_eq!(verdict(&[], &ours), Verdict::Unknown);
        // One that agrees does not make up for one that differs.
        let mixed = [theirs[0], sums(b"b")[2]];
        assert_eq!(verdict(&mixed, &ours), Verdict::Differ { theirs: mixed[1], ours: ours[2] });
    }

    #[test]
    fn wanted_kinds_are_weighted_in_their_order() {
        let value = want_digest(&[ChecksumKind::Adler32, ChecksumKind::Crc32c, ChecksumKind::Md5]).unwrap();
        assert_eq!(value, "adler32;q=1, crc32c;q=0.9, md5;q=0.8");
        assert_eq!(want_digest(&[]), None);
    }
}
