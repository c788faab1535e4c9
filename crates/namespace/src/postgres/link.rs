//! A connection to the server and the time that its answers may take.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postgres_types::ToSql;
use tokio::time::timeout;
use tokio_postgres::{Client, Error, Row, Statement};

use super::trouble::{Trouble, slow};
use super::whole::{WHOLES_MAX, compose};

/// Of an answer. If the server waits longer for a lock, a standby or a disk, the head retries on another connection.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The answer, if it comes within `ANSWER_TIMEOUT`.
pub async fn in_time<T>(asking: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    timeout(ANSWER_TIMEOUT, asking).await.unwrap_or_else(|_| Err(slow()))
}

/// One connection, with the statements that are prepared on it.
pub struct Link {
    pub client: Client,
    statements: Mutex<HashMap<&'static str, Statement>>,
    wholes: Mutex<HashMap<Vec<&'static str>, Statement>>,
    uses: AtomicU64,
}

impl Link {
    pub fn new(client: Client) -> Link {
        Link { client, statements: Mutex::default(), wholes: Mutex::default(), uses: AtomicU64::new(0) }
    }

    /// Prepared once for each connection.
    pub async fn prepared(&self, sql: &'static str) -> Result<Statement, Error> {
        if let Some(statement) = self.statements.lock().get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.lock().insert(sql, statement.clone());
        Ok(statement)
    }

    /// The parts of a group as one statement; `values`: how many each has.
    pub async fn prepared_whole(
        &self,
        parts: &[&'static str],
        values: &[usize],
    ) -> Result<Option<Statement>, Error> {
        if let Some(statement) = self.wholes.lock().get(parts) {
            return Ok(Some(statement.clone()));
        }
        let Some(sql) = compose(parts, values) else { return Ok(None) };
        let statement = self.client.prepare(&sql).await?;
        let mut wholes = self.wholes.lock();
        if wholes.len() >= WHOLES_MAX {
            wholes.clear();
        }
        wholes.insert(parts.to_vec(), statement.clone());
        Ok(Some(statement))
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
