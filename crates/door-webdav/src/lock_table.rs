//! WebDAV locks (RFC 4918 §6): a pure table by path. Towards other doors, the door holds a deny-write open in the
//! conflict table beside each lock of a file.
//!
//! Locks live in memory, as opens of NFS clients without a reclaim would: a restart ends them, and a client that comes
//! with such a token is told 412. Invariants: an exclusive lock covers no resource together with any other lock; a lock
//! that has expired is gone; while a change is under way that a lock would have forbidden, that lock is not given.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use api::Caller;
use bytes::Bytes;
use thiserror::Error;
use types::{FileId, Name};

pub(crate) type Path = Vec<Name>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Exclusive,
    Shared,
}

/// A file that is held open in the conflict table, and its owner's number there.
pub(crate) type Open = (FileId, u64);

/// The user who takes a lock. Issuers, password files and certificates may have one name for different people: the user
/// id tells them apart. Groups do not count, for tokens of one subject may differ in them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Principal {
    name: Arc<str>,
    uid: u32,
}

impl From<&Caller> for Principal {
    fn from(caller: &Caller) -> Principal {
        Principal { name: Arc::clone(&caller.name), uid: caller.identity.uid }
    }
}

/// The user for whom locks are judged, and the tokens that were submitted: they are asked for when the name is given,
/// which may be hours after the request.
#[derive(Clone, Debug)]
pub(crate) struct LockOwner {
    pub principal: Principal,
    pub tokens: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lock {
    /// `urn:uuid:…`, without brackets.
    pub token: String,
    pub path: Path,
    /// `path` percent-encoded, for answers.
    pub root_href: String,
    pub scope: Scope,
    /// Covers everything below `path` too.
    pub is_deep: bool,
    pub principal: Principal,
    /// The `owner` element as the client sent it.
    pub owner: Bytes,
    pub timeout: Duration,
    pub expires: Duration,
    /// Denials of writing to the file that has the name, and to files that may have got it.
    pub opens: Vec<Open>,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum LockError {
    /// Of this path, which may be below the one to be locked.
    #[error("{root_href} is locked")]
    Conflict { path: Path, root_href: String },
    #[error("the bound of locks is reached")]
    Limit,
    /// A request that was let through before is changing a resource that the lock would cover.
    #[error("a change is under way")]
    Changing,
}

/// Why a change may not begin.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum BeginError {
    #[error("{root_href} is locked")]
    Locked { root_href: String },
    #[error("what is to be changed is being moved, or the other way round")]
    Moving,
}

#[derive(Debug)]
pub(crate) struct LockTable {
    by_token: BTreeMap<String, Lock>,
    /// Tokens by the path that was locked.
    by_path: BTreeMap<Path, Vec<String>>,
    /// How many locks each has.
    held: BTreeMap<Principal, usize>,
    locks_max: usize,
    /// Under way, by number: at most a few for each request in flight.
    changes: BTreeMap<u64, PathChange>,
    changes_begun: u64,
}

/// A change that no lock forbade when it began. Until it ends no lock is given that would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathChange {
    pub path: Path,
    pub reach: Reach,
    /// A name comes or goes, so a lock of the directory counts, whatever its depth (RFC 4918 §7.4).
    pub is_of_member: bool,
    pub object: Object,
}

/// The object of a change, should the path lead elsewhere before the change is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Object {
    /// The entry of the directory.
    Name,
    /// The file, whatever its name is then.
    File,
    /// The path itself: it goes elsewhere, with all below.
    Way,
}

impl PathChange {
    pub fn of_resource(path: &[Name]) -> PathChange {
        PathChange { path: path.to_vec(), reach: Reach::One, is_of_member: false, object: Object::Name }
    }

    /// Of a name that comes or goes.
    pub fn of_member(path: &[Name]) -> PathChange {
        PathChange { path: path.to_vec(), reach: Reach::One, is_of_member: true, object: Object::Name }
    }

    pub fn of_tree(path: &[Name], is_of_member: bool) -> PathChange {
        PathChange { path: path.to_vec(), reach: Reach::Tree, is_of_member, object: Object::File }
    }

    /// Of what is known of a file.
    pub fn of_file(path: &[Name]) -> PathChange {
        PathChange { object: Object::File, ..PathChange::of_resource(path) }
    }

    /// Of a name that goes elsewhere.
    pub fn of_move(path: &[Name]) -> PathChange {
        PathChange { object: Object::Way, ..PathChange::of_tree(path, true) }
    }

    /// That a name goes out of or comes into.
    fn directory(&self) -> Option<&[Name]> {
        self.path.split_last().filter(|_| self.is_of_member).map(|(_, above)| above)
    }

    fn touches(&self, lock: &Lock) -> bool {
        covers(lock, &self.path)
            || self.directory().is_some_and(|directory| covers(lock, directory))
            || (self.reach == Reach::Tree && lock.path.starts_with(&self.path))
    }

