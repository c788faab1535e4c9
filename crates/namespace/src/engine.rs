//! The parts of an engine, as opening its database yields them.

use std::sync::Arc;

use crate::inode::Instance;
use crate::keeper::Keeper;
use crate::postgres::presence::Presence;
use crate::reads::Reads;
use crate::sqlite::wal_sync::Log;
use crate::store::{NumberEnds, Store, Totals};
use crate::timeline::Noted;
use crate::trouble::Trouble;

/// An engine with its database open, and where the last group left it.
pub struct Opened {
    pub store: Box<dyn Store>,
    pub reads: Arc<dyn Reads>,
    pub background: Box<dyn Background>,
    /// The log to sync where groups are answered before they are on disk.
    pub log: Option<Arc<Log>>,
    /// By which it is known whether another head has taken over, where that can be.
    pub presence: Option<Arc<Presence>>,
    pub state: State,
}

/// Marks of a database from before it is opened, and the keeper of later ones.
#[derive(Clone, Default)]
pub struct Past {
    pub noted: Vec<Noted>,
    pub keeper: Arc<Keeper>,
}

/// Threads and locks of an engine beside the committer.
pub trait Background: Send {
    /// Ends it, after the committer has ended. Idempotent; blocks. The lock against other heads is held until the drop.
    fn stop(&mut self);
    /// Why the database takes no changes, where that is known apart from any change.
    fn trouble(&self) -> Option<Trouble> {
        None
    }
}

#[derive(Clone, Copy, Debug)]
pub struct State {
    pub instance: Instance,
    pub ends: NumberEnds,
    /// The last group in the database.
    pub sequence: u64,
    pub totals: Totals,
}
