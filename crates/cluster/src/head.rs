//! The head's port for pool hosts: who connects, what it may ask, and when it is cut.
//!
//! A peer without a certificate may join and nothing else. A pool says hello over its control connection and attaches data
//! connections to it. The binary keeps who belongs to the cluster ([`Registry`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::{KeyGeneration, Term};
use async_trait::async_trait;
use cluster_state::{Arrival, Renewal, SessionId};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use types::{FileId, PoolId};
use xdr::{Decoder, Encoder, Xdr};

use crate::face::{
    ABSENCE_MAX, Added, DataFaces, FaceDesk, HeadHttp, Holds, HttpFace, ToldFace, procedure as face_procedure,
};
use crate::remote::RemotePool;
use crate::rotation::{CERTIFY, Certified, Certify, KeyRegistry};
use crate::rpc::{Answerer, Connection, RECORD_BYTES_MAX, Refused};
use crate::session::{
    ATTACH, Attach, BYE, HELLO, Held, Hello, JOIN, Join, Joined, Keys, RENEW, Renew, Renewed, Terms, VERSION,
    VERSION_MIN, Welcome,
};
use crate::tasks;
use crate::transport::{Caller, Identified, Port, TlsPort};
use crate::trust::{Fingerprint, Member};
use crate::wire::Greeting;

/// For the handshake, and for saying what the connection is for.
const ARRIVAL_TIME: Duration = Duration::from_secs(10);
/// Connections of members, and of one of them, which needs three.
const MEMBERS_MAX: usize = 4_096;
const MEMBERS_OF_KEY_MAX: usize = 16;
/// A host that joins sends no longer records.
const STRANGER_RECORD_BYTES_MAX: usize = 16 << 10;
/// Connections that have not shown a certificate yet, or have none; and of one address, so that a crowd of one host keeps no
/// other out.
const STRANGERS_MAX: usize = 256;
const STRANGERS_OF_ADDRESS_MAX: usize = 16;

/// A pool host as the head knows it.
pub struct Seat {
    pub pool: Arc<RemotePool>,
    /// As the host told last. Leaf lock.
    told: Mutex<Option<Told>>,
    /// The pool has said that it stops: its connections may end in any order.
    is_leaving: AtomicBool,
    /// Its connections look again whether their keys are known.
    keys_changed: watch::Sender<()>,
    /// Of its HTTP data face.
    desk: Arc<FaceDesk>,
    /// The session that began last. Leaf lock.
    latest: Mutex<Option<SessionId>>,
}

/// A pool host as it describes itself.
#[derive(Clone, Debug)]
pub struct Told {
    pub host: String,
    pub program: String,
    /// Where the connection comes from.
    pub from: SocketAddr,
    pub held: Option<Held>,
    /// Its HTTP data face, if clients may be sent there.
    pub http: Option<HttpFace>,
}

impl Seat {
    pub fn new(pool: Arc<RemotePool>) -> Arc<Seat> {
        let (told, is_leaving) = (Mutex::new(None), AtomicBool::new(false));
        Arc::new(Seat {
            pool,
            told,
            is_leaving,
            keys_changed: watch::Sender::new(()),
            desk: Arc::default(),
            latest: Mutex::new(None),
        })
    }

    /// A key of the pool is not known to the registry any more: connections that were opened with it end now.
    pub fn end_unknown(&self) {
        self.keys_changed.send_replace(());
    }

    pub fn told(&self) -> Option<Told> {
        self.told.lock().clone()
    }

    /// The pool refuses tickets to write of older terms, and no write by one of them is under way there; or it has no lease,
    /// and gets none before that is so.
    pub fn has_floor(&self, floor: Term) -> bool {
        self.pool.has_floor(floor)
    }

    /// The pool opens tickets of that generation, or serves nobody now.
    pub fn has_keys(&self, generation: KeyGeneration) -> bool {
        self.held().is_some_and(|held| held.generation >= generation.0) || !self.pool.is_heard()
    }

    fn held(&self) -> Option<Held> {
        self.told.lock().as_ref().and_then(|told| told.held)
    }

    fn hold(&self, held: Held) {
        if let Some(told) = self.told.lock().as_mut() {
            told.held = Some(held);
        }
    }
}

/// The members of the cluster, and the keys and terms that its pools are given.
#[async_trait]
pub trait Registry: KeyRegistry {
    fn cluster(&self) -> [u8; 16];

    /// Makes a pool of a host that has a token; it is on disk when this returns. The error is told to the host.
    async fn join(&self, join: Join, from: SocketAddr) -> Result<Joined, String>;

