//! Access control lists in PostgreSQL.

use tokio_postgres::Row;
use types::{Acl, FileId};

use super::change::{Change, remove_all};
use super::connection::{Link, Trouble};
use super::rows::{corrupt, get, signed};
use crate::store::{Batch, StoreResult};

pub const ACL: &str = "SELECT acl FROM acls WHERE inode = $1";

/// The column of `ACL`.
pub fn decode(row: &Row, at: usize) -> StoreResult<Acl> {
    Acl::decode(get::<&[u8]>(row, at)?).map_err(corrupt)
}

pub async fn find(link: &Link, file: FileId) -> Result<Option<Acl>, Trouble> {
    let rows = link.query(ACL, &[&signed(file)]).await?;
    rows.first().map(|row| decode(row, 0)).transpose().map_err(Trouble::Lasting)
}

const REMOVE: &str = "DELETE FROM acls WHERE inode = ANY($1)";
const PUT: &str = "INSERT INTO acls (inode, acl) SELECT * FROM unnest($1::bigint[], $2::bytea[]) \
    ON CONFLICT (inode) DO UPDATE SET acl = excluded.acl";

pub fn change(batch: &Batch, changes: &mut Vec<Change>) {
    let (mut gone, mut files, mut acls) = (Vec::new(), Vec::new(), Vec::new());
    for (file, acl) in &batch.acls {
        match acl {
            Some(acl) => {
                files.push(signed(*file));
                acls.push(acl.encode());
            }
            None => gone.push(signed(*file)),
        }
    }
    remove_all(changes, REMOVE, gone);
    if !files.is_empty() {
        changes.push(Change { sql: PUT, values: vec![Box::new(files), Box::new(acls)] });
    }
}
