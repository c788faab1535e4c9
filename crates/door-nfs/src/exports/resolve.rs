//! From the configuration's paths to directories of the namespace, at the start.

use api::{Namespace, NamespaceError};
use thiserror::Error;
use types::{FileId, FileKind, Identity, Name};

use super::{Export, Exported, Exports};

/// What is wrong with the configuration.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error(
        "export {0} does not exist: make the directory first, or take the export out of the configuration"
    )]
    NotFound(String),
    #[error("export {0} is no directory")]
    NotDirectory(String),
    #[error("export {0} is given twice for the same hosts")]
    Duplicate(String),
    #[error("cannot look up export {path}")]
    Namespace { path: String, source: NamespaceError },
}

impl Exports {
    pub async fn resolve(namespace: &dyn Namespace, configured: &[Export]) -> Result<Exports, ExportError> {
        let mut directories: Vec<Exported> = Vec::new();
        for export in configured {
            let (way, root) = find(namespace, &export.path).await?;
            let at = match directories.iter().position(|known| known.root == root) {
                Some(at) => at,
                None => {
                    directories.push(Exported { root, way, entries: Vec::new() });
                    directories.len() - 1
                }
            };
            let entries = &mut directories[at].entries;
            for hosts in &export.hosts {
                if entries.iter().any(|(known, _)| known.are_same(hosts)) {
                    return Err(ExportError::Duplicate(shown(&export.path)));
                }
                entries.push((*hosts, export.rules));
            }
        }
        Ok(Exports { directories })
    }
}

/// Symbolic links are not followed: what they lead to could be changed by users.
async fn find(
    namespace: &dyn Namespace,
    path: &[Name],
) -> Result<(Vec<(FileId, Name)>, FileId), ExportError> {
    let mut way = Vec::with_capacity(path.len());
    let mut at = FileId::ROOT;
    for name in path {
        let found = namespace.lookup(&Identity::root(), at, name).await;
        let found = found.map_err(|error| match error {
            NamespaceError::NotFound => ExportError::NotFound(shown(path)),
            source => ExportError::Namespace { path: shown(path), source },
        })?;
        if found.kind != FileKind::Directory {
            return Err(ExportError::NotDirectory(shown(path)));
        }
        way.push((at, name.clone()));
        at = found.file;
    }
    Ok((way, at))
}

fn shown(path: &[Name]) -> String {
    if path.is_empty() {
        return "/".to_owned();
    }
    path.iter().map(|name| format!("/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use api::{CreateKind, CreateMode, CreateSpec, SetAttributes};
    use namespace::{Config, Database, SqlNamespace, Sync};
    use types::{Clock, Timestamp};

    use super::*;
    use crate::exports::{ExportRules, Hosts, Squash};

    struct NoTime;

    impl Clock for NoTime {
        fn now(&self) -> Timestamp {
            Timestamp::from_unix(Duration::from_secs(1))
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    fn path(text: &str) -> Vec<Name> {
        text.split('/')
            .filter(|part| !part.is_empty())
            .map(|part| Name::new(part.as_bytes()).unwrap())
            .collect()
    }

    fn export(text: &str, hosts: &[&str]) -> Export {
        let rules = ExportRules { is_read_only: true, squash: Squash::None, anonymous: (1, 1) };
        let hosts = hosts.iter().map(|text| Hosts::Network(text.parse().unwrap())).collect();
        Export { path: path(text), hosts, rules }
    }

    #[tokio::test]
    async fn a_path_that_is_missing_or_no_directory_and_a_repeated_entry_are_told_in_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            database: Database::Sqlite(dir.path().to_owned()),
            clock: Arc::new(NoTime),
            root_owner: (0, 0),
            sync: Sync::Interval(Duration::from_secs(60)),
            cache_bytes: 1 << 20,
            queue_len_max: 10,
            group_len_max: 10,
        };
        let namespace = SqlNamespace::open(config).unwrap();
        let spec = |kind| CreateSpec {
            kind,
            mode: CreateMode::Guarded,
            permissions: 0o700,
            set: SetAttributes::default(),
            location: None,
        };
        let (root, name) = (Identity::root(), |text: &str| path(text).remove(0));
        let a =
            namespace.create(&root, FileId::ROOT, &name("a"), &spec(CreateKind::Directory)).await.unwrap();
        let a = a.attributes.file;
        namespace.create(&root, a, &name("file"), &spec(CreateKind::Regular)).await.unwrap();

        let resolve = async |exports: &[Export]| {
            Exports::resolve(&namespace, exports).await.map_err(|error| error.to_string())
        };
        let found = resolve(&[export("/a", &["10.0.0.1"]), export("/", &["10.0.0.1"])]).await.unwrap();
        assert_eq!(found.directories[0].way, [(FileId::ROOT, name("a"))]);
        assert_eq!((found.directories[0].root, found.directories[1].root), (a, FileId::ROOT));

        let missing = resolve(&[export("/a/none", &["10.0.0.1"])]).await.unwrap_err();
        assert!(missing.starts_with("export /a/none does not exist"), "{missing}");
        let file = resolve(&[export("/a/file", &["10.0.0.1"])]).await.unwrap_err();
        assert_eq!(file, "export /a/file is no directory");
        let below = resolve(&[export("/a/file/x", &["10.0.0.1"])]).await.unwrap_err();
        assert_eq!(below, "export /a/file/x is no directory");
        let twice = [export("/a", &["10.0.0.0/8"]), export("/a", &["192.0.2.1", "10.1.0.0/8"])];
        assert_eq!(resolve(&twice).await.unwrap_err(), "export /a is given twice for the same hosts");
    }
}
