//! A saved namespace put back in place, so that nothing after it is taken for something before it.
//!
//! Events between the backup and the loss are not known: how often a head started, which numbers it gave, which values
//! of the change attribute clients saw, which tickets were taken back. So each of these goes on far above its value in
//! the backup, and further the later it is: a second restore of the same backup begins above the first. Checksums are
//! left out: a file may have been written in place since then.

use std::collections::HashSet;
use std::path::Path;

use types::Clock;

use super::copy::{Tell, carry};
use super::seal::{Contents, verify};
use super::sqlite::SqliteSource;
use super::tables::{CHECKSUMS, CLIENTS, INODES, LOCATIONS, TABLES, Table, Value};
use super::{Begin, BulkError, BulkResult, Copied, Marks, NamespaceLocation, Source, Tables, open_sink};
use crate::ids::FIRST;
use crate::inode::Extras;
use crate::locality::Placement;
use crate::timeline::RESTORED;

/// More starts than a head can have had.
const STARTS: i64 = 1 << 20;
/// Change attributes are compared as numbers with a sign, and begin with the start. A first restore stays below this
/// until the year 4000, and a chain of them, each of a backup of the one before, for hundreds.
const STARTS_MAX: i64 = i32::MAX as i64;
/// The start of 2026 in minutes since 1970: nothing was restored before.
const FIRST_MINUTE: i64 = 29_453_760;
/// At 20,000 files a second, 600 days.
const NUMBERS: i64 = 1 << 40;
/// Numbers that a second stands for: more than are given in it.
const NUMBERS_IN_SECOND: i64 = 1 << 15;
/// Far above what a thousand restores reach.
const NUMBERS_MAX: i64 = 1 << 62;
/// Fences of one file.
pub(super) const EPOCHS: i64 = 1 << 16;

/// Into a place where there is no namespace. `instance`: of the data directory there, if there is one.
pub fn restore(
    file: &Path,
    to: &NamespaceLocation,
    instance: Option<[u8; 16]>,
    begin: Begin,
    clock: &dyn Clock,
    tell: &mut Tell<'_>,
) -> BulkResult<Copied> {
    let contents = verify(file, tell)?;
    let mut saved = SqliteSource::file(file)?;
    if let Some(contents) = &contents {
        require_rows(&mut saved, contents, file)?;
    }
    let unnamed = saved.unnamed()?;
    let mut marks = saved.marks().clone();
    let from = NamespaceLocation::File(file.to_owned());
    marks.claim(instance, to)?;
    // Without the time, so that it can be gone on with later.
    let state = format!("restored without checksums {}", marks.state());
    raise(&mut marks, clock.now().seconds).map_err(|reason| BulkError::failed(&from, reason))?;
    let mut source = Restored { saved, unnamed };
    let mut sink = open_sink(to, &state, begin)?;
    let copied = carry((&mut source, &from), (&mut *sink, to), &marks, tell)?;
    Ok(Copied { is_verified: contents.is_some(), ..copied })
}

/// As many as the backup says.
fn require_rows(saved: &mut SqliteSource, contents: &Contents, file: &Path) -> BulkResult<()> {
    for table in TABLES {
        let (found, noted) = (saved.tables().count(table)?, contents.rows.get(table.name).copied());
        if noted != Some(found) {
            let noted = noted.map_or_else(|| "none".to_owned(), |noted| noted.to_string());
            let what = format!("{} has {found} rows, {noted} were saved", table.name);
            return Err(BulkError::Damaged { place: file.display().to_string(), what });
        }
    }
    Ok(())
}

/// As after the loss of power of a head that did not wait for its disk, many starts later. `now`: seconds since 1970.
///
/// The minute counts on top, and not alone as a lower bound: the backup may be of a namespace that was restored, whose
/// starts are ahead of the clock.
pub(super) fn raise(marks: &mut Marks, now: i64) -> Result<(), &'static str> {
    let mut notes = marks.notes();
    let now = now.max(0);
    let minutes = now / 60;
    let starts = notes.get("starts").max(minutes) + STARTS + (minutes - FIRST_MINUTE).max(0);
    if starts > STARTS_MAX {
        return Err("it was restored too often, or the clock is wrong");
    }
    notes.set("starts", starts);
    notes.set("clean_end", 0);
    notes.set("deferred", 1);
    marks.set_notes(&notes);
    // The first start goes on above what the pools and the data directory know, too.
    marks.meta.insert(RESTORED.to_owned(), 1);
    let jump = now.checked_mul(NUMBERS_IN_SECOND).and_then(|by_time| by_time.checked_add(NUMBERS));
    for key in ["next_file", "next_cookie"] {
        let end = marks.meta.entry(key.to_owned()).or_insert(FIRST.cast_signed());
        let raised = jump.and_then(|jump| end.checked_add(jump)).filter(|raised| *raised < NUMBERS_MAX);
        *end = raised.ok_or("its numbers are used up, or the clock is wrong")?;
    }
    Ok(())
}

