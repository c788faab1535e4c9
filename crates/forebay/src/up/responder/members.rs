//! Questions about the members of the cluster: their keys, and which pools belong to it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use api::{Locations, Paths};
use serde_json::Value;
use tokio::time::Instant;
use types::{FileId, PoolId};

use super::Responder;
use crate::cluster::ClusterHead;
use crate::control::Items;
use crate::fsck::escaped;
use crate::output::counted;
use crate::questions::MemberQuestion;

/// For connected pool hosts to take new keys, of which they hear when they renew their leases.
const ROTATION_TIME: Duration = Duration::from_secs(15);
const ROTATION_LOOK: Duration = Duration::from_millis(50);
/// Files of one page.
const PAGE: usize = 1_000;

impl Responder {
    pub(super) async fn members(&self, question: MemberQuestion, items: Items) -> Result<Value> {
        let cluster = Arc::clone(self.cluster()?);
        let blocking = |work: fn(&ClusterHead) -> Result<()>| {
            let cluster = Arc::clone(&cluster);
            tokio::task::spawn_blocking(move || work(&cluster))
        };
        Ok(match question {
            MemberQuestion::RotateKeys => {
                blocking(ClusterHead::rotate_keys).await??;
                let until = Instant::now() + ROTATION_TIME;
                while cluster.awaits_pools() && Instant::now() < until {
                    tokio::time::sleep(ROTATION_LOOK).await;
                }
                serde_json::to_value(cluster.report_keys())?
            }
            MemberQuestion::EndOverlap => {
                blocking(ClusterHead::end_overlap).await??;
                serde_json::to_value(cluster.report_keys())?
            }
            MemberQuestion::ShutOut(pool) => {
                let shut_out = move || cluster.shut_out(PoolId(pool));
                serde_json::to_value(tokio::task::spawn_blocking(shut_out).await??)?
            }
            MemberQuestion::Readmit { pool, hours } => {
                let valid = Duration::from_secs(u64::from(hours) * 3_600);
                let readmit = move || cluster.readmit(PoolId(pool), valid);
                serde_json::to_value(tokio::task::spawn_blocking(readmit).await??)?
            }
            MemberQuestion::Remove(pool) => {
                // A task: dropped with its connection, it would leave the pool disabled.
                let myself = self.myself.upgrade().context("the server stops")?;
                tokio::spawn(myself.remove_pool(cluster, PoolId(pool))).await??;
                Value::Null
            }
            MemberQuestion::Files(pool) => serde_json::to_value(self.files_of(PoolId(pool), items).await?)?,
        })
    }

    /// Nothing gets a replica there meanwhile: the pool is offline, and disabled.
    async fn remove_pool(self: Arc<Self>, cluster: Arc<ClusterHead>, pool: PoolId) -> Result<()> {
        cluster.require_removable(pool)?;
        let list = self.pool_map.list();
        list.set_disabled(pool, true)?;
        let removed = self.remove_if_empty(cluster, pool).await;
        if removed.is_err() {
            list.set_disabled(pool, false)?;
        }
        removed
    }

    async fn remove_if_empty(&self, cluster: Arc<ClusterHead>, pool: PoolId) -> Result<()> {
        // Those that chose the pool before may be on their way to the namespace.
        self.namespace.settle().await?;
        let (namespace, open_files) = (Arc::clone(&self.namespace), Arc::clone(&self.files));
        let counted_files = tokio::task::spawn_blocking(move || {
            let mut residents = namespace.residents(pool)?;
            let (mut open, mut after) = (0, FileId(0));
            loop {
                let page = residents.unnamed(after, PAGE)?;
                let Some(last) = page.last() else { break };
                after = *last;
                open += page.iter().filter(|file| open_files.is_in_use(**file)).count() as u64;
            }
            Ok::<_, api::NamespaceError>((residents.count()?, open))
        });
        let (files, open) = counted_files.await??;
        if files > 0 {
            let has = counted(files, "file has its", "files have their");
            bail!(
                "{has} data on {pool}: move them (forebay pool drain {pool}) or remove them first; forebay pool files {pool} lists them"
            );
        }
        if open > 0 {
            let are = counted(open, "removed file of it is", "removed files of it are");
            bail!("{are} open still, or an upload under way: try again when they are closed");
        }
        tokio::task::spawn_blocking(move || cluster.remove(pool)).await??;
        let kept = self.drained.lock().await;
        let mut drained = kept.load()?;
        if drained.pools.remove(&pool) {
            drained.emptied.remove(&pool);
            kept.store(&drained)?;
            self.drains.set(&drained.emptied);
            self.pool_map.set_drained(drained.pools);
        }
        Ok(())
    }

    /// Sends a path for each file, or its number, and returns how many there are.
    async fn files_of(&self, pool: PoolId, items: Items) -> Result<u64> {
        if !self.pool_map.list().ids().contains(&pool) {
            bail!("there is no {pool} (`forebay pool list` tells which there are)");
        }
        self.namespace.settle().await?;
        let (mut after, mut count) = (FileId(0), 0);
        let mut residents = {
            let namespace = Arc::clone(&self.namespace);
            tokio::task::spawn_blocking(move || namespace.residents(pool)).await??
        };
        loop {
            let page = tokio::task::spawn_blocking(move || (residents.page(after, PAGE), residents));
            let (page, used) = page.await?;
            residents = used;
            let page = page?;
            let Some(last) = page.last() else { return Ok(count) };
            (after, count) = (*last, count + page.len() as u64);
            let paths = self.namespace.paths(&page).await.context("cannot look up paths")?;
            for (file, path) in page.iter().zip(paths) {
                items.send(&path.map_or_else(|| file.to_string(), |path| escaped(&path))).await?;
            }
        }
    }
}
