//! `forebay up`: a head and its pools in one process, wired in reading order.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admin::log::{Lines, LogControl};
use anyhow::{Result, anyhow};
use api::{HandleKey, Pool, PoolManager, PoolStatus};
use door_nfs::{HeadConfig, HeadDoor, HeadServices, PoolDoor, PoolDoorConfig, Security, StartError};
use files::{Files, FilesServices};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::timeout_at;
use types::{Clock, DateTime};

use crate::access_log::AccessLogWriter;
use crate::banner::Banner;
use crate::cli::UpArguments;
use crate::cluster::book::Book;
use crate::cluster::cuts::Cuts;
use crate::cluster::{ClusterHead, command};
use crate::config::{Config, Form, Level};
use crate::data_dir::DataDir;
use crate::drains::Drains;
use crate::keys::{FormerTerms, Keys};
use crate::naming::Naming;
use crate::pool_map::PoolMap;
use crate::pools::scrub;
use crate::services::{Services, open_services};
use crate::system::{SystemClock, SystemRandom};
use crate::{control, output, reaper, stderr};
use outside::{Outside, Running};
pub use overview::Measures;
use overview::Overview;

pub mod http;
pub mod notify;
pub mod origin;
mod outside;
pub mod overview;
mod reload;
mod responder;
pub mod security;
pub mod supervision;
mod writers;

/// Connections that the system has ready before they are accepted; its own bound (`net.core.somaxconn`) may be lower.
const BACKLOG: u32 = 4096;
/// The token of the banner is valid for so long.
const FIRST_TOKEN: Duration = Duration::from_secs(24 * 3_600);
/// Stopping takes at most this long, whatever clients and disks do.
const STOP: Duration = Duration::from_secs(4);
/// The access log is waited for at least so long, also if all else took the whole time.
const LAST_LINES: Duration = Duration::from_millis(200);

pub fn run(arguments: &UpArguments) -> Result<ExitCode> {
    let config = Config::assemble(arguments)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let log = start_log(&config, &clock);
    let data = DataDir::open(&config.data, config.pools.count, &SystemRandom)?;
    raise_open_files_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(serve(arguments, &config, &data, clock, log));
    runtime.shutdown_timeout(Duration::from_millis(500));
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Services that the HTTP door and the administrator's interface are made from.
pub struct Head<'a> {
    pub config: &'a Config,
    pub data: &'a DataDir,
    pub services: &'a Services,
    pub pool_map: &'a PoolMap,
    pub keys: &'a Arc<Keys>,
    pub files: &'a Arc<Files>,
    pub cluster: Option<&'a Arc<ClusterHead>>,
}

/// The NFS faces of the pools.
type PoolDoors = Vec<Arc<PoolDoor>>;

