//! The door at the head, as the binary sees it: start, serve, housekeeping, status.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::FileAccess;
use api::{
    HandleKey, Lineage, Locations, Namespace, NamespaceError, Observer, PoolManager, RecoveryRecords,
    TicketKeys, Xattrs,
};
use file_state::Door;
use nfs4::FsId4;
use nfs4_state::stateid::ClientState;
use nfs4_state::{Adaptive, Courtesy, DelegationRules, Role, SessionLimits, SlotFacts};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use types::{Clock, PoolId, Random};

use crate::compound::Engine;
use crate::exports::{Export, ExportError, ExportTable, Hosts};
use crate::mds::{self, ClientRecaller, Counts, GrantCounts, Head, Homes, Offloads, Reports};
use crate::operation_table::OperationTable;
use crate::operations::Operations;
use crate::owners::OwnerNames;
use crate::security::{Security, SecurityStatus};
use crate::session_ops::{ClientSummary, Sessions, SessionsConfig, major_id};
use crate::transport::{self, Flight, TransportLimits};

/// How often leases and recalls are looked at; both are counted in seconds.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_millis(250);

/// How long an exported directory that was made may go unseen.
const EXPORTS_PERIOD: Duration = Duration::from_secs(1);

/// Services that the door calls, known by their traits only.
pub struct HeadServices {
    pub namespace: Arc<dyn Namespace>,
    pub lineage: Arc<dyn Lineage>,
    pub locations: Arc<dyn Locations>,
    pub xattrs: Arc<dyn Xattrs>,
    pub records: Arc<dyn RecoveryRecords>,
    pub pools: Arc<dyn PoolManager>,
    pub access: Arc<FileAccess>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub observer: Arc<dyn Observer>,
    pub handle_key: HandleKey,
    pub ticket_keys: TicketKeys,
}

pub struct HeadConfig {
    pub instance: [u8; 16],
    pub lease: Duration,
    pub courtesy: Courtesy,
    pub grace: Duration,
    /// Without any, no client sees anything.
    pub exports: Vec<Export>,
    pub security: Arc<Security>,
    /// Names of users and groups for clients that want names; without them all clients get numbers.
    pub owners: Option<Arc<OwnerNames>>,
    pub clients_max: usize,
    /// Per listener.
    pub connections_max: usize,
    /// Of calls on their way in, calls under way, and replies, in memory: of each.
    pub flight_bytes_max: u64,
    pub slots_max: u32,
    /// Clients are told to read and write smaller files through the head; 0: none.
    pub layout_bytes_min: u64,
    /// A COPY that takes longer is carried on when it is answered, where the client would have that.
    pub copy_answer: Duration,
    pub delegations: DelegationRules,
    /// Where the pools' data servers listen. An unspecified address (0.0.0.0) stands for the one that the client
    /// used to reach the head.
    pub pool_addresses: Vec<(PoolId, SocketAddr)>,
}

pub struct HeadDoor {
    pub(crate) head: Arc<Head>,
    pub(crate) engine: Arc<Engine>,
    limits: TransportLimits,
    flight: Arc<Flight>,
    hosts: Vec<Hosts>,
}

/// Why the door cannot be opened.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error("cannot load the records of clients")]
    Records(#[source] NamespaceError),
}

/// For `forebay status`.
#[derive(Clone, Debug)]
pub struct DoorStatus {
    pub grace_left: Duration,
    pub clients: Vec<ClientStatus>,
    /// Reports of clients about each pool.
    pub reports: Vec<(PoolId, PoolReports)>,
    /// Of head and pools, which share it.
    pub security: SecurityStatus,
    pub layouts: GrantCounts,
    pub delegations: GrantCounts,
    /// Recalls only.
    pub all_layouts: GrantCounts,
    /// Locks that clients wait for.
    pub waiters: u64,
    /// Clients, there or gone, that have lost locks.
    pub lost_locks: u64,
    /// Of calls and replies in memory.
    pub flight_bytes: u64,
    pub copies: CopyStatus,
    pub slots: SlotFacts,
}

