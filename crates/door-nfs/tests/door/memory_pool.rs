//! A pool in memory whose writes go on when the test lets them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use api::{
    ClientReport, Grant, IoHandle, OpenReplica, Pool, PoolError, PoolManager, PoolStatus, ReadData,
    ReplicaFacts, SelectError, Selection, Stability, Ticket, Verifier,
};
use async_trait::async_trait;
use bytes::Bytes;
use futures_channel::oneshot;
use parking_lot::Mutex;
use types::{Epoch, FileId, PoolId};

use crate::ground::POOL;

#[derive(Clone, Default)]
pub struct MemoryPool(Arc<Inner>);

#[derive(Default)]
struct Inner {
    replicas: Mutex<BTreeMap<FileId, Vec<u8>>>,
    gate: Mutex<Gate>,
    verifier: Mutex<u8>,
}

#[derive(Default)]
struct Gate {
    /// `None`: all writes pass.
    left: Option<usize>,
    waiting: Vec<Waiting>,
    passed: usize,
}

struct Waiting {
    file: FileId,
    offset: u64,
    data: Bytes,
    done: oneshot::Sender<Result<Stability, PoolError>>,
}

impl MemoryPool {
    /// From now on so many writes pass, and others wait.
    pub fn let_pass(&self, writes: usize) {
        self.0.gate.lock().left = Some(writes);
        self.drain();
    }

    pub fn let_all_pass(&self) {
        self.0.gate.lock().left = None;
        self.drain();
    }

    /// Writes that were done.
    pub fn passed(&self) -> usize {
        self.0.gate.lock().passed
    }

    pub fn waiting(&self) -> usize {
        self.0.gate.lock().waiting.len()
    }

    /// As when the pool has lost writes that were not synced.
    pub fn restart(&self) {
        *self.0.verifier.lock() += 1;
    }

    fn drain(&self) {
        loop {
            let mut gate = self.0.gate.lock();
            if gate.left == Some(0) || gate.waiting.is_empty() {
                return;
            }
            let Waiting { file, offset, data, done } = gate.waiting.remove(0);
            self.pass(&mut gate, file, offset, &data);
            drop(gate);
            // The waiting caller may be gone.
            let _ = done.send(Ok(Stability::Unstable));
        }
    }

    fn pass(&self, gate: &mut Gate, file: FileId, offset: u64, data: &[u8]) {
        gate.left = gate.left.map(|left| left - 1);
        gate.passed += 1;
        let mut replicas = self.0.replicas.lock();
        let bytes = replicas.entry(file).or_default();
        let (from, to) = (offset as usize, offset as usize + data.len());
        if bytes.len() < to {
            bytes.resize(to, 0);
        }
        bytes[from..to].copy_from_slice(data);
    }

    fn facts_of(&self, file: FileId) -> Option<ReplicaFacts> {
        let size = self.0.replicas.lock().get(&file)?.len() as u64;
        Some(ReplicaFacts { file, birth: api::Birth::UNKNOWN, size, space_used: size, modified: None })
    }
}

struct MemoryReplica {
    pool: MemoryPool,
    file: FileId,
}

impl OpenReplica for MemoryReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        let replicas = self.pool.0.replicas.lock();
        let bytes = replicas.get(&self.file).map_or(&[][..], Vec::as_slice);
        let from = bytes.len().min(offset as usize);
        let to = bytes.len().min(from + length as usize);
        let data = Bytes::copy_from_slice(&bytes[from..to]);
        IoHandle::ready(Ok(ReadData { end_of_file: to == bytes.len(), data }))
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        let mut gate = self.pool.0.gate.lock();
        if gate.left != Some(0) {
            self.pool.pass(&mut gate, self.file, offset, &data);
            return IoHandle::ready(Ok(stability));
        }
        let (done, answer) = oneshot::channel();
        gate.waiting.push(Waiting { file: self.file, offset, data, done });
        IoHandle::waiting(answer, PoolError::Offline(POOL))
    }

    fn sync(&self) -> IoHandle<Verifier> {
        IoHandle::ready(Ok(self.verifier()))
    }

    fn verifier(&self) -> Verifier {
        Verifier([*self.pool.0.verifier.lock(); 8])
    }
}

#[async_trait]
impl Pool for MemoryPool {
    fn id(&self) -> PoolId {
        POOL
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        Ok(Arc::new(MemoryReplica { pool: self.clone(), file: ticket.file }))
    }

    async fn make(&self, file: FileId, _: api::Birth) -> Result<(), PoolError> {
        self.0.replicas.lock().entry(file).or_default();
        Ok(())
    }

    async fn truncate(&self, file: FileId, size: u64) -> Result<ReplicaFacts, PoolError> {
        self.0.replicas.lock().entry(file).or_default().resize(size as usize, 0);
        let facts = self.facts_of(file).expect("it was made");
        answer_takes_some_time().await;
        Ok(facts)
    }

    async fn remove(&self, file: FileId) -> Result<(), PoolError> {
        self.0.replicas.lock().remove(&file);
        Ok(())
    }

    async fn fence(&self, _: FileId, _: Epoch) -> Result<(), PoolError> {
        Ok(())
    }

    async fn facts(&self, file: FileId) -> Result<Option<ReplicaFacts>, PoolError> {
        let facts = self.facts_of(file);
        answer_takes_some_time().await;
        Ok(facts)
    }

    async fn replicas(&self, _: FileId, _: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        Ok(Vec::new())
    }

    fn status(&self) -> PoolStatus {
        unreachable!("nobody asks for the status of pools here")
    }
}

/// So that something else may be done between a step at the pool and what follows from it.
async fn answer_takes_some_time() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

impl PoolManager for MemoryPool {
    fn select(&self, _: &Selection<'_>) -> Result<Grant, SelectError> {
        Ok(Grant { pool: POOL })
    }

    fn pool(&self, _: PoolId) -> Option<Arc<dyn Pool>> {
        Some(Arc::new(self.clone()))
    }

    fn pools(&self) -> Vec<PoolStatus> {
        Vec::new()
    }

    fn report(&self, _: &ClientReport) {}
}
