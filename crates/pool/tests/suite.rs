//! The suite of the pool seam on a pool on a local file system: with room for many open files and for few, with each mode of
//! I/O where the file system has it, and with and without a write journal.

#![allow(clippy::unwrap_used)]

mod pools;

use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;

use api::Pool;
use forebay_pool::{IoPolicy, JournalPlace, LocalPool};
use rustix::fs::statfs;
use rustix::io::{ReadWriteFlags, preadv2};
use testkit::pool_suite::PoolUnderTest;

/// `IO`: a place in [`IoPolicy::ALL`].
struct Local<const OPEN_FILES_MAX: usize, const IO: usize, const JOURNAL: bool> {
    dir: tempfile::TempDir,
    pool: Arc<LocalPool>,
}

fn open<const OPEN_FILES_MAX: usize, const IO: usize, const JOURNAL: bool>(
    dir: &tempfile::TempDir,
) -> Arc<LocalPool> {
    let mut config = pools::config(dir.path());
    config.io = IoPolicy::ALL[IO];
    config.journal = if JOURNAL { JournalPlace::Pool } else { JournalPlace::Off };
    config.open_files_max = OPEN_FILES_MAX;
    LocalPool::open(config).unwrap()
}

impl<const OPEN_FILES_MAX: usize, const IO: usize, const JOURNAL: bool> PoolUnderTest
    for Local<OPEN_FILES_MAX, IO, JOURNAL>
{
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pool = open::<OPEN_FILES_MAX, IO, JOURNAL>(&dir);
        Local { dir, pool }
    }

    /// A door that sends from a file reads through the page cache, which another mode is to avoid.
    fn lends_files(&self) -> bool {
        match IoPolicy::ALL[IO] {
            IoPolicy::Uncached => !has_uncached(self.dir.path()),
            IoPolicy::Direct => !has_direct(self.dir.path()),
            _ => true,
        }
    }

    fn pool(&self) -> Arc<dyn Pool> {
        Arc::clone(&self.pool) as Arc<dyn Pool>
    }

    fn restart(&mut self) {
        self.pool.close();
        self.pool = open::<OPEN_FILES_MAX, IO, JOURNAL>(&self.dir);
    }
}

/// `RWF_DONTCACHE`, Linux 6.14.
fn has_uncached(dir: &Path) -> bool {
    let file = tempfile::tempfile_in(dir).unwrap();
    let flags = ReadWriteFlags::from_bits_retain(0x80);
    preadv2(&file, &mut [IoSliceMut::new(&mut [0])], 0, flags).is_ok()
}

/// tmpfs takes O_DIRECT since Linux 6.6, and uses the page cache all the same.
fn has_direct(dir: &Path) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    statfs(dir).unwrap().f_type != TMPFS
}

const AUTO: usize = IoPolicy::Auto as usize;
const UNCACHED: usize = IoPolicy::Uncached as usize;
const DIRECT: usize = IoPolicy::Direct as usize;

#[test]
fn the_places_are_those_of_the_policies() {
    for policy in [IoPolicy::Auto, IoPolicy::Uncached, IoPolicy::Direct] {
        assert_eq!(IoPolicy::ALL[policy as usize], policy);
    }
}

mod roomy {
    testkit::pool_suite!(super::Local<1024, { super::AUTO }, false>);
}

mod cramped {
    testkit::pool_suite!(super::Local<3, { super::AUTO }, false>);
}

mod uncached {
    testkit::pool_suite!(super::Local<1024, { super::UNCACHED }, false>);
}

mod direct {
    testkit::pool_suite!(super::Local<1024, { super::DIRECT }, false>);
}

mod direct_and_cramped {
    testkit::pool_suite!(super::Local<3, { super::DIRECT }, false>);
}

mod journal {
    testkit::pool_suite!(super::Local<1024, { super::AUTO }, true>);
}

mod journal_and_cramped {
    testkit::pool_suite!(super::Local<3, { super::AUTO }, true>);
}

mod journal_and_direct {
    testkit::pool_suite!(super::Local<1024, { super::DIRECT }, true>);
}
