//! A tree that is there already becomes a namespace: out of a listing, or entry by entry as somebody walks it.
//!
//! Only into an empty place, by the bulk writer, so that no namespace is half there: the next attempt removes one
//! without `finish`. `tree` makes rows out of entries; a listing is read by the module of its form.

mod entry;
mod find;
mod mtree;
mod rows;
mod tar;
#[cfg(test)]
mod tests;
mod tree;
mod vis;

use std::fs::File;
use std::io::BufReader;

use thiserror::Error;
use types::Timestamp;

pub use entry::{Entry, Facts, Listing, ListingError, SameFile, What};
pub use find::PRINTF;
pub use tree::{Made, Placed, TreeError};

use crate::bulk::{Bulk, BulkError, End, NamespaceLocation};
use crate::check::Problem;
use rows::BulkRows;
use tree::Tree;

/// How a listing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// By GNU find with `PRINTF`.
    Find,
    Mtree,
    Tar,
}

/// A file, or a pipe that was opened as one.
pub fn read(format: Format, file: File) -> Box<dyn Listing> {
    let input = BufReader::with_capacity(256 << 10, file);
    match format {
        Format::Find => Box::new(find::Find::new(input)),
        Format::Mtree => Box::new(mtree::Mtree::new(input)),
        Format::Tar => Box::new(tar::Tar::new(input)),
    }
}

/// Options of an import.
pub struct Options {
    /// Where in it the top of the tree is; made if it is not the root.
    pub under: Vec<u8>,
    pub now: Timestamp,
    /// Files get numbers from here on; below it are numbers that the caller gives by itself.
    pub first_file: u64,
    /// Of the data directory that the namespace belongs to, if that is known.
    pub instance: Option<[u8; 16]>,
}

#[derive(Debug, Error)]
pub enum ImportError {
    #[error("{place} of the listing: {reason}")]
    Listing { place: String, reason: String },
    #[error(transparent)]
    Bulk(#[from] BulkError),
    /// An entry that is in no listing.
    #[error("{0}")]
    Refused(String),
    #[error("the namespace that was made is not sound, which is a bug: {0}")]
    Unsound(Problem),
}

impl From<TreeError> for ImportError {
    fn from(error: TreeError) -> ImportError {
        match error {
            TreeError::Bulk(error) => ImportError::Bulk(error),
            TreeError::Refused(reason) => ImportError::Refused(reason),
        }
    }
}

/// A namespace in the making.
pub struct Import {
    tree: Tree<BulkRows>,
    instance: Option<[u8; 16]>,
}

impl Import {
    /// Takes the place's lock. Blocks, as everything here.
    pub fn begin(place: &NamespaceLocation, options: &Options) -> Result<Import, ImportError> {
        let rows = BulkRows::new(Bulk::begin(place)?);
        let tree = Tree::new(rows, options.now, &options.under, options.first_file)?;
        Ok(Import { tree, instance: options.instance })
    }

    /// `place` is asked for each regular file once, with the number that it would get: where its data are, and which
    /// number it has there. An error ends everything.
    pub fn add(
        &mut self,
        entry: &Entry,
        place: &mut dyn FnMut(types::FileId) -> Result<Placed, String>,
    ) -> Result<(), ImportError> {
        Ok(self.tree.add(entry, place)?)
    }

    /// All of a listing, whose files are nowhere. Called now and then with what was made so far.
    pub fn add_all(
        &mut self,
        listing: &mut dyn Listing,
        progress: &mut dyn FnMut(&Made),
    ) -> Result<(), ImportError> {
        const PROGRESS_ENTRIES: u64 = 10_000;
        let nowhere = &mut |file| Ok(Placed { file, pool: None });
        let mut count = 0_u64;
        loop {
            let told = |place: entry::ListingPosition, reason: String| ImportError::Listing {
                place: place.to_string(),
                reason,
            };
            let entry = match listing.next() {
                Ok(Some(entry)) => entry,
                Ok(None) => return Ok(()),
                Err(error) => return Err(told(listing.place(), error.to_string())),
            };
            self.tree.add(&entry, nowhere).map_err(|error| match error {
                TreeError::Refused(reason) => told(listing.place(), reason),
                TreeError::Bulk(error) => error.into(),
            })?;
            count += 1;
            if count.is_multiple_of(PROGRESS_ENTRIES) {
                progress(&self.tree.made());
            }
        }
    }

    pub fn made(&self) -> Made {
        self.tree.made()
    }

    /// Durably puts the namespace in place, and checks it.
    pub fn finish(self) -> Result<Made, ImportError> {
        let finished = self.tree.finish()?;
        let bulk = finished.rows.into_bulk().map_err(|error| ImportError::Refused(error.to_string()))?;
        let end = End { ends: finished.ends, totals: finished.totals, instance: self.instance };
        match bulk.finish(&end)?.into_iter().next() {
            None => Ok(finished.made),
            Some(problem) => Err(ImportError::Unsound(problem)),
        }
    }
}