/// A backup that is being restored.
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
        let columns = ["epoch", "extras", "size"].map(|name| table.at(name));
        if let (true, [Some(epoch), Some(extras), Some(size)]) = (*table == INODES, columns) {
            for row in kept.chunks_exact_mut(table.width()) {
                if let Value::Number(epoch) = &mut row[epoch] {
                    *epoch = (*epoch + EPOCHS).min(i64::from(u32::MAX));
                }
                let keeps_locations = matches!(&row[0], Value::Number(file) if !self.unnamed.contains(file));
                let placement = match row[size] {
                    Value::Number(size) => Placement::without_replicas(size.cast_unsigned()),
                    _ => Placement::Lost,
                };
                if let Value::Number(extras) = &mut row[extras] {
                    *extras &= !i64::from(Extras::CHECKSUMS);
                    if !keeps_locations {
                        *extras = placed(*extras, placement);
                    }
                }
            }
        }
        kept
    }
}

fn placed(extras: i64, placement: Placement) -> i64 {
    extras & !i64::from(Placement::MASK << Placement::SHIFT)
        | i64::from(placement.number() << Placement::SHIFT)
}

/// Clients would reclaim what has been somebody else's since; checksums may be of what has been written over.
fn is_left_out(table: &Table) -> bool {
    *table == CLIENTS || *table == CHECKSUMS
}

impl Tables for Restored {
    fn count(&mut self, table: &Table) -> BulkResult<u64> {
        if is_left_out(table) { Ok(0) } else { self.saved.tables().count(table) }
    }

    fn page(
        &mut self,
        table: &'static Table,
        after: Option<&[Value]>,
        limit: usize,
    ) -> BulkResult<Vec<Value>> {
        if is_left_out(table) {
            return Ok(Vec::new());
        }
        let mut after = after.map(<[Value]>::to_vec);
        loop {
            let page = self.saved.tables().page(table, after.as_deref(), limit)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Long after 2026.
    const NOW: i64 = 1_900_000_000;
    const DAY: i64 = 86_400;

    fn raised(marks: &Marks, now: i64) -> Marks {
        let mut raised = marks.clone();
        raise(&mut raised, now).unwrap();
        raised
    }

    /// As after a day of many starts and files.
    fn used(marks: &Marks) -> Marks {
        let mut used = marks.clone();
        for (key, more) in [("starts", 1000), ("next_file", DAY * 20_000), ("next_cookie", DAY * 20_000)] {
            *used.meta.get_mut(key).unwrap() += more;
        }
        used
    }

    #[test]
    fn a_second_restore_of_the_same_backup_begins_above_what_the_first_gave() {
        let mut backup = Marks::default();
        backup.meta.insert("starts".to_owned(), 12);
        // Also of a backup of what was restored, a day later.
        for _ in 0..3 {
            let first = raised(&backup, NOW);
            let second = raised(&backup, NOW + DAY);
            for key in ["starts", "next_file", "next_cookie"] {
                assert!(second.number(key) > used(&first).number(key), "{key}");
            }
            assert!(first.number("starts") < STARTS_MAX);
            backup = used(&first);
        }
    }

    #[test]
    fn numbers_that_would_not_fit_are_refused() {
        let mut marks = Marks::default();
        assert!(raise(&mut marks.clone(), i64::MAX).is_err());
        // The year 4000.
        raise(&mut marks.clone(), 64_060_588_800).unwrap();
        marks.meta.insert("next_cookie".to_owned(), NUMBERS_MAX - 1);
        assert!(raise(&mut marks, NOW).is_err());
    }
}
