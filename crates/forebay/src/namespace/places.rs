//! Where a namespace is, as people write it.

use std::path::Path;

use ::namespace::bulk::NamespaceLocation;
use anyhow::{Context, Result, bail};

use super::location::parse;
use crate::config::Config;
use crate::data_dir::DataDir;
use crate::data_dir::SQLITE;
use crate::pool_host::refuse_pool_host;
use crate::system::SystemRandom;

/// One end of a copy.
pub struct End {
    pub place: NamespaceLocation,
    /// Held with its lock, where it is a data directory.
    pub data: Option<DataDir>,
}

/// A data directory is for the namespace in its own SQLite.
pub fn open(text: &str) -> Result<End> {
    if let Some(place) = parse(text) {
        return Ok(End { place, data: None });
    }
    let data = open_data(Path::new(text))?;
    Ok(End { place: NamespaceLocation::Sqlite(data.namespace()), data: Some(data) })
}

/// Of no running head.
pub fn open_data(path: &Path) -> Result<DataDir> {
    refuse_pool_host(path)?;
    if !path.join("instance.json").exists() {
        bail!(
            "{} is no Forebay data directory; give a data directory, sqlite:DIR or postgres://user@host/database",
            path.display()
        );
    }
    DataDir::open_existing(path, &SystemRandom)
        .context("the instance must be stopped (`forebay namespace backup` also works on a running one)")
}

/// Where the namespace of a data directory is that may be in use; and whose it is.
pub fn of_data(config: &Config) -> Result<(NamespaceLocation, [u8; 16])> {
    let instance = DataDir::instance_of(&config.data)?;
    if config.namespace.database != SQLITE {
        return Ok((NamespaceLocation::Postgres(config.namespace.database.clone()), instance));
    }
    if let Some(noted) = DataDir::noted_database_of(&config.data)? {
        bail!(
            "the namespace of {} is in {noted}: give its URL, or a file that has it as namespace.database (--config)",
            config.data.display()
        );
    }
    Ok((NamespaceLocation::Sqlite(DataDir::namespace_of(&config.data)), instance))
}