    /// Whether one moves the object of the other, which would then be changed at a path whose locks were not asked.
    fn collides(&self, other: &PathChange) -> bool {
        self.is_moved_by(other) || other.is_moved_by(self)
    }

    fn is_moved_by(&self, other: &PathChange) -> bool {
        if other.object != Object::Way {
            return false;
        }
        let (path, way) = (&self.path, &other.path);
        let is_below = path.len() > way.len() && path.starts_with(way);
        match self.reach {
            Reach::One => is_below || (path == way && self.object != Object::Name),
            Reach::Tree => is_below || way.starts_with(path),
        }
    }
}

/// Shared locks that lie over each other: an answer to PROPFIND has all of them for each member of a directory.
const COVERING_MAX: usize = 64;

/// One principal has at most this part of all locks, so that it cannot use up those of others.
const SHARE_OF_ONE: usize = 8;
/// However few there are in all.
const HELD_BY_ONE_MIN: usize = 16;

/// How much of the tree an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The resource itself.
    One,
    /// The resource and all below it.
    Tree,
}

impl LockTable {
    pub fn new(locks_max: usize) -> LockTable {
        LockTable {
            by_token: BTreeMap::new(),
            by_path: BTreeMap::new(),
            held: BTreeMap::new(),
            locks_max,
            changes: BTreeMap::new(),
            changes_begun: 0,
        }
    }

    /// Lets all of the changes begin, if no lock forbids any of them to somebody who submits these tokens, and none
    /// that is under way moves what another one changes.
    pub fn begin(
        &mut self,
        changes: Vec<PathChange>,
        principal: &Principal,
        submitted: &[String],
    ) -> Result<Range<u64>, BeginError> {
        let forbidding = changes.iter().find_map(|change| self.judge(change, principal, submitted));
        if let Some(lock) = forbidding {
            return Err(BeginError::Locked { root_href: lock.root_href.clone() });
        }
        if self.changes.values().any(|other| changes.iter().any(|change| change.collides(other))) {
            return Err(BeginError::Moving);
        }
        let first = self.changes_begun;
        self.changes_begun += changes.len() as u64;
        self.changes.extend((first..).zip(changes));
        Ok(first..self.changes_begun)
    }

    pub fn end(&mut self, changes: Range<u64>) {
        changes.for_each(|number| _ = self.changes.remove(&number));
    }

    /// A lock that forbids the change.
    pub fn judge(&self, change: &PathChange, principal: &Principal, submitted: &[String]) -> Option<&Lock> {
        let forbidding = |path, reach| self.forbidding(path, reach, principal, submitted);
        change
            .directory()
            .and_then(|directory| forbidding(directory, Reach::One))
            .or_else(|| forbidding(&change.path, change.reach))
    }

    pub fn len(&self) -> usize {
        self.by_token.len()
    }

    pub fn add(&mut self, lock: Lock) -> Result<(), LockError> {
        let reach = if lock.is_deep { Reach::Tree } else { Reach::One };
        let is_in_the_way = |other: &&Lock| lock.scope == Scope::Exclusive || other.scope == Scope::Exclusive;
        if let Some(other) = self.touching(&lock.path, reach).find(is_in_the_way) {
            return Err(LockError::Conflict { path: other.path.clone(), root_href: other.root_href.clone() });
        }
        let held = self.held.get(&lock.principal).copied().unwrap_or(0);
        let held_max = (self.locks_max / SHARE_OF_ONE).max(HELD_BY_ONE_MIN);
        let covering = self.covering(&lock.path).count();
        if self.len() >= self.locks_max || held >= held_max || covering >= COVERING_MAX {
            return Err(LockError::Limit);
        }
        if self.changes.values().any(|change| change.touches(&lock)) {
            return Err(LockError::Changing);
        }
        *self.held.entry(lock.principal.clone()).or_default() += 1;
        self.by_path.entry(lock.path.clone()).or_default().push(lock.token.clone());
        self.by_token.insert(lock.token.clone(), lock);
        Ok(())
    }

    pub fn find(&self, token: &str) -> Option<&Lock> {
        self.by_token.get(token)
    }

    /// Whether the lock covers the path.
    pub fn covers(&self, token: &str, path: &[Name]) -> bool {
        self.find(token).is_some_and(|lock| covers(lock, path))
    }

    pub fn refresh(&mut self, token: &str, timeout: Duration, now: Duration) -> Option<&Lock> {
        let lock = self.by_token.get_mut(token)?;
        lock.timeout = timeout;
        lock.expires = now + timeout;
        Some(lock)
    }

    /// `false`: the lock has gone, and the open is to be closed.
    pub fn hold(&mut self, token: &str, open: Open) -> bool {
        let lock = self.by_token.get_mut(token);
        lock.map(|lock| lock.opens.push(open)).is_some()
    }

