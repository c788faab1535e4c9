//! Checksums of whole files: kept, or computed now, once for all who wait for the same.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use types::{Attributes, Checksum, ChecksumKind, FileId, Identity};

use crate::{Content, Files, FilesError, Sums};

/// Files that are read at once because somebody asks for a checksum that is not kept.
const FILES_AT_ONCE: usize = 4;
/// At most so many of these are for one user, whose further requests wait.
const FILES_OF_ONE: usize = 2;
/// A request that comes while so many are read waits for its turn, and is told to come again after this.
const TURN: Duration = Duration::from_secs(10);
/// A file that takes longer is read on when all that wait now have had a turn: a file of many TiB delays others little.
const SLICE: Duration = Duration::from_millis(500);
/// A file is read and summed in such steps, well below a millisecond each: other requests of the thread come in between.
const STEP_BYTES: u32 = 256 << 10;

#[derive(Default)]
pub(crate) struct Summing {
    turns: Turns,
    /// Users whose requests read files, by uid.
    users: Table<u32, Share>,
    /// Checksums that somebody computes or waits for.
    under_way: Table<(FileId, ChecksumKind), tokio::sync::Mutex<()>>,
}

struct Share(Semaphore);

impl Default for Share {
    fn default() -> Share {
        Share(Semaphore::new(FILES_OF_ONE))
    }
}

struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Turns {
        Turns(Semaphore::new(FILES_AT_ONCE))
    }
}

impl Turns {
    async fn take<'a>(&'a self, share: &'a Share) -> Result<Turn<'a>, FilesError> {
        let taken = tokio::time::timeout(TURN, async {
            let of_user = share.0.acquire().await.ok()?;
            let permit = self.0.acquire().await.ok()?;
            Some(Turn { turns: self, _of_user: of_user, permit: Some(permit), ends: Instant::now() + SLICE })
        });
        let too_many = FilesError::Limit("files that are read for their checksums at once");
        taken.await.ok().flatten().ok_or(too_many)
    }
}

struct Turn<'a> {
    turns: &'a Turns,
    _of_user: SemaphorePermit<'a>,
    /// `None` while others have their turn.
    permit: Option<SemaphorePermit<'a>>,
    ends: Instant,
}

impl Turn<'_> {
    /// To be called between two steps. Reads from the page cache never yield; without this, other requests of the thread
    /// would wait.
    async fn go_on(&mut self) {
        if Instant::now() < self.ends {
            return tokio::task::yield_now().await;
        }
        // Turns are given in the order of waiting.
        self.permit = None;
        self.permit = self.turns.0.acquire().await.ok();
        self.ends = Instant::now() + SLICE;
    }
}

/// Keeps a value for each key while somebody uses it: at most as many as requests are in flight. Leaf lock.
struct Table<K, V>(Mutex<HashMap<K, Arc<V>>>);

impl<K, V> Default for Table<K, V> {
    fn default() -> Table<K, V> {
        Table(Mutex::default())
    }
}

impl<K: Eq + Hash + Copy, V: Default> Table<K, V> {
    fn enter(&self, key: K) -> Entry<'_, K, V> {
        let value = Arc::clone(self.0.lock().entry(key).or_default());
        Entry { table: self, key, value: Some(value) }
    }
}

struct Entry<'a, K: Eq + Hash, V> {
    table: &'a Table<K, V>,
    key: K,
    /// `None` while it is dropped.
    value: Option<Arc<V>>,
}

impl<K: Eq + Hash, V> Entry<'_, K, V> {
    fn value(&self) -> &V {
        self.value.as_ref().expect("taken only when this is dropped")
    }
}

impl<K: Eq + Hash, V> Drop for Entry<'_, K, V> {
    fn drop(&mut self) {
        let mut values = self.table.0.lock();
        // Under the lock, or of two that leave at once each would see the other.
        self.value = None;
        if values.get(&self.key).is_some_and(|value| Arc::strong_count(value) == 1) {
            values.remove(&self.key);
        }
    }
}

impl Files {
    /// The checksum of the bytes that the file had when it was opened. It is kept if nothing changed while it was
    /// computed.
    pub async fn checksum(
        &self,
        who: &Identity,
        file: &Attributes,
        kind: ChecksumKind,
        content: &Content,
    ) -> Result<Checksum, FilesError> {
        if let Some(sum) = self.kept_checksum(file, kind).await? {
            return Ok(sum);
        }
        let asked = self.summing.under_way.enter((file.file, kind));
        let _first = asked.value().lock().await;
        // The request before may have asked for the same.
        if let Some(sum) = self.kept_checksum(file, kind).await? {
            return Ok(sum);
        }
        let user = self.summing.users.enter(who.uid);
        let turn = self.summing.turns.take(user.value()).await?;
        let was_written = self.is_being_written(file.file);
        let sum = sum_of(file.size, kind, content, turn).await?;
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

async fn sum_of(
    size: u64,
    kind: ChecksumKind,
    content: &Content,
    mut turn: Turn<'_>,
) -> Result<Checksum, FilesError> {
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
        turn.go_on().await;
    }
    Ok(*sums.finish().first().expect("one kind was asked for"))
}

#[cfg(test)]
mod tests {
    use api::Birth;
    use file_state::LayoutMode;
    use futures_util::FutureExt;
    use testkit::faulty::Call;

