//! Tells the pools now and then what their files are called and whose they are, so that a lost namespace can be built
//! anew from them (`forebay namespace rebuild`).
//!
//! Nobody waits for it: a pool knows what was when the last pass came by. New files are cheap to find, behind the
//! highest number of the pass before; a pass over all files finds what was renamed, changed or removed, and takes only a
//! small share of the time, so that it is not felt.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{Description, PoolList};
use namespace::{DescribedPage, SqlNamespace};
use serde::Serialize;
use tokio::sync::{Mutex, watch};
use types::{Clock, FileId};

use crate::cli::{InstanceArguments, OutputArguments, ProgressArguments};
use crate::config::Config;
use crate::control::{self, Request};
use crate::data_dir::DataDir;
use crate::fsck;
use crate::output::{self, counted};
use crate::progress::{Meter, Shown};
use crate::system::SystemRandom;

/// `forebay namespace describe`: now, through the running head, or directly if no head runs.
pub fn describe(
    place: &InstanceArguments,
    output: OutputArguments,
    progress: ProgressArguments,
) -> Result<ExitCode> {
    let config = place.config()?;
    let files = match control::ask_showing::<u64>(&config.data, Request::Describe, progress)? {
        Some(files) => files,
        None => describe_stopped(&config, progress)?,
    };
    output::print(output, &DescribeReport { files }, |report| {
        let files = counted(report.files, "file or directory is", "files and directories are");
        format!("the pools know what {files} called\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct DescribeReport {
    /// And directories.
    files: u64,
}

fn describe_stopped(config: &Config, progress: ProgressArguments) -> Result<u64> {
    let meter = Meter::new();
    let _shown = Shown::of(&meter, progress);
    meter.begin("opening namespace and pools");
    let data = DataDir::open_existing(&config.data, &SystemRandom)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let services = fsck::open(&data, config).await?;
        let (namespace, pools) = (Arc::clone(&services.namespace), Arc::clone(&services.pools));
        let told = Naming::new(namespace, pools, Arc::clone(&services.clock)).tell_all(&meter).await;
        services.close().await;
        Ok(told?.files)
    })
}

const PAGE: usize = 1024;
/// Every so many passes one looks at all files.
const ALL_EVERY: u32 = 24;
/// After each page it rests for so many times as long as the page took.
const REST: u32 = 9;

pub struct Naming {
    namespace: Arc<SqlNamespace>,
    pools: Arc<PoolList>,
    clock: Arc<dyn Clock>,
    /// Held for a pass: of two, the one with the older state could write last. Guards nothing else.
    pass: Mutex<()>,
}

/// Result of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    pub files: u64,
    /// Files behind it have not been looked at, or may get their names yet.
    through: FileId,
}

impl Naming {
    pub fn new(namespace: Arc<SqlNamespace>, pools: Arc<PoolList>, clock: Arc<dyn Clock>) -> Naming {
        Naming { namespace, pools, clock, pass: Mutex::default() }
    }

