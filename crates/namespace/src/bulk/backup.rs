//! A namespace saved into one SQLite file, also while a head runs: as it was at one moment.
//!
//! Writes that clients were told are unstable are in memory and not in it, as after a crash.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::copy::{Tell, carry};
use super::postgres::PostgresSource;
use super::{Begin, BulkError, BulkResult, Marks, Phase, Place, Progress, Source, file, open_sink};
use crate::check::Problem;
use crate::open::OpenError;
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
pub fn backup(from: &Place, to: &Path, instance: Option<[u8; 16]>, tell: &mut Tell<'_>) -> BulkResult<Saved> {
    file::require_absent(to)?;
    let problems = match from {
        Place::Sqlite(dir) => of_sqlite(&dir.join(DATABASE), to, instance, tell)?,
        Place::File(path) => of_sqlite(path, to, instance, tell)?,
        Place::Postgres(url) => {
            let mut source = PostgresSource::running(url)?;
            let mut marks = source.marks().clone();
            marks.claim(instance, from)?;
            let place = Place::File(to.to_owned());
            let mut sink = open_sink(&place, &marks.state(), Begin::Afresh)?;
            carry((&mut source, from), (&mut *sink, &place), &marks, tell)?.problems
        }
    };
    let facts = to.metadata().map_err(|error| BulkError::failed(to.display(), error))?;
    Ok(Saved { bytes: facts.len(), problems })
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
    sign(&part, instance)?;
    tell(Progress { phase: Phase::Checking, table: "", done: 0, total: 0 });
    let checked = session(&part, Purpose::Look).and_then(|mut session| check(&mut *session, version));
    let problems = checked.map_err(|error| BulkError::failed(part.display(), error))?;
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
            // Whoever waits is still there.
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

/// Notes in the file whose it is.
fn sign(part: &Path, instance: Option<[u8; 16]>) -> BulkResult<()> {
    let mut marks = Marks::default();
    marks.claim(instance, part.display())?;
    let write = || -> rusqlite::Result<()> {
        let mut connection = Connection::open(part)?;
        let transaction = connection.transaction()?;
        for (key, value) in &marks.meta {
            set_meta(&transaction, key, *value)?;
        }
        transaction.commit()
    };
    write().map_err(|error| BulkError::failed(part.display(), error))
}

/// What an older program wrote is looked at page by page only.
fn check(session: &mut dyn Session, version: u32) -> StoreResult<Vec<Problem>> {
    if version == known_version() {
        return crate::check::check(session);
    }
    Ok(session.complaints()?.into_iter().map(Problem::Database).collect())
}
