//! Files on which clients have lost locks: such a client gets no layout and no delegation of the file until it has closed it.
//!
//! A client that was cut off has modified pages in memory, perhaps under a lock that another client has by now. When it
//! is back it knows which locks it has lost, and fails what it would write with them; but Linux asks for a layout without
//! looking at locks, and writes those pages at the pools. Without a layout and a delegation its writes fail as they must.
//!
//! Lost are the locks of a client that is gone, those that a revoked delegation to write may have hidden, and, since the
//! server may have been restarted in between, whatever a client asks to reclaim and may not. On the first NO_GRACE Linux
//! asks for no further reclaim and opens its other files anew: unless this start of the server knows all that the client
//! had, every file of it counts until it has closed it. The client comes back with another client id, so that files are
//! remembered for the incarnation of its owner. At a bound all files count as well, and end at once with the last open.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use bytes::Bytes;
use file_state::{DelegationKind, GrantKind};
use nfs4::ClientId4;
use types::FileId;

use super::door_table::DoorTable;
use crate::Incarnation;

#[derive(Clone, Copy, Debug)]
pub(super) struct LostLimits {
    /// Files of one incarnation.
    pub files_each: usize,
    pub files: usize,
    /// Incarnations that have lost something, and are remembered with their files.
    pub incarnations: usize,
    /// Of those that are not, tags; beyond it the oldest.
    pub forgotten: usize,
    /// Incarnations of which everything is known.
    pub known: usize,
}

