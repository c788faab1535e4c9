//! Changes of accounts by a group, and whether quotas allow them.
//!
//! Each change of an inode is counted as it is put into the group, so that the next operation sees it. This asks the
//! database nothing; only if some tree has a quota, the group follows the way up, once for each directory.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use api::{Account, Counted, NamespaceError, Quota, Scope};
use types::{FileId, Identity};

use super::{Group, OpError, OpResult};
use crate::accounts::{Accounts, Limited, Settled, WAY_MAX, journal};
use crate::counts::Question;
use crate::inode::{Inode, NO_PARENT};
use crate::store::StoreResult;

#[derive(Default)]
pub struct Charges {
    /// Of trees, by the directory in which it happened.
    changes: HashMap<Account, Counted>,
    tracks_trees: bool,
    /// Changes in directories that are not in `charged` yet.
    uncharged: Vec<(FileId, Counted)>,
    /// Of trees with quotas, wherever below them it happened.
    charged: HashMap<FileId, Counted>,
    /// The trees with quotas that a directory is or lies in.
    quota_trees: HashMap<FileId, Arc<[FileId]>>,
    quotas: BTreeMap<Account, Option<Quota>>,
    settled: Settled,
    /// This group puts everything that is noted into `usage`.
    pub is_flush: bool,
}

/// Where an inode counts, and for how much.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Holding {
    uid: u32,
    gid: u32,
    home: FileId,
    counted: Counted,
}

impl Holding {
    fn of(inode: &Inode) -> Holding {
        let attributes = &inode.attributes;
        let is_directory = inode.is_directory();
        let counted = Counted {
            files: i64::from(!is_directory),
            directories: i64::from(is_directory),
            bytes: super::counted_bytes(inode),
        };
        Holding { uid: attributes.uid, gid: attributes.gid, home: inode.parent, counted }
    }
}

fn negative(counted: &Counted) -> Counted {
    let mut negative = Counted::default();
    negative.subtract(counted);
    negative
}

impl Charges {
    pub fn new(accounts: &Accounts) -> Charges {
        Charges { tracks_trees: accounts.has_tree_quotas(), ..Charges::default() }
    }

    /// `new` stands where `old` stood.
    pub fn exchange(&mut self, old: Option<&Inode>, new: Option<&Inode>) {
        let (old, new) = (old.map(Holding::of), new.map(Holding::of));
        if old == new {
            return;
        }
        if let Some(old) = old {
            self.count(&Holding { counted: negative(&old.counted), ..old });
        }
        if let Some(new) = new {
            self.count(&new);
        }
    }

    fn count(&mut self, holding: &Holding) {
        let Holding { uid, gid, home, counted } = holding;
        self.change(Account::user(*uid), counted);
        self.change(Account::group(*gid), counted);
        if *home != NO_PARENT {
            self.change(Account::tree(*home), counted);
            if self.tracks_trees {
                self.uncharged.push((*home, *counted));
            }
        }
    }

    fn change(&mut self, account: Account, by: &Counted) {
        self.changes.entry(account).or_default().add(by);
    }

    fn running(&self, account: Account) -> Counted {
        let running = match account.scope {
            Scope::User | Scope::Group => self.changes.get(&account),
            Scope::Tree => self.charged.get(&FileId(account.id)),
        };
        running.copied().unwrap_or_default()
    }

    /// Removes an empty directory. Changes noted at it are moved to its parent.
    fn close(&mut self, dir: FileId, parent: FileId, noted: Counted) {
        let account = Account::tree(dir);
        let mut rest = self.changes.remove(&account).unwrap_or_default();
        rest.add(&noted);
        if !noted.is_nothing() {
            self.change(account, &negative(&noted));
        }
        self.change(Account::tree(parent), &rest);
        for (home, _) in self.uncharged.iter_mut().filter(|(home, _)| *home == dir) {
            *home = parent;
        }
        self.quotas.remove(&account);
    }

    /// For memory, once the group is written.
    pub fn settled(&mut self) -> Settled {
        std::mem::take(&mut self.settled)
    }
}

