//! Rows to values, and values to the arrays that one statement writes.

use api::ReplicaRef;
use postgres_types::ToSql;
use tokio_postgres::Row;
use types::{Attributes, Device, Epoch, FileId, FileKind, Name, PoolId, Timestamp};

use crate::inode::{ChangeFloor, Extras, Inode, encode_kind};
use crate::locality;
use crate::store::{StoreError, StoreResult};

/// As `decode_inode` reads them.
pub const INODE_COLUMNS: &str = "i.id, i.kind, i.mode, i.uid, i.gid, i.nlink, i.size, i.space_used, i.parent, \
    i.atime_s, i.atime_ns, i.mtime_s, i.mtime_ns, i.ctime_s, i.ctime_ns, i.birth_s, i.birth_ns, i.change, i.epoch, \
    i.major, i.minor, i.verifier, i.extras";
/// Of the first column behind them.
pub const AFTER_INODE: usize = 23;

pub fn signed(file: FileId) -> i64 {
    file.0.cast_signed()
}

pub fn file_id(value: i64) -> FileId {
    FileId(value.cast_unsigned())
}

pub fn corrupt(what: impl ToString) -> StoreError {
    StoreError::Failed(format!("database is damaged: {}", what.to_string()))
}

pub fn get<'a, T: postgres_types::FromSql<'a>>(row: &'a Row, at: usize) -> StoreResult<T> {
    row.try_get(at).map_err(corrupt)
}

fn unsigned(row: &Row, at: usize) -> StoreResult<u64> {
    Ok(get::<i64>(row, at)?.cast_unsigned())
}

fn unsigned32(row: &Row, at: usize) -> StoreResult<u32> {
    Ok(get::<i32>(row, at)?.cast_unsigned())
}

/// The columns of `INODE_COLUMNS`, the first of them at `at`. `None` where an outer join found nothing.
pub fn decode_inode(row: &Row, at: usize, floor: ChangeFloor) -> StoreResult<Option<Inode>> {
    let Some(id) = get::<Option<i64>>(row, at)? else { return Ok(None) };
    let time = |at: usize| {
        let nanoseconds = get::<i32>(row, at + 1)?.cast_unsigned();
        Timestamp::new(get(row, at)?, nanoseconds)
            .ok_or_else(|| corrupt("nanoseconds of a time are a second or more"))
    };
    let device = || -> StoreResult<Device> {
        Ok(Device { major: unsigned32(row, at + 19)?, minor: unsigned32(row, at + 20)? })
    };
    let kind = match get::<i16>(row, at + 1)? {
        0 => FileKind::Regular,
        1 => FileKind::Directory,
        2 => FileKind::Symlink,
        3 => FileKind::BlockDevice(device()?),
        4 => FileKind::CharacterDevice(device()?),
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        _ => return Err(corrupt("kind of an inode is not known")),
    };
    let extras = unsigned32(row, at + 22)?;
    let attributes = Attributes {
        file: file_id(id),
        kind,
        mode: unsigned32(row, at + 2)?,
        uid: unsigned32(row, at + 3)?,
        gid: unsigned32(row, at + 4)?,
        nlink: unsigned32(row, at + 5)?,
        size: unsigned(row, at + 6)?,
        space_used: unsigned(row, at + 7)?,
        atime: time(at + 9)?,
        mtime: time(at + 11)?,
        ctime: time(at + 13)?,
        birth: time(at + 15)?,
        change: unsigned(row, at + 17)?.max(floor.of(kind)),
        epoch: Epoch(unsigned32(row, at + 18)?),
        has_acl: extras & Extras::ACL != 0,
        io: Extras::io(extras),
    };
    let verifier = match get::<Option<&[u8]>>(row, at + 21)? {
        Some(bytes) => Some(bytes.try_into().map_err(|_| corrupt("a verifier does not have eight bytes"))?),
        None => None,
    };
    let (parent, extras) = (file_id(get(row, at + 8)?), Extras::from_bits(extras));
    Ok(Some(Inode { attributes, parent, verifier, extras }))
}

/// A row's pool, state and time, the first of them at `at`.
pub fn decode_replica(row: &Row, at: usize) -> StoreResult<ReplicaRef> {
    let state = i64::from(get::<i16>(row, at + 1)?);
    Ok(locality::decode_replica(PoolId(unsigned32(row, at)?), state, get(row, at + 2)?))
}

