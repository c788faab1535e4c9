//! Whether users of NFS can write anywhere. On a new server whose clients' root is squashed they cannot, and its banner
//! names the command that creates a directory for them.

use std::time::Duration;

use anyhow::Result;
use api::{Cookie, Namespace, NamespaceError};
use namespace::SqlNamespace;
use tokio::time::timeout;
use types::{Attributes, FileId, Identity, Name};

use crate::config::{Config, exports};

/// Entries of an export that are looked at; an export with more is in use.
const ENTRIES_MAX: usize = 1000;
/// The banner waits at most this long: the database may be away.
const SEARCH: Duration = Duration::from_secs(2);
/// In a mode: the bits of one class that let it create entries of a directory.
const WRITE_AND_SEARCH: u32 = 0o3;

/// The path of a directory to create for users. `None`: they can write somewhere, or root of a client can, or it is not
/// known.
pub async fn missing_directory(namespace: &SqlNamespace, config: &Config) -> Option<String> {
    found_in_time(search(namespace, config)).await
}

async fn found_in_time(search: impl Future<Output = Result<Option<String>>>) -> Option<String> {
    let found = timeout(SEARCH, search).await.unwrap_or_else(|late| Err(late.into()));
    found.unwrap_or_else(|error| {
        tracing::debug!("cannot look for directories of users: {error:#}");
        None
    })
}

async fn search(namespace: &SqlNamespace, config: &Config) -> Result<Option<String>> {
    let Some(tops) = exports::written_by_users(config)? else { return Ok(None) };
    let mut missing = None;
    for top in tops {
        let path: String = top.iter().map(|name| format!("/{}", text(name))).collect();
        match find(namespace, &top).await? {
            None => _ = missing.get_or_insert(path),
            Some(dir) if has_place(namespace, &dir).await? => return Ok(None),
            Some(_) => _ = missing.get_or_insert(path + "/NAME"),
        }
    }
    Ok(missing)
}

fn text(name: &Name) -> String {
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

async fn find(namespace: &SqlNamespace, path: &[Name]) -> Result<Option<Attributes>> {
    let mut at = namespace.attributes(FileId::ROOT).await?;
    for name in path {
        at = match namespace.lookup(&Identity::root(), at.file, name).await {
            Ok(found) => found.entry,
            Err(NamespaceError::NotFound | NamespaceError::NotDirectory) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Some(at))
}

/// Whether users can write to a directory, or to one in it.
async fn has_place(namespace: &SqlNamespace, dir: &Attributes) -> Result<bool> {
    if !dir.kind.is_directory() || is_for_users(dir) {
        return Ok(true);
    }
    let page = namespace.list(&Identity::root(), dir.file, Cookie::START, ENTRIES_MAX).await?;
    let mut entries = page.entries.iter().map(|entry| &entry.attributes);
    Ok(!page.is_last || entries.any(|entry| entry.kind.is_directory() && is_for_users(entry)))
}

/// Whether anybody but root may create entries in a directory. An ACL is taken for one that lets somebody.
fn is_for_users(dir: &Attributes) -> bool {
    let may = |class: u32| (dir.mode >> class) & WRITE_AND_SEARCH == WRITE_AND_SEARCH;
    dir.has_acl || may(0) || (dir.gid != 0 && may(3)) || (dir.uid != 0 && may(6))
}

#[cfg(test)]
mod tests {
    use types::{Epoch, FileKind, Timestamp};

    use super::*;

    fn directory(uid: u32, gid: u32, mode: u32) -> Attributes {
        let now = Timestamp::default();
        Attributes {
            file: FileId::ROOT,
            kind: FileKind::Directory,
            mode,
            uid,
            gid,
            nlink: 2,
            size: 0,
            space_used: 0,
            atime: now,
            mtime: now,
            ctime: now,
            birth: now,
            change: 1,
            epoch: Epoch(1),
            has_acl: false,
            io: types::IoMode::Auto,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_banner_waits_for_a_database_that_hangs_for_two_seconds_at_most() {
        let path = || Ok(Some("/NAME".to_owned()));
        assert_eq!(found_in_time(async { path() }).await, path().unwrap());
        assert_eq!(found_in_time(async { Err(NamespaceError::NotFound.into()) }).await, None);
        let began = tokio::time::Instant::now();
        let hanging = async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            path()
        };
        assert_eq!(found_in_time(hanging).await, None);
        assert_eq!(began.elapsed().as_secs(), 2);
    }

    #[test]
    fn a_directory_is_for_users_if_anybody_but_root_may_write_and_search_it() {
        for (uid, gid, mode) in [(1, 0, 0o700), (0, 1, 0o770), (0, 0, 0o757), (0, 0, 0o1777), (1, 1, 0o2775)]
        {
            assert!(is_for_users(&directory(uid, gid, mode)), "{uid} {gid} {mode:o}");
        }
        for (uid, gid, mode) in [(0, 0, 0o755), (0, 0, 0o770), (1, 0, 0o500), (0, 1, 0o720), (0, 0, 0o752)] {
            assert!(!is_for_users(&directory(uid, gid, mode)), "{uid} {gid} {mode:o}");
        }
        assert!(is_for_users(&Attributes { has_acl: true, ..directory(0, 0, 0o755) }));
    }
}
