//! From entries in any order to rows: ids, directories without an entry, link counts, sums.
//!
//! In memory are the directories (some 250 bytes each and their names) and the files of several names; all else is given
//! away at once. A directory that was made for an entry below it waits for its own entry, or for the end; then links
//! are counted. The database finds names that are there twice.

use std::collections::{BTreeMap, HashMap};

use api::{Account, Counted, ReplicaRef, Scope};
use thiserror::Error;
use types::{FileId, FileKind, Name, PoolId, SymlinkTarget, Timestamp};

use super::entry::{Entry, Facts, SameFile, What, shown};
use crate::bulk::BulkError;
use crate::ids::FIRST;
use crate::inode::{Inode, Instance, LINKS_MAX, new_inode};
use crate::locality::Placement;
use crate::reads::DEPTH_MAX;
use crate::store::{NumberEnds, Totals};

/// Where rows go.
pub trait Rows {
    fn inode(&mut self, inode: &Inode) -> Result<(), RowError>;
    fn name(&mut self, name: &NamedFile) -> Result<(), RowError>;
    fn target(&mut self, file: FileId, target: &SymlinkTarget) -> Result<(), RowError>;
    fn location(&mut self, file: FileId, replica: &ReplicaRef) -> Result<(), RowError>;
    /// Everything that was named is there. Few names come afterwards.
    fn settle(&mut self) -> Result<(), RowError>;
    /// Of what was settled.
    fn child(&mut self, dir: FileId, name: &Name) -> Result<Option<FileId>, RowError>;
    /// Link counts as the names say, of all directories, and of the rest where some have several names.
    fn count_links(&mut self, has_several: bool) -> Result<(), RowError>;
    fn usage(&mut self, usage: &[(Account, Counted)]) -> Result<(), RowError>;
}

/// A row of `dentries`; they are in order as the table's are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedFile {
    pub dir: FileId,
    pub name: Name,
    pub cookie: u64,
    pub file: FileId,
}

#[derive(Debug, Error)]
pub enum RowError {
    /// The directory has the name already.
    #[error("a name is there twice: {}", shown(name.as_bytes()))]
    Twice { dir: FileId, name: Name },
    #[error(transparent)]
    Bulk(#[from] BulkError),
}

#[derive(Debug, Error)]
pub enum TreeError {
    /// An entry cannot be taken in: which, and why.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Bulk(#[from] BulkError),
}

/// Where the data of a regular file are, and the id that it has there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    pub file: FileId,
    pub pool: Option<PoolId>,
}

/// Asked for each regular file once, with the id that it would get. An error ends everything.
pub type Placer<'a> = &'a mut dyn FnMut(FileId) -> Result<Placed, String>;

/// Counts of imported entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Made {
    pub directories: u64,
    /// Everything else, once each.
    pub files: u64,
    pub names: u64,
    pub bytes: u64,
    /// Directories that lie above entries and were no entries themselves.
    pub untold: u64,
}

pub struct Tree<R> {
    pub rows: R,
    now: Timestamp,
    ends: NumberEnds,
    /// By the number that stands for it here; the root first, and each behind the one it lies in.
    directories: Vec<Directory>,
    by_name: HashMap<(u32, Name), u32>,
    /// Of the entry before: entries of one directory mostly come together.
    last: (Vec<u8>, u32),
    several: HashMap<SameFile, Several>,
    /// Names of files that may come later.
    links: Vec<Link>,
    owners: BTreeMap<Account, Counted>,
    /// The directory that the paths of entries start from.
    top: u32,
    made: Made,
}

struct Directory {
    id: FileId,
    parent: u32,
    /// Names on its path.
    depth: u32,
    subdirectories: u32,
    is_told: bool,
    below: Counted,
}

struct Several {
    file: FileId,
    names: u32,
}

struct Link {
    dir: u32,
    name: Name,
    target: Vec<u8>,
}

const ROOT: u32 = 0;

impl<R: Rows> Tree<R> {
    /// Into a namespace without any row, below `under`. Files get ids from `first_file` on.
    pub fn new(rows: R, now: Timestamp, under: &[u8], first_file: u64) -> Result<Tree<R>, TreeError> {
        let mut tree = Tree {
            rows,
            now,
            ends: NumberEnds { files: first_file.max(FIRST), cookies: FIRST },
            directories: Vec::new(),
            by_name: HashMap::new(),
            last: (Vec::new(), ROOT),
            several: HashMap::new(),
            links: Vec::new(),
            owners: BTreeMap::new(),
            top: ROOT,
            made: Made::default(),
        };
        tree.directories.push(Directory::new(FileId::ROOT, ROOT, 0));
        tree.made.directories = 1;
        tree.top = tree.directory(under)?;
        tree.last = (Vec::new(), tree.top);
        Ok(tree)
    }

