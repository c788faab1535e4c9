//! `/lost+found`: where things go that no name leads to.

use types::{FileId, FileKind, Timestamp};

use super::{meta, set_meta};
use crate::ids::FIRST;
use crate::inode::{Instance, new_inode};
use crate::session::{Session, insert_inodes, insert_names};
use crate::store::{StoreError, StoreResult};

const NAME: &str = "lost+found";
/// Names that are tried where others are taken.
const ATTEMPTS_MAX: u32 = 1000;

/// The directory, made if need be. Nobody but its owner, who is the root directory's, comes in.
pub fn lost_found(session: &mut dyn Session, now: Timestamp) -> StoreResult<FileId> {
    directory(session, FileId::ROOT, NAME, now)
}

/// A directory of this name, or where something else has the name, of one like it.
pub fn directory(
    session: &mut dyn Session,
    parent: FileId,
    wanted: &str,
    now: Timestamp,
) -> StoreResult<FileId> {
    for attempt in 0..ATTEMPTS_MAX {
        let name = spelled(wanted, attempt);
        match child(session, parent, &name)? {
            None => return make(session, parent, &name, now),
            Some((dir, is_directory)) if is_directory => return Ok(dir),
            Some(_) => {}
        }
    }
    Err(StoreError::Failed(format!("there is no free name like \"{wanted}\"")))
}

/// Gives `file` a name in `dir`; returns the name.
pub fn add_name(session: &mut dyn Session, dir: FileId, wanted: &str, file: FileId) -> StoreResult<String> {
    for attempt in 0..ATTEMPTS_MAX {
        let name = spelled(wanted, attempt);
        if child(session, dir, &name)?.is_none() {
            let cookie = take(session, "next_cookie")?;
            insert_names(session, &[(dir, name.clone().into_bytes(), cookie, file)])?;
            return Ok(name);
        }
    }
    Err(StoreError::Failed(format!("there is no free name like \"{wanted}\"")))
}

fn spelled(wanted: &str, attempt: u32) -> String {
    if attempt == 0 { wanted.to_owned() } else { format!("{wanted}.{attempt}") }
}

fn child(session: &mut dyn Session, dir: FileId, name: &str) -> StoreResult<Option<(FileId, bool)>> {
    let sql = format!(
        "SELECT d.inode, i.kind FROM dentries d LEFT JOIN inodes i ON i.id = d.inode \
         WHERE d.parent = {} AND d.name = $1",
        dir.0.cast_signed()
    );
    let found = session.rows_with(&sql, &[name.as_bytes()], |row| (row.id(0), row.number(1) == 1))?;
    Ok(found.first().copied())
}

fn make(session: &mut dyn Session, parent: FileId, name: &str, now: Timestamp) -> StoreResult<FileId> {
    let dir = FileId(take(session, "next_file")?);
    let (uid, gid) = root_owner(session)?;
    let mut inode = new_inode(dir, FileKind::Directory, now, Instance { start: 0 });
    inode.attributes.mode = 0o700;
    (inode.attributes.uid, inode.attributes.gid) = (uid, gid);
    inode.parent = parent;
    insert_inodes(session, &[inode])?;
    let cookie = take(session, "next_cookie")?;
    insert_names(session, &[(parent, name.as_bytes().to_vec(), cookie, dir)])?;
    Ok(dir)
}

pub fn root_owner(session: &mut dyn Session) -> StoreResult<(u32, u32)> {
    let owners = session.rows("SELECT uid, gid FROM inodes WHERE id = 1", |row| {
        (row.number(0) as u32, row.number(1) as u32)
    })?;
    Ok(owners.first().copied().unwrap_or_default())
}

/// A number that was never given.
fn take(session: &mut dyn Session, key: &'static str) -> StoreResult<u64> {
    let number = meta(session, key)?.map_or(FIRST, i64::cast_unsigned);
    set_meta(session, key, (number + 1).cast_signed())?;
    Ok(number)
}
