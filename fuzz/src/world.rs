//! A head in memory, without sockets or a clock of its own: the real dispatch over the real namespace, and a pool that
//! keeps bytes in a map.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::{AccessServices, FileAccess};
use api::{
    Advice, ClientReport, Content, Cookie, Grant, HandleKey, IoHandle, KeyGeneration, Locations, Namespace,
    OpenReplica, Pool, PoolError, PoolManager, PoolStatus, ReadData, ReplicaFacts, ReplicaRanges,
    SelectError, Selection, SetAttributes, Stability, Stretch, Term, Ticket, TicketKeys, Unobserved,
    Verifier,
};
use async_trait::async_trait;
use bytes::Bytes;
use door_nfs::direct::Direct;
use door_nfs::{
    Courtesy, DelegationMode, DelegationRules, Export, HeadConfig, HeadDoor, HeadServices, Security, Squash,
    WriteDelegations,
};
use namespace::{Config, Database, SqlNamespace, Sync};
use tokio::task::JoinHandle;
use types::{ByteRange, Clock, Epoch, FileId, FileKind, Identity, PoolId, Random, Timestamp};

use crate::peer::{self, Manner};

pub const LEASE: Duration = Duration::from_secs(90);
const POOL: PoolId = PoolId(0);
const BLOCK: usize = 16;
/// Longer files are too large here.
const REPLICA_BYTES_MAX: u64 = 64 << 10;

/// Time that passes when it is told to.
#[derive(Default)]
pub struct Hands(AtomicU64);

impl Hands {
    pub fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_secs(), Ordering::Relaxed);
    }
}

impl Clock for Hands {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(1_800_000_000) + self.monotonic())
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(1000 + self.0.load(Ordering::Relaxed))
    }
}

/// The same numbers each time.
struct NoChance;

impl Random for NoChance {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

#[derive(Clone, Default)]
struct MapPool(Arc<Mutex<BTreeMap<FileId, Vec<u8>>>>);

impl MapPool {
    fn kept(&self) -> MutexGuard<'_, BTreeMap<FileId, Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_len(&self, file: FileId, len: u64) -> Result<ReplicaFacts, PoolError> {
        if len > REPLICA_BYTES_MAX {
            return Err(PoolError::TooLarge);
        }
        self.kept().entry(file).or_default().resize(len as usize, 0);
        Ok(facts(file, len))
    }
}

fn facts(file: FileId, size: u64) -> ReplicaFacts {
    ReplicaFacts { file, birth: api::Birth::UNKNOWN, size, space_used: size, modified: None }
}

/// Tickets are not looked at: nobody comes but by the head.
#[async_trait]
impl Pool for MapPool {
    fn id(&self) -> PoolId {
        POOL
    }

    async fn open(&self, ticket: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        Ok(Arc::new(MapReplica { pool: self.clone(), file: ticket.file }))
    }

    async fn make(&self, file: FileId, _: api::Birth) -> Result<(), PoolError> {
        self.kept().entry(file).or_default();
        Ok(())
    }

    async fn truncate(&self, file: FileId, size: u64) -> Result<ReplicaFacts, PoolError> {
        self.set_len(file, size)
    }

    async fn remove(&self, file: FileId) -> Result<(), PoolError> {
        self.kept().remove(&file);
        Ok(())
    }

    async fn fence(&self, _: FileId, _: Epoch) -> Result<(), PoolError> {
        Ok(())
    }

    async fn facts(&self, file: FileId) -> Result<Option<ReplicaFacts>, PoolError> {
        Ok(self.kept().get(&file).map(|bytes| facts(file, bytes.len() as u64)))
    }

    async fn replicas(&self, _: FileId, _: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        Ok(Vec::new())
    }

    fn status(&self) -> PoolStatus {
        PoolStatus {
            id: POOL,
            offline: None,
            read_only: None,
            total_bytes: 1 << 40,
            free_bytes: 1 << 40,
            total_files: 1 << 20,
            free_files: 1 << 20,
            replicas: 0,
            read_bytes: 0,
            written_bytes: 0,
            reads: 0,
            writes: 0,
            syncs: 0,
        }
    }
}

struct MapReplica {
    pool: MapPool,
    file: FileId,
}

impl MapReplica {
    fn len(&self) -> u64 {
        self.pool.kept().get(&self.file).map_or(0, |bytes| bytes.len() as u64)
    }
}