async fn serve(
    arguments: &UpArguments,
    config: &Config,
    data: &DataDir,
    clock: Arc<dyn Clock>,
    log: LogControl,
) -> Result<()> {
    // Signals first.
    let outside = Outside::meet(config, &clock)?;
    let start = Outside::watch_start()?;

    // Ports before anything is touched: a port in use is the commonest mistake.
    let head_listener = listen(SocketAddr::new(config.listen, config.nfs_port()), "--nfs-port").await?;
    let pool_listeners = listen_for_pools(config, data.pools).await?;
    let cluster_listener = listen_for_pool_hosts(arguments, config, data).await?;
    let http_ports = http::Ports::take(config, data.pools, outside.access_log()).await?;
    let tls = http_ports.as_ref().and_then(http::Ports::tls);

    let services = open_services(data, config, clock).await?;
    let keys = Arc::new(Keys::open(data, config.keys, Arc::clone(&services.clock))?);
    let (security, keytab) = security::start(config, &services.clock, &services.random)?;
    let measures = Measures::new(Arc::clone(&services.clock));
    let map = manage_pools(data, &services, &pool_listeners)?;
    let opened = cluster_listener.as_ref().map(|at| open_cluster((config, data), &services, &keys, at));
    let cluster = opened.transpose()?;
    let manager: Arc<dyn PoolManager> = map.clone();
    let files = share_files(config, &services, &manager);
    let cuts = cluster.as_ref().map(|_| note_cuts(data, &services, &files)).transpose()?;
    let door = start_head_door(config, data, (&services, &security, &keys), &files, &measures).await?;
    // Names of hosts were looked up until here.
    start.abort();

    let (stop_sender, stop) = watch::channel(false);
    let mut tasks = JoinSet::new();
    tasks.spawn(Arc::clone(&keys).run(stop.clone()));
    let parts = (&services, &security, &*keys, &*door);
    if let (Some(cluster), Some(listener)) = (&cluster, cluster_listener) {
        // Before hosts come: they are told.
        if let Some(ports) = &http_ports {
            cluster.set_http(config.http.names.first().cloned(), ports.port()?);
        }
        tasks.spawn(cluster::serve(listener, cluster.tls(), Arc::clone(cluster) as _, stop.clone()));
    }
    let pool_doors = start_pool_doors(config, data, parts, &measures, pool_listeners, &mut tasks, &stop)?;
    let head_address = head_listener.local_addr()?;
    tasks.spawn(Arc::clone(&door).serve(head_listener, stop.clone()));
    start_reaper(&services, (&manager, &files, &door), &mut tasks, &stop);
    start_scrubs(config, &services, &mut tasks, &stop);
    let drains = start_drains((config, data), &services, (&manager, &files), &mut tasks, &stop)?;
    if let Some(cuts) = cuts {
        tasks.spawn(cuts.run(Arc::clone(&files), stop.clone()));
    }
    if let Some(keytab) = keytab {
        tasks.spawn(security::watch_keytab(keytab, Arc::clone(&security), stop.clone()));
    }

    let head = Head {
        config,
        data,
        services: &services,
        pool_map: &map,
        keys: &keys,
        files: &files,
        cluster: cluster.as_ref(),
    };
    tasks.spawn(tick_log(log.clone(), stop.clone()));
    let overview = make_overview(&head, (&door, &map, &cluster), measures, log.clone());
    let web = http_ports.map(|ports| http::start(ports, &head, overview, &mut tasks, &stop)).transpose()?;

    let naming = start_naming(config, &services, &mut tasks, &stop);
    let doors = (Arc::clone(&door), pool_doors);
    let http = web.as_ref().map(http::Shown::report);
    let parts = (naming, Arc::clone(&files), http);
    let known = (Arc::clone(&map), drains, Arc::clone(&keys), cluster.clone());
    let responder = responder::Responder::new(data, &services, doors, parts, known);
    tasks.spawn(Arc::clone(&responder).sample(stop.clone()));
    let control = tokio::spawn(control::serve(control::listen(data.path())?, Arc::clone(&responder) as _));

    let banner =
        Banner { cluster: cluster_line(cluster.as_ref()).await, ..banner(&head, head_address, web).await };
    announce(&banner.text(), "ready", config);

    let (namespace, listeners) = (Arc::clone(&services.namespace), listeners(&banner, &*manager));
    let running = Running { arguments, config, log, door, tls, responder, namespace, listeners };
    let (outcome, access_log) = outside.run(running, &mut tasks, stop).await;
    announce("Forebay stops: finishing what is under way\n", "stopping", config);
    // Nobody may come late: the receivers see the value, also those that subscribe after it.
    stop_sender.send_replace(true);
    drain(tasks, &services, control, access_log).await;
    outcome
}

async fn banner<'a>(head: &Head<'a>, address: SocketAddr, web: Option<http::Shown>) -> Banner<'a> {
    let Head { config, data, services, pool_map, .. } = *head;
    let listening = |pool: PoolStatus| Some((pool_map.address(pool.id, door_nfs::NAME)?, pool));
    Banner {
        data: data.path(),
        head: address,
        pools: pool_map.pools().into_iter().filter_map(listening).collect(),
        squashes_root: config.squashes_root(),
        sync: services.namespace.sync(),
        missing_directory: writers::missing_directory(&services.namespace, config).await,
        cluster: None,
        web,
    }
}

/// The port for pool hosts, if there is a cluster or is to be one.
async fn listen_for_pool_hosts(
    arguments: &UpArguments,
    config: &Config,
    data: &DataDir,
) -> Result<Option<TcpListener>> {
    // Also where it is to become one: before own pools take numbers of hosts.
    if Book::open(data)?.is_none() && !arguments.cluster {
        return Ok(None);
    }
    let address = SocketAddr::new(config.listen, config.cluster.port);
    listen(address, "cluster.port in a file, --config").await.map(Some)
}

fn open_cluster(
    (config, data): (&Config, &DataDir),
    services: &Services,
    keys: &Arc<Keys>,
    listener: &TcpListener,
) -> Result<Arc<ClusterHead>> {
    let place = (config, data, listener.local_addr()?.port());
    tokio::task::block_in_place(|| ClusterHead::open(place, services, Arc::clone(keys)))
}

