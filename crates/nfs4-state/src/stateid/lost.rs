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

use super::{ClientState, holder};
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
    lost: BTreeMap<Incarnation, Lost>,
    /// Files in `lost`.
    files: usize,
    /// Counts what is put into `lost`, so that the oldest is known.
    turn: u64,
    /// Those that made room in `lost`.
    forgotten: Forgotten,
}

/// Never empty.
#[derive(Debug, Default)]
struct Lost {
    turn: u64,
    /// All files but `files`, which were closed since, instead of `files`.
    is_all: bool,
    files: BTreeSet<FileId>,
}

impl Lost {
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

    fn leave(&mut self, client: ClientId4) {
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

    fn of(&self, client: ClientId4) -> Option<&Lost> {
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
    fn entry(&mut self, incarnation: &Incarnation) -> &mut Lost {
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
        self.lost.entry(incarnation.clone()).or_insert_with(|| Lost { turn, ..Lost::default() })
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
}

impl ClientState {
    /// Whether the client's incarnation is known. To be asked before it opens anything.
    pub fn is_introduced(&self, client: ClientId4) -> bool {
        self.lost.is_known(client)
    }

    pub fn introduce(&mut self, client: ClientId4, incarnation: Incarnation) {
        self.lost.introduce(client, incarnation);
    }

    /// The client, which is introduced, gets something that it does not reclaim: it has reclaimed all that it could.
    pub fn obtains(&mut self, client: ClientId4) {
        self.lost.obtains(client);
    }

    /// The client has just made the file: it has lost nothing there.
    pub fn created(&mut self, client: ClientId4, file: FileId) {
        self.lost.closed(client, file, false);
    }

    /// The client asks to reclaim state of the file and may not, or may and has lost some: others may have had locks there.
    pub fn reclaim_refused(&mut self, client: ClientId4, file: FileId) {
        self.lost.add(client, file);
        self.take_lost_layouts(client);
    }

    /// The client may reclaim nothing of this or any other file.
    pub fn reclaims_refused(&mut self, client: ClientId4, file: FileId) {
        let incarnation = self.lost.present(client);
        if let Some(incarnation) = incarnation.filter(|incarnation| !self.lost.known.contains(incarnation)) {
            self.lost.add_all(&incarnation);
        }
        self.reclaim_refused(client, file);
    }

    /// Layouts that the client has had meanwhile of files on which it has lost locks are revoked like those that were not
    /// returned in time.
    fn take_lost_layouts(&mut self, client: ClientId4) {
        let holder = holder(self.door, client);
        let files: Vec<FileId> = self.files.lock().layouts_of(holder).map(|(file, _)| file).collect();
        for file in files.into_iter().filter(|file| self.has_lost_locks(client, *file)) {
            let mut table = self.files.lock();
            table.recalls().begin(file, holder, GrantKind::Layout, Duration::ZERO);
            table.recalls().expire(file, holder, GrantKind::Layout);
        }
    }

    /// Incarnations that have lost locks, and whether there were too many to remember: layouts are withheld from others too.
    pub fn lost_count(&self) -> (usize, bool) {
        (self.lost.lost.len() + self.lost.forgotten.by_owner.len(), self.lost.forgotten.has_dropped)
    }

    /// Owners with a client that is there and has lost locks.
    pub fn owners_with_lost_locks(&self) -> Vec<Bytes> {
        let lost = self.lost.lost.keys();
        let is_there = |incarnation: &&Incarnation| self.lost.by_incarnation.contains_key(incarnation);
        lost.filter(is_there).map(|incarnation| incarnation.owner.clone()).collect()
    }

    /// Whether the client has lost locks on the file, or is about to, and has not closed it since.
    pub fn has_lost_locks(&self, client: ClientId4, file: FileId) -> bool {
        self.lost.of(client).is_some_and(|lost| lost.has(file))
            || self
                .lost
                .former(client)
                .any(|former| self.files.lock().file(file).may_have_locked(holder(self.door, former)))
    }

    /// The client is about to lose what it has of all files but these.
    pub(super) fn note_all_lost_locks(&mut self, client: ClientId4, but: &[FileId]) {
        let holder = holder(self.door, client);
        let locked: Vec<FileId> = {
            let files = self.files.lock();
            let files_of = files.holders().files_of(holder);
            files_of.filter(|file| !but.contains(file) && files.file(*file).may_have_locked(holder)).collect()
        };
        locked.into_iter().for_each(|file| self.lost.add(client, file));
    }

    /// A delegation to write that its holder did not give back: locks that it had by it are lost.
    pub(super) fn note_lost_delegation(&mut self, client: ClientId4, file: FileId) {
        if self.delegation_of(client, file) == Some(DelegationKind::Write) {
            self.lost.add(client, file);
        }
    }

    /// The client has closed the file, once for all, if it has it open no more.
    pub(super) fn note_closed(&mut self, client: ClientId4, file: FileId) {
        let (is_open, held) = {
            let files = self.files.lock();
            (
                files.file(file).access_of(holder(self.door, client)) != file_state::Modes::NONE,
                files.holders().held(holder(self.door, client)),
            )
        };
        if !is_open {
            self.lost.closed(client, file, held.opens == 0 && held.delegations == 0);
        }
    }

    pub(super) fn leave(&mut self, client: ClientId4) {
        self.lost.leave(client);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use file_state::{Door, FileState, FileStateError, LayoutMode};
    use nfs4::{NfsLockType4, NfsStat4, StateId4};
    use parking_lot::Mutex;
    use types::ByteRange;

    use super::super::{DelegationTerms, LayoutRequest, LockOutcome, LockRequest, Locker, OpenRequest};
    use super::*;

    const OLD: ClientId4 = ClientId4(1);
    const NEW: ClientId4 = ClientId4(2);
    const FILE: FileId = FileId(7);
    const DOOR: Door = Door::numbered(0);
    const NOW: Duration = Duration::ZERO;

    fn incarnation(boot: u8) -> Incarnation {
        Incarnation { owner: Bytes::from_static(b"host"), verifier: [boot; 8] }
    }

    fn states(limits: LostLimits) -> ClientState {
        let mut states = ClientState::new(1, DOOR, Arc::new(Mutex::new(FileState::default())));
        states.lost.limits = limits;
        states.introduce(OLD, incarnation(1));
        states
    }

    fn open(states: &mut ClientState, client: ClientId4, file: FileId) -> StateId4 {
        let owner = Bytes::from_static(b"owner");
        states.open(OpenRequest { client, owner, file, access: 3, deny: 0, is_unlinked: false }).unwrap()
    }

    fn lock(states: &mut ClientState, client: ClientId4, file: FileId) {
        let open = open(states, client, file);
        let locker = Locker::New { open, owner: Bytes::from_static(b"locker") };
        let range = ByteRange::new(0, 10).unwrap();
        let request = LockRequest { client, file, locker, locktype: NfsLockType4::Write, range };
        assert!(matches!(states.lock(request), Ok(LockOutcome::Granted(_))));
    }

    fn layout(states: &mut ClientState, client: ClientId4, open: StateId4) -> Result<StateId4, NfsStat4> {
        let request = LayoutRequest { client, file: FILE, stateid: open, mode: LayoutMode::ReadWrite };
        states.layout_get(&request, NOW)
    }

    fn delegate(states: &mut ClientState, client: ClientId4) -> Result<StateId4, FileStateError> {
        states.delegate(client, FILE, (DelegationKind::Write, DelegationTerms::default()), NOW)
    }

    #[test]
    fn a_client_that_lost_a_lock_gets_no_layout_and_no_delegation_until_it_has_closed_the_file() {
        let mut states = states(LostLimits::default());
        lock(&mut states, OLD, FILE);
        states.depart(OLD);
        states.introduce(NEW, incarnation(1));
        let opened = open(&mut states, NEW, FILE);
        assert_eq!(layout(&mut states, NEW, opened), Err(NfsStat4::LayoutUnavailable), "is about to lose it");
        states.release(OLD, &[FILE]);
        assert_eq!(layout(&mut states, NEW, opened), Err(NfsStat4::LayoutUnavailable), "not fenced off yet");
        states.release(OLD, &[]);
        assert_eq!(layout(&mut states, NEW, opened), Err(NfsStat4::LayoutUnavailable));
        assert_eq!(delegate(&mut states, NEW), Err(FileStateError::InUse));
        states.take_back_open(NEW, FILE, opened).unwrap();
        let opened = open(&mut states, NEW, FILE);
        assert_eq!(layout(&mut states, NEW, opened), Err(NfsStat4::LayoutUnavailable), "it closed nothing");
        states.close(NEW, FILE, opened).unwrap();
        let opened = open(&mut states, NEW, FILE);
        layout(&mut states, NEW, opened).unwrap();
    }

    #[test]
    fn a_client_without_a_lock_or_after_its_restart_gets_a_layout() {
        let mut states = states(LostLimits::default());
        open(&mut states, OLD, FILE);
        lock(&mut states, OLD, FileId(8));
        states.depart(OLD);
        states.release(OLD, &[]);
        states.introduce(NEW, incarnation(1));
        assert!(!states.has_lost_locks(NEW, FILE) && states.has_lost_locks(NEW, FileId(8)));
        let restarted = ClientId4(3);
        states.introduce(restarted, incarnation(2));
        assert!(!states.has_lost_locks(restarted, FileId(8)));
        states.introduce(ClientId4(4), Incarnation { owner: Bytes::from_static(b"other"), verifier: [1; 8] });
        assert!(!states.has_lost_locks(ClientId4(4), FileId(8)));
    }

    #[test]
    fn a_client_that_was_refused_a_reclaim_gets_no_layout_until_it_has_closed_the_file() {
        let mut states = states(LostLimits::default());
        states.reclaim_refused(OLD, FILE);
        let opened = open(&mut states, OLD, FILE);
        assert_eq!(layout(&mut states, OLD, opened), Err(NfsStat4::LayoutUnavailable));
        states.close(OLD, FILE, opened).unwrap();
        let opened = open(&mut states, OLD, FILE);
        layout(&mut states, OLD, opened).unwrap();
    }

    #[test]
    fn a_delegation_to_write_that_was_revoked_counts_as_a_lock_that_was_lost() {
        let mut states = states(LostLimits::default());
        let opened = open(&mut states, OLD, FILE);
        delegate(&mut states, OLD).unwrap();
        states.files.lock().recalls().begin(
            FILE,
            holder(DOOR, OLD),
            file_state::GrantKind::Delegation,
            Duration::from_secs(1),
        );
        let due = states.expired_recalls(Duration::from_secs(2), Duration::from_secs(9));
        assert!(states.revoke(&due[0]));
        assert_eq!(layout(&mut states, OLD, opened), Err(NfsStat4::LayoutUnavailable));
        states.close(OLD, FILE, opened).unwrap();
        assert!(!states.has_lost_locks(OLD, FILE));
    }

    #[test]
    fn a_delegation_to_write_goes_with_its_client_as_a_lock_does() {
        let mut states = states(LostLimits::default());
        delegate(&mut states, OLD).unwrap();
        states.release(OLD, &[]);
        states.introduce(NEW, incarnation(1));
        assert!(states.has_lost_locks(NEW, FILE));
    }

    #[test]
    fn beyond_what_is_remembered_every_file_counts_until_it_is_closed_or_nothing_is_open() {
        for limits in [
            LostLimits { files_each: 2, ..LostLimits::default() },
            LostLimits { files: 2, ..LostLimits::default() },
        ] {
            let mut states = states(limits);
            (0..3).for_each(|file| states.reclaim_refused(OLD, FileId(file)));
            assert!(states.has_lost_locks(OLD, FILE), "{limits:?}");
            let (one, another) = (open(&mut states, OLD, FILE), open(&mut states, OLD, FileId(8)));
            states.close(OLD, FILE, one).unwrap();
            assert!(!states.has_lost_locks(OLD, FILE) && states.has_lost_locks(OLD, FileId(8)));
            states.reclaim_refused(OLD, FILE);
            assert!(states.has_lost_locks(OLD, FILE));
            states.close(OLD, FileId(8), another).unwrap();
            assert!(!states.has_lost_locks(OLD, FILE) && !states.has_lost_locks(OLD, FileId(8)));
            assert_eq!((states.lost.files, states.lost.lost.len()), (0, 0));
        }
    }

    #[test]
    fn a_client_that_may_reclaim_nothing_has_lost_every_file_until_it_has_closed_it() {
        let mut states = states(LostLimits::default());
        let (one, another) = (open(&mut states, OLD, FILE), open(&mut states, OLD, FileId(8)));
        layout(&mut states, OLD, one).unwrap();
        states.reclaims_refused(OLD, FileId(8));
        assert!(states.has_lost_locks(OLD, FILE) && states.has_lost_locks(OLD, FileId(8)));
        let due = states.expired_recalls(NOW, NOW);
        assert_eq!(due.iter().map(|due| (due.file, due.is_at_pools)).collect::<Vec<_>>(), [(FILE, true)]);
        assert!(states.revoke(&due[0]), "what it got meanwhile");
        assert_eq!(layout(&mut states, OLD, one), Err(NfsStat4::LayoutUnavailable));
        states.created(OLD, FileId(9));
        assert!(!states.has_lost_locks(OLD, FileId(9)), "it has just been made");
        states.close(OLD, FILE, one).unwrap();
        let again = open(&mut states, OLD, FILE);
        layout(&mut states, OLD, again).unwrap();
        assert!(states.has_lost_locks(OLD, FileId(8)));
        states.close(OLD, FileId(8), another).unwrap();
        assert!(!states.has_lost_locks(OLD, FileId(8)));
    }

    #[test]
    fn a_client_that_may_reclaim_nothing_of_this_start_has_lost_what_is_known() {
        let mut states = states(LostLimits::default());
        states.obtains(OLD);
        lock(&mut states, OLD, FILE);
        states.release(OLD, &[]);
        states.introduce(NEW, incarnation(1));
        states.reclaims_refused(NEW, FileId(8));
        assert!(states.has_lost_locks(NEW, FILE) && states.has_lost_locks(NEW, FileId(8)));
        assert!(!states.has_lost_locks(NEW, FileId(9)));
        states.introduce(ClientId4(3), incarnation(2));
        states.reclaims_refused(ClientId4(3), FILE);
        assert!(states.has_lost_locks(ClientId4(3), FileId(9)), "of another incarnation nothing is known");
    }

    #[test]
    fn a_share_that_denied_something_is_lost_like_a_lock() {
        let mut states = states(LostLimits::default());
        let owner = Bytes::from_static(b"owner");
        let denying = OpenRequest { client: OLD, owner, file: FILE, access: 3, deny: 2, is_unlinked: false };
        states.open(denying).unwrap();
        states.release(OLD, &[]);
        states.introduce(NEW, incarnation(1));
        assert!(states.has_lost_locks(NEW, FILE));
    }

    #[test]
    fn an_owner_that_was_restarted_is_remembered_with_nothing() {
        let mut states = states(LostLimits::default());
        lock(&mut states, OLD, FILE);
        states.depart(OLD);
        states.introduce(NEW, incarnation(2));
        states.release(OLD, &[]);
        assert_eq!(states.lost_count(), (0, false));
    }

    #[test]
    fn a_client_that_was_forgotten_has_lost_every_file_and_others_have_not() {
        let mut states = states(LostLimits { incarnations: 2, ..LostLimits::default() });
        lose_and_leave(&mut states, 10..13);
        assert_eq!(states.lost_count(), (3, false));
        states.introduce(ClientId4(114), host(14));
        assert!(!states.has_lost_locks(ClientId4(114), FILE), "it has lost nothing");
        states.introduce(ClientId4(110), host(10));
        assert!(states.has_lost_locks(ClientId4(110), FileId(99)));
    }

    fn host(host: u8) -> Incarnation {
        Incarnation { owner: Bytes::from(vec![host]), verifier: [0; 8] }
    }

    /// One after the other loses locks and goes.
    fn lose_and_leave(states: &mut ClientState, hosts: std::ops::Range<u8>) {
        for number in hosts {
            let client = ClientId4(number.into());
            states.introduce(client, host(number));
            assert!(!states.has_lost_locks(client, FILE), "{number}");
            states.reclaim_refused(client, FILE);
            states.leave(client);
        }
    }

    #[test]
    fn a_client_that_may_be_one_that_was_dropped_has_lost_every_file() {
        let mut states = states(LostLimits { incarnations: 1, forgotten: 2, ..LostLimits::default() });
        states.introduce(ClientId4(109), host(9));
        lose_and_leave(&mut states, 10..14);
        assert_eq!((states.lost_count(), states.lost.lost.len()), ((3, true), 1));
        for number in [20, 10, 11, 12, 13] {
            let client = ClientId4(number + 100);
            states.introduce(client, host(number as u8));
            assert!(states.has_lost_locks(client, FILE), "{number}");
        }
        assert!(!states.has_lost_locks(ClientId4(109), FILE), "it was there all the time");
    }

    /// Their tags filled the room of others.
    #[test]
    fn a_client_that_was_restarted_takes_no_room_among_those_that_were_forgotten() {
        let mut states = states(LostLimits { incarnations: 1, forgotten: 2, ..LostLimits::default() });
        lose_and_leave(&mut states, 10..13);
        assert_eq!(states.lost_count(), (3, false));
        states.introduce(ClientId4(110), Incarnation { verifier: [1; 8], ..host(10) });
        assert!(!states.has_lost_locks(ClientId4(110), FILE));
        assert_eq!(states.lost_count(), (2, false));
        lose_and_leave(&mut states, 13..14);
        assert_eq!(states.lost_count(), (3, false));
        states.introduce(ClientId4(111), host(11));
        assert!(states.has_lost_locks(ClientId4(111), FileId(99)));
    }

    #[test]
    fn a_client_that_is_there_makes_no_room_for_others() {
        let mut states = states(LostLimits { incarnations: 1, forgotten: 0, ..LostLimits::default() });
        for number in 10..13 {
            let client = ClientId4(number.into());
            states.introduce(client, host(number));
            states.reclaim_refused(client, FILE);
        }
        assert!((10..13).all(|client| states.has_lost_locks(ClientId4(client), FILE)));
        assert_eq!(states.lost_count(), (3, false));
    }
}
