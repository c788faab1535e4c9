//! The namespace and the pools of a data directory, opened and closed: for a head, and for tools that need both.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use api::{Pool, PoolList};
use files::PunctualPool;
use namespace::{Noted, SqlNamespace};
use pool::LocalPool;
use types::{Clock, PoolId, Random};

use crate::cluster::book::Book;
use crate::config::{Config, Sync};
use crate::data_dir::DataDir;
use crate::fsck::CheckedPools;
use crate::keys;
use crate::lengths::{self, Settled};
use crate::marks::{self, Marks};
use crate::system::SystemRandom;

/// Replicas that a pool has open at most where nobody says, however many descriptors there are.
const OPEN_FILES_MAX: usize = 32_768;
/// For the namespace to end before the pools are closed.
const NAMESPACE_PATIENCE: Duration = Duration::from_secs(2);

/// The namespace and the pools of a data directory.
pub struct Services {
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    pub namespace: Arc<SqlNamespace>,
    pub local_pools: Vec<Arc<LocalPool>>,
    /// As doors and tasks see them; `local_pools` are those of the start.
    pub pools: Arc<PoolList>,
    pub settled: Settled,
    /// Pools of other hosts.
    pub elsewhere: BTreeSet<PoolId>,
}

pub async fn open_services(data: &DataDir, config: &Config, clock: Arc<dyn Clock>) -> Result<Services> {
    let random: Arc<dyn Random> = Arc::new(SystemRandom);
    let noted = marks::noted(data)?;
    let behind = marks::pools_behind(&noted);
    let namespace = open_namespace(data, config, Arc::clone(&clock), noted)?;
    let mut local_pools = Vec::new();
    for number in 0..data.pools {
        let dir = data.pool(number);
        // An empty directory would become a new pool, and every file of the old one would read as lost.
        if data.is_recorded(number) && pool::Identity::read(&dir)?.is_none() {
            bail!("{} has no pool although it had one: is its disk mounted?", dir.display());
        }
        let place = (PoolId(number), dir, data.instance);
        local_pools.push(LocalPool::open(pool_config(config, place, data.pools, Arc::clone(&random)))?);
    }
    keys::begin(data, &*clock)?;
    data.record_pools()?;
    let namespace = Arc::new(namespace);
    // Before anybody sees a file, and while pools that are behind can still be told from the others.
    let settled = lengths::settle(&namespace, &local_pools, &behind).await?;
    // Before any file is made.
    let pools = Arc::new(PoolList::of(local_pools.iter().map(|pool| seam_of(Arc::clone(pool))))?);
    let (listed, unsettled, own) = (Arc::clone(&pools), settled.unsettled.clone(), data.pools);
    let noting = move || {
        let ids = listed.enabled().into_iter().map(|pool| pool.id());
        ids.filter(|id| id.0 < own && !unsettled.contains(id)).collect()
    };
    namespace.keep_marks(Arc::new(Marks::new(data, noting)))?;
    let elsewhere = Book::pools_of(data.path())?.iter().map(|pool| PoolId(pool.number)).collect();
    Ok(Services { clock, random, namespace, local_pools, pools, settled, elsewhere })
}

/// The pool as all others see it.
fn seam_of(pool: Arc<LocalPool>) -> Arc<dyn Pool> {
    #[cfg(feature = "channel")]
    if std::env::var_os("FOREBAY_TEST_CHANNEL").is_some() {
        tracing::info!(pool = %pool.id(), "pool is behind a channel: this program is for tests");
        return Arc::new(PunctualPool::new(Arc::new(testkit::channel::ChannelPool::around(pool))));
    }
    Arc::new(PunctualPool::new(pool))
}

