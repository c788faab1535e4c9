//! Extended attributes in PostgreSQL.

use bytes::Bytes;
use postgres_types::ToSql;
use tokio_postgres::Row;
use types::{FileId, XattrName};

use super::change::Change;
use super::connection::{Link, Trouble};
use super::rows::{corrupt, get, signed};
use crate::store::{Batch, StoreResult, XattrEntry};

/// Without their values, of which only the lengths are read.
pub const ENTRIES: &str =
    "SELECT name, cookie, octet_length(value) FROM xattrs WHERE inode = $1 ORDER BY cookie";
pub const VALUE: &str = "SELECT value FROM xattrs WHERE inode = $1 AND name = $2";

/// The columns of `ENTRIES`, the first of them at `at`.
pub fn decode_entry(row: &Row, at: usize) -> StoreResult<(XattrName, XattrEntry)> {
    let name = XattrName::new(get::<&[u8]>(row, at)?).map_err(corrupt)?;
    let cookie = get::<i64>(row, at + 1)?.cast_unsigned();
    let value_bytes = usize::try_from(get::<i32>(row, at + 2)?).map_err(corrupt)?;
    Ok((name, XattrEntry { cookie, value_bytes }))
}

pub fn decode_value(row: &Row, at: usize) -> StoreResult<Bytes> {
    Ok(Bytes::copy_from_slice(get::<&[u8]>(row, at)?))
}

pub async fn find_entries(link: &Link, file: FileId) -> Result<Vec<(XattrName, XattrEntry)>, Trouble> {
    let rows = link.query(ENTRIES, &[&signed(file)]).await?;
    let entries = rows.iter().map(|row| decode_entry(row, 0));
    entries.collect::<StoreResult<_>>().map_err(Trouble::Lasting)
}

pub async fn find_value(link: &Link, file: FileId, name: &XattrName) -> Result<Option<Bytes>, Trouble> {
    let rows = link.query(VALUE, &[&signed(file), &name.as_bytes()]).await?;
    rows.first().map(|row| decode_value(row, 0)).transpose().map_err(Trouble::Lasting)
}

/// A name that is null stands for all of the file: a group has few statements.
const REMOVE: &str = "DELETE FROM xattrs x USING unnest($1::bigint[], $2::bytea[]) AS k(inode, name) \
    WHERE x.inode = k.inode AND (k.name IS NULL OR x.name = k.name)";
const PUT: &str = "INSERT INTO xattrs (inode, name, cookie, value) \
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bytea[]) \
    ON CONFLICT (inode, name) DO UPDATE SET cookie = excluded.cookie, value = excluded.value";

pub fn change(batch: &Batch, changes: &mut Vec<Change>) {
    let mut gone: (Vec<i64>, Vec<Option<Vec<u8>>>) =
        batch.xattrs.cleared.iter().map(|file| (signed(*file), None)).unzip();
    let (mut files, mut names, mut cookies, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (file, name, row) in batch.xattrs.rows() {
        let (file, name) = (signed(file), name.as_bytes().to_vec());
        match row {
            Some(row) => {
                files.push(file);
                names.push(name);
                cookies.push(row.cookie.cast_signed());
                values.push(row.value.to_vec());
            }
            None => {
                gone.0.push(file);
                gone.1.push(Some(name));
            }
        }
    }
    if !gone.0.is_empty() {
        changes.push(Change { sql: REMOVE, values: vec![Box::new(gone.0), Box::new(gone.1)] });
    }
    if !files.is_empty() {
        let values: Vec<Box<dyn ToSql + Sync + Send>> =
            vec![Box::new(files), Box::new(names), Box::new(cookies), Box::new(values)];
        changes.push(Change { sql: PUT, values });
    }
}
