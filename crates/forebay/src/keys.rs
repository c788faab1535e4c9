//! Renewal of the keys that tickets are sealed with: by an administrator ([`command`]), and by itself after
//! `keys.renew_after_s`.
//!
//! A renewal goes to disk first, so that no start goes back to keys that were replaced. Then the pools accept the new keys
//! besides the former ones, and then the head seals with them. After `keys.overlap_s` the pools drop the former ones: a
//! client that has a ticket of these comes back to the head for another.
//!
//! Each start has a term, which its tickets say. When the time to reclaim is over, the pools refuse tickets to write of older
//! terms ([`FormerTickets`]).

pub mod command;
mod store;
mod terms;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use api::{FormerTickets, KeyGeneration, KeyMaterial, PoolKey, Term, TicketKeys};
use async_trait::async_trait;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::timeout;
use types::display::Seconds;
use types::{Clock, PoolId};

use crate::config::keys::KeyRules;
use crate::data_dir::DataDir;
use store::{KeyStore, Renewal};
use terms::{TermStore, Terms};

/// How often it is looked whether the keys are due.
const PERIOD: Duration = Duration::from_secs(1);
/// Waits of one attempt to end a grace period: the rest of the head's housekeeping comes after it.
const STORE_TIME: Duration = Duration::from_secs(1);
const WRITES_TIME: Duration = Duration::from_millis(50);
const WRITES_LOOK: Duration = Duration::from_millis(2);
/// For pools of other hosts to take new keys before the head seals with them. They come for them when they renew their leases.
const KEYS_TIME: Duration = Duration::from_secs(3);
const KEYS_LOOK: Duration = Duration::from_millis(20);
/// A disk that is full or read-only stays so for a while.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeysReport {
    pub generation: u32,
    pub age_s: u64,
    /// Pools accept tickets of the generation before for so long; 0: no more.
    pub former_left_s: u64,
}

impl std::fmt::Display for KeysReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let KeysReport { generation, age_s, former_left_s } = *self;
        write!(f, "generation {generation}, {} old", Seconds(age_s))?;
        match generation.checked_sub(1) {
            Some(former) if former_left_s > 0 => {
                write!(f, "; tickets of generation {former} for {} more", Seconds(former_left_s))
            }
            _ => Ok(()),
        }
    }
}

/// Pools of other hosts, which take keys and terms when they renew their leases. The error names the first that has not.
pub trait PoolsElsewhere: Send + Sync {
    /// They refuse tickets to write of older terms, and no write by one is under way.
    fn have_floor(&self, floor: Term) -> Result<(), PoolId>;

    /// They open tickets of that generation.
    fn have_keys(&self, generation: KeyGeneration) -> Result<(), PoolId>;
}

/// The keys of tickets of an instance: the head's, and those of its pools.
pub struct Keys {
    ticket_keys: TicketKeys,
    rules: KeyRules,
    clock: Arc<dyn Clock>,
    /// Held during a renewal, so that of two each has its own generation. Taken before `state`.
    store: Mutex<KeyStore>,
    /// Held while it is written: one write of the floor at a time.
    terms: Arc<tokio::sync::Mutex<TermStore>>,
    state: Mutex<State>,
    elsewhere: OnceLock<Arc<dyn PoolsElsewhere>>,
}

struct State {
    generation: KeyGeneration,
    /// Pools of other hosts are given this one: the one that is sealed with, or the next.
    offered: KeyGeneration,
    age: Age,
    /// Whether pools accept the generation before.
    has_former: bool,
    /// The lowest term whose tickets to write pools honour.
    floor: Term,
    pool_keys: BTreeMap<PoolId, PoolKey>,
}

/// Counted in monotonic time, so that a wall clock that is set while the process runs changes nothing.
struct Age {
    at_start: Duration,
    started: Duration,
}

impl Age {
    fn at(&self, now: Duration) -> Duration {
        self.at_start + now.saturating_sub(self.started)
    }
}

/// Notes the first generation and that no term was counted, for a data directory whose pools are about to be recorded:
/// from then on a missing note is a lost one. Blocks.
pub fn begin(data: &DataDir, clock: &dyn Clock) -> Result<()> {
    if data.is_recorded(0) {
        return Ok(());
    }
    terms::prepare(data)?;
    KeyStore::of(data).load_or_begin(wall_s(clock)).map(drop)
}

