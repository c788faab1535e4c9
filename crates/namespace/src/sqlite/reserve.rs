//! Reserved room on the disk: a file that holds it while there is enough, and is emptied when the disk is full. Then
//! removals, truncations, a checkpoint and a start still have some; changes that need more are refused until the file
//! holds the room again.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::ErrorCode;
use rustix::fs::{FallocateFlags, StatVfsMountFlags, fallocate, fstatvfs};
use rustix::io::Errno;

use super::rows::CHECKPOINT_BYTES;
use crate::store::StoreError;

const NAME: &str = "reserve";
/// A checkpoint, and as much again.
const BYTES_MAX: u64 = 2 * CHECKPOINT_BYTES;
/// On a small disk no more than this part of it.
const SHARE: u64 = 16;
/// It is held again once there is so much more than it takes, as parts of itself: nothing is given and taken in turns.
const SLACK: u64 = 4;
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Without room for so much the disk counts as full.
const LEAST_BYTES: u64 = 64 << 10;

pub struct Reserve {
    dir: PathBuf,
    state: State,
    renewed: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Held,
    Given,
    /// The file system holds no room for a file.
    Unsupported,
}

impl Reserve {
    /// As it was left. Nothing is allocated before `hold`.
    pub fn find(dir: &Path) -> Reserve {
        let is_there = dir.join(NAME).metadata().is_ok_and(|facts| facts.is_file() && facts.len() > 0);
        let state = if is_there { State::Held } else { State::Given };
        Reserve { dir: dir.to_owned(), state, renewed: None }
    }

    /// Whether changes may take more room.
    pub fn has_room(&self) -> bool {
        self.state != State::Given
    }

    /// Whether there was anything to give up.
    pub fn give_up(&mut self) -> bool {
        if self.state != State::Held {
            return false;
        }
        (self.state, self.renewed) = (State::Given, Some(Instant::now()));
        // Its blocks are free for others once the file system's journal has it.
        let given = File::options().write(true).open(self.dir.join(NAME)).and_then(|file| {
            file.set_len(0)?;
            file.sync_all()
        });
        match &given {
            Ok(()) => tracing::error!("the disk of the namespace is full; the namespace uses its reserve"),
            Err(error) => tracing::error!(%error, "namespace cannot use its reserve"),
        }
        given.is_ok()
    }

    /// Holds it again if there is room; looks no more than once in an interval.
    pub fn renew(&mut self) {
        let is_due = self.renewed.is_none_or(|renewed| renewed.elapsed() >= RENEWAL_INTERVAL);
        if self.state != State::Given || !is_due {
            return;
        }
        self.renewed = Some(Instant::now());
        if self.hold() {
            tracing::info!("namespace has its reserve of room again");
        }
    }

    /// Whether it is held now that was not.
    pub fn hold(&mut self) -> bool {
        let was_given = self.state == State::Given;
        match self.allocate() {
            Ok(()) => self.state = State::Held,
            Err(Errno::OPNOTSUPP) => {
                tracing::info!("file system of the namespace holds no room for a file: there is no reserve");
                self.state = State::Unsupported;
            }
            // The part that is held, if any, stays.
            Err(_) => {}
        }
        was_given && self.state == State::Held
    }

    fn allocate(&self) -> Result<(), Errno> {
        let of_io = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
        let file = open(&self.dir).map_err(of_io)?;
        let stat = fstatvfs(&file)?;
        let bytes = BYTES_MAX.min(stat.f_blocks.saturating_mul(stat.f_frsize) / SHARE);
        let held = file.metadata().map_err(of_io)?.len();
        let missing = bytes.saturating_sub(held);
        if missing > 0 && stat.f_bavail.saturating_mul(stat.f_frsize) < missing + bytes / SLACK {
            return Err(Errno::NOSPC);
        }
        if missing > 0 {
            fallocate(&file, FallocateFlags::empty(), 0, bytes).inspect_err(|_| {
                // A part of it may be there.
                let _ = file.set_len(held);
            })?;
        }
        Ok(())
    }
}

fn open(dir: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(dir.join(NAME))
}

/// Classifies an error of SQLite. An I/O error does not name its cause, so the file system is asked.
pub fn classify(error: &rusqlite::Error, dir: &Path) -> StoreError {
    judge(error, || refusal(dir))
}

fn judge(error: &rusqlite::Error, refusal: impl FnOnce() -> Option<Errno>) -> StoreError {
    let is_unclear =
        matches!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen));
    match is_unclear.then(refusal).flatten() {
        Some(Errno::ROFS) => StoreError::ReadOnly(error.to_string()),
        Some(_) => StoreError::NoSpace(error.to_string()),
        None => error.into(),
    }
}

/// Why nothing more can be written there, if it is read-only, full or beyond a quota.
fn refusal(dir: &Path) -> Option<Errno> {
    let is_one = |errno: &Errno| matches!(*errno, Errno::ROFS | Errno::NOSPC | Errno::DQUOT);
    let file = match open(dir) {
        Ok(file) => file,
        Err(error) => return Errno::from_io_error(&error).filter(is_one),
    };
    let stat = fstatvfs(&file).ok()?;
    if stat.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Some(Errno::ROFS);
    }
    if stat.f_bfree == 0 || (stat.f_files > 0 && stat.f_ffree == 0) {
        return Some(Errno::NOSPC);
    }
    // A quota shows in no number: room behind the reserve is taken and given back.
    let held = file.metadata().ok()?.len();
    let tried = fallocate(&file, FallocateFlags::empty(), held, LEAST_BYTES);
    let _ = file.set_len(held);
    tried.err().filter(is_one)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    /// They were EIO and 500, and a full disk at start was a "disk I/O error".
    #[test]
    fn an_error_of_a_disk_that_is_full_or_read_only_is_told_as_that() {
        let told =
            |code, refusal| judge(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None), || refusal);
        let unclear = [
            ffi::SQLITE_IOERR_SHMSIZE,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_CANTOPEN,
        ];
        for code in unclear {
            for full in [Errno::NOSPC, Errno::DQUOT] {
                assert!(matches!(told(code, Some(full)), StoreError::NoSpace(_)), "{code}");
            }
            assert!(matches!(told(code, Some(Errno::ROFS)), StoreError::ReadOnly(_)), "{code}");
            assert!(matches!(told(code, None), StoreError::Failed(_)), "{code}");
        }
        assert!(matches!(told(ffi::SQLITE_FULL, None), StoreError::NoSpace(_)));
        assert!(matches!(told(ffi::SQLITE_CORRUPT, Some(Errno::NOSPC)), StoreError::Failed(_)));
    }

    #[test]
    fn the_reserve_is_held_given_up_and_held_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(refusal(dir.path()), None);
        let mut reserve = Reserve::find(dir.path());
        assert!(!reserve.has_room() && !reserve.give_up(), "there is none yet");
        assert!(reserve.hold() && reserve.has_room());
        let held = || dir.path().join(NAME).metadata().unwrap().len();
        let bytes = held();
        assert!(bytes > 0);
        assert_eq!((refusal(dir.path()), held()), (None, bytes), "a look leaves it as it is");
        assert!(Reserve::find(dir.path()).has_room(), "it is found again");
        assert!(reserve.give_up() && !reserve.has_room());
        assert_eq!(held(), 0);
        assert!(!reserve.give_up(), "once");
        reserve.renew();
        assert_eq!(held(), 0, "not at once");
        reserve.renewed = None;
        reserve.renew();
        assert!(reserve.has_room() && held() == bytes);
    }
}