/// Copies that are carried on after COPY was answered.
#[derive(Clone, Copy, Debug)]
pub struct CopyStatus {
    pub running: u64,
    /// Done, and their clients have not heard of it.
    pub unheard: u64,
}

/// As clients tell it in LAYOUTRETURN and LAYOUTERROR.
#[derive(Clone, Copy, Debug)]
pub struct PoolReports {
    pub errors: u64,
}

#[derive(Clone, Debug)]
pub struct ClientStatus {
    /// As the conflict table knows it.
    pub number: u64,
    /// `co_ownerid`, made printable.
    pub name: String,
    pub address: String,
    pub sessions: u64,
    pub slots: u64,
    /// With a request running.
    pub slots_busy: u64,
    pub opens: u64,
    pub locks: u64,
    pub layouts: u64,
    pub delegations: u64,
    /// Since its last SEQUENCE.
    pub idle: Duration,
    /// Its lease has ended, and it stays until another client needs its state.
    pub is_courtesy: bool,
}

impl HeadDoor {
    /// Finds the exported directories, loads the recovery records and opens the grace period.
    pub async fn start(services: HeadServices, config: HeadConfig) -> Result<Arc<HeadDoor>, StartError> {
        let hosts = config.exports.iter().flat_map(|export| export.hosts.iter().copied()).collect();
        let exports = ExportTable::new(&*services.namespace, &config.exports).await?;
        let records = mds::load_records(&*services.records).await;
        let (known, lost_records) = records.map_err(StartError::Records)?;
        let limits =
            TransportLimits { connections_max: config.connections_max, ..TransportLimits::default() };
        let boot = services.random.u64();
        let sessions = Sessions::new(
            SessionsConfig {
                role: Role::MetadataServer,
                major_id: major_id(&config.instance, "head"),
                scope: config.instance.to_vec(),
                lease: config.lease,
                courtesy: config.courtesy,
                grace: config.grace,
                boot,
                limits: SessionLimits {
                    clients_max: config.clients_max,
                    slots_max: config.slots_max,
                    ..SessionLimits::default()
                },
            },
            Some((Arc::clone(&services.records), known)),
            Arc::clone(&services.clock),
        );
        let head = Head {
            namespace: services.namespace,
            homes: Homes::new(services.lineage),
            exports,
            locations: services.locations,
            xattrs: services.xattrs,
            pools: services.pools,
            clock: services.clock,
            handle_key: services.handle_key,
            ticket_keys: services.ticket_keys,
            fsid: fsid(&config.instance),
            owners: config.owners,
            layout_bytes_min: config.layout_bytes_min,
            generation: boot as u32,
            lease: config.lease,
            pool_addresses: config.pool_addresses,
            sessions: Arc::new(sessions),
            reports: Reports::default(),
            states: Arc::new(Mutex::new(ClientState::new(boot as u32, services.access.share()))),
            delegation_mode: config.delegations.mode,
            write_delegations: config.delegations.write,
            adaptive: Mutex::new(Adaptive::new(config.delegations)),
            asked: Mutex::default(),
            drain: Mutex::default(),
            devices: Mutex::default(),
            offloads: Offloads::new(boot as u32),
            copy_answer: config.copy_answer,
            calls: Mutex::default(),
            releasing: tokio::sync::Mutex::default(),
            departures: Notify::new(),
            records: services.records,
            lost_records: tokio::sync::Mutex::new(lost_records),
            former_tickets: Mutex::default(),
            counts: Counts::default(),
            access: services.access,
        };
        let head = Arc::new(head);
        head.access.register(Door::Nfs, Arc::new(ClientRecaller(Arc::downgrade(&head))));
        // A grace period without length is over before anybody asks.
        mds::expire_clients(&head).await;
        let engine = Arc::new(Engine {
            sessions: Arc::clone(&head.sessions),
            operations: Operations::new("nfs", services.observer),
            security: config.security,
            table: Arc::clone(&head) as Arc<dyn OperationTable>,
        });
        let flight = Flight::new(config.flight_bytes_max);
        Ok(Arc::new(HeadDoor { head, engine, limits, flight, hosts }))
    }

