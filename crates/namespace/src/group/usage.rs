//! Accounts in a group, and whether quotas allow its changes.
//!
//! Each change of an inode is counted as it is put into the group (`charges`). This asks the database nothing; only if some
//! tree has a quota, the group follows the way up, once for each directory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::{Account, Counted, NamespaceError, Quota, Scope};
use types::{Clock, FileId, Identity};

use super::charges::{Holding, negative};
use super::error::OpResult;
use super::inodes::Inodes;
use super::rows::Rows;
use crate::accounts::{Accounts, Limited, Settled, WAY_MAX, journal};
use crate::counts::Question;
use crate::inode::{Inode, NO_PARENT};
use crate::store::StoreResult;

/// Quotas as the group finds and changes them.
pub struct Quotas<'a> {
    accounts: &'a Accounts,
    clock: &'a dyn Clock,
    /// Changes of trees with quotas, wherever below them it happened.
    charged: HashMap<FileId, Counted>,
    /// The trees with quotas that a directory is or lies in.
    trees_of: HashMap<FileId, Arc<[FileId]>>,
    changed: BTreeMap<Account, Option<Quota>>,
    settled: Settled,
    /// This group puts everything that is noted into `usage`.
    pub is_flush: bool,
}

impl<'a> Quotas<'a> {
    pub fn new(accounts: &'a Accounts, clock: &'a dyn Clock) -> Quotas<'a> {
        Quotas {
            accounts,
            clock,
            charged: HashMap::new(),
            trees_of: HashMap::new(),
            changed: BTreeMap::new(),
            settled: Settled::default(),
            is_flush: false,
        }
    }

    fn now_s(&self) -> u64 {
        u64::try_from(self.clock.now().seconds).unwrap_or(0)
    }

    /// For memory, once the group is written.
    pub fn settled(&mut self) -> Settled {
        std::mem::take(&mut self.settled)
    }
}

pub struct Usage<'g, 'a> {
    pub quotas: &'g mut Quotas<'a>,
    pub inodes: &'g mut Inodes<'a>,
    pub rows: &'g mut Rows,
}

impl Usage<'_, '_> {
    /// Refuses `new` in the place of `old` where an account would have too much. `freed` goes at the same time.
    pub fn require_quota(
        &mut self,
        who: &Identity,
        (old, new): (Option<&Inode>, &Inode),
        freed: Option<&Inode>,
    ) -> OpResult<()> {
        if who.is_root() || !self.quotas.accounts.has_quotas() {
            return Ok(());
        }
        self.charge()?;
        let new = Holding::of(new);
        let gone: Vec<Holding> = [old, freed].into_iter().flatten().map(Holding::of).collect();
        let growth = |counts_for: &dyn Fn(&Holding) -> bool| {
            let mut more = new.counted;
            gone.iter().filter(|gone| counts_for(gone)).for_each(|gone| more.subtract(&gone.counted));
            more
        };
        self.judge(Account::user(new.uid), &growth(&|gone| gone.uid == new.uid))?;
        self.judge(Account::group(new.gid), &growth(&|gone| gone.gid == new.gid))?;
        let mut trees_of_gone = HashMap::new();
        for gone in &gone {
            trees_of_gone.insert(gone.home, self.quota_trees(gone.home)?);
        }
        for tree in self.quota_trees(new.home)?.iter() {
            let more = growth(&|gone| trees_of_gone[&gone.home].contains(tree));
            self.judge(Account::tree(*tree), &more)?;
        }
        Ok(())
    }

    fn judge(&self, account: Account, more: &Counted) -> Result<(), NamespaceError> {
        let Some(mut limited) = self.quotas.accounts.limited(account) else { return Ok(()) };
        limited.used.add(&self.running(account));
        self.quotas.accounts.judge(&limited, more, self.quotas.now_s())
    }