impl Group<'_> {
    fn now_s(&self) -> u64 {
        u64::try_from(self.now().seconds).unwrap_or(0)
    }

    /// Refuses `new` in the place of `old` where an account would have too much. `freed` goes at the same time.
    pub fn require_quota(
        &mut self,
        who: &Identity,
        (old, new): (Option<&Inode>, &Inode),
        freed: Option<&Inode>,
    ) -> OpResult<()> {
        if who.is_root() || !self.accounts.has_quotas() {
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
        let Some(mut limited) = self.accounts.limited(account) else { return Ok(()) };
        limited.used.add(&self.charges.running(account));
        self.accounts.judge(&limited, more, self.now_s())
    }

    /// Moves the usage of all entries below a directory to `to`; the directory itself is counted when it is put. No
    /// later step may be refused.
    pub fn move_tree(&mut self, who: &Identity, dir: &Inode, to: FileId) -> OpResult<()> {
        let from = dir.parent;
        // Changes noted below it, and not in this row, follow it by themselves.
        let row = self.ask(Question::Usage).usage(Account::tree(dir.id()))?;
        if self.charges.tracks_trees {
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
                let charged = &mut self.charges.charged;
                left.into_iter().for_each(|tree| charged.entry(tree).or_default().subtract(&below));
                joined.into_iter().for_each(|tree| charged.entry(tree).or_default().add(&below));
            }
            self.charges.quota_trees.clear();
        }
        self.charges.change(Account::tree(from), &negative(&row));
        self.charges.change(Account::tree(to), &row);
        Ok(())
    }

    pub(super) fn close_tree(&mut self, dir: &Inode) {
        let account = Account::tree(dir.id());
        self.charges.close(dir.id(), dir.parent, self.accounts.noted(account));
        if self.accounts.limited(account).is_some() {
            self.charges.settled.limited.insert(account, None);
        }
        self.batch.closed_accounts.insert(account);
    }

    /// With everything that was done before.
    pub fn usage_of(&mut self, account: Account) -> StoreResult<Counted> {
        let mut counted = self.ask(Question::Usage).usage(account)?;
        if account.scope != Scope::Tree {
            counted.add(&self.accounts.noted(account));
            counted.add(&self.charges.running(account));
            return Ok(counted);
        }
        for (of, change) in self.all_changes() {
            if of.scope == Scope::Tree && self.lies_within(FileId(of.id), FileId(account.id))? {
                counted.add(&change);
            }
        }
        Ok(counted)
    }

    /// Changes that `usage` does not have.
    fn all_changes(&self) -> HashMap<Account, Counted> {
        let mut all = self.accounts.all_noted();
        for (account, change) in &self.charges.changes {
            all.entry(*account).or_default().add(change);
        }
        all.retain(|_, change| !change.is_nothing());
        all
    }

    pub fn set_quota(&mut self, account: Account, quota: Option<Quota>) {
        self.charges.quotas.insert(account, quota);
        self.is_written = true;
    }

    /// Before the batch is written: what it says of accounts.
    pub(super) fn finish_accounts(&mut self) -> StoreResult<()> {
        self.charge()?;
        self.finish_quotas()?;
        let charges = &mut self.charges;
        charges.changes.retain(|_, change| !change.is_nothing());
        if !charges.is_flush {
            if !charges.changes.is_empty() {
                self.batch.journal = Some(journal::encode(charges.changes.iter()));
            }
            charges.settled.changes = std::mem::take(&mut charges.changes);
            return Ok(());
        }
        let all = self.all_changes();
        let mut usage = BTreeMap::new();
        let mut ways = HashMap::new();
        for (account, change) in all {
            match account.scope {
                Scope::User | Scope::Group => add(&mut usage, account, &change),
                Scope::Tree => {
                    for dir in self.way_up(&mut ways, FileId(account.id))? {
                        add(&mut usage, Account::tree(dir), &change);
                    }
                }
            }
        }
        usage.retain(|_, change| !change.is_nothing());
        self.batch.usage = usage;
        self.batch.ends_journal = true;
        self.charges.settled.is_flushed = true;
        Ok(())
    }

    /// A directory and all above it. `parents` is what was found before.
    fn way_up(&mut self, parents: &mut HashMap<FileId, FileId>, dir: FileId) -> StoreResult<Vec<FileId>> {
        let mut way = Vec::new();
        let mut at = dir;
        while at != NO_PARENT && way.len() < WAY_MAX {
            way.push(at);
            at = match parents.get(&at) {
                Some(parent) => *parent,
                None => *parents.entry(at).or_insert(self.parent_of(at)?),
            };
        }
        Ok(way)
    }

    fn finish_quotas(&mut self) -> StoreResult<()> {
        let now_s = self.now_s();
        let of_owners = self.charges.changes.keys().filter(|account| account.scope != Scope::Tree).copied();
        let of_trees = self.charges.charged.keys().map(|tree| Account::tree(*tree));
        let touched: BTreeSet<Account> = of_owners.chain(of_trees).collect();
        for account in touched {
            let Some(mut limited) = self.accounts.limited(account) else { continue };
            if self.charges.settled.limited.contains_key(&account) {
                continue;
            }
            let before = limited.quota;
            limited.used.add(&self.charges.running(account));
            limited.quota = noted(limited, now_s);
            if limited.quota != before {
                self.batch.quotas.insert(account, Some(limited.quota));
            }
            self.charges.settled.limited.insert(account, Some(limited));
        }
        for (account, quota) in std::mem::take(&mut self.charges.quotas) {
            let known = self.accounts.limited(account).map(|limited| limited.quota).unwrap_or_default();
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
            self.batch.quotas.insert(account, limited.map(|limited| limited.quota));
            self.charges.settled.limited.insert(account, limited);
        }
        Ok(())
    }

    /// Brings what happened in directories to the trees with quotas.
    fn charge(&mut self) -> StoreResult<()> {
        for (home, change) in std::mem::take(&mut self.charges.uncharged) {
            for tree in self.quota_trees(home)?.iter() {
                self.charges.charged.entry(*tree).or_default().add(&change);
            }
        }
        Ok(())
    }

    fn quota_trees(&mut self, dir: FileId) -> StoreResult<Arc<[FileId]>> {
        if !self.charges.tracks_trees {
            return Ok(Arc::default());
        }
        let mut way = Vec::new();
        let mut at = dir;
        let mut trees: Arc<[FileId]> = loop {
            if let Some(known) = self.charges.quota_trees.get(&at) {
                break Arc::clone(known);
            }
            if at == NO_PARENT || way.len() >= WAY_MAX {
                break Arc::from([]);
            }
            way.push(at);
            at = self.parent_of(at)?;
        };
        for dir in way.into_iter().rev() {
            if self.accounts.limited(Account::tree(dir)).is_some() {
                trees = trees.iter().copied().chain([dir]).collect();
            }
            self.charges.quota_trees.insert(dir, Arc::clone(&trees));
        }
        Ok(trees)
    }

    fn lies_within(&mut self, dir: FileId, tree: FileId) -> StoreResult<bool> {
        let mut at = dir;
        for _ in 0..WAY_MAX {
            if at == tree || at == NO_PARENT {
                break;
            }
            at = self.parent_of(at)?;
        }
        Ok(at == tree)
    }

    /// `NO_PARENT` also where there is no such directory.
    fn parent_of(&mut self, dir: FileId) -> StoreResult<FileId> {
        match self.inode(dir) {
            Ok(inode) => Ok(inode.parent),
            Err(OpError::Refused(_)) => Ok(NO_PARENT),
            Err(OpError::Failed(error)) => Err(error),
        }
    }
}

fn add(usage: &mut BTreeMap<Account, Counted>, account: Account, change: &Counted) {
    usage.entry(account).or_default().add(change);
}

/// Since when it is above which limit.
fn noted(Limited { quota, used }: Limited, now_s: u64) -> Quota {
    Quota { bytes: quota.bytes.noted(used.bytes(), now_s), files: quota.files.noted(used.entries(), now_s) }
}
