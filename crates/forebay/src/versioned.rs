//! Reading the small JSON documents of the data directory and the pools that say their version.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::data_dir::complaint;

/// Read before the rest, which a newer version may have changed.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// `None`: there is no such file. `remedy` is for one that is damaged. Blocks.
pub fn read<T: DeserializeOwned>(path: &Path, version_max: u32, remedy: &str) -> Result<Option<T>> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(complaint(path, "read", &error)),
    };
    let damaged = || format!("{} is damaged ({remedy})", path.display());
    let Version { version } = serde_json::from_slice(&text).with_context(damaged)?;
    if version > version_max {
        bail!("{} was written by a newer forebay: use that version", path.display());
    }
    serde_json::from_slice(&text).map(Some).with_context(damaged)
}
