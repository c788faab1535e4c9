//! `term.json` in the data directory: the term of the last start, and the lowest whose tickets to write are honoured. No
//! secret.
//!
//! The file keeps its length and is written over in place, so that neither a start nor the end of a grace period needs room
//! on a full disk.

use std::path::{Path, PathBuf};

use anyhow::Result;
use api::Term;
use serde::{Deserialize, Serialize};

use crate::data_dir::{DataDir, complaint};
use crate::versioned;

const NAME: &str = "term.json";
const VERSION: u32 = 1;
/// Within a sector, which a power cut leaves old or new.
const BYTES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Of the last start.
    pub term: Term,
    /// Pools refuse tickets to write of older terms.
    pub floor: Term,
}

const NONE: Terms = Terms { term: Term::UNCOUNTED, floor: Term::UNCOUNTED };

/// As this process knows them, also where the file is lost meanwhile.
pub struct TermStore {
    path: PathBuf,
    terms: Terms,
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    term: u64,
    floor: u64,
}

/// Makes the file for a data directory whose pools are about to be recorded: from then on a missing one is a lost one. Blocks.
pub fn prepare(data: &DataDir) -> Result<()> {
    let path = data.path().join(NAME);
    if load(&path)?.is_none() {
        TermStore { path, terms: NONE }.write(NONE)?;
    }
    Ok(())
}

impl TermStore {
    /// Begins a term that no other start has had. It is on disk when this returns. Blocks.
    pub fn begin(data: &DataDir) -> Result<TermStore> {
        let path = data.path().join(NAME);
        let before = match load(&path)? {
            Some(before) => before,
            None => {
                if data.is_recorded(0) {
                    tracing::warn!(
                        "{} is missing; tickets get the first term. This is correct after an upgrade from a version without \
                         this file. Otherwise stop the server and renew the keys of pool tickets twice (forebay keys renew)",
                        path.display()
                    );
                }
                NONE
            }
        };
        let terms = Terms { term: before.term.max(before.floor).next(), ..before };
        let store = TermStore { path, terms };
        store.write(terms)?;
        Ok(store)
    }

    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// It is on disk when this returns, also when it was there before: an earlier write may have failed at its end. Blocks.
    pub fn raise_floor(&mut self, floor: Term) -> Result<()> {
        let terms = Terms { floor: self.terms.floor.max(floor), ..self.terms };
        self.write(terms)?;
        self.terms = terms;
        Ok(())
    }

    fn write(&self, terms: Terms) -> Result<()> {
        let (Term(term), Term(floor)) = (terms.term, terms.floor);
        let text = serde_json::to_string(&Document { version: VERSION, term, floor })?;
        let text = format!("{text:<width$}\n", width = BYTES - 1);
        durable::overwrite(&self.path, text.as_bytes())
            .map_err(|error| complaint(&self.path, "write", &error))
    }
}

/// Whether it can be read; nothing is made.
pub fn check(data: &DataDir) -> Result<()> {
    load(&data.path().join(NAME)).map(drop)
}

fn load(path: &Path) -> Result<Option<Terms>> {
    let remedy =
        "remove it and renew the keys of pool tickets twice (forebay keys renew), before the server starts";
    let document = versioned::read(path, VERSION, remedy)?;
    Ok(document.map(|Document { term, floor, .. }| Terms { term: Term(term), floor: Term(floor) }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::SystemRandom;

    fn terms(term: u64, floor: u64) -> Terms {
        Terms { term: Term(term), floor: Term(floor) }
    }

    #[test]
    fn each_start_has_a_term_of_its_own_and_the_floor_stays() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        prepare(&data).unwrap();
        assert_eq!(TermStore::begin(&data).unwrap().terms(), terms(1, 0));
        prepare(&data).unwrap();
        let mut store = TermStore::begin(&data).unwrap();
        assert_eq!(store.terms(), terms(2, 0));
        store.raise_floor(Term(2)).unwrap();
        store.raise_floor(Term(1)).unwrap();
        assert_eq!(store.terms(), terms(2, 2));
        // Lost while the process runs.
        fs::remove_file(dir.path().join(NAME)).unwrap();
        store.raise_floor(Term(2)).unwrap();
        assert_eq!(TermStore::begin(&data).unwrap().terms(), terms(3, 2));
    }

    /// A file that is written in place must not keep the end of something longer.
    #[test]
    fn the_file_keeps_its_length_and_is_the_same_file() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        let look = || fs::metadata(dir.path().join(NAME)).map(|facts| (facts.len(), facts.ino())).unwrap();
        let mut store = TermStore::begin(&data).unwrap();
        let first = look();
        assert_eq!(first.0, BYTES as u64);
        store.raise_floor(Term(u64::MAX)).unwrap();
        assert_eq!(look(), first);
        store.raise_floor(Term(7)).unwrap();
        assert_eq!(
            TermStore::begin(&data).unwrap().terms(),
            terms(u64::MAX, u64::MAX),
            "there is no later one"
        );
    }

    #[test]
    fn a_damaged_or_newer_file_is_told_of_and_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        for (text, why) in
            [("{", "term.json is damaged"), (r#"{"version": 2, "terms": []}"#, "newer forebay")]
        {
            fs::write(dir.path().join(NAME), text).unwrap();
            let refused = TermStore::begin(&data).err().unwrap().to_string();
            assert_eq!(check(&data).unwrap_err().to_string(), refused);
            assert!(refused.contains(why), "{refused}");
            assert_eq!(fs::read_to_string(dir.path().join(NAME)).unwrap(), text);
        }
    }
}
