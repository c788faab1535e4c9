//! All clients and sessions of one server, and the entry points of the session operations.
//!
//! Split by concern: `exchange` makes and ends client records, `establish` makes and ends sessions, `sequence` runs
//! requests, `courtesy` ends leases and looks after clients that were silent for too long. Beside these are parts:
//! [`Clients`], [`Sessions`] with their slots, [`Callbacks`] and [`Reclaims`]. `share` leaves room to others than the
//! greediest host. Maps are ordered so that the same steps give the same trace.

pub(crate) mod callbacks;
pub(crate) mod clients;
pub(crate) mod courtesy;
pub(crate) mod establish;
pub(crate) mod exchange;
pub(crate) mod facts;
pub(crate) mod reclaims;
pub(crate) mod records;
pub(crate) mod sequence;
pub(crate) mod sessions;
mod share;

use std::time::Duration;

use callbacks::Callbacks;
use clients::Clients;
use reclaims::Reclaims;
use records::Records;
use sessions::Sessions;

use crate::grace::Grace;
use crate::{KnownClient, SessionConfig};

#[derive(Debug)]
pub struct SessionTable {
    config: SessionConfig,
    records: Records,
    grace: Grace,
}

impl SessionTable {
    /// `now` is a monotonic time, as in every other call. `known` are the records that former instances left.
    pub fn new(config: SessionConfig, now: Duration, known: Vec<KnownClient>) -> SessionTable {
        let grace = Grace::new(now, config.grace, known);
        SessionTable { config, records: Records::default(), grace }
    }

    pub fn lease(&self) -> Duration {
        self.config.lease
    }

    pub fn clients(&self) -> &Clients {
        &self.records.clients
    }

    pub fn clients_mut(&mut self) -> &mut Clients {
        &mut self.records.clients
    }

    pub fn sessions(&self) -> &Sessions {
        &self.records.sessions
    }

    pub fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.records.sessions
    }

    pub fn callbacks(&mut self) -> Callbacks<'_> {
        Callbacks { clients: &self.records.clients, sessions: &mut self.records.sessions }
    }

    pub fn reclaims(&mut self) -> Reclaims<'_> {
        Reclaims { clients: &mut self.records.clients, grace: &mut self.grace }
    }
}

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod model;
