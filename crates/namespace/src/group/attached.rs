//! Rows of an inode in tables of their own: checksums, properties and extended attributes.
//!
//! The inode says whether there is any (`Extras`), so files without pay nothing. Rows of checksums that the inode
//! stopped speaking of are removed when it is written (`Inodes::write`); rows of properties are always what it says.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Checksum, FileId, XattrName};

use super::error::OpResult;
use super::inodes::Inodes;
use super::rows::Rows;
use crate::counts::Question;
use crate::inode::Inode;
use crate::store::{XattrEntry, XattrRow};

pub struct Attachments<'g, 'a> {
    pub inodes: &'g mut Inodes<'a>,
    pub rows: &'g mut Rows,
}

impl Attachments<'_, '_> {
    /// Adds to what is known, or begins anew where the data changed since. The caller puts the inode.
    pub fn add_checksums(&mut self, inode: &mut Inode, checksums: &[Checksum]) {
        let file = inode.id();
        let working = self.inodes.copies.get_mut(&file).expect("an inode gets checksums after it was read");
        if working.is_summed && !inode.extras.has_checksums {
            self.rows.change().checksums.clear(file);
            working.is_summed = false;
        }
        for checksum in checksums {
            self.rows.change().checksums.put(file, checksum.kind(), *checksum);
            working.is_summed = true;
            inode.extras.has_checksums = true;
        }
    }

    pub fn properties(&mut self, inode: &Inode) -> OpResult<BTreeMap<String, Bytes>> {
        if !inode.extras.has_properties {
            return Ok(BTreeMap::new());
        }
        let file = inode.id();
        let changed = &self.rows.batch.properties;
        let mut known = BTreeMap::new();
        if !changed.cleared.contains(&file) {
            let stored = self.inodes.source.ask(Question::Properties).properties(file)?;
            known.extend(stored.into_iter().map(|property| (property.name, property.value)));
        }
        for (name, value) in changed.rows.get(&file).into_iter().flatten() {
            match value {
                Some(value) => known.insert(name.clone(), value.clone()),
                None => known.remove(name),
            };
        }
        Ok(known)
    }

    pub fn set_property(&mut self, file: FileId, name: &str, value: &Bytes) {
        self.rows.change().properties.put(file, name.to_owned(), value.clone());
    }

    pub fn remove_property(&mut self, file: FileId, name: &str) {
        self.rows.change().properties.remove(file, name.to_owned());
    }

    /// To a file that has none; the one that had them may have further names and keeps them.
    pub fn copy_properties(&mut self, from: &Inode, to: FileId) -> OpResult<()> {
        for (name, value) in self.properties(from)? {
            self.set_property(to, &name, &value);
        }
        Ok(())
    }

    /// Those of the database with the changes of the group; without their values.
    pub fn xattrs(&mut self, inode: &Inode) -> OpResult<BTreeMap<XattrName, XattrEntry>> {
        if !inode.extras.has_xattrs {
            return Ok(BTreeMap::new());
        }
        let file = inode.id();
        let mut known = BTreeMap::new();
        if !self.inodes.is_new(file) {
            known.extend(self.inodes.source.ask(Question::Xattrs).xattrs(file)?);
        }
        for (name, row) in self.rows.batch.xattrs.rows.get(&file).into_iter().flatten() {
            match row {
                Some(row) => known.insert(name.clone(), row.entry()),
                None => known.remove(name),
            };
        }
        Ok(known)
    }

    pub fn set_xattr(&mut self, file: FileId, name: &XattrName, row: XattrRow) {
        self.rows.change().xattrs.put(file, name.clone(), row);
    }

    pub fn remove_xattr(&mut self, file: FileId, name: &XattrName) {
        self.rows.change().xattrs.remove(file, name.clone());
    }

    /// To a file that has none; the one that had them may have further names and keeps them. The cookies are of a file,
    /// so they go along.
    pub fn copy_xattrs(&mut self, from: &Inode, to: FileId) -> OpResult<()> {
        for (name, entry) in self.xattrs(from)? {
            let rows = self.rows.batch.xattrs.rows.get(&from.id());
            let changed = rows.and_then(|rows| rows.get(&name)?.clone());
            let value = match changed {
                Some(row) => Some(row.value),
                None => self.inodes.source.ask(Question::Xattr).xattr(from.id(), &name)?,
            };
            if let Some(value) = value {
                self.set_xattr(to, &name, XattrRow { cookie: entry.cookie, value });
            }
        }
        Ok(())
    }
}
