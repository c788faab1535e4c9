//! Code for SQLite alone: connections and their settings, rows to values and back, errors.
//!
//! Everything above speaks of inodes and names. Numbers of 64 bits without sign are kept as SQLite's signed ones, bit
//! for bit; only ids and cookies are ever compared in SQL and both stay far below the sign.

use std::path::Path;

use api::NamespaceError;
use rusqlite::types::Type;
use rusqlite::{Connection, OpenFlags, Row};
use types::{Attributes, Device, Epoch, FileId, FileKind, Name, Timestamp};

use crate::inode::{ChangeFloor, Extras, Inode, encode_kind};
use crate::store::StoreError;

pub const PAGE_BYTES: u32 = 4096;
const WRITER_CACHE_KIB: i64 = 64 * 1024;
const READER_CACHE_KIB: i64 = 16 * 1024;
/// Frames in the WAL after which they are carried into the database file.
pub const CHECKPOINT_PAGES: u32 = 4000;
/// About where a checkpoint begins: each page has a frame header, and the last group goes beyond.
pub const CHECKPOINT_BYTES: u64 = (CHECKPOINT_PAGES as u64 + 256) * (PAGE_BYTES as u64 + 24);
const STATEMENTS_CACHED: usize = 64;
/// Only an offline tool beside us can hold the database's lock; it gets this long.
const BUSY_TIMEOUT_MS: u32 = 10_000;

pub const INODE_COLUMNS: &str = "i.id, i.kind, i.mode, i.uid, i.gid, i.nlink, i.size, i.space_used, i.parent, \
    i.atime_s, i.atime_ns, i.mtime_s, i.mtime_ns, i.ctime_s, i.ctime_ns, i.birth_s, i.birth_ns, i.change, i.epoch, \
    i.major, i.minor, i.verifier, i.extras";
const INODE_COLUMN_COUNT: usize = 23;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Each commit is on disk before it returns.
    EachCommit,
    /// Commits reach the operating system; somebody else syncs the WAL.
    Deferred,
}

/// The one connection that writes.
pub fn open_writer(path: &Path, durability: Durability) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    set_durability(&connection, durability)?;
    settle(&connection)?;
    Ok(connection)
}

/// FULL syncs the WAL at each commit, NORMAL only around a checkpoint (which keeps the order that recovery needs).
pub fn set_durability(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    let level = match durability {
        Durability::EachCommit => "FULL",
        Durability::Deferred => "NORMAL",
    };
    connection.pragma_update(None, "synchronous", level)
}

/// One of the connections that read. No memory map: an I/O error is an error then and not a SIGBUS.
pub fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    // Not SQLITE_OPEN_READ_ONLY: a WAL reader takes part in the shared-memory index; `query_only` keeps it honest.
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.pragma_update(None, "query_only", true)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    settle(&connection)?;
    Ok(connection)
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(std::time::Duration::from_millis(u64::from(BUSY_TIMEOUT_MS)))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    Ok(())
}

/// The columns of `INODE_COLUMNS`, the first of them at `at`.
pub fn decode_inode(row: &Row<'_>, at: usize, floor: ChangeFloor) -> rusqlite::Result<Inode> {
    let time = |seconds: usize| -> rusqlite::Result<Timestamp> {
        Timestamp::new(row.get(at + seconds)?, row.get(at + seconds + 1)?)
            .ok_or_else(|| corrupt(at + seconds + 1, "nanoseconds of a time are a second or more"))
    };
    let device =
        || -> rusqlite::Result<Device> { Ok(Device { major: row.get(at + 19)?, minor: row.get(at + 20)? }) };
    let kind = match row.get::<_, u8>(at + 1)? {
        0 => FileKind::Regular,
        1 => FileKind::Directory,
        2 => FileKind::Symlink,
        3 => FileKind::BlockDevice(device()?),
        4 => FileKind::CharacterDevice(device()?),
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        _ => return Err(corrupt(at + 1, "kind of an inode is not known")),
    };
    let extras: u32 = row.get(at + 22)?;
    let attributes = Attributes {
        file: FileId(unsigned(row.get(at)?)),
        kind,
        mode: row.get(at + 2)?,
        uid: row.get(at + 3)?,
        gid: row.get(at + 4)?,
        nlink: row.get(at + 5)?,
        size: unsigned(row.get(at + 6)?),
        space_used: unsigned(row.get(at + 7)?),
        atime: time(9)?,
        mtime: time(11)?,
        ctime: time(13)?,
        birth: time(15)?,
        change: unsigned(row.get(at + 17)?).max(floor.of(kind)),
        epoch: Epoch(row.get(at + 18)?),
        has_acl: extras & Extras::ACL != 0,
        io: Extras::io(extras),
    };
    Ok(Inode {
        attributes,
        parent: FileId(unsigned(row.get(at + 8)?)),
        verifier: row.get(at + 21)?,
        extras: Extras::from_bits(extras),
    })
}

