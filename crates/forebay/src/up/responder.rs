//! Answers the control socket: status and fsck of the running process.

mod members;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use api::{Pool, PoolManager};
use door_nfs::{HeadDoor, PoolDoor};
use files::Files;
use namespace::SqlNamespace;
use parking_lot::Mutex;
use pool::LocalPool;
use tokio::sync::watch;
use types::{Clock, PoolId};

use super::Services;
use crate::cluster::ClusterHead;
use crate::control::{Items, Request};
use crate::data_dir::{DataDir, DrainedPools};
use crate::dir;
use crate::dir::create::Layer;
use crate::drains::Drains;
use crate::fsck;
use crate::keys::Keys;
use crate::naming::Naming;
use crate::pool_map::PoolMap;
use crate::pools::iostat::PoolIo;
use crate::pools::scrub::{self, PoolScrub, ScrubStatus};
use crate::pools::{self, PoolState, busiest, calibrate};
use crate::progress::Meter;
use crate::questions::{PoolQuestion, ScrubQuestion};
use crate::quota;
use crate::report::{ClientReport, FsckReport, HttpReport, PoolReport, StatusReport};
use crate::why;

/// Rates are over the last so many seconds.
const WINDOW_S: usize = 10;

pub struct Responder {
    data: PathBuf,
    clock: Arc<dyn Clock>,
    started: Duration,
    namespace: Arc<SqlNamespace>,
    /// Those of the start: some may have left the list of `pool_map`.
    local_pools: Vec<Arc<LocalPool>>,
    door: Arc<HeadDoor>,
    pool_doors: Vec<Arc<PoolDoor>>,
    naming: Arc<Naming>,
    files: Arc<Files>,
    http: Option<HttpReport>,
    pool_map: Arc<PoolMap>,
    drains: Arc<Drains>,
    keys: Arc<Keys>,
    cluster: Option<Arc<ClusterHead>>,
    /// Held for a check, also while one that was stopped ends: each takes a thread and reads everything. Guards nothing else.
    checking: Arc<tokio::sync::Mutex<()>>,
    /// Which pools are drained, on disk. The lock is held during a write, so that two changes do not lose one.
    drained: tokio::sync::Mutex<DrainedPools>,
    /// Total operations at each of the last seconds. Leaf lock.
    samples: Mutex<VecDeque<(Duration, u64)>>,
    myself: Weak<Responder>,
}

impl Responder {
    pub fn new(
        data: &DataDir,
        services: &Services,
        (door, pool_doors): (Arc<HeadDoor>, Vec<Arc<PoolDoor>>),
        (naming, files, http): (Arc<Naming>, Arc<Files>, Option<HttpReport>),
        (pool_map, drains, keys, cluster): (Arc<PoolMap>, Arc<Drains>, Arc<Keys>, Option<Arc<ClusterHead>>),
    ) -> Arc<Responder> {
        Arc::new_cyclic(|myself| Responder {
            data: data.path().to_owned(),
            clock: Arc::clone(&services.clock),
            started: services.clock.monotonic(),
            namespace: Arc::clone(&services.namespace),
            local_pools: services.local_pools.clone(),
            door,
            pool_doors,
            naming,
            files,
            http,
            pool_map,
            drains,
            keys,
            cluster,
            checking: Arc::default(),
            drained: tokio::sync::Mutex::new(data.drained_pools()),
            samples: Mutex::default(),
            myself: Weak::clone(myself),
        })
    }

    /// Takes a sample each second until stopped.
    pub async fn sample(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        while !*stop.borrow() {
            let sample = (self.clock.monotonic(), self.operations().values().sum());
            {
                let mut samples = self.samples.lock();
                samples.push_back(sample);
                while samples.len() > WINDOW_S + 1 {
                    samples.pop_front();
                }
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
                _ = stop.changed() => {}
            }
        }
    }

    fn operations(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        let doors = self.pool_doors.iter().map(|door| door.operations());
        for (name, count) in doors.chain([self.door.operations()]).flatten() {
            *all.entry(name.to_owned()).or_insert(0) += count;
        }
        all
    }

    fn operations_per_s(&self) -> f64 {
        let samples = self.samples.lock();
        match (samples.front(), samples.back()) {
            (Some((start, from)), Some((end, to))) if end > start => {
                to.saturating_sub(*from) as f64 / (*end - *start).as_secs_f64()
            }
            _ => 0.0,
        }
    }

