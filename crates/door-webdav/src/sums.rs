//! Checksums of files of which none are kept. And who may see them.

use std::time::Duration;

use api::{Activity, Caller};
use files::{Content, FilesError, Sums};
use tokio::sync::{Semaphore, SemaphorePermit};
use types::{Attributes, Checksum, ChecksumKind, Name};

use crate::front::Front;
use crate::refusal::Refusal;

/// Files that are read at once because somebody asks for a checksum that is not kept.
const FILES_AT_ONCE: usize = 4;
/// A request that comes while so many are read waits for its turn, and is told to come again after this.
const TURN: Duration = Duration::from_secs(10);
/// A file is read and summed in such steps, well below a millisecond each: other requests of the thread come in between.
const STEP_BYTES: u32 = 256 << 10;

/// The turns to read a whole file for its checksum.
pub(crate) struct Summing(Semaphore);

impl Default for Summing {
    fn default() -> Summing {
        Summing(Semaphore::new(FILES_AT_ONCE))
    }
}

impl Summing {
    async fn turn(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        match tokio::time::timeout(TURN, self.0.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(Refusal::busy("checksums of other files are being computed")),
        }
    }
}

/// A checksum tells of contents. Readers get it, and uploaders, who compare it with the one of what they have
/// sent: the WLCG profile has it in the `stat` that each of these scopes allows. A caller who may only add files (by a macaroon
/// for UPLOAD alone, as it is given to strangers) learns nothing of those that are there. The mode bits have their own say.
pub(crate) fn may_see_sums(caller: &Caller, path: &[Name]) -> bool {
    let may = |activities: &[Activity]| activities.iter().any(|activity| caller.may(*activity, path));
    may(&[Activity::Download, Activity::Stage])
        || (may(&[Activity::Upload]) && may(&[Activity::Delete, Activity::Manage, Activity::List]))
}

impl Front {
    /// Of what is not kept: computed now, and kept if nothing changed meanwhile.
    pub(crate) async fn checksum(
        &self,
        file: &Attributes,
        kind: ChecksumKind,
        content: &Content,
    ) -> Result<Checksum, Refusal> {
        if let Some(sum) = self.kept_checksum(file, kind).await? {
            return Ok(sum);
        }
        let _turn = self.summing.turn().await?;
        // The request that had the turn before may have asked for the same.
        if let Some(sum) = self.kept_checksum(file, kind).await? {
            return Ok(sum);
        }
        let is_written = || self.services.files.is_being_written(file.file);
        let was_written = is_written();
        let sum = sum_of(file.size, kind, content).await?;
        if !was_written && !is_written() {
            self.services.properties.record_checksums(file.file, file.change, &[sum]).await?;
        }
        Ok(sum)
    }

    async fn kept_checksum(
        &self,
        file: &Attributes,
        kind: ChecksumKind,
    ) -> Result<Option<Checksum>, Refusal> {
        // While an NFS client writes at the pools, what was kept may be behind.
        if self.services.files.is_being_written(file.file) {
            return Ok(None);
        }
        let kept = self.services.properties.checksums(file.file).await?;
        Ok(kept.into_iter().find(|sum| sum.kind() == kind))
    }
}

async fn sum_of(size: u64, kind: ChecksumKind, content: &Content) -> Result<Checksum, FilesError> {
    let mut sums = Sums::new([kind]);
    let mut offset = 0;
    while offset < size {
        let length = u64::from(STEP_BYTES).min(size - offset) as u32;
        let read = content.read(offset, length).await?.data;
        if read.is_empty() {
            // There is no checksum of the bytes that were asked for.
            return Err(FilesError::Shortened);
        }
        sums.update(&read);
        offset += read.len() as u64;
        // Disks answer at once from the page cache: others get their turn.
        tokio::task::yield_now().await;
    }
    Ok(*sums.finish().first().expect("one kind was asked for"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_finds_all_turns_to_sum_taken_waits_and_is_told_to_come_again() {
        let summing = Summing::default();
        let mut turns = Vec::new();
        for _ in 0..FILES_AT_ONCE {
            turns.push(summing.turn().await.unwrap());
        }
        let refused = summing.turn().await.map(|_| ()).unwrap_err();
        assert_eq!(refused.status, http::StatusCode::SERVICE_UNAVAILABLE);
        turns.pop();
        assert!(summing.turn().await.is_ok());
    }
}