impl Default for LostLimits {
    fn default() -> Self {
        LostLimits {
            files_each: 1 << 16,
            files: 1 << 18,
            incarnations: 1 << 10,
            forgotten: 1 << 16,
            known: 1 << 14,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct LostLocks {
    pub limits: LostLimits,
    /// Clients that are there, or gone with state that is still to be released.
    clients: BTreeMap<ClientId4, Incarnation>,
    by_incarnation: BTreeMap<Incarnation, BTreeSet<ClientId4>>,
    /// Incarnations that have obtained something from this start of the server: they had no locks that it does not know.
    known: BTreeSet<Incarnation>,
    lost: BTreeMap<Incarnation, LostFiles>,
    /// Files in `lost`.
    files: usize,
    /// Counts what is put into `lost`, so that the oldest is known.
    turn: u64,
    /// Those that made room in `lost`.
    forgotten: Forgotten,
}

/// Never empty.
#[derive(Debug, Default)]
struct LostFiles {
    turn: u64,
    /// All files but `files`, which were closed since, instead of `files`.
    is_all: bool,
    files: BTreeSet<FileId>,
}

impl LostFiles {
    fn has(&self, file: FileId) -> bool {
        self.is_all != self.files.contains(&file)
    }
}

/// Incarnations of which it is known that they have lost something, and no more: all their files count. One of each owner, for
/// what an owner had in memory before it was restarted is gone.
#[derive(Debug, Default)]
struct Forgotten {
    /// Tags, and when they came.
    by_owner: BTreeMap<u64, (u64, [u8; 8])>,
    oldest_first: BTreeMap<u64, u64>,
    /// There were too many of them: an incarnation that was not seen before may be one of those that were dropped.
    has_dropped: bool,
}

impl Forgotten {
    fn put(&mut self, incarnation: &Incarnation, turn: u64, limit: usize) {
        self.take(incarnation);
        let owner = tag(&incarnation.owner);
        self.by_owner.insert(owner, (turn, incarnation.verifier));
        self.oldest_first.insert(turn, owner);
        if self.by_owner.len() > limit
            && let Some((_, owner)) = self.oldest_first.pop_first()
        {
            self.by_owner.remove(&owner);
            self.has_dropped = true;
        }
    }

    /// The owner is there. Whether it is this incarnation that was forgotten.
    fn take(&mut self, incarnation: &Incarnation) -> bool {
        let Some((turn, verifier)) = self.by_owner.remove(&tag(&incarnation.owner)) else { return false };
        self.oldest_first.remove(&turn);
        verifier == incarnation.verifier
    }
}

/// Stands for an owner. If two have the same, one is taken for the other.
fn tag(owner: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    owner.hash(&mut hasher);
    hasher.finish()
}

impl LostLocks {
    /// Files that are remembered, and incarnations.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        (self.files, self.lost.len())
    }

    pub fn is_known(&self, client: ClientId4) -> bool {
        self.clients.contains_key(&client)
    }

    fn introduce(&mut self, client: ClientId4, incarnation: Incarnation) {
        // The owner has been restarted: what it had in memory is gone.
        let same_owner = Incarnation { owner: incarnation.owner.clone(), verifier: [0; 8] };
        let of_owner =
            self.lost.range(same_owner..).take_while(|(other, _)| other.owner == incarnation.owner);
        let former: Vec<_> =
            of_owner.map(|(other, _)| other.clone()).filter(|other| *other != incarnation).collect();
        former.iter().for_each(|former| self.forget(former));
        let is_new = !self.lost.contains_key(&incarnation) && !self.by_incarnation.contains_key(&incarnation);
        if self.forgotten.take(&incarnation) || (self.forgotten.has_dropped && is_new) {
            self.add_all(&incarnation);
        }
        self.by_incarnation.entry(incarnation.clone()).or_default().insert(client);
        self.clients.insert(client, incarnation);
    }

    /// The client, which is introduced, gets something that it does not reclaim.
    fn obtains(&mut self, client: ClientId4) {
        let Some(incarnation) = self.clients.get(&client) else { return };
        if self.known.contains(incarnation) {
            return;
        }
        if self.known.len() >= self.limits.known {
            self.known.clear();
        }
        self.known.insert(incarnation.clone());
    }

    pub fn leave(&mut self, client: ClientId4) {
        let Some(incarnation) = self.clients.remove(&client) else { return };
        if let Some(clients) = self.by_incarnation.get_mut(&incarnation) {
            clients.remove(&client);
            if clients.is_empty() {
                self.by_incarnation.remove(&incarnation);
            }
        }
    }

    /// Other clients of the same incarnation: those that it was before, and whose state is not released yet.
    fn former(&self, client: ClientId4) -> impl Iterator<Item = ClientId4> {
        let incarnation = self.clients.get(&client);
        let clients = incarnation.and_then(|incarnation| self.by_incarnation.get(incarnation));
        clients.into_iter().flatten().copied().filter(move |other| *other != client)
    }

    fn of(&self, client: ClientId4) -> Option<&LostFiles> {
        self.lost.get(self.clients.get(&client)?)
    }

    /// `None`: the client is not introduced, or its owner has been restarted since.
    fn present(&self, client: ClientId4) -> Option<Incarnation> {
        let incarnation = self.clients.get(&client)?;
        let same_owner = Incarnation { owner: incarnation.owner.clone(), verifier: [0; 8] };
        let of_owner = self.by_incarnation.range(same_owner..);
        let mut others = of_owner.take_while(|(other, _)| other.owner == incarnation.owner);
        let is_newer = |(other, clients): (&Incarnation, &BTreeSet<ClientId4>)| {
            other != incarnation && clients.last() > Some(&client)
        };
        (!others.any(is_newer)).then(|| incarnation.clone())
    }

    fn add(&mut self, client: ClientId4, file: FileId) {
        let Some(incarnation) = self.present(client) else { return };
        let (limits, count) = (self.limits, self.files);
        let lost = self.entry(&incarnation);
        if lost.is_all {
            let was_closed = lost.files.remove(&file);
            self.files -= usize::from(was_closed);
        } else if lost.files.contains(&file) {
        } else if lost.files.len() < limits.files_each && count < limits.files {
            lost.files.insert(file);
            self.files += 1;
        } else {
            self.add_all(&incarnation);
        }
    }

    /// All files of the incarnation that it does not close from now on.
    fn add_all(&mut self, incarnation: &Incarnation) {
        let lost = self.entry(incarnation);
        if !lost.is_all {
            lost.is_all = true;
            let files = std::mem::take(&mut lost.files);
            self.files -= files.len();
        }
    }

    /// The oldest of those that are gone makes room. None that is there does, and of these there are as many as of clients.
    fn entry(&mut self, incarnation: &Incarnation) -> &mut LostFiles {
        self.turn += 1;
        let turn = self.turn;
        if !self.lost.contains_key(incarnation) && self.lost.len() >= self.limits.incarnations {
            let gone = self.lost.iter().filter(|(other, _)| !self.by_incarnation.contains_key(*other));
            let oldest = gone.min_by_key(|(_, lost)| lost.turn).map(|(other, _)| other.clone());
            if let Some(oldest) = oldest {
                self.forget(&oldest);
                self.forgotten.put(&oldest, turn, self.limits.forgotten);
            }
        }
        self.lost.entry(incarnation.clone()).or_insert_with(|| LostFiles { turn, ..LostFiles::default() })
    }

    fn forget(&mut self, incarnation: &Incarnation) {
        if let Some(lost) = self.lost.remove(incarnation) {
            self.files -= lost.files.len();
        }
    }

    /// The client has closed the file, or has just made it; `has_nothing_open` of any other.
    fn closed(&mut self, client: ClientId4, file: FileId, has_nothing_open: bool) {
        let Some(incarnation) = self.clients.get(&client).cloned() else { return };
        let (limits, count) = (self.limits, self.files);
        let Some(lost) = self.lost.get_mut(&incarnation) else { return };
        if !lost.is_all {
            let was_lost = lost.files.remove(&file);
            self.files -= usize::from(was_lost);
        } else if lost.files.len() < limits.files_each && count < limits.files {
            let is_new = lost.files.insert(file);
            self.files += usize::from(is_new);
        }
        let is_over = if lost.is_all { has_nothing_open } else { lost.files.is_empty() };
        if is_over {
            self.forget(&incarnation);
        }
    }

    /// Whether the client has lost locks on the file, or is about to, and has not closed it since.
    pub fn has(&self, table: &DoorTable, client: ClientId4, file: FileId) -> bool {
        self.of(client).is_some_and(|lost| lost.has(file))
            || self.former(client).any(|former| table.lock().file(file).may_have_locked(table.holder(former)))
    }

    /// The client is about to lose what it has of all files but these.
    pub fn note_all(&mut self, table: &DoorTable, client: ClientId4, but: &[FileId]) {
        let holder = table.holder(client);
        let locked: Vec<FileId> = {
            let files = table.lock();
            let files_of = files.holders().files_of(holder);
            files_of.filter(|file| !but.contains(file) && files.file(*file).may_have_locked(holder)).collect()
        };
        locked.into_iter().for_each(|file| self.add(client, file));
    }

    /// A delegation to write that its holder did not give back: locks that it had by it are lost.
    pub fn note_delegation(&mut self, table: &DoorTable, client: ClientId4, file: FileId) {
        if table.lock().file(file).delegation_of(table.holder(client)) == Some(DelegationKind::Write) {
            self.add(client, file);
        }
    }

    /// The client has closed the file, once for all, if it has it open no more.
    pub fn note_closed(&mut self, table: &DoorTable, client: ClientId4, file: FileId) {
        let (is_open, held) = {
            let files = table.lock();
            (
                files.file(file).access_of(table.holder(client)) != file_state::Modes::NONE,
                files.holders().held(table.holder(client)),
            )
        };
        if !is_open {
            self.closed(client, file, held.opens == 0 && held.delegations == 0);
        }
    }
}

/// Files on which clients have lost locks.
pub struct Lost<'a> {
    pub(super) table: &'a DoorTable,
    pub(super) memory: &'a mut LostLocks,
}

impl Lost<'_> {
    /// Whether the client's incarnation is known. To be asked before it opens anything.
    pub fn is_introduced(&self, client: ClientId4) -> bool {
        self.memory.is_known(client)
    }