    async fn pool(&self, question: PoolQuestion, meter: &Meter) -> Result<Vec<PoolState>> {
        if let PoolQuestion::AwaitEmpty(pool) = question {
            self.drains.until_empty(PoolId(pool), meter).await;
        }
        let kept = self.drained.lock().await;
        let statuses = self.pool_map.pools();
        let all = statuses.iter().map(|pool| pool.id).collect();
        let drained = pools::apply(&kept, &all, question)?;
        if let PoolQuestion::Drain { .. } | PoolQuestion::Enable(_) = question {
            self.pool_map.set_drained(drained.pools.clone());
            // Behind it: what is chosen from now on is not there.
            self.drains.set(&drained.emptied);
        }
        let closed = self.door.closed_pools();
        let mut hosts = self.cluster.as_ref().map(|cluster| cluster.hosts()).unwrap_or_default();
        let left = |id| closed.iter().find(|(pool, _)| *pool == id).map(|(_, left)| *left);
        let states = statuses.iter().map(|pool| PoolState {
            name: pool.id.to_string(),
            drained: Some(drained.pools.contains(&pool.id)),
            moves: self.drains.state(pool.id),
            slow: Some(self.pool_map.pace(pool.id).is_slow),
            offline: pool.trouble(),
            layouts_left: left(pool.id),
            host: hosts.remove(&pool.id),
        });
        Ok(states.collect())
    }

    async fn scrub(&self, question: ScrubQuestion, meter: &Arc<Meter>) -> Result<PoolScrub> {
        let id = PoolId(question.pool);
        let pool = self.local_pool(id)?;
        scrub::answer(pool, id, Arc::clone(&self.namespace) as _, question, meter).await
    }

    fn local_pool(&self, id: PoolId) -> Result<&Arc<LocalPool>> {
        let found = self.local_pools.iter().find(|pool| pool.id() == id);
        found.with_context(|| format!("there is no {id} (`forebay pool list` tells which there are)"))
    }

    fn iostat(&self) -> Vec<PoolIo> {
        self.local_pools.iter().map(|pool| PoolIo::new(pool.id(), pool.io())).collect()
    }

    /// A disabled pool too: its files are still there.
    async fn check(&self, meter: &Arc<Meter>, list: Option<Items>) -> Result<FsckReport> {
        let listed = self.pool_map.list().ids();
        let is_own = |id: &PoolId| self.local_pools.iter().any(|pool| pool.id() == *id);
        let elsewhere = listed.iter().copied().filter(|id| !is_own(id)).collect();
        let own = self.local_pools.iter().filter(|pool| listed.contains(&pool.id())).cloned().collect();
        let others = self.pool_map.list().enabled().into_iter().filter(|pool| !is_own(&pool.id()));
        let connected = others.filter(|pool| pool.status().offline.is_none()).collect();
        let pools = fsck::CheckedPools { own, connected, elsewhere };
        let namespace = Arc::clone(&self.namespace);
        meter.begin("waiting for the check that runs");
        let turn = Arc::clone(&self.checking).lock_owned().await;
        let meter = Arc::clone(meter);
        // A task: dropped with its connection, the check would give up its turn before its thread has ended.
        let check = tokio::spawn(async move {
            let _turn = turn;
            fsck::check(&namespace, &pools, &meter, list).await
        });
        check.await?
    }

    fn cluster(&self) -> Result<&Arc<ClusterHead>> {
        self.cluster.as_ref().context("this is no cluster (restart the server: forebay up --cluster)")
    }

    fn refused(&self) -> Option<String> {
        let all = self.namespace.trouble().map(|trouble| format!("takes no changes: {}", trouble.why));
        all.or_else(|| {
            let growth = self.namespace.growth_trouble()?;
            Some(format!("takes no new files and names: {}", growth.why))
        })
    }

