//! Compares files with their replicas on pools of other hosts, which a running head asks for their lists.
//!
//! Namespace and pools are read in the order of file ids, a page of each at a time. They change meanwhile, and a list may be
//! older than the other by minutes. So every difference is looked at again, twice.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use api::{
    ANSWER_TIME, Birth, FileLocations, Locality, Locations, Namespace, NamespaceError, Pool, PoolError,
    ReplicaFacts, ReplicaState,
};
use namespace::SqlNamespace;
use types::{Attributes, FileId, PoolId};

use super::compare::{Compared, Owner, PoolProblem, require_wanted};
use super::findings::{Finding, Findings};
use crate::progress::Meter;

const PAGE: usize = 1024;
/// A truncation is between the pool and the namespace for a moment.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// A pool that does not answer is told in a remark, and compared no further.
pub async fn compare_elsewhere(
    namespace: &Arc<SqlNamespace>,
    pools: &[Arc<dyn Pool>],
    compared: &mut Compared,
    meter: &Meter,
    findings: &mut dyn Findings,
) -> Result<()> {
    if pools.is_empty() {
        return Ok(());
    }
    let replicas = pools.iter().map(|pool| pool.status().replicas).sum();
    meter.begin_items("comparing pools of other hosts", Some(replicas));
    let listings = pools.iter().map(|pool| (pool.id(), Listing::of(Arc::clone(pool)))).collect();
    let mut comparison = Comparison { namespace, listings, compared, meter, findings };
    let mut after = FileId(0);
    loop {
        let files = namespace.files(after, PAGE).await?;
        let Some(last) = files.last() else { break };
        after = last.attributes.file;
        for entry in &files {
            for pool in entry.locality.pools() {
                comparison.go_to(pool, Some(entry)).await?;
            }
        }
    }
    for pool in pools {
        comparison.go_to(pool.id(), None).await?;
    }
    Ok(())
}

struct Comparison<'a> {
    namespace: &'a Arc<SqlNamespace>,
    listings: BTreeMap<PoolId, Listing>,
    compared: &'a mut Compared,
    meter: &'a Meter,
    findings: &'a mut dyn Findings,
}

impl Comparison<'_> {
    /// Takes the replicas of a pool up to that of the file; `None`: all that are left.
    async fn go_to(&mut self, pool: PoolId, entry: Option<&FileLocations>) -> Result<()> {
        let Some(mut listing) = self.listings.remove(&pool) else { return Ok(()) };
        loop {
            require_wanted(self.meter)?;
            let file = entry.map(|entry| entry.attributes.file);
            let (suspect, is_last) = match listing.take_through(file).await {
                Ok(Some(facts)) => {
                    self.meter.add(1);
                    self.compared.replicas += 1;
                    match entry.filter(|entry| entry.attributes.file == facts.file) {
                        Some(entry) => (differs(entry, pool, Some(&facts)).then_some(facts.file), true),
                        None => (Some(facts.file), false),
                    }
                }
                Ok(None) => (entry.filter(|entry| differs(entry, pool, None)).and(file), true),
                Err(error) => return self.give_up(pool, &error).await,
            };
            if let Some(file) = suspect {
                match confirmed(self.namespace, &listing.pool, file).await? {
                    Ok(None) => {}
                    Ok(Some(problem)) => self.findings.take(Finding::OfPool(problem)).await?,
                    Err(error) => return self.give_up(pool, &error).await,
                }
            }
            if is_last {
                break;
            }
        }
        if entry.is_some() {
            self.listings.insert(pool, listing);
        }
        Ok(())
    }

    async fn give_up(&mut self, pool: PoolId, error: &PoolError) -> Result<()> {
        let remark = format!("the replicas on {pool} are not all compared: {error}");
        self.findings.take(Finding::Remark(remark, None)).await
    }
}

/// The replicas of a pool, in the order of their files.
struct Listing {
    pool: Arc<dyn Pool>,
    page: VecDeque<ReplicaFacts>,
    after: FileId,
    has_more: bool,
}

impl Listing {
    fn of(pool: Arc<dyn Pool>) -> Listing {
        Listing { pool, page: VecDeque::new(), after: FileId(0), has_more: true }
    }

