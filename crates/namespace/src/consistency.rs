//! Directories whose own rows follow their entries later.
//!
//! A group writes its changes of such a directory as a row of their own (`DirDelta`), with the entries; the directory's
//! truth is its row with all deltas. The head is the only writer, so it keeps that truth in memory (`pending`) and does
//! not merge on reading. An offline reader merges, and the next start folds the deltas that a killed process left.
//! Folding writes the truth as the row and removes the deltas, a few directories with a group: nobody waits for it.

mod delta;
mod heat;
mod modes;
mod pending;
#[cfg(test)]
mod tests;

pub use delta::FOLD_ALL;
pub use pending::{DirectoryChange, Pending};
