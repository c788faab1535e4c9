//! Connections of pools to the head. Each keeps the order of what is sent in one direction, but for fences: the head has tasks
//! that send them. A cut holds back what is sent, as the network does for TCP; a connection that is lost is lost at both
//! ends, at different times.

use std::time::Duration;

use super::{AtPool, Event, Message, World};
use crate::rules::plan::FAULTS_END;

const DELAY_MAX: Duration = Duration::from_millis(800);
/// Of a slow link, from half of it on.
const SLOW_DELAY_MAX: Duration = Duration::from_millis(1_600);
/// After the last fault: shorter than a pool may be silent.
const CALM_DELAY_MAX: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Link {
    /// Nothing arrives at the head, at the pool.
    is_cut: [bool; 2],
    slow_until: Duration,
    held: Vec<Event>,
    /// When what was sent last arrives, by direction and for the connection of now.
    last: [Duration; 2],
}

pub struct Network {
    links: Vec<Link>,
    connections: u64,
}

impl Network {
    pub fn new(pools: usize) -> Network {
        Network { links: (0..pools).map(|_| Link::default()).collect(), connections: 0 }
    }

    pub fn cut(&mut self, pool: usize, is_to_head: bool) {
        self.links[pool].is_cut[usize::from(!is_to_head)] = true;
    }

    pub fn slow(&mut self, pool: usize, until: Duration) {
        self.links[pool].slow_until = until;
    }

    pub fn is_whole(&self, pool: usize) -> bool {
        !self.links[pool].is_cut.contains(&true)
    }

    pub fn is_calm(&self, pool: usize, now: Duration) -> bool {
        self.is_whole(pool) && self.links[pool].slow_until <= now
    }

    pub fn connect(&mut self, pool: usize) -> u64 {
        self.links[pool].last = Default::default();
        self.connections += 1;
        self.connections
    }

    /// The last one that was made, from any pool.
    pub fn newest_connection(&self) -> u64 {
        self.connections
    }
}

impl World<'_> {
    pub(super) fn send_to_head(&mut self, pool: usize, connection: u64, message: Message) {
        self.send(pool, 0, Event::ToHead { pool, connection, message });
    }

    pub(super) fn send_to_pool(&mut self, pool: usize, connection: u64, message: Message) {
        let starts = self.pools[pool].starts();
        self.send(pool, 1, Event::AtPool { pool, starts, what: AtPool::Message { connection, message } });
    }

    fn send(&mut self, pool: usize, direction: usize, event: Event) {
        let delay = if self.now >= FAULTS_END {
            self.some_time(CALM_DELAY_MAX)
        } else if self.network.links[pool].slow_until > self.now {
            SLOW_DELAY_MAX / 2 + self.any_time(SLOW_DELAY_MAX / 2)
        } else {
            self.some_time(DELAY_MAX)
        };
        let link = &mut self.network.links[pool];
        if link.is_cut[direction] {
            link.held.push(event);
            return;
        }
        let mut at = self.now + delay;
        if !event.is_of_fences() {
            at = at.max(link.last[direction]);
            link.last[direction] = at;
        }
        self.schedule(at, event);
    }

    pub(super) fn heal(&mut self, pool: usize) {
        self.network.links[pool].is_cut = [false; 2];
        for event in std::mem::take(&mut self.network.links[pool].held) {
            let direction = usize::from(!matches!(event, Event::ToHead { .. } | Event::HeadLoses { .. }));
            self.send(pool, direction, event);
        }
    }

    pub(super) fn reset(&mut self, pool: usize) {
        let Some(connection) = self.pools[pool].connection() else { return };
        self.pool_end_closes(pool, connection);
        self.head_end_closes(pool, connection);
    }

    pub(super) fn lose_data(&mut self, pool: usize) {
        if let Some(head) = &mut self.head {
            head.end_session(pool);
        }
    }

    /// The head learns of it later. Messages that are on the way may still come.
    pub(super) fn head_end_closes(&mut self, pool: usize, connection: u64) {
        self.send(pool, 0, Event::HeadLoses { pool, connection });
    }

    pub(super) fn pool_end_closes(&mut self, pool: usize, connection: u64) {
        let starts = self.pools[pool].starts();
        self.send(pool, 1, Event::AtPool { pool, starts, what: AtPool::Lost { connection } });
    }
}
