//! File operations common to all doors: the walk to a file, one conflict table, fresh attributes, recalls, entries of
//! directories, bytes through the head, copies, checksums, uploads.
//!
//! A thin shell: `file-state` decides, `api` has the seams, and [`Files`] takes the lock, asks, drops the lock and
//! does what was answered. It is made once, in the binary, and every door has it; there is no other way to the table.
//! The lock over the table is a leaf: a thread that holds it takes no other lock, calls no service and awaits nothing.
//! A door that keeps state of its own beside the table takes its own lock first.
//!
//! Absent: state that only clients of one door share; fencing, which follows from the layouts of a door.

#![forbid(unsafe_code)]

mod attributes;
mod births;
mod checksum;
mod content;
mod cuts;
mod dislodge;
mod doors;
mod entries;
mod error;
mod fresh;
mod judge;
mod kept_uploads;
mod lengths;
mod making;
mod moves;
mod moving;
mod open;
mod pools;
mod punctual;
mod recall;
mod removals;
mod replicas;
mod room;
mod seen;
mod tasks;
mod unwritten;
mod upload;
mod user_attributes;
mod walk;
mod writer;

// Scenes of tests are shared with those of `tests/`, which see this crate from outside.
#[cfg(test)]
extern crate self as forebay_files;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::{Acls, Locations, Namespace, PoolManager, Properties, Quotas, Uploads, Xattrs};
use file_state::{FileState, Holder, Owner};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use types::{Clock, FileId};

pub use api::{Sums, mismatch};
pub use attributes::{SetAttributesError, SetProgress};
pub use content::{Content, ContentMode, Segment, Segments};
pub use doors::RegisterError;
pub use entries::{By, Entry};
pub use error::FilesError;
pub use file_state::{Change, Door, Granted, LockKind, Modes, Recall, Share, Want};
pub use judge::Judge;
pub use kept_uploads::{UploadBounds, UploadKey, UploadPlace, UploadsAtPools, UploadsInParts};
pub use moves::MovesSeen;
pub use moving::{CopyPace, MoveError, MoveWaits, Moved, Mover};
pub use open::OpenFile;
pub use pools::Pools;
pub use punctual::PunctualPool;
pub use recall::{FileChangeGuard, Recaller};
pub use removals::RemovalsSeen;
pub use tasks::Tasks;
pub use unwritten::{Patience, Told};
pub use upload::{
    Complete, NameToGive, Naming, NamingGuard, PublishError, ScatteredUpload, Upload, UploadError,
    UploadTarget, UploadTerms,
};
pub use walk::{Last, PathTarget, WalkError, path_text, walk};
pub use writer::{Received, Writer};

use births::Births;
use checksum::Summing;
use cuts::Cuts;
use doors::Doors;
use lengths::Lengths;
use moves::Moves;
use moving::Moving;
use removals::Removals;
use unwritten::Silent;

/// Services that [`Files`] calls.
pub struct FilesServices {
    pub namespace: Arc<dyn Namespace>,
    pub acls: Arc<dyn Acls>,
    pub locations: Arc<dyn Locations>,
    pub properties: Arc<dyn Properties>,
    pub xattrs: Arc<dyn Xattrs>,
    pub quotas: Arc<dyn Quotas>,
    pub uploads: Arc<dyn Uploads>,
    pub pools: Arc<dyn PoolManager>,
    pub clock: Arc<dyn Clock>,
    /// How long a client has to return a layout or delegation, whichever door recalls it.
    pub recall_time: Duration,
}

pub struct Files {
    services: FilesServices,
    /// Opens, locks, layouts and delegations of all clients. Leaf lock.
    table: Arc<Mutex<FileState>>,
    /// Notified when a holder has returned something: waiting calls look again.
    returned: Notify,
    doors: Doors,
    /// The turn to give a first location to a file that has none. Held while the database writes it.
    placing: Arc<tokio::sync::Mutex<()>>,
    births: Births,
    removals: Removals,
    moves: Moves,
    moving: Moving,
    lengths: Arc<Lengths>,
    cuts: Cuts,
    silent: Silent,
    summing: Summing,
    owners: AtomicU64,
    /// Names that are being given, and the rest of what dropped callers have begun.
    tasks: Arc<Tasks>,
}

impl Files {
    pub fn new(services: FilesServices) -> Files {
        Files {
            services,
            table: Arc::default(),
            returned: Notify::new(),
            doors: Doors::default(),
            placing: Arc::default(),
            births: Births::default(),
            removals: Removals::default(),
            moves: Moves::default(),
            moving: Moving::default(),
            lengths: Arc::default(),
            cuts: Cuts::default(),
            silent: Silent::default(),
            summing: Summing::default(),
            owners: AtomicU64::new(OWNERS_FROM),
            tasks: Arc::default(),
        }
    }

    /// Judges permissions, for every door.
    pub fn judge(&self) -> Judge<'_> {
        Judge(&*self.services.acls)
    }

    /// How long a client has to return a recalled layout or delegation.
    pub fn recall_time(&self) -> Duration {
        self.services.recall_time
    }

    /// The conflict table, for one question or one step.
    pub fn table(&self) -> MutexGuard<'_, FileState> {
        self.table.lock()
    }

    /// The conflict table for a machine that keeps state of its own beside it.
    pub fn share(&self) -> Arc<Mutex<FileState>> {
        Arc::clone(&self.table)
    }

    /// Whether somebody, of whatever door, has the file open or holds a layout of it. An unlinked file of which this is
    /// not so can never be opened again.
    pub fn is_in_use(&self, file: FileId) -> bool {
        self.table().file(file).is_in_use()
    }

    /// A door says that layouts have come back, or went in another way.
    pub fn returned(&self) {
        self.returned.notify_waiters();
    }

    /// An owner that no other call gets, for an open of its own. A door that numbers owners itself stays below 2⁶².
    pub fn owner(&self, holder: Holder) -> Owner {
        Owner { holder, number: self.owners.fetch_add(1, Ordering::Relaxed) }
    }
}

const OWNERS_FROM: u64 = 1 << 62;
