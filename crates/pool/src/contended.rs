//! The files whose writers contend for the same pages now.
//!
//! The engine finds contention in the range locks of each file. Here is the list of these files for the head, which grants
//! no write delegation of them. It is short: more files than it has room for push the oldest out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use types::FileId;

pub const FILES_MAX: usize = 64;

#[derive(Default)]
pub struct Contended {
    /// Whether the list has any file, also one that is over.
    has_any: AtomicBool,
    /// The one that was noted last at the end. Leaf lock.
    files: Mutex<Vec<Noted>>,
}

struct Noted {
    file: FileId,
    until: Instant,
}

impl Contended {
    /// A write has waited for another one, and the file is contended.
    pub fn note(&self, file: FileId, now: Instant, window: Duration) {
        let mut files = self.files.lock();
        files.retain(|noted| noted.file != file && noted.until > now);
        if files.len() == FILES_MAX {
            files.remove(0);
        }
        files.push(Noted { file, until: now + window });
        self.has_any.store(true, Ordering::Relaxed);
    }

    pub fn now(&self, now: Instant) -> Vec<FileId> {
        // Asked for each new file, and mostly empty.
        if !self.has_any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut files = self.files.lock();
        files.retain(|noted| noted.until > now);
        self.has_any.store(!files.is_empty(), Ordering::Relaxed);
        files.iter().map(|noted| noted.file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(4);
    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_file_is_listed_once_until_the_window_after_its_last_wait_has_passed() {
        let (contended, now) = (Contended::default(), Instant::now());
        assert!(contended.now(now).is_empty());
        contended.note(FileId(1), now, WINDOW);
        contended.note(FileId(2), now, WINDOW);
        contended.note(FileId(1), now + SECOND, WINDOW);
        assert_eq!(contended.now(now + SECOND * 3), [FileId(2), FileId(1)]);
        assert_eq!(contended.now(now + SECOND * 4), [FileId(1)]);
        assert!(contended.now(now + SECOND * 5).is_empty());
        contended.note(FileId(3), now + SECOND * 6, WINDOW);
        assert_eq!(contended.now(now + SECOND * 6), [FileId(3)]);
    }

    #[test]
    fn the_list_has_a_bound_and_the_oldest_leaves_it() {
        let (contended, now) = (Contended::default(), Instant::now());
        for file in 0..=FILES_MAX as u64 {
            contended.note(FileId(file), now, WINDOW);
        }
        let files = contended.now(now);
        assert_eq!((files.len(), files[0]), (FILES_MAX, FileId(1)));
    }
}
