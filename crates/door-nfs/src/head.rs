//! The door at the head, as the binary sees it: start, serve, housekeeping, status.

use std::sync::Arc;
use std::time::Duration;

use api::NamespaceError;
use file_state::Holder;
use files::RegisterError;
use nfs4_state::{Role, SessionLimits, SlotFacts};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use types::PoolId;

use crate::NAME;
use crate::compound::Engine;
use crate::exports::{Export, ExportError, ExportTable, ServedHosts};
use crate::head_config::{HeadConfig, HeadServices};
use crate::mds::{self, GrantCounts, Mds};
use crate::operation_table::OperationTable;
use crate::operations::Operations;
use crate::security::SecurityStatus;
use crate::session_ops::{ClientSummary, Recovery, Sessions, SessionsConfig, major_id};
use crate::transport::{self, Flight, TransportLimits};

/// How often leases and recalls are looked at; both are counted in seconds.
const HOUSEKEEPING_PERIOD: Duration = Duration::from_millis(250);

/// How long an exported directory that was made may go unseen.
const EXPORTS_PERIOD: Duration = Duration::from_secs(1);

pub struct HeadDoor {
    pub(crate) mds: Arc<Mds>,
    pub(crate) engine: Arc<Engine>,
    limits: TransportLimits,
    flight: Arc<Flight>,
    hosts: Arc<ServedHosts>,
}

/// Why the door cannot be opened.
#[derive(Debug, Error)]
pub enum StartError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Register(#[from] RegisterError),
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
        let hosts = ServedHosts::of(&config.exports);
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
            Some(Recovery {
                records: Arc::clone(&services.records),
                known,
                former_tickets: Arc::clone(&services.former_tickets),
            }),
            Arc::clone(&services.clock),
        );
        let sessions = Arc::new(sessions);
        let operations = Operations::new(NAME, Arc::clone(&services.observer));
        let security = Arc::clone(&config.security);
        let flight = Flight::new(config.flight_bytes_max);
        let door = services.files.register(NAME)?;
        let started = (Arc::clone(&sessions), boot as u32, door);
        let mds = Arc::new(Mds::new(services, config, started, exports, lost_records));
        // A grace period without length is over before anybody asks.
        mds.departures.release().await;
        let engine = Arc::new(Engine {
            sessions,
            operations,
            security,
            table: Arc::clone(&mds) as Arc<dyn OperationTable>,
        });
        Ok(Arc::new(HeadDoor { mds, engine, limits, flight, hosts }))
    }

    /// Serves until told to stop, then finishes what is under way.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let housekeeping = tokio::spawn(housekeeping(Arc::clone(&self.mds), stop.clone()));
        transport::serve(listener, Arc::clone(&self.engine), self.limits, Arc::clone(&self.flight), stop)
            .await;
        // It sees the same stop.
        let _ = housekeeping.await;
    }

    /// Memory that the doors at the pools share with this one.
    pub fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// The number of the client, as in [`ClientStatus`], if the holder is a client of this door.
    pub fn client_number(&self, holder: Holder) -> Option<u64> {
        (holder.door == self.mds.clients.fs.door).then_some(holder.number)
    }

    /// Those that something is exported to.
    pub fn hosts(&self) -> &Arc<ServedHosts> {
        &self.hosts
    }

    /// Exports these from now on, and nothing else. Clients see it with their next requests. They keep opens and layouts
    /// of files that they do not see any more until they return them or their leases end. After an error all stays as it
    /// was.
    pub async fn replace_exports(&self, exports: &[Export]) -> Result<(), ExportError> {
        self.mds.exports.table.replace(&*self.mds.clients.fs.namespace, exports).await?;
        self.hosts.replace(exports);
        Ok(())
    }

    /// Looks now for exported directories that were created or removed, and not only at the next turn of housekeeping.
    pub async fn look_for_exports(&self) {
        self.mds.exports.table.look_again(&*self.mds.clients.fs.namespace).await;
    }

    /// Whether clients of before the start may still reclaim what they had open.
    pub fn awaits_reclaims(&self) -> bool {
        self.engine.sessions.reclaims.are_awaited()
    }

    /// Pools that are closed to clients, each with the number of its files of which a client still has a layout.
    pub fn closed_pools(&self) -> Vec<(PoolId, usize)> {
        self.mds.drain.keep_clients_away();
        self.mds.drain.left_at_each()
    }

    pub fn operations(&self) -> Vec<(&'static str, u64)> {
        self.engine.operations.snapshot()
    }

    pub fn status(&self) -> DoorStatus {
        let (mds, sessions) = (&self.mds, &self.engine.sessions);
        let (clients, grace_left, slots) =
            (sessions.clients(), sessions.reclaims.grace_left(), sessions.slot_facts());
        let status_of = |client: ClientSummary| {
            // After the table of sessions, and gone before anything else is asked.
            let held = mds.clients.states.lock().held_by(client.id);
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
        let reports = mds.layouts.reports.snapshot().into_iter();
        let reports = reports.map(|(pool, tally)| (pool, PoolReports { errors: tally.errors }));
        let (running, unheard) = mds.copies.offloads.counts();
        DoorStatus {
            grace_left,
            clients: clients.into_iter().map(status_of).collect(),
            reports: reports.collect(),
            security: self.engine.security.status(),
            layouts: mds.grants.counts.layouts(),
            delegations: mds.grants.counts.delegations(),
            all_layouts: mds.grants.counts.all_layouts(),
            lost_locks: mds.clients.states.lock().lost().count().0 as u64,
            waiters: mds.clients.fs.files.table().waiter_count() as u64,
            flight_bytes: self.flight.bytes(),
            copies: CopyStatus { running: running as u64, unheard: unheard as u64 },
            slots,
        }
    }
}

async fn housekeeping(mds: Arc<Mds>, mut stop: watch::Receiver<bool>) {
    let mut exports_due = Duration::ZERO;
    while !*stop.borrow() {
        let fs = &mds.clients.fs;
        if exports_due <= fs.clock.monotonic() {
            mds.exports.table.look_again(&*fs.namespace).await;
            exports_due = fs.clock.monotonic() + EXPORTS_PERIOD;
        }
        mds.keep_house().await;
        tokio::select! {
            () = tokio::time::sleep(HOUSEKEEPING_PERIOD) => {}
            () = mds.clients.departures.notified() => {}
            _ = stop.changed() => {}
        }
    }
    // They hold the head as long as a client takes to answer.
    mds.clients.abort_calls();
}