impl OpenReplica for MapReplica {
    fn read_at(&self, offset: u64, length: u32) -> IoHandle<ReadData> {
        let replicas = self.pool.kept();
        let bytes = replicas.get(&self.file).map(Vec::as_slice).unwrap_or_default();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let to = from.saturating_add(length as usize).min(bytes.len());
        let data = Bytes::copy_from_slice(&bytes[from..to]);
        IoHandle::ready(Ok(ReadData { data, end_of_file: to == bytes.len() }))
    }

    fn write_at(&self, offset: u64, data: Bytes, stability: Stability) -> IoHandle<Stability> {
        let Some(end) = offset.checked_add(data.len() as u64).filter(|end| *end <= REPLICA_BYTES_MAX) else {
            return IoHandle::ready(Err(PoolError::TooLarge));
        };
        let mut replicas = self.pool.kept();
        let bytes = replicas.entry(self.file).or_default();
        if bytes.len() < end as usize {
            bytes.resize(end as usize, 0);
        }
        bytes[offset as usize..end as usize].copy_from_slice(&data);
        IoHandle::ready(Ok(stability))
    }

    fn sync(&self) -> IoHandle<Verifier> {
        IoHandle::ready(Ok(self.verifier()))
    }

    fn verifier(&self) -> Verifier {
        Verifier([1; 8])
    }

    fn ranges(&self) -> Option<&dyn ReplicaRanges> {
        Some(self)
    }
}

/// A block of zeros is a hole.
impl ReplicaRanges for MapReplica {
    fn allocate(&self, range: ByteRange) -> IoHandle<()> {
        let len = self.len().max(range.end());
        IoHandle::ready(self.pool.set_len(self.file, len).map(drop))
    }

    fn extend(&self, length: u64) -> IoHandle<()> {
        let len = self.len().max(length);
        IoHandle::ready(self.pool.set_len(self.file, len).map(drop))
    }

    fn deallocate(&self, range: ByteRange) -> IoHandle<()> {
        let mut replicas = self.pool.kept();
        if let Some(bytes) = replicas.get_mut(&self.file) {
            let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
            let (from, to) = (within(range.offset()), within(range.end()));
            bytes[from..to].fill(0);
        }
        IoHandle::ready(Ok(()))
    }

    fn seek(&self, offset: u64, content: Content) -> IoHandle<Option<u64>> {
        let replicas = self.pool.kept();
        let bytes = replicas.get(&self.file).map(Vec::as_slice).unwrap_or_default();
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let blocks = bytes.chunks(BLOCK).enumerate().skip(from / BLOCK);
        let mut blocks = blocks.map(|(block, bytes)| (block * BLOCK, bytes.iter().any(|byte| *byte != 0)));
        let wanted = content == Content::Data;
        let found = blocks.find(|(_, is_data)| *is_data == wanted).map(|(at, _)| offset.max(at as u64));
        // Behind the end all is a hole.
        let is_end = !wanted && found.is_none();
        IoHandle::ready(Ok(if is_end { Some(offset.max(bytes.len() as u64)) } else { found }))
    }

    fn copy_from(&self, _: Arc<OwnedFd>, _: Stretch) -> IoHandle<u64> {
        IoHandle::ready(Err(PoolError::Unsupported(POOL)))
    }

    fn share_from(&self, _: Arc<OwnedFd>, _: Stretch) -> IoHandle<bool> {
        IoHandle::ready(Err(PoolError::Unsupported(POOL)))
    }

    fn advise(&self, _: ByteRange, _: Advice) -> IoHandle<()> {
        IoHandle::ready(Ok(()))
    }
}

struct OnePool(Arc<dyn Pool>);

impl PoolManager for OnePool {
    fn select(&self, _: &Selection<'_>) -> Result<Grant, SelectError> {
        Ok(Grant { pool: POOL })
    }

    fn pool(&self, _: PoolId) -> Option<Arc<dyn Pool>> {
        Some(Arc::clone(&self.0))
    }

    fn pools(&self) -> Vec<PoolStatus> {
        vec![self.0.status()]
    }

    fn report(&self, _: &ClientReport) {}
}

/// A server with nothing in it.
pub struct World {
    pub server: Arc<Direct>,
    /// Of both clients.
    pub manner: Arc<Manner>,
    pub clock: Arc<Hands>,
    answering: JoinHandle<()>,
    namespace: Arc<SqlNamespace>,
    pool: MapPool,
    _dir: tempfile::TempDir,
}

