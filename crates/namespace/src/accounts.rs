//! Usage and quotas of accounts: the part that is kept in memory.
//!
//! The table `usage` holds each account as of some moment. Later changes are kept here, and those of each group in one
//! row of the journal: they are exact also after a crash, and a create writes no row of its own for them. A change in a
//! tree is noted at the directory in which it happened. From time to time a group writes all changes into `usage`, for
//! each directory and for all above it, and ends the journal. Until then the usage of a tree is its row and the changes
//! noted below it.
//!
//! Of an account with a quota the current usage itself is kept, for it is asked before each change.

pub mod counting;
pub mod journal;
pub mod load;
#[cfg(test)]
mod tests;

pub use load::load;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use api::{Account, Counted, NamespaceError, Quota, Scope, Standing};
use parking_lot::Mutex;

/// Accounts of which something is noted before all of it is put into `usage`; a group may bring some more.
const NOTED_MAX: usize = 1024;
/// Directories one above the other: where a damaged database leads in a circle, the way up ends nevertheless.
pub const WAY_MAX: usize = 1 << 20;
pub const GRACE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// As all databases keep it.
pub fn scope_number(scope: Scope) -> i16 {
    match scope {
        Scope::User => 0,
        Scope::Group => 1,
        Scope::Tree => 2,
    }
}

pub fn scope_of(number: i64) -> Option<Scope> {
    [Scope::User, Scope::Group, Scope::Tree]
        .into_iter()
        .find(|scope| i64::from(scope_number(*scope)) == number)
}

/// The sum of two columns of bytes as `Counted` has it: beyond the largest number it goes on from the smallest, for what
/// is added is taken off again some day. SQL's own sum fails there, and sparse files come there at no cost.
pub fn wrapping_sum(a: &str, b: &str) -> String {
    let low = format!("(({a} & 4294967295) + ({b} & 4294967295))");
    format!("(((({a} >> 32) + ({b} >> 32) + ({low} >> 32)) << 32) | ({low} & 4294967295))")
}

/// Written by the committer only.
pub struct Accounts {
    /// Leaf lock.
    books: Mutex<Books>,
    quotas_len: AtomicUsize,
    has_tree_quotas: AtomicBool,
    grace_s: AtomicU64,
}

#[derive(Default)]
struct Books {
    /// Changes that `usage` does not have yet; of trees, by the directory in which they happened.
    noted: HashMap<Account, Counted>,
    limited: BTreeMap<Account, Limited>,
}

/// An account with a quota, and what it has in truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limited {
    pub quota: Quota,
    pub used: Counted,
}

/// Changes of a group that is written.
#[derive(Debug, Default)]
pub struct Settled {
    /// To be added to what is noted, unless `is_flushed`: then nothing is left.
    pub changes: HashMap<Account, Counted>,
    pub is_flushed: bool,
    /// `None`: it has no quota any more.
    pub limited: BTreeMap<Account, Option<Limited>>,
}

impl Default for Accounts {
    fn default() -> Accounts {
        Accounts {
            books: Mutex::default(),
            quotas_len: AtomicUsize::new(0),
            has_tree_quotas: AtomicBool::new(false),
            grace_s: AtomicU64::new(GRACE.as_secs()),
        }
    }
}

impl Accounts {
    pub fn settle(&self, settled: Settled) {
        let mut books = self.books.lock();
        if settled.is_flushed {
            books.noted.clear();
        } else {
            books.note(settled.changes);
        }
        if settled.limited.is_empty() {
            return;
        }
        for (account, limited) in settled.limited {
            match limited {
                Some(limited) => books.limited.insert(account, limited),
                None => books.limited.remove(&account),
            };
        }
        let has_trees = books.limited.keys().any(|account| account.scope == Scope::Tree);
        self.has_tree_quotas.store(has_trees, Ordering::Release);
        self.quotas_len.store(books.limited.len(), Ordering::Release);
    }

    /// Adds the changes that earlier groups noted.
    pub fn load(&self, noted: HashMap<Account, Counted>) {
        self.books.lock().note(noted);
    }

    pub fn has_quotas(&self) -> bool {
        self.quotas_len.load(Ordering::Acquire) != 0
    }

    pub fn quotas_len(&self) -> usize {
        self.quotas_len.load(Ordering::Acquire)
    }

    pub fn has_tree_quotas(&self) -> bool {
        self.has_tree_quotas.load(Ordering::Acquire)
    }

