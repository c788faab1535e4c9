//! The metadata server: the operations of the head.
//!
//! `table` calls the handlers, which are grouped by concern. Below them are the parts of the MDS, each with what it
//! keeps, from the lowest up: `file_system`, `clients`, `exports`, `fencing`, `grants`, `recalls`, `lost_locks`,
//! `device`, `drain`, `layouts`, `departures`. A part reaches only parts before it in this list, and a handler is
//! given the parts that it needs. Which pool has what is the matter of `layout`, `segment`, `device`, `drain`,
//! `io_report`, `copy` and `fencing`.

mod acl;
mod assembly;
mod attributes;
mod change;
mod clients;
mod close;
mod component;
mod copy;
mod counts;
mod courtesy;
mod data;
mod delegated_times;
mod delegation;
mod departures;
mod device;
mod directory;
mod drain;
mod exports;
mod fencing;
mod file_handle;
mod file_system;
mod gate;
mod grants;
mod homes;
mod io;
mod io_counters;
mod io_report;
mod layout;
mod layouts;
mod lock;
mod lock_notice;
mod lost_locks;
mod names;
mod offers;
mod open;
mod owners;
mod permit;
mod readdir;
mod recaller;
mod recalls;
mod reports;
mod revocation;
mod security;
mod segment;
mod setattr;
mod stateids;
mod table;
mod threshold;
mod totals;
mod unwritten;
mod xattr;

use std::sync::Arc;

use clients::Clients;
use copy::Copies;
pub use counts::GrantCounts;
use departures::Departures;
use drain::Drain;
use exports::Exports;
use grants::Grants;
use layouts::Layouts;
use lost_locks::LostLocks;
pub(crate) use lost_locks::load_records;
use open::Opening;
use recalls::Recalls;

pub(crate) struct Mds {
    pub clients: Arc<Clients>,
    pub exports: Exports,
    pub grants: Arc<Grants>,
    recalls: Arc<Recalls>,
    lost_locks: Arc<LostLocks>,
    opening: Opening,
    pub layouts: Layouts,
    pub drain: Arc<Drain>,
    pub copies: Copies,
    pub departures: Departures,
}

impl Mds {
    /// Housekeeping: runs once in a while, and when a client has departed.
    pub async fn keep_house(&self) {
        self.departures.release().await;
        self.clients.recall_slots();
        self.recalls.repeat();
        revocation::expire_recalls(&self.grants).await;
        // Of what has just been revoked too.
        self.lost_locks.keep_records().await;
        lock_notice::tell_waiters(&self.clients);
        self.drain.keep_clients_away();
    }
}
