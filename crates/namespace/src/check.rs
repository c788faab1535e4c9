//! The offline check behind `forebay fsck`: what the database says must hold together.

use std::collections::{HashMap, HashSet};
use std::fmt;

use api::NamespaceError;
use rusqlite::Connection;
use types::{FileId, PoolId};

use crate::inode::NO_PARENT;
use crate::service::SqliteNamespace;
use crate::sqlite::{open_reader, to_namespace_error, unsigned};

/// More are not told: the first thousands say what is wrong.
const PROBLEMS_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// SQLite's own check of its pages.
    Database(String),
    /// There is no root directory.
    NoRoot,
    /// A name leads nowhere.
    NameOfNothing {
        dir: FileId,
        name: Vec<u8>,
        file: FileId,
    },
    /// A name lies in what is not a directory.
    NameInNoDirectory {
        dir: FileId,
        name: Vec<u8>,
    },
    /// The link count is not the number of names (of a directory: two and its subdirectories).
    LinkCount {
        file: FileId,
        nlink: u32,
        counted: u32,
    },
    /// A directory with no name, or with several.
    DirectoryNames {
        dir: FileId,
        names: u32,
    },
    /// A directory lies elsewhere than its inode says.
    WrongParent {
        dir: FileId,
        parent: FileId,
        named_in: FileId,
    },
    /// A directory from which no way leads up to the root.
    Unreachable {
        dir: FileId,
    },
    LocationOfNothing {
        file: FileId,
        pool: PoolId,
    },
    SymlinkWithoutTarget {
        file: FileId,
    },
    /// Rows of properties or checksums (which, `table` says) that no file speaks of.
    RowsOfNothing {
        table: &'static str,
        file: FileId,
    },
    /// A file says that it has properties or checksums and there are none.
    RowsMissing {
        table: &'static str,
        file: FileId,
    },
    /// The link count of a file that was not published, or it is not a regular file.
    Unnamed {
        file: FileId,
        nlink: u32,
    },
    /// The totals that statfs tells are not what is there.
    Totals {
        files: u64,
        counted_files: u64,
        bytes: u64,
        counted_bytes: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Database(message) => write!(f, "database: {message}"),
            Problem::NoRoot => write!(f, "there is no root directory"),
            Problem::NameOfNothing { dir, name, file } => {
                write!(
                    f,
                    "name \"{}\" in directory {dir} leads to {file}, which is not there",
                    name.escape_ascii()
                )
            }
            Problem::NameInNoDirectory { dir, name } => {
                write!(f, "name \"{}\" lies in {dir}, which is not a directory", name.escape_ascii())
            }
            Problem::LinkCount { file, nlink, counted } => {
                write!(f, "{file} has link count {nlink}, {counted} were counted")
            }
            Problem::DirectoryNames { dir, names } => write!(f, "directory {dir} has {names} names"),
            Problem::WrongParent { dir, parent, named_in } => {
                write!(f, "directory {dir} says it lies in {parent}, its name is in {named_in}")
            }
            Problem::Unreachable { dir } => write!(f, "directory {dir} cannot be reached from the root"),
            Problem::LocationOfNothing { file, pool } => {
                write!(f, "{pool} is noted for {file}, which is not there")
            }
            Problem::SymlinkWithoutTarget { file } => write!(f, "symbolic link {file} has no target"),
            Problem::RowsOfNothing { table, file } => {
                write!(f, "there are {table} of {file}, which does not speak of them or is not there")
            }
            Problem::RowsMissing { table, file } => write!(f, "{file} has no {table}, but says so"),
            Problem::Unnamed { file, nlink } => {
                write!(f, "{file} was never published and is no regular file or has {nlink} names")
            }
            Problem::Totals { files, counted_files, bytes, counted_bytes } => write!(
                f,
                "totals say {files} files and {bytes} bytes, {counted_files} and {counted_bytes} were counted"
            ),
        }
    }
}

impl SqliteNamespace {
    /// Reads everything; for a namespace that nobody changes meanwhile. Blocks.
    pub fn check(&self) -> Result<Vec<Problem>, NamespaceError> {
        check(&self.path).map_err(|error| to_namespace_error(&error))
    }
}

