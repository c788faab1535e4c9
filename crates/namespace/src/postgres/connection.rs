//! One connection, its prepared statements, and what its errors mean.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postgres_types::{ToSql, WrongType};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, NoTls, Row, Statement};

use super::schema::SCHEMA;
use crate::store::StoreError;

/// Of one attempt: name resolution, all addresses, login.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Of an answer. Who waits for a lock, a standby or a disk for longer begins anew on another connection.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// A peer that does not acknowledge for so long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// Every question is a look at few keys. Plans are kept, and so must not depend on what the tables held when they were
/// made: in a fresh schema the planner takes sequential scans for cheap.
const PLANS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c enable_hashjoin=off \
    -c enable_mergejoin=off -c jit=off";

/// The server must soon notice that we are gone, too: our session holds the lock.
const KEEPALIVES: &str = "-c tcp_keepalives_idle=10 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 \
    -c tcp_user_timeout=10000";

/// Where the database is, and what drives its connections.
#[derive(Clone)]
pub struct Target {
    config: tokio_postgres::Config,
    handle: Handle,
    away: Arc<Mutex<Option<String>>>,
    is_stopping: Arc<AtomicBool>,
}

impl Target {
    /// `is_deferred`: a commit is answered before it is on disk.
    pub fn new(mut config: tokio_postgres::Config, handle: Handle, is_deferred: bool) -> Target {
        let commits = if is_deferred { "-c synchronous_commit=off" } else { "" };
        let options = config.get_options().unwrap_or_default();
        let options = format!("{options} -c search_path={SCHEMA} {PLANS} {KEEPALIVES} {commits}");
        config
            .options(options.trim())
            .application_name("forebay")
            .connect_timeout(CONNECT_TIMEOUT / 2)
            .tcp_user_timeout(SILENCE_MAX)
            .keepalives_idle(SILENCE_MAX)
            .keepalives_interval(SILENCE_MAX / 2)
            .keepalives_retries(3)
            // A standby can be named too: it counts when it was promoted.
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Target { config, handle, away: Arc::default(), is_stopping: Arc::default() }
    }

    /// From now on nobody waits long.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    pub fn patience(&self, usual: Duration) -> Duration {
        if self.is_stopping() { usual.min(STOP_PATIENCE) } else { usual }
    }

    /// Why the database does not answer now, for health. Told by who waits for it.
    pub fn away(&self) -> Option<String> {
        self.away.lock().clone()
    }

    /// Told once when it goes and once when it is back.
    pub fn is_away(&self, reason: &str) {
        if self.away.lock().replace(reason.to_owned()).is_none() {
            tracing::error!(reason, "namespace's database does not answer");
        }
    }

    pub fn is_there(&self) {
        if self.away.lock().take().is_some() {
            tracing::info!("namespace's database answers again");
        }
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    pub fn name(&self) -> String {
        name(&self.config)
    }

    pub async fn connect(&self) -> Result<Link, Trouble> {
        let config = self.config.clone();
        // Sockets belong to the runtime that drives them, not to the one that asks.
        let connecting = self.handle.spawn(async move {
            let connected = timeout(CONNECT_TIMEOUT, config.connect(NoTls)).await;
            let (client, connection) = connected.map_err(|_| slow())??;
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "connection to the namespace's database ended");
                }
            });
            Ok::<_, Trouble>(client)
        });
        match connecting.await {
            Ok(connected) => {
                Ok(Link { client: connected?, statements: Mutex::default(), uses: AtomicU64::new(0) })
            }
            Err(_) => Err(Trouble::Passing("stopping".to_owned())),
        }
    }
}

/// For people; without the password.
pub fn name(config: &tokio_postgres::Config) -> String {
    let hosts: Vec<String> = config.get_hosts().iter().map(host_name).collect();
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or("postgres");
    let port = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
    format!("postgres://{}{port}/{database}", hosts.join(","))
}