/// Of one of `pools` pools of this process: its number, its directory, and the instance that it belongs to.
pub fn pool_config(
    config: &Config,
    (id, dir, instance): (PoolId, PathBuf, [u8; 16]),
    pools: u32,
    random: Arc<dyn Random>,
) -> pool::Config {
    let open_files_max = config.pools.open_files_max.map(|files| files as usize);
    pool::Config {
        id,
        dir,
        instance,
        reserve_bytes: config.pools.reserve_mib << 20,
        reserve_files: config.pools.reserve_files,
        open_files_max: open_files_max.unwrap_or_else(|| open_files_share(pools)),
        queue_len_max: config.pools.queue_len_max as usize,
        threads: config.pools.threads as usize,
        io: config.pools.io,
        contention: config.pools.contention(),
        journal: config.pools.journal.clone(),
        gather: config.pools.gather,
        digests: config.pools.digest_kinds().collect(),
        random,
    }
}

/// The namespace of a data directory, unless it is not the one of which something was `noted` there and in the pools. From
/// here on it is another start, so that marks are to be kept (`SqlNamespace::keep_marks`).
pub fn open_namespace(
    data: &DataDir,
    config: &Config,
    clock: Arc<dyn Clock>,
    noted: Vec<Noted>,
) -> Result<SqlNamespace> {
    let database = data.database(&config.namespace.database)?;
    let namespace = open_database(config, database, clock, noted)?;
    data.record_database(&config.namespace.database)?;
    Ok(namespace)
}

pub fn open_database(
    config: &Config,
    database: namespace::Database,
    clock: Arc<dyn Clock>,
    noted: Vec<Noted>,
) -> Result<SqlNamespace> {
    let interval = Duration::from_millis(config.namespace.sync_interval_ms);
    let of_head = namespace::Config {
        database,
        clock,
        root_owner: (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()),
        sync: match config.namespace.sync {
            Sync::Always => namespace::Sync::Always,
            Sync::Names => namespace::Sync::Names(interval),
            Sync::Interval => namespace::Sync::Interval(interval),
        },
        cache_bytes: config.namespace.cache_mib << 20,
        queue_len_max: config.namespace.queue_len_max as usize,
        group_len_max: config.namespace.group_len_max as usize,
    };
    let namespace = SqlNamespace::open_after(of_head, noted)?;
    namespace.set_default_consistency(config.namespace.consistency.into());
    namespace.set_quota_grace(Duration::from_secs(u64::from(config.namespace.quota_grace_days) * 86_400));
    Ok(namespace)
}

impl Services {
    pub fn checked_pools(&self) -> CheckedPools {
        CheckedPools {
            own: self.local_pools.clone(),
            connected: Vec::new(),
            elsewhere: self.elsewhere.clone(),
        }
    }

    /// Everything that was answered is on disk already; this writes what may be lazy.
    pub async fn close(&self) {
        let on_pools = async |close: fn(&LocalPool)| {
            let pools = self.local_pools.clone();
            // It joins threads: a blocking matter.
            let _ = tokio::task::spawn_blocking(move || pools.iter().for_each(|pool| close(pool))).await;
        };
        // First the changes end, then the namespace writes the lengths that pools keep for it. A pool whose index is written
        // says that it has.
        on_pools(LocalPool::end_work).await;
        let namespace = Arc::clone(&self.namespace);
        let mut ending = tokio::spawn(async move { namespace.close().await });
        // Not longer, for its database may not answer.
        let _ = tokio::time::timeout(NAMESPACE_PATIENCE, &mut ending).await;
        if self.namespace.has_lengths_in_doubt() {
            self.local_pools.iter().for_each(|pool| pool.doubt_index());
        }
        on_pools(LocalPool::close).await;
        if !ending.is_finished() {
            let _ = ending.await;
        }
    }
}

/// Default number of files that a pool may have open. The other half of the descriptors is for connections and the
/// database.
fn open_files_share(pools: u32) -> usize {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let share = limit / 2 / u64::from(pools.max(1));
    usize::try_from(share).unwrap_or(usize::MAX).clamp(16, OPEN_FILES_MAX)
}
