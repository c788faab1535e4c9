//! Frees what unlinked files held, once nobody has them open, through whatever door.
//!
//! An unlinked file keeps its row and its replicas while it is in use; the rows are the durable list of what is still
//! to be removed. Replicas go first, then the row: a crash in between repeats a removal, which is harmless.

use std::sync::Arc;
use std::time::Duration;

use access::FileAccess;
use api::{FileLocations, Locations, NamespaceError, PoolManager};
use door_nfs::HeadDoor;
use tokio::sync::watch;
use types::FileId;

const PERIOD: Duration = Duration::from_millis(500);
const BATCH: usize = 256;

pub async fn run(
    locations: Arc<dyn Locations>,
    pools: Arc<dyn PoolManager>,
    access: Arc<FileAccess>,
    door: Arc<HeadDoor>,
    mut stop: watch::Receiver<bool>,
) {
    while !*stop.borrow() {
        // Until the grace period is over an unlinked file may still be reclaimed by who had it open.
        if !door.in_grace()
            && let Err(error) = sweep(&*locations, &*pools, &access, &stop).await
        {
            tracing::warn!(%error, "cannot remove unlinked files");
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            _ = stop.changed() => {}
        }
    }
}

async fn sweep(
    locations: &dyn Locations,
    pools: &dyn PoolManager,
    access: &FileAccess,
    stop: &watch::Receiver<bool>,
) -> Result<(), NamespaceError> {
    let mut after = FileId(0);
    while !*stop.borrow() {
        let orphans = locations.orphans(after, BATCH).await?;
        let Some(last) = orphans.last() else { return Ok(()) };
        // A file that is being made has no name yet and is held only when it is there.
        if !access.births_settled(PERIOD).await {
            return Ok(());
        }
        after = last.attributes.file;
        let unused: Vec<_> =
            orphans.iter().filter(|orphan| !access.is_in_use(orphan.attributes.file)).collect();
        if unused.is_empty() {
            continue;
        }
        // Who gave up waiting for an upload's name let the file go, and the name may come all the same: it was asked for
        // before. Behind this answer it can be seen.
        locations.forget(&[]).await?;
        let mut gone = Vec::new();
        for orphan in unused {
            // An upload may have got its name since the list was made.
            let file = orphan.attributes.file;
            if matches!(access.attributes(file).await, Ok(attributes) if attributes.nlink == 0)
                && !access.is_in_use(file)
                && remove_replicas(orphan, pools).await
            {
                gone.push(file);
            }
        }
        if !gone.is_empty() {
            locations.forget(&gone).await?;
        }
    }
    Ok(())
}

