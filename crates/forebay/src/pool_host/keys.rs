//! The keys of a pool host on its disk: those in use, and during a rotation the next ones.
//!
//! Each set has files of its own, by a number. `member.json` says which set is in use and which is next, so a change is one
//! write of it: a crash before leaves files that count for nothing, and one behind it leaves files that are of no more use.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cluster::{KeySet, KeyStore};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::dir::{Document, read_key};
use crate::data_dir::{complaint, write_durably};

/// A set of keys, as `member.json` names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSet {
    /// In the names of its files.
    set: u32,
    /// Of the keys of the cluster.
    generation: u32,
}

impl KeptSet {
    /// One whose files are none of these.
    pub fn behind(others: impl IntoIterator<Item = KeptSet>) -> KeptSet {
        let set = others.into_iter().map(|other| other.set.saturating_add(1)).max().unwrap_or(0);
        KeptSet { set, generation: 0 }
    }

    pub fn read(self, dir: &Path) -> Result<KeySet> {
        let [key, certificate, authority] = self.files(dir);
        let missing = || format!("{} is missing", key.display());
        let read = |file: &Path| fs::read_to_string(file).map_err(|error| complaint(file, "read", &error));
        Ok(KeySet {
            generation: self.generation,
            key: read_key(&key)?.with_context(missing)?,
            certificate: read(&certificate)?,
            authority: read(&authority)?,
        })
    }

    /// As `member.json` is to name it. They are on disk when this returns. Blocks.
    pub fn write(self, dir: &Path, keys: &KeySet) -> Result<KeptSet> {
        let [key, certificate, authority] = self.files(dir);
        write_durably(&key, keys.key.pem().as_bytes())?;
        write_durably(&certificate, keys.certificate.as_bytes())?;
        write_durably(&authority, keys.authority.as_bytes())?;
        Ok(KeptSet { generation: keys.generation, ..self })
    }

    /// Removes the files of keys that nobody accepts.
    pub fn forget(self, dir: &Path) {
        for file in self.files(dir) {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::warn!(file = %file.display(), %error, "cannot remove a former key: remove it");
                }
                _ => {}
            }
        }
    }

    /// The key, its certificate, and that of the authority.
    fn files(self, dir: &Path) -> [PathBuf; 3] {
        let number = if self.set == 0 { String::new() } else { format!("-{}", self.set) };
        [("member", "key"), ("member", "pem"), ("authority", "pem")]
            .map(|(name, ending)| dir.join(format!("{name}{number}.{ending}")))
    }
}

/// Replaces the keys while the host runs.
pub struct HostKeys {
    dir: PathBuf,
    /// As it is on the disk. Held while it is written.
    document: Mutex<Document>,
}

impl HostKeys {
    pub fn new(dir: &Path, document: Document) -> HostKeys {
        HostKeys { dir: dir.to_owned(), document: Mutex::new(document) }
    }

    fn keep(&self, next: &KeySet) -> Result<()> {
        let mut kept = self.document.lock();
        // The next ones of before may be in use already, if that could not be noted.
        let replaced = kept.next_keys;
        let set = KeptSet::behind(std::iter::once(kept.keys).chain(replaced)).write(&self.dir, next)?;
        let document = Document { next_keys: Some(set), ..kept.clone() };
        document.write(&self.dir)?;
        *kept = document;
        replaced.into_iter().for_each(|replaced| replaced.forget(&self.dir));
        Ok(())
    }

    fn adopt(&self) -> Result<()> {
        let mut kept = self.document.lock();
        let Some(next) = kept.next_keys else { return Ok(()) };
        let former = kept.keys;
        let document = Document { keys: next, next_keys: None, ..kept.clone() };
        document.write(&self.dir)?;
        *kept = document;
        former.forget(&self.dir);
        Ok(())
    }
}

impl KeyStore for HostKeys {
    fn keep_next(&self, next: &KeySet) -> Result<(), String> {
        self.keep(next).map_err(|error| format!("{error:#}"))
    }