    pub fn status(&self) -> StatusReport {
        let door = self.door.status();
        let usage = self.namespace.totals();
        let pools = self.pool_map.pools().into_iter().map(|status| {
            let address = self.pool_map.address(status.id, door_nfs::NAME);
            PoolReport {
                name: status.id.to_string(),
                address: address.map(|address| address.to_string()).unwrap_or_default(),
                drained: self.pool_map.is_drained(status.id),
                offline: status.trouble(),
                total_bytes: status.total_bytes,
                free_bytes: status.free_bytes,
                free_files: status.free_files,
                replicas: status.replicas,
                read_bytes: status.read_bytes,
                written_bytes: status.written_bytes,
                client_errors: door
                    .reports
                    .iter()
                    .find(|(pool, _)| *pool == status.id)
                    .map_or(0, |(_, reports)| reports.errors),
            }
        });
        StatusReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            data: self.data.display().to_string(),
            uptime_s: (self.clock.monotonic() - self.started).as_secs(),
            grace_s: door.grace_left.as_secs(),
            files: usage.files,
            sync: self.namespace.sync().to_string(),
            refused: self.refused(),
            http: self.http.clone(),
            opens: door.clients.iter().map(|client| client.opens).sum(),
            locks: door.clients.iter().map(|client| client.locks).sum(),
            layouts: door.clients.iter().map(|client| client.layouts).sum(),
            delegations: door.clients.iter().map(|client| client.delegations).sum(),
            clients: door
                .clients
                .into_iter()
                .map(|client| ClientReport {
                    name: client.name,
                    address: client.address,
                    sessions: client.sessions,
                    opens: client.opens,
                    locks: client.locks,
                    layouts: client.layouts,
                    delegations: client.delegations,
                    idle_s: client.idle.as_secs(),
                    courtesy: client.is_courtesy,
                })
                .collect(),
            pools: pools.collect(),
            keys: self.keys.report(),
            operations_per_s: self.operations_per_s(),
            operations: self.operations(),
        }
    }
}

#[async_trait::async_trait]
impl crate::control::Responder for Responder {
    async fn respond(&self, request: Request, meter: &Arc<Meter>, items: Items) -> Result<serde_json::Value> {
        Ok(match request {
            Request::Status => serde_json::to_value(self.status())?,
            Request::Describe => serde_json::to_value(self.naming.tell_all(meter).await?.files)?,
            Request::Directory(question) => {
                serde_json::to_value(dir::answer(&self.namespace, &question, meter).await?)?
            }
            Request::CreateDirectory(question) => {
                let layer = Layer::Files(&self.files);
                let created = dir::create::answer(&self.namespace, layer, &question).await?;
                // A script mounts it as soon as it has the answer.
                self.door.look_for_exports().await;
                serde_json::to_value(created)?
            }
            Request::Quota(question) => quota::answer(&self.namespace, question, meter).await?,
            Request::Pool(question) => serde_json::to_value(self.pool(question, meter).await?)?,
            Request::Calibrate(id) => {
                serde_json::to_value(calibrate::answer(self.local_pool(PoolId(id))?, meter).await?)?
            }
            Request::Scrub(question) => serde_json::to_value(self.scrub(question, meter).await?)?,
            Request::ScrubStatus(id) => {
                let (id, pool) = (PoolId(id), self.local_pool(PoolId(id))?);
                serde_json::to_value(ScrubStatus::new(id, pool.scrub_report()))?
            }
            Request::Iostat => serde_json::to_value(self.iostat())?,
            Request::BusiestFiles(top) => {
                let files = busiest::answer(&*self.namespace, &self.local_pools, usize::from(top)).await;
                serde_json::to_value(files)?
            }
            Request::WhyIo(path) => {
                let found = why::answer(&self.namespace, &self.local_pools, &*self.clock, &path).await?;
                serde_json::to_value(found)?
            }
            Request::RenewKeys => {
                let keys = Arc::clone(&self.keys);
                serde_json::to_value(tokio::task::spawn_blocking(move || keys.renew()).await??)?
            }
            Request::ClusterToken(hours) => {
                let (cluster, valid) =
                    (Arc::clone(self.cluster()?), Duration::from_secs(u64::from(hours) * 3_600));
                serde_json::to_value(
                    tokio::task::spawn_blocking(move || cluster.make_token(valid, None)).await??,
                )?
            }
            Request::ClusterStatus => {
                // The list may be on its way to the disk.
                let cluster = Arc::clone(self.cluster()?);
                serde_json::to_value(tokio::task::spawn_blocking(move || cluster.report()).await?)?
            }
            Request::Member(question) => self.members(question, items).await?,
            Request::Fsck(question) => {
                let list = question.list.then_some(items);
                serde_json::to_value(self.check(meter, list).await?)?
            }
        })
    }
}
