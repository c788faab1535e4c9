//! The data half of an upload: consecutive bytes into a replica, summed as they pass. A pool may have it without the head.

use std::sync::Arc;

use api::{IoHandle, OpenReplica, PoolError, Stability, Verifier};
use bytes::Bytes;
use types::{Checksum, ChecksumKind};

use crate::{FilesError, Sums, UploadError};

/// After so many bytes a sync is begun, so that the disk works while the rest comes in and little is left for the end.
/// Twice as much is about what an upload may leave unwritten in memory.
const UNSYNCED_BYTES_MAX: u64 = 64 << 20;

/// An upload of so many bytes is one stable write, which a pool can answer without a sync of the file.
const HELD_BYTES_MAX: usize = 128 << 10;

pub struct Writer {
    replica: Arc<dyn OpenReplica>,
    sums: Sums,
    offset: u64,
    /// The first bytes, while no others have come.
    held: Option<Bytes>,
    /// One at a time: two writes of one file would only wait for each other in the kernel, and what the next one needs
    /// comes in meanwhile.
    in_flight: Option<IoHandle<Stability>>,
    /// Bytes before `offset` are missing: a write or a sync failed.
    is_broken: bool,
    /// How far the writes went when the last sync was begun.
    synced_to: u64,
    syncing: Option<IoHandle<Verifier>>,
    /// As of before the first write: with another one the pool has started anew, and may have lost bytes.
    verifier: Verifier,
}

/// Data that a writer has put onto the disk.
#[derive(Clone, Debug)]
pub struct Received {
    pub size: u64,
    pub checksums: Vec<Checksum>,
}

impl Writer {
    pub fn new(replica: Arc<dyn OpenReplica>, kinds: impl IntoIterator<Item = ChecksumKind>) -> Writer {
        Writer {
            verifier: replica.verifier(),
            replica,
            sums: Sums::new(kinds),
            offset: 0,
            held: None,
            in_flight: None,
            is_broken: false,
            synced_to: 0,
            syncing: None,
        }
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Nothing can be appended to it: what would be published has a hole, under checksums that do not know it.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    pub async fn write(&mut self, bytes: Bytes) -> Result<(), FilesError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.offset == 0 && bytes.len() <= HELD_BYTES_MAX {
            self.sums.update(&bytes);
            self.offset += bytes.len() as u64;
            self.held = Some(bytes);
            return Ok(());
        }
        self.settle_write().await?;
        if let Some(first) = self.held.take() {
            self.in_flight = Some(self.replica.write_at(0, first, Stability::Unstable));
            self.settle_write().await?;
        }
        self.in_flight = Some(self.replica.write_at(self.offset, bytes.clone(), Stability::Unstable));
        // While the disk thread copies the bytes, they are summed.
        self.sums.update(&bytes);
        self.offset += bytes.len() as u64;
        if self.offset - self.synced_to >= UNSYNCED_BYTES_MAX {
            // A disk that is slower than the client holds it back here.
            self.settle_sync().await?;
            self.syncing = Some(self.replica.sync());
            self.synced_to = self.offset;
        }
        Ok(())
    }

    async fn settle_sync(&mut self) -> Result<(), FilesError> {
        // Waited for in its place, so that who gives this up loses no answer.
        let Some(syncing) = &mut self.syncing else { return Ok(()) };
        let synced = syncing.await;
        self.syncing = None;
        match synced {
            // The last sync covers everything, so one that found no room in the queue may be missed.
            Err(error) if !error.is_retryable() => {
                self.is_broken = true;
                Err(error.into())
            }
            Ok(verifier) => self.judge_synced(verifier),
            Err(_) => Ok(()),
        }
    }

    fn judge_synced(&mut self, verifier: Verifier) -> Result<(), FilesError> {
        if verifier == self.verifier {
            return Ok(());
        }
        self.is_broken = true;
        Err(UploadError::Lost.into())
    }

    async fn settle_write(&mut self) -> Result<(), FilesError> {
        // In its place, as above.
        let Some(writing) = &mut self.in_flight else { return Ok(()) };
        let written = writing.await;
        self.in_flight = None;
        self.is_broken |= written.is_err();
        written?;
        Ok(())
    }

    /// Writes the held bytes, which are the whole upload, as one stable write. Returns whether there were any.
    async fn write_held(&mut self) -> Result<bool, FilesError> {
        let Some(bytes) = &self.held else { return Ok(false) };
        // In its place, as above.
        let writing = match &mut self.in_flight {
            Some(writing) => writing,
            none => none.insert(self.replica.write_at(0, bytes.clone(), Stability::FileSync)),
        };
        let written = writing.await;
        self.in_flight = None;
        match written {
            Ok(_) => {
                self.held = None;
                Ok(true)
            }
            Err(error) => Err(self.judge_refusal(error)),
        }
    }

