//! Rows of an inode in tables of their own: checksums and properties.
//!
//! The inode says whether there is any (`Extras`), so files without pay nothing. Rows of checksums that the inode
//! stopped speaking of are removed when it is written (`Group::flush`); rows of properties are always what it says.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::{Checksum, FileId};

use super::{Group, OpResult};
use crate::counts::{Event, Question};
use crate::inode::Inode;

impl Group<'_> {
    /// Adds to what is known, or begins anew where the data changed since. The caller puts the inode.
    pub fn add_checksums(&mut self, inode: &mut Inode, checksums: &[Checksum]) {
        let file = inode.id();
        let working = self.inodes.get_mut(&file).expect("an inode gets checksums after it was read");
        if working.is_summed && !inode.extras.has_checksums {
            self.batch.checksums.clear(file);
            working.is_summed = false;
            self.is_written = true;
        }
        for checksum in checksums {
            self.batch.checksums.put(file, checksum.kind(), *checksum);
            working.is_summed = true;
            inode.extras.has_checksums = true;
            self.is_written = true;
        }
    }

    pub fn properties(&mut self, inode: &Inode) -> OpResult<BTreeMap<String, Bytes>> {
        if !inode.extras.has_properties {
            return Ok(BTreeMap::new());
        }
        let file = inode.id();
        let changed = &self.batch.properties;
        let mut known = BTreeMap::new();
        if !changed.cleared.contains(&file) {
            self.cache.counts.add(Event::Asked(Question::Properties));
            let stored = self.store.properties(file)?;
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
        self.is_written = true;
        self.batch.properties.put(file, name.to_owned(), value.clone());
    }

    pub fn remove_property(&mut self, file: FileId, name: &str) {
        self.is_written = true;
        self.batch.properties.remove(file, name.to_owned());
    }

    /// To a file that has none; the one that had them may have further names and keeps them.
    pub fn copy_properties(&mut self, from: &Inode, to: FileId) -> OpResult<()> {
        for (name, value) in self.properties(from)? {
            self.set_property(to, &name, &value);
        }
        Ok(())
    }
}
