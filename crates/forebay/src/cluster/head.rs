//! The head's part: admits pool hosts, gives them keys and terms, and puts their pools into the list that doors see.

mod members;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use admin::instance::PoolHostView;
use anyhow::{Context, Result};
use api::{Face, FaceElsewhere, KeyGeneration, PoolList, Term};
use async_trait::async_trait;
use cluster::trust::{Fingerprint, Token};
use cluster::{
    DataFaces, HeadHttp, HeadTls, HttpFace, Join, Joined, LeaseRules, Registry, RemotePool, Seat, Standing,
    Terms,
};
use door_webdav::LocalCompletions;
use files::PunctualPool;
use namespace::SqlNamespace;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use types::hex::Hex;
use types::{Clock, FileId, PoolId};

use super::authorities::{self, Authorities};
use super::book::{Book, KeptKeys, KeptPool, KeyStanding, Newcomer};
use super::command::{ClusterReport, PoolHostReport, TokenReport};
use super::faces::Faces;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::keys::{Keys, PoolsElsewhere};
use crate::services::Services;
use crate::up::http::url_host;

/// Longer texts of hosts are cut.
const HOST_MAX: usize = 64;

pub struct ClusterHead {
    instance: [u8; 16],
    /// Pools of the head itself: their numbers are taken.
    own_pools: u32,
    /// Pool hosts come to it.
    port: u16,
    /// As tokens tell it.
    address: String,
    data: PathBuf,
    rules: LeaseRules,
    /// Of all starts.
    longest_lease: Duration,
    nfs_lease: Duration,
    clock: Arc<dyn Clock>,
    namespace: Arc<SqlNamespace>,
    keys: Arc<Keys>,
    list: Arc<PoolList>,
    /// Held while it is written: of two hosts that join at once each has a number of its own. Changes of `trusted` and `seats`
    /// are made under it.
    book: Mutex<Book>,
    /// Leaf lock.
    trusted: RwLock<Trusted>,
    /// For connections from now on.
    tls: watch::Sender<Arc<HeadTls>>,
    /// Leaf lock.
    seats: RwLock<BTreeMap<PoolId, Placed>>,
    /// As the hosts called themselves when they joined; here, for the list may be on its way to the disk. Leaf lock.
    names: RwLock<BTreeMap<PoolId, String>>,
    myself: Weak<ClusterHead>,
    /// Set at the start if there is HTTP, before hosts come.
    http: OnceLock<HeadHttp>,
    /// Set when HTTP is served.
    faces: OnceLock<Arc<dyn DataFaces>>,
}

/// The keys of the cluster, here, for the list may be on its way to the disk.
struct Trusted {
    authorities: Authorities,
    keys: KeptKeys,
}

/// A pool of another host, and the keys with which its host is let in.
#[derive(Clone)]
struct Placed {
    seat: Arc<Seat>,
    accepted: Vec<Fingerprint>,
    /// One of them is a key that the host has not shown yet.
    has_next: bool,
    standing: KeyStanding,
    generation: u32,
}

