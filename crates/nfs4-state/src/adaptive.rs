//! Which files are worth a read delegation, learnt from how each client uses them.
//!
//! A delegation pays where a client opens the same file again and again, and costs a recall where somebody else changes
//! the file; a scan that opens each file once is to get none. So each client has two queues of bounded length: a file
//! opened once is in *eviction*, a file opened again within the window is in *active*, and files in active are offered
//! to it. A file that rests for the idle period falls back to eviction, and so does the least recently used one of a
//! full active queue; the least recently used one of a full eviction queue is forgotten. (This is the rule of the
//! dCache project's adaptive delegations.) A file whose delegations were recalled is offered to nobody for a while.
//!
//! Nothing here keeps files correct: an offer that should not have been made costs a recall, one that was missed costs
//! opens. That is why every bound may simply forget. There is no clock: each call is told the time, which never goes back.

mod queues;
mod rules;

use std::collections::BTreeMap;
use std::time::Duration;

use nfs4::ClientId4;
use types::FileId;

use queues::{ClientQueues, Queue, Use};

pub use rules::{DelegationMode, DelegationRules, WriteDelegations};

/// Files in the queues of all clients together; at it the client that was longest silent forgets first.
///
/// A file is 48 bytes, and with its share of the trees' nodes at most about 140: 150 MB in all. The bounds per client
/// alone would let 10,000 clients take ten times as much.
const FILES_MAX: usize = 1 << 20;

/// Remembered clients and files, as of the last access: those idle since then still count as active.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdaptiveCounts {
    pub clients: usize,
    pub in_eviction: usize,
    pub in_active: usize,
    pub quiet_files: usize,
}

/// The rule with what it remembers. A call takes logarithmic time; files that fall back for being idle are paid for
/// by the accesses that made them active.
#[derive(Debug)]
pub struct Adaptive {
    rules: DelegationRules,
    clients: BTreeMap<ClientId4, ClientQueues>,
    /// The clients by their last access.
    recency: Queue<ClientId4>,
    /// Sum over all clients.
    files: usize,
    files_max: usize,
    /// Files by their last recall.
    quiet: Queue<FileId>,
    /// Counts accesses and recalls: finer than the clock, so that no two are equally old.
    turn: u64,
}

impl Adaptive {
    pub fn new(rules: DelegationRules) -> Adaptive {
        Adaptive::bounded(rules, FILES_MAX)
    }

    fn bounded(rules: DelegationRules, files_max: usize) -> Adaptive {
        let (clients, recency, quiet) = (BTreeMap::new(), Queue::default(), Queue::default());
        Adaptive { rules, clients, recency, files: 0, files_max, quiet, turn: 0 }
    }

    /// A client opens a file: is it to be offered a delegation?
    pub fn accessed(&mut self, client: ClientId4, file: FileId, now: Duration) -> bool {
        let offered = match self.rules.mode {
            DelegationMode::Off => false,
            DelegationMode::Always => true,
            DelegationMode::Adaptive => self.track(client, file, now),
        };
        self.end_quiet(now);
        offered && !self.is_quiet(file, now)
    }

    /// Delegations of the file were recalled so recently that nobody is offered one.
    pub fn is_quiet(&self, file: FileId, now: Duration) -> bool {
        self.quiet.last_use(file).is_some_and(|recall| recall.age(now) < self.rules.quiet)
    }

    /// Delegations of the file are being recalled: its quiet period begins, or begins anew.
    pub fn recalled(&mut self, file: FileId, now: Duration) {
        if self.rules.mode == DelegationMode::Off {
            return;
        }
        let recall = self.take_turn(now);
        self.quiet.put(file, recall);
        self.end_quiet(now);
        while self.quiet.len() > self.rules.quiet_files_max {
            self.quiet.pop_oldest();
        }
    }

    /// The client is gone, with all that it did.
    pub fn forget_client(&mut self, client: ClientId4) {
        self.recency.remove(client);
        if let Some(queues) = self.clients.remove(&client) {
            self.files -= queues.len();
        }
    }

    pub fn counts(&self) -> AdaptiveCounts {
        AdaptiveCounts {
            clients: self.clients.len(),
            in_eviction: self.clients.values().map(|queues| queues.eviction.len()).sum(),
            in_active: self.clients.values().map(|queues| queues.active.len()).sum(),
            quiet_files: self.quiet.len(),
        }
    }

    /// Whether the file is active now.
    fn track(&mut self, client: ClientId4, file: FileId, now: Duration) -> bool {
        let access = self.take_turn(now);
        let queues = self.clients.entry(client).or_default();
        let before = queues.len();
        let active = queues.access(file, access, &self.rules);
        self.files = self.files + queues.len() - before;
        self.recency.put(client, access);
        if queues.len() == 0 {
            self.forget_client(client);
        }
        while self.files > self.files_max {
            self.forget_one_file();
        }
        active
    }

    /// Of the client that was longest silent: it is the likeliest to be done with what it used.
    fn forget_one_file(&mut self) {
        let (client, _) = self.recency.oldest().expect("who has files has accessed one");
        let queues = self.clients.get_mut(&client).expect("clients and their recency go together");
        queues.forget_one();
        self.files -= 1;
        if queues.len() == 0 {
            self.forget_client(client);
        }
    }

    fn end_quiet(&mut self, now: Duration) {
        while self.quiet.oldest().is_some_and(|(_, recall)| recall.age(now) >= self.rules.quiet) {
            self.quiet.pop_oldest();
        }
    }

    fn take_turn(&mut self, now: Duration) -> Use {
        self.turn += 1;
        Use { turn: self.turn, at: now }
    }
}

#[cfg(test)]
mod tests;
