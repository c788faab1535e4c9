//! `forebay fsck`: the namespace against itself and against the pools, on a running instance or a stopped one; and
//! repairs, on a stopped one.

mod answers;
mod compare;
mod elsewhere;
mod findings;
mod list;
mod log;
mod paths;
mod repair;

pub use compare::CheckedPools;
pub use findings::escaped;
pub use log::Log;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use namespace::{SqlNamespace, Stray};
use pool::FoundReplica;
use types::PoolId;

use crate::cli::{FsckArguments, ProgressArguments};
use crate::config::Config;
use crate::control::{self, Items, Request};
use crate::data_dir::DataDir;
use crate::keys;
use crate::lengths::Settled;
use crate::output;
use crate::progress::{Meter, Shown};
use crate::questions::FsckQuestion;
use crate::report::FsckReport;
use crate::services::Services;
use crate::system::{SystemClock, SystemRandom};

use findings::{Collector, Finding, Findings};
use list::List;

pub fn run(arguments: &FsckArguments) -> Result<ExitCode> {
    let mut config = arguments.place.config()?;
    if let Some(url) = &arguments.namespace {
        config.namespace.database.clone_from(url);
    }
    // Before a check that takes minutes.
    let mut list = arguments.list.as_deref().map(|path| List::create(path, arguments.output)).transpose()?;
    let mut report = if arguments.repair {
        repair::run(arguments, &config, list.as_mut())?
    } else {
        match check_running(&config, arguments.progress, list.as_mut())? {
            Some(report) => report,
            None => check_stopped(&config, arguments.progress, list.as_mut())?,
        }
    };
    report.list = list.map(List::finish).transpose()?;
    output::print(arguments.output, &report, FsckReport::text)?;
    Ok(if report.problems_found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// `None`: no server runs.
fn check_running(
    config: &Config,
    progress: ProgressArguments,
    list: Option<&mut List>,
) -> Result<Option<FsckReport>> {
    let request = Request::Fsck(FsckQuestion { list: list.is_some() });
    match list {
        None => control::ask_showing(&config.data, request, progress),
        Some(list) => control::ask_listing(&config.data, request, progress, &mut |item| list.add(item)),
    }
}

fn check_stopped(
    config: &Config,
    progress: ProgressArguments,
    list: Option<&mut List>,
) -> Result<FsckReport> {
    let data = DataDir::open_existing(&config.data, &SystemRandom)?;
    // Damaged, each of them would refuse the next start.
    data.drained_pools().load()?;
    keys::check(&data)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(check_opened(&data, config, progress, list))
}

async fn check_opened(
    data: &DataDir,
    config: &Config,
    progress: ProgressArguments,
    list: Option<&mut List>,
) -> Result<FsckReport> {
    let meter = Meter::new();
    let _shown = Shown::of(&meter, progress);
    meter.begin("opening namespace and pools");
    let services = open(data, config).await?;
    let report = match list {
        None => check_services(&services, &meter, None).await,
        Some(list) => {
            let (items, listed) = control::items();
            let (report, added) =
                tokio::join!(check_services(&services, &meter, Some(items)), list.add_all(listed));
            added.and(report)
        }
    };
    services.close().await;
    report
}

async fn check_services(services: &Services, meter: &Arc<Meter>, list: Option<Items>) -> Result<FsckReport> {
    let mut collector = Collector::new(Arc::clone(&services.namespace) as _, list);
    let Settled { finished, raised, lost, .. } = services.settled;
    if finished > 0 {
        let files = output::counted(finished as u64, "file was", "files were");
        let remark = format!("{files} cut to their replicas, as a start does after a kill or a power cut");
        collector.take(Finding::Remark(remark, None)).await?;
    }
    if raised > 0 {
        let files = output::counted(raised as u64, "file was", "files were");
        let remark =
            format!("{files} given the length of stable writes that only the pools had, as a start does");
        collector.take(Finding::Remark(remark, None)).await?;
    }
    if lost > 0 {
        let files = output::counted(lost as u64, "file lacks its end", "files lack their ends");
        let remark = format!("{files} in a pool that was put back from a copy");
        collector.take(Finding::Remark(remark, None)).await?;
    }
    collector.check(&services.namespace, &services.checked_pools(), meter).await
}

pub async fn open(data: &DataDir, config: &Config) -> Result<Services> {
    // With this mode no pool measures its disk by itself: a check writes nothing.
    let mut config = config.clone();
    config.pools.io = pool::IoPolicy::Buffered;
    crate::services::open_services(data, &config, Arc::new(SystemClock::new())).await
}

/// Describes a replica found in a pool, for a repair or a rebuild.
pub fn stray(pool: PoolId, found: &FoundReplica) -> Stray {
    Stray {
        file: found.facts.file,
        pool,
        size: found.facts.size,
        space_used: found.facts.space_used,
        epoch: found.epoch,
        modified: Some(found.modified),
        birth: found.facts.birth.time(),
    }
}

/// Compares; changes nothing. On a running instance a file that changes meanwhile is looked at twice. `list` gets all
/// that is found.
pub async fn check(
    namespace: &Arc<SqlNamespace>,
    pools: &CheckedPools,
    meter: &Arc<Meter>,
    list: Option<Items>,
) -> Result<FsckReport> {
    Collector::new(Arc::clone(namespace) as _, list).check(namespace, pools, meter).await
}