    /// `None`: it is no member, or no more.
    fn seat(&self, pool: PoolId, key: Fingerprint) -> Option<Arc<Seat>>;

    /// The pool is connected, and clients reach it there: its NFS, and its HTTP at the same address if it has a data face.
    fn arrived(&self, pool: PoolId, address: SocketAddr, http: Option<&HttpFace>);

    /// Answers data faces. `None`: this head has no HTTP.
    fn data_faces(&self) -> Option<Arc<dyn DataFaces>> {
        None
    }

    /// Where clients reach HTTP of this head.
    fn http(&self) -> Option<HeadHttp> {
        None
    }

    /// The newest keys of the pool, and those before if they are still accepted.
    fn keys(&self, pool: PoolId) -> Keys;

    fn terms(&self) -> Terms;

    /// No file that was ever made has a higher number. Files that are made from now on may.
    fn newest_file(&self) -> FileId;

    fn nfs_lease(&self) -> Duration;

    /// Of pools.
    fn lease(&self) -> Duration;
}

/// Serves pool hosts until told to stop. `tls` may change: it counts for connections from then on.
pub async fn serve(
    listener: TcpListener,
    tls: watch::Receiver<Arc<ServerConfig>>,
    registry: Arc<dyn Registry>,
    stop: watch::Receiver<bool>,
) {
    serve_at(&TlsPort::new(listener, tls), registry, stop).await;
}

/// As [`serve`], at a port of another kind.
pub async fn serve_at(port: &dyn Port, registry: Arc<dyn Registry>, mut stop: watch::Receiver<bool>) {
    let strangers = Crowd::new(STRANGERS_MAX, STRANGERS_OF_ADDRESS_MAX);
    let members = Crowd::new(MEMBERS_MAX, MEMBERS_OF_KEY_MAX);
    let stopping = StoppedAtEnd(Arc::default());
    while !*stop.borrow() {
        let accepted = tokio::select! {
            biased;
            changed = stop.changed() => match changed {
                Ok(()) => continue,
                // Nobody is left to tell it.
                Err(_) => break,
            },
            accepted = port.accept() => accepted,
        };
        let caller = match accepted {
            Ok(caller) => caller,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a pool host");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // One too many is refused: the others are to end in time.
        let Some(place) = strangers.admit(neighbourhood(caller.from.ip())) else { continue };
        let guest = Guest { registry: Arc::clone(&registry), from: caller.from };
        tasks::spawn(guest.serve(caller, place, Arc::clone(&members), Arc::clone(&stopping.0)));
    }
}

/// The port is closed, and connections are to end. They are told in the order in which they came, which a watch channel does not
/// keep: the simulator repeats a history exactly.
#[derive(Default)]
struct Stopping {
    has_begun: AtomicBool,
    told: Notify,
}

impl Stopping {
    async fn begun(&self) {
        let told = self.told.notified();
        tokio::pin!(told);
        // Registered before looking, or a change in between would be missed.
        told.as_mut().enable();
        if !self.has_begun.load(Ordering::Acquire) {
            told.await;
        }
    }
}

struct StoppedAtEnd(Arc<Stopping>);

impl Drop for StoppedAtEnd {
    fn drop(&mut self) {
        self.0.has_begun.store(true, Ordering::Release);
        self.0.told.notify_waiters();
    }
}

/// Connections of one kind: so many altogether, and so many of each. Leaf lock.
struct Crowd<K> {
    counts: Mutex<HashMap<K, usize>>,
    max: usize,
    of_each_max: usize,
}

/// A connection's place in a crowd, given back when it is dropped.
struct CrowdPlace<K: Clone + Eq + Hash> {
    crowd: Arc<Crowd<K>>,
    key: K,
}

impl<K: Clone + Eq + Hash> Crowd<K> {
    fn new(max: usize, of_each_max: usize) -> Arc<Crowd<K>> {
        Arc::new(Crowd { counts: Mutex::default(), max, of_each_max })
    }

    fn admit(self: &Arc<Self>, key: K) -> Option<CrowdPlace<K>> {
        let mut counts = self.counts.lock();
        let of_key = counts.get(&key).copied().unwrap_or_default();
        if of_key >= self.of_each_max || counts.values().sum::<usize>() >= self.max {
            return None;
        }
        counts.insert(key.clone(), of_key + 1);
        Some(CrowdPlace { crowd: Arc::clone(self), key })
    }
}

impl<K: Clone + Eq + Hash> Drop for CrowdPlace<K> {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts.lock();
        let Some(count) = counts.get_mut(&self.key) else { return };
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.key);
        }
    }
}

