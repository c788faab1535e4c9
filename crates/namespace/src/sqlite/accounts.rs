//! Usage and quotas by account.

use std::sync::LazyLock;

use api::{Account, Counted};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::signed;
use crate::accounts::{scope_number, wrapping_sum};
use crate::store::Batch;

pub fn read_usage(connection: &Connection, account: Account) -> rusqlite::Result<Counted> {
    let found = connection
        .prepare_cached("SELECT files, directories, bytes FROM usage WHERE scope = ?1 AND id = ?2")?
        .query_row(params![scope_number(account.scope), signed(account.id)], |row| {
            Ok(Counted { files: row.get(0)?, directories: row.get(1)?, bytes: row.get(2)? })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

static ADD_USAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO usage (scope, id, files, directories, bytes) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT (scope, id) DO UPDATE SET files = files + excluded.files, \
         directories = directories + excluded.directories, bytes = {}",
        wrapping_sum("bytes", "excluded.bytes")
    )
});

pub fn write(connection: &Connection, batch: &Batch) -> rusqlite::Result<()> {
    for account in &batch.closed_accounts {
        let key = (scope_number(account.scope), signed(account.id));
        connection.prepare_cached("DELETE FROM usage WHERE scope = ?1 AND id = ?2")?.execute(key)?;
        connection.prepare_cached("DELETE FROM quotas WHERE scope = ?1 AND id = ?2")?.execute(key)?;
    }
    if batch.ends_journal {
        connection.prepare_cached("DELETE FROM usage_journal")?.execute([])?;
    }
    if let Some(row) = &batch.journal {
        connection
            .prepare_cached("INSERT INTO usage_journal (groups, deltas) VALUES (?1, ?2)")?
            .execute(params![signed(batch.sequence), row])?;
    }
    for (account, more) in &batch.usage {
        connection.prepare_cached(&ADD_USAGE)?.execute(params![
            scope_number(account.scope),
            signed(account.id),
            more.files,
            more.directories,
            more.bytes
        ])?;
    }
    for (account, quota) in &batch.quotas {
        let key = (scope_number(account.scope), signed(account.id));
        let Some(quota) = quota else {
            connection.prepare_cached("DELETE FROM quotas WHERE scope = ?1 AND id = ?2")?.execute(key)?;
            continue;
        };
        let number = |value: Option<u64>| value.map(signed);
        connection
            .prepare_cached(
                "INSERT OR REPLACE INTO quotas (scope, id, bytes_soft, bytes_hard, files_soft, files_hard, \
                 bytes_over_since, files_over_since) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                key.0,
                key.1,
                number(quota.bytes.soft),
                number(quota.bytes.hard),
                number(quota.files.soft),
                number(quota.files.hard),
                number(quota.bytes.over_since),
                number(quota.files.over_since)
            ])?;
    }
    Ok(())
}