    pub fn introduce(&mut self, client: ClientId4, incarnation: Incarnation) {
        self.memory.introduce(client, incarnation);
    }

    /// The client, which is introduced, gets something that it does not reclaim: it has reclaimed all that it could.
    pub fn obtains(&mut self, client: ClientId4) {
        self.memory.obtains(client);
    }

    /// The client has just made the file: it has lost nothing there.
    pub fn created(&mut self, client: ClientId4, file: FileId) {
        self.memory.closed(client, file, false);
    }

    /// The client asks to reclaim state of the file and may not, or may and has lost some: others may have had locks there.
    pub fn reclaim_refused(&mut self, client: ClientId4, file: FileId) {
        self.memory.add(client, file);
        self.take_lost_layouts(client);
    }

    /// The client may reclaim nothing of this or any other file.
    pub fn reclaims_refused(&mut self, client: ClientId4, file: FileId) {
        let incarnation = self.memory.present(client);
        if let Some(incarnation) = incarnation.filter(|incarnation| !self.memory.known.contains(incarnation))
        {
            self.memory.add_all(&incarnation);
        }
        self.reclaim_refused(client, file);
    }

    /// Whether the client has lost locks on the file, or is about to, and has not closed it since.
    pub fn has(&self, client: ClientId4, file: FileId) -> bool {
        self.memory.has(self.table, client, file)
    }

    /// Incarnations that have lost locks, and whether there were too many to remember: layouts are withheld from others too.
    pub fn count(&self) -> (usize, bool) {
        (self.memory.lost.len() + self.memory.forgotten.by_owner.len(), self.memory.forgotten.has_dropped)
    }

    /// Owners with a client that is there and has lost locks.
    pub fn owners(&self) -> Vec<Bytes> {
        let lost = self.memory.lost.keys();
        let is_there = |incarnation: &&Incarnation| self.memory.by_incarnation.contains_key(incarnation);
        lost.filter(is_there).map(|incarnation| incarnation.owner.clone()).collect()
    }

    /// Layouts that the client has had meanwhile of files on which it has lost locks are revoked like those that were not
    /// returned in time.
    fn take_lost_layouts(&mut self, client: ClientId4) {
        let holder = self.table.holder(client);
        let files: Vec<FileId> = self.table.lock().layouts_of(holder).map(|(file, _)| file).collect();
        for file in files.into_iter().filter(|file| self.has(client, *file)) {
            let mut table = self.table.lock();
            table.recalls().begin(file, holder, GrantKind::Layout, Duration::ZERO);
            table.recalls().expire(file, holder, GrantKind::Layout);
        }
    }
}
