//! Opening: a server that will do, a schema that is ours and not too new, the lock, and a new start counted.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;

use super::connection::{ANSWER_TIMEOUT, Link, Target, name};
use super::reads::PostgresReads;
use super::rows::{InodeArrays, WRITE_INODES, get};
use super::schema::{KNOWN_VERSION, MIGRATIONS, SCHEMA};
use super::store::PostgresStore;
use super::trouble::Trouble;
use super::url::Url;
use super::writer::{BEGIN_DURABLY, NOTE, Writer, take_lock};
use crate::consistency::FOLD_ALL;
use crate::ids::FIRST;
use crate::inode::{ChangeFloor, Instance};
use crate::open::{Background, Config, OpenError, Opened, Server, State, Sync};
use crate::starts::{Notes, new_root};
use crate::store::{NumberEnds, StoreError, Totals};

pub const SERVER_VERSION_MIN: i32 = 150_000;
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Drives the connections.
struct Driver {
    runtime: Option<Runtime>,
    target: Target,
}

impl Background for Driver {
    fn stop(&mut self) {}

    fn away(&self) -> Option<String> {
        self.target.presence().reason()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Also from within another runtime, where waiting for the end of this one is not allowed.
            runtime.shutdown_background();
        }
    }
}

pub enum Refused {
    Trouble(Trouble),
    TooOld(String),
    Foreign,
    Newer(i32),
    /// It was being built anew.
    Unfinished,
    InUse,
    /// It belongs to another instance.
    Strange,
    /// It was there and is not.
    Gone,
    /// Its encoding cannot hold what names and values of properties may be.
    Encoding(String),
    NoRightToCreate,
}

impl<T: Into<Trouble>> From<T> for Refused {
    fn from(trouble: T) -> Refused {
        Refused::Trouble(trouble.into())
    }
}

struct Begun {
    writer: Writer,
    reads: PostgresReads,
    floor: ChangeFloor,
    epoch: i64,
    state: State,
}

/// What a person calls the database of a URL: where it is, without user and password.
pub fn database_name(url: &str) -> Result<String, OpenError> {
    Ok(name(&parse(url)?.config))
}

fn parse(url: &str) -> Result<Url, OpenError> {
    url.parse().map_err(OpenError::BadUrl)
}

pub fn open(server: &Server, config: &Config) -> Result<Opened, OpenError> {
    let parsed = parse(&server.url)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("namespace-sql")
        .enable_all()
        .build()
        .map_err(|error| OpenError::NoThread(error.to_string()))?;
    let target = Target::new(&parsed, runtime.handle().clone(), config.sync != Sync::Always);
    let (answer, answered) = std::sync::mpsc::channel();
    let (asked, terms) = (target.clone(), Terms::of(config, server));
    // Not here: the caller may be in a runtime of its own, where nothing may block on a future.
    runtime.spawn(async move {
        let _ = answer.send(begin(&asked, &terms).await);
    });
    let driver = Driver { runtime: Some(runtime), target: target.clone() };
    let begun = answered.recv().map_err(|_| OpenError::NoThread("it ended".to_owned()))?;
    let begun = begun.map_err(|refused| explain(&target, refused))?;
    let (reads, writer) = (Arc::new(begun.reads), Arc::new(Mutex::new(begun.writer)));
    target.handle().spawn(PostgresReads::watch(Arc::downgrade(&reads)));
    target.handle().spawn(Writer::watch(Arc::downgrade(&writer), target.clone()));
    let store = PostgresStore::new(target, writer, begun.floor, begun.epoch);
    Ok(Opened { store: Box::new(store), reads, background: Box::new(driver), state: begun.state })
}

/// What of the configuration a start needs.
struct Terms {
    is_deferred: bool,
    instance: [u8; 16],
    may_be_new: bool,
    questions_max: usize,
    /// How long the COMMIT of a new start may take.
    commit_patience: Duration,
    root: Box<dyn Fn(Instance) -> crate::inode::Inode + Send + std::marker::Sync>,
}

impl Terms {
    fn of(config: &Config, server: &Server) -> Terms {
        let (clock, owner) = (Arc::clone(&config.clock), config.root_owner);
        Terms {
            is_deferred: config.sync != Sync::Always,
            instance: server.instance,
            may_be_new: server.may_be_new,
            questions_max: config.queue_len_max,
            commit_patience: ANSWER_TIMEOUT,
            root: Box::new(move |instance| new_root(&*clock, owner, instance)),
        }
    }
}

/// Who waits for longer says for what.
async fn within<T>(what: &str, asking: impl Future<Output = Result<T, Refused>>) -> Result<T, Refused> {
    within_time(ANSWER_TIMEOUT, what, asking).await
}

async fn within_time<T>(
    time: Duration,
    what: &str,
    asking: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    timeout(time, asking).await.unwrap_or_else(|_| {
        let seconds = time.as_secs();
        Err(Refused::Trouble(Trouble::Passing(format!("no answer within {seconds} s to {what}"))))
    })
}

