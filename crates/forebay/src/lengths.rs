//! After an end that was not in order: files of which namespace and replicas know different lengths.
//!
//! A small stable write is answered before the namespace has its length on disk. The pool's journal has it, and the label of
//! the replica once the records are gone. Where all labels know of more than the namespace does, the file becomes that long.
//!
//! A cut reaches the replica before the namespace, and a length that was not acknowledged may reach the namespace's disk
//! before the bytes reach the pool's. A kill or a power cut in between leaves a replica that is too short. Every length that
//! was acknowledged was on the pool's disk before, so where the replica has all that its label knows of, nothing is lost,
//! and the file becomes as long as its replica: the cut is finished (docs/decisions/0016-lengths.md). Where the label knows
//! of more, or of nothing, or is that of another file, and where there is no replica, it is a loss, which is left for
//! `forebay fsck` to tell.
//!
//! Both sides are read in the order of file ids, a page at a time, before anybody is served.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use api::{
    Birth, FileLocations, Locations, Namespace, NamespaceError, PoolError, ReplicaFacts, SetAttributes,
    Stability, Written,
};
use namespace::SqlNamespace;
use pool::{FoundReplica, LocalPool, ProblemKind};
use tokio::task::JoinSet;
use types::{Attributes, FileId, Identity, PoolId};

const PAGE: usize = 1024;
/// Changes of the namespace under way; no more than the shortest queue takes.
const AT_ONCE: usize = 16;
/// Files that are logged one by one.
const TOLD_MAX: usize = 100;

/// Files and pools that a start settled.
#[derive(Debug, Default)]
pub struct Settled {
    /// Files that were cut to their replicas.
    pub finished: usize,
    /// Files that became as long as stable writes had made them.
    pub raised: usize,
    /// Files whose replicas were told how long they were.
    pub lost: usize,
    /// Pools that are still behind: labels could not be written there.
    pub unsettled: BTreeSet<PoolId>,
}

/// Compares the files on pools that were not closed in order with their replicas, and finishes cuts. Pools that are
/// `behind` may have been put back from a copy: data missing there was lost. Labels there are as old as the copy, so
/// the lengths that the namespace knows are written to them.
pub async fn settle(
    namespace: &Arc<SqlNamespace>,
    pools: &[Arc<LocalPool>],
    behind: &BTreeSet<PoolId>,
) -> Result<Settled> {
    let mut listings: Listings = pools
        .iter()
        .map(|pool| (api::Pool::id(&**pool), pool))
        .filter(|(id, pool)| pool.is_rebuilt() || behind.contains(id))
        .map(|(id, pool)| (id, Listing::new(pool, behind.contains(&id))))
        .collect();
    if listings.is_empty() {
        return Ok(Settled::default());
    }
    let (began, mut files, mut settled) = (Instant::now(), 0, Settled::default());
    let mut after = FileId(0);
    loop {
        let page = namespace.files(after, PAGE).await.context("cannot compare files with their replicas")?;
        let Some(last) = page.last() else { break };
        after = last.attributes.file;
        files += page.len();
        let (mut cuts, mut raises) = (Vec::new(), Vec::new());
        for entry in &page {
            let order = compare(entry, &mut listings)?;
            // One that was closed in order is not listed.
            let is_behind =
                order != Ordering::Equal && entry.locality.good_pools().any(|pool| listings[&pool].is_behind);
            match order {
                Ordering::Equal => {}
                Ordering::Less if is_behind => expect(entry, &listings, &mut settled),
                Ordering::Less => cuts.extend(look(entry, &listings)?.map(|left| (entry.attributes, left))),
                Ordering::Greater if is_behind => {}
                Ordering::Greater => {
                    raises.extend(promised(entry, &listings)?.map(|found| (entry.clone(), found)));
                }
            }
        }
        settled.finished += finish(namespace, &cuts, settled.finished).await;
        settled.raised += raise(namespace, raises, &listings, settled.raised).await;
    }
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let Settled { finished, raised, lost, .. } = settled;
    tracing::info!(files, finished, raised, took_ms, "lengths of files compared with their replicas");
    if lost > 0 {
        tracing::warn!(
            lost,
            "files are incomplete because a pool was restored from an older copy; `forebay fsck` lists them"
        );
    }
    Ok(settled)
}

type Listings<'a> = BTreeMap<PoolId, Listing<'a>>;

/// The replicas of a pool, asked for in the order of their files.
struct Listing<'a> {
    pool: &'a LocalPool,
    page: VecDeque<ReplicaFacts>,
    after: FileId,
    has_more: bool,
    is_behind: bool,
}

