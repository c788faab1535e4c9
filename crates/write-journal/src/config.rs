//! The bounds of a journal.

use crate::error::OpenError;
use crate::record::{HEAD_BYTES, encoded_bytes};
use crate::segment::DATA_START;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Two of them stay free for notes and for making all records void.
    pub segments: u32,
    pub segment_bytes: u64,
    /// Of one `Record::Write`.
    pub payload_bytes_max: usize,
    /// Records that wait for the disk.
    pub batch_bytes_max: usize,
    pub waiting_max: usize,
    /// Files with records that no note settles.
    pub files_max: usize,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            segments: 16,
            segment_bytes: 4 << 20,
            payload_bytes_max: 256 << 10,
            batch_bytes_max: 4 << 20,
            waiting_max: 16 << 10,
            files_max: 16 << 10,
        }
    }
}

impl Config {
    const SEGMENTS_MIN: u32 = 4;

    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let wrong = |reason| Err(OpenError::Config { reason });
        let room_bytes = self.segment_bytes.saturating_sub(DATA_START);
        if self.segments < Config::SEGMENTS_MIN {
            return wrong("it has too few segments");
        }
        if !self.segment_bytes.is_multiple_of(DATA_START) || self.segment_bytes > u64::from(u32::MAX) {
            return wrong("the length of a segment is no number of blocks of 4 KiB below 4 GiB");
        }
        if encoded_bytes(self.payload_bytes_max) as u64 > room_bytes {
            return wrong("a segment is shorter than the longest record");
        }
        // A full journal settles every live file by one note in the segment that is kept for that.
        if (self.files_max * HEAD_BYTES) as u64 > room_bytes {
            return wrong("a segment has no room for a note of every file");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_valid_and_bounds_that_contradict_each_other_are_not() {
        let good = Config::default();
        assert!(good.check().is_ok());
        for bad in [
            Config { segments: 3, ..good.clone() },
            Config { segment_bytes: 5000, ..good.clone() },
            Config { segment_bytes: 128 << 10, ..good.clone() },
            Config { files_max: 1 << 20, ..good.clone() },
        ] {
            assert!(matches!(bad.check(), Err(OpenError::Config { .. })), "{bad:?}");
        }
    }
}
