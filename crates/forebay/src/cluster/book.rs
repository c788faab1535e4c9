//! `cluster.json` in the data directory: hosts that have joined as pools, and tokens, of which only hashes are kept. Beside
//! it the cluster's authority: its certificate, and its key, which is secret.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use cluster::trust::{Authority, Fingerprint};
use serde::{Deserialize, Serialize};
use types::PoolId;
use types::hex::Hex;

use crate::data_dir::{DataDir, complaint, write_durably};
use crate::versioned;

const NAME: &str = "cluster.json";
const CERTIFICATE: &str = "cluster-authority.pem";
const KEY: &str = "cluster-authority.key";
const VERSION: u32 = 1;
const REMEDY: &str = "restore it from a copy; without it no pool host is known";

/// Tokens that are valid at once.
const TOKENS_MAX: usize = 64;
/// Pools of other hosts.
const POOLS_MAX: usize = 1_024;

pub struct Book {
    path: PathBuf,
    document: Document,
}

#[derive(Clone, Serialize, Deserialize)]
struct Document {
    version: u32,
    #[serde(default)]
    tokens: Vec<KeptToken>,
    pools: Vec<KeptPool>,
    /// The longest lease that a start may have given: a pool may still have it.
    #[serde(default)]
    lease_s_max: u32,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeptToken {
    /// SHA-256 of its secret, hexadecimal.
    hash: String,
    expires_s: u64,
}

/// A pool of another host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptPool {
    pub number: u32,
    /// SHA-256 of the public key of the host, hexadecimal: who has another key is no member.
    pub key: String,
    /// As it called itself when it joined.
    pub host: String,
    pub joined_s: u64,
}

impl Book {
    /// `None`: the data directory is no cluster.
    pub fn open(data: &DataDir) -> Result<Option<Book>> {
        let path = data.path().join(NAME);
        let Some(document) = read(data.path())? else { return Ok(None) };
        if let Some(pool) = document.pools.iter().find(|pool| pool.number < data.pools) {
            bail!(
                "pool-{} is on host {}: this data directory can have {} pools of its own (--pools)",
                pool.number,
                pool.host,
                pool.number
            );
        }
        Ok(Some(Book { path, document }))
    }

    /// Of a directory that may be in use.
    pub fn pools_of(data: &Path) -> Result<Vec<KeptPool>> {
        let document = read(data)?;
        Ok(document.map(|document| document.pools).unwrap_or_default())
    }

    pub fn make(data: &DataDir) -> Result<Book> {
        let document = Document { version: VERSION, tokens: Vec::new(), pools: Vec::new(), lease_s_max: 0 };
        let book = Book { path: data.path().join(NAME), document };
        book.write(&book.document)?;
        Ok(book)
    }

    pub fn pools(&self) -> &[KeptPool] {
        &self.document.pools
    }

    /// Before leases of this length are given. Returns the longest that was ever. It is on disk when this returns. Blocks.
    pub fn note_lease(&mut self, lease_s: u32) -> Result<u32> {
        if lease_s > self.document.lease_s_max {
            self.change(|document| {
                document.lease_s_max = lease_s;
                Ok(())
            })?;
        }
        Ok(self.document.lease_s_max)
    }

    /// Whether a host with a token of this hash may join now.
    pub fn admits(&self, hash: &[u8; 32], now_s: u64) -> Result<(), String> {
        let hash = Hex(hash).to_string();
        match self.document.tokens.iter().find(|token| token.hash == hash) {
            None => Err("the token is not known here (make another: forebay cluster token)".to_owned()),
            Some(token) if token.expires_s <= now_s => {
                Err("the token has expired (make another: forebay cluster token)".to_owned())
            }
            Some(_) => Ok(()),
        }
    }

    /// It is on disk when this returns. Blocks.
    pub fn add_token(&mut self, hash: &[u8; 32], expires_s: u64, now_s: u64) -> Result<()> {
        self.change(|document| {
            document.tokens.retain(|token| token.expires_s > now_s);
            ensure!(
                document.tokens.len() < TOKENS_MAX,
                "{TOKENS_MAX} tokens are valid already: use one of them, or wait until one expires"
            );
            document.tokens.push(KeptToken { hash: Hex(hash).to_string(), expires_s });
            Ok(())
        })
    }

    /// The number of the pool of the host with this key; a host that joins again gets the one that it had. It is on disk
    /// when this returns. Blocks.
    pub fn add_pool(&mut self, own_pools: u32, key: Fingerprint, host: &str, now_s: u64) -> Result<PoolId> {
        let key = key.to_string();
        if let Some(known) = self.document.pools.iter().find(|pool| pool.key == key) {
            return Ok(PoolId(known.number));
        }
        let next = self.document.pools.iter().map(|pool| pool.number.saturating_add(1)).max();
        let number = next.unwrap_or(0).max(own_pools).max(1);
        self.change(|document| {
            ensure!(
                document.pools.len() < POOLS_MAX,
                "the cluster has {POOLS_MAX} pools of other hosts already"
            );
            document.pools.push(KeptPool { number, key, host: host.to_owned(), joined_s: now_s });
            Ok(())
        })?;
        Ok(PoolId(number))
    }

