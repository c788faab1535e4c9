//! A process that serves a lossy disk.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use api::{
    Answers, Birth, IoHandle, OpenReplica, Pool, PoolError, PoolStatus, ReadData, ReplicaFacts, Stability,
    Ticket, TicketMode, Verifier,
};
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_channel::oneshot;
use tokio::time::sleep;
use types::{Epoch, FileId, PoolId};

use super::{BegunWrite, CELL_BYTES, CELLS, CellFile, DiskControl, DiskStep, Fate, LossyDisk, Version};

/// Clones are the same process.
#[derive(Clone)]
pub struct LossyPool {
    disk: Arc<LossyDisk>,
    process: u32,
    is_direct: bool,
}

/// The process has ended, and nobody waits for the answer.
struct Ended;

type Stepped<T> = Result<Result<T, PoolError>, Ended>;

impl LossyPool {
    pub(super) fn new(disk: Arc<LossyDisk>, process: u32) -> LossyPool {
        LossyPool { disk, process, is_direct: false }
    }

    /// As it is served to clients of the pool, and not to the head.
    pub fn for_clients(&self) -> LossyPool {
        LossyPool { is_direct: true, ..self.clone() }
    }

    fn id(&self) -> PoolId {
        self.disk.id
    }

    fn error(&self, operation: &'static str) -> PoolError {
        PoolError::Io { pool: self.disk.id, operation, reason: "the simulated disk fails".to_owned() }
    }

    fn control(&self) -> Result<Arc<dyn DiskControl>, Ended> {
        self.disk.control.upgrade().ok_or(Ended)
    }

    /// Takes the time of a step. The step is done by the caller, if this process still has the disk.
    async fn step(&self, step: DiskStep, operation: &'static str) -> Stepped<()> {
        let (time, fate) = self.control()?.decide(self.disk.id, step);
        sleep(time).await;
        self.check()?;
        Ok(if fate == Fate::Fails { Err(self.error(operation)) } else { Ok(()) })
    }

    fn check(&self) -> Result<(), Ended> {
        let state = self.disk.state.lock();
        if state.is_open && state.process == self.process { Ok(()) } else { Err(Ended) }
    }

    fn is_fenced(&self, ticket: &Ticket) -> bool {
        let state = self.disk.state.lock();
        state.fences.get(&ticket.file).is_some_and(|fence| ticket.epoch < *fence)
    }

    fn with_file<T>(&self, file: FileId, act: impl FnOnce(&mut CellFile) -> T) -> T {
        act(self.disk.state.lock().files.entry(file).or_default())
    }

