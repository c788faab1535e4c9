//! Namespaces in scratch directories, for the tests of this crate.

use std::sync::Arc;

use api::{CreateKind, CreateMode, CreateSpec, Locations, NamespaceError, SetAttributes};
use tempfile::TempDir;
use testkit::clock::ManualClock;
use types::{FileId, Name, PoolId};

use crate::config::{Config, Database, Sync};
use crate::queue::Order;
use crate::service::SqlNamespace;
use crate::timeline::Noted;

pub fn config(dir: &TempDir) -> Config {
    Config {
        database: Database::Sqlite(dir.path().to_owned()),
        clock: Arc::new(ManualClock::new(1_000_000)),
        root_owner: (0, 0),
        sync: Sync::Interval(std::time::Duration::from_secs(60)),
        cache_bytes: 1 << 20,
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
        umask: None,
        set: SetAttributes::default(),
        location: None,
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub async fn pools(namespace: &SqlNamespace, file: FileId) -> Vec<PoolId> {
    namespace.locality(file).await.unwrap().pools().collect()
}

/// Keeps the committer busy until the sender is used or dropped.
pub fn occupy(namespace: &Arc<SqlNamespace>) -> (Release, Occupied) {
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    let shared = Arc::clone(&namespace.shared);
    let occupied = tokio::spawn(async move {
        // In the committer's thread, not here.
        shared
            .submit_for(Order::Behind, [], move |_| {
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

/// An engine with an empty database.
pub struct Engine {
    database: Database,
    _dir: TempDir,
}

impl Engine {
    /// SQLite, and PostgreSQL where there is one.
    pub fn all() -> Vec<Engine> {
        let dir = tempfile::tempdir().unwrap();
        let mut engines = vec![Engine { database: Database::Sqlite(dir.path().to_owned()), _dir: dir }];
        if let Some(cluster) = testkit::postgres::Cluster::shared() {
            let url = cluster.create_database().unwrap();
            let server = crate::config::Server { url, instance: [7; 16], may_be_new: true };
            let dir = tempfile::tempdir().unwrap();
            engines.push(Engine { database: Database::Postgres(server), _dir: dir });
        }
        engines
    }

    pub fn is_like(&self, other: &Engine) -> bool {
        matches!(self.database, Database::Sqlite(_)) == matches!(other.database, Database::Sqlite(_))
    }

    pub fn open(&self) -> Arc<SqlNamespace> {
        self.open_with(Arc::new(ManualClock::new(1_000_000)))
    }

    pub fn open_with(&self, clock: Arc<dyn types::Clock>) -> Arc<SqlNamespace> {
        self.open_after(clock, Vec::new())
    }

    pub fn open_after(&self, clock: Arc<dyn types::Clock>, noted: Vec<Noted>) -> Arc<SqlNamespace> {
        let config = Config { database: self.database.clone(), clock, ..config(&self._dir) };
        Arc::new(SqlNamespace::open_after(config, noted).unwrap())
    }

    pub fn open_noted(&self, noted: Vec<Noted>) -> Arc<SqlNamespace> {
        let config = Config { database: self.database.clone(), ..config(&self._dir) };
        Arc::new(SqlNamespace::open_after(config, noted).unwrap())
    }

    /// As a crash would leave it now. Of SQLite only.
    pub fn copied(&self) -> Engine {
        let dir = tempfile::tempdir().unwrap();
        for entry in std::fs::read_dir(self._dir.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
        Engine { database: Database::Sqlite(dir.path().to_owned()), _dir: dir }
    }

    /// Past everything that a closed namespace knows; statements are separated by semicolons.
    pub fn damage(&self, namespace: &SqlNamespace, sql: &str) {
        let mut session = namespace.reads.session(crate::session::Purpose::Change).unwrap();
        for statement in sql.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            session.run(statement).unwrap();
        }
    }
}
