//! Files that appear and are replaced as a whole, also over a power cut; and a look at whether others were replaced.

#![forbid(unsafe_code)]

mod watched;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

pub use watched::{Stamp, WatchedFiles};

/// The file is on disk when this returns; a crash before leaves the old one or the new one, and perhaps `NAME.new` beside
/// it. Only its owner may read it. Of two calls at once for one file the result is not defined. Blocks.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    rename(new.as_ref(), path)
}

/// Writes over a file of that length, in place: it needs no room on the disk. A power cut leaves the old bytes or the new ones
/// if they lie within a sector. A file that is missing or has another length is replaced. Blocks.
pub fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match OpenOptions::new().write(true).open(path) {
        Ok(file) if file.metadata()?.len() == bytes.len() as u64 => {
            file.write_all_at(bytes, 0)?;
            file.sync_all()
        }
        Ok(_) => replace(path, bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => replace(path, bytes),
        Err(error) => Err(error),
    }
}

/// `from` and its new name are on disk when this returns; of a directory its entries, and not the bytes of their files.
/// Both names lie in one directory. Blocks.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    sync_directory_of(to)
}

/// The names made and removed beside `path` before are on disk when this returns. Blocks.
pub fn sync_directory_of(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_whatever_a_crash_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.file");
        fs::write(dir.path().join("some.file.new"), "longer than what is written").unwrap();
        for text in ["first", "2"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        replace(&dir.path().join("other"), b"").unwrap();
        let mode = fs::metadata(dir.path().join("other")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left beside them");
        assert!(replace(&dir.path().join("none/file"), b"").is_err());
    }

    #[test]
    fn a_file_of_the_same_length_is_written_in_place_and_any_other_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.file");
        let number = || fs::metadata(&path).unwrap().ino();
        overwrite(&path, b"abc").unwrap();
        let first = number();
        overwrite(&path, b"def").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), number()), ("def", first));
        overwrite(&path, b"longer").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "longer");
    }
}
