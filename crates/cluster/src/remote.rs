//! A pool on another host, as the head has it.
//!
//! The pool dials the head, and the session hands its connections over (`connect`, `add_data`). Calls that find no connection
//! wait for one a moment; then their callers get [`PoolError::Unknown`], whatever they asked: doors have clients ask again
//! after it, and tell them of no error because a pool starts anew. An open replica is a ticket and a verifier, so it outlives
//! connections and starts of the pool.
//!
//! Sessions, the lease of the pool and the fences that it missed are judged by the rules of `cluster-state`. A fence counts
//! when the pool has confirmed it or its lease is over.

mod calls;
mod fences;
mod links;
mod replica;
mod report;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Weak};
use std::time::Duration;

use api::{Answers, Birth, Description, OpenReplica, Pool, PoolError, PoolStatus, ReplicaFacts, Term};
use async_trait::async_trait;
use cluster_state::{
    Arrival, HeldTerms, LeaseRules, PoolAtHead, Process, Refusal, Renewal, SessionId, Standing, Terms,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use types::{Clock, Epoch, FileId, PoolId};
use xdr::Xdr;

use crate::rpc::Connection;
use crate::tasks::Tasks;
use crate::wire::{
    self, Batch, Described, Facts, Greeting, Listed, Opened, Replies, Reply, Ticket, procedure,
};

use links::{Lane, Links};
use replica::RemoteReplica;
pub use report::RemoteReport;

/// Of descriptions in one message.
const DESCRIPTIONS_BYTES_MAX: usize = 2 << 20;

pub struct RemotePool {
    id: PoolId,
    clock: Arc<dyn Clock>,
    /// Answers for listings are waited for so long.
    suspect: Duration,
    links: Arc<Links>,
    /// Leaf lock.
    state: Arc<Mutex<State>>,
    /// The lease has another end, or a fence was confirmed.
    changed: Notify,
    tasks: Tasks,
    myself: Weak<RemotePool>,
}

struct State {
    rules: PoolAtHead,
    /// As the pool told it last.
    status: PoolStatus,
    clone_granularity: Option<u32>,
    /// Since when the pool is known here, by the clock's monotonic time.
    known_since: Duration,
    /// Times that it has connected since then.
    sessions: u64,
    /// A task delivers fences.
    is_delivering: bool,
    /// By an administrator, for people: the registry lets none of its keys in.
    is_shut_out: bool,
}

impl RemotePool {
    /// Called in a runtime.
    pub fn new(id: PoolId, rules: LeaseRules, clock: Arc<dyn Clock>) -> Arc<RemotePool> {
        RemotePool::known(id, rules, rules.lease, clock)
    }

    /// One that an earlier start may have given a lease, which was no longer than `longest`.
    pub fn known(id: PoolId, rules: LeaseRules, longest: Duration, clock: Arc<dyn Clock>) -> Arc<RemotePool> {
        let known_since = clock.monotonic();
        let at_head = PoolAtHead::new(rules, longest, known_since);
        let tasks = Tasks::of_caller();
        let state = Arc::new(Mutex::new(State {
            rules: at_head,
            status: PoolStatus::untold(id),
            clone_granularity: None,
            known_since,
            sessions: 0,
            is_delivering: false,
            is_shut_out: false,
        }));
        let (asked, time) = (Arc::clone(&state), Arc::clone(&clock));
        let takes_changes = Box::new(move || asked.lock().rules.takes_changes(time.monotonic()));
        Arc::new_cyclic(|myself| RemotePool {
            id,
            clock,
            suspect: rules.suspect,
            links: Links::new(id, rules.lease, tasks.clone(), takes_changes),
            state,
            changed: Notify::new(),
            tasks,
            myself: Weak::clone(myself),
        })
    }

    /// The pool has dialled: a session begins, and the former one ends with its connections.
    pub fn connect(
        &self,
        arrival: Arrival,
        control: Arc<Connection>,
        greeting: Greeting,
    ) -> Result<SessionId, Refusal> {
        let now = self.clock.monotonic();
        let (session, has_missed) = {
            let mut state = self.state.lock();
            let session = state.rules.connect(arrival, now)?;
            state.status = PoolStatus { id: self.id, ..greeting.status };
            state.clone_granularity = greeting.clone_granularity;
            state.sessions += 1;
            (session, !state.rules.lease().missed(None, 1).is_empty())
        };
        self.changed.notify_waiters();
        self.links.connect(session, arrival.process, control);
        if has_missed {
            self.deliver_fences();
        }
        Ok(session)
    }

    /// The terms that the pool is told in the answer to its HELLO. Those of the head are looked up after `connect`.
    pub fn welcome(&self, terms: Terms) -> Terms {
        self.state.lock().rules.welcome(terms)
    }

    /// Another connection of the session, for I/O. `false`: its session is not the one of now.
    pub fn add_data(&self, process: Process, data: Arc<Connection>) -> bool {
        self.links.add_data(process, data)
    }

    /// A connection is lost, and its session ends if it is the one of now. Returns whether it was.
    pub fn disconnect(&self, connection: &Arc<Connection>) -> bool {
        let Some(session) = self.links.disconnect(connection) else { return false };
        self.state.lock().rules.disconnect(session);
        self.changed.notify_waiters();
        true
    }

    /// The pool has said that it takes no writes any more. `false`: a process of before said so.
    pub fn end_lease(&self, session: SessionId) -> bool {
        let is_of_now = self.state.lock().rules.end(session, self.clock.monotonic());
        self.changed.notify_waiters();
        is_of_now
    }

    /// The pool takes no writes below the floor, or takes none before it has that floor.
    pub fn has_floor(&self, floor: Term) -> bool {
        self.state.lock().rules.has_floor(floor, self.clock.monotonic())
    }

    /// It is connected and not silent, with or without a lease.
    pub fn is_heard(&self) -> bool {
        self.state.lock().rules.lease().is_heard(self.clock.monotonic())
    }

    /// The pool asks for its lease, and tells which terms it holds. Fences that it missed are delivered to it.
    pub fn renew(&self, session: SessionId, held: HeldTerms, status: PoolStatus) -> Renewal {
        let now = self.clock.monotonic();
        let renewal = {
            let mut state = self.state.lock();
            let renewal = state.rules.renew(session, held, now);
            if renewal != Renewal::Unknown {
                state.status = PoolStatus { id: self.id, ..status };
            }
            renewal
        };
        self.changed.notify_waiters();
        match renewal {
            Renewal::Lease(_) => self.links.begin_parked(),
            Renewal::NotYet { has_missed: true } => self.deliver_fences(),
            Renewal::NotYet { has_missed: false } | Renewal::Unknown => {}
        }
        renewal
    }

    /// Whether an administrator has shut its host out, for [`Pool::status`].
    pub fn set_shut_out(&self, is_shut_out: bool) {
        self.state.lock().is_shut_out = is_shut_out;
    }

    pub fn standing(&self) -> Standing {
        self.state.lock().rules.standing(self.clock.monotonic())
    }

    /// Calls that were sent to the pool since the start of the head, by the name of their procedure.
    pub fn calls(&self) -> Vec<(&'static str, u64)> {
        self.links.calls()
    }

    async fn ask<A: Xdr, W: Xdr + Send + Unpin + 'static>(
        &self,
        procedure: u32,
        arguments: &A,
        repeats: bool,
    ) -> Result<W, PoolError> {
        self.links.start(Lane::Control, procedure, arguments, repeats, Ok).await
    }

    async fn answers<A: Xdr, W, T>(
        &self,
        procedure: u32,
        batch: Batch<A>,
        repeats: bool,
        understand: impl Fn(W) -> T,
    ) -> Answers<T>
    where
        W: Xdr + Send + Unpin + 'static,
    {
        let count = batch.files.len();
        match self.ask::<_, Replies<W>>(procedure, &batch, repeats).await {
            Ok(Replies { answers }) if answers.len() == count => {
                let understood = |reply: Reply<W>| reply.into_result(self.id).map(&understand);
                answers.into_iter().map(understood).collect()
            }
            Ok(_) => Answers::alike(count, &PoolError::Unknown(self.id)),
            Err(error) => Answers::alike(count, &error),
        }
    }
}

