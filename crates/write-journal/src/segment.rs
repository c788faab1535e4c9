//! A segment on disk: one header block, then records without gaps.
//!
//! ```text
//!  0 magic [u8; 8]   12 version u32           32 number u32, 4 zeros   48 first_sequence u64   64 replay_from u64
//!  8 CRC-32C u32     16 instance [u8; 16]     40 salt u64              56 durable u64
//! ```
//!
//! The header is one sector, so a crash leaves the old one, zeros, or the new one. Its magic, its checksum and its version
//! stay where they are in every later version.

use crate::chain::InUse;
use crate::error::OpenError;
use crate::record::{self, Decoded, crc32c, u32_at, u64_at};
use crate::storage::SECTOR_BYTES;

/// Records begin here, in a block of their own: the header is not written again with them.
pub(crate) const DATA_START: u64 = 4096;
pub(crate) const VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"fbjournl";
const COVERED_FROM: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub instance: [u8; 16],
    pub number: u32,
    pub salt: u64,
    /// Of the first record behind it.
    pub first_sequence: u64,
    /// As in a record.
    pub durable: u64,
    pub replay_from: u64,
}

impl Header {
    /// No record before this segment is needed any more.
    pub fn of_empty_journal(instance: [u8; 16], segment: &InUse) -> Header {
        let InUse { number, first_sequence, salt } = *segment;
        let durable = first_sequence - 1;
        Header { instance, number, salt, first_sequence, durable, replay_from: first_sequence }
    }

    /// The whole block.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = vec![0; DATA_START as usize];
        block[..8].copy_from_slice(MAGIC);
        block[12..16].copy_from_slice(&VERSION.to_le_bytes());
        block[16..32].copy_from_slice(&self.instance);
        block[32..36].copy_from_slice(&self.number.to_le_bytes());
        let words = [(40, self.salt), (48, self.first_sequence), (56, self.durable), (64, self.replay_from)];
        for (at, word) in words {
            block[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let sum = crc32c(&block[COVERED_FROM..SECTOR_BYTES]);
        block[8..COVERED_FROM].copy_from_slice(&sum.to_le_bytes());
        block
    }

    /// `None`: never used, or damaged.
    pub fn decode(
        sector: &[u8; SECTOR_BYTES],
        number: u32,
        instance: &[u8; 16],
    ) -> Result<Option<Header>, OpenError> {
        if &sector[..8] != MAGIC || u32_at(sector, 8) != crc32c(&sector[COVERED_FROM..]) {
            return Ok(None);
        }
        let version = u32_at(sector, 12);
        if version > VERSION {
            return Err(OpenError::NewerVersion { segment: number, found: version, known: VERSION });
        }
        let header = Header {
            instance: sector[16..32].try_into().expect("sixteen bytes were taken"),
            number: u32_at(sector, 32),
            salt: u64_at(sector, 40),
            first_sequence: u64_at(sector, 48),
            durable: u64_at(sector, 56),
            replay_from: u64_at(sector, 64),
        };
        if header.instance != *instance || header.number != number {
            return Err(OpenError::OtherInstance { segment: number });
        }
        Ok(Some(header))
    }
}

/// The records of one segment in the order of their sequence, until the first that is not valid.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    salt: u64,
    expected: u64,
    offset: usize,
}

impl<'a> Records<'a> {
    /// `bytes`: the whole segment, shorter than 4 GiB.
    pub fn new(bytes: &'a [u8], header: &Header) -> Records<'a> {
        Records { bytes, salt: header.salt, expected: header.first_sequence, offset: DATA_START as usize }
    }

    /// The sequence that the next record must have.
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// After the last valid record: the highest sequence known to have been on disk that a record behind it tells, and
    /// how many valid records lie there.
    pub fn behind(&self) -> Behind {
        let mut behind = Behind::default();
        let mut offset = self.offset;
        while offset < self.bytes.len() {
            match record::decode(&self.bytes[offset..], self.salt) {
                Some(found) if found.stamp.sequence >= self.expected => {
                    behind.records += 1;
                    behind.durable = behind.durable.max(found.stamp.durable);
                    offset += found.encoded_bytes;
                }
                _ => offset += 8,
            }
        }
        behind
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Behind {
    pub records: u64,
    pub durable: u64,
}

impl<'a> Iterator for Records<'a> {
    /// With the offset in the segment.
    type Item = (u32, Decoded<'a>);

    fn next(&mut self) -> Option<(u32, Decoded<'a>)> {
        let offset = self.offset;
        let found = record::decode(self.bytes.get(offset..)?, self.salt)?;
        if found.stamp.sequence != self.expected {
            return None;
        }
        self.expected = self.expected.checked_add(1)?;
        self.offset += found.encoded_bytes;
        Some((offset as u32, found))
    }
}
