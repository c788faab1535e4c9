//! Opening: a server that will do, a schema that is ours and not too new, the lock, and a new start counted.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;

use super::connection::{ANSWER_TIMEOUT, Link, Target, name};
use super::holder::{self, Seat};
use super::presence::Presence;
use super::reads::PostgresReads;
use super::rows::{InodeArrays, WRITE_INODES, get};
use super::schema::{KNOWN_VERSION, MIGRATIONS, SCHEMA};
use super::settings;
use super::store::PostgresStore;
use super::tenure::{Moment, SUCCESSION};
use super::trouble::{POOLED, Trouble};
use super::url::Url;
use super::writer::{BEGIN_DURABLY, GROUPS, NOTE, Writer, take_lock};
use crate::config::{Config, Server, Sync};
use crate::consistency::FOLD_ALL;
use crate::engine::{Background, Opened, Past, State};
use crate::ids::FIRST;
use crate::inode::{ChangeFloor, Instance};
use crate::open_error::OpenError;
use crate::starts::{Notes, new_root};
use crate::store::{NumberEnds, StoreError, Totals};
use crate::timeline::{self, Mark, Timeline, Unfit};

pub const SERVER_VERSION_MIN: i32 = 150_000;
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

/// Drives the connections.
struct Driver {
    runtime: Option<Runtime>,
    target: Target,
    _seat: Seat,
}

impl Background for Driver {
    fn stop(&mut self) {}

