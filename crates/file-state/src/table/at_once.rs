//! One question for all layouts of a holder instead of one for each file (RFC 8881 §12.5.5.2.1.5).
//!
//! Each layout that is wanted back has a recall of its own all the same, with its deadline: what becomes of it is judged,
//! and taken, as if it had been asked for alone. Only what is beside it is another matter: until none of them is left, or
//! their time is over, the holder is granted no layout of any file, for nothing tells one that was granted before the
//! question from one after it.

use std::collections::{BTreeMap, BTreeSet};

use types::FileId;

use crate::Holder;

/// Holders that one question asked for their layouts, and the files whose layouts have not all come back yet.
#[derive(Debug, Default)]
pub(super) struct AtOnce(BTreeMap<Holder, BTreeSet<FileId>>);

impl AtOnce {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some layouts that one question asked for have not come back, and still have time to.
    pub fn has(&self, holder: Holder) -> bool {
        self.0.contains_key(&holder)
    }

    pub fn insert(&mut self, holder: Holder, files: BTreeSet<FileId>) {
        self.0.insert(holder, files);
    }

    /// The question is not asked any more.
    pub fn remove(&mut self, holder: Holder) -> BTreeSet<FileId> {
        self.0.remove(&holder).unwrap_or_default()
    }

    /// The holder is not waited for any more as to this file: with the last one it may be granted layouts again.
    pub fn came_back(&mut self, file: FileId, holder: Holder) {
        if let Some(files) = self.0.get_mut(&holder) {
            files.remove(&file);
            if files.is_empty() {
                self.0.remove(&holder);
            }
        }
    }
}
