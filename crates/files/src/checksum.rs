//! Checksums of whole files: kept, or computed now, once for all who wait for the same.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use types::{Attributes, Checksum, ChecksumKind, FileId};

use crate::{Content, Files, FilesError, Sums};

/// Files that are read at once because somebody asks for a checksum that is not kept.
const FILES_AT_ONCE: usize = 4;
/// A request that comes while so many are read waits for its turn, and is told to come again after this.
const TURN: Duration = Duration::from_secs(10);
/// A file is read and summed in such steps, well below a millisecond each: other requests of the thread come in between.
const STEP_BYTES: u32 = 256 << 10;

type Asked = (FileId, ChecksumKind);

pub(crate) struct Summing {
    turns: Semaphore,
    /// Checksums that somebody computes or waits for: at most as many as requests are in flight. Leaf lock.
    under_way: Mutex<HashMap<Asked, Arc<tokio::sync::Mutex<()>>>>,
}

impl Default for Summing {
    fn default() -> Summing {
        Summing { turns: Semaphore::new(FILES_AT_ONCE), under_way: Mutex::default() }
    }
}

impl Summing {
    async fn turn(&self) -> Result<SemaphorePermit<'_>, FilesError> {
        match tokio::time::timeout(TURN, self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(FilesError::Limit("files that are read for their checksums at once")),
        }
    }

    fn enter(&self, asked: Asked) -> Entry<'_> {
        let one_at_a_time = Arc::clone(self.under_way.lock().entry(asked).or_default());
        Entry { summing: self, asked, one_at_a_time: Some(one_at_a_time) }
    }
}

/// Keeps a checksum in the table while somebody asks for it.
struct Entry<'a> {
    summing: &'a Summing,
    asked: Asked,
    /// `None` while it is dropped.
    one_at_a_time: Option<Arc<tokio::sync::Mutex<()>>>,
}

impl Entry<'_> {
    fn one_at_a_time(&self) -> &tokio::sync::Mutex<()> {
        self.one_at_a_time.as_ref().expect("taken only when this is dropped")
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut under_way = self.summing.under_way.lock();
        // Under the lock, or of two that leave at once each would see the other.
        self.one_at_a_time = None;
        if under_way.get(&self.asked).is_some_and(|others| Arc::strong_count(others) == 1) {
            under_way.remove(&self.asked);
        }
    }
}

impl Files {
    /// The checksum of the bytes that the file had when it was opened. It is kept if nothing changed while it was
    /// computed.
    pub async fn checksum(
        &self,
        file: &Attributes,
        kind: ChecksumKind,
        content: &Content,
    ) -> Result<Checksum, FilesError> {
        if let Some(sum) = self.kept_checksum(file, kind).await? {
            return Ok(sum);
        }
        let entry = self.summing.enter((file.file, kind));
        let _first = entry.one_at_a_time().lock().await;
        // The request before may have asked for the same.
        if let Some(sum) = self.kept_checksum(file, kind).await? {
            return Ok(sum);
        }
        let _turn = self.summing.turn().await?;
        let was_written = self.is_being_written(file.file);
        let sum = sum_of(file.size, kind, content).await?;
        if !was_written && !self.is_being_written(file.file) {
            self.services.properties.record_checksums(file.file, file.change, &[sum]).await?;
        }
        Ok(sum)
    }

    async fn kept_checksum(
        &self,
        file: &Attributes,
        kind: ChecksumKind,
    ) -> Result<Option<Checksum>, FilesError> {
        // While an NFS client writes at the pools, the kept one may be behind.
        if self.is_being_written(file.file) {
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
    use api::Birth;
    use file_state::LayoutMode;
    use testkit::faulty::Call;

    use super::*;
    use crate::ContentMode;
    use crate::tests::fakes::{Fakes, attributes};
    use crate::tests::{A, FILE, given_back, granted};

    const KIND: ChecksumKind = ChecksumKind::Adler32;

    /// A file of ten times the byte 7, open to be read.
    async fn file() -> (Arc<Fakes>, Arc<Files>, Attributes, Content) {
        let (fakes, files) = Fakes::files();
        fakes.put_replica(Birth::UNKNOWN, 10, 100);
        let file = attributes(FILE, 10);
        let content = files.content(&file, ContentMode::Read).await.unwrap();
        (fakes, files, file, content)
    }

    #[tokio::test]
    async fn requests_for_one_checksum_read_the_file_once() {
        let (fakes, files, file, content) = file().await;
        let sum = || files.checksum(&file, KIND, &content);
        let (one, other) = tokio::join!(sum(), sum());
        assert_eq!(one.unwrap().to_string(), "adler32:018b0047");
        assert_eq!(other.unwrap().to_string(), "adler32:018b0047");
        assert_eq!(sum().await.unwrap().to_string(), "adler32:018b0047");
        assert_eq!(fakes.pool.schedule().count(Call::Read), 1);
        assert!(files.summing.under_way.lock().is_empty());
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_leaves_the_computation_to_the_next() {
        let (fakes, files, file, content) = file().await;
        let mut first = Box::pin(files.checksum(&file, KIND, &content));
        let begun =
            std::future::poll_fn(|context| std::task::Poll::Ready(first.as_mut().poll(context))).await;
        assert!(begun.is_pending());
        drop(first);
        files.checksum(&file, KIND, &content).await.unwrap();
        assert_eq!(fakes.pool.schedule().count(Call::Read), 2);
        assert!(files.summing.under_way.lock().is_empty());
    }

    #[tokio::test]
    async fn the_checksum_of_a_file_that_is_being_written_is_not_kept() {
        let (fakes, files, file, content) = file().await;
        granted(&files, A, LayoutMode::ReadWrite);
        files.checksum(&file, KIND, &content).await.unwrap();
        given_back(&files, A);
        files.checksum(&file, KIND, &content).await.unwrap();
        files.checksum(&file, KIND, &content).await.unwrap();
        assert_eq!(fakes.pool.schedule().count(Call::Read), 2);
    }

    #[tokio::test]
    async fn a_file_that_lost_bytes_has_no_checksum() {
        let (_fakes, files, file, content) = file().await;
        let longer = Attributes { size: 11, ..file };
        assert!(matches!(files.checksum(&longer, KIND, &content).await, Err(FilesError::Shortened)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_finds_all_turns_taken_waits_and_is_told_to_come_again() {
        let (_fakes, files, file, content) = file().await;
        let mut turns = Vec::new();
        for _ in 0..FILES_AT_ONCE {
            turns.push(files.summing.turn().await.unwrap());
        }
        assert!(matches!(files.checksum(&file, KIND, &content).await, Err(FilesError::Limit(_))));
        turns.pop();
        assert!(files.checksum(&file, KIND, &content).await.is_ok());
    }
}
