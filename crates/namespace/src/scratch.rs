//! Namespaces in scratch directories, for the tests of this crate.

use std::sync::Arc;

use api::{CreateKind, CreateMode, CreateSpec, NamespaceError, SetAttributes};
use tempfile::TempDir;
use testkit::namespace_suite::HandClock;
use types::Name;

use crate::open::{Config, Database, Sync};
use crate::service::SqlNamespace;

pub fn config(dir: &TempDir) -> Config {
    Config {
        database: Database::Sqlite(dir.path().to_owned()),
        clock: Arc::new(HandClock::new(1_000_000)),
        root_owner: (0, 0),
        sync: Sync::Interval(std::time::Duration::from_secs(60)),
        cache_entries: 1000,
        queue_len_max: 8,
        group_len_max: 4,
    }
}

pub fn open(dir: &TempDir) -> Arc<SqlNamespace> {
    Arc::new(SqlNamespace::open(config(dir)).unwrap())
}

pub fn regular() -> CreateSpec {
    CreateSpec {
        kind: CreateKind::Regular,
        mode: CreateMode::Guarded,
        permissions: 0o644,
        set: SetAttributes::default(),
        location: None,
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Keeps the committer busy until the sender is used or dropped.
pub fn occupy(namespace: &Arc<SqlNamespace>) -> (Release, Occupied) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    let shared = Arc::clone(&namespace.shared);
    let occupied = tokio::spawn(async move {
        shared
            .submit(move |_| {
                begin.send(()).unwrap();
                let _ = released.recv();
                Ok(())
            })
            .await
    });
    (Release { release, begun }, occupied)
}

pub type Occupied = tokio::task::JoinHandle<Result<(), NamespaceError>>;

pub struct Release {
    release: std::sync::mpsc::Sender<()>,
    begun: std::sync::mpsc::Receiver<()>,
}

impl Release {
    /// Until the committer is at it.
    pub fn wait_begun(&self) {
        self.begun.recv().unwrap();
    }

    pub fn release(self) {
        self.release.send(()).unwrap();
    }
}
