//! A namespace saved into one SQLite file, also while a head runs: as it was at one moment.
//!
//! Writes that were answered as unstable are in memory and not in the backup, as after a crash.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::copy::{Tell, carry};
use super::postgres::PostgresSource;
use super::seal::{Contents, seal, verify};
use super::sqlite::read_marks;
use super::{
    Begin, BulkError, BulkResult, Marks, NamespaceLocation, Phase, Progress, Source, file, open_sink,
};
use crate::check::Problem;
use crate::open_error::OpenError;
use crate::session::{Purpose, Session};
use crate::sqlite::check::session;
use crate::sqlite::open::DATABASE;
use crate::sqlite::schema::{found_version, known_version, set_meta};
use crate::store::StoreResult;

const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// For a head that is just opening it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Saved {
    pub bytes: u64,
    pub problems: Vec<Problem>,
}

/// `instance`: of the data directory that it belongs to, if there is one.
pub fn backup(
    from: &NamespaceLocation,
    to: &Path,
    instance: Option<[u8; 16]>,
    tell: &mut Tell<'_>,
) -> BulkResult<Saved> {
    file::require_absent(to)?;
    let problems = write(from, to, instance, tell).inspect_err(|_| {
        // The error is returned. If a part of the backup stays, the next attempt removes it.
        let _ = discard_unfinished_backup(to);
    })?;
    let facts = to.metadata().map_err(|error| BulkError::failed(to.display(), error))?;
    Ok(Saved { bytes: facts.len(), problems })
}

/// Removes an unfinished backup.
pub fn discard_unfinished_backup(to: &Path) -> BulkResult<()> {
    file::remove(&file::beside(to, ".part"))
}

fn write(
    from: &NamespaceLocation,
    to: &Path,
    instance: Option<[u8; 16]>,
    tell: &mut Tell<'_>,
) -> BulkResult<Vec<Problem>> {
    Ok(match from {
        NamespaceLocation::Sqlite(dir) => of_sqlite(&dir.join(DATABASE), to, instance, tell)?,
        NamespaceLocation::File(path) => {
            verify(path, tell)?;
            of_sqlite(path, to, instance, tell)?
        }
        NamespaceLocation::Postgres(url) => {
            let mut source = PostgresSource::running(url)?;
            let mut marks = source.marks().clone();
            marks.claim(instance, from)?;
            let place = NamespaceLocation::File(to.to_owned());
            let mut sink = open_sink(&place, &marks.state(), Begin::Afresh)?;
            carry((&mut source, from), (&mut *sink, &place), &marks, tell)?.problems
        }
    })
}

fn of_sqlite(
    path: &Path,
    to: &Path,
    instance: Option<[u8; 16]>,
    tell: &mut Tell<'_>,
) -> BulkResult<Vec<Problem>> {
    if !path.exists() {
        return Err(BulkError::Nothing(path.display().to_string()));
    }
    let failed = |error: rusqlite::Error| BulkError::failed(path.display(), error);
    // Able to write, since a reader of a WAL takes part in its index; it changes nothing.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    let version = found_version(&connection).map_err(failed)?;
    let version = version.ok_or_else(|| OpenError::NotForebay(path.to_owned()))?;
    let bytes = connection.query_row(
        "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        [],
        |row| row.get::<_, i64>(0),
    );
    let total = bytes.map_err(failed)?.cast_unsigned();

    let part = file::beside(to, ".part");
    file::remove(&part)?;
    file::create_private(&part)?;
    vacuum_into(connection, &part, total, tell)?;
    let contents = sign(&part, instance)?;
    tell(Progress { phase: Phase::Checking, table: "", done: 0, total: 0 });
    let checked = session(&part, Purpose::Look).and_then(|mut session| check(&mut *session, version));
    let problems = checked.map_err(|error| BulkError::failed(part.display(), error))?;
    seal(&part, &contents)?;
    file::appear(&part, to)?;
    Ok(problems)
}

/// Of one snapshot. Readers do not stand in the writer's way; the log grows until this ends.
fn vacuum_into(connection: Connection, part: &Path, total: u64, tell: &mut Tell<'_>) -> BulkResult<()> {
    let failed = |error: rusqlite::Error| BulkError::failed(part.display(), error);
    let path = part.to_str().ok_or_else(|| BulkError::failed(part.display(), "its name is not UTF-8"))?;
    thread::scope(|scope| {
        let (ended, end) = channel();
        let save = move || {
            let saved = connection.execute("VACUUM INTO ?1", [path]).map(|_| ());
            // The receiver lives until this is sent.
            let _ = ended.send(saved);
        };
        thread::Builder::new()
            .name("namespace-save".to_owned())
            .spawn_scoped(scope, save)
            .map_err(|error| BulkError::failed(part.display(), error))?;
        loop {
            match end.recv_timeout(LOOK_INTERVAL) {
                Ok(saved) => return saved.map_err(failed),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(BulkError::failed(part.display(), "saving was not finished"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    let done = part.metadata().map_or(0, |facts| facts.len()).min(total);
                    tell(Progress { phase: Phase::Saving, table: "", done, total });
                }
            }
        }
    })
}

/// Notes the owner in the file; returns the contents.
fn sign(part: &Path, instance: Option<[u8; 16]>) -> BulkResult<Contents> {
    let mut marks = Marks::default();
    marks.claim(instance, part.display())?;
    let write = || -> rusqlite::Result<Contents> {
        let mut connection = Connection::open(part)?;
        let transaction = connection.transaction()?;
        for (key, value) in &marks.meta {
            set_meta(&transaction, key, *value)?;
        }
        transaction.commit()?;
        Contents::note(&connection, &read_marks(&connection)?)
    };
    write().map_err(|error| BulkError::failed(part.display(), error))
}

/// A namespace of an older program is checked page by page only.
fn check(session: &mut dyn Session, version: u32) -> StoreResult<Vec<Problem>> {
    if version == known_version() {
        return crate::check::check(session);
    }
    Ok(session.complaints()?.into_iter().map(Problem::Database).collect())
}
