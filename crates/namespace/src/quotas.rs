//! The seam of usage and quotas, answered: standings from memory, counts by the committer.

use std::time::Duration;

use api::{Account, Counted, NamespaceError, QUOTAS_MAX, Quota, Quotas, Scope, Standing};
use async_trait::async_trait;
use types::{FileId, Identity};

use crate::accounts::WAY_MAX;
use crate::inode::{Inode, NO_PARENT};
use crate::ops;
use crate::ops::mode_bits::SET_GID;
use crate::queue::Order;
use crate::service::SqlNamespace;

impl SqlNamespace {
    /// For how long an account may be above a soft limit; seven days where nobody says.
    pub fn set_quota_grace(&self, grace: Duration) {
        self.shared.accounts.set_grace(grace);
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.shared.clock.now().seconds).unwrap_or(0)
    }

    /// As this head remembers it, which may not be the truth (`require_certain`).
    pub(crate) fn standing_here(&self, account: Account) -> Option<Standing> {
        let limited = self.shared.accounts.limited(account)?;
        Some(self.shared.accounts.standing(account, &limited, self.now_s()))
    }

    /// Of the trees that have a quota, those that a directory is or lies in.
    async fn standings_above(&self, dir: FileId) -> Result<Vec<Standing>, NamespaceError> {
        let mut found = Vec::new();
        let mut at = dir;
        for _ in 0..WAY_MAX {
            if at == NO_PARENT || !self.shared.accounts.has_tree_quotas() {
                break;
            }
            found.extend(self.standing_here(Account::tree(at)));
            at = match self.lookups.inode(at).await {
                Ok(inode) => inode.parent,
                // It was removed meanwhile; a client that has the file open may still write it.
                Err(NamespaceError::Stale(_)) => NO_PARENT,
                Err(error) => return Err(error),
            };
        }
        Ok(found)
    }
}

fn home(inode: &Inode) -> FileId {
    if inode.is_directory() { inode.id() } else { inode.parent }
}

#[async_trait]
impl Quotas for SqlNamespace {
    async fn counted(&self, account: Account) -> Result<Counted, NamespaceError> {
        self.shared
            .submit_for(Order::BY_INSTANCE, [], move |group| Ok(group.usage().usage_of(account)?))
            .await
    }

    async fn quotas(&self) -> Result<Vec<Standing>, NamespaceError> {
        self.shared.require_certain().await?;
        let (accounts, now_s) = (&self.shared.accounts, self.now_s());
        let all = accounts.all_limited().into_iter();
        Ok(all.map(|(account, limited)| accounts.standing(account, &limited, now_s)).collect())
    }

    async fn standing(&self, account: Account) -> Result<Option<Standing>, NamespaceError> {
        self.shared.require_certain().await?;
        Ok(self.standing_here(account))
    }

    async fn set_quota(&self, account: Account, quota: Option<Quota>) -> Result<(), NamespaceError> {
        let is_more = quota.is_some() && self.standing_here(account).is_none();
        if is_more && self.shared.accounts.quotas_len() >= QUOTAS_MAX {
            return Err(NamespaceError::NoSpace);
        }
        // Their bytes are counted when the quota is: before the first one there was no need.
        let unsettled = self.shared.cache.waiting();
        self.shared
            .submit_for(Order::BY_INSTANCE, [], move |group| {
                group.take_unsettled(&unsettled)?;
                ops::quotas::set_quota(group, account, quota)
            })
            .await
    }

    fn are_any(&self) -> bool {
        self.shared.accounts.has_quotas()
    }

    async fn room(&self, who: &Identity, file: FileId) -> Result<Option<u64>, NamespaceError> {
        if who.is_root() || !self.shared.accounts.has_quotas() {
            return Ok(None);
        }
        let inode = self.lookups.inode(file).await?;
        let attributes = &inode.attributes;
        let (uid, gid) = match inode.is_directory() {
            true if attributes.mode & SET_GID != 0 => (who.uid, attributes.gid),
            true => (who.uid, who.gid),
            false => (attributes.uid, attributes.gid),
        };
        let owners = [Account::user(uid), Account::group(gid)].into_iter();
        let owners = owners.filter_map(|account| self.standing_here(account));
        let trees = self.standings_above(home(&inode)).await?;
        let left = owners.chain(trees).filter_map(|standing| standing.bytes_left).min();
        // Unstable writes that are not in the database are not counted yet.
        let stored =
            self.shared.cache.stored_inode(file).map_or(attributes.size, |stored| stored.attributes.size);
        Ok(left.map(|left| left.saturating_sub(attributes.size.saturating_sub(stored))))
    }

    async fn tree(&self, file: FileId) -> Result<Option<Standing>, NamespaceError> {
        if !self.shared.accounts.has_tree_quotas() {
            return Ok(None);
        }
        let trees = self.standings_above(home(&self.lookups.inode(file).await?)).await?;
        debug_assert!(trees.iter().all(|standing| standing.account.scope == Scope::Tree));
        let left = |standing: &Standing| {
            (standing.bytes_left.unwrap_or(u64::MAX), standing.files_left.unwrap_or(u64::MAX))
        };
        Ok(trees.into_iter().min_by_key(left))
    }
}