    /// Takes opens of such files out of the lock; they are to be closed.
    pub fn take_opens(&mut self, token: &str, is_over: impl Fn(FileId) -> bool) -> Vec<Open> {
        let lock = self.by_token.get_mut(token);
        lock.map(|lock| lock.opens.extract_if(.., |(file, _)| is_over(*file)).collect()).unwrap_or_default()
    }

    /// Tokens of the locks of this very path.
    pub fn tokens_at(&self, path: &[Name]) -> Vec<String> {
        self.by_path.get(path).cloned().unwrap_or_default()
    }

    pub fn remove(&mut self, token: &str) -> Option<Lock> {
        let lock = self.by_token.remove(token)?;
        if let Entry::Occupied(mut held) = self.held.entry(lock.principal.clone()) {
            *held.get_mut() -= 1;
            if *held.get() == 0 {
                held.remove();
            }
        }
        if let Some(tokens) = self.by_path.get_mut(&lock.path) {
            tokens.retain(|other| other != token);
            if tokens.is_empty() {
                self.by_path.remove(&lock.path);
            }
        }
        Some(lock)
    }

    /// A tree that was removed or moved away loses its locks (RFC 4918 §7.5, §9.6).
    pub fn remove_tree(&mut self, path: &[Name]) -> Vec<Lock> {
        let tokens: Vec<String> = self.below(path).map(|lock| lock.token.clone()).collect();
        tokens.iter().filter_map(|token| self.remove(token)).collect()
    }

    /// A directory that is replaced keeps its own.
    pub fn remove_members(&mut self, path: &[Name]) -> Vec<Lock> {
        let members = self.below(path).filter(|lock| lock.path.len() > path.len());
        let tokens: Vec<String> = members.map(|lock| lock.token.clone()).collect();
        tokens.iter().filter_map(|token| self.remove(token)).collect()
    }

    pub fn expire(&mut self, now: Duration) -> Vec<Lock> {
        let over: Vec<String> = self
            .by_token
            .values()
            .filter(|lock| lock.expires <= now)
            .map(|lock| lock.token.clone())
            .collect();
        over.iter().filter_map(|token| self.remove(token)).collect()
    }

    /// Locks that cover the path.
    pub fn covering<'a, 'b>(&'a self, path: &'b [Name]) -> impl Iterator<Item = &'a Lock> + use<'a, 'b> {
        (0..=path.len())
            .flat_map(move |length| self.at(&path[..length]))
            .filter(move |lock| covers(lock, path))
    }

    /// A lock that forbids the change to somebody who submits these tokens. Of several shared locks one is enough.
    fn forbidding(
        &self,
        path: &[Name],
        reach: Reach,
        principal: &Principal,
        submitted: &[String],
    ) -> Option<&Lock> {
        let is_held = |lock: &Lock| lock.principal == *principal && submitted.contains(&lock.token);
        let mut unheld = None;
        let mut shared_is_held = false;
        for lock in self.covering(path) {
            match (is_held(lock), lock.scope) {
                (true, Scope::Shared) => shared_is_held = true,
                (true, Scope::Exclusive) => {}
                (false, Scope::Exclusive) => return Some(lock),
                (false, Scope::Shared) => unheld = Some(lock),
            }
        }
        if let Some(lock) = unheld.filter(|_| !shared_is_held) {
            return Some(lock);
        }
        match reach {
            Reach::One => None,
            Reach::Tree => {
                self.below(path).filter(|lock| lock.path.len() > path.len()).find(|lock| !is_held(lock))
            }
        }
    }

    fn touching<'a>(&'a self, path: &'a [Name], reach: Reach) -> impl Iterator<Item = &'a Lock> {
        let below = self.below(path).filter(move |lock| reach == Reach::Tree && lock.path.len() > path.len());
        self.covering(path).chain(below)
    }

    /// Locks of the path itself and of what is below it.
    fn below<'a, 'b>(&'a self, path: &'b [Name]) -> impl Iterator<Item = &'a Lock> + use<'a, 'b> {
        // Paths with one beginning stand together in the order of lists.
        let paths = self.by_path.range(path.to_vec()..).take_while(move |(other, _)| other.starts_with(path));
        paths.flat_map(|(_, tokens)| tokens).filter_map(|token| self.by_token.get(token))
    }

    fn at(&self, path: &[Name]) -> impl Iterator<Item = &Lock> {
        let tokens = self.by_path.get(path).into_iter().flatten();
        tokens.filter_map(|token| self.by_token.get(token))
    }
}

fn covers(lock: &Lock, path: &[Name]) -> bool {
    lock.path == path || (lock.is_deep && path.starts_with(&lock.path))
}

#[cfg(test)]
mod tests;