/// Before anybody is served: truncations at other hosts that the former start left are known from here on.
fn note_cuts(data: &DataDir, services: &Services, files: &Files) -> Result<Arc<Cuts>> {
    let cuts = tokio::task::block_in_place(|| Cuts::open(data, services.namespace.clone()))?;
    files.note_cuts(Arc::clone(&cuts) as _);
    Ok(cuts)
}

/// How hosts join, as long as none has.
async fn cluster_line(cluster: Option<&Arc<ClusterHead>>) -> Option<String> {
    let cluster = Arc::clone(cluster?);
    let port = cluster.port();
    let hosts = cluster.report().pools.len();
    if hosts > 0 {
        return Some(format!(
            "port {port}; {} of other hosts",
            output::counted(hosts as u64, "pool", "pools")
        ));
    }
    // A token is a password: not for a journal.
    if !std::io::stdout().is_terminal() {
        return Some(format!("port {port}; add a host by what this prints: forebay cluster token"));
    }
    let made = tokio::task::spawn_blocking(move || cluster.make_token(FIRST_TOKEN, None)).await.ok()?;
    Some(match made {
        Ok(report) => {
            format!("port {port}; add a host: {} (valid for 24 h)", command::join_command(&report.token))
        }
        Err(error) => format!("port {port}; cannot make a token: {error:#}"),
    })
}

/// Listeners of all doors, by names for people.
fn listeners(banner: &Banner<'_>, manager: &dyn PoolManager) -> Vec<(String, SocketAddr)> {
    let mut listeners = vec![("NFS listener of the head".to_owned(), banner.head)];
    listeners.extend(banner.web.iter().map(|web| ("HTTP listener".to_owned(), web.address)));
    for (address, pool) in &banner.pools {
        listeners.push((format!("NFS listener of {}", pool.id), *address));
        let face = manager.address(pool.id, door_webdav::NAME);
        listeners.extend(face.map(|address| (format!("HTTP listener of {}", pool.id), address)));
    }
    listeners
}

pub fn start_log(config: &Config, clock: &Arc<dyn Clock>) -> LogControl {
    admin::log::start(level(config.log.level), log_lines(config), Arc::clone(clock))
}

fn log_lines(config: &Config) -> Lines {
    let form = match config.log.format {
        Form::Text => admin::log::Form::Text,
        Form::Json => admin::log::Form::Json,
    };
    Lines { form, has_colours: stderr::has_colours(), is_journal: stderr::is_journal() }
}

fn manage_pools(data: &DataDir, services: &Services, nfs_faces: &[TcpListener]) -> Result<Arc<PoolMap>> {
    let (clock, random) = (Arc::clone(&services.clock), Arc::clone(&services.random));
    let pools = Arc::clone(&services.pools);
    for (pool, listener) in pools.enabled().iter().zip(nfs_faces) {
        pools.set_address(pool.id(), door_nfs::NAME, listener.local_addr()?)?;
    }
    Ok(Arc::new(PoolMap::new(pools, data.drained_pools().load()?.pools, clock, random)))
}

fn start_drains(
    (config, data): (&Config, &DataDir),
    services: &Services,
    (manager, files): (&Arc<dyn PoolManager>, &Arc<Files>),
    tasks: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) -> Result<Arc<Drains>> {
    let (namespace, clock) = (Arc::clone(&services.namespace), Arc::clone(&services.clock));
    let share = f64::from(config.pools.copy_percent) / 100.0;
    let drains = Drains::new(namespace, Arc::clone(manager), files.mover()?, clock, share);
    let drains = Arc::new(drains);
    drains.set(&data.drained_pools().load()?.emptied);
    tasks.spawn(Arc::clone(&drains).run(stop.clone()));
    Ok(drains)
}

fn start_reaper(
    services: &Services,
    (manager, files, door): (&Arc<dyn PoolManager>, &Arc<Files>, &Arc<HeadDoor>),
    tasks: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) {
    let (namespace, manager) = (services.namespace.clone(), Arc::clone(manager));
    tasks.spawn(reaper::run(namespace, manager, Arc::clone(files), Arc::clone(door), stop.clone()));
}

fn start_scrubs(config: &Config, services: &Services, tasks: &mut JoinSet<()>, stop: &watch::Receiver<bool>) {
    let every = Duration::from_secs(u64::from(config.pools.scrub_every_days) * 86_400);
    if every.is_zero() {
        return;
    }
    for pool in &services.local_pools {
        let (pool, namespace, clock) =
            (Arc::clone(pool), services.namespace.clone(), Arc::clone(&services.clock));
        tasks.spawn(scrub::start_by_itself(pool, namespace, clock, every, stop.clone()));
    }
}

