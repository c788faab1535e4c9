//! SQLite for checks and repairs.

use std::path::Path;

use rusqlite::Connection;

use super::rows::{Durability, open_reader, open_writer};
use crate::session::{Fields, Purpose, Session};
use crate::store::StoreResult;

pub fn session(path: &Path, purpose: Purpose) -> StoreResult<Box<dyn Session>> {
    let connection = match purpose {
        Purpose::Look => open_reader(path)?,
        Purpose::Change => open_writer(path, Durability::EachCommit)?,
    };
    Ok(Box::new(SqliteSession { connection, purpose }))
}

struct SqliteSession {
    connection: Connection,
    purpose: Purpose,
}

impl Session for SqliteSession {
    fn begin(&mut self) -> StoreResult<()> {
        let sql = match self.purpose {
            Purpose::Look => "BEGIN",
            Purpose::Change => "BEGIN IMMEDIATE",
        };
        Ok(self.connection.execute_batch(sql)?)
    }

    fn query(&mut self, sql: &str, bytes: &[&[u8]], each: &mut dyn FnMut(&dyn Fields)) -> StoreResult<()> {
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query(rusqlite::params_from_iter(bytes))?;
        while let Some(row) = rows.next()? {
            each(&SqliteFields(row));
        }
        Ok(())
    }

    fn execute(&mut self, sql: &str, bytes: &[&[u8]]) -> StoreResult<u64> {
        Ok(self.connection.execute(sql, rusqlite::params_from_iter(bytes))? as u64)
    }

    fn commit(&mut self) -> StoreResult<()> {
        Ok(self.connection.execute_batch("COMMIT")?)
    }

    fn end(&mut self) {
        // Some errors have rolled back already.
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }

    fn narrow(&self, value: u32) -> i64 {
        i64::from(value)
    }

    fn complaints(&mut self) -> StoreResult<Vec<String>> {
        let mut statement = self.connection.prepare("PRAGMA quick_check")?;
        let messages = statement.query_map([], |row| row.get::<_, String>(0))?;
        let mut complaints = Vec::new();
        for message in messages {
            complaints.extend(Some(message?).filter(|message| message != "ok"));
        }
        Ok(complaints)
    }
}

struct SqliteFields<'a>(&'a rusqlite::Row<'a>);

impl Fields for SqliteFields<'_> {
    fn number(&self, at: usize) -> i64 {
        self.0.get(at).unwrap_or_default()
    }

    fn bytes(&self, at: usize) -> Vec<u8> {
        let value = self.0.get_ref(at).ok();
        value.and_then(|value| value.as_bytes().ok()).unwrap_or_default().to_vec()
    }
}
