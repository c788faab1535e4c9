//! Compares the locations of files in the namespace with the replicas in the pools.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use api::{
    Account, Birth, FileLocations, Locality, Locations, Namespace, NamespaceError, Pool, Quotas,
    ReplicaFacts, ReplicaRef, ReplicaState,
};
use namespace::SqlNamespace;
use pool::{Found, FoundReplica, LocalPool, ProblemKind};
use tokio::sync::mpsc;
use types::{FileId, FileKind, PoolId};

use super::elsewhere::compare_elsewhere;
use super::findings::{Finding, Findings};
use crate::output;
use crate::progress::Meter;

const PAGE: usize = 1024;
/// Findings of a pool that wait to be taken.
const WAITING_MAX: usize = 64;

/// Numbers of what a check has looked at.
#[derive(Default)]
pub struct Compared {
    pub files: u64,
    pub replicas: u64,
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
    /// The replica there is of a file that had the id at another time.
    OtherBirth {
        file: FileId,
        pool: PoolId,
    },
    /// The replica in the file's place belongs to another file, by its label.
    OtherFile {
        file: FileId,
        pool: PoolId,
        of: FileId,
    },
    NoPlace {
        file: FileId,
        size: u64,
    },
    /// There are replicas, and none of them may be read.
    NoneGood {
        file: FileId,
        size: u64,
    },
    Unknown {
        facts: ReplicaFacts,
        pool: PoolId,
        of: Owner,
    },
}

/// Owner of a replica that the namespace does not place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Nobody,
    /// A file that lies nowhere.
    Unplaced,
    /// A file that lies on other pools.
    Elsewhere,
    /// A file of a kind that has no data in pools.
    NoRegularFile(FileKind),
    /// A file that had the id at another time.
    OtherBirth,
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
            PoolProblem::OtherBirth { file, pool } => {
                write!(
                    f,
                    "the replica of {file} on {pool} is that of another file, which was made at another time"
                )
            }
            PoolProblem::OtherFile { file, pool, of } => {
                write!(f, "in the place of {file} on {pool} lies the replica of {of}")
            }
            PoolProblem::NoPlace { file, size } => {
                write!(f, "file {file} has {size} bytes and lies on no pool")
            }
            PoolProblem::NoneGood { file, size } => {
                write!(f, "file {file} has {size} bytes, and none of its replicas is good")
            }
            PoolProblem::Unknown { facts, pool, of: Owner::NoRegularFile(kind) } => {
                write!(f, "{pool} has a replica of {}, which is a {}", facts.file, name_of(*kind))
            }
            PoolProblem::Unknown { facts, pool, of: Owner::OtherBirth } => {
                write!(
                    f,
                    "{pool} has a replica of {}, which is that of another file, made at another time",
                    facts.file
                )
            }
            PoolProblem::Unknown { facts, pool, .. } => {
                write!(f, "{pool} has a replica of {}, which the namespace does not place there", facts.file)
            }
        }
    }
}

impl PoolProblem {
    /// The file that lacks data or has too much.
    pub fn file(&self) -> FileId {
        match *self {
            PoolProblem::NoSuchPool { file, .. }
            | PoolProblem::Missing { file, .. }
            | PoolProblem::Short { file, .. }
            | PoolProblem::OtherBirth { file, .. }
            | PoolProblem::OtherFile { file, .. }
            | PoolProblem::NoPlace { file, .. }
            | PoolProblem::NoneGood { file, .. } => file,
            PoolProblem::Unknown { facts, .. } => facts.file,
        }
    }
}

fn name_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "regular file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symbolic link",
        FileKind::BlockDevice(_) | FileKind::CharacterDevice(_) => "device",
        FileKind::Fifo => "FIFO",
        FileKind::Socket => "socket",
    }
}

/// Pools of a check.
#[derive(Clone, Default)]
pub struct CheckedPools {
    pub own: Vec<Arc<LocalPool>>,
    /// Those of other hosts that a running head asks.
    pub connected: Vec<Arc<dyn Pool>>,
    /// Those of other hosts: they are known, and the replicas of those that are not connected are not looked at.
    pub elsewhere: BTreeSet<PoolId>,
}

type Replicas = HashMap<PoolId, HashMap<FileId, ReplicaFacts>>;

