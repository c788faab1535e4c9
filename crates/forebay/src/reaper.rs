//! Frees what unlinked files held, once nobody has them open, through whatever door.
//!
//! An unlinked file keeps its row and its replicas while it is in use; the rows are the durable list of what is still
//! to be removed. Replicas go first, then the row: a crash in between repeats a removal, which is harmless.

use std::sync::Arc;
use std::time::Duration;

use access::FileAccess;
use api::{Locations, NamespaceError, PoolManager};
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
        let mut gone = Vec::new();
        'orphan: for orphan in &orphans {
            let file = orphan.attributes.file;
            if access.is_in_use(file) {
                continue;
            }
            // An upload may have got its name since the list was made, and been let go after that.
            if !matches!(access.attributes(file).await, Ok(attributes) if attributes.nlink == 0) {
                continue;
            }
            for id in &orphan.pools {
                let Some(pool) = pools.pool(*id) else { continue 'orphan };
                if let Err(error) = pool.remove(file).await {
                    tracing::warn!(%file, pool = %id, %error, "cannot remove a replica");
                    continue 'orphan;
                }
            }
            gone.push(file);
        }
        locations.forget(&gone).await?;
    }
    Ok(())
}