    pub fn made(&self) -> Made {
        self.made
    }

    pub fn add(&mut self, entry: &Entry, place: Placer<'_>) -> Result<(), TreeError> {
        let Some((above, name)) = split(&entry.path)? else {
            return self.declare_top(entry);
        };
        let dir = self.directory_of(above)?;
        self.require_shallow(dir, &entry.path)?;
        match &entry.what {
            What::Directory => self.declare(dir, &name, entry),
            What::LinkTo(target) => {
                self.links.push(Link { dir, name, target: target.clone() });
                Ok(())
            }
            _ => self.add_file(dir, &name, entry, place),
        }
    }

    fn declare_top(&mut self, entry: &Entry) -> Result<(), TreeError> {
        if entry.what != What::Directory {
            return Err(TreeError::Refused("the top of the tree is no directory".to_owned()));
        }
        self.tell(self.top, entry)
    }

    fn declare(&mut self, parent: u32, name: &Name, entry: &Entry) -> Result<(), TreeError> {
        match self.by_name.get(&(parent, name.clone())) {
            Some(known) => self.tell(*known, entry),
            None => self.add_directory(parent, name, Some(entry.facts)).map(drop),
        }
    }

    /// Gives a directory that was made for an entry below it the facts of its own entry.
    fn tell(&mut self, dir: u32, entry: &Entry) -> Result<(), TreeError> {
        if self.directories[dir as usize].is_told {
            return Err(refuse(&entry.path, "is there twice"));
        }
        self.write_directory(dir, &entry.facts)
    }

    fn write_directory(&mut self, dir: u32, facts: &Facts) -> Result<(), TreeError> {
        let Directory { id, parent, .. } = self.directories[dir as usize];
        self.directories[dir as usize].is_told = true;
        let mut inode = self.blank(id, FileKind::Directory, facts);
        if id != FileId::ROOT {
            inode.parent = self.directories[parent as usize].id;
        }
        self.count_owners(&inode, &Counted { directories: 1, ..Counted::default() });
        self.rows.inode(&inode).map_err(|error| self.explain(error))
    }

    /// Finds or makes it, and all above it.
    fn directory_of(&mut self, path: &[u8]) -> Result<u32, TreeError> {
        if self.last.0 != path {
            self.last = (path.to_vec(), self.directory(path)?);
        }
        Ok(self.last.1)
    }

    fn directory(&mut self, path: &[u8]) -> Result<u32, TreeError> {
        let mut at = self.top;
        for part in parts(path) {
            let name = legal(part, path)?;
            at = match self.by_name.get(&(at, name.clone())) {
                Some(known) => *known,
                None => {
                    self.require_shallow(at, path)?;
                    self.add_directory(at, &name, None)?
                }
            };
        }
        Ok(at)
    }

    /// A deeper entry would have no path, and no tree would count it.
    fn require_shallow(&self, dir: u32, path: &[u8]) -> Result<(), TreeError> {
        if self.directories[dir as usize].depth as usize >= DEPTH_MAX {
            // Its beginning is enough to find it.
            let beginning = &path[..path.len().min(100)];
            return Err(refuse(beginning, &format!("begins a path of more than {DEPTH_MAX} names")));
        }
        Ok(())
    }

    fn add_directory(&mut self, parent: u32, name: &Name, facts: Option<Facts>) -> Result<u32, TreeError> {
        let number = u32::try_from(self.directories.len()).map_err(|_| {
            TreeError::Refused("there are more directories than can be taken in at once".to_owned())
        })?;
        let above = &mut self.directories[parent as usize];
        above.subdirectories += 1;
        above.below.directories += 1;
        let (dir, depth, count) = (above.id, above.depth, above.subdirectories);
        if count > LINKS_MAX - 2 {
            let limit = LINKS_MAX - 2;
            return Err(self.refuse_name(
                parent,
                name,
                &format!("would be more than {limit} directories in one"),
            ));
        }
        let id = self.new_id();
        self.directories.push(Directory::new(id, parent, depth + 1));
        self.by_name.insert((parent, name.clone()), number);
        self.made.directories += 1;
        if let Some(facts) = facts {
            self.write_directory(number, &facts)?;
        }
        self.add_name(dir, name, id)?;
        Ok(number)
    }