impl Listing<'_> {
    fn new(pool: &LocalPool, is_behind: bool) -> Listing<'_> {
        Listing { pool, page: VecDeque::new(), after: FileId(0), has_more: true, is_behind }
    }

    /// `None`: the pool has no intact replica.
    fn size(&mut self, file: FileId) -> Result<Option<u64>, PoolError> {
        loop {
            if self.page.is_empty() && self.has_more {
                self.page = self.pool.indexed(self.after, PAGE)?.into();
                self.has_more = !self.page.is_empty();
                self.after = self.page.back().map_or(self.after, |last| last.file);
            }
            match self.page.front() {
                Some(facts) if facts.file < file => _ = self.page.pop_front(),
                Some(facts) if facts.file == file => return Ok(Some(facts.size)),
                _ => return Ok(None),
            }
        }
    }
}

/// `Less`: no pool has the whole file; `Greater`: all pools with a good replica have more. As far as all of them were not
/// closed in order.
fn compare(entry: &FileLocations, listings: &mut Listings<'_>) -> Result<Ordering, PoolError> {
    let Attributes { file, size, nlink, .. } = entry.attributes;
    if nlink == 0 {
        return Ok(Ordering::Equal);
    }
    let mut all = None;
    for pool in entry.locality.good_pools() {
        let Some(listing) = listings.get_mut(&pool) else { return Ok(Ordering::Equal) };
        // An empty file may have no replica, and one that is gone has less than any other.
        let there = match listing.size(file)? {
            Some(there) => there.cmp(&size),
            None if size > 0 => Ordering::Less,
            None => Ordering::Equal,
        };
        if all.is_some_and(|others| others != there) {
            return Ok(Ordering::Equal);
        }
        all = Some(there);
    }
    Ok(all.unwrap_or(Ordering::Equal))
}

/// The length to which a file is cut. None of its replicas is known to have lost data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    size: u64,
    space_used: u64,
}

fn look(entry: &FileLocations, listings: &Listings<'_>) -> Result<Option<Left>> {
    let mut replicas = Vec::new();
    for pool in entry.locality.good_pools() {
        replicas.push(pool::look(listings[&pool].pool.dir(), entry.attributes.file)?);
    }
    Ok(judge(&replicas, Birth::of(entry.attributes.birth)))
}

/// The length that stable writes have given to a file of which all replicas have more than the namespace knows. Bytes behind
/// it were not acknowledged.
fn promised(entry: &FileLocations, listings: &Listings<'_>) -> Result<Option<FoundReplica>> {
    let Attributes { file, size, birth, .. } = entry.attributes;
    let mut shortest: Option<FoundReplica> = None;
    for pool in entry.locality.good_pools() {
        let Ok(found) = pool::look(listings[&pool].pool.dir(), file)? else { return Ok(None) };
        if found.length <= Some(size) || !found.facts.birth.agrees_with(Birth::of(birth)) {
            return Ok(None);
        }
        if shortest.as_ref().is_none_or(|shortest| found.length < shortest.length) {
            shortest = Some(found);
        }
    }
    Ok(shortest)
}

/// Has the labels know what the namespace knows, so that readers get errors and not zeros.
fn expect(entry: &FileLocations, listings: &Listings<'_>, settled: &mut Settled) {
    let Attributes { file, size, birth, .. } = entry.attributes;
    let mut is_told = false;
    for pool in entry.locality.good_pools() {
        let dir = listings[&pool].pool.dir();
        let is_its = |found: &FoundReplica| found.facts.birth.agrees_with(Birth::of(birth));
        if !pool::look(dir, file).is_ok_and(|found| found.as_ref().is_ok_and(is_its)) {
            continue;
        }
        match pool::expect_length(dir, file, size) {
            Ok(()) => is_told = true,
            Err(error) => {
                tracing::warn!(%file, %error, "cannot record that a replica is incomplete");
                settled.unsettled.insert(pool);
            }
        }
    }
    settled.lost += usize::from(is_told);
}

/// Of all replicas of a file that was made then, none of which is whole.
fn judge(replicas: &[Result<FoundReplica, ProblemKind>], birth: Birth) -> Option<Left> {
    let left = |replica: &Result<FoundReplica, ProblemKind>| match replica {
        Ok(FoundReplica { facts, length: Some(known), broken: false, .. })
            if facts.size >= *known && facts.birth.agrees_with(birth) =>
        {
            Some(Left { size: facts.size, space_used: facts.space_used })
        }
        // Without a label nobody knows what was there, also where it is empty.
        Ok(_) | Err(_) => None,
    };
    let left: Option<Vec<Left>> = replicas.iter().map(left).collect();
    left?.into_iter().max_by_key(|left| left.size)
}

/// How many were finished. One that cannot be is no reason not to serve the others: the database may be full.
async fn finish(namespace: &Arc<SqlNamespace>, cuts: &[(Attributes, Left)], told: usize) -> usize {
    let mut finished = 0;
    for (group, cuts) in cuts.chunks(AT_ONCE).enumerate() {
        let mut changes = JoinSet::new();
        for (number, (file, left)) in cuts.iter().enumerate() {
            if told + group * AT_ONCE + number < TOLD_MAX {
                let (file, from, to) = (file.file, file.size, left.size);
                tracing::info!(%file, from, to, "file is truncated to its replica; the server had been killed before a write or a truncation was finished");
            }
            changes.spawn(cut(Arc::clone(namespace), file.file, *left));
        }
        while let Some(changed) = changes.join_next().await {
            match changed.expect("it does not panic, and nobody ends it") {
                Ok(()) => finished += 1,
                Err((file, error)) => tracing::warn!(%file, %error, "cannot truncate a file to its replica"),
            }
        }
    }
    finished
}