/// One host has many addresses of IPv6, which are alike in their first half.
fn neighbourhood(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
        address => address,
    }
}

struct Guest {
    registry: Arc<dyn Registry>,
    from: SocketAddr,
}

impl Guest {
    async fn serve(
        self,
        caller: Caller,
        place: CrowdPlace<IpAddr>,
        members: Arc<Crowd<Fingerprint>>,
        stopping: Arc<Stopping>,
    ) {
        let Identified { stream, member } = match timeout(ARRIVAL_TIME, caller.handshake).await {
            Ok(Ok(identified)) => identified,
            Ok(Err(error)) => return tracing::info!(from = %self.from, %error, "a host is not let in"),
            Err(_) => return tracing::info!(from = %self.from, "a host does not finish its TLS handshake"),
        };
        // Members do not stand in the way of strangers. One that was removed is a stranger, and is told so.
        let known = member.and_then(|member| Some((seat_of(&*self.registry, member)?, member.1)));
        let (_place, record_bytes_max) = match &known {
            Some((_, key)) => match members.admit(*key) {
                Some(of_member) => {
                    drop(place);
                    (Ok(of_member), RECORD_BYTES_MAX)
                }
                None => return tracing::warn!(from = %self.from, "a pool host has too many connections"),
            },
            None => (Err(place), STRANGER_RECORD_BYTES_MAX),
        };
        let (tell, connection) = watch::channel(None);
        let (arrived, mut arrival) = watch::channel(false);
        let session = Arc::new(Session {
            registry: self.registry,
            from: self.from,
            member,
            seat: known.as_ref().map(|((_, seat), _)| Arc::clone(seat)),
            connection,
            arrived,
            renewed: Mutex::new(None),
            session: Mutex::new(None),
            is_ending: AtomicBool::new(false),
            holds: Holds::default(),
        });
        let served = Connection::start_for(stream, Arc::clone(&session) as _, record_bytes_max);
        tell.send_replace(Some(Arc::clone(&served)));
        let is_late = async {
            if timeout(ARRIVAL_TIME, arrival.wait_for(|arrived| *arrived)).await.is_ok() {
                session.silence().await;
            }
        };
        tokio::select! {
            biased;
            () = stopping.begun() => session.is_ending.store(true, Ordering::Relaxed),
            () = served.closed() => {}
            () = is_late => {}
            () = session.is_unknown() => {}
        }
        served.close();
        tell.send_replace(None);
        session.end(&served);
        // Its place is free for the pool to come again.
        drop(_place);
        session.give_up_uploads(&stopping).await;
    }
}

/// One connection.
struct Session {
    registry: Arc<dyn Registry>,
    from: SocketAddr,
    member: Option<(Member, Fingerprint)>,
    /// Of a member when it came.
    seat: Option<Arc<Seat>>,
    /// Set when it has started, and taken away when it has ended.
    connection: watch::Receiver<Option<Arc<Connection>>>,
    /// Whether the peer has said what the connection is for.
    arrived: watch::Sender<bool>,
    /// Of a control connection: when the pool asked for its lease last. Leaf lock.
    renewed: Mutex<Option<Instant>>,
    /// Since the pool said hello. Leaf lock.
    session: Mutex<Option<SessionId>>,
    /// The pool has said that it stops, or this head does.
    is_ending: AtomicBool,
    /// Of the data face, since the pool said hello.
    holds: Holds,
}

#[async_trait]
impl Answerer for Session {
    async fn answer(&self, procedure: u32, mut arguments: Decoder) -> Result<Encoder, Refused> {
        match (procedure, self.seat()) {
            (JOIN, _) => told(&self.join(taken(&mut arguments)?).await),
            (HELLO, Some((pool, seat))) => {
                let hello: Hello = taken(&mut arguments)?;
                told(&match self.hello(pool, &seat, hello).await {
                    Ok(welcome) => welcome,
                    Err(reason) => {
                        tracing::warn!(%pool, from = %self.from, reason, "pool is refused");
                        Welcome::Refused { reason }
                    }
                })
            }
            (HELLO, None) => told(&Welcome::Refused { reason: self.no_member() }),
            (CERTIFY, Some((pool, seat))) => told(&self.certify(pool, &seat, taken(&mut arguments)?).await),
            (ATTACH, Some((_, seat))) => {
                let Attach { process } = taken(&mut arguments)?;
                let Some(connection) = self.connection().await else { return Err(Refused::Garbage) };
                let is_taken = seat.pool.add_data(process.process(), connection);
                self.arrived.send_replace(is_taken);
                told(&is_taken)
            }
            (RENEW, Some((pool, seat))) => told(&self.renew(pool, &seat, taken(&mut arguments)?)),
            (BYE, Some((pool, seat))) => {
                // That of a process of before may come late.
                if self.session().is_some_and(|session| seat.pool.end_lease(session)) {
                    seat.is_leaving.store(true, Ordering::Relaxed);
                    self.is_ending.store(true, Ordering::Relaxed);
                    tracing::info!(%pool, "pool stops");
                }
                told(&())
            }
            (_, Some((pool, seat))) if face_procedure::ALL.contains(&procedure) => {
                self.answer_face(pool, &seat, procedure, &mut arguments).await
            }
            _ => Err(Refused::NoProcedure),
        }
    }
}

