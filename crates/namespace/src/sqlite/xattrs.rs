//! Extended attributes in SQLite.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use types::{FileId, XattrName};

use super::rows::{corrupt, signed, unsigned};
use crate::store::{Batch, XattrEntry};

/// Without their values: `length` of a large one reads no more than the beginning of its row.
pub fn read_entries(connection: &Connection, file: FileId) -> rusqlite::Result<Vec<(XattrName, XattrEntry)>> {
    connection
        .prepare_cached("SELECT name, cookie, length(value) FROM xattrs WHERE inode = ?1 ORDER BY cookie")?
        .query_map([signed(file.0)], |row| {
            let name = XattrName::new(row.get_ref(0)?.as_blob()?);
            let name = name.map_err(|error| corrupt(0, &error.to_string()))?;
            let value_bytes = row.get::<_, u32>(2)? as usize;
            Ok((name, XattrEntry { cookie: unsigned(row.get(1)?), value_bytes }))
        })?
        .collect()
}

pub fn read_value(
    connection: &Connection,
    file: FileId,
    name: &XattrName,
) -> rusqlite::Result<Option<Bytes>> {
    connection
        .prepare_cached("SELECT value FROM xattrs WHERE inode = ?1 AND name = ?2")?
        .query_row(params![signed(file.0), name.as_bytes()], |row| {
            Ok(Bytes::copy_from_slice(row.get_ref(0)?.as_blob()?))
        })
        .optional()
}

pub fn write(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for file in &batch.xattrs.cleared {
        connection.prepare_cached("DELETE FROM xattrs WHERE inode = ?1")?.execute([signed(file.0)])?;
    }
    for (file, name, row) in batch.xattrs.rows() {
        let (file, name) = (signed(file.0), name.as_bytes());
        match row {
            Some(row) => connection
                .prepare_cached(
                    "INSERT OR REPLACE INTO xattrs (inode, name, cookie, value) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![file, name, signed(row.cookie), &row.value[..]])?,
            None => connection
                .prepare_cached("DELETE FROM xattrs WHERE inode = ?1 AND name = ?2")?
                .execute(params![file, name])?,
        };
    }
    Ok(())
}
