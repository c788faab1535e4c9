//! The suite of the seam, on SQLite.

#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;
use std::time::Duration;

use forebay_namespace::{Config, SqliteNamespace, Sync};
use testkit::namespace_suite::{HandClock, World};

fn open(sync: Sync, cache_entries: usize) -> World {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(HandClock::new(1_000_000));
    let config = Config {
        dir: dir.path().to_owned(),
        clock: clock.clone(),
        root_owner: (0, 0),
        sync,
        cache_entries,
        queue_len_max: 64,
        group_len_max: 16,
    };
    let namespace = Arc::new(SqliteNamespace::open(config).unwrap());
    World {
        names: namespace.clone(),
        locations: namespace.clone(),
        records: namespace.clone(),
        uploads: namespace.clone(),
        properties: namespace,
        clock,
        keep: Box::new(dir),
    }
}

mod always {
    fn make() -> testkit::namespace_suite::World {
        super::open(super::Sync::Always, 10_000)
    }

    testkit::namespace_suite!(make);
}

/// A cache too small to hold anything for long: nearly every read is cold.
mod cold {
    fn make() -> testkit::namespace_suite::World {
        super::open(super::Sync::Interval(super::Duration::from_millis(50)), 16)
    }

    testkit::namespace_suite!(make);
}