fn start_naming(
    config: &Config,
    services: &Services,
    tasks: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) -> Arc<Naming> {
    let (namespace, pools) = (Arc::clone(&services.namespace), Arc::clone(&services.pools));
    let naming = Arc::new(Naming::new(namespace, pools, Arc::clone(&services.clock)));
    if config.namespace.describe_s > 0 {
        let period = Duration::from_secs(config.namespace.describe_s);
        tasks.spawn(Arc::clone(&naming).run(period, stop.clone()));
    }
    naming
}

/// Collects the services that the administrator's interface reads.
fn make_overview(
    head: &Head<'_>,
    (door, pool_map, cluster): (&Arc<HeadDoor>, &Arc<PoolMap>, &Option<Arc<ClusterHead>>),
    measures: Arc<Measures>,
    log: LogControl,
) -> Overview {
    let Head { config, services, keys, files, .. } = *head;
    Overview {
        site: config.http.site.clone(),
        clock: Arc::clone(&services.clock),
        started: services.clock.monotonic(),
        namespace: Arc::clone(&services.namespace),
        pool_map: Arc::clone(pool_map),
        local_pools: services.local_pools.clone(),
        cluster: cluster.clone(),
        door: Arc::clone(door),
        keys: Arc::clone(keys),
        files: Arc::clone(files),
        measures,
        copy_counts: Arc::default(),
        log,
        rates: Default::default(),
    }
}

/// Tells how many repeated warnings were left out.
pub async fn tick_log(log: LogControl, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        log.tick();
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
            _ = stop.changed() => {}
        }
    }
}

async fn drain(
    mut tasks: JoinSet<()>,
    services: &Services,
    control: JoinHandle<()>,
    access_log: Option<AccessLogWriter>,
) {
    let end = Instant::now() + STOP;
    let drained = timeout_at(end.into(), async {
        while tasks.join_next().await.is_some() {}
        control.abort();
        services.close().await;
    });
    if drained.await.is_err() {
        tracing::warn!("stopped while work was in progress; no acknowledged change is lost");
    }
    let patience = end.saturating_duration_since(Instant::now()).max(LAST_LINES);
    if access_log.is_some_and(|writer| !writer.finish(patience)) {
        tracing::warn!("stopped before the last lines of the access log were written: its disk is slow");
    }
}

/// The one conflict table, with what every door does over it.
fn share_files(config: &Config, services: &Services, manager: &Arc<dyn PoolManager>) -> Arc<Files> {
    Arc::new(Files::new(FilesServices {
        namespace: services.namespace.clone(),
        acls: services.namespace.clone(),
        locations: services.namespace.clone(),
        properties: services.namespace.clone(),
        xattrs: services.namespace.clone(),
        quotas: services.namespace.clone(),
        uploads: services.namespace.clone(),
        pools: Arc::clone(manager),
        clock: Arc::clone(&services.clock),
        recall_time: config.nfs.delegations.recall_time(config.nfs.lease_s),
    }))
}

async fn listen_for_pools(config: &Config, pools: u32) -> Result<Vec<TcpListener>> {
    let mut listeners = Vec::new();
    for number in 0..pools {
        let port = u16::try_from(u32::from(config.pools.port) + number)
            .map_err(|_| anyhow!("--pool-port {} leaves no ports for {pools} pools", config.pools.port))?;
        listeners.push(listen(SocketAddr::new(config.listen, port), "--pool-port").await?);
    }
    Ok(listeners)
}

async fn start_head_door(
    config: &Config,
    data: &DataDir,
    (services, security, keys): (&Services, &Arc<Security>, &Arc<Keys>),
    files: &Arc<Files>,
    measures: &Arc<Measures>,
) -> Result<Arc<HeadDoor>> {
    let clock = Arc::clone(&services.clock);
    let services = HeadServices {
        namespace: services.namespace.clone(),
        lineage: services.namespace.clone(),
        xattrs: services.namespace.clone(),
        records: services.namespace.clone(),
        files: Arc::clone(files),
        clock: Arc::clone(&services.clock),
        random: Arc::clone(&services.random),
        observer: measures.clone(),
        handle_key: HandleKey::new(&data.secret),
        ticket_keys: keys.ticket_keys(),
        former_tickets: Arc::new(FormerTerms(Arc::clone(keys))),
    };
    let config = HeadConfig {
        instance: data.instance,
        lease: Duration::from_secs(config.nfs.lease_s.into()),
        courtesy: config.nfs.courtesy(),
        grace: Duration::from_secs(config.nfs.grace_s.into()),
        exports: crate::config::exports::resolve(config).await?,
        security: Arc::clone(security),
        owners: security::owners(config, &clock),
        clients_max: config.nfs.clients_max as usize,
        connections_max: config.nfs.connections_max as usize,
        flight_bytes_max: u64::from(config.nfs.flight_mib) << 20,
        slots_max: config.nfs.slots_max,
        layout_bytes_min: u64::from(config.nfs.layout_min_kib) << 10,
        copy_answer: Duration::from_millis(config.nfs.copy_answer_ms.into()),
        delegations: config.nfs.delegations.rules(),
    };
    let door = HeadDoor::start(services, config).await;
    door.map_err(|error| match error {
        StartError::Export(error) => anyhow!(error).context("nfs.export"),
        error => anyhow!(error).context("cannot start the NFS door"),
    })
}

