//! Syncs of commits.

use super::super::rows::open_writer;
use super::super::schema::migrate;
use super::*;

fn store(dir: &tempfile::TempDir) -> SqliteStore {
    let mut connection = open_writer(&dir.path().join("namespace.db"), Durability::EachCommit).unwrap();
    migrate(&mut connection, 0).unwrap();
    SqliteStore::new(connection, ChangeFloor::default(), dir.path()).unwrap()
}

/// SQLite syncs the log at commits with 2 (FULL), and with 1 (NORMAL) only around checkpoints.
fn level(store: &SqliteStore) -> i64 {
    store.connection.pragma_query_value(None, "synchronous", |row| row.get(0)).unwrap()
}

#[test]
fn a_group_syncs_the_log_if_it_is_awaited_and_is_left_to_the_clock_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(&dir);
    for (number, is_awaited) in (1..).zip([true, false, false, true, false]) {
        let before = store.commits.load(Ordering::Relaxed);
        store.begin(is_awaited).unwrap();
        assert_eq!(level(&store), if is_awaited { 2 } else { 1 });
        store.commit(&Batch { sequence: number, ..Batch::default() }).unwrap();
        let left = store.commits.load(Ordering::Relaxed) - before;
        assert_eq!(left, u64::from(!is_awaited));
    }
    store.reserve(NumberEnds { files: 9, cookies: 9 }).unwrap();
    assert_eq!(level(&store), 1, "a reservation leaves it as it was");
}

/// The disk told of earlier groups, which nobody waited for, by the failure of a later one.
#[test]
fn a_commit_that_the_disk_failed_has_the_log_carried_into_the_database_before_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store(&dir);
    let log = Arc::new(Log::open(&dir.path().join("namespace.db-wal")).unwrap());
    store.log = Some(Arc::clone(&log));
    store.begin(false).unwrap();
    store.commit(&Batch { sequence: 1, ..Batch::default() }).unwrap();
    let failure = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR_FSYNC);
    let failed = store.note::<()>(Err(rusqlite::Error::SqliteFailure(failure, None)));
    assert!(failed.is_err() && log.has_failed());
    store.begin(true).unwrap();
    assert!(!log.has_failed());
    store.commit(&Batch { sequence: 2, ..Batch::default() }).unwrap();
    let database = Connection::open(dir.path().join("namespace.db")).unwrap();
    let failed: i64 = database
        .query_row("SELECT value FROM meta WHERE key = 'failed_commits'", [], |row| row.get(0))
        .unwrap();
    assert_eq!(failed, 1);
}
