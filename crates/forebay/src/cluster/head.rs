//! The head's part: admits pool hosts, gives them keys and terms, and puts their pools into the list that doors see.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use admin::instance::PoolHostView;
use anyhow::{Context, Result};
use api::{KeyGeneration, PoolList, Term};
use async_trait::async_trait;
use cluster::trust::{Authority, Fingerprint, Member, Token};
use cluster::{HeadTls, Join, Joined, LeaseRules, Registry, RemotePool, Seat, Standing, Terms};
use files::PunctualPool;
use namespace::SqlNamespace;
use parking_lot::{Mutex, RwLock};
use types::hex::Hex;
use types::{Clock, FileId, PoolId};

use super::book::{self, Book};
use super::command::{ClusterReport, PoolHostReport, TokenReport};
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::keys::{Keys, PoolsElsewhere};
use crate::services::Services;

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
    authority: Authority,
    rules: LeaseRules,
    /// Of all starts.
    longest_lease: Duration,
    nfs_lease: Duration,
    clock: Arc<dyn Clock>,
    namespace: Arc<SqlNamespace>,
    keys: Arc<Keys>,
    list: Arc<PoolList>,
    /// Held while it is written: of two hosts that join at once each has a number of its own.
    book: Arc<Mutex<Book>>,
    /// Leaf lock.
    seats: RwLock<BTreeMap<PoolId, (Fingerprint, Arc<Seat>)>>,
    /// As the hosts called themselves when they joined; here, for the list may be on its way to the disk. Leaf lock.
    names: RwLock<BTreeMap<PoolId, String>>,
}

