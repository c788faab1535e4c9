//! Connections of pools to the head. Each keeps the order of what is sent in one direction. A cut holds back what is sent, as
//! the network does for TCP; a connection that is lost is lost at both ends, at different times.

use std::time::Duration;

use super::{AtPool, Event, Message, World};
use crate::rules::plan::FAULTS_END;

const DELAY_MAX: Duration = Duration::from_millis(800);
/// After the last fault: shorter than a pool may be silent.
const CALM_DELAY_MAX: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Link {
    /// Nothing arrives at the head, at the pool.
    is_cut: [bool; 2],
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

    pub fn is_whole(&self, pool: usize) -> bool {
        !self.links[pool].is_cut.contains(&true)
    }

    pub fn connect(&mut self, pool: usize) -> u64 {
        self.links[pool].last = Default::default();
        self.connections += 1;
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
        let max = if self.now < FAULTS_END { DELAY_MAX } else { CALM_DELAY_MAX };
        let delay = self.some_time(max);
        let link = &mut self.network.links[pool];
        if link.is_cut[direction] {
            link.held.push(event);
            return;
        }
        let at = (self.now + delay).max(link.last[direction]);
        link.last[direction] = at;
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

    /// The head learns of it later. Messages that are on the way may still come.
    pub(super) fn head_end_closes(&mut self, pool: usize, connection: u64) {
        self.send(pool, 0, Event::HeadLoses { pool, connection });
    }

    pub(super) fn pool_end_closes(&mut self, pool: usize, connection: u64) {
        let starts = self.pools[pool].starts();
        self.send(pool, 1, Event::AtPool { pool, starts, what: AtPool::Lost { connection } });
    }
}
