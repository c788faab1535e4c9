//! The databases of a pool: how they are opened.
//!
//! One connection of one process has a database, so the index of its log is in memory and not in a file that is mapped:
//! such a file has holes where blocks are smaller than 4 KiB, and to touch a hole on a full disk ends the process (SIGBUS).

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

/// A process that is just ending may have it for a moment.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Of a `version` that `schema` makes where there is nothing; what is of another one is no database of the pool.
pub fn connect(path: &Path, version: i64, schema: &str) -> rusqlite::Result<Connection> {
    connect_upgrading(path, version, schema, None)
}

/// As `connect`. `upgrade` makes one of the version before into one of this.
pub fn connect_upgrading(
    path: &Path,
    version: i64,
    schema: &str,
    upgrade: Option<&str>,
) -> rusqlite::Result<Connection> {
    let database = Connection::open(path)?;
    database.busy_timeout(BUSY_WAIT)?;
    // Before the log is opened, or its index would be a file.
    database.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    // Batches of rows that are made anew after a crash need no flush of their own; the others ask for theirs.
    database.pragma_update(None, "synchronous", "NORMAL")?;
    match found_version(&database)? {
        found if found == version => {}
        0 => database.execute_batch(&format!("BEGIN; {schema} COMMIT;"))?,
        found => match upgrade.filter(|_| found == version - 1) {
            Some(upgrade) => database.execute_batch(&format!("BEGIN; {upgrade} COMMIT;"))?,
            None => return Err(rusqlite::Error::InvalidQuery),
        },
    }
    Ok(database)
}

/// Of a pool that nobody has open, also on a disk that takes no writes. Nothing is changed.
pub fn look(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let log = path.with_extension("db-wal");
    if !log.metadata().is_ok_and(|facts| facts.is_file() && facts.len() > 0) {
        // SQLite would make a log to read without one.
        return Connection::open_with_flags(immutable(path), flags | OpenFlags::SQLITE_OPEN_URI);
    }
    // The lock that goes with an index in memory is one to write, which a disk that is read-only does not give.
    let database = Connection::open_with_flags_and_vfs(path, flags, c"unix-none")?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    database.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    Ok(database)
}

pub fn found_version(database: &Connection) -> rusqlite::Result<i64> {
    database.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// On disk when it returns.
pub fn durably<T>(
    database: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    database.pragma_update(None, "synchronous", "FULL")?;
    let done = work(database);
    database.pragma_update(None, "synchronous", "NORMAL")?;
    done
}

/// The URI of a file that nobody changes.
fn immutable(path: &Path) -> OsString {
    let mut uri = b"file:".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            _ => uri.push(*byte),
        }
    }
    uri.extend_from_slice(b"?immutable=1");
    OsString::from_vec(uri)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const SCHEMA: &str = "CREATE TABLE t (a); PRAGMA user_version = 1;";

    fn rows(database: &Connection) -> i64 {
        database.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// A server ended with SIGBUS on a full disk with blocks of 1 KiB.
    #[test]
    fn no_index_of_a_log_is_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.db");
        let database = connect(&path, 1, SCHEMA).unwrap();
        database.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        assert_eq!(names(dir.path()), ["a.db", "a.db-wal"]);
        // Also where it is read from a log that was left.
        let left = tempfile::tempdir().unwrap();
        for name in names(dir.path()) {
            fs::copy(dir.path().join(&name), left.path().join(&name)).unwrap();
        }
        let database = connect(&left.path().join("a.db"), 1, SCHEMA).unwrap();
        assert_eq!(
            (rows(&database), names(left.path())),
            (1, vec!["a.db".to_owned(), "a.db-wal".to_owned()])
        );
    }

    #[test]
    fn a_database_is_looked_at_with_its_log_and_without_and_nothing_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("50%?#.db");
        assert!(look(&path).and_then(|database| found_version(&database)).is_err(), "there is none");
        assert!(!path.exists());
        let database = connect(&path, 1, SCHEMA).unwrap();
        database.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        let left = tempfile::tempdir().unwrap();
        for name in names(dir.path()) {
            fs::copy(dir.path().join(&name), left.path().join(&name)).unwrap();
        }
        drop(database);
        assert_eq!(names(dir.path()), ["50%?#.db"]);
        for (dir, files) in [(&left, 2), (&dir, 1)] {
            let bytes =
                || names(dir.path()).iter().map(|name| fs::read(dir.path().join(name)).unwrap()).collect();
            let before: Vec<_> = bytes();
            let database = look(&dir.path().join("50%?#.db")).unwrap();
            assert_eq!(rows(&database), 1);
            drop(database);
            assert!(before.len() == files && before == bytes());
        }
    }
}