/// Whether what is stored can be read; nothing is made.
pub fn check(data: &DataDir) -> Result<()> {
    KeyStore::of(data).load()?;
    terms::check(data)
}

impl Keys {
    pub fn open(data: &DataDir, rules: KeyRules, clock: Arc<dyn Clock>) -> Result<Keys> {
        let store = KeyStore::of(data);
        let now_s = wall_s(&*clock);
        let Renewal { generation, renewed_s } = store.load_or_begin(now_s)?;
        let terms = TermStore::begin(data)?;
        let Terms { term, floor } = terms.terms();
        let age = Age {
            at_start: Duration::from_secs(now_s.saturating_sub(renewed_s)),
            started: clock.monotonic(),
        };
        let has_former = generation > KeyGeneration::FIRST && age.at_start < rules.overlap();
        Ok(Keys {
            ticket_keys: TicketKeys::new(&data.secret, term, generation),
            rules,
            clock,
            store: Mutex::new(store),
            terms: Arc::new(tokio::sync::Mutex::new(terms)),
            state: Mutex::new(State {
                generation,
                offered: generation,
                age,
                has_former,
                floor,
                pool_keys: BTreeMap::new(),
            }),
            elsewhere: OnceLock::new(),
        })
    }

    /// The head's. They are renewed with these.
    pub fn ticket_keys(&self) -> TicketKeys {
        self.ticket_keys.clone()
    }

    /// That of a pool, for all its faces. It is renewed with these.
    pub fn pool_key(&self, pool: PoolId) -> PoolKey {
        let mut state = self.state.lock();
        let (has_former, floor) = (state.has_former, state.floor);
        let made = || {
            let key = self.ticket_keys.pool_key(pool);
            key.floor().begin_term(self.ticket_keys.sealer().term());
            key.floor().raise(floor);
            if !has_former {
                key.drop_former();
            }
            key
        };
        state.pool_keys.entry(pool).or_insert_with(made).clone()
    }

    /// Pools that are asked from now on before tickets are sealed with other keys. Said once.
    pub fn serve_elsewhere(&self, pools: Arc<dyn PoolsElsewhere>) {
        assert!(self.elsewhere.set(pools).is_ok(), "the pools elsewhere are told once");
    }

    /// The keys of a pool of another host: the newest, and the former as long as they are accepted.
    pub fn material(&self, pool: PoolId) -> (KeyMaterial, Option<KeyMaterial>) {
        let state = self.state.lock();
        let of = |generation| self.ticket_keys.material(pool, generation);
        let has_former = state.has_former || state.offered > state.generation;
        let former = state.offered.previous().filter(|_| has_former);
        (of(state.offered), former.map(of))
    }

    /// The term of this start, and the lowest whose tickets to write are honoured.
    pub fn terms(&self) -> (Term, Term) {
        (self.ticket_keys.sealer().term(), self.state.lock().floor)
    }

    /// Tickets are sealed with new keys when this returns. Blocks.
    pub fn renew(&self) -> Result<KeysReport> {
        self.renew_in(&mut self.store.lock())
    }

