//! Reads accounts from the database when it is opened.

use std::collections::HashMap;

use api::{Account, Counted, Limit, Quota};

use super::counting::{COUNTS, counted, is_counting};
use super::{journal, scope_of};
use crate::inode::NO_PARENT;
use crate::session::Session;
use crate::store::{StoreError, StoreResult};

pub struct Loaded {
    /// Changes that are not in `usage`.
    pub noted: HashMap<Account, Counted>,
    pub quotas: Vec<(Account, Quota)>,
}

pub fn load(session: &mut dyn Session) -> StoreResult<Loaded> {
    let noted = if is_counting(session)? { journaled(session)? } else { recounted(session)? };
    Ok(Loaded { noted, quotas: quotas(session)? })
}

/// By groups that were written after `usage` was.
pub fn journaled(session: &mut dyn Session) -> StoreResult<HashMap<Account, Counted>> {
    let mut noted: HashMap<Account, Counted> = HashMap::new();
    for row in session.rows("SELECT deltas FROM usage_journal", |row| row.bytes(0))? {
        let changes = journal::decode(&row)
            .ok_or_else(|| StoreError::Failed("journal of usage is not understood".to_owned()))?;
        for (account, change) in changes {
            noted.entry(account).or_default().add(&change);
        }
    }
    Ok(noted)
}

/// Of a namespace of which nothing is counted: it is new, or from before there were accounts, or was made otherwise.
pub fn recounted(session: &mut dyn Session) -> StoreResult<HashMap<Account, Counted>> {
    let mut noted: HashMap<Account, Counted> = HashMap::new();
    let sql = format!("SELECT uid, gid, parent, {COUNTS} FROM inodes GROUP BY uid, gid, parent");
    session.query(&sql, &[], &mut |row| {
        let counted = counted(row, 3);
        let mut count = |account| noted.entry(account).or_default().add(&counted);
        // PostgreSQL keeps the bits of a number without sign.
        count(Account::user(row.number(0) as u32));
        count(Account::group(row.number(1) as u32));
        if row.id(2) != NO_PARENT {
            count(Account::tree(row.id(2)));
        }
    })?;
    Ok(noted)
}

fn quotas(session: &mut dyn Session) -> StoreResult<Vec<(Account, Quota)>> {
    // Nothing reads as zero, and a limit may be zero: minus one is none.
    let columns =
        ["bytes_soft", "bytes_hard", "bytes_over_since", "files_soft", "files_hard", "files_over_since"];
    let columns = columns.map(|column| format!("coalesce({column}, -1)")).join(", ");
    let rows = session.rows(&format!("SELECT scope, id, {columns} FROM quotas"), |row| {
        let limit = |at| Limit {
            soft: u64::try_from(row.number(at)).ok(),
            hard: u64::try_from(row.number(at + 1)).ok(),
            over_since: u64::try_from(row.number(at + 2)).ok(),
        };
        let scope = scope_of(row.number(0))?;
        Some((Account { scope, id: row.id(1).0 }, Quota { bytes: limit(2), files: limit(5) }))
    })?;
    Ok(rows.into_iter().flatten().collect())
}
