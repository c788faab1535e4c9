//! Settings of directories: how soon their own attributes follow their entries, and the mode of I/O of files in them.

use async_trait::async_trait;
use types::{FileId, IoMode};

use crate::NamespaceError;

/// When a directory's link count, times and change attribute follow an entry that came, went or was renamed. The entry
/// itself is there, or gone, at once in every mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Consistency {
    /// Written together with the entry.
    Strong,
    /// Written later; until then readers see the old values.
    Weak,
    /// Written later; readers see the new values.
    Soft,
    /// `Strong`, or `Soft` while that is cheaper.
    #[default]
    Auto,
}

impl Consistency {
    pub const ALL: [Consistency; 4] =
        [Consistency::Strong, Consistency::Weak, Consistency::Soft, Consistency::Auto];

    pub fn name(self) -> &'static str {
        match self {
            Consistency::Strong => "strong",
            Consistency::Weak => "weak",
            Consistency::Soft => "soft",
            Consistency::Auto => "auto",
        }
    }

    pub fn by_name(name: &str) -> Option<Consistency> {
        Consistency::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// Settings of a directory beside its attributes.
#[async_trait]
pub trait Directories: Send + Sync {
    /// `None`: as the instance.
    async fn consistency(&self, dir: FileId) -> Result<Option<Consistency>, NamespaceError>;
    /// Directories made in it from now on begin with the same.
    async fn set_consistency(&self, dir: FileId, mode: Option<Consistency>) -> Result<(), NamespaceError>;
    /// Of directories for which none is set.
    fn default_consistency(&self) -> Consistency;
    /// Of a directory or a regular file; what is made in a directory from now on begins with the same. It is read as an
    /// attribute.
    async fn set_io(&self, file: FileId, mode: IoMode) -> Result<(), NamespaceError>;
}
