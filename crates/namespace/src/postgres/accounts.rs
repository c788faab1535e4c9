//! Usage and quotas by account.

use std::sync::LazyLock;

use api::{Account, Counted};

use super::change::Change;
use super::connection::{Link, Trouble};
use super::rows::get;
use crate::accounts::{scope_number, wrapping_sum};
use crate::store::Batch;

pub async fn read_usage(link: &Link, account: Account) -> Result<Counted, Trouble> {
    let rows = link
        .query(
            "SELECT files, directories, bytes FROM usage WHERE scope = $1 AND id = $2",
            &[&scope_number(account.scope), &account.id.cast_signed()],
        )
        .await?;
    let counted = |row| Ok(Counted { files: get(row, 0)?, directories: get(row, 1)?, bytes: get(row, 2)? });
    let found = rows.first().map(counted).transpose();
    Ok(found.map_err(Trouble::Lasting)?.unwrap_or_default())
}

pub fn change(batch: &Batch, changes: &mut Vec<Change>) {
    close(batch, changes);
    note(batch, changes);
    count(batch, changes);
    limit(batch, changes);
}

fn note(batch: &Batch, changes: &mut Vec<Change>) {
    if batch.ends_journal {
        changes.push(Change { sql: "DELETE FROM usage_journal", values: Vec::new() });
    }
    if let Some(row) = &batch.journal {
        changes.push(Change {
            sql: "INSERT INTO usage_journal (groups, deltas) VALUES ($1, $2)",
            values: vec![Box::new(batch.sequence.cast_signed()), Box::new(row.clone())],
        });
    }
}

fn keys<'a>(accounts: impl Iterator<Item = &'a Account>) -> (Vec<i16>, Vec<i64>) {
    accounts.map(|account| (scope_number(account.scope), account.id.cast_signed())).unzip()
}

fn remove(changes: &mut Vec<Change>, sql: &'static str, (scopes, ids): (Vec<i16>, Vec<i64>)) {
    if !scopes.is_empty() {
        changes.push(Change { sql, values: vec![Box::new(scopes), Box::new(ids)] });
    }
}

fn close(batch: &Batch, changes: &mut Vec<Change>) {
    let closed = keys(batch.closed_accounts.iter());
    remove(
        changes,
        "DELETE FROM usage u USING unnest($1::smallint[], $2::bigint[]) AS k(scope, id) \
         WHERE u.scope = k.scope AND u.id = k.id",
        closed.clone(),
    );
    remove(changes, REMOVE_QUOTAS, closed);
}

const REMOVE_QUOTAS: &str = "DELETE FROM quotas q USING unnest($1::smallint[], $2::bigint[]) AS k(scope, id) \
    WHERE q.scope = k.scope AND q.id = k.id";

static ADD_USAGE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "INSERT INTO usage (scope, id, files, directories, bytes) SELECT * FROM \
         unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) \
         ON CONFLICT (scope, id) DO UPDATE SET files = usage.files + excluded.files, \
         directories = usage.directories + excluded.directories, bytes = {}",
        wrapping_sum("usage.bytes", "excluded.bytes")
    )
});

fn count(batch: &Batch, changes: &mut Vec<Change>) {
    if batch.usage.is_empty() {
        return;
    }
    let (scopes, ids) = keys(batch.usage.keys());
    let column = |of: fn(&Counted) -> i64| batch.usage.values().map(of).collect::<Vec<i64>>();
    changes.push(Change {
        sql: &ADD_USAGE,
        values: vec![
            Box::new(scopes),
            Box::new(ids),
            Box::new(column(|counted| counted.files)),
            Box::new(column(|counted| counted.directories)),
            Box::new(column(|counted| counted.bytes)),
        ],
    });
}

fn limit(batch: &Batch, changes: &mut Vec<Change>) {
    let gone = batch.quotas.iter().filter(|(_, quota)| quota.is_none());
    remove(changes, REMOVE_QUOTAS, keys(gone.map(|(account, _)| account)));
    let there: Vec<_> =
        batch.quotas.iter().filter_map(|(account, quota)| Some((account, quota.as_ref()?))).collect();
    if there.is_empty() {
        return;
    }
    let (scopes, ids) = keys(there.iter().map(|(account, _)| *account));
    let column = |of: fn(&api::Quota) -> Option<u64>| {
        let values = there.iter().map(|(_, quota)| of(quota).map(u64::cast_signed));
        values.collect::<Vec<Option<i64>>>()
    };
    changes.push(Change {
        sql: "INSERT INTO quotas (scope, id, bytes_soft, bytes_hard, files_soft, files_hard, bytes_over_since, \
              files_over_since) SELECT * FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::bigint[], \
              $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[]) ON CONFLICT (scope, id) DO UPDATE SET \
              bytes_soft = excluded.bytes_soft, bytes_hard = excluded.bytes_hard, files_soft = excluded.files_soft, \
              files_hard = excluded.files_hard, bytes_over_since = excluded.bytes_over_since, \
              files_over_since = excluded.files_over_since",
        values: vec![
            Box::new(scopes),
            Box::new(ids),
            Box::new(column(|quota| quota.bytes.soft)),
            Box::new(column(|quota| quota.bytes.hard)),
            Box::new(column(|quota| quota.files.soft)),
            Box::new(column(|quota| quota.files.hard)),
            Box::new(column(|quota| quota.bytes.over_since)),
            Box::new(column(|quota| quota.files.over_since)),
        ],
    });
}