/// Ends with an error soon after `meter` was stopped.
pub async fn compare(
    namespace: &Arc<SqlNamespace>,
    checked: &CheckedPools,
    meter: &Arc<Meter>,
    findings: &mut dyn Findings,
) -> Result<Compared> {
    check_namespace(namespace, meter, findings).await?;
    let mut compared = Compared::default();
    let pools = &*checked.own;
    let replicas = collect_replicas(pools, &mut compared, meter, findings).await?;
    let known = compare_files(namespace, checked, &replicas, &mut compared, meter, findings).await?;
    for pool in pools {
        let of_pool = replicas.get(&pool.id()).into_iter().flat_map(HashMap::values);
        let mut strays: Vec<_> =
            of_pool.filter(|facts| !known.contains(&(facts.file, pool.id()))).copied().collect();
        strays.sort_unstable_by_key(|facts| facts.file);
        for facts in strays {
            require_wanted(meter)?;
            let finding = match owner(namespace, pool, &facts).await {
                Ok(None) => continue,
                Ok(Some(of)) => Finding::OfPool(PoolProblem::Unknown { facts, pool: pool.id(), of }),
                Err(error) => {
                    let of = format!("{} has a replica of {}", pool.id(), facts.file);
                    Finding::Unreadable(format!("{of}; looked at again: {error}"), Some(facts.file))
                }
            };
            findings.take(finding).await?;
        }
    }
    compare_elsewhere(namespace, &checked.connected, &mut compared, meter, findings).await?;
    Ok(compared)
}

