//! Migrates a namespace to a newer program, and tells the steps before they are done. Each step is a transaction.

use std::path::Path;

use rusqlite::Connection;

use super::copy::{Phase, Progress, Tell};
use super::postgres::Seat;
use super::seal::{Contents, seal, verify};
use super::sqlite::{lock_stopped, open_unchanged, read_marks};
use super::{BulkError, BulkResult, NamespaceLocation, file, postgres, sqlite};
use crate::migration::Migration;
use crate::open_error::OpenError;
use crate::postgres::schema::{MIGRATIONS as POSTGRES, SCHEMA};
use crate::sqlite::open::DATABASE;
use crate::sqlite::rows::{Durability, open_writer};
use crate::sqlite::schema::{MIGRATIONS as SQLITE, found_version, migrate_telling};

/// From the version that was found to the one that this program knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub found: u32,
    pub known: u32,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub version: u32,
    pub what: &'static str,
    /// Rows that are there now and that it reads or writes.
    pub rows: u64,
}

impl Plan {
    fn of(found: u32, all: &[Migration], rows: impl Fn(&str) -> BulkResult<u64>) -> BulkResult<Plan> {
        let mut steps = Vec::new();
        for (version, migration) in (1..).zip(all).skip(found as usize) {
            let rows = migration.touches.iter().map(|table| rows(table)).sum::<BulkResult<u64>>()?;
            steps.push(Step { version, what: migration.what, rows });
        }
        Ok(Plan { found, known: found + steps.len() as u32, steps })
    }
}

/// Changes nothing, and needs no lock.
pub fn plan(place: &NamespaceLocation) -> BulkResult<Plan> {
    match place {
        NamespaceLocation::Sqlite(dir) => plan_sqlite(&dir.join(DATABASE)),
        NamespaceLocation::File(path) => plan_sqlite(path),
        NamespaceLocation::Postgres(url) => plan_postgres(&Seat::take(url)?),
    }
}

/// Migrates; returns the steps that were done. No head may have the namespace open.
pub fn migrate(place: &NamespaceLocation, tell: &mut Tell<'_>) -> BulkResult<Plan> {
    match place {
        NamespaceLocation::Sqlite(dir) => {
            let _lock = lock_stopped(dir)?;
            migrate_sqlite(&dir.join(DATABASE), tell)
        }
        NamespaceLocation::File(path) => {
            let is_sealed = verify(path, tell)?.is_some();
            let plan = plan_sqlite(path)?;
            if !plan.steps.is_empty() {
                migrate_file(path, is_sealed, tell)?;
            }
            Ok(plan)
        }
        NamespaceLocation::Postgres(url) => {
            let seat = Seat::take(url)?;
            seat.lock()?.ok_or_else(|| OpenError::DatabaseInUse(seat.place()))?;
            let plan = plan_postgres(&seat)?;
            seat.migrate(&mut steps_of(&plan, tell))?;
            Ok(plan)
        }
    }
}

/// Tells how many rows are done: now, and after each version.
fn steps_of(plan: &Plan, tell: &mut Tell<'_>) -> impl FnMut(u32) {
    let total = plan.steps.iter().map(|step| step.rows).sum();
    let mut told = move |version: u32| {
        let finished = plan.steps.iter().filter(|step| step.version <= version);
        let done = finished.map(|step| step.rows).sum();
        tell(Progress { phase: Phase::Migrating, table: "", done, total });
    };
    told(plan.found);
    told
}

/// Migrates a copy beside the file, then puts it in place: after an interruption the file is the old or the new one.
fn migrate_file(path: &Path, is_sealed: bool, tell: &mut Tell<'_>) -> BulkResult<()> {
    // A link stays one.
    let path = &path.canonicalize().map_err(|error| BulkError::failed(path.display(), error))?;
    file::require_alone(path)?;
    let copy = file::beside(path, ".migrating");
    // Of an attempt that was interrupted.
    file::remove(&copy)?;
    let migrated = migrate_copy(path, &copy, is_sealed, tell).and_then(|()| file::replace(&copy, path));
    migrated.inspect_err(|_| {
        // The error is returned. If the copy stays, the next attempt removes it.
        let _ = file::remove(&copy);
    })
}

fn migrate_copy(path: &Path, copy: &Path, is_sealed: bool, tell: &mut Tell<'_>) -> BulkResult<()> {
    file::create_private(copy)?;
    let name = copy.to_str().ok_or_else(|| BulkError::failed(copy.display(), "its name is not UTF-8"))?;
    open_unchanged(path)?
        .execute("VACUUM INTO ?1", [name])
        .map_err(|error| BulkError::failed(copy.display(), error))?;
    migrate_sqlite(copy, tell)?;
    let finish = || -> rusqlite::Result<Option<Contents>> {
        let connection = Connection::open(copy)?;
        // One file is all there is of a backup.
        connection.pragma_update(None, "journal_mode", "DELETE")?;
        is_sealed.then(|| Contents::note(&connection, &read_marks(&connection)?)).transpose()
    };
    match finish().map_err(|error| BulkError::failed(copy.display(), error))? {
        Some(contents) => seal(copy, &contents),
        // An older program wrote it, and nobody knows whether its bytes are those that were saved.
        None => Ok(()),
    }
}

fn plan_sqlite(path: &Path) -> BulkResult<Plan> {
    let connection = open_unchanged(path)?;
    let failed = |error: rusqlite::Error| BulkError::failed(path.display(), error);
    let found = sqlite::require_not_newer(found_version(&connection).map_err(failed)?, path)?;
    Plan::of(found, SQLITE, |table| {
        let exists = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        if connection.query_row(exists, [table], |row| row.get::<_, i64>(0)).map_err(failed)? == 0 {
            return Ok(0);
        }
        let count = connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0));
        count.map(i64::cast_unsigned).map_err(failed)
    })
}

fn migrate_sqlite(path: &Path, tell: &mut Tell<'_>) -> BulkResult<Plan> {
    let plan = plan_sqlite(path)?;
    let migrated = open_writer(path, Durability::EachCommit)
        .and_then(|mut connection| migrate_telling(&mut connection, plan.found, &mut steps_of(&plan, tell)));
    migrated.map_err(|error| BulkError::failed(path.display(), error))?;
    Ok(plan)
}

fn plan_postgres(seat: &Seat) -> BulkResult<Plan> {
    let found = postgres::require_not_newer(seat.version()?, seat.place())?;
    Plan::of(found.cast_unsigned(), POSTGRES, |table| {
        if !seat.is_there(&format!("{SCHEMA}.{table}"))? {
            return Ok(0);
        }
        seat.one::<i64>(&format!("SELECT count(*) FROM {SCHEMA}.{table}")).map(i64::cast_unsigned)
    })
}
