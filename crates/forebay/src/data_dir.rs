//! The data directory: who it belongs to, which version wrote it, and that only one process has it.
//!
//! ```text
//! forebay-data/
//!   instance.json   version, instance id, number of pools
//!   secret          32 bytes, mode 0600: signs file handles; keys of tickets are derived from it
//!   macaroon-secret 32 bytes, mode 0600: signs macaroons; may be removed to end them all
//!   ended-sessions  sessions of the page that were logged out before their end, mode 0600
//!   users           who may log in by HTTP, mode 0600 (`forebay user`)
//!   keys.json       which generation of keys tickets are sealed with (`keys`)
//!   cluster.json    hosts that have joined as pools (`cluster::book`), with cluster-authority.pem and .key
//!   term.json       the term of the last start, and the lowest whose tickets to write are honoured (`keys::terms`)
//!   lock            held by the running process
//!   control.sock    `forebay status`, `forebay fsck`
//!   namespace/      the SQLite namespace
//!   namespace.database  where the namespace is, if it is not here
//!   drained-pools.json  pools that get no new files and no clients
//!   fsck.log        every repair that was made
//!   timeline.json   how far the namespace has come (`marks`)
//!   pools/pool-N/   the pools
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use types::{PoolId, Random, hex, hex::Hex};

use crate::pool_host::{KnownHost, refuse_pool_host};

/// The namespace's database is a file in the data directory.
pub const SQLITE: &str = "sqlite";

/// The newest layout this program knows.
const VERSION: u32 = 1;
const DATABASE_NOTE: &str = "namespace.database";
const NAMESPACE: &str = "namespace";
const DRAINED_VERSION: u32 = 1;

pub struct DataDir {
    path: PathBuf,
    pub instance: [u8; 16],
    pub secret: [u8; 32],
    pub pools: u32,
    /// Pools that were opened before: their directories cannot be empty.
    recorded: u32,
    /// Held until the process ends.
    _lock: File,
}

#[derive(Serialize, Deserialize)]
struct Instance {
    version: u32,
    /// Hexadecimal.
    instance: String,
    pools: u32,
}

/// Where it is kept which pools are drained.
pub struct DrainedPools(PathBuf);

#[derive(Serialize, Deserialize)]
struct DrainedFile {
    version: u32,
    pools: BTreeSet<u32>,
    #[serde(default)]
    emptied: BTreeSet<u32>,
}

/// Pools that get no new files and no clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    pub pools: BTreeSet<PoolId>,
    /// Those of them whose files are moved to other pools.
    pub emptied: BTreeSet<PoolId>,
}

impl DrainedPools {
    pub fn load(&self) -> Result<Drained> {
        let text = match fs::read(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Drained::default()),
            Err(error) => return Err(complaint(&self.0, "read", &error)),
        };
        let damaged = || format!("{} is damaged (remove it to enable all pools)", self.0.display());
        let known: DrainedFile = serde_json::from_slice(&text).with_context(damaged)?;
        if known.version > DRAINED_VERSION {
            bail!("{} was written by a newer forebay: use that version", self.0.display());
        }
        let pools: BTreeSet<PoolId> = known.pools.into_iter().map(PoolId).collect();
        let emptied = known.emptied.into_iter().map(PoolId).filter(|pool| pools.contains(pool)).collect();
        Ok(Drained { pools, emptied })
    }

    pub fn store(&self, drained: &Drained) -> Result<()> {
        let numbers = |pools: &BTreeSet<PoolId>| pools.iter().map(|pool| pool.0).collect();
        let (pools, emptied) = (numbers(&drained.pools), numbers(&drained.emptied));
        let mut text = serde_json::to_vec_pretty(&DrainedFile { version: DRAINED_VERSION, pools, emptied })?;
        text.push(b'\n');
        write_durably(&self.0, &text)
    }
}

impl DataDir {
    /// Opens the directory or makes a new one. `pools`: how many are wanted; they can become more, never fewer.
    pub fn open(path: &Path, pools: Option<u32>, random: &dyn Random) -> Result<DataDir> {
        let path = make_private(path)?;
        if KnownHost::of(&path).is_some() {
            bail!(
                "{0} is the data directory of a pool host: start it with `forebay pool up --data {0}`, or choose another with --data",
                path.display()
            );
        }
        let lock = take_lock(&path)?;
        let (instance, recorded) = load_instance(&path, random)?;
        let file = path.join("secret");
        let secret = match read_secret(&file)? {
            Some(secret) => secret,
            // A new one would make the file handles of clients invalid, and nobody would learn why.
            None if recorded > 0 => bail!(
                "{file} is missing; it signs the file handles of clients. Restore it from a copy. Without a copy, create a \
                 new one (`(umask 077; head -c 32 /dev/urandom > {file})`) and mount again on all clients",
                file = file.display()
            ),
            None => make_secret(&file, random)?,
        };
        if pools.is_some_and(|count| count < recorded) {
            bail!(
                "{} has {recorded} pools with data; fewer would leave files unreachable (use --pools {recorded})",
                path.display()
            );
        }
        let pools = pools.unwrap_or(recorded.max(1));
        Ok(DataDir { path, instance, secret, pools, recorded, _lock: lock })
    }