fn host_name(host: &tokio_postgres::config::Host) -> String {
    match host {
        tokio_postgres::config::Host::Tcp(name) => name.clone(),
        tokio_postgres::config::Host::Unix(path) => path.display().to_string(),
    }
}

pub struct Link {
    pub client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
    uses: AtomicU64,
}

impl Link {
    /// Prepared once for each connection.
    pub async fn prepared(&self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.lock().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.lock().insert(sql, statement.clone());
        Ok(statement)
    }

    pub async fn query(
        &self,
        sql: &'static str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, Error> {
        self.renew_plans().await?;
        let statement = self.prepared(sql).await?;
        self.client.query(&statement, parameters).await
    }

    /// A plan that was made while a table was empty may be a bad one for what it holds later. So all are made anew as a
    /// session grows old, at its powers of two.
    pub async fn renew_plans(&self) -> Result<(), Error> {
        let uses = self.uses.fetch_add(1, Ordering::Relaxed) + 1;
        if uses.is_power_of_two() && uses > 1 {
            self.client.batch_execute("DISCARD PLANS").await
        } else {
            Ok(())
        }
    }
}

/// What to do about an error.
#[derive(Debug)]
pub enum Trouble {
    /// A transaction did not begin, and what was sent behind its BEGIN may have been done by itself.
    Torn(String),
    /// The database goes away, or came to an end by itself: the same may do on another connection.
    Passing(String),
    /// A guard of ours did not hold: the database is not as the last group left it.
    Moved,
    Lasting(StoreError),
}

pub fn slow() -> Trouble {
    Trouble::Passing("no answer in time".to_owned())
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        let reason = describe(&error);
        let Some(code) = error.code() else {
            // Nothing reached the server, or nothing came back; but a value of the wrong type is a mistake of ours.
            let is_ours = std::error::Error::source(&error).is_some_and(|cause| cause.is::<WrongType>());
            return if is_ours {
                Trouble::Lasting(StoreError::Failed(reason))
            } else {
                Trouble::Passing(reason)
            };
        };
        if *code == SqlState::DIVISION_BY_ZERO {
            return Trouble::Moved;
        }
        if is_passing(code) {
            return Trouble::Passing(reason);
        }
        Trouble::Lasting(match *code {
            SqlState::DISK_FULL => StoreError::NoSpace(reason),
            SqlState::INSUFFICIENT_PRIVILEGE => StoreError::ReadOnly(reason),
            _ => StoreError::Failed(reason),
        })
    }
}

fn is_passing(code: &SqlState) -> bool {
    const PASSING: [SqlState; 8] = [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
        // A standby that is not promoted yet.
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::QUERY_CANCELED,
    ];
    // Connections, resources, timeouts of sessions and transactions.
    let is_of_class = |class: &str| code.code().starts_with(class);
    let is_full = *code == SqlState::DISK_FULL;
    is_of_class("08")
        || (is_of_class("53") && !is_full)
        || is_of_class("57P")
        || ["25P03", "25P04"].contains(&code.code())
        || PASSING.contains(code)
}

/// With what lies behind it: the driver's own text is "db error".
pub fn describe(error: &Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(told), _) => format!("{} ({})", told.message(), told.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}

/// How long a caller waits for a database that is away.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// While the namespace is being closed.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Pauses between attempts, longer each time. The time counts from the first that failed.
#[derive(Default)]
pub struct Attempts {
    failing_since: Option<Instant>,
    pauses: u32,
}

impl Attempts {
    pub fn lasted(&self) -> Duration {
        self.failing_since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub fn pause(&mut self) -> impl Future<Output = ()> + use<> {
        self.failing_since.get_or_insert_with(Instant::now);
        let pause = (PAUSE_MIN * 2_u32.pow(self.pauses.min(10))).min(PAUSE_MAX);
        self.pauses += 1;
        tokio::time::sleep(pause)
    }
}
