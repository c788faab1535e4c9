//! Whether a file may have lost its last name between a look at it and its entry in the conflict table.
//!
//! An open (1) notes the number of removals, (2) looks the file up and finds it with a name, (3) enters it into the
//! table, (4) compares the number. A removal (a) takes the last name and (b) tells [`Files::call_back`], which moves
//! the number. The reaper (c) finds the file without a name and then, under the lock of the table, without a user, moves
//! the number under the same lock, and frees the data. The orders:
//!
//! * (c) before (1): (a) came before (c), so that (2) finds no name, and the file is opened only while somebody holds it.
//! * (c) between (1) and (3): the number has moved. The open looks again and finds the file without a name: stale.
//! * (c) after (3): the file is in use and keeps its data.
//! * (a) after (2), (b) before (4): the number has moved: stale, as for every removal that is answered by then.
//! * (a) after (2), (b) after (4): the two overlap, and the open counts as the first. (c) decides as above.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use api::NamespaceError;
use types::{Attributes, FileId};

use crate::{Files, FilesError};

/// Moves after a door has removed a name, and before the data of an unlinked file is freed.
#[derive(Default)]
pub(crate) struct Removals(AtomicU64);

/// The number of removals at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalsSeen(u64);

impl Removals {
    /// A removal that happened before this is seen by a look that finds the number moved.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

impl Files {
    /// To be noted before a file is looked up that is to be opened.
    pub fn removals(&self) -> RemovalsSeen {
        RemovalsSeen(self.removals.0.load(Ordering::Acquire))
    }

    /// After the file was entered into the conflict table: `Stale` if it has lost its last name since it was found,
    /// for its data may be on its way out. Asks the namespace only if names were removed since `seen`.
    pub async fn judge_still_named(&self, found: &Attributes, seen: RemovalsSeen) -> Result<(), FilesError> {
        if found.nlink == 0 || self.removals() == seen || self.attributes(found.file).await?.nlink > 0 {
            return Ok(());
        }
        Err(NamespaceError::Stale(found.file).into())
    }

    /// Those of the files, all without a name, that nobody uses. From now on none of these can be opened, and the
    /// caller may free what they held.
    pub fn begin_freeing(&self, files: impl IntoIterator<Item = FileId>) -> BTreeSet<FileId> {
        let table = self.table();
        let unused: BTreeSet<FileId> =
            files.into_iter().filter(|file| !table.file(*file).is_in_use()).collect();
        if !unused.is_empty() {
            // Under the lock: an open that is entered later must find it moved.
            self.removals.note();
        }
        unused
    }
}
