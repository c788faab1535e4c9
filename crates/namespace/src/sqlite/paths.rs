//! From files back to their paths, in one snapshot.

use std::collections::HashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

use rusqlite::{Connection, OptionalExtension};
use types::{FileId, Name};

use super::rows::{decode_name, signed, unsigned};
use crate::reads::{DEPTH_MAX, LOOKUPS_MAX, PATH_BYTES_MAX};

/// A name, and the directory that it is in.
type Entry = (FileId, Name);

pub fn paths(connection: &Connection, files: &[FileId]) -> rusqlite::Result<Vec<Option<Vec<Name>>>> {
    // Files that are looked at together are often in few directories.
    let mut known = HashMap::new();
    files.iter().map(|file| path(connection, &mut known, *file)).collect()
}

fn path(
    connection: &Connection,
    known: &mut HashMap<FileId, Option<Entry>>,
    file: FileId,
) -> rusqlite::Result<Option<Vec<Name>>> {
    let mut names = Vec::new();
    let mut bytes = 0;
    let mut here = file;
    while here != FileId::ROOT {
        let is_spent = known.len() >= LOOKUPS_MAX;
        let found = match known.entry(here) {
            Occupied(found) => found.into_mut(),
            Vacant(_) if is_spent => return Ok(None),
            Vacant(place) => place.insert(entry_of(connection, here)?),
        };
        let Some((dir, name)) = found else { return Ok(None) };
        bytes += 1 + name.as_bytes().len();
        if names.len() == DEPTH_MAX || bytes > PATH_BYTES_MAX {
            return Ok(None);
        }
        names.push(name.clone());
        here = *dir;
    }
    names.reverse();
    Ok(Some(names))
}

fn entry_of(connection: &Connection, file: FileId) -> rusqlite::Result<Option<Entry>> {
    connection
        .prepare_cached(
            "SELECT parent, name FROM dentries INDEXED BY dentries_by_inode WHERE inode = ?1 LIMIT 1",
        )?
        .query_row([signed(file.0)], |row| Ok((FileId(unsigned(row.get(0)?)), decode_name(row, 1)?)))
        .optional()
}