    fn adopt_next(&self) -> Result<(), String> {
        self.adopt().map_err(|error| format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    //! Crashes at each point of a rotation.

    use cluster::Membership;
    use cluster::trust::{Authority, Fingerprint, Member, MemberKey, Token};
    use types::PoolId;

    use super::super::dir::PoolHostDir;
    use super::*;

    const POOL: PoolId = PoolId(2);

    fn key_set(generation: u32) -> KeySet {
        let (key, authority) = (MemberKey::make().unwrap(), Authority::make(&[7; 16]).unwrap());
        let certificate = authority.issue(Member::Pool(POOL), &key.public_key()).unwrap();
        KeySet { generation, key, certificate, authority: authority.certificate_pem().to_owned() }
    }

    fn joined(path: &Path) -> (PoolHostDir, Fingerprint) {
        let dir = PoolHostDir::open(path).unwrap();
        let KeySet { key, certificate, authority, .. } = key_set(0);
        let of_authority = Fingerprint::of_pem(&authority).unwrap();
        let token = Token::make(vec!["192.0.2.1:7413".to_owned()], of_authority, None).unwrap();
        let membership = Membership { cluster: [7; 16], pool: POOL, certificate, authority, generation: 0 };
        let first = key.fingerprint();
        dir.record(&membership, key, &token).unwrap();
        (dir, first)
    }

    fn read(dir: &PoolHostDir) -> (Fingerprint, Option<Fingerprint>) {
        let member = dir.member().unwrap().unwrap();
        (member.keys.key.fingerprint(), member.next_keys.map(|next| next.key.fingerprint()))
    }

    fn keys_on_disk(path: &Path) -> usize {
        let names =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".key")).count()
    }

    #[test]
    fn a_host_keeps_its_keys_until_the_next_ones_are_adopted() {
        let place = tempfile::tempdir().unwrap();
        let (dir, first) = joined(place.path());
        let store = dir.host_keys(&dir.member().unwrap().unwrap());
        let (second, third) = (key_set(1), key_set(1));
        store.keep_next(&second).unwrap();
        assert_eq!(read(&dir), (first, Some(second.key.fingerprint())));
        // The answer of the head was lost: it has certified another one since.
        store.keep_next(&third).unwrap();
        assert_eq!(read(&dir), (first, Some(third.key.fingerprint())));
        assert_eq!(keys_on_disk(place.path()), 2);
        store.adopt_next().unwrap();
        assert_eq!(read(&dir), (third.key.fingerprint(), None));
        assert_eq!(keys_on_disk(place.path()), 1);
    }

    /// The files come first and count for nothing; then one write makes them the next keys.
    #[test]
    fn a_crash_while_keys_are_written_leaves_those_of_before() {
        let place = tempfile::tempdir().unwrap();
        let (dir, first) = joined(place.path());
        let kept = dir.member().unwrap().unwrap();
        let torn = KeptSet::behind([KeptSet::default()]);
        torn.write(place.path(), &key_set(1)).unwrap();
        assert_eq!(read(&dir), (first, None));
        // The next attempt overwrites them.
        let (store, second) = (dir.host_keys(&kept), key_set(1));
        store.keep_next(&second).unwrap();
        assert_eq!(read(&dir), (first, Some(second.key.fingerprint())));
        // A file of the next keys is lost: those of now may do.
        fs::remove_file(place.path().join("member-1.pem")).unwrap();
        assert_eq!(read(&dir), (first, None));
    }

    #[test]
    fn next_keys_that_may_be_in_use_are_not_overwritten_before_others_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let (dir, _) = joined(place.path());
        let store = dir.host_keys(&dir.member().unwrap().unwrap());
        let second = key_set(1);
        store.keep_next(&second).unwrap();
        let before = fs::read(place.path().join("member-1.key")).unwrap();
        // Of a disk that is full when the list is to be replaced.
        fs::create_dir(place.path().join("member.json.new")).unwrap();
        store.keep_next(&key_set(2)).unwrap_err();
        assert_eq!(fs::read(place.path().join("member-1.key")).unwrap(), before);
        fs::remove_dir(place.path().join("member.json.new")).unwrap();
        assert_eq!(read(&dir).1, Some(second.key.fingerprint()));
    }
}