fn check(path: &std::path::Path) -> rusqlite::Result<Vec<Problem>> {
    let connection = open_reader(path)?;
    let transaction = connection.unchecked_transaction()?;
    let mut problems = Vec::new();
    for rule in [pages, names, link_counts, directories, belongings, extras, totals] {
        rule(&transaction, &mut problems)?;
        if problems.len() >= PROBLEMS_MAX {
            problems.truncate(PROBLEMS_MAX);
            break;
        }
    }
    Ok(problems)
}

type Row<'a> = rusqlite::Row<'a>;

fn collect(
    connection: &Connection,
    problems: &mut Vec<Problem>,
    sql: &str,
    problem: impl Fn(&Row<'_>) -> rusqlite::Result<Problem>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(&format!("{sql} LIMIT {PROBLEMS_MAX}"))?;
    let rows = statement.query_map([], |row| problem(row))?;
    for row in rows {
        problems.push(row?);
    }
    Ok(())
}

fn id(row: &Row<'_>, at: usize) -> rusqlite::Result<FileId> {
    row.get(at).map(|id| FileId(unsigned(id)))
}

fn pages(connection: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("PRAGMA quick_check")?;
    let messages = statement.query_map([], |row| row.get::<_, String>(0))?;
    for message in messages {
        let message = message?;
        if message != "ok" {
            problems.push(Problem::Database(message));
        }
    }
    Ok(())
}

fn names(connection: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    collect(
        connection,
        problems,
        "SELECT d.parent, d.name, d.inode FROM dentries d LEFT JOIN inodes i ON i.id = d.inode WHERE i.id IS NULL",
        |row| Ok(Problem::NameOfNothing { dir: id(row, 0)?, name: row.get(1)?, file: id(row, 2)? }),
    )?;
    collect(
        connection,
        problems,
        "SELECT d.parent, d.name FROM dentries d LEFT JOIN inodes i ON i.id = d.parent WHERE i.kind IS NOT 1",
        |row| Ok(Problem::NameInNoDirectory { dir: id(row, 0)?, name: row.get(1)? }),
    )
}

fn link_counts(connection: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    let problem = |row: &Row<'_>| {
        Ok(Problem::LinkCount { file: id(row, 0)?, nlink: row.get(1)?, counted: row.get(2)? })
    };
    collect(
        connection,
        problems,
        "SELECT i.id, i.nlink, coalesce(n.names, 0) AS counted FROM inodes i \
         LEFT JOIN (SELECT inode, count(*) AS names FROM dentries GROUP BY inode) n ON n.inode = i.id \
         WHERE i.kind != 1 AND i.nlink != coalesce(n.names, 0)",
        problem,
    )?;
    collect(
        connection,
        problems,
        "SELECT i.id, i.nlink, 2 + coalesce(n.children, 0) AS counted FROM inodes i LEFT JOIN \
         (SELECT d.parent, count(*) AS children FROM dentries d JOIN inodes c ON c.id = d.inode AND c.kind = 1 \
          GROUP BY d.parent) n ON n.parent = i.id WHERE i.kind = 1 AND i.nlink != 2 + coalesce(n.children, 0)",
        problem,
    )
}

fn directories(connection: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    collect(
        connection,
        problems,
        "SELECT i.id, count(d.inode) FROM inodes i LEFT JOIN dentries d ON d.inode = i.id \
         WHERE i.kind = 1 AND i.id != 1 GROUP BY i.id HAVING count(d.inode) != 1",
        |row| Ok(Problem::DirectoryNames { dir: id(row, 0)?, names: row.get(1)? }),
    )?;
    collect(
        connection,
        problems,
        "SELECT i.id, i.parent, d.parent FROM dentries d JOIN inodes i ON i.id = d.inode \
         WHERE i.kind = 1 AND i.parent != d.parent",
        |row| Ok(Problem::WrongParent { dir: id(row, 0)?, parent: id(row, 1)?, named_in: id(row, 2)? }),
    )?;
    let mut statement = connection.prepare("SELECT i.id, i.parent FROM inodes i WHERE i.kind = 1")?;
    let parents: HashMap<FileId, FileId> =
        statement.query_map([], |row| Ok((id(row, 0)?, id(row, 1)?)))?.collect::<rusqlite::Result<_>>()?;
    if parents.get(&FileId::ROOT) != Some(&NO_PARENT) {
        problems.push(Problem::NoRoot);
    }
    problems.extend(unreachable(&parents).into_iter().map(|dir| Problem::Unreachable { dir }));
    Ok(())
}