    fn trouble(&self) -> Option<crate::trouble::Trouble> {
        self.target.presence().trouble()
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
    /// It is not the one that was here last.
    Unfit(Unfit),
    /// It was there and is not.
    Gone,
    /// Its encoding cannot hold what names and values of properties may be.
    Encoding(String),
    NoRightToCreate,
    /// Something between us and the server gives one session to several.
    Pooled,
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

/// The database of a URL for messages: where it is, without user and password.
pub fn database_name(url: &str) -> Result<String, OpenError> {
    Ok(name(&parse(url)?.config))
}

fn parse(url: &str) -> Result<Url, OpenError> {
    url.parse().map_err(OpenError::BadUrl)
}

pub fn open(server: &Server, config: &Config, past: &Past) -> Result<Opened, OpenError> {
    let parsed = parse(&server.url)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("namespace-sql")
        .enable_all()
        .build()
        .map_err(|error| OpenError::NoThread(error.to_string()))?;
    let is_deferred = matches!(config.sync, Sync::Interval(_));
    let target = Target::new(&parsed, runtime.handle().clone(), is_deferred);
    let (answer, answered) = std::sync::mpsc::channel();
    let seat = Seat::take();
    let (asked, terms) = (target.clone(), Terms { holder: seat.notes(), ..Terms::of(config, server, past) });
    // Not here: the caller may be in a runtime of its own, where nothing may block on a future.
    runtime.spawn(async move {
        let _ = answer.send(begin(&asked, &terms).await);
    });
    let driver = Driver { runtime: Some(runtime), target: target.clone(), _seat: seat };
    let begun = answered.recv().map_err(|_| OpenError::NoThread("it ended".to_owned()))?;
    let begun = begun.map_err(|refused| explain(&target, refused))?;
    let (reads, writer) = (Arc::new(begun.reads), Arc::new(Mutex::new(begun.writer)));
    target.handle().spawn(PostgresReads::watch(Arc::downgrade(&reads)));
    target.handle().spawn(Writer::watch(Arc::downgrade(&writer), target.clone()));
    let presence = Arc::clone(target.presence());
    target.handle().spawn(Presence::watch(Arc::downgrade(&presence)));
    let store = Box::new(PostgresStore::new(target, writer, begun.floor, begun.epoch));
    let (log, presence, state) = (None, Some(presence), begun.state);
    Ok(Opened { store, reads, background: Box::new(driver), log, presence, state })
}

/// Values of the configuration that a start needs.
struct Terms {
    is_deferred: bool,
    instance: [u8; 16],
    may_be_new: bool,
    past: Past,
    questions_max: usize,
    /// Note of this head.
    holder: [i64; 3],
    /// How long the COMMIT of a new start may take.
    commit_patience: Duration,
    root: Box<dyn Fn(Instance) -> crate::inode::Inode + Send + std::marker::Sync>,
}

impl Terms {
    fn of(config: &Config, server: &Server, past: &Past) -> Terms {
        let (clock, owner) = (Arc::clone(&config.clock), config.root_owner);
        Terms {
            is_deferred: config.sync != Sync::Always,
            instance: server.instance,
            may_be_new: server.may_be_new,
            past: past.clone(),
            questions_max: config.queue_len_max,
            holder: [0; 3],
            commit_patience: ANSWER_TIMEOUT,
            root: Box::new(move |instance| new_root(&*clock, owner, instance)),
        }
    }
}

/// An answer that takes longer is an error that names the question.
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
    // Before anything is changed.
    let reading = target.connect().await?;
    let are_apart = Box::pin(async { Ok(settings::are_apart(&link, &reading).await?) });
    if !within("whether sessions are our own", are_apart).await? {
        return Err(Refused::Pooled);
    }
    let locking = async { Ok(take_lock(&link, LOCK_PATIENCE).await?) };
    if !within("whether another head has it", locking).await? {
        return Err(Refused::InUse);
    }
    let schema = Schema::find(&link).await?;
    let left = within("how it was left", judge(&link, schema.found, terms)).await?;
    outlast_predecessor(&left.meta).await;
    schema.migrate(&link).await?;
    let (instance, floor, timeline) = count_start(&link, terms).await?;
    let asked = Moment::now();
    let (epoch, state) = within("how it was left", read_state(&link, instance)).await?;
    let keeper = &terms.past.keeper;
    let (place, drawn) = timeline.last();
    let (files, groups) = (state.ends.files, state.sequence);
    keeper.begin(Mark { starts: instance.start.into(), place, drawn, files, groups });
    let writer = Writer::new(target.clone(), (link, asked), epoch, &state, (timeline, Arc::clone(keeper)));
    let reads = PostgresReads::new(target.clone(), reading, floor, terms.questions_max);
    Ok(Begun { writer, reads, floor, epoch, state })
}

/// A head that lost the lock without an end may live, and answers from its memory until that is out of date. The lock is
/// ours: it cannot find out that it would still be the one.
async fn outlast_predecessor(meta: &BTreeMap<String, i64>) {
    let note = |key: &str| meta.get(key).copied().unwrap_or(0);
    if note("starts") == 0 || note("clean_end") == 1 || holder::is_dead(holder::KEYS.map(note)) {
        return;
    }
    let seconds = SUCCESSION.as_secs();
    tracing::info!(seconds, "the previous head did not end in order; waiting until it no longer answers");
    tokio::time::sleep(SUCCESSION).await;
}

/// State that an earlier head left.
struct Left {
    meta: BTreeMap<String, i64>,
    groups: i64,
    timeline: Timeline,
    is_new: bool,
}

/// An error if it is not the namespace that was here last. Changes nothing. `found`: the version of the schema, 0 if there is
/// none.
async fn judge(link: &Link, found: i32, terms: &Terms) -> Result<Left, Refused> {
    let mut meta = BTreeMap::new();
    let (mut groups, mut is_new) = (0_i64, true);
    if found > 0 {
        for row in link.client.query("SELECT key, value FROM meta", &[]).await? {
            meta.insert(column::<String>(&row, 0)?, column::<i64>(&row, 1)?);
        }
        groups = number(link, GROUPS).await?;
        is_new = number(link, "SELECT NOT EXISTS (SELECT 1 FROM inodes)").await?;
    }
    let timeline = Timeline::of(meta.iter().map(|(key, value)| (key.as_str(), *value)));
    timeline.admit(groups.cast_unsigned(), &terms.past.noted).map_err(Refused::Unfit)?;
    if is_new && !terms.may_be_new {
        return Err(Refused::Gone);
    }
    let is_strange = |(key, half): &(&str, i64)| meta.get(*key).is_some_and(|noted| noted != half);
    if claims(terms.instance).iter().any(is_strange) {
        return Err(Refused::Strange);
    }
    Ok(Left { meta, groups, timeline, is_new })
}

/// Notes the instance that owns the namespace. The ids of its files are names of files in that instance's pools.
fn claims(instance: [u8; 16]) -> [(&'static str, i64); 2] {
    let id = u128::from_be_bytes(instance);
    [("instance_high", (id >> 64) as u64), ("instance_low", id as u64)]
        .map(|(key, half)| (key, half.cast_signed()))
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
    let ends = number_ends(link).await?;
    let totals = Totals { files: row.get(1), bytes: row.get(2) };
    let sequence = row.get::<_, i64>(0).cast_unsigned();
    Ok((row.get(3), State { instance, ends, sequence, totals }))
}

async fn number_ends(link: &Link) -> Result<NumberEnds, Refused> {
    let end = async |key: &str| -> Result<u64, Refused> {
        let found = link.client.query_opt("SELECT value FROM meta WHERE key = $1", &[&key]).await?;
        Ok(found.map_or(FIRST, |row| row.get::<_, i64>(0).cast_unsigned()))
    };
    Ok(NumberEnds { files: end("next_file").await?, cookies: end("next_cookie").await? })
}

async fn number<T: for<'a> postgres_types::FromSql<'a>>(link: &Link, sql: &str) -> Result<T, Refused> {
    let row = link.client.query_one(sql, &[]).await?;
    column(&row, 0)
}

fn column<'a, T: postgres_types::FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, Refused> {
    get(row, at).map_err(|error| Refused::Trouble(Trouble::Lasting(error)))
}

/// A schema that this program may bring up to date.
pub struct Schema {
    /// Its version; 0: it has no tables.
    found: i32,
    is_there: bool,
}

impl Schema {
    /// Changes nothing.
    pub async fn find(link: &Link) -> Result<Schema, Refused> {
        let tables = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{SCHEMA}'");
        let tables: i64 = number(link, &tables).await?;
        let is_ours = format!("SELECT to_regclass('{SCHEMA}.schema_version') IS NOT NULL");
        let is_ours: bool = number(link, &is_ours).await?;
        if tables > 0 && !is_ours {
            return Err(Refused::Foreign);
        }
        let version = "SELECT coalesce(max(version), 0) FROM schema_version";
        let found: i32 = if is_ours { number(link, version).await? } else { 0 };
        if found == crate::repair::UNFINISHED {
            return Err(Refused::Unfinished);
        }
        if found > KNOWN_VERSION {
            return Err(Refused::Newer(found));
        }
        // A role that may not make schemas may own one that was made for it.
        let is_there = number(link, &format!("SELECT to_regnamespace('{SCHEMA}') IS NOT NULL")).await?;
        Ok(Schema { found, is_there })
    }

