//! Journals in directories of a real file system.

use std::path::Path;
use std::sync::Arc;

use forebay_write_journal::{Config, Directory, Journal, Replay};
use types::Random;

const INSTANCE: [u8; 16] = [9; 16];

struct Salts;

impl Random for Salts {
    fn fill(&self, bytes: &mut [u8]) {
        rustix::rand::getrandom(bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
    }
}

pub fn open(path: &Path) -> Replay {
    Replay::open(Arc::new(Directory::open(path).unwrap()), INSTANCE).unwrap()
}

/// Drops the records that were there.
pub fn start(path: &Path, config: Config) -> Arc<Journal> {
    let mut replay = open(path);
    replay.by_ref().for_each(|entry| drop(entry.unwrap()));
    replay.finish(config, Arc::new(Salts)).unwrap()
}