    fn add_file(&mut self, dir: u32, name: &Name, entry: &Entry, place: Placer<'_>) -> Result<(), TreeError> {
        let dir_id = self.directories[dir as usize].id;
        if let Some(known) = entry.same.and_then(|same| self.several.get_mut(&same)) {
            known.names += 1;
            if known.names > LINKS_MAX {
                return Err(refuse(&entry.path, &format!("would be a file of more than {LINKS_MAX} names")));
            }
            let file = known.file;
            return self.add_name(dir_id, name, file);
        }
        let mut placed = Placed { file: self.new_id(), pool: None };
        if matches!(entry.what, What::Regular { .. }) {
            placed = place(placed.file).map_err(|reason| refuse(&entry.path, &reason))?;
        }
        let mut inode = self.file_inode(placed.file, dir_id, entry)?;
        inode.judge_placement();
        if placed.pool.is_some() {
            inode.extras.placement = Placement::Replicas;
        }
        self.write_file(&inode, entry, placed.pool).map_err(|error| self.explain(error))?;
        self.add_name(dir_id, name, placed.file)?;
        if let Some(same) = entry.same {
            self.several.insert(same, Several { file: placed.file, names: 1 });
        }
        let bytes = if inode.attributes.kind.is_regular() { inode.attributes.size } else { 0 };
        let counted = Counted { files: 1, directories: 0, bytes: bytes.cast_signed() };
        self.directories[dir as usize].below.add(&counted);
        self.count_owners(&inode, &counted);
        self.made.files += 1;
        self.made.bytes = self.made.bytes.wrapping_add(bytes);
        Ok(())
    }

    fn write_file(&mut self, inode: &Inode, entry: &Entry, pool: Option<PoolId>) -> Result<(), RowError> {
        self.rows.inode(inode)?;
        if let What::Symlink(target) = &entry.what {
            self.rows.target(inode.id(), target)?;
        }
        match pool {
            Some(pool) => self.rows.location(inode.id(), &ReplicaRef::good(pool, self.now)),
            None => Ok(()),
        }
    }

    fn add_name(&mut self, dir: FileId, name: &Name, file: FileId) -> Result<(), TreeError> {
        let cookie = self.ends.cookies;
        self.ends.cookies += 1;
        self.made.names += 1;
        let added = self.rows.name(&NamedFile { dir, name: name.clone(), cookie, file });
        added.map_err(|error| self.explain(error))
    }

    fn new_id(&mut self) -> FileId {
        let id = FileId(self.ends.files);
        self.ends.files += 1;
        id
    }

    fn file_inode(&self, file: FileId, dir: FileId, entry: &Entry) -> Result<Inode, TreeError> {
        let (kind, size, space_used) = match &entry.what {
            What::Regular { size, space_used } => (FileKind::Regular, *size, *space_used),
            What::Symlink(target) => (FileKind::Symlink, target.as_bytes().len() as u64, 0),
            What::Special(kind) => (*kind, 0, 0),
            What::Directory | What::LinkTo(_) => return Err(refuse(&entry.path, "is no file of its own")),
        };
        // As POSIX bounds what offsets can say.
        if i64::try_from(size).is_err() {
            return Err(refuse(&entry.path, &format!("cannot have {size} bytes")));
        }
        let mut inode = self.blank(file, kind, &entry.facts);
        inode.parent = dir;
        (inode.attributes.size, inode.attributes.space_used) = (size, space_used);
        if kind == FileKind::Symlink {
            inode.attributes.mode = 0o777;
        }
        Ok(inode)
    }

    fn blank(&self, file: FileId, kind: FileKind, facts: &Facts) -> Inode {
        // As the bulk writer asks for.
        let mut inode = new_inode(file, kind, self.now, Instance { start: 1 });
        let attributes = &mut inode.attributes;
        (attributes.mode, attributes.uid, attributes.gid) = (facts.mode & 0o7777, facts.uid, facts.gid);
        attributes.mtime = facts.mtime.unwrap_or(self.now);
        attributes.atime = facts.atime.unwrap_or(attributes.mtime);
        attributes.birth = facts.birth.unwrap_or(attributes.mtime);
        attributes.ctime = facts.ctime.unwrap_or(self.now);
        inode
    }

    fn count_owners(&mut self, inode: &Inode, counted: &Counted) {
        let (uid, gid) = (u64::from(inode.attributes.uid), u64::from(inode.attributes.gid));
        for (scope, id) in [(Scope::User, uid), (Scope::Group, gid)] {
            self.owners.entry(Account { scope, id }).or_default().add(counted);
        }
    }

    /// Writes all that depends on later entries: directories without an entry, links, link counts, sums.
    pub fn finish(mut self) -> Result<Finished<R>, TreeError> {
        let now = Some(self.now);
        let untold = Facts { mode: 0o755, uid: 0, gid: 0, mtime: now, atime: now, ctime: now, birth: now };
        for number in 0..self.directories.len() {
            if !self.directories[number].is_told {
                self.made.untold += 1;
                self.write_directory(number as u32, &untold)?;
            }
        }
        let has_several = !self.several.is_empty() || !self.links.is_empty();
        self.add_links()?;
        self.rows.count_links(has_several).map_err(|error| self.explain(error))?;
        self.sum_trees()?;
        let files = (self.made.files + self.made.directories).cast_signed();
        let totals = Totals { files, bytes: self.made.bytes.cast_signed() };
        Ok(Finished { rows: self.rows, ends: self.ends, totals, made: self.made })
    }

