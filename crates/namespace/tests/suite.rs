//! The suite of the seam, on both engines.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use forebay_namespace::{Config, Database, Server, SqlNamespace, Sync};
use testkit::namespace_suite::{HandClock, World};
use testkit::postgres::Cluster;

fn open(database: Database, keep: Box<dyn Any + Send>, sync: Sync, cache_entries: usize) -> World {
    let clock = Arc::new(HandClock::new(1_000_000));
    let config = Config {
        database,
        clock: clock.clone(),
        root_owner: (0, 0),
        sync,
        cache_entries,
        queue_len_max: 64,
        group_len_max: 16,
    };
    let namespace = Arc::new(SqlNamespace::open(config).unwrap());
    World {
        names: namespace.clone(),
        locations: namespace.clone(),
        records: namespace.clone(),
        uploads: namespace.clone(),
        properties: namespace,
        clock,
        keep,
    }
}

fn sqlite(sync: Sync, cache_entries: usize) -> World {
    let dir = tempfile::tempdir().unwrap();
    open(Database::Sqlite(dir.path().to_owned()), Box::new(dir), sync, cache_entries)
}

/// Where there is no PostgreSQL, and none is required, SQLite once more.
fn postgres(sync: Sync, cache_entries: usize) -> World {
    let Some(cluster) = Cluster::shared() else { return sqlite(sync, cache_entries) };
    let url = cluster.create_database().unwrap();
    let server = Server { url, instance: [7; 16], may_be_new: true };
    open(Database::Postgres(server), Box::new(()), sync, cache_entries)
}

mod always {
    fn make() -> testkit::namespace_suite::World {
        super::sqlite(super::Sync::Always, 10_000)
    }

    testkit::namespace_suite!(make);
}

/// A cache too small to hold anything for long: nearly every read is cold.
mod cold {
    fn make() -> testkit::namespace_suite::World {
        super::sqlite(super::Sync::Interval(super::Duration::from_millis(50)), 16)
    }

    testkit::namespace_suite!(make);
}

mod postgres_always {
    fn make() -> testkit::namespace_suite::World {
        super::postgres(super::Sync::Always, 10_000)
    }

    testkit::namespace_suite!(make);
}

mod postgres_cold {
    fn make() -> testkit::namespace_suite::World {
        super::postgres(super::Sync::Interval(super::Duration::from_millis(50)), 16)
    }

    testkit::namespace_suite!(make);
}