/// Whether none is left.
async fn remove_replicas(orphan: &FileLocations, pools: &dyn PoolManager) -> bool {
    let file = orphan.attributes.file;
    for id in &orphan.pools {
        let Some(pool) = pools.pool(*id) else { return false };
        if let Err(error) = pool.remove(file).await {
            tracing::warn!(%file, pool = %id, %error, "cannot remove a replica");
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use access::{AccessServices, Modes, Share};
    use api::{
        ClientReport, Grant, OpenReplica, Pool, PoolError, PoolStatus, Publish, Published, Replace,
        ReplicaFacts, SelectError, Selection, Ticket, Unnamed, Uploads,
    };
    use async_trait::async_trait;
    use file_state::{Door, Holder};
    use namespace::{Config, Database, SqlNamespace, Sync};
    use parking_lot::Mutex;
    use types::{Epoch, Identity, Name, PoolId};

    use super::*;
    use crate::system::SystemClock;

    const POOL: PoolId = PoolId(1);

    /// Remembers what was removed from it.
    #[derive(Default)]
    struct RemovingPool(Mutex<Vec<FileId>>);

    #[async_trait]
    impl Pool for RemovingPool {
        fn id(&self) -> PoolId {
            POOL
        }
        async fn open(&self, _: &Ticket) -> Result<Arc<dyn OpenReplica>, PoolError> {
            Err(PoolError::Offline(POOL))
        }
        async fn truncate(&self, _: FileId, _: u64) -> Result<ReplicaFacts, PoolError> {
            Err(PoolError::Offline(POOL))
        }
        async fn remove(&self, file: FileId) -> Result<(), PoolError> {
            self.0.lock().push(file);
            Ok(())
        }
        async fn fence(&self, _: FileId, _: Epoch) -> Result<(), PoolError> {
            Err(PoolError::Offline(POOL))
        }
        async fn facts(&self, _: FileId) -> Result<Option<ReplicaFacts>, PoolError> {
            Ok(None)
        }
        async fn replicas(&self, _: FileId, _: usize) -> Result<Vec<ReplicaFacts>, PoolError> {
            Ok(Vec::new())
        }
        fn status(&self) -> PoolStatus {
            panic!("nobody asks for it")
        }
    }

    struct OnePool(Arc<RemovingPool>);

    impl PoolManager for OnePool {
        fn select(&self, _: &Selection<'_>) -> Result<Grant, SelectError> {
            Ok(Grant { pool: POOL })
        }
        fn pool(&self, id: PoolId) -> Option<Arc<dyn Pool>> {
            (id == POOL).then(|| self.0.clone() as Arc<dyn Pool>)
        }
        fn pools(&self) -> Vec<PoolStatus> {
            Vec::new()
        }
        fn report(&self, _: &ClientReport) {}
    }

    /// A namespace whose next change waits for its turn until another one is asked for behind it.
    struct Queued {
        namespace: Arc<SqlNamespace>,
        named: Mutex<Option<(FileId, Name)>>,
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
        async fn locations(&self, file: FileId) -> Result<Vec<PoolId>, NamespaceError> {
            self.namespace.locations(file).await
        }
        async fn add_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
            self.namespace.add_location(file, pool).await
        }
        async fn drop_location(&self, file: FileId, pool: PoolId) -> Result<(), NamespaceError> {
            self.namespace.drop_location(file, pool).await
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
            }
            self.namespace.forget(files).await
        }
        async fn files(&self, after: FileId, limit: usize) -> Result<Vec<FileLocations>, NamespaceError> {
            self.namespace.files(after, limit).await
        }
    }

    async fn make_unnamed(namespace: &SqlNamespace, access: &Arc<FileAccess>) -> access::OpenFile {
        let new = Unnamed { permissions: 0o644, location: POOL };
        let root = Identity::root();
        let make = namespace.create_unnamed(&root, FileId::ROOT, &new);
        let share = Share::new(Modes::BOTH, Modes::NONE);
        access.make_unnamed(Holder::of(Door::Http, 1), share, make).await.unwrap().0
    }

    #[tokio::test]
    async fn a_file_whose_name_is_on_its_way_when_it_is_let_go_keeps_its_replica() {
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
        let pool = Arc::new(RemovingPool::default());
        let pools: Arc<dyn PoolManager> = Arc::new(OnePool(Arc::clone(&pool)));
        let access = Arc::new(FileAccess::new(AccessServices {
            namespace: namespace.clone(),
            acls: namespace.clone(),
            locations: namespace.clone(),
            properties: namespace.clone(),
            quotas: namespace.clone(),
            pools: Arc::clone(&pools),
            clock: Arc::new(SystemClock::new()),
            recall_time: Duration::from_secs(90),
        }));
        let named = make_unnamed(&namespace, &access).await.file();
        let left = make_unnamed(&namespace, &access).await.file();
        let held = make_unnamed(&namespace, &access).await;
        let queued = Queued {
            namespace: Arc::clone(&namespace),
            named: Mutex::new(Some((named, Name::new(b"named").unwrap()))),
        };
        let (_stop, stopped) = watch::channel(false);
        sweep(&queued, &*pools, &access, &stopped).await.unwrap();
        assert_eq!(*pool.0.lock(), [left], "neither what was named nor what is held");
        assert_eq!(access.attributes(named).await.unwrap().nlink, 1);
        assert!(access.attributes(held.file()).await.is_ok());
    }
}
