//! The suite of the pool seam on a pool on a local file system, with room for many open files and with room for few.

#![allow(clippy::unwrap_used)]

mod pools;

use std::sync::Arc;

use api::Pool;
use forebay_pool::LocalPool;
use testkit::pool_suite::PoolUnderTest;

struct Local<const OPEN_FILES_MAX: usize> {
    dir: tempfile::TempDir,
    pool: Arc<LocalPool>,
}

fn open<const OPEN_FILES_MAX: usize>(dir: &tempfile::TempDir) -> Arc<LocalPool> {
    let mut config = pools::config(dir.path());
    config.open_files_max = OPEN_FILES_MAX;
    LocalPool::open(config).unwrap()
}

impl<const OPEN_FILES_MAX: usize> PoolUnderTest for Local<OPEN_FILES_MAX> {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = open::<OPEN_FILES_MAX>(&dir);
        Local { dir, pool }
    }

    fn pool(&self) -> Arc<dyn Pool> {
        Arc::clone(&self.pool) as Arc<dyn Pool>
    }

    fn restart(&mut self) {
        self.pool.close();
        self.pool = open::<OPEN_FILES_MAX>(&self.dir);
    }
}

mod roomy {
    testkit::pool_suite!(super::Local<1024>);
}

mod cramped {
    testkit::pool_suite!(super::Local<3>);
}