    /// Made by the server only: a file made by an administrator's command could belong to another user.
    pub fn macaroon_secret(&self, random: &dyn Random) -> Result<[u8; 32]> {
        let file = self.path.join("macaroon-secret");
        read_secret(&file)?.map_or_else(|| make_secret(&file, random), Ok)
    }

    /// Whether a pool was there at an earlier start.
    pub fn is_recorded(&self, number: u32) -> bool {
        number < self.recorded
    }

    /// All pools are there now: from now on none may be missing.
    pub fn record_pools(&self) -> Result<()> {
        if self.pools == self.recorded {
            return Ok(());
        }
        write_instance(&self.path.join("instance.json"), &self.instance, self.pools)
    }

    /// As `open`, but nothing is made: for commands that look at an existing instance.
    pub fn open_existing(path: &Path, random: &dyn Random) -> Result<DataDir> {
        refuse_pool_host(path)?;
        if !path.join("instance.json").exists() {
            bail!("{} is no Forebay data directory (give it with --data)", path.display());
        }
        DataDir::open(path, None, random)
    }

    /// Of a directory that may be in use.
    pub fn namespace_of(path: &Path) -> PathBuf {
        path.join(NAMESPACE)
    }

    /// Its id; of a directory that may be in use.
    pub fn instance_of(path: &Path) -> Result<[u8; 16]> {
        refuse_pool_host(path)?;
        let file = path.join("instance.json");
        let text = fs::read(&file).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                anyhow::anyhow!("{} is no Forebay data directory (give it with --data)", path.display())
            }
            _ => complaint(&file, "read", &error),
        })?;
        Ok(read_instance(path, &text)?.0)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn namespace(&self) -> PathBuf {
        DataDir::namespace_of(&self.path)
    }

    /// Where the namespace is, unless it is known to be elsewhere: an empty one in its place would read as if every file
    /// were lost.
    pub fn database(&self, asked: &str) -> Result<namespace::Database> {
        let noted = self.noted_database()?;
        if asked == SQLITE {
            if let Some(noted) = noted {
                bail!(
                    "the namespace of {} is in {noted}: give its URL with --namespace, or as namespace.database in a file (--config)",
                    self.path.display()
                );
            }
            if !self.namespace().join("namespace.db").exists() && self.has_pools()? {
                bail!(
                    "{} has pools and no namespace; a new namespace would use the numbers of their files again. Restore the \
                     namespace (`forebay namespace restore`), rebuild it from the pools (`forebay namespace rebuild`), or \
                     repeat the command that was interrupted (`forebay namespace adopt`, `copy`)",
                    self.path.display()
                );
            }
            return Ok(namespace::Database::Sqlite(self.namespace()));
        }
        let name = namespace::database_name(asked)?;
        match noted {
            Some(noted) if noted != name => bail!(
                "the namespace of {} is in {noted}, not in {name}; if you moved it, write its present place into {}",
                self.path.display(),
                self.database_note().display()
            ),
            None if self.namespace().exists() => bail!(
                "the namespace of {} is in SQLite; move it with `forebay namespace copy --switch`, or choose another \
                 data directory for {name}",
                self.path.display()
            ),
            noted => Ok(namespace::Database::Postgres(namespace::Server {
                url: asked.to_owned(),
                instance: self.instance,
                may_be_new: noted.is_none() && !self.has_pools()?,
            })),
        }
    }

    /// Once it has been opened there.
    pub fn record_database(&self, asked: &str) -> Result<()> {
        if asked == SQLITE || self.noted_database()?.is_some() {
            return Ok(());
        }
        write_durably(&self.database_note(), format!("{}\n", namespace::database_name(asked)?).as_bytes())
    }

    /// From now on the namespace is there, or in this directory's own SQLite.
    pub fn note_database(&self, asked: &str) -> Result<()> {
        if asked != SQLITE {
            let name = namespace::database_name(asked)?;
            return write_durably(&self.database_note(), format!("{name}\n").as_bytes());
        }
        let note = self.database_note();
        match fs::remove_file(&note) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(complaint(&note, "remove", &error)),
            _ => Ok(()),
        }
    }

    /// Where the namespace is, if it is not in this directory's own SQLite; for people.
    pub fn noted_database(&self) -> Result<Option<String>> {
        DataDir::noted_database_of(&self.path)
    }

    /// Of a directory that may be in use.
    pub fn noted_database_of(path: &Path) -> Result<Option<String>> {
        let note = path.join(DATABASE_NOTE);
        match fs::read_to_string(&note) {
            Ok(text) => Ok(Some(text.trim().to_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) if error.kind() == ErrorKind::InvalidData => bail!(
                "{} is damaged (write the URL of the namespace into it, without user and password)",
                note.display()
            ),
            Err(error) => Err(complaint(&note, "read", &error)),
        }
    }

    fn database_note(&self) -> PathBuf {
        self.path.join(DATABASE_NOTE)
    }

    /// Some pool was made: it has files, or had, whose numbers the namespace gave.
    pub fn has_pools(&self) -> Result<bool> {
        for number in 0..self.pools {
            if self.is_recorded(number) || pool::Identity::read(&self.pool(number))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn drained_pools(&self) -> DrainedPools {
        DrainedPools(self.path.join("drained-pools.json"))
    }

    pub fn pool(&self, number: u32) -> PathBuf {
        DataDir::pool_of(&self.path, number)
    }

    /// Of a directory that may be in use.
    pub fn pool_of(path: &Path, number: u32) -> PathBuf {
        path.join("pools").join(format!("pool-{number}"))
    }
}

/// The whole path of a directory of this user alone, which is made if it is missing.
pub fn make_private(path: &Path) -> Result<PathBuf> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|error| complaint(path, "create", &error))?;
    path.canonicalize().map_err(|error| complaint(path, "open", &error))
}

