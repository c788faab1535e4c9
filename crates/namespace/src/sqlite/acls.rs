//! Access control lists in SQLite.

use rusqlite::{Connection, OptionalExtension, params};
use types::{Acl, FileId};

use super::rows::{corrupt, signed};
use crate::store::Batch;

pub fn read(connection: &Connection, file: FileId) -> rusqlite::Result<Option<Acl>> {
    connection
        .prepare_cached("SELECT acl FROM acls WHERE inode = ?1")?
        .query_row([signed(file.0)], |row| {
            Acl::decode(row.get_ref(0)?.as_blob()?).map_err(|error| corrupt(0, &error.to_string()))
        })
        .optional()
}

pub fn write(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for (file, acl) in &batch.acls {
        let file = signed(file.0);
        match acl {
            Some(acl) => connection
                .prepare_cached("INSERT OR REPLACE INTO acls (inode, acl) VALUES (?1, ?2)")?
                .execute(params![file, acl.encode()])?,
            None => connection.prepare_cached("DELETE FROM acls WHERE inode = ?1")?.execute([file])?,
        };
    }
    Ok(())
}