    /// Each migration in a transaction of its own.
    pub async fn migrate(&self, link: &Link) -> Result<(), Refused> {
        self.migrate_telling(link, &mut |_| {}).await
    }

    /// As [`migrate`](Self::migrate); `tell` gets each version that is in place.
    pub async fn migrate_telling(&self, link: &Link, tell: &mut impl FnMut(u32)) -> Result<(), Refused> {
        let may = "SELECT has_database_privilege(current_database(), 'CREATE')";
        if !self.is_there && !number::<bool>(link, may).await? {
            return Err(Refused::NoRightToCreate);
        }
        let schema =
            if self.is_there { String::new() } else { format!("CREATE SCHEMA IF NOT EXISTS {SCHEMA};") };
        for (version, migration) in (1..).zip(MIGRATIONS).skip(self.found as usize) {
            link.client
                .batch_execute(&format!(
                    "BEGIN; {schema} \
                     CREATE TABLE IF NOT EXISTS schema_version (version integer PRIMARY KEY, applied timestamptz NOT NULL); \
                     {}; INSERT INTO schema_version VALUES ({version}, now()); COMMIT",
                    migration.sql
                ))
                .await?;
            tell(version);
        }
        Ok(())
    }
}

/// Durably notes that a new instance began, with all that follows from how the last one ended. From here on an older head
/// changes nothing.
async fn count_start(link: &Link, terms: &Terms) -> Result<(Instance, ChangeFloor, Timeline), Refused> {
    let failed = |reason: &str| Refused::Trouble(Trouble::Lasting(StoreError::Failed(reason.to_owned())));
    within("the count of a new start", async {
        link.client.batch_execute(BEGIN_DURABLY).await?;
        link.client.execute("UPDATE progress SET epoch = epoch + 1 WHERE id = 1", &[]).await?;
        Ok(())
    })
    .await?;
    // Again: a head that has only now found out that it is none any more may have written since.
    let Left { meta, groups, mut timeline, is_new } = judge(link, KNOWN_VERSION, terms).await?;
    let mut before = Notes::default();
    meta.iter().for_each(|(key, value)| before.set(key, *value));
    let noted = &terms.past.noted;
    before.have_started(timeline::starts(noted));
    let (instance, floor, after) =
        before.next_start(terms.is_deferred).ok_or_else(|| failed("it was started too often"))?;
    for key in Notes::KEYS {
        link.client.execute(NOTE, &[&key, &after.get(key)]).await?;
    }
    for (key, value) in holder::KEYS.iter().zip(terms.holder) {
        link.client.execute(NOTE, &[key, &value]).await?;
    }
    for (key, value) in timeline.begin(noted, timeline::draw()) {
        link.client.execute(NOTE, &[&key, &value]).await?;
    }
    // Into the database, for repairs: they give numbers without a look at the marks beside it.
    let ends = timeline::above(number_ends(link).await?, noted);
    for (key, end) in [("next_file", ends.files), ("next_cookie", ends.cookies)] {
        link.client.execute(NOTE, &[&key, &end.cast_signed()]).await?;
    }
    link.client.batch_execute(&format!("{FOLD_ALL}; DELETE FROM dir_deltas")).await?;
    let noted_groups = timeline::groups(noted).cast_signed();
    if noted_groups > groups {
        link.client.execute("UPDATE progress SET groups = $1 WHERE id = 1", &[&noted_groups]).await?;
    }
    for (key, half) in claims(terms.instance) {
        link.client.execute(NOTE, &[&key, &half]).await?;
    }
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
    Ok((instance, floor, timeline))
}

pub fn explain(target: &Target, refused: Refused) -> OpenError {
    let database = target.name().to_owned();
    match refused {
        Refused::TooOld(found) => OpenError::PostgresTooOld { database, found },
        Refused::Foreign => OpenError::ForeignSchema(database),
        Refused::Newer(found) => OpenError::NewerDatabase { database, found, known: KNOWN_VERSION },
        Refused::Unfinished => OpenError::Unfinished(database),
        Refused::Strange => OpenError::OtherInstance(database),
        Refused::Unfit(unfit) => OpenError::Unfit { database, unfit },
        Refused::Gone => OpenError::NamespaceGone(database),
        Refused::InUse => OpenError::DatabaseInUse(database),
        Refused::Encoding(found) => OpenError::DatabaseEncoding { database, found },
        Refused::Pooled => OpenError::Database { database, reason: POOLED.to_owned() },
        Refused::NoRightToCreate => OpenError::NoRightToCreate(database),
        // If there are several servers, the error names the trouble of each.
        Refused::Trouble(trouble) if target.is_alone() && trouble.is_of(&SqlState::TOO_MANY_CONNECTIONS) => {
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
        drop(open(&server, &config, &Past::default()).unwrap());
        cluster.set("synchronous_standby_names", "*").unwrap();
        let runtime = Runtime::new().unwrap();
        let target = Target::new(&parse(&url).unwrap(), runtime.handle().clone(), false);
        // It waits for ever, so that no time is too short.
        let terms = Terms {
            commit_patience: Duration::from_secs(1),
            ..Terms::of(&config, &server, &Past::default())
        };
        let refused = runtime.block_on(begin(&target, &terms)).map(drop);
        let refused = refused.map_err(|refused| explain(&target, refused)).unwrap_err().to_string();
        assert!(refused.contains("no answer within") && refused.contains("standby"), "{refused}");
        cluster.set("synchronous_standby_names", "").unwrap();
        assert!(open(&server, &config, &Past::default()).is_ok());
    }
}