fn start_pool_doors(
    config: &Config,
    data: &DataDir,
    (services, security, keys, head): (&Services, &Arc<Security>, &Keys, &HeadDoor),
    measures: &Arc<Measures>,
    listeners: Vec<TcpListener>,
    tasks: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) -> Result<PoolDoors> {
    let mut doors = PoolDoors::new();
    for (listener, pool) in listeners.into_iter().zip(services.pools.enabled()) {
        let door = start_pool_door(config, data, (services, security, keys, head), measures, pool);
        doors.push(Arc::clone(&door));
        tasks.spawn(door.serve(listener, stop.clone()));
    }
    Ok(doors)
}

fn start_pool_door(
    config: &Config,
    data: &DataDir,
    (services, security, keys, head): (&Services, &Arc<Security>, &Keys, &HeadDoor),
    measures: &Arc<Measures>,
    pool: Arc<dyn Pool>,
) -> Arc<PoolDoor> {
    let config = PoolDoorConfig {
        instance: data.instance,
        lease: Duration::from_secs(config.nfs.lease_s.into()),
        clients_max: config.nfs.clients_max as usize,
        connections_max: config.nfs.connections_max as usize,
        flight: Arc::clone(head.flight()),
        slots_max: config.nfs.slots_max,
        security: Arc::clone(security),
        hosts: Arc::clone(head.hosts()),
    };
    let (clock, random) = (Arc::clone(&services.clock), Arc::clone(&services.random));
    let key = keys.pool_key(pool.id());
    PoolDoor::start(pool, key, clock, random, measures.clone(), config)
}

/// See [`Outside::watch_start`].
pub fn watch_start() -> Result<AbortHandle> {
    Outside::watch_start()
}

pub async fn listen(address: SocketAddr, option: &str) -> Result<TcpListener> {
    let listening = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listening().map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("{address} is in use by another program (choose another port with {option})")
        }
        std::io::ErrorKind::PermissionDenied => {
            anyhow!("{address} needs root (choose a port above 1023 with {option})")
        }
        std::io::ErrorKind::AddrNotAvailable => {
            anyhow!("{} is no address of this host (choose another with --listen)", address.ip())
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    })
}

/// Connections and replicas are descriptors: as many as the host allows us.
pub fn raise_open_files_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// Tells on standard output what becomes of the server: as text, or in the form of the log if that is JSON.
pub fn announce(text: &str, event: &str, config: &Config) {
    if config.log.format == Form::Text {
        return print_out(text);
    }
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let at = DateTime::from(SystemClock::new().now()).to_string();
    let object = serde_json::json!({
        "timestamp": at, "level": "INFO", "target": "forebay", "fields": { "message": event, "lines": lines }
    });
    print_out(&format!("{object}\n"));
}

/// The terminal may be gone; that is no reason to stop serving.
fn print_out(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

fn level(level: Level) -> tracing::Level {
    match level {
        Level::Error => tracing::Level::ERROR,
        Level::Warn => tracing::Level::WARN,
        Level::Info => tracing::Level::INFO,
        Level::Debug => tracing::Level::DEBUG,
        Level::Trace => tracing::Level::TRACE,
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn hundreds_that_connect_at_once_do_not_wait() {
        let listener = listen("127.0.0.1:0".parse().unwrap(), "--nfs-port").await.unwrap();
        let address = listener.local_addr().unwrap();
        // The kernel keeps those that nobody accepts yet; beyond what it keeps they wait.
        let mut connecting: JoinSet<_> = (0..500).map(|_| TcpStream::connect(address)).collect();
        let mut connected = Vec::new();
        let all = async {
            while let Some(stream) = connecting.join_next().await {
                connected.push(stream.unwrap().unwrap());
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
        assert_eq!(connected.len(), 500);
    }
}
