//! Frees what unlinked files held, once nobody has them open, through whatever door.
//!
//! An unlinked file keeps its row and its replicas while it is in use; the rows are the durable list of what is still
//! to be removed. Replicas go first, and when that is on disk the row: a crash in between repeats a removal, which is harmless.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{ANSWER_TIME, FileLocations, Locations, NamespaceError, PoolError, PoolManager};
use door_nfs::HeadDoor;
use files::Files;
use tokio::sync::watch;
use types::{Attributes, FileId, PoolId};

const PERIOD: Duration = Duration::from_millis(500);
/// Where nothing can be removed it is tried again after each time twice as long, and this long at most.
const WAIT_MAX: Duration = Duration::from_secs(30);
const BATCH: usize = 256;

pub async fn run(
    locations: Arc<dyn Locations>,
    pools: Arc<dyn PoolManager>,
    files: Arc<Files>,
    door: Arc<HeadDoor>,
    mut stop: watch::Receiver<bool>,
) {
    let mut troubles = Troubles::default();
    while !*stop.borrow() {
        // An unlinked file may still be reclaimed by who had it open.
        if !door.awaits_reclaims() {
            troubles.sweep(&*locations, &*pools, &files, &stop, Instant::now()).await;
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            _ = stop.changed() => {}
        }
    }
}

/// The namespace or a pool: it removes files, and may refuse to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Remover {
    Namespace,
    Pool(PoolId),
}

impl Display for Remover {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Remover::Namespace => f.write_str("namespace"),
            Remover::Pool(pool) => pool.fmt(f),
        }
    }
}

#[derive(Clone, Copy)]
struct Trouble {
    wait: Duration,
    until: Instant,
}

/// Where removals fail: told of when that begins and when it ends.
#[derive(Default)]
struct Troubles(BTreeMap<Remover, Trouble>);

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Begins,
    Ends,
}

impl Troubles {
    async fn sweep(
        &mut self,
        locations: &dyn Locations,
        pools: &dyn PoolManager,
        files: &Files,
        stop: &watch::Receiver<bool>,
        now: Instant,
    ) {
        if self.is_waiting(Remover::Namespace, now) {
            return;
        }
        let mut pass = Pass::default();
        pass.left.extend(
            pools.pools().iter().map(|pool| pool.id).filter(|id| self.is_waiting(Remover::Pool(*id), now)),
        );
        match sweep(locations, pools, files, stop, &mut pass).await {
            Ok(()) => self.note(Remover::Namespace, None, false, now),
            Err(error) => self.note(Remover::Namespace, Some(&error), false, now),
        };
        for (pool, error) in &pass.failed {
            self.note(Remover::Pool(*pool), Some(error), pass.freed.contains(pool), now);
        }
        for pool in pass.freed.iter().filter(|pool| !pass.failed.contains_key(pool)) {
            self.note(Remover::Pool(*pool), None, true, now);
        }
    }

    fn is_waiting(&self, place: Remover, now: Instant) -> bool {
        self.0.get(&place).is_some_and(|trouble| trouble.until > now)
    }

    /// Records the outcome of an attempt. If other removals there succeed (`works`), a failure leaves the wait short.
    fn note(
        &mut self,
        place: Remover,
        error: Option<&dyn Display>,
        works: bool,
        now: Instant,
    ) -> Option<Change> {
        let before = self.0.get(&place).map(|trouble| trouble.wait);
        let Some(error) = error else {
            before?;
            self.0.remove(&place);
            tracing::info!(%place, "removing unlinked files works again");
            return Some(Change::Ends);
        };
        let wait = before.filter(|_| !works).map_or(PERIOD, |wait| (2 * wait).min(WAIT_MAX));
        self.0.insert(place, Trouble { wait, until: now + wait });
        if before.is_some() {
            return None;
        }
        tracing::warn!(%place, %error, "cannot remove unlinked files; the server will retry");
        Some(Change::Begins)
    }
}

/// State and results of one sweep.
#[derive(Default)]
struct Pass {
    /// Pools that nothing is removed from for now.
    left: BTreeSet<PoolId>,
    /// Pools from which something was removed.
    freed: BTreeSet<PoolId>,
    /// The first error of each pool.
    failed: BTreeMap<PoolId, PoolError>,
}

