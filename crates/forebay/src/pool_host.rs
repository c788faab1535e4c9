//! `forebay pool up`: a pool on a host of its own, which joins a head.

mod dir;
mod http;
mod join_token;
mod keys;
mod responder;
mod status;

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use admin::log::LogControl;
use anyhow::{Context, Result, anyhow, bail};
use api::Pool;
use cluster::trust::{Fingerprint, MemberKey, Token};
use cluster::{
    Admission, HeldLease, HttpFace, Joining, KeyRing, LeasedPool, MakingPool, MemberConfig, PoolMember,
    Process, TlsDialer,
};
use door_nfs::{Export, Flight, PoolDoor, PoolDoorConfig, Security, ServedHosts, Squash};
use door_webdav::DataFace;
use files::PunctualPool;
use pool::LocalPool;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use types::display::Size;
use types::hex::Hex;
use types::{Clock, Random};

use self::http::{HttpPort, ShownHttp};
use crate::cli::PoolUpArguments;
use crate::config::Config;
use crate::control;
use crate::pools::scrub;
use crate::services::pool_config;
use crate::system::{SleeplessClock, SystemClock, SystemRandom};
use crate::up::notify::Notifier;
use crate::up::supervision::Supervision;
use crate::up::{self, Measures, announce, listen, start_log};
pub use dir::{KnownHost, refuse_pool_host};
use dir::{Member, PoolHostDir};
use join_token::JoinToken;
use responder::{HostParts, HostResponder, NoNames};
pub use status::HostStatus;

/// Stopping takes at most this long, whatever clients and disks do.
const STOP: Duration = Duration::from_secs(4);

pub fn run(arguments: &PoolUpArguments) -> Result<ExitCode> {
    let config = Config::assemble_pool(arguments)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let log = start_log(&config, &clock);
    let token = JoinToken::given(arguments)?;
    let advertise = arguments.advertise.as_deref().map(checked_address).transpose()?;
    let dir = PoolHostDir::open(&config.data)?;
    up::raise_open_files_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(&config, &dir, token, advertise, (clock, log)));
    runtime.shutdown_timeout(Duration::from_millis(500));
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Clients take addresses and no names.
fn checked_address(text: &str) -> Result<String> {
    let ip = text.parse::<IpAddr>().or_else(|_| text.parse::<SocketAddr>().map(|address| address.ip()));
    if !ip.is_ok_and(|ip| !ip.is_unspecified()) {
        bail!("--advertise {text:?} is no IP address of a host (give 192.0.2.1, or 192.0.2.1:20491)");
    }
    Ok(text.to_owned())
}

async fn serve(
    config: &Config,
    dir: &PoolHostDir,
    token: Option<JoinToken>,
    advertise: Option<String>,
    (clock, log): (Arc<dyn Clock>, LogControl),
) -> Result<()> {
    let notifier = Notifier::of_environment()?;
    notifier.status("joins the cluster, or opens the pool");
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let (listener, http, member) = tokio::select! {
        started = listen_and_join(config, dir, token) => started?,
        _ = interrupt.recv() => return Ok(()),
        _ = terminate.recv() => return Ok(()),
    };
    // Opening a pool blocks, for minutes where its index is rebuilt.
    let start = up::watch_start()?;
    let faces =
        Faces { nfs_port: listener.local_addr()?.port(), http: http.as_ref().and_then(HttpPort::face) };
    let mut host = PoolHost::start(config, dir, member, (faces, advertise), clock)?;
    start.abort();
    let (stop_sender, stop) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(up::tick_log(log, stop.clone()));
    tasks.spawn(Arc::clone(&host.member).run(stop.clone()));
    host.start_scrubs(config, &mut tasks, &stop);
    let shown = http.as_ref().map(HttpPort::shown);
    let responder = Arc::new(host.responder(dir, listener.local_addr()?, shown));
    let measures = Measures::new(Arc::clone(&host.clock));
    let serve_http = |http| http::start(http, config, &responder, &measures, &mut tasks, &stop);
    let router = http.map(serve_http).transpose()?;
    let control = tokio::spawn(control::serve(control::listen(dir.path())?, Arc::clone(&responder) as _));
    // Before the head has answered, for it may be away for long: the status says so.
    let supervision = Arc::new(Supervision { notifier, parts: Arc::new(HostParts(Arc::clone(&responder))) });
    supervision.notifier.ready(&supervision.status().await);
    tasks.spawn(Arc::clone(&supervision).run(stop.clone()));
    if let Some(keytab) = host.keytab.take() {
        tasks.spawn(up::security::watch_keytab(keytab, Arc::clone(&host.security), stop.clone()));
    }
    let ended = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    tokio::pin!(ended);
    tokio::select! {
        admission = host.member.admitted() => {
            let admission = admission.context("the connection to the head has ended")?;
            announce(&host.banner(&listener, shown)?, "ready", config);
            if let Some(router) = router {
                router.serve_data(host.data_face(&admission));
            }
            let door = host.door(config, admission, measures);
            tasks.spawn(Arc::clone(&door).serve(listener, stop.clone()));
            let _ = responder.door.set(door);
            ended.await;
        }
        () = &mut ended => {}
    }
    supervision.notifier.stopping();
    announce("Forebay stops: finishing what is under way\n", "stopping", config);
    stop_sender.send_replace(true);
    host.stop(tasks).await;
    control.abort();
    Ok(())
}

