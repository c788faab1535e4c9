//! SQLite on either side.
//!
//! An unfinished database has a rollback journal and no WAL: rows in the order of their keys are new pages at the end
//! of the file, which a journal need not save. So each page is written once, and a power cut leaves whole batches.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, OptionalExtension, params_from_iter};

use super::seal::{Contents, seal};
use super::tables::{Table, Value};
use super::{Begin, BulkError, BulkResult, Marks, Sink, Source, Tables, file};
use crate::check::Problem;
use crate::open_error::OpenError;
use crate::session::Purpose;
use crate::sqlite::check::session;
use crate::sqlite::open::{DATABASE, lock};
use crate::sqlite::rows::{PAGE_BYTES, open_reader};
use crate::sqlite::schema::{found_version, known_version, migrate};

/// Beside `DATABASE`, until it is finished.
const LOADING: &str = "namespace.loading.db";
const WRITER_CACHE_KIB: i64 = 128 * 1024;
/// In a transaction.
const ROWS_MAX: usize = 50_000;

/// Rows of an open database.
struct Rows {
    connection: Connection,
    /// For people.
    path: PathBuf,
}

impl Rows {
    fn failed(&self, error: rusqlite::Error) -> BulkError {
        BulkError::failed(self.path.display(), error)
    }

    fn marks(&self) -> BulkResult<Marks> {
        read_marks(&self.connection).map_err(|error| self.failed(error))
    }

    fn query(
        &self,
        sql: &str,
        table: &Table,
        values: &[Value],
        width: usize,
    ) -> rusqlite::Result<Vec<Value>> {
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            for (at, column) in table.columns[..width].iter().enumerate() {
                let value = Value::from_sqlite(row.get_ref(at)?, column.kind);
                let strange = || crate::sqlite::rows::corrupt(at, "a value is not of its column's kind");
                found.push(value.ok_or_else(strange)?);
            }
        }
        Ok(found)
    }
}

impl Tables for Rows {
    fn count(&mut self, table: &Table) -> BulkResult<u64> {
        let sql = format!("SELECT count(*) FROM {}", table.name);
        let count = self.connection.query_row(&sql, [], |row| row.get::<_, i64>(0));
        count.map(i64::cast_unsigned).map_err(|error| self.failed(error))
    }

    fn page(
        &mut self,
        table: &'static Table,
        after: Option<&[Value]>,
        limit: usize,
    ) -> BulkResult<Vec<Value>> {
        let mut values = after.unwrap_or_default().to_vec();
        values.push(Value::Number(i64::try_from(limit).unwrap_or(i64::MAX)));
        let sql = table.page_sql('?', "", after.is_none());
        self.query(&sql, table, &values, table.width()).map_err(|error| self.failed(error))
    }
}

pub fn read_marks(connection: &Connection) -> rusqlite::Result<Marks> {
    let mut marks =
        connection.query_row("SELECT groups, files, bytes FROM progress WHERE id = 1", [], |row| {
            Ok(Marks { groups: row.get(0)?, files: row.get(1)?, bytes: row.get(2)?, ..Marks::default() })
        })?;
    let mut statement = connection.prepare("SELECT key, value FROM meta")?;
    let meta = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    marks.meta = meta.collect::<rusqlite::Result<_>>()?;
    Ok(marks)
}

pub struct SqliteSource {
    rows: Rows,
    marks: Marks,
    _lock: Option<File>,
}

impl SqliteSource {
    /// Of a namespace that no head has open.
    pub fn stopped(dir: &Path) -> BulkResult<SqliteSource> {
        let path = dir.join(DATABASE);
        if !path.exists() {
            return Err(BulkError::Nothing(dir.display().to_string()));
        }
        let lock = lock_stopped(dir)?;
        let connection = open_reader(&path).map_err(|error| BulkError::failed(path.display(), error))?;
        SqliteSource::begin(connection, path, Some(lock))
    }

    pub fn file(path: &Path) -> BulkResult<SqliteSource> {
        SqliteSource::begin(open_unchanged(path)?, path.to_owned(), None)
    }

    /// One snapshot from here on.
    fn begin(connection: Connection, path: PathBuf, lock: Option<File>) -> BulkResult<SqliteSource> {
        let rows = Rows { connection, path };
        let version = rows.connection.execute_batch("BEGIN").and_then(|()| found_version(&rows.connection));
        let version = version.map_err(|error| rows.failed(error))?;
        require_known(version, &rows.path)?;
        let marks = rows.marks()?;
        Ok(SqliteSource { rows, marks, _lock: lock })
    }
}