    /// The next one, if it is not behind the file.
    async fn take_through(&mut self, file: Option<FileId>) -> Result<Option<ReplicaFacts>, PoolError> {
        if self.page.is_empty() && self.has_more {
            self.page = self.pool.replicas(self.after, PAGE).await?.into();
            self.has_more = !self.page.is_empty();
            self.after = self.page.back().map_or(self.after, |last| last.file);
        }
        let is_due = |facts: &ReplicaFacts| file.is_none_or(|file| facts.file <= file);
        Ok(if self.page.front().is_some_and(is_due) { self.page.pop_front() } else { None })
    }
}

/// Whether the file and its replica there do not go together, as far as the lists tell.
fn differs(entry: &FileLocations, pool: PoolId, facts: Option<&ReplicaFacts>) -> bool {
    problem_of(&entry.attributes, &entry.locality, pool, facts).is_some()
}

fn problem_of(
    attributes: &Attributes,
    locality: &Locality,
    pool: PoolId,
    facts: Option<&ReplicaFacts>,
) -> Option<PoolProblem> {
    let (file, birth) = (attributes.file, Birth::of(attributes.birth));
    let is_other = facts.is_some_and(|facts| !facts.birth.agrees_with(birth));
    let Some(replica) = locality.replicas().iter().find(|replica| replica.pool == pool) else {
        let of = match locality.replicas().len() {
            _ if !attributes.kind.is_regular() => Owner::NoRegularFile(attributes.kind),
            _ if is_other => Owner::OtherBirth,
            0 => Owner::Unplaced,
            _ => Owner::Elsewhere,
        };
        return facts.map(|facts| PoolProblem::Unknown { facts: *facts, pool, of });
    };
    if is_other {
        return Some(PoolProblem::OtherBirth { file, pool });
    }
    // A replica that is not read need not be whole, nor that of a file that is being removed.
    let is_read = replica.state == ReplicaState::Good && attributes.nlink > 0;
    let (size, elsewhere) = (if is_read { attributes.size } else { 0 }, false);
    match facts {
        None if size > 0 => Some(PoolProblem::Missing { file, pool, size, elsewhere }),
        Some(facts) if facts.size < size => {
            Some(PoolProblem::Short { file, pool, size, written: facts.size, elsewhere })
        }
        _ => None,
    }
}

/// The problem that two looks, one after the other, find alike.
async fn confirmed(
    namespace: &SqlNamespace,
    pool: &Arc<dyn Pool>,
    file: FileId,
) -> Result<Result<Option<PoolProblem>, PoolError>> {
    let first = match look(namespace, pool, file).await? {
        Ok(Some(problem)) => problem,
        none => return Ok(none),
    };
    tokio::time::sleep(BETWEEN_LOOKS).await;
    Ok(look(namespace, pool, file).await?.map(|second| second.filter(|second| *second == first)))
}

async fn look(
    namespace: &SqlNamespace,
    pool: &Arc<dyn Pool>,
    file: FileId,
) -> Result<Result<Option<PoolProblem>, PoolError>> {
    // Before the pool is asked: a file is forgotten after its replica is removed.
    let attributes = match namespace.attributes(file).await {
        Err(NamespaceError::Stale(_)) => None,
        found => Some((found?, namespace.locality(file).await?)),
    };
    let facts = match pool.facts(&[file], ANSWER_TIME).await.sole() {
        // Listings leave the time out, too.
        Ok(facts) => facts.map(|facts| ReplicaFacts { modified: None, ..facts }),
        Err(error) => return Ok(Err(error)),
    };
    Ok(Ok(match attributes {
        Some((attributes, locality)) => problem_of(&attributes, &locality, pool.id(), facts.as_ref()),
        None => facts.map(|facts| PoolProblem::Unknown { facts, pool: pool.id(), of: Owner::Nobody }),
    }))
}

#[cfg(test)]
mod tests {
    use api::{CreateKind, CreateMode, CreateSpec, PoolError, SetAttributes, Stability, Written};
    use async_trait::async_trait;
    use namespace::{Config, Database, Sync};
    use testkit::faulty::{Call, Fault, Faulty};
    use testkit::memory_pool::MemoryPool;
    use types::{Identity, Name};

    use super::*;
    use crate::system::SystemClock;

    const POOL: PoolId = PoolId(1);
    const OTHER: PoolId = PoolId(2);

    #[derive(Default)]
    struct Told(Vec<String>);

