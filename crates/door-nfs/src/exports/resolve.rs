//! From the configuration's paths to directories of the namespace.

use api::{Namespace, NamespaceError};
use thiserror::Error;
use types::{FileId, FileKind, Identity, Name};

use super::found::{Exported, FoundExports};
use super::rules::{Export, ExportRules, Hosts};

/// An error in the configuration of exports.
#[derive(Debug, Error)]
pub enum ExportError {
    #[error("export {0} does not exist")]
    NotFound(String),
    #[error("export {0} is no directory")]
    NotDirectory(String),
    #[error("export {0} is given twice for the same hosts")]
    Duplicate(String),
    #[error("cannot look up export {path}")]
    Namespace { path: String, source: NamespaceError },
}

/// All entries of one path.
#[derive(Debug)]
pub(super) struct Configured {
    pub path: Vec<Name>,
    pub entries: Vec<(Hosts, ExportRules)>,
}

impl Configured {
    /// The entries of each path together, in the order of the configuration. Links are not followed, and a directory has
    /// one name: no two paths lead to the same.
    pub fn gather(exports: &[Export]) -> Result<Vec<Configured>, ExportError> {
        let mut gathered: Vec<Configured> = Vec::new();
        for export in exports {
            let at = gathered.iter().position(|known| known.path == export.path).unwrap_or_else(|| {
                gathered.push(Configured { path: export.path.clone(), entries: Vec::new() });
                gathered.len() - 1
            });
            let entries = &mut gathered[at].entries;
            for hosts in &export.hosts {
                if entries.iter().any(|(known, _)| known.are_same(hosts)) {
                    return Err(ExportError::Duplicate(shown(&export.path)));
                }
                entries.push((*hosts, export.rules));
            }
        }
        Ok(gathered)
    }
}

impl FoundExports {
    /// Looks up the configured paths, and returns an error for each that is not found. A directory of `before` that
    /// still exists is kept, wherever it was moved.
    pub(super) async fn look_up(
        namespace: &dyn Namespace,
        configured: &[Configured],
        before: &FoundExports,
    ) -> (FoundExports, Vec<ExportError>) {
        let (mut found, mut errors) = (FoundExports::default(), Vec::new());
        for Configured { path, entries } in configured {
            if let Some(known) = before.directories.iter().find(|known| known.is_at(path))
                && is_there(namespace, known.root).await
            {
                found.directories.push(Exported { entries: entries.clone(), ..known.clone() });
                continue;
            }
            match find(namespace, path).await {
                Ok((way, root)) => {
                    found.directories.push(Exported { root, way, entries: entries.clone() });
                }
                Err(error) => {
                    found.missing.push(entries.clone());
                    errors.push(error);
                }
            }
        }
        (found, errors)
    }
}

impl Exported {
    fn is_at(&self, path: &[Name]) -> bool {
        self.way.iter().map(|(_, name)| name).eq(path)
    }
}

/// If the namespace does not answer, the directory counts as existing.
async fn is_there(namespace: &dyn Namespace, dir: FileId) -> bool {
    match namespace.attributes(dir).await {
        Ok(attributes) => attributes.nlink > 0,
        Err(NamespaceError::Stale(_) | NamespaceError::NotFound) => false,
        Err(_) => true,
    }
}

