//! Extended attributes in a group: what the database has, with what the group changed.
//!
//! The inode says whether there are any (`Extras`), so files without pay nothing.

use std::collections::BTreeMap;

use types::{FileId, XattrName};

use super::{Group, OpResult};
use crate::counts::{Event, Question};
use crate::inode::Inode;
use crate::store::{XattrEntry, XattrRow};

impl Group<'_> {
    /// Without their values.
    pub fn xattrs(&mut self, inode: &Inode) -> OpResult<BTreeMap<XattrName, XattrEntry>> {
        if !inode.extras.has_xattrs {
            return Ok(BTreeMap::new());
        }
        let file = inode.id();
        let mut known = BTreeMap::new();
        if !self.is_new(file) {
            self.cache.counts.add(Event::Asked(Question::Xattrs));
            known.extend(self.store.xattrs(file)?);
        }
        for (name, row) in self.batch.xattrs.rows.get(&file).into_iter().flatten() {
            match row {
                Some(row) => known.insert(name.clone(), row.entry()),
                None => known.remove(name),
            };
        }
        Ok(known)
    }

    pub fn set_xattr(&mut self, file: FileId, name: &XattrName, row: XattrRow) {
        self.wrote();
        self.batch.xattrs.put(file, name.clone(), row);
    }

    pub fn remove_xattr(&mut self, file: FileId, name: &XattrName) {
        self.wrote();
        self.batch.xattrs.remove(file, name.clone());
    }

    /// To a file that has none; the one that had them may have further names and keeps them. The cookies are of a file,
    /// so they go along.
    pub fn copy_xattrs(&mut self, from: &Inode, to: FileId) -> OpResult<()> {
        for (name, entry) in self.xattrs(from)? {
            let changed = self.batch.xattrs.rows.get(&from.id()).and_then(|rows| rows.get(&name)?.clone());
            let value = match changed {
                Some(row) => Some(row.value),
                None => {
                    self.cache.counts.add(Event::Asked(Question::Xattr));
                    self.store.xattr(from.id(), &name)?
                }
            };
            if let Some(value) = value {
                self.set_xattr(to, &name, XattrRow { cookie: entry.cookie, value });
            }
        }
        Ok(())
    }
}
