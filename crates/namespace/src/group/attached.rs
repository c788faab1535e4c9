//! What hangs on an inode in tables of its own: checksums and properties.
//!
//! The inode says whether there is any (`Extras`), so files without pay nothing. Rows of checksums that the inode
//! stopped speaking of are removed when it is written (`Group::flush`); rows of properties are always what it says.

use std::collections::BTreeMap;

use api::Property;
use bytes::Bytes;
use rusqlite::{Connection, params};
use types::{Checksum, ChecksumKind, FileId};

use super::{Group, OpResult};
use crate::inode::Inode;
use crate::sqlite::{corrupt, signed};

impl Group<'_> {
    /// Adds to what is known, or begins anew where the data changed since. The caller puts the inode.
    pub fn add_checksums(&mut self, inode: &mut Inode, checksums: &[Checksum]) -> OpResult<()> {
        let file = inode.id();
        let working = self.inodes.get_mut(&file).expect("an inode gets checksums after it was read");
        if working.is_summed && !inode.extras.has_checksums {
            self.connection
                .prepare_cached("DELETE FROM checksums WHERE inode = ?1")?
                .execute([signed(file.0)])?;
            working.is_summed = false;
            self.is_written = true;
        }
        for checksum in checksums {
            self.connection
                .prepare_cached("INSERT OR REPLACE INTO checksums (inode, kind, value) VALUES (?1, ?2, ?3)")?
                .execute(params![signed(file.0), checksum.kind().name(), checksum.value()])?;
            working.is_summed = true;
            inode.extras.has_checksums = true;
            self.is_written = true;
        }
        Ok(())
    }

    pub fn properties(&self, inode: &Inode) -> OpResult<BTreeMap<String, Bytes>> {
        if !inode.extras.has_properties {
            return Ok(BTreeMap::new());
        }
        let known = read_properties(self.connection, inode.id())?;
        Ok(known.into_iter().map(|property| (property.name, property.value)).collect())
    }

    pub fn set_property(&mut self, file: FileId, name: &str, value: &[u8]) -> OpResult<()> {
        self.is_written = true;
        self.connection
            .prepare_cached("INSERT OR REPLACE INTO properties (inode, name, value) VALUES (?1, ?2, ?3)")?
            .execute(params![signed(file.0), name, value])?;
        Ok(())
    }

    pub fn remove_property(&mut self, file: FileId, name: &str) -> OpResult<()> {
        self.is_written = true;
        self.connection
            .prepare_cached("DELETE FROM properties WHERE inode = ?1 AND name = ?2")?
            .execute(params![signed(file.0), name])?;
        Ok(())
    }

    /// To a file that has none; the one that had them may have further names and keeps them.
    pub fn copy_properties(&mut self, from: FileId, to: FileId) -> OpResult<()> {
        self.is_written = true;
        self.connection
            .prepare_cached(
                "INSERT INTO properties (inode, name, value) \
                 SELECT ?2, name, value FROM properties WHERE inode = ?1",
            )?
            .execute(params![signed(from.0), signed(to.0)])?;
        Ok(())
    }
}

/// In the order of their names.
pub fn read_properties(connection: &Connection, file: FileId) -> rusqlite::Result<Vec<Property>> {
    connection
        .prepare_cached("SELECT name, value FROM properties WHERE inode = ?1 ORDER BY name")?
        .query_map([signed(file.0)], |row| {
            Ok(Property { name: row.get(0)?, value: Bytes::copy_from_slice(row.get_ref(1)?.as_blob()?) })
        })?
        .collect()
}

pub fn read_checksums(connection: &Connection, file: FileId) -> rusqlite::Result<Vec<Checksum>> {
    connection
        .prepare_cached("SELECT kind, value FROM checksums WHERE inode = ?1 ORDER BY kind")?
        .query_map([signed(file.0)], |row| {
            let kind = ChecksumKind::by_name(row.get_ref(0)?.as_str()?)
                .ok_or_else(|| corrupt(0, "kind of a checksum is not known"))?;
            Checksum::new(kind, row.get_ref(1)?.as_blob()?)
                .ok_or_else(|| corrupt(1, "checksum does not have the length of its kind"))
        })?
        .collect()
}
