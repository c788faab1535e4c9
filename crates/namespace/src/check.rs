//! The offline check behind `forebay fsck`: what the database says must hold together, whichever engine keeps it.

pub mod counts;
mod rules;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::ControlFlow;

use api::{Account, Counted, Scope};
use types::{FileId, PoolId};

pub use rules::{ATTACHED, find};

use crate::locality::Placement;
use crate::session::Session;
use crate::store::StoreResult;

/// More problems of one rule are not told. A kind of problem has up to eight rules.
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
    /// A file that was named, and no name leads to it.
    Nameless {
        file: FileId,
        nlink: u32,
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
    /// A file counts in a directory that has no name of it, or in none though it has a name.
    WrongHome {
        file: FileId,
        home: FileId,
    },
    /// A location of what is not there or is no regular file.
    LocationOfNothing {
        file: FileId,
        pool: PoolId,
    },
    /// A replica in a state that is not known.
    StrangeReplica {
        file: FileId,
        pool: PoolId,
        state: i64,
    },
    /// A file's note of where its data is contradicts its rows or its length. Numbers are those of the database
    /// (`locality`).
    Placement {
        file: FileId,
        noted: u32,
        found: u32,
    },
    SymlinkWithoutTarget {
        file: FileId,
    },
    /// Rows of properties, checksums, extended attributes or ACLs (which, `table` says) that no file speaks of.
    RowsOfNothing {
        table: &'static str,
        file: FileId,
    },
    /// A file says that it has properties, checksums, extended attributes or an ACL and there are none.
    RowsMissing {
        table: &'static str,
        file: FileId,
    },
    /// The link count of a file that was not published, or it is not a regular file.
    Unnamed {
        file: FileId,
        nlink: u32,
    },
    /// A change is pending for what is no directory.
    DeltaOfNothing {
        dir: FileId,
    },
    /// A quota or a count of a tree whose directory is not there.
    AccountOfNothing {
        table: &'static str,
        dir: FileId,
    },
    /// The recorded usage of an account is not its real usage.
    Usage {
        account: Account,
        told: Counted,
        counted: Counted,
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
            Problem::Nameless { file, nlink } => {
                write!(f, "{file} has link count {nlink} and no name")
            }
            Problem::LinkCount { file, nlink, counted } => {
                write!(f, "{file} has link count {nlink}, {counted} were counted")
            }
            Problem::DirectoryNames { dir, names } => write!(f, "directory {dir} has {names} names"),
            Problem::WrongParent { dir, parent, named_in } => {
                write!(f, "directory {dir} says it lies in {parent}, its name is in {named_in}")
            }
            Problem::Unreachable { dir } => write!(f, "directory {dir} cannot be reached from the root"),
            Problem::WrongHome { file, home } => {
                write!(f, "{file} is counted in directory {home}, where it has no name")
            }
            Problem::LocationOfNothing { file, pool } => {
                write!(f, "{pool} is noted for {file}, which is not there or is no regular file")
            }
            Problem::StrangeReplica { file, pool, state } => {
                write!(f, "the replica of {file} on {pool} is in state {state}, which is not known")
            }
            Problem::Placement { file, noted, found } => {
                let [noted, found] = [*noted, *found].map(placement_name);
                write!(f, "{file} is noted as {noted}, and is {found}")
            }
            Problem::SymlinkWithoutTarget { file } => write!(f, "symbolic link {file} has no target"),
            Problem::RowsOfNothing { table, file } => {
                write!(f, "there are {table} of {file}, which does not speak of them or is not there")
            }
            Problem::RowsMissing { table, file } => write!(f, "{file} has no {table}, but says so"),
            Problem::Unnamed { file, nlink } => {
                write!(f, "{file} was never published and is no regular file or has {nlink} names")
            }
            Problem::DeltaOfNothing { dir } => {
                write!(f, "changes are pending for {dir}, which is not a directory")
            }
            Problem::AccountOfNothing { table, dir } => {
                write!(f, "there is {table} of directory {dir}, which is not there")
            }
            Problem::Usage { account, told, counted } => {
                write!(
                    f,
                    "{} is said to have {}, {} were counted",
                    account_name(account),
                    Shown(told),
                    Shown(counted)
                )
            }
            Problem::Totals { files, counted_files, bytes, counted_bytes } => write!(
                f,
                "totals say {files} files and {bytes} bytes, {counted_files} and {counted_bytes} were counted"
            ),
        }
    }
}

struct Shown<'a>(&'a Counted);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counted { files, directories, bytes } = self.0;
        write!(f, "{files} files, {directories} directories and {} bytes", bytes.cast_unsigned())
    }
}

fn placement_name(number: u32) -> &'static str {
    if number > Placement::Lost.number() {
        return "something that is not known";
    }
    match Placement::from_number(number) {
        Placement::Replicas => "an entry that needs no note (a directory, or a file with replicas)",
        Placement::Empty => "empty",
        Placement::Lost => "a file with a length and no replica",
    }
}

pub fn account_name(account: &Account) -> String {
    match account.scope {
        Scope::User => format!("user {}", account.id),
        Scope::Group => format!("group {}", account.id),
        Scope::Tree => format!("what lies below directory {}", FileId(account.id)),
    }
}

