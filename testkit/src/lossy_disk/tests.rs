//! A disk whose steps the test decides.

use api::{Birth, OpenReplica, Pool, PoolError, Presence, Stability, TicketMode};
use bytes::Bytes;
use types::IoMode;

use super::*;

const POOL: PoolId = PoolId(3);
const FILE: FileId = FileId(7);
const TIME: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Script {
    fates: Mutex<BTreeMap<u8, Fate>>,
    survives: bool,
    became: Mutex<Vec<(usize, u64)>>,
    begun: Mutex<Vec<(u64, bool)>>,
}

impl Script {
    fn set(&self, step: DiskStep, fate: Fate) {
        self.fates.lock().insert(step as u8, fate);
    }
}

impl DiskControl for Script {
    fn decide(&self, _: PoolId, step: DiskStep) -> (Duration, Fate) {
        let fate = self.fates.lock().get(&(step as u8)).copied().unwrap_or(Fate::Done);
        (Duration::from_secs(1), fate)
    }

    fn survives(&self, _: PoolId, _: bool) -> bool {
        self.survives
    }

    fn has_begun(&self, _: PoolId, write: BegunWrite) {
        self.begun.lock().push((write.value, write.is_direct));
    }

    fn becomes(&self, _: FileId, cell: usize, value: u64) {
        self.became.lock().push((cell, value));
    }
}

fn disk(script: &Arc<Script>) -> Arc<LossyDisk> {
    let control: Arc<dyn DiskControl> = Arc::clone(script) as _;
    LossyDisk::new(POOL, Arc::downgrade(&control))
}

async fn replica(pool: &LossyPool, epoch: u32) -> Result<Arc<dyn OpenReplica>, PoolError> {
    let (mode, presence, io) = (TicketMode::ReadWrite, Presence::Written, IoMode::Auto);
    let epoch = Epoch(epoch);
    pool.open(&Ticket { file: FILE, birth: Birth::UNKNOWN, pool: POOL, mode, epoch, presence, io }).await
}

fn cells(value: u64, count: usize) -> Bytes {
    Bytes::from(value.to_be_bytes().repeat(count))
}

#[tokio::test(start_paused = true)]
async fn a_crash_takes_the_bytes_that_no_sync_has_covered() {
    let script = Arc::new(Script::default());
    let disk = disk(&script);
    let pool = disk.open();
    let open = replica(&pool, 0).await.unwrap();
    open.write_at(8, cells(5, 2), Stability::Unstable).await.unwrap();
    assert!(!disk.is_on_disk(FILE, 1, 5));
    assert_eq!(open.sync().await.unwrap(), open.verifier());
    assert!(disk.is_on_disk(FILE, 1, 5));
    open.write_at(0, cells(6, 2), Stability::Unstable).await.unwrap();
    let read = open.read_at(0, 32).await.unwrap().data;
    assert_eq!(read, [cells(6, 2), cells(5, 1), cells(0, 1)].concat());
    disk.end_process(true);
    assert_eq!(disk.values(FILE), [0, 5, 5, 0, 0, 0, 0, 0]);
    assert_eq!(*script.became.lock(), [(1, 5), (2, 5), (0, 6), (1, 6), (0, 0), (1, 5)]);
    assert_eq!(*script.begun.lock(), [(5, false), (6, false)]);
    assert!(open.sync().await.is_err(), "its process is gone");
    let again = replica(&disk.open().for_clients(), 0).await.unwrap();
    assert_ne!(again.verifier(), open.verifier());
    again.write_at(0, cells(7, 1), Stability::FileSync).await.unwrap();
    assert!(disk.is_on_disk(FILE, 0, 7));
    assert_eq!(script.begun.lock().last(), Some(&(7, true)));
}

#[tokio::test(start_paused = true)]
async fn a_fence_waits_for_older_writes_and_is_lost_before_it_is_on_disk() {
    let script = Arc::new(Script::default());
    let disk = disk(&script);
    let pool = disk.open();
    let open = replica(&pool, 0).await.unwrap();
    let write = open.write_at(0, cells(5, 1), Stability::Unstable);
    let fences = [(FILE, Epoch(2))];
    script.set(DiskStep::Fence, Fate::Fails);
    assert!(pool.fence(&fences, TIME).await.sole().is_err());
    assert!(!disk.has_writes_below(FILE, Epoch(2)) && write.await.is_ok());
    let late = open.write_at(0, cells(6, 1), Stability::Unstable).await;
    assert!(matches!(late, Err(PoolError::Fenced)));
    assert_eq!(disk.fence_on_disk(FILE), Epoch(0));
    disk.end_process(false);
    let pool = disk.open();
    assert!(replica(&pool, 0).await.is_ok(), "the fence was not on disk");
    script.set(DiskStep::Fence, Fate::Done);
    pool.fence(&fences, TIME).await.sole().unwrap();
    disk.end_process(true);
    let pool = disk.open();
    assert!(matches!(replica(&pool, 1).await, Err(PoolError::Fenced)) && replica(&pool, 2).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_failed_fails_until_the_process_ends() {
    let script = Arc::new(Script { survives: true, ..Script::default() });
    let disk = disk(&script);
    let open = replica(&disk.open(), 0).await.unwrap();
    open.write_at(0, cells(5, 1), Stability::Unstable).await.unwrap();
    script.set(DiskStep::Sync, Fate::Fails);
    assert!(open.sync().await.is_err());
    script.set(DiskStep::Sync, Fate::Done);
    assert!(open.sync().await.is_err());
    disk.end_process(false);
    assert_eq!(disk.values(FILE)[0], 5, "the page cache survives a process");
    assert!(replica(&disk.open(), 0).await.unwrap().sync().await.is_ok());
}

/// Planted.
#[tokio::test(start_paused = true)]
async fn an_early_answer_comes_before_the_disk_has_it() {
    let script = Arc::new(Script::default());
    script.set(DiskStep::Sync, Fate::AnsweredEarly);
    let disk = disk(&script);
    let open = replica(&disk.open(), 0).await.unwrap();
    open.write_at(0, cells(5, 1), Stability::FileSync).await.unwrap();
    assert!(!disk.is_on_disk(FILE, 0, 5));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(disk.is_on_disk(FILE, 0, 5));
}