async fn begin(target: &Target, terms: &Terms) -> Result<Begun, Refused> {
    let link = target.connect_to_write().await?;
    within("what server it is", look_at_server(&link)).await?;
    let locking = async { Ok(take_lock(&link, LOCK_PATIENCE).await?) };
    if !within("whether another head has it", locking).await? {
        return Err(Refused::InUse);
    }
    migrate(&link).await?;
    let (instance, floor) = count_start(&link, terms).await?;
    let (epoch, state) = within("how it was left", read_state(&link, instance)).await?;
    let writer = Writer::new(target.clone(), link, epoch, state.sequence, state.ends);
    let reads = PostgresReads::new(target.clone(), floor, terms.questions_max);
    reads.begin().await?;
    Ok(Begun { writer, reads, floor, epoch, state })
}

async fn look_at_server(link: &Link) -> Result<(), Refused> {
    let version: i32 = number(link, "SELECT current_setting('server_version_num')::integer").await?;
    if version < SERVER_VERSION_MIN {
        let shown = link.client.query_one("SHOW server_version", &[]).await?;
        return Err(Refused::TooOld(shown.get(0)));
    }
    let encoding: String = number(link, "SELECT current_setting('server_encoding')").await?;
    if !["UTF8", "SQL_ASCII"].contains(&encoding.as_str()) {
        return Err(Refused::Encoding(encoding));
    }
    Ok(())
}

/// The epoch, and where the last group left it.
async fn read_state(link: &Link, instance: Instance) -> Result<(i64, State), Refused> {
    let row =
        link.client.query_one("SELECT groups, files, bytes, epoch FROM progress WHERE id = 1", &[]).await?;
    let end = async |key: &str| -> Result<u64, Refused> {
        let found = link.client.query_opt("SELECT value FROM meta WHERE key = $1", &[&key]).await?;
        Ok(found.map_or(FIRST, |row| row.get::<_, i64>(0).cast_unsigned()))
    };
    let ends = NumberEnds { files: end("next_file").await?, cookies: end("next_cookie").await? };
    let totals = Totals { files: row.get(1), bytes: row.get(2) };
    let sequence = row.get::<_, i64>(0).cast_unsigned();
    Ok((row.get(3), State { instance, ends, sequence, totals }))
}

async fn number<T: for<'a> postgres_types::FromSql<'a>>(link: &Link, sql: &str) -> Result<T, Refused> {
    let row = link.client.query_one(sql, &[]).await?;
    get(&row, 0).map_err(|error| Refused::Trouble(Trouble::Lasting(error)))
}