impl Drop for RemotePool {
    fn drop(&mut self) {
        self.links.close();
    }
}

#[async_trait]
impl Pool for RemotePool {
    fn id(&self) -> PoolId {
        self.id
    }

    async fn open(&self, ticket: &api::Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
        let (lane, id) = (Lane::Data(ticket.file), self.id);
        let understand = move |reply: Reply<Opened>| reply.into_result(id);
        let opened = self.links.start(lane, procedure::OPEN, &Ticket(*ticket), true, understand).await?;
        Ok(Arc::new(RemoteReplica::new(Arc::clone(&self.links), *ticket, &opened)))
    }

    async fn make(&self, files: &[(FileId, Birth)], within: Duration) -> Answers<()> {
        let batch = Batch::of(files, within, |(file, birth)| (file.0, birth.0));
        self.answers(procedure::MAKE, batch, true, |()| ()).await
    }

    async fn truncate(&self, files: &[(FileId, u64)], within: Duration) -> Answers<ReplicaFacts> {
        let batch = Batch::of(files, within, |(file, size)| (file.0, size));
        self.answers(procedure::TRUNCATE, batch, false, |facts: Facts| facts.0).await
    }

    async fn remove(&self, files: &[FileId], within: Duration) -> Answers<()> {
        let batch = Batch::of(files, within, |file| file.0);
        self.answers(procedure::REMOVE, batch, false, |()| ()).await
    }

