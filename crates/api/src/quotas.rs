//! Who uses how much, and how much they may.

/// Whose files are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    pub scope: Scope,
    /// A uid, a gid, or a directory's file id.
    pub id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    User,
    Group,
    /// Everything below a directory, without itself.
    Tree,
}

/// What an account has, or by how much that changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Everything that is no directory, a file of several names once.
    pub files: i64,
    pub directories: i64,
    /// Sizes of the regular files as told, holes included.
    pub bytes: i64,
}

impl Counted {
    pub fn is_nothing(&self) -> bool {
        *self == Counted::default()
    }

    pub fn add(&mut self, other: &Counted) {
        self.files += other.files;
        self.directories += other.directories;
        self.bytes = self.bytes.wrapping_add(other.bytes);
    }

    pub fn subtract(&mut self, other: &Counted) {
        self.files -= other.files;
        self.directories -= other.directories;
        self.bytes = self.bytes.wrapping_sub(other.bytes);
    }
}

/// Above `soft` for longer than the grace period is as above `hard`: nothing more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    pub bytes: Limit,
    /// Of files and directories together.
    pub files: Limit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    pub soft: Option<u64>,
    pub hard: Option<u64>,
    /// Seconds since 1970; since when it is above `soft`.
    pub over_since: Option<u64>,
}
