//! From one place to another, table by table; then both are read and compared.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

use super::tables::{TABLES, Table, Value};
use super::writer::BATCH_ROWS;
use super::{
    Begin, BulkError, BulkResult, Marks, NamespaceLocation, Sink, Source, Tables, open_sink, open_source,
};
use crate::check::Problem;

/// Batches that were read and are not written yet.
const PAGES_AHEAD: usize = 2;

#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub begin: Begin,
    /// Of the data directory on either side, if there is one.
    pub instance: Option<[u8; 16]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Counting,
    /// Rows.
    Copying,
    /// The whole database at once; bytes.
    Saving,
    /// A backup, before anything of it is believed; bytes.
    Reading,
    Indexing,
    /// Rows.
    Verifying,
    /// Rows that the finished steps of a migration have read or written.
    Migrating,
    Checking,
}

/// How far a phase is, in its unit.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub phase: Phase,
    pub table: &'static str,
    pub done: u64,
    pub total: u64,
}

pub type Tell<'a> = dyn FnMut(Progress) + 'a;

/// A finished copy.
#[derive(Debug)]
pub struct Copied {
    pub rows: u64,
    /// Of them, the rows that an earlier attempt had copied.
    pub resumed: u64,
    /// Of the copy; so the source has them too.
    pub problems: Vec<Problem>,
    /// It is the saved namespace unchanged; a backup of an older program has no digest to tell.
    pub is_verified: bool,
}

/// Copies a namespace that no head has open into an empty place.
pub fn copy(
    from: &NamespaceLocation,
    to: &NamespaceLocation,
    order: &Order,
    tell: &mut Tell<'_>,
) -> BulkResult<Copied> {
    let mut source = open_source(from)?;
    let mut marks = source.marks().clone();
    marks.claim(order.instance, from)?;
    let mut sink = open_sink(to, &marks.state(), order.begin)?;
    carry((&mut *source, from), (&mut *sink, to), &marks, tell)
}

pub(super) fn carry(
    (source, from): (&mut dyn Source, &NamespaceLocation),
    (sink, to): (&mut dyn Sink, &NamespaceLocation),
    marks: &Marks,
    tell: &mut Tell<'_>,
) -> BulkResult<Copied> {
    let at = |phase| Progress { phase, table: "", done: 0, total: 0 };
    tell(at(Phase::Counting));
    let mut total = 0;
    for table in TABLES {
        total += source.tables().count(table)?;
    }
    let resumed = transfer(source.tables(), sink, total, tell)?;
    tell(at(Phase::Indexing));
    sink.index()?;
    let rows = compare((source.tables(), from), (sink.tables(), to), total, tell)?;
    sink.publish(marks)?;
    tell(at(Phase::Checking));
    Ok(Copied { rows, resumed, problems: sink.check()?, is_verified: true })
}

/// How many rows were there already.
fn transfer(
    source: &mut dyn Tables,
    sink: &mut dyn Sink,
    total: u64,
    tell: &mut Tell<'_>,
) -> BulkResult<u64> {
    let (mut done, mut resumed) = (0, 0);
    for table in TABLES {
        let after = sink.last_key(table)?;
        if after.is_some() {
            let there = sink.tables().count(table)?;
            done += there;
            resumed += there;
        }
        tell(Progress { phase: Phase::Copying, table: table.name, done, total });
        pages(source, table, after, &mut |page| {
            sink.write(table, page)?;
            done += (page.len() / table.width()) as u64;
            tell(Progress { phase: Phase::Copying, table: table.name, done, total });
            Ok(())
        })?;
    }
    Ok(resumed)
}

/// Read on a thread of their own.
fn pages(
    source: &mut dyn Tables,
    table: &'static Table,
    after: Option<Vec<Value>>,
    each: &mut dyn FnMut(&[Value]) -> BulkResult<()>,
) -> BulkResult<()> {
    thread::scope(|scope| {
        let (hand, taken) = sync_channel(PAGES_AHEAD);
        let reader = move || read_on(source, table, after, &hand);
        thread::Builder::new()
            .name("namespace-copy".to_owned())
            .spawn_scoped(scope, reader)
            .map_err(|error| BulkError::failed("reader", error))?;
        taken.into_iter().try_for_each(|page| each(&page?))
    })
}

/// Until nothing is left, or nobody listens.
fn read_on(
    source: &mut dyn Tables,
    table: &'static Table,
    mut after: Option<Vec<Value>>,
    hand: &SyncSender<BulkResult<Vec<Value>>>,
) {
    loop {
        let page = source.page(table, after.as_deref(), BATCH_ROWS);
        let last = page.as_ref().ok().and_then(|page| page.chunks_exact(table.width()).last());
        after = last.map(|row| row[..table.key_len].to_vec());
        let is_empty = page.as_ref().is_ok_and(Vec::is_empty);
        if is_empty || hand.send(page).is_err() || after.is_none() {
            return;
        }
    }
}

/// Of a table, whatever the order of its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    rows: u64,
    sum: u64,
}

fn digest(side: &mut dyn Tables, table: &'static Table, each: &mut dyn FnMut(u64)) -> BulkResult<Digest> {
    let mut digest = Digest::default();
    pages(side, table, None, &mut |page| {
        for row in page.chunks_exact(table.width()) {
            let mut hasher = DefaultHasher::new();
            row.hash(&mut hasher);
            digest.rows += 1;
            digest.sum = digest.sum.wrapping_add(hasher.finish());
        }
        each(digest.rows);
        Ok(())
    })?;
    Ok(digest)
}

/// Both sides at once; the number of rows if they are the same.
fn compare(
    (source, from): (&mut dyn Tables, &NamespaceLocation),
    (sink, to): (&mut dyn Tables, &NamespaceLocation),
    total: u64,
    tell: &mut Tell<'_>,
) -> BulkResult<u64> {
    let mut done = 0;
    for table in TABLES {
        let (theirs, ours) = thread::scope(|scope| {
            let ours = thread::Builder::new()
                .name("namespace-compare".to_owned())
                .spawn_scoped(scope, || digest(sink, table, &mut |_| {}))
                .map_err(|error| BulkError::failed(to, error))?;
            let theirs = digest(source, table, &mut |rows| {
                tell(Progress { phase: Phase::Verifying, table: table.name, done: done + rows, total });
            })?;
            let ours = ours.join().map_err(|_| BulkError::failed(to, "comparing was not finished"))?;
            Ok::<_, BulkError>((theirs, ours?))
        })?;
        if theirs != ours {
            let what = if theirs.rows == ours.rows {
                format!("{} has the same number of rows and others", table.name)
            } else {
                format!("{} has {} rows and not {}", table.name, ours.rows, theirs.rows)
            };
            return Err(BulkError::Different { place: to.to_string(), from: from.to_string(), what });
        }
        done += ours.rows;
    }
    Ok(done)
}
