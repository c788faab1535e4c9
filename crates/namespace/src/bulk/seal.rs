//! The end of a backup: behind the database's last page what it has, and a SHA-256 of everything before it.
//!
//! SQLite does not look behind the last page. That there is an end is noted in the database's header (`user_version`), so
//! that a backup that lost its tail is not taken for one of an older program, which had none.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256};
use rusqlite::Connection;
use types::hex::Hex;

use super::copy::Tell;
use super::{BulkError, BulkResult, Marks, Phase, Progress};
use crate::timeline::Timeline;

/// "FBnb", as `user_version`.
const MARKER: i32 = 0x4642_6e62;
const MARKER_AT: usize = 60;
const TITLE: &str = "forebay backup 1\n";
const DIGEST: &str = "sha256 ";
const HEX_LEN: usize = 64;
/// "end " with the length of all lines before it, and a line feed.
const END_LEN: usize = 13;
/// Far more than the lines of all tables.
const LINES_MAX: u64 = 64 << 10;
const BUFFER_BYTES: usize = 1 << 20;

/// Description of a backup, at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    pub rows: BTreeMap<String, u64>,
    /// Which state of which way of the namespace it is (`timeline`).
    place: u64,
    drawn: i64,
    groups: i64,
}

impl Contents {
    /// Of a database that is to be sealed, which is marked with it.
    pub fn note(connection: &Connection, marks: &Marks) -> rusqlite::Result<Contents> {
        connection.pragma_update(None, "user_version", MARKER)?;
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
        let mut statement = connection.prepare(sql)?;
        let names = statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
        let mut rows = BTreeMap::new();
        for name in names {
            let count = connection
                .query_row(&format!("SELECT count(*) FROM {name}"), [], |row| row.get::<_, i64>(0))?;
            rows.insert(name, count.cast_unsigned());
        }
        let timeline = Timeline::of(marks.meta.iter().map(|(key, value)| (key.as_str(), *value)));
        let (place, drawn) = timeline.last();
        Ok(Contents { rows, place, drawn, groups: marks.groups })
    }

    fn lines(&self) -> String {
        let Contents { rows, place, drawn, groups } = self;
        let rows: String = rows.iter().map(|(table, count)| format!("rows {table} {count}\n")).collect();
        format!("{TITLE}timeline {place} {drawn}\ngroups {groups}\n{rows}")
    }

    fn parse(lines: &str) -> Option<Contents> {
        let mut contents = Contents::default();
        for line in lines.strip_prefix(TITLE)?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["timeline", place, drawn] => {
                    (contents.place, contents.drawn) = (place.parse().ok()?, drawn.parse().ok()?);
                }
                ["groups", groups] => contents.groups = groups.parse().ok()?,
                ["rows", table, count] => _ = contents.rows.insert(table.to_owned(), count.parse().ok()?),
                _ => return None,
            }
        }
        Some(contents)
    }
}

/// Appends the end to a database that nobody has open. Not synced.
pub fn seal(path: &Path, contents: &Contents) -> BulkResult<()> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).append(true).open(path)?;
        let bytes = file.metadata()?.len();
        let lines = contents.lines();
        let digest = digest(&mut file, bytes, lines.as_bytes(), &mut |_| {})?;
        let lines = format!("{lines}{DIGEST}{digest}\n");
        writeln!(file, "{lines}end {:08}", lines.len())
    };
    write().map_err(|error| BulkError::failed(path.display(), error))
}

/// Takes the end away, as a program did that knew of none.
#[cfg(test)]
pub fn unseal(path: &Path) -> BulkResult<()> {
    let cut = || -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = file.metadata()?.len();
        match find_end(&mut file, bytes)? {
            Some(end) => file.set_len(end.database_bytes),
            None => Ok(()),
        }
    };
    cut().map_err(|error| BulkError::failed(path.display(), error))
}

/// Reads all of a backup before anything of it is believed. `None`: it is of an older program, which gave it no digest.
pub fn verify(path: &Path, tell: &mut Tell<'_>) -> BulkResult<Option<Contents>> {
    let damaged =
        |what: &str| BulkError::Damaged { place: path.display().to_string(), what: what.to_owned() };
    let failed = |error: io::Error| BulkError::failed(path.display(), error);
    let mut file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => BulkError::Nothing(path.display().to_string()),
        _ => failed(error),
    })?;
    let total = file.metadata().map_err(failed)?.len();
    let Some(End { database_bytes, lines, digest: noted }) = find_end(&mut file, total).map_err(failed)?
    else {
        let is_marked = has_marker(&mut file).map_err(failed)?;
        return if is_marked {
            Err(damaged("its end is missing or was changed; take another backup"))
        } else {
            Ok(None)
        };
    };
    let each = &mut |done| tell(Progress { phase: Phase::Reading, table: "", done, total });
    if digest(&mut file, database_bytes, lines.as_bytes(), each).map_err(failed)? != noted {
        return Err(damaged("its bytes are not those that were saved (SHA-256); take another backup"));
    }
    Contents::parse(&lines)
        .map(Some)
        .ok_or_else(|| damaged("its end cannot be understood; use the program that wrote it"))
}

struct End {
    database_bytes: u64,
    /// Without that of the digest.
    lines: String,
    digest: String,
}

fn find_end(file: &mut File, total: u64) -> io::Result<Option<End>> {
    let tail_len = total.min(LINES_MAX);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(total - tail_len))?;
    file.take(tail_len).read_to_end(&mut tail)?;
    Ok(parse_end(&tail).map(|(len, lines, digest)| End { database_bytes: total - len, lines, digest }))
}

/// With the length of all of it.
fn parse_end(tail: &[u8]) -> Option<(u64, String, String)> {
    let (before, last) = tail.split_at_checked(tail.len().checked_sub(END_LEN)?)?;
    let len = std::str::from_utf8(last).ok()?.strip_prefix("end ")?.strip_suffix('\n')?;
    let len: usize = len.parse().ok().filter(|number: &usize| format!("{number:08}") == len)?;
    let lines = std::str::from_utf8(&before[before.len().checked_sub(len)?..]).ok()?;
    let at = lines.len().checked_sub(DIGEST.len() + HEX_LEN + 1)?;
    let (lines, digest) = lines.split_at_checked(at)?;
    let digest = digest.strip_prefix(DIGEST)?.strip_suffix('\n')?;
    let is_ours = lines.starts_with(TITLE);
    is_ours.then(|| ((len + END_LEN) as u64, lines.to_owned(), digest.to_owned()))
}

fn has_marker(file: &mut File) -> io::Result<bool> {
    let mut header = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(100).read_to_end(&mut header)?;
    Ok(header.get(MARKER_AT..MARKER_AT + 4) == Some(&MARKER.to_be_bytes()))
}

/// In hexadecimal, of so many bytes of the file and of what follows.
fn digest(file: &mut File, bytes: u64, after: &[u8], each: &mut dyn FnMut(u64)) -> io::Result<String> {
    let (mut context, mut buffer, mut done) = (Context::new(&SHA256), vec![0; BUFFER_BYTES], 0);
    file.seek(SeekFrom::Start(0))?;
    while done < bytes {
        let wanted = usize::try_from(bytes - done).unwrap_or(BUFFER_BYTES).min(BUFFER_BYTES);
        let read = match file.read(&mut buffer[..wanted]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        context.update(&buffer[..read]);
        done += read as u64;
        each(done);
    }
    context.update(after);
    Ok(Hex(context.finish().as_ref()).to_string())
}
