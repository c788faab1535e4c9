//! `cluster.json` in the data directory: hosts that have joined as pools, with the keys by which they are known, and tokens, of
//! which only hashes are kept. The authorities that have certified the keys are beside it (`authorities`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use cluster::trust::Fingerprint;
use serde::{Deserialize, Serialize};
use types::PoolId;
use types::hex::Hex;

use super::authorities;
use crate::data_dir::{DataDir, write_durably};
use crate::versioned;

const NAME: &str = "cluster.json";
const VERSION: u32 = 2;
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
    #[serde(default)]
    keys: KeptKeys,
    /// Numbers below it were given to pools, some of which are not on the list any more.
    #[serde(default)]
    next_number: u32,
}

/// The keys of the cluster: that of the authority, and those of its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptKeys {
    pub generation: u32,
    /// Since 1970. `None`: it was made by a version that did not note it.
    pub since_s: Option<u64>,
    /// Keys of the generation before are accepted too.
    pub has_former: bool,
}

#[derive(Clone, Serialize, Deserialize)]
struct KeptToken {
    /// SHA-256 of its secret, hexadecimal.
    hash: String,
    expires_s: u64,
    /// Of the authority that it names.
    #[serde(default)]
    generation: u32,
    /// For the host of this pool only, which joins again by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pool: Option<u32>,
    /// The key of the host that has joined by it. That of a pool is used once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    used_by: Option<String>,
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
    /// Of its key.
    #[serde(default)]
    pub generation: u32,
    /// A key that was certified, and that the host has not shown yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextKey>,
    /// None of its keys is accepted. Since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shut_out_s: Option<u64>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NextKey {
    pub key: String,
    pub generation: u32,
}

/// How the keys of a pool stand to those of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStanding {
    Current,
    /// Its keys are of the generation before, which are accepted until it has taken the new ones.
    Former,
    /// Its keys are accepted no more: it missed a rotation whose overlap is over.
    LeftBehind,
    ShutOut,
}

impl KeptPool {
    pub fn standing(&self, keys: KeptKeys) -> KeyStanding {
        match self.generation {
            _ if self.shut_out_s.is_some() => KeyStanding::ShutOut,
            own if own == keys.generation => KeyStanding::Current,
            own if keys.has_former && own.checked_add(1) == Some(keys.generation) => KeyStanding::Former,
            _ => KeyStanding::LeftBehind,
        }
    }

    /// Fingerprints of keys that open the head.
    pub fn accepted(&self, keys: KeptKeys) -> Vec<&str> {
        let next = self.next.iter().filter(|next| next.generation == keys.generation);
        let next = next.map(|next| next.key.as_str());
        match self.standing(keys) {
            KeyStanding::ShutOut => Vec::new(),
            KeyStanding::LeftBehind => next.collect(),
            KeyStanding::Current | KeyStanding::Former => next.chain([self.key.as_str()]).collect(),
        }
    }

    fn has(&self, key: &str) -> bool {
        self.key == key || self.next.as_ref().is_some_and(|next| next.key == key)
    }
}