/// The lock of a namespace that no head has open.
pub fn lock_stopped(dir: &Path) -> BulkResult<File> {
    lock(dir).map_err(|error| match error {
        OpenError::InUse(dir) => BulkError::Running(dir.display().to_string()),
        other => BulkError::Open(other),
    })
}

/// Of a file that is there, for reading alone.
pub fn open_unchanged(path: &Path) -> BulkResult<Connection> {
    if !path.exists() {
        return Err(BulkError::Nothing(path.display().to_string()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags).map_err(|error| BulkError::failed(path.display(), error))
}

/// Of a namespace that is not newer than this program.
pub fn require_not_newer(found: Option<u32>, path: &Path) -> BulkResult<u32> {
    let known = known_version();
    match found {
        None => Err(OpenError::NotForebay(path.to_owned()).into()),
        Some(0) => Err(BulkError::Nothing(path.display().to_string())),
        Some(found) if found > known => {
            Err(OpenError::NewerVersion { dir: path.to_owned(), found, known }.into())
        }
        Some(found) => Ok(found),
    }
}

pub fn require_known(found: Option<u32>, path: &Path) -> BulkResult<()> {
    let (found, known) = (require_not_newer(found, path)?, known_version());
    if found < known {
        return Err(BulkError::OldVersion { place: path.display().to_string(), found, known });
    }
    Ok(())
}

impl SqliteSource {
    /// Files that were made without a name and have none yet.
    pub fn unnamed(&self) -> BulkResult<HashSet<i64>> {
        let find = || -> rusqlite::Result<HashSet<i64>> {
            let sql = "SELECT id FROM inodes WHERE nlink = 0 AND extras & 4 != 0";
            self.rows.connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
        };
        find().map_err(|error| self.rows.failed(error))
    }
}

impl Source for SqliteSource {
    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn tables(&mut self) -> &mut dyn Tables {
        &mut self.rows
    }
}

pub struct SqliteSink {
    rows: Rows,
    /// The path of the finished database.
    end: PathBuf,
    waiting: usize,
    /// It is a backup, with an end that says what it has.
    is_sealed: bool,
    is_published: bool,
    /// Held until the end: one process at a time.
    _lock: Option<File>,
}

impl SqliteSink {
    /// The directory is made if it is missing.
    pub fn in_directory(dir: &Path, state: &str, begin: Begin) -> BulkResult<SqliteSink> {
        fs::create_dir_all(dir).map_err(|error| BulkError::failed(dir.display(), error))?;
        let lock = lock(dir)?;
        SqliteSink::begin(dir.join(LOADING), dir.join(DATABASE), state, begin, Some(lock))
    }

    pub fn in_file(path: &Path, state: &str, begin: Begin) -> BulkResult<SqliteSink> {
        let sink = SqliteSink::begin(file::beside(path, ".part"), path.to_owned(), state, begin, None)?;
        Ok(SqliteSink { is_sealed: true, ..sink })
    }

    fn begin(
        path: PathBuf,
        end: PathBuf,
        state: &str,
        begin: Begin,
        lock: Option<File>,
    ) -> BulkResult<SqliteSink> {
        file::require_absent(&end)?;
        if begin == Begin::Afresh {
            file::remove(&path)?;
        }
        file::create_private(&path)?;
        let failed = |error| BulkError::failed(path.display(), error);
        let mut connection = open_loading(&path).map_err(failed)?;
        match state_of(&connection).map_err(failed)? {
            Some(found) if found != state => {
                return Err(BulkError::SourceChanged { place: end.display().to_string() });
            }
            Some(_) => {}
            None => {
                // Killed before the first row, if anything is there at all.
                drop(connection);
                file::remove(&path)?;
                file::create_private(&path)?;
                connection = open_loading(&path).map_err(failed)?;
                prepare(&mut connection, state).map_err(failed)?;
            }
        }
        let rows = Rows { connection, path };
        Ok(SqliteSink { rows, end, waiting: 0, is_sealed: false, is_published: false, _lock: lock })
    }

    fn batch(&self, sql: &str) -> BulkResult<()> {
        self.rows.connection.execute_batch(sql).map_err(|error| self.rows.failed(error))
    }

    fn commit(&mut self) -> BulkResult<()> {
        if self.waiting > 0 {
            self.batch("COMMIT")?;
            self.waiting = 0;
        }
        Ok(())
    }

    fn insert(&self, table: &'static Table, rows: &[Value]) -> rusqlite::Result<()> {
        let marks: Vec<String> = (1..=table.width()).map(|at| format!("?{at}")).collect();
        let (columns, marks) = (table.column_names(), marks.join(", "));
        let sql = format!("INSERT INTO {} ({columns}) VALUES ({marks})", table.name);
        let mut statement = self.rows.connection.prepare_cached(&sql)?;
        for row in rows.chunks_exact(table.width()) {
            statement.execute(params_from_iter(row))?;
        }
        Ok(())
    }
}

fn open_loading(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.pragma_update(None, "journal_mode", "PERSIST")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    Ok(connection)
}

/// Of what it was begun from, if it was.
fn state_of(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let is_begun = connection
        .prepare("SELECT 1 FROM sqlite_schema WHERE name = 'loading' AND type = 'table'")?
        .exists([])?;
    if !is_begun {
        return Ok(None);
    }
    connection.query_row("SELECT text FROM loading WHERE name = ''", [], |row| row.get(0)).optional()
}

/// The schema without its indexes, whose SQL is kept.
fn prepare(connection: &mut Connection, state: &str) -> rusqlite::Result<()> {
    migrate(connection, 0)?;
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "CREATE TABLE loading (name TEXT PRIMARY KEY, text TEXT NOT NULL);
         INSERT INTO loading SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL",
    )?;
    for name in index_names(&transaction)? {
        transaction.execute_batch(&format!("DROP INDEX {name}"))?;
    }
    transaction.execute("INSERT INTO loading VALUES ('', ?1)", [state])?;
    transaction.commit()
}

fn index_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")?
        .query_map([], |row| row.get(0))?
        .collect()
}

