//! The offline check on SQLite, and SQLite's own of its pages.

use std::collections::HashMap;

use rusqlite::Connection;
use types::FileId;

use super::rows::{open_reader, unsigned};
use crate::check::{self, Fields, PARENTS, PROBLEMS_MAX, Problem, SIZES};
use crate::store::Totals;

pub fn check(path: &std::path::Path) -> rusqlite::Result<Vec<Problem>> {
    let connection = open_reader(path)?;
    let transaction = connection.unchecked_transaction()?;
    let mut problems = pages(&transaction)?;
    for rule in check::rules() {
        if problems.len() < PROBLEMS_MAX {
            let mut statement = transaction.prepare(&rule.sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                problems.push((rule.problem)(&SqliteFields(row)));
            }
        }
    }
    problems.extend(check::tree(&parents(&transaction)?));
    problems.extend(totals(&transaction)?);
    problems.truncate(PROBLEMS_MAX);
    Ok(problems)
}

struct SqliteFields<'a>(&'a rusqlite::Row<'a>);

/// Columns that are not what they should be read as nothing: the pages are sound, so this is a bug in a rule.
impl Fields for SqliteFields<'_> {
    fn number(&self, at: usize) -> i64 {
        self.0.get(at).unwrap_or_default()
    }

    fn bytes(&self, at: usize) -> Vec<u8> {
        self.0.get(at).unwrap_or_default()
    }
}

fn pages(connection: &Connection) -> rusqlite::Result<Vec<Problem>> {
    let mut statement = connection.prepare("PRAGMA quick_check")?;
    let messages = statement.query_map([], |row| row.get::<_, String>(0))?;
    let problem = |message: String| (message != "ok").then_some(Problem::Database(message));
    messages.filter_map(|message| message.map(problem).transpose()).collect()
}

fn parents(connection: &Connection) -> rusqlite::Result<HashMap<FileId, FileId>> {
    let id = |row: &rusqlite::Row<'_>, at: usize| row.get(at).map(|id| FileId(unsigned(id)));
    connection.prepare(PARENTS)?.query_map([], |row| Ok((id(row, 0)?, id(row, 1)?)))?.collect()
}

fn totals(connection: &Connection) -> rusqlite::Result<Option<Problem>> {
    let told = connection.query_row("SELECT files, bytes FROM progress", [], |row| {
        Ok(Totals { files: row.get(0)?, bytes: row.get(1)? })
    })?;
    let mut counted = Totals::default();
    for size in connection.prepare(SIZES)?.query_map([], |row| row.get::<_, i64>(0))? {
        counted.files += 1;
        counted.bytes = counted.bytes.wrapping_add(size?);
    }
    Ok(check::totals(told, counted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{name, open, regular};
    use api::{CreateKind, CreateSpec, Namespace};
    use types::{Identity, PoolId};

    /// What `sql` does to a namespace with a directory `d` holding a file `f`.
    async fn after(sql: &'static str) -> (Vec<Problem>, FileId, FileId) {
        let scratch = tempfile::tempdir().unwrap();
        let namespace = open(&scratch);
        let directory = CreateSpec { kind: CreateKind::Directory, ..regular() };
        let root = Identity::root();
        let dir =
            namespace.create(&root, FileId::ROOT, &name("d"), &directory).await.unwrap().attributes.file;
        let file = namespace.create(&root, dir, &name("f"), &regular()).await.unwrap().attributes.file;
        namespace
            .shared
            .submit(move |group| {
                group.wrote();
                Ok(group.store.execute(sql)?)
            })
            .await
            .unwrap();
        namespace.close().await;
        (namespace.check().unwrap(), dir, file)
    }

    #[tokio::test]
    async fn a_sound_namespace_has_no_problems() {
        assert_eq!(after("").await.0, []);
    }

    #[tokio::test]
    async fn a_name_that_leads_nowhere_is_found() {
        let (problems, dir, file) = after("DELETE FROM inodes WHERE kind = 0").await;
        assert!(
            problems.contains(&Problem::NameOfNothing { dir, name: b"f".to_vec(), file }),
            "{problems:?}"
        );
    }

    #[tokio::test]
    async fn a_wrong_link_count_is_found() {
        let (problems, dir, file) = after("UPDATE inodes SET nlink = 7 WHERE id > 1").await;
        assert_eq!(
            problems,
            [
                Problem::LinkCount { file, nlink: 7, counted: 1 },
                Problem::LinkCount { file: dir, nlink: 7, counted: 2 }
            ]
        );
    }

    #[tokio::test]
    async fn a_cycle_and_a_wrong_parent_are_found() {
        let (problems, dir, _) = after("UPDATE inodes SET parent = id WHERE kind = 1 AND id > 1").await;
        let wrong = Problem::WrongParent { dir, parent: dir, named_in: FileId::ROOT };
        assert_eq!(problems, [wrong, Problem::Unreachable { dir }]);
    }

    #[tokio::test]
    async fn rows_that_no_file_speaks_of_and_missing_ones_are_found() {
        let sql =
            "INSERT INTO properties VALUES (4711, 'a', 'b'); INSERT INTO checksums VALUES (4712, 'md5', '');
                   INSERT INTO checksums SELECT id, 'md5', '' FROM inodes WHERE kind = 0";
        let (problems, _, file) = after(sql).await;
        let rows = |table, file| Problem::RowsOfNothing { table, file };
        assert_eq!(
            problems,
            [rows("checksums", file), rows("checksums", FileId(4712)), rows("properties", FileId(4711))]
        );
        let (problems, dir, file) = after("UPDATE inodes SET extras = 2 WHERE id > 1").await;
        let missing = |file| Problem::RowsMissing { table: "properties", file };
        assert_eq!(problems, [missing(dir), missing(file)]);
    }

    #[tokio::test]
    async fn a_file_that_was_not_published_and_has_a_name_is_found() {
        let (problems, _, file) = after("UPDATE inodes SET extras = 4 WHERE kind = 0").await;
        assert_eq!(problems, [Problem::Unnamed { file, nlink: 1 }]);
    }

    #[tokio::test]
    async fn wrong_totals_and_strange_locations_are_found() {
        let sql = "UPDATE inodes SET size = 5 WHERE kind = 0; INSERT INTO locations VALUES (4711, 1)";
        let (problems, _, _) = after(sql).await;
        let location = Problem::LocationOfNothing { file: FileId(4711), pool: PoolId(1) };
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(problems[0], location);
        assert!(matches!(problems[1], Problem::Totals { .. }));
    }
}