impl World {
    pub async fn new() -> World {
        let dir = tempfile::tempdir().expect("a directory for the database");
        let clock = Arc::new(Hands::default());
        let namespace = SqlNamespace::open(Config {
            database: Database::Sqlite(dir.path().to_owned()),
            clock: clock.clone(),
            root_owner: (0, 0),
            sync: Sync::Interval(Duration::from_secs(3600)),
            cache_bytes: 1 << 20,
            queue_len_max: 100,
            group_len_max: 100,
        });
        let namespace = Arc::new(namespace.expect("a new database opens"));
        let for_all = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        namespace.set_attributes(&Identity::root(), FileId::ROOT, &for_all).await.expect("root may");
        let pool = MapPool::default();
        let pools: Arc<dyn PoolManager> = Arc::new(OnePool(Arc::new(pool.clone())));
        let access = Arc::new(FileAccess::new(AccessServices {
            namespace: namespace.clone(),
            acls: namespace.clone(),
            locations: namespace.clone(),
            properties: namespace.clone(),
            quotas: namespace.clone(),
            pools: Arc::clone(&pools),
            clock: clock.clone(),
            recall_time: LEASE,
        }));
        let services = HeadServices {
            namespace: namespace.clone(),
            lineage: namespace.clone(),
            locations: namespace.clone(),
            xattrs: namespace.clone(),
            records: namespace.clone(),
            pools,
            access,
            clock: clock.clone(),
            random: Arc::new(NoChance),
            observer: Arc::new(Unobserved),
            handle_key: HandleKey::new(&[1; 32]),
            ticket_keys: TicketKeys::new(&[1; 32], Term::UNCOUNTED, KeyGeneration::FIRST),
        };
        let door = HeadDoor::start(services, config()).await.expect("a head of an empty namespace starts");
        let (server, clients_end) = Direct::new(door).await.expect("loopback connects");
        let (server, manner) = (Arc::new(server), Arc::new(Manner::default()));
        let answering = tokio::spawn(peer::answer(Arc::clone(&server), clients_end, Arc::clone(&manner)));
        // Ends the grace period of nobody.
        server.keep_house().await;
        World { server, manner, clock, answering, namespace, pool, _dir: dir }
    }

    /// Takes everything out of the namespace and the pool again.
    pub async fn clear(&self) {
        let root = Identity::root();
        let mut dirs = vec![FileId::ROOT];
        while let Some(dir) = dirs.last().copied() {
            let page = self.namespace.list(&root, dir, Cookie(0), 100).await.expect("root lists");
            if page.entries.is_empty() {
                dirs.pop();
                continue;
            }
            for entry in page.entries {
                if self.namespace.unlink(&root, dir, &entry.name).await.is_err() {
                    assert_eq!(entry.attributes.kind, FileKind::Directory, "only what is not empty stays");
                    dirs.push(entry.attributes.file);
                    break;
                }
            }
        }
        let orphans = self.namespace.orphans(FileId(0), 1000).await.expect("the database lists");
        let gone: Vec<FileId> = orphans.iter().map(|orphan| orphan.attributes.file).collect();
        self.namespace.forget(&gone).await.expect("the database forgets");
        self.pool.kept().clear();
    }

    pub async fn close(self) {
        self.answering.abort();
        // Cancelled, as it was just told.
        let _ = self.answering.await;
        let server = Arc::into_inner(self.server).expect("nobody else has it now");
        server.close().await;
        self.namespace.close().await;
    }
}

fn config() -> HeadConfig {
    HeadConfig {
        instance: [2; 16],
        lease: LEASE,
        courtesy: Courtesy { time: LEASE, clients_max: 2, states_max: 20 },
        grace: Duration::ZERO,
        exports: vec![Export::of_everything(Squash::None)],
        security: Security::sys(),
        owners: None,
        clients_max: 10,
        connections_max: 10,
        flight_bytes_max: 1 << 20,
        slots_max: 4,
        layout_bytes_min: 0,
        // As soon as a piece is copied.
        copy_answer: Duration::ZERO,
        delegations: DelegationRules {
            mode: DelegationMode::Always,
            write: WriteDelegations::On,
            quiet: Duration::from_secs(1),
            ..DelegationRules::default()
        },
        pool_addresses: vec![(POOL, ([127, 0, 0, 1], 1).into())],
    }
}
