//! The schema, in numbered migrations as those of SQLite.
//!
//! Rows are read and written by the column names of `rows`; wide columns come first, so that no row is padded.

use crate::migration::Migration;

/// The newest version that this program knows.
pub const KNOWN_VERSION: i32 = MIGRATIONS.len() as i32;

/// Everything is kept in a schema of this name.
pub const SCHEMA: &str = "forebay";

pub const MIGRATIONS: &[Migration] = &[
    Migration {
        what: "all tables: files, names, locations, symbolic links, properties, checksums, clients",
        touches: &[],
        sql: "
    CREATE TABLE inodes (
        id bigint PRIMARY KEY,
        size bigint NOT NULL,
        space_used bigint NOT NULL,
        parent bigint NOT NULL,
        atime_s bigint NOT NULL,
        mtime_s bigint NOT NULL,
        ctime_s bigint NOT NULL,
        birth_s bigint NOT NULL,
        change bigint NOT NULL,
        atime_ns integer NOT NULL,
        mtime_ns integer NOT NULL,
        ctime_ns integer NOT NULL,
        birth_ns integer NOT NULL,
        uid integer NOT NULL,
        gid integer NOT NULL,
        nlink integer NOT NULL,
        mode integer NOT NULL,
        epoch integer NOT NULL,
        major integer NOT NULL,
        minor integer NOT NULL,
        extras integer NOT NULL,
        kind smallint NOT NULL,
        verifier bytea
    ) WITH (fillfactor = 90);
    CREATE INDEX inodes_orphaned ON inodes(id) WHERE nlink = 0;
    CREATE TABLE dentries (
        parent bigint NOT NULL,
        cookie bigint NOT NULL,
        inode bigint NOT NULL,
        name bytea NOT NULL,
        PRIMARY KEY (parent, name)
    );
    CREATE UNIQUE INDEX dentries_by_cookie ON dentries(parent, cookie);
    CREATE INDEX dentries_by_inode ON dentries(inode);
    CREATE TABLE locations (
        inode bigint NOT NULL,
        pool integer NOT NULL,
        PRIMARY KEY (inode, pool)
    );
    CREATE TABLE symlinks (
        inode bigint PRIMARY KEY,
        target bytea NOT NULL
    );
    CREATE TABLE properties (
        inode bigint NOT NULL,
        name text COLLATE \"C\" NOT NULL,
        value bytea NOT NULL,
        PRIMARY KEY (inode, name)
    );
    CREATE TABLE checksums (
        inode bigint NOT NULL,
        kind text COLLATE \"C\" NOT NULL,
        value bytea NOT NULL,
        PRIMARY KEY (inode, kind)
    );
    CREATE TABLE clients (
        owner bytea PRIMARY KEY,
        reclaim_complete boolean NOT NULL
    );
    -- One number each: start counter, high-water marks of id blocks, how the last instance ended.
    CREATE TABLE meta (
        key text PRIMARY KEY,
        value bigint NOT NULL
    );
    -- One row, written by each group: its number, so that a reader knows which groups its snapshot holds, the totals, so
    -- that statfs scans nothing, and the epoch of the head that writes.
    CREATE TABLE progress (
        id integer PRIMARY KEY CHECK (id = 1),
        groups bigint NOT NULL,
        files bigint NOT NULL,
        bytes bigint NOT NULL,
        epoch bigint NOT NULL
    ) WITH (fillfactor = 10);
    INSERT INTO progress VALUES (1, 0, 0, 0, 0);
",
    },
    Migration {
        what: "counts per user, group and directory tree, quotas, pending changes of directories, and in each file's row a directory that has it",
        touches: &["inodes", "dentries"],
        sql: "
    -- What pending groups did to a directory whose row was left as it is; its truth is the row with these: nlink added,
    -- change and times (mtime and ctime) merged by max.
    CREATE TABLE dir_deltas (
        inode bigint NOT NULL,
        groups bigint NOT NULL,
        nlink bigint NOT NULL,
        change bigint NOT NULL,
        time_s bigint NOT NULL,
        time_ns integer NOT NULL,
        PRIMARY KEY (inode, groups)
    );
    -- Scope 0: a user, 1: a group, 2: what lies below a directory.
    CREATE TABLE usage (
        scope smallint NOT NULL,
        id bigint NOT NULL,
        files bigint NOT NULL,
        directories bigint NOT NULL,
        bytes bigint NOT NULL,
        PRIMARY KEY (scope, id)
    ) WITH (fillfactor = 50);
    -- What groups changed that is not in usage yet, as encoded by accounts/journal.rs.
    CREATE TABLE usage_journal (
        groups bigint PRIMARY KEY,
        deltas bytea NOT NULL
    );
    CREATE TABLE quotas (
        scope smallint NOT NULL,
        id bigint NOT NULL,
        bytes_soft bigint,
        bytes_hard bigint,
        files_soft bigint,
        files_hard bigint,
        bytes_over_since bigint,
        files_over_since bigint,
        PRIMARY KEY (scope, id)
    );
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
        inode bigint NOT NULL,
        name bytea NOT NULL,
        cookie bigint NOT NULL,
        value bytea NOT NULL,
        PRIMARY KEY (inode, name)
    );
",
    },
    Migration {
        what: "a table of access control lists",
        touches: &[],
        sql: "
    -- Versioned, of what says more than its mode; a bit in the extras of a file says that it has one.
    CREATE TABLE acls (
        inode bigint PRIMARY KEY,
        acl bytea NOT NULL
    );
",
    },
    Migration {
        what: "where the data of each file is: in its row whether it has replicas, and the state of each",
        touches: &["inodes", "locations"],
        sql: "
    -- 1: good, 2: filling, 3: stale, 4: broken, 5: missing; and since when, in seconds since 1970, or 0: before it was noted.
    ALTER TABLE locations ADD COLUMN state smallint NOT NULL DEFAULT 1;
    ALTER TABLE locations ADD COLUMN since bigint NOT NULL DEFAULT 0;
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
