//! Whether the pool's disk takes writes. A pool whose disk does not gets no new files until it does.
//!
//! A write that fails by the disk's fault is enough to doubt it, also where the file system does not call itself read-only
//! (ext4 after an error that it cannot go on from). Doubt lasts until a block was written to the disk, which is tried each
//! second. On a disk that fails some writes and not others, that has to work twice as often in a row with each new doubt.

use parking_lot::Mutex;
use rustix::io::Errno;
use types::PoolId;

use crate::disk_error::is_of_the_disk;
use crate::store::Store;

/// Looks in a row that find nothing wrong, after which earlier doubts no longer count.
const QUIET_LOOKS: u32 = 60;
const GOOD_LOOKS_MAX: u32 = 64;

#[derive(Default)]
pub struct Writability {
    /// Locked to look at it or to change it, and not while a block is written.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Why it takes none.
    refusal: Option<String>,
    /// Looks in a row that found nothing wrong.
    good_looks: u32,
    /// As many of them end the doubt.
    good_looks_min: u32,
}

impl Writability {
    pub fn refusal(&self) -> Option<String> {
        self.state.lock().refusal.clone()
    }

    /// A write failed.
    pub fn note(&self, pool: PoolId, errno: Errno) {
        if is_of_the_disk(errno) {
            self.refuse(pool, reason(errno));
        }
    }

    /// May wait for the disk.
    pub fn look(&self, pool: PoolId, store: &Store) {
        if store.is_read_only() {
            return self.refuse(pool, "its file system is read-only".to_owned());
        }
        let is_doubted = self.refusal().is_some();
        match if is_doubted { store.try_to_write() } else { Ok(()) } {
            Err(errno) if is_of_the_disk(errno) => self.refuse(pool, reason(errno)),
            // A full disk is another matter.
            _ => self.note_good_look(pool),
        }
    }

    fn note_good_look(&self, pool: PoolId) {
        let mut state = self.state.lock();
        state.good_looks = state.good_looks.saturating_add(1);
        if state.refusal.is_none() {
            if state.good_looks >= QUIET_LOOKS {
                state.good_looks_min = 0;
            }
        } else if state.good_looks >= state.good_looks_min {
            (state.refusal, state.good_looks) = (None, 0);
            tracing::info!(%pool, "pool takes writes again");
        }
    }

    fn refuse(&self, pool: PoolId, reason: String) {
        let mut state = self.state.lock();
        state.good_looks = 0;
        if state.refusal.is_none() {
            state.good_looks_min = (state.good_looks_min * 2).clamp(1, GOOD_LOOKS_MAX);
            tracing::error!(%pool, reason, "pool takes no new files");
        }
        state.refusal = Some(reason);
    }
}

fn reason(errno: Errno) -> String {
    format!("writing to its disk fails: {}", std::io::Error::from(errno))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_write_that_the_disk_fails_is_enough_and_one_that_works_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let pool = PoolId(1);
        let store = Store::new(pool, [1; 16], File::open(dir.path()).unwrap().into()).unwrap();
        let writability = Writability::default();
        writability.look(pool, &store);
        assert_eq!(writability.refusal(), None);
        for errno in [Errno::NOSPC, Errno::MFILE, Errno::DQUOT, Errno::FBIG] {
            writability.note(pool, errno);
            assert_eq!(writability.refusal(), None, "{errno} is not the disk's fault");
        }
        writability.note(pool, Errno::ROFS);
        let refusal = writability.refusal().unwrap();
        assert!(refusal.contains("Read-only file system"), "{refusal}");
        writability.look(pool, &store);
        assert_eq!(writability.refusal(), None, "a block was written");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "and nothing is left of it");
    }

    #[test]
    fn a_disk_that_fails_now_and_then_is_trusted_later_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let pool = PoolId(1);
        let store = Store::new(pool, [1; 16], File::open(dir.path()).unwrap().into()).unwrap();
        let writability = Writability::default();
        let looks_until_trusted = || {
            writability.note(pool, Errno::IO);
            (1..).find(|_| {
                writability.look(pool, &store);
                writability.refusal().is_none()
            })
        };
        for looks in [1, 2, 4, 8, 16, 32, 64, 64] {
            assert_eq!(looks_until_trusted(), Some(looks));
        }
        for _ in 0..QUIET_LOOKS {
            writability.look(pool, &store);
        }
        assert_eq!(looks_until_trusted(), Some(1));
    }
}