    /// The change of the account by this group.
    fn running(&self, account: Account) -> Counted {
        let running = match account.scope {
            Scope::User | Scope::Group => self.inodes.charges.changes.get(&account),
            Scope::Tree => self.quotas.charged.get(&FileId(account.id)),
        };
        running.copied().unwrap_or_default()
    }

    /// Moves the usage of all entries below a directory to `to`; the directory itself is counted when it is put. No
    /// later step may be refused.
    pub fn move_tree(&mut self, who: &Identity, dir: &Inode, to: FileId) -> OpResult<()> {
        let from = dir.parent;
        // Changes noted below it, and not in this row, follow it by themselves.
        let row = self.inodes.source.ask(Question::Usage).usage(Account::tree(dir.id()))?;
        if self.inodes.charges.tracks_trees {
            self.charge()?;
            let (left, joined) = (self.quota_trees(from)?, self.quota_trees(to)?);
            let only = |these: &[FileId], others: &[FileId]| -> Vec<FileId> {
                these.iter().copied().filter(|tree| !others.contains(tree)).collect()
            };
            let (left, joined) = (only(&left, &joined), only(&joined, &left));
            if !left.is_empty() || !joined.is_empty() {
                let below = self.usage_of(Account::tree(dir.id()))?;
                let mut whole = below;
                whole.directories += 1;
                // So many that they look like less than nothing.
                whole.bytes = if whole.bytes < 0 { i64::MAX } else { whole.bytes };
                for tree in joined.iter().filter(|_| !who.is_root()) {
                    self.judge(Account::tree(*tree), &whole)?;
                }
                let charged = &mut self.quotas.charged;
                left.into_iter().for_each(|tree| charged.entry(tree).or_default().subtract(&below));
                joined.into_iter().for_each(|tree| charged.entry(tree).or_default().add(&below));
            }
            self.quotas.trees_of.clear();
        }
        self.inodes.charges.change(Account::tree(from), &negative(&row));
        self.inodes.charges.change(Account::tree(to), &row);
        Ok(())
    }

    pub fn close_tree(&mut self, dir: &Inode) {
        let account = Account::tree(dir.id());
        let noted = self.quotas.accounts.noted(account);
        self.inodes.charges.close(dir.id(), dir.parent, noted);
        self.quotas.changed.remove(&account);
        if self.quotas.accounts.limited(account).is_some() {
            self.quotas.settled.limited.insert(account, None);
        }
        self.rows.batch.closed_accounts.insert(account);
    }

    /// With everything that was done before.
    pub fn usage_of(&mut self, account: Account) -> StoreResult<Counted> {
        let mut counted = self.inodes.source.ask(Question::Usage).usage(account)?;
        if account.scope != Scope::Tree {
            counted.add(&self.quotas.accounts.noted(account));
            counted.add(&self.running(account));
            return Ok(counted);
        }
        for (of, change) in self.all_changes() {
            if of.scope == Scope::Tree && self.inodes.lies_within(FileId(of.id), FileId(account.id))? {
                counted.add(&change);
            }
        }
        Ok(counted)
    }

    /// Changes that `usage` does not have.
    fn all_changes(&self) -> HashMap<Account, Counted> {
        let mut all = self.quotas.accounts.all_noted();
        for (account, change) in &self.inodes.charges.changes {
            all.entry(*account).or_default().add(change);
        }
        all.retain(|_, change| !change.is_nothing());
        all
    }

    pub fn set_quota(&mut self, account: Account, quota: Option<Quota>) {
        self.quotas.changed.insert(account, quota);
        self.rows.change();
    }

