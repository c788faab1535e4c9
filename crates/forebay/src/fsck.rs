//! `forebay fsck`: the namespace against itself and against the pools, on a running instance or a stopped one.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::{Locations, Pool, ReplicaFacts};
use namespace::SqlNamespace;
use types::{FileId, PoolId};

use crate::cli::FsckArguments;
use crate::config::Config;
use crate::control::{self, Request};
use crate::data_dir::DataDir;
use crate::report::FsckReport;
use crate::system::{SystemClock, SystemRandom};

const PAGE: usize = 1024;
/// Problems told in full; the rest is counted.
const PROBLEMS_MAX: usize = 1000;

pub fn run(arguments: &FsckArguments) -> Result<ExitCode> {
    let config = arguments.place.config()?;
    let report = match control::ask::<FsckReport>(&config.data, Request::Fsck)? {
        Some(report) => report,
        None => check_stopped(&config)?,
    };
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text());
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check_stopped(config: &Config) -> Result<FsckReport> {
    let data = DataDir::open_existing(&config.data, &SystemRandom)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let services = crate::up::open_services(&data, config, Arc::new(SystemClock::new()))?;
        let report = check(&services.namespace, &services.pools).await;
        services.close().await;
        report
    })
}

/// Compares; changes nothing. On a running instance a file that changes meanwhile is looked at twice.
pub async fn check(namespace: &Arc<SqlNamespace>, pools: &[Arc<dyn Pool>]) -> Result<FsckReport> {
    let mut report = FsckReport::default();
    let checked = Arc::clone(namespace);
    let problems = tokio::task::spawn_blocking(move || checked.check()).await?;
    for problem in problems.context("cannot check the namespace")? {
        note(&mut report.problems, problem.to_string());
    }
    let replicas = collect_replicas(pools).await?;
    report.replicas = replicas.values().map(|of_pool| of_pool.len() as u64).sum();
    let mut known = HashMap::new();
    let mut after = FileId(0);
    loop {
        let files = namespace.files(after, PAGE).await?;
        let Some(last) = files.last() else { break };
        after = last.attributes.file;
        for entry in files {
            report.files += 1;
            let (file, size) = (entry.attributes.file, entry.attributes.size);
            for pool in &entry.pools {
                known.insert((file, *pool), ());
                let Some(of_pool) = replicas.get(pool) else {
                    note(&mut report.problems, format!("file {file} lies on {pool}, which does not exist"));
                    continue;
                };
                let written = of_pool.get(&file).map_or(0, |facts| facts.size);
                // A replica may be longer (bytes written and not yet committed), never shorter.
                if written < size && !is_settled(namespace, pools, file, *pool).await? {
                    note(
                        &mut report.problems,
                        format!("file {file} has {size} bytes, its replica on {pool} only {written}"),
                    );
                }
            }
            if entry.pools.is_empty() && size > 0 {
                note(&mut report.problems, format!("file {file} has {size} bytes and lies on no pool"));
            }
        }
    }
    for (pool, of_pool) in &replicas {
        for file in of_pool.keys().filter(|file| !known.contains_key(&(**file, *pool))) {
            if namespace.locations(*file).await.is_ok_and(|pools| pools.contains(pool)) {
                continue;
            }
            note(
                &mut report.problems,
                format!("{pool} has a replica of {file}, which the namespace does not place there"),
            );
        }
    }
    Ok(report)
}

/// A second look, for files that were written or removed between the two listings.
async fn is_settled(
    namespace: &Arc<SqlNamespace>,
    pools: &[Arc<dyn Pool>],
    file: FileId,
    pool: PoolId,
) -> Result<bool> {
    let Ok(attributes) = api::Namespace::attributes(&**namespace, file).await else { return Ok(true) };
    let Some(pool) = pools.iter().find(|candidate| candidate.id() == pool) else { return Ok(false) };
    let size = pool.facts(file).await?.map_or(0, |facts| facts.size);
    Ok(size >= attributes.size || attributes.nlink == 0)
}

async fn collect_replicas(pools: &[Arc<dyn Pool>]) -> Result<HashMap<PoolId, HashMap<FileId, ReplicaFacts>>> {
    let mut all = HashMap::new();
    for pool in pools {
        let mut of_pool = HashMap::new();
        let mut after = FileId(0);
        loop {
            let page =
                pool.replicas(after, PAGE).await.with_context(|| format!("cannot list {}", pool.id()))?;
            let Some(last) = page.last() else { break };
            after = last.file;
            of_pool.extend(page.into_iter().map(|facts| (facts.file, facts)));
        }
        all.insert(pool.id(), of_pool);
    }
    Ok(all)
}

fn note(list: &mut Vec<String>, line: String) {
    match list.len() {
        0..PROBLEMS_MAX => list.push(line),
        PROBLEMS_MAX => list.push("and more".to_owned()),
        _ => {}
    }
}
