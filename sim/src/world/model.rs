//! The history so far, and whether a step of it may be: asked in true time.
//!
//! Each write has a value of its own. A write is *over* when its client was told that it is done, or when the head went on past
//! a fence or a floor that bars its ticket: from then on its value comes to no cell where a later write was acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use api::Term;
use testkit::lossy_disk::CELLS;
use types::{Epoch, FileId};

use super::plan::Cells;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// A write with a ticket of an earlier epoch began after the head went on past the fence.
    Fence,
    /// The head went on past a fence that its pool neither has on disk nor has lost its lease for.
    Confirmation,
    /// A write by a term that was declared settled began.
    Term,
    /// An acknowledged write is lost, or an older one came over it.
    Lost,
    /// A write was acknowledged that is not on disk.
    Durable,
    /// A read gave bytes that were not there meanwhile.
    Read,
    /// The head took a lease for over that the pool holds.
    Lease,
    /// A call took longer than it may.
    Bound,
    /// After the faults, a pool is not ready, or an operation does not end.
    Wait,
    /// A task outlived its host.
    Task,
    /// The code of a host panicked.
    Panic,
    /// Time stands still.
    Livelock,
}

pub type Failure = crate::histories::Failure<Check>;

#[derive(Debug)]
struct Write {
    cells: Cells,
    began: Duration,
    acknowledged: Option<Duration>,
    /// Of a ticket that is used once.
    sole: Option<(Epoch, Term)>,
}

#[derive(Default)]
struct CellHistory {
    values: Vec<(Duration, u64)>,
    /// The acknowledged write that began last.
    newest: Option<(Duration, u64)>,
}

#[derive(Default)]
pub struct Model {
    writes: BTreeMap<u64, Write>,
    cells: BTreeMap<(u64, usize), CellHistory>,
    /// The terms of tickets that clients sent, by value and epoch.
    terms: BTreeMap<(u64, Epoch), Term>,
    /// When the head went on, and the epoch below which.
    fences: BTreeMap<u64, Vec<(Duration, Epoch)>>,
    settled: Vec<(Duration, Term)>,
}

fn failed(check: Check, file: u64, what: String) -> Result<(), Failure> {
    Err(Failure { check, about: Some(file), what })
}

impl Model {
    /// A new write, and its value.
    pub fn begin(&mut self, cells: Cells, now: Duration) -> u64 {
        let value = self.writes.len() as u64 + 1;
        self.writes.insert(value, Write { cells, began: now, acknowledged: None, sole: None });
        value
    }

    /// A client sends it with such a ticket, and with another only when it is told that this one is void.
    pub fn send(&mut self, value: u64, epoch: Epoch, term: Term) {
        self.terms.insert((value, epoch), term);
    }

    pub fn send_once(&mut self, value: u64, epoch: Epoch, term: Term) {
        self.send(value, epoch, term);
        if let Some(write) = self.writes.get_mut(&value) {
            write.sole = Some((epoch, term));
        }
    }

    /// A pool has let in a write of one of its clients.
    pub fn has_begun(&self, file: FileId, epoch: Epoch, value: u64) -> Result<(), Failure> {
        let fenced = self.fenced(file.0);
        if epoch < fenced {
            let what = format!(
                "write {value} of epoch {} to file {} begins, which is fenced below {}",
                epoch.0, file.0, fenced.0
            );
            return failed(Check::Fence, file.0, what);
        }
        let settled = self.settled.last().map_or(Term::UNCOUNTED, |(_, term)| *term);
        match self.terms.get(&(value, epoch)) {
            Some(term) if *term < settled => {
                let what = format!(
                    "write {value} of term {} to file {} begins, and term {} is settled",
                    term.0, file.0, settled.0
                );
                failed(Check::Term, file.0, what)
            }
            _ => Ok(()),
        }
    }

    fn fenced(&self, file: u64) -> Epoch {
        self.fences.get(&file).and_then(|fences| fences.last()).map_or(Epoch::default(), |(_, epoch)| *epoch)
    }

    pub fn went_on(&mut self, file: u64, epoch: Epoch, now: Duration) {
        if epoch > self.fenced(file) {
            self.fences.entry(file).or_default().push((now, epoch));
        }
    }

    pub fn is_settled(&mut self, term: Term, now: Duration) {
        self.settled.push((now, term));
    }

    /// When the write was over. `None`: it may come yet.
    fn over(&self, value: u64) -> Option<Duration> {
        let Some(write) = self.writes.get(&value) else { return Some(Duration::ZERO) };
        let (epoch, term) = write.sole.unzip();
        let fences = self.fences.get(&write.cells.file).into_iter().flatten();
        let fenced = fences.filter(|(_, fence)| epoch.is_some_and(|epoch| epoch < *fence)).map(|(at, _)| *at);
        let settled = self.settled.iter().filter(|(_, floor)| term.is_some_and(|term| term < *floor));
        write.acknowledged.into_iter().chain(fenced.min()).chain(settled.map(|(at, _)| *at).min()).min()
    }

    /// The cell has that value from now on.
    pub fn becomes(&mut self, file: FileId, cell: usize, value: u64, now: Duration) -> Result<(), Failure> {
        let over = self.over(value);
        let history = self.cells.entry((file.0, cell)).or_default();
        history.values.push((now, value));
        match (history.newest, over) {
            (Some((began, newest)), Some(over)) if over < began => {
                let what = format!(
                    "cell {cell} of file {} becomes {value}, which was over at {:.6} s; write {newest} began at {:.6} s and is acknowledged",
                    file.0,
                    over.as_secs_f64(),
                    began.as_secs_f64(),
                );
                failed(Check::Lost, file.0, what)
            }
            _ => Ok(()),
        }
    }

    /// The client is told that the write is done and synced.
    pub fn acknowledge(&mut self, value: u64, now: Duration) -> Cells {
        let write = self.writes.get_mut(&value).expect("it has begun");
        write.acknowledged = Some(now);
        let (cells, began) = (write.cells, write.began);
        for cell in cells.first..cells.first + cells.count {
            let history = self.cells.entry((cells.file, cell)).or_default();
            history.newest = history.newest.max(Some((began, value)));
        }
        cells
    }

    /// A read that began at `from` ends now.
    pub fn read(&self, file: u64, values: &[u64], from: Duration) -> Result<(), Failure> {
        for (cell, value) in values.iter().enumerate() {
            let history = self.cells.get(&(file, cell)).map_or(&[][..], |history| &history.values);
            let before = history.iter().rev().find(|(at, _)| *at < from).map_or(0, |(_, value)| *value);
            let mut meanwhile = history.iter().filter(|(at, _)| *at >= from);
            if *value != before && !meanwhile.any(|(_, known)| known == value) {
                let what = format!(
                    "cell {cell} of file {file} is read as {value}, and was {before} and not that since"
                );
                return failed(Check::Read, file, what);
            }
        }
        Ok(())
    }

    pub fn acknowledged_count(&self) -> usize {
        self.writes.values().filter(|write| write.acknowledged.is_some()).count()
    }
}

impl Cells {
    pub fn offset(&self) -> u64 {
        (self.first * testkit::lossy_disk::CELL_BYTES) as u64
    }

    pub fn all_of(file: u64) -> Cells {
        Cells { file, first: 0, count: CELLS }
    }
}