impl ClusterHead {
    /// Makes a cluster of a data directory that is none. Pool hosts come to `port`. Blocks.
    pub fn open(
        (config, data, port): (&Config, &DataDir, u16),
        services: &Services,
        keys: Arc<Keys>,
    ) -> Result<Arc<ClusterHead>> {
        // The list first: an authority without one is a lost list.
        let mut book = Book::open(data)?.map_or_else(|| Book::make(data), Ok)?;
        let authority = book::authority(data)?;
        let longest = book.note_lease(config.cluster.lease_s)?;
        let head = ClusterHead {
            instance: data.instance,
            own_pools: data.pools,
            port,
            address: super::address(config, port),
            authority,
            rules: config.cluster.rules(),
            longest_lease: Duration::from_secs(longest.into()),
            nfs_lease: Duration::from_secs(config.nfs.lease_s.into()),
            clock: Arc::clone(&services.clock),
            namespace: Arc::clone(&services.namespace),
            keys,
            list: Arc::clone(&services.pools),
            seats: RwLock::default(),
            names: RwLock::default(),
            book: Arc::new(Mutex::new(book)),
        };
        let known = head.book.lock().pools().to_vec();
        for pool in known {
            let key =
                pool.key.parse::<Fingerprint>().map_err(|error| anyhow::anyhow!("cluster.json: {error}"))?;
            head.seat_at(PoolId(pool.number), key)?;
            head.names.write().insert(PoolId(pool.number), pool.host);
        }
        let head = Arc::new(head);
        head.keys.serve_elsewhere(Arc::clone(&head) as Arc<dyn PoolsElsewhere>);
        Ok(head)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn tls(&self) -> Result<Arc<HeadTls>> {
        self.authority.server_config().context("cannot make the certificate of the head")
    }

    fn seat_at(&self, pool: PoolId, key: Fingerprint) -> Result<Arc<Seat>> {
        let mut seats = self.seats.write();
        if let Some((_, seat)) = seats.get(&pool) {
            return Ok(Arc::clone(seat));
        }
        let remote = RemotePool::known(pool, self.rules, self.longest_lease, Arc::clone(&self.clock));
        let seat = Seat::new(Arc::clone(&remote));
        self.list.add(Arc::new(PunctualPool::new(remote)))?;
        seats.insert(pool, (key, Arc::clone(&seat)));
        Ok(seat)
    }

    /// A token with which hosts may join for so long. Blocks.
    pub fn make_token(&self, valid: Duration) -> Result<TokenReport> {
        let token = Token::make(vec![self.address.clone()], self.authority.fingerprint())?;
        let now_s = self.now_s();
        let expires_s = now_s.saturating_add(valid.as_secs());
        self.book.lock().add_token(&token.secret_hash(), expires_s, now_s)?;
        Ok(TokenReport { token: token.to_string(), expires_s, valid_s: valid.as_secs() })
    }

    pub fn report(&self) -> ClusterReport {
        let seats = self.seats.read().clone();
        let mut seen = self.hosts();
        let pools = seats.into_iter().map(|(pool, (_, seat))| {
            let status = api::Pool::status(&*seat.pool);
            PoolHostReport {
                name: pool.to_string(),
                address: self.list.address(pool, door_nfs::NAME).map(|address| address.to_string()),
                seen: seen.remove(&pool).unwrap_or_default(),
                offline: status.trouble(),
                free_bytes: status.free_bytes,
                total_bytes: status.total_bytes,
                calls: seat.pool.calls().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            }
        });
        ClusterReport {
            cluster: Hex(&self.instance).to_string(),
            address: self.address.clone(),
            pools: pools.collect(),
        }
    }

    /// As they are seen now, from memory.
    pub fn hosts(&self) -> BTreeMap<PoolId, PoolHostView> {
        let (seats, names) = (self.seats.read().clone(), self.names.read().clone());
        let hosts = seats.into_iter().map(|(pool, (_, seat))| {
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
        let of_pool = |(pool, (_, seat)): (&PoolId, &(Fingerprint, Arc<Seat>))| {
            let pool = *pool;
            seat.pool.calls().into_iter().map(move |(procedure, count)| (pool, procedure, count))
        };
        seats.iter().flat_map(of_pool).collect()
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.clock.now().seconds).unwrap_or(0)
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
        let Join { secret, public_key, host } = join;
        let hash = cluster::trust::secret_hash(&secret);
        let now_s = self.now_s();
        let key = Fingerprint::of_key(&public_key.0);
        let host = printable(&host);
        // A key that cannot be certified takes no number.
        self.authority.issue(Member::Pool(PoolId(0)), &public_key.0).map_err(|error| error.to_string())?;
        let (book, own_pools, name) = (Arc::clone(&self.book), self.own_pools, host.clone());
        let joined = tokio::task::spawn_blocking(move || {
            let mut book = book.lock();
            book.admits(&hash, now_s)?;
            book.add_pool(own_pools, key, &name, now_s).map_err(|error| format!("{error:#}"))
        });
        let pool = joined.await.map_err(|_| "the head stops".to_owned())??;
        let certificate = self.authority.issue(Member::Pool(pool), &public_key.0);
        let certificate = certificate.map_err(|error| error.to_string())?;
        self.names.write().insert(pool, host.clone());
        self.seat_at(pool, key).map_err(|error| error.to_string())?;
        tracing::info!(%pool, host, %from, "host has joined");
        Ok(Joined::Pool {
            cluster: self.instance,
            pool: pool.0,
            certificate,
            authority: self.authority.certificate_pem().to_owned(),
        })
    }

    fn seat(&self, pool: PoolId, key: Fingerprint) -> Option<Arc<Seat>> {
        let seats = self.seats.read();
        let (known, seat) = seats.get(&pool)?;
        (*known == key).then(|| Arc::clone(seat))
    }

    fn arrived(&self, pool: PoolId, address: SocketAddr) {
        if let Err(error) = self.list.set_address(pool, door_nfs::NAME, address) {
            tracing::error!(%pool, %error, "no client is sent to a pool");
        }
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
        match seats.iter().find(|(_, (_, seat))| !has(seat)) {
            Some((pool, _)) => Err(*pool),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool host could move the cursor of the operator's terminal.
    #[test]
    fn texts_of_pool_hosts_have_no_control_characters_and_a_bound() {
        assert_eq!(printable("fb2\u{1b}[2J\n"), "fb2[2J");
        assert_eq!(printable(&"x".repeat(1_000)).len(), HOST_MAX);
    }
}
