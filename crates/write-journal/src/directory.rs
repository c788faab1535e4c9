//! Segments as files of a directory, preallocated with zeros so that a sync writes no metadata of the file system.
//!
//! A segment is made under another name and renamed once it is whole; remains of that are removed at the next start. The
//! caller sees to it that one process has the directory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::storage::Storage;

const ZEROS_BYTES: usize = 256 << 10;
const PREFIX: &str = "journal-";
const SUFFIX: &str = ".segment";
const NEW_SUFFIX: &str = ".segment.new";

pub struct Directory {
    path: PathBuf,
    /// Locked to look up a file, never during I/O.
    files: Mutex<BTreeMap<u32, Arc<Segment>>>,
}

struct Segment {
    file: File,
    /// On a file system that is read-only.
    is_read_only: bool,
}

impl Segment {
    fn check_writable(&self) -> io::Result<()> {
        if self.is_read_only { Err(ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }
}

impl Directory {
    /// Makes the directory if there is none. Its name and those of its segments are on disk when this returns. On a file system
    /// that is read-only it can be read. Blocks.
    pub fn open(path: &Path) -> io::Result<Directory> {
        Directory::open_with(path, durable::sync_directory_of)
    }

    /// `sync_directory_of` is a parameter for tests.
    fn open_with(path: &Path, sync_directory_of: impl Fn(&Path) -> io::Result<()>) -> io::Result<Directory> {
        match fs::create_dir(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // A process that was killed before its sync may have made names that only the page cache has.
        unless_read_only(sync_directory_of(path))?;
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if let Some(segment) = number(name, SUFFIX) {
                files.insert(segment, Arc::new(open_segment(&entry.path())?));
            } else if number(name, NEW_SUFFIX).is_some() {
                unless_read_only(fs::remove_file(entry.path()))?;
            }
        }
        unless_read_only(sync_directory_of(&path.join(PREFIX)))?;
        Ok(Directory { path: path.to_owned(), files: Mutex::new(files) })
    }

    fn segment(&self, segment: u32) -> io::Result<Arc<Segment>> {
        self.files.lock().get(&segment).cloned().ok_or_else(|| ErrorKind::NotFound.into())
    }

    fn path_of(&self, segment: u32, suffix: &str) -> PathBuf {
        self.path.join(format!("{PREFIX}{segment:06}{suffix}"))
    }
}

fn open_segment(path: &Path) -> io::Result<Segment> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => {
            Ok(Segment { file: File::open(path)?, is_read_only: true })
        }
        opened => Ok(Segment { file: opened?, is_read_only: false }),
    }
}

fn unless_read_only(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => Ok(()),
        done => done,
    }
}

fn number(name: &str, suffix: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.strip_suffix(suffix)?.parse().ok()
}

impl Storage for Directory {
    fn segments(&self) -> io::Result<Vec<u32>> {
        Ok(self.files.lock().keys().copied().collect())
    }

    fn make(&self, segment: u32, segment_bytes: u64) -> io::Result<()> {
        let (new, path) = (self.path_of(segment, NEW_SUFFIX), self.path_of(segment, SUFFIX));
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).read(true).write(true).mode(0o600).open(&new)?;
        let zeros = vec![0; ZEROS_BYTES];
        let mut offset = 0;
        while offset < segment_bytes {
            let part_bytes = (segment_bytes - offset).min(ZEROS_BYTES as u64);
            file.write_all_at(&zeros[..part_bytes as usize], offset)?;
            offset += part_bytes;
        }
        durable::rename(&new, &path)?;
        self.files.lock().insert(segment, Arc::new(Segment { file, is_read_only: false }));
        Ok(())
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        let path = self.path_of(segment, SUFFIX);
        fs::remove_file(&path)?;
        self.files.lock().remove(&segment);
        durable::sync_directory_of(&path)
    }

    fn segment_bytes(&self, segment: u32) -> io::Result<u64> {
        Ok(self.segment(segment)?.file.metadata()?.len())
    }

    fn read_at(&self, segment: u32, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.segment(segment)?.file.read_exact_at(into, offset)
    }

    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let segment = self.segment(segment)?;
        segment.check_writable()?;
        segment.file.write_all_at(bytes, offset)
    }

    fn sync(&self, segment: u32) -> io::Result<()> {
        let segment = self.segment(segment)?;
        // Nothing of it can be on its way to the disk.
        if segment.is_read_only { Ok(()) } else { segment.file.sync_data() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_zeros_of_its_length_and_outlives_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let storage = Directory::open(&path).unwrap();
        storage.make(7, 300 << 10).unwrap();
        storage.write_at(7, 10, b"some bytes").unwrap();
        storage.sync(7).unwrap();
        let storage = Directory::open(&path).unwrap();
        assert_eq!(storage.segments().unwrap(), [7]);
        assert_eq!(storage.segment_bytes(7).unwrap(), 300 << 10);
        let mut read = [1; 22];
        storage.read_at(7, 5, &mut read).unwrap();
        assert_eq!(&read, b"\0\0\0\0\0some bytes\0\0\0\0\0\0\0");
        storage.remove(7).unwrap();
        assert!(storage.sync(7).is_err());
        assert!(Directory::open(&path).unwrap().segments().unwrap().is_empty());
    }

    #[test]
    fn a_half_made_segment_is_removed_and_other_files_are_left() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["journal-000003.segment.new", "notes.txt", "journal-x.segment"] {
            fs::write(dir.path().join(name), "a").unwrap();
        }
        assert!(Directory::open(dir.path()).unwrap().segments().unwrap().is_empty());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn every_open_syncs_the_name_of_the_directory_and_then_those_of_its_segments() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let synced = Mutex::new(Vec::new());
        let sync_directory_of = |name: &Path| {
            let dir = name.parent().unwrap();
            synced.lock().push((dir.to_owned(), fs::read_dir(dir).unwrap().count()));
            Ok(())
        };
        let storage = Directory::open_with(&path, sync_directory_of).unwrap();
        storage.make(1, 4096).unwrap();
        fs::write(path.join("journal-000002.segment.new"), "a").unwrap();
        Directory::open_with(&path, sync_directory_of).unwrap();
        let parent = dir.path().to_owned();
        let expected = [(parent.clone(), 1), (path.clone(), 0), (parent, 1), (path, 1)];
        assert_eq!(synced.into_inner(), expected, "a segment that was half made is removed before the sync");
    }

    #[test]
    fn a_directory_whose_names_cannot_be_synced_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        for failing in [dir.path(), &path] {
            let sync_directory_of = |path: &Path| {
                if path.parent() == Some(failing) { Err(io::Error::other("no sync")) } else { Ok(()) }
            };
            assert!(Directory::open_with(&path, sync_directory_of).is_err());
        }
        assert!(Directory::open(&path).is_ok());
    }
}