    /// Before the batch is written: what it says of accounts.
    pub fn finish(&mut self) -> StoreResult<()> {
        self.charge()?;
        self.finish_quotas()?;
        let changes = &mut self.inodes.charges.changes;
        changes.retain(|_, change| !change.is_nothing());
        if !self.quotas.is_flush {
            if !changes.is_empty() {
                self.rows.batch.journal = Some(journal::encode(changes.iter()));
            }
            self.quotas.settled.changes = std::mem::take(changes);
            return Ok(());
        }
        let all = self.all_changes();
        let mut usage = BTreeMap::new();
        let mut ways = HashMap::new();
        for (account, change) in all {
            match account.scope {
                Scope::User | Scope::Group => add(&mut usage, account, &change),
                Scope::Tree => {
                    for dir in self.inodes.way_up(&mut ways, FileId(account.id))? {
                        add(&mut usage, Account::tree(dir), &change);
                    }
                }
            }
        }
        usage.retain(|_, change| !change.is_nothing());
        self.rows.batch.usage = usage;
        self.rows.batch.ends_journal = true;
        self.quotas.settled.is_flushed = true;
        Ok(())
    }

    fn finish_quotas(&mut self) -> StoreResult<()> {
        let now_s = self.quotas.now_s();
        let of_owners =
            self.inodes.charges.changes.keys().filter(|account| account.scope != Scope::Tree).copied();
        let of_trees = self.quotas.charged.keys().map(|tree| Account::tree(*tree));
        let touched: BTreeSet<Account> = of_owners.chain(of_trees).collect();
        for account in touched {
            let Some(mut limited) = self.quotas.accounts.limited(account) else { continue };
            if self.quotas.settled.limited.contains_key(&account) {
                continue;
            }
            let before = limited.quota;
            limited.used.add(&self.running(account));
            limited.quota = noted(limited, now_s);
            if limited.quota != before {
                self.rows.batch.quotas.insert(account, Some(limited.quota));
            }
            self.quotas.settled.limited.insert(account, Some(limited));
        }
        for (account, quota) in std::mem::take(&mut self.quotas.changed) {
            let known =
                self.quotas.accounts.limited(account).map(|limited| limited.quota).unwrap_or_default();
            let limited = match quota {
                None => None,
                Some(mut quota) => {
                    quota.bytes.over_since = known.bytes.over_since;
                    quota.files.over_since = known.files.over_since;
                    let used = self.usage_of(account)?;
                    let quota = noted(Limited { quota, used }, now_s);
                    Some(Limited { quota, used })
                }
            };
            self.rows.batch.quotas.insert(account, limited.map(|limited| limited.quota));
            self.quotas.settled.limited.insert(account, limited);
        }
        Ok(())
    }

    /// Brings what happened in directories to the trees with quotas.
    fn charge(&mut self) -> StoreResult<()> {
        for (home, change) in std::mem::take(&mut self.inodes.charges.uncharged) {
            for tree in self.quota_trees(home)?.iter() {
                self.quotas.charged.entry(*tree).or_default().add(&change);
            }
        }
        Ok(())
    }

    fn quota_trees(&mut self, dir: FileId) -> StoreResult<Arc<[FileId]>> {
        if !self.inodes.charges.tracks_trees {
            return Ok(Arc::default());
        }
        let mut way = Vec::new();
        let mut at = dir;
        let mut trees: Arc<[FileId]> = loop {
            if let Some(known) = self.quotas.trees_of.get(&at) {
                break Arc::clone(known);
            }
            if at == NO_PARENT || way.len() >= WAY_MAX {
                break Arc::from([]);
            }
            way.push(at);
            at = self.inodes.parent_of(at)?;
        };
        for dir in way.into_iter().rev() {
            if self.quotas.accounts.limited(Account::tree(dir)).is_some() {
                trees = trees.iter().copied().chain([dir]).collect();
            }
            self.quotas.trees_of.insert(dir, Arc::clone(&trees));
        }
        Ok(trees)
    }
}

fn add(usage: &mut BTreeMap<Account, Counted>, account: Account, change: &Counted) {
    usage.entry(account).or_default().add(change);
}

/// Since when it is above which limit.
fn noted(Limited { quota, used }: Limited, now_s: u64) -> Quota {
    Quota { bytes: quota.bytes.noted(used.bytes(), now_s), files: quota.files.noted(used.entries(), now_s) }
}
