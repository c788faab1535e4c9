//! WebDAV locks (RFC 4918 §6): a pure table by path. What they mean to other doors is a deny-write open that the door
//! holds in the conflict table beside each lock of a file.
//!
//! Locks live in memory, as opens of NFS clients without a reclaim would: a restart ends them, and a client that comes
//! with such a token is told 412. Invariants: an exclusive lock covers no resource together with any other lock; a lock
//! that has expired is gone.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use types::{FileId, Name};

pub(crate) type Path = Vec<Name>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Exclusive,
    Shared,
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
    /// Who took it, by the name that authentication gave.
    pub principal: String,
    /// The `owner` element as the client sent it.
    pub owner: Bytes,
    pub timeout: Duration,
    pub expires: Duration,
    /// What is held open in the conflict table, and its owner's number there.
    pub open: Option<(FileId, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum LockError {
    #[error("a lock is in the way")]
    Conflict,
    #[error("the bound of locks is reached")]
    Limit,
}

#[derive(Debug)]
pub(crate) struct Locks {
    by_token: BTreeMap<String, Lock>,
    /// Tokens by the path that was locked.
    by_path: BTreeMap<Path, Vec<String>>,
    locks_max: usize,
}

/// Shared locks that lie over each other: an answer to PROPFIND has all of them for each member of a directory.
const COVERING_MAX: usize = 64;

/// How much of the tree an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The resource itself.
    One,
    /// The resource and all below it.
    Tree,
}

impl Locks {
    pub fn new(locks_max: usize) -> Locks {
        Locks { by_token: BTreeMap::new(), by_path: BTreeMap::new(), locks_max }
    }

    pub fn len(&self) -> usize {
        self.by_token.len()
    }

