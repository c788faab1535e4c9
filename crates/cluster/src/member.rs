//! The pool host's side: dials the head, says hello, keeps the lease, and dials again when something ends.

mod join;
mod keys;

use std::sync::Arc;
use std::time::Duration;

use api::{AcceptedKeys, Pool, PoolKey, Term};
use cluster_state::{HeldLease, HeldTerms, Process};
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use types::{Clock, FileId, Random};

use crate::MakingPool;
use crate::face::{Added, FaceLink, HttpFace, ToldFace};
use crate::rpc::{Answerer, Connection};
use crate::service::PoolService;
use crate::session::{
    ATTACH, Attach, BYE, HELLO, Held, Hello, Incarnation, Keys, RENEW, Renew, Renewed, Terms, VERSION,
    VERSION_MIN, Welcome,
};
use crate::tasks;
use crate::transport::Dialer;
use crate::trust::{Dialling, explain};
use crate::wire::Status;

pub use join::{Joining, Membership, join};
use keys::Held as HeldKeys;
pub use keys::KeyRing;

/// To reach an address, with the handshake.
const DIAL_TIME: Duration = Duration::from_secs(4);
/// For an answer of the head.
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// A lease is renewed when a tenth of it is over.
const RENEWALS: u32 = 10;
/// Until the first lease of a connection.
const FIRST_PERIOD: Duration = Duration::from_millis(50);
/// The head is told of the end for so long.
const BYE_TIME: Duration = Duration::from_secs(1);
/// Between attempts; a refusal will hardly pass soon.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(10);
/// Data connections.
const DATA_CONNECTIONS: usize = 2;
/// Until the head is asked again for a certificate that it did not give, or that could not be kept.
const CERTIFY_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug, Error)]
pub enum MemberError {
    #[error("cannot reach {address}: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("the head at {address} refuses: {reason}")]
    Refused { address: String, reason: String },
    #[error("the connection to the head at {address} broke")]
    Broken { address: String },
    #[error("{0}")]
    Trust(#[from] crate::trust::TrustError),
}

async fn dial(
    address: &str,
    (dialer, dialling): (&dyn Dialer, &Dialling),
    answerer: Arc<dyn Answerer>,
) -> Result<Arc<Connection>, MemberError> {
    let unreachable = |reason: String| MemberError::Unreachable { address: address.to_owned(), reason };
    match timeout(DIAL_TIME, dialer.dial(address, dialling)).await {
        Ok(Ok(stream)) => Ok(Connection::start(stream, answerer)),
        Ok(Err(error)) => Err(unreachable(explain(&error))),
        Err(_) => Err(unreachable(format!("no answer for {} s", DIAL_TIME.as_secs()))),
    }
}

/// A pool host as it describes itself, and how it dials.
pub struct MemberConfig {
    pub cluster: [u8; 16],
    pub addresses: Vec<String>,
    pub keys: KeyRing,
    pub dialer: Arc<dyn Dialer>,
    pub process: Process,
    pub host: String,
    pub program: String,
    /// Where clients reach the NFS face, if not where the head sees this host.
    pub address: Option<String>,
    pub nfs_port: u16,
    /// The HTTP data face, if clients may be sent there.
    pub http: Option<HttpFace>,
}

/// Keeps a pool in its cluster.
pub struct PoolMember {
    config: MemberConfig,
    /// Without a look at the lease: the head's calls come only while it is there.
    pool: Arc<MakingPool>,
    service: Arc<PoolService>,
    lease: Arc<HeldLease>,
    clock: Arc<dyn Clock>,
    /// Set by the first welcome.
    key: watch::Sender<Option<Admission>>,
    /// Of the session. Leaf lock.
    connections: Mutex<Vec<Arc<Connection>>>,
    standing: Mutex<MemberStanding>,
    /// For the HTTP data face.
    face: Arc<FaceLink>,
}

/// With which a pool's faces can serve.
#[derive(Clone)]
pub struct Admission {
    pub key: PoolKey,
    pub nfs_lease: Duration,
}

/// For people.
#[derive(Clone, Debug, Default)]
pub struct MemberStanding {
    /// The head that answered last.
    pub head: Option<String>,
    pub is_connected: bool,
    /// Why not.
    pub trouble: Option<String>,
    /// Since when it is connected or not, by the clock's monotonic time.
    pub since: Duration,
    /// Sessions with a head since the start.
    pub sessions: u64,
}

/// A pool host and its head now.
#[derive(Clone, Debug)]
pub struct MemberReport {
    pub standing: MemberStanding,
    /// How long that has been so.
    pub age: Duration,
    /// Open ones to the head.
    pub connections: usize,
    /// Zero: clients cannot write.
    pub lease_left: Duration,
    /// The newest that the head has told. `None`: no head has answered since the start.
    pub term: Option<Term>,
}

/// Why a session ended.
enum End {
    Stopped,
    /// It has other keys, and is to dial with them.
    Rotated,
    Lost(MemberError),
}

impl PoolMember {
    pub fn new(
        config: MemberConfig,
        pool: Arc<MakingPool>,
        lease: Arc<HeldLease>,
        (clock, random): (Arc<dyn Clock>, Arc<dyn Random>),
    ) -> Arc<PoolMember> {
        let service = Arc::new(PoolService::new(Arc::clone(&pool) as Arc<dyn Pool>));
        let standing = Mutex::new(MemberStanding { since: clock.monotonic(), ..MemberStanding::default() });
        let (key, connections) = (watch::Sender::new(None), Mutex::default());
        let face = FaceLink::new(random);
        Arc::new(PoolMember { config, pool, service, lease, clock, key, connections, standing, face })
    }

