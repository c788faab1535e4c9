//! A pool host: the real member, lease and service of `cluster` over a lossy disk, and a face for clients that judges tickets
//! as the NFS face of a pool does.

use std::sync::{Arc, LazyLock, OnceLock};

use api::{OpenedTicket, Pool, PoolError, PoolKey, Stability, TicketError, TicketMode, Verifier};
use bytes::{Bytes, BytesMut};
use cluster::trust::{Authority, Member, MemberKey};
use cluster::{
    HeldLease, KeyRing, KeySet, KeyStore, LeasedPool, MakingPool, MemberConfig, PoolMember, Process,
};
use parking_lot::Mutex;
use testkit::lossy_disk::{CELL_BYTES, CELLS};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use types::{Clock, PoolId, Random};

use super::head::{ADDRESS, CLUSTER};
use super::host::{SimHost, SkewedClock};
use super::network::{Side, SimDialer};
use super::plan::Cells;
use super::{Plant, STOP_TIME, World};
use crate::dice::draw_of;
use crate::histories::LineSubject;

/// A pool host: what is on its disk, and its process.
#[derive(Default)]
pub struct PoolSite {
    starts: u64,
    pub process: Option<Arc<PoolProcess>>,
}

pub struct PoolProcess {
    world: Arc<World>,
    number: usize,
    pub host: Arc<SimHost>,
    lease: Arc<HeldLease>,
    clock: Arc<dyn Clock>,
    member: Arc<PoolMember>,
    leased: Arc<dyn Pool>,
    key: OnceLock<PoolKey>,
    stop: watch::Sender<bool>,
    ended: Mutex<Option<oneshot::Sender<()>>>,
    /// Until it is told to stop.
    has_ended: Mutex<Option<oneshot::Receiver<()>>>,
}

/// Why the face does not do what a client asks.
#[derive(Clone, Debug)]
pub enum FaceError {
    /// It does not serve yet.
    Closed,
    Ticket,
    Pool(PoolError),
}

impl From<TicketError> for FaceError {
    fn from(_: TicketError) -> FaceError {
        FaceError::Ticket
    }
}

impl From<PoolError> for FaceError {
    fn from(error: PoolError) -> FaceError {
        FaceError::Pool(error)
    }
}

/// The network of the world states who is at the other end, so that all hosts have the same keys, which nobody looks at.
fn keys() -> KeyRing {
    static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
        let authority = Authority::make(&CLUSTER).expect("an authority can be made");
        let key = MemberKey::make().expect("a key can be made");
        let certificate = authority.issue(Member::Pool(PoolId(0)), &key.public_key());
        KeySet {
            generation: 0,
            certificate: certificate.expect("a key can be certified"),
            authority: authority.certificate_pem().to_owned(),
            key,
        }
    });
    KeyRing::new(Arc::new(NoDisk), &KEYS, None).expect("the keys are in order")
}

/// For keys that are not rotated.
struct NoDisk;

impl KeyStore for NoDisk {
    fn keep_next(&self, _: &KeySet) -> Result<(), String> {
        Err("keys are not rotated here".to_owned())
    }

    fn adopt_next(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The same each time.
struct Chance(u64);

impl Random for Chance {
    fn fill(&self, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = self.0.rotate_left(at as u32 * 8) as u8;
        }
    }
}

pub fn bytes_of(value: u64, cells: Cells) -> Bytes {
    Bytes::from(value.to_be_bytes().repeat(cells.count))
}

pub fn values_of(data: &[u8]) -> Vec<u64> {
    data.as_chunks::<CELL_BYTES>().0.iter().map(|cell| u64::from_be_bytes(*cell)).collect()
}

impl PoolProcess {
    pub fn holds_lease(&self) -> bool {
        self.lease.holds(self.clock.monotonic())
    }

    /// Called in a task of the host.
    fn start(world: &Arc<World>, number: usize, starts: u64, host: Arc<SimHost>) -> Arc<PoolProcess> {
        let clock: Arc<dyn Clock> = SkewedClock::new(world.began, world.plan.rates[number + 1]);
        let served = world.disks[number].open();
        let pool = MakingPool::new(Arc::new(served.clone()));
        let of_clients = Arc::new(served.for_clients());
        let lease = Arc::new(HeldLease::default());
        let leased: Arc<dyn Pool> = match world.plant {
            Some(Plant::LostLease) => of_clients,
            _ => {
                let of_clients = MakingPool::new(of_clients);
                Arc::new(LeasedPool::new(of_clients, Arc::clone(&lease), Arc::clone(&clock)))
            }
        };
        let draw = draw_of(world.plan.seed, starts << 8 | number as u64);
        let config = MemberConfig {
            cluster: CLUSTER,
            addresses: vec![ADDRESS.to_owned()],
            keys: keys(),
            dialer: Arc::new(SimDialer { world: Arc::clone(world), pool: number }),
            process: Process { starts, draw },
            host: format!("host-{number}"),
            program: "sim".to_owned(),
            address: None,
            nfs_port: 1,
            http: None,
        };
        let chance = (Arc::clone(&clock), Arc::new(Chance(draw)) as Arc<dyn Random>);
        let member = PoolMember::new(config, pool, Arc::clone(&lease), chance);
        let (world, key, stop) = (Arc::clone(world), OnceLock::new(), watch::Sender::new(false));
        let (ended, has_ended) = oneshot::channel();
        let (ended, has_ended) = (Mutex::new(Some(ended)), Mutex::new(Some(has_ended)));
        Arc::new(PoolProcess {
            world,
            number,
            host,
            lease,
            clock,
            member,
            leased,
            key,
            stop,
            ended,
            has_ended,
        })
    }