async fn sweep(
    locations: &dyn Locations,
    pools: &dyn PoolManager,
    files: &Files,
    stop: &watch::Receiver<bool>,
    pass: &mut Pass,
) -> Result<(), NamespaceError> {
    let mut after = FileId(0);
    while !*stop.borrow() {
        let orphans = locations.orphans(after, BATCH).await?;
        let Some(last) = orphans.last() else { return Ok(()) };
        // A file that is being made has no name yet and is held only when it is there.
        if !files.births_settled(PERIOD).await {
            return Ok(());
        }
        after = last.attributes.file;
        let is_due = |orphan: &&FileLocations| {
            !files.is_in_use(orphan.attributes.file)
                && !orphan.locality.pools().any(|pool| pass.left.contains(&pool))
        };
        let unused: Vec<_> = orphans.iter().filter(is_due).collect();
        if unused.is_empty() {
            continue;
        }
        // A replica goes after the change that frees it is on disk: a power cut would bring back its name without it.
        locations.settle().await?;
        // A door that gave up waiting for an upload's name no longer uses the file, but the namespace may still give it
        // the name: that request was queued earlier. After this answer the name is visible.
        locations.forget(&[]).await?;
        let mut due = Vec::new();
        for orphan in unused {
            let file = orphan.attributes.file;
            if matches!(files.attributes(file).await, Ok(now) if is_as_listed(&orphan.attributes, &now)) {
                due.push(orphan);
            }
        }
        let unused = files.begin_freeing(due.iter().map(|orphan| orphan.attributes.file));
        due.retain(|orphan| unused.contains(&orphan.attributes.file));
        let gone = removed(due, pools, pass).await;
        let gone = settled(gone, pools, pass).await;
        if !gone.is_empty() {
            locations.forget(&gone).await?;
        }
    }
    Ok(())
}

/// An upload may have got its name since the list was made. It may have lost it again: the name is then on disk, and the
/// change that took it away need not be.
fn is_as_listed(listed: &Attributes, now: &Attributes) -> bool {
    now.nlink == 0 && now.change == listed.change
}

/// Those whose replicas stay removed over a power cut.
async fn settled(gone: Vec<&FileLocations>, pools: &dyn PoolManager, pass: &mut Pass) -> Vec<FileId> {
    let mut failed = BTreeSet::new();
    for (id, files) in by_pool(&gone) {
        let synced = match pools.pool(id) {
            Some(pool) => pool.sync_removals(&files, ANSWER_TIME).await,
            None if !is_listed(pools, id) => Ok(()),
            None => Err(PoolError::Offline(id)),
        };
        match synced {
            Ok(()) => _ = pass.freed.insert(id),
            Err(error) => {
                tracing::debug!(pool = %id, %error, "cannot bring removals to the disk");
                pass.failed.entry(id).or_insert(error);
                failed.insert(id);
            }
        }
    }
    let is_settled = |orphan: &&FileLocations| !orphan.locality.pools().any(|pool| failed.contains(&pool));
    gone.into_iter().filter(is_settled).map(|orphan| orphan.attributes.file).collect()
}

/// Those of which no replica is left, as far as the pools have said so.
async fn removed<'a>(
    due: Vec<&'a FileLocations>,
    pools: &dyn PoolManager,
    pass: &mut Pass,
) -> Vec<&'a FileLocations> {
    let mut left = BTreeSet::new();
    for (id, files) in by_pool(&due) {
        let Some(pool) = pools.pool(id) else {
            if is_listed(pools, id) {
                left.extend(files);
            }
            continue;
        };
        for (file, answer) in files.iter().zip(pool.remove(&files, ANSWER_TIME).await) {
            if let Err(error) = answer {
                tracing::debug!(%file, pool = %id, %error, "cannot remove a replica");
                pass.failed.entry(id).or_insert(error);
                left.insert(*file);
            }
        }
    }
    due.into_iter().filter(|orphan| !left.contains(&orphan.attributes.file)).collect()
}

/// From a pool that was taken off the list nothing is left to remove.
fn is_listed(pools: &dyn PoolManager, pool: PoolId) -> bool {
    pools.pools().iter().any(|listed| listed.id == pool)
}

