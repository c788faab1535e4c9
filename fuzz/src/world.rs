//! A head in memory, without sockets or a clock of its own: the real dispatch over the real namespace, and a pool in
//! memory.

use std::sync::Arc;
use std::time::Duration;

use api::{
    Cookie, ExpectedFile, HandleKey, KeyGeneration, Locations, Namespace, Pool, PoolManager, SetAttributes,
    Term, TicketKeys, Unobserved,
};
use door_nfs::direct::Direct;
use door_nfs::{
    Courtesy, DelegationMode, DelegationRules, Export, HeadConfig, HeadDoor, HeadServices, Security, Squash,
    WriteDelegations,
};
use files::{Files, FilesServices};
use namespace::{Config, Database, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::former_tickets::NoFormerTickets;
use testkit::memory_pool::{Limits, MemoryPool};
use testkit::memory_pools::MemoryPools;
use tokio::task::JoinHandle;
use types::{FileId, FileKind, Identity, PoolId, Random};

use crate::peer::{self, Manner};

pub const LEASE: Duration = Duration::from_secs(90);
const POOL: PoolId = PoolId(0);
/// Longer files are too large here.
const LIMITS: Limits = Limits { capacity_bytes: 1 << 40, replica_bytes_max: 64 << 10 };

/// The same numbers each time.
struct NoChance;

impl Random for NoChance {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

/// A server with nothing in it.
pub struct World {
    pub server: Arc<Direct>,
    /// Of both clients.
    pub manner: Arc<Manner>,
    clock: Arc<ManualClock>,
    answering: JoinHandle<()>,
    namespace: Arc<SqlNamespace>,
    pool: MemoryPool,
    _dir: tempfile::TempDir,
}

impl World {
    pub async fn new() -> World {
        let dir = tempfile::tempdir().expect("a directory for the database");
        let clock = Arc::new(ManualClock::new(1_800_000_000));
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
        let pool = MemoryPool::with_limits(POOL, LIMITS);
        let pools = MemoryPools::of([Arc::new(pool.clone()) as Arc<dyn Pool>]);
        let listed = pools.list().set_address(POOL, door_nfs::NAME, ([127, 0, 0, 1], 1).into());
        listed.expect("the pool is listed");
        let pools: Arc<dyn PoolManager> = Arc::new(pools);
        let files = Arc::new(Files::new(FilesServices {
            namespace: namespace.clone(),
            acls: namespace.clone(),
            locations: namespace.clone(),
            properties: namespace.clone(),
            xattrs: namespace.clone(),
            quotas: namespace.clone(),
            uploads: namespace.clone(),
            pools,
            clock: clock.clone(),
            recall_time: LEASE,
        }));
        let services = HeadServices {
            namespace: namespace.clone(),
            lineage: namespace.clone(),
            xattrs: namespace.clone(),
            records: namespace.clone(),
            files,
            clock: clock.clone(),
            random: Arc::new(NoChance),
            observer: Arc::new(Unobserved),
            handle_key: HandleKey::new(&[1; 32]),
            ticket_keys: TicketKeys::new(&[1; 32], Term::FIRST, KeyGeneration::FIRST),
            former_tickets: Arc::new(NoFormerTickets::default()),
        };
        let door = HeadDoor::start(services, config()).await.expect("a head of an empty namespace starts");
        let (server, clients_end) = Direct::new(door).await.expect("loopback connects");
        let (server, manner) = (Arc::new(server), Arc::new(Manner::default()));
        let answering = tokio::spawn(peer::answer(Arc::clone(&server), clients_end, Arc::clone(&manner)));
        // Ends the grace period of nobody.
        server.keep_house().await;
        World { server, manner, clock, answering, namespace, pool, _dir: dir }
    }

    /// Lets whole seconds pass.
    pub fn pass(&self, time: Duration) {
        self.clock.advance(time.as_secs().try_into().expect("a few leases"));
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
                if self.namespace.unlink(&root, dir, &entry.name, ExpectedFile::Any).await.is_err() {
                    assert_eq!(entry.attributes.kind, FileKind::Directory, "only what is not empty stays");
                    dirs.push(entry.attributes.file);
                    break;
                }
            }
        }
        let orphans = self.namespace.orphans(FileId(0), 1000).await.expect("the database lists");
        let gone: Vec<FileId> = orphans.iter().map(|orphan| orphan.attributes.file).collect();
        self.namespace.forget(&gone).await.expect("the database forgets");
        self.pool.clear();
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
    }
}