/// Column of the first value behind an inode that starts a row.
pub const AFTER_INODE: usize = INODE_COLUMN_COUNT;

/// A new row.
pub fn insert_inode(connection: &Connection, inode: &Inode) -> rusqlite::Result<()> {
    // One constant string, so that the statement cache finds it.
    const SQL: &str = "INSERT INTO inodes (id, kind, mode, uid, gid, nlink, size, space_used, parent, atime_s, \
        atime_ns, mtime_s, mtime_ns, ctime_s, ctime_ns, birth_s, birth_ns, change, epoch, major, minor, verifier, \
        extras) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)";
    let attributes = &inode.attributes;
    let (kind, device) = encode_kind(attributes.kind);
    connection.prepare_cached(SQL)?.execute(rusqlite::params![
        signed(attributes.file.0),
        kind,
        attributes.mode,
        attributes.uid,
        attributes.gid,
        attributes.nlink,
        signed(attributes.size),
        signed(attributes.space_used),
        signed(inode.parent.0),
        attributes.atime.seconds,
        attributes.atime.nanoseconds(),
        attributes.mtime.seconds,
        attributes.mtime.nanoseconds(),
        attributes.ctime.seconds,
        attributes.ctime.nanoseconds(),
        attributes.birth.seconds,
        attributes.birth.nanoseconds(),
        signed(attributes.change),
        attributes.epoch.0,
        device.major,
        device.minor,
        inode.verifier,
        inode.extras_bits(),
    ])?;
    Ok(())
}

/// An existing row; kind, birth, device and verifier never change.
pub fn update_inode(connection: &Connection, inode: &Inode) -> rusqlite::Result<()> {
    const SQL: &str = "UPDATE inodes SET mode = ?2, uid = ?3, gid = ?4, nlink = ?5, size = ?6, space_used = ?7, \
        parent = ?8, atime_s = ?9, atime_ns = ?10, mtime_s = ?11, mtime_ns = ?12, ctime_s = ?13, ctime_ns = ?14, \
        change = ?15, epoch = ?16, extras = ?17 WHERE id = ?1";
    let attributes = &inode.attributes;
    connection.prepare_cached(SQL)?.execute(rusqlite::params![
        signed(attributes.file.0),
        attributes.mode,
        attributes.uid,
        attributes.gid,
        attributes.nlink,
        signed(attributes.size),
        signed(attributes.space_used),
        signed(inode.parent.0),
        attributes.atime.seconds,
        attributes.atime.nanoseconds(),
        attributes.mtime.seconds,
        attributes.mtime.nanoseconds(),
        attributes.ctime.seconds,
        attributes.ctime.nanoseconds(),
        signed(attributes.change),
        attributes.epoch.0,
        inode.extras_bits(),
    ])?;
    Ok(())
}

pub fn decode_name(row: &Row<'_>, at: usize) -> rusqlite::Result<Name> {
    Name::new(row.get_ref(at)?.as_blob()?).map_err(|error| corrupt(at, &error.to_string()))
}

pub fn corrupt(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Null, what.to_owned().into())
}

/// Bit for bit.
pub fn signed(value: u64) -> i64 {
    value.cast_signed()
}

pub fn unsigned(value: i64) -> u64 {
    value.cast_unsigned()
}

pub fn to_namespace_error(error: rusqlite::Error) -> NamespaceError {
    (&StoreError::from(error)).into()
}