/// At most [`BATCH`] for each pool.
fn by_pool(orphans: &[&FileLocations]) -> BTreeMap<PoolId, Vec<FileId>> {
    let mut files = BTreeMap::<PoolId, Vec<FileId>>::new();
    for orphan in orphans {
        for pool in orphan.locality.pools() {
            files.entry(pool).or_default().push(orphan.attributes.file);
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use api::{
        Birth, ExpectedFile, Locality, Namespace, Pool, Publish, Published, Replace, Unnamed, Uploads,
    };
    use async_trait::async_trait;
    use file_state::{Door, Holder};
    use files::{FilesServices, Modes, Share};
    use namespace::{Config, Database, SqlNamespace, Sync};
    use parking_lot::Mutex;
    use testkit::faulty::{Call, Fault, Faulty, Request};
    use testkit::memory_pool::MemoryPool;
    use testkit::memory_pools::MemoryPools;
    use types::{Epoch, Identity, Name};

    use super::*;
    use crate::system::SystemClock;

    const POOL: PoolId = PoolId(1);

    /// Files whose replicas were removed, in that order.
    fn removed(pool: &Faulty<MemoryPool>) -> Vec<FileId> {
        let removed = |request| match request {
            Request::Remove(file) => Some(file),
            _ => None,
        };
        pool.schedule().passed().into_iter().filter_map(removed).collect()
    }

    fn busy() -> Fault {
        Fault::Fail(PoolError::Busy(POOL))
    }

    /// A namespace whose next change waits for its turn until another one is asked for behind it.
    struct Queued {
        namespace: Arc<SqlNamespace>,
        named: Mutex<Option<(FileId, Name)>>,
        /// Whether the name is taken away again.
        is_unlinked: bool,
        /// Whether changes reach the disk.
        is_on_disk: bool,
    }

    impl Queued {
        async fn give_name(&self, file: FileId, name: &Name) -> Result<Published, NamespaceError> {
            let how = Publish {
                size: 4,
                space_used: 4,
                mtime: None,
                checksums: Vec::new(),
                replace: Replace::Never,
            };
            self.namespace.publish(&Identity::root(), file, FileId::ROOT, name, &how).await
        }
    }

    #[async_trait]
    impl Locations for Queued {
        async fn settle(&self) -> Result<(), NamespaceError> {
            if self.is_on_disk { self.namespace.settle().await } else { Err(NamespaceError::Busy) }
        }
        async fn locality(&self, file: FileId) -> Result<Locality, NamespaceError> {
            self.namespace.locality(file).await
        }
        async fn add_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
            self.namespace.add_location(file, pool).await
        }
        async fn drop_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
            self.namespace.drop_location(file, pool).await
        }
        async fn begin_filling(&self, file: FileId, pool: PoolId) -> Result<Attributes, NamespaceError> {
            self.namespace.begin_filling(file, pool).await
        }
        async fn replace_location(
            &self,
            file: FileId,
            from: PoolId,
            to: PoolId,
            change: u64,
        ) -> Result<Attributes, NamespaceError> {
            self.namespace.replace_location(file, from, to, change).await
        }
        async fn unsettled(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
            self.namespace.unsettled(after, limit).await
        }
        async fn raise_epoch(&self, file: FileId) -> Result<Epoch, NamespaceError> {
            self.namespace.raise_epoch(file).await
        }
        async fn orphans(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
            self.namespace.orphans(after, limit).await
        }
        async fn forget(&self, files: &[FileId]) -> Result<(), NamespaceError> {
            let named = self.named.lock().take();
            if let Some((file, name)) = named {
                self.give_name(file, &name).await?;
                if self.is_unlinked {
                    self.namespace.unlink(&Identity::root(), FileId::ROOT, &name, ExpectedFile::Any).await?;
                }
            }
            self.namespace.forget(files).await
        }
        async fn files(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
            self.namespace.files(after, limit).await
        }
    }

    async fn make_unnamed(namespace: &SqlNamespace, files: &Arc<Files>) -> files::OpenFile {
        let new = Unnamed { permissions: 0o644, location: POOL };
        let root = Identity::root();
        let make = namespace.create_unnamed(&root, FileId::ROOT, &new);
        let share = Share::new(Modes::BOTH, Modes::NONE);
        files.make_unnamed(Holder::of(Door::numbered(1), 1), share, make).await.unwrap().0
    }

    struct Scene {
        _dir: tempfile::TempDir,
        namespace: Arc<SqlNamespace>,
        pool: Arc<Faulty<MemoryPool>>,
        pools: Arc<dyn PoolManager>,
        files: Arc<Files>,
    }

    fn scene() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let namespace = Arc::new(
            SqlNamespace::open(Config {
                database: Database::Sqlite(dir.path().to_owned()),
                clock: Arc::new(SystemClock::new()),
                root_owner: (0, 0),
                sync: Sync::Interval(Duration::from_secs(60)),
                cache_bytes: 1 << 20,
                queue_len_max: 10,
                group_len_max: 10,
            })
            .unwrap(),
        );
        let pool = Arc::new(Faulty::new(MemoryPool::new(POOL)));
        let pools: Arc<dyn PoolManager> = Arc::new(MemoryPools::of([pool.clone() as Arc<dyn Pool>]));
        let files = Arc::new(Files::new(FilesServices {
            namespace: namespace.clone(),
            acls: namespace.clone(),
            locations: namespace.clone(),
            properties: namespace.clone(),
            xattrs: namespace.clone(),
            quotas: namespace.clone(),
            uploads: namespace.clone(),
            pools: Arc::clone(&pools),
            clock: Arc::new(SystemClock::new()),
            recall_time: Duration::from_secs(90),
        }));
        Scene { _dir: dir, namespace, pool, pools, files }
    }

    #[tokio::test]
    async fn a_file_whose_name_is_on_its_way_when_it_is_let_go_keeps_its_replica() {
        let Scene { _dir, namespace, pool, pools, files } = scene();
        let named = make_unnamed(&namespace, &files).await.file();
        let left = make_unnamed(&namespace, &files).await.file();
        let held = make_unnamed(&namespace, &files).await;
        let queued = Queued {
            namespace: Arc::clone(&namespace),
            named: Mutex::new(Some((named, Name::new(b"named").unwrap()))),
            is_unlinked: false,
            is_on_disk: true,
        };
        let (_stop, stopped) = watch::channel(false);
        sweep(&queued, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert_eq!(removed(&pool), [left], "neither what was named nor what is held");
        assert_eq!(files.attributes(named).await.unwrap().nlink, 1);
        assert!(files.attributes(held.file()).await.is_ok());
    }

    #[tokio::test]
    async fn a_replica_stays_until_the_change_that_frees_it_is_on_disk() {
        let Scene { _dir, namespace, pool, pools, files } = scene();
        let file = make_unnamed(&namespace, &files).await.file();
        let queued = Queued { namespace, named: Mutex::new(None), is_unlinked: false, is_on_disk: false };
        let (_stop, stopped) = watch::channel(false);
        assert!(sweep(&queued, &*pools, &files, &stopped, &mut Pass::default()).await.is_err());
        assert!(removed(&pool).is_empty());
        let queued = Queued { is_on_disk: true, ..queued };
        sweep(&queued, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert_eq!(removed(&pool), [file]);
    }

    /// The list had it as an upload without a name. After a power cut in interval mode it had the name and no replica.
    #[tokio::test]
    async fn a_file_that_gets_its_name_and_loses_it_during_a_sweep_is_left_to_the_next_one() {
        let Scene { _dir, namespace, pool, pools, files } = scene();
        let file = make_unnamed(&namespace, &files).await.file();
        let named = Mutex::new(Some((file, Name::new(b"named").unwrap())));
        let queued = Queued { namespace, named, is_unlinked: true, is_on_disk: true };
        let (_stop, stopped) = watch::channel(false);
        sweep(&queued, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert!(removed(&pool).is_empty(), "the change that frees it came after the sync");
        sweep(&queued, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert_eq!(removed(&pool), [file]);
    }

    #[tokio::test]
    async fn a_row_stays_until_its_replica_stays_removed_over_a_power_cut() {
        let Scene { _dir, namespace, pool, pools, files } = scene();
        let file = make_unnamed(&namespace, &files).await.file();
        let (_stop, stopped) = watch::channel(false);
        pool.schedule().on(Call::SyncRemovals, .., busy());
        sweep(&*namespace, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert_eq!(removed(&pool), [file]);
        assert!(files.attributes(file).await.is_ok(), "it is removed again after a power cut");
        pool.schedule().lift(Call::SyncRemovals);
        sweep(&*namespace, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert!(files.attributes(file).await.is_err());
    }

    /// The pool answers the removal, is killed before the sync, and has the replica again when it is asked for the sync.
    #[tokio::test]
    async fn a_removal_that_a_pool_has_forgotten_is_asked_for_again() {
        let Scene { _dir, namespace, pool, pools, files } = scene();
        let file = make_unnamed(&namespace, &files).await.file();
        pool.pool().put(file, Birth::UNKNOWN, "data");
        let (_stop, stopped) = watch::channel(false);
        pool.schedule().on(Call::SyncRemovals, 0..1, Fault::LoseUnsynced);
        sweep(&*namespace, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert!(files.attributes(file).await.is_ok(), "or nobody would remove it again");
        sweep(&*namespace, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert_eq!(removed(&pool), [file, file]);
        assert!(files.attributes(file).await.is_err());
        assert!(pool.pool().replicas(FileId(0), 9).await.unwrap().is_empty());
    }

    /// A disabled pool may come back; one that was removed has lost its disk, or has no files.
    #[tokio::test]
    async fn a_pool_that_was_taken_off_the_list_is_not_waited_for() {
        let Scene { _dir, namespace, files, .. } = scene();
        let pool = Arc::new(MemoryPool::new(POOL));
        let pools = MemoryPools::of([pool as Arc<dyn Pool>]);
        let file = make_unnamed(&namespace, &files).await.file();
        let (_stop, stopped) = watch::channel(false);
        pools.list().set_disabled(POOL, true).unwrap();
        sweep(&*namespace, &pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert!(files.attributes(file).await.is_ok());
        pools.list().remove(POOL).unwrap();
        sweep(&*namespace, &pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert!(files.attributes(file).await.is_err());
    }

    #[tokio::test]
    async fn a_removal_without_an_answer_is_asked_for_again() {
        let Scene { _dir, namespace, pool, pools, files } = scene();
        let file = make_unnamed(&namespace, &files).await.file();
        let (_stop, stopped) = watch::channel(false);
        pool.schedule().on(Call::Remove, .., Fault::Fail(PoolError::Unknown(POOL)));
        let mut pass = Pass::default();
        sweep(&*namespace, &*pools, &files, &stopped, &mut pass).await.unwrap();
        assert!(matches!(pass.failed.get(&POOL), Some(PoolError::Unknown(POOL))));
        assert!(files.attributes(file).await.is_ok(), "its row is what makes the reaper ask again");
        pool.schedule().lift(Call::Remove);
        sweep(&*namespace, &*pools, &files, &stopped, &mut Pass::default()).await.unwrap();
        assert_eq!(pool.schedule().count(Call::Remove), 2);
        assert!(files.attributes(file).await.is_err());
    }

    /// Thousands of warnings were logged of a pool that was read-only.
    #[tokio::test]
    async fn a_pool_that_removes_nothing_is_asked_now_and_then_and_told_of_once() {
        let Scene { _dir, namespace, pool, pools, files } = scene();
        let mut unnamed = Vec::new();
        for _ in 0..3 {
            unnamed.push(make_unnamed(&namespace, &files).await.file());
        }
        let (_stop, stopped) = watch::channel(false);
        let mut troubles = Troubles::default();
        pool.schedule().on(Call::Remove, .., busy());
        let mut now = Instant::now();
        for _ in 0..600 {
            troubles.sweep(&*namespace, &*pools, &files, &stopped, now).await;
            now += PERIOD;
        }
        let refused = pool.schedule().count(Call::Remove);
        assert!((8 * 3..=20 * 3).contains(&refused), "{refused} times in five minutes");
        pool.schedule().lift(Call::Remove);
        troubles.sweep(&*namespace, &*pools, &files, &stopped, now + WAIT_MAX).await;
        assert_eq!(removed(&pool), unnamed, "by itself");
        assert!(troubles.0.is_empty());
    }

    #[test]
    fn trouble_is_told_of_when_it_begins_and_when_it_ends() {
        let (mut troubles, now, place) = (Troubles::default(), Instant::now(), Remover::Pool(POOL));
        let error: Option<&dyn Display> = Some(&"read-only");
        assert_eq!(troubles.note(place, None, true, now), None);
        assert_eq!(troubles.note(place, error, false, now), Some(Change::Begins));
        for _ in 0..9 {
            assert_eq!(troubles.note(place, error, false, now), None);
        }
        assert!(
            troubles.is_waiting(place, now + WAIT_MAX / 2) && !troubles.is_waiting(place, now + WAIT_MAX)
        );
        assert!(!troubles.is_waiting(Remover::Namespace, now));
        // One replica that cannot be removed keeps no others waiting.
        assert_eq!(troubles.note(place, error, true, now), None);
        assert!(!troubles.is_waiting(place, now + PERIOD));
        assert_eq!(troubles.note(place, None, true, now), Some(Change::Ends));
    }
}
