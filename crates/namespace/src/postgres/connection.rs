//! Where the servers are, one connection to the one that takes writes, and its prepared statements.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config};

pub use super::link::{ANSWER_TIMEOUT, Link, in_time};
use super::presence::Presence;
use super::schema::SCHEMA;
use super::settings;
use super::tls::Connector;
pub use super::trouble::Trouble;
use super::trouble::{POOLED, slow};
use super::url::{Trust, Url};
use crate::store::StoreError;

/// Of one attempt at one server: name resolution, all addresses, TLS, login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const PORT: u16 = 5432;
/// Set in the session in any case, so that a server that reloads another value does not change it.
const STRICT: &str = "SELECT set_config('synchronous_commit', \
    CASE WHEN setting IN ('off', 'local') THEN 'on' ELSE setting END, false) \
    FROM pg_settings WHERE name = 'synchronous_commit'";
/// A peer that does not acknowledge for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Every question is a look at few keys. Plans are kept, and so must not depend on what the tables held when they were
/// made: in a fresh schema the planner takes sequential scans for cheap.
const PLANS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off \
    -c enable_mergejoin=off -c jit=off";

/// Overrides settings of the user: a group waits for the session that holds its rows and then reads them again, and the
/// server does not end the session of an idle head, which holds the lock. The head itself bounds the time of an answer;
/// the server reports a lock that it cannot get before that.
const MANNERS: &str = "-c default_transaction_isolation=read\\ committed -c idle_session_timeout=0 \
    -c idle_in_transaction_session_timeout=0 -c statement_timeout=0 -c lock_timeout=20s";

/// The server must soon notice that we are gone, too: our session holds the lock.
const KEEPALIVES: &str = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 \
    -c tcp_user_timeout=10000";

/// Where the database is, and what drives its connections.
#[derive(Clone)]
pub struct Target {
    name: String,
    servers: Arc<[Config]>,
    /// Of the server that was last found to take writes.
    likely: Arc<AtomicUsize>,
    trust: Arc<Trust>,
    handle: Handle,
    presence: Arc<Presence>,
    is_deferred: bool,
}

impl Target {
    /// `is_deferred`: sessions that write answer a commit before it is on disk, unless its transaction asks for more.
    pub fn new(url: &Url, handle: Handle, is_deferred: bool) -> Target {
        let commits = if is_deferred { "-c synchronous_commit=off" } else { "" };
        let options = url.config.get_options().unwrap_or_default();
        let options = format!("{options} -c search_path={SCHEMA} {PLANS} {MANNERS} {KEEPALIVES} {commits}");
        let servers = (0..url.config.get_hosts().len()).map(|at| server(&url.config, at, options.trim()));
        Target {
            name: name(&url.config),
            servers: servers.collect(),
            likely: Arc::default(),
            trust: Arc::new(url.trust.clone()),
            handle,
            presence: Arc::default(),
            is_deferred,
        }
    }

    pub fn presence(&self) -> &Arc<Presence> {
        &self.presence
    }