/// A host that joins: its key, as it calls itself, and the pool that it has already.
pub struct Newcomer<'a> {
    pub key: Fingerprint,
    pub host: &'a str,
    pub pool: Option<u32>,
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

    pub fn make(data: &DataDir, now_s: u64) -> Result<Book> {
        let keys = KeptKeys { since_s: Some(now_s), ..KeptKeys::default() };
        let (tokens, pools) = (Vec::new(), Vec::new());
        let document = Document { version: VERSION, tokens, pools, lease_s_max: 0, keys, next_number: 0 };
        let book = Book { path: data.path().join(NAME), document };
        book.write(&book.document)?;
        Ok(book)
    }

    pub fn pools(&self) -> &[KeptPool] {
        &self.document.pools
    }

    pub fn keys(&self) -> KeptKeys {
        self.document.keys
    }

    /// Pools that are waited for before the former keys are forgotten.
    pub fn lagging(&self) -> impl Iterator<Item = PoolId> {
        let keys = self.keys();
        let lag = move |pool: &&KeptPool| pool.standing(keys) == KeyStanding::Former;
        self.document.pools.iter().filter(lag).map(|pool| PoolId(pool.number))
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

    /// It is on disk when this returns. Blocks.
    pub fn add_token(
        &mut self,
        hash: &[u8; 32],
        pool: Option<PoolId>,
        expires_s: u64,
        now_s: u64,
    ) -> Result<()> {
        self.change(|document| {
            document.tokens.retain(|token| token.expires_s > now_s);
            ensure!(
                document.tokens.len() < TOKENS_MAX,
                "{TOKENS_MAX} tokens are valid already: use one of them, or wait until one expires"
            );
            document.tokens.push(KeptToken {
                hash: Hex(hash).to_string(),
                expires_s,
                generation: document.keys.generation,
                pool: pool.map(|pool| pool.0),
                used_by: None,
            });
            Ok(())
        })
    }

    /// The number of the pool of a host that has the secret of this hash. A host that joins again gets the one that it had. It
    /// is on disk when this returns. Blocks.
    pub fn join(
        &mut self,
        hash: &[u8; 32],
        newcomer: &Newcomer<'_>,
        own_pools: u32,
        now_s: u64,
    ) -> Result<PoolId> {
        let hash = Hex(hash).to_string();
        match self.document.tokens.iter().find(|token| token.hash == hash) {
            None => bail!("the token is not known here (make another: forebay cluster token)"),
            Some(token) if token.expires_s <= now_s => {
                bail!("the token has expired (make another: forebay cluster token)")
            }
            Some(KeptToken { pool: Some(pool), .. }) => self.readmit(*pool, &hash, newcomer, now_s),
            Some(_) => match newcomer.pool {
                Some(pool) => bail!(
                    "the token is for new pools, and this host has pool-{pool} (on the head: forebay cluster readmit pool-{pool})"
                ),
                None => self.add_pool(newcomer, own_pools, now_s),
            },
        }
    }

    fn add_pool(&mut self, newcomer: &Newcomer<'_>, own_pools: u32, now_s: u64) -> Result<PoolId> {
        let key = newcomer.key.to_string();
        if let Some(known) = self.document.pools.iter().position(|pool| pool.key == key) {
            let pool = &self.document.pools[known];
            let number = pool.number;
            let advice = format!("forebay cluster readmit pool-{number}");
            ensure!(pool.shut_out_s.is_none(), "its pool-{number} was shut out (on the head: {advice})");
            // Its key may have been replaced because somebody else has it.
            let is_left_behind = pool.standing(self.keys()) == KeyStanding::LeftBehind;
            ensure!(!is_left_behind, "the key of its pool-{number} is out of use (on the head: {advice})");
            if pool.generation != self.keys().generation {
                // It gets a certificate of the authority of now.
                self.change(|document| {
                    document.pools[known].generation = document.keys.generation;
                    Ok(())
                })?;
            }
            return Ok(PoolId(number));
        }
        let document = &self.document;
        let next = document.pools.iter().map(|pool| pool.number.saturating_add(1)).max();
        let number = next.unwrap_or(0).max(document.next_number).max(own_pools).max(1);
        self.require_new(&key)?;
        self.change(|document| {
            ensure!(
                document.pools.len() < POOLS_MAX,
                "the cluster has {POOLS_MAX} pools of other hosts already"
            );
            document.pools.push(KeptPool {
                number,
                key,
                host: newcomer.host.to_owned(),
                joined_s: now_s,
                generation: document.keys.generation,
                next: None,
                shut_out_s: None,
            });
            document.next_number = number.saturating_add(1);
            Ok(())
        })?;
        Ok(PoolId(number))
    }

    /// The host of a pool joins again with another key, and its former keys are forgotten.
    fn readmit(&mut self, pool: u32, hash: &str, newcomer: &Newcomer<'_>, now_s: u64) -> Result<PoolId> {
        ensure!(
            newcomer.pool == Some(pool),
            "the token is for the host of pool-{pool}, and its data directory has another pool or none (--data)"
        );
        let key = newcomer.key.to_string();
        let token = self.document.tokens.iter().find(|token| token.hash == hash);
        match token.and_then(|token| token.used_by.as_deref()) {
            // Its answer was lost.
            Some(used_by) if used_by == key && self.pool(pool)?.key == key => return Ok(PoolId(pool)),
            Some(_) => bail!("the token was used already (on the head: forebay cluster readmit pool-{pool})"),
            None => {}
        }
        // The answer to an earlier token was lost: it is the host of the pool already.
        let known = self.pool(pool)?;
        let is_its_host = known.key == key && known.shut_out_s.is_none();
        if !is_its_host {
            self.require_new(&key)?;
        }
        self.change(|document| {
            let generation = document.keys.generation;
            let kept = of_number(&mut document.pools, pool)?;
            let host = newcomer.host.to_owned();
            *kept = KeptPool {
                number: pool,
                key: key.clone(),
                host,
                joined_s: now_s,
                generation,
                next: None,
                shut_out_s: None,
            };
            // Another one that was made for this pool is of no use any more.
            document.tokens.retain(|token| token.pool != Some(pool) || token.hash == hash);
            let token = document.tokens.iter_mut().find(|token| token.hash == hash);
            token.context("the token is gone")?.used_by = Some(key);
            Ok(())
        })?;
        Ok(PoolId(pool))
    }

    pub fn pool(&self, pool: u32) -> Result<&KeptPool> {
        let found = self.document.pools.iter().find(|kept| kept.number == pool);
        found.with_context(|| {
            format!("pool-{pool} is not on another host (`forebay cluster status` lists those)")
        })
    }

    /// A new generation, whose authority is on disk already. It is too when this returns. Blocks.
    pub fn rotate(&mut self, now_s: u64) -> Result<()> {
        self.change(|document| {
            let KeptKeys { generation, .. } = document.keys;
            let generation = generation.checked_add(1).context("all 2³² generations of keys are used")?;
            document.keys = KeptKeys { generation, since_s: Some(now_s), has_former: true };
            Ok(())
        })
    }

    /// Keys and tokens of before the rotation are accepted no more. Blocks.
    pub fn end_overlap(&mut self) -> Result<()> {
        self.change(|document| {
            document.keys.has_former = false;
            let KeptKeys { generation, .. } = document.keys;
            document.tokens.retain(|token| token.generation == generation);
            Ok(())
        })
    }

    /// The key is accepted beside that of now, in place of one that was certified before and not shown. Blocks.
    pub fn add_next(&mut self, pool: PoolId, key: Fingerprint) -> Result<()> {
        let key = key.to_string();
        self.require_new(&key)?;
        self.change(|document| {
            let generation = document.keys.generation;
            of_number(&mut document.pools, pool.0)?.next = Some(NextKey { key, generation });
            Ok(())
        })
    }

    /// The host has shown its next key: those of before are accepted no more. `false`: it is not the next key. Blocks.
    pub fn take_next(&mut self, pool: PoolId, key: Fingerprint) -> Result<bool> {
        let key = key.to_string();
        let Some(next) = self.pool(pool.0)?.next.clone().filter(|next| next.key == key) else {
            return Ok(false);
        };
        self.change(|document| {
            let kept = of_number(&mut document.pools, pool.0)?;
            (kept.key, kept.generation, kept.next) = (next.key, next.generation, None);
            Ok(())
        })?;
        Ok(true)
    }

    /// None of the pool's keys is accepted. `false`: it was so before. Blocks.
    pub fn shut_out(&mut self, pool: PoolId, now_s: u64) -> Result<bool> {
        if self.pool(pool.0)?.shut_out_s.is_some() {
            return Ok(false);
        }
        self.change(|document| {
            // Tokens that its host may have: with one it could join as another pool.
            document.tokens.retain(|token| token.pool.is_some_and(|of| of != pool.0));
            of_number(&mut document.pools, pool.0)?.shut_out_s = Some(now_s);
            Ok(())
        })?;
        Ok(true)
    }

    /// Its number is given to no other pool. Blocks.
    pub fn remove(&mut self, pool: PoolId) -> Result<()> {
        self.pool(pool.0)?;
        self.change(|document| {
            let numbers = document.pools.iter().map(|kept| kept.number.saturating_add(1));
            document.next_number = numbers.max().unwrap_or(0).max(document.next_number);
            document.tokens.retain(|token| token.pool != Some(pool.0));
            document.pools.retain(|kept| kept.number != pool.0);
            Ok(())
        })
    }

    /// Two pools never have one key, and a key that was shut out does not come back.
    fn require_new(&self, key: &str) -> Result<()> {
        match self.document.pools.iter().find(|pool| pool.has(key)) {
            Some(pool) => bail!("its key is that of pool-{}", pool.number),
            None => Ok(()),
        }
    }

    /// A change that fails leaves all as it was.
    fn change(&mut self, make: impl FnOnce(&mut Document) -> Result<()>) -> Result<()> {
        let mut next = self.document.clone();
        make(&mut next)?;
        next.version = VERSION;
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

fn of_number(pools: &mut [KeptPool], number: u32) -> Result<&mut KeptPool> {
    let found = pools.iter_mut().find(|pool| pool.number == number);
    found.with_context(|| format!("pool-{number} is not on the list"))
}

/// `None`: it is no cluster. One without its list would take files of hosts for lost, and give their numbers to others.
fn read(data: &Path) -> Result<Option<Document>> {
    let path = data.join(NAME);
    let document = versioned::read::<Document>(&path, VERSION, REMEDY)?;
    if document.is_none() && authorities::exist(data)? {
        bail!("{} is missing ({REMEDY})", path.display());
    }
    Ok(document)
}

#[cfg(test)]
mod tests;