    /// A change that fails leaves all as it was.
    fn change(&mut self, make: impl FnOnce(&mut Document) -> Result<()>) -> Result<()> {
        let mut next = self.document.clone();
        make(&mut next)?;
        self.write(&next)?;
        self.document = next;
        Ok(())
    }

    fn write(&self, document: &Document) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(document)?;
        text.push(b'\n');
        write_durably(&self.path, &text)
    }
}

/// `None`: it is no cluster. One without its list would take files of hosts for lost, and give their numbers to others.
fn read(data: &Path) -> Result<Option<Document>> {
    let path = data.join(NAME);
    let document = versioned::read::<Document>(&path, VERSION, REMEDY)?;
    if document.is_none() && data.join(CERTIFICATE).exists() {
        bail!("{} is missing ({REMEDY})", path.display());
    }
    Ok(document)
}

/// The cluster's authority; a new one is made for a data directory without one. Blocks.
pub fn authority(data: &DataDir) -> Result<Authority> {
    let (certificate, key) = (data.path().join(CERTIFICATE), data.path().join(KEY));
    let read = |path: &Path| match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(complaint(path, "read", &error)),
    };
    match (read(&certificate)?, read(&key)?) {
        (Some(certificate_pem), Some(key_pem)) => {
            let unusable = || format!("{} and {}", certificate.display(), key.display());
            Authority::from_pem(&certificate_pem, &key_pem).with_context(unusable)
        }
        (None, None) | (None, Some(_)) if Book::pools_of(data.path())?.is_empty() => {
            let made = Authority::make(&data.instance)?;
            // The key first: a certificate without it would look like a lost key.
            write_durably(&key, made.key_pem().as_bytes())?;
            write_durably(&certificate, made.certificate_pem().as_bytes())?;
            Ok(made)
        }
        (kept, _) => {
            let missing = if kept.is_some() { &key } else { &certificate };
            bail!(
                "{} is missing; pool hosts trust this head by it. Restore it from a copy",
                missing.display()
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SystemRandom;

    const KEY_1: Fingerprint = Fingerprint([1; 32]);
    const KEY_2: Fingerprint = Fingerprint([2; 32]);

    #[test]
    fn a_token_admits_until_it_expires_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        assert!(Book::open(&data).unwrap().is_none());
        let mut book = Book::make(&data).unwrap();
        book.add_token(&[7; 32], 100, 50).unwrap();
        let book = Book::open(&data).unwrap().unwrap();
        assert_eq!(book.admits(&[7; 32], 99), Ok(()));
        assert!(book.admits(&[7; 32], 100).unwrap_err().contains("expired"));
        assert!(book.admits(&[8; 32], 50).unwrap_err().contains("not known"));
    }

    #[test]
    fn tokens_have_a_bound_and_expired_ones_leave_their_place() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        let mut book = Book::make(&data).unwrap();
        for number in 0..TOKENS_MAX {
            book.add_token(&[u8::try_from(number).unwrap(); 32], 100, 50).unwrap();
        }
        assert!(book.add_token(&[255; 32], 100, 50).is_err());
        book.add_token(&[255; 32], 200, 100).unwrap();
    }

    #[test]
    fn a_host_keeps_its_number_and_no_other_gets_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        let mut book = Book::make(&data).unwrap();
        assert_eq!(book.add_pool(1, KEY_1, "one", 50).unwrap(), PoolId(1));
        assert_eq!(book.add_pool(1, KEY_2, "two", 50).unwrap(), PoolId(2));
        let mut book = Book::open(&data).unwrap().unwrap();
        assert_eq!(book.add_pool(1, KEY_1, "one", 60).unwrap(), PoolId(1));
        assert_eq!(book.pools().len(), 2);
    }

    #[test]
    fn own_pools_do_not_take_the_number_of_a_host() {
        let dir = tempfile::tempdir().unwrap();
        {
            let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
            Book::make(&data).unwrap().add_pool(1, KEY_1, "one", 50).unwrap();
        }
        let data = DataDir::open(dir.path(), Some(2), &SystemRandom).unwrap();
        let refused = Book::open(&data).err().unwrap().to_string();
        assert!(refused.contains("pool-1 is on host one"), "{refused}");
    }

    #[test]
    fn a_cluster_without_its_list_of_hosts_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        Book::make(&data).unwrap();
        authority(&data).unwrap();
        std::fs::remove_file(dir.path().join(NAME)).unwrap();
        let refused = Book::open(&data).err().unwrap().to_string();
        assert!(refused.contains("cluster.json is missing"), "{refused}");
        assert!(Book::pools_of(dir.path()).is_err(), "a check would find every file lost");
    }

    #[test]
    fn an_authority_without_its_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), None, &SystemRandom).unwrap();
        let mut book = Book::make(&data).unwrap();
        let made = authority(&data).unwrap().fingerprint();
        assert_eq!(authority(&data).unwrap().fingerprint(), made);
        book.add_pool(1, KEY_1, "one", 50).unwrap();
        std::fs::remove_file(dir.path().join(KEY)).unwrap();
        let refused = authority(&data).err().unwrap().to_string();
        assert!(refused.contains("cluster-authority.key is missing"), "{refused}");
    }
}