/// Symbolic links are not followed: users could change their targets.
async fn find(
    namespace: &dyn Namespace,
    path: &[Name],
) -> Result<(Vec<(FileId, Name)>, FileId), ExportError> {
    let mut way = Vec::with_capacity(path.len());
    let mut at = FileId::ROOT;
    for name in path {
        let found = namespace.lookup(&Identity::root(), at, name).await;
        let found = found.map(|found| found.entry).map_err(|error| match error {
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

    use api::{CreateKind, CreateMode, CreateSpec, ExpectedFile, SetAttributes};
    use namespace::{Config, Database, SqlNamespace, Sync};
    use types::{Clock, Timestamp};

    use super::*;
    use crate::exports::{ExportTable, Squash};
    use crate::security::Flavors;

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
        let (anonymous, flavors) = ((1, 1), Flavors::SYS);
        let rules = ExportRules { is_read_only: true, squash: Squash::None, anonymous, flavors };
        let hosts = hosts.iter().map(|text| Hosts::Network(text.parse().unwrap())).collect();
        Export { path: path(text), hosts, rules }
    }

    struct Scene {
        namespace: SqlNamespace,
        _dir: tempfile::TempDir,
    }

    impl Scene {
        fn new() -> Scene {
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
            Scene { namespace: SqlNamespace::open(config).unwrap(), _dir: dir }
        }

        async fn make(&self, dir: FileId, text: &str, kind: CreateKind) -> FileId {
            let (mode, set) = (CreateMode::Guarded, SetAttributes::default());
            let spec = CreateSpec { kind, mode, permissions: 0o700, umask: None, set, location: None };
            let made = self.namespace.create(&Identity::root(), dir, &path(text)[0], &spec).await;
            made.unwrap().attributes.file
        }

        async fn table(&self, exports: &[Export]) -> Result<ExportTable, String> {
            ExportTable::new(&self.namespace, exports).await.map_err(|error| error.to_string())
        }
    }

    #[tokio::test]
    async fn a_path_that_is_no_directory_and_a_repeated_entry_are_told_in_a_line() {
        let scene = Scene::new();
        let a = scene.make(FileId::ROOT, "a", CreateKind::Directory).await;
        scene.make(a, "file", CreateKind::Regular).await;
        let table = scene.table(&[export("/a", &["10.0.0.1"]), export("/", &["10.0.0.1"])]).await.unwrap();
        let found = table.found();
        assert_eq!(found.directories[0].way, [(FileId::ROOT, path("a").remove(0))]);
        assert_eq!((found.directories[0].root, found.directories[1].root), (a, FileId::ROOT));

        let refusal = async |exports: &[Export]| scene.table(exports).await.err().unwrap();
        assert_eq!(refusal(&[export("/a/file", &["10.0.0.1"])]).await, "export /a/file is no directory");
        assert_eq!(refusal(&[export("/a/file/x", &["10.0.0.1"])]).await, "export /a/file/x is no directory");
        let twice = [export("/a", &["10.0.0.0/8"]), export("/a", &["192.0.2.1", "10.1.0.0/8"])];
        assert_eq!(refusal(&twice).await, "export /a is given twice for the same hosts");
    }

    #[tokio::test]
    async fn an_export_that_is_not_there_is_found_when_it_comes_and_again_when_it_was_made_anew() {
        let (scene, root) = (Scene::new(), Identity::root());
        let peer = "10.0.0.1".parse().unwrap();
        let table = scene.table(&[export("/a/b", &["10.0.0.1"])]).await.unwrap();
        let first = table.version();
        let view = table.view(peer).expect("the host is served");
        assert_eq!(view.names(FileId::ROOT).count(), 0);
        table.look_again(&scene.namespace).await;
        assert_eq!(table.version(), first, "nothing came");

        let a = scene.make(FileId::ROOT, "a", CreateKind::Directory).await;
        let b = scene.make(a, "b", CreateKind::Directory).await;
        table.look_again(&scene.namespace).await;
        assert_ne!(table.version(), first);
        assert_eq!(table.view(peer).unwrap().child(a, &path("b")[0]), Some(b));

        scene.namespace.unlink(&root, a, &path("b")[0], ExpectedFile::Any).await.unwrap();
        table.look_again(&scene.namespace).await;
        assert_eq!(table.view(peer).unwrap().names(FileId::ROOT).count(), 0);
        let anew = scene.make(a, "b", CreateKind::Directory).await;
        table.look_again(&scene.namespace).await;
        assert_eq!(table.view(peer).unwrap().child(a, &path("b")[0]), Some(anew));
    }

    #[tokio::test]
    async fn exports_are_replaced_as_a_whole_and_after_a_mistake_stay_as_they_were() {
        let scene = Scene::new();
        let a = scene.make(FileId::ROOT, "a", CreateKind::Directory).await;
        scene.make(FileId::ROOT, "b", CreateKind::Directory).await;
        scene.make(FileId::ROOT, "file", CreateKind::Regular).await;
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let table = scene.table(&[export("/a", &["10.0.0.1"])]).await.unwrap();
        let first = table.version();
        let mut wider = export("/a", &["10.0.0.1"]);
        wider.rules.is_read_only = false;
        table.replace(&scene.namespace, &[wider, export("/b", &["10.0.0.2"])]).await.unwrap();
        assert_ne!(table.version(), first);
        assert!(table.view(other).is_some());
        let view = table.view(one).unwrap();
        let place = view.of_directory(a).unwrap();
        assert!(!view.rules(place).is_read_only, "the rules of a directory that was there before");

        let wrong = table.replace(&scene.namespace, &[export("/file", &["10.0.0.1"])]).await;
        assert!(matches!(wrong, Err(ExportError::NotDirectory(_))));
        table.look_again(&scene.namespace).await;
        assert!(table.view(one).is_some() && table.view(other).is_some());

        table.replace(&scene.namespace, &[]).await.unwrap();
        assert!(table.view(one).is_none());
    }
}
