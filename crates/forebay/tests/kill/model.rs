//! A worker's model of its own names, and the effect of each change on it. No I/O.

use std::collections::BTreeMap;
use std::fmt;

use nfs4::NfsFh4;

/// A small generator of numbers that a seed decides (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, round: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round.wrapping_mul(0xd1b5_4a32_d192_ed03))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// Another one, for another thread.
    pub fn split(&mut self) -> Random {
        Random(self.next())
    }
}

/// The bytes of a file; told by length and a sum.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(pub Vec<u8>);

impl fmt::Debug for Content {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let sum = self.0.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()));
        write!(out, "{} bytes, of which the last {} are 0, {sum:08x}", self.0.len(), self.0.len() - end)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File(Content),
    Directory,
    Symlink(Vec<u8>),
}

/// A file of any kind; `None`: not known, or anything will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    pub id: Option<u64>,
    pub handle: Option<NfsFh4>,
    pub mode: Option<u32>,
    pub uid: u32,
    /// In seconds, where it was given and nothing has changed since.
    pub mtime: Option<i64>,
}

impl Node {
    fn new(kind: Kind, mode: Option<u32>) -> Node {
        Node { kind, id: None, handle: None, mode, uid: 0, mtime: None }
    }

    /// Whether what is there (`seen`, of which everything is known) may be this.
    fn agrees(&self, seen: &Node) -> bool {
        let is = |known: &Option<u64>, seen: &Option<u64>| known.is_none() || known == seen;
        self.kind == seen.kind
            && self.uid == seen.uid
            && is(&self.id, &seen.id)
            && (self.mode.is_none() || self.mode == seen.mode)
            && (self.mtime.is_none() || self.mtime == seen.mtime)
    }
}

/// Each is one request that changes something; paths begin with a shared directory's name.
#[derive(Clone, Debug)]
pub enum Change {
    Create {
        path: String,
        mode: u32,
    },
    MakeDirectory {
        path: String,
        mode: u32,
    },
    Symlink {
        path: String,
        target: String,
    },
    /// A stable write at the end.
    Append {
        path: String,
        bytes: Content,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    Attributes {
        path: String,
        mode: u32,
        uid: u32,
        mtime: i64,
    },
    Resize {
        path: String,
        size: usize,
    },
    /// By HTTP: a new file takes the name.
    Put {
        path: String,
        bytes: Content,
    },
}

type Key = u64;

/// Names by path, and the files behind them: several names may have one file.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    names: BTreeMap<String, Key>,
    nodes: BTreeMap<Key, Node>,
    next: Key,
}

impl Tree {
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.names.get(path).map(|key| &self.nodes[key])
    }

    pub fn paths(&self, wanted: impl Fn(&Kind) -> bool) -> Vec<String> {
        let is_wanted = |(path, key): (&String, &Key)| wanted(&self.nodes[key].kind).then(|| path.clone());
        self.names.iter().filter_map(is_wanted).collect()
    }

    pub fn is_empty_directory(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.names.keys().any(|name| name.starts_with(&below))
    }

    pub fn content(&self, path: &str) -> &[u8] {
        match self.node(path).map(|node| &node.kind) {
            Some(Kind::File(content)) => &content.0,
            other => panic!("{path} is {other:?}"),
        }
    }

    fn known(&mut self, path: &str) -> &mut Node {
        self.nodes.get_mut(&self.names[path]).unwrap()
    }

    fn add(&mut self, path: &str, node: Node) {
        self.next += 1;
        self.put_name(path, self.next);
        self.nodes.insert(self.next, node);
    }

    fn put_name(&mut self, path: &str, key: Key) {
        self.take_name(path);
        self.names.insert(path.to_owned(), key);
        self.touch_parent(path);
    }

    fn take_name(&mut self, path: &str) -> Option<Key> {
        let key = self.names.remove(path)?;
        self.touch_parent(path);
        if !self.names.values().any(|other| *other == key) {
            self.nodes.remove(&key);
        }
        Some(key)
    }

    fn touch_parent(&mut self, path: &str) {
        let parent = path.rsplit_once('/').expect("a path has a directory").0;
        if self.names.contains_key(parent) {
            self.known(parent).mtime = None;
        }
    }

    fn rename(&mut self, from: &str, to: &str) {
        let key = self.names[from];
        // Of two names of one file the old one stays (rename(2)).
        if self.names.get(to) == Some(&key) {
            return;
        }
        self.put_name(to, key);
        self.take_name(from);
        let below = format!("{from}/");
        let moved: Vec<String> = self.names.keys().filter(|name| name.starts_with(&below)).cloned().collect();
        for path in moved {
            let key = self.names.remove(&path).unwrap();
            self.names.insert(format!("{to}/{}", &path[below.len()..]), key);
        }
    }

    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Create { path, mode } => {
                self.add(path, Node::new(Kind::File(Content(Vec::new())), Some(*mode)))
            }
            Change::MakeDirectory { path, mode } => self.add(path, Node::new(Kind::Directory, Some(*mode))),
            Change::Symlink { path, target } => {
                self.add(path, Node::new(Kind::Symlink(target.clone().into_bytes()), None));
            }
            Change::Append { path, bytes } => self.write(path, |content| content.extend(&bytes.0)),
            Change::Resize { path, size } => self.write(path, |content| content.resize(*size, 0)),
            Change::Rename { from, to } => self.rename(from, to),
            Change::Link { from, to } => self.put_name(to, self.names[from]),
            Change::Remove { path } => drop(self.take_name(path)),
            Change::Attributes { path, mode, uid, mtime } => {
                let node = self.known(path);
                (node.mode, node.uid, node.mtime) = (Some(*mode), *uid, Some(*mtime));
            }
            Change::Put { path, bytes } => {
                // A file that is replaced hands its owner and mode on.
                let old = self.node(path).cloned();
                let (mode, uid) = old.map_or((None, 0), |old| (old.mode, old.uid));
                self.add(path, Node { uid, ..Node::new(Kind::File(bytes.clone()), mode) });
            }
        }
    }

    fn write(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        self.known(path).mtime = None;
        self.with_content(path, change);
    }

    fn with_content(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        match &mut self.known(path).kind {
            Kind::File(content) => change(&mut content.0),
            other => panic!("{path} is {other:?}"),
        }
    }

    /// Records the id and handle from the answer to a creation.
    pub fn learn(&mut self, path: &str, id: u64, handle: NfsFh4) {
        let node = self.known(path);
        (node.id, node.handle) = (Some(id), Some(handle));
    }

    /// Takes what is there for what it believes, or says where they differ.
    pub fn settle(&mut self, seen: &BTreeMap<String, Node>) -> Result<(), String> {
        if let Some(missing) = self.names.keys().find(|path| !seen.contains_key(*path)) {
            return Err(format!("{missing} is missing"));
        }
        for (path, there) in seen {
            let Some(believed) = self.node(path) else { return Err(format!("{path} is there: {there:?}")) };
            if !believed.agrees(there) {
                return Err(format!("{path} should be {believed:?}, is {there:?}"));
            }
            let known = self.known(path);
            // Also the first name of a new file with several, so that its others are compared with it.
            (known.id, known.handle, known.mode) = (there.id, there.handle.clone(), there.mode);
        }
        Ok(())
    }
}
