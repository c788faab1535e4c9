//! The reference model of unnamed files, and of what hangs on files: properties, checksums, extended attributes.

use std::collections::BTreeMap;

use api::PropertyChange;
use bytes::Bytes;
use types::{Checksum, Identity, PoolId};

use super::{Answer, Model, Refusal, SEARCH, Seen, WRITE, drop_privileges, entries_changed, inherit};

/// Rows attached to a file: its properties, its checksums, its extended attributes.
pub type Attached = (BTreeMap<String, Bytes>, Vec<Checksum>, Vec<(String, u8)>);

impl Model {
    /// One of those that wait for their name; the root, which is no such file, if none does.
    pub fn unnamed(&self, index: usize) -> usize {
        let is_unnamed = |number: &usize| self.nodes[*number].as_ref().is_some_and(|node| node.is_unnamed);
        let waiting: Vec<usize> = (0..self.nodes.len()).filter(is_unnamed).collect();
        if waiting.is_empty() { index % self.nodes.len() } else { waiting[index % waiting.len()] }
    }

    pub fn create_unnamed(&mut self, who: &Identity, dir: usize, permissions: u32) -> Answer<Seen> {
        self.search(who, dir)?;
        let parent = self.read(dir)?.seen;
        self.need(who, &parent, WRITE | SEARCH)?;
        let mut node = self.node(permissions, who, false);
        (node.is_regular, node.is_unnamed, node.seen.nlink) = (true, true, 0);
        node.locations.insert(PoolId(1));
        inherit(&mut node.seen, &parent, who);
        let seen = node.seen;
        self.nodes.push(Some(node));
        Ok(seen)
    }

    /// `is_allowed`: by the rule of the publish.
    pub fn publish(
        &mut self,
        who: &Identity,
        file: usize,
        (dir, name): (usize, &str),
        size: u64,
        is_allowed: bool,
        checksums: Vec<Checksum>,
    ) -> Answer<Seen> {
        if !self.read(file)?.is_unnamed {
            return Err(Refusal::Stale);
        }
        self.search(who, dir)?;
        let there = self.child(dir, name);
        if !is_allowed {
            return Err(Refusal::Exists);
        }
        let mut new = self.read(file)?.clone();
        match there {
            None => self.need(who, &self.read(dir)?.seen, WRITE | SEARCH)?,
            Some(there) => {
                self.may_take(who, dir, there)?;
                let old = self.read(there)?.clone();
                if old.seen.is_directory {
                    return Err(Refusal::IsDirectory);
                }
                let is_symlink = !old.is_regular && old.seen.size > 0;
                if !old.is_regular && !is_symlink {
                    return Err(Refusal::NotRegular);
                }
                self.need(who, &old.seen, WRITE)?;
                if old.is_regular {
                    new.seen.mode = drop_privileges(old.seen.mode);
                    (new.seen.uid, new.seen.gid) = (old.seen.uid, old.seen.gid);
                    if new.properties.is_empty() {
                        new.properties = old.properties;
                    }
                    if new.xattrs.is_empty() {
                        new.xattrs = old.xattrs;
                    }
                }
                self.take(dir, name);
            }
        }
        new.is_unnamed = false;
        new.checksums = checksums;
        (new.seen.nlink, new.seen.size) = (1, size);
        (new.seen.mtime, new.seen.ctime) = (self.now, self.now);
        let (seen, now) = (new.seen, self.now);
        *self.write(file) = new;
        let parent = self.write(dir);
        parent.children.insert(name.to_owned(), file);
        entries_changed(parent, now);
        Ok(seen)
    }

    pub fn set_properties(
        &mut self,
        who: &Identity,
        file: usize,
        changes: &[PropertyChange],
    ) -> Answer<Seen> {
        let seen = self.read(file)?.seen;
        if changes.is_empty() {
            return Ok(seen);
        }
        if who.uid != 0 && who.uid != seen.uid {
            self.need(who, &seen, WRITE)?;
        }
        let now = self.now;
        let node = self.write(file);
        for change in changes {
            match change {
                PropertyChange::Set(set) => drop(node.properties.insert(set.name.clone(), set.value.clone())),
                PropertyChange::Remove(name) => drop(node.properties.remove(name)),
            }
        }
        node.seen.ctime = now;
        Ok(node.seen)
    }

    pub fn record(&mut self, file: usize, is_late: bool, checksum: Checksum) -> Answer<bool> {
        let node = self.read(file)?;
        if !node.is_regular {
            return Err(if node.seen.is_directory { Refusal::IsDirectory } else { Refusal::NotRegular });
        }
        if !is_late {
            self.write(file).checksums = vec![checksum];
        }
        Ok(!is_late)
    }

    pub fn attached(&self, file: usize) -> Answer<Attached> {
        self.read(file).map(|node| (node.properties.clone(), node.checksums.clone(), node.xattrs.clone()))
    }
}
