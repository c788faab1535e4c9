//! The files of the cluster's authorities in the data directory: that of the keys of now, and during a rotation the former one.
//! `cluster.json` says which generation is which (`book`), so a file of another one is left over and counts for nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use cluster::trust::Authority;

use super::book::{Book, KeptKeys};
use crate::data_dir::{DataDir, complaint, write_durably};

const PREFIX: &str = "cluster-authority";

/// The authorities whose certificates are accepted. The keys are secret.
#[derive(Clone)]
pub struct Authorities {
    pub now: Arc<Authority>,
    pub former: Option<Arc<Authority>>,
}

/// Whether there is any: the directory is a cluster.
pub fn exist(data: &Path) -> Result<bool> {
    let entries = match std::fs::read_dir(data) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(complaint(data, "read", &error)),
    };
    let is_one = |name: &str| name.starts_with(PREFIX) && name.ends_with(".pem");
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.any(|name| is_one(&name)))
}

/// Those of the generations that are accepted; for a data directory without any a first one is made. Files of other
/// generations are removed. Blocks.
pub fn open(data: &DataDir, keys: KeptKeys) -> Result<Authorities> {
    let now = match of_generation(data, keys.generation)? {
        Some(authority) => authority,
        None => make(data, keys.generation)?,
    };
    let former = keys.generation.checked_sub(1).filter(|_| keys.has_former);
    let of_former = |generation| {
        let found = of_generation(data, generation)?;
        found.with_context(|| missing(&paths(data.path(), generation).0))
    };
    let former = former.map(of_former).transpose()?;
    // The one before that may be there after a crash.
    for former in (1..=2).filter_map(|back| keys.generation.checked_sub(back)) {
        if !(keys.has_former && former + 1 == keys.generation) {
            forget(data.path(), former);
        }
    }
    Ok(Authorities { now: Arc::new(now), former: former.map(Arc::new) })
}

/// A new one of this generation, on disk when this returns. Blocks.
pub fn make(data: &DataDir, generation: u32) -> Result<Authority> {
    make_at(data.path(), &data.instance, generation)
}

/// As [`make`], in a directory that is in use by this process.
pub fn make_at(data: &Path, cluster: &[u8; 16], generation: u32) -> Result<Authority> {
    let (certificate, key) = paths(data, generation);
    let made = Authority::make(cluster)?;
    // The key first: a certificate without it would look like a lost key.
    write_durably(&key, made.key_pem().as_bytes())?;
    write_durably(&certificate, made.certificate_pem().as_bytes())?;
    Ok(made)
}

/// Removes the files of an authority that nobody trusts any more.
pub fn forget(data: &Path, generation: u32) {
    let (certificate, key) = paths(data, generation);
    for path in [key, certificate] {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(file = %path.display(), %error, "cannot remove a former key of the cluster: remove it");
            }
            _ => {}
        }
    }
}

/// Of the certificate and the key.
fn paths(data: &Path, generation: u32) -> (PathBuf, PathBuf) {
    let number = if generation == 0 { String::new() } else { format!("-{generation}") };
    let path = |ending| data.join(format!("{PREFIX}{number}.{ending}"));
    (path("pem"), path("key"))
}

/// `None`: there is none, and the directory needs none yet.
fn of_generation(data: &DataDir, generation: u32) -> Result<Option<Authority>> {
    let (certificate, key) = paths(data.path(), generation);
    let read = |path: &Path| match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(complaint(path, "read", &error)),
    };
    match (read(&certificate)?, read(&key)?) {
        (Some(certificate_pem), Some(key_pem)) => {
            let unusable = || format!("{} and {}", certificate.display(), key.display());
            Authority::from_pem(&certificate_pem, &key_pem).with_context(unusable).map(Some)
        }
        (None, _) if generation == 0 && Book::pools_of(data.path())?.is_empty() => Ok(None),
        (kept, _) => bail!(missing(if kept.is_some() { &key } else { &certificate })),
    }
}

fn missing(path: &Path) -> String {
    format!("{} is missing; pool hosts trust this head by it. Restore it from a copy", path.display())
}

#[cfg(test)]
mod tests {
    //! Lost files, and crashes within a rotation.

    use cluster::trust::Fingerprint;

    use super::*;
    use crate::cluster::book::Newcomer;
    use crate::system::SystemRandom;

    #[test]
    fn an_authority_without_its_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        let mut book = Book::make(&data, 1).unwrap();
        let made = open(&data, book.keys()).unwrap().now.fingerprint();
        assert_eq!(open(&data, book.keys()).unwrap().now.fingerprint(), made);
        book.add_token(&[7; 32], None, 100, 50).unwrap();
        let newcomer = Newcomer { key: Fingerprint([1; 32]), host: "one", pool: None };
        book.join(&[7; 32], &newcomer, 1, 50).unwrap();
        std::fs::remove_file(dir.path().join("cluster-authority.key")).unwrap();
        let refused = open(&data, book.keys()).err().unwrap().to_string();
        assert!(refused.contains("cluster-authority.key is missing"), "{refused}");
    }

    /// Between the files of the new authority and the list that names it, and between that and the removal of the old files.
    #[test]
    fn a_crash_within_a_rotation_leaves_the_authority_of_before_or_both() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        let mut book = Book::make(&data, 1).unwrap();
        let first = open(&data, book.keys()).unwrap().now.fingerprint();
        let unnamed = make(&data, 1).unwrap().fingerprint();
        let kept = open(&data, book.keys()).unwrap();
        assert_eq!((kept.now.fingerprint(), kept.former.is_none()), (first, true));
        // The next attempt makes another one.
        let second = make(&data, 1).unwrap().fingerprint();
        assert_ne!(second, unnamed);
        book.rotate(2).unwrap();
        let kept = open(&data, book.keys()).unwrap();
        assert_eq!((kept.now.fingerprint(), kept.former.unwrap().fingerprint()), (second, first));
        book.end_overlap().unwrap();
        assert!(dir.path().join("cluster-authority.key").exists(), "as after a crash");
        let kept = open(&data, Book::open(&data).unwrap().unwrap().keys()).unwrap();
        assert_eq!((kept.now.fingerprint(), kept.former.is_none()), (second, true));
        assert!(!dir.path().join("cluster-authority.key").exists());
        assert!(dir.path().join("cluster-authority-1.key").exists());
    }
}