    pub fn is_deferred(&self) -> bool {
        self.is_deferred
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// To the server that takes writes.
    pub async fn connect(&self) -> Result<Link, Trouble> {
        let target = self.clone();
        // Sockets belong to the runtime that drives them, not to the one that asks.
        let link = match self.handle.spawn(async move { target.connect_to_any().await }).await {
            Ok(connected) => Link::new(connected?),
            Err(_) => return Err(Trouble::Passing("stopping".to_owned())),
        };
        in_time(settings::require(&link.client)).await?;
        Ok(link)
    }

    /// To write with. An answered change is to be on disk, and if a standby has to have it, there. A weaker setting of
    /// the user or the database is overridden, a stronger one stays.
    pub async fn connect_to_write(&self) -> Result<Link, Trouble> {
        let link = self.connect().await?;
        if !self.is_deferred {
            timeout(ANSWER_TIMEOUT, link.client.query_opt(STRICT, &[])).await.map_err(|_| slow())??;
        }
        Ok(link)
    }

    /// Checks by a second connection that the first has a session to itself. If the server has no connection left, the
    /// check is left out.
    pub async fn require_own(&self, link: &Link) -> Result<(), Trouble> {
        let other = match self.connect().await {
            Err(trouble) if trouble.is_of(&SqlState::TOO_MANY_CONNECTIONS) => return Ok(()),
            other => other?,
        };
        if settings::are_apart(link, &other).await? {
            return Ok(());
        }
        Err(Trouble::Lasting(StoreError::Failed(POOLED.to_owned())))
    }

    /// It is the only one that is named.
    pub fn is_alone(&self) -> bool {
        self.servers.len() == 1
    }

    /// Each has its own time: one that is silent does not take that of the next.
    async fn connect_to_any(&self) -> Result<Client, Trouble> {
        let trust = Arc::clone(&self.trust);
        let made = tokio::task::spawn_blocking(move || Connector::new(&trust)).await;
        let Ok(made) = made else { return Err(Trouble::Passing("stopping".to_owned())) };
        let connector = made.map_err(|error| Trouble::Passing(error.to_string()))?;
        let likely = self.likely.load(Ordering::Relaxed);
        let mut refusals = Vec::new();
        for turn in 0..self.servers.len() {
            let at = (likely + turn) % self.servers.len();
            let connecting = login(&self.servers[at], connector.clone());
            match timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(slow())) {
                Ok(client) => {
                    self.likely.store(at, Ordering::Relaxed);
                    return Ok(client);
                }
                Err(trouble) => refusals.push((at, trouble)),
            }
        }
        refusals.sort_by_key(|(at, _)| *at);
        Err(self.all_refused(refusals))
    }

    /// That one may come back counts more than that another never will.
    fn all_refused(&self, mut refusals: Vec<(usize, Trouble)>) -> Trouble {
        if refusals.len() == 1 {
            return refusals.remove(0).1;
        }
        let is_lasting = refusals.iter().all(|(_, trouble)| matches!(trouble, Trouble::Lasting(_)));
        let told = refusals.into_iter().map(|(at, trouble)| {
            let host = self.servers[at].get_hosts().first().map(host_name).unwrap_or_default();
            let port = self.servers[at].get_ports().first().copied().unwrap_or(PORT);
            format!("{host}:{port}: {}", trouble.reason())
        });
        let told = told.collect::<Vec<_>>().join("; ");
        if is_lasting { Trouble::Lasting(StoreError::Failed(told)) } else { Trouble::Passing(told) }
    }
}

/// Configuration of one server of several, with the options that all get.
fn server(url: &Config, at: usize, options: &str) -> Config {
    let mut server = Config::new();
    match &url.get_hosts()[at] {
        Host::Tcp(host) => server.host(host).ssl_mode(url.get_ssl_mode()),
        // There is nobody in between, and the server takes no TLS there.
        Host::Unix(path) => server.host_path(path).ssl_mode(SslMode::Disable),
    };
    let (ports, addresses) = (url.get_ports(), url.get_hostaddrs());
    server.port(ports.get(at).or(ports.first()).copied().unwrap_or(PORT));
    if let Some(address) = addresses.get(at) {
        server.hostaddr(*address);
    }
    if let Some(user) = url.get_user() {
        server.user(user);
    }
    if let Some(password) = url.get_password() {
        server.password(password);
    }
    if let Some(database) = url.get_dbname() {
        server.dbname(database);
    }
    server
        .ssl_negotiation(url.get_ssl_negotiation())
        .channel_binding(url.get_channel_binding())
        .options(options)
        .application_name("forebay")
        .connect_timeout(CONNECT_TIMEOUT / 2)
        .tcp_user_timeout(SILENCE_MAX)
        .keepalives_idle(SILENCE_MAX)
        .keepalives_interval(SILENCE_MAX / 2)
        .keepalives_retries(3)
        // A standby can be named too: it counts when it was promoted.
        .target_session_attrs(TargetSessionAttrs::ReadWrite);
    server
}

async fn login(server: &Config, connector: Connector) -> Result<Client, Trouble> {
    let (client, connection) = Box::pin(server.connect(connector)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "connection to the namespace's database ended");
        }
    });
    Ok(client)
}

/// For people; without the password.
pub fn name(config: &Config) -> String {
    let hosts: Vec<String> = config.get_hosts().iter().map(host_name).collect();
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    let port = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
    format!("postgres://{}{port}/{database}", hosts.join(","))
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}
