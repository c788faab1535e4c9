//! Changes of accounts by the inodes of a group, as each of them is put.
//!
//! Invariant: what is noted here is the sum of all changes of inodes since the group began, so that the next operation sees
//! it.

use std::collections::HashMap;

use api::{Account, Counted};
use types::FileId;

use crate::inode::{Inode, NO_PARENT};

#[derive(Default)]
pub struct Charges {
    /// Of trees, by the directory in which it happened.
    pub changes: HashMap<Account, Counted>,
    /// Some tree has a quota.
    pub tracks_trees: bool,
    /// Changes in directories that have not reached the trees with quotas yet.
    pub uncharged: Vec<(FileId, Counted)>,
}

impl Charges {
    pub fn new(tracks_trees: bool) -> Charges {
        Charges { tracks_trees, ..Charges::default() }
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

    pub fn change(&mut self, account: Account, by: &Counted) {
        self.changes.entry(account).or_default().add(by);
    }

    /// Removes an empty directory. Changes noted at it are moved to its parent.
    pub fn close(&mut self, dir: FileId, parent: FileId, noted: Counted) {
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
    }
}

/// Where an inode counts, and for how much.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Holding {
    pub uid: u32,
    pub gid: u32,
    pub home: FileId,
    pub counted: Counted,
}

impl Holding {
    pub fn of(inode: &Inode) -> Holding {
        let attributes = &inode.attributes;
        let is_directory = inode.is_directory();
        let counted = Counted {
            files: i64::from(!is_directory),
            directories: i64::from(is_directory),
            bytes: counted_bytes(inode),
        };
        Holding { uid: attributes.uid, gid: attributes.gid, home: inode.parent, counted }
    }
}

pub fn negative(counted: &Counted) -> Counted {
    let mut negative = Counted::default();
    negative.subtract(counted);
    negative
}

pub fn counted_bytes(inode: &Inode) -> i64 {
    if inode.attributes.kind.is_regular() { inode.attributes.size.cast_signed() } else { 0 }
}
