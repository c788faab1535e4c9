//! Usage counted from the inodes, in the SQL that all engines have in common.

use api::Counted;

use crate::session::{Fields, Session};
use crate::store::StoreResult;

/// Counts of inodes: files, directories, and their bytes in two halves, since SQL's sum fails where sparse files together
/// pass its largest number.
pub const COUNTS: &str = "CAST(coalesce(sum(CASE WHEN kind != 1 THEN 1 ELSE 0 END), 0) AS bigint), \
    CAST(coalesce(sum(CASE WHEN kind = 1 THEN 1 ELSE 0 END), 0) AS bigint), \
    CAST(coalesce(sum(CASE WHEN kind = 0 THEN size / 4294967296 ELSE 0 END), 0) AS bigint), \
    CAST(coalesce(sum(CASE WHEN kind = 0 THEN size % 4294967296 ELSE 0 END), 0) AS bigint)";

pub fn counted(row: &dyn Fields, at: usize) -> Counted {
    let bytes = row.number(at + 2).wrapping_mul(1 << 32).wrapping_add(row.number(at + 3));
    Counted { files: row.number(at), directories: row.number(at + 1), bytes }
}

/// A database from before anything was counted has no account, not even of the tree below the root.
pub fn is_counting(session: &mut dyn Session) -> StoreResult<bool> {
    Ok(session.number("SELECT scope FROM usage LIMIT 1")?.is_some())
}
