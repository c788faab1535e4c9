//! Connections of pool hosts to the head: streams of bytes that are late, keep their order, are held back by a cut in one
//! direction, and are lost.

mod stream;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use cluster::trust::{Dialling, Fingerprint, Member};
use cluster::{ByteStream, Caller, Dialer, Identified, Port};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use types::PoolId;

use super::World;
use crate::histories::LineSubject;
pub use stream::{SimStream, Wire};

const DELAY_MAX: Duration = Duration::from_millis(800);
/// After the last fault.
const CALM_DELAY_MAX: Duration = Duration::from_millis(50);
/// A connection on which nothing is acknowledged for so long is lost (`TCP_USER_TIMEOUT` of the product).
const SILENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    Pool,
    Head,
}

impl Side {
    pub fn other(self) -> Side {
        match self {
            Side::Pool => Side::Head,
            Side::Head => Side::Pool,
        }
    }
}

#[derive(Default)]
struct Link {
    /// Bytes to this side are held back.
    is_cut: [bool; 2],
    /// Rises with each cut and each end of one.
    changes: u64,
    wires: Vec<Weak<Wire>>,
}

#[derive(Default)]
pub struct Network {
    links: Mutex<Vec<Link>>,
    /// Connections that the head has not taken yet. `None`: its port is closed.
    backlog: Mutex<Option<VecDeque<Caller>>>,
    called: Notify,
    healed: Notify,
}

impl Network {
    pub fn new(pools: usize) -> Network {
        Network { links: Mutex::new((0..pools).map(|_| Link::default()).collect()), ..Network::default() }
    }

    fn is_cut(&self, pool: usize, to: Side) -> bool {
        self.links.lock()[pool].is_cut[to as usize]
    }

    fn is_whole(&self, pool: usize) -> bool {
        !self.links.lock()[pool].is_cut.contains(&true)
    }

    fn wires(&self, pool: usize) -> Vec<Arc<Wire>> {
        self.links.lock()[pool].wires.iter().filter_map(Weak::upgrade).collect()
    }

    pub fn open_port(&self) {
        *self.backlog.lock() = Some(VecDeque::new());
    }

    pub fn close_port(&self) {
        let backlog = self.backlog.lock().take();
        drop(backlog);
    }
}

impl World {
    /// Of bytes and messages.
    pub fn delay(&self, stream: u64) -> Duration {
        self.some_time(stream, if self.is_calm() { CALM_DELAY_MAX } else { DELAY_MAX })
    }

    pub fn cut(self: &Arc<Self>, pool: usize, to: Side) {
        let changes = {
            let mut links = self.network.links.lock();
            let link = &mut links[pool];
            if link.is_cut[to as usize] {
                return;
            }
            link.is_cut[to as usize] = true;
            link.changes += 1;
            link.changes
        };
        let world = Arc::clone(self);
        tokio::spawn(async move {
            sleep(SILENCE).await;
            if world.network.links.lock()[pool].changes == changes {
                world.note(LineSubject::Everything, (pool, "silence"), || {
                    format!("pool {pool}: connections time out")
                });
                world.reset(pool);
            }
        });
    }

    pub fn heal(&self, pool: usize) {
        {
            let mut links = self.network.links.lock();
            links[pool].is_cut = [false; 2];
            links[pool].changes += 1;
        }
        for wire in self.network.wires(pool) {
            for side in [Side::Pool, Side::Head] {
                wire.send_again(side, Instant::now() + self.delay(wire.draws_of(side)));
            }
        }
        self.network.healed.notify_waiters();
    }

    /// Both ends of each connection lose it, at different times.
    pub fn reset(self: &Arc<Self>, pool: usize) {
        for wire in self.network.wires(pool) {
            for side in [Side::Pool, Side::Head] {
                self.break_end(&wire, side, self.delay(wire.draws_of(side)));
            }
        }
    }

    fn break_end(&self, wire: &Arc<Wire>, side: Side, after: Duration) {
        let wire = Arc::clone(wire);
        tokio::spawn(async move {
            sleep(after).await;
            wire.break_end(side);
        });
    }

    /// The power of this side's host fails: the other side is told nothing, and finds out by itself.
    pub fn silence(self: &Arc<Self>, pool: usize, side: Side) {
        for wire in self.network.wires(pool) {
            wire.silence(side);
            self.break_end(&wire, side.other(), SILENCE);
        }
    }
}

/// A pool host's way to the head.
pub struct SimDialer {
    pub world: Arc<World>,
    pub pool: usize,
}

pub fn key_of(pool: usize) -> Fingerprint {
    Fingerprint([pool as u8; 32])
}

#[async_trait]
impl Dialer for SimDialer {
    async fn dial(&self, _: &str, _: &Dialling) -> io::Result<Box<dyn ByteStream>> {
        let (world, pool) = (&self.world, self.pool);
        loop {
            let healed = world.network.healed.notified();
            sleep(world.delay(dials_of(pool))).await;
            if world.network.is_whole(pool) {
                break;
            }
            healed.await;
        }
        let wire = Wire::new(world.next_wire(), pool);
        let [at_pool, at_head] = [Side::Pool, Side::Head].map(|side| SimStream::new(world, &wire, side));
        let handshake_time = world.delay(dials_of(pool));
        let handshake = Box::pin(async move {
            sleep(handshake_time).await;
            let member = Some((Member::Pool(PoolId(pool as u32)), key_of(pool)));
            Ok(Identified { stream: Box::new(at_head) as _, member })
        });
        let from = SocketAddr::from(([10, 0, 0, pool as u8], 40_000));
        {
            let mut backlog = world.network.backlog.lock();
            let Some(backlog) = backlog.as_mut() else {
                return Err(io::ErrorKind::ConnectionRefused.into());
            };
            backlog.push_back(Caller { from, handshake });
        }
        let mut links = world.network.links.lock();
        links[pool].wires.retain(|wire| wire.strong_count() > 0);
        links[pool].wires.push(Arc::downgrade(&wire));
        drop(links);
        world.network.called.notify_waiters();
        world.note(LineSubject::Everything, (pool, wire.number), || {
            format!("pool {pool}: dials, connection {}", wire.number)
        });
        Ok(Box::new(at_pool))
    }
}

fn dials_of(pool: usize) -> u64 {
    0x1_0000 + pool as u64
}

/// The head's port.
pub struct SimPort(pub Arc<World>);

#[async_trait]
impl Port for SimPort {
    async fn accept(&self) -> io::Result<Caller> {
        let network = &self.0.network;
        loop {
            let called = network.called.notified();
            tokio::pin!(called);
            called.as_mut().enable();
            if let Some(caller) = network.backlog.lock().as_mut().and_then(VecDeque::pop_front) {
                return Ok(caller);
            }
            called.await;
        }
    }
}
