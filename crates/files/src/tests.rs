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
mod recalls;
mod removals;
mod replicas;
#[path = "../tests/scene/mod.rs"]
pub mod scene;
mod settings;
mod unwritten;
mod uploads;

use std::sync::Arc;
use std::time::Duration;

use file_state::{LayoutMode, LayoutModes};
use types::FileId;

use super::*;
use fakes::{Fakes, attributes};
pub use scene::{A, B, DOOR, FOREIGN, LONG, OTHER_DOOR, SHORT};

pub const FILE: FileId = FileId(7);
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
