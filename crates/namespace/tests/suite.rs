//! The suite of the seam, on both engines.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use api::Consistency;
use forebay_namespace::{Config, Database, Server, SqlNamespace, Sync};
use testkit::clock::ManualClock;
use testkit::namespace_suite::World;
use testkit::postgres::Cluster;

const INTERVAL: Sync = Sync::Interval(Duration::from_millis(50));
const NAMES: Sync = Sync::Names(Duration::from_millis(50));

fn open(
    database: Database,
    keep: Box<dyn Any + Send>,
    sync: Sync,
    cache_bytes: u64,
    consistency: Consistency,
) -> World {
    let clock = Arc::new(ManualClock::new(1_000_000));
    let config = Config {
        database,
        clock: clock.clone(),
        root_owner: (0, 0),
        sync,
        cache_bytes,
        queue_len_max: 64,
        group_len_max: 16,
    };
    let namespace = Arc::new(SqlNamespace::open(config).unwrap());
    namespace.set_default_consistency(consistency);
    World {
        names: namespace.clone(),
        acls: namespace.clone(),
        locations: namespace.clone(),
        records: namespace.clone(),
        uploads: namespace.clone(),
        properties: namespace.clone(),
        xattrs: namespace,
        clock,
        keep,
    }
}

fn sqlite(sync: Sync, cache_bytes: u64, consistency: Consistency) -> World {
    let dir = tempfile::tempdir().unwrap();
    open(Database::Sqlite(dir.path().to_owned()), Box::new(dir), sync, cache_bytes, consistency)
}

/// Where there is no PostgreSQL, and none is required, SQLite once more.
fn postgres(sync: Sync, cache_bytes: u64, consistency: Consistency) -> World {
    let Some(cluster) = Cluster::shared() else { return sqlite(sync, cache_bytes, consistency) };
    let url = cluster.create_database().unwrap();
    let server = Server { url, instance: [7; 16], may_be_new: true };
    open(Database::Postgres(server), Box::new(()), sync, cache_bytes, consistency)
}

mod always {
    fn make() -> testkit::namespace_suite::World {
        super::sqlite(super::Sync::Always, 1 << 20, super::Consistency::Auto)
    }

    testkit::namespace_suite!(make);
}

/// A cache too small to hold anything for long: nearly every read is cold.
mod cold {
    fn make() -> testkit::namespace_suite::World {
        super::sqlite(super::INTERVAL, 4 << 10, super::Consistency::Auto)
    }

    testkit::namespace_suite!(make);
}

mod postgres_always {
    fn make() -> testkit::namespace_suite::World {
        super::postgres(super::Sync::Always, 1 << 20, super::Consistency::Auto)
    }

    testkit::namespace_suite!(make);
}

mod postgres_cold {
    fn make() -> testkit::namespace_suite::World {
        super::postgres(super::INTERVAL, 4 << 10, super::Consistency::Auto)
    }

    testkit::namespace_suite!(make);
}

/// Attributes reach the disk later than names.
mod names {
    fn make() -> testkit::namespace_suite::World {
        super::sqlite(super::NAMES, 1 << 20, super::Consistency::Auto)
    }

    testkit::namespace_suite!(make);
}

mod postgres_names {
    fn make() -> testkit::namespace_suite::World {
        super::postgres(super::NAMES, 1 << 20, super::Consistency::Auto)
    }

    testkit::namespace_suite!(make);
}

/// Directories whose rows follow later: by the seam nothing tells them from others.
mod soft {
    fn make() -> testkit::namespace_suite::World {
        super::sqlite(super::INTERVAL, 4 << 10, super::Consistency::Soft)
    }

    testkit::namespace_suite!(make);
}

mod postgres_soft {
    fn make() -> testkit::namespace_suite::World {
        super::postgres(super::INTERVAL, 4 << 10, super::Consistency::Soft)
    }

    testkit::namespace_suite!(make);
}
