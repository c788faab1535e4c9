//! The offline check on PostgreSQL. Its pages are its own business (`pg_amcheck`, data checksums).

use tokio_postgres::Row;

use super::connection::{Link, Target, Trouble};
use super::rows::file_id;
use crate::check::{self, Fields, PARENTS, PROBLEMS_MAX, Problem, SIZES};
use crate::store::{StoreError, StoreResult, Totals};

pub fn check(target: &Target) -> StoreResult<Vec<Problem>> {
    let (target, (answer, answered)) = (target.clone(), std::sync::mpsc::channel());
    let handle = target.handle().clone();
    // The caller may be in a runtime of its own, where nothing may block on a future.
    handle.spawn(async move {
        let found = match target.connect().await {
            Ok(link) => look(&link).await,
            Err(trouble) => Err(trouble),
        };
        let _ = answer.send(found);
    });
    match answered.recv() {
        Ok(Ok(problems)) => Ok(problems),
        Ok(Err(Trouble::Lasting(error))) => Err(error),
        Ok(Err(Trouble::Passing(reason) | Trouble::Torn(reason))) => Err(StoreError::Failed(reason)),
        Ok(Err(Trouble::Moved)) | Err(_) => Err(StoreError::Failed("check was not finished".to_owned())),
    }
}

async fn look(link: &Link) -> Result<Vec<Problem>, Trouble> {
    // Here whole tables are read and joined.
    link.client
        .batch_execute("SET enable_seqscan = on; SET enable_hashjoin = on; SET enable_mergejoin = on")
        .await?;
    link.client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let mut problems = Vec::new();
    for rule in check::rules() {
        if problems.len() < PROBLEMS_MAX {
            let rows = link.client.query(&rule.sql, &[]).await?;
            problems.extend(rows.iter().map(|row| (rule.problem)(&PostgresFields(row))));
        }
    }
    let parents = link.client.query(PARENTS, &[]).await?;
    let of = |row: &Row, at| file_id(PostgresFields(row).number(at));
    problems.extend(check::tree(&parents.iter().map(|row| (of(row, 0), of(row, 1))).collect()));
    let told = link.client.query_one("SELECT files, bytes FROM progress", &[]).await?;
    let told = PostgresFields(&told);
    let mut counted = Totals::default();
    for row in link.client.query(SIZES, &[]).await? {
        counted.files += 1;
        counted.bytes = counted.bytes.wrapping_add(PostgresFields(&row).number(0));
    }
    problems.extend(check::totals(Totals { files: told.number(0), bytes: told.number(1) }, counted));
    problems.truncate(PROBLEMS_MAX);
    Ok(problems)
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
        self.0.try_get(at).unwrap_or_default()
    }
}