async fn check_namespace(
    namespace: &Arc<SqlNamespace>,
    meter: &Arc<Meter>,
    findings: &mut dyn Findings,
) -> Result<()> {
    let (checked, counted) = (Arc::clone(namespace), Arc::clone(meter));
    meter.begin_items("checking the namespace", Some(namespace::ProblemKind::ALL.len() as u64));
    let problems = tokio::task::spawn_blocking(move || {
        checked.check_telling(&mut || {
            counted.add(1);
            if counted.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    let problems = problems.await?.context("cannot check the namespace")?.ok_or_else(stopped)?;
    for kind in namespace::ProblemKind::ALL {
        let told = problems.iter().filter(|problem| problem.kind() == kind).count();
        if told >= namespace::PROBLEMS_MAX {
            let remark = format!("{told} problems are told of {}; there may be more", kind.title());
            findings.take(Finding::Remark(remark, None)).await?;
        }
    }
    for problem in problems {
        findings.take(Finding::OfNamespace(problem)).await?;
    }
    Ok(())
}

/// The places of all files.
async fn compare_files(
    namespace: &Arc<SqlNamespace>,
    checked: &CheckedPools,
    replicas: &Replicas,
    compared: &mut Compared,
    meter: &Arc<Meter>,
    findings: &mut dyn Findings,
) -> Result<HashSet<(FileId, PoolId)>> {
    // Without an answer the remaining time is not known.
    let counted = namespace.counted(Account::tree(FileId::ROOT)).await.ok();
    meter.begin_items("comparing files", counted.and_then(|counted| counted.files.try_into().ok()));
    let (mut known, mut unseen, mut moving) = (HashSet::new(), 0_u64, 0_u64);
    let connected: BTreeSet<PoolId> = checked.connected.iter().map(|pool| pool.id()).collect();
    let is_unseen = |pool: &PoolId| checked.elsewhere.contains(pool) && !connected.contains(pool);
    let mut after = FileId(0);
    loop {
        let files = namespace.files(after, PAGE).await?;
        let Some(last) = files.last() else { break };
        after = last.attributes.file;
        for entry in &files {
            require_wanted(meter)?;
            compared.files += 1;
            meter.add(1);
            known.extend(entry.locality.pools().map(|pool| (entry.attributes.file, pool)));
            moving += u64::from(entry.locality.replicas().iter().any(is_of_move));
            unseen += u64::from(entry.locality.pools().any(|pool| is_unseen(&pool)));
            for problem in look_at_file(entry, replicas, &checked.elsewhere) {
                let finding = match is_settled(namespace, &checked.own, &problem).await {
                    Ok(true) => continue,
                    Ok(false) => Finding::OfPool(problem),
                    Err(error) => Finding::Unreadable(
                        format!("{problem}; looked at again: {error}"),
                        Some(problem.file()),
                    ),
                };
                findings.take(finding).await?;
            }
        }
    }
    if moving > 0 {
        let files = output::counted(moving, "file has", "files have");
        let remark = format!(
            "{files} a copy that is not complete, or an old replica that is not removed yet: a running server clears it up"
        );
        findings.take(Finding::Remark(remark, None)).await?;
    }
    if unseen > 0 {
        let files = counted_files(unseen);
        let remark = format!("{files} on pools of other hosts, whose replicas are not compared");
        findings.take(Finding::Remark(remark, None)).await?;
    }
    Ok(known)
}

fn is_of_move(replica: &ReplicaRef) -> bool {
    matches!(replica.state, ReplicaState::Filling | ReplicaState::Stale)
}

fn counted_files(count: u64) -> String {
    output::counted(count, "file lies", "files lie")
}

pub fn require_wanted(meter: &Meter) -> Result<()> {
    if meter.is_stopped() { Err(stopped()) } else { Ok(()) }
}

fn stopped() -> anyhow::Error {
    anyhow!("the check was stopped")
}

fn look_at_file(entry: &FileLocations, replicas: &Replicas, unseen: &BTreeSet<PoolId>) -> Vec<PoolProblem> {
    let (file, size) = (entry.attributes.file, entry.attributes.size);
    let birth = Birth::of(entry.attributes.birth);
    let facts = |pool: &PoolId| replicas.get(pool).and_then(|of_pool| of_pool.get(&file));
    let is_whole =
        |pool: PoolId| facts(&pool).is_some_and(|facts| facts.size >= size && facts.birth.agrees_with(birth));
    let elsewhere = entry.locality.good_pools().any(is_whole);
    let mut problems = Vec::new();
    let seen = entry.locality.replicas().iter().filter(|replica| !unseen.contains(&replica.pool));
    for ReplicaRef { pool, state, .. } in seen.copied() {
        if facts(&pool).is_some_and(|facts| !facts.birth.agrees_with(birth)) {
            problems.push(PoolProblem::OtherBirth { file, pool });
            continue;
        }
        // A replica that is not read need not be whole, nor be there.
        let size = if state == ReplicaState::Good { size } else { 0 };
        match (replicas.contains_key(&pool), facts(&pool).map(|facts| facts.size)) {
            (false, _) => problems.push(PoolProblem::NoSuchPool { file, pool, size, elsewhere }),
            (_, None) if size > 0 => problems.push(PoolProblem::Missing { file, pool, size, elsewhere }),
            (_, Some(written)) if written < size => {
                problems.push(PoolProblem::Short { file, pool, size, written, elsewhere });
            }
            _ => {}
        }
    }
    match &entry.locality {
        Locality::Empty | Locality::Lost if size > 0 => problems.push(PoolProblem::NoPlace { file, size }),
        Locality::Replicas(_) if size > 0 && entry.locality.good_pools().next().is_none() => {
            problems.push(PoolProblem::NoneGood { file, size });
        }
        Locality::Empty | Locality::Lost | Locality::Replicas(_) => {}
    }
    problems
}

/// A second look, for files that were written or removed between the two listings.
async fn is_settled(
    namespace: &Arc<SqlNamespace>,
    pools: &[Arc<LocalPool>],
    problem: &PoolProblem,
) -> Result<bool> {
    let (PoolProblem::Missing { file, pool, .. } | PoolProblem::Short { file, pool, .. }) = *problem else {
        return Ok(false);
    };
    let attributes = match namespace.attributes(file).await {
        Err(NamespaceError::Stale(_)) => return Ok(true),
        found => found?,
    };
    // It may have been moved from there.
    let is_noted = namespace.locality(file).await?.good_pools().any(|good| good == pool);
    if !is_noted {
        return Ok(true);
    }
    let Some(pool) = pools.iter().find(|candidate| candidate.id() == pool) else { return Ok(false) };
    let size = match look(pool, file).await? {
        Ok(found) => found.facts.size,
        Err(ProblemKind::Gone | ProblemKind::Unfinished | ProblemKind::OtherFile { .. }) => 0,
        Err(kind) => return Err(kind.into()),
    };
    Ok(size >= attributes.size || attributes.nlink == 0)
}

/// `None`: the namespace has come to place it there, or it is gone.
async fn owner(
    namespace: &SqlNamespace,
    pool: &Arc<LocalPool>,
    facts: &ReplicaFacts,
) -> Result<Option<Owner>> {
    let file = facts.file;
    let attributes = match namespace.attributes(file).await {
        // A file is forgotten after its replica is removed.
        Err(NamespaceError::Stale(_)) if look(pool, file).await? == Err(ProblemKind::Gone) => {
            return Ok(None);
        }
        Err(NamespaceError::Stale(_)) => return Ok(Some(Owner::Nobody)),
        found => found?,
    };
    if !attributes.kind.is_regular() {
        return Ok(Some(Owner::NoRegularFile(attributes.kind)));
    }
    let locality = namespace.locality(file).await?;
    let is_moved = locality.good_pools().any(|good| good != pool.id());
    Ok(match locality.replicas().len() {
        // Its row goes after the old replica of a file that was moved.
        _ if is_moved && look(pool, file).await? == Err(ProblemKind::Gone) => None,
        _ if locality.pools().any(|known| known == pool.id()) => None,
        _ if !facts.birth.agrees_with(Birth::of(attributes.birth)) => Some(Owner::OtherBirth),
        0 => Some(Owner::Unplaced),
        _ => Some(Owner::Elsewhere),
    })
}

/// Looks at the file itself: a file that the pool has open may have lost its name.
async fn look(pool: &Arc<LocalPool>, file: FileId) -> Result<Result<FoundReplica, ProblemKind>> {
    let pool = Arc::clone(pool);
    Ok(tokio::task::spawn_blocking(move || pool::look(pool.dir(), file)).await??)
}

/// As the files themselves are: an index may lack some.
async fn collect_replicas(
    pools: &[Arc<LocalPool>],
    compared: &mut Compared,
    meter: &Arc<Meter>,
    findings: &mut dyn Findings,
) -> Result<Replicas> {
    let mut all = HashMap::new();
    for pool in pools {
        meter.begin_items(format!("reading replicas of {}", pool.id()), Some(pool.status().replicas));
        let (read, counted) = (Arc::clone(pool), Arc::clone(meter));
        let (sender, mut found) = mpsc::channel(WAITING_MAX);
        let reading = tokio::task::spawn_blocking(move || {
            let mut tell = |finding| sender.blocking_send(finding).map_err(|_| stopped());
            read_pool(&read, &counted, &mut tell)
        });
        while let Some(finding) = found.recv().await {
            // Of another file, and so not among those that are compared.
            compared.replicas += u64::from(matches!(finding, Finding::OfPool(_)));
            findings.take(finding).await?;
        }
        let replicas = reading.await?.with_context(|| format!("cannot read {}", pool.id()))?;
        compared.replicas += replicas.len() as u64;
        all.insert(pool.id(), replicas);
    }
    Ok(all)
}

/// The replicas in the places of their files. All others are told.
fn read_pool(
    pool: &LocalPool,
    meter: &Meter,
    tell: &mut dyn FnMut(Finding) -> Result<()>,
) -> Result<HashMap<FileId, ReplicaFacts>> {
    let (id, mut replicas) = (pool.id(), HashMap::new());
    for found in pool::scan(pool.dir())? {
        require_wanted(meter)?;
        meter.add(1);
        match found {
            Found::Replica(FoundReplica { facts, broken, damaged, .. }) => {
                replicas.insert(facts.file, facts);
                if damaged {
                    let file = facts.file;
                    let problem = "differs from its block sums and cannot be read until the file is removed or replaced";
                    tell(Finding::Unreadable(format!("{id}: the replica of {file} {problem}"), Some(file)))?;
                } else if broken {
                    let file = facts.file;
                    let remark = "lost data that was written to it, as its writer was told, and takes no more until it is removed";
                    tell(Finding::Remark(format!("{id}: the replica of {file} {remark}"), Some(file)))?;
                }
            }
            Found::Problem(pool::Problem { kind: ProblemKind::OtherFile { file, of }, .. }) => {
                tell(Finding::OfPool(PoolProblem::OtherFile { file, pool: id, of }))?;
            }
            Found::Problem(problem) if problem.kind.is_left_by_a_kill() => {}
            Found::Problem(problem) if problem.kind == ProblemKind::Stray => {
                tell(Finding::Remark(format!("{id}: {problem}"), None))?;
            }
            Found::Problem(problem) => tell(Finding::Unreadable(format!("{id}: {problem}"), None))?,
        }
    }
    Ok(replicas)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use types::{Attributes, Epoch, Timestamp};

    use super::*;
    use crate::system::SystemRandom;

    const FILE: FileId = FileId(5);
    const SIZE: u64 = 100;

    /// A file of `SIZE` bytes with a replica in each state, one pool after the other.
    fn entry(states: &[ReplicaState]) -> FileLocations {
        let since = Timestamp::EPOCH;
        let replicas =
            (0..).zip(states).map(|(pool, state)| ReplicaRef { pool: PoolId(pool), state: *state, since });
        let replicas: Arc<[ReplicaRef]> = replicas.collect();
        let locality = if replicas.is_empty() { Locality::Lost } else { Locality::Replicas(replicas) };
        let attributes = Attributes {
            file: FILE,
            kind: FileKind::Regular,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: 1,
            size: SIZE,
            space_used: 0,
            atime: since,
            mtime: since,
            ctime: since,
            birth: since,
            change: 1,
            epoch: Epoch(0),
            has_acl: false,
            io: types::IoMode::Auto,
        };
        FileLocations { attributes, locality }
    }

    /// Pools that have a replica of the file of this length, or none.
    fn pools(sizes: &[Option<u64>]) -> Replicas {
        let facts =
            |size| ReplicaFacts { file: FILE, birth: Birth::UNKNOWN, size, space_used: 0, modified: None };
        let of_pool = |size: &Option<u64>| size.map(|size| (FILE, facts(size))).into_iter().collect();
        (0..).map(PoolId).zip(sizes.iter().map(of_pool)).collect()
    }

    #[test]
    fn only_a_good_replica_has_to_be_whole() {
        use ReplicaState::{Broken, Filling, Good, Missing, Stale};
        let whole = Some(SIZE);
        let found = |states: &[ReplicaState], sizes: &[Option<u64>]| {
            look_at_file(&entry(states), &pools(sizes), &BTreeSet::new())
        };
        assert_eq!(
            found(&[Good, Filling, Stale, Broken, Missing], &[whole, Some(1), Some(7), None, None]),
            []
        );
        let (file, size) = (FILE, SIZE);
        let missing = |elsewhere| PoolProblem::Missing { file, pool: PoolId(0), size, elsewhere };
        assert_eq!(found(&[Good, Good], &[None, whole]), [missing(true)]);
        assert_eq!(found(&[Good, Stale], &[None, whole]), [missing(false)], "a stale one is no rescue");
    }

    #[test]
    fn a_file_that_no_good_replica_has_is_told() {
        let (file, size) = (FILE, SIZE);
        let stale = look_at_file(&entry(&[ReplicaState::Stale]), &pools(&[Some(SIZE)]), &BTreeSet::new());
        assert_eq!(stale, [PoolProblem::NoneGood { file, size }]);
        assert_eq!(
            stale[0].to_string(),
            "file 0000000000000005 has 100 bytes, and none of its replicas is good"
        );
        assert_eq!(
            look_at_file(&entry(&[]), &pools(&[]), &BTreeSet::new()),
            [PoolProblem::NoPlace { file, size }]
        );
    }

    /// A repair would cut the file to nothing.
    #[test]
    fn a_file_on_a_pool_of_another_host_is_not_lost() {
        let elsewhere = BTreeSet::from([PoolId(0)]);
        assert_eq!(look_at_file(&entry(&[ReplicaState::Good]), &pools(&[]), &elsewhere), []);
        let (file, pool, size) = (FILE, PoolId(0), SIZE);
        let unknown = look_at_file(&entry(&[ReplicaState::Good]), &pools(&[]), &BTreeSet::new());
        assert_eq!(unknown, [PoolProblem::NoSuchPool { file, pool, size, elsewhere: false }]);
    }

    /// Each interrupted `forebay fsck` left a thread in the server that read the pools to their ends.
    #[test]
    fn a_pool_is_not_read_on_when_the_check_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let pool = LocalPool::open(pool::Config {
            id: PoolId(0),
            dir: dir.path().to_owned(),
            instance: [7; 16],
            reserve_bytes: 0,
            reserve_files: 0,
            open_files_max: 16,
            queue_len_max: 16,
            threads: 1,
            io: pool::IoPolicy::default(),
            contention: pool::ContentionThresholds::default(),
            journal: pool::JournalPlace::Off,
            gather: pool::GatherPolicy::Never,
            digests: vec![types::ChecksumKind::Adler32],
            random: Arc::new(SystemRandom),
        });
        let pool = pool.unwrap();
        std::fs::write(dir.path().join("data").join("stray"), "").unwrap();
        let meter = Meter::default();
        let mut told = 0;
        let mut tell = |_| {
            told += 1;
            Ok(())
        };
        read_pool(&pool, &meter, &mut tell).unwrap();
        meter.stop();
        let stopped = read_pool(&pool, &meter, &mut tell).err().unwrap();
        assert_eq!((stopped.to_string().as_str(), told), ("the check was stopped", 1));
    }
}