    async fn sync_removals(&self, files: &[FileId], within: Duration) -> Result<(), PoolError> {
        let batch = Batch::of(files, within, |file| file.0);
        self.ask::<_, Reply<()>>(procedure::SYNC_REMOVALS, &batch, false).await?.into_result(self.id)
    }

    /// As long as neither the pool has confirmed it nor its lease is over, this waits.
    async fn fence(&self, files: &[(FileId, Epoch)], within: Duration) -> Answers<()> {
        self.fence_files(files, within).await
    }

    /// Listings ask, so a silent pool is not waited for.
    async fn facts(&self, files: &[FileId], within: Duration) -> Answers<Option<ReplicaFacts>> {
        let unknown = || Answers::alike(files.len(), &PoolError::Unknown(self.id));
        if !self.is_heard() {
            return unknown();
        }
        let within = within.min(self.suspect);
        let batch = Batch::of(files, within, |file| file.0);
        let understand = |facts: Option<Facts>| facts.map(|facts| facts.0);
        let asked = self.answers(procedure::FACTS, batch, true, understand);
        timeout(within, asked).await.unwrap_or_else(|_| unknown())
    }

    async fn replicas(&self, after: FileId, limit: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
        let (mut listed, mut after): (Vec<ReplicaFacts>, _) = (Vec::new(), after.0);
        loop {
            let asked = (limit - listed.len()).min(wire::LISTED_MAX);
            let list = wire::List { after, limit: u32::try_from(asked).unwrap_or(u32::MAX) };
            let page: Reply<Listed> = self.ask(procedure::REPLICAS, &list, true).await?;
            let page = page.into_result(self.id)?.replicas;
            if page.len() > asked {
                return Err(PoolError::Unknown(self.id));
            }
            let is_last = page.len() < asked;
            listed.extend(page.into_iter().map(|facts| facts.0));
            match listed.last() {
                Some(last) if !is_last && listed.len() < limit => after = last.file.0,
                _ => return Ok(listed),
            }
        }
    }

    async fn describe(
        &self,
        after: FileId,
        through: FileId,
        files: Vec<Description>,
    ) -> Result<(), PoolError> {
        for describe in messages_of(after, through, files) {
            let told: Reply<()> = self.ask(procedure::DESCRIBE, &describe, false).await?;
            told.into_result(self.id)?;
        }
        Ok(())
    }

    fn clone_granularity(&self) -> Option<u32> {
        self.state.lock().clone_granularity
    }

    fn status(&self) -> PoolStatus {
        let now = self.clock.monotonic();
        let state = self.state.lock();
        let (status, lease) = (state.status.clone(), state.rules.lease());
        if state.is_shut_out {
            return PoolStatus { offline: Some("its host is shut out".to_owned()), is_away: true, ..status };
        }
        if lease.is_heard(now) {
            let without = || "it has no lease: it did not confirm all that it missed".to_owned();
            let refusal = status.read_only.or_else(|| lease.is_over(now).then(without));
            return PoolStatus { read_only: refusal, ..status };
        }
        let silence = match lease.heard() {
            Some(heard) => format!("no answer for {} s", now.saturating_sub(heard).as_secs()),
            None => "it has not connected since the start of the head".to_owned(),
        };
        PoolStatus { offline: Some(silence), is_away: true, ..status }
    }
}

/// The descriptions in messages, each for the part of the range that its files are in.
fn messages_of(after: FileId, through: FileId, mut files: Vec<Description>) -> Vec<wire::Describe> {
    files.sort_by_key(|description| description.file);
    let (mut messages, mut message, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut from = after.0;
    for description in &files {
        let described = Described::of(description);
        let described_bytes = xdr::to_bytes(&described).len();
        let is_full = message.len() >= api::BATCH_LEN_MAX || bytes + described_bytes > DESCRIPTIONS_BYTES_MAX;
        if is_full && !message.is_empty() {
            let before = description.file.0.saturating_sub(1);
            let files = std::mem::take(&mut message);
            messages.push(wire::Describe { after: from, through: before, files });
            (from, bytes) = (before, 0);
        }
        bytes += described_bytes;
        message.push(described);
    }
    messages.push(wire::Describe { after: from, through: through.0, files: message });
    messages
}
