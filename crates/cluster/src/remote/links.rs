//! The connections to a pool, and the calls that go over them.
//!
//! Calls on one file go over one connection, in the order in which they were begun, also those that waited for a connection.
//! A call whose connection broke begins once more on the next one, if it may be done twice. A change of data waits in the same
//! way for a pool that was passed over and has not made up for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use api::{IoHandle, PoolError};
use bytes::Bytes;
use cluster_state::{Process, SessionId};
use futures_channel::oneshot;
use parking_lot::Mutex;
use tokio::time::Instant;
use types::{FileId, PoolId};
use xdr::{Decoder, Encoder, Xdr};

use super::calls::Calls;
use crate::rpc::{CALLS_MAX, CallError, Connection};
use crate::tasks::Tasks;
use crate::wire::procedure;

/// A call waits for a connection for so long, and a change for a pool that takes it.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
const DATA_CONNECTIONS_MAX: usize = 16;

pub(super) struct Links {
    pool: PoolId,
    /// When the pool has been away for so long, calls do not wait for it.
    away_max: Duration,
    tasks: Tasks,
    calls: Calls,
    /// Whether the head may change data at the pool now.
    takes_changes: Box<dyn Fn() -> bool + Send + Sync>,
    /// Held while a call is begun on a connection, whose locks come behind it, as those of `takes_changes`.
    state: Mutex<State>,
}

struct State {
    session: Option<Session>,
    /// Since when there is no connection.
    away_since: Option<Instant>,
    /// Calls that wait, in their order, each with the end of its patience.
    parked: VecDeque<(Instant, Call)>,
    /// A task ends the patience of the parked calls.
    is_watched: bool,
}

struct Session {
    id: SessionId,
    process: Process,
    control: Arc<Connection>,
    data: Vec<Arc<Connection>>,
}

/// The connection that a call takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lane {
    Control,
    /// Of a file. The control connection, where there is no other.
    Data(FileId),
}

type Done = Box<dyn FnOnce(Result<Decoder, PoolError>) + Send>;

struct Call {
    lane: Lane,
    procedure: u32,
    arguments: Vec<Bytes>,
    /// It may be done once more.
    repeats: bool,
    done: Done,
}

impl Call {
    /// Of the data of a replica.
    fn is_change(&self) -> bool {
        matches!(
            self.procedure,
            procedure::WRITE
                | procedure::ALLOCATE
                | procedure::DEALLOCATE
                | procedure::EXTEND
                | procedure::COPY
                | procedure::SHARE
                | procedure::TRUNCATE
        )
    }
}

/// A call that ends with an error, to be told without a lock.
type Ended = (Done, PoolError);

impl Links {
    pub fn new(
        pool: PoolId,
        away_max: Duration,
        tasks: Tasks,
        takes_changes: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Arc<Links> {
        let (session, parked) = (None, VecDeque::new());
        let away_since = Some(Instant::now());
        let state = State { session, away_since, parked, is_watched: false };
        let (calls, state) = (Calls::default(), Mutex::new(state));
        Arc::new(Links { pool, away_max, tasks, calls, takes_changes, state })
    }

    pub fn pool(&self) -> PoolId {
        self.pool
    }

    pub fn calls(&self) -> Vec<(&'static str, u64)> {
        self.calls.counts()
    }

    pub fn connect(self: &Arc<Links>, id: SessionId, process: Process, control: Arc<Connection>) {
        let (former, ended) = {
            let mut state = self.state.lock();
            // Of two that come at once the later one stays, as for the lease.
            if state.session.as_ref().is_some_and(|session| session.id > id) {
                drop(state);
                return control.close();
            }
            let former = state.session.replace(Session { id, process, control, data: Vec::new() });
            state.away_since = None;
            (former, self.flush(&mut state))
        };
        tell(ended);
        if let Some(former) = former {
            former.close();
        }
    }

    pub fn add_data(self: &Arc<Links>, process: Process, connection: Arc<Connection>) -> bool {
        let ended = {
            let mut state = self.state.lock();
            let Some(session) = state.session.as_mut().filter(|session| session.process == process) else {
                return false;
            };
            if session.data.len() >= DATA_CONNECTIONS_MAX {
                return false;
            }
            session.data.push(connection);
            self.flush(&mut state)
        };
        tell(ended);
        true
    }

    /// If it was a connection of the session of now, that one ends with all of its connections.
    pub fn disconnect(&self, connection: &Arc<Connection>) -> Option<SessionId> {
        let former = {
            let mut state = self.state.lock();
            let is_of_now = |session: &mut Session| session.has(connection);
            let former = state.session.take_if(is_of_now);
            if former.is_some() {
                state.away_since = Some(Instant::now());
            }
            former
        };
        let former = former?;
        former.close();
        Some(former.id)
    }

    /// Open ones of the session.
    pub fn connections(&self) -> usize {
        let state = self.state.lock();
        state.session.iter().flat_map(Session::all).filter(|one| !one.is_closed()).count()
    }

    /// Ends the session and all calls.
    pub fn close(&self) {
        let (former, parked) = {
            let mut state = self.state.lock();
            (state.session.take(), std::mem::take(&mut state.parked))
        };
        tell(parked.into_iter().map(|(_, call)| (call.done, PoolError::Unknown(self.pool))));
        if let Some(former) = former {
            former.close();
        }
    }

    /// Begins a call now, behind those that were begun before it.
    pub fn start<A: Xdr, W: Xdr, T: Send + 'static>(
        self: &Arc<Links>,
        lane: Lane,
        procedure: u32,
        arguments: &A,
        repeats: bool,
        understand: impl FnOnce(W) -> Result<T, PoolError> + Send + 'static,
    ) -> IoHandle<T> {
        let (sender, answer) = oneshot::channel();
        let unknown = PoolError::Unknown(self.pool);
        let garbled = unknown.clone();
        let done = Box::new(move |results: Result<Decoder, PoolError>| {
            let answer = results.and_then(|mut d| W::decode(&mut d).map_err(|_| garbled));
            drop(sender.send(answer.and_then(understand)));
        });
        let mut encoder = Encoder::new();
        arguments.encode(&mut encoder);
        let arguments = encoder.into_segments();
        self.dispatch(Call { lane, procedure, arguments, repeats, done });
        IoHandle::waiting(answer, unknown)
    }

