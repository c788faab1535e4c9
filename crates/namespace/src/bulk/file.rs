//! Files that appear whole: written under another name, synced, renamed.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use super::{BulkError, BulkResult};

/// Files of SQLite beside a database. SQLite would take those of a lost database for parts of a new one.
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

/// An error if a part of the database lies beside its file: it is open elsewhere, or was not closed properly.
pub fn require_alone(path: &Path) -> BulkResult<()> {
    for one in ["-wal", "-journal"].map(|suffix| beside(path, suffix)) {
        if one.metadata().is_ok_and(|facts| facts.len() > 0) {
            let reason = format!("{} holds a part of it; take another copy of the backup", one.display());
            return Err(BulkError::failed(path.display(), reason));
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

/// Readable by its owner alone, since it holds all names.
pub fn create_private(path: &Path) -> BulkResult<()> {
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map(|_| ()).map_err(|error| BulkError::failed(path.display(), error))
}

/// Durably; what has the new name is not replaced.
pub fn appear(from: &Path, to: &Path) -> BulkResult<()> {
    require_absent(to)?;
    durable::rename(from, to).map_err(|error| BulkError::failed(to.display(), error))
}

/// Durably, in one step; with the mode and, where that is allowed, the owner of what is replaced.
pub fn replace(from: &Path, to: &Path) -> BulkResult<()> {
    let replaced = to.metadata().and_then(|facts| {
        // Before the mode, which it may take bits from.
        let _ = chown(from, Some(facts.uid()), Some(facts.gid()));
        fs::set_permissions(from, facts.permissions())?;
        durable::rename(from, to)
    });
    replaced.map_err(|error| BulkError::failed(to.display(), error))
}