    pub fn has_noted(&self) -> bool {
        !self.books.lock().noted.is_empty()
    }

    /// Too much is noted to wait any longer.
    pub fn is_full(&self) -> bool {
        self.books.lock().noted.len() >= NOTED_MAX
    }

    pub fn noted(&self, account: Account) -> Counted {
        self.books.lock().noted.get(&account).copied().unwrap_or_default()
    }

    pub fn all_noted(&self) -> HashMap<Account, Counted> {
        self.books.lock().noted.clone()
    }

    pub fn limited(&self, account: Account) -> Option<Limited> {
        if !self.has_quotas() {
            return None;
        }
        self.books.lock().limited.get(&account).copied()
    }

    pub fn all_limited(&self) -> Vec<(Account, Limited)> {
        self.books.lock().limited.iter().map(|(account, limited)| (*account, *limited)).collect()
    }

    pub fn set_grace(&self, grace: Duration) {
        self.grace_s.store(grace.as_secs(), Ordering::Release);
    }

    pub fn standing(&self, account: Account, limited: &Limited, now_s: u64) -> Standing {
        let grace_s = self.grace_s.load(Ordering::Acquire);
        let Limited { quota, used } = *limited;
        let left = |limit: api::Limit, used: u64| {
            limit.binding(now_s, grace_s).map(|most| most.saturating_sub(used))
        };
        Standing {
            account,
            quota,
            used,
            bytes_left: left(quota.bytes, used.bytes()),
            files_left: left(quota.files, used.entries()),
        }
    }

    /// Whether an account may have `more`. An account is never refused less of something.
    pub fn judge(&self, limited: &Limited, more: &Counted, now_s: u64) -> Result<(), NamespaceError> {
        // The account does not matter to what is left.
        let standing = self.standing(Account::user(0), limited, now_s);
        let fits = |left: Option<u64>, more: i64| match (left, u64::try_from(more)) {
            (Some(left), Ok(more)) => more <= left,
            _ => true,
        };
        // Nothing more is no growth, however far above the limit it is.
        let entries = more.files + more.directories;
        if fits(standing.bytes_left, more.bytes) && fits(standing.files_left, entries) {
            Ok(())
        } else {
            Err(NamespaceError::QuotaExceeded)
        }
    }
}

impl Books {
    fn note(&mut self, changes: HashMap<Account, Counted>) {
        for (account, change) in changes {
            let noted = self.noted.entry(account).or_default();
            noted.add(&change);
            if noted.is_nothing() {
                self.noted.remove(&account);
            }
        }
    }
}

#[cfg(test)]
mod judging {
    use super::*;
    use api::Limit;

    fn files(files: i64, bytes: i64) -> Counted {
        Counted { files, directories: 0, bytes }
    }

    fn limited(used: Counted) -> Limited {
        let quota = Quota {
            bytes: Limit { soft: None, hard: Some(100), over_since: None },
            files: Limit { soft: Some(2), hard: None, over_since: Some(50) },
        };
        Limited { quota, used }
    }

    #[test]
    fn an_account_may_have_what_fits_and_nothing_more() {
        let accounts = Accounts::default();
        accounts.set_grace(Duration::from_secs(10));
        let judge = |used, more, now| accounts.judge(&limited(used), &more, now).is_ok();
        assert!(judge(files(1, 90), files(1, 10), 0));
        assert!(!judge(files(1, 90), files(0, 11), 0));
        // Above the limit already: what takes nothing more is allowed, and what gives something back.
        assert!(judge(files(9, 120), files(0, 0), 0));
        assert!(judge(files(9, 120), files(0, -5), 0));
        assert!(!judge(files(9, 120), files(0, 1), 0));
        // The soft limit, once its grace is over.
        assert!(judge(files(2, 0), files(1, 0), 59));
        assert!(!judge(files(2, 0), files(1, 0), 60));
    }

    #[test]
    fn changes_that_add_up_to_nothing_are_not_noted() {
        let accounts = Accounts::default();
        let change = |count| Settled {
            changes: HashMap::from([(Account::user(7), files(count, 0))]),
            ..Settled::default()
        };
        accounts.settle(change(2));
        assert_eq!(accounts.noted(Account::user(7)), files(2, 0));
        accounts.settle(change(-2));
        assert!(!accounts.has_noted());
    }
}
