//! Rows of a tree as the bulk writer takes them, names in the order of their table as far as that is cheap.

use api::{Account, Counted, ReplicaRef};
use types::{FileId, Name, SymlinkTarget};

use super::tree::{NamedFile, RowError, Rows};
use crate::bulk::{Bulk, BulkError};
use crate::inode::Inode;

/// Names that wait to be sorted, some 100 bytes each. A directory is listed in the order of its disk: sorted, a page of the
/// database is written once and full.
const NAMES_MAX: usize = 256 << 10;
/// More than the bulk writer keeps back: of the last ones it is not known yet whether the database takes them.
const HANDED_MAX: usize = 16 << 10;

/// Subdirectories, and of everything else the names.
const COUNT_DIRECTORIES: &str = "UPDATE inodes SET nlink = 2 + n.children \
    FROM (SELECT parent, count(*) AS children FROM inodes WHERE kind = 1 AND id != 1 GROUP BY parent) n \
    WHERE inodes.id = n.parent";
const COUNT_NAMES: &str = "UPDATE inodes SET nlink = n.names \
    FROM (SELECT inode, count(*) AS names FROM dentries GROUP BY inode HAVING count(*) > 1) n \
    WHERE inodes.id = n.inode AND inodes.kind != 1";

pub struct BulkRows {
    bulk: Bulk,
    names: Vec<NamedFile>,
    handed: Vec<NamedFile>,
}

impl BulkRows {
    pub fn new(bulk: Bulk) -> BulkRows {
        BulkRows { bulk, names: Vec::new(), handed: Vec::new() }
    }

    pub fn into_bulk(mut self) -> Result<Bulk, RowError> {
        self.write_names()?;
        Ok(self.bulk)
    }

    fn write_names(&mut self) -> Result<(), RowError> {
        self.names.sort_unstable();
        let twice =
            self.names.windows(2).find(|pair| pair[0].dir == pair[1].dir && pair[0].name == pair[1].name);
        if let Some([_, named]) = twice {
            return Err(RowError::Twice { dir: named.dir, name: named.name.clone() });
        }
        let handed = (self.names.iter())
            .try_for_each(|NamedFile { dir, name, cookie, file }| self.bulk.name(*dir, name, *cookie, *file));
        handed.map_err(|error| self.explain(error))?;
        let tail = self.names.len().saturating_sub(HANDED_MAX);
        self.handed = self.names.split_off(tail);
        self.names.clear();
        Ok(())
    }

    /// Which of the names was there before, if that is why they were not taken.
    fn explain(&mut self, error: BulkError) -> RowError {
        for NamedFile { dir, name, file, .. } in self.handed.iter().chain(&self.names) {
            // A database that does not answer any more has said why already.
            let Ok(found) = self.bulk.child(*dir, name) else { break };
            if found.is_some_and(|found| found != *file) {
                return RowError::Twice { dir: *dir, name: name.clone() };
            }
        }
        error.into()
    }
}

impl Rows for BulkRows {
    fn inode(&mut self, inode: &Inode) -> Result<(), RowError> {
        Ok(self.bulk.inode(inode)?)
    }

    fn name(&mut self, name: &NamedFile) -> Result<(), RowError> {
        self.names.push(name.clone());
        if self.names.len() < NAMES_MAX { Ok(()) } else { self.write_names() }
    }

    fn target(&mut self, file: FileId, target: &SymlinkTarget) -> Result<(), RowError> {
        Ok(self.bulk.target(file, target)?)
    }

    fn location(&mut self, file: FileId, replica: &ReplicaRef) -> Result<(), RowError> {
        Ok(self.bulk.location(file, replica)?)
    }

    fn settle(&mut self) -> Result<(), RowError> {
        self.write_names()?;
        self.bulk.execute("").map_err(|error| self.explain(error))
    }

    fn child(&mut self, dir: FileId, name: &Name) -> Result<Option<FileId>, RowError> {
        Ok(self.bulk.child(dir, name)?)
    }

    fn count_links(&mut self, has_several: bool) -> Result<(), RowError> {
        self.settle()?;
        self.bulk.execute(COUNT_DIRECTORIES)?;
        if has_several {
            self.bulk.execute(COUNT_NAMES)?;
        }
        Ok(())
    }

    fn usage(&mut self, usage: &[(Account, Counted)]) -> Result<(), RowError> {
        Ok(usage.iter().try_for_each(|(account, counted)| self.bulk.usage(account, counted))?)
    }
}
