//! Usage of users, groups and directories, and its quotas.
//!
//! Everybody's files are counted by user, by group, and by every directory that they lie below. A quota is of such an
//! account. The caller of a mutation is refused (`QuotaExceeded`) what would bring an account over its quota; root
//! never is. Bytes reach the pools past the namespace, so a caller that lets a client write asks for `room` first.

use async_trait::async_trait;
use types::{FileId, Identity};

use crate::NamespaceError;

#[async_trait]
pub trait Quotas: Send + Sync {
    /// With everything that was answered before. Bytes that were written unstably come a moment later; as long as there are no
    /// quotas, so do all bytes whose length only their pool has on disk.
    async fn counted(&self, account: Account) -> Result<Counted, NamespaceError>;

    /// All accounts with quotas, in order.
    async fn quotas(&self) -> Result<Vec<Standing>, NamespaceError>;

    /// `None`: it has no quota.
    async fn standing(&self, account: Account) -> Result<Option<Standing>, NamespaceError>;

    /// `None` takes it away. Since when a limit is passed is found out, not told. `NotFound`, `NotDirectory`: of a tree,
    /// there is no such directory. `NoSpace`: there are [`QUOTAS_MAX`] already.
    async fn set_quota(&self, account: Account, quota: Option<Quota>) -> Result<(), NamespaceError>;

    /// Whether anybody has a quota, so that counts have to include everything that was answered as stable. From memory.
    fn are_any(&self) -> bool;

    /// How many bytes `who` may add to a file, or put into new ones in a directory; `None`: no quota bounds that.
    async fn room(&self, who: &Identity, file: FileId) -> Result<Option<u64>, NamespaceError>;

    /// Of the trees with quotas in which a file lies (or which it is), the one whose bytes end first.
    async fn tree(&self, file: FileId) -> Result<Option<Standing>, NamespaceError>;
}

/// Accounts with quotas are kept in memory.
pub const QUOTAS_MAX: usize = 100_000;

/// A user, group or directory whose files are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    pub scope: Scope,
    /// A uid, a gid, or a directory's file id.
    pub id: u64,
}

impl Account {
    pub fn user(uid: u32) -> Account {
        Account { scope: Scope::User, id: uid.into() }
    }

    pub fn group(gid: u32) -> Account {
        Account { scope: Scope::Group, id: gid.into() }
    }

    pub fn tree(dir: FileId) -> Account {
        Account { scope: Scope::Tree, id: dir.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    User,
    Group,
    /// Everything below a directory, without itself.
    Tree,
}

/// Usage of an account, or a change of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Everything that is no directory, a file of several names once.
    pub files: i64,
    pub directories: i64,
    /// Sizes of the regular files as told, holes included.
    pub bytes: i64,
}

impl Counted {
    pub fn is_nothing(&self) -> bool {
        *self == Counted::default()
    }

    pub fn add(&mut self, other: &Counted) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }

    pub fn subtract(&mut self, other: &Counted) {
        self.files -= other.files;
        self.directories -= other.directories;
        self.bytes = self.bytes.wrapping_sub(other.bytes);
    }

    /// The entries that a limit of files counts.
    pub fn entries(&self) -> u64 {
        (self.files + self.directories).max(0).cast_unsigned()
    }

    /// Of what an account has: sparse files can be more than half of what a number holds.
    pub fn bytes(&self) -> u64 {
        self.bytes.cast_unsigned()
    }
}

/// Above `soft` for longer than the grace period is as above `hard`: nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub bytes: Limit,
    /// Of files and directories together.
    pub files: Limit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
    /// Seconds since 1970; since when it is above `soft`.
    pub over_since: Option<u64>,
}

impl Limit {
    /// The bound that is in force: `hard`, and `soft` once it was passed for the grace period.
    pub fn binding(&self, now_s: u64, grace_s: u64) -> Option<u64> {
        let is_over = self.over_since.is_some_and(|since| now_s >= since.saturating_add(grace_s));
        match (self.hard, self.soft.filter(|_| is_over)) {
            (Some(hard), Some(soft)) => Some(hard.min(soft)),
            (hard, soft) => hard.or(soft),
        }
    }

    /// With so much in use.
    pub fn noted(self, used: u64, now_s: u64) -> Limit {
        let is_over = self.soft.is_some_and(|soft| used > soft);
        Limit { over_since: is_over.then(|| self.over_since.unwrap_or(now_s)), ..self }
    }
}

/// An account with a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub account: Account,
    pub quota: Quota,
    pub used: Counted,
    /// Growth that is still allowed; `None`: no limit.
    pub bytes_left: Option<u64>,
    pub files_left: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Limit = Limit { soft: Some(10), hard: Some(20), over_since: None };

    #[test]
    fn a_soft_limit_binds_when_its_grace_is_over() {
        let over = LIMIT.noted(11, 1000);
        assert_eq!(over.over_since, Some(1000));
        assert_eq!((over.binding(1059, 60), over.binding(1060, 60)), (Some(20), Some(10)));
        // The time of passing it stands.
        assert_eq!(over.noted(15, 1030).over_since, Some(1000));
    }

    #[test]
    fn usage_at_the_soft_limit_is_not_over_it() {
        assert_eq!(LIMIT.noted(10, 1000).over_since, None);
        assert_eq!(LIMIT.noted(11, 1000).noted(10, 1001).over_since, None);
    }

    #[test]
    fn usage_without_a_limit_is_never_bound() {
        assert_eq!(Limit::default().noted(u64::MAX, 9).binding(u64::MAX, 0), None);
    }
}
