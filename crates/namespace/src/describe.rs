//! Descriptions of files for the pools, from which a lost namespace can be built anew.

use std::collections::HashMap;

use api::{Description, NamespaceError, ReplicaRef};
use types::{Device, Epoch, FileId, FileKind, Name, SymlinkTarget, Timestamp};

use crate::locality::decode_replica;
use crate::service::SqlNamespace;
use crate::session::{Fields, Purpose, Session};
use crate::store::StoreResult;

/// Walks over all files. Each page is of one state, and pages need not be of the same.
pub struct Describer {
    session: Box<dyn Session>,
}

/// Files by number behind `after`, up to `through`.
#[derive(Debug)]
pub struct DescribedPage {
    pub after: FileId,
    pub through: FileId,
    /// Files without a name are left out.
    pub files: Vec<Description>,
    /// The first that may get its name yet.
    pub first_unnamed: Option<FileId>,
    pub is_last: bool,
}

impl SqlNamespace {
    /// Blocks. Beside the readers, so that it takes no turn of theirs.
    pub fn describer(&self) -> Result<Describer, NamespaceError> {
        Ok(Describer { session: self.reads.session(Purpose::Look)? })
    }
}

impl Describer {
    /// Blocks.
    pub fn page(&mut self, after: FileId, limit: usize) -> Result<DescribedPage, NamespaceError> {
        let session = &mut *self.session;
        let page = session.begin().and_then(|()| page(session, after, limit));
        session.end();
        page.map_err(|error| (&error).into())
    }
}

/// Above it no number is given.
const LAST: FileId = FileId(i64::MAX.cast_unsigned());

fn page(session: &mut dyn Session, after: FileId, limit: usize) -> StoreResult<DescribedPage> {
    let start = after.0.cast_signed();
    let files = session.rows(
        &format!("SELECT id, extras FROM inodes WHERE id > {start} ORDER BY id LIMIT {limit}"),
        |row| (row.id(0), row.number(1) & 4 != 0),
    )?;
    let is_last = files.len() < limit;
    let end = files.last().map_or(after, |(file, _)| *file);
    let first_unnamed = files.iter().find(|(_, is_unnamed)| *is_unnamed).map(|(file, _)| *file);
    let range = |column: &str| format!("{column} > {start} AND {column} <= {}", end.0.cast_signed());

    let mut replicas: HashMap<FileId, Vec<ReplicaRef>> = HashMap::new();
    let sql = format!(
        "SELECT inode, pool, state, since FROM locations WHERE {} ORDER BY inode, pool",
        range("inode")
    );
    session.query(&sql, &[], &mut |row| {
        let replica = decode_replica(row.pool(1), row.number(2), row.number(3));
        replicas.entry(row.id(0)).or_default().push(replica);
    })?;

    let mut described: Vec<Description> = Vec::with_capacity(files.len());
    let sql = format!(
        "SELECT i.id, i.kind, i.mode, i.uid, i.gid, i.size, i.mtime_s, i.mtime_ns, i.change, i.epoch, i.major, \
         i.minor, s.target, d.parent, d.name FROM inodes i LEFT JOIN dentries d ON d.inode = i.id \
         LEFT JOIN symlinks s ON s.inode = i.id WHERE {} ORDER BY i.id, d.parent, d.name",
        range("i.id")
    );
    session.query(&sql, &[], &mut |row| {
        let name = Name::new(&row.bytes(14)).ok().map(|name| (row.id(13), name));
        match described.last_mut().filter(|last| last.file == row.id(0)) {
            Some(last) => last.names.extend(name),
            None => {
                let file = row.id(0);
                if (name.is_some() || file == FileId::ROOT)
                    && let Some(description) = describe(row, name)
                {
                    let replicas = replicas.remove(&file).unwrap_or_default();
                    described.push(Description { replicas, ..description });
                }
            }
        }
    })?;
    let through = if is_last { LAST } else { end };
    Ok(DescribedPage { after, through, files: described, first_unnamed, is_last })
}

/// `None`: of a kind that is not known.
fn describe(row: &dyn Fields, name: Option<(FileId, Name)>) -> Option<Description> {
    let narrow = |at: usize| row.number(at) as u32;
    let device = Device { major: narrow(10), minor: narrow(11) };
    let kind = match row.number(1) {
        0 => FileKind::Regular,
        1 => FileKind::Directory,
        2 => FileKind::Symlink,
        3 => FileKind::BlockDevice(device),
        4 => FileKind::CharacterDevice(device),
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        _ => return None,
    };
    Some(Description {
        file: row.id(0),
        kind,
        mode: narrow(2),
        uid: narrow(3),
        gid: narrow(4),
        size: row.number(5).cast_unsigned(),
        mtime: Timestamp::new(row.number(6), narrow(7)).unwrap_or(Timestamp::EPOCH),
        change: row.number(8).cast_unsigned(),
        epoch: Epoch(narrow(9)),
        names: name.into_iter().collect(),
        target: SymlinkTarget::new(&row.bytes(12)).ok(),
        replicas: Vec::new(),
    })
}
