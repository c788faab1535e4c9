//! Reading with the holes left out.

use api::{RangeKind, ReadData};
use bytes::Bytes;

use super::Content;
use crate::FilesError;

/// Consecutive parts of a file.
pub struct Segments {
    pub segments: Vec<Segment>,
    pub end_of_file: bool,
}

pub enum Segment {
    Hole { offset: u64, length: u64 },
    Data { offset: u64, data: Bytes },
}

impl Content {
    /// As [`Content::read`], in at most so many segments.
    pub async fn read_segments(
        &self,
        offset: u64,
        length: u32,
        segments_max: usize,
    ) -> Result<Segments, FilesError> {
        let end = offset.saturating_add(length.into()).min(self.file.size);
        let (mut at, mut segments) = (offset, Vec::new());
        while at < end && segments.len() < segments_max {
            let data_at = self.seek_before(at, RangeKind::Data, end).await?;
            if data_at > at {
                segments.push(Segment::Hole { offset: at, length: data_at - at });
                at = data_at;
                continue;
            }
            let hole_at = self.seek_before(at, RangeKind::Hole, end).await?.max(at + 1);
            // At most `length`, so it fits.
            let ReadData { data, .. } = self.read(at, (hole_at - at) as u32).await?;
            if data.is_empty() {
                // The file has become shorter since it was asked for.
                return Ok(Segments { segments, end_of_file: true });
            }
            let length = data.len() as u64;
            segments.push(Segment::Data { offset: at, data });
            at += length;
        }
        Ok(Segments { segments, end_of_file: at >= self.file.size })
    }
}