impl ClusterHead {
    /// Makes a cluster of a data directory that is none. Pool hosts come to `port`. Blocks.
    pub fn open(
        (config, data, port): (&Config, &DataDir, u16),
        services: &Services,
        keys: Arc<Keys>,
    ) -> Result<Arc<ClusterHead>> {
        // The list first: an authority without one is a lost list.
        let now_s = seconds(&*services.clock);
        let mut book = Book::open(data)?.map_or_else(|| Book::make(data, now_s), Ok)?;
        let longest = book.note_lease(config.cluster.lease_s)?;
        let kept = book.keys();
        let authorities = authorities::open(data, kept)?;
        let tls = tls_of(&authorities)?;
        let known = book.pools().to_vec();
        let head = Arc::new_cyclic(|myself| ClusterHead {
            instance: data.instance,
            own_pools: data.pools,
            port,
            address: super::address(config, port),
            data: data.path().to_owned(),
            rules: config.cluster.rules(),
            longest_lease: Duration::from_secs(longest.into()),
            nfs_lease: Duration::from_secs(config.nfs.lease_s.into()),
            clock: Arc::clone(&services.clock),
            namespace: Arc::clone(&services.namespace),
            keys,
            list: Arc::clone(&services.pools),
            book: Mutex::new(book),
            trusted: RwLock::new(Trusted { authorities, keys: kept }),
            tls: watch::Sender::new(tls),
            seats: RwLock::default(),
            names: RwLock::default(),
            myself: Weak::clone(myself),
            http: OnceLock::new(),
            faces: OnceLock::new(),
        });
        known.iter().try_for_each(|pool| head.place(pool))?;
        head.end_overlap_if_due(&mut head.book.lock())?;
        head.keys.serve_elsewhere(Arc::clone(&head) as Arc<dyn PoolsElsewhere>);
        Ok(head)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where clients reach HTTP. Without a name that is where hosts reach the head.
    pub fn set_http(&self, name: Option<String>, port: u16) {
        let name = name.map(|name| url_host(&name)).unwrap_or_default();
        let _ = self.http.set(HeadHttp { name, port: port.into() });
    }

    /// Data faces of pools on other hosts are answered from here on.
    pub fn serve_data_faces(&self, completions: LocalCompletions) {
        let _ = self.faces.set(Arc::new(Faces(completions)));
    }

    /// For connections of pool hosts: the certificates of now.
    pub fn tls(&self) -> watch::Receiver<Arc<HeadTls>> {
        self.tls.subscribe()
    }

    /// Puts the pool into the lists, or has its keys known as the book has them. Connections with other keys end.
    fn place(&self, pool: &KeptPool) -> Result<()> {
        let kept = self.trusted.read().keys;
        let fingerprint =
            |key: &str| key.parse::<Fingerprint>().map_err(|error| anyhow::anyhow!("cluster.json: {error}"));
        let accepted = pool.accepted(kept).into_iter().map(fingerprint).collect::<Result<Vec<_>>>()?;
        let (id, standing, generation) = (PoolId(pool.number), pool.standing(kept), pool.generation);
        let seat = {
            let mut seats = self.seats.write();
            let seat = match seats.get(&id) {
                Some(placed) => Arc::clone(&placed.seat),
                None => {
                    let clock = Arc::clone(&self.clock);
                    let remote = RemotePool::known(id, self.rules, self.longest_lease, clock);
                    self.list.add(Arc::new(PunctualPool::new(Arc::clone(&remote) as _)))?;
                    Seat::new(remote)
                }
            };
            let has_next = pool.next.is_some();
            seats.insert(id, Placed { seat: Arc::clone(&seat), accepted, has_next, standing, generation });
            seat
        };
        seat.pool.set_shut_out(standing == KeyStanding::ShutOut);
        self.names.write().insert(id, pool.host.clone());
        seat.end_unknown();
        Ok(())
    }

    /// A token with which hosts may join for so long, or the host of `pool` again. Blocks.
    pub fn make_token(&self, valid: Duration, pool: Option<PoolId>) -> Result<TokenReport> {
        // A rotation between the two would leave a token of a former authority.
        let mut book = self.book.lock();
        let authority = self.trusted.read().authorities.now.fingerprint();
        let token = Token::make(vec![self.address.clone()], authority, pool)?;
        let now_s = self.now_s();
        let expires_s = now_s.saturating_add(valid.as_secs());
        book.add_token(&token.secret_hash(), pool, expires_s, now_s)?;
        Ok(TokenReport { token: token.to_string(), expires_s, valid_s: valid.as_secs() })
    }

    pub fn report(&self) -> ClusterReport {
        let seats = self.seats.read().clone();
        let mut seen = self.hosts();
        let pools = seats.into_iter().map(|(pool, Placed { seat, standing, generation, .. })| {
            let status = api::Pool::status(&*seat.pool);
            PoolHostReport {
                name: pool.to_string(),
                address: self.list.address(pool, door_nfs::NAME).map(|address| address.to_string()),
                http: self.list.face(pool, door_webdav::NAME).map(|face| http_url(&face)),
                seen: seen.remove(&pool).unwrap_or_default(),
                offline: status.trouble(),
                free_bytes: status.free_bytes,
                total_bytes: status.total_bytes,
                key_generation: generation,
                shut_out: standing == KeyStanding::ShutOut,
                calls: seat.pool.calls().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            }
        });
        ClusterReport {
            cluster: Hex(&self.instance).to_string(),
            address: self.address.clone(),
            keys: self.report_keys(),
            pools: pools.collect(),
        }
    }

    /// As they are seen now, from memory.
    pub fn hosts(&self) -> BTreeMap<PoolId, PoolHostView> {
        let (seats, names) = (self.seats.read().clone(), self.names.read().clone());
        let hosts = seats.into_iter().map(|(pool, Placed { seat, .. })| {
            let (told, seen) = (seat.told(), seat.pool.report());
            let name = || names.get(&pool).cloned().unwrap_or_default();
            let report = PoolHostView {
                host: told.as_ref().map_or_else(name, |told| printable(&told.host)),
                version: told.map(|told| printable(&told.program)),
                standing: match seen.standing {
                    Standing::Ready => "ready",
                    Standing::Suspect => "suspect",
                    Standing::Out => "out",
                }
                .to_owned(),
                silent_s: seen.silence.as_secs(),
                lease_s: seen.lease_left.as_secs_f64(),
                missed_fences: seen.missed_fences as u64,
                connections: seen.connections as u64,
                reconnects: seen.reconnects,
            };
            (pool, report)
        });
        hosts.collect()
    }

    /// Calls to each pool since the start, by the name of their procedure.
    pub fn calls(&self) -> Vec<(PoolId, &'static str, u64)> {
        let seats = self.seats.read();
        let of_pool = |(pool, placed): (&PoolId, &Placed)| {
            let pool = *pool;
            placed.seat.pool.calls().into_iter().map(move |(procedure, count)| (pool, procedure, count))
        };
        seats.iter().flat_map(of_pool).collect()
    }

    fn now_s(&self) -> u64 {
        seconds(&*self.clock)
    }

    /// Work that may wait for the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ClusterHead) -> Result<T> + Send + 'static,
    ) -> Result<T, String> {
        const STOPS: &str = "the head stops";
        let head = self.myself.upgrade().ok_or(STOPS)?;
        let done = tokio::task::spawn_blocking(move || work(&head)).await.map_err(|_| STOPS)?;
        done.map_err(|error| format!("{error:#}"))
    }
}