/// How many were raised. Where the namespace refuses one, the next start compares again.
async fn raise(
    namespace: &Arc<SqlNamespace>,
    raises: Vec<(FileLocations, FoundReplica)>,
    listings: &Listings<'_>,
    told: usize,
) -> usize {
    let mut raised = 0;
    let mut waiting = raises.into_iter();
    loop {
        let mut changes = JoinSet::new();
        for (entry, found) in waiting.by_ref().take(AT_ONCE) {
            let written = Written {
                size_at_least: found.length,
                mtime: Some(found.modified),
                space_used: Some(found.facts.space_used),
                stability: Stability::FileSync,
            };
            let namespace = Arc::clone(namespace);
            changes.spawn(async move {
                let changed = namespace.record_write(entry.attributes.file, &written).await;
                (entry, changed)
            });
        }
        if changes.is_empty() {
            return raised;
        }
        for (entry, changed) in changes.join_all().await {
            let file = entry.attributes.file;
            match changed {
                Ok(now) => {
                    if told + raised < TOLD_MAX {
                        let (from, to) = (entry.attributes.size, now.size);
                        tracing::info!(%file, from, to, "file gets the length of a stable write that only its pool had");
                    }
                    raised += 1;
                }
                Err(error) => {
                    tracing::warn!(%file, %error, "cannot give a file its acknowledged length; the next start tries again");
                    entry.locality.good_pools().for_each(|pool| listings[&pool].pool.doubt_index());
                }
            }
        }
    }
}

async fn cut(namespace: Arc<SqlNamespace>, file: FileId, left: Left) -> Result<(), (FileId, NamespaceError)> {
    let change = SetAttributes {
        size: Some(left.size),
        size_is_authorized: true,
        space_used: Some(left.space_used),
        ..SetAttributes::default()
    };
    let changed = namespace.set_attributes(&Identity::root(), file, &change).await;
    changed.map(drop).map_err(|error| (file, error))
}

#[cfg(test)]
mod tests {
    use types::{Epoch, Timestamp};

    use super::*;

    const OWN: Birth = Birth(1_700_000_000);

    fn replica(size: u64, length: Option<u64>, broken: bool) -> Result<FoundReplica, ProblemKind> {
        let facts = ReplicaFacts { file: FileId(5), birth: OWN, size, space_used: 4096, modified: None };
        let (modified, epoch, damaged) = (Timestamp::EPOCH, Epoch(0), false);
        Ok(FoundReplica { facts, modified, epoch, length, broken, damaged })
    }

    fn size(replicas: &[Result<FoundReplica, ProblemKind>]) -> Option<u64> {
        judge(replicas, OWN).map(|left| left.size)
    }

    #[test]
    fn a_file_is_cut_to_a_replica_that_has_all_that_its_label_knows_of() {
        assert_eq!(size(&[replica(700, Some(700), false)]), Some(700));
        assert_eq!(size(&[replica(700, Some(0), false)]), Some(700));
    }

    #[test]
    fn a_file_is_not_cut_where_bytes_were_lost_or_nothing_is_known() {
        // An empty file in the place of a replica made its file empty.
        assert_eq!(size(&[Err(ProblemKind::Unfinished)]), None);
        assert_eq!(size(&[replica(700, Some(701), false)]), None);
        assert_eq!(size(&[replica(700, None, false)]), None);
        assert_eq!(size(&[replica(700, Some(700), true)]), None);
        assert_eq!(size(&[Err(ProblemKind::NoLabel)]), None);
        assert_eq!(size(&[Err(ProblemKind::Unreadable("no such file".to_owned()))]), None);
    }

    #[test]
    fn a_start_does_not_cut_a_file_to_a_replica_of_another_birth() {
        let of = |birth| {
            replica(700, Some(700), false)
                .map(|found| FoundReplica { facts: ReplicaFacts { birth, ..found.facts }, ..found })
        };
        assert_eq!(size(&[of(Birth::UNKNOWN)]), Some(700));
        assert_eq!(size(&[of(Birth(OWN.0 + 1))]), None);
        assert_eq!(size(&[replica(60, Some(60), false), of(Birth(OWN.0 - 1))]), None);
    }

    #[test]
    fn of_several_the_longest_counts_and_a_loss_among_them_is_left() {
        assert_eq!(size(&[replica(7, Some(7), false), replica(60, Some(7), false)]), Some(60));
        assert_eq!(size(&[replica(60, Some(7), false), replica(7, Some(8), false)]), None);
    }
}
