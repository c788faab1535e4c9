//! Answers the control socket of a pool host, and its service manager.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use admin::HostSnapshot;
use admin::instance::{OperationCount, PoolView, Problem, Snapshot};
use anyhow::{Result, bail};
use api::{NamespaceError, Paths, Pool, Term};
use async_trait::async_trait;
use cluster::{MemberReport, PoolMember};
use door_nfs::PoolDoor;
use pool::LocalPool;
use types::hex::Hex;
use types::{Clock, FileId, Name, PoolId};

use super::KnownHost;
use super::http::ShownHttp;
use super::status::{self, HeadLink, HostProblem, HostStatus, HttpPlace, NfsFace};
use crate::control::{self, Items, Request};
use crate::pool_map::PoolPace;
use crate::pools::iostat::PoolIo;
use crate::pools::scrub::{self, ScrubStatus};
use crate::pools::{PoolState, busiest, calibrate, problems};
use crate::progress::Meter;
use crate::questions::PoolQuestion;
use crate::up::overview::{pool_io, pool_view, scrub_view};
use crate::up::supervision::{Supervised, silent_listeners};

/// A pool host has no namespace: files have numbers here.
pub struct NoNames;

#[async_trait]
impl Paths for NoNames {
    async fn paths(&self, files: &[FileId]) -> Result<Vec<Option<Vec<Name>>>, NamespaceError> {
        Ok(vec![None; files.len()])
    }
}

pub struct HostResponder {
    pub host: KnownHost,
    pub cluster: [u8; 16],
    pub nfs: SocketAddr,
    pub http: Option<ShownHttp>,
    pub clock: Arc<dyn Clock>,
    pub started: Duration,
    pub local: Arc<LocalPool>,
    /// As the head and clients see it.
    pub pool: Arc<dyn Pool>,
    pub member: Arc<PoolMember>,
    /// Set when clients are served.
    pub door: OnceLock<Arc<PoolDoor>>,
}

impl HostResponder {
    pub fn status(&self) -> HostStatus {
        let report = self.member.report();
        let (head, lease_left, term) = (self.head_link(&report), report.lease_left, report.term);
        let pool = self.pool.status();
        let (clients, sessions) = self.door.get().map(|door| door.known()).unwrap_or_default();
        HostStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            data: self.host.path.display().to_string(),
            uptime_s: self.clock.monotonic().saturating_sub(self.started).as_secs(),
            pool: pool.id.to_string(),
            cluster: Hex(&self.cluster).to_string(),
            lease_s: lease_left.as_secs_f64(),
            term: term.map(|Term(term)| term),
            nfs: NfsFace {
                address: self.nfs.to_string(),
                serving: self.door.get().is_some(),
                clients: clients as u64,
                sessions: sessions as u64,
            },
            http: self.http.map(HttpPlace::of),
            problems: self.problems_of(&head, lease_left).into_iter().map(HostProblem::from).collect(),
            head,
            total_bytes: pool.total_bytes,
            free_bytes: pool.free_bytes,
            free_files: pool.free_files,
            replicas: pool.replicas,
            read_bytes: pool.read_bytes,
            written_bytes: pool.written_bytes,
        }
    }

    fn head_link(&self, report: &MemberReport) -> HeadLink {
        let MemberReport { standing, age, connections, .. } = report.clone();
        HeadLink {
            address: standing.head.unwrap_or_else(|| self.host.heads.join(", ")),
            connected: standing.is_connected,
            since_s: age.as_secs(),
            trouble: standing.trouble,
            connections: connections as u64,
            reconnects: standing.sessions.saturating_sub(1),
        }
    }

    /// As `/health` tells them.
    pub fn problems(&self) -> Vec<Problem> {
        let report = self.member.report();
        self.problems_of(&self.head_link(&report), report.lease_left)
    }

    fn problems_of(&self, head: &HeadLink, lease_left: Duration) -> Vec<Problem> {
        let has_no_lease = head.connected && lease_left.is_zero();
        let of_cluster = head.problem().into_iter().chain(has_no_lease.then(status::no_lease));
        let of_pool = problems::of_status(&self.pool.status()).into_iter();
        of_cluster.chain(of_pool).chain(problems::of_disk(&self.local)).collect()
    }

    /// As `/metrics` tells them.
    pub fn figures(&self, operations: Vec<OperationCount>) -> HostSnapshot {
        let MemberReport { standing, lease_left, .. } = self.member.report();
        let io = [(self.local.id(), self.local.io())];
        let view = pool_view(self.pool.status(), Some(self.nfs), false, PoolPace::default(), (0, 0));
        let residency = io[0].1.residency;
        let pool = PoolView {
            resident_read_bytes: residency.resident,
            missing_read_bytes: residency.missing,
            unknown_read_bytes: residency.unknown,
            scrub: scrub_view(&self.local),
            ..view
        };
        let pool = Snapshot {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            site: Hex(&self.cluster).to_string(),
            uptime_s: self.clock.monotonic().saturating_sub(self.started).as_secs(),
            pools: vec![pool],
            io_modes: pool_io::modes(&io),
            io_times: pool_io::times(&io),
            io_lanes: pool_io::lanes(&io),
            io_cpu: pool_io::cpu(&io),
            journals: pool_io::journals(&io),
            gathered: pool_io::gathered(&io),
            read_ahead: pool_io::read_ahead(&io),
            operations,
            ..Snapshot::default()
        };
        HostSnapshot {
            pool,
            is_connected: standing.is_connected,
            lease_s: lease_left.as_secs_f64(),
            reconnects: standing.sessions.saturating_sub(1),
        }
    }

    fn local_pool(&self, id: u32) -> Result<&Arc<LocalPool>> {
        if PoolId(id) != self.local.id() {
            bail!("this host has no {}, it has {} only", PoolId(id), self.local.id());
        }
        Ok(&self.local)
    }
}