/// Problems that are mended together, in the order in which they are: what comes first is what the rest hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    Database,
    NoRoot,
    Names,
    DirectoryNames,
    Parents,
    Unreachable,
    Unnamed,
    Symlinks,
    Nameless,
    Locations,
    Placements,
    Attachments,
    Homes,
    LinkCounts,
    Deltas,
    Accounts,
    Totals,
    Usage,
}

impl Kind {
    pub const ALL: [Kind; 18] = [
        Kind::Database,
        Kind::NoRoot,
        Kind::Names,
        Kind::DirectoryNames,
        Kind::Parents,
        Kind::Unreachable,
        Kind::Unnamed,
        Kind::Symlinks,
        Kind::Nameless,
        Kind::Locations,
        Kind::Placements,
        Kind::Attachments,
        Kind::Homes,
        Kind::LinkCounts,
        Kind::Deltas,
        Kind::Accounts,
        Kind::Totals,
        Kind::Usage,
    ];

    /// The problem, in the plural.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Database => "damaged pages of the database",
            Kind::NoRoot => "root directories that are missing",
            Kind::Names => "names that lead nowhere or lie in no directory",
            Kind::DirectoryNames => "directories with no name or with several",
            Kind::Parents => "directories that lie elsewhere than they say",
            Kind::Unreachable => "directories that cannot be reached from the root",
            Kind::Unnamed => "files noted as never published that have names",
            Kind::Symlinks => "symbolic links without a target",
            Kind::Nameless => "files that have lost their names",
            Kind::Locations => "locations of what is not there or is no regular file, or in an unknown state",
            Kind::Placements => {
                "files whose note of where their data is contradicts their replicas or their length"
            }
            Kind::Attachments => {
                "properties, checksums, extended attributes and ACLs that do not fit their files"
            }
            Kind::Homes => "files that are counted in the wrong directory",
            Kind::LinkCounts => "wrong link counts",
            Kind::Deltas => "pending changes of what is no directory",
            Kind::Accounts => "quotas and counts of directories that are not there",
            Kind::Totals => "wrong totals",
            Kind::Usage => "users, groups and trees that are counted wrong",
        }
    }
}

impl Problem {
    pub fn kind(&self) -> Kind {
        match self {
            Problem::Database(_) => Kind::Database,
            Problem::NoRoot => Kind::NoRoot,
            Problem::NameOfNothing { .. } | Problem::NameInNoDirectory { .. } => Kind::Names,
            Problem::DirectoryNames { .. } => Kind::DirectoryNames,
            Problem::WrongParent { .. } => Kind::Parents,
            Problem::Unreachable { .. } => Kind::Unreachable,
            Problem::Unnamed { .. } => Kind::Unnamed,
            Problem::SymlinkWithoutTarget { .. } => Kind::Symlinks,
            Problem::Nameless { .. } => Kind::Nameless,
            Problem::LocationOfNothing { .. } | Problem::StrangeReplica { .. } => Kind::Locations,
            Problem::Placement { .. } => Kind::Placements,
            Problem::RowsOfNothing { .. } | Problem::RowsMissing { .. } => Kind::Attachments,
            Problem::WrongHome { .. } => Kind::Homes,
            Problem::LinkCount { .. } => Kind::LinkCounts,
            Problem::DeltaOfNothing { .. } => Kind::Deltas,
            Problem::AccountOfNothing { .. } => Kind::Accounts,
            Problem::Totals { .. } => Kind::Totals,
            Problem::Usage { .. } => Kind::Usage,
        }
    }

    /// The file or directory with the problem, for people who look for it; of a name its directory.
    pub fn file(&self) -> Option<FileId> {
        match *self {
            Problem::Database(_) | Problem::NoRoot | Problem::Totals { .. } => None,
            Problem::NameOfNothing { dir, .. }
            | Problem::NameInNoDirectory { dir, .. }
            | Problem::DirectoryNames { dir, .. }
            | Problem::WrongParent { dir, .. }
            | Problem::Unreachable { dir }
            | Problem::DeltaOfNothing { dir }
            | Problem::AccountOfNothing { dir, .. } => Some(dir),
            Problem::Nameless { file, .. }
            | Problem::LinkCount { file, .. }
            | Problem::WrongHome { file, .. }
            | Problem::LocationOfNothing { file, .. }
            | Problem::StrangeReplica { file, .. }
            | Problem::Placement { file, .. }
            | Problem::SymlinkWithoutTarget { file }
            | Problem::RowsOfNothing { file, .. }
            | Problem::RowsMissing { file, .. }
            | Problem::Unnamed { file, .. } => Some(file),
            Problem::Usage { account, .. } => (account.scope == Scope::Tree).then_some(FileId(account.id)),
        }
    }
}

/// All kinds, of one state.
pub fn check(session: &mut dyn Session) -> StoreResult<Vec<Problem>> {
    let found = check_telling(session, &mut || ControlFlow::Continue(()))?;
    Ok(found.expect("nothing breaks it off"))
}

/// As [`check`]; `tell` is called after each kind. `None`: it broke the check off.
pub fn check_telling(
    session: &mut dyn Session,
    tell: &mut dyn FnMut() -> ControlFlow<()>,
) -> StoreResult<Option<Vec<Problem>>> {
    session.begin()?;
    let mut problems = Vec::new();
    for kind in Kind::ALL {
        problems.extend(find(session, kind)?);
        if tell().is_break() {
            session.end();
            return Ok(None);
        }
    }
    session.end();
    Ok(Some(problems))
}