impl Session {
    /// Over the control connection, on which the pool has said hello.
    async fn answer_face(
        &self,
        pool: PoolId,
        seat: &Seat,
        procedure: u32,
        arguments: &mut Decoder,
    ) -> Result<Encoder, Refused> {
        let (Some(_), Some(faces)) = (self.session(), self.registry.data_faces()) else {
            return Err(Refused::NoProcedure);
        };
        seat.desk.answer((pool, &faces), &self.holds, procedure, arguments).await
    }

    /// Returns when the pool has come again, or has been away for so long that its uploads are given up.
    async fn give_up_uploads(&self, stopping: &Stopping) {
        // Also of one that was shut out meanwhile.
        let Some(session) = self.session() else { return };
        let (Some(seat), Some((Member::Pool(pool), _))) = (&self.seat, self.member) else { return };
        tokio::select! {
            biased;
            () = stopping.begun() => return,
            () = tokio::time::sleep(ABSENCE_MAX) => {}
        }
        if *seat.latest.lock() == Some(session) {
            seat.desk.leave(pool, self.registry.data_faces().as_ref());
        }
    }

    /// Returns when the pool has been silent on its control connection for as long as its lease lasts: calls to it end then.
    async fn silence(&self) {
        let lease = self.registry.lease();
        loop {
            tokio::time::sleep(lease / 8).await;
            if self.renewed.lock().is_some_and(|renewed| renewed.elapsed() > lease) {
                return;
            }
        }
    }

    /// Returns when the registry does not know the key of the connection any more.
    async fn is_unknown(&self) {
        let Some(seat) = &self.seat else { return std::future::pending().await };
        let mut changed = seat.keys_changed.subscribe();
        while self.seat().is_some() && changed.changed().await.is_ok() {}
    }

    /// The host of a pool dials again with the key that is certified.
    async fn certify(&self, pool: PoolId, seat: &Seat, certify: Certify) -> Certified {
        match self.registry.certify(pool, &certify.public_key.0).await {
            Ok(certified) => {
                seat.is_leaving.store(true, Ordering::Relaxed);
                certified
            }
            Err(reason) => {
                tracing::warn!(%pool, from = %self.from, reason, "pool gets no certificate");
                Certified::Refused { reason }
            }
        }
    }

    /// Asked each time: a pool that was removed is none from then on.
    fn seat(&self) -> Option<(PoolId, Arc<Seat>)> {
        seat_of(&*self.registry, self.member?)
    }

    fn no_member(&self) -> String {
        match self.member {
            Some((Member::Pool(pool), _)) => self.registry.refusal(pool),
            _ => "it has no certificate of a pool".to_owned(),
        }
    }

    /// `None`: it has ended.
    async fn connection(&self) -> Option<Arc<Connection>> {
        let mut connection = self.connection.clone();
        let started = connection.wait_for(Option::is_some).await.ok()?;
        started.clone()
    }

    async fn join(&self, join: Join) -> Joined {
        let host = join.host.clone();
        match self.registry.join(join, self.from).await {
            Ok(joined) => joined,
            Err(reason) => {
                tracing::warn!(from = %self.from, host, reason, "host cannot join");
                Joined::Refused { reason }
            }
        }
    }