/// One line that says what, where, and what to do.
pub fn complaint(path: &Path, operation: &str, error: &std::io::Error) -> anyhow::Error {
    let (why, advice) = match error.kind() {
        ErrorKind::PermissionDenied => (error.to_string(), "; choose a directory you may write with --data"),
        ErrorKind::ReadOnlyFilesystem => (
            "the file system is read-only".to_owned(),
            "; make it writable or choose another directory with --data",
        ),
        ErrorKind::StorageFull => {
            ("the disk is full".to_owned(), "; free some space or choose another directory with --data")
        }
        _ => (error.to_string(), ""),
    };
    anyhow::anyhow!("cannot {operation} {}: {why}{advice}", path.display())
}

pub fn take_lock(path: &Path) -> Result<File> {
    let file = path.join("lock");
    let lock = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&file)
        .map_err(|error| complaint(&file, "open", &error))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!(
                "{} is in use by another forebay process (stop it, or choose another --data)",
                path.display()
            )
        }
        Err(error) => Err(complaint(&file, "lock", &error.into())),
    }
}

/// The instance's id and the number of its pools; a new instance has none yet.
fn load_instance(path: &Path, random: &dyn Random) -> Result<([u8; 16], u32)> {
    let file = path.join("instance.json");
    let text = match fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let mut instance = [0; 16];
            random.fill(&mut instance);
            write_instance(&file, &instance, 0)?;
            return Ok((instance, 0));
        }
        Err(error) => return Err(complaint(&file, "read", &error)),
    };
    read_instance(path, &text)
}

fn read_instance(path: &Path, text: &[u8]) -> Result<([u8; 16], u32)> {
    let file = path.join("instance.json");
    let damaged = || format!("{} is damaged (restore it from a copy)", file.display());
    let known: serde_json::Value = serde_json::from_slice(text).with_context(damaged)?;
    let version = known.get("version").and_then(serde_json::Value::as_u64).unwrap_or(0);
    if version > u64::from(VERSION) {
        bail!(
            "{} was written by a newer forebay (layout {version}, this program knows {VERSION}): use that version",
            path.display()
        );
    }
    let known: Instance = serde_json::from_value(known).with_context(damaged)?;
    let instance = instance_of(&known.instance).with_context(damaged)?;
    Ok((instance, known.pools))
}

fn write_instance(file: &Path, instance: &[u8; 16], pools: u32) -> Result<()> {
    let hex = Hex(instance).to_string();
    let mut text = serde_json::to_vec_pretty(&Instance { version: VERSION, instance: hex, pools })?;
    text.push(b'\n');
    write_durably(file, &text)
}

fn read_secret(file: &Path) -> Result<Option<[u8; 32]>> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(complaint(file, "read", &error)),
    };
    let secret = bytes.as_slice().try_into().ok().with_context(|| {
        let length = bytes.len();
        format!("{} is damaged: it has {length} bytes and not 32 (restore it from a copy)", file.display())
    });
    secret.map(Some)
}

fn make_secret(file: &Path, random: &dyn Random) -> Result<[u8; 32]> {
    let mut secret = [0; 32];
    random.fill(&mut secret);
    write_durably(file, &secret)?;
    Ok(secret)
}

/// Complete or not at all, also over a power cut.
pub fn write_durably(file: &Path, bytes: &[u8]) -> Result<()> {
    durable::replace(file, bytes).map_err(|error| complaint(file, "write", &error))
}

