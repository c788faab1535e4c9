//! Opening: an engine finds or makes its database, a new start is counted, and the threads begin.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, mpsc};

use parking_lot::Mutex;

use crate::accounts::Accounts;
use crate::cache::Cache;
use crate::committer::{Committer, CommitterState, Progress};
use crate::config::{Config, Database};
use crate::engine::{Opened, Past};
use crate::ids::Ids;
use crate::keeper::{Keeper, Witness};
use crate::lookups::Lookups;
use crate::open_error::OpenError;
use crate::queue::FairQueue;
use crate::service::SqlNamespace;
use crate::session::Purpose;
use crate::thread::spawn;
use crate::timeline::Noted;
use crate::{postgres, sqlite};

impl SqlNamespace {
    /// Blocks on the database; call it before serving.
    pub fn open(config: Config) -> Result<SqlNamespace, OpenError> {
        SqlNamespace::open_after(config, Vec::new())
    }

    /// Refuses a database that is not the one of which something was noted before.
    pub fn open_after(config: Config, noted: Vec<Noted>) -> Result<SqlNamespace, OpenError> {
        let past = Past { noted, keeper: Arc::default() };
        let opened = match &config.database {
            Database::Sqlite(dir) => sqlite::open(dir, &config, &past)?,
            Database::Postgres(server) => postgres::open(server, &config, &past)?,
        };
        start(config, opened, past.keeper)
    }

    /// Has noted from now on how far it comes. To be called before any file is made.
    pub fn keep_marks(&self, witness: Arc<dyn Witness>) -> io::Result<()> {
        self.shared.keeper.keep(witness, self.log.clone())?;
        if !self.shared.keeper.is_covering() {
            // It is tried again, and told.
            self.shared.writes.nudge();
        }
        Ok(())
    }
}

fn start(config: Config, opened: Opened, keeper: Arc<Keeper>) -> Result<SqlNamespace, OpenError> {
    let state = opened.state;
    let ids = Ids::new(state.ends);
    let cookies_end = AtomicU64::new(ids.cookies.end());
    let next_file = AtomicU64::new(ids.files.next());
    let habits = opened.store.habits();
    let shared = Arc::new(CommitterState {
        cache: Cache::new(config.cache_bytes, state.sequence),
        accounts: Accounts::default(),
        clock: Arc::clone(&config.clock),
        instance: state.instance,
        sync: config.sync,
        writes: FairQueue::new(config.queue_len_max),
        committer: Mutex::default(),
        habits,
        is_looked_after: AtomicBool::new(false),
        progress: Progress { cookies_end, next_file, totals: Mutex::new(state.totals) },
        has_ended_cleanly: AtomicBool::new(false),
        troubles: Mutex::default(),
        presence: opened.presence,
        keeper,
    });
    let mut committer = Committer::new(opened.store, ids, config.group_len_max, state.sequence);
    let (tell, told) = mpsc::channel();
    let (reads, of_thread) = (Arc::clone(&opened.reads), Arc::clone(&shared));
    let thread = spawn("namespace-write", move || {
        let loaded = reads.session(Purpose::Look).and_then(|mut session| {
            committer.load_accounts(&of_thread, &mut *session).map_err(|error| (&error).into())
        });
        if loaded.is_ok() {
            *of_thread.committer.lock() = Some(committer);
        }
        let _ = tell.send(loaded);
        of_thread.commit_all();
    });
    let thread = thread.map_err(|error| OpenError::NoThread(error.to_string()))?;
    let loaded = told.recv().map_err(|_| OpenError::NoThread("it ended".to_owned()))?;
    loaded.map_err(|error| OpenError::Accounts(error.to_string()))?;
    let lookups = Lookups { shared: Arc::clone(&shared), reads: Arc::clone(&opened.reads) };
    let namespace = SqlNamespace {
        shared,
        lookups,
        reads: opened.reads,
        committer: Mutex::new(Some(thread)),
        background: Arc::new(Mutex::new(opened.background)),
        log: opened.log,
        lengths_in_doubt: AtomicBool::new(false),
    };
    Ok(namespace)
}
