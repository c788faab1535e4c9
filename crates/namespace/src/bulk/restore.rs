//! A saved namespace put back in place, so that nothing after it is taken for something before it.
//!
//! What happened between the backup and the loss is not known: how often a head started, which numbers it gave, which
//! values of the change attribute clients saw, which tickets were taken back. So each of these goes on far above what
//! the backup says.

use std::collections::HashSet;
use std::path::Path;

use super::copy::{Tell, carry};
use super::sqlite::SqliteSource;
use super::tables::{CLIENTS, INODES, LOCATIONS, Table, Value};
use super::{Begin, BulkError, BulkResult, Copied, Marks, Place, Source, Tables, open_sink};
use crate::ids::FIRST;

/// More starts than a head can have had.
const STARTS: i64 = 1 << 20;
/// Change attributes are compared as numbers with a sign, and begin with the start.
const STARTS_MAX: i64 = i32::MAX as i64;
/// At 20,000 files a second, 600 days.
const NUMBERS: i64 = 1 << 40;
/// Fences of one file.
const EPOCHS: i64 = 1 << 16;

/// Into a place where there is no namespace. `instance`: of the data directory there, if there is one.
pub fn restore(
    file: &Path,
    to: &Place,
    instance: Option<[u8; 16]>,
    begin: Begin,
    tell: &mut Tell<'_>,
) -> BulkResult<Copied> {
    let saved = SqliteSource::file(file)?;
    let unnamed = saved.unnamed()?;
    let mut marks = saved.marks().clone();
    let from = Place::File(file.to_owned());
    marks.claim(instance, to)?;
    raise(&mut marks).map_err(|reason| BulkError::failed(&from, reason))?;
    let mut source = Restored { saved, unnamed };
    let mut sink = open_sink(to, &format!("restored {}", marks.state()), begin)?;
    carry((&mut source, &from), (&mut *sink, to), &marks, tell)
}

/// As after the loss of power of a head that did not wait for its disk, many starts later.
fn raise(marks: &mut Marks) -> Result<(), &'static str> {
    let mut notes = marks.notes();
    let starts = notes.get("starts") + STARTS;
    if starts > STARTS_MAX {
        return Err("it was restored too often");
    }
    notes.set("starts", starts);
    notes.set("clean_end", 0);
    notes.set("deferred", 1);
    marks.set_notes(&notes);
    for key in ["next_file", "next_cookie"] {
        let end = marks.meta.entry(key.to_owned()).or_insert(FIRST.cast_signed());
        *end = end.checked_add(NUMBERS).ok_or("its numbers are used up")?;
    }
    Ok(())
}

/// What is read of a backup when it is restored.
struct Restored {
    saved: SqliteSource,
    /// Uploads that had no name yet. Some may have got one since; the reaper of nameless files must not find their data.
    unnamed: HashSet<i64>,
}

impl Restored {
    fn change(&self, table: &'static Table, rows: Vec<Value>) -> Vec<Value> {
        let is_kept = |row: &&[Value]| match &row[0] {
            Value::Number(file) => *table != LOCATIONS || !self.unnamed.contains(file),
            _ => true,
        };
        let mut kept: Vec<Value> =
            rows.chunks_exact(table.width()).filter(is_kept).flatten().cloned().collect();
        if let (true, Some(at)) = (*table == INODES, table.at("epoch")) {
            for row in kept.chunks_exact_mut(table.width()) {
                if let Value::Number(epoch) = &mut row[at] {
                    *epoch = (*epoch + EPOCHS).min(i64::from(u32::MAX));
                }
            }
        }
        kept
    }
}

impl Tables for Restored {
    fn count(&mut self, table: &Table) -> BulkResult<u64> {
        // Clients would reclaim what has been somebody else's since.
        if *table == CLIENTS { Ok(0) } else { self.saved.count(table) }
    }

    fn page(
        &mut self,
        table: &'static Table,
        after: Option<&[Value]>,
        limit: usize,
    ) -> BulkResult<Vec<Value>> {
        if *table == CLIENTS {
            return Ok(Vec::new());
        }
        let mut after = after.map(<[Value]>::to_vec);
        loop {
            let page = self.saved.page(table, after.as_deref(), limit)?;
            after = page.chunks_exact(table.width()).last().map(|row| row[..table.key_len].to_vec());
            let changed = self.change(table, page);
            if !changed.is_empty() || after.is_none() {
                return Ok(changed);
            }
        }
    }
}

impl Source for Restored {
    fn marks(&self) -> &Marks {
        self.saved.marks()
    }

    fn tables(&mut self) -> &mut dyn Tables {
        self
    }
}