/// The ports before anything is touched: a port in use is the commonest mistake.
async fn listen_and_join(
    config: &Config,
    dir: &PoolHostDir,
    token: Option<JoinToken>,
) -> Result<(TcpListener, Option<HttpPort>, Member)> {
    let listener = listen(SocketAddr::new(config.listen, config.pools.port), "--pool-port").await?;
    let http = HttpPort::take(config).await?;
    Ok((listener, http, join(dir, token, &host_name()).await?))
}

/// A host that has joined keeps its place; a token tells it of another address of its head, or it joins again by one.
async fn join(dir: &PoolHostDir, given: Option<JoinToken>, host: &str) -> Result<Member> {
    let member = match (dir.member(), given.as_ref().map(|given| &given.token)) {
        // Also where its keys are lost.
        (_, Some(token)) if token.pool.is_some() => join_again(dir, token, host).await?,
        (member, None) => member?.with_context(|| {
            format!(
                "{} has not joined a cluster: give a token with --join or --join-file (`forebay cluster token` on the head \
                 prints one); if it has, is its disk mounted?",
                dir.path().display()
            )
        })?,
        (member, Some(token)) => match member? {
            Some(mut member) => {
                if Fingerprint::of_pem(&member.keys.authority)? != token.authority {
                    bail!(
                        "{} belongs to another cluster: choose another directory with --data (if the keys of its cluster were \
                         rotated, on the head: forebay cluster readmit {})",
                        dir.path().display(),
                        member.pool
                    );
                }
                dir.record_heads(&mut member, &token.addresses)?;
                member
            }
            None => {
                let key: MemberKey = dir.key_to_join()?;
                let joining = Joining { host, pool: None };
                let membership = cluster::join(token, &key, joining).await.context("cannot join")?;
                dir.record(&membership, key, token)?;
                written(dir)?
            }
        },
    };
    if let Some(given) = given {
        given.used();
    }
    Ok(member)
}

/// By a new key: those of before may be in wrong hands, or lost.
async fn join_again(dir: &PoolHostDir, token: &Token, host: &str) -> Result<Member> {
    if let Some(member) = dir.joined_again_by(token)? {
        return Ok(member);
    }
    let here = dir.pool_here()?;
    if here != token.pool {
        let wanted = token.pool.map(|pool| pool.to_string()).unwrap_or_default();
        let has = here.map_or_else(|| "no pool".to_owned(), |pool| pool.to_string());
        bail!("the token is for {wanted}, and {} has {has} (--data)", dir.path().display());
    }
    let key = dir.key_to_join_again()?;
    let membership = cluster::join(token, &key, Joining { host, pool: here }).await.context("cannot join")?;
    dir.record_again(&membership, key, token)?;
    written(dir)
}