#[async_trait]
impl control::Responder for HostResponder {
    async fn respond(&self, request: Request, meter: &Arc<Meter>, _: Items) -> Result<serde_json::Value> {
        let id = self.local.id();
        Ok(match request {
            Request::Status => serde_json::to_value(self.status())?,
            Request::Pool(PoolQuestion::List) => {
                let offline = self.pool.status().trouble();
                serde_json::to_value([PoolState { offline, ..PoolState::of_host(id) }])?
            }
            Request::Iostat => serde_json::to_value([PoolIo::new(id, self.local.io())])?,
            Request::BusiestFiles(top) => {
                let pools = std::slice::from_ref(&self.local);
                serde_json::to_value(busiest::answer(&NoNames, pools, usize::from(top)).await)?
            }
            Request::Calibrate(id) => {
                serde_json::to_value(calibrate::answer(self.local_pool(id)?, meter).await?)?
            }
            Request::Scrub(question) => {
                let pool = self.local_pool(question.pool)?;
                let names = Arc::new(NoNames);
                serde_json::to_value(scrub::answer(pool, id, names, question, meter).await?)?
            }
            Request::ScrubStatus(asked) => {
                serde_json::to_value(ScrubStatus::new(id, self.local_pool(asked)?.scrub_report()))?
            }
            Request::Fsck(_)
            | Request::Describe
            | Request::Directory(_)
            | Request::CreateDirectory(_)
            | Request::Quota(_)
            | Request::Pool(
                PoolQuestion::Drain { .. } | PoolQuestion::Enable(_) | PoolQuestion::AwaitEmpty(_),
            )
            | Request::WhyIo(_)
            | Request::RenewKeys
            | Request::ClusterToken(_)
            | Request::ClusterStatus
            | Request::Member(_) => bail!(self.host.refusal()),
        })
    }
}

/// The parts that the watchdog of a manager asks. A head that is away is no reason to start anew.
pub struct HostParts(pub Arc<HostResponder>);

#[async_trait]
impl Supervised for HostParts {
    async fn status(&self) -> String {
        let responder = Arc::clone(&self.0);
        // It takes the locks of tables: a thread that waits for one is none of the runtime's.
        let status = tokio::task::spawn_blocking(move || responder.status().line()).await;
        status.unwrap_or_else(|_| "cannot tell its status".to_owned())
    }

    async fn silent_parts(&self, patience: Duration) -> Vec<String> {
        let id = self.0.local.id();
        let http = self.0.http.map(|http| (format!("HTTP listener of {id}"), http.address));
        // Nobody accepts there before the head has answered.
        let nfs = self.0.door.get().map(|_| (format!("NFS listener of {id}"), self.0.nfs));
        let listeners: Vec<_> = nfs.into_iter().chain(http).collect();
        silent_listeners(&listeners, patience).await
    }
}
