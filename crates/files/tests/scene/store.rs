//! A namespace in each engine, of a test's own.

use std::any::Any;
use std::sync::Arc;

use namespace::{Config, Database, Server, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::postgres::Cluster;

use super::LONG;

/// A value that must live as long, such as a scratch directory.
pub type Keep = Box<dyn Any + Send + std::marker::Sync>;
pub type Store = (Keep, Arc<SqlNamespace>);

/// In a directory that goes with the test.
pub fn sqlite(clock: &Arc<ManualClock>) -> Store {
    let directory = tempfile::tempdir().unwrap();
    let namespace = open(Database::Sqlite(directory.path().to_owned()), clock);
    (Box::new(directory), namespace)
}

/// In a database of its own. Where there is no PostgreSQL, and none is required, SQLite once more.
pub fn postgres(clock: &Arc<ManualClock>) -> Store {
    let Some(cluster) = Cluster::shared() else { return sqlite(clock) };
    let url = cluster.create_database().unwrap();
    let server = Server { url, instance: [7; 16], may_be_new: true };
    (Box::new(()), open(Database::Postgres(server), clock))
}

fn open(database: Database, clock: &Arc<ManualClock>) -> Arc<SqlNamespace> {
    let config = Config {
        database,
        clock: clock.clone(),
        root_owner: (0, 0),
        sync: Sync::Interval(LONG),
        cache_bytes: 1 << 20,
        queue_len_max: 100,
        group_len_max: 100,
    };
    Arc::new(SqlNamespace::open(config).unwrap())
}
