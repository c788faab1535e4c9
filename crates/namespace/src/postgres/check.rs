//! PostgreSQL for checks and repairs. Its pages are its own business (`pg_amcheck`, data checksums).

use std::future::Future;
use std::sync::Arc;

use postgres_types::ToSql;
use tokio::runtime::Handle;
use tokio_postgres::Row;

use super::connection::{Link, Target, Trouble};
use super::writer::take_lock;
use crate::session::{Fields, Purpose, Session};
use crate::store::{StoreError, StoreResult};

const LOCK_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

pub fn session(target: &Target, purpose: Purpose) -> StoreResult<Box<dyn Session>> {
    let (target, handle) = (target.clone(), target.handle().clone());
    let link = wait(&handle, async move {
        let link = target.connect().await?;
        // Here whole tables are read and joined.
        link.client
            .batch_execute("SET enable_seqscan = on; SET enable_hashjoin = on; SET enable_mergejoin = on")
            .await?;
        if purpose == Purpose::Change {
            link.client.batch_execute("SET synchronous_commit = on").await?;
            if !take_lock(&link, LOCK_PATIENCE).await? {
                return Err(Trouble::Lasting(StoreError::Busy("another head has it".to_owned())));
            }
        }
        Ok(link)
    })?;
    Ok(Box::new(PostgresSession { link: Arc::new(link), handle, purpose }))
}

/// The caller may be in a runtime of its own, where nothing may block on a future.
fn wait<T: Send + 'static>(
    handle: &Handle,
    work: impl Future<Output = Result<T, Trouble>> + Send + 'static,
) -> StoreResult<T> {
    let (answer, answered) = std::sync::mpsc::channel();
    handle.spawn(async move {
        let _ = answer.send(work.await);
    });
    match answered.recv() {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(Trouble::Lasting(error))) => Err(error),
        Ok(Err(Trouble::Passing(reason) | Trouble::Torn(reason))) => Err(StoreError::Failed(reason)),
        Ok(Err(Trouble::Moved)) | Err(_) => Err(StoreError::Failed("it was not finished".to_owned())),
    }
}

struct PostgresSession {
    link: Arc<Link>,
    handle: Handle,
    purpose: Purpose,
}

impl PostgresSession {
    fn batch(&self, sql: &'static str) -> StoreResult<()> {
        let link = Arc::clone(&self.link);
        wait(&self.handle, async move { Ok(link.client.batch_execute(sql).await?) })
    }
}

fn references(values: &[Vec<u8>]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as _).collect()
}

impl Session for PostgresSession {
    fn begin(&mut self) -> StoreResult<()> {
        self.batch(match self.purpose {
            Purpose::Look => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Purpose::Change => "BEGIN",
        })
    }

    fn query(&mut self, sql: &str, bytes: &[&[u8]], each: &mut dyn FnMut(&dyn Fields)) -> StoreResult<()> {
        let (link, sql) = (Arc::clone(&self.link), sql.to_owned());
        let values: Vec<Vec<u8>> = bytes.iter().map(|value| value.to_vec()).collect();
        let rows =
            wait(&self.handle, async move { Ok(link.client.query(&sql, &references(&values)).await?) })?;
        rows.iter().for_each(|row| each(&PostgresFields(row)));
        Ok(())
    }

    fn execute(&mut self, sql: &str, bytes: &[&[u8]]) -> StoreResult<u64> {
        let (link, sql) = (Arc::clone(&self.link), sql.to_owned());
        let values: Vec<Vec<u8>> = bytes.iter().map(|value| value.to_vec()).collect();
        wait(&self.handle, async move { Ok(link.client.execute(&sql, &references(&values)).await?) })
    }

    fn commit(&mut self) -> StoreResult<()> {
        self.batch("COMMIT")
    }

    fn end(&mut self) {
        // Without a transaction it is a notice; without a connection there is nothing to end.
        let _ = self.batch("ROLLBACK");
    }

    /// Bit for bit.
    fn narrow(&self, value: u32) -> i64 {
        i64::from(value.cast_signed())
    }
}

struct PostgresFields<'a>(&'a Row);

impl Fields for PostgresFields<'_> {
    fn number(&self, at: usize) -> i64 {
        let row = self.0;
        let wide = row.try_get::<_, i64>(at);
        wide.or_else(|_| row.try_get::<_, i32>(at).map(i64::from))
            .or_else(|_| row.try_get::<_, i16>(at).map(i64::from))
            .unwrap_or_default()
    }

    fn bytes(&self, at: usize) -> Vec<u8> {
        let bytes = self.0.try_get::<_, Vec<u8>>(at);
        bytes.or_else(|_| self.0.try_get::<_, String>(at).map(String::into_bytes)).unwrap_or_default()
    }
}
