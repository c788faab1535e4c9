//! One module per concern; a namespace as a fake that can be told what to say, and a pool in memory.

mod cancellation;
mod content;
mod copies;
mod dislodged;
mod doors;
mod entries;
pub mod fakes;
mod freshness;
mod holding;
mod kept_uploads;
mod recalls;
mod removals;
mod replicas;
pub mod scene;
mod unwritten;
mod uploads;

use std::sync::Arc;
use std::time::Duration;

use file_state::{LayoutMode, LayoutModes};
use types::FileId;

use super::*;
use fakes::{Fakes, attributes};

pub const FILE: FileId = FileId(7);
/// As [`Fakes`] registers them.
const DOOR: Door = Door::numbered(0);
const OTHER_DOOR: Door = Door::numbered(1);
pub const A: Holder = Holder::of(DOOR, 1);
const B: Holder = Holder::of(DOOR, 2);
const FOREIGN: Holder = Holder::of(OTHER_DOOR, 1);

/// For what comes at once, and for what never comes.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(5);
const LEASE: Duration = Duration::from_secs(90);

pub fn granted(files: &Files, holder: Holder, mode: LayoutMode) {
    files.table().layouts().grant(FILE, holder, mode, Duration::ZERO).unwrap();
}

pub fn given_back(files: &Files, holder: Holder) {
    assert!(files.table().layouts().give_back(FILE, holder, LayoutModes::ALL).is_empty());
    files.returned();
}

fn deny_writing() -> Share {
    Share::new(Modes::NONE, Modes::WRITE)
}