    async fn run(self: Arc<Self>) {
        let (process, host) = (Arc::clone(&self), self.host.tasks());
        host.spawn(async move {
            if let Some(admission) = process.member.admitted().await {
                let _ = process.key.set(admission.key);
                process.world.note(LineSubject::Everything, (process.number, "serves"), || {
                    format!("pool {}: serves clients", process.number)
                });
            }
        });
        Arc::clone(&self.member).run(self.stop.subscribe()).await;
        let ended = self.ended.lock().take();
        drop(ended);
    }

    fn key(&self) -> Result<&PoolKey, FaceError> {
        self.key.get().ok_or(FaceError::Closed)
    }

    /// As `door-nfs` does in PUTFH and WRITE.
    pub async fn write(
        self: Arc<Self>,
        sealed: Bytes,
        (value, cells): (u64, Cells),
        stability: Stability,
    ) -> Result<(Stability, Verifier), FaceError> {
        let key = self.key()?;
        let OpenedTicket { ticket, term, .. } = key.open(&sealed)?;
        if ticket.mode != TicketMode::ReadWrite {
            return Err(FaceError::Ticket);
        }
        let pass = key.floor().begin_write(term)?;
        let replica = self.leased.open(&ticket).await?;
        let data = match pass {
            Some(pass) => pass.go_with(bytes_of(value, cells)),
            None => bytes_of(value, cells),
        };
        let done = replica.write_at(cells.offset(), data, stability).await?;
        Ok((done, replica.verifier()))
    }

    pub async fn commit(self: Arc<Self>, sealed: Bytes) -> Result<Verifier, FaceError> {
        let ticket = self.key()?.open(&sealed)?.ticket;
        Ok(self.leased.open(&ticket).await?.sync().await?)
    }

    pub async fn read(self: Arc<Self>, sealed: Bytes) -> Result<Vec<u64>, FaceError> {
        let ticket = self.key()?.open(&sealed)?.ticket;
        let read = self.leased.open(&ticket).await?.read_at(0, (CELLS * CELL_BYTES) as u32).await?;
        Ok(values_of(&BytesMut::from(&read.data[..])))
    }
}

impl World {
    pub fn pool_process(&self, pool: usize) -> Option<Arc<PoolProcess>> {
        self.pools[pool].lock().process.clone()
    }

    pub fn start_pool(self: &Arc<Self>, pool: usize) {
        let mut site = self.pools[pool].lock();
        if site.process.is_some() {
            return;
        }
        site.starts += 1;
        self.note(LineSubject::Everything, (pool, site.starts), || format!("pool {pool}: starts"));
        let host = SimHost::new();
        let process = PoolProcess::start(self, pool, site.starts, Arc::clone(&host));
        site.process = Some(Arc::clone(&process));
        host.tasks().spawn(process.run());
    }

    /// It ends by itself, or is killed.
    pub fn stop_pool(self: &Arc<Self>, pool: usize) {
        let Some(process) = self.pool_process(pool) else { return };
        let Some(has_ended) = process.has_ended.lock().take() else { return };
        self.note(LineSubject::Everything, (pool, "stop"), || format!("pool {pool}: is told to stop"));
        process.stop.send_replace(true);
        let world = Arc::clone(self);
        tokio::spawn(async move {
            let _ = timeout(STOP_TIME, has_ended).await;
            world.end_pool(pool, &process, false);
        });
    }

    pub fn kill_pool(self: &Arc<Self>, pool: usize, is_power_cut: bool) {
        if let Some(process) = self.pool_process(pool) {
            if is_power_cut {
                self.silence(pool, Side::Pool);
            }
            self.end_pool(pool, &process, is_power_cut);
        }
    }

    fn end_pool(self: &Arc<Self>, pool: usize, process: &Arc<PoolProcess>, is_power_cut: bool) {
        {
            let mut site = self.pools[pool].lock();
            if !site.process.as_ref().is_some_and(|now| Arc::ptr_eq(now, process)) {
                return;
            }
            site.process = None;
        }
        self.note(LineSubject::Everything, (pool, "ends"), || format!("pool {pool}: ends"));
        self.end_host(Arc::clone(&process.host), format!("pool {pool}"));
        self.disks[pool].end_process(is_power_cut);
    }
}

pub type PoolSites = Vec<Mutex<PoolSite>>;