    /// After a failed stable write or last sync. If the pool was busy, was offline or gave no answer, the same may be asked
    /// for again. Any other error breaks the writer.
    fn judge_refusal(&mut self, error: PoolError) -> FilesError {
        self.is_broken |=
            !matches!(error, PoolError::Busy(_) | PoolError::Offline(_) | PoolError::Unknown(_));
        error.into()
    }

    /// All bytes are on the disk when this is answered. Unless it is broken then, a writer that was refused this, or of
    /// which it was not waited for, may be asked again.
    pub async fn finish(&mut self) -> Result<Received, FilesError> {
        let is_stable = self.write_held().await?;
        self.settle_write().await?;
        self.settle_sync().await?;
        if self.offset > 0 && !is_stable {
            let synced = self.syncing.insert(self.replica.sync()).await;
            self.syncing = None;
            match synced {
                Ok(verifier) => self.judge_synced(verifier)?,
                Err(error) => return Err(self.judge_refusal(error)),
            }
        }
        let sums = std::mem::replace(&mut self.sums, Sums::new([]));
        Ok(Received { size: self.offset, checksums: sums.finish() })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use testkit::faulty::{Call, Crash, Fault, FaultyReplica, Gate, Schedule};
    use testkit::memory_pool::MemoryPool;
    use types::{FileId, PoolId};

    use super::*;

    /// A writer into a pool in memory, and the faults that it meets there.
    fn writer() -> (Schedule, Writer) {
        let schedule = Schedule::default();
        let replica = MemoryPool::new(PoolId(0)).writer(FileId(7));
        let writer = Writer::new(Arc::new(FaultyReplica::new(replica, &schedule)), []);
        (schedule, writer)
    }

    /// The first sync is answered with the error.
    fn failing_sync(error: PoolError) -> (Schedule, Writer) {
        let (schedule, writer) = writer();
        schedule.on(Call::Sync, 0..1, Fault::Fail(error));
        (schedule, writer)
    }

    #[tokio::test]
    async fn a_writer_that_lost_bytes_says_so_before_more_are_appended() {
        let (schedule, mut writer) = writer();
        schedule.on(Call::Write, 0..1, Fault::Fail(PoolError::TooLarge));
        let bytes = Bytes::from(vec![7; 1 << 20]);
        assert!(writer.write(bytes).await.is_ok() && !writer.is_broken());
        assert!(writer.write(Bytes::from_static(b"more")).await.is_err());
        assert!(writer.is_broken());
    }

    async fn send(writer: &mut Writer, bytes: u64) -> Result<(), FilesError> {
        let part = Bytes::from(vec![0; 4 << 20]);
        for _ in 0..bytes / part.len() as u64 {
            writer.write(part.clone()).await?;
        }
        Ok(())
    }

    #[tokio::test]
    async fn the_disk_works_while_the_rest_comes_in() {
        let (schedule, mut writer) = writer();
        let syncs = || schedule.count(Call::Sync);
        send(&mut writer, UNSYNCED_BYTES_MAX - (4 << 20)).await.unwrap();
        assert_eq!(syncs(), 0);
        send(&mut writer, 2 * UNSYNCED_BYTES_MAX).await.unwrap();
        assert_eq!(syncs(), 2);
        assert_eq!(writer.finish().await.unwrap().size, 3 * UNSYNCED_BYTES_MAX - (4 << 20));
        // The last covers what came after the others had begun.
        assert_eq!(syncs(), 3);
    }

    #[tokio::test]
    async fn a_sync_that_failed_on_the_way_breaks_the_upload() {
        let lost = || PoolError::Io { pool: PoolId(0), operation: "sync", reason: "lost".to_owned() };
        let (_, mut writer) = failing_sync(lost());
        assert!(send(&mut writer, 2 * UNSYNCED_BYTES_MAX).await.is_err());
        assert!(writer.is_broken());
        let (_, mut writer) = failing_sync(lost());
        send(&mut writer, UNSYNCED_BYTES_MAX).await.unwrap();
        assert!(writer.finish().await.is_err());
    }

    #[tokio::test]
    async fn a_sync_on_the_way_that_found_no_room_is_made_up_for_by_the_last() {
        let (schedule, mut writer) = failing_sync(PoolError::Busy(PoolId(0)));
        send(&mut writer, UNSYNCED_BYTES_MAX).await.unwrap();
        assert_eq!(writer.finish().await.unwrap().size, UNSYNCED_BYTES_MAX);
        assert_eq!(schedule.count(Call::Sync), 2);
    }

    #[tokio::test]
    async fn a_last_sync_that_found_no_room_is_asked_for_again() {
        let (_, mut writer) = failing_sync(PoolError::Busy(PoolId(0)));
        writer.sums = Sums::new([ChecksumKind::Adler32]);
        for part in [&b"1234"[..], b"56789"] {
            writer.write(Bytes::from_static(part)).await.unwrap();
        }
        let refused = writer.finish().await.unwrap_err();
        assert!(matches!(refused, FilesError::Pool(PoolError::Busy(_))) && !writer.is_broken());
        let received = writer.finish().await.unwrap();
        let sums: Vec<String> = received.checksums.iter().map(Checksum::to_string).collect();
        assert_eq!((received.size, &sums[..]), (9, &["adler32:091e01de".to_owned()][..]));
    }

    #[tokio::test]
    async fn a_writer_whose_pool_has_started_anew_before_a_sync_is_broken() {
        let pool = MemoryPool::new(PoolId(0));
        let mut writer = Writer::new(pool.writer(FileId(7)), []);
        writer.write(Bytes::from_static(b"lo")).await.unwrap();
        writer.write(Bytes::from_static(b"st")).await.unwrap();
        pool.crash();
        assert!(matches!(writer.finish().await, Err(FilesError::Upload(UploadError::Lost))));
        assert!(writer.is_broken());
    }

    /// Lets the one call pass that waits there.
    fn release(gate: &Gate) {
        assert_eq!(gate.waiting(), 1);
        gate.let_waiting_pass();
    }

    #[tokio::test]
    async fn a_writer_that_is_not_waited_for_loses_nothing() {
        let (schedule, mut writer) = writer();
        let (writes, syncs) = (Gate::shut(), Gate::shut());
        schedule.on(Call::Write, .., Fault::Delay(writes.clone()));
        schedule.on(Call::Sync, .., Fault::Delay(syncs.clone()));
        let first = HELD_BYTES_MAX as u64 + 1;
        writer.write(Bytes::from(vec![1; HELD_BYTES_MAX + 1])).await.unwrap();
        assert!(writer.write(Bytes::from_static(b"two")).now_or_never().is_none());
        assert!(!writer.is_broken() && writer.offset() == first, "the second was not begun");
        release(&writes);
        writer.write(Bytes::from_static(b"two")).await.unwrap();
        assert!(writer.finish().now_or_never().is_none(), "waits for the write");
        release(&writes);
        assert!(writer.finish().now_or_never().is_none(), "waits for the sync");
        assert!(!writer.is_broken());
        release(&syncs);
        let mut finishing = Box::pin(writer.finish());
        assert!(finishing.as_mut().now_or_never().is_none(), "for one of its own");
        release(&syncs);
        assert_eq!(finishing.await.unwrap().size, first + 3);
    }

    #[tokio::test]
    async fn a_small_upload_is_one_stable_write() {
        let pool = MemoryPool::new(PoolId(0));
        let schedule = Schedule::default();
        let replica = Arc::new(FaultyReplica::new(pool.writer(FileId(7)), &schedule));
        let mut writer = Writer::new(replica, []);
        writer.write(Bytes::from_static(b"small")).await.unwrap();
        assert_eq!(writer.finish().await.unwrap().size, 5);
        assert_eq!((schedule.count(Call::Write), schedule.count(Call::Sync)), (1, 0));
        pool.crash();
        let read = pool.writer(FileId(7)).read_at(0, 9).await.unwrap();
        assert_eq!(&read.data[..], b"small", "it was stable");
    }

    #[tokio::test]
    async fn a_small_upload_that_found_no_room_is_asked_for_again() {
        let (schedule, mut writer) = writer();
        schedule.on(Call::Write, 0..1, Fault::Fail(PoolError::Busy(PoolId(0))));
        writer.write(Bytes::from_static(b"small")).await.unwrap();
        assert!(writer.finish().await.is_err() && !writer.is_broken());
        assert_eq!(writer.finish().await.unwrap().size, 5);
        let (schedule, mut writer) = self::writer();
        schedule.on(Call::Write, 0..1, Fault::Fail(PoolError::TooLarge));
        writer.write(Bytes::from_static(b"small")).await.unwrap();
        assert!(writer.finish().await.is_err() && writer.is_broken());
    }
}