    /// The I/O goes on while its host stands still, as that of a kernel does.
    fn spawn<T: Send + 'static>(&self, io: impl Future<Output = Stepped<T>> + Send + 'static) -> IoHandle<T> {
        let (tell, answer) = oneshot::channel();
        tokio::spawn(async move {
            if let Ok(done) = io.await {
                let _ = tell.send(done);
            }
        });
        IoHandle::waiting(answer, PoolError::Unknown(self.disk.id))
    }

    async fn write(
        self,
        ticket: Ticket,
        cells: Range<usize>,
        data: Bytes,
        stability: Stability,
    ) -> Stepped<Stability> {
        let written = match self.step(DiskStep::Write, "write data").await? {
            Ok(()) => {
                let versions = self.apply(ticket.file, cells, &data)?;
                match stability {
                    Stability::Unstable => Ok(()),
                    _ => self.sync_versions(ticket.file, versions).await?,
                }
            }
            Err(error) => Err(error),
        };
        // The bytes go with a pass: only now no write by this ticket is under way.
        drop(data);
        self.with_file(ticket.file, |file| {
            if let Some(count) = file.under_way.get_mut(&ticket.epoch) {
                *count -= 1;
                if *count == 0 {
                    file.under_way.remove(&ticket.epoch);
                }
            }
        });
        self.disk.changed.notify_waiters();
        Ok(written.map(|()| stability))
    }

    /// The new versions of the cells.
    fn apply(&self, file: FileId, cells: Range<usize>, data: &[u8]) -> Result<Vec<(usize, Version)>, Ended> {
        let control = self.control()?;
        let mut versions = Vec::new();
        {
            let mut state = self.disk.state.lock();
            state.versions += 1;
            let number = state.versions;
            let content = state.files.entry(file).or_default();
            for (cell, value) in cells.zip(values_of(data)) {
                let version = Version { value, number };
                content.cells[cell].now = version;
                content.cells[cell].written.entry(value).or_insert(number);
                versions.push((cell, version));
            }
        }
        for (cell, version) in &versions {
            control.becomes(file, *cell, version.value);
        }
        Ok(versions)
    }

    async fn sync_versions(&self, file: FileId, versions: Vec<(usize, Version)>) -> Stepped<()> {
        let (time, fate) = self.control()?.decide(self.disk.id, DiskStep::Sync);
        let pool = self.clone();
        let syncing = async move {
            sleep(time).await;
            pool.check()?;
            pool.with_file(file, |content| {
                if fate == Fate::Fails || content.has_failed {
                    content.has_failed = true;
                    return Ok(Err(pool.error("sync data")));
                }
                for (cell, version) in versions {
                    let on_disk = &mut content.cells[cell].on_disk;
                    if on_disk.number < version.number {
                        *on_disk = version;
                    }
                }
                Ok(Ok(()))
            })
        };
        if fate == Fate::AnsweredEarly {
            tokio::spawn(async move { drop(syncing.await) });
            return Ok(Ok(()));
        }
        syncing.await
    }

    async fn sync(self, file: FileId) -> Stepped<Verifier> {
        let number = |(number, cell): (usize, &super::Cell)| (number, cell.now);
        let versions = self.with_file(file, |content| content.cells.iter().enumerate().map(number).collect());
        let verifier = self.verifier();
        Ok(self.sync_versions(file, versions).await?.map(|()| verifier))
    }

    async fn fence_one(&self, file: FileId, epoch: Epoch) -> Result<(), PoolError> {
        let gone = |_: Ended| PoolError::Unknown(self.disk.id);
        {
            let mut state = self.disk.state.lock();
            let fence = state.fences.entry(file).or_default();
            *fence = epoch.max(*fence);
        }
        self.until_none_is_below(file, epoch).await;
        let (time, fate) = self.control().map_err(gone)?.decide(self.disk.id, DiskStep::Fence);
        let pool = self.clone();
        let recording = async move {
            sleep(time).await;
            pool.check().map_err(|_| PoolError::Unknown(pool.disk.id))?;
            if fate == Fate::Fails {
                return Err(pool.error("record a fence"));
            }
            let mut state = pool.disk.state.lock();
            let fence = state.fences_on_disk.entry(file).or_default();
            *fence = epoch.max(*fence);
            Ok(())
        };
        if fate == Fate::AnsweredEarly {
            tokio::spawn(async move { drop(recording.await) });
            return Ok(());
        }
        recording.await
    }

    async fn until_none_is_below(&self, file: FileId, epoch: Epoch) {
        loop {
            let changed = self.disk.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if !self.disk.has_writes_below(file, epoch) {
                return;
            }
            changed.await;
        }
    }

    fn verifier(&self) -> Verifier {
        let mut verifier = [0; 8];
        verifier[..4].copy_from_slice(&self.disk.id.0.to_be_bytes());
        verifier[4..].copy_from_slice(&self.process.to_be_bytes());
        Verifier(verifier)
    }
}

/// `None`: it is not one of whole cells.
fn cells_of(offset: u64, bytes: usize) -> Option<Range<usize>> {
    let offset = usize::try_from(offset).ok()?;
    let is_whole = offset.is_multiple_of(CELL_BYTES) && bytes.is_multiple_of(CELL_BYTES) && bytes > 0;
    let cells = offset / CELL_BYTES..(offset + bytes) / CELL_BYTES;
    (is_whole && cells.end <= CELLS).then_some(cells)
}

fn values_of(data: &[u8]) -> impl Iterator<Item = u64> {
    data.as_chunks().0.iter().map(|cell| u64::from_be_bytes(*cell))
}

