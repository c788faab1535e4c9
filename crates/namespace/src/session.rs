//! Plain SQL on a namespace that nobody serves: for the check, for repairs, for what is built anew.
//!
//! In the SQL that all engines have in common. Whole numbers stand in the text, bytes are `$1`, `$2` and so on.

mod insert;
mod placement;

use types::{FileId, PoolId};

use crate::store::{StoreError, StoreResult};

pub use insert::{insert_inodes, insert_locations, insert_names, insert_targets};
pub use placement::{note_placement, placement_by_rows};

/// Purpose of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Changes nothing, and what it sees between `begin` and `end` is of one state.
    Look,
    /// The only one that changes anything; what it commits is on disk.
    Change,
}

pub trait Session: Send {
    fn begin(&mut self) -> StoreResult<()>;
    /// Rows as they come; `each` sees one at a time.
    fn query(&mut self, sql: &str, bytes: &[&[u8]], each: &mut dyn FnMut(&dyn Fields)) -> StoreResult<()>;
    /// How many rows it changed.
    fn execute(&mut self, sql: &str, bytes: &[&[u8]]) -> StoreResult<u64>;
    fn commit(&mut self) -> StoreResult<()>;
    /// Ends what `begin` began, without a trace.
    fn end(&mut self);
    /// How a number of 32 bits without sign is written.
    fn narrow(&self, value: u32) -> i64;
    /// Problems that only this engine finds in its own files; each a sentence.
    fn complaints(&mut self) -> StoreResult<Vec<String>> {
        Ok(Vec::new())
    }
}

/// The columns of a row. A value that is missing or of another type reads as nothing.
pub trait Fields {
    fn number(&self, at: usize) -> i64;
    fn bytes(&self, at: usize) -> Vec<u8>;
}

impl dyn Fields + '_ {
    pub fn id(&self, at: usize) -> FileId {
        FileId(self.number(at).cast_unsigned())
    }

    pub fn pool(&self, at: usize) -> PoolId {
        PoolId(self.count(at))
    }

    pub fn count(&self, at: usize) -> u32 {
        u32::try_from(self.number(at)).unwrap_or(u32::MAX)
    }
}

impl dyn Session + '_ {
    /// All rows, each as `read` makes it.
    pub fn rows<T>(&mut self, sql: &str, read: impl Fn(&dyn Fields) -> T) -> StoreResult<Vec<T>> {
        self.rows_with(sql, &[], read)
    }

    pub fn rows_with<T>(
        &mut self,
        sql: &str,
        bytes: &[&[u8]],
        read: impl Fn(&dyn Fields) -> T,
    ) -> StoreResult<Vec<T>> {
        let mut rows = Vec::new();
        self.query(sql, bytes, &mut |row| rows.push(read(row)))?;
        Ok(rows)
    }

    /// The first number of the first row.
    pub fn number(&mut self, sql: &str) -> StoreResult<Option<i64>> {
        Ok(self.rows(sql, |row| row.number(0))?.first().copied())
    }

    pub fn run(&mut self, sql: &str) -> StoreResult<u64> {
        self.execute(sql, &[])
    }

    /// All of `work`, or nothing.
    pub fn transaction<T, E: From<StoreError>>(
        &mut self,
        work: impl FnOnce(&mut dyn Session) -> Result<T, E>,
    ) -> Result<T, E> {
        self.begin()?;
        let done = work(&mut *self).and_then(|done| self.commit().map(|()| done).map_err(E::from));
        if done.is_err() {
            self.end();
        }
        done
    }
}
