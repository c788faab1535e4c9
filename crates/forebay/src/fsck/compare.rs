//! What the namespace says of files' data, against what the pools have.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::{FileLocations, Locations, Namespace, Pool, PoolError, ReplicaFacts};
use namespace::{Problem, SqlNamespace};
use types::{FileId, PoolId};

const PAGE: usize = 1024;

pub struct Findings {
    pub files: u64,
    pub replicas: u64,
    pub of_namespace: Vec<Problem>,
    pub of_pools: Vec<PoolProblem>,
    /// Replicas that a pool lists and cannot look at, told for people: nobody can say what would mend them.
    pub unreadable: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolProblem {
    NoSuchPool {
        file: FileId,
        pool: PoolId,
        size: u64,
        elsewhere: bool,
    },
    /// The file has a location there and no replica. `elsewhere`: there is a whole one on another pool.
    Missing {
        file: FileId,
        pool: PoolId,
        size: u64,
        elsewhere: bool,
    },
    Short {
        file: FileId,
        pool: PoolId,
        size: u64,
        written: u64,
        elsewhere: bool,
    },
    NoPlace {
        file: FileId,
        size: u64,
    },
    Unknown {
        facts: ReplicaFacts,
        pool: PoolId,
        of: Owner,
    },
}

/// Whose replica it is that the namespace does not place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Nobody,
    /// A file that lies nowhere.
    Unplaced,
    /// A file that lies on other pools.
    Elsewhere,
}

impl fmt::Display for PoolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolProblem::NoSuchPool { file, pool, .. } => {
                write!(f, "file {file} lies on {pool}, which does not exist")
            }
            PoolProblem::Missing { file, pool, size, .. } => {
                write!(f, "file {file} has {size} bytes, and {pool} has no replica of it")
            }
            // A replica may be longer (bytes written and not yet committed), never shorter.
            PoolProblem::Short { file, pool, size, written, .. } => {
                write!(f, "file {file} has {size} bytes, its replica on {pool} only {written}")
            }
            PoolProblem::NoPlace { file, size } => {
                write!(f, "file {file} has {size} bytes and lies on no pool")
            }
            PoolProblem::Unknown { facts, pool, .. } => {
                write!(f, "{pool} has a replica of {}, which the namespace does not place there", facts.file)
            }
        }
    }
}

type Replicas = HashMap<PoolId, HashMap<FileId, ReplicaFacts>>;

pub async fn compare(namespace: &Arc<SqlNamespace>, pools: &[Arc<dyn Pool>]) -> Result<Findings> {
    let checked = Arc::clone(namespace);
    let problems = tokio::task::spawn_blocking(move || checked.check()).await?;
    let replicas = collect_replicas(pools).await?;
    let mut found = Findings {
        files: 0,
        replicas: replicas.values().map(|of_pool| of_pool.len() as u64).sum(),
        of_namespace: problems.context("cannot check the namespace")?,
        of_pools: Vec::new(),
        unreadable: Vec::new(),
    };
    let mut known = HashSet::new();
    let mut after = FileId(0);
    loop {
        let files = namespace.files(after, PAGE).await?;
        let Some(last) = files.last() else { break };
        after = last.attributes.file;
        for entry in &files {
            found.files += 1;
            known.extend(entry.pools.iter().map(|pool| (entry.attributes.file, *pool)));
            for problem in look_at_file(entry, &replicas) {
                match is_settled(namespace, pools, &problem).await {
                    Ok(true) => {}
                    Ok(false) => found.of_pools.push(problem),
                    Err(error) => found.unreadable.push(format!("{problem}; looked at again: {error}")),
                }
            }
        }
    }
    for (pool, of_pool) in &replicas {
        let mut strays: Vec<_> =
            of_pool.values().filter(|facts| !known.contains(&(facts.file, *pool))).copied().collect();
        strays.sort_unstable_by_key(|facts| facts.file);
        for facts in strays {
            if let Some(of) = owner(namespace, facts.file, *pool).await? {
                found.of_pools.push(PoolProblem::Unknown { facts, pool: *pool, of });
            }
        }
    }
    Ok(found)
}

fn look_at_file(entry: &FileLocations, replicas: &Replicas) -> Vec<PoolProblem> {
    let (file, size) = (entry.attributes.file, entry.attributes.size);
    let facts = |pool: &PoolId| replicas.get(pool).and_then(|of_pool| of_pool.get(&file));
    let is_whole = |pool: &PoolId| facts(pool).is_some_and(|facts| facts.size >= size);
    let elsewhere = entry.pools.iter().any(is_whole);
    let mut problems = Vec::new();
    for pool in entry.pools.iter().copied() {
        match (replicas.contains_key(&pool), facts(&pool).map(|facts| facts.size)) {
            (false, _) => problems.push(PoolProblem::NoSuchPool { file, pool, size, elsewhere }),
            (_, None) if size > 0 => problems.push(PoolProblem::Missing { file, pool, size, elsewhere }),
            (_, Some(written)) if written < size => {
                problems.push(PoolProblem::Short { file, pool, size, written, elsewhere });
            }
            _ => {}
        }
    }
    if entry.pools.is_empty() && size > 0 {
        problems.push(PoolProblem::NoPlace { file, size });
    }
    problems
}

/// A second look, for files that were written or removed between the two listings.
async fn is_settled(
    namespace: &Arc<SqlNamespace>,
    pools: &[Arc<dyn Pool>],
    problem: &PoolProblem,
) -> Result<bool, PoolError> {
    let (PoolProblem::Missing { file, pool, .. } | PoolProblem::Short { file, pool, .. }) = *problem else {
        return Ok(false);
    };
    let Ok(attributes) = namespace.attributes(file).await else { return Ok(true) };
    let Some(pool) = pools.iter().find(|candidate| candidate.id() == pool) else { return Ok(false) };
    let size = pool.facts(file).await?.map_or(0, |facts| facts.size);
    Ok(size >= attributes.size || attributes.nlink == 0)
}

/// `None`: the namespace has come to place it there.
async fn owner(namespace: &SqlNamespace, file: FileId, pool: PoolId) -> Result<Option<Owner>> {
    if namespace.attributes(file).await.is_err() {
        return Ok(Some(Owner::Nobody));
    }
    let pools = namespace.locations(file).await?;
    Ok(match pools.len() {
        _ if pools.contains(&pool) => None,
        0 => Some(Owner::Unplaced),
        _ => Some(Owner::Elsewhere),
    })
}

async fn collect_replicas(pools: &[Arc<dyn Pool>]) -> Result<Replicas> {
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
