//! The directory of a pool's write journal, and the note in the pool of a journal that lies elsewhere.
//!
//! Without the note a change of the configuration would leave acknowledged writes behind. It is written before the first
//! record and removed after the last one is void.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use types::PoolId;

use crate::error::OpenError;

/// In the pool's directory.
const DIR: &str = "journal";
const NOTE: &str = "journal.place";

/// `pools.journal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum JournalPlace {
    /// Each pool has its journal in its own directory.
    #[default]
    Pool,
    /// Small stable writes are synced with their files.
    Off,
    /// Each pool has a directory of its own below this one.
    Below(PathBuf),
}

impl JournalPlace {
    const POOL: &str = "pool";
    const OFF: &str = "off";

    pub(super) fn of(&self, pool: PoolId, pool_dir: &Path) -> Option<PathBuf> {
        match self {
            JournalPlace::Pool => Some(pool_dir.join(DIR)),
            JournalPlace::Off => None,
            JournalPlace::Below(path) => Some(path.join(pool.to_string())),
        }
    }
}

impl TryFrom<String> for JournalPlace {
    type Error = String;

    fn try_from(text: String) -> Result<JournalPlace, String> {
        match text.as_str() {
            JournalPlace::POOL => Ok(JournalPlace::Pool),
            JournalPlace::OFF => Ok(JournalPlace::Off),
            _ if Path::new(&text).is_absolute() => Ok(JournalPlace::Below(text.into())),
            _ => {
                Err(format!("`{text}` is neither \"pool\" nor \"off\" nor the absolute path of a directory"))
            }
        }
    }
}

impl From<JournalPlace> for String {
    fn from(place: JournalPlace) -> String {
        place.to_string()
    }
}

impl Display for JournalPlace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            JournalPlace::Pool => f.write_str(JournalPlace::POOL),
            JournalPlace::Off => f.write_str(JournalPlace::OFF),
            JournalPlace::Below(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Where a pool's records may lie, by what its directory says.
pub fn found(pool_dir: &Path) -> Result<Vec<PathBuf>, OpenError> {
    let mut found = Vec::new();
    let own = pool_dir.join(DIR);
    remove_remains(&own);
    if own.try_exists().map_err(|error| OpenError::io("look for", &own, error))? {
        found.push(own);
    }
    if let Some(elsewhere) = noted(pool_dir)? {
        remove_remains(&elsewhere);
        if !has_segments(&elsewhere) {
            return Err(OpenError::JournalMissing { place: elsewhere, note: pool_dir.join(NOTE) });
        }
        found.push(elsewhere);
    }
    Ok(found)
}

/// Whether both lead to one directory.
pub fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => one == other,
    }
}

fn noted(pool_dir: &Path) -> Result<Option<PathBuf>, OpenError> {
    let note = pool_dir.join(NOTE);
    match fs::read_to_string(&note) {
        Ok(text) if Path::new(text.trim_end()).is_absolute() => Ok(Some(text.trim_end().into())),
        Ok(_) => Err(OpenError::Damaged { path: note, reason: "it is no absolute path".to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(OpenError::io("read", &note, error)),
    }
}

/// A disk that is not mounted leaves an empty directory.
pub fn has_segments(place: &Path) -> bool {
    let Ok(entries) = fs::read_dir(place) else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().ends_with(".segment"))
}

/// Notes the place of a journal that takes records from now on; none, if that lies in the pool.
pub fn note(pool_dir: &Path, place: Option<&Path>) -> Result<(), OpenError> {
    let elsewhere = place.filter(|place| **place != pool_dir.join(DIR));
    if noted(pool_dir)?.as_deref() == elsewhere {
        return Ok(());
    }
    let note = pool_dir.join(NOTE);
    let written = match elsewhere {
        Some(place) => durable::replace(&note, format!("{}\n", place.display()).as_bytes()),
        None => fs::remove_file(&note).and_then(|()| durable::sync_directory_of(&note)),
    };
    written.map_err(|error| OpenError::io("write", &note, error))
}

/// Of a removal that did not come to its end. Not worth an error: nobody looks there.
pub fn remove_remains(place: &Path) {
    let old = place.with_extension("old");
    if let Err(error) = fs::remove_dir_all(&old)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::info!(path = %old.display(), %error, "remains of a write journal cannot be removed");
    }
}

/// Removes a journal whose records are void. In one step at first: some of its segments alone would bring old records.
pub fn remove(place: &Path) -> Result<(), OpenError> {
    let old = place.with_extension("old");
    let failed = |error| OpenError::io("remove", place, error);
    remove_remains(place);
    durable::rename(place, &old).map_err(failed)?;
    fs::remove_dir_all(&old).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_back_and_a_relative_path_is_refused() {
        for text in ["pool", "off", "/fast/journals"] {
            assert_eq!(JournalPlace::try_from(text.to_owned()).unwrap().to_string(), text);
        }
        assert!(JournalPlace::try_from("journals".to_owned()).is_err());
        assert!(JournalPlace::try_from(String::new()).is_err());
    }

    #[test]
    fn a_journal_that_lies_elsewhere_is_noted_and_missed() {
        let (dir, fast) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = JournalPlace::Below(fast.path().into()).of(PoolId(2), dir.path()).unwrap();
        assert_eq!(found(dir.path()).unwrap(), Vec::<PathBuf>::new());
        note(dir.path(), Some(&place)).unwrap();
        assert!(matches!(found(dir.path()), Err(OpenError::JournalMissing { .. })));
        fs::create_dir(&place).unwrap();
        assert!(
            matches!(found(dir.path()), Err(OpenError::JournalMissing { .. })),
            "its disk is not mounted"
        );
        fs::write(place.join("journal-000001.segment"), "").unwrap();
        assert_eq!(found(dir.path()).unwrap(), std::slice::from_ref(&place));
        remove(&place).unwrap();
        note(dir.path(), JournalPlace::Pool.of(PoolId(2), dir.path()).as_deref()).unwrap();
        assert_eq!(found(dir.path()).unwrap(), Vec::<PathBuf>::new());
    }
}
