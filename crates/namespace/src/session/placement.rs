//! The placement of files, from the rows of their replicas.

use super::Session;
use crate::locality::Placement;
use crate::store::StoreResult;

/// SQL for the placement of a file by its rows, as a number; `inode` is the name of the inode's row.
pub fn placement_by_rows(inode: &str) -> String {
    format!(
        "CASE WHEN {inode}.kind != 0 OR EXISTS (SELECT 1 FROM locations l WHERE l.inode = {inode}.id) THEN 0 \
         WHEN {inode}.size = 0 THEN 1 ELSE 2 END"
    )
}

/// After changes of rows or lengths: the placement of the files that `of` describes is what the rows say.
pub fn note_placement(session: &mut dyn Session, of: &str) -> StoreResult<u64> {
    let (field, shift) = (Placement::MASK << Placement::SHIFT, Placement::SHIFT);
    let found = placement_by_rows("inodes");
    session
        .run(&format!("UPDATE inodes SET extras = (extras & ~{field}) | (({found}) << {shift}) WHERE {of}"))
}
