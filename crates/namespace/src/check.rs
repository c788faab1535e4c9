//! The offline check behind `forebay fsck`: what the database says must hold together, whichever engine keeps it.

use std::collections::{HashMap, HashSet};
use std::fmt;

use types::{FileId, PoolId};

use crate::inode::NO_PARENT;
use crate::store::Totals;

/// More are not told: the first thousands say what is wrong.
pub const PROBLEMS_MAX: usize = 10_000;

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

/// A question whose every row is a problem.
pub struct Rule {
    pub sql: String,
    pub problem: Box<OfRow>,
}

type OfRow = dyn Fn(&dyn Fields) -> Problem + Send + Sync;

/// The columns of such a row.
pub trait Fields {
    fn number(&self, at: usize) -> i64;
    fn bytes(&self, at: usize) -> Vec<u8>;
}

impl dyn Fields + '_ {
    fn id(&self, at: usize) -> FileId {
        FileId(self.number(at).cast_unsigned())
    }

    fn count(&self, at: usize) -> u32 {
        u32::try_from(self.number(at)).unwrap_or(u32::MAX)
    }
}

fn rule(sql: &str, problem: impl Fn(&dyn Fields) -> Problem + Send + Sync + 'static) -> Rule {
    Rule { sql: format!("{sql} LIMIT {PROBLEMS_MAX}"), problem: Box::new(problem) }
}

/// In the SQL that all engines have in common.
pub fn rules() -> Vec<Rule> {
    let mut rules = names();
    rules.extend(link_counts());
    rules.extend(directories());
    rules.extend(belongings());
    for (table, bit) in [("checksums", 1), ("properties", 2)] {
        rules.extend(extras(table, bit));
    }
    rules.push(rule(
        "SELECT i.id, i.nlink FROM inodes i WHERE i.extras & 4 != 0 AND (i.nlink != 0 OR i.kind != 0)",
        |row| Problem::Unnamed { file: row.id(0), nlink: row.count(1) },
    ));
    rules
}

fn names() -> Vec<Rule> {
    vec![
        rule(
            "SELECT d.parent, d.name, d.inode FROM dentries d LEFT JOIN inodes i ON i.id = d.inode \
             WHERE i.id IS NULL",
            |row| Problem::NameOfNothing { dir: row.id(0), name: row.bytes(1), file: row.id(2) },
        ),
        rule(
            "SELECT d.parent, d.name FROM dentries d LEFT JOIN inodes i ON i.id = d.parent \
             WHERE i.kind IS NULL OR i.kind != 1",
            |row| Problem::NameInNoDirectory { dir: row.id(0), name: row.bytes(1) },
        ),
    ]
}

fn link_counts() -> Vec<Rule> {
    let problem =
        |row: &dyn Fields| Problem::LinkCount { file: row.id(0), nlink: row.count(1), counted: row.count(2) };
    vec![
        rule(
            "SELECT i.id, i.nlink, coalesce(n.names, 0) AS counted FROM inodes i \
             LEFT JOIN (SELECT inode, count(*) AS names FROM dentries GROUP BY inode) n ON n.inode = i.id \
             WHERE i.kind != 1 AND i.nlink != coalesce(n.names, 0)",
            problem,
        ),
        rule(
            "SELECT i.id, i.nlink, 2 + coalesce(n.children, 0) AS counted FROM inodes i LEFT JOIN \
             (SELECT d.parent, count(*) AS children FROM dentries d JOIN inodes c ON c.id = d.inode AND c.kind = 1 \
              GROUP BY d.parent) n ON n.parent = i.id WHERE i.kind = 1 AND i.nlink != 2 + coalesce(n.children, 0)",
            problem,
        ),
    ]
}

fn directories() -> Vec<Rule> {
    vec![
        rule(
            "SELECT i.id, count(d.inode) FROM inodes i LEFT JOIN dentries d ON d.inode = i.id \
             WHERE i.kind = 1 AND i.id != 1 GROUP BY i.id HAVING count(d.inode) != 1",
            |row| Problem::DirectoryNames { dir: row.id(0), names: row.count(1) },
        ),
        rule(
            "SELECT i.id, i.parent, d.parent FROM dentries d JOIN inodes i ON i.id = d.inode \
             WHERE i.kind = 1 AND i.parent != d.parent",
            |row| Problem::WrongParent { dir: row.id(0), parent: row.id(1), named_in: row.id(2) },
        ),
    ]
}

fn belongings() -> Vec<Rule> {
    vec![
        rule(
            "SELECT l.inode, l.pool FROM locations l LEFT JOIN inodes i ON i.id = l.inode WHERE i.id IS NULL",
            |row| Problem::LocationOfNothing { file: row.id(0), pool: PoolId(row.count(1)) },
        ),
        rule(
            "SELECT i.id FROM inodes i LEFT JOIN symlinks s ON s.inode = i.id \
             WHERE i.kind = 2 AND s.inode IS NULL",
            |row| Problem::SymlinkWithoutTarget { file: row.id(0) },
        ),
    ]
}

fn extras(table: &'static str, bit: u32) -> Vec<Rule> {
    vec![
        rule(
            &format!(
                "SELECT DISTINCT r.inode FROM {table} r LEFT JOIN inodes i ON i.id = r.inode \
                 WHERE i.id IS NULL OR i.extras & {bit} = 0 ORDER BY r.inode"
            ),
            move |row| Problem::RowsOfNothing { table, file: row.id(0) },
        ),
        rule(
            &format!(
                "SELECT i.id FROM inodes i WHERE i.extras & {bit} != 0 \
                 AND NOT EXISTS (SELECT 1 FROM {table} r WHERE r.inode = i.id) ORDER BY i.id"
            ),
            move |row| Problem::RowsMissing { table, file: row.id(0) },
        ),
    ]
}

/// Every directory with the one that it says it lies in.
pub const PARENTS: &str = "SELECT i.id, i.parent FROM inodes i WHERE i.kind = 1";

pub fn tree(parents: &HashMap<FileId, FileId>) -> Vec<Problem> {
    let mut problems = Vec::new();
    if parents.get(&FileId::ROOT) != Some(&NO_PARENT) {
        problems.push(Problem::NoRoot);
    }
    problems.extend(unreachable(parents).into_iter().map(|dir| Problem::Unreachable { dir }));
    problems
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

/// The size of each file, and zero for whatever has none. Added up by the caller, since SQL's sum fails where sparse files
/// together pass its largest number.
pub const SIZES: &str = "SELECT CASE WHEN kind = 0 THEN size ELSE 0 END FROM inodes";

pub fn totals(told: Totals, counted: Totals) -> Option<Problem> {
    let [files, counted_files] = [told.files, counted.files].map(i64::cast_unsigned);
    let [bytes, counted_bytes] = [told.bytes, counted.bytes].map(i64::cast_unsigned);
    (told != counted).then_some(Problem::Totals { files, counted_files, bytes, counted_bytes })
}