    use super::*;
    use crate::ContentMode;
    use crate::tests::fakes::{Fakes, attributes};
    use crate::tests::{A, FILE, given_back, granted};

    const KIND: ChecksumKind = ChecksumKind::Adler32;

    fn ann() -> Identity {
        Identity::new(1000, 1000, &[])
    }

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
        let who = ann();
        let sum = || files.checksum(&who, &file, KIND, &content);
        let (one, other) = tokio::join!(sum(), sum());
        assert_eq!(one.unwrap().to_string(), "adler32:018b0047");
        assert_eq!(other.unwrap().to_string(), "adler32:018b0047");
        assert_eq!(sum().await.unwrap().to_string(), "adler32:018b0047");
        assert_eq!(fakes.pool.schedule().count(Call::Read), 1);
        assert!(files.summing.under_way.0.lock().is_empty());
    }

    #[tokio::test]
    async fn a_request_that_is_dropped_leaves_the_computation_to_the_next() {
        let (fakes, files, file, content) = file().await;
        let who = ann();
        let mut first = Box::pin(files.checksum(&who, &file, KIND, &content));
        let begun =
            std::future::poll_fn(|context| std::task::Poll::Ready(first.as_mut().poll(context))).await;
        assert!(begun.is_pending());
        drop(first);
        files.checksum(&ann(), &file, KIND, &content).await.unwrap();
        assert_eq!(fakes.pool.schedule().count(Call::Read), 2);
        assert!(files.summing.under_way.0.lock().is_empty());
    }

    #[tokio::test]
    async fn the_checksum_of_a_file_that_is_being_written_is_not_kept() {
        let (fakes, files, file, content) = file().await;
        granted(&files, A, LayoutMode::ReadWrite);
        files.checksum(&ann(), &file, KIND, &content).await.unwrap();
        given_back(&files, A);
        files.checksum(&ann(), &file, KIND, &content).await.unwrap();
        files.checksum(&ann(), &file, KIND, &content).await.unwrap();
        assert_eq!(fakes.pool.schedule().count(Call::Read), 2);
    }

    #[tokio::test]
    async fn a_file_that_lost_bytes_has_no_checksum() {
        let (_fakes, files, file, content) = file().await;
        let longer = Attributes { size: 11, ..file };
        assert!(matches!(files.checksum(&ann(), &longer, KIND, &content).await, Err(FilesError::Shortened)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_finds_all_turns_taken_waits_and_is_told_to_come_again() {
        let (_fakes, files, file, content) = file().await;
        let shares: [Share; FILES_AT_ONCE] = Default::default();
        let mut turns = Vec::new();
        for share in &shares {
            turns.push(files.summing.turns.take(share).await.unwrap());
        }
        assert!(matches!(files.checksum(&ann(), &file, KIND, &content).await, Err(FilesError::Limit(_))));
        turns.pop();
        assert!(files.checksum(&ann(), &file, KIND, &content).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_one_user_leave_turns_to_others() {
        let (_fakes, files, file, content) = file().await;
        let bob = files.summing.users.enter(2000);
        let mut turns = Vec::new();
        for _ in 0..FILES_OF_ONE {
            turns.push(files.summing.turns.take(bob.value()).await.unwrap());
        }
        let more_of_bob =
            files.checksum(&Identity::new(2000, 2000, &[]), &file, ChecksumKind::Crc32c, &content).await;
        assert!(matches!(more_of_bob, Err(FilesError::Limit(_))));
        assert!(files.checksum(&ann(), &file, KIND, &content).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_takes_long_is_read_on_when_those_that_wait_have_had_a_turn() {
        let turns = Turns::default();
        let shares: [Share; FILES_AT_ONCE + 1] = Default::default();
        let mut running = Vec::new();
        for share in &shares[1..] {
            running.push(turns.take(share).await.unwrap());
        }
        let mut waiting = Box::pin(turns.take(&shares[0]));
        assert!((&mut waiting).now_or_never().is_none());
        running[0].go_on().await;
        assert!((&mut waiting).now_or_never().is_none(), "its time is not over");
        tokio::time::advance(SLICE).await;
        let mut long = Box::pin(running[0].go_on());
        assert!((&mut long).now_or_never().is_none());
        let short = waiting.now_or_never().expect("it is its turn").unwrap();
        assert!((&mut long).now_or_never().is_none());
        drop(short);
        assert!((&mut long).now_or_never().is_some());
    }
}