    #[async_trait]
    impl Findings for Told {
        async fn take(&mut self, finding: Finding) -> Result<()> {
            self.0.push(match finding {
                Finding::OfPool(problem) => problem.to_string(),
                Finding::Remark(remark, _) => remark,
                Finding::OfNamespace(_) | Finding::Unreadable(..) => panic!("no finding of pools"),
            });
            Ok(())
        }
    }

    struct Scene {
        _dir: tempfile::TempDir,
        namespace: Arc<SqlNamespace>,
        pools: [Arc<Faulty<MemoryPool>>; 2],
    }

    impl Scene {
        fn set() -> Scene {
            let dir = tempfile::tempdir().unwrap();
            let namespace = SqlNamespace::open(Config {
                database: Database::Sqlite(dir.path().to_owned()),
                clock: Arc::new(SystemClock::new()),
                root_owner: (0, 0),
                sync: Sync::Interval(Duration::from_secs(60)),
                cache_bytes: 1 << 20,
                queue_len_max: 10,
                group_len_max: 10,
            });
            let pools = [POOL, OTHER].map(|pool| Arc::new(Faulty::new(MemoryPool::new(pool))));
            Scene { _dir: dir, namespace: Arc::new(namespace.unwrap()), pools }
        }

        /// On the first pool, with a replica of so many bytes if there is one.
        async fn file(&self, size: u64, replica: Option<usize>) -> FileId {
            let spec = CreateSpec {
                kind: CreateKind::Regular,
                mode: CreateMode::Guarded,
                permissions: 0o644,
                umask: None,
                set: SetAttributes::default(),
                location: Some(POOL),
            };
            let name = Name::new(format!("{size}-{replica:?}").as_bytes()).unwrap();
            let made = self.namespace.create(&Identity::root(), FileId::ROOT, &name, &spec).await;
            let attributes = made.unwrap().attributes;
            let (size_at_least, stability) = (Some(size), Stability::FileSync);
            let written = Written { size_at_least, mtime: None, space_used: None, stability };
            self.namespace.record_write(attributes.file, &written).await.unwrap();
            if let Some(bytes) = replica {
                let birth = Birth::of(attributes.birth);
                self.pools[0].pool().put(attributes.file, birth, vec![1; bytes]);
            }
            attributes.file
        }

        async fn compare(&self) -> (u64, Vec<String>) {
            let pools = self.pools.clone().map(|pool| pool as Arc<dyn Pool>);
            let (mut compared, mut told) = (Compared::default(), Told::default());
            let meter = Meter::default();
            compare_elsewhere(&self.namespace, &pools, &mut compared, &meter, &mut told).await.unwrap();
            (compared.replicas, told.0)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn absent_short_and_unknown_replicas_of_pools_on_other_hosts_are_told() {
        let scene = Scene::set();
        scene.file(10, Some(10)).await;
        scene.file(10, Some(11)).await;
        scene.file(0, None).await;
        let (missing, short) = (scene.file(7, None).await, scene.file(9, Some(4)).await);
        for (pool, file) in [(0, FileId(1 << 40)), (1, short), (1, FileId(1 << 41))] {
            scene.pools[pool].pool().put(file, Birth::UNKNOWN, "data");
        }
        let (replicas, told) = scene.compare().await;
        let unknown = |pool: PoolId, file: FileId| {
            format!("{pool} has a replica of {file}, which the namespace does not place there")
        };
        let expected = [
            format!("file {missing} has 7 bytes, and {POOL} has no replica of it"),
            format!("file {short} has 9 bytes, its replica on {POOL} only 4"),
            unknown(POOL, FileId(1 << 40)),
            unknown(OTHER, short),
            unknown(OTHER, FileId(1 << 41)),
        ];
        assert_eq!((replicas, told), (6, expected.to_vec()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pool_on_another_host_that_goes_silent_is_told_in_a_remark() {
        let scene = Scene::set();
        scene.file(7, None).await;
        scene.pools[1].pool().put(FileId(1 << 41), Birth::UNKNOWN, "data");
        scene.pools[0].schedule().on(Call::List, .., Fault::Fail(PoolError::Unknown(POOL)));
        let (_, told) = scene.compare().await;
        assert_eq!(told[0], "the replicas on pool-1 are not all compared: pool-1 gave no answer");
        assert_eq!(told.len(), 2, "the other one is compared: {told:?}");
    }
}