    pub fn add(&mut self, lock: Lock) -> Result<(), LockError> {
        let reach = if lock.is_deep { Reach::Tree } else { Reach::One };
        let is_in_the_way = |other: &&Lock| lock.scope == Scope::Exclusive || other.scope == Scope::Exclusive;
        if self.touching(&lock.path, reach).any(|other| is_in_the_way(&other)) {
            return Err(LockError::Conflict);
        }
        if self.len() >= self.locks_max || self.covering(&lock.path).count() >= COVERING_MAX {
            return Err(LockError::Limit);
        }
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

    /// Replaces what is held open for the lock of this path and answers what is to be closed: the one before, or the
    /// new one if the lock has gone.
    pub fn reopen(
        &mut self,
        token: &str,
        path: &[Name],
        open: Option<(FileId, u64)>,
    ) -> Option<(FileId, u64)> {
        match self.by_token.get_mut(token).filter(|lock| lock.path == path) {
            Some(lock) => std::mem::replace(&mut lock.open, open),
            None => open,
        }
    }

    pub fn remove(&mut self, token: &str) -> Option<Lock> {
        let lock = self.by_token.remove(token)?;
        if let Some(tokens) = self.by_path.get_mut(&lock.path) {
            tokens.retain(|other| other != token);
            if tokens.is_empty() {
                self.by_path.remove(&lock.path);
            }
        }
        Some(lock)
    }

    /// What was removed or moved away takes its locks with it (RFC 4918 §7.5, §9.6).
    pub fn remove_tree(&mut self, path: &[Name]) -> Vec<Lock> {
        let tokens: Vec<String> = self.below(path).map(|lock| lock.token.clone()).collect();
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
    pub fn covering<'a>(&'a self, path: &'a [Name]) -> impl Iterator<Item = &'a Lock> {
        (0..=path.len())
            .flat_map(move |length| self.at(&path[..length]))
            .filter(move |lock| covers(lock, path))
    }

    /// A lock that forbids the change to somebody who submits these tokens. Of several shared locks one is enough.
    pub fn forbidding<'a>(
        &'a self,
        path: &'a [Name],
        reach: Reach,
        principal: &str,
        submitted: &[String],
    ) -> Option<&'a Lock> {
        let is_held = |lock: &Lock| lock.principal == principal && submitted.contains(&lock.token);
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
    fn below<'a>(&'a self, path: &'a [Name]) -> impl Iterator<Item = &'a Lock> {
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
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn path(text: &str) -> Path {
        text.split('/')
            .filter(|name| !name.is_empty())
            .map(|name| Name::new(name.as_bytes()).unwrap())
            .collect()
    }

    fn lock(token: &str, at: &str, scope: Scope, is_deep: bool) -> Lock {
        Lock {
            token: token.to_owned(),
            path: path(at),
            root_href: at.to_owned(),
            scope,
            is_deep,
            principal: "ann".to_owned(),
            owner: Bytes::new(),
            timeout: Duration::from_secs(10),
            expires: NOW + Duration::from_secs(10),
            open: None,
        }
    }

    fn table(locks: &[Lock]) -> Locks {
        let mut table = Locks::new(10);
        locks.iter().for_each(|lock| table.add(lock.clone()).unwrap());
        table
    }

    #[test]
    fn an_exclusive_lock_stands_alone_and_shared_ones_stand_together() {
        let mut locks = table(&[lock("s1", "/a", Scope::Shared, false)]);
        assert_eq!(locks.add(lock("s2", "/a", Scope::Shared, false)), Ok(()));
        assert_eq!(locks.add(lock("x", "/a", Scope::Exclusive, false)), Err(LockError::Conflict));
        assert_eq!(locks.add(lock("y", "/b", Scope::Exclusive, false)), Ok(()));
        assert_eq!(locks.add(lock("z", "/b", Scope::Shared, false)), Err(LockError::Conflict));
    }

    #[test]
    fn a_deep_lock_covers_what_is_below_and_meets_what_is_locked_there() {
        let mut locks = table(&[lock("deep", "/a", Scope::Exclusive, true)]);
        assert!(locks.covers("deep", &path("/a/b/c")) && !locks.covers("deep", &path("/ab")));
        assert_eq!(locks.add(lock("x", "/a/b", Scope::Exclusive, false)), Err(LockError::Conflict));
        let mut locks = table(&[lock("x", "/a/b", Scope::Shared, false)]);
        assert_eq!(locks.add(lock("deep", "/a", Scope::Exclusive, true)), Err(LockError::Conflict));
        assert_eq!(locks.add(lock("flat", "/a", Scope::Exclusive, false)), Ok(()));
    }

    #[test]
    fn a_change_needs_the_token_and_its_principal() {
        let locks = table(&[lock("x", "/a", Scope::Exclusive, false)]);
        let token = ["x".to_owned()];
        assert!(locks.forbidding(&path("/a"), Reach::One, "ann", &[]).is_some());
        assert!(locks.forbidding(&path("/a"), Reach::One, "bob", &token).is_some());
        assert!(locks.forbidding(&path("/a"), Reach::One, "ann", &token).is_none());
        assert!(locks.forbidding(&path("/b"), Reach::Tree, "bob", &[]).is_none());
    }

    #[test]
    fn one_of_several_shared_locks_is_enough() {
        let locks = table(&[lock("s1", "/a", Scope::Shared, false), lock("s2", "/a", Scope::Shared, false)]);
        assert!(locks.forbidding(&path("/a"), Reach::One, "ann", &["s2".to_owned()]).is_none());
        assert!(locks.forbidding(&path("/a"), Reach::One, "ann", &[]).is_some());
    }

    #[test]
    fn a_tree_is_not_changed_over_a_lock_inside_it() {
        let locks = table(&[lock("x", "/a/b/c", Scope::Exclusive, false)]);
        assert!(locks.forbidding(&path("/a"), Reach::Tree, "ann", &[]).is_some());
        assert!(locks.forbidding(&path("/a"), Reach::One, "ann", &[]).is_none());
        assert!(locks.forbidding(&path("/a"), Reach::Tree, "ann", &["x".to_owned()]).is_none());
    }

    #[test]
    fn locks_end_by_time_by_token_and_with_their_tree() {
        let all = [
            lock("x", "/a", Scope::Shared, true),
            lock("y", "/a/b", Scope::Shared, false),
            lock("z", "/ab", Scope::Shared, false),
        ];
        let mut locks = table(&all);
        assert!(locks.refresh("z", Duration::from_secs(99), NOW).is_some());
        assert_eq!(locks.expire(NOW + Duration::from_secs(10)).len(), 2);
        assert_eq!(locks.len(), 1);
        let mut locks = table(&all);
        assert_eq!(locks.remove_tree(&path("/a")).len(), 2);
        assert!(locks.remove("z").is_some() && locks.remove("z").is_none());
        assert_eq!((locks.len(), locks.by_path.len()), (0, 0));
    }

    #[test]
    fn shared_locks_of_one_resource_are_bounded() {
        let mut locks = Locks::new(1_000);
        for number in 0..COVERING_MAX {
            assert_eq!(locks.add(lock(&number.to_string(), "/a", Scope::Shared, true)), Ok(()));
        }
        assert_eq!(locks.add(lock("x", "/a", Scope::Shared, true)), Err(LockError::Limit));
        assert_eq!(locks.add(lock("y", "/a/b", Scope::Shared, true)), Err(LockError::Limit));
        assert_eq!(locks.add(lock("z", "/b", Scope::Shared, true)), Ok(()));
    }

    #[test]
    fn beyond_the_bound_no_lock_is_given() {
        let mut locks = Locks::new(1);
        assert_eq!(locks.add(lock("x", "/a", Scope::Shared, false)), Ok(()));
        assert_eq!(locks.add(lock("y", "/b", Scope::Shared, false)), Err(LockError::Limit));
    }
}