    fn dispatch(self: &Arc<Links>, call: Call) {
        let ended = {
            let mut state = self.state.lock();
            // Behind changes that wait.
            let is_behind = call.is_change() && state.parked.iter().any(|(_, parked)| parked.is_change());
            match state.connection(call.lane) {
                Some(connection) if !is_behind && self.admits(&call) => self.begin(&connection, call),
                _ => self.park(&mut state, call),
            }
        };
        tell(ended);
    }

    fn admits(&self, call: &Call) -> bool {
        !call.is_change() || (self.takes_changes)()
    }

    /// The pool has a lease: it takes the changes that have waited for it.
    pub fn begin_parked(self: &Arc<Links>) {
        let ended = {
            let mut state = self.state.lock();
            self.flush(&mut state)
        };
        tell(ended);
    }

    fn begin(self: &Arc<Links>, connection: &Connection, call: Call) -> Option<Ended> {
        let Call { lane, procedure, arguments, repeats, done } = call;
        let again = repeats.then(|| arguments.clone());
        let (links, pool) = (Arc::clone(self), self.pool);
        let finish = move |results: Result<Decoder, CallError>| match (results, again) {
            (Ok(results), _) => done(Ok(results)),
            (Err(CallError::Closed), Some(arguments)) => {
                links.dispatch(Call { lane, procedure, arguments, repeats: false, done });
            }
            (Err(CallError::Busy), _) => done(Err(PoolError::Busy(pool))),
            // It was done or not, or the other side has answered something else.
            (Err(CallError::Closed | CallError::TimedOut | CallError::Refused), _) => {
                done(Err(PoolError::Unknown(pool)));
            }
        };
        let begun = connection.begin(procedure, arguments, Box::new(finish));
        if begun.is_ok() {
            self.calls.count(procedure);
        }
        let (error, finish) = begun.err()?;
        let finish: Done = Box::new(move |_| finish(Err(error)));
        Some((finish, PoolError::Busy(pool)))
    }

    fn park(self: &Arc<Links>, state: &mut State, call: Call) -> Option<Ended> {
        let now = Instant::now();
        let away_since = match state.connection(call.lane) {
            Some(_) => now,
            None => *state.away_since.get_or_insert(now),
        };
        if now.duration_since(away_since) > self.away_max {
            return Some((call.done, PoolError::Unknown(self.pool)));
        }
        if state.parked.len() >= CALLS_MAX {
            return Some((call.done, PoolError::Busy(self.pool)));
        }
        state.parked.push_back((now + PATIENCE, call));
        if !std::mem::replace(&mut state.is_watched, true) {
            self.tasks.spawn(Arc::clone(self).watch());
        }
        None
    }

    /// Ends calls that have waited too long, until none waits.
    async fn watch(self: Arc<Links>) {
        loop {
            let (ended, next) = {
                let mut state = self.state.lock();
                let now = Instant::now();
                let late = state.parked.iter().take_while(|(end, _)| *end <= now).count();
                let ended: Vec<_> = state.parked.drain(..late).collect();
                let next = state.parked.front().map(|(end, _)| *end);
                state.is_watched = next.is_some();
                (ended, next)
            };
            tell(ended.into_iter().map(|(_, call)| (call.done, PoolError::Unknown(self.pool))));
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => return,
            }
        }
    }

    /// Begins the calls that have waited and need not wait any longer.
    fn flush(self: &Arc<Links>, state: &mut State) -> Vec<Ended> {
        let parked = std::mem::take(&mut state.parked);
        let mut ended = Vec::new();
        for (end, call) in parked {
            match state.connection(call.lane) {
                Some(connection) if self.admits(&call) => ended.extend(self.begin(&connection, call)),
                _ => state.parked.push_back((end, call)),
            }
        }
        ended
    }
}

impl State {
    fn connection(&self, lane: Lane) -> Option<Arc<Connection>> {
        let session = self.session.as_ref()?;
        if let Lane::Data(file) = lane {
            let open: Vec<_> = session.data.iter().filter(|data| !data.is_closed()).collect();
            if !open.is_empty() {
                return Some(Arc::clone(open[file.0 as usize % open.len()]));
            }
        }
        (!session.control.is_closed()).then(|| Arc::clone(&session.control))
    }
}

impl Session {
    fn all(&self) -> impl Iterator<Item = &Arc<Connection>> {
        std::iter::once(&self.control).chain(&self.data)
    }

    fn has(&self, connection: &Arc<Connection>) -> bool {
        self.all().any(|one| Arc::ptr_eq(one, connection))
    }

    fn close(&self) {
        self.all().for_each(|one| one.close());
    }
}

fn tell(ended: impl IntoIterator<Item = Ended>) {
    ended.into_iter().for_each(|(done, error)| done(Err(error)));
}