fn seconds(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.now().seconds).unwrap_or(0)
}

fn tls_of(authorities: &Authorities) -> Result<Arc<HeadTls>> {
    let tls = authorities.now.server_config(authorities.former.as_deref());
    tls.context("cannot make the certificate of the head")
}

/// At the address at which clients reach NFS there.
fn http_face(nfs: SocketAddr, http: &HttpFace) -> Face {
    let HttpFace { port, name, is_tls, plain_networks } = http.clone();
    let elsewhere = FaceElsewhere { name, is_encrypted: is_tls, plain_networks };
    Face { address: SocketAddr::new(nfs.ip(), port), elsewhere: Some(elsewhere) }
}

/// For people: with `https` if the face takes that.
fn http_url(face: &Face) -> String {
    let elsewhere = face.elsewhere.as_ref();
    let scheme = if elsewhere.is_some_and(|face| face.is_encrypted) { "https" } else { "http" };
    match elsewhere.and_then(|face| face.name.as_ref()) {
        Some(name) => format!("{scheme}://{name}:{}", face.address.port()),
        None => format!("{scheme}://{}", face.address),
    }
}

/// A text of a pool host, for terminals and logs.
fn printable(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(HOST_MAX).collect()
}

#[async_trait]
impl Registry for ClusterHead {
    fn cluster(&self) -> [u8; 16] {
        self.instance
    }

    async fn join(&self, join: Join, from: SocketAddr) -> Result<Joined, String> {
        let Join { secret, public_key, host, pool: has } = join;
        let host = printable(&host);
        let (own_pools, name) = (self.own_pools, host.clone());
        let joined = self.blocking(move |head| {
            let mut book = head.book.lock();
            // A key that cannot be certified takes no number.
            head.issue(PoolId(0), &public_key.0)?;
            let newcomer = Newcomer { key: Fingerprint::of_key(&public_key.0), host: &name, pool: has };
            let hash = cluster::trust::secret_hash(&secret);
            let pool = book.join(&hash, &newcomer, own_pools, head.now_s())?;
            head.place(book.pool(pool.0)?)?;
            let (generation, certificate, authority) = head.issue(pool, &public_key.0)?;
            let cluster = head.instance;
            Ok(Joined::Pool { cluster, pool: pool.0, certificate, authority, generation })
        });
        let joined = joined.await?;
        if let Joined::Pool { pool, .. } = &joined {
            tracing::info!(pool = %PoolId(*pool), host, %from, again = has.is_some(), "host has joined");
        }
        Ok(joined)
    }

    fn seat(&self, pool: PoolId, key: Fingerprint) -> Option<Arc<Seat>> {
        let seats = self.seats.read();
        let placed = seats.get(&pool).filter(|placed| placed.accepted.contains(&key))?;
        Some(Arc::clone(&placed.seat))
    }

    fn arrived(&self, pool: PoolId, address: SocketAddr, http: Option<&HttpFace>) {
        let nfs = self.list.set_address(pool, door_nfs::NAME, address);
        let http = http.map(|http| http_face(address, http));
        if let Err(error) = nfs.and_then(|()| self.list.set_face(pool, door_webdav::NAME, http)) {
            tracing::error!(%pool, %error, "no client is sent to a pool");
        }
    }

    fn data_faces(&self) -> Option<Arc<dyn DataFaces>> {
        self.faces.get().cloned()
    }

    fn http(&self) -> Option<HeadHttp> {
        self.http.get().cloned()
    }

    fn keys(&self, pool: PoolId) -> cluster::Keys {
        let (newest, former) = self.keys.material(pool);
        cluster::Keys { newest: cluster::Key::of(&newest), former: former.as_ref().map(cluster::Key::of) }
    }

    fn terms(&self) -> Terms {
        let (term, floor) = self.keys.terms();
        Terms::of(term, floor)
    }

    fn newest_file(&self) -> FileId {
        self.namespace.newest_file()
    }

    fn nfs_lease(&self) -> Duration {
        self.nfs_lease
    }

    fn lease(&self) -> Duration {
        self.rules.lease
    }
}

impl PoolsElsewhere for ClusterHead {
    fn have_floor(&self, floor: Term) -> Result<(), PoolId> {
        self.first_without(|seat| seat.has_floor(floor))
    }

    fn have_keys(&self, generation: KeyGeneration) -> Result<(), PoolId> {
        self.first_without(|seat| seat.has_keys(generation))
    }
}

impl ClusterHead {
    fn first_without(&self, has: impl Fn(&Seat) -> bool) -> Result<(), PoolId> {
        let seats = self.seats.read();
        match seats.iter().find(|(_, placed)| !has(&placed.seat)) {
            Some((pool, _)) => Err(*pool),
            None => Ok(()),
        }
    }
}