fn instance_of(text: &str) -> Option<[u8; 16]> {
    hex::decode(text.as_bytes())?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SystemRandom;

    fn open(path: &Path, pools: Option<u32>) -> Result<DataDir> {
        DataDir::open(path, pools, &SystemRandom)
    }

    #[test]
    fn a_secret_that_is_missing_or_damaged_is_told_of_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), Some(1)).unwrap().record_pools().unwrap();
        let secret = dir.path().join("secret");
        let complaint = || open(dir.path(), None).map(drop).unwrap_err().to_string();
        fs::write(&secret, "short").unwrap();
        assert!(complaint().contains("secret is damaged: it has 5 bytes and not 32"), "{}", complaint());
        fs::remove_file(&secret).unwrap();
        assert!(complaint().contains("secret is missing"), "{}", complaint());
        assert!(!secret.exists());
        fs::create_dir(&secret).unwrap();
        assert!(complaint().contains("Is a directory"), "{}", complaint());
    }

    #[test]
    fn a_second_start_finds_the_same_instance_and_secret() {
        let dir = tempfile::tempdir().unwrap();
        let first = open(dir.path(), Some(3)).unwrap();
        first.record_pools().unwrap();
        let (instance, secret) = (first.instance, first.secret);
        drop(first);
        let again = open(dir.path(), None).unwrap();
        assert_eq!((again.instance, again.secret, again.pools), (instance, secret, 3));
    }

    #[test]
    fn where_the_namespace_is_is_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let url = "postgres://user:secret@host/names";
        let data = open(dir.path(), None).unwrap();
        assert!(matches!(data.database(SQLITE).unwrap(), namespace::Database::Sqlite(_)));
        data.database(url).unwrap();
        data.record_database(url).unwrap();
        data.record_database(url).unwrap();
        let refused = |asked: &str| data.database(asked).unwrap_err().to_string();
        assert!(refused(SQLITE).contains("is in postgres://host:5432/names"), "{}", refused(SQLITE));
        assert!(refused("postgres://other/names").contains("not in postgres://other:5432/names"));
        data.database("postgres://user:changed@host/names").unwrap();
        std::fs::write(data.database_note(), b"\xff").unwrap();
        assert!(refused(url).contains("namespace.database is damaged (write"), "{}", refused(url));
        let other = tempfile::tempdir().unwrap();
        let data = open(other.path(), None).unwrap();
        std::fs::create_dir(data.namespace()).unwrap();
        assert!(data.database(url).unwrap_err().to_string().contains("is in SQLite"));
    }

    /// A new one would give the numbers of files that lie in the pools to others.
    #[test]
    fn pools_without_their_namespace_get_no_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let data = open(dir.path(), Some(1)).unwrap();
        data.record_pools().unwrap();
        drop(data);
        let data = open(dir.path(), None).unwrap();
        let refused = data.database(SQLITE).unwrap_err().to_string();
        assert!(refused.contains("has pools and no namespace"), "{refused}");
        let elsewhere = data.database("postgres://user@host/names").unwrap();
        assert!(matches!(
            elsewhere,
            namespace::Database::Postgres(namespace::Server { may_be_new: false, .. })
        ));
        std::fs::create_dir(data.namespace()).unwrap();
        std::fs::write(data.namespace().join("namespace.db"), "").unwrap();
        data.database(SQLITE).unwrap();
    }

    #[test]
    fn a_second_process_on_the_same_data_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let _first = open(dir.path(), None).unwrap();
        let error = open(dir.path(), None).err().unwrap().to_string();
        assert!(error.contains("in use by another forebay process"), "{error}");
    }

    #[test]
    fn a_newer_layout_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(open(dir.path(), None).unwrap());
        fs::write(dir.path().join("instance.json"), r#"{"version": 99, "shape": "unknown"}"#).unwrap();
        let error = open(dir.path(), None).err().unwrap().to_string();
        assert!(error.contains("newer forebay (layout 99"), "{error}");
    }

    #[test]
    fn pools_may_become_more_and_not_fewer() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), Some(2)).unwrap().record_pools().unwrap();
        assert!(open(dir.path(), Some(1)).is_err());
        open(dir.path(), Some(3)).unwrap().record_pools().unwrap();
        assert_eq!(open(dir.path(), None).unwrap().pools, 3);
    }

    #[test]
    fn a_pool_counts_as_there_only_when_it_has_been_opened() {
        let dir = tempfile::tempdir().unwrap();
        // Killed before the pools were made.
        drop(open(dir.path(), Some(2)).unwrap());
        assert!(!open(dir.path(), Some(1)).unwrap().is_recorded(0));
        open(dir.path(), Some(2)).unwrap().record_pools().unwrap();
        assert!(open(dir.path(), None).unwrap().is_recorded(1));
    }
}
