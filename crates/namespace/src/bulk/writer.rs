//! The way in for code that makes a namespace out of something else.

use std::collections::BTreeMap;

use api::{Account, Counted, ReplicaRef};
use types::{FileId, Name, SymlinkTarget};

use super::tables::{DENTRIES, INODES, LOCATIONS, SYMLINKS, TABLES, Table, USAGE, Value};
use super::{Begin, BulkResult, Marks, NamespaceLocation, Sink, open_sink};
use crate::accounts::scope_number;
use crate::check::Problem;
use crate::inode::{Inode, encode_kind};
use crate::locality::state_number;
use crate::starts::Notes;
use crate::store::{NumberEnds, Totals};

/// Rows that are handed to the database at once.
pub const BATCH_ROWS: usize = 4096;

/// A new namespace. Rows are fastest in the order of their keys. The next attempt removes an unfinished one.
pub struct Bulk {
    sink: Box<dyn Sink>,
    waiting: BTreeMap<&'static str, (&'static Table, Vec<Value>)>,
}

/// Values that a namespace needs beside its rows.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Above every file id and every cookie that was written.
    pub ends: NumberEnds,
    pub totals: Totals,
    /// Of the data directory that it belongs to, if that is known.
    pub instance: Option<[u8; 16]>,
}

impl Bulk {
    /// Takes the place's lock. Errs unless there is nothing in it. The rows are of the first start, `inode::Instance
    /// { start: 1 }`.
    pub fn begin(place: &NamespaceLocation) -> BulkResult<Bulk> {
        let sink = open_sink(place, "", Begin::Afresh)?;
        Ok(Bulk { sink, waiting: BTreeMap::new() })
    }

    pub fn inode(&mut self, inode: &Inode) -> BulkResult<()> {
        self.add(&INODES, inode_row(inode))
    }

    pub fn name(&mut self, dir: FileId, name: &Name, cookie: u64, child: FileId) -> BulkResult<()> {
        let name = Value::Bytes(name.as_bytes().to_vec());
        self.add(&DENTRIES, [number(dir.0), name, number(cookie), number(child.0)])
    }

    pub fn location(&mut self, file: FileId, replica: &ReplicaRef) -> BulkResult<()> {
        let [pool, state, since] =
            [i64::from(replica.pool.0), i64::from(state_number(replica.state)), replica.since.seconds]
                .map(Value::Number);
        self.add(&LOCATIONS, [number(file.0), pool, state, since])
    }

    pub fn target(&mut self, file: FileId, target: &SymlinkTarget) -> BulkResult<()> {
        self.add(&SYMLINKS, [number(file.0), Value::Bytes(target.as_bytes().to_vec())])
    }

    pub fn usage(&mut self, account: &Account, counted: &Counted) -> BulkResult<()> {
        let scope = i64::from(scope_number(account.scope));
        let [files, directories, bytes] =
            [counted.files, counted.directories, counted.bytes].map(Value::Number);
        self.add(&USAGE, [Value::Number(scope), number(account.id), files, directories, bytes])
    }

    /// The file with the name, among the rows that were handed to the database; quick after `execute`.
    pub fn child(&mut self, dir: FileId, name: &Name) -> BulkResult<Option<FileId>> {
        let key = |name: Vec<u8>| [number(dir.0), Value::Bytes(name)];
        let page = self.sink.tables().page(&DENTRIES, Some(&key(before(name))), 1)?;
        let [named @ .., _, Value::Number(file)] = &page[..] else { return Ok(None) };
        let is_it = *named == key(name.as_bytes().to_vec());
        Ok(is_it.then_some(FileId(file.cast_unsigned())))
    }

    /// SQL that both engines understand, over everything written so far and with its indexes, which makes later rows slow.
    pub fn execute(&mut self, sql: &str) -> BulkResult<()> {
        self.flush()?;
        self.sink.index()?;
        self.sink.execute(sql)
    }

    /// Durably puts it in place; what the namespace's check finds.
    pub fn finish(mut self, end: &End) -> BulkResult<Vec<Problem>> {
        self.flush()?;
        self.sink.index()?;
        self.sink.publish(&first_marks(end)?)?;
        self.sink.check()
    }

    fn add<const N: usize>(&mut self, table: &'static Table, row: [Value; N]) -> BulkResult<()> {
        let (_, waiting) = self.waiting.entry(table.name).or_insert_with(|| (table, Vec::new()));
        waiting.extend(row);
        if waiting.len() >= BATCH_ROWS * N {
            self.sink.write(table, waiting)?;
            waiting.clear();
        }
        Ok(())
    }

    fn flush(&mut self) -> BulkResult<()> {
        for table in TABLES {
            if let Some((table, rows)) = self.waiting.remove(table.name) {
                self.sink.write(table, &rows)?;
            }
        }
        Ok(())
    }
}

/// As the first start leaves them behind, ended cleanly.
fn first_marks(end: &End) -> BulkResult<Marks> {
    let mut notes = Notes::default();
    notes.set("starts", 1);
    notes.set("clean_end", 1);
    let mut marks = Marks { groups: 0, files: end.totals.files, bytes: end.totals.bytes, ..Marks::default() };
    marks.set_notes(&notes);
    marks.meta.insert("next_file".to_owned(), end.ends.files.cast_signed());
    marks.meta.insert("next_cookie".to_owned(), end.ends.cookies.cast_signed());
    marks.claim(end.instance, "")?;
    Ok(marks)
}

/// The key with no other name between it and `name`: the last byte one less (no name has NUL), filled up with 0xff.
fn before(name: &Name) -> Vec<u8> {
    let mut before = name.as_bytes().to_vec();
    if let Some(last) = before.last_mut() {
        *last -= 1;
    }
    before.resize(Name::BYTES_MAX, 0xff);
    before
}

fn number(value: u64) -> Value {
    Value::Number(value.cast_signed())
}

/// In the order of `INODES`.
fn inode_row(inode: &Inode) -> [Value; 23] {
    let a = &inode.attributes;
    let (kind, device) = encode_kind(a.kind);
    let narrow = |value: u32| Value::Number(i64::from(value));
    [
        number(a.file.0),
        Value::Number(i64::from(kind)),
        narrow(a.mode),
        narrow(a.uid),
        narrow(a.gid),
        narrow(a.nlink),
        number(a.size),
        number(a.space_used),
        number(inode.parent.0),
        Value::Number(a.atime.seconds),
        narrow(a.atime.nanoseconds()),
        Value::Number(a.mtime.seconds),
        narrow(a.mtime.nanoseconds()),
        Value::Number(a.ctime.seconds),
        narrow(a.ctime.nanoseconds()),
        Value::Number(a.birth.seconds),
        narrow(a.birth.nanoseconds()),
        number(a.change),
        narrow(a.epoch.0),
        narrow(device.major),
        narrow(device.minor),
        inode.verifier.map_or(Value::Null, |verifier| Value::Bytes(verifier.to_vec())),
        narrow(inode.extras_bits()),
    ]
}