#[async_trait]
impl Pool for LossyPool {
    fn id(&self) -> PoolId {
        self.id()
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        match self.step(DiskStep::Open, "open a replica").await {
            Ok(opened) => opened?,
            Err(Ended) => return Err(PoolError::Unknown(self.id())),
        }
        if self.is_fenced(ticket) {
            return Err(PoolError::Fenced);
        }
        Ok(Arc::new(LossyReplica { pool: self.clone(), ticket: *ticket }))
    }

    async fn make(&self, files: &[(FileId, Birth)], _within: Duration) -> Answers<()> {
        files.iter().map(|_| Ok(())).collect()
    }

    async fn truncate(&self, files: &[(FileId, u64)], _within: Duration) -> Answers<ReplicaFacts> {
        Answers::alike(files.len(), &PoolError::Unsupported(self.id()))
    }

    async fn remove(&self, files: &[FileId], _within: Duration) -> Answers<()> {
        Answers::alike(files.len(), &PoolError::Unsupported(self.id()))
    }

    async fn fence(&self, files: &[(FileId, Epoch)], _within: Duration) -> Answers<()> {
        let mut answers = Vec::new();
        for (file, epoch) in files {
            answers.push(self.fence_one(*file, *epoch).await);
        }
        answers.into_iter().collect()
    }

    async fn facts(&self, files: &[FileId], _within: Duration) -> Answers<Option<ReplicaFacts>> {
        let size = (CELLS * CELL_BYTES) as u64;
        let facts =
            |file| ReplicaFacts { file, birth: Birth::UNKNOWN, size, space_used: size, modified: None };
        files.iter().map(|file| Ok(Some(facts(*file)))).collect()
    }

    async fn replicas(&self, _after: FileId, _limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        Err(PoolError::Unsupported(self.id()))
    }

    fn status(&self) -> PoolStatus {
        PoolStatus::untold(self.id())
    }
}

struct LossyReplica {
    pool: LossyPool,
    ticket: Ticket,
}

impl LossyReplica {
    /// An error: it is not let in.
    fn admit(&self, value: u64) -> Result<(), PoolError> {
        if self.ticket.mode != TicketMode::ReadWrite {
            return Err(PoolError::ReadOnlyTicket);
        }
        let gone = |_| PoolError::Unknown(self.pool.id());
        self.pool.check().map_err(gone)?;
        if self.pool.is_fenced(&self.ticket) {
            return Err(PoolError::Fenced);
        }
        let write = BegunWrite { ticket: self.ticket, value, is_direct: self.pool.is_direct };
        self.pool.control().map_err(gone)?.has_begun(self.pool.id(), write);
        self.pool
            .with_file(self.ticket.file, |file| *file.under_way.entry(self.ticket.epoch).or_default() += 1);
        Ok(())
    }
}

impl OpenReplica for LossyReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        let (pool, file) = (self.pool.clone(), self.ticket.file);
        let Some(cells) = cells_of(offset, length as usize) else {
            return IoHandle::ready(Err(PoolError::Unsupported(pool.id())));
        };
        if pool.is_fenced(&self.ticket) {
            return IoHandle::ready(Err(PoolError::Fenced));
        }
        self.pool.spawn(async move {
            let stepped = pool.step(DiskStep::Read, "read data").await?;
            let mut data = BytesMut::new();
            for value in &pool.disk.values(file)[cells.clone()] {
                data.extend_from_slice(&value.to_be_bytes());
            }
            Ok(stepped.map(|()| ReadData { data: data.freeze(), end_of_file: cells.end == CELLS }))
        })
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        let Some(cells) = cells_of(offset, data.len()) else {
            return IoHandle::ready(Err(PoolError::Unsupported(self.pool.id())));
        };
        let value = values_of(&data).next().unwrap_or_default();
        if let Err(error) = self.admit(value) {
            return IoHandle::ready(Err(error));
        }
        self.pool.spawn(self.pool.clone().write(self.ticket, cells, data, stability))
    }

    fn sync(&self) -> IoHandle<Verifier> {
        self.pool.spawn(self.pool.clone().sync(self.ticket.file))
    }

    fn verifier(&self) -> Verifier {
        self.pool.verifier()
    }
}
