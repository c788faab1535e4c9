//! `keys.json` in the data directory: the generation of keys that tickets are sealed with, and its time. No secret.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use api::KeyGeneration;
use serde::{Deserialize, Serialize};

use crate::data_dir::{DataDir, complaint};
use crate::versioned;

const NAME: &str = "keys.json";
const VERSION: u32 = 1;

pub struct KeyStore {
    path: PathBuf,
    /// An earlier start has recorded pools, and has written the file before.
    is_expected: bool,
    /// The generation that this process began to write last. It may be there also if the write failed.
    begun: Option<KeyGeneration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    pub generation: KeyGeneration,
    /// Since 1970.
    pub renewed_s: u64,
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    generation: u32,
    renewed_s: u64,
}

impl KeyStore {
    pub fn of(data: &DataDir) -> KeyStore {
        KeyStore { path: data.path().join(NAME), is_expected: data.is_recorded(0), begun: None }
    }

    /// An instance without the file has the first generation, as of now.
    pub fn load_or_begin(&self, now_s: u64) -> Result<Renewal> {
        if let Some(renewal) = self.load()? {
            return Ok(renewal);
        }
        if self.is_expected {
            tracing::warn!(
                "{} is missing; pool tickets get the first generation of keys. This is correct after an upgrade from a version \
                 without this file. Otherwise stop the server and restore the file from a copy",
                self.path.display()
            );
        }
        let first = Renewal { generation: KeyGeneration::FIRST, renewed_s: now_s };
        self.write(first)?;
        Ok(first)
    }

    /// It is on disk when this returns. Blocks.
    pub fn store(&mut self, renewal: Renewal) -> Result<()> {
        let stored = self.load()?.map(|stored| stored.generation);
        ensure!(
            stored < Some(renewal.generation) || stored == self.begun,
            "{} was changed by another program: restart forebay, then renew the keys",
            self.path.display()
        );
        self.begun = Some(renewal.generation);
        self.write(renewal)
    }

    pub fn load(&self) -> Result<Option<Renewal>> {
        let document = versioned::read(&self.path, VERSION, "restore it from a copy")?;
        Ok(document.map(|Document { generation, renewed_s, .. }| Renewal {
            generation: KeyGeneration(generation),
            renewed_s,
        }))
    }

    fn write(&self, renewal: Renewal) -> Result<()> {
        let Renewal { generation: KeyGeneration(generation), renewed_s } = renewal;
        let mut text = serde_json::to_vec_pretty(&Document { version: VERSION, generation, renewed_s })?;
        text.push(b'\n');
        durable::replace(&self.path, &text).map_err(|error| complaint(&self.path, "write", &error))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::SystemRandom;

    fn renewal(generation: u32, renewed_s: u64) -> Renewal {
        Renewal { generation: KeyGeneration(generation), renewed_s }
    }

    #[test]
    fn a_generation_is_stored_and_none_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        let mut store = KeyStore::of(&data);
        assert_eq!(store.load_or_begin(100).unwrap(), renewal(0, 100));
        assert_eq!(store.load_or_begin(200).unwrap(), renewal(0, 100), "the first start counts");
        store.store(renewal(2, 300)).unwrap();
        for generation in 0..=2 {
            // Twice: a refusal is not the beginning of a write.
            let mut other = KeyStore::of(&data);
            assert!(
                [other.store(renewal(generation, 400)), other.store(renewal(generation, 400))]
                    .iter()
                    .all(Result::is_err)
            );
        }
        assert_eq!(store.load_or_begin(500).unwrap(), renewal(2, 300));
    }

    /// A start with the first generation would seal with keys that were replaced.
    #[test]
    fn a_damaged_or_newer_file_is_told_of_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let store = KeyStore::of(&DataDir::open(dir.path(), None, &SystemRandom).unwrap());
        for (text, why) in [("{", "keys.json is damaged"), (r#"{"version": 2}"#, "newer forebay")] {
            fs::write(dir.path().join(NAME), text).unwrap();
            let refused = store.load_or_begin(1).unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
            assert_eq!(fs::read_to_string(dir.path().join(NAME)).unwrap(), text);
        }
    }
}