/// Each migration in a transaction of its own.
pub async fn migrate(link: &Link) -> Result<(), Refused> {
    let tables: i64 =
        number(link, &format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{SCHEMA}'")).await?;
    let is_ours: bool =
        number(link, &format!("SELECT to_regclass('{SCHEMA}.schema_version') IS NOT NULL")).await?;
    if tables > 0 && !is_ours {
        return Err(Refused::Foreign);
    }
    let found: i32 =
        if is_ours { number(link, "SELECT coalesce(max(version), 0) FROM schema_version").await? } else { 0 };
    if found == crate::repair::UNFINISHED {
        return Err(Refused::Unfinished);
    }
    if found > KNOWN_VERSION {
        return Err(Refused::Newer(found));
    }
    // Who may not make schemas may own one that somebody made for him.
    let is_there: bool = number(link, &format!("SELECT to_regnamespace('{SCHEMA}') IS NOT NULL")).await?;
    if !is_there {
        let may = "SELECT has_database_privilege(current_database(), 'CREATE')";
        if !number::<bool>(link, may).await? {
            return Err(Refused::NoRightToCreate);
        }
    }
    let schema = if is_there { String::new() } else { format!("CREATE SCHEMA IF NOT EXISTS {SCHEMA};") };
    for (version, migration) in (1..).zip(MIGRATIONS).skip(found as usize) {
        link.client
            .batch_execute(&format!(
                "BEGIN; {schema} \
                 CREATE TABLE IF NOT EXISTS schema_version (version integer PRIMARY KEY, applied timestamptz NOT NULL); \
                 {}; INSERT INTO schema_version VALUES ({version}, now()); COMMIT",
                migration.sql
            ))
            .await?;
    }
    Ok(())
}

/// Durably notes that a new instance began, with all that follows from how the last one ended. From here on an older head
/// changes nothing.
async fn count_start(link: &Link, terms: &Terms) -> Result<(Instance, ChangeFloor), Refused> {
    let failed = |reason: &str| Refused::Trouble(Trouble::Lasting(StoreError::Failed(reason.to_owned())));
    within("the count of a new start", async {
        link.client.batch_execute(BEGIN_DURABLY).await?;
        link.client.execute("UPDATE progress SET epoch = epoch + 1 WHERE id = 1", &[]).await?;
        Ok(())
    })
    .await?;
    let mut before = Notes::default();
    for row in link.client.query("SELECT key, value FROM meta", &[]).await? {
        before.set(row.get(0), row.get(1));
    }
    let (instance, floor, after) =
        before.next_start(terms.is_deferred).ok_or_else(|| failed("it was started too often"))?;
    for key in Notes::KEYS {
        link.client.execute(NOTE, &[&key, &after.get(key)]).await?;
    }
    link.client.batch_execute(&format!("{FOLD_ALL}; DELETE FROM dir_deltas")).await?;
    let is_new = number::<bool>(link, "SELECT NOT EXISTS (SELECT 1 FROM inodes)").await?;
    if is_new && !terms.may_be_new {
        return Err(Refused::Gone);
    }
    claim(link, terms).await?;
    if is_new {
        let mut root = InodeArrays::default();
        root.push(&(terms.root)(instance));
        let values = root.into_values();
        let values: Vec<&(dyn postgres_types::ToSql + std::marker::Sync)> =
            values.iter().map(|value| &**value as _).collect();
        link.client.execute(WRITE_INODES, &values).await?;
        link.client.execute("UPDATE progress SET files = 1", &[]).await?;
    }
    let committing = async { Ok(link.client.batch_execute("COMMIT").await?) };
    let what = "a COMMIT; does it wait for a synchronous standby that is not there?";
    within_time(terms.commit_patience, what, committing).await?;
    Ok((instance, floor))
}

/// Notes whose namespace it is, or finds it noted. The ids of its files are names of files in that instance's pools.
async fn claim(link: &Link, terms: &Terms) -> Result<(), Refused> {
    let id = u128::from_be_bytes(terms.instance);
    for (key, half) in [("instance_high", (id >> 64) as u64), ("instance_low", id as u64)] {
        let note = "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = meta.value \
                    RETURNING value";
        let row = link.client.query_one(note, &[&key, &half.cast_signed()]).await?;
        if row.get::<_, i64>(0) != half.cast_signed() {
            return Err(Refused::Strange);
        }
    }
    Ok(())
}

pub fn explain(target: &Target, refused: Refused) -> OpenError {
    let database = target.name().to_owned();
    match refused {
        Refused::TooOld(found) => OpenError::PostgresTooOld { database, found },
        Refused::Foreign => OpenError::ForeignSchema(database),
        Refused::Newer(found) => OpenError::NewerDatabase { database, found, known: KNOWN_VERSION },
        Refused::Unfinished => OpenError::Unfinished(database),
        Refused::Strange => OpenError::OtherInstance(database),
        Refused::Gone => OpenError::NamespaceGone(database),
        Refused::InUse => OpenError::DatabaseInUse(database),
        Refused::Encoding(found) => OpenError::DatabaseEncoding { database, found },
        Refused::NoRightToCreate => OpenError::NoRightToCreate(database),
        Refused::Trouble(trouble) if trouble.is_of(&SqlState::TOO_MANY_CONNECTIONS) => {
            OpenError::TooFewConnections(database)
        }
        Refused::Trouble(Trouble::Lasting(error)) => {
            OpenError::Database { database, reason: error.to_string() }
        }
        Refused::Trouble(Trouble::Passing(reason) | Trouble::Torn(reason)) => {
            OpenError::Database { database, reason }
        }
        Refused::Trouble(Trouble::Moved) => {
            OpenError::Database { database, reason: "another head is opening it".to_owned() }
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::postgres::{Cluster, unless_missing};

    use super::*;
    use crate::scratch;

    #[test]
    fn a_start_that_waits_for_a_standby_that_is_not_there_says_so() {
        let Some(cluster) = unless_missing(Cluster::start()) else { return };
        let url = cluster.create_database().unwrap();
        let server = Server { url: url.clone(), instance: [7; 16], may_be_new: true };
        let config = Config { sync: Sync::Always, ..scratch::config(&tempfile::tempdir().unwrap()) };
        drop(open(&server, &config).unwrap());
        cluster.set("synchronous_standby_names", "*").unwrap();
        let runtime = Runtime::new().unwrap();
        let target = Target::new(&parse(&url).unwrap(), runtime.handle().clone(), false);
        // It waits for ever, so that no time is too short.
        let terms = Terms { commit_patience: Duration::from_secs(1), ..Terms::of(&config, &server) };
        let refused = runtime.block_on(begin(&target, &terms)).map(drop);
        let refused = refused.map_err(|refused| explain(&target, refused)).unwrap_err().to_string();
        assert!(refused.contains("no answer within") && refused.contains("standby"), "{refused}");
        cluster.set("synchronous_standby_names", "").unwrap();
        assert!(open(&server, &config).is_ok());
    }
}
