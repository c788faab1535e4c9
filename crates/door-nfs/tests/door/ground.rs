//! A namespace, and doors over it that share nothing else: as one door after changes of its configuration.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use api::{
    CreateKind, CreateMode, CreateSpec, HandleKey, KeyGeneration, Namespace, Pool, PoolManager,
    SetAttributes, Term, TicketKeys,
};
use files::{Files, FilesServices};
use forebay_door_nfs::{Export, HeadConfig, HeadDoor, HeadServices};
use namespace::SqlNamespace;
use nfs4::NfsStat4;
use tempfile::TempDir;
use testkit::former_tickets::NoFormerTickets;
use testkit::memory_pool::MemoryPool;
use testkit::memory_pools::MemoryPools;
use testkit::nfs_client::{ClientError, ClientOptions, NfsClient};
use testkit::watched_namespace::WatchedNamespace;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use types::{Clock, FileId, Identity, Name, PoolId, Random, Timestamp};

pub const POOL: PoolId = PoolId(0);
pub const LONG: Duration = Duration::from_secs(60);

struct RealClock(Instant);

impl Clock for RealClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix(Duration::from_secs(1_000_000_000) + self.0.elapsed())
    }

    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
}

struct NoChance;

impl Random for NoChance {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(7);
    }
}

pub struct Ground {
    pub runtime: Runtime,
    pub namespace: Arc<SqlNamespace>,
    /// The same as the doors ask it.
    pub names: Arc<WatchedNamespace>,
    pub former_tickets: Arc<NoFormerTickets>,
    /// Those that were started, in order.
    pub doors: Mutex<Vec<Arc<HeadDoor>>>,
    clock: Arc<dyn Clock>,
    stop: watch::Sender<bool>,
    _dir: TempDir,
}

impl Ground {
    pub fn new() -> Ground {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(RealClock(Instant::now()));
        let namespace = SqlNamespace::open(namespace::Config {
            database: namespace::Database::Sqlite(dir.path().to_owned()),
            clock: Arc::clone(&clock),
            root_owner: (0, 0),
            sync: namespace::Sync::Interval(LONG),
            cache_bytes: 1 << 20,
            queue_len_max: 100,
            group_len_max: 100,
        });
        let namespace = Arc::new(namespace.unwrap());
        Ground {
            runtime: Runtime::new().unwrap(),
            names: Arc::new(WatchedNamespace::new(namespace.clone())),
            namespace,
            former_tickets: Arc::default(),
            doors: Mutex::default(),
            clock,
            stop: watch::Sender::new(false),
            _dir: dir,
        }
    }

    /// Makes a file or directory of root's.
    pub fn make(&self, dir: FileId, text: &str, kind: CreateKind, permissions: u32) -> FileId {
        let set = SetAttributes::default();
        let spec =
            CreateSpec { kind, mode: CreateMode::Guarded, permissions, umask: None, set, location: None };
        let (root, name) = (Identity::root(), name(text));
        let made = self.runtime.block_on(self.namespace.create(&root, dir, &name, &spec));
        made.unwrap().attributes.file
    }

    pub fn chances(&self) -> (Arc<dyn Clock>, Arc<dyn Random>) {
        (Arc::clone(&self.clock), Arc::new(NoChance))
    }

    pub fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// A door with a conflict table of its own. Handles of one door are handles of all.
    pub fn door(&self, exports: Vec<Export>) -> SocketAddr {
        self.door_and_table(exports).0
    }

    pub fn door_and_table(&self, exports: Vec<Export>) -> (SocketAddr, Arc<Files>) {
        self.door_over(Arc::new(MemoryPool::new(POOL)), exports)
    }

    /// As `door_and_table`, with a pool of the test's own.
    pub fn door_over(&self, pool: Arc<dyn Pool>, exports: Vec<Export>) -> (SocketAddr, Arc<Files>) {
        self.door_over_pools(Arc::new(one_pool(pool)), exports)
    }

    /// As `door_over`, with a manager that the test may change.
    pub fn door_over_pools(
        &self,
        pools: Arc<dyn PoolManager>,
        exports: Vec<Export>,
    ) -> (SocketAddr, Arc<Files>) {
        let namespace = || self.namespace.clone();
        let files = Arc::new(Files::new(FilesServices {
            namespace: self.names.clone(),
            acls: namespace(),
            locations: namespace(),
            properties: namespace(),
            xattrs: namespace(),
            quotas: namespace(),
            uploads: namespace(),
            pools,
            clock: Arc::clone(&self.clock),
            recall_time: LONG,
        }));
        let services = HeadServices {
            namespace: self.names.clone(),
            lineage: namespace(),
            xattrs: namespace(),
            records: namespace(),
            files: Arc::clone(&files),
            clock: Arc::clone(&self.clock),
            random: Arc::new(NoChance),
            observer: Arc::new(api::Unobserved),
            handle_key: HandleKey::new(&[1; 32]),
            ticket_keys: TicketKeys::new(&[1; 32], Term::FIRST, KeyGeneration::FIRST),
            former_tickets: self.former_tickets.clone(),
        };
        let config = HeadConfig {
            instance: [2; 16],
            security: forebay_door_nfs::Security::sys(),
            owners: None,
            delegations: forebay_door_nfs::DelegationRules::default(),
            lease: LONG,
            courtesy: forebay_door_nfs::Courtesy::NONE,
            grace: Duration::ZERO,
            exports,
            clients_max: 10,
            connections_max: 10,
            flight_bytes_max: 1 << 30,
            slots_max: 16,
            layout_bytes_min: 0,
            copy_answer: Duration::ZERO,
        };
        let stopped = self.stop.subscribe();
        let address = self.runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let door = HeadDoor::start(services, config).await.unwrap();
            assert!(!door.awaits_reclaims(), "also where the door before it had clients");
            self.doors.lock().unwrap().push(Arc::clone(&door));
            tokio::spawn(door.serve(listener, stopped));
            address
        });
        (address, files)
    }
}

fn one_pool(pool: Arc<dyn Pool>) -> MemoryPools {
    let pools = MemoryPools::of([pool]);
    pools.list().set_address(POOL, forebay_door_nfs::NAME, ([127, 0, 0, 1], 1).into()).unwrap();
    pools
}

pub fn client(door: SocketAddr, host: &str) -> NfsClient {
    NfsClient::connect(door, ClientOptions::named(host)).unwrap()
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn status_of<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> NfsStat4 {
    match outcome {
        Ok(_) => NfsStat4::Ok,
        Err(error) => error.status().unwrap_or_else(|| panic!("{error}")),
    }
}
