//! Names in a group: what was looked up, and what changed since.
//!
//! Invariant: of a name that changed the last change alone is written; a name that was looked up is asked for once.

use std::collections::{HashMap, HashSet};

use types::{FileId, Name};

use super::error::OpResult;
use super::inodes::Inodes;
use super::rows::Rows;
use crate::cache::Changes;
use crate::counts::Question;
use crate::store::{Batch, NameChange};

#[derive(Default)]
pub struct LookedNames {
    by_name: HashMap<(FileId, Name), Looked>,
}

#[derive(Clone, Copy)]
struct Looked {
    child: Option<FileId>,
    change: Option<NameChange>,
}

impl LookedNames {
    pub fn write(&self, batch: &mut Batch) {
        let changed = self.by_name.iter().filter_map(|(key, looked)| Some((key.clone(), looked.change?)));
        batch.names.extend(changed);
    }

    /// For the cache, once the group is committed.
    pub fn tell(self, changes: &mut Changes) {
        for (key, looked) in self.by_name {
            let into =
                if looked.change.is_some() { &mut changes.dentries } else { &mut changes.learned.dentries };
            into.push((key, looked.child));
        }
    }
}

pub struct Names<'g, 'a> {
    pub looked: &'g mut LookedNames,
    pub inodes: &'g mut Inodes<'a>,
    pub rows: &'g mut Rows,
}

impl Names<'_, '_> {
    pub fn child(&mut self, dir: FileId, name: &Name) -> OpResult<Option<FileId>> {
        let key = (dir, name.clone());
        if let Some(looked) = self.looked.by_name.get(&key) {
            return Ok(looked.child);
        }
        let child = match self.inodes.source.cache.dentry(dir, name) {
            Some(child) => child,
            None if self.inodes.is_new(dir) => None,
            None => self.inodes.source.ask(Question::Name).child(dir, name)?,
        };
        self.looked.by_name.insert(key, Looked { child, change: None });
        Ok(child)
    }

    pub fn has_children(&mut self, dir: FileId) -> OpResult<bool> {
        let mut gone = HashSet::new();
        for ((parent, name), looked) in &self.looked.by_name {
            match (*parent == dir, looked.change) {
                (true, Some(NameChange::Remove)) => gone.insert(name),
                (true, Some(_)) => return Ok(true),
                _ => continue,
            };
        }
        let stored = self.inodes.source.ask(Question::List).some_names(dir, gone.len() + 1)?;
        Ok(stored.iter().any(|name| !gone.contains(name)))
    }

    /// A directory that has a name of the file, other than this one.
    pub fn other_parent(&mut self, file: FileId, but: (FileId, &Name)) -> OpResult<Option<FileId>> {
        let is_other = |(dir, name): &(FileId, Name)| (*dir, name) != but;
        let by_name = &self.looked.by_name;
        let changed = || by_name.iter().filter(|(_, looked)| looked.change.is_some());
        let made = changed().filter(|(key, looked)| looked.child == Some(file) && is_other(key));
        if let Some(dir) = made.map(|((dir, _), _)| *dir).min() {
            return Ok(Some(dir));
        }
        let stored = self.inodes.source.ask(Question::Names).names_of(file, changed().count() + 2)?;
        let is_there = |key: &(FileId, Name)| by_name.get(key).is_none_or(|looked| looked.change.is_none());
        Ok(stored.into_iter().filter(|key| is_other(key) && is_there(key)).map(|(dir, _)| dir).min())
    }

    pub fn add(&mut self, dir: FileId, name: &Name, cookie: u64, child: FileId) {
        self.change(dir, name, Some(child), NameChange::Put { cookie, child });
    }

    /// The name keeps its place in listings.
    pub fn replace(&mut self, dir: FileId, name: &Name, child: FileId) {
        let known = self.looked.by_name.get(&(dir, name.clone())).and_then(|looked| looked.change);
        let change = match known {
            Some(NameChange::Put { cookie, .. }) => NameChange::Put { cookie, child },
            _ => NameChange::Repoint { child },
        };
        self.change(dir, name, Some(child), change);
    }

    pub fn remove(&mut self, dir: FileId, name: &Name) {
        self.change(dir, name, None, NameChange::Remove);
    }

    fn change(&mut self, dir: FileId, name: &Name, child: Option<FileId>, change: NameChange) {
        self.rows.change();
        self.looked.by_name.insert((dir, name.clone()), Looked { child, change: Some(change) });
    }
}
