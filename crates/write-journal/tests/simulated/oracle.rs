//! The states that each file may have after a crash, from the changes that were made and those that were answered as
//! stable.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub const SIZE_MAX: usize = 2048;

#[derive(Default)]
pub struct Oracle {
    files: BTreeMap<u64, FileHistory>,
}

#[derive(Default)]
struct FileHistory {
    changes: Vec<(FileChange, bool)>,
    fence_stable: u64,
    fence_most: u64,
}

#[derive(Clone)]
pub enum FileChange {
    /// Found after a crash.
    Found(Option<Vec<u8>>),
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    Truncate(usize),
    Remove,
}

impl fmt::Debug for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileChange::Found(content) => write!(f, "found {:?}", content.as_ref().map(Vec::len)),
            FileChange::Write { offset, bytes } => {
                write!(f, "write {:?} to {offset}..{}", bytes.first(), offset + bytes.len())
            }
            FileChange::Truncate(size) => write!(f, "truncate to {size}"),
            FileChange::Remove => write!(f, "remove"),
        }
    }
}

/// A bit for each value.
#[derive(Clone, Copy, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

/// The states that a history leaves possible.
struct Possible {
    bytes: Vec<ByteSet>,
    sizes: BTreeSet<usize>,
    may_exist: bool,
    may_be_absent: bool,
}

impl Possible {
    fn nothing() -> Possible {
        Possible {
            bytes: vec![ByteSet([1, 0, 0, 0]); SIZE_MAX],
            sizes: BTreeSet::from([0]),
            may_exist: false,
            may_be_absent: true,
        }
    }

    fn put(&mut self, at: usize, value: u8, is_stable: bool) {
        if is_stable {
            self.bytes[at] = ByteSet::default();
        }
        self.bytes[at].insert(value);
    }

    fn apply(&mut self, change: &FileChange, is_stable: bool) {
        let exists = !matches!(change, FileChange::Remove | FileChange::Found(None));
        self.may_exist = exists || (self.may_exist && !is_stable);
        self.may_be_absent = !exists || (self.may_be_absent && !is_stable);
        let sizes: BTreeSet<usize> = match change {
            FileChange::Found(None) | FileChange::Remove => return,
            FileChange::Found(Some(content)) => {
                for at in 0..SIZE_MAX {
                    self.put(at, content.get(at).copied().unwrap_or(0), true);
                }
                BTreeSet::from([content.len()])
            }
            FileChange::Write { offset, bytes } => {
                for (index, byte) in bytes.iter().enumerate() {
                    self.put(offset + index, *byte, is_stable);
                }
                self.sizes.iter().map(|size| (*size).max(offset + bytes.len())).collect()
            }
            FileChange::Truncate(size) => {
                for at in *size..SIZE_MAX {
                    self.put(at, 0, is_stable);
                }
                BTreeSet::from([*size])
            }
        };
        if is_stable {
            self.sizes.clear();
        }
        self.sizes.extend(sizes);
    }
}

impl Oracle {
    /// The change is in the page cache. Its number is for `stable`.
    pub fn changed(&mut self, file: u64, change: FileChange) -> usize {
        let changes = &mut self.files.entry(file).or_default().changes;
        changes.push((change, false));
        changes.len() - 1
    }

    pub fn stable(&mut self, file: u64, number: usize) {
        self.files.get_mut(&file).expect("it was changed").changes[number].1 = true;
    }

    /// The last change did not come about.
    pub fn withdraw(&mut self, file: u64, number: usize) {
        let changes = &mut self.files.get_mut(&file).expect("it was changed").changes;
        changes.truncate(number);
    }

    /// The number of all changes so far, for `all_stable`.
    pub fn count(&self, file: u64) -> usize {
        self.files.get(&file).map_or(0, |history| history.changes.len())
    }

    pub fn all_stable(&mut self, file: u64, count: usize) {
        if let Some(history) = self.files.get_mut(&file) {
            history.changes[..count].iter_mut().for_each(|change| change.1 = true);
        }
    }

    pub fn fenced(&mut self, file: u64, epoch: u64, is_stable: bool) {
        let history = self.files.entry(file).or_default();
        history.fence_most = history.fence_most.max(epoch);
        if is_stable {
            history.fence_stable = history.fence_stable.max(epoch);
        }
    }

    pub fn files(&self) -> Vec<u64> {
        self.files.keys().copied().collect()
    }

    /// Compares a file after a crash. If that is on disk, it is the known state from now on.
    pub fn check(
        &mut self,
        file: u64,
        found: Option<Vec<u8>>,
        fence: u64,
        is_durable: bool,
    ) -> Result<(), String> {
        let history = self.files.get_mut(&file).expect("the oracle names the file");
        let mut possible = Possible::nothing();
        for (change, is_stable) in &history.changes {
            possible.apply(change, *is_stable);
        }
        let wrong = |what: String| Err(format!("file {file}: {what}; history {:?}", history.changes));
        match &found {
            None if !possible.may_be_absent => return wrong("it is lost".to_owned()),
            Some(_) if !possible.may_exist => return wrong("it came back".to_owned()),
            None => {}
            Some(content) => {
                if !possible.sizes.contains(&content.len()) {
                    return wrong(format!("its size is {}, not {:?}", content.len(), possible.sizes));
                }
                for (at, byte) in content.iter().enumerate() {
                    if !possible.bytes[at].contains(*byte) {
                        return wrong(format!("byte {at} is {byte}, which was overwritten for good"));
                    }
                }
                if !(history.fence_stable..=history.fence_most).contains(&fence) {
                    return wrong(format!("its fence is {fence}, not {}", history.fence_stable));
                }
            }
        }
        if is_durable {
            history.changes = vec![(FileChange::Found(found), true)];
            history.fence_stable = fence;
        }
        Ok(())
    }
}
