//! The reference model: plain, slow and obvious. Times are whole seconds; files are numbered in order of creation.

#[path = "places.rs"]
mod places;

pub use places::DataPlace;
#[path = "uploads.rs"]
mod uploads;
#[path = "xattrs.rs"]
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};

use api::{CreateKind, CreateMode, CreateSpec, SetAttributes, SetTime};
use bytes::Bytes;
use types::{Checksum, Identity, PoolId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NotFound,
    Stale,
    Exists,
    Moved,
    NotDirectory,
    IsDirectory,
    NotRegular,
    NotEmpty,
    AccessDenied,
    NotPermitted,
    NotSymlink,
    Cycle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seen {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub size: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub is_directory: bool,
}

#[derive(Clone)]
struct Node {
    seen: Seen,
    is_regular: bool,
    is_unnamed: bool,
    properties: BTreeMap<String, Bytes>,
    checksums: Vec<Checksum>,
    /// In the order in which they were made.
    xattrs: Vec<(String, u8)>,
    verifier: Option<[u8; 8]>,
    children: BTreeMap<String, usize>,
    locations: BTreeSet<PoolId>,
    epoch: u64,
    target: Option<Vec<u8>>,
}

pub struct Model {
    /// `None`: gone for good.
    nodes: Vec<Option<Node>>,
    pub now: i64,
}

const READ: u32 = 4;
const WRITE: u32 = 2;
const SEARCH: u32 = 1;

type Answer<T> = Result<T, Refusal>;

fn may(who: &Identity, seen: &Seen, wanted: u32) -> bool {
    if who.uid == 0 {
        return wanted & SEARCH == 0 || seen.is_directory || seen.mode & 0o111 != 0;
    }
    let in_group = who.gid == seen.gid || who.groups.contains(&seen.gid);
    let shift = match (who.uid == seen.uid, in_group) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    seen.mode >> shift & wanted == wanted
}

fn drop_privileges(mode: u32) -> u32 {
    let mode = mode & !0o4000;
    if mode & 0o10 == 0 { mode } else { mode & !0o2000 }
}

impl Model {
    pub fn new(now: i64) -> Model {
        let mut model = Model { nodes: Vec::new(), now };
        let root = model.node(0o755, &Identity::root(), true);
        model.nodes.push(Some(root));
        model
    }

    /// Those that exist, the root first.
    pub fn directories(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|number| self.nodes[*number].as_ref().is_some_and(|node| node.seen.is_directory))
            .collect()
    }

    pub fn attributes(&self, number: usize) -> Answer<Seen> {
        self.read(number).map(|node| node.seen)
    }

    pub fn lookup(&self, who: &Identity, dir: usize, name: &str) -> Answer<Seen> {
        self.search(who, dir)?;
        self.child(dir, name).ok_or(Refusal::NotFound).and_then(|number| self.attributes(number))
    }

    pub fn create(&mut self, who: &Identity, dir: usize, name: &str, spec: &CreateSpec) -> Answer<Seen> {
        self.search(who, dir)?;
        if let Some(number) = self.child(dir, name) {
            let existing = self.read(number)?;
            let fits = match (&spec.kind, spec.mode) {
                (CreateKind::Regular, CreateMode::Unchecked) => true,
                (CreateKind::Regular, CreateMode::Exclusive { verifier }) => {
                    existing.verifier == Some(verifier)
                }
                _ => false,
            };
            return if fits { Ok(existing.seen) } else { Err(Refusal::Exists) };
        }
        let parent = self.read(dir)?.seen;
        self.need(who, &parent, WRITE | SEARCH)?;
        let is_directory = spec.kind == CreateKind::Directory;
        let mut node = self.node(spec.permissions, who, is_directory);
        node.is_regular = spec.kind == CreateKind::Regular;
        if is_directory {
            node.seen.mode &= 0o1777;
        }
        inherit(&mut node.seen, &parent, who);
        if let CreateKind::Symlink(target) = &spec.kind {
            node.seen.mode = 0o777;
            node.seen.size = target.as_bytes().len() as u64;
            node.target = Some(target.as_bytes().to_vec());
        }
        if let (CreateMode::Exclusive { verifier }, true) = (spec.mode, node.is_regular) {
            node.verifier = Some(verifier);
        }
        let seen = node.seen;
        self.nodes.push(Some(node));
        let number = self.nodes.len() - 1;
        let now = self.now;
        let parent = self.write(dir);
        parent.children.insert(name.to_owned(), number);
        parent.seen.nlink += u32::from(is_directory);
        entries_changed(parent, now);
        Ok(seen)
    }

    /// `is_expected`: the name stands for the file that the caller expects.
    pub fn unlink(&mut self, who: &Identity, dir: usize, name: &str, is_expected: bool) -> Answer<Seen> {
        self.search(who, dir)?;
        let number = self.child(dir, name).ok_or(Refusal::NotFound)?;
        if !is_expected {
            return Err(Refusal::Moved);
        }
        self.may_take(who, dir, number)?;
        if !self.read(number)?.children.is_empty() {
            return Err(Refusal::NotEmpty);
        }
        Ok(self.take(dir, name))
    }

    pub fn link(&mut self, who: &Identity, file: usize, dir: usize, name: &str) -> Answer<Seen> {
        let linked = self.read(file)?.seen;
        self.search(who, dir)?;
        if self.child(dir, name).is_some() {
            return Err(Refusal::Exists);
        }
        self.need(who, &self.read(dir)?.seen, WRITE | SEARCH)?;
        if linked.is_directory {
            return Err(Refusal::NotPermitted);
        }
        if linked.nlink == 0 {
            return Err(Refusal::NotFound);
        }
        let now = self.now;
        let node = self.write(file);
        node.seen.nlink += 1;
        node.seen.ctime = now;
        let seen = node.seen;
        let parent = self.write(dir);
        parent.children.insert(name.to_owned(), file);
        entries_changed(parent, now);
        Ok(seen)
    }

    pub fn rename(
        &mut self,
        who: &Identity,
        from: (usize, &str),
        to: (usize, &str),
        are_expected: bool,
        allowed_by_any: Option<bool>,
    ) -> Answer<Seen> {
        self.search(who, from.0)?;
        self.search(who, to.0)?;
        let moved = self.child(from.0, from.1).ok_or(Refusal::NotFound)?;
        let replaced = self.child(to.0, to.1);
        if !are_expected {
            return Err(Refusal::Moved);
        }
        let is_any = allowed_by_any.ok_or(Refusal::Exists)?;
        if from.0 != to.0 {
            if self.is_below(to.0, moved) {
                return Err(Refusal::Cycle);
            }
            if replaced.is_some_and(|replaced| self.is_below(from.0, replaced)) {
                return Err(Refusal::NotEmpty);
            }
        }
        if replaced == Some(moved) {
            if is_any || from == to {
                return self.attributes(moved);
            }
            self.may_take(who, from.0, moved)?;
            self.may_take(who, to.0, moved)?;
            self.take(from.0, from.1);
            return self.attributes(moved);
        }
        self.may_take(who, from.0, moved)?;
        let moved_node = self.read(moved)?.clone();
        match replaced {
            None => self.need(who, &self.read(to.0)?.seen, WRITE | SEARCH)?,
            Some(replaced) => {
                self.may_take(who, to.0, replaced)?;
                match (moved_node.seen.is_directory, self.read(replaced)?.seen.is_directory) {
                    (true, false) => return Err(Refusal::NotDirectory),
                    (false, true) => return Err(Refusal::IsDirectory),
                    _ => {}
                }
            }
        }
        if moved_node.seen.is_directory && from.0 != to.0 {
            self.need(who, &moved_node.seen, WRITE)?;
        }
        if let Some(replaced) = replaced {
            if !self.read(replaced)?.children.is_empty() {
                return Err(Refusal::NotEmpty);
            }
            self.take(to.0, to.1);
        }
        let now = self.now;
        let links = u32::from(moved_node.seen.is_directory);
        let source = self.write(from.0);
        source.children.remove(from.1);
        source.seen.nlink -= links;
        entries_changed(source, now);
        let target = self.write(to.0);
        target.children.insert(to.1.to_owned(), moved);
        target.seen.nlink += links;
        entries_changed(target, now);
        self.write(moved).seen.ctime = now;
        self.attributes(moved)
    }

    pub fn set(&mut self, who: &Identity, file: usize, set: &SetAttributes) -> Answer<Seen> {
        let node = self.read(file)?;
        let old = node.seen;
        let owns = who.uid == 0 || who.uid == old.uid;
        let belongs = |gid: u32| who.gid == gid || who.groups.contains(&gid);
        if set.size.is_some() {
            if !node.is_regular {
                return Err(if old.is_directory { Refusal::IsDirectory } else { Refusal::NotRegular });
            }
            if !set.size_is_authorized {
                self.need(who, &old, WRITE)?;
            }
        }
        if who.uid != 0 {
            let bad_uid = set.uid.is_some_and(|uid| !owns || uid != old.uid);
            let bad_gid = set.gid.is_some_and(|gid| !owns || !(gid == old.gid || belongs(gid)));
            if bad_uid || bad_gid {
                return Err(Refusal::NotPermitted);
            }
        }
        let given = [set.atime, set.mtime].iter().any(|time| matches!(time, Some(SetTime::To(_))));
        if !owns && (set.mode.is_some() || given) {
            return Err(Refusal::NotPermitted);
        }
        if !owns && [set.atime, set.mtime].contains(&Some(SetTime::Now)) {
            self.need(who, &old, WRITE)?;
        }
        let anything = set.mode.is_some()
            || set.uid.is_some()
            || set.gid.is_some()
            || set.size.is_some()
            || set.atime.is_some()
            || set.mtime.is_some();
        if !anything {
            return Ok(old);
        }
        let mut new = old;
        new.uid = set.uid.unwrap_or(old.uid);
        new.gid = set.gid.unwrap_or(old.gid);
        let in_group = who.uid == 0 || belongs(new.gid);
        if let Some(mode) = set.mode {
            new.mode = if in_group { mode } else { mode & !0o2000 };
        }
        if (set.uid.is_some() || set.gid.is_some()) && !old.is_directory {
            new.mode = drop_privileges(new.mode);
            if !in_group {
                new.mode &= !0o2000;
            }
        }
        if let Some(size) = set.size {
            new.size = size;
            new.mtime = self.now;
            if who.uid != 0 && set.mode.is_none() && !set.keeps_set_id {
                new.mode = drop_privileges(new.mode);
            }
        }
        let now = self.now;
        let moment = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::To(time) => time.seconds,
        };
        new.atime = set.atime.map_or(new.atime, moment);
        new.mtime = set.mtime.map_or(new.mtime, moment);
        new.ctime = now;
        let node = self.write(file);
        node.seen = new;
        if set.size.is_some() {
            node.checksums.clear();
        }
        Ok(new)
    }

    pub fn record_write(&mut self, file: usize, size: u64) -> Answer<Seen> {
        let node = self.read(file)?;
        if !node.is_regular {
            return Err(if node.seen.is_directory { Refusal::IsDirectory } else { Refusal::NotRegular });
        }
        let now = self.now;
        let node = self.write(file);
        node.checksums.clear();
        let seen = &mut node.seen;
        seen.size = seen.size.max(size);
        seen.mtime = now;
        seen.ctime = now;
        seen.mode = drop_privileges(seen.mode);
        Ok(*seen)
    }

    pub fn forget(&mut self, file: usize) {
        if self.nodes[file].as_ref().is_some_and(|node| node.seen.nlink == 0) {
            self.nodes[file] = None;
        }
    }

    pub fn list(&self, who: &Identity, dir: usize) -> Answer<Vec<(String, Seen)>> {
        let node = self.read(dir)?;
        self.need(who, &node.seen, READ)?;
        node.children.iter().map(|(name, number)| Ok((name.clone(), self.attributes(*number)?))).collect()
    }

    fn node(&self, mode: u32, who: &Identity, is_directory: bool) -> Node {
        let seen = Seen {
            mode,
            uid: who.uid,
            gid: who.gid,
            nlink: if is_directory { 2 } else { 1 },
            size: 0,
            atime: self.now,
            mtime: self.now,
            ctime: self.now,
            is_directory,
        };
        Node {
            seen,
            is_regular: false,
            is_unnamed: false,
            properties: BTreeMap::new(),
            checksums: Vec::new(),
            xattrs: Vec::new(),
            verifier: None,
            children: BTreeMap::new(),
            locations: BTreeSet::new(),
            epoch: 0,
            target: None,
        }
    }

    fn read(&self, number: usize) -> Answer<&Node> {
        self.nodes[number].as_ref().ok_or(Refusal::Stale)
    }

    fn write(&mut self, number: usize) -> &mut Node {
        self.nodes[number].as_mut().unwrap()
    }

    pub fn child(&self, dir: usize, name: &str) -> Option<usize> {
        self.nodes[dir].as_ref().and_then(|node| node.children.get(name).copied())
    }

    fn need(&self, who: &Identity, seen: &Seen, wanted: u32) -> Answer<()> {
        if may(who, seen, wanted) { Ok(()) } else { Err(Refusal::AccessDenied) }
    }

    fn search(&self, who: &Identity, dir: usize) -> Answer<()> {
        let seen = self.attributes(dir)?;
        if !seen.is_directory {
            return Err(Refusal::NotDirectory);
        }
        self.need(who, &seen, SEARCH)
    }

    fn may_take(&self, who: &Identity, dir: usize, entry: usize) -> Answer<()> {
        let (dir, entry) = (self.attributes(dir)?, self.attributes(entry)?);
        self.need(who, &dir, WRITE | SEARCH)?;
        let is_sticky = dir.mode & 0o1000 != 0;
        if is_sticky && who.uid != 0 && who.uid != dir.uid && who.uid != entry.uid {
            return Err(Refusal::NotPermitted);
        }
        Ok(())
    }

    /// Removes a name; what it was, afterwards.
    fn take(&mut self, dir: usize, name: &str) -> Seen {
        let now = self.now;
        let parent = self.write(dir);
        let number = parent.children.remove(name).unwrap();
        entries_changed(parent, now);
        let node = self.write(number);
        node.seen.ctime = now;
        let is_directory = node.seen.is_directory;
        node.seen.nlink = if is_directory { 0 } else { node.seen.nlink - 1 };
        let seen = node.seen;
        if seen.nlink == 0 && !node.is_regular {
            self.nodes[number] = None;
        }
        if is_directory {
            self.write(dir).seen.nlink -= 1;
        }
        seen
    }

    /// Whether `dir` is `ancestor` or lies below it.
    fn is_below(&self, dir: usize, ancestor: usize) -> bool {
        dir == ancestor
            || self.nodes[ancestor]
                .as_ref()
                .is_some_and(|node| node.children.values().any(|child| self.is_below(dir, *child)))
    }
}

fn inherit(seen: &mut Seen, parent: &Seen, who: &Identity) {
    if parent.mode & 0o2000 == 0 {
        return;
    }
    seen.gid = parent.gid;
    let member = who.uid == 0 || who.gid == parent.gid || who.groups.contains(&parent.gid);
    if seen.is_directory {
        seen.mode |= 0o2000;
    } else if !member && seen.mode & 0o10 != 0 {
        seen.mode &= !0o2000;
    }
}

fn entries_changed(dir: &mut Node, now: i64) {
    dir.seen.mtime = dir.seen.mtime.max(now);
    dir.seen.ctime = dir.seen.ctime.max(now);
}
