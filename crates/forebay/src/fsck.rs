//! `forebay fsck`: the namespace against itself and against the pools, on a running instance or a stopped one; and
//! repairs, on a stopped one.

mod answers;
mod compare;
mod log;
mod repair;

pub use log::Log;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use namespace::{SqlNamespace, Stray};
use pool::{FoundReplica, LocalPool};
use types::PoolId;

use crate::cli::{FsckArguments, ProgressArguments};
use crate::config::Config;
use crate::control::{self, Request};
use crate::data_dir::DataDir;
use crate::keys;
use crate::lengths::Settled;
use crate::output;
use crate::progress::{Meter, Shown};
use crate::report::FsckReport;
use crate::services::Services;
use crate::system::{SystemClock, SystemRandom};

/// Problems told in full; the rest is counted.
const PROBLEMS_MAX: usize = 1000;

pub fn run(arguments: &FsckArguments) -> Result<ExitCode> {
    let mut config = arguments.place.config()?;
    if let Some(url) = &arguments.namespace {
        config.namespace.database.clone_from(url);
    }
    let report = if arguments.repair {
        repair::run(arguments, &config)?
    } else {
        match control::ask_showing::<FsckReport>(&config.data, Request::Fsck, arguments.progress)? {
            Some(report) => report,
            None => check_stopped(&config, arguments.progress)?,
        }
    };
    output::print(arguments.output, &report, FsckReport::text)?;
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_stopped(config: &Config, progress: ProgressArguments) -> Result<FsckReport> {
    let data = DataDir::open_existing(&config.data, &SystemRandom)?;
    // Damaged, each of them would refuse the next start.
    data.drained_pools().load()?;
    keys::check(&data)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(check_opened(&data, config, progress))
}

async fn check_opened(data: &DataDir, config: &Config, progress: ProgressArguments) -> Result<FsckReport> {
    let meter = Meter::new();
    let _shown = Shown::of(&meter, progress);
    meter.begin("opening namespace and pools");
    let services = open(data, config).await?;
    let report = check(&services.namespace, &services.local_pools, &meter).await;
    services.close().await;
    let mut report = report?;
    let Settled { finished, lost, .. } = services.settled;
    if finished > 0 {
        let remark = format!(
            "{finished} files were cut to their replicas, as a start does after a kill or a power cut"
        );
        note(&mut report.remarks, remark);
    }
    if lost > 0 {
        note(
            &mut report.remarks,
            format!("{lost} files lack their ends in a pool that was put back from a copy"),
        );
    }
    Ok(report)
}

pub async fn open(data: &DataDir, config: &Config) -> Result<Services> {
    crate::services::open_services(data, config, Arc::new(SystemClock::new())).await
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

/// Compares; changes nothing. On a running instance a file that changes meanwhile is looked at twice.
pub async fn check(
    namespace: &Arc<SqlNamespace>,
    pools: &[Arc<LocalPool>],
    meter: &Arc<Meter>,
) -> Result<FsckReport> {
    let found = compare::compare(namespace, pools, meter).await?;
    let mut report = FsckReport { files: found.files, replicas: found.replicas, ..FsckReport::default() };
    for problem in &found.of_namespace {
        note(&mut report.problems, problem.to_string());
    }
    for problem in &found.of_pools {
        note(&mut report.problems, problem.to_string());
    }
    for problem in found.unreadable {
        note(&mut report.problems, problem);
    }
    for remark in found.remarks {
        note(&mut report.remarks, remark);
    }
    Ok(report)
}

fn note(list: &mut Vec<String>, line: String) {
    match list.len() {
        0..PROBLEMS_MAX => list.push(line),
        PROBLEMS_MAX => list.push("and more".to_owned()),
        _ => {}
    }
}