    /// Adds names whose entries give the path of the file that they lead to.
    fn add_links(&mut self) -> Result<(), TreeError> {
        let links = std::mem::take(&mut self.links);
        if links.is_empty() {
            return Ok(());
        }
        self.rows.settle().map_err(|error| self.explain(error))?;
        let mut known: HashMap<(u32, &Name), FileId> = HashMap::new();
        let mut more: HashMap<FileId, u32> = HashMap::new();
        for link in &links {
            let file = self.find(&link.target, &known)?.ok_or_else(|| {
                let reason = format!("is a further name of \"{}\", which is not there", shown(&link.target));
                self.refuse_name(link.dir, &link.name, &reason)
            })?;
            let count = more.entry(file).or_default();
            *count += 1;
            if *count >= LINKS_MAX {
                return Err(self.refuse_name(link.dir, &link.name, "would be a file of too many names"));
            }
            known.insert((link.dir, &link.name), file);
            let dir = self.directories[link.dir as usize].id;
            self.add_name(dir, &link.name, file)?;
        }
        Ok(())
    }

    /// `links`: names that were found before and are not settled.
    fn find(
        &mut self,
        path: &[u8],
        links: &HashMap<(u32, &Name), FileId>,
    ) -> Result<Option<FileId>, TreeError> {
        let Some((above, name)) = split(path)? else { return Ok(None) };
        let mut at = self.top;
        for part in parts(above) {
            match self.by_name.get(&(at, legal(part, path)?)) {
                Some(known) => at = *known,
                None => return Ok(None),
            }
        }
        if self.by_name.contains_key(&(at, name.clone())) {
            return Err(refuse(path, "is a directory and cannot have further names"));
        }
        if let Some(file) = links.get(&(at, &name)) {
            return Ok(Some(*file));
        }
        let dir = self.directories[at as usize].id;
        let found = self.rows.child(dir, &name);
        found.map_err(|error| self.explain(error))
    }

    fn sum_trees(&mut self) -> Result<(), TreeError> {
        let mut usage: Vec<_> = std::mem::take(&mut self.owners).into_iter().collect();
        for number in (0..self.directories.len()).rev() {
            let Directory { id, parent, below, .. } = self.directories[number];
            if number != ROOT as usize {
                self.directories[parent as usize].below.add(&below);
            }
            if !below.is_nothing() {
                usage.push((Account { scope: Scope::Tree, id: id.0 }, below));
            }
        }
        usage.sort_unstable_by_key(|(account, _)| *account);
        self.rows.usage(&usage).map_err(|error| self.explain(error))
    }

    fn explain(&self, error: RowError) -> TreeError {
        match error {
            RowError::Bulk(error) => TreeError::Bulk(error),
            RowError::Twice { dir, name } => {
                let known = self.directories.iter().position(|known| known.id == dir).unwrap_or_default();
                let reason = "is there twice, or a directory and not one";
                self.refuse_name(known as u32, &name, reason)
            }
        }
    }

    /// The way up is looked for, since it is for a person and once.
    fn refuse_name(&self, dir: u32, name: &Name, reason: &str) -> TreeError {
        let mut path = name.as_bytes().to_vec();
        let mut at = dir;
        while at != ROOT {
            let Some(((above, part), _)) = self.by_name.iter().find(|(_, number)| **number == at) else {
                break;
            };
            path = [part.as_bytes(), &path].join(&b'/');
            at = *above;
        }
        refuse(&path, reason)
    }
}

/// All rows are given.
pub struct Finished<R> {
    pub rows: R,
    pub ends: NumberEnds,
    pub totals: Totals,
    pub made: Made,
}

impl Directory {
    fn new(id: FileId, parent: u32, depth: u32) -> Directory {
        Directory { id, parent, depth, subdirectories: 0, is_told: false, below: Counted::default() }
    }
}

fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."))
}

/// The path above the last name, and the name; `None`: the top.
fn split(path: &[u8]) -> Result<Option<(&[u8], Name)>, TreeError> {
    let mut end = path.len();
    loop {
        let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        match &path[start..end] {
            b"" | b"." if start == 0 => return Ok(None),
            b"" | b"." => end = start - 1,
            part => return Ok(Some((&path[..start], legal(part, path)?))),
        }
    }
}

fn legal(part: &[u8], path: &[u8]) -> Result<Name, TreeError> {
    Name::new(part).map_err(|error| refuse(path, &format!("cannot be taken in: {error}")))
}

fn refuse(path: &[u8], reason: &str) -> TreeError {
    TreeError::Refused(format!("\"{}\" {reason}", shown(path)))
}

#[cfg(test)]
mod tests;