    /// A pass each `period` until stopped.
    pub async fn run(self: Arc<Naming>, period: Duration, mut stop: watch::Receiver<bool>) {
        let mut after = FileId(0);
        for number in 0_u32.. {
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                _ = stop.changed() => {}
            }
            if *stop.borrow() {
                return;
            }
            if number.is_multiple_of(ALL_EVERY) {
                after = FileId(0);
            }
            match self.tell(after, REST, &stop, &Meter::new()).await {
                Ok(pass) => after = pass.through,
                Err(error) => {
                    tracing::warn!(%error, "cannot copy file names to the pools; a rebuild would lack recent names")
                }
            }
        }
    }

    /// All files, without rest.
    pub async fn tell_all(&self, meter: &Meter) -> Result<Pass> {
        let (_keep, never) = watch::channel(false);
        meter.begin("waiting for the pass that runs");
        self.tell(FileId(0), 0, &never, meter).await
    }

    async fn tell(
        &self,
        mut after: FileId,
        rest: u32,
        stop: &watch::Receiver<bool>,
        meter: &Meter,
    ) -> Result<Pass> {
        let _pass = self.pass.lock().await;
        meter.begin_items("describing files", Some(self.namespace.totals().files));
        let namespace = Arc::clone(&self.namespace);
        let mut describer = tokio::task::spawn_blocking(move || namespace.describer()).await??;
        let (mut files, mut unnamed) = (0, None);
        loop {
            let begun = self.clock.monotonic();
            let (page, returned) = tokio::task::spawn_blocking(move || {
                let page = describer.page(after, PAGE);
                (page, describer)
            })
            .await?;
            describer = returned;
            let page = page?;
            files += page.files.len() as u64;
            unnamed = unnamed.or(page.first_unnamed);
            let last = page.files.last().map_or(after, |description| description.file);
            after = if page.is_last { last.max(after) } else { page.through };
            let is_last = page.is_last;
            self.tell_page(page).await?;
            meter.set(files);
            if is_last || *stop.borrow() {
                // Numbers are given in order, names not: an upload gets its name when it is complete.
                let through = unnamed.map_or(after, |file: FileId| FileId(file.0 - 1).min(after));
                return Ok(Pass { files, through });
            }
            tokio::time::sleep(rest * self.clock.monotonic().saturating_sub(begun)).await;
        }
    }

    async fn tell_page(&self, page: DescribedPage) -> Result<()> {
        // One that is away learns it from the next pass over all files.
        for pool in self.pools.enabled().into_iter().filter(|pool| !pool.status().is_away) {
            // Directories and files without data are needed in all pools.
            let concerns = |told: &&Description| {
                told.replicas.is_empty() || told.replicas.iter().any(|replica| replica.pool == pool.id())
            };
            let of_pool: Vec<Description> = page.files.iter().filter(concerns).cloned().collect();
            pool.describe(page.after, page.through, of_pool).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use api::{Pool, Publish, Replace, Unnamed, Uploads};
    use testkit::memory_pool::MemoryPool;
    use types::{Identity, Name, PoolId};

    use super::*;
    use crate::system::SystemClock;

    #[tokio::test]
    async fn a_file_that_gets_its_name_late_is_told_of_by_the_next_pass() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let database = ::namespace::Database::Sqlite(dir.path().to_owned());
        let config = Config::default();
        let namespace = crate::services::open_database(&config, database, Arc::clone(&clock), Vec::new());
        let namespace = Arc::new(namespace.unwrap());
        let root = Identity::root();
        let new = Unnamed { permissions: 0o644, location: PoolId(0) };
        let mut files = Vec::new();
        for _ in 0..3 {
            let made = namespace.create_unnamed(&root, FileId::ROOT, &new).await.unwrap();
            files.push(made.file);
        }
        let publish = async |at: usize, name: &str| {
            let how = Publish {
                size: 4,
                space_used: 4,
                mtime: None,
                checksums: Vec::new(),
                replace: Replace::Never,
            };
            let name = Name::new(name.as_bytes()).unwrap();
            namespace.publish(&root, files[at], FileId::ROOT, &name, &how).await.unwrap();
        };
        publish(0, "early").await;
        publish(2, "also early").await;
        let pool = Arc::new(MemoryPool::new(PoolId(0)));
        let listed = Arc::new(PoolList::of([pool.clone() as Arc<dyn Pool>]).unwrap());
        let naming = Naming::new(Arc::clone(&namespace), Arc::clone(&listed), clock);
        let (_keep, stop) = watch::channel(false);
        let first = naming.tell(FileId(0), 0, &stop, &Meter::new()).await.unwrap();
        let known = || pool.descriptions().iter().map(|description| description.file).collect::<Vec<_>>();
        assert_eq!(known(), [FileId::ROOT, files[0], files[2]]);
        publish(1, "late").await;
        let second = naming.tell(first.through, 0, &stop, &Meter::new()).await.unwrap();
        assert_eq!(known(), [FileId::ROOT, files[0], files[1], files[2]]);
        assert_eq!((first.files, second.files, second.through), (3, 2, files[2]));
        // The list of pools is that of the moment.
        let added = Arc::new(MemoryPool::new(PoolId(1)));
        listed.add(added.clone()).unwrap();
        naming.tell(FileId(0), 0, &stop, &Meter::new()).await.unwrap();
        assert_eq!(added.descriptions().len(), 1, "the root; the files have data elsewhere");
    }
}
