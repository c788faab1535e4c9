//! One question for all layouts of a holder instead of one for each file (RFC 8881 §12.5.5.2.1.5).
//!
//! Each layout that is wanted back has a recall of its own all the same, with its deadline: what becomes of it is judged,
//! and taken, as if it had been asked for alone. Only what is beside it is another matter: until none of them is left, or
//! their time is over, the holder is granted no layout of any file, for nothing tells one that was granted before the
//! question from one after it.

use super::*;

/// Holders that one question asked for their layouts, and the files whose layouts have not all come back yet.
pub(super) type AtOnce = BTreeMap<Holder, BTreeSet<FileId>>;

impl FileState {
    /// Recalls the layouts that the holder has of these files, to be asked for by one question for all that it has.
    /// Returns how many: 0 while a recall of any of its layouts is under way, for the two could not be told apart.
    pub fn recall_at_once(&mut self, holder: Holder, files: &[FileId], deadline: Duration) -> usize {
        if self.layouts_of(holder).any(|(file, _)| self.is_recalled(file, holder, GrantKind::Layout)) {
            return 0;
        }
        let is_recalled = |file: &FileId| self.recall(*file, holder, GrantKind::Layout, deadline).is_some();
        let recalled: BTreeSet<FileId> = files.iter().copied().filter(is_recalled).collect();
        let count = recalled.len();
        if count > 0 {
            self.at_once.insert(holder, recalled);
        }
        count
    }

    /// Whether some layouts that one question asked for have not come back, and still have time to.
    pub fn is_recalled_at_once(&self, holder: Holder) -> bool {
        self.at_once.contains_key(&holder)
    }

    /// The holder says that it has no layouts: those recalls are due at once, and the holder is to be fenced off.
    pub fn expire_at_once(&mut self, holder: Holder) {
        for file in self.at_once.remove(&holder).unwrap_or_default() {
            self.expire_recall(file, holder, GrantKind::Layout);
        }
    }

    /// The holder does not understand the question: its recalls are forgotten, and a change that still wants a layout
    /// back recalls it alone. A layout whose revocation has begun is revoked all the same.
    pub fn forget_at_once(&mut self, holder: Holder) {
        for file in self.at_once.remove(&holder).unwrap_or_default() {
            let Some(known) = self.files.get_mut(&file) else { continue };
            if let Some(deadline) = known.layouts.forget_recall(holder) {
                self.recalls.remove(&(deadline, file, holder, GrantKind::Layout));
                self.unheard.remove(file, holder, GrantKind::Layout);
            }
        }
    }

    /// Holders with a layout of the file that has not been recalled.
    pub fn layout_holders_to_recall(&self, file: FileId) -> impl Iterator<Item = Holder> {
        let known = self.files.get(&file).into_iter();
        known.flat_map(|known| {
            let holders = known.layouts.iter().map(|(holder, _)| holder);
            holders.filter(|holder| !known.layouts.is_recalled(*holder))
        })
    }
}

/// The holder is not waited for any more as to this file: with the last one it may be granted layouts again.
pub(super) fn came_back(at_once: &mut AtOnce, file: FileId, holder: Holder) {
    if let Some(files) = at_once.get_mut(&holder) {
        files.remove(&file);
        if files.is_empty() {
            at_once.remove(&holder);
        }
    }
}