/// The same of several replicas, in one array.
pub fn decode_replicas(row: &Row, at: usize) -> StoreResult<Vec<ReplicaRef>> {
    let values: Vec<i64> = get(row, at)?;
    let decode = |values: &[i64]| locality::decode_replica(PoolId(values[0] as u32), values[1], values[2]);
    Ok(values.chunks_exact(3).map(decode).collect())
}

pub fn decode_name(row: &Row, at: usize) -> StoreResult<Name> {
    Name::new(get::<&[u8]>(row, at)?).map_err(corrupt)
}

/// A column for each array, in the order of `INODE_COLUMNS`.
pub const WRITE_INODES: &str = "INSERT INTO inodes (id, kind, mode, uid, gid, nlink, size, space_used, parent, \
    atime_s, atime_ns, mtime_s, mtime_ns, ctime_s, ctime_ns, birth_s, birth_ns, change, epoch, major, minor, \
    verifier, extras) \
    SELECT * FROM unnest($1::bigint[], $2::smallint[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], \
    $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::integer[], $12::bigint[], $13::integer[], \
    $14::bigint[], $15::integer[], $16::bigint[], $17::integer[], $18::bigint[], $19::integer[], $20::integer[], \
    $21::integer[], $22::bytea[], $23::integer[]) \
    ON CONFLICT (id) DO UPDATE SET mode = excluded.mode, uid = excluded.uid, gid = excluded.gid, \
    nlink = excluded.nlink, size = excluded.size, space_used = excluded.space_used, parent = excluded.parent, \
    atime_s = excluded.atime_s, atime_ns = excluded.atime_ns, mtime_s = excluded.mtime_s, \
    mtime_ns = excluded.mtime_ns, ctime_s = excluded.ctime_s, ctime_ns = excluded.ctime_ns, \
    change = excluded.change, epoch = excluded.epoch, extras = excluded.extras";

/// Many inodes, column by column.
#[derive(Default)]
pub struct InodeArrays {
    /// id, size, space_used, parent, atime, mtime, ctime, birth, change
    wide: [Vec<i64>; 9],
    /// mode, uid, gid, nlink, atime, mtime, ctime, birth, epoch, major, minor, extras
    narrow: [Vec<i32>; 12],
    kind: Vec<i16>,
    verifier: Vec<Option<Vec<u8>>>,
}

impl InodeArrays {
    pub fn push(&mut self, inode: &Inode) {
        let a = &inode.attributes;
        let (kind, device) = encode_kind(a.kind);
        let wide = [
            signed(a.file),
            a.size.cast_signed(),
            a.space_used.cast_signed(),
            signed(inode.parent),
            a.atime.seconds,
            a.mtime.seconds,
            a.ctime.seconds,
            a.birth.seconds,
            a.change.cast_signed(),
        ];
        let narrow = [
            a.mode,
            a.uid,
            a.gid,
            a.nlink,
            a.atime.nanoseconds(),
            a.mtime.nanoseconds(),
            a.ctime.nanoseconds(),
            a.birth.nanoseconds(),
            a.epoch.0,
            device.major,
            device.minor,
            inode.extras_bits(),
        ];
        for (column, value) in self.wide.iter_mut().zip(wide) {
            column.push(value);
        }
        for (column, value) in self.narrow.iter_mut().zip(narrow) {
            column.push(value.cast_signed());
        }
        self.kind.push(i16::from(kind));
        self.verifier.push(inode.verifier.map(|verifier| verifier.to_vec()));
    }

    pub fn is_empty(&self) -> bool {
        self.kind.is_empty()
    }

    /// For `WRITE_INODES`.
    pub fn into_values(self) -> Vec<Box<dyn ToSql + Sync + Send>> {
        let [id, size, space_used, parent, atime_s, mtime_s, ctime_s, birth_s, change] =
            self.wide.map(|column| Box::new(column) as Box<dyn ToSql + Sync + Send>);
        let [mode, uid, gid, nlink, atime_ns, mtime_ns, ctime_ns, birth_ns, epoch, major, minor, extras] =
            self.narrow.map(|column| Box::new(column) as Box<dyn ToSql + Sync + Send>);
        let (kind, verifier) = (Box::new(self.kind), Box::new(self.verifier));
        vec![
            id, kind, mode, uid, gid, nlink, size, space_used, parent, atime_s, atime_ns, mtime_s, mtime_ns,
            ctime_s, ctime_ns, birth_s, birth_ns, change, epoch, major, minor, verifier, extras,
        ]
    }
}