/// Directories from which the way up ends elsewhere than at the root, or never.
fn unreachable(parents: &HashMap<FileId, FileId>) -> Vec<FileId> {
    let mut good = HashSet::from([FileId::ROOT]);
    let mut bad = HashSet::new();
    for start in parents.keys() {
        let mut way = Vec::new();
        let mut on_way = HashSet::new();
        let mut at = *start;
        let is_good = loop {
            if good.contains(&at) {
                break true;
            }
            if bad.contains(&at) || !on_way.insert(at) {
                break false;
            }
            way.push(at);
            match parents.get(&at) {
                Some(parent) => at = *parent,
                None => break false,
            }
        };
        let into = if is_good { &mut good } else { &mut bad };
        into.extend(way.into_iter().filter(|dir| parents.contains_key(dir)));
    }
    let mut bad: Vec<FileId> = bad.into_iter().collect();
    bad.sort_unstable();
    bad
}

fn belongings(connection: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    collect(
        connection,
        problems,
        "SELECT l.inode, l.pool FROM locations l LEFT JOIN inodes i ON i.id = l.inode WHERE i.id IS NULL",
        |row| Ok(Problem::LocationOfNothing { file: id(row, 0)?, pool: PoolId(row.get(1)?) }),
    )?;
    collect(
        connection,
        problems,
        "SELECT i.id FROM inodes i LEFT JOIN symlinks s ON s.inode = i.id WHERE i.kind = 2 AND s.inode IS NULL",
        |row| Ok(Problem::SymlinkWithoutTarget { file: id(row, 0)? }),
    )
}

fn extras(connection: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    for (table, bit) in [("checksums", 1), ("properties", 2)] {
        collect(
            connection,
            problems,
            &format!(
                "SELECT DISTINCT r.inode FROM {table} r LEFT JOIN inodes i ON i.id = r.inode \
                 WHERE i.id IS NULL OR i.extras & {bit} = 0"
            ),
            |row| Ok(Problem::RowsOfNothing { table, file: id(row, 0)? }),
        )?;
        collect(
            connection,
            problems,
            &format!(
                "SELECT i.id FROM inodes i WHERE i.extras & {bit} != 0 \
                 AND NOT EXISTS (SELECT 1 FROM {table} r WHERE r.inode = i.id)"
            ),
            |row| Ok(Problem::RowsMissing { table, file: id(row, 0)? }),
        )?;
    }
    collect(
        connection,
        problems,
        "SELECT i.id, i.nlink FROM inodes i WHERE i.extras & 4 != 0 AND (i.nlink != 0 OR i.kind != 0)",
        |row| Ok(Problem::Unnamed { file: id(row, 0)?, nlink: row.get(1)? }),
    )
}

fn totals(connection: &Connection, problems: &mut Vec<Problem>) -> rusqlite::Result<()> {
    let pair = |row: &Row<'_>| -> rusqlite::Result<(u64, u64)> {
        Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)))
    };
    let (files, bytes) = connection.query_row("SELECT files, bytes FROM progress", [], pair)?;
    // Added here, since SQL's sum fails where sparse files together pass its largest number.
    let mut statement = connection.prepare("SELECT CASE WHEN kind = 0 THEN size ELSE 0 END FROM inodes")?;
    let (mut counted_files, mut counted_bytes) = (0_u64, 0_u64);
    for size in statement.query_map([], |row| row.get(0).map(unsigned))? {
        counted_files += 1;
        counted_bytes = counted_bytes.wrapping_add(size?);
    }
    if (files, bytes) != (counted_files, counted_bytes) {
        problems.push(Problem::Totals { files, counted_files, bytes, counted_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::{name, open, regular};
    use api::{CreateKind, CreateSpec, Namespace};
    use types::Identity;

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
