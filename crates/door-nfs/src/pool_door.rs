//! The door at a pool, as the binary sees it.

use std::sync::Arc;
use std::time::Duration;

use api::{Observer, Pool, PoolKey};
use nfs4_state::{Courtesy, Role, SessionLimits};
use tokio::net::TcpListener;
use tokio::sync::watch;
use types::{Clock, Random};

use crate::compound::Engine;
use crate::ds::DataServer;
use crate::exports::{Export, ServedHosts, Squash, View};
use crate::operations::Operations;
use crate::security::Security;
use crate::session_ops::{Sessions, SessionsConfig, major_id};
use crate::transport::{self, Flight, TransportLimits};

const HOUSEKEEPING_PERIOD: Duration = Duration::from_secs(1);

pub struct PoolDoorConfig {
    pub instance: [u8; 16],
    pub lease: Duration,
    pub clients_max: usize,
    pub connections_max: usize,
    pub flight: Arc<Flight>,
    pub slots_max: u32,
    pub security: Arc<Security>,
    /// Those that the head exports something to: others share a few connections until they show a ticket.
    pub hosts: Arc<ServedHosts>,
}

pub struct PoolDoor {
    engine: Arc<Engine>,
    limits: TransportLimits,
    flight: Arc<Flight>,
}

impl PoolDoor {
    pub fn start(
        pool: Arc<dyn Pool>,
        key: PoolKey,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        observer: Arc<dyn Observer>,
        config: PoolDoorConfig,
    ) -> Arc<PoolDoor> {
        assert_eq!(key.pool(), pool.id(), "a pool's door has that pool's key");
        let limits =
            TransportLimits { connections_max: config.connections_max, ..TransportLimits::default() };
        let sessions = Sessions::new(
            SessionsConfig {
                role: Role::DataServer,
                major_id: major_id(&config.instance, &pool.id().to_string()),
                scope: config.instance.to_vec(),
                lease: config.lease,
                courtesy: Courtesy::NONE,
                // A data server has no state to reclaim.
                grace: Duration::ZERO,
                boot: random.u64(),
                limits: SessionLimits {
                    clients_max: config.clients_max,
                    slots_max: config.slots_max,
                    ..SessionLimits::default()
                },
            },
            None,
            clock,
        );
        let engine = Engine {
            sessions: Arc::new(sessions),
            operations: Operations::new("nfs-pool", observer),
            security: config.security,
            table: Arc::new(DataServer {
                pool,
                key,
                // The caller's identity does not matter: the head gave a ticket only for what the client may do, and
                // the ticket is the authority here.
                hosts: config.hosts,
                view: Arc::new(View::of_everything(Export::of_everything(Squash::All).rules)),
            }),
        };
        Arc::new(PoolDoor { engine: Arc::new(engine), limits, flight: config.flight })
    }

    /// Serves until told to stop, then finishes what is under way.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: watch::Receiver<bool>) {
        let housekeeping = tokio::spawn(housekeeping(Arc::clone(&self.engine), stop.clone()));
        transport::serve(listener, Arc::clone(&self.engine), self.limits, Arc::clone(&self.flight), stop)
            .await;
        let _ = housekeeping.await;
    }

    /// Clients that are known, confirmed or not, and their sessions.
    pub fn known(&self) -> (usize, usize) {
        self.engine.sessions.known()
    }

    pub fn operations(&self) -> Vec<(&'static str, u64)> {
        self.engine.operations.snapshot()
    }
}

async fn housekeeping(engine: Arc<Engine>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        // Nothing hangs on a client of a data server but its sessions.
        engine.sessions.expire(&()).await;
        // A data server calls nobody: clients hear of it with their next replies.
        drop(engine.sessions.take_slot_recalls());
        tokio::select! {
            () = tokio::time::sleep(HOUSEKEEPING_PERIOD) => {}
            _ = stop.changed() => {}
        }
    }
}