    /// Serves until told to stop, then finishes what is under way.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let housekeeping = tokio::spawn(housekeeping(Arc::clone(&self.head), stop.clone()));
        transport::serve(listener, Arc::clone(&self.engine), self.limits, Arc::clone(&self.flight), stop)
            .await;
        // It sees the same stop.
        let _ = housekeeping.await;
    }

    /// Memory that the doors at the pools share with this one.
    pub fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Those that something is exported to.
    pub fn hosts(&self) -> &[Hosts] {
        &self.hosts
    }

    pub fn in_grace(&self) -> bool {
        self.head.sessions.in_grace()
    }

    /// Pools that are closed to clients, each with the number of its files of which a client still has a layout.
    pub fn closed_pools(&self) -> Vec<(PoolId, usize)> {
        mds::keep_clients_away(&self.head);
        self.head.drain.lock().progress()
    }

    pub fn operations(&self) -> Vec<(&'static str, u64)> {
        self.engine.operations.snapshot()
    }

    pub fn status(&self) -> DoorStatus {
        let sessions = &self.head.sessions;
        let (clients, grace_left, slots) = (sessions.clients(), sessions.grace_left(), sessions.slot_facts());
        let status_of = |client: ClientSummary| {
            // After the table of sessions, and gone before anything else is asked.
            let held = self.head.states.lock().held_by(client.id);
            ClientStatus {
                number: client.id.0,
                name: client.name,
                address: client.address,
                sessions: client.sessions,
                slots: client.slots,
                slots_busy: client.slots_busy,
                opens: held.opens,
                locks: held.locks,
                layouts: held.layouts,
                delegations: held.delegations,
                idle: client.idle,
                is_courtesy: client.is_courtesy,
            }
        };
        let reports = self.head.reports.snapshot().into_iter();
        let reports = reports.map(|(pool, tally)| (pool, PoolReports { errors: tally.errors }));
        let (running, unheard) = self.head.offloads.counts();
        DoorStatus {
            grace_left,
            clients: clients.into_iter().map(status_of).collect(),
            reports: reports.collect(),
            security: self.engine.security.status(),
            layouts: self.head.counts.layouts(),
            delegations: self.head.counts.delegations(),
            all_layouts: self.head.counts.all_layouts(),
            lost_locks: self.head.states.lock().lost_count().0 as u64,
            waiters: self.head.access.table().waiter_count() as u64,
            flight_bytes: self.flight.bytes(),
            copies: CopyStatus { running: running as u64, unheard: unheard as u64 },
            slots,
        }
    }
}

async fn housekeeping(head: Arc<Head>, mut stop: watch::Receiver<bool>) {
    let mut exports_due = Duration::ZERO;
    while !*stop.borrow() {
        if exports_due <= head.clock.monotonic() {
            head.exports.look_again(&*head.namespace).await;
            exports_due = head.clock.monotonic() + EXPORTS_PERIOD;
        }
        mds::keep_house(&head).await;
        tokio::select! {
            () = tokio::time::sleep(HOUSEKEEPING_PERIOD) => {}
            () = head.departures.notified() => {}
            _ = stop.changed() => {}
        }
    }
    // They hold the head as long as a client takes to answer.
    head.calls.lock().abort_all();
}

fn fsid(instance: &[u8; 16]) -> FsId4 {
    let (high, low) = instance.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    // Linux makes one device number of both; neither may be zero.
    FsId4 { major: word(high) | 1, minor: word(low) }
}