    async fn hello(&self, pool: PoolId, seat: &Arc<Seat>, hello: Hello) -> Result<Welcome, String> {
        if hello.cluster != self.registry.cluster() {
            return Err("it belongs to another cluster".to_owned());
        }
        if hello.version < VERSION_MIN || hello.version_min > VERSION {
            return Err(format!(
                "it speaks versions {} to {} of the protocol, and this head {VERSION_MIN} to {VERSION}: upgrade the older one",
                hello.version_min, hello.version
            ));
        }
        if hello.pool != pool.0 {
            return Err(format!("its directory has {}", PoolId(hello.pool)));
        }
        let connection = self.connection().await.ok_or("the connection is lost")?;
        let address = data_address(&hello, self.from)?;
        let Hello { process, has_lease, host, program, clone_granularity, status, http, .. } = hello;
        let http = http.0.map(ToldFace::into_face).transpose()?;
        let greeting = Greeting { clone_granularity, status: status.into_status(pool) };
        // A process of before, which answered removals, has ended, or these are remembered by this one.
        let newest_file = self.registry.newest_file();
        // Connected first: a floor that is raised from here on is waited for, and one of before is read below.
        let arrival = Arrival { process: process.process(), has_lease };
        let session =
            seat.pool.connect(arrival, connection, greeting).map_err(|refusal| refusal.to_string())?;
        *self.session.lock() = Some(session);
        *seat.latest.lock() = Some(session);
        seat.desk.greet(pool, process.process(), self.registry.data_faces().as_ref());
        if let Some((_, key)) = self.member {
            self.registry.used(pool, key).await;
        }
        seat.is_leaving.store(false, Ordering::Relaxed);
        self.registry.arrived(pool, address, http.as_ref());
        *seat.told.lock() = Some(Told { host, program, from: self.from, held: None, http });
        *self.renewed.lock() = Some(Instant::now());
        self.arrived.send_replace(true);
        let terms = seat.pool.welcome(self.registry.terms().terms());
        tracing::info!(%pool, from = %self.from, "pool is connected");
        Ok(Welcome::Welcome {
            version: hello.version.min(VERSION),
            terms: terms.into(),
            keys: self.registry.keys(pool),
            nfs_lease_ms: u64::try_from(self.registry.nfs_lease().as_millis()).unwrap_or(u64::MAX),
            newest_file: newest_file.0,
            http: Added(self.registry.http()),
        })
    }

    fn session(&self) -> Option<SessionId> {
        *self.session.lock()
    }

    fn renew(&self, pool: PoolId, seat: &Arc<Seat>, renew: Renew) -> Renewed {
        let Renew { held, status } = renew;
        let Some(session) = self.session() else { return Renewed::Unknown };
        let lease = match seat.pool.renew(session, held.terms(), status.into_status(pool)) {
            Renewal::Lease(lease) => lease,
            Renewal::NotYet { .. } => Duration::ZERO,
            Renewal::Unknown => return Renewed::Unknown,
        };
        seat.hold(held);
        *self.renewed.lock() = Some(Instant::now());
        // After the lease: a floor that is raised from here on is waited for.
        let terms = self.registry.terms();
        let keys = self.registry.keys(pool);
        let has_them =
            (held.generation, held.has_former) == (keys.newest.generation(), keys.former.is_some());
        let lease_ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let generation = self.registry.generation();
        Renewed::Renewed { lease_ms, terms, keys: (!has_them).then_some(keys), generation }
    }

    fn end(&self, connection: &Arc<Connection>) {
        self.holds.end();
        let (Some(seat), Some((Member::Pool(pool), _))) = (&self.seat, self.member) else { return };
        // Also where a data connection is lost: the pool ends all calls before it comes again, so that none overtakes another.
        if seat.pool.disconnect(connection)
            && self.seat().is_some()
            && !self.is_ending.load(Ordering::Relaxed)
            && !seat.is_leaving.load(Ordering::Relaxed)
        {
            tracing::warn!(%pool, from = %self.from, "the connection of a pool is lost");
        }
    }
}

fn seat_of(registry: &dyn Registry, member: (Member, Fingerprint)) -> Option<(PoolId, Arc<Seat>)> {
    match member {
        (Member::Pool(pool), key) => Some((pool, registry.seat(pool, key)?)),
        (Member::Head, _) => None,
    }
}

/// Where clients reach the pool: as its host says, or where it dials from. Clients take addresses and no names.
fn data_address(hello: &Hello, from: SocketAddr) -> Result<SocketAddr, String> {
    let port = u16::try_from(hello.nfs_port).map_err(|_| "its port is none".to_owned())?;
    let address = &hello.address;
    if address.is_empty() {
        return Ok(SocketAddr::new(from.ip().to_canonical(), port));
    }
    let alone = address.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port));
    alone.or_else(|_| address.parse()).map_err(|_| format!("its address {address:?} is no IP address"))
}

#[cfg(test)]
mod tests;

fn taken<T: Xdr>(arguments: &mut Decoder) -> Result<T, Refused> {
    T::decode(arguments).map_err(|_| Refused::Garbage)
}

fn told(value: &impl Xdr) -> Result<Encoder, Refused> {
    let mut encoder = Encoder::new();
    value.encode(&mut encoder);
    Ok(encoder)
}
