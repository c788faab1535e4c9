//! Records and their form on disk. All numbers are little-endian.
//!
//! ```text
//!  0 magic u32       8 salt u64       24 durable u64      40 file u64       56 birth u64    72 payload_bytes u32
//!  4 CRC-32C u32    16 sequence u64   32 replay_from u64  48 argument u64   64 epoch u64    76 kind u8, 3 zeros
//! 80 payload, padded with zeros to 8 bytes
//! ```
//!
//! The checksum covers everything behind itself with the padding. `salt` is the one of the segment's present use, so a
//! record of an earlier use is never taken for one of this. `durable`: the last record that was on disk when this one was
//! encoded; replay tells a torn end from damage by it. `replay_from`: no record before this one is needed any more.

use types::FileId;

pub(crate) const HEAD_BYTES: usize = 80;
const MAGIC: u32 = 0x5242_4a46;
const COVERED_FROM: usize = 8;

/// A change of a file by the pool. `birth` and `epoch` are the pool's own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Create { file: FileId, birth: u64, epoch: u64 },
    Write { file: FileId, birth: u64, epoch: u64, offset: u64, bytes: &'a [u8] },
    Truncate { file: FileId, size: u64 },
    Remove { file: FileId },
    Fence { file: FileId, epoch: u64 },
}

impl Record<'_> {
    pub fn file(&self) -> FileId {
        match *self {
            Record::Create { file, .. }
            | Record::Write { file, .. }
            | Record::Truncate { file, .. }
            | Record::Remove { file }
            | Record::Fence { file, .. } => file,
        }
    }

    pub(crate) fn payload(&self) -> &[u8] {
        if let Record::Write { bytes, .. } = self { bytes } else { &[] }
    }

    pub(crate) fn subject(&self) -> Subject {
        let subject =
            |kind, argument, birth, epoch| Subject { kind, file: self.file(), argument, birth, epoch };
        match *self {
            Record::Create { birth, epoch, .. } => subject(Kind::Create, 0, birth, epoch),
            Record::Write { birth, epoch, offset, .. } => subject(Kind::Write, offset, birth, epoch),
            Record::Truncate { size, .. } => subject(Kind::Truncate, size, 0, 0),
            Record::Remove { .. } => subject(Kind::Remove, 0, 0, 0),
            Record::Fence { epoch, .. } => subject(Kind::Fence, 0, 0, epoch),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Create = 1,
    Write = 2,
    Truncate = 3,
    Remove = 4,
    Fence = 5,
    /// The records of the file up to `argument` are settled.
    Note = 6,
}

impl Kind {
    fn parse(byte: u8) -> Option<Kind> {
        use Kind::{Create, Fence, Note, Remove, Truncate, Write};
        [Create, Write, Truncate, Remove, Fence, Note].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// The words of a record that its kind gives a meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub kind: Kind,
    pub file: FileId,
    pub argument: u64,
    pub birth: u64,
    pub epoch: u64,
}

impl Subject {
    pub fn note(file: FileId, through: u64) -> Subject {
        Subject { kind: Kind::Note, file, argument: through, birth: 0, epoch: 0 }
    }

    /// `None`: a note.
    pub fn record<'a>(&self, bytes: &'a [u8]) -> Option<Record<'a>> {
        let Subject { kind, file, argument, birth, epoch } = *self;
        Some(match kind {
            Kind::Create => Record::Create { file, birth, epoch },
            Kind::Write => Record::Write { file, birth, epoch, offset: argument, bytes },
            Kind::Truncate => Record::Truncate { file, size: argument },
            Kind::Remove => Record::Remove { file },
            Kind::Fence => Record::Fence { file, epoch },
            Kind::Note => return None,
        })
    }
}

/// The words that the journal gives a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub salt: u64,
    pub sequence: u64,
    pub durable: u64,
    pub replay_from: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decoded<'a> {
    pub stamp: Stamp,
    pub subject: Subject,
    pub payload: &'a [u8],
    /// With head and padding.
    pub encoded_bytes: usize,
}

pub(crate) fn encoded_bytes(payload_bytes: usize) -> usize {
    HEAD_BYTES + payload_bytes.next_multiple_of(8)
}

