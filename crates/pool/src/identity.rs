//! `pool.json`: which pool of which instance a directory is.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use types::PoolId;

use crate::error::OpenError;
use crate::label;

pub const FILE_NAME: &str = "pool.json";
pub const NEW_FILE_NAME: &str = "pool.json.new";
/// 2: labels say how long a replica is known to be. 3: and when its file was made. 4: a write journal has what the files do
/// not have yet.
pub const VERSION: u64 = 4;
const FILE_BYTES_MAX: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub pool: PoolId,
    pub instance: [u8; 16],
}

#[derive(Serialize, Deserialize)]
struct Document {
    format: String,
    version: u64,
    instance: String,
    pool: u32,
}

/// Read before the rest, which a newer version may have changed.
#[derive(Deserialize)]
struct Version {
    version: u64,
}

const FORMAT: &str = "forebay-pool";

impl Identity {
    /// `None`: the directory has no identity yet.
    pub fn read(dir: &Path) -> Result<Option<Identity>, OpenError> {
        Ok(Identity::read_versioned(dir)?.map(|(identity, _)| identity))
    }

    /// With the version of the pool.
    pub fn read_versioned(dir: &Path) -> Result<Option<(Identity, u64)>, OpenError> {
        let path = dir.join(FILE_NAME);
        let failed = |error| OpenError::io("read", &path, error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut text = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
        let damaged = |reason: String| OpenError::Damaged { path: path.clone(), reason };
        let Version { version } =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if version > VERSION {
            return Err(OpenError::NewerVersion { dir: dir.to_owned(), found: version, known: VERSION });
        }
        let document: Document = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if document.format != FORMAT {
            return Err(damaged(format!("its format is not `{FORMAT}`")));
        }
        let instance = label::parse_instance(&document.instance)
            .ok_or_else(|| damaged("`instance` is not 32 hexadecimal digits".to_owned()))?;
        Ok(Some((Identity { pool: PoolId(document.pool), instance }, version)))
    }

    /// Durable when it returns; a crash leaves the whole file or none.
    pub fn write(&self, dir: &Path) -> Result<(), OpenError> {
        let (new, path) = (dir.join(NEW_FILE_NAME), dir.join(FILE_NAME));
        let document = Document {
            format: FORMAT.to_owned(),
            version: VERSION,
            instance: label::instance_text(&self.instance),
            pool: self.pool.0,
        };
        let mut text =
            serde_json::to_vec_pretty(&document).expect("a document of strings and numbers is always JSON");
        text.push(b'\n');
        let written = fs::write(&new, &text).and_then(|()| durable::rename(&new, &path));
        written.map_err(|error| OpenError::io("write", &path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Identity::read(dir.path()).unwrap(), None);
        let identity = Identity { pool: PoolId(7), instance: [0xab; 16] };
        identity.write(dir.path()).unwrap();
        assert_eq!(Identity::read(dir.path()).unwrap(), Some(identity));
    }

    #[test]
    fn a_newer_version_is_refused_before_anything_else_is_read() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(FILE_NAME), r#"{"version": 5, "pool": ["new"]}"#).unwrap();
        let error = Identity::read(dir.path()).unwrap_err();
        assert!(matches!(error, OpenError::NewerVersion { found: 5, known: 4, .. }), "{error}");
    }

    #[test]
    fn garbage_is_an_error_and_not_a_new_pool() {
        let dir = tempfile::tempdir().unwrap();
        for text in
            ["", "{", "[]", r#"{"version":1}"#, r#"{"version":1,"format":"x","instance":"","pool":1}"#]
        {
            fs::write(dir.path().join(FILE_NAME), text).unwrap();
            assert!(matches!(Identity::read(dir.path()), Err(OpenError::Damaged { .. })), "{text}");
        }
    }
}