impl Sink for SqliteSink {
    fn write(&mut self, table: &'static Table, rows: &[Value]) -> BulkResult<()> {
        if self.waiting == 0 {
            self.batch("BEGIN")?;
        }
        self.waiting += rows.len() / table.width();
        self.insert(table, rows).map_err(|error| self.rows.failed(error))?;
        if self.waiting >= ROWS_MAX { self.commit() } else { Ok(()) }
    }

    fn last_key(&mut self, table: &'static Table) -> BulkResult<Option<Vec<Value>>> {
        let found = self.rows.query(&table.last_key_sql(""), table, &[], table.key_len);
        found.map(|key| (!key.is_empty()).then_some(key)).map_err(|error| self.rows.failed(error))
    }

    fn execute(&mut self, sql: &str) -> BulkResult<()> {
        self.commit()?;
        self.batch(sql)
    }

    fn index(&mut self) -> BulkResult<()> {
        self.commit()?;
        let make = || -> rusqlite::Result<()> {
            let connection = &self.rows.connection;
            let there = index_names(connection)?;
            let mut statement = connection.prepare("SELECT name, text FROM loading WHERE name != ''")?;
            let wanted = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            for (name, sql) in wanted.collect::<rusqlite::Result<Vec<(String, String)>>>()? {
                if !there.contains(&name) {
                    connection.execute_batch(&sql)?;
                }
            }
            Ok(())
        };
        make().map_err(|error| self.rows.failed(error))
    }

    fn publish(&mut self, marks: &Marks) -> BulkResult<()> {
        self.commit()?;
        write_marks(&mut self.rows.connection, marks).map_err(|error| self.rows.failed(error))?;
        // The head makes it a WAL database; until then one file is all there is.
        self.batch("PRAGMA journal_mode = DELETE")?;
        let contents = self.is_sealed.then(|| Contents::note(&self.rows.connection, marks)).transpose();
        let contents = contents.map_err(|error| self.rows.failed(error))?;
        let gone = Connection::open_in_memory().map_err(|error| self.rows.failed(error))?;
        drop(std::mem::replace(&mut self.rows.connection, gone));
        if let Some(contents) = &contents {
            seal(&self.rows.path, contents)?;
        }
        file::appear(&self.rows.path, &self.end)?;
        self.is_published = true;
        Ok(())
    }

    fn check(&mut self) -> BulkResult<Vec<Problem>> {
        assert!(self.is_published, "what is not in place is not checked");
        let checked =
            session(&self.end, Purpose::Look).and_then(|mut session| crate::check::check(&mut *session));
        checked.map_err(|error| BulkError::failed(self.end.display(), error))
    }

    fn tables(&mut self) -> &mut dyn Tables {
        &mut self.rows
    }
}

fn write_marks(connection: &mut Connection, marks: &Marks) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for (key, value) in &marks.meta {
        crate::sqlite::schema::set_meta(&transaction, key, *value)?;
    }
    transaction.execute(
        "UPDATE progress SET groups = ?1, files = ?2, bytes = ?3 WHERE id = 1",
        [marks.groups, marks.files, marks.bytes],
    )?;
    transaction.execute_batch("DROP TABLE loading")?;
    transaction.commit()
}
