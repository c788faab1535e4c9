//! Files that appear whole: written under another name, synced, renamed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::{BulkError, BulkResult};

/// What SQLite keeps beside a database. Left over from another one, it would be taken for a part of the new one.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub fn require_absent(path: &Path) -> BulkResult<()> {
    let all = std::iter::once(path.to_owned()).chain(BESIDE.iter().map(|suffix| beside(path, suffix)));
    for one in all {
        if one.symlink_metadata().is_ok() {
            let place = path.parent().unwrap_or(path).display().to_string();
            return Err(BulkError::NotEmpty { place, what: format!("{} is there", one.display()) });
        }
    }
    Ok(())
}

/// With what SQLite keeps beside it.
pub fn remove(path: &Path) -> BulkResult<()> {
    // The database last: without it the others mean nothing, without them it would be half of itself.
    for one in BESIDE.iter().map(|suffix| beside(path, suffix)).chain([path.to_owned()]) {
        match fs::remove_file(&one) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(BulkError::failed(one.display(), error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// For whoever may see all names alone.
pub fn create_private(path: &Path) -> BulkResult<()> {
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map(|_| ()).map_err(|error| BulkError::failed(path.display(), error))
}

/// Durably; what has the new name is not replaced.
pub fn appear(from: &Path, to: &Path) -> BulkResult<()> {
    require_absent(to)?;
    let renamed = (|| {
        File::open(from)?.sync_all()?;
        fs::rename(from, to)?;
        let dir = to.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    })();
    renamed.map_err(|error: io::Error| BulkError::failed(to.display(), error))
}
