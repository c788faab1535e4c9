//! The schema: numbered migrations, applied in order, each in its own transaction.
//!
//! A lookup is one descent of `dentries`; a listing is one walk of `dentries_by_cookie`, which holds all it needs. A
//! migration that was released is never edited: a change is a new one at the end.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use crate::migration::Migration;

/// "FBns": says that a database is a namespace of ours (`PRAGMA application_id`).
pub const APPLICATION_ID: i32 = 0x4642_6e73;

pub const MIGRATIONS: &[Migration] = &[
    Migration {
        what: "the first tables: files, names, locations, symbolic links, clients",
        touches: &[],
        sql: "
    CREATE TABLE inodes (
        id INTEGER PRIMARY KEY,
        kind INTEGER NOT NULL,
        mode INTEGER NOT NULL,
        uid INTEGER NOT NULL,
        gid INTEGER NOT NULL,
        nlink INTEGER NOT NULL,
        size INTEGER NOT NULL,
        space_used INTEGER NOT NULL,
        parent INTEGER NOT NULL,
        atime_s INTEGER NOT NULL,
        atime_ns INTEGER NOT NULL,
        mtime_s INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        ctime_s INTEGER NOT NULL,
        ctime_ns INTEGER NOT NULL,
        birth_s INTEGER NOT NULL,
        birth_ns INTEGER NOT NULL,
        change INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        major INTEGER NOT NULL,
        minor INTEGER NOT NULL,
        verifier BLOB
    );
    CREATE INDEX inodes_orphaned ON inodes(nlink) WHERE nlink = 0;
    CREATE TABLE dentries (
        parent INTEGER NOT NULL,
        name BLOB NOT NULL,
        cookie INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        PRIMARY KEY (parent, name)
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX dentries_by_cookie ON dentries(parent, cookie, inode, name);
    CREATE TABLE locations (
        inode INTEGER NOT NULL,
        pool INTEGER NOT NULL,
        PRIMARY KEY (inode, pool)
    ) WITHOUT ROWID;
    CREATE TABLE symlinks (
        inode INTEGER PRIMARY KEY,
        target BLOB NOT NULL
    );
    CREATE TABLE clients (
        owner BLOB PRIMARY KEY,
        reclaim_complete INTEGER NOT NULL
    ) WITHOUT ROWID;
    -- One number each: start counter, high-water marks of id blocks, how the last instance ended.
    CREATE TABLE meta (
        key TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) WITHOUT ROWID;
    -- One row, written by each group: its number, so that a reader knows which groups its snapshot holds, and the
    -- totals, so that statfs scans nothing.
    CREATE TABLE progress (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        groups INTEGER NOT NULL,
        files INTEGER NOT NULL,
        bytes INTEGER NOT NULL
    );
    INSERT INTO progress VALUES (1, 0, 0, 0);
",
    },
    Migration {
        what: "tables of properties and checksums, and a flag in each file's row for each",
        touches: &[],
        sql: "
    -- Bits: has checksums, has properties, is unnamed.
    ALTER TABLE inodes ADD COLUMN extras INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE properties (
        inode INTEGER NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (inode, name)
    ) WITHOUT ROWID;
    CREATE TABLE checksums (
        inode INTEGER NOT NULL,
        kind TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (inode, kind)
    ) WITHOUT ROWID;
",
    },
    Migration {
        what: "an index from files to their names",
        touches: &["dentries"],
        sql: "
    -- From a file to its names. A create costs some 4 % more of the database's time, a name 27 bytes; without it the way
    -- back is a walk over all names.
    CREATE INDEX dentries_by_inode ON dentries(inode);
",
    },
    Migration {
        what: "counts per user, group and directory tree, quotas, pending changes of directories, and in each file's row a directory that has it",
        touches: &["inodes", "dentries"],
        sql: "
    -- What pending groups did to a directory whose row was left as it is; its truth is the row with these: nlink added,
    -- change and times (mtime and ctime) merged by max.
    CREATE TABLE dir_deltas (
        inode INTEGER NOT NULL,
        groups INTEGER NOT NULL,
        nlink INTEGER NOT NULL,
        change INTEGER NOT NULL,
        time_s INTEGER NOT NULL,
        time_ns INTEGER NOT NULL,
        PRIMARY KEY (inode, groups)
    ) WITHOUT ROWID;
    -- Scope 0: a user, 1: a group, 2: what lies below a directory.
    CREATE TABLE usage (
        scope INTEGER NOT NULL,
        id INTEGER NOT NULL,
        files INTEGER NOT NULL,
        directories INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        PRIMARY KEY (scope, id)
    ) WITHOUT ROWID;
    -- What groups changed that is not in usage yet, as encoded by accounts/journal.rs.
    CREATE TABLE usage_journal (
        groups INTEGER PRIMARY KEY,
        deltas BLOB NOT NULL
    );
    CREATE TABLE quotas (
        scope INTEGER NOT NULL,
        id INTEGER NOT NULL,
        bytes_soft INTEGER,
        bytes_hard INTEGER,
        files_soft INTEGER,
        files_hard INTEGER,
        bytes_over_since INTEGER,
        files_over_since INTEGER,
        PRIMARY KEY (scope, id)
    ) WITHOUT ROWID;
    -- Of what is no directory: a directory that has a name of it, in whose tree its bytes count.
    UPDATE inodes SET parent = coalesce((SELECT min(d.parent) FROM dentries d WHERE d.inode = inodes.id), 0)
        WHERE kind != 1;
",
    },
    Migration {
        what: "a table of extended attributes",
        touches: &[],
        sql: "
    -- Those of users (RFC 8276), without the prefix of their namespace; a bit in the extras of a file says that it has any.
    -- Cookies give the order of listings and are never given twice.
    CREATE TABLE xattrs (
        inode INTEGER NOT NULL,
        name BLOB NOT NULL,
        cookie INTEGER NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (inode, name)
    ) WITHOUT ROWID;
",
    },
    Migration {
        what: "a table of access control lists",
        touches: &[],
        sql: "
    -- Versioned, of what says more than its mode; a bit in the extras of a file says that it has one.
    CREATE TABLE acls (
        inode INTEGER PRIMARY KEY,
        acl BLOB NOT NULL
    );
",
    },
    Migration {
        what: "where the data of each file is: in its row whether it has replicas, and the state of each",
        touches: &["inodes", "locations"],
        sql: "
    -- 1: good, 2: filling, 3: stale, 4: broken, 5: missing; and since when, in seconds since 1970, or 0: before it was noted.
    ALTER TABLE locations ADD COLUMN state INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE locations ADD COLUMN since INTEGER NOT NULL DEFAULT 0;
    -- Bits 8 to 10 of the extras of a regular file. 0: it has replicas; 1: it is empty; 2: it has a length and no replica.
    UPDATE inodes SET extras = extras | CASE WHEN size = 0 THEN 256 ELSE 512 END
        WHERE kind = 0 AND NOT EXISTS (SELECT 1 FROM locations l WHERE l.inode = inodes.id);
",
    },
    Migration {
        what: "an index of the replicas that are not good",
        touches: &["locations"],
        sql: "
    CREATE INDEX locations_unsettled ON locations(inode) WHERE state <> 1;
",
    },
];

/// The newest version that this program knows.
pub fn known_version() -> u32 {
    u32::try_from(MIGRATIONS.len()).expect("there are few migrations")
}

/// 0: an empty database. `None`: tables, but none of ours.
pub fn found_version(connection: &Connection) -> rusqlite::Result<Option<u32>> {
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if tables == 0 && (application == 0 || application == APPLICATION_ID) {
        return Ok(Some(0));
    }
    if application != APPLICATION_ID {
        return Ok(None);
    }
    connection
        .query_row("SELECT max(version) FROM schema_version", [], |row| row.get::<_, Option<u32>>(0))
        .optional()
        .map(Option::flatten)
}

/// Applies what is missing behind `from`.
pub fn migrate(connection: &mut Connection, from: u32) -> rusqlite::Result<()> {
    migrate_telling(connection, from, &mut |_| {})
}

/// As [`migrate`]; `tell` gets each version that is in place.
pub fn migrate_telling(
    connection: &mut Connection,
    from: u32,
    tell: &mut dyn FnMut(u32),
) -> rusqlite::Result<()> {
    if from == 0 {
        connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    for (version, migration) in (1_u32..).zip(MIGRATIONS).skip(from as usize) {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(
            "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, applied TEXT NOT NULL)",
        )?;
        transaction.execute_batch(migration.sql)?;
        transaction.execute("INSERT INTO schema_version VALUES (?1, datetime('now'))", [version])?;
        transaction.commit()?;
        tell(version);
    }
    Ok(())
}

pub fn meta(connection: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT value FROM meta WHERE key = ?1")?
        .query_row([key], |row| row.get(0))
        .optional()
}

pub fn set_meta(connection: &Connection, key: &str, value: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO meta VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        )?
        .execute(rusqlite::params![key, value])?;
    Ok(())
}

/// A database of the first version after a clean end: a root and in it the file 7, "old".
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "this is for tests")]
pub fn make_first_version(path: &std::path::Path) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    connection.execute_batch(MIGRATIONS[0].sql).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied TEXT NOT NULL);
             INSERT INTO schema_version VALUES (1, '2026-01-01 00:00:00');
             INSERT INTO inodes VALUES (1, 1, 493, 0, 0, 2, 0, 0, 0, 9, 0, 9, 0, 9, 0, 9, 0, 4294967297, 0, 0, 0, NULL);
             INSERT INTO inodes VALUES (7, 0, 416, 0, 0, 1, 5, 0, 0, 9, 0, 9, 0, 9, 0, 9, 0, 4294967296, 0, 0, 0, NULL);
             INSERT INTO dentries VALUES (1, x'6f6c64', 7, 7);
             INSERT INTO locations VALUES (7, 1);
             INSERT INTO meta VALUES ('starts', 1), ('clean_end', 1), ('next_file', 1027), ('next_cookie', 1027);
             UPDATE progress SET groups = 1, files = 2, bytes = 5;",
        )
        .unwrap();
}
