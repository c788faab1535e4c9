//! Files that people replace while the server runs: whether one of them has changed since the last look.
//!
//! Looks are calls of `stat`. The owner decides when to look, reads the files, and keeps what they said before if they make
//! no sense now.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Metadata that changes when a file is written or replaced, also by one with the same time of modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of the last change of the inode, which nobody can set.
    changed: (i64, i64),
}

impl Stamp {
    pub fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// At the last look, in the order of the paths. An error stands for a file that cannot be examined, mostly since it
    /// does not exist. Empty before the first look.
    seen: Vec<Result<Stamp, io::ErrorKind>>,
}

impl WatchedFiles {
    /// Looks at the files. The caller reads them afterwards, so that the next look finds a change in between. Blocks.
    pub fn new(paths: impl IntoIterator<Item = PathBuf>) -> WatchedFiles {
        let mut files = WatchedFiles { paths: paths.into_iter().collect(), seen: Vec::new() };
        files.have_changed();
        files
    }

    /// Whether a file was written, replaced, created or removed since the last look. Blocks.
    pub fn have_changed(&mut self) -> bool {
        let look = |path| fs::metadata(path).map(|found| Stamp::of(&found)).map_err(|error| error.kind());
        let found: Vec<_> = self.paths.iter().map(look).collect();
        let is_change = found != self.seen;
        self.seen = found;
        is_change
    }

    /// Makes the next look find a change. For a file that could not be read, which may be read later although it stays
    /// as it is.
    pub fn forget(&mut self) {
        self.seen.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, FileTimes};

    use super::*;

    #[test]
    fn each_change_is_found_once() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        fs::write(&first, "1").unwrap();
        let mut files = WatchedFiles::new([first.clone(), second.clone()]);
        assert!(!files.have_changed());
        let changes: [&dyn Fn() -> io::Result<()>; 4] = [
            &|| fs::write(&second, "created"),
            &|| fs::write(&first, "written"),
            &|| fs::rename(&second, &first),
            &|| fs::remove_file(&first),
        ];
        for change in changes {
            change().unwrap();
            assert!(files.have_changed());
            assert!(!files.have_changed());
        }
    }

    /// A file of the certificate directories was not read again then.
    #[test]
    fn a_file_that_is_replaced_by_one_of_the_same_length_and_age_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("file"), dir.path().join("other"));
        fs::write(&path, "1").unwrap();
        let mut files = WatchedFiles::new([path.clone()]);
        fs::write(&other, "2").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let times = FileTimes::new().set_modified(modified);
        File::options().write(true).open(&other).unwrap().set_times(times).unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(files.have_changed());
    }

    #[test]
    fn a_file_that_could_not_be_read_is_looked_at_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut files = WatchedFiles::new([path]);
        assert!(!files.have_changed());
        files.forget();
        assert!(files.have_changed());
        assert!(!files.have_changed());
    }

    #[test]
    fn no_files_do_not_change() {
        assert!(!WatchedFiles::new([]).have_changed());
    }
}
