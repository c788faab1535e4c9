//! PostgreSQL on either side.
//!
//! A namespace that is being written lies in a schema of its own, which gets the name of the real one at the end. Each
//! batch is one COPY, which is a transaction. Only the last one waits for the disk, which then has all before it.

use std::future::Future;
use std::pin::pin;

use postgres_types::{ToSql, Type};
use tokio::runtime::Runtime;
use tokio_postgres::Row;
use tokio_postgres::binary_copy::BinaryCopyInWriter;

use super::tables::{Kind, TABLES, Table, Value};
use super::{Begin, BulkError, BulkResult, Marks, Sink, Source, Tables};
use crate::check::Problem;
use crate::open_error::OpenError;
use crate::postgres::connection::{Link, Target};
use crate::postgres::open::{SERVER_VERSION_MIN, Schema};
use crate::postgres::schema::{KNOWN_VERSION, MIGRATIONS, SCHEMA};
use crate::postgres::store::LOCK;
use crate::postgres::trouble::{Trouble, describe};
use crate::session::Purpose;

const LOADING: &str = "forebay_loading";
const COLLATE: &str = " COLLATE \"C\"";

/// A connection and what drives it.
pub struct Seat {
    runtime: Runtime,
    target: Target,
    pub link: Link,
}

impl Seat {
    /// At a server that is new enough.
    pub fn take(url: &str) -> BulkResult<Seat> {
        let parsed = url.parse().map_err(OpenError::BadUrl)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("namespace-bulk")
            .enable_all()
            .build()
            .map_err(|error| OpenError::NoThread(error.to_string()))?;
        let target = Target::new(&parsed, runtime.handle().clone(), false);
        let link = runtime.block_on(async {
            let link = target.connect().await?;
            target.require_own(&link).await?;
            Ok::<_, Trouble>(link)
        });
        let link = link.map_err(|trouble| OpenError::Database {
            database: target.name().to_owned(),
            reason: trouble.reason(),
        })?;
        let seat = Seat { runtime, target, link };
        // Here whole tables are read, and indexes are built.
        seat.batch(
            "SET enable_seqscan = on; SET enable_hashjoin = on; SET enable_mergejoin = on; \
             SET maintenance_work_mem = '256MB'",
        )?;
        let version: i32 = seat.one("SELECT current_setting('server_version_num')::integer")?;
        if version < SERVER_VERSION_MIN {
            let found = seat.one("SELECT current_setting('server_version')")?;
            return Err(OpenError::PostgresTooOld { database: seat.place(), found }.into());
        }
        Ok(seat)
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    /// For people.
    pub fn place(&self) -> String {
        self.target.name().to_owned()
    }

    fn failed(&self, error: &tokio_postgres::Error) -> BulkError {
        BulkError::failed(self.target.name(), describe(error))
    }

    fn damaged(&self, what: impl ToString) -> BulkError {
        BulkError::Damaged { place: self.place(), what: what.to_string() }
    }

    fn wait<T>(&self, work: impl Future<Output = Result<T, tokio_postgres::Error>>) -> BulkResult<T> {
        self.runtime.block_on(work).map_err(|error| self.failed(&error))
    }

    pub fn batch(&self, sql: &str) -> BulkResult<()> {
        self.wait(self.link.client.batch_execute(sql))
    }

    pub fn rows(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> BulkResult<Vec<Row>> {
        self.wait(self.link.client.query(sql, values))
    }

    fn change(&self, sql: &str, values: &[&(dyn ToSql + Sync)]) -> BulkResult<u64> {
        self.wait(self.link.client.execute(sql, values))
    }

    /// The first value of the first row.
    pub fn one<T: for<'a> postgres_types::FromSql<'a>>(&self, sql: &str) -> BulkResult<T> {
        let row = self.wait(self.link.client.query_one(sql, &[]))?;
        row.try_get(0).map_err(|error| self.failed(&error))
    }

    /// Held as long as this is. `None`: a head has it.
    pub fn lock(&self) -> BulkResult<Option<()>> {
        Ok(self.one::<bool>(&format!("SELECT pg_try_advisory_lock({LOCK})"))?.then_some(()))
    }

    pub fn is_there(&self, relation: &str) -> BulkResult<bool> {
        self.one(&format!("SELECT to_regclass('{relation}') IS NOT NULL"))
    }

    /// Of the schema; 0 where there is nothing.
    pub fn version(&self) -> BulkResult<i32> {
        if self.is_there(&format!("{SCHEMA}.schema_version"))? {
            return self.one(&format!("SELECT coalesce(max(version), 0) FROM {SCHEMA}.schema_version"));
        }
        let tables = format!("SELECT EXISTS (SELECT 1 FROM pg_tables WHERE schemaname = '{SCHEMA}')");
        if self.one(&tables)? { Err(OpenError::ForeignSchema(self.place()).into()) } else { Ok(0) }
    }

    /// Of a namespace whose lock is held.
    pub fn migrate(&self, tell: &mut impl FnMut(u32)) -> BulkResult<()> {
        let migrated = self
            .runtime
            .block_on(async { Schema::find(&self.link).await?.migrate_telling(&self.link, tell).await });
        migrated.map_err(|refused| crate::postgres::open::explain(&self.target, refused).into())
    }

    fn marks(&self) -> BulkResult<Marks> {
        let failed = |error: tokio_postgres::Error| self.failed(&error);
        let mut marks = Marks::default();
        for row in self.rows("SELECT groups, files, bytes FROM progress WHERE id = 1", &[])? {
            marks.groups = row.try_get(0).map_err(failed)?;
            marks.files = row.try_get(1).map_err(failed)?;
            marks.bytes = row.try_get(2).map_err(failed)?;
        }
        for row in self.rows("SELECT key, value FROM meta", &[])? {
            marks.meta.insert(row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        }
        Ok(marks)
    }

    /// Parameters are cast, so that a key's number need not have its column's width.
    fn query(&self, sql: &str, table: &Table, values: &[&Value], width: usize) -> BulkResult<Vec<Value>> {
        let parameters = values.iter().map(|value| *value as &(dyn ToSql + Sync));
        let parameters: Vec<_> = parameters.collect();
        let rows = self.rows(sql, &parameters)?;
        let mut found = Vec::with_capacity(rows.len() * width);
        for row in &rows {
            for (at, column) in table.columns[..width].iter().enumerate() {
                found.push(read(row, at, column.kind).map_err(|error| self.damaged(error))?);
            }
        }
        Ok(found)
    }
}

fn read(row: &Row, at: usize, kind: Kind) -> Result<Value, tokio_postgres::Error> {
    let number = |number: Option<i64>| number.map_or(Value::Null, Value::Number);
    Ok(match kind {
        Kind::Long => number(row.try_get(at)?),
        Kind::Unsigned => {
            number(row.try_get::<_, Option<i32>>(at)?.map(|value| i64::from(value.cast_unsigned())))
        }
        Kind::Short => number(row.try_get::<_, Option<i16>>(at)?.map(i64::from)),
        Kind::Flag => number(row.try_get::<_, Option<bool>>(at)?.map(i64::from)),
        Kind::Text => row.try_get::<_, Option<String>>(at)?.map_or(Value::Null, Value::Text),
        Kind::Bytes => row.try_get::<_, Option<Vec<u8>>>(at)?.map_or(Value::Null, Value::Bytes),
    })
}

fn type_of(kind: Kind) -> Type {
    match kind {
        Kind::Long => Type::INT8,
        Kind::Unsigned => Type::INT4,
        Kind::Short => Type::INT2,
        Kind::Flag => Type::BOOL,
        Kind::Text => Type::TEXT,
        Kind::Bytes => Type::BYTEA,
    }
}

impl Tables for Seat {
    fn count(&mut self, table: &Table) -> BulkResult<u64> {
        let count: i64 = self.one(&format!("SELECT count(*) FROM {}", table.name))?;
        Ok(count.cast_unsigned())
    }

    fn page(
        &mut self,
        table: &'static Table,
        after: Option<&[Value]>,
        limit: usize,
    ) -> BulkResult<Vec<Value>> {
        let limit = Value::Number(i64::try_from(limit).unwrap_or(i64::MAX));
        let values: Vec<&Value> = after.unwrap_or_default().iter().chain([&limit]).collect();
        self.query(&table.page_sql('$', COLLATE, after.is_none()), table, &values, table.width())
    }
}

pub struct PostgresSource {
    seat: Seat,
    marks: Marks,
}

impl PostgresSource {
    /// Of a namespace that no head has open.
    pub fn stopped(url: &str) -> BulkResult<PostgresSource> {
        let seat = Seat::take(url)?;
        seat.lock()?.ok_or_else(|| BulkError::Running(seat.place()))?;
        PostgresSource::begin(seat)
    }

    /// Of a namespace that a head may be writing.
    pub fn running(url: &str) -> BulkResult<PostgresSource> {
        PostgresSource::begin(Seat::take(url)?)
    }

    /// One snapshot from here on.
    fn begin(seat: Seat) -> BulkResult<PostgresSource> {
        seat.batch("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
        require_known(seat.version()?, seat.place())?;
        let marks = seat.marks()?;
        Ok(PostgresSource { seat, marks })
    }
}

/// Of a namespace that is finished and not newer than this program.
pub fn require_not_newer(found: i32, place: String) -> BulkResult<i32> {
    let known = KNOWN_VERSION;
    match found {
        0 => Err(BulkError::Nothing(place)),
        crate::repair::UNFINISHED => Err(OpenError::Unfinished(place).into()),
        found if found > known => Err(OpenError::NewerDatabase { database: place, found, known }.into()),
        found => Ok(found),
    }
}

pub fn require_known(found: i32, place: String) -> BulkResult<()> {
    let (found, known) =
        (require_not_newer(found, place.clone())?.cast_unsigned(), KNOWN_VERSION.cast_unsigned());
    if found < known {
        return Err(BulkError::OldVersion { place, found, known });
    }
    Ok(())
}

impl Source for PostgresSource {
    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn tables(&mut self) -> &mut dyn Tables {
        &mut self.seat
    }
}

/// Takes away what a rebuild that was not finished left, and nothing else. The schema stays: it may be somebody else's.
/// The files of a namespace that is finished, of which nothing is changed.
pub fn discard_unfinished(url: &str) -> BulkResult<u64> {
    let seat = Seat::take(url)?;
    seat.lock()?.ok_or_else(|| OpenError::DatabaseInUse(seat.place()))?;
    match seat.version()? {
        0 => return Ok(0),
        crate::repair::UNFINISHED => {}
        found => {
            require_not_newer(found, seat.place())?;
            let files: i64 = seat.one("SELECT files FROM progress WHERE id = 1")?;
            return Ok(files.cast_unsigned());
        }
    }
    seat.batch(&format!(
        "DO $$ DECLARE found record; BEGIN \
         FOR found IN SELECT tablename FROM pg_tables WHERE schemaname = '{SCHEMA}' LOOP \
         EXECUTE format('DROP TABLE {SCHEMA}.%I CASCADE', found.tablename); END LOOP; END $$"
    ))?;
    Ok(0)
}

pub struct PostgresSink {
    seat: Seat,
    /// Nothing was written since.
    is_indexed: bool,
}

impl PostgresSink {
    pub fn begin(url: &str, state: &str, begin: Begin) -> BulkResult<PostgresSink> {
        let seat = Seat::take(url)?;
        seat.lock()?.ok_or_else(|| OpenError::DatabaseInUse(seat.place()))?;
        if seat.version()? != 0 {
            let what = format!("it has a namespace; `DROP SCHEMA {SCHEMA} CASCADE` would destroy it");
            return Err(BulkError::NotEmpty { place: seat.place(), what });
        }
        let is_begun = seat.is_there(&format!("{LOADING}.loading"))?;
        seat.batch(&format!("SET search_path = {LOADING}; SET synchronous_commit = off"))?;
        let sink = PostgresSink { seat, is_indexed: false };
        if is_begun && begin == Begin::Resume {
            let found: String = sink.seat.one("SELECT text FROM loading WHERE name = ''")?;
            if found != state {
                return Err(BulkError::SourceChanged { place: sink.seat.place() });
            }
        } else {
            sink.prepare(state)?;
        }
        Ok(sink)
    }

    /// The schema without its indexes, whose SQL is kept. All at once.
    fn prepare(&self, state: &str) -> BulkResult<()> {
        let seat = &self.seat;
        seat.batch(&format!(
            "BEGIN; SET LOCAL client_min_messages = warning; DROP SCHEMA IF EXISTS {LOADING} CASCADE; \
             CREATE SCHEMA {LOADING}; \
             CREATE TABLE schema_version (version integer PRIMARY KEY, applied timestamptz NOT NULL)"
        ))?;
        for (version, migration) in (1..).zip(MIGRATIONS) {
            seat.batch(&format!("{}; INSERT INTO schema_version VALUES ({version}, now())", migration.sql))?;
        }
        seat.batch(&format!(
            "CREATE TABLE loading (name text PRIMARY KEY, text text NOT NULL); \
             INSERT INTO loading SELECT i.indexname, i.indexdef FROM pg_indexes i \
             WHERE i.schemaname = '{LOADING}' AND NOT EXISTS \
             (SELECT 1 FROM pg_constraint c WHERE c.conname = i.indexname AND c.connamespace = '{LOADING}'::regnamespace)"
        ))?;
        for row in seat.rows("SELECT name FROM loading", &[])? {
            let name: String = row.try_get(0).map_err(|error| seat.failed(&error))?;
            seat.batch(&format!("DROP INDEX {name}"))?;
        }
        seat.change("INSERT INTO loading VALUES ('', $1)", &[&state])?;
        seat.batch("COMMIT")
    }
}

impl Sink for PostgresSink {
    fn write(&mut self, table: &'static Table, rows: &[Value]) -> BulkResult<()> {
        self.is_indexed = false;
        let sql = format!("COPY {} ({}) FROM STDIN (FORMAT binary)", table.name, table.column_names());
        let types: Vec<Type> = table.columns.iter().map(|column| type_of(column.kind)).collect();
        let client = &self.seat.link.client;
        self.seat.wait(async {
            let sink = client.copy_in(&sql).await?;
            let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
            for row in rows.chunks_exact(table.width()) {
                writer.as_mut().write_raw(row.iter().map(|value| value as &(dyn ToSql + Sync))).await?;
            }
            writer.finish().await.map(|_| ())
        })
    }

    fn last_key(&mut self, table: &'static Table) -> BulkResult<Option<Vec<Value>>> {
        let found = self.seat.query(&table.last_key_sql(COLLATE), table, &[], table.key_len)?;
        Ok((!found.is_empty()).then_some(found))
    }

    fn execute(&mut self, sql: &str) -> BulkResult<()> {
        self.seat.batch(sql)
    }

    fn index(&mut self) -> BulkResult<()> {
        if self.is_indexed {
            return Ok(());
        }
        let missing = format!(
            "SELECT l.text FROM loading l WHERE l.name != '' AND NOT EXISTS \
             (SELECT 1 FROM pg_indexes i WHERE i.schemaname = '{LOADING}' AND i.indexname = l.name)"
        );
        for row in self.seat.rows(&missing, &[])? {
            let sql: String = row.try_get(0).map_err(|error| self.seat.failed(&error))?;
            self.seat.batch(&sql)?;
        }
        // A planner that knows nothing of the tables reads them from end to end.
        TABLES.iter().try_for_each(|table| self.seat.batch(&format!("ANALYZE {}", table.name)))?;
        self.is_indexed = true;
        Ok(())
    }

    fn publish(&mut self, marks: &Marks) -> BulkResult<()> {
        let seat = &self.seat;
        seat.batch("SET synchronous_commit = on; BEGIN")?;
        for (key, value) in &marks.meta {
            let note =
                "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
            seat.change(note, &[key, value])?;
        }
        // The epoch is above that of every head that may still be there.
        let totals = "UPDATE progress SET groups = $1, files = $2, bytes = $3, epoch = $4 WHERE id = 1";
        seat.change(totals, &[&marks.groups, &marks.files, &marks.bytes, &marks.number("starts")])?;
        // An empty schema of the name may have been made for us.
        seat.batch(&format!(
            "DROP TABLE loading; SET LOCAL client_min_messages = warning; DROP SCHEMA IF EXISTS {SCHEMA}; \
             ALTER SCHEMA {LOADING} RENAME TO {SCHEMA}; COMMIT; SET search_path = {SCHEMA}"
        ))
    }

    fn check(&mut self) -> BulkResult<Vec<Problem>> {
        let failed = |error| BulkError::failed(self.seat.target.name(), error);
        let mut session =
            crate::postgres::check::session(&self.seat.target, Purpose::Look).map_err(failed)?;
        crate::check::check(&mut *session).map_err(failed)
    }

    fn tables(&mut self) -> &mut dyn Tables {
        &mut self.seat
    }
}
