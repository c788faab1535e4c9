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
    /// Records that wait for the disk; at least the longest one.
    pub batch_bytes_max: usize,
    /// Waiters, of records and of notes; at least one.
    pub waiting_max: usize,
    /// Files with records that no note settles; at least one.
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
        let payload_fits = self.payload_bytes_max as u64 <= room_bytes;
        if !payload_fits || encoded_bytes(self.payload_bytes_max) as u64 > room_bytes {
            return wrong("a segment is shorter than the longest record");
        }
        if encoded_bytes(self.payload_bytes_max) > self.batch_bytes_max {
            return wrong("fewer bytes may wait for the disk than the longest record has");
        }
        if self.waiting_max == 0 {
            return wrong("it takes no waiter");
        }
        if self.files_max == 0 {
            return wrong("it takes records of no file");
        }
        // A full journal settles every live file by one note in the segment that is kept for that.
        if self.files_max as u64 > room_bytes / HEAD_BYTES as u64 {
            return wrong("a segment has no room for a note of every file");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_that_cannot_be_kept_is_refused_with_its_reason() {
        let good = Config::default();
        let longest_bytes = encoded_bytes(good.payload_bytes_max);
        let room_bytes = (good.segment_bytes - DATA_START) as usize;
        let files_most = room_bytes / HEAD_BYTES;
        let payload_most = room_bytes - HEAD_BYTES;
        for edge in [
            good.clone(),
            Config { segments: 4, ..good.clone() },
            Config { segment_bytes: u64::from(u32::MAX) / DATA_START * DATA_START, ..good.clone() },
            Config { payload_bytes_max: payload_most, ..good.clone() },
            Config { batch_bytes_max: longest_bytes, ..good.clone() },
            Config { waiting_max: 1, files_max: 1, ..good.clone() },
            Config { files_max: files_most, ..good.clone() },
        ] {
            assert!(edge.check().is_ok(), "{edge:?}");
        }
        for (bad, expected) in [
            (Config { segments: 3, ..good.clone() }, "too few segments"),
            (Config { segment_bytes: (4 << 20) + 512, ..good.clone() }, "blocks of 4 KiB"),
            (Config { segment_bytes: 1 << 32, ..good.clone() }, "below 4 GiB"),
            (Config { payload_bytes_max: payload_most + 1, ..good.clone() }, "a segment is shorter"),
            (Config { payload_bytes_max: usize::MAX, ..good.clone() }, "a segment is shorter"),
            (Config { batch_bytes_max: longest_bytes - 1, ..good.clone() }, "fewer bytes may wait"),
            (Config { waiting_max: 0, ..good.clone() }, "no waiter"),
            (Config { files_max: 0, ..good.clone() }, "no file"),
            (Config { files_max: files_most + 1, ..good.clone() }, "a note of every file"),
            (Config { files_max: usize::MAX, ..good.clone() }, "a note of every file"),
        ] {
            let Err(OpenError::Config { reason }) = bad.check() else { panic!("valid: {bad:?}") };
            assert!(reason.contains(expected), "{reason}: {bad:?}");
        }
    }
}