/// `payload` is shorter than a segment, so its length fits.
pub(crate) fn encode(out: &mut Vec<u8>, stamp: &Stamp, subject: &Subject, payload: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    let Subject { file, argument, birth, epoch, .. } = *subject;
    for word in [stamp.salt, stamp.sequence, stamp.durable, stamp.replay_from, file.0, argument, birth, epoch]
    {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    out.extend_from_slice(&[subject.kind as u8, 0, 0, 0]);
    out.extend_from_slice(payload);
    out.resize(start + encoded_bytes(payload.len()), 0);
    let sum = crc32c(&out[start + COVERED_FROM..]);
    out[start + 4..start + COVERED_FROM].copy_from_slice(&sum.to_le_bytes());
}

/// The record at the front of `bytes`. `None`: there is no valid one with this salt.
pub(crate) fn decode(bytes: &[u8], salt: u64) -> Option<Decoded<'_>> {
    let head = bytes.get(..HEAD_BYTES)?;
    if u32_at(head, 0) != MAGIC || u64_at(head, 8) != salt {
        return None;
    }
    let payload_bytes = usize::try_from(u32_at(head, 72)).ok()?;
    let whole = bytes.get(..encoded_bytes(payload_bytes))?;
    if crc32c(&whole[COVERED_FROM..]) != u32_at(head, 4) {
        return None;
    }
    let stamp =
        Stamp { salt, sequence: u64_at(head, 16), durable: u64_at(head, 24), replay_from: u64_at(head, 32) };
    let subject = Subject {
        kind: Kind::parse(head[76])?,
        file: FileId(u64_at(head, 40)),
        argument: u64_at(head, 48),
        birth: u64_at(head, 56),
        epoch: u64_at(head, 64),
    };
    let payload = &whole[HEAD_BYTES..HEAD_BYTES + payload_bytes];
    Some(Decoded { stamp, subject, payload, encoded_bytes: whole.len() })
}

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    // The algorithm's sum has 32 bits.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were taken"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were taken"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAMP: Stamp = Stamp { salt: 77, sequence: 5, durable: 3, replay_from: 2 };

    fn encoded(record: &Record<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out, &STAMP, &record.subject(), record.payload());
        out
    }

    #[test]
    fn every_kind_of_record_reads_back() {
        let file = FileId(9);
        for record in [
            Record::Create { file, birth: 1, epoch: 2 },
            Record::Write { file, birth: 1, epoch: 2, offset: u64::MAX, bytes: b"nine bytes" },
            Record::Write { file, birth: 1, epoch: 2, offset: 0, bytes: b"" },
            Record::Truncate { file, size: 4 },
            Record::Remove { file },
            Record::Fence { file, epoch: 8 },
        ] {
            let bytes = encoded(&record);
            let decoded = decode(&bytes, 77).unwrap();
            assert_eq!(decoded.stamp, STAMP);
            assert_eq!(decoded.encoded_bytes, bytes.len());
            assert_eq!(decoded.subject.record(decoded.payload), Some(record));
        }
    }

    #[test]
    fn a_record_of_another_use_of_the_segment_does_not_verify() {
        let bytes = encoded(&Record::Remove { file: FileId(1) });
        assert!(decode(&bytes, 77).is_some());
        assert!(decode(&bytes, 78).is_none());
    }

    proptest! {
        #[test]
        fn a_record_with_one_changed_bit_does_not_verify(
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            at: prop::sample::Index,
            bit in 0..8,
        ) {
            let write = Record::Write { file: FileId(3), birth: 1, epoch: 1, offset: 8, bytes: &payload };
            let mut bytes = encoded(&write);
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(decode(&bytes, 77).is_none());
        }

        /// The magic and the salt stay, and half of the time the checksum fits again.
        #[test]
        fn a_damaged_record_verifies_only_if_it_is_whole_with_a_checksum_that_fits(
            payload in proptest::collection::vec(any::<u8>(), 0..40),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            length in prop::option::of(prop_oneof![0..100u32, any::<u32>()]),
            kind in prop::option::of(0..9u8),
            kept in prop::option::of(any::<prop::sample::Index>()),
            fits: bool,
        ) {
            let write = Record::Write { file: FileId(3), birth: 1, epoch: 1, offset: 8, bytes: &payload };
            let valid = encoded(&write);
            let mut bytes = valid.clone();
            for (at, value) in changes {
                bytes[16 + at.index(valid.len() - 16)] = value;
            }
            if let Some(length) = length {
                bytes[72..76].copy_from_slice(&length.to_le_bytes());
            }
            bytes[76] = kind.unwrap_or(bytes[76]);
            bytes.truncate(kept.map_or(valid.len(), |kept| kept.index(valid.len())));
            let length = bytes.get(72..76).map(|bytes| encoded_bytes(u32_at(bytes, 0) as usize));
            let record_bytes = length.filter(|length| *length <= bytes.len());
            if let Some(record_bytes) = record_bytes.filter(|_| fits) {
                let sum = crc32c(&bytes[COVERED_FROM..record_bytes]);
                bytes[4..COVERED_FROM].copy_from_slice(&sum.to_le_bytes());
            }
            let is_valid = record_bytes.is_some() && (1..=6).contains(&bytes[76]) && (fits || bytes == valid);
            let found = decode(&bytes, STAMP.salt);
            prop_assert_eq!(found.map(|found| found.encoded_bytes), record_bytes.filter(|_| is_valid));
            if let Some(found) = found {
                prop_assert_eq!(found.payload, &bytes[HEAD_BYTES..HEAD_BYTES + u32_at(&bytes, 72) as usize]);
            }
        }
    }
}
