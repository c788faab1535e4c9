//! The data directory of a pool host.
//!
//! ```text
//! forebay-pool/
//!   member.json     which pool of which cluster this is, and where its head is
//!   member.key      the host's key, mode 0600
//!   member.pem      its certificate
//!   authority.pem   the certificate of the cluster's authority
//!   lock            held by the running process
//!   control.sock    `forebay status`, `forebay pool`
//!   pool/           the pool
//! ```

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use cluster::Membership;
use cluster::trust::{MemberKey, Token};
use serde::{Deserialize, Serialize};
use types::PoolId;
use types::hex::{self, Hex};

use crate::data_dir::{complaint, make_private, take_lock, write_durably};
use crate::versioned;

const MEMBER: &str = "member.json";
const KEY: &str = "member.key";
const CERTIFICATE: &str = "member.pem";
const AUTHORITY: &str = "authority.pem";
const VERSION: u32 = 1;

pub struct PoolHostDir {
    path: PathBuf,
    /// Held until the process ends: another process of this pool has ended when one has it.
    _lock: File,
}

#[derive(Clone, Serialize, Deserialize)]
struct Document {
    version: u32,
    /// Hexadecimal.
    cluster: String,
    pool: u32,
    heads: Vec<String>,
    /// The pool was opened before: its directory cannot be empty.
    has_pool: bool,
    /// Rises with each start.
    starts: u64,
}

/// A host that has joined.
pub struct Member {
    pub cluster: [u8; 16],
    pub pool: PoolId,
    pub heads: Vec<String>,
    pub key: MemberKey,
    pub certificate: String,
    pub authority: String,
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
        let remedy = "restore it from a copy; the data of the pool is intact";
        let Some(document) = versioned::read::<Document>(&file, VERSION, remedy)? else { return Ok(None) };
        let cluster = hex::decode(document.cluster.as_bytes()).and_then(|id| id.try_into().ok());
        let cluster = cluster.with_context(|| format!("{} is damaged ({remedy})", file.display()))?;
        ensure!(!document.heads.is_empty(), "{} is damaged ({remedy})", file.display());
        Ok(Some(Member {
            cluster,
            pool: PoolId(document.pool),
            heads: document.heads.clone(),
            key: self.key()?.with_context(|| format!("{} is missing", self.path.join(KEY).display()))?,
            certificate: self.read(CERTIFICATE)?,
            authority: self.read(AUTHORITY)?,
            document,
        }))
    }

    /// The host's key. It is made before the host joins, and kept: a host that joins again has the same pool.
    pub fn key_to_join(&self) -> Result<MemberKey> {
        if let Some(key) = self.key()? {
            return Ok(key);
        }
        ensure!(
            pool::Identity::read(&self.pool())?.is_none(),
            "{} has a pool, and no key that belongs to it: restore member.key, or choose another directory with --data",
            self.path.display()
        );
        let key = MemberKey::make()?;
        write_durably(&self.path.join(KEY), key.pem().as_bytes())?;
        Ok(key)
    }

    /// It is on disk when this returns.
    pub fn record(&self, membership: &Membership, token: &Token) -> Result<()> {
        write_durably(&self.path.join(CERTIFICATE), membership.certificate.as_bytes())?;
        write_durably(&self.path.join(AUTHORITY), membership.authority.as_bytes())?;
        self.write(&Document {
            version: VERSION,
            cluster: Hex(&membership.cluster).to_string(),
            pool: membership.pool.0,
            heads: token.addresses.clone(),
            has_pool: false,
            starts: 0,
        })
    }

    /// The head has another address.
    pub fn record_heads(&self, member: &mut Member, heads: &[String]) -> Result<()> {
        if member.heads != heads {
            member.document.heads = heads.to_vec();
            self.write(&member.document)?;
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
    pub fn record_start(&self, member: &Member, now_s: u64) -> Result<u64> {
        // By the clock, so that it rises also where the document was restored from a copy.
        let starts = member.document.starts.saturating_add(1).max(now_s);
        self.write(&Document { has_pool: true, starts, ..member.document.clone() })?;
        Ok(starts)
    }

    fn key(&self) -> Result<Option<MemberKey>> {
        let file = self.path.join(KEY);
        match fs::read_to_string(&file) {
            Ok(pem) => MemberKey::from_pem(&pem).with_context(|| file.display().to_string()).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(complaint(&file, "read", &error)),
        }
    }

    fn read(&self, name: &str) -> Result<String> {
        let file = self.path.join(name);
        fs::read_to_string(&file).map_err(|error| complaint(&file, "read", &error))
    }

    fn write(&self, document: &Document) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(document)?;
        text.push(b'\n');
        write_durably(&self.path.join(MEMBER), &text)
    }
}
