//! Whether a session is as it was asked for, and our own.
//!
//! A pooler (pgbouncer) between a head and its server may leave out what was asked for at login, so that tables land in
//! another schema and nothing is waited for as it should be; or it gives a session to another connection between two
//! transactions, and with it the lock by which there is one head.

use tokio_postgres::{Client, SimpleQueryMessage, Statement};

use super::link::{Link, in_time};
use super::rows::get;
use super::schema::SCHEMA;
use super::trouble::Trouble;
use crate::store::StoreError;
use crate::timeline;

/// Settings, of those requested at login, that a session cannot go without.
const NEEDED: [(&str, &str); 6] = [
    ("search_path", SCHEMA),
    ("plan_cache_mode", "force_generic_plan"),
    ("statement_timeout", "0"),
    ("lock_timeout", "20s"),
    ("idle_session_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];
/// PostgreSQL 17 has it; before that it is refused at login.
const NO_TRANSACTION_TIMEOUT: &str = "CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL \
    THEN set_config('transaction_timeout', '0', false) END";

/// By which a session is known again.
const MARK: &str = "forebay.session";
const ROUNDS: usize = 4;

/// An error names what did not take effect.
pub async fn require(client: &Client) -> Result<(), Trouble> {
    let settings = NEEDED.map(|(name, _)| format!("current_setting('{name}')")).join(", ");
    let found = values(client, &format!("SELECT {settings}, {NO_TRANSACTION_TIMEOUT}")).await?;
    for ((name, meant), found) in NEEDED.iter().zip(found) {
        let found = found.unwrap_or_default();
        if found != *meant {
            return Err(Trouble::Lasting(StoreError::Failed(format!(
                "{name} is {found:?} and not {meant:?} as asked for at login: a pooler such as pgbouncer leaves it out \
                 (ignore_startup_parameters); name the PostgreSQL server itself"
            ))));
        }
    }
    Ok(())
}

/// Whether each of two connections has a session to itself, also between transactions, and keeps there what it sets and
/// prepares. A pooler may give a session back by chance: it is looked at several times, in turns of different length.
pub async fn are_apart(first: &Link, second: &Link) -> Result<bool, Trouble> {
    let (first, second) = (Session::mark(first).await?, Session::mark(second).await?);
    for round in 0..ROUNDS {
        for (holder, other) in [(&first, &second), (&second, &first)] {
            holder.link.client.batch_execute("BEGIN").await?;
            let mut are_own = holder.is_own().await?;
            for _ in 0..=round {
                // While the holder keeps one, the other gets another, or none.
                are_own &= other.is_own().await?;
            }
            holder.link.client.batch_execute("COMMIT").await?;
            if !are_own {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// One that knows a number that nobody else has.
struct Session<'a> {
    link: &'a Link,
    mark: String,
    ask: Statement,
}

impl Session<'_> {
    async fn mark(link: &Link) -> Result<Session<'_>, Trouble> {
        let mark = timeline::draw().to_string();
        link.client.batch_execute(&format!("SET {MARK} = '{mark}'")).await?;
        let ask = link.client.prepare(&format!("SELECT current_setting('{MARK}', true)")).await?;
        Ok(Session { link, mark, ask })
    }

    async fn is_own(&self) -> Result<bool, Trouble> {
        let asked = async { Ok(self.link.client.query_one(&self.ask, &[]).await?) };
        let found: Option<String> = get(&in_time(asked).await?, 0).map_err(Trouble::Lasting)?;
        Ok(found.as_ref() == Some(&self.mark))
    }
}

/// The columns of one row, without a prepared statement.
async fn values(client: &Client, sql: &str) -> Result<Vec<Option<String>>, Trouble> {
    let messages = client.simple_query(sql).await?;
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    Ok(row.map(|row| (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use testkit::postgres::Cluster;
    use tokio::runtime::Runtime;

    use super::super::connection::Target;
    use super::*;

    /// One session for two connections is what a pooler makes of them.
    #[test]
    fn sessions_that_are_shared_are_told_from_those_of_our_own() {
        let Some(cluster) = Cluster::shared() else { return };
        let url = cluster.create_database().unwrap().parse().unwrap();
        let runtime = Runtime::new().unwrap();
        let target = Target::new(&url, runtime.handle().clone(), false);
        runtime.block_on(async {
            let (first, second) = (target.connect().await.unwrap(), target.connect().await.unwrap());
            assert!(are_apart(&first, &second).await.unwrap());
            assert!(!are_apart(&first, &first).await.unwrap());
        });
    }
}