    /// The head, for the HTTP data face of this host.
    pub fn face(&self) -> &Arc<FaceLink> {
        &self.face
    }

    pub fn standing(&self) -> MemberStanding {
        self.standing.lock().clone()
    }

    pub fn report(&self) -> MemberReport {
        let (standing, now) = (self.standing(), self.clock.monotonic());
        let connections = self.connections.lock().iter().filter(|one| !one.has_ended()).count();
        MemberReport {
            age: now.saturating_sub(standing.since),
            standing,
            connections,
            lease_left: self.lease.left(now),
            term: self.key.borrow().as_ref().map(|admission| admission.key.floor().newest()),
        }
    }

    /// Whether the pool honours tickets to write now.
    pub fn has_lease(&self) -> bool {
        self.lease.holds(self.clock.monotonic())
    }

    /// Waits for the first welcome.
    pub async fn admitted(&self) -> Option<Admission> {
        let mut key = self.key.subscribe();
        key.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Until told to stop. Then the lease ends, and the head is told.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut pause = PAUSE_MIN;
        let mut addresses = self.config.addresses.iter().cycle();
        let mut address = addresses.next();
        while let Some(at) = address {
            if *stop.borrow() {
                break;
            }
            let began = self.clock.monotonic();
            let error = match self.serve_at(at, &mut stop).await {
                End::Stopped => break,
                End::Rotated => continue,
                End::Lost(error) => error,
            };
            address = addresses.next();
            self.tell_trouble(&error);
            // A session that lasted is dialled again at once.
            pause = if self.clock.monotonic() > began + PAUSE_MAX {
                PAUSE_MIN
            } else {
                (pause * 2).min(PAUSE_MAX)
            };
            let pause =
                if matches!(error, MemberError::Refused { .. }) { PAUSE_AFTER_REFUSAL } else { pause };
            tokio::select! {
                biased;
                _ = stop.changed() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.lease.end();
    }

    fn tell_trouble(&self, error: &MemberError) {
        let mut standing = self.standing.lock();
        let trouble = error.to_string();
        if standing.is_connected || standing.trouble.as_ref() != Some(&trouble) {
            tracing::warn!(%error, "pool is without its head");
        }
        if std::mem::replace(&mut standing.is_connected, false) {
            standing.since = self.clock.monotonic();
        }
        standing.trouble = Some(trouble);
    }

    async fn serve_at(self: &Arc<Self>, address: &str, stop: &mut watch::Receiver<bool>) -> End {
        let keys = self.config.keys.to_try(self.config.addresses.len());
        let control = match self.dial(address, &keys).await {
            Ok(control) => control,
            Err(error) => return End::Lost(error),
        };
        let mut data = JoinSet::new();
        let ended = self.serve_over((address, keys), &control, &mut data, stop).await;
        self.face.disconnect();
        data.shutdown().await;
        self.end_calls().await;
        ended
    }

    async fn dial(&self, address: &str, keys: &HeldKeys) -> Result<Arc<Connection>, MemberError> {
        let way = (&*self.config.dialer, &keys.dialling);
        let connection = dial(address, way, Arc::clone(&self.service) as _).await?;
        let mut connections = self.connections.lock();
        connections.retain(|connection| !connection.has_ended());
        connections.push(Arc::clone(&connection));
        Ok(connection)
    }

    /// The head sends again what had no answer, over the next connections, and writes other bytes there. So those of before are
    /// written first, or not at all.
    async fn end_calls(&self) {
        let connections = std::mem::take(&mut *self.connections.lock());
        connections.iter().for_each(|connection| connection.close());
        for connection in connections {
            if timeout(ANSWER_TIME, connection.ended()).await.is_err() {
                tracing::warn!(
                    "the pool does not end calls of its head; it connects again when they are done"
                );
                connection.ended().await;
            }
        }
    }

    async fn serve_over(
        self: &Arc<Self>,
        (address, keys): (&str, HeldKeys),
        control: &Arc<Connection>,
        data: &mut JoinSet<()>,
        stop: &mut watch::Receiver<bool>,
    ) -> End {
        if let Err(error) = self.say_hello(address, control).await {
            return End::Lost(error);
        }
        self.config.keys.welcomed(&keys).await;
        for _ in 0..DATA_CONNECTIONS {
            let keeping = Arc::clone(self).keep_data(address.to_owned(), keys.clone());
            data.spawn(tasks::of_caller(Box::pin(keeping)));
        }
        data.spawn(tasks::of_caller(Box::pin(Arc::clone(&self.face).keep_telling(Arc::clone(control)))));
        {
            let mut standing = self.standing.lock();
            *standing = MemberStanding {
                head: Some(address.to_owned()),
                is_connected: true,
                trouble: None,
                since: self.clock.monotonic(),
                sessions: standing.sessions + 1,
            };
        }
        tracing::info!(head = address, "pool is connected to its head");
        let lost = || End::Lost(MemberError::Broken { address: address.to_owned() });
        let mut certify_after = Duration::ZERO;
        loop {
            let renewed = tokio::select! {
                biased;
                () = stopped(stop) => {
                    // No ticket to write is honoured from here on.
                    self.lease.end();
                    let _: Result<(), _> = control.call(BYE, &(), BYE_TIME).await;
                    return End::Stopped;
                }
                renewed = self.renew(control) => renewed,
            };
            let Some((lease, generation)) = renewed else { return lost() };
            self.service.sweep();
            if keys.are_former(generation) && self.clock.monotonic() >= certify_after {
                match self.config.keys.make_next(control).await {
                    Ok(()) => return End::Rotated,
                    Err(error) => tracing::warn!(error, "cannot get new keys for this host, will try again"),
                }
                certify_after = self.clock.monotonic() + CERTIFY_PAUSE;
            }
            let period = if lease.is_zero() { FIRST_PERIOD } else { lease / RENEWALS };
            tokio::select! {
                biased;
                () = stopped(stop) => {}
                () = control.closed() => return lost(),
                Some(_) = data.join_next() => return lost(),
                () = tokio::time::sleep(period) => {}
            }
        }
    }

    /// Attaches one data connection, and returns when it is lost: the session ends with it.
    async fn keep_data(self: Arc<Self>, address: String, keys: HeldKeys) {
        let attach = Attach { process: Incarnation::of(self.config.process) };
        let mut pause = PAUSE_MIN;
        loop {
            if let Ok(connection) = self.dial(&address, &keys).await {
                let is_taken = connection.call::<_, bool>(ATTACH, &attach, ANSWER_TIME).await;
                if is_taken.is_ok_and(|is_taken| is_taken) {
                    return connection.closed().await;
                }
                // Nothing was asked over it.
                connection.close();
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn say_hello(&self, address: &str, control: &Arc<Connection>) -> Result<(), MemberError> {
        let config = &self.config;
        let hello = Hello {
            version: VERSION,
            version_min: VERSION_MIN,
            cluster: config.cluster,
            process: Incarnation::of(config.process),
            has_lease: self.has_lease(),
            host: config.host.clone(),
            program: config.program.clone(),
            address: config.address.clone().unwrap_or_default(),
            nfs_port: config.nfs_port.into(),
            pool: self.pool.id().0,
            clone_granularity: self.pool.clone_granularity(),
            status: Status::of(&self.pool.status()),
            http: Added(config.http.as_ref().map(ToldFace::of)),
        };
        let welcome: Result<Welcome, _> = control.call(HELLO, &hello, ANSWER_TIME).await;
        let address = || address.to_owned();
        match welcome.map_err(|_| MemberError::Broken { address: address() })? {
            Welcome::Welcome { terms, keys, nfs_lease_ms, newest_file, http, .. } => {
                self.pool.begin(FileId(newest_file));
                self.admit(&keys, terms, Duration::from_millis(nfs_lease_ms));
                self.face.connect(Arc::clone(control), http.0);
                Ok(())
            }
            Welcome::Refused { reason } => Err(MemberError::Refused { address: address(), reason }),
        }
    }

    fn admit(&self, keys: &Keys, terms: Terms, nfs_lease: Duration) {
        if self.key.borrow().is_none() {
            let key = PoolKey::of(self.accepted(keys));
            terms.terms().apply(key.floor());
            self.key.send_replace(Some(Admission { key, nfs_lease }));
            return;
        }
        self.take(Some(keys), terms);
    }

    fn take(&self, keys: Option<&Keys>, terms: Terms) {
        let admission = self.key.borrow().clone();
        let Some(Admission { key, .. }) = admission else { return };
        if let Some(keys) = keys {
            key.accept(self.accepted(keys));
            if keys.former.is_none() && key.state().0.0 == keys.newest.generation() {
                key.drop_former();
            }
        }
        terms.terms().apply(key.floor());
    }

    fn accepted(&self, keys: &Keys) -> AcceptedKeys {
        let former = keys.former.as_ref().map(crate::session::Key::material);
        AcceptedKeys::of_material(self.pool.id(), &keys.newest.material(), former.as_ref())
    }

    /// The lease that was given, or none, and the generation of keys that the head has. `None`: the session is over.
    async fn renew(&self, control: &Connection) -> Option<(Duration, u32)> {
        let held = self.held()?;
        let asked = self.clock.monotonic();
        let renew = Renew { held, status: Status::of(&self.pool.status()) };
        let renewed: Renewed = control.call(RENEW, &renew, ANSWER_TIME).await.ok()?;
        let Renewed::Renewed { lease_ms, terms, keys, generation } = renewed else { return None };
        // A pool refuses former tickets before it has the right to take others.
        self.take(keys.as_ref(), terms);
        let lease = Duration::from_millis(lease_ms);
        if !lease.is_zero() {
            self.lease.grant(asked, lease);
        }
        Some((lease, generation))
    }

    fn held(&self) -> Option<Held> {
        let key = self.key.borrow().as_ref()?.key.clone();
        let (generation, has_former) = key.state();
        let HeldTerms { terms, is_settled } = HeldTerms::of(key.floor());
        Some(Held { generation: generation.0, has_former, terms: terms.into(), is_settled })
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stopped| *stopped).await;
}