    pub fn report(&self) -> KeysReport {
        let state = self.state.lock();
        let age = state.age.at(self.clock.monotonic());
        let former_left =
            if state.has_former { self.rules.overlap().saturating_sub(age) } else { Duration::ZERO };
        KeysReport {
            generation: state.generation.0,
            age_s: age.as_secs(),
            // Rounded up: 0 says that it is over.
            former_left_s: former_left.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX),
        }
    }

    /// Ends overlaps, and renews what is due, until stopped.
    pub async fn run(self: Arc<Keys>, mut stop: watch::Receiver<bool>) {
        let mut not_before = Duration::ZERO;
        while !*stop.borrow() {
            self.end_overlap();
            if self.is_due() && self.clock.monotonic() >= not_before {
                let keys = Arc::clone(&self);
                let renewed = tokio::task::spawn_blocking(move || keys.renew_if_due()).await;
                if let Err(error) = renewed.map_err(anyhow::Error::from).and_then(|done| done) {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "cannot renew the keys of pool tickets; the server will retry"
                    );
                    not_before = self.clock.monotonic() + PAUSE_AFTER_FAILURE;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                _ = stop.changed() => {}
            }
        }
    }

    fn end_overlap(&self) {
        let mut state = self.state.lock();
        if state.has_former && state.age.at(self.clock.monotonic()) >= self.rules.overlap() {
            state.has_former = false;
            state.pool_keys.values().for_each(PoolKey::drop_former);
        }
    }

    fn is_due(&self) -> bool {
        let age = self.state.lock().age.at(self.clock.monotonic());
        self.rules.renew_after().is_some_and(|renew_after| age >= renew_after)
    }

    fn renew_if_due(&self) -> Result<()> {
        let mut store = self.store.lock();
        // An administrator may have been faster.
        if self.is_due() {
            self.renew_in(&mut store)?;
        }
        Ok(())
    }

    fn renew_in(&self, store: &mut KeyStore) -> Result<KeysReport> {
        let former = self.state.lock().generation;
        let generation = former.next().context("cannot renew the keys: all 2³² generations are used")?;
        store.store(Renewal { generation, renewed_s: wall_s(&*self.clock) })?;
        self.offer(generation);
        self.take(generation);
        tracing::info!(generation = generation.0, "renewed the keys of pool tickets");
        Ok(self.report())
    }

    /// Pools of other hosts take the keys besides those of now. One that does not come for them is not waited for: until it
    /// does, clients with new tickets are sent back to the head.
    fn offer(&self, generation: KeyGeneration) {
        self.state.lock().offered = generation;
        let Some(pools) = self.elsewhere.get() else { return };
        let began = Instant::now();
        while let Err(pool) = pools.have_keys(generation) {
            if began.elapsed() > KEYS_TIME {
                return tracing::warn!(%pool, "pool has not taken the new keys of its tickets yet");
            }
            std::thread::sleep(KEYS_LOOK);
        }
    }

    /// The pools first: they are to accept what the head seals.
    fn take(&self, generation: KeyGeneration) {
        let mut state = self.state.lock();
        for (pool, key) in &state.pool_keys {
            key.accept(self.ticket_keys.accepted(*pool, generation));
        }
        self.ticket_keys.renew(self.ticket_keys.sealer().term(), generation);
        state.generation = generation;
        state.age = Age { at_start: Duration::ZERO, started: self.clock.monotonic() };
        state.has_former = true;
    }
}

/// The tickets to write of terms before this one.
pub struct FormerTerms(pub Arc<Keys>);

impl FormerTerms {
    async fn store_floor(&self, term: Term) -> Result<(), String> {
        const SILENT: &str = "the disk of the data directory does not answer";
        let mut terms = Arc::clone(&self.0.terms).try_lock_owned().map_err(|_| SILENT)?;
        if terms.terms().floor >= term {
            return Ok(());
        }
        let store = tokio::task::spawn_blocking(move || terms.raise_floor(term));
        let stored = timeout(STORE_TIME, store).await.map_err(|_| SILENT)?;
        stored.map_err(anyhow::Error::from).flatten().map_err(|error| format!("{error:#}"))
    }
}

#[async_trait]
impl FormerTickets for FormerTerms {
    async fn void(&self) -> Result<(), String> {
        let term = self.0.ticket_keys.sealer().term();
        self.store_floor(term).await?;
        let floors: Vec<_> = {
            let mut state = self.0.state.lock();
            state.floor = term;
            state.pool_keys.values().map(|key| Arc::clone(key.floor())).collect()
        };
        floors.iter().for_each(|floor| floor.raise(term));
        let settled = async {
            while !floors.iter().all(|floor| floor.is_settled()) {
                tokio::time::sleep(WRITES_LOOK).await;
            }
        };
        let in_time = timeout(WRITES_TIME, settled).await;
        in_time.map_err(|_| "writes by them do not end at the pools".to_owned())?;
        let Some(pools) = self.0.elsewhere.get() else { return Ok(()) };
        pools.have_floor(term).map_err(|pool| format!("{pool} does not say yet that it refuses them"))
    }
}

fn wall_s(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.now().seconds).unwrap_or(0)
}

#[cfg(test)]
mod tests;
