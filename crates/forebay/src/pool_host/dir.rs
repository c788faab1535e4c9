//! The data directory of a pool host.
//!
//! ```text
//! forebay-pool/
//!   member.json     which pool of which cluster this is, where its head is, and which keys are in use
//!   member.key      the host's key, mode 0600; member-1.key and so on after rotations (`keys`)
//!   member.pem      its certificate
//!   authority.pem   the certificate of the cluster's authority
//!   member-join.key the key of a host that joins again, until it has
//!   lock            held by the running process
//!   control.sock    `forebay status`, `forebay pool`
//!   pool/           the pool
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use cluster::trust::{MemberKey, Token};
use cluster::{KeySet, Membership};
use serde::{Deserialize, Serialize};
use types::PoolId;
use types::hex::{self, Hex};

use super::keys::{HostKeys, KeptSet};
use crate::data_dir::{complaint, make_private, take_lock, write_durably};
use crate::versioned;

const MEMBER: &str = "member.json";
const KEY: &str = "member.key";
const JOIN_KEY: &str = "member-join.key";
const VERSION: u32 = 2;
const REMEDY: &str = "restore it from a copy; the data of the pool is intact";

pub struct PoolHostDir {
    path: PathBuf,
    /// Held until the process ends: another process of this pool has ended when one has it.
    _lock: File,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Document {
    pub version: u32,
    /// Hexadecimal.
    pub cluster: String,
    pub pool: u32,
    pub heads: Vec<String>,
    /// The pool was opened before: its directory cannot be empty.
    pub has_pool: bool,
    /// Rises with each start.
    pub starts: u64,
    #[serde(default)]
    pub keys: KeptSet,
    /// Those that the head has certified, and that it has not welcomed this host with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_keys: Option<KeptSet>,
    /// SHA-256 of the secret of the token by which the host has joined again: it is of no use twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_again_by: Option<String>,
}

impl Document {
    /// It is on disk when this returns. Blocks.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(&Document { version: VERSION, ..self.clone() })?;
        text.push(b'\n');
        write_durably(&dir.join(MEMBER), &text)
    }
}

/// A host that has joined.
pub struct Member {
    pub cluster: [u8; 16],
    pub pool: PoolId,
    pub heads: Vec<String>,
    pub keys: KeySet,
    /// As far as they can be read: those of now may do as well.
    pub next_keys: Option<KeySet>,
    document: Document,
}

/// A pool host as its directory shows it, which may be in use.
pub struct KnownHost {
    pub path: PathBuf,
    /// `None`: it has not joined, or its document cannot be read.
    pub pool: Option<PoolId>,
    pub heads: Vec<String>,
}

impl KnownHost {
    /// `None`: the directory is no pool host's.
    pub fn of(path: &Path) -> Option<KnownHost> {
        if ![MEMBER, KEY].iter().any(|name| path.join(name).exists()) {
            return None;
        }
        let text = fs::read(path.join(MEMBER)).ok();
        let document = text.and_then(|text| serde_json::from_slice::<Document>(&text).ok());
        let (pool, heads) =
            document.map_or((None, Vec::new()), |document| (Some(PoolId(document.pool)), document.heads));
        Some(KnownHost { path: path.to_owned(), pool, heads })
    }

    /// The line of a command that is for the head.
    pub fn refusal(&self) -> String {
        let pool = self.pool.map(|pool| format!(" ({pool})")).unwrap_or_default();
        let heads = self.heads.join(", ");
        let head =
            if heads.is_empty() { "ask its head".to_owned() } else { format!("ask its head, {heads}") };
        format!(
            "{} is the data directory of a pool host{pool}, which has no namespace: {head}",
            self.path.display()
        )
    }
}

/// For commands that need a head.
pub fn refuse_pool_host(path: &Path) -> Result<()> {
    match KnownHost::of(path) {
        Some(host) => bail!(host.refusal()),
        None => Ok(()),
    }
}

