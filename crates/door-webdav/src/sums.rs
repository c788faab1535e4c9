//! Checksums: while bytes pass, and of a file of which none are kept. And who may see them.

use std::time::Duration;

use api::{Activity, Caller};
use files::{Content, FilesError};
use md5::{Digest as _, Md5};
use sha2::Sha256;
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

/// Running checksums over consecutive bytes.
pub(crate) struct Sums {
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
        let wanted: std::collections::BTreeSet<_> = kinds.into_iter().collect();
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

/// The first of `promised` that `found` has another value for.
pub(crate) fn mismatch(promised: &[Checksum], found: &[Checksum]) -> Option<(Checksum, Checksum)> {
    promised.iter().find_map(|promise| {
        let other = found.iter().find(|sum| sum.kind() == promise.kind() && *sum != promise)?;
        Some((*promise, *other))
    })
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