fn written(dir: &PoolHostDir) -> Result<Member> {
    dir.member()?.with_context(|| anyhow!("cannot read what was written to {}", dir.path().display()))
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// As the head is told of them.
struct Faces {
    nfs_port: u16,
    http: Option<HttpFace>,
}

struct PoolHost {
    instance: [u8; 16],
    heads: Vec<String>,
    local: Arc<LocalPool>,
    /// As clients see it: with a look at the lease.
    leased: Arc<dyn Pool>,
    member: Arc<PoolMember>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// A client has the same right at head and pools.
    security: Arc<Security>,
    keytab: Option<up::security::Watched>,
}

impl PoolHost {
    fn start(
        config: &Config,
        dir: &PoolHostDir,
        mut member: Member,
        (faces, address): (Faces, Option<String>),
        clock: Arc<dyn Clock>,
    ) -> Result<PoolHost> {
        dir.require_pool(&member)?;
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        let local = LocalPool::open(pool_config(
            config,
            (member.pool, dir.pool(), member.cluster),
            1,
            Arc::clone(&random),
        ))?;
        let now_s = u64::try_from(clock.now().seconds).unwrap_or(0);
        let process = Process { starts: dir.record_start(&mut member, now_s)?, draw: random.u64() };
        let lease = Arc::new(HeldLease::default());
        let lease_clock: Arc<dyn Clock> = Arc::new(SleeplessClock);
        let pool = MakingPool::new(Arc::new(PunctualPool::new(Arc::clone(&local) as _)));
        let leased = LeasedPool::new(Arc::clone(&pool), Arc::clone(&lease), Arc::clone(&lease_clock));
        let membership = MemberConfig {
            cluster: member.cluster,
            addresses: member.heads.clone(),
            keys: KeyRing::new(Arc::new(dir.host_keys(&member)), &member.keys, member.next_keys.as_ref())?,
            dialer: Arc::new(TlsDialer),
            process,
            host: host_name(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            address: address
                .or_else(|| Some(config.listen).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string())),
            nfs_port: faces.nfs_port,
            http: faces.http,
        };
        let (security, keytab) = up::security::start(config, &clock, &random)?;
        Ok(PoolHost {
            instance: member.cluster,
            heads: member.heads,
            local,
            leased: Arc::new(leased),
            member: PoolMember::new(membership, pool, lease, (lease_clock, Arc::clone(&random))),
            clock,
            random,
            security,
            keytab,
        })
    }

    /// With the permissions of clients, as the NFS face.
    fn data_face(&self, admission: &Admission) -> DataFace {
        let chance = (Arc::clone(&self.clock), Arc::clone(&self.random));
        http::data_face(Arc::clone(&self.leased), admission.key.clone(), chance, &self.member)
    }

    fn door(&self, config: &Config, admission: Admission, measures: Arc<Measures>) -> Arc<PoolDoor> {
        // The ticket is the authority; which hosts the head serves is not known here.
        let everybody = [Export::of_everything(Squash::All)];
        let door = PoolDoorConfig {
            instance: self.instance,
            lease: admission.nfs_lease,
            clients_max: config.nfs.clients_max as usize,
            connections_max: config.nfs.connections_max as usize,
            flight: Flight::new(u64::from(config.nfs.flight_mib) << 20),
            slots_max: config.nfs.slots_max,
            security: Arc::clone(&self.security),
            hosts: ServedHosts::of(&everybody),
        };
        let (clock, random) = (Arc::clone(&self.clock), Arc::clone(&self.random));
        PoolDoor::start(Arc::clone(&self.leased), admission.key, clock, random, measures, door)
    }

    fn responder(&self, dir: &PoolHostDir, nfs: SocketAddr, http: Option<ShownHttp>) -> HostResponder {
        let (path, pool) = (dir.path().to_owned(), Some(self.local.id()));
        HostResponder {
            host: KnownHost { path, pool, heads: self.heads.clone() },
            cluster: self.instance,
            nfs,
            http,
            clock: Arc::clone(&self.clock),
            started: self.clock.monotonic(),
            local: Arc::clone(&self.local),
            pool: Arc::clone(&self.leased),
            member: Arc::clone(&self.member),
            door: OnceLock::new(),
        }
    }

    fn start_scrubs(&self, config: &Config, tasks: &mut JoinSet<()>, stop: &watch::Receiver<bool>) {
        let every = Duration::from_secs(u64::from(config.pools.scrub_every_days) * 86_400);
        if !every.is_zero() {
            let (pool, clock) = (Arc::clone(&self.local), Arc::clone(&self.clock));
            tasks.spawn(scrub::start_by_itself(pool, Arc::new(NoNames), clock, every, stop.clone()));
        }
    }

    fn banner(&self, listener: &TcpListener, http: Option<ShownHttp>) -> Result<String> {
        let status = self.leased.status();
        let head = self.member.standing().head.unwrap_or_else(|| self.heads.join(", "));
        let cluster = Hex(&self.instance).to_string();
        let mut out = format!("Forebay {}\n", env!("CARGO_PKG_VERSION"));
        out += &format!("  pool     {} of cluster {}\n", status.id, &cluster[..8]);
        out += &format!("  head     {head}\n");
        out += &format!("  NFS      {} (data, for clients of the head)\n", listener.local_addr()?);
        if let Some(http) = http {
            out += &format!("  HTTP     {http}\n");
        }
        out += &format!("  disk     {}, {} free\n", self.local.dir().display(), Size(status.free_bytes));
        out += &format!("  stop     Ctrl-C, or: kill {}\n", std::process::id());
        Ok(out)
    }

    async fn stop(self, mut tasks: JoinSet<()>) {
        let local = Arc::clone(&self.local);
        let stopped = tokio::time::timeout(STOP, async {
            while tasks.join_next().await.is_some() {}
            // It joins threads: a blocking matter.
            let _ = tokio::task::spawn_blocking(move || {
                local.end_work();
                local.close();
            })
            .await;
        });
        if stopped.await.is_err() {
            tracing::warn!("stopped while work was in progress; no acknowledged change is lost");
        }
    }
}