impl PoolHostDir {
    /// Opens the directory or makes a new one.
    pub fn open(path: &Path) -> Result<PoolHostDir> {
        let path = make_private(path)?;
        if path.join("instance.json").exists() {
            bail!(
                "{0} is the data directory of a head: start it with `forebay up --data {0}`, or choose another with --data",
                path.display()
            );
        }
        let lock = take_lock(&path)?;
        Ok(PoolHostDir { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn pool(&self) -> PathBuf {
        self.path.join("pool")
    }

    /// `None`: it has not joined a cluster.
    pub fn member(&self) -> Result<Option<Member>> {
        let file = self.path.join(MEMBER);
        let remedy = REMEDY;
        let Some(document) = versioned::read::<Document>(&file, VERSION, remedy)? else { return Ok(None) };
        let cluster = hex::decode(document.cluster.as_bytes()).and_then(|id| id.try_into().ok());
        let cluster = cluster.with_context(|| format!("{} is damaged ({remedy})", file.display()))?;
        ensure!(!document.heads.is_empty(), "{} is damaged ({remedy})", file.display());
        let next_keys = document.next_keys.and_then(|next| match next.read(&self.path) {
            Ok(keys) => Some(keys),
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "cannot use the next keys of this host");
                None
            }
        });
        Ok(Some(Member {
            cluster,
            pool: PoolId(document.pool),
            heads: document.heads.clone(),
            keys: document.keys.read(&self.path)?,
            next_keys,
            document,
        }))
    }

    /// For the connection to the head: its keys are replaced in this directory.
    pub fn host_keys(&self, member: &Member) -> HostKeys {
        HostKeys::new(&self.path, member.document.clone())
    }

    /// The host, if it has joined again by this token.
    pub fn joined_again_by(&self, token: &Token) -> Result<Option<Member>> {
        let document = versioned::read::<Document>(&self.path.join(MEMBER), VERSION, REMEDY)?;
        let hash = Hex(&token.secret_hash()).to_string();
        let has = document.is_some_and(|document| document.joined_again_by == Some(hash));
        if has { self.member() } else { Ok(None) }
    }

    /// The pool that is here, by its own directory or by what the host has joined as.
    pub fn pool_here(&self) -> Result<Option<PoolId>> {
        if let Some(identity) = pool::Identity::read(&self.pool())? {
            return Ok(Some(identity.pool));
        }
        Ok(KnownHost::of(&self.path).and_then(|host| host.pool))
    }

    /// A new key of a host that joins again; the same one until it has joined.
    pub fn key_to_join_again(&self) -> Result<MemberKey> {
        let file = self.path.join(JOIN_KEY);
        match read_key(&file)? {
            Some(key) => Ok(key),
            None => make_key(&file),
        }
    }

    /// The host has joined again: its former keys are of no use. It is on disk when this returns.
    pub fn record_again(&self, membership: &Membership, key: MemberKey, token: &Token) -> Result<()> {
        let former = versioned::read::<Document>(&self.path.join(MEMBER), VERSION, REMEDY)?;
        let cluster = Hex(&membership.cluster).to_string();
        if let Some(identity) = pool::Identity::read(&self.pool())?
            && identity.instance != membership.cluster
        {
            bail!("{} belongs to another cluster than the token", self.path.display());
        }
        let sets = || former.iter().flat_map(|former| std::iter::once(former.keys).chain(former.next_keys));
        let set = KeptSet::behind(sets());
        let Membership { generation, certificate, authority, .. } = membership;
        let (certificate, authority) = (certificate.clone(), authority.clone());
        let keys = KeySet { generation: *generation, key, certificate, authority };
        let set = set.write(&self.path, &keys)?;
        let heads = token.addresses.clone();
        let pool = membership.pool.0;
        let has_pool = pool::Identity::read(&self.pool())?.is_some();
        let starts = former.as_ref().map_or(0, |former| former.starts);
        let document = Document {
            version: VERSION,
            cluster,
            pool,
            heads,
            has_pool,
            starts,
            keys: set,
            next_keys: None,
            joined_again_by: Some(Hex(&token.secret_hash()).to_string()),
        };
        document.write(&self.path)?;
        sets().for_each(|former| former.forget(&self.path));
        let _ = fs::remove_file(self.path.join(JOIN_KEY));
        Ok(())
    }

    /// The host's key. It is made before the host joins, and kept: a host that joins again has the same pool.
    pub fn key_to_join(&self) -> Result<MemberKey> {
        let file = self.path.join(KEY);
        if let Some(key) = read_key(&file)? {
            return Ok(key);
        }
        ensure!(
            pool::Identity::read(&self.pool())?.is_none(),
            "{} has a pool, and no key that belongs to it: restore member.key, or choose another directory with --data",
            self.path.display()
        );
        make_key(&file)
    }

    /// It is on disk when this returns.
    pub fn record(&self, membership: &Membership, key: MemberKey, token: &Token) -> Result<()> {
        let Membership { cluster, pool, certificate, authority, generation } = membership;
        let (certificate, authority) = (certificate.clone(), authority.clone());
        let keys = KeySet { generation: *generation, key, certificate, authority };
        let document = Document {
            version: VERSION,
            cluster: Hex(cluster).to_string(),
            pool: pool.0,
            heads: token.addresses.clone(),
            has_pool: false,
            starts: 0,
            keys: KeptSet::default().write(&self.path, &keys)?,
            next_keys: None,
            joined_again_by: None,
        };
        document.write(&self.path)
    }

    /// The head has another address.
    pub fn record_heads(&self, member: &mut Member, heads: &[String]) -> Result<()> {
        if member.heads != heads {
            member.document.heads = heads.to_vec();
            member.document.write(&self.path)?;
            member.heads = heads.to_vec();
        }
        Ok(())
    }

    /// An empty directory would become a new pool, and every file of the old one would read as lost.
    pub fn require_pool(&self, member: &Member) -> Result<()> {
        if member.document.has_pool && pool::Identity::read(&self.pool())?.is_none() {
            bail!("{} has no pool although it had one: is its disk mounted?", self.pool().display());
        }
        Ok(())
    }

    /// The pool is open. Returns the number of this start, which no other has; it is on disk when this returns.
    pub fn record_start(&self, member: &mut Member, now_s: u64) -> Result<u64> {
        // By the clock, so that it rises also where the document was restored from a copy.
        let starts = member.document.starts.saturating_add(1).max(now_s);
        let document = Document { has_pool: true, starts, ..member.document.clone() };
        document.write(&self.path)?;
        member.document = document;
        Ok(starts)
    }
}

/// `None`: there is no such file.
pub(super) fn read_key(file: &Path) -> Result<Option<MemberKey>> {
    match fs::read_to_string(file) {
        Ok(pem) => MemberKey::from_pem(&pem).with_context(|| file.display().to_string()).map(Some),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(complaint(file, "read", &error)),
    }
}

/// It is on disk when this returns.
fn make_key(file: &Path) -> Result<MemberKey> {
    let key = MemberKey::make()?;
    write_durably(file, key.pem().as_bytes())?;
    Ok(key)
}
