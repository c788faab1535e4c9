//! A setting of a directory, and of all below it.

use std::sync::Arc;

use anyhow::Result;
use api::{Account, Consistency, Cookie, Directories, Namespace, NamespaceError, Quotas};
use namespace::SqlNamespace;
use tokio::task::JoinSet;
use types::{FileId, FileKind, Identity, IoMode};

use crate::cli::{ConsistencyArgument, IoArgument};
use crate::progress::Meter;
use crate::questions::DirectorySetting;

/// Directories and files that are changed at the same time, so that they share a commit.
const CHANGES_MAX: usize = 64;
/// Entries asked for at once.
const PAGE_LEN: usize = 1000;

#[derive(Clone, Copy)]
pub enum Setting {
    /// `None`: as the instance.
    Consistency(Option<Consistency>),
    Io(IoMode),
}

impl From<DirectorySetting> for Setting {
    fn from(setting: DirectorySetting) -> Setting {
        match setting {
            DirectorySetting::Consistency(mode) => Setting::Consistency(match mode {
                ConsistencyArgument::Strong => Some(Consistency::Strong),
                ConsistencyArgument::Weak => Some(Consistency::Weak),
                ConsistencyArgument::Soft => Some(Consistency::Soft),
                ConsistencyArgument::Auto => Some(Consistency::Auto),
                ConsistencyArgument::Inherit => None,
            }),
            DirectorySetting::Io(mode) => Setting::Io(match mode {
                IoArgument::Buffered => IoMode::Buffered,
                IoArgument::Uncached => IoMode::Uncached,
                IoArgument::Direct => IoMode::Direct,
                IoArgument::Auto => IoMode::Auto,
            }),
        }
    }
}

/// A directory or file below the first one, after the attempt to set it.
struct Below {
    file: FileId,
    is_directory: bool,
    set: Result<(), NamespaceError>,
}

impl Setting {
    /// How many directories and files it was set for. One that goes meanwhile is none; one that is made meanwhile
    /// inherits it, for each directory is listed after it was set. One that a rename brings keeps its own.
    pub async fn apply_to_tree(
        self,
        namespace: &Arc<SqlNamespace>,
        top: FileId,
        recursive: bool,
        meter: &Meter,
    ) -> Result<u64> {
        self.apply(namespace, top).await?;
        if recursive {
            let below = namespace.counted(Account::tree(top)).await?;
            let (title, count) = match self {
                Setting::Consistency(_) => ("setting directories", below.directories),
                Setting::Io(_) => ("setting directories and files", below.directories + below.files),
            };
            meter.begin_items(title, u64::try_from(count + 1).ok());
        }
        let (mut changed, mut found, mut changing) = (1, vec![top], JoinSet::new());
        while recursive && !(found.is_empty() && changing.is_empty()) {
            let Some(dir) = found.pop() else {
                found.extend(next(&mut changing, &mut changed).await?);
                continue;
            };
            meter.set(changed);
            let mut after = Cookie::START;
            loop {
                let page = match namespace.list(&Identity::root(), dir, after, PAGE_LEN).await {
                    Err(NamespaceError::Stale(_)) => break,
                    page => page?,
                };
                for entry in page.entries.iter().filter(|entry| self.is_of(entry.attributes.kind)) {
                    let (namespace, file) = (Arc::clone(namespace), entry.attributes.file);
                    let is_directory = entry.attributes.kind.is_directory();
                    changing.spawn(async move {
                        Below { file, is_directory, set: self.apply(&namespace, file).await }
                    });
                    if changing.len() >= CHANGES_MAX {
                        found.extend(next(&mut changing, &mut changed).await?);
                    }
                }
                match page.entries.last() {
                    Some(last) if !page.is_last => after = last.cookie,
                    _ => break,
                }
            }
        }
        Ok(changed)
    }

    async fn apply(self, namespace: &SqlNamespace, file: FileId) -> Result<(), NamespaceError> {
        match self {
            Setting::Consistency(mode) => namespace.set_consistency(file, mode).await,
            Setting::Io(mode) => namespace.set_io(file, mode).await,
        }
    }

    fn is_of(self, kind: FileKind) -> bool {
        match self {
            Setting::Consistency(_) => kind.is_directory(),
            Setting::Io(_) => kind.is_directory() || kind.is_regular(),
        }
    }
}

/// The next change that ends, if it was of a directory.
async fn next(changing: &mut JoinSet<Below>, changed: &mut u64) -> Result<Option<FileId>> {
    let Some(below) = changing.join_next().await.transpose()? else { return Ok(None) };
    match below.set {
        Ok(()) => {
            *changed += 1;
            Ok(below.is_directory.then_some(below.file))
        }
        Err(NamespaceError::Stale(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
